//! Reads the time since the machine was started, at less cost than the kernel's function.
//!
//! A call over a network takes a few microseconds and reads the clock several times. The kernel's function
//! reads the processor's counter after a fence, and scales it with values from memory. If a thread has asked
//! the kernel recently, `boot_ns` reads only the counter, and adds the time since the kernel's answer.

#![allow(unsafe_code)]

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// How long a thread extrapolates from the kernel's last answer, in nanoseconds.
const TRUSTED: u64 = 100_000;
/// How long the counter's rate is measured, in nanoseconds. The error of the rate is then at most 1 in
/// 100,000. So an extrapolation over [`TRUSTED`] is wrong by at most one nanosecond.
const MEASURED: u64 = 20_000_000;

/// Nanoseconds per tick of the counter, times 2^32. Zero while the rate is unknown, and if the counter is not
/// usable.
static RATE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The value of the counter at the kernel's last answer, and the time in that answer in nanoseconds.
    static TOLD: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Returns the number of nanoseconds since the machine was started, including the time during which it was
/// suspended. On one thread, the returned time never goes back by more than some nanoseconds.
#[inline]
pub(crate) fn boot_ns() -> u64 {
    let rate = RATE.load(Ordering::Relaxed);
    if rate != 0 {
        let (then, told) = TOLD.get();
        let passed = ticks().wrapping_sub(then);
        // No counter runs faster than 16 ticks per nanosecond, so more ticks than this take longer than
        // `TRUSTED`. The limit also keeps the product below from overflowing.
        if passed < TRUSTED * 16 {
            let passed = (passed * rate) >> 32;
            if passed < TRUSTED {
                return told + passed;
            }
        }
    }
    ask(rate)
}

/// Returns a moment, of which [`to_times`] makes a time. This costs less than the time.
#[inline]
pub(crate) fn moment() -> u64 {
    if RATE.load(Ordering::Relaxed) != 0 { ticks() } else { boot_ns() }
}

/// Replaces moments of this thread by their times, as [`boot_ns`] would have returned them then. 0 stays 0. If
/// the rate of the counter has become known since, the times are wrong.
pub(crate) fn to_times(moments: &mut [u64]) {
    let rate = RATE.load(Ordering::Relaxed);
    if rate == 0 {
        return;
    }
    let (now, counter) = (boot_ns(), ticks());
    for moment in moments.iter_mut().filter(|moment| **moment != 0) {
        let passed = u128::from(counter.wrapping_sub(*moment)) * u128::from(rate);
        *moment = now.saturating_sub(u64::try_from(passed >> 32).unwrap_or(u64::MAX)).max(1);
    }
}

/// Asks the kernel for the time.
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

/// Computes the length of a tick of the counter, once enough time has passed since the first call.
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

/// Returns whether the kernel uses the processor's counter as its clock. If it does, the counters of all
/// processors agree, and their rate is constant.
fn is_steady() -> bool {
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_arch = "x86_64")
        && std::fs::read_to_string(SOURCE).is_ok_and(|source| source.trim() == "tsc")
}

#[inline]
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the time-stamp counter, which every x86-64 processor has.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    return 0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn clock_agrees_with_the_kernel() {
        let begun = Instant::now();
        let mut last = boot_ns();
        while begun.elapsed() < Duration::from_millis(60) {
            let now = boot_ns();
            assert!(now + 1000 >= last, "the clock went back by {} ns", last - now);
            last = now;
        }
        // Compare with two readings of the kernel's clock. The minimum of 100 tries excludes preemption.
        let off = (0..100).map(|_| {
            let kernels = || {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
            };
            let (before, now, after) = (kernels(), boot_ns(), kernels());
            before.saturating_sub(now).max(now.saturating_sub(after))
        });
        let least = off.min().expect("100 tries");
        assert!(least < 10_000, "the clock is off by {least} ns");
    }
}
