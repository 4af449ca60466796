//! Time as an argument: moments that somebody else read from a clock.

/// A moment: nanoseconds since anything, the same thing for everything on this side.
///
/// The clock must not run backwards. It may stand still, as that of a paused machine does, or go
/// wrong: how long things are waited for depends on it, and nothing that is said of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

#[cfg(test)]
#[allow(dead_code)] // the simulator counts in them
pub(crate) const MICROSECOND: u64 = 1_000;
pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

impl Moment {
    /// So many nanoseconds later.
    #[inline]
    pub(crate) const fn after(self, nanoseconds: u64) -> Self {
        Self(self.0.saturating_add(nanoseconds))
    }

    /// Nanoseconds since an earlier moment; 0 if it was not earlier.
    #[inline]
    pub(crate) const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
