//! Whether the calls of a procedure take the times that its interface promises: Lampson's specification of
//! performance, which fails when the times leave their expected distribution.
//!
//! A procedure is *late* from the moment when too many of its last 1,000 calls took longer than the limit. It is
//! in time again when 1,000 calls have ended since then, of which no more took longer than may. So it changes at
//! most twice in 1,000 calls. A call that has not been made yet counts as in time.

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use crate::counters::WithinCounts;
use crate::sys;

/// The number of calls that are considered.
const WINDOW: u32 = 1000;

/// The times of a procedure.
pub(super) struct Within {
    limit_ns: u64,
    /// Of how many calls in [`WINDOW`] the limit is promised.
    promised: u32,
    /// A bit for each of the last [`WINDOW`] calls: whether it was late.
    bits: [AtomicU64; (WINDOW as usize).div_ceil(64)],
    /// The number of bits that are set.
    late_now: AtomicU32,
    /// The number of calls.
    calls: AtomicU64,
    /// The number of calls that were late.
    late: AtomicU64,
    /// The number of the call with which the procedure became late, beginning with 1. 0 if it is in time.
    late_from: AtomicU64,
    /// When it became late, in nanoseconds since the machine was started.
    since_ns: AtomicU64,
}

/// The procedure has become late, or is in time again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    is_late: bool,
    /// How many of the last [`WINDOW`] calls were late.
    late: u32,
}

impl Within {
    /// Returns the times of a procedure of which `promised` in [`WINDOW`] calls take at most `limit_ns`.
    pub(super) fn new(limit_ns: u64, promised: u32) -> Self {
        Self {
            limit_ns,
            promised: promised.min(WINDOW),
            bits: Default::default(),
            late_now: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            late: AtomicU64::new(0),
            late_from: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
        }
    }

    pub(super) const fn is_late(&self, took_ns: u64) -> bool {
        took_ns > self.limit_ns
    }

    /// Counts a call that took `took_ns` nanoseconds. Returns the change that it causes.
    pub(super) fn count(&self, took_ns: u64) -> Option<Change> {
        let is_late = self.is_late(took_ns);
        let before = self.calls.fetch_add(1, Ordering::Relaxed);
        if is_late {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        let (number, late) = (before + 1, self.remember(before, is_late));
        let is_kept = late <= WINDOW - self.promised;
        let from = self.late_from.load(Ordering::Relaxed);
        let next = match from {
            0 if !is_kept => number,
            0 => return None,
            from if is_kept && number.saturating_sub(from) >= WINDOW.into() => 0,
            _ => return None,
        };
        // Of several threads that find the same change, one reports it.
        self.late_from.compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        if next != 0 {
            self.since_ns.store(sys::boot_ns(), Ordering::Relaxed);
        }
        Some(Change { is_late: next != 0, late })
    }

    /// Notes whether a call was late, in place of the call [`WINDOW`] calls before. `before` is the number of
    /// calls before it. Returns how many of the last calls were late.
    fn remember(&self, before: u64, is_late: bool) -> u32 {
        let place = (before % u64::from(WINDOW)) as usize;
        let (word, bit) = (&self.bits[place / 64], 1 << (place % 64));
        if (word.load(Ordering::Relaxed) & bit != 0) == is_late {
            return self.late_now.load(Ordering::Relaxed);
        }
        let was_late = match is_late {
            true => word.fetch_or(bit, Ordering::Relaxed),
            false => word.fetch_and(!bit, Ordering::Relaxed),
        } & bit
            != 0;
        // Each change of a bit changes the number by one. A thread may remove a bit before the thread that has
        // set it adds one. The number then wraps around for a moment, and counts as none.
        let late = match (was_late, is_late) {
            (false, true) => self.late_now.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
            (true, false) => self.late_now.fetch_sub(1, Ordering::Relaxed).wrapping_sub(1),
            _ => self.late_now.load(Ordering::Relaxed),
        };
        if late > WINDOW { 0 } else { late }
    }

    pub(super) fn counts(&self) -> WithinCounts {
        let is_late = self.late_from.load(Ordering::Relaxed) != 0;
        WithinCounts {
            limit_ns: self.limit_ns,
            promised: self.promised,
            calls: self.calls.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            late_now: self.late_now.load(Ordering::Relaxed).min(WINDOW),
            late_since: if is_late { self.since_ns.load(Ordering::Relaxed).max(1) } else { 0 },
        }
    }

    /// Returns the report of a change, for the program's hook.
    pub(super) const fn told<'a>(
        &self,
        export: &'a str,
        procedure: &'a str,
        change: Change,
    ) -> Late<'a> {
        let limit = Duration::from_nanos(self.limit_ns);
        Late { export, procedure, limit, most: WINDOW - self.promised, change }
    }
}

/// A hook that gets a report when a procedure becomes late, and when it is in time again.
pub(crate) type OnLate = dyn Fn(&Late<'_>) + Send + Sync;

/// A procedure that breaks the promise of its attribute `#[within(TIME)]`, or keeps it again:
/// [`Server::on_late`](crate::Server::on_late).
///
/// Displayed, it is a phrase such as `` `load` of `images` is late: 11 of the last 1000 calls took longer than
/// 20ms, and at most 10 may ``.
#[derive(Debug)]
pub struct Late<'a> {
    export: &'a str,
    procedure: &'a str,
    limit: Duration,
    /// How many of the last [`WINDOW`] calls may be late.
    most: u32,
    change: Change,
}

