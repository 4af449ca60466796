//! Tests `names`, `register` and `serve --register`, and the commands that ask each server of a name. The
//! directory is a tree of files.

mod sandbox;
mod terminal;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::ChildStdout;

use rustix::process::Signal;
use sandbox::{Process, Sandbox, until};
use serde_json::{Value, json};
use terminal::Terminal;

/// A sandbox with a tree of files, in which servers register.
struct Names(Sandbox);

impl Names {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        fs::create_dir(sandbox.path("names")).unwrap();
        Self(sandbox)
    }

    /// Returns the option that chooses the tree.
    fn option(&self) -> String {
        format!("--directory=file:{}", self.0.path("names"))
    }

    fn run(&self, arguments: &[&str]) -> sandbox::Done {
        self.0.run(&[arguments, &[&*self.option()]].concat())
    }

    fn json(&self, arguments: &[&str]) -> (i32, Value) {
        self.0.json(&[arguments, &[&*self.option()]].concat())
    }

    /// Writes the record of a server by hand.
    fn record(&self, name: &str, server: &str, address: &str) {
        let place = self.0.0.path().join("names").join(name);
        fs::create_dir_all(&place).unwrap();
        let line = json!({ "server": server, "addresses": [address] });
        fs::write(place.join(format!("{server}.json")), format!("{line}\n")).unwrap();
    }

    /// Starts a command, and returns it with its output.
    fn start(&self, arguments: &[&str]) -> (Process, BufReader<ChildStdout>) {
        let option = self.option();
        let mut process = Process::start(&mut self.0.command(&[arguments, &[&*option]].concat()));
        let output = BufReader::new(process.0.stdout.take().unwrap());
        (process, output)
    }

    /// Starts a server that registers `files`. It has a runtime directory of its own, as on another machine.
    /// Returns its address, too.
    fn serve(&self, run: &str) -> (Process, String) {
        let (files, option) = (self.0.path("files"), self.option());
        let mut command = self.0.command(&["serve", &files, "--format", "json", "--register"]);
        command.args(["--listen", "tcp:127.0.0.1:0", "--advertise", "127.0.0.1", &option]);
        command.args(["--registered-as", run]);
        fs::create_dir_all(self.0.path(run)).unwrap();
        let mut process = Process::start(command.env("PEREGRINE_DIR", self.0.path(run)));
        let ready: Value = serde_json::from_str(&process.line()).unwrap();
        assert!(ready["registered_in"].as_str().unwrap().starts_with("files below "), "{ready}");
        (process, ready["addresses"][0].as_str().unwrap().to_owned())
    }

    /// Returns the servers of a name.
    fn servers(&self, name: &str) -> Vec<Value> {
        let (code, listed) = self.json(&["names"]);
        assert_eq!(code, 0);
        let names = listed["names"].as_array().unwrap().iter();
        let found = names.filter(|one| one["name"] == name).map(|one| one["servers"].clone());
        found.flat_map(|servers| servers.as_array().unwrap().clone()).collect()
    }
}

fn next(output: &mut BufReader<ChildStdout>) -> Value {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
}

#[test]
fn names_are_listed_with_their_servers_and_remarks() {
    let names = Names::new();
    let done = names.run(&["names"]);
    assert_eq!((done.code, &*done.out), (0, ""));
    assert!(done.err.starts_with("no names in files below "), "{done:?}");
    names.record("files", "fs1", "files@fs1.example.org:7000");
    names.record("files", "fs2", "tcp:files@192.0.2.2:7000");
    names.record("photos", "fs2", "photos@192.0.2.2:7001");
    fs::write(names.0.path("names/files/wrong.json"), "{\n").unwrap();
    let done = names.run(&["names"]);
    let rows: Vec<Vec<&str>> =
        done.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows,
        [
            ["NAME", "SERVER", "ADDRESSES"],
            ["files", "fs1", "files@fs1.example.org:7000"],
            ["files", "fs2", "tcp:files@192.0.2.2:7000"],
            ["photos", "fs2", "photos@192.0.2.2:7001"],
        ]
    );
    assert!(done.code == 0 && done.err.contains("`files`: "), "{done:?}");
    assert!(done.err.contains("wrong.json:1: "), "{done:?}");
    let (code, listed) = names.json(&["names"]);
    assert_eq!((code, listed["names"].as_array().unwrap().len()), (0, 2));
    let files = &listed["names"][0];
    assert_eq!((&files["name"], &files["is_here"]), (&json!("files"), &json!(false)));
    let first = json!({ "server": "fs1", "addresses": ["files@fs1.example.org:7000"] });
    assert_eq!((&files["servers"][0], &files["age_ms"]), (&first, &Value::Null));
    assert_eq!(files["remarks"].as_array().unwrap().len(), 1);
    let lines = names.run(&["names", "--format", "ndjson"]).out;
    assert_eq!(lines.lines().count(), 2);
    // The environment selects the same directory.
    let mut command = names.0.command(&["names"]);
    let variable = format!("file:{}", names.0.path("names"));
    let output = command.env("PEREGRINE_DIRECTORY", variable).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), done.out);
}

