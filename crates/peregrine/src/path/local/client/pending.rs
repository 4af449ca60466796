//! Pending calls: calls for which no thread waits. The future of such a call looks at the reply word when it
//! is polled. Between polls, the [bells](crate::call::pending::Bells) of the process sleep on the word.

use core::sync::atomic::{AtomicU32, Ordering, fence};
use core::time::Duration;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::{CallState, LocalPath, SMALL_BYTES, extend, foreign_reply};
use crate::call::pending::{Bells, Rings};
use crate::call::{Begun, Call, Returned, inside};
use crate::error::CallError;
use crate::limits;
use crate::path::local::peer::ClientRegion;
use crate::path::local::peer::wait::WaitEnd;
use crate::path::local::region::header::CallFlags;
use crate::path::local::region::word::{self, Look, SLEEP, posted};

impl LocalPath {
    /// Writes and posts a call. The whole message is copied before the call is posted: if the server read a
    /// large message while the client writes it, the server would have to wait for a future that is not
    /// polled.
    pub(super) fn begin_pending(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        let index = call.frame.index();
        let region = &*self.region;
        let astack = &region.astacks[index as usize];
        if !region.session.is_alive() {
            return Err(region.session.refusal());
        }
        let layout = call.put(usize::MAX).ok_or_else(|| self.too_large(call))?;
        if layout.total > self.message_bytes {
            return Err(self.too_large(call));
        }
        let outs: usize = call.outs.iter().map(|out| out.capacity()).sum();
        if layout.total.max(outs) > SMALL_BYTES || index >= limits::ASTACKS {
            region.note_large(index);
        }
        let (inside, deadline) = (inside(), call.terms.deadline());
        let mut flags = CallFlags::EMPTY;
        if inside.is_some() || !call.terms.are_none() {
            flags = flags.with_extensions(extend(call, layout.total, inside)?);
        }
        let cpu = crate::sys::current_cpu();
        astack.client_cpu.store(cpu, Ordering::Relaxed);
        let state = CallState { astack, index, cpu, deadline };
        let id = self.post::<false>(call, &state, &layout, flags);
        // SYNC: astack-pending, read in `examine`.
        astack.pending.store(id, Ordering::Release);
        Ok(Begun::Pending)
    }

    pub(super) fn poll_pending(
        &self,
        call: &mut Call<'_, '_, '_>,
    ) -> Option<Result<Returned, CallError>> {
        let index = call.frame.index();
        let region = &*self.region;
        let astack = &region.astacks[index as usize];
        let id = posted(astack.sequence.load(Ordering::Relaxed));
        let last = astack.last_reply.load(Ordering::Relaxed);
        let reply = match word::look(region.memory.word(astack.reply_at), last) {
            Look::Posted(reply) => reply,
            Look::Nothing(value) if region.session.is_alive() && is_idle(value, last) => {
                return None;
            }
            // The session has ended, or the word has a value that neither side writes. A reply that was
            // posted just before the end of the session is valid.
            _ => match word::look(region.memory.word(astack.reply_at), last) {
                Look::Posted(reply) => reply,
                _ => return Some(Err(region.no_reply(index, id, WaitEnd::Dead))),
            },
        };
        if reply != id {
            return Some(Err(foreign_reply(astack, reply)));
        }
        astack.last_reply.store(reply, Ordering::Relaxed);
        let header = self.reply_header(astack);
        Some(self.take(call, index, header))
    }

    pub(super) fn arm_pending(&self, index: u32, deadline: Option<Instant>) {
        let region = &*self.region;
        let astack = &region.astacks[index as usize];
        let reply_word = region.memory.word(astack.reply_at);
        let last = astack.last_reply.load(Ordering::Relaxed);
        let bell = || region.frames.bell(index).ring();
        match word::look(reply_word, last) {
            Look::Nothing(value)
                if is_idle(value, last) && word::mark_asleep(reply_word, value) => {}
            _ => return bell(),
        }
        // SYNC: rouse. A thread that ends the session sets a flag, then changes the word. This thread has
        // changed the word, and now reads the flag. At least one of the two threads sees what the other
        // thread wrote.
        fence(Ordering::SeqCst);
        let rings: Arc<dyn Rings> = Arc::clone(&self.region) as _;
        if !region.session.is_alive()
            || Bells::of_process().watch(&rings, index, deadline, true).is_err()
        {
            // Without a thread that sleeps for the call, its future polls again at once.
            bell();
        }
    }

    /// Gives up a call. Rings, so that the server learns at once that the call is cancelled.
    pub(super) fn give_up_pending(&self, call: &mut Call<'_, '_, '_>) -> CallError {
        let index = call.frame.index();
        let region = &*self.region;
        let id = posted(region.astacks[index as usize].sequence.load(Ordering::Relaxed));
        let rings: Arc<dyn Rings> = Arc::clone(&self.region) as _;
        Bells::of_process().forget(&rings, index);
        let error = region.no_reply(index, id, WaitEnd::Late);
        if !region.session.try_ring(index) {
            RingAgain::soon(&self.region, index, id);
        }
        error
    }
}

