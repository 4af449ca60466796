//! Looking after the callers of procedures that run: who is not heard of is asked, and who does not
//! answer is taken for gone.
//!
//! The keeper does this, and only while procedures run. A call costs one look at a flag for it.

use core::sync::atomic::Ordering;
use core::time::Duration;

use super::records::Record;
use super::{Inner, ServerSocket, ThreadCache, moment};
use crate::protocol::exchange::header::CONTROL_BYTES_MAX;
use crate::protocol::exchange::server_end::RecordPhase;
use crate::protocol::exchange::table::is_evictable;
use crate::protocol::exchange::time::{MILLISECOND, Moment, SECOND};
use crate::value::Window;

/// How long after a call has begun its caller is looked after for the first time.
pub(crate) const CHECKED_AFTER: Duration = Duration::from_millis(500);
/// Between two looks, at least and at most.
const LOOK_MIN: u64 = 20 * MILLISECOND;
const LOOK_MAX: u64 = SECOND;
/// The same when only results of callers that were taken for gone are kept.
const LOOK_AT_RESULTS: u64 = 5 * SECOND;

/// Has [`Service::tend`] called once after [`TENDED_AFTER`].
pub(crate) type KeeperReminder = Box<dyn Fn() + Send + Sync>;

impl ServerSocket {
    /// Sets who is told when callers are to be looked after.
    pub(crate) fn set_reminder(&self, remind: KeeperReminder) {
        let _ = self.remind.set(remind);
    }

    /// A procedure is about to run.
    #[inline]
    pub(super) fn note_procedure_runs(&self) {
        // SYNC: datagram-tending. The record says that it runs before the flag is read here; who
        // tends clears the flag before it looks at records. So one of both sees the other.
        if !self.is_checking.load(Ordering::Relaxed)
            && !self.is_checking.swap(true, Ordering::SeqCst)
        {
            self.begin_to_check();
        }
    }

    #[cold]
    fn begin_to_check(&self) {
        if let Some(remind) = self.remind.get() {
            remind();
        }
    }

    /// Looks after the callers of all procedures that run. When that is due again; `None` if none
    /// runs, and no result of a caller is kept that was taken for gone.
    pub(crate) fn check_callers(&self) -> Option<Duration> {
        self.is_checking.store(false, Ordering::SeqCst);
        let now = moment();
        let mut due = None::<Moment>;
        let mut orphans = Vec::new();
        for (place, record) in self.records.all().enumerate() {
            let again = self.check_one(now, record, place as u32, &mut orphans);
            due = [due, again].into_iter().flatten().min();
        }
        for place in orphans {
            self.forget_orphan(now, place);
        }
        let due = due?;
        self.is_checking.store(true, Ordering::SeqCst);
        Some(Duration::from_nanos(due.since(now).clamp(LOOK_MIN, LOOK_AT_RESULTS)))
    }

    /// Looks after one caller; when to do so again.
    fn check_one(
        &self,
        now: Moment,
        record: &Record,
        place: u32,
        orphans: &mut Vec<u32>,
    ) -> Option<Moment> {
        // Whoever has it locked is about to hear of the caller, or to end its call.
        let Some(mut inner) = record.0.try_lock() else { return Some(now.after(LOOK_MIN)) };
        match inner.server_end.phase() {
            RecordPhase::Running => {
                let Inner { server_end, to, flow, .. } = &mut *inner;
                let again = server_end.check_caller(now);
                let mut out = [0; CONTROL_BYTES_MAX];
                // Nothing that it says then is a part of a message.
                while let Some(send) = server_end.poll_send(now, &**flow, &mut out) {
                    let sent = self.socket.send(&[Window::from(&out[..send.bytes])], Some(to));
                    self.note_sent(1, sent);
                }
                self.note_given_up(&mut inner);
                // Others may begin meanwhile: they are not to wait for one that is long cancelled.
                Some(again.unwrap_or(now.after(LOOK_MAX)).min(now.after(LOOK_MAX)))
            }
            RecordPhase::Replied if inner.server_end.is_caller_lost() => {
                if is_evictable(RecordPhase::Replied, now.since(inner.server_end.last_heard())) {
                    orphans.push(place);
                }
                Some(now.after(LOOK_AT_RESULTS))
            }
            _ => None,
        }
    }

    /// Nobody came for the result of a caller that was taken for gone.
    fn forget_orphan(&self, now: Moment, place: u32) {
        // In the order of admission.
        let mut table = self.table.lock();
        let Some(record) = self.record(place) else { return };
        let Some(mut inner) = record.0.try_lock() else { return };
        let silence = now.since(inner.server_end.last_heard());
        if inner.server_end.is_caller_lost() && is_evictable(inner.server_end.phase(), silence) {
            self.forget(&mut inner, &mut ThreadCache::default());
            table.release(place);
        }
    }
}
