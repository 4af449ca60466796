//! Tests `call` and `describe` with a server whose procedures have every kind of parameter, on every path.

mod sandbox;
#[path = "terminal/mod.rs"]
mod terminal;

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use peregrine::{Lent, Out, Server, Value as PeregrineValue, interface};
use sandbox::{Done, Sandbox};
use serde_json::{Value, json};
use terminal::Terminal;

/// The maximum size in bytes of a value. It is larger than the default message size.
const KEPT_BYTES_MAX: u32 = 20 << 20;

/// An entry of a drawer.
#[derive(Clone, Debug, PartialEq, PeregrineValue)]
struct Entry {
    name: String,
    size: Option<u64>,
    tags: Vec<u8>,
}

/// Why a procedure failed.
#[derive(Debug, PeregrineValue)]
enum Trouble {
    Locked { since: u32 },
    Call(peregrine::CallError),
}

impl From<peregrine::CallError> for Trouble {
    fn from(error: peregrine::CallError) -> Self {
        Self::Call(error)
    }
}

/// A drawer of entries.
#[interface(version = 2)]
trait Drawer {
    /// Adds entries; returns all entries.
    fn put(&self, entries: &[Entry], at: u32) -> Result<Vec<Entry>, Trouble>;
    /// Sorts and counts numbers.
    fn sort(&self, numbers: &mut [i64], count: &mut u32) -> peregrine::Result<()>;
    /// Returns every other byte.
    #[idempotent]
    fn thin(&self, bytes: Lent<'_, u8>, into: Out<'_, u8>) -> peregrine::Result<u64>;
    /// Fills the buffer with up to 100 squares.
    #[idempotent]
    fn squares(&self, #[max_len(100)] into: Out<'_, u64>) -> peregrine::Result<()>;
    /// Returns the same number.
    fn same(&self, key: u128) -> peregrine::Result<u128>;
    /// Sleeps.
    fn sleep(&self, ms: u64) -> peregrine::Result<()>;
    /// Sleeps for `ms + more` milliseconds.
    fn stay(&self, ms: u64, more: Option<u32>) -> peregrine::Result<()>;
    /// Ends the process.
    fn die(&self) -> peregrine::Result<()>;
}

/// An interface whose messages may be larger than the default message size.
#[interface]
trait Shelf {
    /// Takes a value, and returns its length.
    fn keep(&self, key: &str, #[max_len(KEPT_BYTES_MAX)] value: &[u8]) -> peregrine::Result<u64>;
}

/// Sees the metadata of its calls.
#[interface]
trait Label {
    /// Returns the metadata of the call.
    fn metadata(&self) -> peregrine::Result<Vec<String>>;
    /// Fails unless the call has one pair.
    #[oneway]
    fn note(&self) -> peregrine::Result<()>;
}

struct Object;

impl Label for Object {
    fn metadata(&self) -> peregrine::Result<Vec<String>> {
        let caller = peregrine::caller().expect("a procedure has a caller");
        Ok(caller.metadata().iter().map(|(key, value)| format!("{key}={value}")).collect())
    }
    fn note(&self) -> peregrine::Result<()> {
        assert_eq!(self.metadata()?.len(), 1);
        Ok(())
    }
}

impl Shelf for Object {
    fn keep(&self, _: &str, value: &[u8]) -> peregrine::Result<u64> {
        Ok(value.len() as u64)
    }
}

impl Drawer for Object {
    fn put(&self, entries: &[Entry], at: u32) -> Result<Vec<Entry>, Trouble> {
        if at == 7 {
            return Err(Trouble::Locked { since: 1984 });
        }
        Ok(entries.iter().rev().cloned().collect())
    }
    fn sort(&self, numbers: &mut [i64], count: &mut u32) -> peregrine::Result<()> {
        numbers.sort_unstable();
        *count = numbers.len() as u32;
        Ok(())
    }
    fn thin(&self, bytes: Lent<'_, u8>, mut into: Out<'_, u8>) -> peregrine::Result<u64> {
        let mut all = vec![0; bytes.len()];
        bytes.copy_to(0, &mut all).expect("all bytes arrived");
        let thin: Vec<u8> = all.iter().copied().step_by(2).take(into.capacity()).collect();
        into.put(&thin).expect("the buffer is large enough");
        Ok(bytes.len() as u64)
    }
    fn squares(&self, mut into: Out<'_, u64>) -> peregrine::Result<()> {
        (1..=100u64).map(|n| n * n).find(|square| into.put(&[*square]).is_err());
        Ok(())
    }
    fn same(&self, key: u128) -> peregrine::Result<u128> {
        Ok(key)
    }
    fn sleep(&self, ms: u64) -> peregrine::Result<()> {
        std::thread::sleep(std::time::Duration::from_millis(ms));
        Ok(())
    }
    fn stay(&self, ms: u64, more: Option<u32>) -> peregrine::Result<()> {
        self.sleep(ms + u64::from(more.unwrap_or(0)))
    }
    fn die(&self) -> peregrine::Result<()> {
        std::process::exit(7)
    }
}

/// Runs the server for the other tests. It runs in a separate process, until its standard input is closed.
#[test]
fn server() {
    if std::env::var_os("PEREGRINE_TEST_SERVER").is_none() {
        return;
    }
    let server = Server::new().export("drawer", DrawerServer::new(Object)).unwrap();
    let server = server.export("shelf", ShelfServer::new(Object)).unwrap();
    let server = server.export("label", LabelServer::new(Object)).unwrap();
    let running = server.listen("127.0.0.1:0").unwrap().spawn().unwrap();
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
    at: Vec<(&'static str, String)>,
}

impl Served {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "server", "--nocapture"]);
        command.env("PEREGRINE_TEST_SERVER", "1").env("PEREGRINE_DIR", sandbox.path("run"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut at = vec![("local", "drawer".to_owned())];
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        for line in lines.by_ref().map(Result::unwrap).take_while(|line| line != "ready") {
            for path in ["udp", "tcp"] {
                if let Some(port) = line.strip_prefix(&format!("at {path}:127.0.0.1:")) {
                    at.push((path, format!("{path}:drawer@127.0.0.1:{port}")));
                }
            }
        }
        assert_eq!(at.len(), 3, "{at:?}");
        Self { sandbox, process, _output: lines, at }
    }

    fn json(&self, address: &str, words: &[&str]) -> (i32, Value) {
        self.sandbox.json(&[&["call", address], words].concat())
    }

    fn fed(&self, input: &[u8], words: &[&str]) -> Done {
        let mut command = self.sandbox.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        process.stdin.take().unwrap().write_all(input).unwrap();
        Done::of(&process.wait_with_output().unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

#[test]
fn every_kind_of_parameter_is_called_on_every_path() {
    let served = Served::new();
    let sandbox = &served.sandbox;
    fs::write(sandbox.path("tmp/bytes"), [1, 2, 3, 255, 0]).unwrap();
    fs::write(sandbox.path("tmp/entries.json"), r#"[{ "name": "a", "tags": [] }]"#).unwrap();
    for (path, address) in &served.at {
        let call = |words: &[&str]| {
            let (code, report) = served.json(address, words);
            assert_eq!(code, 0, "{words:?}: {report}");
            assert_eq!(report["path"], *path);
            assert!(report["took_ns"].as_u64() > Some(0) && report["bind_ns"].as_u64() > Some(0));
            (report["result"].clone(), report["out"].clone())
        };
        let entries = json!([{ "name": "b", "size": 9, "tags": "xy" }, { "name": "a", "size": null, "tags": "" }]);
        let given = r#"entries=[{"name":"a","tags":[]},{"name":"b","size":9,"tags":[120,121]}]"#;
        assert_eq!(call(&["put", given, "at=1"]), (entries.clone(), json!({})));
        let whole =
            r#"{"entries":[{"name":"a","tags":""},{"name":"b","size":"9","tags":"xy"}],"at":1}"#;
        assert_eq!(call(&["put", whole]).0, entries);
        let shown = json!([{ "name": "a", "size": null, "tags": { "hex": "01" } }]);
        let tags = r#"[[{"name":"a","tags":[1]}],1]"#;
        assert_eq!(call(&["put", tags, "--bytes", "hex"]).0, shown);
        assert_eq!(call(&["Drawer.put", "entries=@tmp/entries.json", "at=1"]).0[0]["name"], "a");
        let sorted = call(&["sort", "numbers=[3,-1,2]", "count=0"]);
        assert_eq!(sorted, (Value::Null, json!({ "numbers": [-1, 2, 3], "count": 3 })));
        assert_eq!(call(&["thin", "bytes=abcde"]), (json!(5), json!({ "into": "ace" })));
        assert_eq!(call(&["thin", "bytes=abcde", "into=2"]).1["into"], "ac");
        assert_eq!(call(&["thin", "bytes=@tmp/bytes"]).1["into"], json!({ "hex": "010300" }));
        assert_eq!(call(&["squares", "into=3"]).1["into"], json!([1, 4, 9]));
        assert_eq!(call(&["squares"]).1["into"].as_array().map(Vec::len), Some(100));
        let out = call(&["thin", "bytes=@tmp/bytes", "--out", "into=tmp/thin"]).1;
        assert_eq!(out["into"], json!({ "file": "tmp/thin", "bytes": 3 }));
        assert_eq!(fs::read(sandbox.path("tmp/thin")).unwrap(), [1, 3, 0]);
        // This argument is larger than the default message size.
        let large = vec![7u8; 17 << 20];
        fs::write(sandbox.path("tmp/large"), &large).unwrap();
        let (code, report) = served.json(address, &["thin", "bytes=@tmp/large", "into=2M"]);
        assert_eq!((code, &report["error"]["kind"]), (3, &"TooLarge".into()), "{report}");
    }
    // If an argument of type `Option` is missing, the procedure gets `None`, and the JSON output contains a
    // note.
    let (_, report) = served.json("drawer", &["stay", "ms=0"]);
    assert_eq!(report["notes"], json!(["`more` is missing: using None"]));
    // A number of 128 bits keeps all of its digits.
    let long = "340282366920938463463374607431768211455";
    let (_, report) = served.json("drawer", &["same", &format!("key={long}")]);
    assert_eq!(report["result"], long);
    // If an output file cannot be created, the command fails before the call.
    let (code, report) = served.json("drawer", &["die", "--out", "into=nowhere/x"]);
    assert_eq!((code, &report["error"]["executed"]), (2, &"no".into()));
    let words = ["thin", "bytes=abc", "--out", "into=nowhere/x"];
    let (code, report) = served.json("drawer", &words);
    assert_eq!((code, &report["error"]["kind"]), (3, &"Local".into()), "{report}");
    // If an output file cannot be written, the command fails after the call, and its report contains the
    // result.
    let (code, report) = served.json("drawer", &["thin", "bytes=abc", "--out", "into=/dev/full"]);
    assert_eq!((code, &report["result"]), (4, &json!(3)), "{report}");
    // `@-` reads an argument from standard input. `--out into=-` writes a returned buffer to standard output
    // unchanged.
    let done = served.fed(b"a-b-c", &["call", "drawer", "thin", "bytes=@-", "--out", "into=-"]);
    assert_eq!((done.code, &*done.out), (0, "abc"));
    let input = br#"{"numbers": [2, 1], "count": 5}"#;
    let done = served.fed(input, &["call", "drawer", "sort", "@-", "--format", "json"]);
    let report: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(report["out"], json!({ "numbers": [1, 2], "count": 2 }));
}

#[test]
fn metadata_is_sent_on_every_path() {
    let served = Served::new();
    for address in served.at.iter().map(|(_, address)| address.replace("drawer", "label")) {
        let call = |words: &[&str]| served.json(&address, words);
        let words = ["metadata", "--metadata", "tenant=birds", "--metadata", "a.b=c=d"];
        let (code, report) = call(&words);
        assert_eq!((code, &report["result"]), (0, &json!(["tenant=birds", "a.b=c=d"])), "{report}");
        assert_eq!(call(&["metadata"]).1["result"], json!([]));
        assert_eq!(call(&["note", "--metadata", "k="]).0, 0);
        let (code, report) = call(&["metadata", "--metadata", "Not=lower"]);
        let error = &report["error"];
        assert_eq!(
            (code, &error["kind"], &error["executed"]),
            (3, &json!("BadArguments"), &json!("no"))
        );
        assert_eq!(call(&["metadata", "--metadata", "pair"]).0, 2);
    }
}

#[test]
fn value_of_exactly_the_declared_size_is_accepted() {
    let served = Served::new();
    let value = vec![7u8; KEPT_BYTES_MAX as usize + 1];
    fs::write(served.sandbox.path("tmp/whole"), &value[1..]).unwrap();
    fs::write(served.sandbox.path("tmp/longer"), &value).unwrap();
    for address in served.at.iter().map(|(_, address)| address.replace("drawer", "shelf")) {
        let (code, report) = served.json(&address, &["keep", "key=k", "value=@tmp/whole"]);
        assert_eq!((code, &report["result"]), (0, &json!(KEPT_BYTES_MAX)), "{report}");
        let (code, report) = served.json(&address, &["keep", "key=k", "value=@tmp/longer"]);
        assert_eq!((code, &report["error"]["kind"]), (3, &"TooLarge".into()), "{report}");
    }
}

#[test]
fn missing_arguments_are_named_with_their_types() {
    let served = Served::new();
    for (words, missing) in [
        (&["sort", "numbers=[]"][..], "missing arguments of `sort`: `count: u32`"),
        (&["sleep"], "missing arguments of `sleep`: `ms: u64`"),
        (&["put"], "missing arguments of `put`: `entries: [Entry#0]`, `at: u32`"),
    ] {
        let (code, report) = served.json("drawer", words);
        assert_eq!((code, &report["error"]["kind"]), (2, &"Usage".into()), "{report}");
        assert_eq!(report["error"]["what"], missing);
    }
}

#[test]
fn every_failure_says_whether_it_was_executed() {
    let served = Served::new();
    for (path, address) in &served.at {
        let refused = |words: &[&str], code: i32, kind: &str, what: &str| {
            let (exit_code, report) = served.json(address, words);
            let error = &report["error"];
            assert_eq!((exit_code, &error["kind"]), (code, &kind.into()), "{words:?}: {report}");
            let text = error.to_string();
            assert!(text.contains(what), "{text}\ndoes not contain\n{what}");
            let mut members: Vec<_> = error.as_object().unwrap().keys().map(|one| &**one).collect();
            members.sort_unstable();
            let all =
                ["address", "advice", "causes", "executed", "kind", "phase", "suggestions", "what"];
            assert_eq!(members, all);
            report
        };
        let report = refused(&["put", "entries=[]", "at=7"], 1, "Refused", "since");
        assert_eq!(report["error_value"], json!({ "Locked": { "since": 1984 } }));
        assert_eq!(
            (&report["path"], &report["error"]["executed"]),
            (&(*path).into(), &"yes".into())
        );
        let report = refused(&["putt", "entries=[]"], 2, "Usage", "no procedure `putt`");
        assert_eq!(report["error"]["suggestions"], json!(["put"]));
        let report = refused(&["put", "entires=[]"], 2, "Usage", "no parameter `entires`");
        assert_eq!(report["error"]["suggestions"], json!(["entries"]));
        refused(&["put"], 2, "Usage", "missing arguments of `put`: `entries: [Entry#0]`");
        refused(&["put", "entries"], 2, "Usage", "invalid argument `entries`");
        refused(&["put", "entries:=["], 2, "Usage", "as JSON: ");
        refused(&["put", "[[],1,2]"], 2, "Usage", "takes 2 arguments, but 3 were given");
        refused(&["put", "entries=[]", "[[]]"], 2, "Usage", "duplicate argument `entries`");
        let bad = r#"entries=[{"name":"a","tags":[]},{"name":3,"tags":[]}]"#;
        refused(&["put", bad], 2, "Usage", "entries[1].name: expected string, got number");
        refused(&["squares", "into=many"], 2, "Usage", "maximum number of elements");
        refused(&["squares", "into=99999999999999"], 2, "Usage", "the maximum is ");
        refused(&["squares", "--out", "from=x"], 2, "Usage", "no parameter `from`");
        refused(&["sort", "numbers=[]", "--out", "count=x"], 2, "Usage", "not a returned buffer");
        refused(&["put", "entries=@nowhere"], 3, "Local", "nowhere");
        refused(&["sleep", "ms=60000", "--timeout", "150ms"], 4, "TimedOut", "maybe");
    }
    for (_, address) in &served.at[..1] {
        let (code, report) = served.json(address, &["die"]);
        assert_eq!((code, &report["error"]["executed"]), (4, &"maybe".into()), "{report}");
    }
    let (code, report) = served.json("drawer", &["sleep", "ms=0"]);
    assert_eq!((code, &report["error"]["executed"]), (3, &"no".into()), "{report}");
}

#[test]
fn saved_description_replaces_that_of_the_server() {
    let served = Served::new();
    let sandbox = &served.sandbox;
    let (_, described) = sandbox.json(&["describe", "drawer"]);
    let saved = |name: &str, text: &str| {
        fs::write(sandbox.path(name), text).unwrap();
        name.to_owned()
    };
    let forms = [
        saved("drawer.json", &described.to_string()),
        saved("drawer.rs", &sandbox.run(&["describe", "drawer"]).out),
        saved("drawer.txt", described["canonical"].as_str().unwrap()),
        saved("only.rs", described["trait"].as_str().unwrap()),
    ];
    for form in &forms {
        let (code, again) = sandbox.json(&["describe", "--interface", form]);
        assert_eq!((code, &again["digest"]), (0, &described["digest"]), "{form}");
        assert_eq!(again["types"], described["types"]);
        let (code, report) = served.json("drawer", &["squares", "into=2", "--interface", form]);
        assert_eq!((code, &report["out"]["into"]), (0, &json!([1, 4])));
        // A usage error is reported before any server is contacted.
        let (code, report) = served.json("nobody", &["squares", "x=2", "--interface", form]);
        assert_eq!((code, &report["error"]["kind"]), (2, &"Usage".into()));
    }
    // The server refuses an interface whose types differ. It accepts a part of its own interface.
    let text = fs::read_to_string(sandbox.path("only.rs")).unwrap();
    saved("other.rs", &text.replace("ms: u64", "ms: u32"));
    let (code, report) = served.json("drawer", &["sleep", "ms=1", "--interface", "other.rs"]);
    assert_eq!((code, &report["error"]["kind"]), (3, &"InterfaceMismatch".into()));
    assert!(
        report["error"].to_string().contains("ours is `u32`, the server's is `u64`"),
        "{report}"
    );
    let part = "#[interface(version = 2)] trait Drawer { fn sleep(&self, ms: u64) -> peregrine::Result<()>; }";
    saved("part.rs", part);
    assert_eq!(served.json("drawer", &["sleep", "ms=1", "--interface", "part.rs"]).0, 0);
    saved("none.rs", "fn main() {}");
    let (code, report) = served.json("drawer", &["sleep", "ms=1", "--interface", "none.rs"]);
    assert_eq!((code, &report["error"]["kind"]), (3, &"Local".into()), "{report}");
    let done = sandbox.run(&["describe", "--interface", "drawer.rs", "--format", "c"]);
    assert!(done.code == 0 && done.out.contains("DRAWER_DIGEST"), "{done:?}");
}

#[test]
fn result_of_a_call_fits_the_terminal() {
    let served = Served::new();
    let sandbox = &served.sandbox;
    let seen = |words: &[&str], columns: u16| {
        let seen =
            Terminal::start(sandbox.command(&[&["call", "drawer"], words].concat()), 60, columns)
                .end();
        assert_eq!(seen.wrapped(), Vec::<String>::new(), "{words:?}, {columns} columns");
        (seen.code, seen.text())
    };
    for columns in [40, 80] {
        let (code, text) = seen(&["thin", "bytes=f-a-l-c-o-n"], columns);
        assert_eq!(code, 0);
        assert!(text.contains("result: 11\n") && text.contains("into (6 bytes): falcon"), "{text}");
        let (_, text) = seen(&["thin", r#"bytes:={"hex":"00ff01"}"#], columns);
        assert!(text.contains("00 01") && text.contains("path local"), "{text}");
        let (code, text) = seen(&["put", "entries=[]", "at=7"], columns);
        assert!(code == 1 && text.contains("returned an error"), "{text}");
    }
    let (_, text) = seen(&["squares", "into=2"], 80);
    assert!(text.starts_with("[1,4]\n"), "{text}");
    // Ctrl-C during a call ends the command with exit code 130.
    let terminal = Terminal::start(sandbox.command(&["call", "drawer", "stay", "ms=3000"]), 20, 80);
    // The command prints this note immediately before the call.
    terminal.until("is missing");
    terminal.interrupt();
    let seen = terminal.end();
    assert_eq!(seen.code, 130, "{}", seen.text());
    assert!(seen.text().contains("was cancelled"), "{}", seen.text());
}
