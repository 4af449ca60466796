//! What becomes of a client whose interface is not the one that is served: it fits, or it is told where
//! they differ.

use crate::error::{CallError, Kind, Phase};
use crate::interface::{self, Described, Description, InterfaceRef};

/// The server's number of each procedure of ours; `None` if all are the same.
pub(super) fn numbers(
    ours: &InterfaceRef,
    theirs: &Description,
) -> Result<Option<Box<[u32]>>, CallError> {
    let differs =
        |text: String| Err(CallError::not_executed(Kind::InterfaceMismatch, Phase::Bind, text));
    // Not what the server said before, but what it says now.
    if theirs.digest == ours.digest() {
        return Ok(None);
    }
    let ours = match ours.described() {
        Ok(ours) => ours,
        Err(error) => return differs(format!("ours cannot be compared: {error}")),
    };
    let theirs = match Described::parse(&theirs.text) {
        Ok(theirs) => theirs,
        Err(error) => return differs(format!("the server's is not readable: {error}")),
    };
    interface::numbers(&ours, &theirs).or_else(differs)
}
