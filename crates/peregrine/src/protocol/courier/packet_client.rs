//! The client's end of packet Courier: one call, from its first packet to its reply or failure. The *driver*
//! is the code of the path, which sends and receives the datagrams.
//!
//! The client has all timers. If nothing arrives, it sends again what the server may have missed, and doubles
//! the wait. If a server is silent for [`SILENCE`], the call fails.
//!
//! A call in parts goes through the states in this order: `Greeting` (only if the client has no fresh
//! cookie), `Sending`, `Waiting` (only if the procedure takes long), `Receiving` (only if the reply has
//! several parts). A whole call is sent again until its reply arrives.

use std::borrow::Cow;

use super::failure::Failure;
use super::message::{Reply, VERSIONS_BYTES};
use super::packet::{
    Arrivals, Body, Datagram, Division, Incoming, Name, Packet, Part, Report, WHOLE,
    WHOLE_PAYLOAD_MAX, WINDOW, message, send_missing,
};
use super::words::Unreadable;
use crate::protocol::exchange::time::{MILLISECOND, Moment, SECOND};
use crate::protocol::retransmission::{Due, Pace, Timers};

/// How long a client waits for a packet with which the call makes progress. PCourier, an earlier
/// implementation, returned an empty result after this time.
pub(crate) const SILENCE: u64 = 10 * SECOND;
/// The smallest number of retransmissions before a client treats the server as silent. [`SILENCE`] may pass
/// while the client's machine is suspended. The server can then still answer one of these retransmissions.
const UNANSWERED_MIN: u32 = 3;
/// The longest wait before a packet of a call in parts is sent again.
const WAIT_MAX: u64 = 2 * SECOND;
/// If nothing has arrived from the server for this time, the client asks for a cookie before it sends a call.
/// Without asking, each restart of a server would make a call of each client fail, and the client would not
/// know whether its call was executed.
const FRESH: u64 = 500 * MILLISECOND;
/// How many parts are sent before the first report. The number doubles with each report.
pub(crate) const WINDOW_FIRST: u16 = 4;

/// The form in which a call is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The call and its reply have one datagram each. Every server knows this form.
    Whole,
    /// The call and its reply are divided into parts of this length. Only servers of this implementation know
    /// this form.
    Parts(u16),
}

/// What a client keeps for one server. All calls from one socket to this server share it.
#[derive(Clone, Debug)]
pub(crate) struct Association {
    conversation: u32,
    cookie: Option<u64>,
    heard: Moment,
    pace: Pace,
}

impl Association {
    /// Makes the state of a server that was never called. `conversation` must be random.
    pub(crate) fn new(conversation: u32) -> Self {
        Self { conversation, cookie: None, heard: Moment::default(), pace: Pace::default() }
    }

    fn fresh_cookie(&self, now: Moment) -> Option<u64> {
        self.cookie.filter(|_| now.since(self.heard) < FRESH)
    }
}

/// A payload that cannot be sent in the chosen form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// What the driver does next for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Waits for datagrams until this moment.
    Wait(Moment),
    /// Ends the call.
    GiveUp(Failure),
}

#[derive(Debug)]
enum State {
    Whole(Timers),
    Greeting,
    /// `arrivals` are the positions that have arrived at the server. The positions below `sent` were sent.
    Sending {
        arrivals: Arrivals,
        sent: u32,
    },
    Waiting,
    Receiving(Incoming),
}

/// The data of a call in parts that does not depend on its state.
#[derive(Debug)]
struct Parts {
    division: Division,
    cookie: u64,
    ends: Moment,
    wait: u64,
    due: Moment,
    /// When the last packet arrived with which the call made progress.
    heard: Moment,
    /// How often packets were sent again since `heard`.
    unanswered: u32,
    /// The end of the wait after the packet that made `unanswered` reach [`UNANSWERED_MIN`].
    last_chance: Moment,
    /// When the packet was sent whose round trip is being measured.
    asked: Option<Moment>,
    window: u16,
    /// The number of parts of the call that were sent again.
    resent: u32,
}

