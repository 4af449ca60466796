//! Which export has a program.

use std::sync::Arc;

use crate::interface::{Program, System};
use crate::serving::export::Export;

/// Why no export has a program in the version of a call. If exports have other versions of it, these are the
/// lowest and the highest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::path) struct Missing(pub(in crate::path) Option<(u32, u32)>);

impl Missing {
    /// No export has any version of the program.
    pub(in crate::path) const PROGRAM: Self = Self(None);
}

/// Returns the first export that has this version of a program of a system.
///
/// # Errors
/// If no export has this version of the program.
pub(in crate::path) fn exported(
    exports: &[Arc<Export>],
    system: System,
    number: u32,
    version: u32,
) -> Result<Arc<Export>, Missing> {
    let mut found: Option<(u32, u32)> = None;
    let offered = |export: &&Arc<Export>| export.is_offered_to_networks() && !export.is_closed();
    for export in exports.iter().filter(offered) {
        let interface = export.serve.interface();
        let wanted = |one: &&Program| one.system == system && one.number == number;
        for program in interface.programs().iter().filter(wanted) {
            if program.version == version {
                return Ok(Arc::clone(export));
            }
            let (low, high) = found.unwrap_or((program.version, program.version));
            found = Some((low.min(program.version), high.max(program.version)));
        }
    }
    Err(Missing(found))
}
