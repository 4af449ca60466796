//! A simulated client of the stream protocol. Its callers share one connection, as the threads of a process
//! do.

use core::time::Duration;
use std::collections::VecDeque;

use super::pipe::{Broken, Pipe};
use crate::exchange::client_end::Executed;
use crate::network::Token;
use crate::oracle::{Ending, Oracle, StreamFailure};
use crate::protocol::stream::client_end::{
    ARMED, Arrived, Assembly, ClientEnd, DONE, EndReason, IDLE, SENDING, SendFailure, Unsent,
    WAITING, Wakes,
};
use crate::protocol::stream::keep_alive::{Action, EXAMINE_EVERY, KeepAlive, Link};
use crate::protocol::stream::{HEADER_BYTES, Header, MessageKind, padding};
use crate::random::Random;

/// The largest size in bytes of the body of a message.
pub(crate) const BODY_MAX: usize = 8192;

/// The answer in the reply to a call that was executed.
pub(crate) const OK: u32 = 0;
/// The answer in the reply to a call that was refused.
pub(crate) const REFUSED: u32 = 1;
/// The answer in the reply to a call that was given up.
pub(crate) const GIVEN_UP: u32 = 2;

/// The state of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallerState {
    Nothing,
    /// The message of the caller's call is in the send queue.
    Sends(Token),
    Waits(Token),
    /// The caller has given up its call. Its call frame is not free until the reply arrives.
    Captured,
}

/// A caller, which makes one call after another.
#[derive(Debug)]
struct Caller {
    calls: VecDeque<Token>,
    state: CallerState,
    /// The number of the caller's last call. Deadlines of other calls are ignored.
    number: u32,
    /// Whether the caller is a future. No thread waits for the calls of a future, so their messages may be
    /// sent later.
    is_future: bool,
}

/// A message that is being sent, or that waits for the send lock.
struct Outgoing {
    caller: usize,
    bytes: Vec<u8>,
    sent: usize,
    /// Whether a future gave up its call after a part of the message had been sent.
    given_up: bool,
}

/// The client's side of a connection.
struct Connection {
    end: ClientEnd,
    assembly: Assembly,
    /// The call frames into which replies are received.
    frames: Vec<Vec<u8>>,
    queue: VecDeque<Outgoing>,
    keep_alive: KeepAlive,
    last_heard: u64,
}

/// An action that the client requests from the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Call [`Client::deadline`] at the time `at`.
    Deadline { caller: usize, number: u32, at: u64 },
    /// Open another connection soon.
    Connect,
    /// Close the client's end of the connection.
    Close,
}

/// The parts of the world that one step of a client can use.
pub(crate) struct Context<'a> {
    /// The number of the connection.
    pub(crate) id: u64,
    pub(crate) now: u64,
    pub(crate) delay: u64,
    pub(crate) up: &'a mut Pipe,
    pub(crate) down: &'a mut Pipe,
    pub(crate) random: &'a mut Random,
    pub(crate) oracle: &'a mut Oracle,
    pub(crate) requests: &'a mut Vec<Request>,
}

pub(crate) struct Client {
    callers: Vec<Caller>,
    connection: Option<Connection>,
}

impl Client {
    pub(crate) fn new(calls: Vec<Vec<Token>>) -> Self {
        let caller = |calls: Vec<Token>| Caller {
            calls: calls.into(),
            state: CallerState::Nothing,
            number: 0,
            is_future: false,
        };
        Self { callers: calls.into_iter().map(caller).collect(), connection: None }
    }

    /// Turns some of the callers into futures.
    pub(crate) fn mix_in_futures(&mut self, random: &mut Random) {
        self.callers.iter_mut().for_each(|caller| caller.is_future = random.chance(500));
    }

    /// Turns all callers into futures.
    pub(crate) fn with_futures(&mut self) {
        self.callers.iter_mut().for_each(|caller| caller.is_future = true);
    }

