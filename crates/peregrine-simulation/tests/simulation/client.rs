//! The client of the simulation. It does what a driver and the keeper do in the library: it drives a
//! [`ClientEnd`] and a [`BindExchange`].

use std::collections::VecDeque;

use crate::buffer::Buffer;
use crate::exchange::bind::{BIND_BYTES, BindExchange, BindOutcome, BindRequest, ExportName};
use crate::exchange::client_end::{
    ClientEnd, ClientTerms, Executed, FailureReason, Handled, Outcome,
};
use crate::exchange::header::{CONTROL_BYTES_MAX, HEADER_BYTES, Header};
use crate::exchange::message::Shape;
use crate::exchange::time::{MILLISECOND, Moment};
use crate::network::{Address, NotSent, Packet, RESULT, SERVER, Token};
use crate::oracle::{Ending, Oracle};
use crate::random::Random;
use crate::server::{Shared, bitmap};

/// If no further call has acknowledged a result after this time, the keeper acknowledges the
/// result.
const ACKNOWLEDGE_AFTER: u64 = 100 * MILLISECOND;
/// The pause after a failed bind.
const REBIND_AFTER: u64 = 500 * MILLISECOND;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientOptions {
    pub(crate) piece: u32,
    pub(crate) credits: u16,
    pub(crate) result_bytes_max: u32,
    /// The longest pause between calls.
    pub(crate) pause: u64,
    /// Whether the client sends a goodbye after its last call.
    pub(crate) bye: bool,
}

/// An activity: one thread of a client, which makes one call after another.
#[derive(Debug)]
pub(crate) struct Activity {
    pub(crate) todo: VecDeque<Token>,
    binding: Option<BindExchange>,
    /// Whether a server refused the last handle. A refusal shows that the socket reaches a server.
    refused: bool,
    /// The incarnation of the server to which the activity was last bound.
    incarnation: Option<u64>,
    pub(crate) client_end: Option<ClientEnd>,
    /// The number of the activity's socket. It changes when the socket can no longer be used.
    socket: u32,
    /// Whether any packet of the current call has left the machine.
    left: bool,
    /// The current call, and the time at which the client cancels it.
    current: Option<(Token, Option<u64>)>,
    result: Buffer,
    /// When the next call begins.
    next: u64,
    /// When the last call ended.
    ended: u64,
    /// When the world will wake the activity, or `u64::MAX` if that is not scheduled.
    pub(crate) wake: u64,
}

#[derive(Debug)]
pub(crate) struct Client {
    address: Address,
    options: ClientOptions,
    pub(crate) activities: Vec<Activity>,
    pub(crate) flow: Shared,
    random: Random,
    pub(crate) dropped: u64,
}

impl Client {
    pub(crate) fn new(
        address: Address,
        options: ClientOptions,
        plans: Vec<VecDeque<Token>>,
        mut random: Random,
    ) -> Self {
        let activity = |todo| Activity {
            todo,
            binding: None,
            refused: false,
            incarnation: None,
            client_end: None,
            socket: random.next() as u32,
            left: false,
            current: None,
            result: Buffer::new(0),
            next: 0,
            ended: 0,
            wake: u64::MAX,
        };
        let activities = plans.into_iter().map(activity).collect();
        let flow = Shared::new(None);
        Self { address, options, activities, flow, random, dropped: 0 }
    }

    /// Delivers a packet. Returns the activity to which the packet belongs.
    pub(crate) fn receive(
        &mut self,
        now: Moment,
        packet: &Packet,
        oracle: &mut Oracle,
    ) -> Option<usize> {
        let Some(header) = packet.header() else {
            self.dropped += 1;
            let mut activities = self.activities.iter_mut();
            return activities.position(|activity| {
                let mine = activity.socket == packet.socket;
                let binding = activity.binding.as_mut().filter(|_| mine);
                binding.is_some_and(|binding| binding.receive(now, &packet.bytes))
            });
        };
        for (at, activity) in self.activities.iter_mut().enumerate() {
            if activity.socket != packet.socket {
                continue;
            }
            if header.kind.binds() {
                let body = &packet.bytes[HEADER_BYTES..];
                let binding = activity.binding.as_mut();
                if binding.is_some_and(|binding| binding.handle(now, &header, body)) {
                    return Some(at);
                }
            } else if let Some(client_end) = &mut activity.client_end
                && client_end.bound_handle() == header.handle
            {
                if let Handled::Place(range) =
                    client_end.handle(now, &self.flow, &header, bitmap(packet))
                {
                    activity.result.resize(header.shape.total);
                    activity.result.place(packet, range, oracle);
                }
                return Some(at);
            }
        }
        self.dropped += 1;
        None
    }

