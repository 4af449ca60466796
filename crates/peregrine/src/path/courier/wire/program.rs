//! What all paths of Courier must know about a program in order to bind to it.

use core::net::SocketAddr;

use crate::error::{CallError, Kind, Phase};
use crate::path::foreign::program::{Chosen, mismatch};
use crate::protocol::courier::failure::Failure;

const OTHER_VERSION: &str = "use the interface of a version that the server has";
const NO_DESCRIPTION: &str =
    "read the .cr file of the program; `peregrine import` makes an interface from it";

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

/// Returns a procedure that a program does not have, if there is one. The standard has no procedure that
/// every program has. So a client calls a procedure that the program does not have, to find out whether the
/// server runs and has the program.
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
    let Chosen { number, version, .. } = *program;
    let at = format!("program {number} at {address}");
    match failure {
        Failure::NoSuchVersion(versions) => {
            let (low, high) = (versions.low, versions.high);
            let text = format!("the server of {at} has versions {low} to {high}, not {version}");
            mismatch(text, OTHER_VERSION)
        }
        _ => {
            let text = format!("{at}: {}", error.detail());
            CallError::not_executed(error.kind(), Phase::Bind, text)
        }
    }
}

#[cold]
pub(in crate::path::courier) fn undescribed() -> CallError {
    let text = "servers of Courier do not describe their programs";
    CallError::not_executed(Kind::NoSuchProcedure, Phase::Bind, text).with_advice(NO_DESCRIPTION)
}
