//! `Fronts`: the servers at which clients of all RPC systems call the targets (what the bridge offers).
//!
//! Each target is exported by a generic server, which passes the calls on. When the interface of a target
//! changes, the bridge replaces the export. The clients then bind again, as if the server had been restarted.

use core::time::Duration;
use std::borrow::Cow;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};

use peregrine::interface::{Described, Program, System};
use peregrine::{
    Address, Endpoint, ExportOptions, GenericServer, PathKind, Place, Security, Server,
};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::forward::Forwarder;
use crate::setup::{Limits, SetupError};
use crate::target::{Revision, Target};

/// The interval at which the bridge checks whether the interfaces of targets have changed.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// The number of additional threads. They refuse calls while the maximum number of calls is being answered.
const REFUSERS: usize = 2;

/// Where a bridge exports its targets.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The endpoints on networks. With each endpoint: what protects its calls, if other machines may reach
    /// it.
    pub(crate) endpoints: Vec<(String, Option<Security>)>,
    /// The names of targets that are exported on this machine.
    pub(crate) names: Vec<String>,
    pub(crate) programs: Vec<GivenProgram>,
}

impl Plan {
    /// Returns whether the plan contains no place at which clients could call.
    pub(crate) const fn is_empty(&self) -> bool {
        self.endpoints.is_empty() && self.names.is_empty()
    }
}

/// The numbers by which the clients of another RPC system know a target.
#[derive(Clone, Debug)]
pub(crate) struct GivenProgram {
    target: String,
    system: System,
    number: u32,
    version: u32,
}

impl GivenProgram {
    /// Reads `NAME=onc:NUMBER.VERSION` or `NAME=courier:NUMBER.VERSION`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (target, program) = text.split_once('=')?;
        let (system, numbers) = program.split_once(':')?;
        let (number, version) = numbers.split_once('.')?;
        let (number, version) = (number.parse().ok()?, version.parse().ok()?);
        let system = match system {
            "onc" => System::Onc,
            "courier" if version <= u16::MAX.into() => System::Courier,
            _ => return None,
        };
        Some(Self { target: target.to_owned(), system, number, version })
    }

    /// Returns the name of the target.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Gives the numbers to an interface. If the interface is already a program of the system, its procedures
    /// keep their numbers. Otherwise, the procedures are numbered in order: from 1 in ONC RPC, where
    /// procedure 0 of each program does nothing, and from 0 in Courier.
    fn give_to(&self, described: &mut Described) {
        let Self { system, number, version, .. } = *self;
        let first = u32::from(system == System::Onc);
        let count = described.procedures.len() as u32;
        match described.programs.iter_mut().find(|one| one.system == system) {
            Some(program) => (program.number, program.version) = (number, version),
            None => {
                let procedures = Cow::Owned((first..first + count).collect());
                described.programs.push(Program { system, number, version, procedures });
            }
        }
    }
}

/// The running servers.
pub(crate) struct Fronts {
    server: peregrine::Running,
    targets: Vec<Arc<Target>>,
    plan: Plan,
    /// The RPC systems, other than Peregrine, whose clients can call.
    systems: Vec<System>,
    permits: Arc<Semaphore>,
    limits: Limits,
    timers: Handle,
    /// For each target: the number of the interface with which the bridge last exported it, or last failed to
    /// export it.
    exported: Mutex<Vec<Option<u64>>>,
}

impl Fronts {
    /// Listens, and exports the targets whose interfaces are known.
    ///
    /// # Errors
    /// If an endpoint or a name cannot be used, a target is the bridge itself, or a system cannot carry the
    /// interface of a target.
    pub(crate) fn start(
        plan: Plan,
        targets: &[Arc<Target>],
        permits: &Arc<Semaphore>,
        limits: &Limits,
        timers: Handle,
    ) -> Result<Self, SetupError> {
        let mut server = Server::new().threads(limits.calls + REFUSERS);
        for (endpoint, security) in &plan.endpoints {
            server = match security {
                Some(by) => server.listen_beyond_this_machine(endpoint, by.clone()),
                None => server.listen(endpoint),
            }
            .map_err(SetupError::Front)?;
        }
        let server = server.spawn().map_err(SetupError::Front)?;
        let mut systems: Vec<System> = Vec::new();
        for endpoint in server.addresses() {
            if let Endpoint::Foreign(path, _) = endpoint {
                systems.extend(path.system().filter(|system| !systems.contains(system)));
            }
        }
        let fronts = Self {
            server,
            targets: targets.to_vec(),
            plan,
            systems,
            permits: Arc::clone(permits),
            limits: limits.clone(),
            timers,
            exported: Mutex::new(vec![None; targets.len()]),
        };
        if let Some(target) = targets.iter().find(|target| fronts.leads_here(target)) {
            return Err(SetupError::Loop(target.name.clone()));
        }
        match fronts.look().into_iter().next() {
            Some(refused) => Err(refused),
            None => Ok(fronts),
        }
    }

    /// Returns the endpoints at which the servers listen.
    pub(crate) fn endpoints(&self) -> &[Endpoint] {
        self.server.addresses()
    }

    /// Returns whether the address of a target is an address of these servers.
    fn leads_here(&self, target: &Target) -> bool {
        let Ok(address) = target.address.parse::<Address>() else { return false };
        let Some(place) = address.place() else {
            return self.plan.names.iter().any(|name| name == address.name());
        };
        let found = (place.host(), port(&address, place)).to_socket_addrs();
        let found: Vec<SocketAddr> = found.map(Iterator::collect).unwrap_or_default();
        let is_own = |own: &Endpoint| {
            let place = own.place();
            let at = (place.host(), place.port()).to_socket_addrs();
            takes(own, &address, &target.name)
                && at.is_ok_and(|mut at| at.any(|at| found.contains(&at)))
        };
        self.endpoints().iter().any(is_own)
    }

