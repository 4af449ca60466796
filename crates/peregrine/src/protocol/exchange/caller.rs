//! The client's end of one handle: one call at a time, all the timers, the verdict.
//!
//! | from | to | when |
//! |---|---|---|
//! | `Idle`, `Owing` | `Calling` | [`begin`](Caller::begin) |
//! | `Calling` | `Asking` | nothing was sent yet, and the server was not heard of for long |
//! | `Asking` | `Calling` | the server still knows the handle |
//! | `Calling` | `Working` | the server has all of the call |
//! | `Calling`, `Working` | `Replied` | the server says that it has sent the result |
//! | `Calling`, `Working`, `Replied` | `Receiving` | a piece of the result comes, and there are more |
//! | these four | `Owing` | the result is whole; its acknowledgement is owed |
//! | `Owing` | `Idle` | [`acknowledge`](Caller::acknowledge); the next call does it too |
//! | the four, `Asking` | `Quitting` | [`quit`](Caller::quit), or a result that cannot be taken: the handle is captured |
//! | `Quitting` | `Idle` | the server has let go |
//! | any | `Gone` | refused, nothing heard for too long, or [`bye`](Caller::bye): the handle is never used again |
//!
//! The client's timer asks and never sends data of its own accord: `PROBE` for the call, what it has
//! of the result once something came of it. What is missing is sent when the other side said so.

mod asking;
mod ending;
mod outcome;
#[cfg(test)]
mod tests;

use core::ops::Range;

pub(crate) use self::outcome::{Dropped, Executed, Handled, Outcome, Send, Terms, Unbegun, Why};
use super::assembly::{Arrival, Assembly};
use super::bind::Lease;
use super::blast::{Blast, Have, Heard, Path};
use super::flow::Lend;
use super::header::{BITMAP_BYTES_MAX, CONTROL_BYTES_MAX, Flags, HEADER_BYTES};
use super::header::{Handle, Header, Kind, before, checksum};
use super::message::{self, Cut, PIECE_MIN, Shape};
use super::positions::Positions;
use super::rtt::{Rtt, WAIT_MAX};
use super::time::{MILLISECOND, Moment, SECOND};

/// While a server answers that it works, it is asked at growing intervals up to this: half of it, as a
/// rule, is what its death is noticed later for that.
const CALM_MAX: u64 = 400 * MILLISECOND;
/// The same when nobody waits any more, and it is asked whether it has let go.
const CAPTURED_MAX: u64 = 2 * SECOND;
const NEVER: Moment = Moment(u64::MAX);

#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    Owing,
    /// Whether the server still knows the handle, from the question of this serial on. Nothing of the
    /// call was sent.
    Asking {
        first: u16,
    },
    /// `held`: positions are missing, and perhaps only late; the timer sends them again.
    Calling {
        blast: Blast,
        held: bool,
    },
    Working,
    Replied,
    Receiving {
        assembly: Assembly,
        /// What the timer is for.
        then: Then,
    },
    Quitting,
    Gone,
}

/// What is said when the timer of an unfinished result is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// All that does not come any more is lost.
    Ask,
    /// What came, now that late packets had their time.
    Report,
}

/// What is to be said before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owed {
    Nothing,
    Probe,
    Have(Flags),
    /// The same with a question where the call is after it.
    HaveAndProbe,
    Quit,
    Bye,
}

/// One caller.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    state: State,
    owed: Owed,
    unanswered: u8,
    fruitless: u8,
    /// The server has no room for the call yet: nothing of it is sent until it says so.
    waits: bool,
    /// Refusals of the server's machine in a row, and the packet that the last one was for.
    unreachable: (u8, u16),
    /// What was sent last, and heard last.
    serial: u16,
    echo: u16,
    sequence: u32,
    piece: u32,
    /// How far the call was received when something of it was last sent again.
    had: u32,
    handle: Handle,
    /// That of the handle's place when it was granted.
    generation: u32,
    shape: Shape,
    result: Shape,
    outcome: Option<Outcome>,
    /// Whether any packet of the call was sent.
    sent: bool,
    /// When the server was last heard of.
    heard: Moment,
    due: Moment,
    /// Until the next question, if nothing is heard.
    interval: u64,
    /// The same while the server answers that it works.
    calm: u64,
    /// The packet whose answer is timed, until the server has heard it or a later one.
    timed: Option<(u16, Moment)>,
    /// The question that was asked last, until the same.
    asked: Option<u16>,
    rtt: Rtt,
    /// Positions that the server takes.
    credits: u16,
    seen: u16,
    terms: Terms,
    random: u64,
    /// Missing of the call, later those of the result that came early.
    positions: Positions,
}

