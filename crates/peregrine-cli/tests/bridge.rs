//! Tests the command `bridge`: HTTP to a server of this machine that is killed and started again, and
//! programs of other authors at both sides of a bridge. docs/INTEROP.md lists these programs.

#[path = "../../peregrine/tests/onc_interop/machine.rs"]
#[allow(dead_code)]
mod machine;
mod sandbox;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use machine::{Daemon, alone, are_installed, run, until_registered};
use peregrine::interface;
use rustix::process::Signal;
use sandbox::{Process, Sandbox, TIMEOUT};
use serde_json::{Value, json};

/// The functions that the module `machine` uses.
mod support {
    pub(crate) use crate::sandbox::until;

    /// Returns the name of the test that runs in namespaces, or `None` outside of them.
    pub(crate) fn role() -> Option<String> {
        std::env::var("PEREGRINE_TEST_ROLE").ok()
    }

    /// Returns a new directory, which stays unused: each command runs in the directory of its test's sandbox.
    pub(crate) fn own_directory() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }
}

/// A bridge, the host and port at which it serves HTTP, and the addresses at which RPC systems call it.
struct Bridge {
    process: Process,
    at: String,
    listens: Vec<String>,
}

impl Bridge {
    fn start(sandbox: &Sandbox, arguments: &[&str]) -> Self {
        let fixed = &["bridge", "--http", "127.0.0.1:0", "--format", "json"];
        let mut process = Process::start(&mut sandbox.command(&[fixed, arguments].concat()));
        let ready: Value = serde_json::from_str(&process.line()).unwrap();
        assert_eq!((&ready["ready"], &ready["process"]), (&true.into(), &process.0.id().into()));
        let url = ready["http"][0].as_str().unwrap();
        let at = url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
        let listens = ready["listens"].as_array().unwrap().iter();
        let listens = listens.map(|one| one.as_str().unwrap().to_owned()).collect();
        Self { process, at, listens }
    }

    /// Makes a call, and returns the answer.
    fn call(&self, path: &str, body: &str) -> Value {
        let (_, answer) = self.ask(&format!("POST {path}"), body);
        serde_json::from_str(&answer).unwrap()
    }

    /// Sends a request with a body of JSON. Returns the header and the body of the answer.
    fn ask(&self, line: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.at).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let (at, length) = (&self.at, body.len());
        write!(
            stream,
            "{line} HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn read(&self, export: &str) -> (String, Value) {
        let body = r#"{"path": "hello", "offset": 0, "into": 100}"#;
        let (head, body) = self.ask(&format!("POST /{export}/read"), body);
        (head, serde_json::from_str(&body).unwrap())
    }
}

#[test]
fn server_of_this_machine_may_start_later_and_be_restarted() {
    let sandbox = Sandbox::new();
    let bridge = Bridge::start(&sandbox, &["files", "again=local:files"]);
    let absent = |export: &str| {
        let (head, answer) = bridge.read(export);
        assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
        let error = &answer["error"];
        assert_eq!((&error["kind"], &error["executed"]), (&"NotFound".into(), &"no".into()));
    };
    absent("files");
    for _ in 0..2 {
        let mut server = sandbox.serve(&[]);
        for export in ["files", "again"] {
            let (head, answer) = bridge.read(export);
            assert!(head.starts_with("HTTP/1.1 200 "), "{head} {answer}");
            assert_eq!(answer["out"], json!({ "into": "hello" }));
        }
        let (_, page) = bridge.ask("GET /", "");
        assert!(page.contains("data-path=\"/again/read\""), "{page}");
        server.signal(Signal::KILL);
        server.wait();
        absent("again");
    }
}

#[test]
fn signals_end_the_bridge() {
    let sandbox = Sandbox::new();
    for (signal, code) in [(Signal::TERM, 0), (Signal::INT, 130)] {
        let mut bridge = Bridge::start(&sandbox, &["files"]);
        bridge.process.signal(signal);
        assert_eq!(bridge.process.wait().code(), Some(code));
    }
}

#[test]
fn addresses_beyond_this_machine_are_asked_for() {
    let sandbox = Sandbox::new();
    let (code, report) = sandbox.json(&["bridge", "files", "--http", "0.0.0.0:0"]);
    let error = &report["error"];
    assert!(code == 3 && error["what"].as_str().unwrap().contains("can reach"), "{report}");
    let advice =
        "--beyond-this-machine with --i-trust-this-network allows it: HTTP is not encrypted";
    assert_eq!(error["advice"], advice);
    let (code, report) = sandbox.json(&["bridge", "files", "local:files"]);
    assert!(code == 3 && report["error"]["what"].as_str().unwrap().contains("NAME=ADDRESS"));
    let (code, _) = sandbox.json(&["bridge", "a:b:c"]);
    assert_eq!(code, 3);
}

