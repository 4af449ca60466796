//! Finds the ports of programs by asking rpcbind, and registers programs at rpcbind.
//!
//! An answer of rpcbind is not trusted: only the port of the returned address is used, together with the host
//! of rpcbind itself. Otherwise rpcbind could make clients send calls to any machine.

mod names;
mod registration;

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use self::names::names;
pub(crate) use self::registration::{Registrations, onc_places};
use super::client::{Calls, Header, Onc, OncLink};
use crate::address::Address;
use crate::call::{Frames, PathKind};
use crate::device::tcp::Stream;
use crate::error::{CallError, Kind, Phase};
use crate::interface::System;
use crate::path::bind::{at_any_address, connect, system, until, violated};
use crate::path::foreign::client::Wire;
use crate::path::options::BindOptions;
use crate::protocol::onc::failure::Failure;
use crate::protocol::onc::message::Auth;
use crate::protocol::onc::rpcbind::{
    Answer, Mapping, PORT, PROGRAM, PROTOCOL_TCP, PROTOCOL_UDP, Registration, Request, VERSIONS,
};
use crate::protocol::onc::universal::{Network, Universal};
use crate::sys;

/// The size in bytes of the largest list of programs that is accepted.
const LIST_BYTES_MAX: usize = 1 << 20;

const NO_RPCBIND: &str =
    "start rpcbind on that machine, or add the port of the program to the address";
const NOT_REGISTERED: &str = "start the server of the program, or add its port to the address; \
     `peregrine list onc+tcp:HOST` shows what is registered";

const NO_MACHINE: &str = "write onc+tcp:HOST or onc+udp:HOST";

/// Opens a link to a program at an address.
///
/// # Errors
/// If the server does not accept a connection, or a resource is exhausted.
pub(super) fn open(
    at: SocketAddr,
    kind: PathKind,
    header: Header,
    frames: Frames,
    congestion: Option<&str>,
    until: Instant,
) -> Result<Arc<OncLink>, CallError> {
    let wire = match kind {
        PathKind::OncTcp => Wire::Tcp(connect(&[at], congestion, until)?),
        _ => Wire::datagrams(at)?,
    };
    link(wire, kind, header, frames)
}

/// Returns the header of calls without credentials.
fn anonymous(program: u32, version: u32) -> Result<Header, CallError> {
    Header::new(program, version, Auth::NONE)
        .ok_or_else(|| violated("a header without credentials is too long"))
}

/// Makes a link from a connected socket.
fn link(
    wire: Wire,
    kind: PathKind,
    header: Header,
    frames: Frames,
) -> Result<Arc<OncLink>, CallError> {
    let random = sys::random().map_err(system("reading random bytes"))?;
    let calls = Calls::new(u32::from_ne_bytes(random), frames.layout().count);
    Ok(OncLink::new(wire, kind, Onc::new(header), calls, frames))
}

/// A program of ONC RPC that rpcbind lists: see [`registered_programs`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredProgram {
    /// The number of the program.
    pub program: u32,
    /// The version of the program.
    pub version: u32,
    /// The name of the network, such as `udp` or `tcp6`.
    pub network: String,
    /// The universal address, as rpcbind writes it. The last two numbers are the port: `0.0.0.0.8.1` is port
    /// 2049.
    pub address: String,
    /// The user that has registered the program, as rpcbind writes it. Empty if rpcbind does not know the
    /// user.
    pub owner: String,
    /// The name of the program in the file `/etc/rpc` of this machine.
    pub name: Option<String>,
}

/// Returns the programs that the rpcbind of a machine lists. `address` is an address for ONC RPC without a
/// program, such as `onc+tcp:fs.example.org`. The address may contain the port of rpcbind. The default is
/// 111.
///
/// What rpcbind returns is not checked: any program can register anything there.
///
/// ```
/// use peregrine::Kind;
///
/// let error = peregrine::registered_programs("files").unwrap_err();
/// assert_eq!(error.kind(), Kind::BadName);
/// ```
///
/// # Errors
/// If the address is not such an address, or rpcbind does not answer within 5 seconds.
pub fn registered_programs(address: &str) -> Result<Vec<RegisteredProgram>, CallError> {
    list(address).map_err(|error| error.at(address))
}

