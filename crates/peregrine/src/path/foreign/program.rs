//! The program that a client wants: that of its own interface, or that of the address.

use core::net::SocketAddr;
use std::borrow::Cow;

use crate::error::{CallError, Kind, Phase};
use crate::interface::System;
use crate::path::bind::Wanted;

const OTHER_PROGRAM: &str = "leave the program out of the address, or use the interface of that program; \
     `peregrine import` makes interfaces from the files of other systems";

const OTHER_VERSION: &str = "use the interface of a version that the server has";

/// The program that a client wants.
pub(in crate::path) struct Chosen {
    pub(in crate::path) number: u32,
    pub(in crate::path) version: u32,
    /// The number of each procedure, in the order of the methods.
    pub(in crate::path) procedures: Cow<'static, [u32]>,
}

/// Returns the program of a system that the client's interface or the address names.
///
/// # Errors
/// If neither names a program, or if they name different programs.
pub(in crate::path) fn chosen(system: System, wanted: &Wanted<'_>) -> Result<Chosen, CallError> {
    let Wanted { name, interface, .. } = *wanted;
    let asked = if name.is_empty() { None } else { Some(program_of(system, name)?) };
    let Some(own) = interface.program(system) else {
        return match asked {
            _ if !interface.name().is_empty() => {
                let text =
                    format!("the interface `{}` is no program of {system}", interface.name());
                Err(mismatch(text, not_a_program(system)))
            }
            // A binding without an interface calls no procedure of the program.
            Some((number, version)) => {
                Ok(Chosen { number, version, procedures: Cow::Borrowed(&[]) })
            }
            None => {
                let text = "the address names no program";
                let error = CallError::not_executed(Kind::BadName, Phase::Bind, text);
                Err(error.with_advice(no_program(system)))
            }
        };
    };
    if let Some((number, version)) = asked.filter(|asked| *asked != (own.number, own.version)) {
        let text = format!(
            "the interface `{}` is version {} of program {}, and the address names version {version} \
             of program {number}",
            interface.name(),
            own.version,
            own.number
        );
        return Err(mismatch(text, OTHER_PROGRAM));
    }
    let procedures = own.procedures.clone();
    Ok(Chosen { number: own.number, version: own.version, procedures })
}

/// Returns the error for an interface that does not match the program of the address or of the server.
#[cold]
pub(in crate::path) fn mismatch(text: String, advice: &'static str) -> CallError {
    CallError::not_executed(Kind::InterfaceMismatch, Phase::Bind, text).with_advice(advice)
}

/// Returns the error of binding to a program. `error` says what has failed. `versions` are the lowest and
/// the highest version that the server has, if it lacks the version that the client wants.
#[cold]
pub(in crate::path) fn bind_error(
    error: &CallError,
    versions: Option<(u32, u32)>,
    program: &Chosen,
    address: SocketAddr,
) -> CallError {
    let Chosen { number, version, .. } = *program;
    let at = format!("program {number} at {address}");
    if let Some((low, high)) = versions {
        let text = format!("the server of {at} has versions {low} to {high}, not {version}");
        return mismatch(text, OTHER_VERSION);
    }
    let text = format!("{at}: {}", error.detail());
    CallError::not_executed(error.kind(), Phase::Bind, text)
}

/// Returns the error for a client that asks a server of this system for a description.
#[cold]
pub(in crate::path) fn undescribed(system: System) -> CallError {
    let text = format!("servers of {system} do not describe their programs");
    CallError::not_executed(Kind::NoSuchProcedure, Phase::Bind, text)
        .with_advice(no_description(system))
}

/// Parses the name of a program in an address: its number, a dot, and its version.
fn program_of(system: System, name: &str) -> Result<(u32, u32), CallError> {
    let parsed = name.split_once('.').and_then(|(number, version)| {
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        (is_number(number) && is_number(version))
            .then(|| Some((number.parse().ok()?, version.parse().ok()?)))?
    });
    parsed.ok_or_else(|| {
        let text = format!("`{name}` is not the number and the version of a program");
        let error = CallError::not_executed(Kind::BadName, Phase::Bind, text);
        error.with_advice(no_program(system))
    })
}

const fn not_a_program(system: System) -> &'static str {
    match system {
        System::Onc => {
            "declare the interface with `#[interface(onc(program = N, version = N))]`, or use an \
             address without `onc+udp:` or `onc+tcp:`"
        }
        System::Courier => {
            "declare the interface with `#[interface(courier(program = N, version = N))]`, or use \
             an address without `courier+udp:` or `courier+tcp:`"
        }
    }
}

const fn no_program(system: System) -> &'static str {
    match system {
        System::Onc => "write the program and its version, such as onc+udp:HOST/100003.3",
        System::Courier => "write the program and its version, such as courier+tcp:HOST/2.3",
    }
}

const fn no_description(system: System) -> &'static str {
    match system {
        System::Onc => {
            "read the .x file of the program; `peregrine import` makes an interface from it"
        }
        System::Courier => {
            "read the .cr file of the program; `peregrine import` makes an interface from it"
        }
    }
}
