//! The census of a procedure: how many bytes its calls carry, and how many come from other machines.
//!
//! Threads count in different *stripes*, so that they seldom write the same cache line. A count is one relaxed
//! increment.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::call::thread_index;
use crate::counters::{CensusCounts, SIZE_BUCKETS, size_bucket};

/// The largest number of stripes.
const STRIPES_MAX: usize = 8;

/// The counts of a procedure.
pub(super) struct Census(Box<[Stripe]>);

/// The counts of some threads.
#[repr(align(64))]
struct Stripe {
    remote: AtomicU64,
    arguments: [AtomicU64; SIZE_BUCKETS],
    results: [AtomicU64; SIZE_BUCKETS],
}

impl Census {
    pub(super) fn new() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let stripes = threads.next_power_of_two().min(STRIPES_MAX);
        let stripe = |_| Stripe {
            remote: AtomicU64::new(0),
            arguments: [const { AtomicU64::new(0) }; SIZE_BUCKETS],
            results: [const { AtomicU64::new(0) }; SIZE_BUCKETS],
        };
        Self((0..stripes).map(stripe).collect())
    }

    /// Counts a call whose arguments and whose result have these numbers of bytes.
    pub(super) fn count(&self, argument_bytes: usize, result_bytes: usize, is_remote: bool) {
        // The number of stripes is a power of two.
        let stripe = &self.0[thread_index() as usize & (self.0.len() - 1)];
        stripe.arguments[size_bucket(argument_bytes as u64)].fetch_add(1, Ordering::Relaxed);
        stripe.results[size_bucket(result_bytes as u64)].fetch_add(1, Ordering::Relaxed);
        if is_remote {
            stripe.remote.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the sums of all threads.
    pub(super) fn counts(&self) -> CensusCounts {
        let mut sums =
            CensusCounts { remote: 0, arguments: [0; SIZE_BUCKETS], results: [0; SIZE_BUCKETS] };
        for Stripe { remote, arguments, results } in &self.0 {
            sums.remote += remote.load(Ordering::Relaxed);
            let all = sums.arguments.iter_mut().zip(arguments);
            for (sum, count) in all.chain(sums.results.iter_mut().zip(results)) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        sums
    }
}
