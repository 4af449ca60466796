//! Finds the ports of programs, by asking rpcbind, and registers programs there.
//!
//! An answer of rpcbind is not trusted: only the port of an address is used, with the host that was asked.
//! Otherwise rpcbind could make clients send calls to any machine.

use core::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::client::{Header, Link, Wire};
use crate::call::{Frames, PathKind};
use crate::device::Socket;
use crate::device::tcp::Stream;
use crate::device::udp::Udp;
use crate::error::{CallError, Kind, NO_CONNECTION, Phase};
use crate::path::bind::{STAGGER, system, violated};
use crate::protocol::onc::failure::Failure;
use crate::protocol::onc::message::Auth;
use crate::protocol::onc::rpcbind::{
    Answer, Mapping, PORT, PROGRAM, PROTOCOL_TCP, PROTOCOL_UDP, Registration, Request, VERSIONS,
};
use crate::protocol::onc::universal::{Network, Universal};
use std::sync::Arc;

/// The size in bytes of the largest list of programs that is accepted.
const LIST_BYTES_MAX: usize = 1 << 20;

const NO_RPCBIND: &str = "start rpcbind on that machine, or add the port of the program to the address";
const NOT_REGISTERED: &str =
    "start the server of the program, or add its port to the address; `rpcinfo` shows what is registered";

/// Opens a link to a program at an address.
///
/// # Errors
/// If the server does not accept a connection, or a resource is exhausted.
pub(super) fn open(
    at: &[SocketAddr],
    kind: PathKind,
    header: Header,
    frames: Frames,
    congestion: Option<&str>,
    until: Instant,
) -> Result<Arc<Link>, CallError> {
    let wire = match kind {
        PathKind::OncTcp => {
            let stream = Stream::connect(at, STAGGER, until).map_err(unconnected)?;
            stream.prepare(congestion).map_err(system("preparing the connection"))?;
            Wire::Tcp(stream)
        }
        _ => {
            let first = at.first().ok_or_else(|| unconnected(None))?;
            let udp = Udp::connected(*first).map_err(system("opening a UDP socket"))?;
            let socket = Socket::Udp(udp);
            // Messages may be larger than the packets of the network.
            socket.allow_fragmentation().map_err(system("allowing fragmentation"))?;
            Wire::Udp(socket)
        }
    };
    Link::new(wire, header, frames).map_err(system("reading random bytes"))
}

#[cold]
fn unconnected(failure: Option<(SocketAddr, std::io::Error)>) -> CallError {
    let Some((address, error)) = failure else {
        return CallError::not_executed(Kind::Unreachable, Phase::Bind, "no address");
    };
    let kind = match error.kind() {
        std::io::ErrorKind::TimedOut => Kind::TimedOut,
        _ => Kind::Unreachable,
    };
    let text = format!("connecting to {address}");
    CallError::not_executed(kind, Phase::Bind, text).because(error).with_advice(NO_CONNECTION)
}

/// A program as rpcbind lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) program: u32,
    pub(crate) version: u32,
    /// The name of the network, such as `udp` or `tcp6`.
    pub(crate) network: String,
    /// The address, as rpcbind writes it. `None`: only the port is known.
    pub(crate) address: String,
    pub(crate) owner: String,
}

/// The rpcbind of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rpcbind {
    pub(super) at: SocketAddr,
    /// The path over which rpcbind is asked.
    pub(super) kind: PathKind,
}

impl Rpcbind {
    pub(super) const fn of(ip: IpAddr, kind: PathKind) -> Self {
        Self { at: SocketAddr::new(ip, PORT), kind }
    }

    const fn network(&self, kind: PathKind) -> Network {
        match (kind, self.at.is_ipv6()) {
            (PathKind::OncTcp, false) => Network::Tcp,
            (PathKind::OncTcp, true) => Network::Tcp6,
            (_, false) => Network::Udp,
            (_, true) => Network::Udp6,
        }
    }

