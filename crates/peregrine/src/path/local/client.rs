//! The client's half of a local call: write the call line, post, wait, read the reply line.

pub(crate) mod wait;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use self::wait::{Event, Terms, Waiter, wait, wait_longer};
use super::peer::session::Session;
use super::region::chunks::{Pace, Stream};
use super::region::word::{self, Look, Owed, posted};
use super::region::{CallHeader, Manner, Next, PLACE_BYTES, RegionLayout, ReplyHeader};
use crate::call::chain::WaitingInside;
use crate::call::extensions::Extensions;
use crate::call::{Answer, Call, CallPath, Frames, Layout, PathKind, Returned, Wait, inside};
use crate::error::{CallError, Executed, Kind};
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
    /// Where the next large message of either direction goes; no place for a reply if the last one
    /// was small.
    call_next: Next,
    reply_next: Next,
    pace: Pace,
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
            call_next: Next::default(),
            reply_next: Next::default(),
            pace: Pace::default(),
        };
        let astacks = (0..layout.count).map(astack).collect();
        Ok(Self { memory, layout, astacks, session, frames, untidy: AtomicBool::new(false) })
    }

    /// Tells every caller inside that the session has ended; to be called after it was noted.
    pub(crate) fn wake_all(&self) {
        // No more than are in use, for a look at the others would give them memory. Whoever takes
        // one of those into use from now on sees what was noted.
        for index in 0..self.frames.active() {
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
        self.frames.reclaim(&|index| self.is_released(index));
        self.frames.shrink(&|index| {
            self.memory.release(self.layout.call_word(index), self.layout.end_of(index));
        });
        self.frames.each_free(&|index| {
            let astack = &self.astacks[index as usize];
            let large = astack.large.load(Ordering::Relaxed);
            astack.large.store(large.saturating_sub(1), Ordering::Relaxed);
            if large == 1 {
                astack.call_next.forget();
                astack.reply_next.forget();
                let kept = limits::ASTACK_BYTES_KEPT;
                self.memory.release(astack.call_at + kept, astack.reply_at);
                self.memory.release(astack.reply_at + kept, self.layout.taken_word(index));
            }
        });
        let large = |astack: &AStack| astack.large.load(Ordering::Relaxed) > 0;
        before > limits::ASTACKS && self.frames.active() > limits::ASTACKS
            || self.astacks.iter().any(large)
    }

    /// Whether the server has let go of an A-stack whose call was given up.
    fn is_released(&self, frame: u32) -> bool {
        let astack = &self.astacks[frame as usize];
        let reply = self.memory.word(self.layout.reply_word(frame));
        match word::look(reply, astack.seen.load(Ordering::Relaxed)) {
            Look::Posted(late) => {
                // The next call waits for another word than this late one; and when numbers begin
                // anew, the one that has this call's was not given up.
                astack.seen.store(late, Ordering::Relaxed);
                self.given_up(frame).store(word::AWAY, Ordering::Relaxed);
                true
            }
            Look::Dead => true,
            Look::Nothing(_) => {
                let last = posted(astack.sequence.load(Ordering::Relaxed));
                // The reply was taken, and said that the call may have run or could not be read.
                if astack.seen.load(Ordering::Relaxed) == last {
                    return true;
                }
                self.check(frame, last);
                !self.session.is_alive()
            }
        }
    }

    /// There is no reply, and none will be waited for.
    #[cold]
    fn no_reply(&self, index: u32, call: u32, event: Event) -> CallError {
        if event == Event::Late && self.session.is_alive() {
            self.given_up(index).store(call, Ordering::Relaxed);
            return CallError::new(Kind::TimedOut, Executed::Maybe, "the server has not answered");
        }
        // Nothing else ends a wait while the session is alive but a word that means nothing.
        self.session.spoil();
        self.session.failure(self.was_taken(index, call))
    }

    /// Gives the session up if the reply to a call can no longer come. The server changes a call word
    /// only after it has posted the reply. So if the word is another one, and no reply is there,
    /// then somebody has written over one of the two.
    #[cold]
    fn check(&self, index: u32, call: u32) {
        let astack = &self.astacks[index as usize];
        // SYNC: astack-reply. Whoever changed the call word has posted the reply before.
        if self.memory.word(astack.call_at).load(Ordering::Acquire) == call {
            return;
        }
        let reply = self.memory.word(astack.reply_at);
        if !matches!(word::look(reply, astack.seen.load(Ordering::Relaxed)), Look::Posted(_)) {
            self.session.spoil();
        }
    }

    /// Whether the server says that it has taken a call. Certain only when it writes no more.
    #[cold]
    fn was_taken(&self, index: u32, call: u32) -> bool {
        self.memory.word(self.layout.taken_word(index)).load(Ordering::Acquire) == call
    }

    /// The word that tells which call was given up. Nothing is to be seen with it, so it may come late.
    fn given_up(&self, index: u32) -> &AtomicU32 {
        self.memory.word(self.layout.given_up_word(index))
    }

    /// The word that tells of a large call, and the one that tells of a large reply.
    fn progress(&self, index: u32) -> [&AtomicU32; 2] {
        let layout = &self.layout;
        [layout.progress_word(index), layout.reply_progress_word(index)]
            .map(|at| self.memory.word(at))
    }

    /// Lays a large message out where the last one ended, and puts its beginning in place; the
    /// stream is for the rest, which the server reads as it comes. `None` if there is no room.
    #[cold]
    fn begin<'a>(
        &'a self,
        call: &mut Call<'_, '_, '_>,
        message_bytes: usize,
    ) -> Option<(Layout, Manner, Stream<'a>)> {
        let index = call.frame.index();
        let astack = &self.astacks[index as usize];
        let layout = call.layout();
        if layout.total > message_bytes {
            return None;
        }
        let mut manner = Manner::PLAIN.arriving();
        // A head that is large by itself has been written already, and stays where it is.
        if layout.head <= FIRST_PIECE {
            let place = astack.call_next.place().max(1);
            astack.call_next.is_behind(place, layout.total);
            manner = manner.with_call_at(place);
            let (at, space) = (manner.call_at(), call.frame.call_space());
            call.head.move_to(space.part(at, space.len() - at)?)?;
        }
        let [progress, _] = self.progress(index);
        let stream = Stream::new(&astack.pace, progress);
        call.put_part(0, first_piece(&layout), &stream)?;
        Some((layout, manner, stream))
    }

    /// Puts the rest of a large message in place.
    #[cold]
    fn send(&self, call: &mut Call<'_, '_, '_>, layout: &Layout, stream: &Stream<'_>) {
        // It was laid out within its space.
        let _ = call.put_part(first_piece(layout), layout.total, stream);
        stream.tell(layout.total);
    }

    /// The last reply here was large, and the server is another processor's: this one goes where
    /// that one ended, and is read as it is written.
    #[cold]
    fn expect_large(&self, index: u32, manner: Manner) -> Manner {
        let [_, progress] = self.progress(index);
        progress.store(0, Ordering::Relaxed);
        manner.with_reply_at(self.astacks[index as usize].reply_next.place())
    }

    /// A reply to such a call has come whole: whether what was read of it before holds.
    #[cold]
    fn settle(&self, call: &mut Call<'_, '_, '_>) {
        let [_, progress] = self.progress(call.frame.index());
        if progress.load(Ordering::Relaxed) == 0 {
            call.forget_early();
        }
    }

    /// A reply of so many bytes was large, or might have been.
    #[cold]
    fn replied(&self, index: u32, manner: Manner, bytes: usize) {
        let astack = &self.astacks[index as usize];
        if bytes > FIRST_PIECE {
            self.used(index);
            astack.reply_next.is_behind(manner.reply_place(), bytes);
        } else {
            astack.reply_next.forget();
        }
    }

    #[cold]
    fn foreign_reply(&self, astack: &AStack, reply: u32) -> CallError {
        astack.seen.store(reply, Ordering::Relaxed);
        CallError::bad_result("the reply belongs to another call")
    }
}