/// The interface file of [`Stock`].
const STOCK_X: &str = "
const COUNTS_MAX = 4;
typedef string label<32>;
struct item { label name; unsigned short counts<COUNTS_MAX>; };
program STOCK { version STOCK_2 {
    int ADD(int, int) = 1;
    item FIND(label) = 2;
} = 2; } = 0x20000778;
";

/// The text of a client in C. The client calls a server at the port in its argument, and prints the results.
const CLIENT_C: &str = r#"
#include <arpa/inet.h>
#include <stdlib.h>
#include "stock.h"

int main(int count, char **arguments) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int it = RPC_ANYSOCK, sum = 0;
    item found = {0};
    to.sin_port = htons(atoi(arguments[1]));
    CLIENT *client = clnttcp_create(&to, STOCK, STOCK_2, &it, 0, 0);
    if (count != 2 || client == NULL || add_2(2, -5, &sum, client) != RPC_SUCCESS)
        return 1;
    printf("%d", sum);
    if (find_2("hat", &found, client) != RPC_SUCCESS)
        return 1;
    printf(" %s %u %u", found.name, found.counts.counts_val[0], found.counts.counts_val[1]);
    // The server fails: there is no item without a name.
    return find_2("", &found, client) == RPC_SYSTEMERROR ? 0 : 1;
}
"#;

#[derive(peregrine::Value)]
struct Item {
    name: String,
    counts: Vec<u16>,
}

/// An interface without the program and procedure numbers that other RPC systems need.
#[interface]
trait Stock {
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32>;
    fn find(&self, name: String) -> peregrine::Result<Item>;
}

struct Hats;

impl Stock for Hats {
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32> {
        Ok(a + b)
    }

    fn find(&self, name: String) -> peregrine::Result<Item> {
        assert!(!name.is_empty(), "an item has a name");
        Ok(Item { name, counts: vec![7, 65_535] })
    }
}

/// Starts a server of [`Stock`]. Returns the server and its address.
fn stock() -> (peregrine::Running, String) {
    let options = peregrine::ExportOptions::default().networks_only();
    let server = peregrine::Server::new().export_with("stock", StockServer::new(Hats), options);
    let running = server.unwrap().listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let address = format!("{}/stock", running.addresses()[0]);
    (running, address)
}