fn list(address: &str) -> Result<Vec<RegisteredProgram>, CallError> {
    let until = until(BindOptions::default().bind_limit);
    let parsed: Address = address.parse()?;
    let asked = parsed.path().filter(|path| path.system() == Some(System::Onc));
    let (Some(kind), Some(place)) = (asked, parsed.place()) else {
        let text = "the address names no machine with ONC RPC";
        let error = CallError::not_executed(Kind::BadName, Phase::Resolve, text);
        return Err(error.with_advice(NO_MACHINE));
    };
    if !parsed.name().is_empty() {
        let text = "the address names a program, and only the machine can be asked";
        let error = CallError::not_executed(Kind::BadName, Phase::Resolve, text);
        return Err(error.with_advice(NO_MACHINE));
    }
    let mut all = at_any_address(&place.resolve()?, until, |at, until| {
        let mut rpcbind = Rpcbind::of(at.ip(), kind);
        if at.port() != 0 {
            rpcbind.at = at;
        }
        rpcbind.list(until)
    })?;
    name_programs(&mut all);
    Ok(all)
}

/// Sets the names of programs from the file `/etc/rpc` of this machine.
pub(crate) fn name_programs(programs: &mut [RegisteredProgram]) {
    let names = names();
    for one in programs {
        one.name = names.get(&one.program).cloned();
    }
}

/// The rpcbind of a machine, and how it is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rpcbind {
    pub(super) at: SocketAddr,
    /// The path over which rpcbind is asked.
    pub(super) kind: PathKind,
    pub(super) way: Way,
}

/// How a connection to rpcbind is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// Like any other connection.
    Plain,
    /// From a port below 1024, if this program may use one.
    Privileged,
    /// To the local socket at this path.
    Local(&'static str),
}

/// Returns the network, in the sense of rpcbind, of a server that listens at an address.
pub(crate) const fn network_of(kind: PathKind, at: &SocketAddr) -> Network {
    match (kind, at.is_ipv6()) {
        (PathKind::OncTcp, false) => Network::Tcp,
        (PathKind::OncTcp, true) => Network::Tcp6,
        (_, false) => Network::Udp,
        (_, true) => Network::Udp6,
    }
}

impl Rpcbind {
    pub(super) const fn of(ip: IpAddr, kind: PathKind) -> Self {
        Self { at: SocketAddr::new(ip, PORT), kind, way: Way::Plain }
    }

    /// Returns the port of a program for calls over the path `kind`.
    ///
    /// # Errors
    /// If rpcbind does not answer, or does not know the program.
    pub(super) fn port(
        &self,
        program: u32,
        version: u32,
        until: Instant,
    ) -> Result<u16, CallError> {
        let network = network_of(self.kind, &self.at);
        let of = Registration { program, version, network: network.name(), address: "", owner: "" };
        let protocol = protocol(self.kind);
        let mapping = Mapping { program, version, protocol, port: 0 };
        let read = |answer: &Answer<'_>| match *answer {
            Answer::Port(port) => Some(port),
            Answer::Address("") => Some(0),
            Answer::Address(text) => Universal::parse(network, text)?.port(),
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
    pub(super) fn list(&self, until: Instant) -> Result<Vec<RegisteredProgram>, CallError> {
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

    /// Makes a request in the newest version of the protocol that rpcbind has. The request is `request` if
    /// the version has it. Otherwise it is `old`, a request of version 2.
    pub(super) fn ask<T>(
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
                    return read(&answer).ok_or_else(|| {
                        violated("rpcbind answers with an address without meaning")
                    });
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| violated("rpcbind has no known version")))
    }

