//! Deferred calls: calls of async procedures, whose replies any thread sends later.
//!
//! A deferred call occupies no thread and has no permit. It stays among the calls of its connection until its
//! reply was sent. So a stopping server waits for the call before it sends `Goodbye`. The connection cancels
//! the call when an `Abandon` message arrives, and when the connection ends.
//!
//! The thread that ends a procedure makes the reply, as one piece of memory of the size that the reply needs.
//! It then passes the reply to the connection, which sends it without waiting, or later
//! ([`unsent`](super::unsent)).

use std::collections::HashMap;
use std::sync::Arc;

use super::connections::{ServerConnection, Visit};
use super::unsent::UnsentReply;
use super::{AcceptedConnection, Host, Unanswered};
use crate::call::deferred::{Cancels, Owed};
use crate::call::{Answer, Answered, EStack, Ran, Refusal, pack_later};
use crate::limits;
use crate::path::connections::intake::Reservation;
use crate::protocol::stream::{HEADER_BYTES, Header, MessageKind};
use crate::serving::deferrals::{Deferral, Deferrals};
use crate::sync::Mutex;
use crate::value::{Space, align_up};

/// A reply of at most this number of bytes needs no reservation, because the number of deferred calls is
/// bounded ([`limits::DEFERRED_MAX`]).
const UNRESERVED: usize = 1 << 10;

/// The deferred calls of a connection whose procedures have not ended.
#[derive(Default)]
pub(super) struct DeferredCalls(Mutex<Table>);

#[derive(Default)]
struct Table {
    calls: HashMap<u32, DeferredCall>,
    /// The number of calls that were ever added.
    added: u64,
}

struct DeferredCall {
    /// Distinguishes calls to which the client has given the same number.
    serial: u64,
    cancels: Arc<dyn Cancels>,
}

impl DeferredCalls {
    /// Adds a call. Returns its serial number, or `None` if another call has the same number. Only a client
    /// that violates the protocol uses a number again before it has the reply.
    fn add(&self, number: u32, cancels: Arc<dyn Cancels>) -> Option<u64> {
        let mut table = self.0.lock();
        if table.calls.contains_key(&number) {
            return None;
        }
        table.added += 1;
        let serial = table.added;
        table.calls.insert(number, DeferredCall { serial, cancels });
        Some(serial)
    }

    /// Removes a call whose procedure has ended.
    fn remove(&self, number: u32, serial: u64) {
        let mut table = self.0.lock();
        let is_it = table.calls.get(&number).is_some_and(|call| call.serial == serial);
        let call = if is_it { table.calls.remove(&number) } else { None };
        drop(table);
        // The call may be the last owner of the procedure. So it is dropped after the lock is released.
        drop(call);
    }

    /// Cancels the call that has this number, if it is deferred. Must be called after the connection has
    /// noted the cancellation.
    pub(super) fn cancel(&self, number: u32) {
        let call = self.0.lock().calls.remove(&number);
        if let Some(call) = call {
            call.cancels.cancel();
        }
    }

    /// Cancels all calls. Must be called after the connection has noted that it has ended.
    pub(super) fn cancel_all(&self) {
        let calls = core::mem::take(&mut self.0.lock().calls);
        for call in calls.into_values() {
            call.cancels.cancel();
        }
    }
}

/// A deferred call without a reply. Dropping this value notes that the call has its reply, or that it gets
/// none because the connection has ended.
pub(super) struct UnansweredLater {
    connection: Arc<ServerConnection>,
    number: u32,
    deferral: Deferral,
}

impl Drop for UnansweredLater {
    fn drop(&mut self) {
        let (incoming, host) = (self.connection.incoming(), Visit(&self.connection));
        if !self.deferral.is_awaited() {
            // `leave_uncounted` has already subtracted this call from the calls without a reply. Dropping
            // `Unanswered` subtracts the call again, so the call is added first.
            host.called();
        }
        drop(Unanswered { incoming, host: &host, number: self.number });
    }
}

/// The duty to send the reply to a deferred call.
struct OwedReply {
    unanswered: UnansweredLater,
    serial: u64,
    /// The largest size in bytes that the reply may have.
    room: usize,
}

