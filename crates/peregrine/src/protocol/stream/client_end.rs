//! The client's end of a connection. It keeps the calls in flight and the received messages, and decides how
//! the connection ends. The *driver* is the code of the path, which sends and receives the bytes.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use core::time::Duration;
use std::sync::OnceLock;

use super::header::{HEADER_BYTES, Header, MessageKind, Unreadable};
use crate::growing::Growing;
use crate::limits;

// The states of a call slot. A slot holds one call in flight, and belongs to the frame with the same index.
// The frame is the memory for the call and its reply.

/// No call uses the slot.
pub(crate) const IDLE: u32 = 0;
/// A call is being sent, or it is pending: no thread waits for it. The reply to the call may already arrive.
pub(crate) const SENDING: u32 = 1;
/// The caller waits for the reply, and polls the slot.
pub(crate) const WAITING: u32 = 2;
/// The caller sleeps until the reply arrives, and must be woken.
pub(crate) const ASLEEP: u32 = 3;
/// The caller has been asked to receive messages for all callers.
pub(crate) const LEADS: u32 = 4;
/// The caller has given the call up. The reply has not arrived yet.
pub(crate) const CAPTURED: u32 = 5;
/// The reply has arrived completely.
pub(crate) const DONE: u32 = 6;
/// The call is pending, and its bell must ring when the reply has arrived.
pub(crate) const ARMED: u32 = 7;

const INDEX_BITS: u32 = limits::ASTACKS_MAX.ilog2();
const _: () = assert!(limits::ASTACKS_MAX.is_power_of_two());

/// One call in flight. The frame of the call has the same index as its slot.
#[repr(align(128))]
pub(crate) struct CallSlot {
    /// One of the states from [`IDLE`] to [`ARMED`].
    pub(crate) state: AtomicU32,
    /// The number of the call. The low bits are the index of the slot. The other bits count how often the
    /// slot was used.
    number: AtomicU32,
    /// Whether a cancel message for the call must still be sent to the server.
    cancels: AtomicBool,
    /// The kind, procedure, split, head and body fields of the reply's header.
    reply: [AtomicU32; 5],
}

impl CallSlot {
    fn new() -> Self {
        Self {
            state: AtomicU32::new(IDLE),
            number: AtomicU32::new(0),
            cancels: AtomicBool::new(false),
            reply: Default::default(),
        }
    }

    /// Changes the state from `from` to `to`. Returns false if the slot was in another state.
    #[inline]
    pub(crate) fn moves(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns whether the reply has arrived completely.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Frees the slot for the next call in the same frame.
    #[inline]
    pub(crate) fn release(&self) {
        self.state.store(IDLE, Ordering::Release);
    }

    /// Returns whether the slot waits for the reply to the call that has this number.
    #[inline]
    fn awaits(&self, number: u32) -> bool {
        let state = self.state.load(Ordering::Acquire);
        state != IDLE && state != DONE && self.number.load(Ordering::Relaxed) == number
    }

    /// Marks the call as captured, because its caller gives it up. Returns false if the reply has arrived
    /// meanwhile.
    #[cold]
    pub(crate) fn capture(&self) -> bool {
        let give_up = |state| (state != DONE).then_some(CAPTURED);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, give_up).is_ok()
    }

    /// Stores the reply's header and marks the call as done. Returns what must be woken.
    #[inline]
    fn fill(&self, header: &Header) -> Wakes {
        let words = [header.kind as u32, header.procedure, header.split, header.head, header.body];
        for (place, word) in self.reply.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        // SYNC: call slot. A thread that reads `DONE` also sees the received bytes.
        match self.state.swap(DONE, Ordering::AcqRel) {
            ASLEEP => Wakes::Thread,
            ARMED => Wakes::Bell,
            _ => Wakes::Nothing,
        }
    }

    /// Returns the kind, procedure, split, head and body fields of the reply's header.
    #[inline]
    pub(crate) fn reply(&self) -> [u32; 5] {
        core::array::from_fn(|i| self.reply[i].load(Ordering::Relaxed))
    }

    /// Returns the header of the answer to a request of the kind `asked`.
    pub(crate) fn answer(&self, asked: MessageKind) -> Header {
        let [kind, _, _, _, body] = self.reply();
        let answers = [MessageKind::Bound, MessageKind::Refused, MessageKind::Description];
        let kind = answers.into_iter().find(|one| *one as u32 == kind).unwrap_or(asked);
        Header { body, ..Header::new(kind, self.number.load(Ordering::Relaxed)) }
    }
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The server stopped, and declared that calls without a reply were not executed.
    Stopped,
    /// The server closed the connection.
    Closed,
    /// The server broke the protocol.
    Violated(String),
    /// Sending failed.
    Sending(String),
    /// Receiving failed.
    Receiving(String),
    /// A call reached its deadline when only a part of it had been sent. The rest of the call is never sent,
    /// so no other message can be sent either.
    PartlySent,
    /// The server was silent for this long, although the client sent probes.
    Silent(Duration),
    /// The key of the server is not trusted any more.
    #[cfg_attr(not(feature = "secure"), allow(dead_code))] // without TLS, no server has a key
    Distrusted,
}

