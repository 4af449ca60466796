//! The datagram path: packet exchange over a device that moves datagrams.
//!
//! The protocol itself is [`exchange`](crate::protocol::exchange), which sees lengths only. Here is
//! what it must not know: sockets, clocks, locks, and the memory in which messages lie.

mod association;
mod bind;
mod checks;
mod client;
mod connect;
mod keeping;
mod lane;
mod linked;
mod message;
mod packing;
mod server;
mod sharing;
mod turn;
mod widths;

pub(crate) use connect::{OverEthernet, OverUdp};
pub(crate) use server::Datagrams;
pub use server::Losses;
#[cfg(any(test, fuzzing))]
pub(crate) use server::fuzzing;

use std::sync::Arc;

use crate::protocol::exchange::flow::{Flow, Lend};
use crate::protocol::exchange::time::Moment;
use crate::sync::Mutex;
use crate::sys;

/// Bytes of the receive buffer of a socket that many send to, and of one that sends.
pub(crate) const BUFFER_BYTES: usize = 8 << 20;

/// The time, as the protocol counts it: it goes on while the machine is suspended.
#[inline]
pub(crate) fn moment() -> Moment {
    Moment(sys::boot_ns())
}

/// What is known of the path to a peer: all handles that lead to it share one.
#[derive(Debug)]
pub(crate) struct PeerFlow(Mutex<Flow>);

impl PeerFlow {
    /// Nothing is known yet.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Flow::new(None))))
    }
}

impl Lend for PeerFlow {
    fn lend<R>(&self, with: impl FnOnce(&mut Flow) -> R) -> R {
        with(&mut self.0.lock())
    }
}

/// When a thread that looks offers its processor: to do so takes as long as several looks, so it
/// does that seldom, unless it was of use the last time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offers {
    /// What was waited for came when the processor had been offered: both sides share it.
    helped: bool,
}

impl Offers {
    /// Rounds of looks between two offers.
    const ROUNDS: u32 = 8;

    /// Whether to offer it after so many rounds of looks.
    #[inline]
    pub(crate) const fn is_due(self, rounds: u32) -> bool {
        self.helped || rounds.is_multiple_of(Self::ROUNDS)
    }

    /// Something came after so many rounds, at the first look of the next one or later.
    #[inline]
    pub(crate) const fn came(&mut self, rounds: u32, at_once: bool) {
        self.helped = at_once && rounds > 0 && self.is_due(rounds);
    }
}

/// How many datagrams of so many bytes a receive buffer holds that many senders share; the kernel
/// counts some 700 bytes more for each, and half is left for the others.
pub(crate) fn credits(buffer: usize, piece: u32) -> u16 {
    let each = piece as usize + 64 + 768;
    u16::try_from(buffer / 2 / each).unwrap_or(u16::MAX).clamp(2, 1024)
}
