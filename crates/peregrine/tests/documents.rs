//! Checks statements of the documents about the code: names, versions, messages.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Fails the test if `found` is not empty, and prints the lines of `found`.
fn none(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

// LINEAGE.md names files, types and functions.

/// Returns the file or directory to which documents refer by `name`, if it exists.
fn place(name: &str) -> Option<PathBuf> {
    let from = ["crates/peregrine/src", "crates/peregrine", "crates", ""];
    from.iter().map(|from| root().join(from).join(name)).find(|place| place.exists())
}

/// Returns whether a source defines an item of this name.
fn defines(source: &str, name: &str) -> bool {
    let words = ["fn", "struct", "enum", "trait", "const", "static", "type", "mod"];
    source.lines().any(|line| {
        let line = line.trim_start();
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        words.iter().any(|word| {
            let item = format!("{word} {name}");
            let at = line.find(&item).filter(|_| !line.starts_with("//"));
            at.is_some_and(|at| ends(&line[at + item.len()..]))
        })
    })
}

/// Returns the files, directories and items that a text names but that do not exist. An item is named before
/// its file: `item` in `file.rs`, or `item` and `other` in `file.rs`.
fn missing(text: &str) -> Vec<String> {
    let mut missing = Vec::new();
    let mut items: Vec<&str> = Vec::new();
    let parts: Vec<&str> = text.split('`').collect();
    for (i, part) in parts.iter().enumerate().skip(1).step_by(2) {
        let is_place = part.ends_with(".rs") || part.ends_with('/');
        if !is_place {
            let after = parts[i + 1].split_whitespace().collect::<Vec<_>>();
            if after == ["in"] || after == ["and"] {
                items.push(part);
            } else {
                missing.push(format!("`{part}`: no file is named for it"));
            }
            continue;
        }
        match place(part) {
            None => missing.push(format!("`{part}` does not exist")),
            Some(place) => {
                let source = fs::read_to_string(place).unwrap_or_default();
                let absent = items.iter().filter(|item| !defines(&source, item));
                missing.extend(absent.map(|item| format!("`{item}` is not in `{part}`")));
            }
        }
        items.clear();
    }
    missing.extend(items.iter().map(|item| format!("`{item}`: no file is named for it")));
    missing
}

#[test]
fn items_that_the_lineage_names_exist() {
    let lineage = read("docs/LINEAGE.md");
    let ideas = &lineage;
    let (_, ideas) = ideas.split_once("\n## Binding").expect("ideas");
    none(missing(ideas));
    assert!(ideas.matches(".rs`").count() > 50);
    let wrong = |text: &str| missing(text).len();
    assert_eq!(wrong("`CallPath` in `call/mod.rs`, `binding/`, `tests/documents.rs`"), 0);
    assert_eq!(wrong("`Call` and `CallPath` in\n`call/mod.rs`"), 0);
    assert_eq!(wrong("`NoSuchPath` in `call/mod.rs`, `call/none.rs`, `CallPath`"), 3);
    assert!(!defines("// struct Frame\nlet fn_frame = frames", "Frame"));
}

// PROTOCOL.md and STAT.md contain versions.

/// Returns the value of the constant `VERSION` in a source.
fn version_in(file: &str) -> u64 {
    let source = read(file);
    let line = source.lines().find(|line| line.contains("const VERSION: u") && line.contains('='));
    let number = line.expect("a version").rsplit('=').next().unwrap();
    number.trim().trim_end_matches(';').parse().expect("a number")
}

#[test]
fn versions_in_documents_match_the_code() {
    let protocol = read("docs/PROTOCOL.md");
    let handshake = version_in("crates/peregrine/src/path/local/wire.rs");
    assert!(protocol.contains(&format!("| 4 | version: {handshake} |")));
    assert!(protocol.contains(&format!("The version, now {handshake}, covers handshake")));
    let stream = version_in("crates/peregrine/src/protocol/stream/header.rs");
    assert!(protocol.contains(&format!("| 5 | 1 | version: {stream} |")));
    let packets = version_in("crates/peregrine/src/protocol/exchange/header.rs");
    assert!(protocol.contains(&format!("| 2 | 1 | version of the wire: {packets} |")));
    let counters = version_in("crates/peregrine/src/counters/layout.rs");
    assert!(read("docs/STAT.md").contains(&format!("| 0, 1, 2 | magic, version ({counters}),")));
}

// GUIDE.md explains each message.

#[test]
fn guide_explains_every_kind_of_error() {
    let guide = read("docs/GUIDE.md");
    let source = read("crates/peregrine/src/error.rs");
    let (_, kinds) = source.split_once("\nkinds! {").expect("a list of kinds");
    let (kinds, _) = kinds.split_once("\n}").expect("its end");
    let named: Vec<String> = kinds
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.trim().split_once(" = ")?;
            let text = rest.split('"').nth(1)?;
            Some(format!("### `{name}`: {text}"))
        })
        .collect();
    assert!(named.len() >= 20, "{named:?}");
    let lines: Vec<&str> = guide.lines().collect();
    none(named.into_iter().filter(|heading| !lines.contains(&heading.as_str())).collect());
}

