//! Runs the tests of the second implementation of Courier, which is in Python (`interop/`).

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Time limit of the Python tests. Tests that succeed do not wait until this limit.
const LIMIT: Duration = Duration::from_secs(110);

/// Returns a command that runs Python, or `None` if Python is missing or older than version 3.10.
fn python() -> Option<Command> {
    let is_new = "import sys; sys.exit(sys.version_info < (3, 10))";
    let mut command = Command::new("python3");
    let status = command.args(["-c", is_new]).stdin(Stdio::null()).stderr(Stdio::null()).status();
    if !status.is_ok_and(|status| status.success()) {
        eprintln!("skipped: python3 of version 3.10 or later is not installed");
        return None;
    }
    let mut command = Command::new("python3");
    // Without `-B`, Python writes its compiled modules into the source directory.
    command.arg("-B").current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop"));
    Some(command)
}

#[test]
fn courier_in_python_passes_its_own_tests() {
    let Some(mut python) = python() else { return };
    let python = python.args(["-m", "unittest", "--failfast", "test_courier"]);
    let python = python.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = python.spawn().expect("Python can be started");
    let mut output = child.stderr.take().expect("a pipe");
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = output.read_to_end(&mut text);
        sender.send(read.map(|_| text))
    });
    let Ok(text) = receiver.recv_timeout(LIMIT) else {
        let _ = child.kill();
        let _ = child.wait();
        panic!("the Python tests did not end in time");
    };
    let text = text.expect("the output can be read");
    let status = child.wait().expect("the child can be awaited");
    assert!(status.success(), "{}", String::from_utf8_lossy(&text));
}
