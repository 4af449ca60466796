//! The simulated path between clients and servers. Addresses of machines change, and address translation
//! (NAT) forgets flows. A load balancer assigns each flow to one of several servers.

use std::collections::BTreeMap;

use crate::network::{Address, host_of, machine_of};
use crate::random::Random;

/// The bit of an [`Address`] at which the number of the machine's address begins.
const HOME_AT: u32 = 8;
/// The bit of an [`Address`] at which the port begins.
const PORT_AT: u32 = 16;

/// The flow of a client's socket: how its packets leave, and how packets reach it.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// The number of the machine's address that the socket uses.
    home: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The packets of the flow leave from this address, and packets to this address reach the socket.
    Open(Address),
    /// The next packet of the socket begins a new flow, with another port.
    Expired,
    /// All packets of the flow are dropped.
    Dropped,
}

/// What happens to an outgoing packet of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// The packet leaves from this address.
    From(Address),
    /// The packet is dropped.
    Dropped,
    /// The packet cannot be sent, because the machine no longer has the address of the socket.
    AddressLost,
}

#[derive(Debug)]
pub(crate) struct Paths {
    /// For each machine, the number of its current address.
    homes: Vec<u32>,
    /// The flows, by machine and socket.
    flows: BTreeMap<(Address, u32), Flow>,
    /// The port of the newest flow.
    ports: u32,
    /// A number that the load balancer combines with the address of a flow to choose the flow's server. When
    /// this number changes, flows are assigned to other servers.
    salt: u64,
}

impl Paths {
    pub(crate) fn new(machines: usize) -> Self {
        Self { homes: vec![0; machines], flows: BTreeMap::new(), ports: 0, salt: 0 }
    }

    /// Decides what happens to a packet that a socket sends. Opens a flow for the socket if necessary.
    pub(crate) fn leave(&mut self, machine: Address, socket: u32) -> Departure {
        let home = self.homes[machine as usize];
        let new = Flow { home, state: State::Expired };
        let flow = self.flows.entry((machine, socket)).or_insert(new);
        if flow.home != home {
            return Departure::AddressLost;
        }
        if flow.state == State::Expired {
            // A port is not used again for a long time. So a late packet does not reach a newer flow with the
            // same port.
            self.ports = (self.ports + 1) % (1 << (32 - PORT_AT));
            flow.state = State::Open(machine | home << HOME_AT | self.ports << PORT_AT);
        }
        match flow.state {
            State::Open(address) => Departure::From(address),
            _ => Departure::Dropped,
        }
    }

    /// Returns the socket at which a packet to an address arrives, or `None` if the packet does not arrive.
    pub(crate) fn arrive(&self, to: Address) -> Option<u32> {
        let machine = machine_of(to);
        let home = *self.homes.get(machine as usize)?;
        let mut flows = self.flows.range((machine, 0)..=(machine, u32::MAX));
        let flow = flows.find(|(_, flow)| flow.state == State::Open(to) && flow.home == home);
        flow.map(|((_, socket), _)| *socket)
    }

    /// Replaces the address of a machine by another one.
    pub(crate) fn moves(&mut self, machine: Address) {
        let home = &mut self.homes[machine as usize];
        *home = (*home + 1) % (1 << (PORT_AT - HOME_AT));
    }

    /// Makes address translation forget the flows of a machine. If `anew` is true, the next packets begin new
    /// flows. Otherwise these packets are lost.
    pub(crate) fn forget(&mut self, machine: Address, anew: bool) {
        for (_, flow) in self.flows.range_mut((machine, 0)..=(machine, u32::MAX)) {
            if let State::Open(_) = flow.state {
                flow.state = if anew { State::Expired } else { State::Dropped };
            }
        }
    }

    /// Returns the server that receives the packets of a flow.
    pub(crate) fn server_of(&self, from: Address, servers: usize) -> usize {
        let mixed = Random::new(u64::from(from) ^ self.salt).next();
        (mixed >> 32) as usize % servers
    }

    /// Changes the choice of the load balancer, so that flows lead to other servers from now on.
    pub(crate) fn rebalance(&mut self) {
        self.salt += 1 << 32;
    }

    /// Returns the address of an open flow of a machine, or the number of the machine if no flow is open.
    pub(crate) fn address_of(&self, machine: Address, random: &mut Random) -> Address {
        let flows = self.flows.range((machine, 0)..=(machine, u32::MAX));
        let open = flows.filter_map(|(_, flow)| match flow.state {
            State::Open(address) => Some(address),
            _ => None,
        });
        let all: Vec<_> = open.collect();
        if all.is_empty() { machine } else { *random.pick(&all) }
    }
}

#[test]
fn expired_flow_returns_from_another_port_of_the_host() {
    let mut paths = Paths::new(2);
    let Departure::From(first) = paths.leave(1, 7) else { panic!("the packet is dropped") };
    assert_eq!((paths.arrive(first), machine_of(first)), (Some(7), 1));
    paths.forget(1, true);
    assert_eq!(paths.arrive(first), None);
    let Departure::From(then) = paths.leave(1, 7) else { panic!("the packet is dropped") };
    assert!(then != first && host_of(then) == host_of(first));
    paths.forget(1, false);
    assert_eq!((paths.leave(1, 7), paths.arrive(then)), (Departure::Dropped, None));
    paths.moves(1);
    assert_eq!(paths.leave(1, 7), Departure::AddressLost);
    let Departure::From(moved) = paths.leave(1, 8) else { panic!("the packet is dropped") };
    assert_ne!(host_of(moved), host_of(first));
}