/// Messages of more bytes are large, and posted when so many are in place.
const FIRST_PIECE: usize = PLACE_BYTES;

/// Bytes of a large message that are in place when it is posted.
fn first_piece(layout: &Layout) -> usize {
    FIRST_PIECE.max(layout.head)
}

/// A procedure makes a call, or it has a limit: puts what is to be told of that behind the message; how
/// many bytes it has.
#[cold]
fn extend(
    call: &Call<'_, '_, '_>,
    total: usize,
    inside: Option<u32>,
    deadline: Option<Instant>,
) -> Result<u32, CallError> {
    let extensions = Extensions::of(inside, deadline)?;
    let extensions = extensions.as_bytes();
    let written = call.head.space().write(align_up(total), extensions);
    // Behind the largest message, wherever it begins, is room for as much again as a place has.
    written.map(|()| extensions.len() as u32).ok_or_else(CallError::too_large)
}

/// A caller that waits for the reply to its call.
struct Waiting<'a> {
    region: &'a ClientRegion,
    index: u32,
    message: u32,
    deadline: Option<Instant>,
}

impl Waiter for Waiting<'_> {
    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn is_over(&self) -> bool {
        !self.region.session.is_alive()
    }

    /// Nobody may have seen the call: the thread that looks there runs another one for long, or
    /// the ring was lost. The server is told, which costs those nothing whose calls are taken.
    fn unseen(&self) {
        self.region.check(self.index, self.message);
        if !self.region.was_taken(self.index, self.message) {
            self.region.session.ring(self.index, self.deadline);
        }
    }
}

/// A caller that waits for a large reply, and takes what is there of it.
struct Following<'a, 'c, 'f, 'o, 't> {
    waiting: Waiting<'a>,
    call: &'t mut Call<'c, 'f, 'o>,
    place: usize,
    progress: &'a AtomicU32,
    taken: u32,
}

