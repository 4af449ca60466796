//! `import`: prints an interface file of ONC RPC or Courier as Rust traits.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use peregrine::interface::Described;
use peregrine_idl::courier::{self, Dependency, Source, import_courier};
use peregrine_idl::onc::{self, ImportedInterface, ONC_BYTES_MAX, Onc};
use peregrine_idl::{Diagnostic, Diagnostics, ParseError};
use serde_json::{Value, json};

use crate::args::{Format, Import};
use crate::output::{self, Failure};
use crate::{check, saved};

/// Prints the Rust text on standard output, and warnings and errors on standard error.
pub(crate) fn run(arguments: &Import, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let Import { file, include, define, save, check } = arguments;
    let what = format!("cannot import {}", file.display());
    let text = read_near(file, &what)?;
    let imported =
        import(&text, file, include, define).map_err(|found| refused(&found, what, format))?;
    if !format.is_json() {
        note(imported.warnings());
    }
    // A description needs the declarations of all types. `described` is an error if a declaration is missing.
    let described = peregrine_idl::parse_traits(imported.rust());
    if let Some(path) = save {
        let described = described.as_ref().map_err(|error| undescribed(file, error))?;
        saved::write_all(path, described)?;
    }
    if let Some(path) = check {
        return match path.extension().is_some_and(|end| end == "json") {
            true => {
                let described = described.map_err(|error| undescribed(file, &error))?;
                check::compare(path, &saved::text_of_all(&described), begun, format)
            }
            false => check::compare(path, imported.rust(), begun, format),
        };
    }
    if !format.is_json() {
        return output::print(imported.rust().trim_end());
    }
    let described = described.unwrap_or_default();
    let mut json = imported.facts();
    json["file"] = json!(name_of(file));
    json["descriptions"] = described.iter().map(Described::to_json).collect();
    json["diagnostics"] = diagnostics(imported.warnings()).into();
    json["rust"] = json!(imported.rust());
    json["took_ns"] = output::whole_ns(begun.elapsed());
    output::print(json)
}

fn undescribed(file: &Path, error: &ParseError) -> Failure {
    Failure::Local {
        what: format!("cannot describe the interfaces of {}", file.display()),
        causes: vec![format!("in the Rust text, {error}")],
        advice: "declare the missing types in the file",
        suggestions: Vec::new(),
    }
}

/// A file that was imported.
pub(crate) enum Imported {
    Onc(onc::Imported),
    Courier(courier::Imported),
}

/// Returns whether a file is an interface file of another system.
pub(crate) fn is_interface_file(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "x" || end == "cr")
}

/// Imports the file `file`, whose content is `text`. A file whose name ends in `.cr` is one of Courier,
/// others are of ONC RPC. Other files that it needs are first searched in its directory, and then in the
/// directories of `include`.
pub(crate) fn import(
    text: &str,
    file: &Path,
    include: &[PathBuf],
    define: &[(String, Option<i64>)],
) -> Result<Imported, Diagnostics> {
    let name = name_of(file);
    let own = file.parent().unwrap_or(Path::new(""));
    let found = |name: &str| {
        let mut tried = core::iter::once(own).chain(include.iter().map(PathBuf::as_path));
        let read = tried.find_map(|directory| match read(&directory.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => Some(read),
        });
        read.unwrap_or_else(|| {
            let tried = "there is no such file beside this one or in a directory of -I";
            Err(io::Error::new(io::ErrorKind::NotFound, tried))
        })
    };
    if file.extension().is_some_and(|end| end == "cr") {
        // The file of a program is named like the program, with or without the version.
        let mut files = |one: &Dependency| {
            let (name, version) = (&one.name.text, one.numbers.version);
            let names = [format!("{name}{version}.cr"), format!("{name}.cr")];
            names.into_iter().find_map(|name| Some(Source { text: found(&name).ok()?, name }))
        };
        return import_courier(text, &name, &mut files).map(Imported::Courier);
    }
    let mut onc = Onc::new();
    for (name, value) in define {
        onc.define(name, *value);
    }
    onc.include(found);
    onc.import(text, &name).map(Imported::Onc)
}

impl Imported {
    /// Returns the Rust text.
    pub(crate) fn rust(&self) -> &str {
        match self {
            Self::Onc(imported) => &imported.rust,
            Self::Courier(imported) => &imported.rust,
        }
    }

    fn warnings(&self) -> &Diagnostics {
        match self {
            Self::Onc(imported) => &imported.warnings,
            Self::Courier(imported) => &imported.warnings,
        }
    }

    /// Returns what the file declares, as JSON.
    fn facts(&self) -> Value {
        match self {
            Self::Onc(imported) => of_onc(imported),
            Self::Courier(imported) => of_courier(imported),
        }
    }
}

/// Returns the name of a file without its directory.
pub(crate) fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Reports what is wrong with a file.
pub(crate) fn refused(found: &Diagnostics, what: String, format: Format) -> Failure {
    let errors = found.iter().count() + found.omitted();
    let causes = vec![format!("errors and warnings in the file: {errors}")];
    let advice = "correct the file where the marks are";
    let failure = Failure::Local { what, causes, advice, suggestions: Vec::new() };
    if format.is_json() {
        return failure.with(json!({ "diagnostics": diagnostics(found) }));
    }
    note(found);
    failure
}

/// Reads a text file. If there is no such file, suggests files of a similar name.
pub(crate) fn read_near(file: &Path, what: &str) -> Result<String, Failure> {
    output::read_or_suggest(file, what, read)
}

/// Reads a text file. Fails if the file has more bytes than may be imported. Bytes that are not UTF-8 can
/// only be in comments, and are replaced.
fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(ONC_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > ONC_BYTES_MAX {
        let message = format!("the file has more than {ONC_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Prints diagnostics on standard error.
pub(crate) fn note(found: &Diagnostics) {
    if !found.is_empty() {
        output::note(found);
    }
}

fn of_onc(imported: &onc::Imported) -> Value {
    let types = imported.types.iter();
    let types = types.map(|one| json!({ "name": one.name, "rust": one.rust, "kind": one.kind }));
    json!({
        "programs": imported.interfaces.iter().map(program).collect::<Vec<_>>(),
        "types": types.collect::<Vec<_>>(),
        "missing": imported.missing,
    })
}

fn of_courier(imported: &courier::Imported) -> Value {
    let program = &imported.program;
    let numbers = program.numbers;
    let depends = program.depends.iter().map(|one| {
        json!({
            "program": one.name.text,
            "program_number": one.numbers.program,
            "version_number": one.numbers.version,
        })
    });
    json!({
        "programs": [{
            "program": program.name.text,
            "program_number": numbers.map(|numbers| numbers.program),
            "version_number": numbers.map(|numbers| numbers.version),
        }],
        "depends": depends.collect::<Vec<_>>(),
    })
}

fn program(one: &ImportedInterface) -> Value {
    let procedures = one.procedures.iter().map(|procedure| {
        json!({
            "name": procedure.name,
            "number": procedure.number,
            "method": procedure.method,
        })
    });
    json!({
        "program": one.program,
        "program_number": one.program_number,
        "version": one.version,
        "version_number": one.version_number,
        "trait": one.name,
        "procedures": procedures.collect::<Vec<_>>(),
    })
}

/// Returns diagnostics as JSON.
pub(crate) fn diagnostics(found: &Diagnostics) -> Vec<Value> {
    let one = |one: &Diagnostic| {
        json!({
            "severity": one.severity().name(),
            "file": one.file(),
            "line": one.line(),
            "column": one.column(),
            "message": one.message(),
        })
    };
    found.iter().map(one).collect()
}