impl EndReason {
    /// Returns whether calls that have no reply may have been executed.
    pub(crate) const fn may_have_executed(&self) -> bool {
        !matches!(self, Self::Stopped)
    }
}

impl core::fmt::Display for EndReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Stopped => f.write_str("the server has stopped"),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Violated(text) => f.write_str(text),
            Self::Sending(text) => write!(f, "sending failed: {text}"),
            Self::Receiving(text) => write!(f, "receiving failed: {text}"),
            Self::PartlySent => {
                f.write_str("a call reached its deadline when only a part of it was sent")
            }
            Self::Silent(silence) => {
                let ms = silence.as_millis();
                write!(f, "nothing was received from the server for {ms} ms, despite probes")
            }
            Self::Distrusted => f.write_str("this side does not trust the server any more"),
        }
    }
}

/// Why a message was not sent completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SendFailure {
    /// The deadline of the call passed.
    Late,
    /// The socket failed.
    Failed(String),
}

/// The outcome of a call whose message was not sent completely. A server executes a call only if the whole
/// message has arrived. This message never arrives completely, so the call is certainly not executed:
///
/// - At least one byte of the message was not given to the socket. That byte may belong to the padding of the
///   message, but the server also waits for the padding.
/// - The thread that sent a part of the message holds the lock for sending until it has ended the connection
///   and shut the socket down. So neither the rest of the message nor another message can follow that part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// Nothing was sent, and the connection continues.
    NotBegun,
    /// Nothing was sent, and the connection has ended.
    Ended,
    /// The deadline passed after a part of the message had been sent. The connection has ended.
    Cut,
    /// The socket failed after a part of the message had been sent. The connection has ended.
    Broken,
}

/// Why a received message breaks the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    Unreadable(Unreadable),
    /// The server refused the whole connection.
    Refused,
    /// The message answers a call, but no caller waits for this answer.
    Unawaited(u32),
    /// Only clients send this kind of message.
    ClientKind(MessageKind),
    /// The message is too large. The number is the length of its body in bytes.
    TooLarge(u32),
}

impl core::fmt::Display for Violation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Unreadable(unreadable) => unreadable.fmt(f),
            Self::Refused => f.write_str("the server refused the connection"),
            Self::Unawaited(number) => {
                write!(f, "the server answered call {number}, for which no caller waits")
            }
            Self::ClientKind(kind) => {
                write!(f, "the server sent a message that only clients send: {kind:?}")
            }
            Self::TooLarge(bytes) => write!(f, "the server sent a message of {bytes} bytes"),
        }
    }
}

/// What the driver must wake after an answer has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakes {
    Nothing,
    /// The thread that sleeps on the state of the slot.
    Thread,
    /// The bell of a pending call.
    Bell,
}

/// A message from the server that has arrived completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The answer to the call in the slot `index`.
    Answer { index: u32, body: u32, wakes: Wakes },
    /// The export that the binding with this number uses was withdrawn.
    Revoked(u32),
    /// The server stopped. The connection has ended.
    Goodbye,
}

/// A message of which a part has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArrivingMessage {
    pub(crate) header: Header,
    /// The index of the frame into which the body is received. `None` for `Revoked` and `Goodbye`, because
    /// these messages have no body.
    pub(crate) frame: Option<u32>,
    /// The number of bytes after the header that have arrived.
    pub(crate) done: usize,
}

impl ArrivingMessage {
    /// Returns the number of bytes that are still to arrive.
    pub(crate) const fn left(&self) -> usize {
        self.header.rest() - self.done
    }
}

/// Assembles received bytes into messages. Only one thread at a time receives bytes.
pub(crate) struct Assembly {
    header: [u8; HEADER_BYTES],
    got: usize,
    message: Option<ArrivingMessage>,
}

impl Assembly {
    pub(crate) const fn new() -> Self {
        Self { header: [0; HEADER_BYTES], got: 0, message: None }
    }

    /// Returns the message that is arriving: its header has arrived, but not its whole body.
    #[inline]
    pub(crate) const fn message(&self) -> Option<&ArrivingMessage> {
        self.message.as_ref()
    }

