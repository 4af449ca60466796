//! Deferred calls: calls of async procedures, whose replies any thread posts later.
//!
//! While a call is deferred, no worker polls its A-stack, and no thread changes its call word. A client that
//! finds a changed call word but no reply would assume a stray write. When the reply has been posted, the
//! private word `deferral` of the A-stack shows which thread continues:
//!
//! | from | to | by | when |
//! |---|---|---|---|
//! | `NONE` | `RUNNING` | worker | the procedure did not end at its first poll |
//! | `RUNNING` | `DETACHED` | worker | the worker does not poll the A-stack any more |
//! | `RUNNING` | `ANSWERED` | any thread | the reply was posted first: the worker keeps polling the A-stack |
//! | `DETACHED` | `NONE` | any thread | the reply was posted: this thread unassigns the A-stack |
//! | `ANSWERED` | `NONE` | worker | the worker has seen that the reply was posted |

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use super::ServerRegion;
use super::assignment::Assignment;
use super::worker::AstackRef;
use crate::call::deferred::{Cancels, Owed};
use crate::call::{Answered, Ran, write_later};
use crate::path::local::region::header::ReplyHeader;
use crate::serving::deferrals::{Deferral, RowAccount};
use crate::sys;

/// The A-stack has no deferred call.
const NONE: u32 = 0;
/// The call is deferred, and the worker has not detached the A-stack yet.
const RUNNING: u32 = 1;
/// The call is deferred, and no worker polls the A-stack.
const DETACHED: u32 = 2;
/// The reply was posted before the worker had detached the A-stack.
const ANSWERED: u32 = 3;

/// A deferred call of a session.
pub(super) struct DeferredCall {
    /// The value of the call word that posted this call.
    id: u32,
    cancels: Arc<dyn Cancels>,
}

/// The duty to post the reply to a deferred call.
struct OwedReply {
    region: Arc<ServerRegion>,
    index: u32,
    id: u32,
    deferral: Deferral,
}

impl ServerRegion {
    /// Defers the call that a worker runs. The high 32 bits of `call` are the index of the A-stack, and the
    /// low 32 bits are the value of the call word.
    pub(super) fn defer_call(
        self: Arc<Self>,
        call: u64,
        cancels: Arc<dyn Cancels>,
    ) -> Option<Box<dyn Owed>> {
        let (index, id) = ((call >> 32) as u32, call as u32);
        let astack = self.astacks.get(index as usize)?;
        // The client may have changed the header since the call began. In that case, the call is counted with
        // another binding of the client.
        let header = self.header(astack);
        let row = self.bindings().get(header.binding)?;
        let bytes = (header.total as usize).min(self.layout.bytes);
        let deferral = self.pool.upgrade()?.deferrals.begin(row, bytes)?;
        astack.deferral.store(RUNNING, Ordering::Relaxed);
        self.deferred.lock().insert(index, DeferredCall { id, cancels });
        Some(Box::new(OwedReply { region: self, index, id, deferral }))
    }

    /// Returns what counts the deferred calls of the client that made this call.
    pub(super) fn account_of(&self, call: u64) -> Option<RowAccount> {
        let astack = self.astacks.get((call >> 32) as usize)?;
        let row = self.bindings().get(self.header(astack).binding)?;
        Some(self.pool.upgrade()?.deferrals.account(row))
    }

    /// Notes that the worker has stopped polling an A-stack whose call is deferred. Returns false if the
    /// reply has been posted already: then the A-stack needs a worker.
    pub(super) fn detach(&self, index: u32) -> bool {
        let astack = &self.astacks[index as usize];
        self.set_assignment(index, Assignment::Deferred);
        // SYNC: deferral, the other half is in `OwedReply::answer`.
        let detached = astack.deferral.compare_exchange(
            RUNNING,
            DETACHED,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if detached.is_err() {
            astack.deferral.store(NONE, Ordering::Relaxed);
            self.set_assignment(index, Assignment::Queued);
            return false;
        }
        // The client may have given up the call, or ended the session, while the call did not yet count as
        // deferred. In that case, only this thread can cancel the call.
        if self.is_closed() {
            self.cancel_deferred();
        }
        self.cancel_given_up(index);
        true
    }

    /// Cancels the deferred call on an A-stack if the client has given it up.
    pub(super) fn cancel_given_up(&self, index: u32) {
        let mut deferred = self.deferred.lock();
        let given_up = deferred.get(&index).is_some_and(|call| self.was_given_up(index, call.id));
        let call = if given_up { deferred.remove(&index) } else { None };
        drop(deferred);
        if let Some(call) = call {
            call.cancels.cancel();
        }
    }

    /// Cancels all deferred calls, because the session has ended.
    pub(super) fn cancel_deferred(&self) {
        let all = core::mem::take(&mut *self.deferred.lock());
        for call in all.into_values() {
            // `stop` cancels the call, and gives the stop of the server as the reason. If the client has gone
            // instead, no caller sees this reason.
            call.cancels.stop();
        }
    }

    /// Returns whether the call on an A-stack is deferred. If the reply was posted and the worker has not
    /// noticed this yet, the call still counts as deferred.
    pub(super) fn is_deferred(&self, index: u32) -> bool {
        let astack = self.astacks.get(index as usize);
        astack.is_some_and(|astack| astack.deferral.load(Ordering::Acquire) != NONE)
    }
}

impl Owed for OwedReply {
    fn leave_uncounted(&mut self, awaited: bool) {
        self.deferral.leave_uncounted(awaited);
    }

    fn answer(self: Box<Self>, answered: Answered) {
        let Self { region, index, id, deferral } = *self;
        let Some(astack) = region.astacks.get(index as usize) else { return };
        region.deferred.lock().remove(&index);
        let (_, reply) = region.spaces_of(astack, region.header(astack).flags);
        let Ran { answer, head_at, head_bytes, block_bytes, .. } =
            write_later(&answered, reply, &mut Vec::new());
        let cpu = sys::current_cpu();
        region.post(astack, id, ReplyHeader { answer: answer as u32, cpu, head_at, head_bytes });
        deferral.end(answer, u64::from(head_bytes) + block_bytes as u64);
        // SYNC: deferral, the other half is in `detach`.
        if astack.deferral.swap(ANSWERED, Ordering::AcqRel) == DETACHED {
            astack.deferral.store(NONE, Ordering::Relaxed);
            release(AstackRef { region, index });
        }
    }
}

/// Releases an A-stack whose deferred call was answered: the client rings for its next call there. If the
/// next call was posted already, queues the A-stack for a worker.
fn release(astack: AstackRef) {
    let AstackRef { region, index } = &astack;
    if region.is_closed() {
        return region.set_assignment(*index, Assignment::Unassigned);
    }
    if region.unassign(*index) {
        return;
    }
    region.set_assignment(*index, Assignment::Queued);
    // A stopping pool refuses the call.
    if let Some(pool) = region.pool.upgrade() {
        pool.enqueue(astack);
    }
}

/// The initial value of the word `deferral`.
pub(super) const fn no_deferral() -> AtomicU32 {
    AtomicU32::new(NONE)
}
