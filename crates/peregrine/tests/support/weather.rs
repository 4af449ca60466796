//! What becomes of packets on their way, from a seed, so that it can be done again.
//!
//! What is damaged: a relay that receives and sends over UDP has the kernel make a checksum of what
//! it sends, so a bit that it flips arrives behind a checksum that is right; and so it is with a frame,
//! whose check is the interface's. A network cannot do that: what it damages, UDP's checksum finds
//! (save for one in 65,536, of which Ethernet's finds the rest), and the packet is gone. Therefore bits
//! are flipped here only where the protocol has checks of its own: in headers, which always have one,
//! and behind headers that say they have one (binding, what a side has of a message, and messages if
//! payload checks are wished for, as they are on raw Ethernet unless somebody says otherwise).
//! Elsewhere damage is loss.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// What becomes of packets; so many of a thousand each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    /// Held back for up to so many microseconds more, so that others overtake them.
    pub(crate) late: u64,
    pub(crate) late_us: u64,
    pub(crate) damaged: u64,
    /// How long each takes at least.
    pub(crate) delay_us: u64,
    /// After the first packet, when nothing gets through, from and until, in milliseconds.
    pub(crate) cut_ms: (u64, u64),
}

/// What is to be passed on: when, the how many-th packet of all, which way, and its bytes.
type Later<W> = (Instant, u64, W, Vec<u8>);

/// Packets that are under way, each in some direction.
pub(crate) struct UnderWay<W> {
    weather: Weather,
    random: u64,
    later: BinaryHeap<Reverse<Later<W>>>,
    numbered: u64,
    first: Option<Instant>,
    /// Bytes that stand before a packet's header.
    before: usize,
}

/// Where a header has its flags, and the one that says that what follows is checked.
const FLAGS_AT: usize = 28;
const CHECKED: u8 = 4;
const HEADER_BYTES: usize = 64;

impl<W: Ord + Copy> UnderWay<W> {
    /// None yet. There are so many bytes before a packet's header.
    pub(crate) const fn new(weather: Weather, seed: u64, before: usize) -> Self {
        let later = BinaryHeap::new();
        Self { weather, random: seed | 1, later, numbered: 0, first: None, before }
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

    /// How long nothing is due, at most `limit`.
    pub(crate) fn rest(&self, limit: Duration) -> Duration {
        let due = self.later.peek().map(|Reverse((due, ..))| *due);
        due.map_or(limit, |due| due.saturating_duration_since(Instant::now()).min(limit))
    }

    /// Decides what becomes of a packet.
    pub(crate) fn begin(&mut self, way: W, packet: &[u8]) {
        let now = Instant::now();
        let since = now - *self.first.get_or_insert(now);
        let (from, until) = self.weather.cut_ms;
        let cut = (from..until).contains(&(since.as_millis() as u64));
        if cut || self.chance(self.weather.lost) {
            return;
        }
        let mut copies = 1;
        if self.chance(self.weather.doubled) {
            copies = 2;
        }
        for _ in 0..copies {
            let mut packet = packet.to_vec();
            if self.chance(self.weather.damaged) {
                self.damage(&mut packet);
            }
            let mut delay = self.weather.delay_us;
            if self.chance(self.weather.late) {
                delay += self.below(self.weather.late_us);
            }
            self.numbered += 1;
            let due = now + Duration::from_micros(delay);
            self.later.push(Reverse((due, self.numbered, way, packet)));
        }
    }

    /// Damages a packet so that a check of the protocol's own has to find it, or leads a frame to
    /// somebody else.
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

    /// A packet that is to arrive now.
    pub(crate) fn arrive(&mut self) -> Option<(W, Vec<u8>)> {
        let due = self.later.peek().is_some_and(|Reverse((due, ..))| *due <= Instant::now());
        let Reverse((.., way, packet)) = due.then(|| self.later.pop()).flatten()?;
        Some((way, packet))
    }
}
