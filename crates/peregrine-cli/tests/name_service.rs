//! Tests `directory serve`, and the commands that let a name service find servers and make calls.

mod sandbox;

use std::fs;

use peregrine::{ExportOptions, Kind, Server};
use peregrine_names::{
    Failure, Interface, Known, Lookup, LookupServer, NamesError, Page, Returned,
};
use rustix::process::Signal;
use sandbox::{Done, Process, Sandbox};
use serde_json::{Value, json};

/// A server that is registered in a tree of files, and a name service over this tree. Each has a runtime
/// directory of its own, as on another machine.
struct World {
    client: Sandbox,
    serving: Process,
    service: Process,
    /// The address of the name service.
    names: String,
    /// The address of the server.
    server: String,
}

fn ready(process: &mut Process) -> Value {
    let ready: Value = serde_json::from_str(&process.line()).unwrap();
    assert_eq!(ready["ready"], true);
    ready
}

impl World {
    fn new() -> Self {
        let client = Sandbox::new();
        for name in ["names", "run-of-server", "run-of-service"] {
            fs::create_dir(client.path(name)).unwrap();
        }
        let directory = format!("--directory=file:{}", client.path("names"));
        let files = client.path("files");
        let mut command = client.command(&["serve", &files, "--name", "papers", "--register"]);
        command.args(["--listen", "tcp:127.0.0.1:0", "--advertise", "127.0.0.1", &directory]);
        command.args(["--format", "json"]).env("PEREGRINE_DIR", client.path("run-of-server"));
        let mut serving = Process::start(&mut command);
        let server = ready(&mut serving)["addresses"][0].as_str().unwrap().to_owned();
        let mut command = client.command(&["directory", "serve", "--listen", "tcp:127.0.0.1:0"]);
        command.args([&*directory, "--format", "json"]);
        let mut service =
            Process::start(command.env("PEREGRINE_DIR", client.path("run-of-service")));
        let said = ready(&mut service);
        assert_eq!((&said["name"], &said["calls"]), (&json!("names"), &json!(32)));
        let names = said["addresses"][0].as_str().unwrap().to_owned();
        Self { client, serving, service, names, server }
    }

    /// Runs a command that knows the address of the name service only.
    fn run(&self, arguments: &[&str]) -> Done {
        self.client.run(&[arguments, &["--via", &self.names]].concat())
    }

    fn json(&self, arguments: &[&str]) -> (i32, Value) {
        self.client.json(&[arguments, &["--via", &self.names]].concat())
    }
}

#[test]
fn command_that_knows_one_address_calls_a_server() {
    let world = World::new();
    let size = ["call", "papers", "size", "path=hello"];
    let done = world.run(&size);
    assert_eq!((done.code, &*done.out), (0, "5\n"), "{done:?}");
    assert!(done.err.contains(&format!("tcp via {}, server tcp:", world.names)), "{done:?}");
    let (code, called) = world.json(&size);
    assert_eq!((code, &called["result"], &called["via"]), (0, &json!(5), &json!(world.names)));
    assert!(called["server"].as_str().unwrap().ends_with(&world.server[4..]), "{called}");
    let copied = world.client.path("copied");
    let read = ["call", "papers", "read", "path=hello", "offset=1", "into=100"];
    let done = world.run(&read);
    assert_eq!((done.code, &*done.out), (0, "ello\n"), "{done:?}");
    let done = world.run(&[&read[..], &["--out", &format!("into={copied}")]].concat());
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(fs::read(&copied).unwrap(), b"ello");
    let done = world.run(&["describe", "papers"]);
    assert!(done.code == 0 && done.out.contains("pub trait Files"), "{done:?}");
}

#[test]
fn failures_say_whether_the_second_call_was_executed() {
    let mut world = World::new();
    let refused = world.run(&["call", "papers", "size", "path=none"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let unknown = world.run(&["call", "letters", "size", "path=hello"]);
    assert_eq!(unknown.code, 3, "{unknown:?}");
    assert!(unknown.err.contains("no server of `letters` is in files below"), "{unknown:?}");
    let usage = world.run(&["call", "papers", "size"]);
    assert_eq!(usage.code, 2, "{usage:?}");
    world.serving.0.kill().unwrap();
    world.serving.wait();
    let gone = world.run(&["call", "papers", "size", "path=hello"]);
    assert_eq!(gone.code, 3, "{gone:?}");
    world.service.signal(Signal::TERM);
    let stopped = world.service.wait();
    assert_eq!(stopped.code(), Some(0));
    let away = world.run(&["call", "papers", "size", "path=hello"]);
    assert_eq!(away.code, 3, "{away:?}");
}

/// A name service that never knows whether what it did was executed.
struct Doubtful;

fn doubtful<T>() -> Result<T, NamesError> {
    let (may_have_executed, kind) = (true, Kind::TimedOut.number());
    Err(Failure { may_have_executed, kind, text: "it is not known".to_owned() }.into())
}

impl Lookup for Doubtful {
    fn resolve(&self, _: &str) -> Result<Known, NamesError> {
        doubtful()
    }
    fn names(&self, _: &str, _: u32) -> Result<Page, NamesError> {
        doubtful()
    }
    fn describe(&self, _: &str) -> Result<Interface, NamesError> {
        doubtful()
    }
    fn call(&self, _: &str, _: &str, _: &str) -> Result<Returned, NamesError> {
        doubtful()
    }
}

#[test]
fn call_whose_interface_cannot_be_read_was_not_executed() {
    let options = ExportOptions::default().networks_only();
    let server = Server::new().export_with("names", LookupServer::new(Doubtful), options).unwrap();
    let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let via = format!("{}/names", running.addresses()[0]);
    let client = Sandbox::new();
    let done = client.run(&["call", "papers", "size", "path=hello", "--via", &via]);
    assert_eq!(done.code, 3, "{done:?}");
    assert!(done.err.contains("reading the interface of `papers`"), "{done:?}");
    assert!(done.err.contains("not executed"), "{done:?}");
}

#[test]
fn name_service_is_a_directory_for_all_commands() {
    let world = World::new();
    let place = world.names.split_once('@').unwrap().1;
    let directory = format!("--directory=peregrine://{place}");
    let run = |arguments: &[&str]| world.client.run(&[arguments, &[&*directory]].concat());
    let listed = run(&["names"]);
    assert!(listed.code == 0 && listed.out.contains(&world.server), "{listed:?}");
    for arguments in
        [&["ping", "papers", "--count", "2"][..], &["call", "papers", "size", "path=hello"]]
    {
        let done = run(arguments);
        assert_eq!(done.code, 0, "{done:?}");
    }
    let unknown = run(&["explain", "letters"]);
    assert!(unknown.code == 3 && unknown.out.contains("not in the name service at"), "{unknown:?}");
    let register = run(&["register", "@192.0.2.1:7000", "letters"]);
    assert_eq!(register.code, 3, "{register:?}");
    assert!(register.err.contains("register in the directory itself"), "{register:?}");
    let wrong = world.client.run(&["names", "--directory=peregrine://"]);
    assert!(wrong.code == 3 && wrong.err.contains("write peregrine://HOST"), "{wrong:?}");
}
