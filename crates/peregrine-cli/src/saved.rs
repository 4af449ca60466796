//! Reads and writes descriptions of interfaces in files: as JSON, as a Rust trait, or as canonical text.

use std::path::Path;

use peregrine::interface::Described;

use crate::output::{Failure, OrFail as _, near_files};

/// Writes a description to a file. If the name of the file ends in `.rs`, writes a trait, otherwise JSON.
pub(crate) fn write(path: &Path, described: &Described) -> Result<(), Failure> {
    let is_rust = path.extension().is_some_and(|extension| extension == "rs");
    let text = match is_rust {
        true => peregrine_idl::to_trait(described),
        false => format!("{:#}\n", described.to_json()),
    };
    std::fs::write(path, text).or_fail(format!("cannot write {}", path.display()))
}

/// Reads a description, in any of the three forms, from a file.
pub(crate) fn read(path: &Path) -> Result<Described, Failure> {
    read_like(path, None)
}

/// Reads a description. In a trait, only the derives of a type say whether the type is plain. If the derives
/// are missing, the type is plain if the type of the same name in `like` is plain.
pub(crate) fn read_like(path: &Path, like: Option<&Described>) -> Result<Described, Failure> {
    let what = || format!("cannot read an interface from {}", path.display());
    let text =
        std::fs::read_to_string(path).or_fail(what()).map_err(|failure| match path.exists() {
            true => failure,
            false => failure.suggest(near_files(path)),
        })?;
    parse_like(&text, like).map_err(|cause| Failure::Local {
        what: what(),
        causes: vec![cause],
        advice: "save one with `peregrine describe ADDRESS --format json`, or as the trait that `describe` \
                 shows",
        suggestions: Vec::new(),
    })
}

#[cfg(test)]
fn parse(text: &str) -> Result<Described, String> {
    parse_like(text, None)
}

fn parse_like(text: &str, like: Option<&Described>) -> Result<Described, String> {
    let begins = |with: &str| text.trim_start().starts_with(with);
    if begins("{") {
        let json = serde_json::from_str(text).map_err(|error| error.to_string())?;
        return Described::from_json(&json).map_err(|error| error.to_string());
    }
    match begins("interface ") {
        true => Described::parse(text).map_err(|error| error.to_string()),
        false => match like {
            Some(like) => peregrine_idl::parse_trait_like(text, like),
            None => peregrine_idl::parse_trait(text),
        }
        .map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_are_read() {
        let text = "trait Add { fn add(&self, a: i32, b: i32) -> peregrine::Result<i32>; }";
        let add = parse(text).unwrap();
        for form in [peregrine_idl::to_trait(&add), add.to_string(), add.to_json().to_string()] {
            assert_eq!(parse(&form), Ok(add.clone()));
        }
        for form in ["{", "interface ", "trait", ""] {
            assert!(parse(form).is_err());
        }
    }
}
