//! Checks rules by reading the files of the workspace. Examples: which rooms (top-level modules) a room may
//! use, where `unsafe` is allowed, and which names are banned.
//!
//! Each rule is a function over text. A test also passes text that violates the rule to the function. So the
//! test fails if the function detects nothing.

#[path = "tidy/edges.rs"]
mod edges;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use edges::{EDGES, UPWARD};

/// Names that belong to the code that runs a procedure. With each name: the only files outside of `call/`
/// that may contain it.
const SERVING: &[(&str, &[&str])] = &[
    ("tell_caller(", &["serving/procedure.rs"]),
    ("serve_call(", &["serving/procedure.rs"]),
    ("serve_calls_of(", &["serving/procedure.rs"]),
    ("leave_call(", &["serving/procedure.rs"]),
    ("Nested::enter(", &["serving/procedure.rs"]),
    ("extensions::enter(", &["serving/procedure.rs"]),
    ("extensions::leave(", &["serving/procedure.rs"]),
    ("counting.begin(", &["serving/procedure.rs"]),
    ("counting.end(", &["serving/procedure.rs"]),
    ("Refusal::given_up(", &["serving/procedure.rs"]),
    ("Refusal::late(", &["serving/procedure.rs"]),
    // Panics are caught outside of procedures, too: in service threads, in the owner's hook, in the keeper's
    // callbacks, in watchers of a directory, and when objects are dropped.
    (
        "catch_unwind(",
        &[
            "serving/procedure.rs",
            "path/datagram/server/sockets.rs",
            "serving/faults.rs",
            "path/receivers.rs",
            "keeper.rs",
            "directory/tree/keeping.rs",
            "sys/fragile.rs",
        ],
    ),
];

/// Files and directories of the workspace that may contain the word `unsafe`, each with its reason.
const UNSAFE: &[(&str, &str)] = &[
    ("crates/peregrine/src/lib.rs", "denies it"),
    ("crates/peregrine/src/sys/", "system calls and mappings"),
    ("crates/peregrine/src/value/window.rs", "plain values out of memory that a peer may write"),
    ("crates/peregrine/src/value/plain.rs", "plain types as bytes"),
    ("crates/peregrine/src/value/buffer.rs", "a vector's spare capacity, filled by a result"),
    ("crates/peregrine-macros/src/derive_plain.rs", "quotes `unsafe impl Plain`, and proves it"),
    ("crates/peregrine-macros/src/check.rs", "refuses it in interfaces"),
    ("crates/peregrine-cli/src/main.rs", "forbids it"),
    ("crates/peregrine-bench/src/main.rs", "forbids it"),
    ("crates/peregrine/tests/tidy.rs", "this list"),
    ("crates/peregrine/tests/local.rs", "sets an environment variable"),
    ("crates/peregrine/tests/failures.rs", "forks, and sets an environment variable"),
    ("crates/peregrine/tests/forks.rs", "forks"),
    ("crates/peregrine/tests/failure_matrix/elsewhere.rs", "forks"),
    ("crates/peregrine/tests/failure_matrix/subject.rs", "ends its own process"),
    ("crates/peregrine/tests/processes.rs", "forks, and sets an environment variable"),
    ("crates/peregrine/tests/memory.rs", "sets limits and mounts of a child process"),
    ("crates/peregrine/tests/syscalls.rs", "traces a child"),
    ("crates/peregrine/tests/registering.rs", "sets an environment variable"),
    ("crates/peregrine/tests/stat.rs", "sets an environment variable"),
    ("crates/peregrine/tests/callbacks/failures.rs", "forks"),
    ("crates/peregrine/tests/streams/failures.rs", "forks"),
    (
        "crates/peregrine/tests/support/",
        "stops and continues child processes, and an allocator that counts",
    ),
    ("crates/peregrine-cli/tests/foreign.rs", "sets an environment variable"),
    ("crates/peregrine/tests/compile-fail/", "what the macro refuses"),
];

/// Words that names of this project do not contain, and what to write instead.
const BANNED: &[(&str, &str)] = &[
    ("Manager", "say what it does: keeper, pool, directory"),
    ("Helper", "say what it does"),
    ("Util", "put it where it is used"),
    ("Context", "say what it holds: caller, session, terms"),
];

