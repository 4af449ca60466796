//! The state that the client and the server keep about each other, and settings that both use.

pub(super) mod piece_sizes;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::address::host_of;
use crate::device::Route;
use crate::error::{CallError, Kind, NO_DATAGRAMS, Phase};
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

/// Returns the number of datagrams that one sender may have in a receive buffer of `buffer` bytes. Each
/// datagram contains `piece` bytes of a message. The kernel also counts the header of each datagram, and
/// about 770 bytes of its own data. Half of the buffer is left for other senders.
pub(super) fn credits(buffer: usize, piece: u32) -> u16 {
    let each = piece as usize + 64 + 768;
    u16::try_from(buffer / 2 / each).unwrap_or(u16::MAX).clamp(2, 1024)
}

/// Returns the error for a server that does not answer. `refused` is how often its machine has reported that no
/// socket has the port.
#[cold]
pub(super) fn silent(to: &Route, refused: u32) -> CallError {
    if refused > 0 {
        let text = format!("no server listens at {to}");
        return CallError::not_executed(Kind::Unreachable, Phase::Bind, text);
    }
    let error =
        CallError::not_executed(Kind::TimedOut, Phase::Bind, format!("{to} does not answer"));
    error.with_advice(NO_DATAGRAMS)
}
