//! What a client keeps for each server process. All bindings to that process share it: the session, the
//! region of shared memory, and the A-stacks (call frames) in the region.

pub(crate) mod session;
pub(super) mod wait;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::io;
use std::sync::Arc;

use self::session::Session;
use self::wait::WaitEnd;
use super::region::RegionLayout;
use super::region::chunks::StoreMode;
use super::region::slots::NextSlot;
use super::region::word::{self, Look, posted};
use crate::call::Frames;
use crate::error::{CallError, Executed, Kind};
use crate::growing::Growing;
use crate::limits;
use crate::sys::{self, Memory};

/// The A-stacks of a session, as the client uses them.
#[derive(Debug)]
pub(crate) struct ClientRegion {
    pub(super) memory: Arc<Memory>,
    layout: RegionLayout,
    pub(super) astacks: Growing<ClientAstack>,
    pub(crate) session: Session,
    pub(crate) frames: Arc<Frames>,
    /// Whether any A-stack has memory that must be given back to the kernel when the A-stack is idle.
    untidy: AtomicBool,
}

/// The client's private record of an A-stack. Only the call that holds the frame uses this record, so the
/// atomic accesses are uncontended and cost no more than plain ones.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct ClientAstack {
    /// The offset of the call word in the region. The header of the call follows this word.
    pub(super) call_at: usize,
    /// The offset of the reply word in the region. The header of the reply follows this word.
    pub(super) reply_at: usize,
    /// The sequence number of the last call.
    pub(super) sequence: AtomicU32,
    /// The value of the call word of the last pending call. It is stored here after the call was posted.
    /// The threads that sleep for pending calls ([`Bells`](crate::call::pending::Bells)) examine only this
    /// call.
    pub(super) pending: AtomicU32,
    /// The value of the reply word for the last reply that was taken.
    pub(super) last_reply: AtomicU32,
    /// The processor on which the server's thread last ran.
    pub(super) server_cpu: AtomicU32,
    /// The processor on which the caller last ran.
    pub(super) client_cpu: AtomicU32,
    /// The number of rounds of [tidying](ClientRegion::tidy) after which memory of the A-stack is given back
    /// to the kernel. It is 0 if no memory must be given back.
    keep_rounds: AtomicU32,
    /// The slot at which the next large call begins.
    pub(super) next_call: NextSlot,
    /// The slot at which the next large reply begins, or 0 if the last reply was small.
    pub(super) next_reply: NextSlot,
    pub(super) store_mode: StoreMode,
}

impl ClientRegion {
    /// Makes the client's side of a region that the server sent. The first `active` A-stacks are in use from
    /// the start.
    pub(crate) fn new(
        memory: Memory,
        layout: RegionLayout,
        session: Session,
        active: u32,
    ) -> io::Result<Self> {
        if memory.len() < layout.region_bytes() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let memory = Arc::new(memory);
        let frames = Arc::new(Frames::new(Arc::clone(&memory), layout.frames(), active));
        let astack = move |index| ClientAstack {
            call_at: layout.call_word(index),
            reply_at: layout.reply_word(index),
            sequence: AtomicU32::new(0),
            pending: AtomicU32::new(0),
            last_reply: AtomicU32::new(word::AWAY),
            server_cpu: AtomicU32::new(u32::MAX),
            client_cpu: AtomicU32::new(sys::current_cpu()),
            keep_rounds: AtomicU32::new(0),
            next_call: NextSlot::default(),
            next_reply: NextSlot::default(),
            store_mode: StoreMode::default(),
        };
        let astacks = Growing::new(layout.count, astack);
        Ok(Self { memory, layout, astacks, session, frames, untidy: AtomicBool::new(false) })
    }

    /// Wakes all callers because the session has ended. The caller of this function must have marked the
    /// session as ended.
    pub(crate) fn wake_all(&self) {
        // Only callers at A-stacks in use are woken: reading the words of other A-stacks would allocate their
        // memory. A caller that later takes another A-stack into use sees that the session has ended.
        for index in 0..self.frames.active() {
            let reply = self.memory.word(self.layout.reply_word(index));
            word::mark_dead(reply);
            sys::futex_wake(reply);
        }
    }

    /// Returns the size in bytes of the largest message that an A-stack holds.
    pub(crate) const fn message_bytes(&self) -> usize {
        self.layout.bytes
    }

    /// Notes that memory of an A-stack must be given back to the kernel later: a large message uses the
    /// memory, or the A-stack was added because many callers made calls at the same time.
    #[cold]
    pub(super) fn note_large(&self, index: u32) {
        self.astacks[index as usize].keep_rounds.store(2, Ordering::Relaxed);
        self.untidy.store(true, Ordering::Relaxed);
    }

    /// Returns whether any memory must be given back to the kernel later.
    #[inline]
    pub(crate) fn is_untidy(&self) -> bool {
        self.untidy.load(Ordering::Relaxed)
    }

