//! The receive buffer of a simulated message: the ranges of bytes that have arrived, and the message's token,
//! which represents the bytes.

use core::ops::Range;
use std::collections::BTreeMap;

use crate::network::{Packet, Token};
use crate::oracle::Oracle;

#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    total: u32,
    token: Option<Token>,
    /// The received ranges. Ranges that touch are joined, so there are few of them, however large the message
    /// is.
    ranges: BTreeMap<u32, u32>,
}

impl Buffer {
    pub(crate) fn new(total: u32) -> Self {
        Self { total, token: None, ranges: BTreeMap::new() }
    }

    /// Prepares for a message of `total` bytes.
    pub(crate) fn resize(&mut self, total: u32) {
        self.total = total;
    }

    /// Records the range of a packet's bytes as received.
    pub(crate) fn place(&mut self, packet: &Packet, at: Range<u32>, oracle: &mut Oracle) {
        let Some((token, range)) = &packet.data else {
            return oracle.violated("a piece was placed that no packet contained".into());
        };
        if *range != at {
            oracle.violated(format!("{range:?} of {token} was placed at {at:?}"));
        }
        if *self.token.get_or_insert(*token) != *token {
            oracle.violated(format!("pieces of {token} and {:?} in one message", self.token));
        }
        let (mut start, mut end) = (at.start, at.end);
        while let Some((&from, &to)) = self.ranges.range(..=end).next_back()
            && to >= start
        {
            self.ranges.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.ranges.insert(start, end);
    }

    /// Checks that the message is complete, and returns its token.
    pub(crate) fn whole(&mut self, oracle: &mut Oracle) -> Token {
        let mut end = 0;
        for (from, to) in &self.ranges {
            if *from > end {
                oracle.violated(format!("{end}..{from} of {:?} is missing", self.token));
            }
            end = end.max(*to);
        }
        if end != self.total {
            oracle.violated(format!("{end} of {} bytes were received", self.total));
        }
        self.token.unwrap_or_default()
    }
}
