//! Replays the corpora of the fuzz targets that need only public types, and of the packet exchange.
//! Unit tests in `src/fuzzing/corpora.rs` and tests of `peregrine-idl` replay the others: see
//! `fuzz/README.md`.

// Its types are as odd as types can be.
#[allow(dead_code, unreachable_pub, clippy::type_complexity, clippy::vec_box)]
#[path = "../../../fuzz/src/lib.rs"]
mod targets;

// Packets and their machines are private: they are compiled in as they stand, under the name by which
// their targets know them.
#[allow(dead_code, unreachable_pub)]
#[path = "../src/protocol/exchange/mod.rs"]
mod exchange;
#[allow(missing_docs, unreachable_pub)]
#[path = "../src/fuzzing/exchange.rs"]
mod exchange_targets;
mod protocol {
    pub(crate) use crate::exchange;
}

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
    #[cfg(feature = "json")]
    assert!(replay("dynamic", targets::dynamic::run) > 10);
    assert!(replay("packets", exchange_targets::packets) > 10);
    assert!(replay("server_end", exchange_targets::server_end) > 10);
    assert!(replay("client_end", exchange_targets::client_end) > 10);
}

#[test]
fn an_input_that_fails_is_seen() {
    let fails = std::panic::catch_unwind(|| replay("values", |_| panic!("any input")));
    assert!(fails.is_err());
}
