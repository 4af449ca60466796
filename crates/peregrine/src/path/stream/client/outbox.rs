//! Messages of pending calls that are not sent completely.
//!
//! A pending call is begun by a thread that must not wait. If another thread is sending, or the socket
//! accepts only a part of the message, the message is queued. The message stays in the frame of its call. A
//! thread that holds the lock for sending sends the queue: the next caller that sends, the thread that sends
//! now, or the keeper when the socket has space again.
//!
//! SYNC: queue. A thread that queues a message sets the mark of the lock afterwards (`SendLock::request`).
//! While the lock has the mark and no thread holds the lock, the keeper watches for space in the socket, or a
//! thread is about to take the lock.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use super::Connection;
use super::stall::CallerStall;
use super::turns::full_fence;
use crate::error::{CallError, Kind, Phase};
use crate::growing::Growing;
use crate::path::stream::peer::send_lock::SendGuard;
use crate::path::stream::peer::sending::{OnStall as _, Sending};
use crate::protocol::stream::client_end::{CAPTURED, ClientEnd, IDLE};
use crate::protocol::stream::{HEADER_BYTES, padding};
use crate::sync::Mutex;
use crate::sys::Parts;
use crate::value::Window;

/// A message that is not sent completely yet.
pub(super) struct Outgoing {
    /// The frame whose call space holds the head and the blocks.
    frame: u32,
    header: [u8; HEADER_BYTES],
    /// The number of bytes of the head and the blocks.
    body: usize,
    extensions: Box<[u8]>,
    /// The number of bytes that were sent.
    sent: usize,
    /// Whether the call was given up. The message must be sent to its end nevertheless.
    given_up: bool,
}

/// The message of a pending call.
pub(super) struct Message<'a> {
    pub(super) frame: u32,
    pub(super) header: [u8; HEADER_BYTES],
    /// The number of bytes of the head and the blocks, in the call space of the frame.
    pub(super) body: usize,
    pub(super) extensions: &'a [u8],
}

// The states of the message of a frame.

/// The message was sent, or there is none.
const SENT: u32 = 0;
/// The message is not sent completely.
const UNSENT: u32 = 1;
/// The connection ended before any byte was sent.
const NOT_BEGUN: u32 = 2;
/// The connection ended after a part was sent.
const CUT: u32 = 3;

/// What has become of the message of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Sent,
    Unsent,
    /// The rest of the message will never be sent, because the connection has ended. The text says how much
    /// was sent.
    Never(&'static str),
}

/// What happens to the message of a call that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    /// The message was sent.
    Sent,
    /// The rest of the message is sent later, and then the cancellation.
    Later,
    /// The message will never be sent completely.
    Never,
}

#[derive(Default)]
struct Queue {
    /// If a part of a message was sent, that message is the first.
    messages: VecDeque<Outgoing>,
    /// The frame of the message that a thread is sending now, and whether its call was given up meanwhile.
    /// The message is not in `messages`.
    current: Option<(u32, bool)>,
    /// The frames whose bells must ring, to wake the futures of their calls.
    rings: Vec<u32>,
}

/// The messages of a connection that are not sent completely.
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    /// The state of each frame's message. The state of a queued message changes only while `queue` is locked.
    states: Growing<AtomicU32>,
    /// Whether messages or cancellations wait for space in the socket.
    is_stuck: AtomicBool,
}

impl Outbox {
    pub(super) fn new(count: u32) -> Self {
        Self {
            queue: Mutex::default(),
            states: Growing::new(count, |_| AtomicU32::new(SENT)),
            is_stuck: AtomicBool::new(false),
        }
    }

    fn state(&self, frame: u32) -> &AtomicU32 {
        &self.states[frame as usize]
    }

    /// Returns whether the message of a frame is not sent completely, so that the frame must not be used.
    #[inline]
    pub(super) fn holds(&self, frame: u32) -> bool {
        self.state(frame).load(Ordering::SeqCst) == UNSENT
    }

    /// Returns what has become of the message of a frame.
    pub(super) fn fate(&self, frame: u32) -> Fate {
        match self.state(frame).load(Ordering::SeqCst) {
            UNSENT => Fate::Unsent,
            NOT_BEGUN => Fate::Never(super::NOTHING),
            CUT => Fate::Never("only a part of the call"),
            _ => Fate::Sent,
        }
    }

    /// Forgets the message of a frame, because the message was sent or will never be sent.
    pub(super) fn forget(&self, frame: u32) {
        self.state(frame).store(SENT, Ordering::SeqCst);
    }

