//! A simulated server of the stream protocol: its connections, the procedures that run, and the calls that
//! wait for permission to run.

use std::collections::VecDeque;

use super::client::{BODY_MAX, GIVEN_UP, OK, REFUSED};
use super::pipe::{Broken, Pipe};
use crate::exchange::time::SECOND;
use crate::limits;
use crate::network::Token;
use crate::oracle::Oracle;
use crate::protocol::stream::server_end::{Calls, Next, Unread};
use crate::protocol::stream::{HEADER_BYTES, Header, MessageKind, padding};
use crate::random::Random;

/// The largest number of running procedures.
const RUNNING_MAX: usize = 3;
/// The largest number of waiting calls.
const WAITING_MAX: usize = 6;
/// How long a reply may stay unread before the server closes the connection.
const UNREAD: u64 = limits::UNREAD_TIME[1].as_nanos() as u64;
/// How long a stopping server waits for its procedures.
const DRAIN: u64 = 2 * SECOND;

/// The server's side of a connection.
pub(crate) struct Connection {
    pub(crate) id: u64,
    memory: Vec<u8>,
    unread: Unread,
    calls: Calls,
    output: VecDeque<u8>,
    /// The time since which the client's kernel has accepted no output, or `None` if output is not blocked.
    stalled_since: Option<u64>,
    /// Whether the server reads no further call from this connection.
    is_over: bool,
}

/// A call that runs or waits.
#[derive(Clone, Copy, Debug)]
struct Job {
    connection: u64,
    number: u32,
    token: Token,
}

/// An action that the server requests from the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// End the procedure of this call after this time.
    Finish { connection: u64, number: u32, token: Token, after: u64 },
    /// Check the connection again after this time, because its client does not read its replies.
    Examine { connection: u64, after: u64 },
    /// Close the server's end of a connection. If `in_good_order` is false, the connection is reset.
    Close { connection: u64, in_good_order: bool },
}

/// The parts of the world that one step of a server can use, including the pipes of one connection.
pub(crate) struct Context<'a> {
    pub(crate) now: u64,
    pub(crate) delay: u64,
    pub(crate) up: &'a mut Pipe,
    pub(crate) down: &'a mut Pipe,
    pub(crate) random: &'a mut Random,
    pub(crate) oracle: &'a mut Oracle,
}

pub(crate) struct Server {
    pub(crate) incarnation: u64,
    connections: Vec<Connection>,
    running: Vec<Job>,
    waiting: VecDeque<Job>,
    stops_at: Option<u64>,
    pub(crate) requests: Vec<Request>,
}

