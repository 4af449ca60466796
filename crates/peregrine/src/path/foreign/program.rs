//! The program that a client wants: that of its own interface, or that of the address.

use std::borrow::Cow;

use core::net::SocketAddr;
use std::time::Instant;

use crate::error::{CallError, Kind, Phase};
use crate::interface::System;
use crate::path::bind::{BoundPath, Target, Wanted};

const OTHER_PROGRAM: &str = "leave the program out of the address, or use the interface of that program; \
     `peregrine import` makes interfaces from the files of other systems";

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

/// Binds at the first address of a host at which `bind` succeeds. Passes to `bind` an address and the time at
/// which it must give up.
///
/// # Errors
/// If the host has no address, or if `bind` fails at all addresses. In that case, the error is that of the
/// first address.
pub(in crate::path) fn at_any_address(
    target: &Target<'_>,
    wanted: &Wanted<'_>,
    bind: impl Fn(SocketAddr, Instant) -> Result<BoundPath, CallError>,
) -> Result<BoundPath, CallError> {
    let addresses = target.place()?.resolve()?;
    let mut failure = None;
    for (i, address) in addresses.iter().enumerate() {
        // Each address gets the same share of the time that is left.
        let now = Instant::now();
        let share = wanted.until.saturating_duration_since(now) / (addresses.len() - i) as u32;
        match bind(*address, now + share) {
            Ok(bound) => return Ok(bound),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    Err(failure.unwrap_or_else(no_address))
}

/// Returns the error for a host without addresses.
#[cold]
pub(in crate::path) fn no_address() -> CallError {
    CallError::not_executed(Kind::Unreachable, Phase::Bind, "the host has no address")
}

/// Returns the error for an interface that does not match the program of the address or of the server.
#[cold]
pub(in crate::path) fn mismatch(text: String, advice: &'static str) -> CallError {
    CallError::not_executed(Kind::InterfaceMismatch, Phase::Bind, text).with_advice(advice)
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
