//! Checks that the bridge uses only the public interface of the library.

use std::path::Path;

/// The modules of the library that its documentation omits.
const HIDDEN: [&str; 7] = ["__rt", "call", "fuzzing", "stats", "stub", "sys", "value"];

/// Returns the lines that use a hidden module.
fn hidden(text: &str) -> Vec<&str> {
    let uses = |line: &&str| {
        let all = HIDDEN.iter().map(|module| format!("peregrine::{module}::"));
        let listed = HIDDEN.iter().map(|module| format!("peregrine::{{{module}::"));
        all.chain(listed).any(|path| line.contains(&path))
    };
    text.lines().filter(uses).collect()
}

#[test]
fn bridge_uses_no_hidden_module() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut count = 0;
    for source in std::fs::read_dir(sources).unwrap() {
        let text = std::fs::read_to_string(source.unwrap().path()).unwrap();
        assert_eq!(hidden(&text), Vec::<&str>::new());
        count += 1;
    }
    assert!(count > 10);
    assert_eq!(hidden("use peregrine::call::Serve;\nuse peregrine::{stub::Unfit, Kind};").len(), 2);
    assert_eq!(hidden("use peregrine::{Kind, interface::Described};").len(), 0);
}
