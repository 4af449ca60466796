//! Compares the interface of a client with the interface that the server exports, if the two differ. Either
//! the client can use the server's interface, or the error names the first difference that breaks a rule.

use super::bound::Fit;
use crate::error::{CallError, Kind, Phase};
use crate::interface::{self, Counterpart, Described, Digest, InterfaceRef, Sides};
use crate::stub::Conversion;

/// Returns how the client calls the procedures of the server whose interface has this digest and canonical
/// text. `None`: the interfaces are the same.
///
/// # Errors
/// If the client cannot use the server's interface.
pub(super) fn fit(
    ours: &InterfaceRef,
    digest: Digest,
    text: &str,
) -> Result<Option<Fit>, CallError> {
    let differs =
        |text: String| Err(CallError::not_executed(Kind::InterfaceMismatch, Phase::Bind, text));
    // The server may have been replaced since it reported a mismatch, and the interfaces may be the same now.
    if digest == ours.digest() {
        return Ok(None);
    }
    let ours = match ours.described() {
        Ok(ours) => ours,
        Err(error) => return differs(format!("cannot compare the client's interface: {error}")),
    };
    let theirs = match Described::parse(text) {
        Ok(theirs) => theirs,
        Err(error) => return differs(format!("cannot read the server's interface: {error}")),
    };
    let comparison = interface::compare(&ours, &theirs, Sides::BY_CLIENT);
    if let Some(misfit) = comparison.misfit() {
        return differs(format!("{misfit} ({})", misfit.rule.text()));
    }
    let conversion = match Conversion::new(&ours, &theirs, &comparison.procedures) {
        Ok(conversion) => conversion,
        Err(text) => return differs(text),
    };
    let number = |one: &Counterpart| match one {
        Counterpart::Equal(number) | Counterpart::Converted(number) => Some(*number),
        Counterpart::Lacking => None,
    };
    let numbers: Box<[_]> = comparison.procedures.iter().map(number).collect();
    let is_same = (0..).zip(&numbers).all(|(ours, theirs)| *theirs == Some(ours));
    Ok((!is_same || conversion.is_some()).then_some(Fit { numbers, conversion }))
}
