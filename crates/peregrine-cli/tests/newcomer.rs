//! Tests that the command prints what README.md shows.

use std::process::{Command, Stdio};

mod sandbox;

use sandbox::{Process, Sandbox, until};

/// Returns the command lines of the section "What you see" of README.md, with their expected output.
fn shown() -> Vec<(String, String)> {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let section = readme.split("## What you see\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut all: Vec<(String, String)> = Vec::new();
    for line in section.lines() {
        let Some(line) = line.strip_prefix("    ").or(line.is_empty().then_some("")) else {
            continue;
        };
        match (line.strip_prefix("$ peregrine "), all.last_mut()) {
            (Some(command), _) => all.push((command.to_owned(), String::new())),
            (None, Some((_, expected))) => {
                expected.push_str(line);
                expected.push('\n');
            }
            (None, None) => {}
        }
    }
    all.into_iter().map(|(command, expected)| (command, expected.trim_end().to_owned())).collect()
}

/// Removes what differs between runs: numbers of more than two digits, and ages.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut digits = String::new();
    for letter in text.trim_end().chars().chain(['\n']) {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        plain.push_str(if digits.len() > 2 { "N" } else { &digits });
        digits.clear();
        plain.push(letter);
    }
    let lines = plain.lines().map(|line| match line.split_once(", for ") {
        Some((before, after)) => {
            let after = after.split_once(',').map_or("", |(_, after)| after);
            format!("{before}, for T,{after}")
        }
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn command_prints_what_the_readme_shows() {
    // The section uses the example `hello` of the library. Cargo builds it into `examples`, next to the
    // directory of the test programs.
    let programs = std::env::current_exe().unwrap();
    let hello = programs.parent().unwrap().parent().unwrap().join("examples/hello");
    if !hello.exists() {
        return eprintln!(
            "skipped: `cargo test` of the whole workspace builds {}",
            hello.display()
        );
    }
    let sandbox = Sandbox::new();
    let mut command = Command::new(&hello);
    command.arg("serve").env("PEREGRINE_DIR", sandbox.path("run")).stdin(Stdio::null());
    let _server = Process::start(&mut command);
    until("the server exports", || !sandbox.list().is_empty());
    let shown = shown();
    assert_eq!(shown.len(), 4, "{shown:?}");
    for (line, expected) in shown {
        let words: Vec<&str> = line.split_whitespace().collect();
        let done = sandbox.run(&words);
        let seen = if done.code == 0 { done.out } else { done.err };
        assert_eq!(plain(&seen), plain(&expected), "peregrine {line}");
    }
    for line in ["ping hello -c 20", "stat hello --interval 20ms"] {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(sandbox.run(&words).code, 0, "{line}");
    }
}
