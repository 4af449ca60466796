//! The client's half of a local call: write the call line, post, wait, read the reply line.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::region::{ARRIVING, CallHeader, RegionLayout, ReplyHeader};
use super::session::Session;
use super::wait::{Event, Terms, Waiter, wait};
use super::word::{self, Look, Owed, posted};
use crate::call::chain::{self, Unchained, WaitingInside};
use crate::call::{Answer, Call, CallPath, Frames, Limit, PathKind, Returned, Wait, inside};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::limits;
use crate::stats::{Moment, stamp};
use crate::sys::{self, Memory};
use crate::value::align_up;

/// A session's A-stacks, seen from the client; all bindings between the two processes share them.
#[derive(Debug)]
pub(crate) struct ClientRegion {
    memory: Arc<Memory>,
    layout: RegionLayout,
    astacks: Box<[AStack]>,
    pub(crate) session: Session,
    pub(crate) frames: Arc<Frames>,
    /// Whether memory was used that is to be given back when it is not used any more.
    untidy: AtomicBool,
}

/// What the client alone knows of an A-stack; only the call that took its frame uses it, so
/// nothing here is contended: the atomics are plain memory to the processor.
#[derive(Debug)]
#[repr(align(128))]
struct AStack {
    /// Where its call line and its reply line begin.
    call_at: usize,
    reply_at: usize,
    sequence: AtomicU32,
    /// The last reply word that was taken.
    seen: AtomicU32,
    /// Where the server's thread last ran, and where the last caller.
    server_cpu: AtomicU32,
    client_cpu: AtomicU32,
    /// How many times of tidying since a large message passed here keep its memory.
    large: AtomicU32,
}

impl ClientRegion {
    /// The region that the server sent, with so many of its A-stacks in use.
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
        let astack = |index| AStack {
            call_at: layout.call_word(index),
            reply_at: layout.reply_word(index),
            sequence: AtomicU32::new(0),
            seen: AtomicU32::new(word::AWAY),
            server_cpu: AtomicU32::new(u32::MAX),
            client_cpu: AtomicU32::new(sys::current_cpu()),
            large: AtomicU32::new(0),
        };
        let astacks = (0..layout.count).map(astack).collect();
        Ok(Self { memory, layout, astacks, session, frames, untidy: AtomicBool::new(false) })
    }

    /// Tells every caller inside that the session has ended; to be called after it was noted.
    pub(crate) fn wake_all(&self) {
        for index in 0..self.layout.count {
            let reply = self.memory.word(self.layout.reply_word(index));
            word::bury(reply);
            sys::futex_wake(reply);
        }
    }

    /// Bytes of the largest message that an A-stack holds.
    pub(crate) const fn message_bytes(&self) -> usize {
        self.layout.bytes
    }

    /// A large message passes through an A-stack, or one that is not there for good is used.
    #[cold]
    fn used(&self, index: u32) {
        self.astacks[index as usize].large.store(2, Ordering::Relaxed);
        self.untidy.store(true, Ordering::Relaxed);
    }

    /// Whether there is something to be tidied up, later.
    #[inline]
    pub(crate) fn is_untidy(&self) -> bool {
        self.untidy.load(Ordering::Relaxed)
    }

    /// Gives memory back that nobody has used since the last time; whether some is left.
    pub(crate) fn tidy(&self) -> bool {
        self.untidy.store(false, Ordering::Relaxed);
        let before = self.frames.active();
        self.frames.shrink(&|index| {
            self.memory.release(self.layout.call_word(index), self.layout.end_of(index));
        });
        self.frames.each_free(&|index| {
            let astack = &self.astacks[index as usize];
            let large = astack.large.load(Ordering::Relaxed);
            astack.large.store(large.saturating_sub(1), Ordering::Relaxed);
            if large == 1 {
                let kept = limits::ASTACK_BYTES_KEPT;
                self.memory.release(astack.call_at + kept, astack.reply_at);
                self.memory.release(astack.reply_at + kept, self.layout.taken_word(index));
            }
        });
        let large = |astack: &AStack| astack.large.load(Ordering::Relaxed) > 0;
        before > limits::ASTACKS && self.frames.active() > limits::ASTACKS
            || self.astacks.iter().any(large)
    }

    /// There is no reply, and none will be waited for.
    #[cold]
    fn no_reply(&self, index: u32, call: u32, event: Event) -> CallError {
        if event == Event::Late && self.session.is_alive() {
            return CallError::new(Kind::TimedOut, Executed::Maybe, "the server has not answered");
        }
        self.session.failure(self.was_taken(index, call))
    }

    /// Whether the server says that it has taken a call. Certain only when it writes no more.
    #[cold]
    fn was_taken(&self, index: u32, call: u32) -> bool {
        self.memory.word(self.layout.taken_word(index)).load(Ordering::Acquire) == call
    }

    /// So many bytes of the message are in place.
    #[inline]
    fn progress(&self, index: u32, bytes: usize) {
        let word = self.memory.word(self.layout.progress_word(index));
        // SYNC: arrival, in the server's `Arrival::wait`.
        word.store(bytes as u32, Ordering::Release);
    }

    /// Puts the rest of a large message in place, piece by piece.
    #[cold]
    fn send(&self, call: &mut Call<'_, '_, '_>, index: u32, first: usize, total: usize) {
        let mut at = first;
        while at < total {
            let next = total.min(at + PIECE);
            // It was laid out within its space.
            let _ = call.put_more(at, next);
            self.progress(index, next);
            at = next;
        }
    }

    #[cold]
    fn foreign_reply(&self, astack: &AStack, reply: u32) -> CallError {
        astack.seen.store(reply, Ordering::Relaxed);
        CallError::bad_result("the reply belongs to another call")
    }
}

