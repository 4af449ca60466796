//! Checks that the listings of docs/GUIDE.md are the programs in `examples/`, and that these programs print
//! what the guide shows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/GUIDE.md");

/// Returns the fenced blocks of a Markdown text, each with its language.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let fenced = text.split("\n```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').expect("a language and a text")).collect()
}

/// Returns the file of the example with the text `listing`. The guide leaves out the first line, which says
/// what the program is for.
fn example_with(listing: &str) -> Option<PathBuf> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path());
    let mut sources = files.filter(|file| file.extension().is_some_and(|end| end == "rs"));
    sources.find(|file| {
        let source = fs::read_to_string(file).unwrap();
        source.split_once("\n\n").is_some_and(|(_, program)| program.trim_end() == listing)
    })
}

/// Returns the examples of the guide, each with the output that the guide shows.
fn examples() -> Vec<(PathBuf, Option<String>)> {
    let guide = fs::read_to_string(GUIDE).unwrap();
    let mut examples: Vec<(PathBuf, Option<String>)> = Vec::new();
    for (language, text) in blocks(&guide) {
        match (language, examples.last_mut()) {
            ("rust", _) => {
                let example = example_with(text);
                examples.push((example.unwrap_or_else(|| panic!("no example:\n{text}")), None));
            }
            ("text", Some((_, printed @ None))) => *printed = Some(text.to_owned()),
            _ => panic!("a block of `{language}` that belongs to no listing:\n{text}"),
        }
    }
    examples
}

#[test]
fn every_listing_is_an_example_and_every_example_is_listed() {
    let shown: Vec<PathBuf> = examples().into_iter().map(|(example, _)| example).collect();
    let all = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")).unwrap();
    for file in all.map(|entry| entry.unwrap().path()) {
        let is_of_guide = file.file_name().unwrap().to_string_lossy().starts_with("guide_");
        assert!(!is_of_guide || shown.contains(&file), "the guide does not show {file:?}");
    }
    assert!(shown.len() > 5);
}

#[test]
fn examples_print_what_the_guide_shows() {
    // Cargo builds examples next to the test programs.
    let programs = std::env::current_exe().unwrap();
    let programs = programs.parent().unwrap().parent().unwrap().join("examples");
    let directory = tempfile::tempdir().unwrap();
    for (example, printed) in examples() {
        let Some(printed) = printed else { continue };
        let program = programs.join(example.file_stem().unwrap());
        let output = Command::new(&program).env("PEREGRINE_DIR", directory.path()).output();
        let output = output.unwrap_or_else(|error| panic!("cannot run {program:?}: {error}"));
        assert!(output.status.success(), "{program:?}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), printed, "{program:?}");
    }
}