    /// Gives the kernel back the memory that was not used since the previous round. Returns whether a later
    /// round may give back more.
    pub(crate) fn tidy(&self) -> bool {
        self.untidy.store(false, Ordering::Relaxed);
        let before = self.frames.active();
        self.frames.reclaim(&|index| self.is_released(index));
        self.frames.shrink(&|index| {
            self.memory.release(self.layout.call_word(index), self.layout.end_of(index));
        });
        self.frames.each_free(&|index| {
            let astack = &self.astacks[index as usize];
            let rounds = astack.keep_rounds.load(Ordering::Relaxed);
            astack.keep_rounds.store(rounds.saturating_sub(1), Ordering::Relaxed);
            if rounds == 1 {
                astack.next_call.reset();
                astack.next_reply.reset();
                let kept = limits::ASTACK_BYTES_KEPT;
                self.memory.release(astack.call_at + kept, astack.reply_at);
                self.memory.release(astack.reply_at + kept, self.layout.taken_word(index));
            }
        });
        let is_kept = |astack: &ClientAstack| astack.keep_rounds.load(Ordering::Relaxed) > 0;
        before > limits::ASTACKS && self.frames.active() > limits::ASTACKS
            || self.astacks.iter().any(is_kept)
    }

    /// Returns whether the server no longer uses an A-stack whose call was given up.
    pub(super) fn is_released(&self, frame: u32) -> bool {
        let astack = &self.astacks[frame as usize];
        let reply = self.memory.word(self.layout.reply_word(frame));
        match word::look(reply, astack.last_reply.load(Ordering::Relaxed)) {
            Look::Posted(late) => {
                // The next call must not mistake this late reply for its own reply. The given-up word is
                // cleared, because sequence numbers wrap: a later call with the same number must not count as
                // given up.
                astack.last_reply.store(late, Ordering::Relaxed);
                self.given_up_word(frame).store(word::AWAY, Ordering::Relaxed);
                true
            }
            Look::Dead => true,
            Look::Nothing(_) => {
                let last = posted(astack.sequence.load(Ordering::Relaxed));
                // If the client has taken the reply, the server no longer uses the A-stack. The frame was
                // given up because the reply was invalid, or reported that the call may have executed.
                if astack.last_reply.load(Ordering::Relaxed) == last {
                    return true;
                }
                self.check_words(frame, last);
                !self.session.is_alive()
            }
        }
    }

    /// Gives up call `id`, whose wait ended without a reply. Returns the error of the call.
    #[cold]
    pub(super) fn no_reply(&self, index: u32, id: u32, end: WaitEnd) -> CallError {
        if end == WaitEnd::Late && self.session.is_alive() {
            self.given_up_word(index).store(id, Ordering::Relaxed);
            let text = if self.was_taken(index, id) {
                "the server has not answered"
            } else {
                "no thread of the server has taken the call: all of them may run procedures \
                 (`Server::threads`)"
            };
            return CallError::new(Kind::TimedOut, Executed::Maybe, text);
        }
        // If the session is alive, the wait ended because a word has a value that neither side writes.
        self.session.mark_corrupted();
        self.session.failure(self.was_taken(index, id))
    }

    /// Returns whether call `id` was given up and, as far as the client knows, the server has not released
    /// the call's A-stack.
    pub(super) fn is_given_up(&self, index: u32, id: u32) -> bool {
        self.given_up_word(index).load(Ordering::Relaxed) == id
    }

    /// Ends the session if the reply to call `id` can no longer come. A server changes a call word only
    /// after it has posted the reply. If the call word has another value and there is no reply, a stray
    /// write has overwritten one of the two words.
    #[cold]
    pub(super) fn check_words(&self, index: u32, id: u32) {
        let astack = &self.astacks[index as usize];
        // SYNC: astack-reply. The server posts the reply before it changes the call word.
        if self.memory.word(astack.call_at).load(Ordering::Acquire) == id {
            return;
        }
        let reply = self.memory.word(astack.reply_at);
        if !matches!(word::look(reply, astack.last_reply.load(Ordering::Relaxed)), Look::Posted(_))
        {
            self.session.mark_corrupted();
        }
    }

    /// Returns whether the server has written that it has taken call `id`. A result of false is final only
    /// when the server cannot write any more.
    #[cold]
    pub(super) fn was_taken(&self, index: u32, id: u32) -> bool {
        self.memory.word(self.layout.taken_word(index)).load(Ordering::Acquire) == id
    }

    /// Returns the word that names the last call that was given up. The accesses to this word are relaxed,
    /// because it hands over no other memory. If the server sees a new value late, it only notices the
    /// cancellation late.
    fn given_up_word(&self, index: u32) -> &AtomicU32 {
        self.memory.word(self.layout.given_up_word(index))
    }

    /// Returns the words in which the two sides announce the progress of the call and of the reply.
    pub(super) fn progress_words(&self, index: u32) -> [&AtomicU32; 2] {
        let layout = &self.layout;
        [layout.progress_word(index), layout.reply_progress_word(index)]
            .map(|at| self.memory.word(at))
    }
}