const LINES_MAX: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the text files of the workspace: the path from the workspace's root, and the text.
fn files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut todo = vec![root()];
    while let Some(directory) = todo.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory").flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            let path = entry.path();
            // In a linked worktree, `.git` is a file.
            if name == "target" || name == ".git" {
                continue;
            }
            if path.is_dir() {
                todo.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let place = path.strip_prefix(root()).expect("inside the workspace");
                found.push((place.to_string_lossy().into_owned(), text));
            }
        }
    }
    assert!(found.len() > 60, "only {} files were found", found.len());
    found
}

fn rust_files() -> Vec<(String, String)> {
    files().into_iter().filter(|(path, _)| path.ends_with(".rs")).collect()
}

/// Returns the source files of the crates, without their tests and examples.
fn sources() -> Vec<(String, String)> {
    let source = |(path, _): &(String, String)| path.contains("/src/");
    rust_files().into_iter().filter(source).collect()
}

fn none(violations: Vec<String>) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

/// Returns whether `word` is at the offset `at` of `text`, with no letter, digit or `_` directly around it.
fn is_word(text: &str, at: usize, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    !text[..at].ends_with(part) && !text[at + word.len()..].starts_with(part)
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| is_word(text, at, word))
}

/// Returns the code of a line, without a comment that begins with `//`.
fn code(line: &str) -> &str {
    line.find("//").map_or(line, |at| &line[..at])
}

/// Returns the rooms that a file names with `crate::`: in `use` declarations, also with braces, and in paths.
fn rooms_used(text: &str) -> BTreeSet<String> {
    let code: String = text.lines().map(code).collect::<Vec<_>>().join("\n");
    let mut rooms = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with('$') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            rooms.extend(group_heads(group));
        } else {
            rooms.insert(ident(rest));
        }
    }
    rooms
}