#[test]
fn without_a_directory_names_are_those_of_hosts_files_and_this_machine() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    let hosts = sandbox.path("hosts");
    fs::write(&hosts, "photos photos@fs1:7000\nfiles tcp:files@fs2:7001 # there, too\n").unwrap();
    let mut command = sandbox.command(&["names", "--format", "json"]);
    let output = command.env("PEREGRINE_HOSTS", &hosts).output().unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let named = |name: &str| {
        let names = listed["names"].as_array().unwrap();
        names.iter().find(|one| one["name"] == name).unwrap().clone()
    };
    let (files, photos) = (named("files"), named("photos"));
    assert_eq!((&files["is_here"], &photos["is_here"]), (&json!(true), &json!(false)));
    assert_eq!(files["servers"], json!([{ "server": "1", "addresses": ["tcp:files@fs2:7001"] }]));
    assert!(listed["directory"].as_str().unwrap().ends_with(", and this machine"), "{listed}");
    let mut command = sandbox.command(&["names"]);
    let output = command.env("PEREGRINE_HOSTS", &hosts).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("local:files") && text.contains("photos@fs1:7000"), "{text}");
}

#[test]
fn watch_follows_a_registration_and_its_withdrawal() {
    let names = Names::new();
    let (watch, mut states) = names.start(&["names", "--watch", "--format", "json"]);
    assert_eq!(next(&mut states)["names"], json!([]));
    let (lines, mut changes) = names.start(&["names", "--watch"]);
    let option = names.option();
    let terminal = Terminal::start(names.0.command(&["names", "--watch", &option]), 24, 100);
    terminal.until("press q to quit");
    let register = ["register", "@fs1.example.org:7000", "files", "--format", "json"];
    let (mut process, mut reports) = names.start(&register);
    let ready = next(&mut reports);
    assert_eq!(
        (&ready["registered"], &ready["server"]),
        (&json!(true), &json!("fs1.example.org-7000"))
    );
    assert_eq!(ready["addresses"], json!(["files@fs1.example.org:7000"]));
    let state = next(&mut states);
    assert_eq!(state["names"][0]["servers"][0]["server"], "fs1.example.org-7000", "{state}");
    terminal.until("fs1.example.org-7000");
    let mut line = String::new();
    changes.read_line(&mut line).unwrap();
    assert_eq!(line, "+ files  fs1.example.org-7000  files@fs1.example.org:7000\n");
    process.signal(Signal::TERM);
    assert_eq!(next(&mut reports)["registered"], false);
    assert_eq!(process.wait().code(), Some(0));
    assert_eq!(next(&mut states)["names"], json!([]));
    line.clear();
    changes.read_line(&mut line).unwrap();
    assert_eq!(line, "- files  fs1.example.org-7000  files@fs1.example.org:7000\n");
    until("the screen is redrawn", || !terminal.screen().contents().contains("fs1"));
    terminal.write("q");
    assert_eq!(terminal.end().code, 0);
    for mut process in [watch, lines] {
        process.signal(Signal::INT);
        assert_eq!(process.wait().code(), Some(130));
    }
}