impl Parts {
    /// Returns when the client must act if no datagram arrives earlier.
    fn until(&self) -> Moment {
        let until = self.due.min(self.ends);
        self.silent_at().map_or(until, |silent_at| until.min(silent_at))
    }

    /// Returns when the client treats the server as silent, if no datagram arrives before. Returns `None` if
    /// the client must send more packets before.
    fn silent_at(&self) -> Option<Moment> {
        let is_enough = self.unanswered >= UNANSWERED_MIN;
        is_enough.then(|| self.heard.after(SILENCE).max(self.last_chance))
    }
}

/// One call. It is in flight from [`begin`](Self::begin) until [`receive`](Self::receive) returns its end, or
/// [`step`](Self::step) returns [`Step::GiveUp`].
#[derive(Debug)]
pub(crate) struct PacketCall {
    id: u32,
    payload: Vec<u8>,
    state: State,
    /// The data of a call in parts. `None` for a whole call.
    parts: Option<Parts>,
    /// Why the last datagram with the number of this call was not its reply.
    unreadable: Option<Unreadable>,
}

impl PacketCall {
    /// Begins a call, and sends its first packets with `send`. [`payload`](super::packet::payload) makes the
    /// payload. The client gives up after `time` nanoseconds. `id` must differ from the numbers of all other
    /// calls to this server within the last two minutes.
    ///
    /// # Errors
    /// Fails if the payload is too long for the form.
    pub(crate) fn begin(
        id: u32,
        payload: Vec<u8>,
        form: Form,
        now: Moment,
        time: u64,
        to: &Association,
        send: &mut impl FnMut(Datagram<'_>),
    ) -> Result<Self, TooLong> {
        let mut call = Self { id, payload, state: State::Greeting, parts: None, unreadable: None };
        match form {
            Form::Whole => {
                if call.payload.len() > WHOLE_PAYLOAD_MAX {
                    return Err(TooLong);
                }
                call.state = State::Whole(Timers::begin(now, time, &to.pace));
                call.send_whole(send);
            }
            Form::Parts(piece) => {
                let wait = to.pace.wait().min(WAIT_MAX);
                let cookie = to.fresh_cookie(now);
                call.parts = Some(Parts {
                    division: Division::of(call.payload.len(), piece).ok_or(TooLong)?,
                    cookie: cookie.unwrap_or_default(),
                    ends: now.after(time),
                    wait,
                    due: now.after(wait),
                    heard: now,
                    asked: Some(now),
                    window: WINDOW_FIRST,
                    unanswered: 0,
                    last_chance: now,
                    resent: 0,
                });
                if cookie.is_some() {
                    call.start_sending();
                }
                call.send_next(now, to, send);
            }
        }
        Ok(call)
    }

    /// Takes the memory of the payload from a call that has ended, for the payload of another call.
    pub(crate) fn take_payload(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.payload)
    }

    /// Returns when the driver must call [`step`](Self::step) if no datagram arrives earlier.
    pub(crate) fn due(&self) -> Moment {
        match (&self.state, &self.parts) {
            (State::Whole(timers), _) => timers.due(),
            (_, Some(parts)) => parts.until(),
            (_, None) => Moment::default(),
        }
    }

    /// Returns whether no datagram of the call was retransmitted, and the server has not reported that the
    /// whole call has arrived. If a datagram of such a call reaches a closed port, the call is not executed.
    pub(crate) fn is_unanswered(&self) -> bool {
        let resent = self.parts.as_ref().map_or(0, |parts| parts.resent);
        match &self.state {
            State::Whole(timers) => timers.transmissions() == 1,
            State::Greeting => true,
            State::Sending { .. } => resent == 0,
            State::Waiting | State::Receiving(_) => false,
        }
    }

    /// Returns an upper bound of how often the client has sent the whole call. It is 0 if a part was never
    /// sent.
    pub(crate) fn transmissions(&self) -> u32 {
        match (&self.state, &self.parts) {
            (State::Whole(timers), _) => timers.transmissions(),
            (State::Greeting, _) | (_, None) => 0,
            (State::Sending { sent, .. }, Some(parts)) if *sent < parts.division.count() => 0,
            (_, Some(parts)) => 1 + parts.resent / parts.division.count(),
        }
    }