impl Late<'_> {
    /// Returns the name of the export.
    pub const fn export(&self) -> &str {
        self.export
    }

    /// Returns the name of the procedure.
    pub const fn procedure(&self) -> &str {
        self.procedure
    }

    /// Returns the time that calls may take.
    pub const fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns how many of the last 1,000 calls took longer.
    pub const fn late(&self) -> u32 {
        self.change.late
    }

    /// Returns whether the promise is broken from now on. If false, it is kept again.
    pub const fn is_late(&self) -> bool {
        self.change.is_late
    }
}

impl fmt::Display for Late<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { export, procedure, limit, most, change } = self;
        let state = if change.is_late { "is late" } else { "is in time again" };
        let late = change.late;
        write!(
            f,
            "`{procedure}` of `{export}` {state}: {late} of the last {WINDOW} calls took longer than \
             {limit:?}, and at most {most} may"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_TIME: u64 = 50;
    const LATE: u64 = 51;

    /// Counts calls, and returns the changes with the indexes of the calls that cause them.
    fn count(within: &Within, calls: &[(u64, usize)]) -> Vec<(usize, bool, u32)> {
        let calls = calls.iter().flat_map(|(took, times)| core::iter::repeat_n(*took, *times));
        let changes = calls.enumerate().map(|(index, took)| (index, within.count(took)));
        changes
            .filter_map(|(index, change)| Some((index, change?)))
            .map(|(index, Change { is_late, late })| (index, is_late, late))
            .collect()
    }

    #[test]
    fn more_late_calls_than_promised_break_the_promise() {
        let within = Within::new(IN_TIME, 990);
        // Ten of the first calls may be late, and the eleventh is one too many.
        assert_eq!(count(&within, &[(LATE, 10), (IN_TIME, 900)]), []);
        assert_eq!(count(&within, &[(LATE, 1)]), [(0, true, 11)]);
        assert_eq!((within.counts().late_now, within.counts().late), (11, 11));
        assert!(within.counts().late_since > 0);
        // The first ten leave the window, but the promise stays broken for 1,000 calls.
        assert_eq!(count(&within, &[(IN_TIME, 999)]), []);
        assert_eq!(within.counts().late_now, 1);
        assert_eq!(count(&within, &[(IN_TIME, 1)]), [(0, false, 0)]);
        assert_eq!((within.counts().late_since, within.counts().calls), (0, 1911));
    }

    #[test]
    fn late_calls_that_are_far_apart_do_not_break_the_promise() {
        let within = Within::new(IN_TIME, 990);
        for _ in 0..100 {
            assert_eq!(count(&within, &[(LATE, 1), (IN_TIME, 99)]), []);
        }
        assert_eq!((within.counts().late_now, within.counts().late), (10, 100));
        let often = count(&within, &[(LATE, 1), (IN_TIME, 49), (LATE, 1), (IN_TIME, 49)]);
        assert_eq!(often, [(50, true, 11)]);
    }

    #[test]
    fn changes_are_seldom_at_the_limit() {
        let within = Within::new(IN_TIME, 999);
        let mut changes = 0;
        for _ in 0..100 {
            changes +=
                count(&within, &[(LATE, 1), (IN_TIME, 400), (LATE, 1), (IN_TIME, 999)]).len();
        }
        // There were 140,100 calls.
        assert!(changes > 10 && changes <= 2 * 141, "{changes}");
        let always = Within::new(IN_TIME, 990);
        assert_eq!(count(&always, &[(LATE, 50_000)]), [(10, true, 11)]);
    }

    #[test]
    fn other_promises_permit_other_numbers() {
        for (promised, most) in [(1000, 0), (999, 1), (900, 100), (1, 999)] {
            let within = Within::new(IN_TIME, promised);
            assert_eq!(count(&within, &[(LATE, most)]), [], "{promised}");
            let late = most as u32 + 1;
            assert_eq!(count(&within, &[(LATE, 1)]), [(0, true, late)], "{promised}");
        }
    }

    #[test]
    fn threads_report_each_change_once_and_lose_no_call() {
        let within = Within::new(IN_TIME, 990);
        let reported = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..3000 {
                        if within.count(LATE).is_some() {
                            reported.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let counts = within.counts();
        assert_eq!((reported.into_inner(), counts.calls, counts.late), (1, 12_000, 12_000));
        assert_eq!(counts.late_now, WINDOW);
    }

    #[test]
    fn change_is_a_sentence() {
        let within = Within::new(1_500_000, 999);
        let told =
            |is_late, late| within.told("images", "load", Change { is_late, late }).to_string();
        assert_eq!(
            told(true, 2),
            "`load` of `images` is late: 2 of the last 1000 calls took longer than 1.5ms, and at most 1 may"
        );
        assert!(told(false, 0).starts_with("`load` of `images` is in time again: 0 of "));
    }
}
