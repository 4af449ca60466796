//! Imports any text as a program of Courier. Tests of `peregrine-idl` replay the corpus of this target.

use peregrine_idl::courier::{Source, export_courier, import_courier};

/// Imports bytes as a program. The text is also the text of each program that it depends upon.
///
/// # Panics
/// Panics if an imported program is exported as another one.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut files =
        |_: &_| Some(Source { name: "fuzz.cr".to_owned(), text: text.clone().into_owned() });
    let Ok(imported) = import_courier(&text, "fuzz.cr", &mut files) else { return };
    let exported = export_courier(&imported.program);
    let mut files = |_: &_| Some(Source { name: "fuzz.cr".to_owned(), text: exported.clone() });
    match import_courier(&exported, "fuzz.cr", &mut files) {
        Ok(again) => assert_eq!((again.program, again.rust), (imported.program, imported.rust)),
        Err(error) => panic!("{error}\n{exported}"),
    }
}