    pub(crate) fn describe(&self) -> String {
        let queue = self.connection.as_ref().map(|one| {
            let queue: Vec<_> = one.queue.iter().map(|one| (one.caller, one.sent)).collect();
            (queue, one.end.has_ended(), one.assembly.message().copied())
        });
        let callers: Vec<_> = self.callers.iter().map(|one| (one.state, one.calls.len())).collect();
        format!("callers {callers:?}, connection {queue:?}")
    }

    /// Returns whether all calls have ended.
    pub(crate) fn is_done(&self) -> bool {
        let is_done = |caller: &Caller| {
            caller.calls.is_empty()
                && matches!(caller.state, CallerState::Nothing | CallerState::Captured)
        };
        self.callers.iter().all(is_done)
    }

    /// Handles the start of a new connection.
    pub(crate) fn connected(&mut self, context: &mut Context<'_>) {
        let count = self.callers.len();
        self.connection = Some(Connection {
            end: ClientEnd::new(count as u32, BODY_MAX),
            assembly: Assembly::new(),
            frames: vec![vec![0; BODY_MAX + 16]; count],
            queue: VecDeque::new(),
            keep_alive: KeepAlive::default(),
            last_heard: context.now,
        });
        (0..count).for_each(|caller| self.begin(caller, context));
        self.send(context);
    }

    /// Begins the next call of a caller.
    fn begin(&mut self, at: usize, context: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else { return };
        let caller = &mut self.callers[at];
        if caller.state != CallerState::Nothing || connection.end.has_ended() {
            return;
        }
        let Some(token) = caller.calls.pop_front() else { return };
        let call = context.oracle.call(token);
        call.began = Some(context.now);
        let plan = call.plan;
        let number = connection.end.begin(at as u32);
        context.oracle.sends(context.id, number, token);
        let body = (plan.total as usize).clamp(8, BODY_MAX);
        // The server refuses calls with binding number 1, which a few calls use.
        let binding = u32::from(context.random.chance(20));
        let header =
            Header { body: body as u32, binding, ..Header::new(MessageKind::Call, number) };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend(token.to_le_bytes());
        bytes.resize(HEADER_BYTES + body + padding(body), 0);
        // A future may go to sleep before its message has been sent.
        if caller.is_future && context.random.chance(500) {
            assert!(connection.end.slot(at as u32).moves(SENDING, ARMED));
        }
        connection.queue.push_back(Outgoing { caller: at, bytes, sent: 0, given_up: false });
        (caller.state, caller.number) = (CallerState::Sends(token), number);
        if let Some(after) = plan.cancels_after {
            let at = context.now + after;
            context.requests.push(Request::Deadline { caller: caller_index(number), number, at });
        }
    }

    /// Ends a call for its caller.
    fn ends(&mut self, caller: usize, token: Token, ending: Ending, context: &mut Context<'_>) {
        context.oracle.ends_as(context.now, token, ending);
        if self.callers[caller].state != CallerState::Captured {
            self.callers[caller].state = CallerState::Nothing;
        }
    }

    /// Sends messages of the queue until the connection accepts no more bytes.
    pub(crate) fn send(&mut self, context: &mut Context<'_>) {
        while let Some(connection) = &mut self.connection {
            let Some(front) = connection.queue.front_mut() else { break };
            if connection.end.has_ended() && front.sent == 0 {
                // The caller of the first message obtains the send lock. It then finds that the connection
                // has ended.
                self.not_sent(Executed::No, StreamFailure::NoConnection, context);
                continue;
            }
            let rest = &front.bytes[front.sent..];
            match context.up.write(context.now, context.delay, rest, context.random) {
                Ok((0, _)) => return,
                Ok((bytes, _)) => {
                    front.sent += bytes;
                    if front.sent == front.bytes.len() {
                        self.is_sent(context);
                    }
                }
                Err(error) => {
                    let begun = front.sent > 0;
                    let failure = SendFailure::Failed(format!("{error:?}"));
                    match connection.end.fails_to_send(failure, begun) {
                        Unsent::Ended => {
                            self.not_sent(Executed::No, StreamFailure::NoConnection, context);
                        }
                        unsent => {
                            assert_eq!(unsent, Unsent::Broken);
                            self.not_sent(Executed::No, StreamFailure::Broken, context);
                        }
                    }
                    self.ended(context);
                }
            }
        }
    }

