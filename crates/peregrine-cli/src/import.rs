//! `import`: prints an interface file of ONC RPC or Courier as Rust traits.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Instant;

use peregrine_idl::courier::{self, Dependency, Source, import_courier};
use peregrine_idl::onc::{Imported, ImportedInterface, ONC_BYTES_MAX, Onc};
use peregrine_idl::{Diagnostic, Diagnostics};
use serde_json::{Value, json};

use crate::args::{Format, Import};
use crate::output::{self, Failure, OrFail as _, near_files};

/// Prints the Rust text on standard output, and warnings and errors on standard error.
pub(crate) fn run(arguments: &Import, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let Import { file, define } = arguments;
    let what = format!("cannot import {}", file.display());
    let text = read_near(file, &what)?;
    let directory = file.parent().unwrap_or(Path::new("")).to_owned();
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let is_courier = file.extension().is_some_and(|end| end == "cr");
    let imported = if is_courier {
        let mut files = |one: &Dependency| depended_upon(&directory, one);
        import_courier(&text, &name, &mut files)
            .map(|imported| (of_courier(&imported, &name), imported.rust, imported.warnings))
    } else {
        let mut onc = Onc::new();
        for (name, value) in define {
            onc.define(name, *value);
        }
        onc.include(move |name| read(&directory.join(name)));
        onc.import(&text, &name)
            .map(|imported| (of_onc(&imported, &name), imported.rust, imported.warnings))
    };
    let (mut json, rust, warnings) = imported.map_err(|found| refused(&found, what, format))?;
    if !format.is_json() {
        note(&warnings);
        return output::print(rust.trim_end());
    }
    // Without a definition of each type that is declared nowhere, there is no description.
    let described = peregrine_idl::parse_traits(&rust).unwrap_or_default();
    let described: Vec<Value> = described.iter().map(|one| one.to_json()).collect();
    json["descriptions"] = described.into();
    json["diagnostics"] = diagnostics(&warnings).into();
    json["rust"] = rust.into();
    json["took_ns"] = json!(output::whole_ns(begun.elapsed()));
    output::print(json)
}

/// Returns the text of a program that another one depends upon. Its file is in the same directory, and has the
/// name of the program, with the version or without it.
fn depended_upon(directory: &Path, one: &Dependency) -> Option<Source> {
    let (name, version) = (&one.name.text, one.numbers.version);
    let names = [format!("{name}{version}.cr"), format!("{name}.cr")];
    names.into_iter().find_map(|name| {
        let text = read(&directory.join(&name)).ok()?;
        Some(Source { name, text })
    })
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
    read(file).or_fail(what).map_err(|failure| match file.exists() {
        true => failure,
        false => failure.suggest(near_files(file)),
    })
}

/// Reads a text file, but not much more of it than may be imported. Bytes that are not UTF-8 can only be in
/// comments, and are replaced.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(ONC_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > ONC_BYTES_MAX {
        let message = format!("the file has more than {ONC_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn note(found: &Diagnostics) {
    if !found.is_empty() {
        output::note(found);
    }
}

fn of_onc(imported: &Imported, file: &str) -> Value {
    let types = imported.types.iter();
    let types = types.map(|one| json!({ "name": one.name, "rust": one.rust, "kind": one.kind }));
    json!({
        "file": file,
        "programs": imported.interfaces.iter().map(program).collect::<Vec<_>>(),
        "types": types.collect::<Vec<_>>(),
        "missing": imported.missing,
    })
}

fn of_courier(imported: &courier::Imported, file: &str) -> Value {
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
        "file": file,
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

fn diagnostics(found: &Diagnostics) -> Vec<Value> {
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