    /// Returns whether messages or cancellations wait for space in the socket.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::SeqCst)
    }

    fn len(&self) -> usize {
        self.queue.lock().messages.len()
    }

    /// Queues a message. A message of which a part was sent becomes the first, because its rest must directly
    /// follow that part.
    fn push(&self, message: Outgoing) {
        let mut queue = self.queue.lock();
        self.state(message.frame).store(UNSENT, Ordering::SeqCst);
        match message.sent {
            0 => queue.messages.push_back(message),
            _ => queue.messages.push_front(message),
        }
    }

    /// Takes the first message, to send it. The caller holds the lock for sending.
    fn next(&self) -> Option<Outgoing> {
        let mut queue = self.queue.lock();
        let message = queue.messages.pop_front()?;
        queue.current = Some((message.frame, message.given_up));
        Some(message)
    }

    /// Puts back a message that was not sent completely. Returns false if the call was given up and nothing
    /// of the message was sent: then the message is dropped.
    fn put_back(&self, mut message: Outgoing) -> bool {
        let mut queue = self.queue.lock();
        message.given_up = queue.current.take().is_some_and(|(_, given_up)| given_up);
        if message.given_up && message.sent == 0 {
            self.forget(message.frame);
            return false;
        }
        queue.messages.push_front(message);
        true
    }

    /// Notes that a message was sent completely. If its call was given up meanwhile, notes that a
    /// cancellation must follow.
    fn complete(&self, frame: u32, end: &ClientEnd) {
        let mut queue = self.queue.lock();
        // The cancellation is noted while the frame is still held. A cancellation that is noted later could
        // cancel the next call in this frame.
        if queue.current.take().is_some_and(|(_, given_up)| given_up) {
            end.cancel(frame);
        }
        self.forget(frame);
    }

    /// Notes that a call is given up. The caller of this function has already captured the slot of the call.
    pub(super) fn give_up(&self, frame: u32) -> GivenUp {
        let mut queue = self.queue.lock();
        match self.state(frame).load(Ordering::SeqCst) {
            SENT => return GivenUp::Sent,
            UNSENT => {}
            _ => {
                self.forget(frame);
                return GivenUp::Never;
            }
        }
        if let Some((current, given_up)) = &mut queue.current
            && *current == frame
        {
            *given_up = true;
            return GivenUp::Later;
        }
        let Some(at) = queue.messages.iter().position(|one| one.frame == frame) else {
            return GivenUp::Sent;
        };
        if queue.messages[at].sent > 0 {
            queue.messages[at].given_up = true;
            return GivenUp::Later;
        }
        queue.messages.remove(at);
        self.forget(frame);
        GivenUp::Never
    }

    /// Drops all messages, because the connection has ended. The caller holds the lock for sending.
    fn purge(&self) {
        let mut queue = self.queue.lock();
        let Queue { messages, rings, .. } = &mut *queue;
        for message in messages.drain(..) {
            let state = match (message.given_up, message.sent) {
                (true, _) => SENT,
                (false, 0) => NOT_BEGUN,
                (false, _) => CUT,
            };
            self.state(message.frame).store(state, Ordering::SeqCst);
            rings.push(message.frame);
        }
    }

    fn ring_later(&self, frame: u32) {
        self.queue.lock().rings.push(frame);
    }

    fn take_rings(&self) -> Vec<u32> {
        core::mem::take(&mut self.queue.lock().rings)
    }
}

/// The held lock for sending. When it is dropped, messages that were queued meanwhile are sent.
pub(super) struct OutputGuard<'a> {
    connection: &'a Connection,
    /// `None` only while this value is dropped.
    lock: Option<SendGuard<'a>>,
}

impl<'a> OutputGuard<'a> {
    #[inline]
    pub(super) const fn new(connection: &'a Connection, lock: SendGuard<'a>) -> Self {
        Self { connection, lock: Some(lock) }
    }

    /// Releases the lock although something waits for space in the socket. The keeper watches for space.
    fn leave(mut self) {
        if let Some(lock) = self.lock.take() {
            self.connection.leave_output(lock);
        }
    }
}

impl Drop for OutputGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.take().is_some_and(SendGuard::release) {
            self.connection.send_queue();
        }
    }
}

static ZEROS: [u8; 16] = [0; 16];

