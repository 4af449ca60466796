//! Finds the export that has a program.

use std::sync::Arc;

use crate::interface::{Program, System};
use crate::serving::export::Export;

/// The finding that no export has a program in the version of a call. The field contains the lowest and the
/// highest version of the program that exports have, or `None` if no export has any version.
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
    for export in exports.iter().filter(is_offered) {
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

/// Finds an export that has a program of this system, by the name of the interface or of the export.
/// Returns the export, and the number and the version of the program. An export whose interface has this
/// name is preferred to an export that has this name itself.
pub(in crate::path) fn exported_as(
    exports: &[Arc<Export>],
    system: System,
    name: &str,
) -> Option<(Arc<Export>, (u32, u32))> {
    let program = |export: &Arc<Export>| {
        let interface = export.serve.interface();
        interface.program(system).map(|program| (program.number, program.version))
    };
    let all = || exports.iter().filter(is_offered);
    let of_interface = all().filter(|export| export.serve.interface().name() == name);
    let of_export = all().filter(|export| export.name == name);
    of_interface.chain(of_export).find_map(|export| Some((Arc::clone(export), program(export)?)))
}

fn is_offered(export: &&Arc<Export>) -> bool {
    export.is_offered_in_clear() && !export.is_closed()
}
