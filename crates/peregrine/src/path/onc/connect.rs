//! Binds to a program of ONC RPC. The client checks that its interface is this program, finds the port of the
//! program, and calls procedure 0, so that a missing program or version is reported at once.

use core::net::SocketAddr;
use std::borrow::Cow;
use std::time::Instant;

use super::client::{Header, OncPath};
use super::lookup::{Rpcbind, no_address, open};
use crate::address::Address;
use crate::call::{Frames, PathKind, Wait, block_cost};
use crate::device::BYTES_MAX;
use crate::error::{CallError, Kind, NO_DATAGRAMS, NO_THREAD, Phase};
use crate::interface::System;
use crate::path::bind::{
    BoundPath, Connect, Exclusion, Inquiry, Target, Wanted, needs_place, system, violated,
};
use crate::protocol::onc::failure::Failure;
use crate::protocol::onc::message::{AUTH_BYTES_MAX, Auth};
use crate::value::ByteOrder;

/// The client's implementation of ONC RPC over UDP.
pub(crate) struct OncUdp;

/// The client's implementation of ONC RPC over TCP.
pub(crate) struct OncTcp;

const NOT_A_PROGRAM: &str = "declare the interface with `#[interface(onc(program = N, version = N))]`, \
     or use an address without `onc+udp:` or `onc+tcp:`";
const OTHER_PROGRAM: &str = "leave the program out of the address, or use the interface of that program; \
     `peregrine import` makes interfaces from .x files";
const NO_PROGRAM: &str = "write the program and its version, such as onc+udp:HOST/100003.3";
const OTHER_VERSION: &str = "use the interface of a version that the server has";
const NO_DESCRIPTION: &str =
    "read the .x file of the program; `peregrine import` makes an interface from it";

impl Connect for OncUdp {
    fn kind(&self) -> PathKind {
        PathKind::OncUdp
    }

    fn leads_to(&self, target: &Address) -> Result<(), Exclusion> {
        needs_place(target)
    }

    fn bind(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
        bind(self.kind(), target, wanted)
    }

    fn inquire(&self, _: &Target<'_>, _: &Wanted<'_>) -> Result<Inquiry, CallError> {
        Err(undescribed())
    }
}

impl Connect for OncTcp {
    fn kind(&self) -> PathKind {
        PathKind::OncTcp
    }

    fn leads_to(&self, target: &Address) -> Result<(), Exclusion> {
        needs_place(target)
    }

    fn bind(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
        bind(self.kind(), target, wanted)
    }

    fn inquire(&self, _: &Target<'_>, _: &Wanted<'_>) -> Result<Inquiry, CallError> {
        Err(undescribed())
    }
}

#[cold]
fn undescribed() -> CallError {
    let text = "servers of ONC RPC do not describe their programs";
    CallError::not_executed(Kind::NoSuchProcedure, Phase::Bind, text).with_advice(NO_DESCRIPTION)
}

/// The program that a client wants.
struct Chosen {
    number: u32,
    version: u32,
    /// The number of each procedure, in the order of the methods.
    procedures: Cow<'static, [u32]>,
}

