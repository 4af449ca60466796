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

/// Imports and exports a file, and imports the result. Panics if this fails or changes the text.
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
    assert_eq!(import(&again), rust, "{again}\n{file}");
}
