//! Checks that the program in README.md is one of the examples, and that it does what README.md says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn readme_contains_the_first_program() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let mut blocks =
        readme.split("```rust\n").skip(1).map(|part| part.split("```").next().unwrap());
    let program = blocks.next().expect("a program");
    assert_eq!(blocks.next(), None);
    let example = root().join("crates/peregrine/examples/hello.rs");
    let example = fs::read_to_string(example).unwrap();
    let (_, example) = example.split_once("\n\n").expect("a line that describes the example");
    assert_eq!(program, example);
    let lines = program.lines().count();
    assert!(lines <= 30, "{lines} lines are too many for a first program");
    // The first 20 lines, which fit the first screen, show the two most important commands.
    let screen: String = readme.lines().take(20).collect();
    assert!(screen.contains("cargo run --release") && screen.contains("cargo test"));
}

#[test]
fn front_page_of_the_library_has_the_program_of_the_readme() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let program = readme.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    let library = fs::read_to_string(root().join("crates/peregrine/src/lib.rs")).unwrap();
    let page = library.lines().map_while(|line| line.strip_prefix("//!"));
    let page: Vec<&str> = page.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    assert!(page.join("\n").contains(program.trim_end()));
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the directory of the examples. Cargo builds them next to the test programs.
fn programs() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples")
}

/// Waits until a name is exported in a directory.
fn until_exported(name: &Path) {
    let until = Instant::now() + Duration::from_secs(10);
    while !name.exists() {
        assert!(Instant::now() < until, "the server has not exported {name:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn first_program_prints_a_greeting() {
    let directory = tempfile::tempdir().unwrap();
    let hello = |arguments: &[&str]| {
        let mut hello = Command::new(programs().join("hello"));
        hello.args(arguments).env("PEREGRINE_DIR", directory.path());
        hello
    };
    let alone = hello(&[]).output().unwrap();
    assert!(String::from_utf8_lossy(&alone.stderr).contains("`hello`"), "{alone:?}");
    let _server = Server(hello(&["serve"]).spawn().unwrap());
    until_exported(&directory.path().join("hello"));
    let said = hello(&[]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "hello world, hello world\n", "{said:?}");
}

#[test]
fn file_examples_run_as_two_programs() {
    let directory = tempfile::tempdir().unwrap();
    let (names, served) = (directory.path().join("names"), directory.path().join("served"));
    fs::create_dir(&served).unwrap();
    let bytes: Vec<u8> = (0..100_003u32).map(|i| (i * 7 % 251) as u8).collect();
    fs::write(served.join("file"), &bytes).unwrap();
    fs::write(directory.path().join("secret"), "outside").unwrap();

    let server = Command::new(programs().join("files_server"))
        .arg(&served)
        .env("PEREGRINE_DIR", &names)
        .spawn()
        .unwrap();
    let _server = Server(server);
    until_exported(&names.join("files"));
    let copy = directory.path().join("copy");
    let client = |path: &str| {
        let mut client = Command::new(programs().join("files_client"));
        client.arg(path).arg(&copy).env("PEREGRINE_DIR", &names);
        client.output().unwrap()
    };
    let copied = client("file");
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(fs::read(&copy).unwrap(), bytes);
    let said = String::from_utf8_lossy(&copied.stdout);
    assert_eq!(said, "copied 100003 bytes; the first call of `read` returned 8192\n");
    // A stream without items makes an empty file.
    fs::write(served.join("empty"), "").unwrap();
    let copied = client("empty");
    assert!(copied.status.success() && fs::read(&copy).unwrap().is_empty(), "{copied:?}");
    for outside in ["../secret", "/etc/hostname", "nothing"] {
        let refused = client(outside);
        assert!(!refused.status.success(), "{outside} was copied");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("No("), "{refused:?}");
    }
}
