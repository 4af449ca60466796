//! Which export has a program.

use std::sync::Arc;

use crate::interface::{Program, System};
use crate::protocol::onc::message::{Outcome, Versions};
use crate::serving::export::Export;

/// Why no export has a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing(Option<Versions>);

impl Missing {
    /// No export has any version of the program.
    pub(super) const PROGRAM: Self = Self(None);

    pub(super) const fn outcome(self) -> Outcome {
        match self.0 {
            Some(versions) => Outcome::ProgramMismatch(versions),
            None => Outcome::ProgramUnavailable,
        }
    }
}

/// Returns the first export that has this version of a program.
///
/// # Errors
/// If no export has this version of the program.
pub(super) fn exported(
    exports: &[Arc<Export>],
    number: u32,
    version: u32,
) -> Result<Arc<Export>, Missing> {
    let mut found: Option<Versions> = None;
    let offered = |export: &&Arc<Export>| export.is_offered_to_networks() && !export.is_closed();
    for export in exports.iter().filter(offered) {
        let interface = export.serve.interface();
        let wanted = |one: &&Program| one.system == System::Onc && one.number == number;
        for program in interface.programs().iter().filter(wanted) {
            if program.version == version {
                return Ok(Arc::clone(export));
            }
            let version = program.version;
            let Versions { low, high } = found.unwrap_or(Versions { low: version, high: version });
            found = Some(Versions { low: low.min(version), high: high.max(version) });
        }
    }
    Err(Missing(found))
}
