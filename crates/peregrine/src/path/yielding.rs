//! [`YieldPolicy`]: when a thread that polls for datagrams yields its processor.

/// Decides when a polling thread yields its processor to other threads.
///
/// A yield takes as long as several polls. So the thread yields seldom, unless its last yield was useful.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::path) struct YieldPolicy {
    /// Whether a datagram arrived during the last yield. If so, the sender probably runs on the same
    /// processor as this thread.
    helped: bool,
}

impl YieldPolicy {
    /// The number of rounds of polls between two yields, if the last yield was not useful.
    const ROUNDS: u32 = 8;

    /// Returns whether the thread must yield after this number of rounds.
    #[inline]
    pub(in crate::path) const fn is_due(self, rounds: u32) -> bool {
        self.helped || rounds.is_multiple_of(Self::ROUNDS)
    }

    /// Notes that a datagram arrived after this number of rounds. `at_once` is true if the datagram arrived
    /// at the first poll of a round.
    #[inline]
    pub(in crate::path) const fn note_arrival(&mut self, rounds: u32, at_once: bool) {
        self.helped = at_once && rounds > 0 && self.is_due(rounds);
    }
}
