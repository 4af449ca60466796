//! The server's end of a connection. It reads the received messages, and keeps the calls that have no reply
//! yet. The *driver* is the code of the path, which receives the bytes into its memory.

use core::time::Duration;

use super::header::{HEADER_BYTES, Header, MessageKind, Unreadable};
use crate::limits;

/// The largest number of bytes in the body of a message, unless the message is a call.
const REQUEST_BYTES_MAX: u32 = 1024;

/// What the received bytes contain next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A message has arrived completely. It begins at the offset `at` in the driver's memory.
    Message { header: Header, at: usize },
    /// A call that the server refuses before its body is received. The bytes of the body are skipped.
    Refuse(Header),
    /// The next message can be read only when this number of its bytes has arrived.
    More(usize),
    /// The peer violates the protocol.
    Violated(Unreadable),
}

/// The range of the driver's memory that holds bytes that were received, but not read yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unread {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The number of bytes of a refused message that must still be skipped.
    pub(crate) skip: usize,
}

impl Unread {
    /// Returns the number of received bytes that have not been read.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.to - self.from
    }

    /// Returns whether a message has begun to arrive, but is not complete.
    pub(crate) const fn is_within_message(&self) -> bool {
        self.len() > 0 || self.skip > 0
    }

    /// Skips bytes of a refused message. Returns true when the last of these bytes has been skipped. The
    /// driver must then move the unread bytes to the start of its memory, so that the next message is
    /// aligned.
    pub(crate) fn skip(&mut self) -> bool {
        if self.skip == 0 {
            return false;
        }
        let skipped = self.skip.min(self.len());
        self.skip -= skipped;
        self.from += skipped;
        self.skip == 0
    }

    /// Reads the next message. `memory` is the driver's memory. `admits` decides from the header of a call
    /// whether the call is accepted, before memory for its body is used. Until the whole body has arrived,
    /// every call of this function asks `admits` again.
    #[inline]
    pub(crate) fn next(&mut self, memory: &[u8], admits: impl FnOnce(&Header) -> bool) -> Next {
        if self.skip > 0 {
            return Next::More(HEADER_BYTES);
        }
        let unread = memory.get(self.from..self.to).unwrap_or(&[]);
        let Some(header) = unread.first_chunk() else { return Next::More(HEADER_BYTES) };
        let header = match Header::from_bytes(header) {
            Ok(header) => header,
            Err(unreadable) => return Next::Violated(unreadable),
        };
        let is_allowed = match header.kind {
            MessageKind::Call => true,
            MessageKind::Bind
            | MessageKind::Describe
            | MessageKind::Unbind
            | MessageKind::Abandon => header.body <= REQUEST_BYTES_MAX,
            _ => false,
        };
        if !is_allowed || header.extensions > limits::EXTENSION_BYTES_MAX {
            return Next::Violated(Unreadable::Foreign);
        }
        if header.kind == MessageKind::Call && !admits(&header) {
            self.from += HEADER_BYTES;
            self.skip = header.rest();
            return Next::Refuse(header);
        }
        let needed = HEADER_BYTES + header.rest();
        if self.len() < needed {
            return Next::More(needed);
        }
        let at = self.from;
        self.from += needed;
        Next::Message { header, at }
    }

    /// Returns whether the unread bytes contain a complete cancel message for the call that has this number.
    #[inline]
    pub(crate) fn cancels(&self, memory: &[u8], number: u32) -> bool {
        self.from < self.to && self.finds_cancel(memory, number)
    }

    #[cold]
    fn finds_cancel(&self, memory: &[u8], number: u32) -> bool {
        let Some(mut rest) = memory.get(self.from..self.to) else { return false };
        while let Some(Ok(header)) = rest.first_chunk().map(Header::from_bytes) {
            if (header.kind, header.number) == (MessageKind::Abandon, number) {
                return true;
            }
            let Some(after) = rest.get(HEADER_BYTES + header.rest()..) else { return false };
            rest = after;
        }
        false
    }
}