impl Waiter for Following<'_, '_, '_, '_, '_> {
    fn deadline(&self) -> Option<Instant> {
        self.waiting.deadline()
    }

    fn is_over(&self) -> bool {
        self.waiting.is_over()
    }

    fn unseen(&self) {
        self.waiting.unseen();
    }

    fn news(&mut self) -> bool {
        // SYNC: arrival, in the server's `Stream::tell`.
        let there = self.progress.load(Ordering::Acquire);
        if there == self.taken {
            return false;
        }
        self.taken = there;
        self.call.take_early(self.place, there as usize);
        true
    }
}

/// As [`wait`], for a large reply.
#[cold]
fn follow(
    reply_word: &AtomicU32,
    seen: u32,
    terms: &mut Terms,
    waiting: Waiting<'_>,
    call: &mut Call<'_, '_, '_>,
    manner: Manner,
) -> Event {
    let [_, progress] = waiting.region.progress(waiting.index);
    let place = manner.reply_at();
    wait_longer(
        reply_word,
        seen,
        terms,
        &mut Following { waiting, call, place, progress, taken: 0 },
    )
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
        let mut rest = None;
        let (layout, mut manner) = match call.put(if apart { FIRST_PIECE } else { usize::MAX }) {
            Some(layout) if layout.total <= self.message_bytes => (layout, Manner::PLAIN),
            None if apart => {
                let begun = region.begin(call, self.message_bytes);
                let (layout, manner, stream) = begun.ok_or_else(CallError::too_large)?;
                rest = Some(stream);
                (layout, manner)
            }
            _ => return Err(CallError::too_large()),
        };
        let outs: usize = call.outs.iter().map(|out| out.capacity()).sum();
        if layout.total.max(outs) > FIRST_PIECE || index >= limits::ASTACKS {
            region.used(index);
        }
        if astack.reply_next.place() != 0 && apart {
            manner = region.expect_large(index, manner);
        }
        let (inside, deadline) = (inside(), call.limit.deadline());
        if inside.is_some() || deadline.is_some() {
            let extensions = extend(call, layout.total, inside, deadline)?;
            manner = manner.with_extensions(extensions);
        }
        let _waiting = inside.map(|_| WaitingInside::begin());
        let (answer, header) = loop {
            let header = CallHeader {
                binding: self.binding,
                procedure: call.procedure,
                head_bytes: layout.head as u32,
                copied: layout.copied as u32,
                total: layout.total as u32,
                cpu,
                manner,
            };
            let (call_at, reply_at) = (astack.call_at, astack.reply_at);
            let space = region.memory.space();
            let sequence = astack.sequence.load(Ordering::Relaxed).wrapping_add(1);
            astack.sequence.store(sequence, Ordering::Relaxed);
            let message = posted(sequence);
            let call_word = region.memory.word(call_at);
            if let Some(stream) = &rest {
                stream.tell(first_piece(&layout));
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
                Owed::Ring => region.session.ring(index, deadline),
            }
            stamp(Moment::Posted);
            if let Some(stream) = rest.take() {
                region.send(call, &layout, &stream);
            }

            let seen = astack.seen.load(Ordering::Relaxed);
            let peer_cpu = astack.server_cpu.load(Ordering::Relaxed);
            let mut terms = Terms { wait: self.wait, own_cpu: cpu, peer_cpu };
            let reply_word = region.memory.word(reply_at);
            let mut waiting = Waiting { region, index, message, deadline };
            let event = if manner.reply_at() == 0 {
                wait(reply_word, seen, &mut terms, &mut waiting)
            } else {
                follow(reply_word, seen, &mut terms, waiting, call, manner)
            };
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
                Some(Answer::PostAgain) if manner.is_arriving() => manner = manner.arrived(),
                Some(Answer::PostAgain) | None => {
                    return Err(CallError::bad_result("unknown kind of answer"));
                }
                Some(answer) => break (answer, header),
            }
        };
        let (place, mut head_at) = (manner.reply_at(), header.head_at);
        if place != 0 {
            region.settle(call);
            // What is said to lie outside of the reply does so with this, too.
            head_at = head_at.saturating_add(place as u32);
        }
        let mut bytes = header.head_at as usize + header.head_bytes as usize;
        if answer == Answer::Ok {
            let blocks = call.take_blocks(place);
            let end = blocks.map_err(|invalid| CallError::bad_result(invalid.to_string()))?;
            bytes = bytes.max(end);
        }
        if bytes > FIRST_PIECE || place != 0 {
            region.replied(index, manner, bytes);
        }
        Ok(Returned { answer, head_at, head_bytes: header.head_bytes })
    }

    fn kind(&self) -> PathKind {
        PathKind::Local
    }

    fn is_alive(&self) -> bool {
        self.region.session.is_alive() && !self.revoked.load(Ordering::Acquire)
    }

    fn is_released(&self, frame: u32) -> bool {
        self.region.is_released(frame)
    }
}
