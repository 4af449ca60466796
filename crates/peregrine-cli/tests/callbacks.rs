//! Tests `call` and `describe` with callbacks: the calls are printed as they arrive, and return empty values.

mod sandbox;

use std::fs;
use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use peregrine::{CallError, Callback, Sink, Value as PeregrineValue, interface};
use peregrine::{Kind, Lent, Server};
use sandbox::{Process, Sandbox};
use serde_json::{Value, json};

/// What a listener sees.
#[derive(Clone, Debug, PartialEq, PeregrineValue)]
struct Event {
    name: String,
    size: u64,
}

/// An enum. It has no empty value that the command could return from a callback.
#[derive(Clone, Copy, Debug, PartialEq, PeregrineValue)]
enum Choice {
    Yes,
    No,
}

/// A listener.
#[interface(name = "events.listener", version = 2)]
trait Listener {
    /// Shows an event.
    fn show(&self, event: Event, more: Option<u8>) -> peregrine::Result<()>;
    /// Returns a number, a text, and a list of numbers.
    fn limits(&self, bytes: Lent<'_, u8>) -> peregrine::Result<(u32, String, Vec<u64>)>;
    /// Chooses.
    fn choose(&self) -> peregrine::Result<Choice>;
    #[oneway]
    fn log(&self, line: &str) -> peregrine::Result<()>;
}

/// A source of events.
#[interface]
trait Events {
    /// Shows `count` events.
    fn watch(&self, count: u64, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u64>;
    /// Calls `limits` of the listener. Returns the number and the text.
    fn limits(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<(u32, String)>;
    /// Calls `choose` of the listener, which must fail. Returns the text of the error.
    fn choose(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<String>;
    /// Has two listeners and a sink.
    fn both(
        &self,
        first: Callback<'_, dyn Listener>,
        second: Callback<'_, dyn Listener>,
        numbers: Sink<'_, u8>,
    ) -> peregrine::Result<()>;
    /// Shows events until a call of the listener fails.
    fn endless(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<()>;
}

struct Object;

fn event(number: u64) -> Event {
    Event { name: format!("event {number}"), size: number }
}

impl Events for Object {
    fn watch(&self, count: u64, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u64> {
        (0..count).try_for_each(|number| listener.show(event(number), None))?;
        Ok(count)
    }
    fn limits(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<(u32, String)> {
        let (number, text, list) = listener.limits(Lent::from(&b"abc"[..]))?;
        assert_eq!(list, Vec::<u64>::new());
        Ok((number, text))
    }
    fn choose(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<String> {
        let error: CallError = listener.choose().unwrap_err();
        assert_eq!(error.kind(), Kind::Relayed);
        Ok(error.to_string())
    }
    fn both(
        &self,
        first: Callback<'_, dyn Listener>,
        second: Callback<'_, dyn Listener>,
        mut numbers: Sink<'_, u8>,
    ) -> peregrine::Result<()> {
        first.show(event(1), Some(7))?;
        second.show(event(2), None)?;
        numbers.send(3)
    }
    fn endless(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<()> {
        (0..).try_for_each(|number| listener.show(event(number), None))
    }
}

/// Runs the server for the other tests. It runs in a separate process, until its standard input is closed.
#[test]
fn server() {
    if std::env::var_os("PEREGRINE_TEST_SERVER").is_none() {
        return;
    }
    let server = Server::new().export("events", EventsServer::new(Object));
    let running = server.unwrap().listen("127.0.0.1:0").unwrap().spawn().unwrap();
    for endpoint in running.addresses() {
        println!("\nat {endpoint}");
    }
    println!("\nready");
    let _ = std::io::stdin().lines().count();
    drop(running);
}

/// A running server, and its addresses on the paths local, UDP and TCP.
struct Served {
    sandbox: Sandbox,
    process: Child,
    /// The output of the server. The pipe stays open, because the server prints more text before it ends.
    _output: Lines<BufReader<ChildStdout>>,
    at: Vec<String>,
}

impl Served {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "server", "--nocapture"]);
        command.env("PEREGRINE_TEST_SERVER", "1").env("PEREGRINE_DIR", sandbox.path("run"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut at = vec!["events".to_owned()];
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        for line in lines.by_ref().map(Result::unwrap).take_while(|line| line != "ready") {
            for path in ["udp", "tcp"] {
                if let Some(port) = line.strip_prefix(&format!("at {path}:127.0.0.1:")) {
                    at.push(format!("{path}:events@127.0.0.1:{port}"));
                }
            }
        }
        assert_eq!(at.len(), 3, "{at:?}");
        Self { sandbox, process, _output: lines, at }
    }

    fn json(&self, address: &str, words: &[&str]) -> (i32, Value) {
        self.sandbox.json(&[&["call", address], words].concat())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

#[test]
fn each_format_has_the_calls() {
    let served = Served::new();
    let show = |number: u64| json!({ "event": { "name": format!("event {number}"), "size": number }, "more": null });
    for address in &served.at {
        let done = served.sandbox.run(&["call", address, "watch", "count=2"]);
        let lines: Vec<Value> =
            done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((done.code, lines.len()), (0, 2), "{done:?}");
        assert_eq!(lines, [0, 1].map(|number| json!({ "show": show(number) })));
        assert!(done.err.starts_with("2\n"), "{done:?}");
        let words = ["call", address, "watch", "count=2", "--format", "ndjson"];
        let done = served.sandbox.run(&words);
        let mut lines: Vec<Value> =
            done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let report = lines.pop().unwrap();
        assert_eq!((done.code, &report["result"], &report["calls"]), (0, &json!(2), &Value::Null));
        let call = |number| json!({ "callback": "listener", "procedure": "show", "arguments": show(number) });
        assert_eq!(lines, [0, 1].map(call));
        let (code, report) = served.json(address, &["watch", "count=2"]);
        assert_eq!((code, &report["result"]), (0, &json!(2)));
        let call = |number| json!({ "procedure": "show", "arguments": show(number) });
        assert_eq!(report["calls"], json!({ "listener": ([0, 1].map(call)) }));
        assert_eq!(served.json(address, &["watch", "[0]"]).1["calls"], json!({ "listener": [] }));
        // The lines say to which callback or sink they belong if there are several.
        let done = served.sandbox.run(&["call", address, "both"]);
        let mut lines: Vec<Value> =
            done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.sort_by_key(Value::to_string);
        let mut first = show(1);
        first["more"] = json!(7);
        let expected = [
            json!({ "first": { "show": first } }),
            json!({ "numbers": 3 }),
            json!({ "second": { "show": show(2) } }),
        ];
        assert_eq!((done.code, &lines[..]), (0, &expected[..]), "{done:?}");
    }
}

#[test]
fn calls_return_empty_values_or_are_refused() {
    let served = Served::new();
    for address in &served.at {
        let (code, report) = served.json(address, &["limits"]);
        assert_eq!((code, &report["result"]), (0, &json!([0, ""])), "{report}");
        let call = json!({ "procedure": "limits", "arguments": { "bytes": "abc" } });
        assert_eq!(report["calls"], json!({ "listener": [call] }));
        let (code, report) = served.json(address, &["choose"]);
        let said = "cannot answer `choose`: its result Choice#2 has no empty value";
        assert!(report["result"].as_str().unwrap().contains(said), "{code}: {report}");
        let (code, report) = served.json(address, &["watch", "count=1", "listener=5"]);
        assert_eq!(code, 2);
        assert!(report.to_string().contains("`listener` is a callback: its calls are printed"));
    }
}

#[test]
fn procedure_learns_that_nothing_reads_its_calls() {
    let served = Served::new();
    for address in &served.at {
        for format in ["human", "ndjson"] {
            let mut command =
                served.sandbox.command(&["call", address, "endless", "--format", format]);
            let mut process = Process::start(command.stdin(Stdio::null()));
            let mut output = BufReader::new(process.0.stdout.take().unwrap());
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            assert!(line.contains("event 0"), "{line}");
            drop(output);
            assert_eq!(process.wait().code(), Some(0));
        }
    }
}

#[test]
fn callbacks_are_described() {
    let served = Served::new();
    let done = served.sandbox.run(&["describe", "events"]);
    let choose = "fn choose(&self, listener: Callback<'_, dyn EventsListener>)";
    assert!(done.out.contains(choose), "{}", done.out);
    let listener =
        "#[interface(name = \"events.listener\", version = 2)]\npub trait EventsListener {\n";
    assert!(done.out.contains(listener), "{}", done.out);
    fs::write(served.sandbox.path("tmp/events.rs"), &done.out).unwrap();
    let (code, described) = served.sandbox.json(&["describe", "events"]);
    let watch = &described["procedures"][0];
    assert_eq!((code, &watch["parameters"][1]["direction"]), (0, &json!("callback")));
    assert_eq!(described["types"][0]["kind"], "interface");
    assert_eq!(described["types"][0]["procedures"][0]["name"], "show");
    fs::write(served.sandbox.path("tmp/events.json"), described.to_string()).unwrap();
    for file in ["tmp/events.rs", "tmp/events.json"] {
        let words = ["watch", "count=1", "--interface", file];
        let (code, report) = served.json("events", &words);
        assert_eq!((code, &report["result"]), (0, &json!(1)), "{report}");
    }
    let done = served.sandbox.run(&["describe", "events", "--format", "c"]);
    assert!(done.out.contains("callback listener of events.listener#0: u32[8]"), "{}", done.out);
    let number = "#define EVENTS_EVENTS_LISTENER_LIMITS 1u\n";
    assert!(done.out.contains(number), "{}", done.out);
}
