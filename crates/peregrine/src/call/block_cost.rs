//! `block_cost`: how long a thread polls before it sleeps in the kernel.
//!
//! All paths poll for this time under [`Wait::Adaptive`](super::Wait::Adaptive). It is the time that a sleep
//! and a wake-up take. So a wait costs at most twice as much as the cheaper of two choices: to poll until the
//! wait ends, or to sleep at once (Karlin et al., 1991).

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::time::Instant;

use crate::sys;

/// Returns how long a sleep and a wake-up together take on this machine. The first call of this function
/// measures this time, the cost.
///
/// The cost is zero on a machine with one processor, where polling never pays. A thread may be bound to fewer
/// processors than the machine has. Each waiting thread therefore also checks whether the thread that it
/// waits for runs on the same processor.
pub(crate) fn block_cost() -> Duration {
    /// The measured cost in nanoseconds, or one of the two constants below.
    static COST: AtomicU32 = AtomicU32::new(UNKNOWN);
    const UNKNOWN: u32 = u32::MAX;
    const MEASURING: u32 = u32::MAX - 1;
    let order = Ordering::Relaxed;
    match COST.load(order) {
        MEASURING => ESTIMATE,
        UNKNOWN if COST.compare_exchange(UNKNOWN, MEASURING, order, order).is_err() => ESTIMATE,
        UNKNOWN => {
            let cost = match sys::online_cpus() {
                0 | 1 => Duration::ZERO,
                _ => measure().clamp(LEAST, MOST),
            };
            COST.store(cost.as_nanos() as u32, order);
            cost
        }
        cost => Duration::from_nanos(cost.into()),
    }
}

/// The cost that is assumed while another thread measures the cost, or if no thread can be started. No thread
/// waits for another thread's measurement. In a child process that is forked during the measurement, such a
/// wait would never end, because the child does not have the measuring thread.
const ESTIMATE: Duration = Duration::from_micros(30);
const LEAST: Duration = Duration::from_micros(5);
const MOST: Duration = Duration::from_micros(100);

/// Measures the median round trip between two threads, each on its own processor. A thread sleeps while it
/// waits for the other one.
fn measure() -> Duration {
    const ROUNDS: u32 = 24;
    let words = [AtomicU32::new(0), AtomicU32::new(0)];
    let pass = |to: &AtomicU32, round| {
        to.store(round, Ordering::Release);
        sys::futex_wake(to);
    };
    let receive = |from: &AtomicU32, round| {
        while from.load(Ordering::Acquire) != round {
            sys::futex_wait(from, round - 1, Some(Duration::from_millis(1)));
        }
    };
    let gauge = || std::thread::Builder::new().name("peregrine-gauge".into());
    std::thread::scope(|scope| {
        // Two new threads measure, because the calling thread may be bound to one processor. If the new
        // threads may use only one processor, they measure how long it takes to hand this processor over.
        // This time is then the cost.
        let echo = gauge().spawn_scoped(scope, || {
            let _ = sys::pin_to(1);
            for round in 1..=ROUNDS {
                receive(&words[0], round);
                pass(&words[1], round);
            }
        });
        if echo.is_err() {
            return ESTIMATE;
        }
        let ask = || {
            let _ = sys::pin_to(0);
            let mut trips: Vec<Duration> = (1..=ROUNDS)
                .map(|round| {
                    let start = Instant::now();
                    pass(&words[0], round);
                    receive(&words[1], round);
                    start.elapsed()
                })
                .collect();
            trips.sort_unstable();
            trips[trips.len() / 2]
        };
        match gauge().spawn_scoped(scope, ask) {
            Ok(asks) => asks.join().unwrap_or(ESTIMATE),
            // The second thread could not be started, and the first one waits for messages of the second. So
            // this thread sends these messages, and the first thread ends.
            Err(_) => {
                (1..=ROUNDS).for_each(|round| {
                    pass(&words[0], round);
                    receive(&words[1], round);
                });
                ESTIMATE
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_cost_is_within_its_bounds() {
        let cost = block_cost();
        assert!(cost.is_zero() || (LEAST..=MOST).contains(&cost), "{cost:?}");
    }
}