impl Caller {
    /// A caller of a handle that was just bound; `round_trip` is the first measured one.
    pub(crate) fn new(lease: Lease, terms: Terms, round_trip: u64, seed: u64) -> Self {
        let Lease { handle, generation } = lease;
        Self {
            state: State::Idle,
            owed: Owed::Nothing,
            unanswered: 0,
            fruitless: 0,
            waits: false,
            unreachable: (0, 0),
            serial: 0,
            echo: 0,
            sequence: handle.sequence(),
            piece: terms.piece,
            had: 0,
            handle,
            generation,
            shape: Shape::default(),
            result: Shape::default(),
            outcome: None,
            sent: false,
            heard: Moment(0),
            due: NEVER,
            interval: 0,
            calm: WAIT_MAX,
            timed: None,
            asked: None,
            rtt: Rtt::new(round_trip),
            credits: terms.credits,
            seen: 0,
            terms,
            random: seed | 1,
            positions: Positions::default(),
        }
    }

    /// Sets after how much silence the first question about a call is due, at least.
    pub(crate) fn ask_after(&mut self, nanoseconds: u64) {
        self.rtt.wait_at_least(nanoseconds);
    }

    /// The server was heard of at that time, when it granted the handle.
    pub(crate) fn heard_at(&mut self, now: Moment) {
        self.heard = now;
    }

