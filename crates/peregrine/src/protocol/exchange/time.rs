//! Moments. The functions of the protocol take the time as an argument, and never read a clock. The driver,
//! the code that calls these functions, reads the clock.

/// A moment, in nanoseconds since an origin. The whole process uses the same origin.
///
/// The clock must not run backwards. It may stop, for example while the machine is suspended, or run at a
/// wrong rate. The clock affects waiting times, but not whether a call is reported as executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

#[cfg(test)]
#[allow(dead_code)] // used by the simulator
pub(crate) const MICROSECOND: u64 = 1_000;
pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

impl Moment {
    /// Returns the moment that comes `nanoseconds` after this one.
    #[inline]
    pub(crate) const fn after(self, nanoseconds: u64) -> Self {
        Self(self.0.saturating_add(nanoseconds))
    }

    /// Returns the number of nanoseconds since `earlier`, or 0 if `earlier` is in fact later.
    #[inline]
    pub(crate) const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