    /// Handles a packet that the server's machine refused. Returns the activity that had sent it.
    pub(crate) fn note_unreachable(&mut self, now: Moment, packet: &Packet) -> Option<usize> {
        let header = packet.header()?;
        let of = |activity: &Activity| {
            activity
                .client_end
                .as_ref()
                .is_some_and(|client_end| client_end.bound_handle() == header.handle)
        };
        let at = self.activities.iter().position(of)?;
        self.activities[at]
            .client_end
            .as_mut()
            .expect("the activity has a client end")
            .note_unreachable(now);
        Some(at)
    }

    /// Handles the outcome of sending the packets of an activity.
    pub(crate) fn sent(
        &mut self,
        now: Moment,
        at: usize,
        outcome: Result<(), NotSent>,
        oracle: &mut Oracle,
    ) {
        let activity = &mut self.activities[at];
        match outcome {
            Ok(()) => activity.left = true,
            Err(NotSent::Lost) => {}
            Err(NotSent::TooLarge(bytes)) => {
                if let Some(client_end) = &mut activity.client_end {
                    client_end.reduce_piece((bytes - HEADER_BYTES) as u32, now);
                }
            }
            Err(NotSent::Moved) => {
                if let Some(mut client_end) = activity.client_end.take() {
                    client_end.fail_unreachable();
                    if let Some(Outcome::Failed { why, .. }) = client_end.outcome() {
                        let executed = if activity.left { Executed::Maybe } else { Executed::No };
                        activity.end(now, &Outcome::Failed { executed, why }, oracle);
                    }
                }
                activity.binding = None;
                activity.socket = self.random.next() as u32;
            }
        }
    }

    /// Does everything that is due for an activity. Returns when to wake the activity again. `now` is the
    /// time of the machine's clock.
    pub(crate) fn drive(
        &mut self,
        now: Moment,
        at: usize,
        oracle: &mut Oracle,
        out: &mut Vec<Packet>,
    ) -> Option<u64> {
        let activity = &mut self.activities[at];
        loop {
            if let Some(client_end) = &mut activity.client_end {
                if client_end.next_timer().is_some_and(|due| due <= now) {
                    client_end.handle_timer(now);
                }
                if let Some((_, Some(cancels_at))) = activity.current
                    && cancels_at <= now.0
                {
                    client_end.cancel(now);
                }
                if let Some(outcome) = client_end.outcome() {
                    activity.end(now, &outcome, oracle);
                    activity.next = now.0 + self.random.below(self.options.pause);
                }
            }
            if activity.client_end.as_ref().is_some_and(ClientEnd::is_closed) {
                // The activity may have a goodbye to send.
                activity.send(now, self.address, &self.flow, out);
                activity.client_end = None;
                if !core::mem::take(&mut activity.refused) {
                    activity.socket = self.random.next() as u32;
                }
            }
            if activity.current.is_none() && now.0 >= activity.next && !activity.todo.is_empty() {
                activity.begin(now, oracle);
            }
            activity.maintain(now, self.options.bye);
            if activity.client_end.is_none() && !activity.todo.is_empty() {
                let seed = self.random.next();
                if activity.bind(now, self.options, &mut self.random, seed, oracle) {
                    continue;
                }
            }
            break;
        }
        activity.send(now, self.address, &self.flow, out);
        activity.next_wake()
    }

    /// Crashes the machine or the process. Returns the calls that the client had not begun.
    pub(crate) fn crash(&mut self, now: u64, oracle: &mut Oracle) -> Vec<VecDeque<Token>> {
        let mut left = Vec::new();
        for activity in &mut self.activities {
            if let Some((token, _)) = activity.current {
                oracle.loses(now, token);
            }
            left.push(core::mem::take(&mut activity.todo));
        }
        left
    }

    pub(crate) fn is_done(&self) -> bool {
        self.activities.iter().all(|one| one.todo.is_empty() && one.current.is_none())
    }
}

impl Activity {
    fn begin(&mut self, now: Moment, oracle: &mut Oracle) {
        let Some(client_end) = &mut self.client_end else { return };
        let token = self.todo[0];
        let plan = oracle.call(token).plan;
        let head = plan.total.min(32);
        let call = Shape { what: 7, total: plan.total, head, at: head, extension: 0 };
        if client_end.begin(call).is_ok() {
            self.todo.pop_front();
            oracle.call(token).began = Some(now.0);
            self.left = false;
            self.current = Some((token, plan.cancels_after.map(|after| now.0 + after)));
            self.result = Buffer::new(0);
        }
    }

    fn end(&mut self, now: Moment, outcome: &Outcome, oracle: &mut Oracle) {
        let Some((token, _)) = self.current.take() else {
            return oracle.violated("a call ended that had not begun".into());
        };
        let mut outcome = *outcome;
        if let Outcome::Returned(shape) = outcome {
            let whole = self.result.whole(oracle);
            if whole != token | RESULT {
                oracle.violated(format!("call {token} received the result {whole:x}"));
            }
            if shape.what == 2 {
                // The server refused the call before it executed the call.
                outcome = Outcome::Failed { executed: Executed::No, why: FailureReason::Protocol };
            }
        }
        self.refused = matches!(outcome, Outcome::Failed { why: FailureReason::Refused, .. });
        oracle.ends(now.0, token, &outcome);
        self.ended = now.0;
    }

