//! Binds to a program of ONC RPC. The client checks that its interface is this program, finds the port of the
//! program, and calls procedure 0, so that a missing program or version is reported at once.

use core::net::SocketAddr;
use std::time::Instant;

use super::client::{Header, OncPath};
use super::lookup::{Rpcbind, open};
use crate::call::PathKind;
use crate::device::BYTES_MAX;
use crate::error::{CallError, NO_DATAGRAMS};
use crate::interface::System;
use crate::path::bind::{BoundPath, Connect, Inquiry, Target, Wanted, at_any_address, violated};
use crate::path::foreign::client::frames_of;
use crate::path::foreign::program::{Chosen, bind_error, chosen, undescribed};
use crate::protocol::onc::failure::Failure;
use crate::protocol::onc::message::{AUTH_BYTES_MAX, Auth};

/// The client's implementation of ONC RPC over UDP.
pub(crate) struct OncUdp;

/// The client's implementation of ONC RPC over TCP.
pub(crate) struct OncTcp;

impl Connect for OncUdp {
    fn kind(&self) -> PathKind {
        PathKind::OncUdp
    }

    fn bind(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
        bind(self.kind(), target, wanted)
    }

    fn inquire(&self, _: &Target<'_>, _: &Wanted<'_>) -> Result<Inquiry, CallError> {
        Err(undescribed(System::Onc))
    }
}

impl Connect for OncTcp {
    fn kind(&self) -> PathKind {
        PathKind::OncTcp
    }

    fn bind(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
        bind(self.kind(), target, wanted)
    }

    fn inquire(&self, _: &Target<'_>, _: &Wanted<'_>) -> Result<Inquiry, CallError> {
        Err(undescribed(System::Onc))
    }
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
        let versions = match failure {
            Failure::ProgramMismatch(versions) => Some((versions.low, versions.high)),
            _ => None,
        };
        let error = bind_error(&link.bind_error(failure), versions, program, address);
        return Err(match failure {
            Failure::TimedOut if kind == PathKind::OncUdp => error.with_advice(NO_DATAGRAMS),
            _ => error,
        });
    }
    let to = format!("version {version} of program {number} at {address}");
    OncPath::bound(link, procedures.clone(), options.wait, to)
}