#[test]
fn guide_shows_the_messages_of_the_compiler() {
    let guide = read("docs/GUIDE.md");
    let (_, section) = guide.split_once("### At compile time\n").expect("a section");
    let directory = root().join("crates/peregrine/tests/compile-fail");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let shown = files.filter(|file| file.extension().is_some_and(|end| end == "stderr"));
    let shown: Vec<String> = shown.map(|file| fs::read_to_string(file).unwrap()).collect();
    // The guide writes `T` for the name of a type. The texts before and after the name must be in one line of
    // a message.
    let is_shown = |message: &str| {
        let parts: Vec<&str> = message.split("`T`").map(str::trim).collect();
        let has_all = |line: &str| parts.iter().all(|part| line.contains(part));
        shown.iter().flat_map(|text| text.lines()).any(has_all)
    };
    let messages: Vec<&str> =
        section.lines().filter_map(|line| line.strip_prefix("* **")?.split("**").next()).collect();
    assert!(messages.len() >= 4, "{messages:?}");
    none(messages.into_iter().filter(|message| !is_shown(message)).map(str::to_owned).collect());
}

// The form of documents.

/// Documents whose lines are not checked. Programs write some of them, and others are not wrapped yet.
const UNJUDGED: [&str; 4] = ["docs/CLI.md", "docs/FAILURES.md", "ARCHITECTURE.md", "CHANGELOG.md"];
const COLUMNS: usize = 100;

/// Returns all Markdown files of the repository whose lines are checked.
fn documents() -> Vec<(String, String)> {
    let mut documents = Vec::new();
    let directories = ["", "docs", "docs/wireshark", "crates/peregrine-bench/results"];
    for directory in directories {
        for entry in fs::read_dir(root().join(directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = Path::new(directory).join(name).to_string_lossy().into_owned();
            if path.ends_with(".md") && !UNJUDGED.contains(&path.as_str()) {
                documents.push((path.clone(), read(&path)));
            }
        }
    }
    documents
}

/// Returns lines of more than 100 columns. Output of programs, and names that cannot be wrapped, may be
/// longer.
fn long_lines(path: &str, text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut long = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        fenced ^= line.starts_with("```");
        let printed = fenced || line.starts_with("    ");
        let one_word = line.split_whitespace().count() == 1;
        if line.chars().count() > COLUMNS && !printed && !one_word {
            long.push(format!("{path}:{number}: {} columns", line.chars().count()));
        }
    }
    long
}

#[test]
fn lines_of_documents_have_a_hundred_columns() {
    let documents = documents();
    assert!(documents.len() > 12);
    none(documents.iter().flat_map(|(path, text)| long_lines(path, text)).collect());
    assert_eq!(long_lines("x", &format!("word {}", "x".repeat(96))).len(), 1);
    assert_eq!(long_lines("x", &format!("{}\n    a {0}", "x".repeat(101))).len(), 0);
}

#[test]
fn performance_has_method_and_results_in_250_lines() {
    let lines = read("docs/PERFORMANCE.md").lines().count();
    assert!(lines <= 250, "{lines} lines: raw runs belong to crates/peregrine-bench/results");
}

/// Returns the link targets that do not exist. A target is a file, a heading, or both. Links to other sites
/// are not checked.
fn broken_links(path: &str, text: &str) -> Vec<String> {
    let from = Path::new(path).parent().unwrap().to_owned();
    let mut broken = Vec::new();
    for link in text.split("](").skip(1) {
        let target = link.split(')').next().unwrap_or_default();
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        if file.contains("://") {
            continue;
        }
        let file = if file.is_empty() { Path::new(path).to_owned() } else { from.join(file) };
        let Ok(text) = fs::read_to_string(root().join(&file)) else {
            if !root().join(&file).is_dir() {
                broken.push(format!("{path}: {target} does not exist"));
            }
            continue;
        };
        // GitHub makes the anchor of a heading from its text in lower case: it keeps letters, digits, `-` and
        // `_`, and replaces each space by `-`.
        let name = |heading: &str| -> String {
            let lower = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            lower.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
        };
        let is_heading = |line: &&str| line.starts_with('#');
        if !anchor.is_empty() && !text.lines().filter(is_heading).any(|line| name(line) == anchor) {
            broken.push(format!("{path}: {target} has no such heading"));
        }
    }
    broken
}

#[test]
fn links_have_targets() {
    none(documents().iter().flat_map(|(path, text)| broken_links(path, text)).collect());
    let broken = |text: &str| broken_links("docs/GUIDE.md", text).len();
    assert_eq!(broken("[a](../README.md), [b](#errors), [c](STAT.md#asking)"), 0);
    assert_eq!(broken("[a](README.md), [b](#no-such-part), [c](NONE.md#asking)"), 3);
}