    /// Removes the first message of the queue after all of it has been sent. The send lock is free
    /// afterwards.
    fn is_sent(&mut self, context: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else { return };
        let Some(sent) = connection.queue.pop_front() else { return };
        let caller = &mut self.callers[sent.caller];
        if let CallerState::Sends(token) = caller.state {
            caller.state = CallerState::Waits(token);
            let slot = connection.end.slot(sent.caller as u32);
            slot.moves(SENDING, if caller.is_future { ARMED } else { WAITING });
            if slot.is_done() {
                self.answered(sent.caller as u32, context);
            }
        } else if sent.given_up {
            // The cancellation must follow the whole message. Until now, the frame could not be used again.
            connection.end.cancel(sent.caller as u32);
            if connection.end.slot(sent.caller as u32).moves(DONE, IDLE) {
                caller.state = CallerState::Nothing;
            }
        }
        self.send_cancels(context);
    }

    /// Removes the first message of the queue, which will not be sent completely.
    fn not_sent(&mut self, executed: Executed, why: StreamFailure, context: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else { return };
        let Some(unsent) = connection.queue.pop_front() else { return };
        let CallerState::Sends(token) = self.callers[unsent.caller].state else { return };
        connection.end.slot(unsent.caller as u32).release();
        self.ends(unsent.caller, token, Ending::StreamFailed(executed, why), context);
    }

    fn send_cancels(&mut self, context: &mut Context<'_>) {
        let Some(Connection { end, queue, .. }) = &mut self.connection else { return };
        if !end.has_cancels() || queue.front().is_some_and(|front| front.sent > 0) {
            return;
        }
        end.send_cancels(|header| send_header(end, header, context));
        if end.has_ended() {
            self.ended(context);
        }
    }

    /// Handles the deadline of a call.
    pub(crate) fn deadline(&mut self, caller: usize, number: u32, context: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else { return };
        if self.callers[caller].number != number {
            return;
        }
        match self.callers[caller].state {
            CallerState::Sends(token) => {
                let at = connection.queue.iter().position(|one| one.caller == caller);
                let Some(at) = at else { return };
                if at > 0 || connection.queue[0].sent == 0 {
                    // Either the caller has not obtained the send lock, or the server accepts no bytes.
                    let unsent = connection.end.fails_to_send(SendFailure::Late, false);
                    assert_eq!(unsent, Unsent::NotBegun);
                    connection.queue.remove(at);
                    connection.end.slot(caller as u32).release();
                    let ending = Ending::StreamFailed(Executed::No, StreamFailure::NotSent);
                    self.ends(caller, token, ending, context);
                } else if self.callers[caller].is_future {
                    // The message is in the frame of the call, so the rest of it can be sent later.
                    connection.end.slot(caller as u32).capture();
                    connection.queue[0].given_up = true;
                    self.callers[caller].state = CallerState::Captured;
                    let ending = Ending::StreamFailed(Executed::Maybe, StreamFailure::Late);
                    self.ends(caller, token, ending, context);
                } else {
                    let unsent = connection.end.fails_to_send(SendFailure::Late, true);
                    assert_eq!(unsent, Unsent::Cut);
                    self.not_sent(Executed::No, StreamFailure::PartlySent, context);
                    self.ended(context);
                }
            }
            CallerState::Waits(token) => {
                if !connection.end.slot(caller as u32).capture() {
                    return;
                }
                connection.end.cancel(caller as u32);
                self.callers[caller].state = CallerState::Captured;
                let ending = Ending::StreamFailed(Executed::Maybe, StreamFailure::Late);
                self.ends(caller, token, ending, context);
                self.send_cancels(context);
            }
            CallerState::Nothing | CallerState::Captured => {}
        }
        self.begin_calls(context);
    }