/// The calls of a connection that have arrived and have no reply yet.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    calls: Vec<Call>,
    /// Whether no further procedure may begin, because the connection has ended or is about to end.
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    number: u32,
    binding: u32,
    /// The number of bytes in the body of the call's message.
    bytes: u32,
    /// Whether the procedure of the call has begun, and may have had effects.
    begun: bool,
    /// Whether a thread runs the procedure of the call.
    runs: bool,
    cancelled: bool,
}

impl Calls {
    /// Adds a call. This must happen before another thread receives bytes, because that thread may receive
    /// the cancel of the call.
    pub(crate) fn begin(&mut self, header: &Header) {
        let Header { number, binding, body: bytes, .. } = *header;
        let (begun, runs, cancelled) = (false, false, false);
        self.calls.push(Call { number, binding, bytes, begun, runs, cancelled });
    }

    /// Returns the number of calls.
    pub(crate) const fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns the binding of a call, and the number of bytes of the body of its message.
    pub(crate) fn message_of(&self, number: u32) -> Option<(u32, u32)> {
        let call = self.calls.iter().rev().find(|call| call.number == number)?;
        Some((call.binding, call.bytes))
    }

    /// Notes that a running call is deferred: no thread runs its procedure from now on. Returns whether the
    /// procedure was captured until now, that is, ran on without a caller.
    pub(crate) fn defer(&mut self, number: u32) -> bool {
        let mut calls = self.calls.iter_mut().rev();
        let call = calls.find(|call| call.number == number && call.runs);
        call.is_some_and(|call| {
            call.runs = false;
            call.cancelled
        })
    }

    /// Returns whether no further procedure may begin.
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Notes that the procedure of a call is about to run. Returns false if the call was cancelled and must
    /// not run.
    pub(crate) fn starts(&mut self, number: u32) -> bool {
        if self.ended {
            return false;
        }
        // The call was probably added recently, so the search begins with the newest call.
        let call = self.calls.iter_mut().rev().find(|call| call.number == number);
        call.is_some_and(|call| {
            call.runs = !call.cancelled;
            call.begun = call.runs;
            call.runs
        })
    }

    /// Removes a call, because it now has its reply. Returns whether the call was cancelled while it ran.
    pub(crate) fn end(&mut self, number: u32) -> bool {
        let at = self.calls.iter().position(|call| call.number == number);
        let ended = at.map(|at| self.calls.swap_remove(at));
        ended.is_some_and(|call| call.runs && call.cancelled)
    }

    /// Cancels the call that has this number, if there is one. Returns the number of running procedures that
    /// become captured, that is, run on without a caller: 0 or 1.
    pub(crate) fn cancel(&mut self, number: u32) -> usize {
        self.cancel_where(|call| call.number == number)
    }

    /// Cancels all calls, because the connection has ended. Returns the number of running procedures that
    /// become captured, that is, run on without a caller.
    pub(crate) fn cancel_all(&mut self) -> usize {
        self.ended = true;
        self.cancel_where(|_| true)
    }

    fn cancel_where(&mut self, which: impl Fn(&Call) -> bool) -> usize {
        let found = self.calls.iter_mut().filter(|call| which(call) && !call.cancelled);
        found
            .map(|call| {
                call.cancelled = true;
                usize::from(call.runs)
            })
            .sum()
    }

    /// Returns whether a call has been cancelled. Returns false for a call that already has its reply.
    pub(crate) fn is_cancelled(&self, number: u32) -> bool {
        self.calls.iter().any(|call| call.number == number && call.cancelled)
    }

    /// Returns the number of calls that were cancelled and have no reply.
    pub(crate) fn cancelled(&self) -> u64 {
        self.calls.iter().filter(|call| call.cancelled).count() as u64
    }

    /// Lets no further procedure begin, because the server stops. Returns whether the server may send a
    /// goodbye. A goodbye means that calls without a reply were not executed. Calls that have arrived, but
    /// whose procedures have not begun, do not prevent it.
    pub(crate) fn bid_farewell(&mut self) -> bool {
        self.ended = true;
        !self.calls.iter().any(|call| call.begun)
    }
}