#[test]
fn client_of_rpcgen_calls_a_server_of_peregrine() {
    if !are_installed(&["rpcgen", "gcc", "pkg-config"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let (_stock, address) = stock();
    let offer = format!("stock={address}");
    let program = ["--program", "stock=onc:536872824.2"];
    let onc = [&[&*offer, "--listen", "onc+tcp:127.0.0.1:0"][..], &program].concat();
    fs::write(sandbox.path("stock.x"), STOCK_X).unwrap();
    fs::write(sandbox.path("client.c"), CLIENT_C).unwrap();
    let make = "rpcgen -N -M -h -o stock.h stock.x && rpcgen -N -M -c -o xdr.c stock.x && \
                rpcgen -N -M -l -o stubs.c stock.x && \
                gcc -std=gnu11 -w -o client client.c xdr.c stubs.c $(pkg-config --cflags --libs libtirpc)";
    let made =
        Command::new("sh").args(["-c", make]).current_dir(sandbox.0.path()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let bridge = Bridge::start(&sandbox, &onc);
    let port = bridge.listens[0].rsplit(':').next().unwrap();
    let client = Command::new(sandbox.path("client")).arg(port).output().unwrap();
    assert!(client.status.success(), "{client:?}");
    assert_eq!(String::from_utf8_lossy(&client.stdout), "-3 hat 7 65535");
}

#[test]
fn interface_file_says_how_to_call_another_system() {
    let sandbox = Sandbox::new();
    let (_stock, address) = stock();
    fs::write(sandbox.path("stock.x"), STOCK_X).unwrap();
    // The first bridge offers the server as a program of ONC RPC. The second bridge offers this program over
    // HTTP.
    let onc = ["--listen", "onc+udp:127.0.0.1:0", "--program", "stock=onc:536872824.2"];
    let offer = format!("stock={address}");
    let first = Bridge::start(&sandbox, &[&[&*offer][..], &onc].concat());
    let file = ["--interface", "stock.x", "--listen", "local:again", "--http", "127.0.0.1:0"];
    let offer = format!("again={}", first.listens[0]);
    let second = Bridge::start(&sandbox, &[&[&*offer][..], &file].concat());
    let found = second.call("/again/find", r#"{"label": "hat"}"#);
    assert_eq!(found["result"], json!({ "name": "hat", "counts": [7, 65_535] }), "{found}");
    // The name is longer than the interface file permits.
    let name = "x".repeat(33);
    let long = second.call("/again/find", &format!(r#"{{"label": "{name}"}}"#));
    assert_eq!(long["error"]["executed"], "no", "{long}");
    // The command calls the export of the second bridge.
    let (code, found) = sandbox.json(&["call", "again", "find", "label=hat"]);
    assert_eq!((code, &found["result"]["name"]), (0, &json!("hat")), "{found}");
    // The file is replaced by a broken one, and then by one with other names.
    let replace = |text: &str| {
        fs::write(sandbox.path("aside"), text).unwrap();
        fs::rename(sandbox.path("aside"), sandbox.path("stock.x")).unwrap();
    };
    replace("program {");
    let found = second.call("/again/find", r#"{"label": "hat"}"#);
    assert_eq!(found["result"]["name"], "hat", "{found}");
    replace(&STOCK_X.replace("FIND", "SEEK"));
    assert_eq!(second.call("/again/seek", r#"{"label": "hat"}"#)["result"]["name"], "hat");
    sandbox::until("the export has the new interface", || {
        sandbox.json(&["call", "again", "seek", "label=hat"]).0 == 0
    });
}

#[test]
fn rpc_rusersd_is_called_over_http() {
    let file = "/usr/include/rpcsvc/rusers.x";
    if !std::path::Path::new(file).exists() {
        eprintln!("skipped: {file} is not installed");
        return;
    }
    let needs = ["rpcbind", "rpcinfo", "rpc.rusersd", "utmpdump"];
    alone("rpc_rusersd_is_called_over_http", &needs, || {
        let _rpcbind = Daemon::rpcbind();
        let log_in = "printf '[7] [00001] [7   ] [ada     ] [pts/7       ] [far.example         ] \
                      [0.0.0.0        ] [2023-11-14T22:13:20,000000+00:00]\n' > /run/one && \
                      utmpdump -r -o /run/utmp /run/one";
        run("sh", &["-c", log_in]);
        let _daemon = Daemon::start("rpc.rusersd", &[]);
        until_registered(100_002, 3, "udp");
        let sandbox = Sandbox::new();
        let offer = "users=onc+udp:127.0.0.1/100002.3";
        let bridge = Bridge::start(&sandbox, &[offer, "--interface", file]);
        assert_eq!(bridge.call("/users/num", "{}")["result"], 1);
        let users = bridge.call("/users/allnames", "{}");
        assert_eq!(users["result"][0]["ut_user"], "ada", "{users}");
        assert_eq!(users["result"][0]["ut_time"], 1_700_000_000);
    });
}

#[test]
fn exports_that_a_system_cannot_carry_are_refused() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    let onc = ["bridge", "f=files", "--listen", "onc+tcp:127.0.0.1:0"];
    let (code, report) = sandbox.json(&[&onc[..], &["--program", "f=onc:536870912.1"]].concat());
    let what = report["error"]["what"].as_str().unwrap();
    assert!(code == 3 && what.contains("`f`: read.into: other systems"), "{report}");
    for (arguments, part) in [
        (&["f=onc+tcp:127.0.0.1:1/7.1"][..], "cannot describe its interface"),
        (&["f=onc+tcp:127.0.0.1:1/7.1", "--interface", "none.x"], "none.x"),
        (&["files", "--listen", "local:other"], "no export `other`"),
        (&["files", "--listen", "local:files"], "leads to the bridge itself"),
        (&["files", "--listen", "tcp:127.0.0.1:0", "--program", "files"], "NAME=onc"),
        (&["files", "--listen", "tcp:0.0.0.0:0"], "other machines"),
    ] {
        let (code, report) = sandbox.json(&[&["bridge"], arguments].concat());
        assert!(code == 3 && report["error"].to_string().contains(part), "{report}");
    }
}