    /// Returns whether the next byte to arrive is the first byte of a message.
    #[inline]
    pub(crate) const fn is_between_messages(&self) -> bool {
        self.message.is_none() && self.got == 0
    }

    /// Returns the memory for the next bytes of a header. The driver uses this memory until the header is
    /// complete.
    #[inline]
    pub(crate) fn header_place(&mut self) -> &mut [u8] {
        &mut self.header[self.got..]
    }

    /// Notes that `bytes` more bytes have been received: bytes of the header or, if the header is complete,
    /// of the rest of the message. Returns the message if it is complete now.
    ///
    /// # Errors
    /// Fails if the server breaks the protocol.
    #[inline]
    pub(crate) fn add(
        &mut self,
        end: &ClientEnd,
        bytes: usize,
    ) -> Result<Option<Arrived>, Violation> {
        if let Some(message) = &mut self.message {
            message.done += bytes;
        } else {
            self.got += bytes;
            if self.got < HEADER_BYTES {
                return Ok(None);
            }
            self.got = 0;
            self.message = Some(end.begin_message(&self.header)?);
        }
        match self.message.take_if(|message| message.left() == 0) {
            Some(message) => Ok(Some(end.complete(&message))),
            None => Ok(None),
        }
    }
}

/// The client's end of a connection to one server.
pub(crate) struct ClientEnd {
    slots: Growing<CallSlot>,
    /// The length of the largest message in bytes.
    message_bytes: usize,
    /// Whether some slot has a cancel message that must still be sent.
    cancels: AtomicBool,
    ended: AtomicBool,
    reason: OnceLock<EndReason>,
}

impl ClientEnd {
    /// Makes the client's end of a connection. It has `count` call slots. A message may have at most
    /// `message_bytes` bytes.
    pub(crate) fn new(count: u32, message_bytes: usize) -> Self {
        Self {
            slots: Growing::new(count, |_| CallSlot::new()),
            message_bytes,
            cancels: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            reason: OnceLock::new(),
        }
    }

    /// Returns the slot of the frame that has this index.
    #[inline]
    pub(crate) fn slot(&self, index: u32) -> &CallSlot {
        &self.slots[index as usize]
    }

