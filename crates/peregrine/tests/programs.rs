//! Runs examples whose servers and clients are processes: `tail`, `chat` and `jobs`.

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::until;

/// A process of an example. It is killed on drop.
struct Example(Child);

impl Example {
    fn start(name: &str, directory: &Path, arguments: &[&str]) -> Self {
        // Cargo builds examples next to the test programs.
        let program = std::env::current_exe().unwrap();
        let program = program.parent().unwrap().parent().unwrap().join("examples").join(name);
        let mut example = Command::new(program);
        example.args(arguments).env("PEREGRINE_DIR", directory);
        example.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(example.spawn().unwrap())
    }

    /// Starts a server, and waits until it exports the name of the example.
    fn serve(name: &str, directory: &Path, arguments: &[&str]) -> Self {
        let server = Self::start(name, directory, arguments);
        until("the server exports", || directory.join(name).exists());
        server
    }

    /// Returns the lines that the process prints.
    fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        BufReader::new(self.0.stdout.take().unwrap()).lines().map(Result::unwrap)
    }
}

impl Drop for Example {
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
    let _server = Example::serve("tail", directory.path(), &["serve", path.to_str().unwrap()]);
    let mut client = Example::start("tail", directory.path(), &[]);
    let mut printed = client.lines();
    let mut prints = |line| assert_eq!(printed.next().unwrap(), line);
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

#[test]
fn members_of_a_chat_hear_each_other_until_they_leave() {
    let directory = tempfile::tempdir().unwrap();
    let _server = Example::serve("chat", directory.path(), &["serve"]);
    let member = |name| Example::start("chat", directory.path(), &[name]);
    let says = |member: &Example, text: &[u8]| {
        member.0.stdin.as_ref().unwrap().write_all(text).unwrap();
    };
    let mut ann = member("ann");
    let mut ann_hears = ann.lines();
    assert_eq!(ann_hears.next().unwrap(), "in the room: ");
    let mut bob = member("bob");
    let mut bob_hears = bob.lines();
    assert_eq!(bob_hears.next().unwrap(), "in the room: ann");
    says(&bob, b"hello\n");
    assert_eq!(ann_hears.next().unwrap(), "bob: hello");
    says(&ann, b"hello bob\n");
    assert_eq!(bob_hears.next().unwrap(), "ann: hello bob");
    // A member whose process is killed leaves the room.
    drop(ann);
    let mut ann = member("ann");
    let mut ann_hears = ann.lines();
    assert_eq!(ann_hears.next().unwrap(), "in the room: bob");
    says(&bob, b"welcome back\n");
    assert_eq!(ann_hears.next().unwrap(), "bob: welcome back");
    // A second member is refused if its name is in use.
    let mut other = member("ann");
    assert!(!other.0.wait().unwrap().success());
}

#[test]
fn thousand_async_workers_do_jobs_with_a_few_threads() {
    let directory = tempfile::tempdir().unwrap();
    let server = Example::serve("jobs", directory.path(), &["serve"]);
    let workers = Example::start("jobs", directory.path(), &["work"]);
    let mut client = Example::start("jobs", directory.path(), &["submit", "10000"]);
    assert_eq!(client.lines().next().unwrap(), "333383335000");
    assert!(client.0.wait().unwrap().success());
    for process in [&server, &workers] {
        let tasks = fs::read_dir(format!("/proc/{}/task", process.0.id())).unwrap().count();
        assert!(tasks < 20, "{tasks} threads");
    }
}
