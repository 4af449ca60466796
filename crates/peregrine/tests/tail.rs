//! Runs the example `tail`: a server that follows a file, and a client that prints it.

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::until;

/// A process that is killed on drop.
struct Tail(Child);

impl Tail {
    fn start(directory: &Path, arguments: &[&Path]) -> Self {
        // Cargo builds examples next to the test programs.
        let program = std::env::current_exe().unwrap();
        let program = program.parent().unwrap().parent().unwrap().join("examples/tail");
        let mut tail = Command::new(program);
        tail.args(arguments).env("PEREGRINE_DIR", directory).stdout(Stdio::piped());
        Self(tail.spawn().unwrap())
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn lines_are_printed_as_the_file_grows_until_it_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "one\ntwo\n").unwrap();
    let _server = Tail::start(directory.path(), &[Path::new("serve"), &path]);
    until("the server exports", || directory.path().join("tail").exists());
    let mut client = Tail::start(directory.path(), &[]);
    let mut printed = BufReader::new(client.0.stdout.take().unwrap()).lines();
    let mut prints = |line| assert_eq!(printed.next().unwrap().unwrap(), line);
    prints("one");
    prints("two");
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"three\n").unwrap();
    prints("three");
    fs::write(&path, "new\n").unwrap();
    prints("new");
    fs::remove_file(&path).unwrap();
    assert!(printed.next().is_none());
    assert!(client.0.wait().unwrap().success());
}