fn ident(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Returns the first names of a `use` group after its opening brace: `a`, `c`, `d` of `a::b, c, d::{e, f}}`.
fn group_heads(group: &str) -> BTreeSet<String> {
    let (mut heads, mut depth, mut start) = (BTreeSet::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                heads.insert(ident(group[start..at].trim()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    heads.remove("");
    heads
}

/// Returns the room of a file: `value` for `crates/peregrine/src/value/plain.rs`, `None` for `lib.rs`.
fn room(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("crates/peregrine/src/")?;
    let room = inside.split('/').next()?;
    Some(room.strip_suffix(".rs").unwrap_or(room)).filter(|room| *room != "lib")
}

fn wrong_edges(files: &[(String, String)]) -> Vec<String> {
    let allowed: BTreeMap<_, _> = EDGES.iter().copied().collect();
    let mut wrong = Vec::new();
    for (path, text) in files {
        let Some(from) = room(path) else { continue };
        let Some(allowed) = allowed.get(from) else {
            wrong.push(format!("{path}: the room `{from}` is in no list of edges"));
            continue;
        };
        for to in rooms_used(text) {
            if to != from && !allowed.contains(&&*to) && to != "__plain_value" {
                wrong.push(format!("{path}: `{from}` may not use `{to}`"));
            }
        }
    }
    wrong
}

#[test]
fn rooms_use_only_those_below() {
    none(wrong_edges(&sources()));
    let file = |text: &str| [("crates/peregrine/src/value/x.rs".to_owned(), text.to_owned())];
    assert_eq!(wrong_edges(&file("use crate::path::local;")).len(), 1);
    assert_eq!(wrong_edges(&file("use crate::{limits, sys::{a, b}, keeper};")).len(), 1);
    assert_eq!(wrong_edges(&file("fn f() { crate::server::x() }")).len(), 1);
    assert_eq!(wrong_edges(&file("// crate::server\nuse crate::{limits};")).len(), 0);
    let unknown = [("crates/peregrine/src/attic.rs".to_owned(), String::new())];
    assert_eq!(wrong_edges(&unknown).len(), 1);
}

// The bridge uses only the documented modules of the library, as programs of users do.

/// Returns the lines that use a module which the documentation of the library omits.
fn hidden_modules(path: &str, text: &str) -> Vec<String> {
    let hidden = ["__rt", "call", "fuzzing", "stats", "stub", "sys", "value"];
    let uses = |line: &str| {
        let uses = |module| ["", "{"].map(|open| format!("peregrine::{open}{module}::"));
        hidden.into_iter().flat_map(uses).any(|path| line.contains(&path))
    };
    let lines = (1..).zip(text.lines()).filter(|(_, line)| uses(code(line)));
    lines.map(|(number, line)| format!("{path}:{number}: hidden: {}", line.trim())).collect()
}

#[test]
fn bridge_uses_only_the_public_interface() {
    let (sources, bridge) = (sources(), "crates/peregrine-bridge/src/");
    let of_bridge = || sources.iter().filter(|(path, _)| path.starts_with(bridge));
    assert!(of_bridge().count() > 10);
    none(of_bridge().flat_map(|(path, text)| hidden_modules(path, text)).collect());
    let hidden = |text: &str| hidden_modules("x", text).len();
    assert_eq!(hidden("use peregrine::call::Serve;\nuse peregrine::{stub::Unfit, Kind};"), 2);
    assert_eq!(hidden("use peregrine::{Kind, interface::Described};"), 0);
}

// No callback may run while the lock of the call frames is held.

/// Returns the lines of code in which a function or a closure is a parameter.
fn functions_taken(text: &str) -> Vec<String> {
    let taken = |line: &&str| {
        let line = code(line);
        ["Fn(", "FnMut(", "FnOnce(", ": fn(", "&fn("].iter().any(|function| line.contains(function))
    };
    text.lines().filter(taken).map(|line| format!("takes a function: {}", line.trim())).collect()
}

/// Returns the names of [`SERVING`] that a file contains although it may not.
fn ceremonies(path: &str, text: &str) -> Vec<String> {
    let Some(file) = path.strip_prefix("crates/peregrine/src/") else { return Vec::new() };
    let text = text.split("\nmod tests {").next().unwrap_or(text);
    let stray = |(what, files): &&(&str, &[&str])| {
        let stands = text.lines().map(code).any(|line| line.contains(what));
        stands && !file.starts_with("call/") && !files.contains(&file)
    };
    SERVING.iter().filter(stray).map(|(what, _)| format!("{path}: `{what}`")).collect()
}

#[test]
fn each_part_around_a_procedure_is_in_one_file() {
    let is_code = |path: &str| !path.ends_with("tests.rs") && !path.contains("/fuzzing");
    let files = sources().into_iter().filter(|(path, _)| is_code(path));
    none(files.flat_map(|(path, text)| ceremonies(&path, &text)).collect());
    let place = "crates/peregrine/src/path/local/server.rs";
    assert_eq!(ceremonies(place, "fn f() { catch_unwind(g); extensions::leave() }").len(), 2);
    assert_eq!(ceremonies(place, "// catch_unwind(\nmod tests {\ncatch_unwind(").len(), 0);
    assert_eq!(ceremonies("crates/peregrine/src/call/caller.rs", "leave_call()").len(), 0);
}

#[test]
fn no_function_is_passed_to_the_file_with_the_lock_of_the_frames() {
    let place = "crates/peregrine/src/call/pool/queue.rs";
    let text = std::fs::read_to_string(root().join(place)).expect("the queue");
    none(functions_taken(&text));
    let lock =
        sources().into_iter().filter(|(_, text)| text.contains("M::Lock")).map(|(path, _)| path);
    assert_eq!(lock.collect::<Vec<_>>(), [place], "the lock is used outside of its file");
    assert_eq!(functions_taken("fn f(is_released: &dyn Fn(u32) -> bool) {}").len(), 1);
    assert_eq!(functions_taken("fn f(f: impl FnOnce()) {}\nfn g(g: fn(u8)) {}").len(), 2);
    assert_eq!(functions_taken("// Fn(u32)\nfn f(index: u32) {}").len(), 0);
}

/// Returns uses of the standard library's locks. Only the locks in `sync` check the order of locking.
fn unchecked_locks(path: &str, text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let wrong = |line: &&str| {
        let line = self::code(line);
        let is_of_std = line.contains("use std::sync::")
            && (has_word(line, "Mutex") || has_word(line, "RwLock"));
        is_of_std
            || line.contains("std::sync::Mutex")
            || line.contains("std::sync::RwLock")
            || is_static_lock(line)
    };
    code.lines().filter(wrong).map(|line| format!("{path}: {}", line.trim())).collect()
}

/// Returns whether a line declares a static lock. A forked child inherits such a lock. If another thread held
/// the lock during the fork, that thread does not exist in the child, where the lock then stays locked.
fn is_static_lock(line: &str) -> bool {
    has_word(line, "static") && line.contains(": Mutex<")
}

#[test]
fn only_checked_locks_are_used() {
    let judged = |(path, _): &&(String, String)| {
        let of_tests =
            path.ends_with("tests.rs") || path.ends_with("model.rs") || path.ends_with("/sync.rs");
        path.starts_with("crates/peregrine/src/") && !of_tests
    };
    let files = sources();
    none(
        files.iter().filter(judged).flat_map(|(path, text)| unchecked_locks(path, text)).collect(),
    );
    assert_eq!(unchecked_locks("x", "use std::sync::{Arc, Mutex};").len(), 1);
    assert_eq!(unchecked_locks("x", "fn f(lock: &std::sync::RwLock<u8>) {}").len(), 1);
    assert_eq!(unchecked_locks("x", "    static TABLE: Mutex<u8> = Mutex::new(0);").len(), 1);
    assert_eq!(unchecked_locks("x", "use crate::sync::Mutex;\nuse std::sync::Arc;").len(), 0);
}

/// Returns those of `edges` that lead from a room to itself or to a room of a later line of `edges`.
fn upward(edges: &[(&str, &[&str])]) -> BTreeSet<(String, String)> {
    let place = |room: &str| edges.iter().position(|(one, _)| *one == room);
    let mut upward = BTreeSet::new();
    for (from, to) in edges {
        for to in *to {
            let to_place = place(to).unwrap_or_else(|| panic!("`{to}` is not a room"));
            if Some(to_place) >= place(from) {
                upward.insert(((*from).to_owned(), (*to).to_owned()));
            }
        }
    }
    upward
}

#[test]
fn rooms_have_no_unexplained_cycle() {
    let listed =
        UPWARD.iter().map(|(from, to, _)| ((*from).to_owned(), (*to).to_owned())).collect();
    assert_eq!(upward(EDGES), listed);
    assert_eq!(upward(&[("a", &["b"]), ("b", &["a"])]).len(), 1);
}

// Where `unsafe` is allowed.

fn misplaced_unsafe(files: &[(String, String)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, text) in files {
        let allowed = UNSAFE.iter().any(|(place, _)| path.starts_with(place));
        if !allowed && text.lines().any(|line| has_word(code(line), "unsafe")) {
            wrong.push(format!("{path}: `unsafe` is not allowed here"));
        }
    }
    wrong
}

/// Returns the `unsafe` blocks that have no `SAFETY` comment within the three lines before them.
fn unargued(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut wrong = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let block = format!("{} {{", "unsafe");
        let begins = code(line).find(&block).is_some_and(|at| !line[..at].contains('"'));
        if begins && !safety_above(&lines[..i]) {
            wrong.push(format!("{path}:{}: no `// SAFETY:` above", i + 1));
        }
    }
    wrong
}

/// Returns whether a comment that ends within the last three of `lines` contains `SAFETY:`.
fn safety_above(lines: &[&str]) -> bool {
    let comment = |line: &&&str| line.trim_start().starts_with("//");
    let near = lines.iter().rev().take(3);
    if near.clone().any(|line| line.contains("SAFETY:")) {
        return true;
    }
    // A longer comment begins further up.
    let skip = near.take_while(|line| !comment(line)).count();
    let whole = lines.iter().rev().skip(skip).take_while(comment);
    whole.into_iter().any(|line| line.contains("SAFETY:"))
}

#[test]
fn unsafe_is_only_where_allowed_and_is_argued() {
    none(misplaced_unsafe(&rust_files()));
    let shown = |path: &str| path.contains("compile-fail/") || path.ends_with("tests/tidy.rs");
    let files = rust_files();
    let files = files.iter().filter(|(path, _)| !shown(path));
    none(files.flat_map(|(path, text)| unargued(path, text)).collect());
    let place = "crates/peregrine/src/call/x.rs".to_owned();
    assert_eq!(misplaced_unsafe(&[(place.clone(), "fn f() { unsafe { g() } }".into())]).len(), 1);
    assert_eq!(misplaced_unsafe(&[(place, "#![deny(unsafe_code)] // unsafe".into())]).len(), 0);
    assert_eq!(unargued("x", "let a = 1;\nlet b = unsafe { g() };\n").len(), 1);
    assert_eq!(unargued("x", "// because\nlet b = unsafe { g() };\n").len(), 1);
    assert_eq!(unargued("x", "// SAFETY: so.\nlet b = unsafe { g() };\n").len(), 0);
    let long = "// SAFETY: 1\n// 2\n// 3\n// 4\nlet b = unsafe { g() };\n";
    assert_eq!(unargued("x", long).len(), 0);
}

#[test]
fn files_that_may_have_unsafe_exist() {
    for (place, why) in UNSAFE {
        assert!(root().join(place).exists(), "{place} ({why}) does not exist any more");
    }
}

// The form of files, and words that are banned.

fn without_purpose(path: &str, text: &str) -> Option<String> {
    (!text.starts_with("//!")).then(|| format!("{path}: does not begin with `//!`"))
}

#[test]
fn every_file_begins_with_its_purpose() {
    let judged = |path: &str| !path.contains("compile-fail/") && !path.contains("/target/");
    let files = rust_files();
    let files = files.iter().filter(|(path, _)| judged(path));
    none(files.filter_map(|(path, text)| without_purpose(path, text)).collect());
    assert!(without_purpose("x", "use a;\n//! late\n").is_some());
}

fn too_long(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > LINES_MAX).then(|| format!("{path}: {lines} lines; at most {LINES_MAX}"))
}

#[test]
fn no_file_is_too_long() {
    none(rust_files().iter().filter_map(|(path, text)| too_long(path, text)).collect());
    assert!(too_long("x", &"\n".repeat(LINES_MAX + 1)).is_some());
    assert!(too_long("x", &"\n".repeat(LINES_MAX)).is_none());
}

/// Returns an error if a test program exports names without a separate runtime directory. If such a program
/// is killed, its names stay in the runtime directory of the machine.
fn without_directory(path: &str, text: &str) -> Option<String> {
    let is_test = ["/peregrine/tests/", "/peregrine-cli/tests/"].iter().any(|at| path.contains(at));
    let is_program =
        is_test && (path.ends_with("/main.rs") || path.rsplit('/').nth(1) == Some("tests"));
    let is_wrong = is_program
        && text.contains(".export(")
        && !["own_directory", "support::directory()", "PEREGRINE_DIR"]
            .iter()
            .any(|own| text.contains(own));
    is_wrong.then(|| format!("{path}: exports without a runtime directory of its own"))
}

#[test]
fn test_programs_have_their_own_runtime_directories() {
    none(rust_files().iter().filter_map(|(path, text)| without_directory(path, text)).collect());
    let path = "crates/peregrine/tests/x.rs";
    assert!(without_directory(path, "server.export(name, it)").is_some());
    assert!(without_directory(path, "own_directory(); server.export(name, it)").is_none());
    let path = "crates/peregrine-cli/tests/x.rs";
    assert!(without_directory(path, "server.export(name, it)").is_some());
}

/// Returns names with banned parts, and functions whose names begin with `get_`, in code and comments. A name
/// of another crate is allowed if it is imported under a better name.
fn banned_words(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (i, line) in text.lines().enumerate() {
        // The standard library passes a `Context` to futures.
        let taken = |name: &str| name == "Context" || line.contains(&format!("{name} as "));
        let names = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        for name in names.filter(|name| !taken(name)) {
            for (word, instead) in BANNED {
                if name.contains(word) {
                    wrong.push(format!("{path}:{}: `{name}`: {instead}", i + 1));
                }
            }
        }
        if line.contains("fn get_") {
            wrong.push(format!("{path}:{}: an accessor is named after what it returns", i + 1));
        }
    }
    wrong
}

/// Returns macros that must not be in a finished library.
fn banned_macros(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (i, line) in text.lines().enumerate() {
        for name in ["todo", "unimplemented", "dbg", "println", "print"] {
            let called = format!("{name}!");
            let mut places = code(line).match_indices(&called);
            if places.any(|(at, _)| is_word(line, at, name)) {
                wrong.push(format!("{path}:{}: `{called}` in a library", i + 1));
            }
        }
    }
    wrong
}

#[test]
fn banned_names_and_macros_do_not_occur() {
    let sources = sources();
    none(sources.iter().flat_map(|(path, text)| banned_words(path, text)).collect());
    let library = |path: &str| {
        let crates = ["peregrine", "peregrine-bridge", "peregrine-idl", "peregrine-macros"];
        crates.iter().any(|name| path.starts_with(&format!("crates/{name}/")))
    };
    let libraries = sources.iter().filter(|(path, _)| library(path));
    none(libraries.flat_map(|(path, text)| banned_macros(path, text)).collect());
    assert_eq!(banned_words("x", "struct SessionManager;\n/// A CallContext.\n").len(), 2);
    assert_eq!(banned_words("x", "use a::CallContext as Call;").len(), 0);
    assert_eq!(banned_words("x", "pub fn get_size(&self)").len(), 1);
    assert_eq!(banned_words("x", "fcntl_get_seals(map.get_mut(1))").len(), 0);
    assert_eq!(banned_macros("x", "    todo!();\n dbg!(1); // dbg!\nprintln!();").len(), 3);
    assert_eq!(banned_macros("x", "eprintln!(); // todo!").len(), 0);
}

/// Returns the lines that name a directory of one machine, or the host of a package registry. This file is
/// checked, too, so it contains the names only in parts.
fn of_one_machine(path: &str, text: &str) -> Vec<String> {
    let places = [["/wo", "rk/"], ["/ro", "ot/"], ["crates", ".io"], ["artifact", "ory"]];
    let mut wrong = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let locked = path.ends_with("Cargo.lock") && line.contains("registry+https://");
        for place in places.map(|parts| parts.concat()) {
            if !locked && line.contains(&place) {
                wrong.push(format!("{path}:{}: `{place}` does not belong here", i + 1));
            }
        }
    }
    wrong
}

#[test]
fn nothing_names_a_single_machine() {
    none(files().iter().flat_map(|(path, text)| of_one_machine(path, text)).collect());
    let text = ["open(\"/wo", "rk/x\") and /ro", "ot/y"].concat();
    assert_eq!(of_one_machine("x", &text).len(), 2);
    let locked = ["source = \"registry+https://github.com/rust-lang/crates", ".io-index\""];
    assert_eq!(of_one_machine("Cargo.lock", &locked.concat()).len(), 0);
    assert_eq!(of_one_machine("Cargo.toml", &locked.concat()).len(), 1);
}

/// Returns which of the two commands that a new user needs are missing in README.md.
fn missing_commands(readme: &str) -> Vec<&'static str> {
    let commands = ["cargo run --release", "cargo test"];
    commands.into_iter().filter(|command| !readme.contains(command)).collect()
}

