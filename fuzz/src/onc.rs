//! Imports any text as an interface file of ONC RPC. Tests of `peregrine-idl` replay the corpus of this
//! target.

/// Imports a text.
///
/// # Panics
/// Panics if an imported file is exported as another one.
pub fn run(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    let Ok(imported) = peregrine_idl::import_onc(text, "fuzz.x") else { return };
    let written = peregrine_idl::export_onc(&imported.specification);
    let again = peregrine_idl::import_onc(&written, "fuzz.x").map(|again| again.specification);
    assert_eq!(again.as_ref(), Ok(&imported.specification), "{written}");
}
