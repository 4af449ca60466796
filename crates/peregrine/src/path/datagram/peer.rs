//! The state that the client and the server keep about each other, and settings that both use.

pub(super) mod piece_sizes;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::address::host_of;
use crate::protocol::exchange::flow::{Flow, FlowAccess};
use crate::protocol::exchange::time::Moment;
use crate::sync::Mutex;
use crate::sys::{self, Address};

/// The size in bytes of a socket's receive buffer, and of its send buffer.
pub(super) const BUFFER_BYTES: usize = 8 << 20;

/// Returns the time of the protocol's clock. This clock also advances while the machine is suspended.
#[inline]
pub(super) fn moment() -> Moment {
    Moment(sys::boot_ns())
}

/// The congestion control of the network path to a peer. All handles of that peer share this congestion
/// control.
#[derive(Debug)]
pub(super) struct PeerFlow(Mutex<Flow>);

impl PeerFlow {
    /// Creates the state for a network path about which nothing is known yet.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Flow::new(None))))
    }
}

impl FlowAccess for PeerFlow {
    fn with_flow<R>(&self, with: impl FnOnce(&mut Flow) -> R) -> R {
        with(&mut self.0.lock())
    }
}

/// The address of a client, as the network shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PeerAddress {
    Ip(IpAddr),
    /// A hardware address.
    Link([u8; 6]),
}

impl PeerAddress {
    /// Returns the address of a client without its port or endpoint.
    pub(super) fn of(address: &Address) -> Self {
        match address.link() {
            Some((hardware, _)) => Self::Link(hardware),
            None => Self::Ip(SocketAddr::from(*address).ip()),
        }
    }

    /// Returns the address of the client's host. Limits per host apply to this address.
    pub(super) fn host(self) -> Self {
        match self {
            Self::Ip(address) => Self::Ip(host_of(address)),
            Self::Link(_) => self,
        }
    }
}

/// Decides when a polling thread yields its processor to other threads.
///
/// A yield takes as long as several polls. So the thread yields seldom, unless its last yield was useful.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct YieldPolicy {
    /// Whether a datagram arrived during the last yield. If so, the sender probably runs on the same
    /// processor as this thread.
    helped: bool,
}

impl YieldPolicy {
    /// The number of rounds of polls between two yields, if the last yield was not useful.
    const ROUNDS: u32 = 8;

    /// Returns whether the thread must yield after this number of rounds.
    #[inline]
    pub(super) const fn is_due(self, rounds: u32) -> bool {
        self.helped || rounds.is_multiple_of(Self::ROUNDS)
    }

    /// Notes that a datagram arrived after this number of rounds. `at_once` is true if the datagram arrived
    /// at the first poll of a round.
    #[inline]
    pub(super) const fn note_arrival(&mut self, rounds: u32, at_once: bool) {
        self.helped = at_once && rounds > 0 && self.is_due(rounds);
    }
}

/// Returns the number of datagrams that one sender may have in a receive buffer of `buffer` bytes. Each
/// datagram contains `piece` bytes of a message. The kernel also counts the header of each datagram, and
/// about 770 bytes of its own data. Half of the buffer is left for other senders.
pub(super) fn credits(buffer: usize, piece: u32) -> u16 {
    let each = piece as usize + 64 + 768;
    u16::try_from(buffer / 2 / each).unwrap_or(u16::MAX).clamp(2, 1024)
}