#[test]
fn readme_names_the_two_commands() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("a README");
    assert_eq!(missing_commands(&readme), Vec::<&str>::new());
    assert_eq!(missing_commands("cargo run").len(), 2);
}

/// Returns the tests that a document names and that `has` does not find. A test is named as `tests/FILE.rs`
/// or `tests/FILE.rs::FUNCTION`. Without a longer path, the test belongs to the crate of the library. A test
/// in another file is named with its function.
fn missing_tests(document: &str, has: impl Fn(&str, Option<&str>) -> bool) -> Vec<String> {
    let is_test = |name: &&str| name.contains("tests/") || name.contains(".rs::");
    let named = document.split('`').skip(1).step_by(2).filter(is_test);
    let named = named.flat_map(|name| {
        // Several functions of one file may be named: `tests/FILE.rs::{one, other}`.
        let (file, functions) = name.split_once("::").unwrap_or((name, ""));
        let functions = functions.trim_matches(['{', '}']).split(',').map(str::trim);
        functions.map(move |function| (file.trim(), (!function.is_empty()).then_some(function)))
    });
    named
        .filter(|(file, function)| !has(file, *function))
        .map(|(file, function)| format!("{file}::{} is no test", function.unwrap_or("")))
        .collect()
}

/// Returns whether a file or directory exists and contains a test of this name.
fn has_test(file: &str, function: Option<&str>) -> bool {
    let path = match file.strip_prefix("tests/") {
        Some(_) => root().join("crates/peregrine").join(file),
        None => root().join(file),
    };
    // ARCHITECTURE.md names directories relative to the sources of the library.
    let path = if path.exists() { path } else { root().join("crates/peregrine/src").join(file) };
    let Some(function) = function else { return path.exists() };
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.contains(&format!("fn {function}("))
}

