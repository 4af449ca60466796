//! Exports any Rust text as an interface file of ONC RPC or of Courier. Tests of `peregrine-idl` replay the
//! corpus of this target.

use peregrine::interface::System;
use peregrine_idl::courier::import_courier;
use peregrine_idl::{export_traits, import_onc};

/// Exports a text. The first byte selects the system.
///
/// # Panics
/// Panics if an exported file cannot be imported, or if its import is not stable.
pub fn run(bytes: &[u8]) {
    let Some((system, text)) = bytes.split_first() else { return };
    let Ok(text) = core::str::from_utf8(text) else { return };
    let system = if system % 2 == 0 { System::Onc } else { System::Courier };
    let Ok(exported) = export_traits(text, "fuzz.rs", system) else { return };
    // A program that depends upon other programs cannot be imported, because those programs are not in the
    // file.
    if !exported.text.contains("DEPENDS UPON") {
        is_stable(&exported.text, system);
    }
}

/// Imports and exports a file, and imports the result. Panics if this fails or changes a definition. The order
/// of the definitions may change: the import has the type of an inline struct after the union that contains it,
/// and in a file for C the type is first.
fn is_stable(file: &str, system: System) {
    let import = |text: &str| {
        let imported = match system {
            System::Onc => import_onc(text, "fuzz").map(|imported| imported.rust),
            _ => import_courier(text, "fuzz", &mut |_| None).map(|imported| imported.rust),
        };
        imported.unwrap_or_else(|error| panic!("{error}\n{text}"))
    };
    let rust = import(file);
    let again = match export_traits(&rust, "fuzz.rs", system) {
        Ok(exported) => exported.text,
        Err(error) => panic!("{error}\n{rust}\n{file}"),
    };
    let again_in_rust = import(&again);
    assert_eq!(definitions(&again_in_rust), definitions(&rust), "{again}\n{file}");
}

/// Returns the parts of a text that empty lines separate, in an order that depends on nothing else.
fn definitions(rust: &str) -> Vec<&str> {
    let mut parts: Vec<_> = rust.split("\n\n").map(str::trim).collect();
    parts.sort_unstable();
    parts
}