    /// Returns all slots that have been used, and perhaps some that have not.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &CallSlot> {
        self.slots.iter()
    }

    // Sending.

    /// Begins a call in the frame that has this index. Returns the number of the call.
    #[inline]
    pub(crate) fn begin(&self, index: u32) -> u32 {
        let slot = self.slot(index);
        let used = (slot.number.load(Ordering::Relaxed) >> INDEX_BITS) + 1;
        // No call has the number 0.
        let used = if used >> (32 - INDEX_BITS) == 0 { used } else { 1 };
        let number = used << INDEX_BITS | index;
        // SYNC: cancels, in `send_cancels`. A thread that reads this number does not see the cancel flag of
        // the slot's previous call.
        slot.cancels.store(false, Ordering::Relaxed);
        slot.number.store(number, Ordering::Release);
        slot.state.store(SENDING, Ordering::Release);
        number
    }

    /// Notes that a cancel message for a call must be sent to the server.
    #[cold]
    pub(crate) fn cancel(&self, index: u32) {
        self.slot(index).cancels.store(true, Ordering::Relaxed);
        self.cancels.store(true, Ordering::SeqCst);
    }

    /// Returns whether cancel messages must be sent.
    #[inline]
    pub(crate) fn has_cancels(&self) -> bool {
        self.cancels.load(Ordering::SeqCst) && !self.has_ended()
    }

    /// Sends all cancel messages. `send` sends one header. The caller must hold the lock for sending. The
    /// function stops at the first cancel that cannot be sent. That cancel is sent later, unless the reply
    /// arrives first.
    #[cold]
    pub(crate) fn send_cancels(&self, mut send: impl FnMut(Header) -> bool) {
        self.cancels.store(false, Ordering::SeqCst);
        for slot in self.slots.iter() {
            let number = slot.number.load(Ordering::Acquire);
            if slot.cancels.swap(false, Ordering::AcqRel)
                && !send(Header::new(MessageKind::Abandon, number))
            {
                slot.cancels.store(slot.awaits(number), Ordering::Release);
                self.cancels.store(true, Ordering::SeqCst);
                return;
            }
        }
    }

    /// Decides the outcome of a call whose message was not sent completely. `begun` is true if a part of the
    /// message was sent. If the outcome ends the connection, the driver must shut the socket down before it
    /// releases the lock for sending.
    #[cold]
    pub(crate) fn fails_to_send(&self, failure: SendFailure, begun: bool) -> Unsent {
        let is_late = failure == SendFailure::Late;
        if is_late && !begun {
            return Unsent::NotBegun;
        }
        self.end(match failure {
            SendFailure::Late => EndReason::PartlySent,
            SendFailure::Failed(text) => EndReason::Sending(text),
        });
        match (begun, is_late) {
            (false, _) => Unsent::Ended,
            (true, true) => Unsent::Cut,
            (true, false) => Unsent::Broken,
        }
    }

    // Receiving.

    /// Reads a header, and decides into which frame the body is received.
    #[inline]
    fn begin_message(&self, header: &[u8; HEADER_BYTES]) -> Result<ArrivingMessage, Violation> {
        let header = Header::from_bytes(header).map_err(Violation::Unreadable)?;
        let frame = match header.kind {
            MessageKind::Revoked | MessageKind::Goodbye => None,
            MessageKind::Refused if header.number == 0 => return Err(Violation::Refused),
            MessageKind::Bound
            | MessageKind::Refused
            | MessageKind::Description
            | MessageKind::Reply => {
                let index = header.number & ((1 << INDEX_BITS) - 1);
                let slot = self.slots.get(index as usize);
                if !slot.is_some_and(|slot| slot.awaits(header.number)) {
                    return Err(Violation::Unawaited(header.number));
                }
                Some(index)
            }
            kind => return Err(Violation::ClientKind(kind)),
        };
        let room = if frame.is_some() { self.message_bytes } else { 0 };
        if header.body as usize > room || header.extensions > 0 {
            return Err(Violation::TooLarge(header.body));
        }
        Ok(ArrivingMessage { header, frame, done: 0 })
    }

    /// Handles a message that has arrived completely.
    #[inline]
    fn complete(&self, message: &ArrivingMessage) -> Arrived {
        let header = &message.header;
        match (message.frame, header.kind) {
            (Some(index), _) => {
                let wakes = self.slot(index).fill(header);
                Arrived::Answer { index, body: header.body, wakes }
            }
            (None, MessageKind::Revoked) => Arrived::Revoked(header.binding),
            (None, _) => {
                self.end(EndReason::Stopped);
                Arrived::Goodbye
            }
        }
    }

    // How the connection ends.

    /// Returns whether the connection has ended.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Returns why the connection has ended.
    pub(crate) fn end_reason(&self) -> Option<&EndReason> {
        self.reason.get()
    }

    /// Ends the connection. If the connection has already ended, keeps the earlier reason. Afterwards, the
    /// driver must wake all callers ([`sleepers`](Self::sleepers)).
    #[cold]
    pub(crate) fn end(&self, reason: EndReason) {
        if self.reason.set(reason).is_ok() {
            self.ended.store(true, Ordering::SeqCst);
        }
    }

    /// Returns the slots of callers that must be woken because the connection has ended.
    pub(crate) fn sleepers(&self) -> impl Iterator<Item = &CallSlot> {
        self.slots.iter().filter(|slot| {
            // SYNC: end. `end` has stored `ended` before this thread gets here. A caller first sets `ASLEEP`,
            // and then loads `ended`. So either the caller sees the end, or this thread sees `ASLEEP`.
            fence(Ordering::SeqCst);
            slot.moves(ASLEEP, WAITING)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes a message to the client's end of a connection, `step` bytes at a time.
    fn give(end: &ClientEnd, header: Header, step: usize) -> Result<Option<Arrived>, Violation> {
        let mut assembly = Assembly::new();
        let bytes = header.to_bytes();
        let mut at = 0;
        while at < HEADER_BYTES {
            let place = assembly.header_place();
            let part = step.min(place.len());
            place[..part].copy_from_slice(&bytes[at..at + part]);
            at += part;
            if let Some(arrived) = assembly.add(end, part)? {
                return Ok(Some(arrived));
            }
        }
        while let Some(message) = assembly.message() {
            let part = step.min(message.left());
            if let Some(arrived) = assembly.add(end, part)? {
                assert!(assembly.is_between_messages());
                return Ok(Some(arrived));
            }
        }
        Ok(None)
    }

    fn reply(number: u32, body: u32) -> Header {
        Header { body, ..Header::new(MessageKind::Reply, number) }
    }

    #[test]
    fn reply_is_put_together_from_pieces_of_any_size() {
        for step in [1, 5, 31, 32, 100] {
            let end = ClientEnd::new(4, 256);
            let number = end.begin(2);
            assert!(end.slot(2).moves(SENDING, ASLEEP));
            let arrived = give(&end, reply(number, 77), step);
            let expected = Arrived::Answer { index: 2, body: 77, wakes: Wakes::Thread };
            assert_eq!(arrived, Ok(Some(expected)));
            assert_eq!(end.slot(2).reply(), [MessageKind::Reply as u32, 0, 0, 0, 77]);
        }
    }

    #[test]
    fn bell_of_a_pending_call_rings_only_if_it_is_armed() {
        let end = ClientEnd::new(4, 256);
        for (armed, wakes) in [(false, Wakes::Nothing), (true, Wakes::Bell)] {
            let number = end.begin(1);
            assert!(!armed || end.slot(1).moves(SENDING, ARMED));
            assert_eq!(end.sleepers().count(), 0, "no thread sleeps for the call");
            let expected = Arrived::Answer { index: 1, body: 8, wakes };
            assert_eq!(give(&end, reply(number, 8), 32), Ok(Some(expected)));
            assert!(!end.slot(1).moves(SENDING, ARMED), "a bell must not be armed after the reply");
            end.slot(1).release();
        }
        let number = end.begin(1);
        assert!(end.slot(1).moves(SENDING, ARMED) && end.slot(1).capture());
        let arrived = give(&end, reply(number, 8), 32);
        assert_eq!(arrived, Ok(Some(Arrived::Answer { index: 1, body: 8, wakes: Wakes::Nothing })));
    }

    #[test]
    fn only_awaited_answers_are_accepted() {
        let end = ClientEnd::new(4, 256);
        let number = end.begin(1);
        let violation = |header: Header| give(&end, header, 32).unwrap_err();
        assert_eq!(violation(reply(number + 4096, 0)), Violation::Unawaited(number + 4096));
        assert_eq!(violation(reply(number | 3, 0)), Violation::Unawaited(number | 3));
        assert_eq!(violation(reply(number, 257)), Violation::TooLarge(257));
        assert_eq!(
            violation(Header::new(MessageKind::Call, number)),
            Violation::ClientKind(MessageKind::Call)
        );
        assert_eq!(violation(Header::new(MessageKind::Refused, 0)), Violation::Refused);
        assert!(give(&end, reply(number, 256), 32).is_ok());
        assert_eq!(
            violation(reply(number, 0)),
            Violation::Unawaited(number),
            "a second reply to the call"
        );
        end.slot(1).release();
        let next = end.begin(1);
        assert_ne!(next, number);
        assert_eq!(
            violation(reply(number, 0)),
            Violation::Unawaited(number),
            "a reply to an earlier call"
        );
    }

    #[test]
    fn cancel_is_sent_once_unless_the_reply_arrives_first() {
        let end = ClientEnd::new(4, 256);
        let numbers = [end.begin(0), end.begin(1), end.begin(2)];
        (0..3).for_each(|index| assert!(end.slot(index).capture()));
        (0..3).for_each(|index| end.cancel(index));
        let mut sent = Vec::new();
        // This socket accepts only one header.
        end.send_cancels(|header| {
            sent.push(header.number);
            sent.len() == 1
        });
        assert!(end.has_cancels());
        assert!(give(&end, reply(numbers[1], 0), 32).is_ok());
        end.slot(1).release();
        end.begin(1);
        end.send_cancels(|header| {
            sent.push(header.number);
            true
        });
        assert_eq!(
            sent,
            [numbers[0], numbers[1], numbers[2]],
            "the second cancel was tried once, and failed"
        );
        assert!(!end.has_cancels());
    }

    #[test]
    fn unanswered_calls_were_not_executed_after_a_goodbye() {
        let end = ClientEnd::new(4, 256);
        end.begin(0);
        assert_eq!(
            give(&end, Header::new(MessageKind::Goodbye, 0), 32),
            Ok(Some(Arrived::Goodbye))
        );
        end.end(EndReason::Closed);
        assert_eq!(end.end_reason(), Some(&EndReason::Stopped), "the first reason was replaced");
        assert!(!EndReason::Stopped.may_have_executed() && EndReason::Closed.may_have_executed());
    }

    #[test]
    fn late_call_ends_the_connection_only_if_a_part_of_it_was_sent() {
        let end = ClientEnd::new(4, 256);
        assert_eq!(end.fails_to_send(SendFailure::Late, false), Unsent::NotBegun);
        assert!(!end.has_ended());
        assert_eq!(end.fails_to_send(SendFailure::Late, true), Unsent::Cut);
        assert_eq!(end.end_reason(), Some(&EndReason::PartlySent));
        let failed = || SendFailure::Failed("broken pipe".into());
        assert_eq!(end.fails_to_send(failed(), false), Unsent::Ended);
        assert_eq!(end.fails_to_send(failed(), true), Unsent::Broken);
    }
}
