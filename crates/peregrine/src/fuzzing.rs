//! What only fuzzers see: built with `--cfg fuzzing`, part of no release.

#![allow(missing_docs)]

use std::io;
use std::sync::Arc;

use crate::binding::{BindOptions, Binding};
use crate::interface::Interface;

use crate::path::local::fuzzing::Scripted;
pub use crate::path::local::fuzzing::{Debt, Script, Seen, Word, answer, request};

/// A binding to a script: its calls find the reply that the script laid ready.
///
/// # Errors
/// If the kernel has no memory or descriptor left.
pub fn scripted(interface: &'static Interface, bytes: usize) -> io::Result<(Arc<Script>, Binding)> {
    let (script, path) = Scripted::new(bytes)?;
    let frames = Arc::clone(&path.path.region.frames);
    let options = BindOptions::default().astacks(1);
    let binding = Binding::new(Box::new(path), frames, interface, "script".into(), &options);
    Ok((script, binding.map_err(io::Error::other)?))
}
