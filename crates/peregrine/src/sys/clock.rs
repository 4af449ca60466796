//! The time since the machine was started, read often.
//!
//! Calls over networks are a few microseconds long and look at the clock several times. The kernel's
//! own function reads the processor's counter behind a fence, and scales it with what it keeps in
//! memory; here a thread that has asked it just now scales what the counter says since then.

#![allow(unsafe_code)]

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// For so long a thread goes on from what the kernel told it, in nanoseconds.
const TRUSTED: u64 = 100_000;
/// What is measured for so long gives the counter's rate: to a hundred thousandth, which is a
/// nanosecond in [`TRUSTED`].
const MEASURED: u64 = 20_000_000;

/// Nanoseconds a tick, times 2^32; zero while that is not known, or where the counter is of no use.
static RATE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// What the counter was when the kernel told the time last, and that time.
    static TOLD: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Nanoseconds since the machine was started, those included in which it was suspended. On one
/// thread it never goes back by more than some nanoseconds.
#[inline]
pub(crate) fn boot_ns() -> u64 {
    let rate = RATE.load(Ordering::Relaxed);
    if rate != 0 {
        let (then, told) = TOLD.get();
        let passed = ticks().wrapping_sub(then);
        // No counter runs faster than 16 ticks a nanosecond: no overflow below.
        if passed < TRUSTED * 16 {
            let passed = (passed * rate) >> 32;
            if passed < TRUSTED {
                return told + passed;
            }
        }
    }
    ask(rate)
}

/// Asks the kernel.
#[cold]
fn ask(rate: u64) -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned();
    let counter = ticks();
    TOLD.set((counter, now));
    if rate == 0 {
        measure(counter, now);
    }
    now
}

/// Finds out how long a tick is, as soon as enough of them have passed since the first time.
fn measure(counter: u64, now: u64) {
    static FIRST: OnceLock<Option<(u64, u64)>> = OnceLock::new();
    let first = FIRST.get_or_init(|| is_steady().then_some((counter, now)));
    let Some((first, then)) = first else { return };
    let (ticks, passed) = (counter.wrapping_sub(*first), now.saturating_sub(*then));
    if passed >= MEASURED && ticks >= passed / 16 {
        let rate = (u128::from(passed) << 32) / u128::from(ticks);
        RATE.store(u64::try_from(rate).unwrap_or(0), Ordering::Relaxed);
    }
}

/// Whether the kernel itself keeps time by the counter: then it is the same on all processors, and
/// its rate does not change.
fn is_steady() -> bool {
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_arch = "x86_64")
        && std::fs::read_to_string(SOURCE).is_ok_and(|source| source.trim() == "tsc")
}

#[inline]
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the processor's counter, which every such processor has.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    return 0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn it_keeps_pace_with_the_kernels() {
        let begun = Instant::now();
        let mut last = boot_ns();
        while begun.elapsed() < Duration::from_millis(60) {
            let now = boot_ns();
            assert!(now + 1000 >= last, "back by {} ns", last - now);
            last = now;
        }
        // Between two readings of the kernel's, unless the machine was halted just here.
        let off = (0..100).map(|_| {
            let kernels = || {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
            };
            let (before, now, after) = (kernels(), boot_ns(), kernels());
            before.saturating_sub(now).max(now.saturating_sub(after))
        });
        let least = off.min().expect("some");
        assert!(least < 10_000, "{least} ns off");
        eprintln!("rate {} of 2^32 ns a tick", RATE.load(Ordering::Relaxed));
    }
}
