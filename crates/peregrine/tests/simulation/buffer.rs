//! A message that arrives, as ranges and the token of which message they are.

use core::ops::Range;
use std::collections::BTreeMap;

use crate::network::{Packet, Token};
use crate::oracle::Oracle;

#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    total: u32,
    token: Option<Token>,
    /// Those that came, joined where they touch: few, however large the message is.
    ranges: BTreeMap<u32, u32>,
}

impl Buffer {
    pub(crate) fn new(total: u32) -> Self {
        Self { total, token: None, ranges: BTreeMap::new() }
    }

    /// A message of so many bytes arrives here, if another one did before.
    pub(crate) fn resize(&mut self, total: u32) {
        self.total = total;
    }

    /// Puts what came with a packet to its place.
    pub(crate) fn place(&mut self, packet: &Packet, at: Range<u32>, oracle: &mut Oracle) {
        let Some((token, range)) = &packet.data else {
            return oracle.violated("a piece was placed that no packet had".into());
        };
        if *range != at {
            oracle.violated(format!("{range:?} of {token} was placed at {at:?}"));
        }
        if *self.token.get_or_insert(*token) != *token {
            oracle.violated(format!("{token} and {:?} in one message", self.token));
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

    /// The message is said to be whole; which it is.
    pub(crate) fn whole(&mut self, oracle: &mut Oracle) -> Token {
        let mut end = 0;
        for (from, to) in &self.ranges {
            if *from > end {
                oracle.violated(format!("{end}..{from} of {:?} is missing", self.token));
            }
            end = end.max(*to);
        }
        if end != self.total {
            oracle.violated(format!("{end} of {} bytes came", self.total));
        }
        self.token.unwrap_or_default()
    }
}