#[test]
fn tests_that_documents_name_exist() {
    // The changelog describes earlier states of the project, so it may name tests that are gone.
    let is_judged = |path: &str| path.ends_with(".md") && path != "CHANGELOG.md";
    let documents: Vec<_> = files().into_iter().filter(|(path, _)| is_judged(path)).collect();
    assert!(documents.iter().any(|(path, _)| path == "SECURITY.md"));
    let missing = |(path, text): &(String, String)| {
        let missing = missing_tests(text, has_test);
        missing.into_iter().map(|what| format!("{path}: {what}")).collect::<Vec<_>>()
    };
    none(documents.iter().flat_map(missing).collect());
    let is = |document: &str| missing_tests(document, has_test).len();
    assert_eq!(is("held by `tests/tidy.rs` and `tests/tidy.rs::has_test`, `src/lib.rs`"), 0);
    assert_eq!(is("`tests/tidy.rs::{has_test, is_word}`, `crates/peregrine/tests/tidy.rs`"), 0);
    assert_eq!(is("`tests/tidy.rs::{has_test, no_such}` `tests/none.rs` `tests/tidy.rs::x`"), 3);
    assert_eq!(is("`crates/peregrine/src/address.rs::{host_of, no_such}`"), 1);
}

/// Returns the `pub` lines that name a crate below version 1, whose interface may change at any time.
/// Optional features implement `Value` for types of `chrono` and `time`. No `pub` item may name these crates.
fn exposed(path: &str, text: &str) -> Vec<String> {
    const YOUNG: [&str; 6] = ["libc::", "crc32c::", "chrono::", " time::", "(time::", "<time::"];
    let public = |line: &&str| line.trim_start().starts_with("pub ");
    let young = |line: &&str| YOUNG.iter().any(|name| code(line).contains(name));
    let exposed = text.lines().filter(public).filter(young);
    exposed.map(|line| format!("{path}: {}", line.trim())).collect()
}

