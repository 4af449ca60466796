//! `export`: prints Rust traits as an interface file of ONC RPC or Courier.

use std::time::Instant;

use peregrine::interface::System;
use peregrine_idl::export_traits;
use serde_json::json;

use crate::args::{Export, Format, Language};
use crate::import::{diagnostics, name_of, note, read_near, refused};
use crate::output::{self, Failure};

/// Prints the interface file on standard output, and warnings and errors on standard error.
pub(crate) fn run(arguments: &Export, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let Export { file, to, check } = arguments;
    let what = format!("cannot export {}", file.display());
    let text = read_near(file, &what)?;
    let name = name_of(file);
    let system = match to {
        Language::Onc => System::Onc,
        Language::Courier => System::Courier,
    };
    let exported =
        export_traits(&text, &name, system).map_err(|found| refused(&found, what, format))?;
    if !format.is_json() {
        note(&exported.warnings);
    }
    if let Some(path) = check {
        return crate::check::compare(path, &exported.text, begun, format);
    }
    match format.is_json() {
        true => output::print(json!({
            "file": name,
            "text": exported.text,
            "diagnostics": diagnostics(&exported.warnings),
            "took_ns": output::whole_ns(begun.elapsed()),
        })),
        false => output::print(exported.text.trim_end()),
    }
}
