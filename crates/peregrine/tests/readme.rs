//! What README shows is what the examples are, and the examples do what it says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Rust blocks of a Markdown text.
fn blocks(text: &str) -> Vec<&str> {
    let parts = text.split("```rust\n").skip(1);
    parts.map(|part| part.split("```").next().expect("an end")).collect()
}

#[test]
fn the_readme_shows_the_examples_as_they_are() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let sources: Vec<String> = ["files/mod.rs", "files_server.rs", "files_client.rs", "hello.rs"]
        .iter()
        .map(|name| fs::read_to_string(examples.join(name)).unwrap())
        .collect();
    let shown = blocks(&readme);
    assert_eq!(shown.len(), sources.len(), "a block for each of the files");
    for (block, source) in shown.iter().zip(&sources) {
        // A block leaves lines out where it says so.
        for part in block.split("// ...\n") {
            assert!(source.contains(part.trim_end()), "not in the example as shown:\n{part}");
        }
    }
    let lines: usize = shown[..3].iter().map(|block| block.lines().count()).sum();
    assert!(lines <= 60, "{lines} lines are no short example");
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_examples_run_as_two_programs() {
    // Examples are built beside the test programs.
    let programs = std::env::current_exe().unwrap();
    let programs = programs.parent().unwrap().parent().unwrap().join("examples");
    let directory = tempfile::tempdir().unwrap();
    let (names, served) = (directory.path().join("names"), directory.path().join("served"));
    fs::create_dir(&served).unwrap();
    let bytes: Vec<u8> = (0..100_003u32).map(|i| (i * 7 % 251) as u8).collect();
    fs::write(served.join("file"), &bytes).unwrap();
    fs::write(directory.path().join("secret"), "outside").unwrap();

    let server = Command::new(programs.join("files_server"))
        .arg(&served)
        .env("PEREGRINE_DIR", &names)
        .spawn()
        .unwrap();
    let _server = Server(server);
    let until = Instant::now() + Duration::from_secs(10);
    while !names.join("files").exists() {
        assert!(Instant::now() < until, "the server never exported");
        std::thread::sleep(Duration::from_millis(5));
    }
    let copy = directory.path().join("copy");
    let client = |path: &str| {
        let mut client = Command::new(programs.join("files_client"));
        client.arg(path).arg(&copy).env("PEREGRINE_DIR", &names);
        client.output().unwrap()
    };
    let copied = client("file");
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(fs::read(&copy).unwrap(), bytes);
    for outside in ["../secret", "/etc/hostname", "nothing"] {
        let refused = client(outside);
        assert!(!refused.status.success(), "{outside} was copied");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("No("), "{refused:?}");
    }
}