#[test]
fn register_ends_with_a_signal_and_withdraws() {
    let names = Names::new();
    for signal in [Signal::INT, Signal::TERM] {
        let line = ["register", "tcp:disk@[::1]:7000", "udp:disk@[::1]:7001", "files"];
        let option = names.option();
        let arguments = [&line[..], &["--server", "fs7", &option]].concat();
        let mut process = Process::start(&mut names.0.command(&arguments));
        until("the server is registered", || !names.servers("files").is_empty());
        let addresses = ["tcp:disk@[::1]:7000", "udp:disk@[::1]:7001"];
        assert_eq!(names.servers("files"), [json!({ "server": "fs7", "addresses": addresses })]);
        process.signal(signal);
        assert_eq!(process.wait().code(), Some(0));
        let mut text = String::new();
        process.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(text.starts_with("registered files at tcp:disk@[::1]:7000 "), "{text}");
        assert!(text.ends_with("; it is withdrawn\n"), "{text}");
        assert!(names.servers("files").is_empty());
    }
}

#[test]
fn register_says_when_the_directory_fails_and_when_it_works_again() {
    let names = Names::new();
    let (process, mut reports) =
        names.start(&["register", "@fs1:7000", "files", "--format", "json"]);
    assert_eq!(next(&mut reports)["registered"], true);
    let (tree, away) = (names.0.path("names"), names.0.path("away"));
    fs::rename(&tree, &away).unwrap();
    // The registration is renewed three times within each lease.
    let report = next(&mut reports);
    assert!(report["problem"].as_str().is_some_and(|why| why.contains("names")), "{report}");
    fs::rename(&away, &tree).unwrap();
    assert_eq!(next(&mut reports), json!({ "name": "files", "problem": null }));
    assert_eq!(names.servers("files").len(), 1);
    drop(process);
}

#[test]
fn each_server_of_a_name_is_shown() {
    let names = Names::new();
    let (mut first, at_first) = names.serve("run");
    // A name with one server is shown as without a directory.
    let (code, explained) = names.json(&["explain", "tcp:files"]);
    assert_eq!((code, &explained["path"], &explained["servers"]), (0, &json!("tcp"), &Value::Null));
    let (_second, at_second) = names.serve("second");
    names.record("files", "zz-dead", "tcp:files@127.0.0.1:1");
    let mut registered = names.servers("files");
    let mut found = registered.iter().map(|one| one["addresses"][0].as_str().unwrap());
    assert!(found.any(|one| one == at_first) && registered.len() == 3, "{registered:?}");
    registered.pop();
    let ids: Vec<&str> = registered.iter().map(|one| one["server"].as_str().unwrap()).collect();
    assert_eq!(ids, ["run", "second"], "the texts of --registered-as");

    // The answers of a command: those of the two servers, and the failure of the third.
    let check = |command: &[&str]| {
        let (code, whole) = names.json(command);
        assert_eq!(code, 0, "{command:?}: {whole}");
        let servers = whole["servers"].as_array().unwrap().clone();
        let (dead, alive) = servers.split_last().unwrap();
        let shown: Vec<&str> = alive.iter().map(|one| one["server"].as_str().unwrap()).collect();
        assert_eq!(shown, ids, "{whole}");
        assert!(alive.iter().all(|one| one["path"] == "tcp"), "{whole}");
        assert_eq!((&dead["server"], &dead["path"]), (&json!("zz-dead"), &Value::Null));
        assert!(dead["reason"].as_str().unwrap().contains("refused"), "{whole}");
        let done = names.run(command);
        assert_eq!(done.code, 0, "{done:?}");
        for part in ids.iter().chain(&["zz-dead", "refused"]) {
            assert!(done.out.contains(part), "{part} is missing in {done:?}");
        }
        (whole, servers, done.out)
    };
    let standings = |servers: &[Value]| -> Vec<String> {
        servers.iter().map(|one| one["standing"].as_str().unwrap().to_owned()).collect()
    };
    let (explained, servers, text) = check(&["explain", "files"]);
    assert_eq!(standings(&servers), ["used", "used", "left out"]);
    // A client without a pool calls the server of this machine.
    assert_eq!((&explained["address"], &explained["path"]), (&json!("files"), &json!("local")));
    assert!(text.starts_with("files\n  local     "), "{text}");
    let (listed, servers, _) = check(&["list", "files"]);
    assert_eq!(standings(&servers), ["answers", "answers", "fails"]);
    let exports = listed["exports"].as_array().unwrap();
    assert!(exports.len() == 2 && exports.iter().all(|one| one["name"] == "files"), "{listed}");
    assert_eq!(exports[1]["server"], ids[1]);
    let (described, servers, text) = check(&["describe", "files"]);
    assert!(described["canonical"].is_string());
    assert!(servers[0]["digest"] == described["digest"] && servers[1]["process"].is_u64());
    assert!(text.starts_with("// server ") && text.contains("pub trait Files"), "{text}");
    let (health, servers, text) = check(&["health", "files"]);
    assert_eq!((&health["health"], &servers[0]["health"]), (&json!("serving"), &json!("serving")));
    assert!(text.starts_with("files: 2 of 3 servers serve\n"), "{text}");
    let stat = ["stat", "files", "--interval", "20ms"];
    let (counted, servers, text) = check(&stat);
    assert!(servers[1]["calls"].is_u64() && servers[2]["calls"].is_null(), "{counted}");
    assert!(text.starts_with("files: 2 of 3 servers answer\n"), "{text}");
    let twice = names.run(&[&stat[..], &["--count", "2", "--format", "ndjson"]].concat());
    assert_eq!(twice.out.lines().count(), 6, "{twice:?}");
    let watch = names.run(&[&stat[..], &["--count", "2", "--watch"]].concat());
    assert!(watch.code == 0 && watch.out.lines().count() == 6, "{watch:?}");
    let option = names.option();
    let watch = [&stat[..], &["--watch", &option]].concat();
    let terminal = Terminal::start(names.0.command(&watch), 60, 100);
    terminal.until("server zz-dead");
    terminal.until("press q to quit");
    terminal.write("q");
    assert_eq!(terminal.end().code, 0);
    // Other commands use one of the servers.
    let done = names.run(&["call", "files", "size", "path=hello"]);
    assert_eq!((done.code, &*done.out), (0, "5\n"), "{done:?}");

    // A server that stops withdraws its registration.
    first.signal(Signal::TERM);
    assert_eq!(first.wait().code(), Some(0));
    let left = names.servers("files");
    assert_eq!(left.len(), 2);
    assert_eq!(left[0]["addresses"][0], at_second.as_str());
}

