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

/// Returns the programs of ONC RPC that an export offers to networks.
pub(super) fn programs_of(export: &Export) -> impl Iterator<Item = &'static Program> + use<> {
    let is_offered = export.is_offered_to_networks() && !export.is_closed();
    let programs: &'static [Program] = if is_offered { export.serve.interface().programs() } else { &[] };
    programs.iter().filter(|program| program.system == System::Onc)
}

/// Returns the first export that has this version of a program.
///
/// # Errors
/// If there is none.
pub(super) fn exported(
    exports: &[Arc<Export>],
    number: u32,
    version: u32,
) -> Result<Arc<Export>, Missing> {
    let mut found: Option<Versions> = None;
    for export in exports {
        for program in programs_of(export).filter(|program| program.number == number) {
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