    /// Handles bytes that have arrived, or a broken connection.
    pub(crate) fn receive(&mut self, context: &mut Context<'_>) {
        while let Some(connection) = &mut self.connection {
            if connection.end.has_ended() {
                break;
            }
            let Connection { end, assembly, frames, .. } = connection;
            let most = *context.random.pick(&[1, 7, 32, 100, 5000]);
            let (place, most) = match assembly.message() {
                None => {
                    let place = assembly.header_place();
                    let most = most.min(place.len());
                    (place, most)
                }
                Some(message) => {
                    let (done, left) = (message.done, message.left());
                    let frame = &mut frames[message.frame.expect("a body") as usize];
                    (&mut frame[done..], most.min(left))
                }
            };
            let bytes = match context.down.read(most) {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => bytes,
                Err(error) => {
                    end.end(match error {
                        Broken::Closed => EndReason::Closed,
                        Broken::Reset => EndReason::Receiving("reset".into()),
                    });
                    self.ended(context);
                    break;
                }
            };
            place[..bytes.len()].copy_from_slice(&bytes);
            connection.last_heard = context.now;
            connection.keep_alive.heard();
            match assembly.add(end, bytes.len()) {
                Ok(None) => {}
                Ok(Some(Arrived::Answer { index, wakes, .. })) => {
                    let caller = &self.callers[index as usize];
                    let waits = matches!(caller.state, CallerState::Waits(_));
                    let sends = matches!(caller.state, CallerState::Sends(_));
                    match wakes {
                        Wakes::Bell => assert!(caller.is_future && (waits || sends)),
                        Wakes::Nothing => {
                            assert!(!caller.is_future || !waits, "a waiting future was not woken")
                        }
                        Wakes::Thread => panic!("no thread sleeps"),
                    }
                    self.answered(index, context);
                }
                Ok(Some(Arrived::Goodbye)) => self.ended(context),
                Ok(Some(Arrived::Revoked(_))) => {}
                Err(violation) => {
                    context
                        .oracle
                        .violated(format!("a correct server violated the protocol: {violation}"));
                    end.end(EndReason::Violated(violation.to_string()));
                    self.ended(context);
                }
            }
        }
        self.begin_calls(context);
    }

    /// Handles a reply that has arrived completely in the call frame of its caller.
    fn answered(&mut self, index: u32, context: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else { return };
        let caller = index as usize;
        let slot = connection.end.slot(index);
        match self.callers[caller].state {
            CallerState::Waits(token) => {
                let [_, answer, _, _, body] = slot.reply();
                let frame = &connection.frames[caller][..body as usize];
                let token_in_reply = frame.first_chunk().map(|token| u64::from_le_bytes(*token));
                if token_in_reply != Some(token) {
                    context
                        .oracle
                        .violated(format!("call {token} received the reply of {token_in_reply:?}"));
                }
                slot.release();
                let ending = match answer {
                    OK => Ending::Ok,
                    REFUSED => Ending::StreamFailed(Executed::No, StreamFailure::Refused),
                    _ => Ending::StreamFailed(Executed::Maybe, StreamFailure::Refused),
                };
                self.ends(caller, token, ending, context);
            }
            // A frame becomes free only after its message has been sent completely.
            CallerState::Captured if connection.queue.iter().any(|one| one.caller == caller) => {}
            CallerState::Captured => {
                slot.moves(DONE, IDLE);
                self.callers[caller].state = CallerState::Nothing;
            }
            // A server may refuse a call as soon as it has read the header. The caller must still send the
            // rest of the message before it handles the reply.
            CallerState::Sends(_) => {}
            CallerState::Nothing => {
                context.oracle.violated(format!("frame {caller} is not in use"))
            }
        }
    }