/// Defers the call `number` of a connection, whose procedure the calling thread runs. Returns `None` if the
/// call must keep its thread.
pub(super) fn defer(
    connection: Arc<ServerConnection>,
    number: u32,
    cancels: Arc<dyn Cancels>,
    deferrals: &Arc<Deferrals>,
) -> Option<Box<dyn Owed>> {
    let incoming = connection.incoming();
    let calls = incoming.calls();
    let (count, message) = (calls.len(), calls.message_of(number));
    drop(calls);
    // A correct client has at most [`limits::ASTACKS_MAX`] calls in flight. A call whose reply waits to be
    // sent is still in flight. So this check also bounds the replies that wait because the client does not
    // read them.
    if count > limits::ASTACKS_MAX as usize {
        return None;
    }
    let (binding, bytes) = message?;
    let row = incoming.rows().get(binding)?;
    let room = row.message_bytes;
    let deferral = deferrals.begin(row, bytes as usize)?;
    let serial = incoming.deferred.add(number, cancels)?;
    if incoming.calls().defer(number) {
        Visit(&connection).captured(0, 1);
    }
    // SYNC: deferral. This thread adds the call, and then checks whether the call was given up. A thread that
    // gives up calls notes that first, and then cancels the calls that were added. So at least one of the two
    // threads cancels this call.
    if incoming.is_given_up(number) {
        incoming.deferred.cancel(number);
    }
    let unanswered = UnansweredLater { connection, number, deferral };
    Some(Box::new(OwedReply { unanswered, serial, room }))
}

impl Owed for OwedReply {
    fn leave_uncounted(&mut self, awaited: bool) {
        let deferral = &mut self.unanswered.deferral;
        let was_awaited = deferral.is_awaited();
        deferral.leave_uncounted(awaited);
        if was_awaited && !awaited {
            Visit(&self.unanswered.connection).answered();
        }
    }

    fn answer(self: Box<Self>, answered: Answered) {
        let Self { mut unanswered, serial, room } = *self;
        let (connection, number) = (Arc::clone(&unanswered.connection), unanswered.number);
        let incoming = connection.incoming();
        incoming.deferred.remove(number, serial);
        let answer = answered.answer();
        let is_given_up = incoming.is_given_up(number);
        let answered = match is_given_up {
            true => Refusal::abandoned("its caller has given up").into(),
            false => answered.within(room),
        };
        let message = incoming.message_of(&answered, number).or_else(|| {
            let text = "no memory for the result: results that clients do not read use all of it";
            incoming.message_of(&Refusal::lost(text).into(), number)
        });
        // Without memory even for a refusal, no reply can be sent. The connection ends, so that the client
        // does not wait for the reply.
        let Some(message) = message else { return incoming.close() };
        match is_given_up {
            true => unanswered.deferral.count(answer, 0),
            false => unanswered.deferral.count(message.answer, message.body as u64),
        }
        drop(answered);
        incoming.send_later(UnsentReply::new(message, unanswered), &Visit(&connection));
    }
}

/// The message of a reply.
pub(super) struct ReplyMessage {
    /// The header, the body and padding.
    pub(super) memory: EStack,
    /// The number of bytes of the message.
    pub(super) bytes: usize,
    answer: Answer,
    /// The number of bytes of the body.
    body: usize,
    /// The memory that is reserved for the message.
    _reserved: Option<Reservation>,
}

impl AcceptedConnection {
    /// Makes the message of the reply to the call `number`. Returns `None` if there is no memory for the
    /// message.
    fn message_of(&self, answered: &Answered, number: u32) -> Option<ReplyMessage> {
        let most = message_bytes_max(answered);
        let reserved = match most > UNRESERVED {
            true => Some(self.unsent.reserve(self.host, most)?),
            false => None,
        };
        message_of(answered, number, reserved)
    }
}

fn message_bytes_max(answered: &Answered) -> usize {
    HEADER_BYTES + align_up(answered.packed_bytes())
}