#[test]
fn no_public_item_names_a_crate_below_version_1() {
    let files = sources();
    let judged = files.iter().filter(|(path, _)| path.starts_with("crates/peregrine/src/"));
    none(judged.flat_map(|(path, text)| exposed(path, text)).collect());
    assert_eq!(exposed("x", "    pub fn f() -> libc::c_int\npub fn g(at: time::Date)").len(), 2);
    assert_eq!(exposed("x", "pub(crate) x: libc::y\n// pub libc::y\npub core::time::A").len(), 0);
}

// What some rooms must not use: sockets, clocks, threads and randomness.

/// The rooms to which this rule applies.
const PURE: [&str; 4] = ["foreign", "interface", "protocol", "value"];
/// Names of sockets, clocks, threads and randomness. Only `value` may use `sys`, to read and write files.
const IMPURE: [&str; 10] = [
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::time",
    "rustix::",
    "libc::",
    "RandomState",
    "Instant::now",
    "SystemTime::now",
];

/// Imports of standard library types that are mere values. `value/library.rs` only converts them to bytes.
const VALUES: [&str; 2] = ["use std::time::SystemTime;", "use std::os::unix::ffi::"];

fn impure(path: &str, text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let is_value = |line: &str| {
        path.ends_with("/value/library.rs") && VALUES.iter().any(|value| line.starts_with(value))
    };
    let named = |line: &str| {
        let line = if is_value(line) { "" } else { self::code(line) };
        IMPURE.into_iter().find(|name| line.contains(name))
    };
    let told = |line| named(line).map(|name| format!("{path}: `{name}` is not allowed here"));
    code.lines().filter_map(told).collect()
}