    /// Ends all calls, because the connection has ended.
    fn ended(&mut self, context: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else { return };
        let Some(reason) = connection.end.end_reason().cloned() else { return };
        for caller in 0..self.callers.len() {
            match self.callers[caller].state {
                CallerState::Waits(token) => {
                    let executed =
                        if reason.may_have_executed() { Executed::Maybe } else { Executed::No };
                    let ending = Ending::StreamFailed(executed, StreamFailure::Unanswered);
                    self.ends(caller, token, ending, context);
                }
                CallerState::Captured => self.callers[caller].state = CallerState::Nothing,
                CallerState::Sends(_) | CallerState::Nothing => {}
            }
        }
        // The connection has ended, so the calls in the queue fail. The first of them may have been sent in
        // part.
        while let Some(connection) = &mut self.connection {
            let Some(front) = connection.queue.front() else { break };
            let begun = front.sent > 0;
            let failure = SendFailure::Failed("the connection has ended".into());
            match connection.end.fails_to_send(failure, begun) {
                Unsent::Ended => self.not_sent(Executed::No, StreamFailure::NoConnection, context),
                _ => self.not_sent(Executed::No, StreamFailure::Broken, context),
            }
        }
        if self.connection.take().is_some() {
            context.requests.push(Request::Close);
            context.requests.push(Request::Connect);
        }
    }

    /// Lets idle callers begin their next calls.
    fn begin_calls(&mut self, context: &mut Context<'_>) {
        (0..self.callers.len()).for_each(|caller| self.begin(caller, context));
        self.send(context);
    }

    /// Handles an acknowledgement from the server's kernel.
    pub(crate) fn acknowledged(&mut self, now: u64) {
        if let Some(connection) = &mut self.connection {
            connection.last_heard = now;
        }
    }

    /// Lets the waiting callers check whether the connection is still alive.
    pub(crate) fn examine(&mut self, context: &mut Context<'_>) {
        let waits =
            |caller: &Caller| matches!(caller.state, CallerState::Waits(_) | CallerState::Sends(_));
        let Some(connection) = &mut self.connection else { return };
        if !self.callers.iter().any(waits) {
            connection.keep_alive.heard();
            return;
        }
        let ns = Duration::from_nanos;
        if !connection.keep_alive.is_due(ns(context.now)) {
            return;
        }
        // The kernel doubles the interval after each retransmission. So the number of unanswered
        // retransmissions is about the logarithm of the waiting time.
        let since = context.up.waiting_since().map_or(0, |since| context.now - since);
        let intervals = since / EXAMINE_EVERY.as_nanos() as u64;
        let link = Link {
            silence: ns(context.now - connection.last_heard),
            unanswered: intervals.checked_ilog2().map_or(0, |doubled| doubled + 1),
            unacknowledged: context.up.in_flight(),
        };
        match connection.keep_alive.examine(&link) {
            Action::Wait => {}
            Action::Probe => {
                if connection.queue.front().is_none_or(|front| front.sent == 0) {
                    send_header(&connection.end, Header::new(MessageKind::Abandon, 0), context);
                    if connection.end.has_ended() {
                        self.ended(context);
                    }
                }
            }
            Action::End(silence) => {
                connection.end.end(EndReason::Silent(silence));
                self.ended(context);
            }
        }
    }

    /// Crashes the client's process. All calls of the client are lost.
    pub(crate) fn crash(&mut self, now: u64, oracle: &mut Oracle) {
        self.connection = None;
        for caller in &mut self.callers {
            if let CallerState::Sends(token) | CallerState::Waits(token) = caller.state {
                oracle.loses(now, token);
            }
            caller.calls.drain(..).for_each(|token| oracle.loses(now, token));
            caller.state = CallerState::Nothing;
        }
    }
}

/// Returns the index of the caller that made the call with this number.
fn caller_index(number: u32) -> usize {
    (number % crate::limits::ASTACKS_MAX) as usize
}

/// Sends a header if the connection accepts it at once. Returns whether the header was sent.
fn send_header(end: &ClientEnd, header: Header, context: &mut Context<'_>) -> bool {
    let bytes = header.to_bytes();
    let (sent, failure) = match context.up.write(context.now, context.delay, &bytes, context.random)
    {
        Ok((HEADER_BYTES, _)) => return true,
        Ok((sent, _)) => (sent, SendFailure::Late),
        Err(error) => (0, SendFailure::Failed(format!("{error:?}"))),
    };
    end.fails_to_send(failure, sent > 0);
    false
}