    /// Does what the keeper does for an activity between calls.
    fn maintain(&mut self, now: Moment, bye: bool) {
        let idle = self.current.is_none();
        let Some(client_end) = &mut self.client_end else { return };
        if idle && client_end.owes_acknowledgement() && now.0 >= self.ended + ACKNOWLEDGE_AFTER {
            client_end.acknowledge();
        }
        if idle && bye && self.todo.is_empty() {
            client_end.close();
        }
    }

    /// Continues a bind. Returns whether the bind has made a client end.
    fn bind(
        &mut self,
        now: Moment,
        options: ClientOptions,
        random: &mut Random,
        seed: u64,
        oracle: &mut Oracle,
    ) -> bool {
        if now.0 < self.next {
            return false;
        }
        let binding = self.binding.get_or_insert_with(|| {
            let request = BindRequest {
                name: ExportName::new(b"simulated").expect("a name"),
                digest: None,
                handles: 1,
                piece: options.piece,
                result_bytes_max: options.result_bytes_max,
                credits: options.credits,
                payload_check: false,
            };
            BindExchange::new(now, random.bytes(), request)
        });
        let Some(outcome) = binding.outcome() else { return false };
        let mut bound = false;
        if let BindOutcome::Granted(grant, round_trip) = outcome {
            let terms = ClientTerms {
                piece: grant.piece,
                credits: grant.credits,
                credits_here: options.credits,
                call_bytes_max: grant.call_bytes_max,
                result_bytes_max: options.result_bytes_max,
                table: grant.table,
            };
            let mut client_end = ClientEnd::new(grant.handles()[0], terms, *round_trip, seed);
            client_end.set_last_heard(now);
            self.client_end = Some(client_end);
            if let Some(before) = self.incarnation.replace(grant.incarnation) {
                oracle.binds_again(before, grant.incarnation);
            }
            bound = true;
        } else {
            self.next = now.0 + REBIND_AFTER;
            self.socket = random.next() as u32;
        }
        self.binding = None;
        bound
    }

    /// Sends all packets of an activity that are due.
    fn send(&mut self, now: Moment, from: Address, flow: &Shared, out: &mut Vec<Packet>) {
        if let Some(binding) = &mut self.binding {
            let mut packet = [0; BIND_BYTES];
            if binding.poll_send(now, &mut packet).is_some() {
                let bytes = packet.to_vec();
                out.push(Packet { from, to: SERVER, socket: self.socket, bytes, data: None });
            }
        }
        let Some(client_end) = &mut self.client_end else { return };
        let mut packet = [0; CONTROL_BYTES_MAX];
        while let Some(send) = client_end.poll_send(now, flow, &mut packet) {
            let after = send.bytes - HEADER_BYTES + send.range.len();
            let header = packet.first_chunk().expect("a header");
            let header = Header::parse(header, after).expect("a sent packet can be parsed");
            let token = self.current.map(|(token, _)| token).filter(|_| header.kind.carries());
            let data = token.map(|token| (token, send.range));
            let bytes = packet[..send.bytes].to_vec();
            out.push(Packet { from, to: SERVER, socket: self.socket, bytes, data });
        }
    }

    fn next_wake(&self) -> Option<u64> {
        let idle = self.current.is_none();
        let client_end = self.client_end.as_ref();
        let timer = client_end.and_then(ClientEnd::next_timer).map(|due| due.0);
        let more = client_end.and_then(ClientEnd::next_send).map(|due| due.0);
        let quit =
            self.current.and_then(|(_, cancels_at)| cancels_at).filter(|_| !self.is_captured());
        let begin =
            (idle && !self.todo.is_empty() && !self.is_captured() && self.binding.is_none())
                .then_some(self.next);
        let owes = client_end.is_some_and(ClientEnd::owes_acknowledgement) && idle;
        let acknowledge = owes.then_some(self.ended + ACKNOWLEDGE_AFTER);
        // A bind that already has an outcome has no timer. The outcome is handled at once.
        let due = |binding: &BindExchange| binding.next_timer().map_or(0, |due| due.0);
        let binding = self.binding.as_ref().map(due);
        [timer, more, quit, begin, acknowledge, binding].into_iter().flatten().min()
    }

    fn is_captured(&self) -> bool {
        self.client_end.as_ref().is_some_and(ClientEnd::is_captured)
    }
}

/// Returns whether the call failed. A fault of the network or of the server can make any call fail.
pub(crate) fn is_failure(ending: Ending) -> bool {
    matches!(ending, Ending::Failed(..))
}