#[test]
fn pure_rooms_use_no_socket_clock_thread_or_randomness() {
    let judged = |(path, _): &&(String, String)| {
        room(path).is_some_and(|room| PURE.contains(&room))
            && !path.ends_with("tests.rs")
            && !path.ends_with("made_up.rs")
    };
    let files = sources();
    assert!(files.iter().filter(judged).count() > 40);
    none(files.iter().filter(judged).flat_map(|(path, text)| impure(path, text)).collect());
    assert_eq!(impure("x", "use std::time::Instant;\nlet a = Instant::now();").len(), 2);
    assert_eq!(impure("x", "// std::time\nuse core::time::Duration;").len(), 0);
}

// Documents name only files that exist, and the code map names every directory of the library.

/// Returns the places that a document names. A place is a name in backticks that ends in `.rs`, `.c` or `/`.
fn places_named(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|name| [".rs", ".c", "/"].iter().any(|end| name.ends_with(end)))
}

/// Returns whether a place exists below one of the directories from which documents name places.
fn is_there(name: &str, bullet: &str) -> bool {
    let from = ["", "crates", "crates/peregrine", "crates/peregrine/src", bullet];
    from.iter().any(|from| root().join(from).join(name).exists())
}

/// Returns the places that a document names but that do not exist. If a list item begins with a directory,
/// the item may name files relative to that directory.
fn missing_places(document: &str) -> Vec<String> {
    let mut missing = Vec::new();
    for item in document.split("\n* ") {
        let first = item.strip_prefix('`').and_then(|rest| rest.split('`').next());
        let first = first.filter(|first| first.ends_with('/')).unwrap_or_default();
        let within = match root().join(first).exists() {
            true => first.to_owned(),
            false => format!("crates/peregrine/src/{first}"),
        };
        missing.extend(places_named(item).filter(|name| !is_there(name, &within)));
    }
    missing.into_iter().map(|name| format!("`{name}` does not exist")).collect()
}