fn message_of(
    answered: &Answered,
    number: u32,
    reserved: Option<Reservation>,
) -> Option<ReplyMessage> {
    let mut memory = EStack::default();
    if !memory.reserve(message_bytes_max(answered)) {
        return None;
    }
    let (first, rest) = memory.memory().split_at_mut(HEADER_BYTES);
    let (ran, body) = pack_later(answered, Space::of_mut(rest));
    let Ran { answer, head_at, head_bytes, .. } = ran;
    let header = Header {
        body: body as u32,
        procedure: answer as u32,
        split: head_at,
        head: head_bytes,
        ..Header::new(MessageKind::Reply, number)
    };
    first.copy_from_slice(&header.to_bytes());
    let bytes = HEADER_BYTES + header.rest();
    Some(ReplyMessage { memory, bytes, answer, body, _reserved: reserved })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Placed, Reply, Request, Serve, Served, execute_in_place};
    use crate::device::tcp::{Listener, Stream};
    use crate::interface::InterfaceRef;
    use crate::path::stream::peer::sending::Sending;
    use crate::path::stream::server::gathered::Gathered;
    use crate::path::stream::server::stall::NoStall;
    use crate::value::Window;
    use std::time::{Duration, Instant};

    /// The largest size in bytes that a reply may have.
    const ROOM: usize = 4096;

    /// A server stub that answers each call in the same way.
    struct Answers(Answered);

    impl Serve for Answers {
        fn interface(&self) -> InterfaceRef {
            InterfaceRef::none()
        }
        fn serve(&self, _: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
            self.0.write(reply)
        }
    }

    /// Returns a result with a head of `head` bytes. `blocks` has a pair for each block: the number of filled
    /// bytes, and the number of bytes that the caller offered.
    fn result(head: usize, blocks: &[(usize, usize)]) -> Answered {
        let block = |&(filled, offered): &(usize, usize)| (vec![filled as u8; filled], offered);
        let head = vec![9_u8; head];
        let blocks = blocks.iter().map(block).collect();
        Answered::ok(&(), blocks, |writer| head.iter().try_for_each(|byte| writer.plain(byte)))
    }

    /// Returns the body of the reply that a thread sends if it runs the procedure to its end. Also returns
    /// the offset of the head.
    fn gathered(answers: &Answers, streams: &[Stream; 2]) -> (Vec<u8>, usize) {
        let (mut memory, mut blocks) = (vec![1; ROOM], Vec::new());
        let space = Space::of_mut(&mut memory);
        let placed = Placed { procedure: 1, message: &mut [], head_bytes: 0, copied: 0 };
        let ran = execute_in_place(answers, placed, space, &mut blocks);
        let outs = if ran.answer == Answer::Ok { &*blocks } else { &[] };
        let gathered = Gathered::new(space, outs, ran.head_at as usize, ran.head_bytes as usize);
        let mut sending = Sending::new(&streams[0], NoStall);
        // A message must not be empty. So 16 bytes precede the result.
        sending.part(Window::from(&[0; 16][..])).unwrap();
        gathered.write(&mut sending).unwrap();
        sending.end().unwrap();
        let (mut received, bytes) = (vec![0; 2 * ROOM], 16 + align_up(gathered.body));
        let mut at = 0;
        while at < bytes {
            at += streams[1].receive(&mut received[at..bytes], true).unwrap();
        }
        (received[16..bytes].to_vec(), gathered.head_at)
    }

    #[test]
    fn deferred_reply_has_the_bytes_of_any_other_reply() {
        let listener = Listener::listen(&([127, 0, 0, 1], 0).into()).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let addresses = [listener.address().unwrap()];
        let connected = Stream::connect(&addresses, Duration::from_secs(1), until).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let streams = [connected, accepted];
        let sizes = [(0, 0), (0, 100), (1, 1), (15, 40), (16, 16), (17, 500), (600, 600)];
        for head in [0, 1, 7, 24, 31, 32, 33, 52, 56, 57, 60, 64, 200] {
            for count in 0..=sizes.len() {
                for at in 0..=sizes.len() - count {
                    let answers = Answers(result(head, &sizes[at..at + count]));
                    let mut message = message_of(&answers.0, 7, None).expect("memory");
                    assert_eq!(message.bytes, message_bytes_max(&answers.0));
                    let bytes = &message.memory.memory()[..message.bytes];
                    let header = Header::from_bytes(bytes.first_chunk().unwrap()).unwrap();
                    let (body, head_at) = gathered(&answers, &streams);
                    assert_eq!((header.number, header.head as usize), (7, head));
                    assert_eq!(header.split as usize, head_at, "{head} {count} {at}");
                    assert_eq!(bytes[HEADER_BYTES..], body, "{head} {count} {at}");
                }
            }
        }
    }

    /// Returns the answer of the reply to a call whose result has this head and these blocks. A reply may
    /// have at most `room` bytes.
    fn within(room: usize, head: usize, blocks: &[(usize, usize)]) -> Answer {
        let answered = result(head, blocks).within(room);
        let message = message_of(&answered, 7, None).expect("memory");
        assert_eq!(message.answer, answered.answer());
        message.answer
    }

    #[test]
    fn result_is_refused_by_the_size_that_the_caller_has_offered() {
        let lost = Answer::MayHaveExecuted;
        assert_eq!((within(512, 512, &[]), within(512, 513, &[])), (Answer::Ok, lost));
        // A head of at most 28 bytes is before the first block. A larger head is after the last block.
        let (first, offers) = (crate::call::blocks_at(1), 512 - crate::call::blocks_at(1));
        assert_eq!(within(512, first - 4, &[(1, offers)]), Answer::Ok);
        assert_eq!(within(512, first - 3, &[(1, offers)]), lost);
        assert_eq!(within(512, 64, &[(1, offers - 64)]), Answer::Ok);
        let text = "x".repeat(2 * limits::TEXT_BYTES_MAX);
        let message = message_of(&Refusal::lost(&text).into(), 7, None).expect("memory");
        assert!(message.body > limits::TEXT_BYTES_MAX && message.body < message.bytes);
        assert_eq!(message.answer, lost);
    }
}
