//! Parses descriptions of interfaces, as peers send them, in each of the forms of a description. Tests of
//! `peregrine-idl` replay the corpus of this target.

use peregrine::interface::{Described, InterfaceRef};
use peregrine::stub::Program;

/// Parses bytes as a description. The first byte selects the form of the description.
///
/// # Panics
/// Panics if a description that was parsed from its canonical text is printed as another text. Also panics
/// if a printed description is parsed as another description.
pub fn run(bytes: &[u8]) {
    let Some((form, text)) = bytes.split_first() else { return };
    let Ok(text) = core::str::from_utf8(text) else { return };
    let described = match form % 3 {
        0 => match Described::parse(text) {
            Ok(described) => {
                assert_eq!(described.to_string(), text);
                described
            }
            Err(error) => return assert!(error.line() <= text.lines().count().max(1)),
        },
        1 => match peregrine_idl::parse_trait(text) {
            Ok(described) => described,
            Err(_) => return,
        },
        _ => match serde_json::from_str(text).map(|json| Described::from_json(&json)) {
            Ok(Ok(described)) => described,
            _ => return,
        },
    };
    assert_eq!(
        Described::parse(&described.to_string()).map(|one| one.digest()),
        Ok(described.digest())
    );
    let written = peregrine_idl::to_trait(&described);
    let again = peregrine_idl::parse_trait(&written);
    assert_eq!(again.map(|one| one.digest()), Ok(described.digest()), "{written}");
    assert_eq!(Described::from_json(&described.to_json()), Ok(described.clone()));
    let _ = Program::flatten(&described).to_string();
    let _ = InterfaceRef::from(described);
}
