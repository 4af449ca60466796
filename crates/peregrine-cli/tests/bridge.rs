//! Tests the command `bridge`: HTTP to a server of this machine, which is killed and started again.

mod sandbox;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rustix::process::Signal;
use sandbox::{Process, Sandbox, TIMEOUT};
use serde_json::{Value, json};

/// A bridge, and the host and port at which it listens.
struct Bridge {
    process: Process,
    at: String,
}

impl Bridge {
    fn start(sandbox: &Sandbox, arguments: &[&str]) -> Self {
        let fixed = &["bridge", "--http", "127.0.0.1:0", "--format", "json"];
        let mut process = Process::start(&mut sandbox.command(&[fixed, arguments].concat()));
        let ready: Value = serde_json::from_str(&process.line()).unwrap();
        assert_eq!((&ready["ready"], &ready["process"]), (&true.into(), &process.0.id().into()));
        let url = ready["http"][0].as_str().unwrap();
        let at = url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
        Self { process, at }
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
    assert_eq!(error["advice"], "--beyond-this-machine allows it");
    let (code, report) = sandbox.json(&["bridge", "files", "local:files"]);
    assert!(code == 3 && report["error"]["what"].as_str().unwrap().contains("NAME=ADDRESS"));
    let (code, _) = sandbox.json(&["bridge", "a:b:c"]);
    assert_eq!(code, 3);
}
