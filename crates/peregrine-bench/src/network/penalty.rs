//! Defines the rows of Tables 1 and 2 of the Peregrine paper. These tables show the time to move packets from
//! one machine to the other.
//!
//! The *network penalty* is half of a round trip in which each side sends the packets once. Both sides poll
//! all the time. The packet sizes are those of the paper, and include everything after the Ethernet header.
//! The packets are sent over UDP. Over the veth pair, they are also sent as raw Ethernet frames, as in the
//! paper. The paper's smallest packet is smaller than our smallest frame, so it is sent over UDP only.

use super::raw::LINK_PAYLOAD;
use super::wire::{HEADER, IP_UDP, Packets};

/// The name of the limit in every row.
pub(crate) const LIMIT: &str = "penalty";
/// The case in which a blast is sent in two different orders of packets.
pub(crate) const ORDER: &str = "blast-order";

/// A row of the paper's tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Penalty {
    /// The name of the case in every row of results.
    pub(crate) case: &'static str,
    /// The size of each packet in bytes, with its IP header.
    bytes: usize,
    /// The number of packets.
    count: usize,
}

/// The seven rows of Table 1, and the six rows of Table 2 with more than one packet.
pub(crate) const ALL: [Penalty; 13] = [
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
    full("packets-64", 64),
];

const fn one(case: &'static str, bytes: usize) -> Penalty {
    Penalty { case, bytes, count: 1 }
}

const fn full(case: &'static str, count: usize) -> Penalty {
    Penalty { case, bytes: 1500, count }
}

impl Penalty {
    /// Returns the packets of each direction over UDP.
    pub(crate) const fn packets(self) -> Packets {
        let segment = self.bytes - IP_UDP;
        Packets { bytes: segment * self.count, segment }
    }

    /// Returns the packets of each direction for raw Ethernet frames, or `None` if our frames cannot be so
    /// small.
    pub(crate) fn frames(self) -> Option<Packets> {
        let segment = self.bytes - LINK_PAYLOAD;
        (segment >= HEADER).then_some(Packets { bytes: segment * self.count, segment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_the_size_in_their_name() {
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
