//! Replays the corpus of the fuzz target `descriptions`, which parses descriptions of interfaces in all
//! forms.

#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/descriptions.rs"]
mod descriptions;

use std::path::Path;

#[test]
fn corpus_of_descriptions_is_accepted() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/descriptions");
    let inputs = std::fs::read_dir(corpus).expect("a corpus");
    let mut count = 0;
    for path in inputs.map(|entry| entry.expect("a file").path()) {
        let bytes = std::fs::read(&path).expect("an input");
        assert!(bytes.len() < 4096, "{} is too long to be kept", path.display());
        let ran = std::panic::catch_unwind(|| descriptions::run(&bytes));
        assert!(ran.is_ok(), "{} fails", path.display());
        count += 1;
    }
    assert!(count > 10, "most of the corpus is missing");
}
