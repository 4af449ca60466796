//! What all paths of Courier must know about a program in order to bind to it.

use core::net::SocketAddr;

use crate::error::{CallError, Kind, Phase};
use crate::path::foreign::program::{self, Chosen};
use crate::protocol::courier::failure::Failure;

/// Returns the version of a program.
///
/// # Errors
/// If the address names a version that programs of Courier cannot have.
pub(in crate::path::courier) fn version_of(program: &Chosen) -> Result<u16, CallError> {
    u16::try_from(program.version).map_err(|_| {
        let text = format!("{} is no version of a Courier program", program.version);
        CallError::not_executed(Kind::BadName, Phase::Bind, text)
            .with_advice("versions are numbers from 0 to 65535")
    })
}

/// Returns the number of a procedure that a program does not have, if there is one. The standard has no
/// procedure that every program has. So a client calls the missing procedure with this number to find out
/// whether the server runs and has the program.
pub(in crate::path::courier) fn free_procedure(procedures: &[u32]) -> Option<u16> {
    (0..=u16::MAX).rev().find(|number| !procedures.contains(&u32::from(*number)))
}

/// Returns whether a failure proves that the server has the program. The failure is that of a call of the
/// [free procedure](free_procedure).
pub(in crate::path::courier) const fn is_well(failure: Failure) -> bool {
    matches!(failure, Failure::NoSuchProcedure | Failure::InvalidArgument)
}

/// Returns the error of binding. `error` describes what has failed.
#[cold]
pub(in crate::path::courier) fn bind_error(
    error: &CallError,
    failure: Failure,
    program: &Chosen,
    address: SocketAddr,
) -> CallError {
    let versions = match failure {
        Failure::NoSuchVersion(versions) => Some((versions.low.into(), versions.high.into())),
        _ => None,
    };
    program::bind_error(error, versions, program, address)
}
