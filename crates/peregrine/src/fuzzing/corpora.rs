//! Replays the corpora of the fuzz targets that need private types. `tests/corpus.rs` replays the other
//! corpora: see `fuzz/README.md`.

// The targets belong to another crate, in which their items are public.
#![allow(unreachable_pub)]

#[allow(dead_code, clippy::type_complexity, clippy::vec_box)]
#[path = "../../../../fuzz/src/lib.rs"]
mod targets;

#[path = "../../../../fuzz/src/client.rs"]
mod client;
#[path = "../../../../fuzz/src/datagrams.rs"]
mod datagrams;
#[path = "../../../../fuzz/src/handshake.rs"]
mod handshake;
#[cfg(feature = "secure")]
#[path = "../../../../fuzz/src/sealed.rs"]
mod sealed;
#[path = "../../../../fuzz/src/words.rs"]
mod words;

use std::panic::catch_unwind;
use std::path::Path;

// The targets import these items from their parent module.
use targets::{
    Colour, Everything, EverythingClient, EverythingServer, List, Object, Point, Shade, Shape,
    Tree, over,
};

/// Runs a target on each input of its corpus, which must have more than `few` inputs.
fn replay(target: &str, few: usize, run: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let corpus = std::fs::read_dir(fuzz.join("corpus").join(target)).expect("a corpus");
    let inputs = corpus.map(|entry| entry.expect("a file").path());
    let replayed = inputs.map(|path| {
        let bytes = std::fs::read(&path).expect("an input");
        assert!(catch_unwind(|| run(&bytes)).is_ok(), "{} fails", path.display());
    });
    assert!(replayed.count() > few, "the corpus of {target} has too few inputs");
}

#[test]
fn client_survives_its_corpus() {
    replay("client", 30, client::run);
}

#[test]
fn datagrams_survive_their_corpus() {
    replay("datagrams", 10, datagrams::run);
}

#[test]
fn extensions_survive_their_corpus() {
    replay("extensions", 10, super::extensions);
}

#[test]
fn handshake_survives_its_corpus() {
    replay("handshake", 30, handshake::run);
}

#[test]
fn stream_survives_its_corpus() {
    replay("stream", 3, super::stream_message);
}

#[test]
fn onc_rpc_survives_its_corpora() {
    replay("onc_messages", 12, super::onc::message);
    replay("onc_replies", 2, super::onc::replies);
}

#[test]
fn courier_survives_its_corpora() {
    replay("courier_messages", 10, super::courier::message);
    replay("courier_packets", 4, super::courier::packets);
}

#[cfg(feature = "secure")]
#[test]
fn encrypted_paths_survive_their_corpora() {
    replay("shaking", 10, sealed::handshakes);
    replay("sealed_packets", 10, sealed::packets);
    replay("tls_streams", 10, sealed::streams);
    replay("parameters", 2, super::parameters);
}

#[test]
fn words_survive_their_corpus() {
    replay("words", 20, words::run);
}

#[test]
fn input_that_fails_is_seen() {
    let fails = catch_unwind(|| replay("words", 0, |_| panic!("any input")));
    assert!(fails.is_err());
}