    /// Makes a request in one version of the protocol. The inner error means that rpcbind lacks this version
    /// or the request.
    fn ask_version(
        &self,
        version: u32,
        request: &Request<'_>,
        until: Instant,
    ) -> Result<Result<Vec<u8>, CallError>, CallError> {
        let unreachable = |error: CallError| {
            let text = match self.way {
                Way::Local(path) => format!("asking rpcbind at {path}"),
                _ => format!("asking rpcbind at {}", self.at),
            };
            let kind = error.kind();
            CallError::not_executed(kind, Phase::Resolve, text)
                .because(error.chain())
                .with_advice(NO_RPCBIND)
        };
        let header = anonymous(PROGRAM, version)?;
        let frames = Frames::private(1, 1, LIST_BYTES_MAX)
            .map_err(system("cannot allocate memory for a call to rpcbind"))?;
        let stream = match self.way {
            Way::Plain => None,
            Way::Privileged => Some(Stream::privileged(&self.at, until)),
            Way::Local(path) => Some(Stream::local(path)),
        };
        let link = match stream {
            None => open(self.at, self.kind, header, frames, None, until),
            Some(Ok(stream)) => link(Wire::Tcp(stream), PathKind::OncTcp, header, frames),
            Some(Err(error)) => {
                let text = "connecting to rpcbind";
                Err(CallError::not_executed(Kind::Unreachable, Phase::Bind, text).because(error))
            }
        };
        let link = link.map_err(unreachable)?;
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

pub(super) const fn protocol(kind: PathKind) -> u32 {
    match kind {
        PathKind::OncTcp => PROTOCOL_TCP,
        _ => PROTOCOL_UDP,
    }
}

fn listed(one: &Registration<'_>) -> RegisteredProgram {
    RegisteredProgram {
        program: one.program,
        version: one.version,
        network: one.network.to_owned(),
        address: one.address.to_owned(),
        owner: one.owner.to_owned(),
        name: None,
    }
}

fn listed_mapping(one: &Mapping, ip: IpAddr) -> Option<RegisteredProgram> {
    let network = Network::from_protocol(one.protocol)?;
    let address = Universal::Socket(SocketAddr::new(ip, u16::try_from(one.port).ok()?));
    Some(RegisteredProgram {
        program: one.program,
        version: one.version,
        network: network.name().to_owned(),
        address: address.to_string(),
        owner: String::new(),
        name: None,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::protocol::onc::message::{Call, Outcome, Reply, Versions};
    use core::time::Duration;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, UdpSocket};

    const LONG: Duration = Duration::from_secs(20);

    /// A function that answers a request. The number is the version of the protocol. If the function returns
    /// `None`, nothing is sent.
    pub(super) type Answers = fn(u32, &Request<'_>) -> Option<Result<Answer<'static>, Outcome>>;

    fn answered(message: &[u8], answers: Answers) -> Option<Vec<u8>> {
        let (call, at) = Call::parse(message).expect("a call");
        assert_eq!(call.program, PROGRAM);
        let request = Request::parse(call.version, call.procedure, &message[at..]).unwrap();
        let answer = answers(call.version, &request)?;
        let outcome = answer.as_ref().err().copied().unwrap_or(Outcome::Success);
        let mut bytes = vec![0; 100];
        let length = Reply::accepted(call.xid, outcome).emit(&mut bytes).expect("room");
        bytes.truncate(length);
        if let Ok(answer) = answer {
            answer.push(&mut bytes);
        }
        Some(bytes)
    }

    /// Starts an rpcbind at a free port. It runs until the test program ends.
    pub(super) fn rpcbind(kind: PathKind, answers: Answers) -> Rpcbind {
        if kind == PathKind::OncUdp {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let at = socket.local_addr().unwrap();
            std::thread::spawn(move || {
                let mut bytes = [0; 2000];
                loop {
                    let (length, from) = socket.recv_from(&mut bytes).unwrap();
                    if let Some(reply) = answered(&bytes[..length], answers) {
                        socket.send_to(&reply, from).unwrap();
                    }
                }
            });
            return Rpcbind { at, kind, way: Way::Plain };
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut marker = [0; 4];
                while stream.read_exact(&mut marker).is_ok() {
                    let length = u32::from_be_bytes(marker) & !(1 << 31);
                    let mut bytes = vec![0; length as usize];
                    stream.read_exact(&mut bytes).unwrap();
                    if let Some(reply) = answered(&bytes, answers) {
                        let marker = (1 << 31 | reply.len() as u32).to_be_bytes();
                        stream.write_all(&[&marker, &*reply].concat()).unwrap();
                    }
                }
            }
        });
        Rpcbind { at, kind, way: Way::Plain }
    }

    const BOTH: [PathKind; 2] = [PathKind::OncUdp, PathKind::OncTcp];

    fn port(of: Rpcbind) -> Result<u16, CallError> {
        of.port(100_005, 3, until(LONG))
    }

    #[test]
    fn only_the_port_of_an_address_is_used() {
        for kind in BOTH {
            let of = rpcbind(kind, |version, request| {
                let Request::Address(of) = request else { panic!("{request:?}") };
                assert_eq!((version, of.program, of.version), (4, 100_005, 3));
                assert!(matches!(of.network, "udp" | "tcp"));
                Some(Ok(Answer::Address("192.0.2.1.8.1")))
            });
            assert_eq!(port(of).unwrap(), 2049);
        }
    }

    #[test]
    fn older_versions_are_asked_in_turn() {
        for kind in BOTH {
            let of = rpcbind(kind, |version, request| {
                let mismatch = Outcome::ProgramMismatch(Versions { low: 2, high: 2 });
                Some(match request {
                    Request::Port(of) => {
                        assert!(matches!(of.protocol, PROTOCOL_TCP | PROTOCOL_UDP));
                        Ok(Answer::Port(703))
                    }
                    _ if version == 3 => Err(Outcome::ProgramUnavailable),
                    _ => Err(mismatch),
                })
            });
            assert_eq!(port(of).unwrap(), 703);
        }
    }

    #[test]
    fn program_that_is_not_registered_is_reported() {
        let of = rpcbind(PathKind::OncUdp, |_, _| Some(Ok(Answer::Address(""))));
        let error = port(of).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
        assert!(error.detail().contains("version 3 of program 100005 over udp"), "{error}");
        let none = rpcbind(PathKind::OncTcp, |_, _| Some(Err(Outcome::ProgramUnavailable)));
        assert_eq!(port(none).unwrap_err().kind(), Kind::NotFound);
    }

    #[test]
    fn answers_without_meaning_are_refused() {
        for kind in BOTH {
            let of = rpcbind(kind, |_, _| Some(Ok(Answer::Address("127.0.0.1.999.1"))));
            assert_eq!(port(of).unwrap_err().kind(), Kind::ProtocolMismatch);
            let of = rpcbind(kind, |_, _| Some(Ok(Answer::Changed(true))));
            assert_eq!(port(of).unwrap_err().kind(), Kind::ProtocolMismatch);
        }
    }

    #[test]
    fn rpcbind_that_does_not_answer_is_given_up() {
        for kind in BOTH {
            let of = rpcbind(kind, |_, _| None);
            let error = of.port(1, 1, until(Duration::from_millis(20))).unwrap_err();
            assert_eq!(error.kind(), Kind::TimedOut, "{error}");
            assert!(error.detail().contains("rpcbind"), "{error}");
        }
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        drop(socket);
        for kind in BOTH {
            assert_eq!(
                port(Rpcbind { at, kind, way: Way::Plain }).unwrap_err().kind(),
                Kind::Unreachable
            );
        }
    }

    #[test]
    fn programs_are_listed_by_every_version() {
        let expected = |address: &str, owner: &str| RegisteredProgram {
            program: 100_003,
            version: 3,
            network: "tcp".to_owned(),
            address: address.to_owned(),
            owner: owner.to_owned(),
            name: None,
        };
        for kind in BOTH {
            let new = rpcbind(kind, |_, _| {
                let one = Registration {
                    program: 100_003,
                    version: 3,
                    network: "tcp",
                    address: "0.0.0.0.8.1",
                    owner: "superuser",
                };
                Some(Ok(Answer::Registrations(vec![one])))
            });
            let all = new.list(until(LONG)).unwrap();
            assert_eq!(all, [expected("0.0.0.0.8.1", "superuser")]);
            let old = rpcbind(kind, |version, _| {
                let known =
                    Mapping { program: 100_003, version: 3, protocol: PROTOCOL_TCP, port: 2049 };
                let others = [Mapping { protocol: 99, ..known }, Mapping { port: 70_000, ..known }];
                Some(match version {
                    2 => Ok(Answer::Mappings([&[known][..], &others].concat())),
                    _ => Err(Outcome::ProgramUnavailable),
                })
            });
            let all = old.list(until(LONG)).unwrap();
            assert_eq!(all, [expected("127.0.0.1.8.1", "")]);
        }
    }

    #[test]
    fn list_of_any_program_is_found_by_its_address() {
        let of = rpcbind(PathKind::OncTcp, |_, _| Some(Ok(Answer::Registrations(Vec::new()))));
        assert_eq!(registered_programs(&format!("onc+tcp:{}", of.at)).unwrap(), []);
        for wrong in ["onc+tcp:host/1.2", "tcp:a@host", "host"] {
            assert_eq!(registered_programs(wrong).unwrap_err().kind(), Kind::BadName, "{wrong}");
        }
    }
}
