//! Looking after the callers of procedures that run: who is not heard of is asked, and who does not
//! answer is taken for gone.
//!
//! The keeper does this, and only while procedures run. A call costs one look at a flag for it.

use core::sync::atomic::Ordering;
use core::time::Duration;

use super::records::Record;
use super::{Inner, Service, Spare, moment};
use crate::protocol::exchange::callee::Standing;
use crate::protocol::exchange::header::CONTROL_BYTES_MAX;
use crate::protocol::exchange::table::is_forgettable;
use crate::protocol::exchange::time::{MILLISECOND, Moment, SECOND};
use crate::value::Window;

/// How long after a call has begun its caller is looked after for the first time.
pub(crate) const TENDED_AFTER: Duration = Duration::from_millis(500);
/// Between two looks, at least and at most.
const LOOK_MIN: u64 = 20 * MILLISECOND;
const LOOK_MAX: u64 = SECOND;
/// The same when only results of callers that were taken for gone are kept.
const LOOK_AT_RESULTS: u64 = 5 * SECOND;

/// Has [`Service::tend`] called once after [`TENDED_AFTER`].
pub(crate) type Remind = Box<dyn Fn() + Send + Sync>;

impl Service {
    /// Sets who is told when callers are to be looked after.
    pub(crate) fn set_reminder(&self, remind: Remind) {
        let _ = self.remind.set(remind);
    }

    /// A procedure is about to run.
    #[inline]
    pub(super) fn runs(&self) {
        // SYNC: datagram-tending. The record says that it runs before the flag is read here; who
        // tends clears the flag before it looks at records. So one of both sees the other.
        if !self.tended.load(Ordering::Relaxed) && !self.tended.swap(true, Ordering::SeqCst) {
            self.begin_to_tend();
        }
    }

    #[cold]
    fn begin_to_tend(&self) {
        if let Some(remind) = self.remind.get() {
            remind();
        }
    }

    /// Looks after the callers of all procedures that run. When that is due again; `None` if none
    /// runs, and no result of a caller is kept that was taken for gone.
    pub(crate) fn tend(&self) -> Option<Duration> {
        self.tended.store(false, Ordering::SeqCst);
        let now = moment();
        let mut due = None::<Moment>;
        let mut orphans = Vec::new();
        for (place, record) in self.records.all().enumerate() {
            let again = self.look_after(now, record, place as u32, &mut orphans);
            due = [due, again].into_iter().flatten().min();
        }
        for place in orphans {
            self.forget_orphan(now, place);
        }
        let due = due?;
        self.tended.store(true, Ordering::SeqCst);
        Some(Duration::from_nanos(due.since(now).clamp(LOOK_MIN, LOOK_AT_RESULTS)))
    }

    /// Looks after one caller; when to do so again.
    fn look_after(
        &self,
        now: Moment,
        record: &Record,
        place: u32,
        orphans: &mut Vec<u32>,
    ) -> Option<Moment> {
        // Whoever has it locked is about to hear of the caller, or to end its call.
        let Some(mut inner) = record.0.try_lock() else { return Some(now.after(LOOK_MIN)) };
        match inner.callee.standing() {
            Standing::Running => {
                let Inner { callee, to, flow, .. } = &mut *inner;
                let again = callee.look_after(now);
                let mut out = [0; CONTROL_BYTES_MAX];
                // Nothing that it says then is a part of a message.
                while let Some(send) = callee.poll_send(now, &**flow, &mut out) {
                    let sent = self.socket.send(&[Window::from(&out[..send.bytes])], Some(to));
                    self.note_sent(1, sent);
                }
                self.note_given_up(&mut inner);
                // Others may begin meanwhile: they are not to wait for one that is long cancelled.
                Some(again.unwrap_or(now.after(LOOK_MAX)).min(now.after(LOOK_MAX)))
            }
            Standing::Replied if inner.callee.is_lost() => {
                if is_forgettable(Standing::Replied, now.since(inner.callee.last_heard())) {
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
        let silence = now.since(inner.callee.last_heard());
        if inner.callee.is_lost() && is_forgettable(inner.callee.standing(), silence) {
            self.forget(&mut inner, &mut Spare::default());
            table.release(place);
        }
    }
}
