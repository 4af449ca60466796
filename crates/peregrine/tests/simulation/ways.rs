//! What lies between clients and servers: addresses that change, address translation that forgets
//! flows, and a balancer that leads each flow to one of several servers.

use std::collections::BTreeMap;

use crate::network::{Address, host_of, machine_of};
use crate::random::Random;

/// Bits of an address below those of which of a machine's addresses it is, and below its port.
const HOME_AT: u32 = 8;
const PORT_AT: u32 = 16;

/// A socket of a client, and the flow that its packets make.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Which of the machine's addresses the socket has.
    home: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Packets come from this address, and those to it arrive.
    Open(Address),
    /// The next packet makes it anew, with another port.
    Expired,
    /// Nothing of it gets through any more.
    Swallowed,
}

/// What becomes of a packet of a client on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// It seems to come from there.
    From(Address),
    /// It is dropped on its way.
    Swallowed,
    /// The machine has lost the address of the socket.
    Stranded,
}

#[derive(Debug)]
pub(crate) struct Ways {
    /// Which of its addresses each machine has now.
    homes: Vec<u32>,
    /// By machine and socket.
    flows: BTreeMap<(Address, u32), Flow>,
    ports: u32,
    /// Changes with the balancer's mind.
    salt: u64,
}

impl Ways {
    pub(crate) fn new(machines: usize) -> Self {
        Self { homes: vec![0; machines], flows: BTreeMap::new(), ports: 0, salt: 0 }
    }

    /// A packet of a socket sets out.
    pub(crate) fn leave(&mut self, machine: Address, socket: u32) -> Leaves {
        let home = self.homes[machine as usize];
        let new = Flow { home, state: State::Expired };
        let flow = self.flows.entry((machine, socket)).or_insert(new);
        if flow.home != home {
            return Leaves::Stranded;
        }
        if flow.state == State::Expired {
            // Enough that a late packet does not meet the next flow of its port.
            self.ports = (self.ports + 1) % (1 << (32 - PORT_AT));
            flow.state = State::Open(machine | home << HOME_AT | self.ports << PORT_AT);
        }
        match flow.state {
            State::Open(address) => Leaves::From(address),
            _ => Leaves::Swallowed,
        }
    }

    /// The socket at which a packet to an address arrives, if it does.
    pub(crate) fn arrive(&self, to: Address) -> Option<u32> {
        let machine = machine_of(to);
        let home = *self.homes.get(machine as usize)?;
        let mut flows = self.flows.range((machine, 0)..=(machine, u32::MAX));
        let flow = flows.find(|(_, flow)| flow.state == State::Open(to) && flow.home == home);
        flow.map(|((_, socket), _)| *socket)
    }

    /// The machine has another address from now on, and none of those before.
    pub(crate) fn moves(&mut self, machine: Address) {
        let home = &mut self.homes[machine as usize];
        *home = (*home + 1) % (1 << (PORT_AT - HOME_AT));
    }

    /// The flows of a machine are forgotten: they are made anew by the next packet, or are dead.
    pub(crate) fn forget(&mut self, machine: Address, anew: bool) {
        for (_, flow) in self.flows.range_mut((machine, 0)..=(machine, u32::MAX)) {
            if let State::Open(_) = flow.state {
                flow.state = if anew { State::Expired } else { State::Swallowed };
            }
        }
    }

    /// Which of so many servers the packets of a flow get to.
    pub(crate) fn server_of(&self, from: Address, servers: usize) -> usize {
        let mixed = Random::new(u64::from(from) ^ self.salt).next();
        (mixed >> 32) as usize % servers
    }

    /// Flows lead elsewhere from now on.
    pub(crate) fn rebalance(&mut self) {
        self.salt += 1 << 32;
    }

    /// An address of a machine that is in use, if one is.
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
fn flow_that_expired_comes_from_another_port_of_the_same_host() {
    let mut ways = Ways::new(2);
    let Leaves::From(first) = ways.leave(1, 7) else { panic!("it leaves") };
    assert_eq!((ways.arrive(first), machine_of(first)), (Some(7), 1));
    ways.forget(1, true);
    assert_eq!(ways.arrive(first), None);
    let Leaves::From(then) = ways.leave(1, 7) else { panic!("it leaves") };
    assert!(then != first && host_of(then) == host_of(first));
    ways.forget(1, false);
    assert_eq!((ways.leave(1, 7), ways.arrive(then)), (Leaves::Swallowed, None));
    ways.moves(1);
    assert_eq!(ways.leave(1, 7), Leaves::Stranded);
    let Leaves::From(moved) = ways.leave(1, 8) else { panic!("it leaves") };
    assert_ne!(host_of(moved), host_of(first));
}
