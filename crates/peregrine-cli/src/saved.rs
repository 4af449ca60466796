//! Reads and writes descriptions of interfaces in files: as JSON, as a Rust trait, or as canonical text. Also
//! reads interface files of ONC RPC (.x) and Courier (.cr).

use std::path::Path;

use peregrine::interface::Described;
use serde_json::Value;

use crate::import;
use crate::output::{Failure, OrFail as _, read_or_suggest};

/// Writes a description to a file. If the name of the file ends in `.rs`, writes a trait, otherwise JSON.
pub(crate) fn write(path: &Path, described: &Described) -> Result<(), Failure> {
    let is_rust = path.extension().is_some_and(|extension| extension == "rs");
    let text = match is_rust {
        true => peregrine_idl::to_trait(described),
        false => format!("{:#}\n", described.to_json()),
    };
    std::fs::write(path, text).or_fail(format!("cannot write {}", path.display()))
}

/// Writes all descriptions that were read from an interface file of another RPC system, as JSON.
pub(crate) fn write_all(path: &Path, all: &[Described]) -> Result<(), Failure> {
    std::fs::write(path, text_of_all(all)).or_fail(format!("cannot write {}", path.display()))
}

/// Returns descriptions as JSON: one as an object, and several as an array.
pub(crate) fn text_of_all(all: &[Described]) -> String {
    match all {
        [one] => format!("{:#}\n", one.to_json()),
        all => format!("{:#}\n", all.iter().map(Described::to_json).collect::<Value>()),
    }
}

/// Reads the description for a call from a file. A file of ONC RPC or Courier, and JSON that was made from
/// it, can have several programs. If the address names a program, as in `onc+udp:HOST/100005.3`, that program
/// is returned. Otherwise the last program that has the procedure is returned. If no program has it, the last
/// program is returned.
pub(crate) fn read_for_call(
    path: &Path,
    address: &str,
    procedure: &str,
) -> Result<Described, Failure> {
    let mut all = read_all(path)?;
    let named = |one: &Described| {
        one.programs
            .iter()
            .any(|program| address.ends_with(&format!("/{}.{}", program.number, program.version)))
    };
    let has = |one: &Described| one.procedure(procedure).is_some();
    let found = all.iter().position(named).or_else(|| all.iter().rposition(has));
    match found.or_else(|| all.len().checked_sub(1)) {
        Some(place) => Ok(all.swap_remove(place)),
        None => {
            let what = format!("{} has no program", path.display());
            Err(Failure::local(what, "use another file"))
        }
    }
}

/// Reads all descriptions of a file.
fn read_all(path: &Path) -> Result<Vec<Described>, Failure> {
    if !import::is_interface_file(path) {
        return read_file(path, all_in);
    }
    let what = || format!("cannot read an interface from {}", path.display());
    let text = import::read_near(path, &what())?;
    let failed = |cause: String, advice| Failure::Local {
        what: what(),
        causes: vec![cause],
        advice,
        suggestions: Vec::new(),
    };
    let imported = import::import(&text, path, &[], &[]).map_err(|found| {
        failed(found.to_string(), "correct the file where the marks are, or use another file")
    })?;
    peregrine_idl::parse_traits(imported.rust())
        .map_err(|error| failed(error.to_string(), "call by a trait: `peregrine import` prints it"))
}

/// Reads one description from JSON, a trait or canonical text, or several from an array in JSON.
fn all_in(text: &str) -> Result<Vec<Described>, String> {
    if !text.trim_start().starts_with('[') {
        return Ok(vec![parse_like(text, None)?]);
    }
    let all: Vec<Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let all = all.iter().map(|one| Described::from_json(one).map_err(|error| error.to_string()));
    all.collect()
}

/// Reads a description from a file: JSON, a trait or canonical text.
pub(crate) fn read(path: &Path) -> Result<Described, Failure> {
    read_like(path, None)
}

/// Reads a description. In a trait, only the derives of a type say whether the type is plain. If the derives
/// are missing, the type is plain if the type of the same name in `like` is plain.
pub(crate) fn read_like(path: &Path, like: Option<&Described>) -> Result<Described, Failure> {
    read_file(path, |text| parse_like(text, like))
}

/// Reads a text file, and parses its text by `parse`.
fn read_file<T>(path: &Path, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, Failure> {
    let what = || format!("cannot read an interface from {}", path.display());
    let text = read_or_suggest(path, what(), |path| std::fs::read_to_string(path))?;
    parse(&text).map_err(|cause| Failure::Local {
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
    if begins("[") {
        return Err("several interfaces are described here, but only calls choose one".to_owned());
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
    fn files_of_other_systems_are_read_for_a_call() {
        let directory =
            std::env::temp_dir().join(format!("peregrine-saved-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let x = file(
            "two.x",
            "typedef string name<9>; const A = 3; struct s { name n; opaque o[A]; };\n\
             program P { version V1 { int ADD(s) = 1; } = 1; version V2 { int ADD(s) = 7; void NOP(void) = 8; } \
             = 2; } = 0x20000000;",
        );
        let number = |address: &str, procedure: &str| {
            let described = read_for_call(&x, address, procedure).unwrap();
            let program = &described.programs[0];
            (program.version, program.procedures[0])
        };
        assert_eq!(number("onc+udp:host", "add"), (2, 7));
        assert_eq!(number("onc+udp:host/536870912.1", "add"), (1, 1));
        let saved = file("two.json", &text_of_all(&read_all(&x).unwrap()));
        for (address, procedure) in [("onc+udp:host", "add"), ("onc+udp:host/536870912.1", "nop")] {
            let [one, other] =
                [&x, &saved].map(|path| read_for_call(path, address, procedure).unwrap());
            assert_eq!(one, other);
        }
        assert!(read(&saved).is_err());
        let foreign = read_for_call(&x, "", "add").unwrap().foreign_text();
        assert!(foreign.contains(" max 9"), "{foreign}");
        let cr = file(
            "Time.cr",
            "Time: PROGRAM 15 VERSION 2 =\nBEGIN\n  Busy: ERROR [seconds: CARDINAL] = 3;\n  \
             Now: PROCEDURE RETURNS [seconds: LONG CARDINAL] REPORTS [Busy] = 0;\nEND.\n",
        );
        let time = read_for_call(&cr, "courier+tcp:host", "now").unwrap();
        assert_eq!((time.programs[0].number, time.programs[0].procedures[0]), (15, 0));
        assert!(time.foreign_text().contains("error 3"), "{}", time.foreign_text());
        std::fs::remove_dir_all(&directory).unwrap();
    }

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
