//! Checks whether the clients of running procedures are alive. The server asks silent clients whether they
//! still wait. A client that does not answer is treated as dead.
//!
//! The keeper, the background thread of the process, makes these checks. The keeper does so only while
//! procedures run, or while the server keeps results for clients that were treated as dead. For each call,
//! these checks cost only the reading of one flag.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;

use super::records::Record;
use super::{Inner, ServerSocket, ThreadCache, moment};
use crate::call::deferred::Cancels;
use crate::keeper::Watch;
use crate::protocol::exchange::header::CONTROL_BYTES_MAX;
use crate::protocol::exchange::server_end::RecordPhase;
use crate::protocol::exchange::table::is_evictable;
use crate::protocol::exchange::time::{MILLISECOND, Moment, SECOND};
use crate::value::Window;

/// The time from the start of a call to the first check of the client that made the call.
const CHECKED_AFTER: Duration = Duration::from_millis(500);
/// The shortest time between two checks, in nanoseconds.
const LOOK_MIN: u64 = 20 * MILLISECOND;
/// The longest time between two checks while a procedure runs, in nanoseconds.
const LOOK_MAX: u64 = SECOND;
/// The time in nanoseconds between two checks if no procedure runs, but the server keeps results for clients
/// that were treated as dead.
const LOOK_AT_RESULTS: u64 = 5 * SECOND;

/// What the checks have found about clients that were treated as dead.
#[derive(Default)]
struct GoneCallers {
    /// The places of records whose results may be forgotten.
    orphans: Vec<u32>,
    /// What cancels the deferred calls of these clients.
    deferred: Vec<Arc<dyn Cancels>>,
}

impl ServerSocket {
    /// Sets the watch through which the keeper calls [`check_callers`](Self::check_callers).
    pub(super) fn set_watch(&self, watch: Watch) {
        let _ = self.watch.set(watch);
    }

    /// Ensures that the keeper checks callers while a procedure runs. The record of the call must already be
    /// in the phase `Running`.
    #[inline]
    pub(super) fn ensure_callers_are_checked(&self) {
        // SYNC: datagram-liveness. A thread changes the record before it reads the flag here. The keeper
        // clears the flag before it reads records. So at least one of the two threads sees the change of the
        // other.
        if !self.is_checking.load(Ordering::Relaxed)
            && !self.is_checking.swap(true, Ordering::SeqCst)
        {
            self.begin_to_check();
        }
    }

    #[cold]
    fn begin_to_check(&self) {
        if let Some(watch) = self.watch.get() {
            watch.remind(CHECKED_AFTER);
        }
    }

    /// Checks the clients of all running procedures. Returns the time until the next check. Returns `None` if
    /// no procedure runs, and no result is kept for a client that was treated as dead.
    pub(crate) fn check_callers(&self) -> Option<Duration> {
        self.is_checking.store(false, Ordering::SeqCst);
        let now = moment();
        let mut due = None::<Moment>;
        let mut gone = GoneCallers::default();
        for (place, record) in self.records.all().enumerate() {
            let again = self.check_one(now, record, place as u32, &mut gone);
            due = [due, again].into_iter().flatten().min();
        }
        for place in gone.orphans {
            self.forget_orphan(now, place);
        }
        self.drop_departed();
        for cancels in gone.deferred {
            cancels.cancel();
        }
        self.check_postponed();
        let due = due?;
        self.is_checking.store(true, Ordering::SeqCst);
        Some(Duration::from_nanos(due.since(now).clamp(LOOK_MIN, LOOK_AT_RESULTS)))
    }

    /// Checks one client. Returns the time of the client's next check, or `None` if no check is needed.
    fn check_one(
        &self,
        now: Moment,
        record: &Record,
        place: u32,
        gone: &mut GoneCallers,
    ) -> Option<Moment> {
        // If another thread holds the lock of the record, that thread handles a packet of the client, or
        // ends the client's call. So this check is repeated soon.
        let Some(mut inner) = record.0.try_lock() else { return Some(now.after(LOOK_MIN)) };
        match inner.server_end.phase() {
            RecordPhase::Running => {
                let Inner { server_end, to, flow, .. } = &mut *inner;
                let again = server_end.check_caller(now);
                let mut out = [0; CONTROL_BYTES_MAX];
                // The packets that are due carry no pieces of messages, because the procedure still runs.
                while let Some(send) = server_end.poll_send(now, &**flow, &mut out) {
                    let sent = self.socket.send(&[Window::from(&out[..send.bytes])], Some(to));
                    self.note_sent(1, sent);
                }
                gone.deferred.extend(self.note_given_up(&mut inner));
                // Other calls that begin meanwhile must be checked soon. So the next check is early enough
                // for them, even if this call was cancelled long ago and needs no check soon.
                Some(again.unwrap_or(now.after(LOOK_MAX)).min(now.after(LOOK_MAX)))
            }
            RecordPhase::Replied if inner.server_end.is_caller_lost() => {
                if is_evictable(RecordPhase::Replied, now.since(inner.server_end.last_heard())) {
                    gone.orphans.push(place);
                }
                Some(now.after(LOOK_AT_RESULTS))
            }
            _ => None,
        }
    }

    /// Forgets the result of a client that was treated as dead, if the client has sent nothing since.
    fn forget_orphan(&self, now: Moment, place: u32) {
        // Lock order, as in `admit`: the table, then a record.
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