impl Connection {
    /// Sends the message of a pending call without waiting, or queues it.
    ///
    /// # Errors
    /// If the message will not be sent.
    pub(super) fn send_or_queue(&self, message: &Message<'_>) -> Result<(), CallError> {
        let mut sent = 0;
        if let Some(lock) = self.output.try_take() {
            let lock = OutputGuard::new(self, lock);
            if self.has_ended() {
                return Err(self.not_sent(super::NOTHING));
            }
            // From here on, the server may get the whole message, and may then execute the call.
            match self.send_some(message, &mut sent) {
                Ok(()) => {
                    drop(lock);
                    // SYNC: cancels. This thread has released the lock, and now looks for cancellations, as
                    // `send` does.
                    if self.end.has_cancels() {
                        self.send_cancels();
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.outbox.push(Outgoing::new(message, sent));
                    lock.leave();
                    return Ok(());
                }
                Err(error) => return Err(self.failed_to_send(&error, sent > 0)),
            }
        }
        self.outbox.push(Outgoing::new(message, 0));
        self.send_queue();
        Ok(())
    }

    /// Sends bytes of a message, from the byte `sent` on, until all are sent or the socket accepts no more.
    /// Adds the number of bytes to `sent`. A peer that reads as fast as this thread sends does not keep the
    /// thread here: after a while, the function returns as if the socket were full.
    fn send_some(&self, message: &Message<'_>, sent: &mut usize) -> io::Result<()> {
        /// The largest number of system calls. One of them sends at most what the socket's buffer holds.
        const SENDS_MAX: usize = 8;
        let Message { frame, ref header, body, extensions } = *message;
        let mut parts = Parts::new();
        let there = self.call_space(frame).range(0, body);
        parts.push(Window::from(&header[..]));
        parts.push(there.window());
        parts.push(Window::from(&ZEROS[..padding(HEADER_BYTES + body)]));
        parts.push(Window::from(extensions));
        parts.push(Window::from(&ZEROS[..padding(extensions.len())]));
        let all = parts.left();
        parts.advance(*sent);
        let mut result = Ok(());
        for _ in 0..SENDS_MAX {
            result = self.stream.send(&mut parts, false);
            let interrupted = |error: &io::Error| error.kind() == io::ErrorKind::Interrupted;
            if parts.is_empty() || result.as_ref().is_err_and(|error| !interrupted(error)) {
                break;
            }
        }
        let left = parts.left();
        *sent = all - left;
        match result {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ if left > 0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    }

    /// Sends the messages of the queue as far as the socket accepts them. If another thread is sending now,
    /// that thread sends them later.
    #[cold]
    pub(super) fn send_queue(&self) {
        if let Some(lock) = self.output.request() {
            self.work_off(lock);
        }
    }

    /// Sends the messages of the queue, or drops them if the connection has ended. If another thread holds
    /// the lock, that thread does so. Returns whether the keeper now watches for space in the socket.
    #[cold]
    pub(super) fn settle_queue(&self) -> bool {
        self.output.take_idle().is_some_and(|lock| self.work_off(lock))
    }

    /// Sends the noted cancellations. If another thread is sending now, that thread sends them later.
    #[cold]
    pub(super) fn send_cancels(&self) {
        if self.end.has_cancels()
            && let Some(lock) = self.output.take_idle()
        {
            self.work_off(lock);
        }
    }

    /// Sends what is queued, and releases the lock. Returns whether something is left. In that case, the
    /// keeper now watches for space in the socket.
    #[cold]
    fn work_off(&self, lock: SendGuard<'_>) -> bool {
        let mut held = Some(lock);
        while let Some(lock) = held {
            // While this thread sends, the keeper need not watch for space in the socket.
            self.outbox.is_stuck.store(false, Ordering::SeqCst);
            let is_stuck = self.send_queued();
            let more = if is_stuck {
                self.leave_output(lock);
                false
            } else {
                lock.release()
            };
            // Bells run code of the application, so no lock is held here.
            for frame in self.outbox.take_rings() {
                self.frames.bell(frame).ring();
            }
            if is_stuck {
                return true;
            }
            // SYNC: cancels. This thread has released the lock, and now looks for cancellations, as `send`
            // does.
            held = match more {
                true => self.output.request(),
                false if self.end.has_cancels() => self.output.take_idle(),
                false => None,
            };
        }
        false
    }

    /// Releases the lock for sending although something waits for space in the socket. From now on, the
    /// keeper watches for space.
    #[cold]
    fn leave_output(&self, lock: SendGuard<'_>) {
        self.outbox.is_stuck.store(true, Ordering::SeqCst);
        lock.release_queued();
        self.renew_watch();
    }

    /// Sends queued messages and cancellations. Returns whether something waits for space in the socket. The
    /// caller holds the lock for sending.
    fn send_queued(&self) -> bool {
        /// The largest number of messages that one thread sends for others. After that, the keeper continues.
        const MESSAGES_MAX: usize = 64;
        for _ in 0..MESSAGES_MAX {
            // The connection may have ended after a part of a message. Nothing may follow that part, because
            // the server would read the following bytes as the rest of the message.
            if self.has_ended() {
                self.outbox.purge();
                return false;
            }
            let Some(mut message) = self.outbox.next() else {
                return self.end.has_cancels() && !self.send_noted_cancels();
            };
            match message.send(self) {
                Ok(()) => self.is_sent(message.frame),
                Err(error) => {
                    let (frame, begun) = (message.frame, message.sent > 0);
                    if !self.outbox.put_back(message) {
                        self.slot(frame).moves(CAPTURED, IDLE);
                    }
                    if error.kind() == io::ErrorKind::WouldBlock {
                        return true;
                    }
                    let _ = self.failed_to_send(&error, begun);
                }
            }
        }
        true
    }

    /// Sends the noted cancellations. Returns false if the socket has no space for them. The caller holds the
    /// lock for sending.
    fn send_noted_cancels(&self) -> bool {
        let mut is_sent = true;
        self.end.send_cancels(|header| {
            let header = header.to_bytes();
            // This deadline has passed already. So the thread does not wait if the socket is full.
            let at_once = CallerStall { connection: self, deadline: Some(Instant::now()) };
            let mut sending = Sending::new(&self.stream, at_once);
            let sent = sending.part(Window::from(&header[..])).and_then(|()| sending.end());
            if let Err(error) = &sent {
                let _ = self.failed_to_send(error, sending.begun);
                is_sent = false;
            }
            sent.is_ok()
        });
        is_sent || self.has_ended()
    }

    /// Handles a message of the queue that was sent completely.
    fn is_sent(&self, frame: u32) {
        self.outbox.complete(frame, &self.end);
        // SYNC: early reply. A server may answer a call before it has received the whole message. This thread
        // notes that the message was sent, and then looks for the reply. The future looks for the reply, and
        // then reads whether the message was sent. If the future misses the note, this thread sees the reply,
        // and rings the bell.
        full_fence();
        if self.slot(frame).is_done() {
            self.outbox.ring_later(frame);
        }
    }

    /// Takes the lock for sending for a caller that may wait. First sends the messages that were queued
    /// before.
    ///
    /// # Errors
    /// If the deadline passes. Nothing of the caller's message was sent.
    #[cold]
    pub(super) fn take_output(
        &self,
        deadline: Option<Instant>,
    ) -> Result<OutputGuard<'_>, CallError> {
        let Some((lock, queued)) = self.output.take_slowly(deadline) else {
            let text = "other threads were still sending on the connection";
            return Err(CallError::not_executed(Kind::TimedOut, Phase::Call, text));
        };
        let lock = OutputGuard::new(self, lock);
        if queued {
            self.send_those_before(deadline)?;
        }
        Ok(lock)
    }

    /// Sends the messages that are queued now. Waits while the socket is full, until the deadline. The caller
    /// holds the lock for sending.
    fn send_those_before(&self, deadline: Option<Instant>) -> Result<(), CallError> {
        // While this thread waits for space in the socket, the keeper need not watch for space.
        self.outbox.is_stuck.store(false, Ordering::SeqCst);
        // When this thread releases the lock, it rings the bells, and sends what is left.
        self.output.leave_queued();
        for _ in 0..self.outbox.len() {
            if self.has_ended() {
                break;
            }
            let Some(mut message) = self.outbox.next() else { break };
            let stall = CallerStall { connection: self, deadline };
            let sent = loop {
                match message.send(self) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => match stall.wait() {
                        Ok(()) => {}
                        Err(error) => break Err(error),
                    },
                    sent => break sent,
                }
            };
            let Err(error) = sent else {
                self.is_sent(message.frame);
                continue;
            };
            let (frame, begun) = (message.frame, message.sent > 0);
            if !self.outbox.put_back(message) {
                self.slot(frame).moves(CAPTURED, IDLE);
            }
            if error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none() {
                let text = "the server does not read from the connection";
                return Err(CallError::not_executed(Kind::TimedOut, Phase::Call, text));
            }
            let _ = self.failed_to_send(&error, begun);
        }
        Ok(())
    }

