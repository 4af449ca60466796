//! Compares the interface of a client with the one that is served, if they are not the same. Either the
//! client can use the served one, or the error names the first difference.

use crate::error::{CallError, Kind, Phase};
use crate::interface::{self, Described, Description, InterfaceRef};

/// Returns the server's number of each of the client's procedures. `None`: the interfaces are the same.
///
/// # Errors
/// If the client cannot use the server's interface.
pub(super) fn numbers(
    ours: &InterfaceRef,
    theirs: &Description,
) -> Result<Option<Box<[u32]>>, CallError> {
    let differs =
        |text: String| Err(CallError::not_executed(Kind::InterfaceMismatch, Phase::Bind, text));
    // The server may have been replaced since it reported a mismatch.
    if theirs.digest == ours.digest() {
        return Ok(None);
    }
    let ours = match ours.described() {
        Ok(ours) => ours,
        Err(error) => return differs(format!("cannot compare the client's interface: {error}")),
    };
    let theirs = match Described::parse(&theirs.text) {
        Ok(theirs) => theirs,
        Err(error) => return differs(format!("cannot read the server's interface: {error}")),
    };
    interface::numbers(&ours, &theirs).or_else(differs)
}
