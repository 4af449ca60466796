//! Runs the Python program, as a client or as a server.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::thread::JoinHandle;

use serde_json::Value;

/// The longest time in seconds for which the Python program may run. Tests that succeed do not wait until
/// this limit.
const LIMIT: &str = "120";

/// Returns whether Python can run the program. If not, prints why the test is skipped.
pub(crate) fn is_installed() -> bool {
    let found = Command::new("python3").arg("--version").output();
    let is_installed = found.is_ok_and(|found| found.status.success());
    if !is_installed {
        eprintln!("skipped: `python3` is not installed");
    }
    is_installed
}

fn command(arguments: &[&str]) -> Command {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/courier.py");
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", LIMIT, "python3", "-B"]).arg(program).args(arguments);
    command
}

/// Runs the program to its end. Returns its exit code, and the lines of JSON that it prints.
pub(crate) fn run(arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
    let output = command(arguments).stdin(Stdio::null()).output().expect("`timeout` is installed");
    let Output { status, stdout, stderr } = output;
    let text = String::from_utf8(stdout).expect("text");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let errors = String::from_utf8_lossy(&stderr).into_owned();
    assert!(errors.is_empty(), "{arguments:?}: {errors}");
    (status.code(), lines)
}

/// Calls a procedure of a server at a port. Returns the outcome.
#[track_caller]
pub(crate) fn call(carrier: &str, port: u16, more: &[&str]) -> Value {
    let port = port.to_string();
    let begin = ["call", "--carrier", carrier, "--port", &port];
    let (_, mut lines) = run(&[&begin, more].concat());
    assert_eq!(lines.len(), 1, "{carrier} {more:?}: {lines:?}");
    lines.remove(0)
}

/// A server in Python that runs until this value is dropped.
pub(crate) struct Server {
    child: Child,
    /// The server ends when its input is closed.
    input: Option<ChildStdin>,
    lines: Option<JoinHandle<Vec<Value>>>,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start(carrier: &str, more: &[&str]) -> Self {
        let mut command = command(&[&["serve", "--carrier", carrier], more].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut port = String::new();
        output.read_line(&mut port).unwrap();
        let port = port.trim().parse().expect("a port");
        let lines = std::thread::spawn(move || {
            let lines = output.lines().map(|line| line.unwrap());
            lines.map(|line| serde_json::from_str(&line).expect("JSON")).collect()
        });
        Self { input: child.stdin.take(), child, lines: Some(lines), port }
    }

    /// Stops the server. Returns the calls that it has answered.
    pub(crate) fn stop(mut self) -> Vec<Value> {
        drop(self.input.take());
        self.lines.take().unwrap().join().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
