//! Tests `health` as a supervisor uses it, and what `serve` and `bridge` report to systemd.

mod sandbox;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use peregrine::{Server, interface};
use rustix::process::Signal;
use sandbox::{Process, Sandbox, TIMEOUT, until};
use serde_json::json;

/// A gate that is closed at first.
#[interface]
trait Gate {
    /// Returns when the gate is open.
    fn pass(&self) -> peregrine::Result<()>;
}

/// The gate is open when this file exists.
struct File(PathBuf);

impl Gate for File {
    fn pass(&self) -> peregrine::Result<()> {
        let limit = Instant::now() + TIMEOUT;
        while !self.0.exists() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

/// The server process. In the test run itself there is no file, and this function does nothing.
#[test]
fn server() {
    let Some(file) = std::env::var_os("PEREGRINE_TEST_GATE") else { return };
    let gate = GateServer::new(File(file.into()));
    let server = Server::new().threads(1).export("gate", gate).unwrap();
    let server = server.listen("tcp:127.0.0.1:0").unwrap().drain_on_signals(TIMEOUT);
    let running = server.spawn().unwrap();
    fs::write(directory().join("address"), running.addresses()[0].to_string()).unwrap();
    running.wait();
}

/// Returns the runtime directory of the server process, which its parent has set.
fn directory() -> PathBuf {
    PathBuf::from(std::env::var_os("PEREGRINE_DIR").unwrap())
}

#[test]
fn exit_code_says_how_the_server_is() {
    let sandbox = Sandbox::new();
    let (gate, address) = (sandbox.path("gate"), sandbox.path("run/address"));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "server"]).env("PEREGRINE_DIR", sandbox.path("run"));
    let mut server = Process::start(command.env("PEREGRINE_TEST_GATE", &gate));
    let read = || fs::read_to_string(&address).unwrap_or_default();
    until("the server listens", || !read().is_empty());
    let far = format!("tcp:gate@{}", read().strip_prefix("tcp:").unwrap());
    let code = |address: &str| sandbox.run(&["health", address, "--timeout", "20s"]).code;
    let check = |expected: i32, text: &str, why: &str| {
        for address in ["gate", &far] {
            let done = sandbox.run(&["health", address]);
            let line = format!("{address}: {text}{why}\n");
            assert_eq!((done.code, done.out, done.err), (expected, line, String::new()));
            let (code, report) = sandbox.json(&["health", address]);
            assert_eq!((code, &report["address"]), (expected, &json!(address)), "{report}");
            assert_eq!(report["health"], text);
            assert!(report["took_ns"].is_u64() && report["error"].is_null(), "{report}");
        }
    };
    check(0, "serving", "");
    let call = Process::start(&mut sandbox.command(&["call", "gate", "pass"]));
    until("the only thread is busy", || code("gate") == 6);
    check(6, "overloaded", ": it accepts no more work at once");
    server.signal(Signal::TERM);
    until("the server drains", || code("gate") == 5);
    check(5, "draining", ": it is about to stop, and refuses new calls");
    fs::write(&gate, "").unwrap();
    assert!(server.wait().success());
    drop(call);
    for address in ["gate", &far] {
        let (code, report) = sandbox.json(&["health", address]);
        assert_eq!((code, &report["error"]["executed"]), (3, &json!("no")), "{report}");
    }
}

/// Returns the next report of a process that plays a service of systemd.
fn report(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 1024];
    let bytes = socket.recv(&mut buffer).expect("a report in time");
    String::from_utf8(buffer[..bytes].to_vec()).unwrap()
}

#[test]
fn commands_that_serve_report_to_systemd() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("notify");
    let socket = UnixDatagram::bind(Path::new(&path)).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let files = sandbox.path("files");
    let serve = ["serve", &*files, "--name", "docs"];
    let bridge = ["bridge", "docs", "--http", "127.0.0.1:0"];
    for (line, status) in [(&serve[..], "serving docs"), (&bridge[..], "offering docs")] {
        // An idle process stops at once, and must report that nevertheless.
        for _ in 0..100 {
            let mut command = sandbox.command(line);
            let mut process = Process::start(command.env("NOTIFY_SOCKET", &path));
            assert_eq!(report(&socket), format!("READY=1\nSTATUS={status}\n"));
            process.signal(Signal::TERM);
            let stopping = "STOPPING=1\nSTATUS=draining: waiting for calls that run\n";
            assert_eq!(report(&socket), stopping);
            assert!(process.wait().success());
        }

        // The bridge also reports that it is alive.
        let mut command = sandbox.command(line);
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000");
        let process = Process::start(&mut command);
        assert!(report(&socket).starts_with("READY=1\n"));
        assert_eq!([report(&socket), report(&socket)], ["WATCHDOG=1\n"; 2]);
        drop(process);
        // The process may have reported more before it was killed.
        socket.set_nonblocking(true).unwrap();
        while socket.recv(&mut [0; 64]).is_ok() {}
        socket.set_nonblocking(false).unwrap();

        let done = sandbox.command(line).env("NOTIFY_SOCKET", "nowhere").output().unwrap();
        assert_eq!(done.status.code(), Some(3));
        let text = String::from_utf8_lossy(&done.stderr);
        assert!(text.contains("NOTIFY_SOCKET is \"nowhere\": neither an absolute path"), "{text}");
    }
}
