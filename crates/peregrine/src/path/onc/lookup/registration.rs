//! Registers the programs of a server at the rpcbind of its machine, so that clients find the ports of the
//! programs. Removes the registrations when the server ends.
//!
//! rpcbind is asked over its local socket. Over this socket, the kernel reports the user of this process to
//! rpcbind. Then only this user and root can remove the registrations. If there is no such socket, rpcbind is
//! asked at port 111, if possible from a port below 1024, which proves that this process is privileged.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use super::{RegisteredProgram, Rpcbind, Way, anonymous, network_of, open, protocol};
use crate::address::{Endpoint, Place};
use crate::call::{Frames, PathKind};
use crate::error::{CallError, Kind, Phase};
use crate::interface::System;
use crate::path::bind::{system, until};
use crate::protocol::onc::rpcbind::{Answer, Mapping, Registration, Request};
use crate::protocol::onc::universal::{Network, Universal};
use crate::serving::export::Export;
use crate::sync::Mutex;

/// The local socket of rpcbind.
const SOCKET: &str = "/run/rpcbind.sock";
/// How long it may take to register all programs, and how long it may take to remove them.
const LIMIT: Duration = Duration::from_secs(5);
/// How long another server may take to show that it still has the program.
const PROBE: Duration = Duration::from_millis(500);
/// The size in bytes of the largest answer to a probe.
const PROBE_BYTES_MAX: usize = 1024;

const NO_RPCBIND: &str = "start rpcbind on this machine (`peregrine rpcbind` is one), or do not call \
     Server::register_programs, and give clients the port";
const NO_PROGRAM: &str = "export an object whose interface is declared with `onc(program = N, version = N)`, and \
     listen at onc+udp:HOST or onc+tcp:HOST";
const OTHER_SERVER: &str =
    "stop the other server, or do not call Server::register_programs, and give clients the port";
const OTHER_OWNER: &str = "run as the user that has registered the program or as root, or remove the program with \
     `rpcinfo -d PROGRAM VERSION`";

/// The programs of a server that are registered at the rpcbind of this machine.
pub(crate) struct Registrations {
    rpcbind: Rpcbind,
    all: Mutex<Vec<Entry>>,
}

/// A program at an endpoint of the server.
#[derive(Clone, Copy)]
struct Entry {
    program: (u32, u32),
    kind: PathKind,
    at: SocketAddr,
}

