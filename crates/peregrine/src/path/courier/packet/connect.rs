//! Binds to a program over packet Courier. The client finds out whether the server supports calls in parts,
//! and whether the server has the program.

use core::net::SocketAddr;
use std::time::Instant;

use super::client::{ASK_FOR_PARTS, Calls, PacketLink, PacketPath, Packets};
use crate::address::{Address, Place};
use crate::call::{Frames, PathKind};
use crate::device::Socket;
use crate::device::udp::Udp;
use crate::error::{CallError, NO_DATAGRAMS};
use crate::interface::System;
use crate::path::bind::{
    BoundPath, Connect, Exclusion, Inquiry, Target, Wanted, needs_place, system,
};
use crate::path::courier::wire::program::{
    bind_error, free_procedure, is_well, undescribed, version_of,
};
use crate::path::foreign::client::Wire;
use crate::path::foreign::program::{Chosen, at_any_address, chosen};
use crate::protocol::courier::failure::Failure;
use crate::protocol::courier::packet::PAYLOAD_MAX;
use crate::sys;

/// The client's implementation of packet Courier.
pub(crate) struct CourierUdp;

impl Connect for CourierUdp {
    fn kind(&self) -> PathKind {
        PathKind::CourierUdp
    }

    fn leads_to(&self, target: &Address) -> Result<(), Exclusion> {
        needs_place(target)
    }

    fn bind(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
        let program = chosen(System::Courier, wanted)?;
        at_any_address(target, wanted, |address, until| bind_at(address, &program, wanted, until))
    }

    fn inquire(&self, _: &Target<'_>, _: &Wanted<'_>) -> Result<Inquiry, CallError> {
        Err(undescribed())
    }
}

fn bind_at(
    mut address: SocketAddr,
    program: &Chosen,
    wanted: &Wanted<'_>,
    until: Instant,
) -> Result<BoundPath, CallError> {
    let Wanted { interface, options, .. } = *wanted;
    let &Chosen { number, ref procedures, .. } = program;
    let version = version_of(program)?;
    if address.port() == 0 {
        address.set_port(Place::COURIER_PORT);
    }
    let bytes = options.message_bytes_for(interface).min(PAYLOAD_MAX);
    let frames = Frames::private(options.room_for(bytes), options.astacks, bytes)
        .map_err(system("cannot allocate frames"))?;
    let udp = Udp::connected(address).map_err(system("opening a UDP socket"))?;
    let socket = Socket::Udp(udp);
    // Messages may be larger than the packets of the network.
    socket.allow_fragmentation().map_err(system("allowing fragmentation"))?;
    let random = || sys::random().map(u32::from_ne_bytes).map_err(system("reading random bytes"));
    let calls = Calls::new([random()?, random()?], frames.layout().count);
    let ping = free_procedure(procedures);
    let packets = Packets::new(number, version, ping);
    let link = PacketLink::new(Wire::Udp(socket), PathKind::CourierUdp, packets, calls, frames);
    let failed = |failure| {
        let error = bind_error(&link.bind_error(failure), failure, program, address);
        match failure {
            Failure::TimedOut | Failure::Silent => error.with_advice(NO_DATAGRAMS),
            _ => error,
        }
    };
    // Servers that do not support parts reject this call. Any reply proves that there is a server.
    let asked = link.ask(ASK_FOR_PARTS, &[], until)?;
    if let Err(failure @ (Failure::TimedOut | Failure::Disconnected)) = asked {
        return Err(failed(failure));
    }
    if let Some(ping) = ping
        && let Err(failure) = link.ask(ping.into(), &[], until)?
        && !is_well(failure)
    {
        return Err(failed(failure));
    }
    let form = if link.dialect().knows_parts() { "in parts" } else { "in whole datagrams" };
    let to = format!("version {version} of program {number} at {address}, {form}");
    PacketPath::bound(link, procedures.clone(), options.wait, to)
}
