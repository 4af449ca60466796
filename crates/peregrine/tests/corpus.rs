//! The corpora of the fuzz targets that need nothing private, replayed: see `fuzz/README.md`.

#[allow(dead_code, unreachable_pub, clippy::vec_box, clippy::type_complexity)]
#[path = "../../../fuzz/src/lib.rs"]
mod targets;

use std::path::Path;

/// Runs a target on each of its inputs; how many there were.
fn replay(target: &str, run: fn(&[u8])) -> usize {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let corpus = std::fs::read_dir(fuzz.join("corpus").join(target)).expect("a corpus");
    let inputs = corpus.map(|entry| entry.expect("a file").path());
    let replayed = inputs.map(|path| {
        let bytes = std::fs::read(&path).expect("an input");
        assert!(bytes.len() < 4096, "{} is too long to be kept", path.display());
        let ran = std::panic::catch_unwind(|| run(&bytes));
        assert!(ran.is_ok(), "{} fails", path.display());
    });
    replayed.count()
}

#[test]
fn what_fuzzers_found_stays_found() {
    assert!(replay("values", targets::values::run) > 20);
    assert!(replay("server", targets::server::run) > 10);
}

#[test]
fn an_input_that_fails_is_seen() {
    let fails = std::panic::catch_unwind(|| replay("values", |_| panic!("any input")));
    assert!(fails.is_err());
}
