//! `export`: prints Rust traits as an interface file of ONC RPC or Courier.

use std::time::Instant;

use peregrine::interface::System;
use peregrine_idl::export_traits;
use serde_json::json;

use crate::args::{Export, Format, Language};
use crate::import::{read_near, refused};
use crate::output::{self, Failure};

/// Prints the interface file on standard output, and errors on standard error.
pub(crate) fn run(arguments: &Export, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let Export { file, to } = arguments;
    let what = format!("cannot export {}", file.display());
    let text = read_near(file, &what)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let system = match to {
        Language::Onc => System::Onc,
        Language::Courier => System::Courier,
    };
    let written =
        export_traits(&text, &name, system).map_err(|found| refused(&found, what, format))?;
    match format.is_json() {
        true => output::print(json!({
            "file": name,
            "text": written,
            "took_ns": output::whole_ns(begun.elapsed()),
        })),
        false => output::print(written.trim_end()),
    }
}
