//! Impairs packets on their way. A seed determines all decisions, so a run can be repeated.
//!
//! Damage needs care. In a real network, the checksum of UDP or the check sequence of Ethernet detects most
//! damage, and the packet is lost. But when a relay forwards a damaged datagram, the kernel computes a
//! correct checksum for the damaged bytes. Likewise, an interface computes a correct check sequence for a
//! damaged frame. Bits are therefore flipped only where the protocol has its own checks. These are all
//! headers, and payloads whose header says that they are checked. Such payloads are in binding packets, in
//! reports of received fragments, and in messages with payload checks, which are the default on raw Ethernet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// How packets are impaired. Rates are per thousand packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Impairments {
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    /// The rate of packets that are delayed by up to `delayed_us` additional microseconds. Later packets may
    /// overtake them.
    pub(crate) delayed: u64,
    pub(crate) delayed_us: u64,
    pub(crate) damaged: u64,
    /// The minimum delay of every packet, in microseconds.
    pub(crate) delay_us: u64,
    /// The interval in which all packets are lost. It is given in milliseconds after the first packet.
    pub(crate) cut_ms: (u64, u64),
}

/// A packet that is to be forwarded: the time when it is due, its number, its direction, and its bytes.
type Later<W> = (Instant, u64, W, Vec<u8>);

/// Packets that are in flight, each in one direction.
pub(crate) struct InFlight<W> {
    impairments: Impairments,
    random: u64,
    later: BinaryHeap<Reverse<Later<W>>>,
    numbered: u64,
    first: Option<Instant>,
    /// The number of bytes that precede a packet's header.
    before: usize,
}

/// The offset of the flags in a packet's header.
const FLAGS_AT: usize = 28;
/// The flag in a header that says that the payload has a check.
const CHECKED: u8 = 4;
const HEADER_BYTES: usize = 64;

impl<W: Ord + Copy> InFlight<W> {
    /// Makes an empty set of packets in flight. `before` is the number of bytes before a packet's header.
    pub(crate) const fn new(impairments: Impairments, seed: u64, before: usize) -> Self {
        let later = BinaryHeap::new();
        Self { impairments, random: seed | 1, later, numbered: 0, first: None, before }
    }

    /// Changes how the packets that are sent from now on are impaired.
    pub(crate) const fn impair(&mut self, impairments: Impairments) {
        self.impairments = impairments;
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % end.max(1)
    }

    fn chance(&mut self, of_thousand: u64) -> bool {
        self.below(1000) < of_thousand
    }

    /// Returns the time until the next packet is due, but at most `limit`.
    pub(crate) fn rest(&self, limit: Duration) -> Duration {
        let due = self.later.peek().map(|Reverse((due, ..))| *due);
        due.map_or(limit, |due| due.saturating_duration_since(Instant::now()).min(limit))
    }

    /// Decides whether a packet is lost, duplicated, damaged or delayed.
    pub(crate) fn begin(&mut self, direction: W, packet: &[u8]) {
        let now = Instant::now();
        let since = now - *self.first.get_or_insert(now);
        let (from, until) = self.impairments.cut_ms;
        let cut = (from..until).contains(&(since.as_millis() as u64));
        if cut || self.chance(self.impairments.lost) {
            return;
        }
        let mut copies = 1;
        if self.chance(self.impairments.duplicated) {
            copies = 2;
        }
        for _ in 0..copies {
            let mut packet = packet.to_vec();
            if self.chance(self.impairments.damaged) {
                self.damage(&mut packet);
            }
            let mut delay = self.impairments.delay_us;
            if self.chance(self.impairments.delayed) {
                delay += self.below(self.impairments.delayed_us);
            }
            self.numbered += 1;
            let due = now + Duration::from_micros(delay);
            self.later.push(Reverse((due, self.numbered, direction, packet)));
        }
    }

    /// Damages a packet. Either one of the protocol's own checks has to detect the damage, or the damaged
    /// frame is addressed to another host.
    fn damage(&mut self, packet: &mut Vec<u8>) {
        let bytes = packet.len() as u64;
        match self.below(4) {
            0 => packet.truncate(self.below(bytes) as usize),
            1 => packet.extend_from_slice(&[0xa5; 32][..1 + self.below(31) as usize]),
            _ => {
                let flags = packet.get(self.before + FLAGS_AT);
                let checked = flags.is_some_and(|flags| flags & CHECKED != 0);
                let headers = (self.before + HEADER_BYTES) as u64;
                let most = if checked { bytes } else { bytes.min(headers) };
                for _ in 0..1 + self.below(3) {
                    let at = self.below(most) as usize;
                    let bit = 1 << self.below(8);
                    if let Some(byte) = packet.get_mut(at) {
                        *byte ^= bit;
                    }
                }
            }
        }
    }

    /// Removes a packet that is due now, and returns it.
    pub(crate) fn arrive(&mut self) -> Option<(W, Vec<u8>)> {
        let due = self.later.peek().is_some_and(|Reverse((due, ..))| *due <= Instant::now());
        let Reverse((.., direction, packet)) = due.then(|| self.later.pop()).flatten()?;
        Some((direction, packet))
    }
}
