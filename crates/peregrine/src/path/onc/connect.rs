//! Binds to a program of ONC RPC. The client checks that its interface is this program, finds the port of the
//! program, and calls procedure 0, so that a missing program or version is reported at once.

use core::net::SocketAddr;
use std::time::Instant;

use super::client::{Header, OncPath};
use super::lookup::{Rpcbind, open};
use crate::address::Address;
use crate::call::PathKind;
use crate::device::BYTES_MAX;
use crate::error::{CallError, Kind, NO_DATAGRAMS, Phase};
use crate::interface::System;
use crate::path::bind::{
    BoundPath, Connect, Exclusion, Inquiry, Target, Wanted, at_any_address, needs_place, violated,
};
use crate::path::foreign::client::frames_of;
use crate::path::foreign::program::{Chosen, chosen, mismatch};
use crate::protocol::onc::failure::Failure;
use crate::protocol::onc::message::{AUTH_BYTES_MAX, Auth};

/// The client's implementation of ONC RPC over UDP.
pub(crate) struct OncUdp;

/// The client's implementation of ONC RPC over TCP.
pub(crate) struct OncTcp;

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

fn bind(kind: PathKind, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
    let program = chosen(System::Onc, wanted)?;
    let addresses = target.place()?.resolve()?;
    at_any_address(&addresses, wanted.until, |address, until| {
        bind_at(kind, address, &program, wanted, until)
    })
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
    let frames = frames_of(options, bytes)?;
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
    let to = format!("version {version} of program {number} at {address}");
    OncPath::bound(link, procedures.clone(), options.wait, to)
}