    /// Returns the port of a program over the path with which rpcbind is asked.
    ///
    /// # Errors
    /// If rpcbind does not answer, or does not know the program.
    pub(super) fn port(
        &self,
        program: u32,
        version: u32,
        until: Instant,
    ) -> Result<u16, CallError> {
        let network = self.network(self.kind);
        let of = Registration { program, version, network: network.name(), address: "", owner: "" };
        let protocol = protocol(self.kind);
        let mapping = Mapping { program, version, protocol, port: 0 };
        let read = |answer: &Answer<'_>| match *answer {
            Answer::Port(port) => Some(port),
            Answer::Address("") => Some(0),
            Answer::Address(text) => match Universal::parse(network, text) {
                Some(Universal::Socket(address)) => Some(address.port()),
                _ => None,
            },
            _ => None,
        };
        match self.ask(Request::Address(of), Request::Port(mapping), until, read)? {
            0 => {
                let text = format!(
                    "rpcbind of {} does not know version {version} of program {program} over {}",
                    self.at.ip(),
                    network.name()
                );
                let error = CallError::not_executed(Kind::NotFound, Phase::Resolve, text);
                Err(error.with_advice(NOT_REGISTERED))
            }
            port => Ok(port),
        }
    }

    /// Returns all programs that rpcbind lists.
    ///
    /// # Errors
    /// If rpcbind does not answer.
    pub(super) fn list(&self, until: Instant) -> Result<Vec<Listed>, CallError> {
        let ip = self.at.ip();
        let read = |answer: &Answer<'_>| match answer {
            Answer::Registrations(all) => Some(all.iter().map(listed).collect()),
            Answer::Mappings(all) => {
                Some(all.iter().filter_map(|mapping| listed_mapping(mapping, ip)).collect())
            }
            _ => None,
        };
        self.ask(Request::Dump, Request::DumpMappings, until, read)
    }

    /// Makes a request to the newest version of rpcbind that the machine has: `request` of versions 4 and 3,
    /// or `old` of version 2.
    fn ask<T>(
        &self,
        request: Request<'_>,
        old: Request<'_>,
        until: Instant,
        read: impl Fn(&Answer<'_>) -> Option<T>,
    ) -> Result<T, CallError> {
        let mut failure = None;
        for version in (VERSIONS.low..=VERSIONS.high).rev() {
            let request = if request.is_in(version) { &request } else { &old };
            match self.ask_version(version, request, until)? {
                Ok(results) => {
                    let answer = Answer::parse(request, &results)
                        .map_err(|why| violated(format!("the answer of rpcbind: {why}")))?;
                    return read(&answer)
                        .ok_or_else(|| violated("rpcbind answers with an address without meaning"));
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| violated("rpcbind has no known version")))
    }

    /// Makes a request of a version. The inner error means that rpcbind lacks this version.
    fn ask_version(
        &self,
        version: u32,
        request: &Request<'_>,
        until: Instant,
    ) -> Result<Result<Vec<u8>, CallError>, CallError> {
        let unreachable = |error: CallError| {
            let text = format!("asking rpcbind at {}", self.at);
            let kind = error.kind();
            CallError::not_executed(kind, Phase::Resolve, text)
                .because(error.chain())
                .with_advice(NO_RPCBIND)
        };
        let header = Header::new(PROGRAM, version, Auth::NONE)
            .ok_or_else(|| violated("a header without credentials is too long"))?;
        let frames = Frames::private(1, 1, LIST_BYTES_MAX)
            .map_err(system("cannot allocate memory for a call to rpcbind"))?;
        let link = open(&[self.at], self.kind, header, frames, None, until).map_err(unreachable)?;
        let mut arguments = Vec::new();
        request.push(&mut arguments);
        let asked = link.ask(request.procedure(), &arguments, until).map_err(unreachable)?;
        match asked {
            Ok(results) => Ok(Ok(results)),
            Err(
                failure @ (Failure::ProgramMismatch(_)
                | Failure::ProgramUnavailable
                | Failure::ProcedureUnavailable),
            ) => Ok(Err(unreachable(link.bind_error(failure)))),
            Err(failure) => Err(unreachable(link.bind_error(failure))),
        }
    }
}

const fn protocol(kind: PathKind) -> u32 {
    match kind {
        PathKind::OncTcp => PROTOCOL_TCP,
        _ => PROTOCOL_UDP,
    }
}

fn listed(one: &Registration<'_>) -> Listed {
    Listed {
        program: one.program,
        version: one.version,
        network: one.network.to_owned(),
        address: one.address.to_owned(),
        owner: one.owner.to_owned(),
    }
}

fn listed_mapping(one: &Mapping, ip: IpAddr) -> Option<Listed> {
    let network = match one.protocol {
        PROTOCOL_TCP => Network::Tcp,
        PROTOCOL_UDP => Network::Udp,
        _ => return None,
    };
    let address = Universal::Socket(SocketAddr::new(ip, u16::try_from(one.port).ok()?));
    Some(Listed {
        program: one.program,
        version: one.version,
        network: network.name().to_owned(),
        address: address.to_string(),
        owner: String::new(),
    })
}