/// Measures how long a client may still take to send a message. Times are measured from any fixed moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MessageTimer {
    /// When the message began to arrive.
    began: Option<Duration>,
    /// For how long the server did not receive, because it had no memory.
    held: Duration,
    /// When the server stopped receiving because it had no memory, if it has not resumed.
    held_since: Option<Duration>,
}

impl MessageTimer {
    /// Notes that the message begins to arrive. Does nothing if it has already begun.
    pub(crate) fn begin(&mut self, now: Duration) {
        self.began.get_or_insert(now);
    }

    /// Returns for how long the server did not receive, because it had no memory.
    pub(crate) const fn held(&self) -> Duration {
        self.held
    }

    /// Notes that the server stops receiving, because it has no memory.
    pub(crate) const fn hold(&mut self, now: Duration) {
        self.held_since = Some(now);
    }

    /// Notes that the server receives again.
    pub(crate) fn resume(&mut self, now: Duration) {
        if let Some(since) = self.held_since.take() {
            self.held += now.saturating_sub(since);
        }
    }

    /// Returns how long the client may still take to send a message of which `bytes` bytes have arrived.
    /// Returns `None` while no message arrives, or while the server does not receive.
    pub(crate) fn left(&self, bytes: usize, now: Duration) -> Option<Duration> {
        let began = self.began.filter(|_| self.held_since.is_none())?;
        let spent = now.saturating_sub(began).saturating_sub(self.held);
        let transfer = Duration::from_secs_f64(bytes as f64 / limits::MESSAGE_RATE as f64);
        Some((limits::MESSAGE_TIME + transfer).saturating_sub(spent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u32) -> Header {
        Header { binding: 3, body: 100, ..Header::new(MessageKind::Call, number) }
    }

    #[test]
    fn procedure_is_captured_once_and_until_it_ends() {
        let mut calls = Calls::default();
        (1..5).for_each(|number| calls.begin(&call(number)));
        assert!(calls.starts(1) && calls.starts(2));
        assert_eq!((calls.cancel(1), calls.cancel(1)), (1, 0));
        assert_eq!(calls.cancel(3), 0, "call 3 does not run yet");
        assert!(!calls.starts(3), "a call that was cancelled before it ran must not start");
        assert_eq!(calls.cancel_all(), 1, "call 2 is the only running call that is not captured");
        assert!(!calls.starts(4) && !calls.starts(5));
        assert_eq!([1, 2, 3, 4].map(|number| calls.end(number)), [true, true, false, false]);
    }

    #[test]
    fn deferred_call_is_not_captured() {
        let mut calls = Calls::default();
        (1..4).for_each(|number| calls.begin(&call(number)));
        (1..4).for_each(|number| assert!(calls.starts(number)));
        assert_eq!((calls.message_of(1), calls.message_of(9)), (Some((3, 100)), None));
        assert!(!calls.defer(1) && !calls.defer(9));
        assert_eq!((calls.cancel(1), calls.cancel(2)), (0, 1));
        assert!(calls.defer(2), "call 2 was captured before it was deferred");
        assert_eq!(calls.cancel_all(), 1, "only call 3 runs on a thread");
        assert_eq!([1, 2, 3].map(|number| calls.end(number)), [false, false, true]);
        assert_eq!(calls.len(), 0);
    }

    #[test]
    fn call_is_cancelled_while_it_is_known() {
        let mut calls = Calls::default();
        calls.cancel(7);
        calls.begin(&call(7));
        calls.begin(&call(8));
        assert!(
            !calls.is_cancelled(7),
            "the first cancel arrived before its call, and cancels nothing"
        );
        calls.cancel(7);
        assert!(calls.is_cancelled(7) && !calls.is_cancelled(8));
        calls.end(7);
        calls.end(9);
        calls.begin(&call(7));
        assert!(!calls.is_cancelled(7), "a cancel was applied to a later call of the same number");
        (7..9).for_each(|number| assert!(!calls.end(number)));
        assert_eq!(calls.len(), 0);
    }

    #[test]
    fn only_a_procedure_that_has_begun_prevents_the_goodbye() {
        let mut calls = Calls::default();
        (1..4).for_each(|number| calls.begin(&call(number)));
        assert!(calls.starts(1) && calls.starts(2));
        calls.defer(2);
        assert!(!calls.bid_farewell(), "call 1 runs, and call 2 is deferred");
        assert!(!calls.starts(3), "no procedure may begin after the farewell");
        calls.end(1);
        assert!(!calls.bid_farewell(), "call 2 is deferred");
        calls.end(2);
        assert!(calls.bid_farewell(), "call 3 has not begun");
        calls.begin(&call(4));
        assert!(!calls.starts(4) && calls.bid_farewell());
    }

    fn message(kind: MessageKind, number: u32, body: usize) -> Vec<u8> {
        let header = Header { body: body as u32, ..Header::new(kind, number) };
        let mut bytes = header.to_bytes().to_vec();
        bytes.resize(HEADER_BYTES + header.rest(), 7);
        bytes
    }

    #[test]
    fn messages_are_found_wherever_the_bytes_are_divided() {
        let stream = [
            message(MessageKind::Call, 1, 40),
            message(MessageKind::Call, 2, 100),
            message(MessageKind::Abandon, 2, 0),
        ];
        let stream = stream.concat();
        for step in 1..stream.len() {
            let (mut unread, mut found) = (Unread::default(), Vec::new());
            while unread.to < stream.len() {
                unread.to = (unread.to + step).min(stream.len());
                loop {
                    unread.skip();
                    match unread.next(&stream, |header| header.number != 2) {
                        Next::Message { header, .. } => found.push((header.kind, header.number)),
                        Next::Refuse(header) => found.push((MessageKind::Refused, header.number)),
                        Next::More(_) => break,
                        Next::Violated(error) => panic!("{error}"),
                    }
                }
            }
            let expected =
                [(MessageKind::Call, 1), (MessageKind::Refused, 2), (MessageKind::Abandon, 2)];
            assert_eq!(found, expected, "{step} bytes at a time");
            assert!(!unread.is_within_message());
        }
    }

    #[test]
    fn cancel_after_a_call_is_found_before_the_call_runs() {
        let stream =
            [message(MessageKind::Call, 3, 20), message(MessageKind::Abandon, 2, 0)].concat();
        let unread = Unread { from: 0, to: stream.len(), skip: 0 };
        assert!(unread.cancels(&stream, 2) && !unread.cancels(&stream, 3));
        let short = Unread { to: stream.len() - 1, ..unread };
        assert!(!short.cancels(&stream, 2), "the cancel has not arrived completely");
    }

    #[test]
    fn messages_that_no_client_sends_are_violations() {
        let next =
            |bytes: &[u8]| Unread { from: 0, to: bytes.len(), skip: 0 }.next(bytes, |_| true);
        let foreign = Next::Violated(Unreadable::Foreign);
        assert_eq!(next(&message(MessageKind::Reply, 1, 0)), foreign);
        assert_eq!(next(&message(MessageKind::Bind, 1, REQUEST_BYTES_MAX as usize + 1)), foreign);
        let header = Header {
            extensions: limits::EXTENSION_BYTES_MAX + 1,
            ..Header::new(MessageKind::Call, 1)
        };
        assert_eq!(next(&header.to_bytes()), foreign);
    }

    #[test]
    fn time_without_memory_does_not_count_against_the_client() {
        let second = Duration::from_secs(1);
        let mut timer = MessageTimer::default();
        assert_eq!(timer.left(0, second), None);
        timer.begin(second);
        timer.begin(9 * second);
        assert_eq!(timer.left(0, 2 * second), Some(limits::MESSAGE_TIME.saturating_sub(second)));
        timer.hold(2 * second);
        assert_eq!(timer.left(0, 8 * second), None);
        timer.resume(8 * second);
        assert_eq!(timer.left(0, 8 * second), Some(limits::MESSAGE_TIME.saturating_sub(second)));
        let transfer = limits::MESSAGE_RATE;
        assert_eq!(timer.left(transfer, 8 * second), Some(limits::MESSAGE_TIME));
    }
}