impl Server {
    pub(crate) const fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            connections: Vec::new(),
            running: Vec::new(),
            waiting: VecDeque::new(),
            stops_at: None,
            requests: Vec::new(),
        }
    }

    pub(crate) fn accept(&mut self, id: u64) {
        self.connections.push(Connection {
            id,
            memory: Vec::new(),
            unread: Unread::default(),
            calls: Calls::default(),
            output: VecDeque::new(),
            stalled_since: None,
            is_over: false,
        });
    }

    /// Returns the numbers of the open connections.
    pub(crate) fn connections(&self) -> Vec<u64> {
        self.connections.iter().map(|one| one.id).collect()
    }

    pub(crate) fn describe(&self, id: u64) -> String {
        let Self { running, waiting, connections, .. } = self;
        let found = connections.iter().find(|one| one.id == id);
        let connection = found.map(|one| (one.unread, &one.calls, one.output.len(), one.is_over));
        format!("\nserver: runs {running:?}, waiting {waiting:?}, {connection:?}")
    }

    fn connection(&mut self, id: u64) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|one| one.id == id)
    }

    pub(crate) const fn is_stopping(&self) -> bool {
        self.stops_at.is_some()
    }

    /// Handles bytes that have arrived on a connection.
    pub(crate) fn receive(&mut self, id: u64, context: &mut Context<'_>) {
        loop {
            let is_stopping = self.stops_at.is_some();
            let Some(connection) = self.connection(id) else { return };
            if connection.is_over || is_stopping {
                return;
            }
            let most = *context.random.pick(&[1, 20, 64, 1000, 20_000]);
            match context.up.read(most) {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => {
                    connection.memory.extend(bytes);
                    connection.unread.to = connection.memory.len();
                }
                Err(Broken::Closed | Broken::Reset) => {
                    self.lose(id);
                    return;
                }
            }
            if !self.read_messages(id, context) {
                return;
            }
        }
        self.run_waiting(context.now, context.oracle);
        self.write(id, context);
    }

    /// Reads all complete messages. Returns false if the connection was closed.
    fn read_messages(&mut self, id: u64, context: &mut Context<'_>) -> bool {
        while let Some(connection) = self.connection(id) {
            connection.unread.skip();
            let next = connection.unread.next(&connection.memory, |header| header.binding == 0);
            match next {
                Next::More(_) => {
                    let read = core::mem::take(&mut connection.unread.from);
                    connection.memory.drain(..read);
                    connection.unread.to = connection.memory.len();
                    return true;
                }
                Next::Refuse(header) => {
                    // The body was not read, so the token of the call comes from the oracle.
                    let token = context.oracle.token_of(id, header.number);
                    connection.reply(header.number, REFUSED, token);
                }
                Next::Violated(error) => {
                    context
                        .oracle
                        .violated(format!("a correct client violated the protocol: {error}"));
                    self.lose(id);
                    return false;
                }
                Next::Message { header, at } if header.kind == MessageKind::Call => {
                    let body = &connection.memory[at + HEADER_BYTES..];
                    let token = body.first_chunk().map_or(0, |token| u64::from_le_bytes(*token));
                    connection.calls.begin(&header);
                    if connection.unread.cancels(&connection.memory, header.number) {
                        connection.calls.cancel(header.number);
                    }
                    let job = Job { connection: id, number: header.number, token };
                    if self.waiting.len() < WAITING_MAX {
                        self.waiting.push_back(job);
                    } else {
                        self.refuse(job);
                    }
                }
                Next::Message { header, .. } => {
                    connection.calls.cancel(header.number);
                }
            }
        }
        false
    }

    /// Sends the reply that a call is not executed.
    fn refuse(&mut self, job: Job) {
        if let Some(connection) = self.connection(job.connection) {
            connection.calls.end(job.number);
            connection.reply(job.number, REFUSED, job.token);
        }
    }

    /// Starts waiting calls until the limit of running procedures is reached.
    fn run_waiting(&mut self, now: u64, oracle: &mut Oracle) {
        while self.running.len() < RUNNING_MAX
            && let Some(job) = self.waiting.pop_front()
        {
            let Some(connection) = self.connection(job.connection) else { continue };
            if !connection.calls.starts(job.number) {
                self.refuse(job);
                continue;
            }
            let mut key = [0; 12];
            key[..8].copy_from_slice(&job.connection.to_le_bytes());
            oracle.executes(key, job.number, job.token);
            self.running.push(job);
            if let Some(after) = oracle.call(job.token).plan.runs_for {
                let Job { connection, number, token } = job;
                self.requests.push(Request::Finish { connection, number, token, after });
            }
        }
        let _ = now;
    }

    /// Handles the end of a procedure. Sends the reply on connection `id` if that connection still exists.
    pub(crate) fn finish(&mut self, number: u32, token: Token, id: u64, oracle: &mut Oracle) {
        self.running.retain(|job| (job.connection, job.number) != (id, number));
        if let Some(connection) = self.connection(id) {
            let answer = if connection.calls.is_cancelled(number) { GIVEN_UP } else { OK };
            connection.calls.end(number);
            connection.reply(number, answer, token);
        }
        let now = 0;
        self.run_waiting(now, oracle);
    }

    /// Writes as much as the client's kernel accepts.
    pub(crate) fn write(&mut self, id: u64, context: &mut Context<'_>) {
        let Some(connection) = self.connection(id) else { return };
        while !connection.output.is_empty() {
            let bytes = connection.output.make_contiguous();
            match context.down.write(context.now, context.delay, bytes, context.random) {
                Ok((0, _)) => {
                    if connection.stalled_since.is_none() {
                        connection.stalled_since = Some(context.now);
                        self.requests.push(Request::Examine { connection: id, after: UNREAD });
                    }
                    return;
                }
                Ok((written, _)) => {
                    connection.output.drain(..written);
                    connection.stalled_since = None;
                }
                Err(_) => return self.lose(id),
            }
        }
    }

    /// Closes the connection if the client has not read a reply for too long.
    pub(crate) fn examine(&mut self, id: u64, now: u64) {
        let Some(connection) = self.connection(id) else { return };
        if connection.stalled_since.is_some_and(|since| now - since >= UNREAD) {
            self.lose(id);
            self.requests.push(Request::Close { connection: id, in_good_order: false });
        }
    }

    /// Removes a connection. Afterwards, no caller waits for the calls of this connection.
    fn lose(&mut self, id: u64) {
        if let Some(connection) = self.connection(id) {
            connection.calls.cancel_all();
            connection.is_over = true;
        }
        // Calls of this connection that still wait are never executed.
        self.waiting.retain(|job| job.connection != id);
        self.connections.retain(|one| one.id != id);
    }

    /// Begins to stop the server. No further call begins.
    pub(crate) fn stop(&mut self, now: u64) {
        self.stops_at = Some(now + DRAIN);
        for job in core::mem::take(&mut self.waiting) {
            self.refuse(job);
        }
    }

    /// Returns whether a stopping server has finished waiting. It waits until all procedures have ended and
    /// all replies are written, but at most until [`DRAIN`] has passed.
    pub(crate) fn is_drained(&self, now: u64) -> bool {
        let is_written = self.connections.iter().all(|one| one.output.is_empty());
        self.stops_at.is_some_and(|at| at <= now || self.running.is_empty() && is_written)
    }

    /// Sends a goodbye on a connection before it is closed, if the protocol allows that.
    pub(crate) fn farewell(&mut self, id: u64, context: &mut Context<'_>) {
        let Some(connection) = self.connection(id) else { return };
        let mut in_good_order = connection.calls.bid_farewell() && connection.output.is_empty();
        if in_good_order {
            let bytes = Header::new(MessageKind::Goodbye, 0).to_bytes();
            let sent = context.down.write(context.now, context.delay, &bytes, context.random);
            // If a goodbye cannot be sent at once, the server does not send it.
            in_good_order = matches!(sent, Ok((0 | HEADER_BYTES, _)));
        }
        self.requests.push(Request::Close { connection: id, in_good_order });
    }
}

impl Connection {
    fn reply(&mut self, number: u32, answer: u32, token: u64) {
        let body = 8 + (token as usize * 37) % (BODY_MAX / 4);
        let header = Header {
            body: body as u32,
            procedure: answer,
            ..Header::new(MessageKind::Reply, number)
        };
        self.output.extend(header.to_bytes());
        self.output.extend(token.to_le_bytes());
        self.output.extend(vec![7; body - 8 + padding(body)]);
    }
}