/// Returns the program to which the address and the client's interface lead.
fn chosen(wanted: &Wanted<'_>) -> Result<Chosen, CallError> {
    let Wanted { name, interface, .. } = *wanted;
    let asked = if name.is_empty() { None } else { Some(program_of(name)?) };
    let Some(own) = interface.program(System::Onc) else {
        // A binding without an interface can only call procedure 0.
        return match asked {
            _ if !interface.name().is_empty() => {
                let text = format!("the interface `{}` is no program of ONC RPC", interface.name());
                Err(mismatch(text, NOT_A_PROGRAM))
            }
            Some((number, version)) => {
                Ok(Chosen { number, version, procedures: Cow::Borrowed(&[]) })
            }
            None => {
                let text = "the address names no program";
                let error = CallError::not_executed(Kind::BadName, Phase::Bind, text);
                Err(error.with_advice(NO_PROGRAM))
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

#[cold]
fn mismatch(text: String, advice: &'static str) -> CallError {
    CallError::not_executed(Kind::InterfaceMismatch, Phase::Bind, text).with_advice(advice)
}

/// Returns the number and the version that the name of a program has.
fn program_of(name: &str) -> Result<(u32, u32), CallError> {
    let parsed = name.split_once('.').and_then(|(number, version)| {
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        (is_number(number) && is_number(version))
            .then(|| Some((number.parse().ok()?, version.parse().ok()?)))?
    });
    parsed.ok_or_else(|| {
        let text = format!("`{name}` is not the number and the version of a program");
        CallError::not_executed(Kind::BadName, Phase::Bind, text).with_advice(NO_PROGRAM)
    })
}

fn bind(kind: PathKind, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
    let program = chosen(wanted)?;
    let addresses = target.place()?.resolve()?;
    let mut failure = None;
    for (i, address) in addresses.iter().enumerate() {
        // Each address gets the same share of the time that is left.
        let now = Instant::now();
        let share = wanted.until.saturating_duration_since(now) / (addresses.len() - i) as u32;
        match bind_at(kind, *address, &program, wanted, now + share) {
            Ok(bound) => return Ok(bound),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    Err(failure.unwrap_or_else(no_address))
}

fn bind_at(
    kind: PathKind,
    mut address: SocketAddr,
    program: &Chosen,
    wanted: &Wanted<'_>,
    until: Instant,
) -> Result<BoundPath, CallError> {
    let Wanted { interface, options, .. } = *wanted;
    let &Chosen { number, version, ref procedures } = program;
    if address.port() == 0 {
        address.set_port(Rpcbind::of(address.ip(), kind).port(number, version, until)?);
    }
    let most = options.message_bytes_for(interface);
    let bytes = if kind == PathKind::OncUdp { most.min(BYTES_MAX) } else { most };
    let frames = Frames::private(options.room_for(bytes), options.astacks, bytes)
        .map_err(system("cannot allocate frames"))?;
    let mut body = [0; AUTH_BYTES_MAX];
    let credential = match &options.onc_auth_sys {
        Some(identity) => identity.credential(&mut body)?,
        None => Auth::NONE,
    };
    let header = Header::new(number, version, credential);
    let header = header.ok_or_else(|| violated("the credential is too long"))?;
    let congestion = options.congestion.as_deref();
    let link = open(address, kind, header, frames, congestion, until)?;
    if let Err(failure) = link.ask(0, &[], until)? {
        let error = link.bind_error(failure);
        let at = format!("program {number} at {address}");
        return Err(match failure {
            Failure::ProgramMismatch(versions) => {
                let text = format!(
                    "the server of {at} has versions {} to {}, not {version}",
                    versions.low, versions.high
                );
                mismatch(text, OTHER_VERSION)
            }
            _ => {
                let text = format!("{at}: {}", error.detail());
                let named = CallError::not_executed(error.kind(), Phase::Bind, text);
                match failure {
                    Failure::TimedOut if kind == PathKind::OncUdp => {
                        named.with_advice(NO_DATAGRAMS)
                    }
                    _ => named,
                }
            }
        });
    }
    if options.wait == Wait::Adaptive {
        // Measures the cost of sleeping and waking now, so that the measurement does not delay the first call.
        block_cost();
    }
    let to = format!("version {version} of program {number} at {address}");
    let frames = std::sync::Arc::clone(link.frames());
    let path = OncPath::new(link, procedures.clone(), options.wait, to);
    if kind == PathKind::OncTcp {
        // The keeper notices the end of the connection.
        path.watch().map_err(system(NO_THREAD))?;
    }
    Ok(BoundPath { path: Box::new(path), frames, order: ByteOrder::NATIVE })
}