/// Returns the directories, and the files directly in the library's folder, that a map does not name.
fn unmapped(map: &str, files: &[(String, String)]) -> BTreeSet<String> {
    let named: BTreeSet<&str> = places_named(map).collect();
    let inside = files.iter().filter_map(|(path, _)| path.strip_prefix("crates/peregrine/src/"));
    let inside = inside.filter(|path| *path != "lib.rs" && !path.ends_with("/tests.rs"));
    let place = |path: &str| path.rfind('/').map_or(path, |slash| &path[..=slash]).to_owned();
    inside.map(place).filter(|place| !named.contains(&**place)).collect()
}

#[test]
fn files_that_documents_name_exist() {
    for document in ["ARCHITECTURE.md", "docs/LINEAGE.md"] {
        let text = std::fs::read_to_string(root().join(document)).expect("a document");
        none(missing_places(&text));
    }
    let is = |document: &str| missing_places(document).len();
    assert_eq!(is("`call/`, `sys/fork.rs`, `tests/tidy.rs` and `peregrine-cli/src/args.rs`"), 0);
    assert_eq!(is("here:\n* `call/`: `frames.rs`\n* `path/local/`: `peer.rs`\n"), 0);
    assert_eq!(is("here:\n* `call/`: `word.rs`\n* `attic/`: `attic.rs`\n"), 3);
}

#[test]
fn map_names_every_directory() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("a document");
    let map = text.split("\n## ").find(|section| section.starts_with("Code map"));
    assert_eq!(unmapped(map.expect("a map"), &sources()), BTreeSet::new());
    let file = |path: &str| (format!("crates/peregrine/src/{path}"), String::new());
    let files = ["lib.rs", "keeper.rs", "call/mod.rs", "call/pool/slots.rs"].map(file);
    assert_eq!(unmapped("`call/`: `slots.rs`", &files).len(), 2);
    assert_eq!(unmapped("`call/`, `call/pool/` and `keeper.rs`", &files).len(), 0);
}