    /// Begins a call; its packets are there to be polled.
    ///
    /// # Errors
    /// If this caller cannot begin one now, or not this one. Nothing was executed.
    #[inline]
    pub(crate) fn begin(&mut self, call: Shape) -> Result<(), Unbegun> {
        if !matches!(self.state, State::Idle | State::Owing) || self.outcome.is_some() {
            return Err(if self.is_gone() { Unbegun::Gone } else { Unbegun::Busy });
        }
        if call.total > self.terms.call_bytes_max || !call.fits_call() {
            return Err(Unbegun::TooLarge);
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.shape = call;
        self.state =
            State::Calling { blast: Blast::new(Cut::new(call.total, self.piece)), held: false };
        // The call acknowledges the result before it.
        self.owed = Owed::Nothing;
        (self.sent, self.timed, self.asked) = (false, None, None);
        self.unanswered = 0;
        self.fruitless = 0;
        self.waits = false;
        self.had = 0;
        self.interval = self.rtt.wait();
        Ok(())
    }

    /// The next packet to send, if there is one: written to `out`.
    #[inline]
    pub(crate) fn poll_send(
        &mut self,
        now: Moment,
        flow: &impl Lend,
        out: &mut [u8; CONTROL_BYTES_MAX],
    ) -> Option<Send> {
        if self.owed != Owed::Nothing {
            return Some(self.say(now, out));
        }
        if !matches!(self.state, State::Calling { .. }) {
            return None;
        }
        if !self.sent && now.since(self.heard) > self.rtt.fresh() {
            return Some(self.ask_first(now, out));
        }
        let State::Calling { blast, held } = &mut self.state else { return None };
        if self.waits {
            return None;
        }
        let serial = self.serial.wrapping_add(1);
        let path = &mut Path { now, credits: self.credits, flow, seen: &mut self.seen };
        let (position, flags) = blast.poll(serial, path, *held, &mut self.positions)?;
        let (cut, held) = (*blast.cut(), *held);
        self.serial = serial;
        self.sent = true;
        if !held {
            self.due = now.after(self.interval);
        }
        if flags.has(Flags::PLEASE) || position == cut.count() - 1 {
            self.time(serial, now);
        }
        let fragment = cut.fragment(position);
        let header =
            Header { flags, shape: self.shape, fragment, ..self.header(Kind::Call, serial) };
        header.emit(out.first_chunk_mut().expect("room for a header"));
        Some(Send { bytes: HEADER_BYTES, range: cut.range(fragment) })
    }

    /// Times the answer to a packet, unless that to an earlier one is timed. A later packet never takes
    /// the place of an earlier one: where several leave within a round trip, and the path has become
    /// longer than was thought, no answer would ever be timed.
    #[inline]
    fn time(&mut self, serial: u16, now: Moment) {
        self.timed.get_or_insert((serial, now));
    }

    /// The server may have been started again, or have forgotten the handle, since it was heard of.
    /// If it is asked before anything of the call is sent, a refusal proves that the call did not
    /// run. The clock only says when that is worth a round trip; the proof does not rest on it.
    #[cold]
    fn ask_first(&mut self, now: Moment, out: &mut [u8; CONTROL_BYTES_MAX]) -> Send {
        self.state = State::Asking { first: self.serial.wrapping_add(1) };
        self.owed = Owed::Probe;
        self.due = now.after(self.interval);
        self.say(now, out)
    }

    #[inline]
    fn header(&self, kind: Kind, serial: u16) -> Header {
        Header {
            serial,
            echo: self.echo,
            piece: self.piece,
            credits: self.terms.credits_here,
            ..Header::new(kind, self.handle, self.sequence)
        }
    }

    /// Writes what is owed.
    #[cold]
    fn say(&mut self, now: Moment, out: &mut [u8; CONTROL_BYTES_MAX]) -> Send {
        self.serial = self.serial.wrapping_add(1);
        let mut bytes = HEADER_BYTES;
        let header = match core::mem::replace(&mut self.owed, Owed::Nothing) {
            Owed::Probe => self.header(Kind::Probe, self.serial),
            Owed::Quit => self.header(Kind::Quit, self.serial),
            owed @ (Owed::Have(_) | Owed::HaveAndProbe) => {
                let mut flags = Flags::PLEASE;
                match owed {
                    Owed::Have(these) => flags = these,
                    _ => self.owed = Owed::Probe,
                }
                let mut bitmap = [0; BITMAP_BYTES_MAX];
                let mut header = self.header(Kind::HaveResult, self.serial);
                header.flags = flags;
                if let State::Receiving { assembly, .. } = &self.state {
                    let (next, length) = assembly.report(&self.positions, &mut bitmap);
                    (header.fragment, header.shape.total) = (next, assembly.came());
                    bytes += length;
                    out[HEADER_BYTES..bytes].copy_from_slice(&bitmap[..length]);
                }
                header
            }
            Owed::Bye | Owed::Nothing => self.header(Kind::Bye, self.serial),
        };
        self.asked = Some(self.serial);
        self.time(self.serial, now);
        emit_with(header, out, bytes);
        Send { bytes, range: 0..0 }
    }

    /// A packet of the server, and the bitmap behind its header if it says what it has.
    #[inline]
    pub(crate) fn handle(
        &mut self,
        now: Moment,
        flow: &impl Lend,
        header: &Header,
        bitmap: &[u8],
    ) -> Handled {
        if header.handle != self.handle {
            return Handled::Dropped(Dropped::Stranger);
        }
        // The whole result in one packet, while nothing but the call was sent.
        if header.kind == Kind::Result
            && header.sequence == self.sequence
            && let State::Calling { .. } = self.state
            && header.shape.total <= header.piece
            && header.shape.total <= self.terms.result_bytes_max
        {
            self.hear(now, header);
            return self.returned(header.shape, 0..header.shape.total);
        }
        self.handle_slowly(now, flow, header, bitmap)
    }

    #[inline]
    fn returned(&mut self, result: Shape, range: Range<u32>) -> Handled {
        self.outcome = Some(Outcome::Returned(result));
        self.state = State::Owing;
        self.owed = Owed::Nothing;
        self.due = NEVER;
        Handled::Place(range)
    }

    /// Something of the call under way came from the server: it lives.
    #[inline]
    fn hear(&mut self, now: Moment, header: &Header) {
        self.echo = header.serial;
        self.heard = now;
        self.unanswered = 0;
        self.unreachable.0 = 0;
        if let Some((serial, sent)) = self.timed
            && !before(header.echo, serial)
        {
            if serial == header.echo {
                self.rtt.sample(now.since(sent));
            }
            self.timed = None;
        }
        if let Some(serial) = self.asked
            && !before(header.echo, serial)
        {
            self.asked = None;
        }
    }

    fn handle_slowly(
        &mut self,
        now: Moment,
        flow: &impl Lend,
        header: &Header,
        bitmap: &[u8],
    ) -> Handled {
        if header.kind == Kind::Refused {
            return self.refused(header);
        }
        if header.sequence != self.sequence {
            return Handled::Dropped(Dropped::Late);
        }
        if header.kind == Kind::Ask {
            return self.asked(now, header);
        }
        match (header.kind, self.state) {
            (Kind::LetGo | Kind::HaveCall, State::Quitting) => self.is_let_go(now, header),
            (Kind::Result, State::Quitting)
            | (Kind::LetGo, State::Idle | State::Gone)
            | (Kind::Result, State::Asking { .. })
            | (Kind::Result | Kind::HaveCall, State::Idle | State::Owing | State::Gone) => {
                Handled::Dropped(Dropped::Late)
            }
            (Kind::HaveCall, State::Asking { first }) => self.is_known(now, first, header),
            (Kind::Result, _) => self.result(now, header),
            (Kind::HaveCall, _) => self.server_has(now, flow, header, bitmap),
            _ => Handled::Dropped(Dropped::Violation),
        }
    }

    /// The server knows the handle: the call may be sent.
    fn is_known(&mut self, now: Moment, first: u16, header: &Header) -> Handled {
        if header.flags.has(Flags::ALL) {
            return Handled::Dropped(Dropped::Violation);
        }
        // What was said before the question proves nothing.
        if before(header.echo, first) {
            return Handled::Dropped(Dropped::Late);
        }
        self.hear(now, header);
        // No credits would mean that the call waits for room, but the server has not seen it yet.
        self.credits = header.credits.max(1);
        let cut = Cut::new(self.shape.total, self.piece);
        self.state = State::Calling { blast: Blast::new(cut), held: false };
        self.interval = self.rtt.wait();
        Handled::Nothing
    }

    /// A piece of the result.
    fn result(&mut self, now: Moment, header: &Header) -> Handled {
        if header.shape.total > self.terms.result_bytes_max {
            self.give_up(now, Why::Protocol);
            return Handled::Dropped(Dropped::Violation);
        }
        let cut = header.cut();
        if cut.count() == 1 {
            self.hear(now, header);
            return self.returned(header.shape, 0..header.shape.total);
        }
        if header.piece != self.piece {
            // Cut before we asked for smaller pieces.
            return Handled::Dropped(Dropped::Late);
        }
        let (mut assembly, mut then) = match self.state {
            State::Receiving { assembly, then } => {
                if header.shape != self.result {
                    return Handled::Dropped(Dropped::Violation);
                }
                (assembly, then)
            }
            _ => {
                self.result = header.shape;
                self.owed = Owed::Nothing;
                (Assembly::new(cut, &mut self.positions), Then::Ask)
            }
        };
        self.hear(now, header);
        let arrival = assembly.receive(cut.position(header.fragment), &mut self.positions);
        if assembly.is_whole() && arrival == Arrival::New {
            return self.returned(header.shape, cut.range(header.fragment));
        }
        if arrival == Arrival::New {
            self.fruitless = 0;
        }
        self.interval = self.rtt.wait();
        let pleased = header.flags.has(Flags::PLEASE);
        if !assembly.has_holes() {
            // An answer that waited for late packets need not wait any more.
            if pleased || then == Then::Report {
                self.owed = Owed::Have(Flags::NONE);
            }
            then = Then::Ask;
            self.due = now.after(self.interval);
        } else if then == Then::Ask {
            let report = pleased || assembly.has_last();
            then = if report { Then::Report } else { Then::Ask };
            let wait = if report { self.rtt.allowance() } else { self.interval };
            self.due = now.after(wait);
        }
        self.state = State::Receiving { assembly, then };
        match arrival {
            Arrival::New => Handled::Place(cut.range(header.fragment)),
            Arrival::Again => Handled::Dropped(Dropped::Again),
            Arrival::Beyond => Handled::Dropped(Dropped::Violation),
        }
    }

    /// The server says what it has of the call.
    fn server_has(
        &mut self,
        now: Moment,
        flow: &impl Lend,
        header: &Header,
        bitmap: &[u8],
    ) -> Handled {
        if !header.holds(bitmap) {
            return Handled::Dropped(Dropped::Damaged);
        }
        let question = self.asked.or(self.timed.map(|(serial, _)| serial));
        let answers = question == Some(header.echo);
        let silent = self.unanswered > 0;
        self.hear(now, header);
        if header.flags.has(Flags::ALL) {
            self.credits = header.credits;
            let replied = header.flags.has(Flags::REPLIED);
            if replied && header.piece < self.piece && self.is_under_way() {
                self.comes_in_smaller_pieces(now, header.piece);
                return Handled::Nothing;
            }
            let asked = matches!(self.state, State::Replied | State::Receiving { .. });
            if asked && replied && answers && silent {
                self.result_is_withheld(now);
                return Handled::Nothing;
            }
            return self.server_has_all(now, replied, answers);
        }
        let State::Calling { blast, held } = &mut self.state else {
            return Handled::Dropped(Dropped::Late);
        };
        if header.credits == 0 {
            return self.is_told_to_wait(now);
        }
        self.credits = header.credits;
        if core::mem::take(&mut self.waits) && header.fragment == 0 && bitmap.is_empty() {
            // What was sent before was not taken, and is no loss.
            (*blast, *held) = (blast.begun_again(), false);
            self.interval = self.rtt.wait();
            self.due = now.after(self.interval);
            return Handled::Nothing;
        }
        // Of a message cut otherwise, nothing.
        let same = header.piece == self.piece;
        let have = Have {
            next: if same { header.fragment } else { 0 },
            bitmap: if same { bitmap } else { &[] },
            had: if same { header.shape.total } else { 0 },
            echo: header.echo,
            waited: false,
        };
        let path = &mut Path { now, credits: self.credits, flow, seen: &mut self.seen };
        match blast.heard(&have, path, &mut self.positions) {
            Heard::Nothing => return Handled::Dropped(Dropped::Late),
            Heard::Onward => {
                *held = false;
                self.interval = self.rtt.wait();
                self.due = now.after(self.interval);
            }
            Heard::Holes => {
                if !*held {
                    self.due = now.after(self.rtt.allowance());
                }
                *held = true;
            }
            Heard::Missing if *held => {}
            // All that was sent is known to have come or to be lost.
            Heard::Missing if answers => self.send_again(now),
            Heard::Missing => self.due = now.after(self.interval),
        }
        Handled::Nothing
    }

    /// The server has no room for the call. It says so when it has; in case that is lost, it is asked.
    fn is_told_to_wait(&mut self, now: Moment) -> Handled {
        self.calm = if self.waits { (self.calm * 2).min(CALM_MAX) } else { WAIT_MAX };
        self.waits = true;
        self.due = now.after(self.calm);
        Handled::Nothing
    }

    /// The result does not fit the server's way in the pieces that were agreed on: it comes in smaller
    /// ones. What came in larger ones is not used.
    fn comes_in_smaller_pieces(&mut self, now: Moment, piece: u32) {
        (self.piece, self.fruitless) = (piece, 0);
        self.state = State::Replied;
        self.owed = Owed::Nothing;
        self.interval = self.rtt.wait();
        self.due = now.after(self.rtt.allowance());
    }

    fn server_has_all(&mut self, now: Moment, replied: bool, answers: bool) -> Handled {
        match self.state {
            State::Calling { .. } | State::Working if replied => {
                // It is on its way, or lost; the next question tells which.
                self.state = State::Replied;
                self.owed = Owed::Nothing;
                self.interval = self.rtt.wait();
                self.due = now.after(self.rtt.allowance());
            }
            State::Calling { .. } => {
                self.state = State::Working;
                self.owed = Owed::Nothing;
                self.calm = self.rtt.patience();
                self.due = now.after(self.calm);
            }
            State::Working if answers => self.calm_down(now),
            State::Working | State::Replied | State::Receiving { .. } => {}
            _ => return Handled::Dropped(Dropped::Late),
        }
        Handled::Nothing
    }

    /// The server answers that it still works: it is asked again after a longer time.
    fn calm_down(&mut self, now: Moment) {
        let waits = matches!(self.state, State::Working);
        let most = if waits { CALM_MAX } else { CAPTURED_MAX };
        self.calm = (self.calm * 2).min(most.max(self.rtt.patience()));
        self.due = now.after(self.calm);
    }

    fn is_let_go(&mut self, now: Moment, header: &Header) -> Handled {
        self.hear(now, header);
        if header.kind == Kind::LetGo {
            self.state = State::Idle;
            self.owed = Owed::Nothing;
            self.due = NEVER;
        } else if header.flags.has(Flags::ALL) {
            self.calm_down(now);
        }
        Handled::Nothing
    }

    /// The server asks whether this side still waits for the call, which it runs.
    fn asked(&mut self, now: Moment, header: &Header) -> Handled {
        match self.state {
            State::Calling { .. } | State::Working => {
                self.hear(now, header);
                self.server_has_all(now, false, false);
                self.owed = Owed::Probe;
            }
            State::Quitting => {
                self.hear(now, header);
                self.owed = Owed::Quit;
            }
            // The call was taken for lost: nobody waits for it.
            State::Gone => self.owed = Owed::Bye,
            // The server had asked before it replied.
            State::Idle
            | State::Owing
            | State::Asking { .. }
            | State::Replied
            | State::Receiving { .. } => {
                return Handled::Dropped(Dropped::Late);
            }
        }
        Handled::Nothing
    }

    /// Whether its call has begun and not ended.
    #[inline]
    pub(crate) const fn is_under_way(&self) -> bool {
        matches!(
            self.state,
            State::Asking { .. }
                | State::Calling { .. }
                | State::Working
                | State::Replied
                | State::Receiving { .. }
        )
    }

    /// The driver knows that packets with larger pieces do not fit the way there. A call that is being sent
    /// begins again; a result that is being received comes as it was asked for.
    pub(crate) fn narrow(&mut self, piece: u32, now: Moment) {
        let piece = (piece & !15).max(PIECE_MIN);
        if piece >= self.piece {
            return;
        }
        match self.state {
            State::Idle | State::Owing => self.piece = piece,
            State::Calling { .. } => {
                (self.piece, self.fruitless, self.had) = (piece, 0, 0);
                let cut = Cut::new(self.shape.total, self.piece);
                self.state = State::Calling { blast: Blast::anew(cut), held: false };
                self.due = now.after(self.interval);
            }
            _ => {}
        }
    }

    /// When [`timer`](Self::timer) is to be called.
    #[inline]
    pub(crate) fn next_timer(&self) -> Option<Moment> {
        (self.due != NEVER).then_some(self.due)
    }

    /// When there is more to [send](Self::poll_send), if that is only a matter of time.
    #[inline]
    pub(crate) fn next_send(&self) -> Option<Moment> {
        match &self.state {
            State::Calling { blast, .. } if !self.waits => blast.due(),
            _ => None,
        }
    }

    /// The time of [`next_timer`](Self::next_timer) has come; nothing happens before it.
    pub(crate) fn timer(&mut self, now: Moment) {
        if now < self.due {
            return;
        }
        match &mut self.state {
            State::Calling { held, .. } if *held && !self.waits => self.send_again(now),
            State::Asking { .. } | State::Calling { .. } | State::Working => {
                self.ask(now, Owed::Probe)
            }
            State::Receiving { then, .. } if *then == Then::Report => {
                *then = Then::Ask;
                self.owed = Owed::Have(Flags::NONE);
                self.due = now.after(self.interval);
            }
            State::Receiving { .. } | State::Replied => self.ask_for_result(now),
            State::Quitting => self.ask(now, Owed::Quit),
            State::Idle | State::Owing | State::Gone => self.due = NEVER,
        }
    }

    /// How the call ended, once.
    #[inline]
    pub(crate) fn outcome(&mut self) -> Option<Outcome> {
        self.outcome.take()
    }

    /// Whether the server keeps a result that no call has acknowledged yet.
    #[inline]
    pub(crate) const fn owes_acknowledgement(&self) -> bool {
        matches!(self.state, State::Owing)
    }

    /// Acknowledges the last result, for no call came that would have.
    pub(crate) fn acknowledge(&mut self) {
        if self.owes_acknowledgement() {
            self.state = State::Idle;
            self.owed = Owed::Have(Flags::ALL);
        }
    }

    /// Whether the server has not let go of a call that was given up.
    pub(crate) const fn is_captured(&self) -> bool {
        matches!(self.state, State::Quitting)
    }

    /// Whether the handle is of no use any more.
    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone)
    }

    pub(crate) const fn handle_of(&self) -> Handle {
        self.handle
    }

    #[cfg(test)]
    #[allow(dead_code)] // the simulator asks
    pub(crate) const fn sequence(&self) -> u32 {
        self.sequence
    }

    pub(crate) const fn piece(&self) -> u32 {
        self.piece
    }
}

/// Writes a header, with the check of the bitmap behind it if there is one.
pub(super) fn emit_with(mut header: Header, out: &mut [u8; CONTROL_BYTES_MAX], bytes: usize) {
    if bytes > HEADER_BYTES {
        header.flags = header.flags.with(Flags::CHECKED);
        header.check = checksum(&out[HEADER_BYTES..bytes]);
    }
    header.emit(out.first_chunk_mut().expect("room for a header"));
}
