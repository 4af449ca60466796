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
    /// The number of bytes of the messages of all pending calls.
    bytes: AtomicUsize,
    /// Any thread may send a reply, so these counters are shared.
    counting: Mutex<Counting>,
}

/// A deferred call that is counted. The call is pending until this value is dropped.
pub(crate) struct Deferral {
    deferrals: Arc<Deferrals>,
    /// The binding of the call. `None` after the reply was counted.
    row: Option<Arc<BindingRow>>,
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

    /// Counts a call of a binding as deferred, unless too many calls are deferred. `bytes` is the number of
    /// bytes of its message.
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
        let (deferrals, row) = (Arc::clone(self), Some(row));
        Some(Deferral { deferrals, row, bytes, begun: sys::boot_ns() })
    }

    /// Counts packets of replies that were retransmitted.
    pub(crate) fn resent(&self, packets: u64) {
        if packets > 0 {
            self.counting.lock().resent(packets);
        }
    }
}

impl Deferral {
    /// Counts the reply, which has been sent. `bytes` is the size of the result.
    pub(crate) fn end(mut self, answer: Answer, bytes: u64) {
        self.count(answer, bytes);
    }

    /// Counts the reply before it is sent. The call stays deferred until this value is dropped, but does not
    /// keep the exported object alive any more.
    pub(crate) fn count(&mut self, answer: Answer, bytes: u64) {
        let Some(row) = self.row.take() else { return };
        let took = sys::boot_ns().saturating_sub(self.begun);
        let mut counting = self.deferrals.counting.lock();
        counting.end_deferred(&row.tally, took, answer, self.bytes as u64, bytes);
        drop(counting);
        // The row may be the last owner of the exported object, so it is dropped after the lock is released.
        drop(row);
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        self.deferrals.bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        self.deferrals.pending.fetch_sub(1, Ordering::SeqCst);
    }
}