    /// Returns whether a frame whose message was not sent completely can be used again now, because the
    /// connection has ended.
    #[cold]
    pub(super) fn gives_back(&self, frame: u32) -> bool {
        if self.has_ended() {
            self.settle_queue();
        }
        !self.outbox.holds(frame)
    }
}

impl Outgoing {
    fn new(message: &Message<'_>, sent: usize) -> Self {
        let Message { frame, header, body, extensions } = *message;
        Self { frame, header, body, extensions: extensions.into(), sent, given_up: false }
    }

    /// Sends further bytes, until all are sent or the socket accepts no more.
    fn send(&mut self, connection: &Connection) -> io::Result<()> {
        let Self { frame, header, body, ref extensions, ref mut sent, .. } = *self;
        connection.send_some(&Message { frame, header, body, extensions }, sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing(frame: u32, sent: usize) -> Outgoing {
        let message = Message { frame, header: [0; HEADER_BYTES], body: 100, extensions: &[] };
        Outgoing::new(&message, sent)
    }

    /// Takes the first message, sends `bytes` bytes of it, and puts it back.
    fn send_part(outbox: &Outbox, bytes: usize) -> bool {
        let mut message = outbox.next().expect("a message");
        message.sent += bytes;
        outbox.put_back(message)
    }

    #[test]
    fn message_of_which_a_part_was_sent_stays_the_first() {
        let outbox = Outbox::new(4);
        outbox.push(outgoing(1, 0));
        outbox.push(outgoing(2, 50));
        outbox.push(outgoing(3, 0));
        assert!(send_part(&outbox, 10));
        let end = ClientEnd::new(4, 256);
        for frame in [2, 1, 3] {
            assert!(outbox.holds(frame));
            assert_eq!(outbox.next().map(|message| message.frame), Some(frame));
            outbox.complete(frame, &end);
            assert_eq!(outbox.fate(frame), Fate::Sent);
        }
        assert!(outbox.next().is_none() && !end.has_cancels());
    }

    #[test]
    fn call_that_was_not_begun_is_withdrawn_and_others_are_cancelled_when_they_were_sent() {
        let (outbox, end) = (Outbox::new(8), ClientEnd::new(8, 256));
        (1..4).for_each(|frame| outbox.push(outgoing(frame, 0)));
        assert_eq!(outbox.give_up(0), GivenUp::Sent);
        assert_eq!(outbox.give_up(2), GivenUp::Never);
        assert!(!outbox.holds(2));
        // A call is given up while a thread tries to send its message. The socket accepts no bytes, so the
        // message is dropped.
        let first = outbox.next().expect("a message");
        assert_eq!(outbox.give_up(1), GivenUp::Later);
        assert!(outbox.holds(1) && !outbox.put_back(first) && !outbox.holds(1));
        // After a part of a message was sent, the message must be sent to its end.
        assert!(send_part(&outbox, 1));
        assert_eq!(outbox.give_up(3), GivenUp::Later);
        assert!(send_part(&outbox, 1) && outbox.holds(3) && !end.has_cancels());
        let number = end.begin(3);
        assert_eq!(outbox.next().map(|message| message.frame), Some(3));
        outbox.complete(3, &end);
        assert!(!outbox.holds(3) && end.has_cancels());
        let mut cancelled = Vec::new();
        end.send_cancels(|header| {
            cancelled.push(header.number);
            true
        });
        assert_eq!(cancelled, [number]);
    }

    #[test]
    fn ended_connection_tells_each_call_how_much_was_sent() {
        let outbox = Outbox::new(4);
        (0..4).for_each(|frame| outbox.push(outgoing(frame, 0)));
        assert!(send_part(&outbox, 60));
        assert_eq!((outbox.fate(0), outbox.fate(1)), (Fate::Unsent, Fate::Unsent));
        assert_eq!(outbox.give_up(3), GivenUp::Never);
        outbox.purge();
        assert_eq!(outbox.fate(0), Fate::Never("only a part of the call"));
        assert_eq!(outbox.fate(1), Fate::Never(super::super::NOTHING));
        assert_eq!((outbox.give_up(2), outbox.fate(2)), (GivenUp::Never, Fate::Sent));
        assert_eq!((outbox.fate(3), outbox.take_rings()), (Fate::Sent, vec![0, 1, 2]));
        outbox.forget(0);
        assert_eq!(outbox.fate(0), Fate::Sent);
    }
}
