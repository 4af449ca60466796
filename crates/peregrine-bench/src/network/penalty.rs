//! Peregrine's Tables 1 and 2: what it takes to bring packets from one machine to the other.
//!
//! The *network penalty* is half of the time of the same packets there and back, both sides looking
//! all the time. The sizes are Peregrine's, and count everything behind the Ethernet header, as
//! there; the packets are UDP's, and on a link those of raw Ethernet too, as Peregrine's were, of which
//! ours are never as small as its smallest.

use super::raw::LINK_PAYLOAD;
use super::wire::{HEADER, IP_UDP, Packets};

/// As it stands in every row.
pub(crate) const LIMIT: &str = "penalty";
/// The experiment with the order of packets.
pub(crate) const ORDER: &str = "blast-order";

/// A row of the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Penalty {
    /// As it stands in every row.
    pub(crate) case: &'static str,
    /// Bytes of a packet with its IP header.
    bytes: usize,
    count: usize,
}

/// The seven of Table 1, and the five of Table 2 that are more than one packet.
pub(crate) const ALL: [Penalty; 12] = [
    one("packet-46", 46),
    one("packet-100", 100),
    one("packet-200", 200),
    one("packet-400", 400),
    one("packet-800", 800),
    one("packet-1024", 1024),
    one("packet-1500", 1500),
    full("packets-2", 2),
    full("packets-4", 4),
    full("packets-8", 8),
    full("packets-16", 16),
    full("packets-32", 32),
];

const fn one(case: &'static str, bytes: usize) -> Penalty {
    Penalty { case, bytes, count: 1 }
}

const fn full(case: &'static str, count: usize) -> Penalty {
    Penalty { case, bytes: 1500, count }
}

impl Penalty {
    /// What is sent each way.
    pub(crate) const fn packets(self) -> Packets {
        let segment = self.bytes - IP_UDP;
        Packets { bytes: segment * self.count, segment }
    }

    /// The same in frames of our own, if they can be so small.
    pub(crate) fn frames(self) -> Option<Packets> {
        let segment = self.bytes - LINK_PAYLOAD;
        (segment >= HEADER).then_some(Packets { bytes: segment * self.count, segment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_as_large_as_they_are_called() {
        for penalty in ALL {
            let Packets { bytes, segment } = penalty.packets();
            assert_eq!(bytes % segment, 0);
            let frames = penalty.frames();
            assert_eq!(frames.is_none(), penalty.bytes == 46);
            assert!(frames.is_none_or(|frames| frames.count() == penalty.count));
            let number = if penalty.count > 1 { penalty.count } else { penalty.bytes };
            assert!(penalty.case.ends_with(&format!("-{number}")), "{}", penalty.case);
        }
    }
}
