//! [`Deferrals`]: the deferred calls of a server, on all paths: their number, its bound, and their counts.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use super::binding_table::BindingRow;
use crate::call::Answer;
use crate::counters::{Counting, Page, ThreadKind};
use crate::limits;
use crate::sync::Mutex;
use crate::sys;

/// The deferred calls of one server.
pub(crate) struct Deferrals {
    /// The number of deferred calls without a reply.
    pending: AtomicUsize,
    /// The number of bytes of their messages.
    bytes: AtomicUsize,
    /// Any thread may send a reply, so these counters are shared.
    counting: Mutex<Counting>,
}

/// A deferred call, as it is counted.
pub(crate) struct Deferral {
    deferrals: Arc<Deferrals>,
    row: Arc<BindingRow>,
    /// The number of bytes of the call's message.
    bytes: usize,
    begun: u64,
}

impl Deferrals {
    pub(crate) fn new(page: &Arc<Page>) -> Arc<Self> {
        let counting = Mutex::new(Counting::new(page, ThreadKind::Local));
        Arc::new(Self { pending: AtomicUsize::new(0), bytes: AtomicUsize::new(0), counting })
    }

    /// Returns how many deferred calls have no reply yet.
    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::SeqCst)
    }

    /// Counts a call of a binding as deferred, unless too many calls are deferred. `bytes` is the number of bytes
    /// of its message.
    pub(crate) fn begin(self: &Arc<Self>, row: Arc<BindingRow>, bytes: usize) -> Option<Deferral> {
        let add = |to: &AtomicUsize, more: usize, most: usize| {
            let more = |sum: usize| sum.checked_add(more).filter(|sum| *sum <= most);
            to.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
        };
        if !add(&self.pending, 1, limits::DEFERRED_MAX) {
            return None;
        }
        if !add(&self.bytes, bytes, limits::DEFERRED_BYTES_MAX) {
            self.pending.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        Some(Deferral { deferrals: Arc::clone(self), row, bytes, begun: sys::boot_ns() })
    }
}

impl Deferral {
    /// Counts the reply, which has been sent. `bytes` is the size of the result.
    pub(crate) fn end(self, answer: Answer, bytes: u64) {
        let took = sys::boot_ns().saturating_sub(self.begun);
        let mut counting = self.deferrals.counting.lock();
        counting.end_deferred(&self.row.tally, took, answer, self.bytes as u64, bytes);
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        self.deferrals.bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        self.deferrals.pending.fetch_sub(1, Ordering::SeqCst);
    }
}