/// Messages of more bytes are posted when so many are in place.
const FIRST_PIECE: usize = 8 << 10;
/// Bytes put in place at a time then.
const PIECE: usize = 16 << 10;

/// A procedure makes a call: puts the chain of calls behind the message.
#[cold]
fn extend(call: &Call<'_, '_, '_>, total: usize, caller: u32) -> Result<u32, CallError> {
    match chain::write(call.frame.call_space(), align_up(total), caller) {
        Ok(bytes) => Ok(bytes as u32),
        Err(Unchained::NoRoom) => Err(CallError::too_large()),
        Err(Unchained::TooDeep) => {
            let text = format!("calls nest {} deep", limits::CHAIN_MAX);
            Err(CallError::not_executed(Kind::Exhausted, Phase::Marshal, text))
        }
    }
}

/// A caller that waits for the reply to its call.
struct Waiting<'a> {
    region: &'a ClientRegion,
    index: u32,
    message: u32,
    limit: Limit,
}

impl Waiter for Waiting<'_> {
    fn deadline(&self) -> Option<Instant> {
        self.limit.deadline()
    }

    fn is_over(&self) -> bool {
        !self.region.session.is_alive()
    }

    /// Nobody may have seen the call: the thread that looks there runs another one for long, or
    /// the ring was lost. The server is told, which costs those nothing whose calls are taken.
    fn unseen(&self) {
        if !self.region.was_taken(self.index, self.message) {
            self.region.session.ring(self.index, self.limit.deadline());
        }
    }
}

/// A binding's way to its export: its number in a session.
#[derive(Debug)]
pub(crate) struct LocalPath {
    pub(crate) region: Arc<ClientRegion>,
    pub(crate) binding: u32,
    /// Set when the server says that it has withdrawn the export.
    pub(crate) revoked: Arc<AtomicBool>,
    pub(crate) message_bytes: usize,
    pub(crate) wait: Wait,
}

