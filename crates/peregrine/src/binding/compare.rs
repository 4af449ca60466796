//! Comparing a client's interface with the one that is served.

use crate::error::{CallError, Kind, Phase};
use crate::interface::{Description, Interface, difference};

pub(super) fn numbers(
    ours: &Interface,
    theirs: &Description,
) -> Result<Option<Box<[u32]>>, CallError> {
    match difference(&ours.canonical_text(), &theirs.text) {
        None => Ok(None),
        Some(text) => Err(CallError::not_executed(Kind::InterfaceMismatch, Phase::Bind, text)),
    }
}