/// Rings again for a call that was given up, because the first ring was lost. The socket may be full if many
/// calls are given up at once. The repetition ends when the server has received a ring or has answered the
/// call, or when the session ends.
struct RingAgain {
    region: Weak<ClientRegion>,
    /// The value of the call word.
    id: u32,
    /// The number of milliseconds after which to ring again.
    after: AtomicU32,
}

impl RingAgain {
    /// The longest interval between two attempts, in milliseconds.
    const AFTER_MAX: u32 = 128;

    fn soon(region: &Arc<ClientRegion>, index: u32, id: u32) {
        let again = Self { region: Arc::downgrade(region), id, after: AtomicU32::new(1) };
        Arc::new(again).wait(index);
    }

    fn wait(self: Arc<Self>, index: u32) {
        let after = self.after.load(Ordering::Relaxed);
        self.after.store((2 * after).min(Self::AFTER_MAX), Ordering::Relaxed);
        let at = Instant::now() + Duration::from_millis(after.into());
        let rings: Arc<dyn Rings> = self;
        // If no thread can be started, the next ring or the end of the session shows the server that the call
        // was given up.
        let _ = Bells::of_process().watch(&rings, index, Some(at), false);
    }
}

impl Rings for RingAgain {
    fn word(&self, _: u32) -> Option<(&AtomicU32, u32)> {
        None
    }
    fn examine(&self, _: u32) {}
    fn ring(&self, index: u32) {
        let Some(region) = self.region.upgrade() else { return };
        if region.is_given_up(index, self.id)
            && region.session.is_alive()
            && !region.session.try_ring(index)
        {
            let Self { region, id, after } = self;
            let (region, after) =
                (Weak::clone(region), AtomicU32::new(after.load(Ordering::Relaxed)));
            Arc::new(Self { region, id: *id, after }).wait(index);
        }
    }
}

/// Returns whether the value of a reply word means that no new reply was posted. `last` is the value of the
/// word for the reply that was taken last.
const fn is_idle(value: u32, last: u32) -> bool {
    value == last || value == SLEEP || value == word::AWAY
}

impl Rings for ClientRegion {
    fn word(&self, call: u32) -> Option<(&AtomicU32, u32)> {
        let astack = self.astacks.get(call as usize)?;
        Some((self.memory.word(astack.reply_at), SLEEP))
    }

    fn examine(&self, call: u32) {
        let Some(astack) = self.astacks.get(call as usize) else { return };
        let id = posted(astack.sequence.load(Ordering::Relaxed));
        // SYNC: astack-pending. A client first increments `sequence`, then posts the call, and then stores
        // the value of the call in `pending`. So if this load sees that value, the next load of the call word
        // sees this call or a later one. A call that is not posted yet must not look like a corrupted word.
        if astack.pending.load(Ordering::Acquire) != id {
            return;
        }
        // Meanwhile another thread may poll the future, take the reply, and begin the next call in the same
        // frame. In these cases `is_over` returns true.
        let is_over = || {
            astack.last_reply.load(Ordering::Relaxed) == id
                || posted(astack.sequence.load(Ordering::Relaxed)) != id
        };
        // SYNC: astack-call. A client changes the sequence number before it posts the next call. So if this
        // load sees the next call, `is_over` sees the new sequence number.
        let call_word = self.memory.word(astack.call_at).load(Ordering::Acquire);
        let last = astack.last_reply.load(Ordering::Relaxed);
        let is_answered =
            matches!(word::look(self.memory.word(astack.reply_at), last), Look::Posted(_));
        if is_over() {
            return;
        }
        if call_word != id && !is_answered {
            self.session.mark_corrupted();
        } else if !self.was_taken(call, id) {
            self.session.ring(call);
        }
        if !self.session.is_alive() {
            self.frames.bell(call).ring();
        }
    }

    fn ring(&self, call: u32) {
        self.frames.bell(call).ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::local::fuzzing::Scripted;

    #[test]
    fn call_that_is_not_posted_yet_is_not_taken_for_a_stray_write() {
        let (_script, scripted) = Scripted::new(4096).unwrap();
        let region = &scripted.path.region;
        // The client has incremented the sequence number for the next call, but has not posted the call yet.
        // An examination at this time must not end the session.
        region.astacks[0].sequence.store(1, Ordering::Relaxed);
        region.examine(0);
        assert!(region.session.is_alive());
        // The call was posted, but its word has another value. This must end the session.
        region.astacks[0].pending.store(posted(1), Ordering::Release);
        region.examine(0);
        assert!(!region.session.is_alive());
    }
}
