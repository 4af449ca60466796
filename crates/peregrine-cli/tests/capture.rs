//! Tests `capture` end to end: what it shows of the calls of another process, and how it ends.

mod sandbox;

use rustix::process::Signal;
use sandbox::{Done, Process, Sandbox, until};
use serde_json::{Value, json};

/// Runs `capture` until it ends. Meanwhile, runs another command again and again, because calls before the
/// capture are not shown.
fn captured(sandbox: &Sandbox, arguments: &[&str], calls: &[&str]) -> Done {
    let mut process =
        Process::start(&mut sandbox.command(&[&["capture", "files"], arguments].concat()));
    until("the capture ends", || {
        sandbox.run(calls);
        process.0.try_wait().unwrap().is_some()
    });
    output(process)
}

/// Returns the output of a process that has ended.
fn output(mut process: Process) -> Done {
    use std::io::Read as _;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    process.0.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    process.0.stderr.take().unwrap().read_to_end(&mut err).unwrap();
    let status = process.0.wait().unwrap();
    Done::of(&std::process::Output { status, stdout: out, stderr: err })
}

#[test]
fn calls_are_shown_with_their_arguments() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    let call = ["call", "files", "size", "path=hello"];
    assert_eq!(sandbox.run(&call).code, 0);
    let done = captured(&sandbox, &["--count", "2", "--format", "ndjson"], &call);
    assert_eq!((done.code, &*done.err), (0, ""));
    let lines: Vec<Value> =
        done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    for (number, line) in lines.iter().enumerate() {
        assert_eq!(line["number"], number);
        assert_eq!((&line["procedure"], &line["outcome"]), (&json!("size"), &json!("ok")));
        assert_eq!(line["arguments"], json!({ "path": "hello" }));
        assert_eq!((&line["path"], &line["left_out"]), (&json!("local"), &json!(0)));
        assert_eq!(line["user"], rustix::process::getuid().as_raw());
        assert!(line["took_ns"].is_u64() && line["process"].is_u64(), "{line}");
    }
    let done = captured(&sandbox, &["--count", "1"], &call);
    assert!(done.out.contains("size(path: \"hello\") ok"), "{}", done.out);
    assert!(done.err.ends_with("calls shown: 1, left out: 0\n"), "{}", done.err);
    let done = captured(&sandbox, &["--count", "1", "--format", "json"], &call);
    let whole: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((&whole["left_out"], &whole["calls"][0]["procedure"]), (&json!(0), &json!("size")));
}

/// Returns whether a program captures calls of a server.
fn is_captured(server: &Process) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.0.id())).unwrap().flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks.filter_map(|task| name(task).ok()).any(|name| name.starts_with("peregrine-captu"))
}

#[test]
fn capture_ends_by_a_signal_with_the_totals() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[]);
    let mut process = Process::start(&mut sandbox.command(&["capture", "files"]));
    until("the capture has begun", || is_captured(&server));
    process.signal(Signal::INT);
    assert_eq!(process.wait().code(), Some(130));
    let done = output(process);
    assert!(done.err.contains("calls shown: 0"), "{done:?}");
    until("the thread of the server has ended", || !is_captured(&server));
}

#[test]
fn capture_ends_with_its_server() {
    let sandbox = Sandbox::new();
    let mut server = sandbox.serve(&[]);
    let mut process = Process::start(&mut sandbox.command(&["capture", "files"]));
    until("the capture has begun", || is_captured(&server));
    assert_eq!(sandbox.run(&["call", "files", "size", "path=nothing"]).code, 1);
    server.signal(Signal::TERM);
    server.wait();
    assert_eq!(process.wait().code(), Some(3));
    let done = output(process);
    assert!(done.out.contains("size(path: \"nothing\") own error"), "{done:?}");
    assert!(done.err.contains("calls shown: 1"), "{done:?}");
}