    /// Sends the packets that are due, and returns what the driver does now.
    pub(crate) fn step(
        &mut self,
        now: Moment,
        to: &Association,
        send: &mut impl FnMut(Datagram<'_>),
    ) -> Step {
        while let State::Whole(timers) = &mut self.state {
            match timers.step(now) {
                Due::Wait(until) => return Step::Wait(until),
                Due::GiveUp => {
                    let failure = self.unreadable.map_or(Failure::TimedOut, Failure::BadReply);
                    return Step::GiveUp(failure);
                }
                Due::Retransmit => self.send_whole(send),
            }
        }
        let Some(parts) = &mut self.parts else { return Step::GiveUp(Failure::TimedOut) };
        if now >= parts.ends {
            return Step::GiveUp(Failure::TimedOut);
        }
        if parts.silent_at().is_some_and(|silent_at| now >= silent_at) {
            return Step::GiveUp(Failure::Silent);
        }
        if now >= parts.due {
            parts.unanswered = parts.unanswered.saturating_add(1);
            parts.wait = parts.wait.saturating_mul(2).min(WAIT_MAX);
            parts.due = now.after(parts.wait);
            if parts.unanswered == UNANSWERED_MIN {
                parts.last_chance = parts.due;
            }
            (parts.asked, parts.window) = (None, 1);
            self.send_again(to, send);
        }
        Step::Wait(self.due())
    }

    /// Takes a datagram from the server's address. Returns the reply if the datagram completes it, or why the
    /// call failed. Sends what the call needs next. Datagrams of other calls, and what cannot be read, are
    /// dropped.
    ///
    /// The driver must drop datagrams from other addresses.
    pub(crate) fn receive<'a>(
        &mut self,
        now: Moment,
        datagram: &'a [u8],
        to: &mut Association,
        send: &mut impl FnMut(Datagram<'_>),
    ) -> Option<Result<Cow<'a, [u8]>, Failure>> {
        match (Packet::parse(datagram).ok()?, &self.state) {
            (Packet::Whole { id, client, payload }, State::Whole(timers)) => {
                if id != self.id || client != WHOLE {
                    return None;
                }
                match self.reply(payload) {
                    Ok(reply) => {
                        timers.answered(now, &mut to.pace);
                        Some(Ok(Cow::Borrowed(reply)))
                    }
                    Err(unreadable) => {
                        // The datagram may have been damaged or forged, so a good reply may still arrive.
                        self.unreadable = Some(unreadable);
                        None
                    }
                }
            }
            (Packet::Parts(name, body), state) if !matches!(state, State::Whole(_)) => {
                let is_own = (name.id, name.conversation) == (self.id, to.conversation);
                is_own.then(|| self.receive_part(now, name, body, to, send))?
            }
            _ => None,
        }
    }