#[test]
fn command_fails_if_no_server_of_a_name_answers() {
    let names = Names::new();
    names.record("files", "fs1", "tcp:files@127.0.0.1:1");
    names.record("files", "fs2", "tcp:files@127.0.0.1:2");
    for command in ["explain", "list", "describe", "health", "stat"] {
        let (code, report) = names.json(&[command, "files"]);
        assert_eq!((code, &report["error"]["executed"]), (3, &json!("no")), "{report}");
        let servers = report["servers"].as_array().unwrap();
        assert_eq!(servers.len(), 2, "{report}");
        let refused = |one: &Value| one["reason"].as_str().unwrap().contains("refused");
        assert!(servers.iter().all(refused), "{report}");
        let done = names.run(&[command, "files"]);
        assert!(done.code == 3 && done.err.contains("error: "), "{done:?}");
    }
    // The servers have no address for this path.
    let (code, report) = names.json(&["health", "udp:files"]);
    let why = report["error"]["what"].as_str().unwrap();
    assert!(code == 3 && why.contains("no address for udp:"), "{report}");
}

#[test]
fn directory_that_cannot_be_used_is_an_error() {
    let sandbox = Sandbox::new();
    let (code, report) = sandbox.json(&["names", "--directory", "nis:domain"]);
    assert_eq!((code, &report["error"]["kind"]), (3, &json!("BadName")));
    let causes = report["error"]["causes"][0].as_str().unwrap();
    assert!(causes.contains("file, hosts") && causes.contains("etcd"), "{report}");
    let (code, report) = sandbox.json(&["names", "--directory", "file:nowhere"]);
    assert_eq!((code, &report["error"]["kind"]), (3, &json!("System")), "{report}");
    let (code, report) = sandbox.json(&["register", "@fs1:7000", "files"]);
    assert_eq!((code, &report["error"]["kind"]), (3, &json!("BadName")), "{report}");
    let files = sandbox.path("files");
    assert_eq!(sandbox.run(&["serve", &files, "--register"]).code, 2);
    assert_eq!(sandbox.run(&["register", "files", "files"]).code, 3);
    let listen = ["--listen", "tcp:127.0.0.1:0", "--register", "--directory", "file:files"];
    let (code, report) = sandbox.json(&[&["serve", &*files], &listen[..]].concat());
    assert_eq!(code, 3, "{report}");
    let causes = report["error"]["causes"][0].as_str().unwrap();
    assert!(causes.contains("other machines cannot reach tcp:127.0.0.1:"), "{report}");
}
