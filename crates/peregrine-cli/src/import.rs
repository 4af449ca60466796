//! `import`: prints an interface file of ONC RPC as Rust traits.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, Instant};

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
    let text = read(file).or_fail(&what).map_err(|failure| match file.exists() {
        true => failure,
        false => failure.suggest(near_files(file)),
    })?;
    let directory = file.parent().unwrap_or(Path::new("")).to_owned();
    let mut onc = Onc::new();
    for (name, value) in define {
        onc.define(name, *value);
    }
    onc.include(move |name| read(&directory.join(name)));
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    match onc.import(&text, &name) {
        Ok(imported) if format.is_json() => {
            output::print(to_json(&imported, &name, begun.elapsed()))
        }
        Ok(imported) => {
            note(&imported.warnings);
            output::print(imported.rust.trim_end())
        }
        Err(found) => {
            let errors = found.iter().count() + found.omitted();
            let causes = vec![format!("errors and warnings in the file: {errors}")];
            let advice = "correct the file where the marks are";
            let failure = Failure::Local { what, causes, advice, suggestions: Vec::new() };
            if format.is_json() {
                return Err(failure.with(json!({ "diagnostics": diagnostics(&found) })));
            }
            note(&found);
            Err(failure)
        }
    }
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

fn to_json(imported: &Imported, file: &str, took: Duration) -> Value {
    let types = imported.types.iter();
    let types = types.map(|one| json!({ "name": one.name, "rust": one.rust, "kind": one.kind }));
    json!({
        "file": file,
        "programs": imported.interfaces.iter().map(program).collect::<Vec<_>>(),
        "types": types.collect::<Vec<_>>(),
        "missing": imported.missing,
        "diagnostics": diagnostics(&imported.warnings),
        "rust": imported.rust,
        "took_ns": output::whole_ns(took),
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