impl CallPath for LocalPath {
    #[inline]
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let index = call.frame.index();
        let region = &*self.region;
        let astack = &region.astacks[index as usize];
        if !region.session.is_alive() {
            return Err(region.session.refusal());
        }
        let cpu = astack.client_cpu.load(Ordering::Relaxed);
        // A large message is posted when it has begun, for a server that can read it meanwhile.
        let apart = astack.server_cpu.load(Ordering::Relaxed) != cpu;
        let first = if apart { FIRST_PIECE.max(call.head.len()) } else { usize::MAX };
        let layout = call.put(first).filter(|layout| layout.total <= self.message_bytes);
        let Some(layout) = layout else { return Err(CallError::too_large()) };
        let mut arriving = layout.total > first;
        let outs: usize = call.outs.iter().map(|out| out.capacity()).sum();
        if layout.total.max(outs) > limits::ASTACK_BYTES_KEPT || index >= limits::ASTACKS {
            region.used(index);
        }
        let (extensions, _waiting) = match inside() {
            None => (0, None),
            Some(caller) => (extend(call, layout.total, caller)?, Some(WaitingInside::begin())),
        };
        let (answer, header) = loop {
            let header = CallHeader {
                binding: self.binding,
                procedure: call.procedure,
                head_bytes: layout.head as u32,
                copied: layout.copied as u32,
                total: layout.total as u32,
                cpu,
                extensions: if arriving { extensions | ARRIVING } else { extensions },
            };
            let (call_at, reply_at) = (astack.call_at, astack.reply_at);
            let space = region.memory.space();
            let sequence = astack.sequence.load(Ordering::Relaxed).wrapping_add(1);
            astack.sequence.store(sequence, Ordering::Relaxed);
            let message = posted(sequence);
            let call_word = region.memory.word(call_at);
            if arriving {
                region.progress(index, first);
            }

            // The call line goes over in one go: first bytes of the message, header, word. The
            // layout was checked against the region's size, so neither write can miss.
            call.head.flush();
            let _ = space.write_plain(call_at + 4, &header.words());
            stamp(Moment::Ready);
            // The point of no return: from here on the server may run the call.
            match word::post(call_word, message) {
                Owed::Nothing => {}
                Owed::Wake => drop(sys::futex_wake(call_word)),
                Owed::Ring => region.session.ring(index, call.limit.deadline()),
            }
            stamp(Moment::Posted);
            if arriving {
                region.send(call, index, first, layout.total);
            }

            let seen = astack.seen.load(Ordering::Relaxed);
            let peer_cpu = astack.server_cpu.load(Ordering::Relaxed);
            let mut terms = Terms { wait: self.wait, own_cpu: cpu, peer_cpu };
            let reply_word = region.memory.word(reply_at);
            let waiting = Waiting { region, index, message, limit: call.limit };
            let event = wait(reply_word, seen, &mut terms, &waiting);
            stamp(Moment::Seen);
            astack.client_cpu.store(terms.own_cpu, Ordering::Relaxed);
            match event {
                Event::Posted(reply) if reply == message => {
                    astack.seen.store(reply, Ordering::Relaxed);
                }
                Event::Posted(reply) => return Err(region.foreign_reply(astack, reply)),
                // What was posted just before the end is still a reply.
                event if word::look(reply_word, seen) != Look::Posted(message) => {
                    return Err(region.no_reply(index, message, event));
                }
                _ => astack.seen.store(message, Ordering::Relaxed),
            }

            let words = space.read_plain(reply_at + 4);
            let header = ReplyHeader::of(words.unwrap_or([u32::MAX; 4]));
            astack.server_cpu.store(header.cpu, Ordering::Relaxed);
            match Answer::from_number(header.answer) {
                // This thread did not run for a while in the middle of it; now all is in place.
                Some(Answer::PostAgain) if arriving => arriving = false,
                Some(Answer::PostAgain) | None => {
                    return Err(CallError::bad_result("unknown kind of answer"));
                }
                Some(answer) => break (answer, header),
            }
        };
        if header.head_bytes as usize > limits::ASTACK_BYTES_KEPT {
            region.used(index);
        }
        if answer == Answer::Ok {
            call.take_blocks().map_err(|invalid| CallError::bad_result(invalid.to_string()))?;
        }
        Ok(Returned { answer, head_at: header.head_at, head_bytes: header.head_bytes })
    }

    fn kind(&self) -> PathKind {
        PathKind::Local
    }

    fn is_alive(&self) -> bool {
        self.region.session.is_alive() && !self.revoked.load(Ordering::Acquire)
    }

    fn let_go(&self, frame: u32) -> bool {
        let region = &*self.region;
        let astack = &region.astacks[frame as usize];
        let reply = region.memory.word(region.layout.reply_word(frame));
        match word::look(reply, astack.seen.load(Ordering::Relaxed)) {
            Look::Posted(late) => {
                // The next call waits for another word than this late one.
                astack.seen.store(late, Ordering::Relaxed);
                true
            }
            Look::Dead => true,
            Look::Nothing(_) => {
                let last = posted(astack.sequence.load(Ordering::Relaxed));
                // The reply was taken but could not be read.
                astack.seen.load(Ordering::Relaxed) == last || !region.session.is_alive()
            }
        }
    }
}
