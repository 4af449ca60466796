//! Tests `call` and `describe` with streams: items are printed as they arrive, and read line by line.

mod sandbox;

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use peregrine::{Server, Sink, Source, Value as PeregrineValue, interface};
use rustix::process::Signal;
use sandbox::{Done, Process, Sandbox, until};
use serde_json::{Value, json};

/// An item that is an object in JSON.
#[derive(Clone, Debug, PartialEq, PeregrineValue)]
struct Pair {
    key: String,
    size: u128,
}

/// A feed of items.
#[interface]
trait Feed {
    /// Sends the numbers below `end`. Returns their count.
    fn count(&self, end: u64, numbers: Sink<'_, u64>) -> peregrine::Result<u64>;
    /// Returns the sum of the numbers.
    fn sum(&self, numbers: Source<'_, u64>) -> peregrine::Result<u64>;
    /// Sends back each text, and counts the texts.
    fn echo(&self, texts: Source<'_, String>, back: Sink<'_, String>) -> peregrine::Result<u32>;
    /// Sends pairs whose size is below `limit` to `small`, and the keys of the other pairs to `large`.
    fn divide(
        &self,
        pairs: Source<'_, Pair>,
        limit: u128,
        small: Sink<'_, Pair>,
        large: Sink<'_, String>,
    ) -> peregrine::Result<()>;
    /// Sends numbers until they are not wanted any more.
    fn endless(&self, numbers: Sink<'_, u64>) -> peregrine::Result<u64>;
    /// Sends one number, and then waits until the caller gives up.
    fn silent(&self, numbers: Sink<'_, u64>) -> peregrine::Result<()>;
    /// Returns how many calls of `sum`, `endless` and `silent` have learned that their callers gave up.
    fn given_up(&self) -> peregrine::Result<u32>;
}

#[derive(Default)]
struct Object {
    given_up: AtomicU32,
}

impl Feed for Object {
    fn count(&self, end: u64, mut numbers: Sink<'_, u64>) -> peregrine::Result<u64> {
        (0..end).try_for_each(|number| numbers.send(number))?;
        Ok(end)
    }
    fn sum(&self, numbers: Source<'_, u64>) -> peregrine::Result<u64> {
        let sum = numbers.sum::<peregrine::Result<u64>>();
        self.given_up.fetch_add(sum.is_err().into(), Ordering::SeqCst);
        sum
    }
    fn echo(
        &self,
        mut texts: Source<'_, String>,
        mut back: Sink<'_, String>,
    ) -> peregrine::Result<u32> {
        let mut count = 0;
        while let Some(text) = texts.next()? {
            back.send(text)?;
            count += 1;
        }
        Ok(count)
    }
    fn divide(
        &self,
        mut pairs: Source<'_, Pair>,
        limit: u128,
        mut small: Sink<'_, Pair>,
        mut large: Sink<'_, String>,
    ) -> peregrine::Result<()> {
        while let Some(pair) = pairs.next()? {
            match pair.size < limit {
                true => small.send(pair)?,
                false => large.send(pair.key)?,
            }
        }
        Ok(())
    }
    fn endless(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<u64> {
        for number in 0.. {
            if numbers.send(number).is_err() {
                self.given_up.fetch_add(1, Ordering::SeqCst);
                return Ok(number);
            }
        }
        unreachable!()
    }
    fn silent(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        let caller = peregrine::caller().expect("a procedure has a caller");
        numbers.send(7)?;
        while !caller.is_cancelled() {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.given_up.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn given_up(&self) -> peregrine::Result<u32> {
        Ok(self.given_up.load(Ordering::SeqCst))
    }
}

/// Runs the server for the other tests. It runs in a separate process, until its standard input is closed.
#[test]
fn server() {
    if std::env::var_os("PEREGRINE_TEST_SERVER").is_none() {
        return;
    }
    let server = Server::new().export("feed", FeedServer::new(Arc::new(Object::default())));
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
    /// The output of the server. It is kept open, because the server prints more when it ends.
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
        let mut at = vec!["feed".to_owned()];
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        for line in lines.by_ref().map(Result::unwrap).take_while(|line| line != "ready") {
            for path in ["udp", "tcp"] {
                if let Some(port) = line.strip_prefix(&format!("at {path}:127.0.0.1:")) {
                    at.push(format!("{path}:feed@127.0.0.1:{port}"));
                }
            }
        }
        assert_eq!(at.len(), 3, "{at:?}");
        Self { sandbox, process, _output: lines, at }
    }

    fn run(&self, address: &str, words: &[&str]) -> Done {
        self.sandbox.run(&[&["call", address], words].concat())
    }

    fn json(&self, address: &str, words: &[&str]) -> (i32, Value) {
        self.sandbox.json(&[&["call", address], words].concat())
    }

    /// Starts a command. The test writes the input of the command, and reads its output.
    fn start(
        &self,
        address: &str,
        words: &[&str],
    ) -> (Process, ChildStdin, BufReader<ChildStdout>) {
        let mut command = self.sandbox.command(&[&["call", address], words].concat());
        let mut process = Process::start(command.stdin(Stdio::piped()));
        let input = process.0.stdin.take().unwrap();
        let output = BufReader::new(process.0.stdout.take().unwrap());
        (process, input, output)
    }

    /// Waits until `count` procedures have learned that their callers gave up.
    fn until_given_up(&self, count: u32) {
        until("the procedure learns that its caller has given up", || {
            self.json("feed", &["given_up"]).1["result"] == count
        });
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn line(output: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line
}

#[test]
fn items_are_printed_as_they_arrive_and_lines_are_sent_as_they_come() {
    let served = Served::new();
    for address in &served.at {
        let (mut process, mut input, mut output) = served.start(address, &["echo", "texts=@-"]);
        for text in ["a", "", "with \\\"quotes\\\"", "7"] {
            // A text may be written with or without quotes.
            let word = text.replace('\\', "");
            writeln!(input, "{word}").unwrap();
            assert_eq!(line(&mut output), format!("\"{text}\"\n"));
            writeln!(input, "\"{text}\"").unwrap();
            assert_eq!(line(&mut output), format!("\"{text}\"\n"));
        }
        drop(input);
        assert_eq!(line(&mut output), "");
        assert_eq!(process.wait().code(), Some(0));
    }
}

#[test]
fn each_format_has_the_items() {
    let served = Served::new();
    let pairs = "{\"key\":\"a\",\"size\":1}\n\n{\"size\":\"9\",\"key\":\"b\"}\n{\"key\":\"c\",\"size\":2}\n";
    fs::write(served.sandbox.path("tmp/pairs"), pairs).unwrap();
    for address in &served.at {
        let done = served.run(address, &["count", "end=3"]);
        assert_eq!((done.code, &*done.out), (0, "0\n1\n2\n"));
        assert!(done.err.starts_with("3\n"), "{done:?}");
        let done = served.run(address, &["count", "end=3", "--format", "ndjson"]);
        let mut lines: Vec<Value> =
            done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let report = lines.pop().unwrap();
        assert_eq!((done.code, &report["result"], &report["items"]), (0, &json!(3), &Value::Null));
        let item = |number: u64| json!({ "sink": "numbers", "item": number });
        assert!(lines.into_iter().eq((0..3).map(item)));
        let (code, report) = served.json(address, &["count", "end=3"]);
        assert_eq!((code, &report["result"]), (0, &json!(3)));
        assert_eq!(report["items"], json!({ "numbers": [0, 1, 2] }));
        // If a call has several sinks, each printed item names its sink.
        let words = ["divide", "pairs=@tmp/pairs", "limit=5"];
        let done = served.run(address, &words);
        let mut lines: Vec<_> = done.out.lines().collect();
        lines.sort_unstable();
        assert_eq!((done.code, lines.len()), (0, 3), "{done:?}");
        assert_eq!(lines[0], "{\"large\":\"b\"}");
        let (code, report) = served.json(address, &words);
        let small = [("a", 1), ("c", 2)].map(|(key, size)| json!({ "key": key, "size": size }));
        assert_eq!(
            (code, &report["items"]),
            (0, &json!({ "small": small, "large": ["b"] })),
            "{report}"
        );
        let (code, report) = served.json(address, &["sum", "numbers=[1, 2, 3]"]);
        assert_eq!((code, &report["result"], &report["items"]), (0, &json!(6), &Value::Null));
        assert_eq!(served.json(address, &["sum", "[[1, 2]]"]).1["result"], 3);
        assert_eq!(served.json(address, &["sum", "numbers:=[]"]).1["result"], 0);
    }
    // A pipe passes the items that one command prints to another command.
    let mut count = served.sandbox.command(&["call", "feed", "count", "end=100000"]);
    let mut count = count.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut sum = served.sandbox.command(&["call", "feed", "sum", "numbers=@-"]);
    let sum = sum.stdin(count.stdout.take().unwrap()).output().unwrap();
    assert_eq!(Done::of(&sum).out, "4999950000\n");
    assert!(count.wait().unwrap().success());
}

#[test]
fn invalid_items_are_named_and_the_procedure_learns_that_they_are_not_complete() {
    let served = Served::new();
    fs::write(served.sandbox.path("tmp/numbers"), "1\n2\n\nthree\n4\n").unwrap();
    for (address, count) in served.at.iter().zip(1..) {
        let refused = |words: &[&str], code: i32, kind: &str, what: &str| {
            let (exit_code, report) = served.json(address, words);
            let error = &report["error"];
            assert_eq!((exit_code, &error["kind"]), (code, &kind.into()), "{words:?}: {report}");
            assert!(error.to_string().contains(what), "{error}\ndoes not contain\n{what}");
        };
        let said = "line 4 of `numbers`: numbers: expected u64, got \\\"three\\\"";
        refused(&["sum", "numbers=@tmp/numbers"], 4, "Stopped", said);
        served.until_given_up(count);
        refused(&["sum", "numbers=@tmp/nowhere"], 3, "Local", "nowhere");
        refused(&["sum"], 2, "Usage", "missing arguments of `sum`: `numbers: u64`");
        refused(&["sum", "numbers=1"], 2, "Usage", "expected a JSON array of items");
        let said = "item 2 of `numbers`: numbers: expected u64, got -1";
        refused(&["sum", "numbers=[1,-1]"], 2, "Usage", said);
        refused(&["count", "end=1", "numbers=5"], 2, "Usage", "`numbers` is a sink");
        let words = ["divide", "pairs=@-", "limit=5", "@-"];
        refused(&words, 2, "Usage", "standard input is used twice");
    }
}

#[test]
fn procedure_learns_that_nothing_reads_its_items() {
    let served = Served::new();
    for (address, count) in served.at.iter().zip(1..) {
        for format in ["human", "ndjson"] {
            let words = ["endless", "--format", format];
            let (mut process, _input, mut output) = served.start(address, &words);
            assert!(line(&mut output).contains('0'));
            drop(output);
            assert_eq!(process.wait().code(), Some(0));
        }
        served.until_given_up(2 * count);
    }
}

#[test]
fn interrupted_call_is_given_up() {
    let served = Served::new();
    for (address, count) in served.at.iter().zip(1..) {
        for procedure in ["silent", "endless"] {
            let (mut process, _input, mut output) = served.start(address, &[procedure]);
            assert!(!line(&mut output).is_empty());
            process.signal(Signal::INT);
            // A thread reads the rest of the output. Otherwise the command could block on a full
            // pipe.
            let rest = std::thread::spawn(move || output.lines().map(Result::unwrap).count());
            assert_eq!(process.wait().code(), Some(130), "{procedure} at {address}");
            rest.join().unwrap();
        }
        served.until_given_up(2 * count);
    }
}

#[test]
fn streams_are_described() {
    let served = Served::new();
    let done = served.sandbox.run(&["describe", "feed"]);
    assert!(done.out.contains("fn count(&self, end: u64, numbers: Sink<'_, u64>)"), "{}", done.out);
    assert!(done.out.contains("        pairs: Source<'_, Pair>,\n"), "{}", done.out);
    fs::write(served.sandbox.path("tmp/feed.rs"), &done.out).unwrap();
    let (code, described) = served.sandbox.json(&["describe", "feed"]);
    let count = &described["procedures"][0];
    assert_eq!((code, &count["parameters"][1]["direction"]), (0, &json!("sink")));
    let signature = "count(in end: u64, sink numbers: u64) -> u64 or CallError#0";
    assert_eq!(count["signature"], signature);
    let words = ["count", "end=2", "--interface", "tmp/feed.rs"];
    assert_eq!(served.json("feed", &words).1["items"], json!({ "numbers": [0, 1] }));
    let done = served.sandbox.run(&["describe", "feed", "--format", "c"]);
    assert!(done.out.contains("stream numbers of u64: u32[8]"), "{}", done.out);
}
