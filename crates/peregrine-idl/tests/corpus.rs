//! Replays the corpora of four fuzz targets. `descriptions` parses descriptions of interfaces in all forms.
//! `onc` and `courier` import interface files of ONC RPC and of Courier. `exports` exports traits as such
//! files.

#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/courier.rs"]
mod courier;
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/descriptions.rs"]
mod descriptions;
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/exports.rs"]
mod exports;
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/onc.rs"]
mod onc;

use std::path::Path;

/// Replays a corpus. Returns the number of its inputs.
fn replay(name: &str, run: fn(&[u8])) -> usize {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let inputs = std::fs::read_dir(corpora.join(name)).expect("a corpus");
    let mut count = 0;
    for path in inputs.map(|entry| entry.expect("a file").path()) {
        let bytes = std::fs::read(&path).expect("an input");
        assert!(bytes.len() < 4096, "{} is too long to be kept", path.display());
        let ran = std::panic::catch_unwind(|| run(&bytes));
        assert!(ran.is_ok(), "{} fails", path.display());
        count += 1;
    }
    count
}

#[test]
fn corpus_of_descriptions_is_accepted() {
    assert!(replay("descriptions", descriptions::run) > 10, "most of the corpus is missing");
}

#[test]
fn corpus_of_onc_is_accepted() {
    assert!(replay("onc", onc::run) > 4, "most of the corpus is missing");
}

#[test]
fn corpus_of_courier_is_accepted() {
    assert!(replay("courier", courier::run) > 4, "most of the corpus is missing");
}

#[test]
fn corpus_of_exports_is_accepted() {
    assert!(replay("exports", exports::run) > 4, "most of the corpus is missing");
}
