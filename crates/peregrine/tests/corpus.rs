//! Replays the corpora of the fuzz targets that need only public types, and the corpus of the packet
//! exchange. The corpus of a target consists of inputs that earlier fuzzing has found. Unit tests in
//! `src/fuzzing/corpora.rs` and tests of `peregrine-idl` replay the other corpora: see `fuzz/README.md`.

// The types of the fuzz targets have unusual shapes on purpose.
#[allow(dead_code, unreachable_pub, clippy::type_complexity, clippy::vec_box)]
#[path = "../../../fuzz/src/lib.rs"]
mod targets;

// The packet exchange is private. Its sources are compiled into this test, under the name that the targets
// use.
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

/// Runs a target on each input of its corpus. Returns the number of inputs.
fn replay(target: &str, run: fn(&[u8])) -> usize {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let corpus = std::fs::read_dir(fuzz.join("corpus").join(target)).expect("a corpus");
    let inputs = corpus.map(|entry| entry.expect("a file").path());
    let replayed = inputs.map(|path| {
        let bytes = std::fs::read(&path).expect("an input");
        assert!(bytes.len() < 4096, "{} is too long for the corpus", path.display());
        let ran = std::panic::catch_unwind(|| run(&bytes));
        assert!(ran.is_ok(), "{} fails", path.display());
    });
    replayed.count()
}

#[test]
fn inputs_found_by_fuzzing_do_not_fail() {
    assert!(replay("values", targets::values::run) > 20);
    assert!(replay("foreign", targets::foreign::run) > 10);
    assert!(replay("foreign_dynamic", targets::foreign_dynamic::run) > 10);
    assert!(replay("server", targets::server::run) > 10);
    #[cfg(feature = "json")]
    {
        assert!(replay("dynamic", targets::dynamic::run) > 10);
        assert!(replay("growth", targets::growth::run) > 10);
    }
    assert!(replay("packets", exchange_targets::packets) > 10);
    assert!(replay("server_end", exchange_targets::server_end) > 10);
    assert!(replay("client_end", exchange_targets::client_end) > 10);
}

#[test]
fn failing_input_fails_the_replay() {
    let fails = std::panic::catch_unwind(|| replay("values", |_| panic!("any input")));
    assert!(fails.is_err());
}