    /// Exports targets whose interface has become known, and replaces exports whose interface has changed.
    /// Returns an error for each target that cannot be exported.
    pub(crate) fn look(&self) -> Vec<SetupError> {
        // Binding may wait for other machines, so all targets are asked at the same time.
        let interfaces: Vec<_> = std::thread::scope(|scope| {
            let asked = self.targets.iter().map(|target| scope.spawn(|| target.interface().ok()));
            let asked: Vec<_> = asked.collect();
            asked.into_iter().map(|asked| asked.join().ok().flatten()).collect()
        });
        let mut exported = self.exported.lock().unwrap_or_else(PoisonError::into_inner);
        let mut refused = Vec::new();
        for ((target, found), exported) in self.targets.iter().zip(interfaces).zip(&mut *exported) {
            let Some(found) = found.filter(|found| *exported != Some(found.number)) else {
                continue;
            };
            self.server.withdraw(&target.name);
            *exported = Some(found.number);
            if let Err(error) = self.export(target, found) {
                refused.push(error);
            }
        }
        refused
    }

    /// Exports a target, unless the plan contains no place at which clients could reach it.
    fn export(&self, target: &Arc<Target>, interface: Revision) -> Result<(), SetupError> {
        let is_named = self.plan.names.contains(&target.name);
        let options = match is_named {
            true => ExportOptions::default(),
            false if self.plan.endpoints.is_empty() => return Ok(()),
            false => ExportOptions::default().networks_only(),
        };
        let server = self.serve(target, interface)?;
        let exported = self.server.export_with(&target.name, server, options);
        exported.map_err(SetupError::Front)
    }

    /// Returns a server that passes calls on to a target.
    fn serve(
        &self,
        target: &Arc<Target>,
        interface: Revision,
    ) -> Result<GenericServer, SetupError> {
        let mut described = Described::clone(&interface.described);
        let given = self.plan.programs.iter().filter(|one| one.target == target.name);
        given.for_each(|program| program.give_to(&mut described));
        let unfit = |what: String| SetupError::Unfit(target.name.clone(), what);
        let has = |system| described.programs.iter().any(|program| program.system == system);
        if let Some(system) = self.systems.iter().find(|system| !has(**system)) {
            let scheme = if *system == System::Onc { "onc" } else { "courier" };
            let name = &target.name;
            return Err(unfit(format!(
                "it is no program of {system}: give it numbers, as {name}={scheme}:NUMBER.VERSION"
            )));
        }
        let forwarder = Forwarder {
            target: Arc::clone(target),
            interface,
            permits: Arc::clone(&self.permits),
            limit: self.limits.call_limit,
            timers: self.timers.clone(),
        };
        let server = GenericServer::passing_on(described, move |call| forwarder.pass_on(call));
        match self.systems.iter().find_map(|system| server.missing_in(*system)) {
            Some(missing) => Err(unfit(missing)),
            None => Ok(server),
        }
    }
}

/// Returns the port to which an address leads, or 0 if the client must ask rpcbind for the port.
fn port(address: &Address, place: &Place) -> u16 {
    match (address.path(), place.port()) {
        (Some(PathKind::CourierUdp | PathKind::CourierTcp), 0) => Place::COURIER_PORT,
        (_, port) => port,
    }
}

/// Returns whether the endpoint `own` takes the calls to an address with the same host and port. `name` is
/// the name by which the bridge exports the target.
fn takes(own: &Endpoint, address: &Address, name: &str) -> bool {
    let path = address.path();
    let system = path.and_then(|path| path.system());
    match own {
        Endpoint::Foreign(own, _) => path == Some(*own),
        // Messages of Courier in Peregrine's packets arrive at the endpoints that receive these packets.
        Endpoint::Udp(_) | Endpoint::Ethernet(_) if system.is_some() => {
            path == Some(PathKind::CourierExchange)
        }
        _ => system.is_none() && address.name() == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_takes_the_calls_of_its_own_path() {
        let takes = |own: &str, address: &str| {
            takes(&own.parse().unwrap(), &address.parse().unwrap(), "stock")
        };
        let (udp, tcp) = ("udp:127.0.0.1:7000", "tcp:127.0.0.1:7000");
        assert!(takes(udp, "courier+exchange:127.0.0.1:7000/2.3"));
        assert!(takes("eth:127.0.0.1:7000", "courier+exchange:127.0.0.1:7000"));
        assert!(!takes(tcp, "courier+exchange:127.0.0.1:7000/2.3"));
        assert!(!takes(udp, "courier+udp:127.0.0.1:7000/2.3"));
        assert!(takes("courier+udp:127.0.0.1:7000", "courier+udp:127.0.0.1:7000/2.3"));
        assert!(takes(tcp, "stock@127.0.0.1:7000") && !takes(tcp, "other@127.0.0.1:7000"));
        assert!(!takes("onc+tcp:127.0.0.1:7000", "stock@127.0.0.1:7000"));
    }

    #[test]
    fn addresses_of_courier_lead_to_its_port() {
        let port = |address: &str| {
            let address: Address = address.parse().unwrap();
            port(&address, address.place().unwrap())
        };
        assert_eq!(port("courier+tcp:127.0.0.1"), 530);
        assert_eq!(port("courier+udp:127.0.0.1/2.3"), 530);
        assert_eq!(port("courier+tcp:127.0.0.1:7000"), 7000);
        assert_eq!(port("courier+exchange:127.0.0.1"), Place::DEFAULT_PORT);
        assert_eq!(port("onc+tcp:127.0.0.1"), 0);
    }
}