/// Returns the programs of exports with their versions, each once.
fn programs(exports: &[Arc<Export>]) -> Vec<(u32, u32)> {
    let offered = exports.iter().filter(|export| export.is_offered_in_clear());
    let mut all: Vec<_> = offered
        .flat_map(|export| {
            let interface = export.serve.interface();
            let programs = interface.programs().iter().filter(|one| one.system == System::Onc);
            programs.map(|one| (one.number, one.version)).collect::<Vec<_>>()
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the endpoints for clients of ONC RPC: the path and the place of each.
pub(crate) fn onc_places(endpoints: &[Endpoint]) -> impl Iterator<Item = (PathKind, &Place)> {
    endpoints.iter().filter_map(|endpoint| match endpoint {
        Endpoint::Foreign(kind @ (PathKind::OncUdp | PathKind::OncTcp), place) => {
            Some((*kind, place))
        }
        _ => None,
    })
}

/// Returns the programs of exports at each endpoint for ONC RPC.
fn entries(exports: &[Arc<Export>], endpoints: &[Endpoint]) -> Result<Vec<Entry>, CallError> {
    let programs = programs(exports);
    let mut all = Vec::new();
    for (kind, place) in onc_places(endpoints) {
        for at in place.resolve()? {
            all.extend(programs.iter().map(|program| Entry { program: *program, kind, at }));
        }
    }
    if all.is_empty() {
        let text = "the server has no program of ONC RPC that could be registered at rpcbind";
        let error = CallError::not_executed(Kind::BadName, Phase::Export, text);
        return Err(error.with_advice(NO_PROGRAM));
    }
    Ok(all)
}

impl Registrations {
    /// Registers the programs of exports at the endpoints of their server. A registration that an earlier
    /// server has not removed is replaced.
    ///
    /// # Errors
    /// If rpcbind does not answer or refuses, or another server has one of the programs. Then nothing stays
    /// registered.
    pub(crate) fn make(exports: &[Arc<Export>], endpoints: &[Endpoint]) -> Result<Self, CallError> {
        let all = entries(exports, endpoints)?;
        let until = until(LIMIT);
        let (rpcbind, listed) = Rpcbind::of_this_machine(until)?;
        for entry in &all {
            let is_same = |one: &&RegisteredProgram| entry.is_listed_as(one);
            for left in listed.iter().filter(is_same) {
                entry.replaces(left, &rpcbind, until)?;
            }
        }
        for (at, entry) in all.iter().enumerate() {
            let refused = match entry.register(&rpcbind, until) {
                Ok(true) => continue,
                Ok(false) => {
                    let text = format!("rpcbind does not register {entry}");
                    let error = CallError::not_executed(Kind::Denied, Phase::Export, text);
                    error.with_advice(OTHER_OWNER)
                }
                Err(error) => error,
            };
            for registered in &all[..at] {
                let _ = registered.unregister(&rpcbind, until);
            }
            return Err(refused);
        }
        Ok(Self { rpcbind, all: Mutex::new(all) })
    }

    /// Removes the registrations of programs that none of these exports has. A program that another server
    /// has registered in the meantime stays registered. If rpcbind does not answer, nothing is removed. Then
    /// rpcbind has ended and lost the registrations, or the next server replaces them.
    pub(crate) fn keep(&self, exports: &[Arc<Export>]) {
        let kept = programs(exports);
        let is_removed = |entry: &mut Entry| !kept.contains(&entry.program);
        let removed: Vec<_> = self.all.lock().extract_if(.., is_removed).collect();
        if removed.is_empty() {
            return;
        }
        let until = until(LIMIT);
        let Ok(listed) = self.rpcbind.list(until) else { return };
        for entry in removed {
            let is_ours = |one: &RegisteredProgram| {
                entry.is_listed_as(one) && port_of(one) == Some(entry.at.port())
            };
            if listed.iter().any(is_ours) {
                let _ = entry.unregister(&self.rpcbind, until);
            }
        }
    }
}

/// Returns the port at which a program is registered.
fn port_of(listed: &RegisteredProgram) -> Option<u16> {
    Universal::parse(Network::from_name(&listed.network)?, &listed.address)?.port()
}

impl Rpcbind {
    /// Returns the rpcbind of this machine, and the programs that are registered there.
    ///
    /// # Errors
    /// If no rpcbind answers.
    fn of_this_machine(until: Instant) -> Result<(Self, Vec<RegisteredProgram>), CallError> {
        let any = Self::of(IpAddr::V4(Ipv4Addr::LOCALHOST), PathKind::OncTcp);
        let local = Self { way: Way::Local(SOCKET), ..any };
        let at_port = Self { way: Way::Privileged, ..any };
        let listed = |rpcbind: Self| rpcbind.list(until).map(|listed| (rpcbind, listed));
        listed(local).or_else(|_: CallError| listed(at_port)).map_err(|error| {
            let text = "rpcbind cannot be asked to register programs";
            let failed = CallError::not_executed(error.kind(), Phase::Export, text);
            failed.because(error.chain()).with_advice(NO_RPCBIND)
        })
    }
}

impl Entry {
    const fn network(&self) -> Network {
        network_of(self.kind, &self.at)
    }

    fn is_listed_as(&self, one: &RegisteredProgram) -> bool {
        self.program == (one.program, one.version) && self.network().name() == one.network
    }

    /// Removes `left`, an existing registration of the same program. Fails if another server answers at the
    /// registered port.
    fn replaces(
        &self,
        left: &RegisteredProgram,
        rpcbind: &Rpcbind,
        until: Instant,
    ) -> Result<(), CallError> {
        let (program, version) = self.program;
        // A registration with the port of this server comes from an earlier server, so no server is asked.
        if let Some(port) = port_of(left).filter(|port| *port != self.at.port())
            && self.answers_at(port)
        {
            let text = format!(
                "another server has version {version} of program {program}, at port {port} ({})",
                left.network
            );
            let error = CallError::not_executed(Kind::NameTaken, Phase::Export, text);
            return Err(error.with_advice(OTHER_SERVER));
        }
        match self.unregister(rpcbind, until)? {
            true => Ok(()),
            false => {
                let text = format!(
                    "rpcbind does not replace version {version} of program {program}: its owner is `{}`",
                    left.owner
                );
                let error = CallError::not_executed(Kind::Denied, Phase::Export, text);
                Err(error.with_advice(OTHER_OWNER))
            }
        }
    }

    /// Returns whether a server of this machine answers procedure 0 of the program at this port. The host in
    /// the registered address is not asked, because any user can register any host.
    fn answers_at(&self, port: u16) -> bool {
        let loopback = match self.at {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        let hosts = [loopback, self.at.ip()];
        let differs = !self.at.ip().is_unspecified() && self.at.ip() != loopback;
        hosts[..1 + usize::from(differs)].iter().any(|host| {
            let ping = self.ping(SocketAddr::new(*host, port), until(PROBE));
            ping.is_ok_and(|is_served| is_served)
        })
    }

    /// Calls procedure 0 of the program at an address. Returns whether the server has the program.
    fn ping(&self, at: SocketAddr, until: Instant) -> Result<bool, CallError> {
        let (program, version) = self.program;
        let frames = Frames::private(1, 1, PROBE_BYTES_MAX)
            .map_err(system("cannot allocate memory for a call"))?;
        let link = open(at, self.kind, anonymous(program, version)?, frames, None, until)?;
        Ok(link.ask(0, &[], until)?.is_ok())
    }

    /// Registers the program. Returns false if rpcbind refuses.
    fn register(&self, rpcbind: &Rpcbind, until: Instant) -> Result<bool, CallError> {
        let address = Universal::Socket(self.at).to_string();
        let owner = rustix::process::geteuid().as_raw().to_string();
        let set = Request::Set(self.registration(&address, &owner));
        rpcbind.ask(set, Request::SetMapping(self.mapping()), until, has_changed)
    }

    /// Removes the registration of the program. Version 2 of rpcbind removes the registrations of all paths.
    /// Returns false if the program was not registered, or rpcbind refuses.
    fn unregister(&self, rpcbind: &Rpcbind, until: Instant) -> Result<bool, CallError> {
        let unset = Request::Unset(self.registration("", ""));
        rpcbind.ask(unset, Request::UnsetMapping(self.mapping()), until, has_changed)
    }

    const fn registration<'a>(&self, address: &'a str, owner: &'a str) -> Registration<'a> {
        let (program, version) = self.program;
        Registration { program, version, network: self.network().name(), address, owner }
    }

    fn mapping(&self) -> Mapping {
        let (program, version) = self.program;
        Mapping { program, version, protocol: protocol(self.kind), port: self.at.port().into() }
    }
}

impl core::fmt::Display for Entry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (program, version) = self.program;
        write!(f, "version {version} of program {program} at {}:{}", self.kind, self.at)
    }
}

const fn has_changed(answer: &Answer<'_>) -> Option<bool> {
    match answer {
        Answer::Changed(changed) => Some(*changed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::onc::lookup::tests::rpcbind;
    use crate::protocol::onc::message::Outcome;

    const LONG: Duration = Duration::from_secs(20);

    fn entry(at: &str) -> Entry {
        Entry { program: (7, 1), kind: PathKind::OncTcp, at: at.parse().unwrap() }
    }

    #[test]
    fn programs_are_registered_and_removed_in_every_version() {
        for kind in [PathKind::OncUdp, PathKind::OncTcp] {
            let of = rpcbind(kind, |version, request| {
                assert_eq!(version, 4);
                Some(Ok(match request {
                    Request::Set(of) => {
                        assert_eq!((of.program, of.version, of.network), (7, 1, "tcp"));
                        Answer::Changed(of.address == "127.0.0.1.1.2")
                    }
                    Request::Unset(of) => Answer::Changed((of.network, of.address) == ("tcp", "")),
                    _ => panic!("{request:?}"),
                }))
            });
            let (entry, until) = (entry("127.0.0.1:258"), until(LONG));
            assert!(entry.register(&of, until).unwrap());
            assert!(entry.unregister(&of, until).unwrap());
            let old = rpcbind(kind, |_, request| {
                Some(match request {
                    Request::SetMapping(of) => {
                        Ok(Answer::Changed((of.protocol, of.port) == (6, 258)))
                    }
                    Request::UnsetMapping(_) => Ok(Answer::Changed(false)),
                    _ => Err(Outcome::ProgramUnavailable),
                })
            });
            assert!(entry.register(&old, until).unwrap());
            assert!(!entry.unregister(&old, until).unwrap());
        }
    }

    #[test]
    fn left_registration_is_replaced_if_rpcbind_allows_it() {
        fn listed(address: &str) -> RegisteredProgram {
            let (network, address) = ("tcp".to_owned(), address.to_owned());
            let owner = "1000".to_owned();
            RegisteredProgram { program: 7, version: 1, network, address, owner, name: None }
        }
        let entry = entry("127.0.0.1:258");
        let replaced = |changed: bool, left: &str| {
            let of = match changed {
                true => rpcbind(PathKind::OncTcp, |_, _| Some(Ok(Answer::Changed(true)))),
                false => rpcbind(PathKind::OncTcp, |_, _| Some(Ok(Answer::Changed(false)))),
            };
            entry.replaces(&listed(left), &of, until(LONG)).map_err(|error| error.kind())
        };
        // No server is at port 1.
        assert_eq!(replaced(true, "0.0.0.0.0.1"), Ok(()));
        assert_eq!(replaced(false, "0.0.0.0.0.1"), Err(Kind::Denied));
        // This is the port of this server itself, so the registration is that of an earlier server.
        assert_eq!(replaced(true, "0.0.0.0.1.2"), Ok(()));
        // rpcbind returns an address without meaning.
        assert_eq!(replaced(true, "somewhere"), Ok(()));
    }

    #[test]
    fn answer_without_meaning_is_an_error() {
        let of = rpcbind(PathKind::OncTcp, |_, _| Some(Ok(Answer::Address("true"))));
        let error = entry("127.0.0.1:258").register(&of, until(LONG)).unwrap_err();
        assert_eq!(error.kind(), Kind::ProtocolMismatch, "{error}");
    }
}