    /// Returns the message of a payload, if it is the reply to this call.
    fn reply<'a>(&self, payload: &'a [u8]) -> Result<&'a [u8], Unreadable> {
        let message = message(payload)?;
        let (reply, _) = Reply::parse(message)?;
        // The transaction number follows the type of the message.
        let own = self.payload.get(VERSIONS_BYTES + 2..VERSIONS_BYTES + 4).unwrap_or_default();
        if reply.transaction.to_be_bytes() != *own {
            return Err(Unreadable::Invalid);
        }
        Ok(message)
    }

    fn receive_part<'a>(
        &mut self,
        now: Moment,
        name: Name,
        body: Body<'a>,
        to: &mut Association,
        send: &mut impl FnMut(Datagram<'_>),
    ) -> Option<Result<Cow<'a, [u8]>, Failure>> {
        let was_sent = self.transmissions() > 0;
        let parts = self.parts.as_mut()?;
        let is_ours = name.cookie == parts.cookie;
        // The server can have run the call only if all parts were sent with the server's cookie.
        let is_complete = is_ours && was_sent;
        match (body, &mut self.state) {
            (Body::Welcome, State::Greeting) => {
                (to.cookie, parts.cookie) = (Some(name.cookie), name.cookie);
                self.progress(now, to);
                self.start_sending();
                self.send_next(now, to, send);
            }
            (Body::Welcome, _) if !is_ours => {
                // This packet may be old, so its cookie is not used. The next call asks for a new one.
                to.cookie = None;
                return Some(Err(Failure::Restarted));
            }
            (Body::HaveCall(report), State::Sending { arrivals, sent }) if is_ours => {
                let fits = report.division == Some(parts.division);
                if !fits
                    || report.arrivals.end() > *sent
                    || report.arrivals.count() <= arrivals.count()
                {
                    return None;
                }
                *arrivals = report.arrivals;
                parts.window = parts.window.saturating_mul(2).min(report.window).max(1);
                if arrivals.next == parts.division.count() {
                    self.state = State::Waiting;
                }
                self.progress(now, to);
                self.send_next(now, to, send);
            }
            (Body::Working, State::Sending { .. }) if is_complete => {
                self.state = State::Waiting;
                self.progress(now, to);
            }
            (Body::Working, State::Waiting) if is_complete => {
                // The procedure may take long. So `progress`, which would shorten the wait, is not called.
                (parts.heard, to.heard, parts.unanswered) = (now, now, 0);
            }
            (Body::Forgotten, _) if is_complete => return Some(Err(Failure::ReplyDiscarded)),
            (Body::Reply(part), State::Sending { .. } | State::Waiting)
                if is_complete && part.division.count() == 1 =>
            {
                self.progress(now, to);
                let reply = self.reply(part.data).map(Cow::Borrowed);
                return Some(reply.map_err(Failure::BadReply));
            }
            (Body::Reply(part), State::Sending { .. } | State::Waiting) if is_complete => {
                parts.window = WINDOW_FIRST;
                self.state = State::Receiving(Incoming::new(part.division));
                return self.receive_reply(now, &part, to, send);
            }
            (Body::Reply(part), State::Receiving(incoming))
                if is_complete && incoming.division() == part.division =>
            {
                return self.receive_reply(now, &part, to, send);
            }
            _ => {}
        }
        None
    }

    fn receive_reply<'a>(
        &mut self,
        now: Moment,
        part: &Part<'_>,
        to: &mut Association,
        send: &mut impl FnMut(Datagram<'_>),
    ) -> Option<Result<Cow<'a, [u8]>, Failure>> {
        let State::Receiving(incoming) = &mut self.state else { return None };
        if !incoming.receive(part) {
            return None;
        }
        if incoming.is_whole() {
            self.progress(now, to);
            let State::Receiving(incoming) = core::mem::replace(&mut self.state, State::Waiting)
            else {
                return None;
            };
            let mut payload = incoming.into_payload();
            let reply = self.reply(&payload).map(|reply| payload.len() - reply.len());
            let reply = reply.map(|at| {
                payload.drain(..at);
                Cow::Owned(payload)
            });
            return Some(reply.map_err(Failure::BadReply));
        }
        self.progress(now, to);
        if part.asks {
            let parts = self.parts.as_mut()?;
            parts.window = parts.window.saturating_mul(2).min(WINDOW as u16);
            parts.asked = Some(now);
            self.send_report(to, send);
        }
        None
    }

    /// Notes that a packet has arrived with which the call makes progress.
    fn progress(&mut self, now: Moment, to: &mut Association) {
        let Some(parts) = &mut self.parts else { return };
        if let Some(asked) = parts.asked.take() {
            to.pace.measure(now.since(asked));
        }
        (parts.heard, to.heard, parts.unanswered) = (now, now, 0);
        parts.wait = to.pace.wait().min(WAIT_MAX);
        parts.due = now.after(parts.wait);
    }

    fn start_sending(&mut self) {
        self.state = State::Sending { arrivals: Arrivals::default(), sent: 0 };
    }

    fn name(&self, to: &Association) -> Name {
        let cookie = self.parts.as_ref().map_or(0, |parts| parts.cookie);
        Name { id: self.id, conversation: to.conversation, cookie }
    }

    fn send_whole(&self, send: &mut impl FnMut(Datagram<'_>)) {
        Packet::Whole { id: self.id, client: WHOLE, payload: &self.payload }.send(send);
    }

    /// Sends what follows after progress: a greeting, or a window of parts.
    fn send_next(&mut self, now: Moment, to: &Association, send: &mut impl FnMut(Datagram<'_>)) {
        let name = self.name(to);
        let Some(parts) = &mut self.parts else { return };
        parts.asked = Some(now);
        match &mut self.state {
            State::Greeting => Packet::Parts(name, Body::Hello).send(send),
            State::Sending { arrivals, sent } => {
                let (count, before) = (parts.division.count(), *sent);
                let end = (before + u32::from(parts.window)).min(arrivals.next + WINDOW);
                let (mut resent, mut is_first) = (0, 0);
                send_missing(&self.payload, parts.division, arrivals, end, parts.window, |part| {
                    // A call of one part does not ask for a report, because its reply is the acknowledgement.
                    let part = Part { asks: part.asks && count > 1, ..part };
                    if part.position < before {
                        resent += 1;
                    } else {
                        is_first += 1;
                    }
                    Packet::Parts(name, Body::Call(part)).send(send);
                });
                *sent = before + is_first;
                parts.resent += resent;
            }
            State::Whole(_) | State::Waiting | State::Receiving(_) => {}
        }
    }

    /// Sends again what the server may have missed, after a wait without progress. Each packet demands an
    /// answer.
    fn send_again(&mut self, to: &Association, send: &mut impl FnMut(Datagram<'_>)) {
        let name = self.name(to);
        let Some(parts) = &mut self.parts else { return };
        match &mut self.state {
            State::Sending { arrivals, sent } => {
                let end = *sent;
                let packet = |part| Packet::Parts(name, Body::Call(part)).send(send);
                parts.resent +=
                    send_missing(&self.payload, parts.division, arrivals, end, 1, packet);
            }
            State::Waiting | State::Receiving(_) => self.send_report(to, send),
            State::Greeting => Packet::Parts(name, Body::Hello).send(send),
            State::Whole(_) => {}
        }
    }

    /// Reports which parts of the reply have arrived.
    fn send_report(&self, to: &Association, send: &mut impl FnMut(Datagram<'_>)) {
        let Some(parts) = &self.parts else { return };
        let report = match &self.state {
            State::Receiving(incoming) => incoming.report(parts.window),
            _ => Report { division: None, arrivals: Arrivals::default(), window: parts.window },
        };
        Packet::Parts(self.name(to), Body::HaveReply(report)).send(send);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::courier::message::{Answer, Call};
    use crate::protocol::courier::packet::{PIECE, payload};

    const START: Moment = Moment(1000 * SECOND);

    fn call_payload(transaction: u16) -> Vec<u8> {
        let mut message = vec![0; 12];
        let call = Call { transaction, program: 2, version: 3, procedure: 0 };
        call.emit(&mut message).expect("room");
        payload(&message)
    }

    fn reply(id: u32, transaction: u16) -> Vec<u8> {
        let message = Reply { transaction, answer: Answer::Return }.to_vec();
        Packet::Whole { id, client: WHOLE, payload: &payload(&message) }.to_vec()
    }

    /// Steps through a call that is never answered. Returns when datagrams were sent, and when and why the
    /// call ended. Times are in milliseconds.
    fn unanswered(form: Form, time: u64) -> (Vec<u64>, u64, Failure, u32) {
        let to = Association::new(5);
        let (mut now, mut times) = (START, Vec::new());
        let sent = &mut 0;
        let mut call =
            PacketCall::begin(7, call_payload(1), form, now, time, &to, &mut |_| *sent += 1)
                .expect("a short call");
        loop {
            times.extend((0..core::mem::take(sent)).map(|_| now.since(START) / MILLISECOND));
            match call.step(now, &to, &mut |_| *sent += 1) {
                Step::Wait(until) if *sent == 0 => now = until,
                Step::Wait(_) => {}
                Step::GiveUp(failure) => {
                    let after = now.since(START) / MILLISECOND;
                    return (times, after, failure, call.transmissions());
                }
            }
        }
    }

    #[test]
    fn waits_double_until_the_client_gives_up() {
        let whole = unanswered(Form::Whole, 25 * SECOND);
        assert_eq!(whole, (vec![0, 1000, 3000, 7000, 15_000], 25_000, Failure::TimedOut, 5));
        let greetings = vec![0, 1000, 3000, 5000, 7000, 9000];
        let parts = unanswered(Form::Parts(PIECE), 25 * SECOND);
        assert_eq!(parts, (greetings, 10_000, Failure::Silent, 0));
        let short = unanswered(Form::Parts(PIECE), 2 * SECOND);
        assert_eq!(short, (vec![0, 1000], 2000, Failure::TimedOut, 0));
    }

    #[test]
    fn machine_that_was_suspended_asks_before_it_gives_up() {
        let (to, sent) = (Association::new(5), &mut 0);
        let form = Form::Parts(PIECE);
        let send = &mut |_: Datagram<'_>| *sent += 1;
        let payload = call_payload(1);
        let mut call = PacketCall::begin(7, payload, form, START, 3600 * SECOND, &to, send)
            .expect("a short call");
        let mut now = START.after(1800 * SECOND);
        // The client waits after the last packet as after the others.
        for _ in 0..UNANSWERED_MIN {
            let Step::Wait(until) = call.step(now, &to, send) else {
                panic!("the client gives up")
            };
            assert_eq!(until, now.after(2 * SECOND));
            now = until;
        }
        assert!(matches!(call.step(now, &to, send), Step::GiveUp(Failure::Silent)));
        assert_eq!(*sent, 1 + UNANSWERED_MIN);
    }

    #[test]
    fn only_the_reply_to_the_call_counts() {
        let mut to = Association::new(5);
        let mut call = PacketCall::begin(
            7,
            call_payload(1),
            Form::Whole,
            START,
            25 * SECOND,
            &to,
            &mut |_| {},
        )
        .expect("a short call");
        let mut other_client = reply(7, 1);
        other_client[5] = 1;
        let mut other_version = reply(7, 1);
        other_version[7] = 9;
        let part =
            Packet::Parts(Name { id: 7, conversation: 5, cookie: 0 }, Body::Welcome).to_vec();
        let others = [
            reply(8, 1),
            reply(7, 2),
            reply(7, 1)[..12].to_vec(),
            other_client,
            other_version,
            part,
            call_payload(1),
            Vec::new(),
        ];
        for other in others {
            assert_eq!(call.receive(START, &other, &mut to, &mut |_| {}), None);
        }
        let message = Some(Ok(Cow::Borrowed(&[0, 2, 0, 1][..])));
        assert_eq!(call.receive(START, &reply(7, 1), &mut to, &mut |_| {}), message);
        // If the good reply had not arrived, the client would report the bad one.
        let step = call.step(START.after(25 * SECOND), &to, &mut |_| {});
        assert_eq!(step, Step::GiveUp(Failure::BadReply(Unreadable::Invalid)));
    }

    #[test]
    fn call_that_is_too_long_is_not_sent() {
        for (form, bytes) in [
            (Form::Whole, WHOLE_PAYLOAD_MAX + 1),
            (Form::Parts(PIECE), super::super::packet::PAYLOAD_MAX + 1),
            (Form::Parts(7), 100),
        ] {
            let to = Association::new(5);
            let mut send = |_: Datagram<'_>| panic!("nothing is sent");
            let begun = PacketCall::begin(7, vec![0; bytes], form, START, SECOND, &to, &mut send);
            assert_eq!(begun.err(), Some(TooLong));
        }
    }
}
