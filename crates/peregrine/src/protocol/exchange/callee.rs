//! The server's end of one handle: the duplicate record. What it says answers a packet, except for one
//! question: whether the caller of a procedure that runs long still waits
//! ([`look_after`](Callee::look_after)).
//!
//! | from | to | when |
//! |---|---|---|
//! | `Vacant` | `Idle` | [`occupy`](Callee::occupy): the handle is bound |
//! | `Idle`, `Replied` | `Assembling` | a piece of a newer call comes, and there are more |
//! | `Idle`, `Replied`, `Assembling` | `Executing` | all of a newer call is here: it runs, this once |
//! | `Assembling` | `Waiting` | [`wait_for_room`](Callee::wait_for_room): there is no room for the call yet |
//! | `Waiting` | `Assembling` | [`go_on`](Callee::go_on): there is room; the call comes again from its start |
//! | `Executing`, `Assembling`, `Waiting` | `Replied` | [`replied`](Callee::replied); from `Assembling`, a refusal to run it |
//! | `Replied` | `Idle` | the client has the result, or asks for a newer call |
//! | `Idle`, `Assembling`, `Waiting`, `Replied` | `Idle` | the client gave the call up: it will not run any more |
//! | `Executing` | `Quitting` | the same while it runs |
//! | `Quitting` | `Idle` | the procedure has ended; its result is dropped |
//! | `Executing`, `Quitting` | `Leaving` | the client said goodbye |
//! | `Leaving` | `Idle` | the procedure has ended; the driver forgets the record |
//! | any | `Vacant` | [`forget`](Callee::forget): the handle is revoked |
//!
//! A number runs once because only a number above that of the record starts anything, and the record
//! takes that number in the same step. It never goes back, but to an assembly's start: nothing ran.

mod attention;

use core::ops::Range;

use super::assembly::{Arrival, Assembly};
use super::bind::Lease;
use super::blast::{Blast, Have, Path};
use super::caller::{Dropped, Send, emit_with};
use super::flow::Lend;
use super::header::{BITMAP_BYTES_MAX, CONTROL_BYTES_MAX, Flags, HEADER_BYTES};
use super::header::{Handle, Header, Kind};
use super::message::{Cut, PIECE_MIN, Shape};
use super::positions::{Positions, SPAN};
use super::time::{MILLISECOND, Moment, SECOND};

/// What a packet means to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// The retained result is not needed any more; it was that of an earlier call, or is that of
    /// this one, which the client has or does not want.
    pub(crate) release: bool,
    pub(crate) then: Then,
}

/// What the driver does about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Nothing,
    /// A call of several packets begins, with this piece at this range. Room for all of it is
    /// needed from here on; without it the driver has the client [wait](Callee::wait_for_room), or
    /// [replies](Callee::replied) with a refusal.
    Begin(Range<u32>),
    /// What stands behind the header belongs at this range of the call.
    Place(Range<u32>),
    /// The same, and then the call is whole and runs. Never again for this number.
    Execute(Range<u32>),
    /// The client does not need the handle any more: [`forget`](Callee::forget) it.
    Forget,
    /// What there is of this call is not needed: the client gave it up, or begins it again.
    Abandon,
    Dropped(Dropped),
}

/// Whether a result that was made is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retain {
    /// It is kept, unchanged, until it is released.
    Keep,
    /// The client gave the call up.
    Drop,
    /// The client said goodbye meanwhile: as `Drop`, and then [`forget`](Callee::forget) the record.
    Forget,
}

/// What a record would lose if it were forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Vacant,
    /// Nothing: no call is open.
    Idle,
    /// A call that did not run, and then never will.
    Assembling,
    /// The same, and nothing of it is kept.
    Waiting,
    /// A result that its client perhaps does not have.
    Replied,
    /// A procedure runs: the record cannot be forgotten.
    Running,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Vacant,
    Idle,
    Assembling {
        assembly: Assembly,
        /// The client was told of holes, so it waits to hear that they are closed.
        reported: bool,
    },
    /// A call of several packets has begun, and there is no room for it: nothing of it is kept.
    Waiting,
    Executing,
    Quitting,
    Leaving,
    Replied(Blast),
}

/// What is to be said before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owed {
    Nothing,
    /// What is here of the record's call.
    Have,
    /// That nothing is here of the call of this number.
    HaveNone(u32),
    LetGo,
    Ask,
}

/// The same once a question was answered: procedures that run for hours cost their clients that only
/// answer a packet a second.
const QUIET_MAX: u64 = SECOND;
/// Between questions that stay unanswered. Questions are counted, rather than time measured, so that a
/// server that was halted itself hears what came meanwhile before it judges.
const ASK_EVERY: u64 = 300 * MILLISECOND;

/// One record, in its place of the server's table.
#[derive(Clone, Debug)]
pub(crate) struct Callee {
    handle: Handle,
    /// Who bound the handle: a number for its address, without the port.
    peer: u64,
    /// When a packet last came.
    heard: Moment,
    /// When the caller was last asked whether it still waits: milliseconds after it was heard of.
    asked_ms: u32,
    /// How often this place has forgotten a result that its client perhaps did not have.
    generation: u32,
    sequence: u32,
    /// What was sent last, and heard last.
    serial: u16,
    echo: u16,
    piece: u32,
    /// The largest call that is taken.
    bytes_max: u32,
    /// Of the call; once there is one, of the result.
    shape: Shape,
    owed: Owed,
    /// Positions that the client takes, and that this side does.
    credits: u16,
    credits_here: u16,
    /// The round of the flow in which it was counted last.
    seen: u16,
    /// Questions since the caller was last heard of.
    unanswered: u8,
    /// The last question of this call that was answered, was answered before the next one was sent.
    answers_soon: bool,
    /// It was taken for gone: the call is cancelled, and stays so.
    lost: bool,
    state: State,
    /// Of the call, what came early; later, missing of the result.
    positions: Positions,
}

// A server remembers an idle client in this.
const _: () = assert!(size_of::<Callee>() <= 320);

impl Callee {
    /// A place that no handle had yet.
    pub(crate) fn vacant(place: u32) -> Self {
        Self {
            handle: Handle { place, secret: [0; 12] },
            peer: 0,
            heard: Moment(0),
            asked_ms: 0,
            generation: 0,
            sequence: 0,
            serial: 0,
            echo: 0,
            piece: 0,
            bytes_max: 0,
            shape: Shape::default(),
            owed: Owed::Nothing,
            credits: 0,
            credits_here: 0,
            seen: 0,
            unanswered: 0,
            answers_soon: false,
            lost: false,
            state: State::Vacant,
            positions: Positions::default(),
        }
    }

    /// The place is a handle's from now on. The secret must be random: old ones are then strange.
    pub(crate) fn occupy(&mut self, now: Moment, secret: [u8; 12], peer: u64, terms: &Terms) {
        debug_assert!(matches!(self.state, State::Vacant));
        let handle = Handle { place: self.handle.place, secret };
        *self = Self {
            handle,
            peer,
            heard: now,
            sequence: handle.sequence(),
            piece: terms.piece,
            bytes_max: terms.bytes_max,
            credits: terms.credits,
            // None would mean that the client is to wait.
            credits_here: terms.credits_here.max(1),
            state: State::Idle,
            generation: self.generation,
            ..Self::vacant(handle.place)
        };
    }

    /// Whether a packet is for the handle of this place, from where it was bound.
    #[inline]
    pub(crate) fn knows(&self, header: &Header, peer: u64) -> bool {
        self.is_for(header) && self.peer == peer
    }

    /// Whether a packet is for the handle of this place, from wherever.
    #[inline]
    pub(crate) fn is_for(&self, header: &Header) -> bool {
        self.handle == header.handle && !matches!(self.state, State::Vacant)
    }

    /// The refusal of a packet for this place that it does not know; none for those that nobody
    /// waits behind. Never more bytes than came.
    ///
    /// It is true for ever, however late it comes: a handle that was forgotten never comes back.
    pub(crate) fn refuse(&self, header: &Header, table: u64) -> Option<Header> {
        let waits = match header.kind {
            Kind::Call | Kind::Probe | Kind::Quit => true,
            Kind::HaveResult => !header.flags.has(Flags::ALL),
            _ => false,
        };
        let refusal = Header::refusal(header, table, self.generation);
        // The handle is known, from elsewhere: nothing can be said of its calls.
        let flags = Flags::NONE.with_if(self.is_for(header), Flags::ELSEWHERE);
        waits.then_some(Header { flags, ..refusal })
    }

    /// A packet that is [known](Self::knows), and the bitmap behind its header if it says what the
    /// client has.
    #[inline]
    pub(crate) fn handle(
        &mut self,
        now: Moment,
        flow: &impl Lend,
        header: &Header,
        bitmap: &[u8],
    ) -> Received {
        let ahead = header.sequence.wrapping_sub(self.sequence) as i32;
        // A new call in one packet.
        if header.kind == Kind::Call
            && ahead > 0
            && matches!(self.state, State::Idle | State::Replied(_))
            && header.shape.total <= header.piece
            && header.shape.total <= self.bytes_max
        {
            let release = matches!(self.state, State::Replied(_));
            self.take(now, header);
            self.positions.release();
            self.state = State::Executing;
            return Received { release, then: Then::Execute(0..header.shape.total) };
        }
        self.handle_slowly(now, flow, header, bitmap, ahead)
    }

    /// The record is of this call from here on.
    #[inline]
    fn take(&mut self, now: Moment, header: &Header) {
        self.hear(now, header);
        self.sequence = header.sequence;
        self.shape = header.shape;
        self.piece = header.piece;
        self.owed = Owed::Nothing;
        (self.answers_soon, self.lost) = (false, false);
    }

    #[inline]
    fn hear(&mut self, now: Moment, header: &Header) {
        self.heard = now;
        if self.unanswered > 0 {
            // What the caller sent before it heard the question says nothing of the round trip.
            let answers = header.echo == self.serial;
            (self.answers_soon, self.unanswered) = (answers && self.unanswered == 1, 0);
        }
        self.echo = header.serial;
        self.credits = header.credits;
    }

    fn handle_slowly(
        &mut self,
        now: Moment,
        flow: &impl Lend,
        header: &Header,
        bitmap: &[u8],
        ahead: i32,
    ) -> Received {
        if header.kind == Kind::Bye {
            return self.bye();
        }
        let running = self.standing() == Standing::Running;
        if matches!(self.state, State::Leaving) {
            // From before the client said goodbye.
            return dropped(Dropped::Late);
        }
        // A client never begins a call before it knows that the one before it has ended.
        if ahead < 0 || (ahead > 0 && running) {
            return dropped(Dropped::Late);
        }
        let then = match header.kind {
            Kind::Call if ahead > 0 => return self.begin(now, header),
            Kind::Call => self.more(now, header),
            Kind::Probe => return self.probed(now, header, ahead),
            Kind::HaveResult if ahead == 0 => {
                return self.client_has(now, flow, header, bitmap);
            }
            Kind::Quit => return self.quit(now, header, ahead),
            _ => Then::Dropped(Dropped::Violation),
        };
        Received { release: false, then }
    }

    /// The first piece that comes of a newer call.
    fn begin(&mut self, now: Moment, header: &Header) -> Received {
        if header.shape.total > self.bytes_max {
            return dropped(Dropped::Violation);
        }
        let cut = header.cut();
        if cut.position(header.fragment) >= SPAN {
            return dropped(Dropped::Violation);
        }
        let release = matches!(self.state, State::Replied(_));
        self.take(now, header);
        let range = cut.range(header.fragment);
        if cut.count() == 1 {
            // Instead of one that never became whole.
            self.state = State::Executing;
            return Received { release, then: Then::Execute(range) };
        }
        let assembly = Assembly::new(cut, &mut self.positions);
        self.state = State::Assembling { assembly, reported: false };
        Received { release, then: self.assemble(header, Then::Begin(range)) }
    }

    /// A further piece of the record's call, or one again.
    fn more(&mut self, now: Moment, header: &Header) -> Then {
        (self.heard, self.unanswered) = (now, 0);
        let State::Assembling { assembly, .. } = &self.state else {
            return match self.state {
                State::Waiting => self.more_to_wait_with(now, header),
                _ => self.call_again(header),
            };
        };
        if header.shape != self.shape {
            return Then::Dropped(Dropped::Violation);
        }
        let cut = *assembly.cut();
        if header.piece > cut.piece() {
            // From before the client began again with smaller pieces.
            return Then::Dropped(Dropped::Late);
        }
        self.hear(now, header);
        if header.piece < cut.piece() {
            // The larger ones do not get through: again from the start. Nothing of it ran.
            let cut = header.cut();
            if cut.position(header.fragment) >= SPAN {
                return Then::Dropped(Dropped::Violation);
            }
            self.piece = header.piece;
            let assembly = Assembly::new(cut, &mut self.positions);
            self.state = State::Assembling { assembly, reported: false };
            return self.assemble(header, Then::Begin(cut.range(header.fragment)));
        }
        self.assemble(header, Then::Place(cut.range(header.fragment)))
    }

    /// A piece of a call for which there is no room: it is not taken.
    fn more_to_wait_with(&mut self, now: Moment, header: &Header) -> Then {
        if header.shape != self.shape {
            return Then::Dropped(Dropped::Violation);
        }
        self.hear(now, header);
        self.piece = self.piece.min(header.piece);
        if header.flags.has(Flags::PLEASE) || header.fragment == 0 {
            self.owed = Owed::Have;
        }
        Then::Dropped(Dropped::Late)
    }

    /// A piece of a call that is here already.
    fn call_again(&mut self, header: &Header) -> Then {
        match self.state {
            State::Executing if header.shape != self.shape => {
                return Then::Dropped(Dropped::Violation);
            }
            State::Executing | State::Quitting | State::Leaving | State::Replied(_) => {
                self.echo = header.serial;
                self.piece = self.piece.min(header.piece);
                if header.flags.has(Flags::PLEASE) {
                    self.owed = Owed::Have;
                }
            }
            _ => return Then::Dropped(Dropped::Late),
        }
        Then::Dropped(Dropped::Again)
    }

    /// Takes a piece into the assembly; `new` is what to do with one that was missing.
    fn assemble(&mut self, header: &Header, new: Then) -> Then {
        let State::Assembling { assembly, reported } = &mut self.state else {
            return Then::Dropped(Dropped::Late);
        };
        let position = assembly.cut().position(header.fragment);
        let range = assembly.cut().range(header.fragment);
        let arrival = assembly.receive(position, &mut self.positions);
        if arrival == Arrival::New && assembly.is_whole() {
            if *reported || header.flags.has(Flags::PLEASE) {
                self.owed = Owed::Have;
            }
            self.state = State::Executing;
            return Then::Execute(range);
        }
        // The end of the blast asks what is missing; who was told of holes waits to hear of their end.
        let ends = position + 1 == assembly.cut().count();
        let closed = *reported && !assembly.has_holes();
        if header.flags.has(Flags::PLEASE) || ends || closed {
            *reported = assembly.has_holes();
            self.owed = Owed::Have;
        }
        match arrival {
            Arrival::New => new,
            Arrival::Again => Then::Dropped(Dropped::Again),
            Arrival::Beyond => Then::Dropped(Dropped::Violation),
        }
    }

    /// The client asks where its call is.
    fn probed(&mut self, now: Moment, header: &Header, ahead: i32) -> Received {
        self.hear(now, header);
        if ahead > 0 {
            return self.nothing_of(header.sequence);
        }
        match &mut self.state {
            State::Assembling { assembly, .. } if header.piece < assembly.cut().piece() => {
                // It begins again; what comes next is new.
                self.state = State::Idle;
                self.sequence = self.sequence.wrapping_sub(1);
                self.owed = Owed::HaveNone(header.sequence);
                self.piece = header.piece;
                return Received { release: false, then: Then::Abandon };
            }
            State::Assembling { assembly, reported } => *reported |= assembly.has_holes(),
            State::Idle | State::Vacant => return dropped(Dropped::Late),
            State::Executing
            | State::Quitting
            | State::Leaving
            | State::Replied(_)
            | State::Waiting => {
                self.piece = self.piece.min(header.piece);
            }
        }
        self.owed = Owed::Have;
        Received { release: false, then: Then::Nothing }
    }

    /// Nothing came of a newer call than the record's, which is over: the client has its result.
    fn nothing_of(&mut self, sequence: u32) -> Received {
        self.owed = Owed::HaveNone(sequence);
        self.end()
    }

    /// The record's call is over.
    fn end(&mut self) -> Received {
        let release = matches!(self.state, State::Replied(_));
        let abandon = matches!(self.state, State::Assembling { .. });
        self.positions.release();
        self.state = State::Idle;
        Received { release, then: if abandon { Then::Abandon } else { Then::Nothing } }
    }

    /// The client says what it has of the result.
    fn client_has(
        &mut self,
        now: Moment,
        flow: &impl Lend,
        header: &Header,
        bitmap: &[u8],
    ) -> Received {
        let State::Replied(blast) = &mut self.state else {
            return dropped(Dropped::Late);
        };
        if !header.holds(bitmap) {
            return dropped(Dropped::Damaged);
        }
        if header.flags.has(Flags::ALL) {
            self.heard = now;
            return self.end();
        }
        if header.piece > blast.cut().piece() {
            // From before it asked for smaller pieces, or before it heard that it gets them.
            if header.flags.has(Flags::PLEASE) {
                self.hear(now, header);
                self.owed = Owed::Have;
            }
            return dropped(Dropped::Late);
        }
        let waited = header.flags.has(Flags::PLEASE);
        if header.piece < blast.cut().piece() {
            *blast = Blast::anew(Cut::new(self.shape.total, header.piece));
            self.piece = header.piece;
        } else {
            let (next, had, echo) = (header.fragment, header.shape.total, header.echo);
            let path = &mut Path { now, credits: header.credits, flow, seen: &mut self.seen };
            blast.heard(&Have { next, bitmap, had, echo, waited }, path, &mut self.positions);
        }
        self.hear(now, header);
        Received { release: false, then: Then::Nothing }
    }

    /// The client gave the call up.
    fn quit(&mut self, now: Moment, header: &Header, ahead: i32) -> Received {
        self.hear(now, header);
        if ahead == 0 && matches!(self.state, State::Executing | State::Quitting) {
            self.state = State::Quitting;
            self.owed = Owed::Have;
            return Received { release: false, then: Then::Nothing };
        }
        // Its late packets must not run it.
        self.sequence = header.sequence;
        self.owed = Owed::LetGo;
        self.end()
    }

    /// The client does not need the handle any more, nor what it called last, whichever number that
    /// has.
    fn bye(&mut self) -> Received {
        if self.standing() == Standing::Running {
            // Only when the procedure has ended may its place be another's.
            self.state = State::Leaving;
            self.owed = Owed::Nothing;
            return Received { release: false, then: Then::Nothing };
        }
        let release = self.end().release;
        self.owed = Owed::Nothing;
        Received { release, then: Then::Forget }
    }

    /// There is no room for the call that has begun: what came of it is dropped, and the client sends
    /// nothing more of it until it hears that it may.
    pub(crate) fn wait_for_room(&mut self) {
        if let State::Assembling { .. } = self.state {
            self.state = State::Waiting;
            self.owed = Owed::Have;
        }
    }

    /// Whether the call of that number waits for room.
    pub(crate) const fn waits_for_room(&self, sequence: u32) -> bool {
        matches!(self.state, State::Waiting) && self.sequence == sequence
    }

    /// Bytes of the record's call, while it has not come whole.
    pub(crate) const fn bytes_of_call(&self) -> u32 {
        self.shape.total
    }

    /// There is room for the call that [waits](Self::wait_for_room): the client is told to send it.
    pub(crate) fn go_on(&mut self) {
        if let State::Waiting = self.state {
            let cut = Cut::new(self.shape.total, self.piece);
            let assembly = Assembly::new(cut, &mut self.positions);
            self.state = State::Assembling { assembly, reported: false };
            self.owed = Owed::Have;
        }
    }

    /// The procedure has ended with this result, or the call is refused before it ran: from now on
    /// its number is used up either way.
    #[inline]
    pub(crate) fn replied(&mut self, result: Shape) -> Retain {
        match self.state {
            State::Executing | State::Assembling { .. } | State::Waiting => {
                self.shape = result;
                self.state = State::Replied(Blast::new(Cut::new(result.total, self.piece)));
                // The result says that all of the call is here.
                self.owed = Owed::Nothing;
                Retain::Keep
            }
            State::Quitting => {
                self.state = State::Idle;
                self.owed = Owed::LetGo;
                Retain::Drop
            }
            State::Leaving => {
                self.state = State::Idle;
                self.owed = Owed::Nothing;
                Retain::Forget
            }
            State::Vacant | State::Idle | State::Replied(_) => Retain::Drop,
        }
    }

    /// The driver knows that packets with larger pieces do not fit the way to the client: a result that
    /// is being sent is cut anew, and the client is told. False if there is no need to.
    pub(crate) fn narrow(&mut self, piece: u32) -> bool {
        let piece = (piece & !15).max(PIECE_MIN);
        let State::Replied(blast) = &mut self.state else { return false };
        if piece >= blast.cut().piece() {
            return false;
        }
        *blast = Blast::anew(Cut::new(self.shape.total, piece));
        (self.piece, self.owed) = (piece, Owed::Have);
        true
    }

    /// The next packet to send, if there is one: written to `out`. Its range is one of the retained
    /// result.
    #[inline]
    pub(crate) fn poll_send(
        &mut self,
        now: Moment,
        flow: &impl Lend,
        out: &mut [u8; CONTROL_BYTES_MAX],
    ) -> Option<Send> {
        if self.owed != Owed::Nothing {
            return Some(self.say(out));
        }
        let State::Replied(blast) = &mut self.state else { return None };
        let serial = self.serial.wrapping_add(1);
        let path = &mut Path { now, credits: self.credits, flow, seen: &mut self.seen };
        let (position, flags) = blast.poll(serial, path, false, &mut self.positions)?;
        let cut = *blast.cut();
        self.serial = serial;
        let fragment = cut.fragment(position);
        let header = Header {
            flags,
            shape: self.shape,
            fragment,
            piece: cut.piece(),
            ..self.header(Kind::Result)
        };
        header.emit(out.first_chunk_mut().expect("room for a header"));
        Some(Send { bytes: HEADER_BYTES, range: cut.range(fragment) })
    }

    /// When there is more to [send](Self::poll_send), if that is only a matter of time.
    #[inline]
    pub(crate) fn next_send(&self) -> Option<Moment> {
        match &self.state {
            State::Replied(blast) => blast.due(),
            _ => None,
        }
    }

    #[inline]
    fn header(&self, kind: Kind) -> Header {
        Header {
            serial: self.serial,
            echo: self.echo,
            piece: self.piece,
            credits: self.credits_here,
            ..Header::new(kind, self.handle, self.sequence)
        }
    }

    /// Writes what is owed.
    #[cold]
    fn say(&mut self, out: &mut [u8; CONTROL_BYTES_MAX]) -> Send {
        self.serial = self.serial.wrapping_add(1);
        let mut bytes = HEADER_BYTES;
        let header = match core::mem::replace(&mut self.owed, Owed::Nothing) {
            Owed::LetGo | Owed::Nothing => self.header(Kind::LetGo),
            Owed::Ask => Header { flags: Flags::ALL, ..self.header(Kind::Ask) },
            Owed::HaveNone(sequence) => Header { sequence, ..self.header(Kind::HaveCall) },
            Owed::Have => {
                let mut header = self.header(Kind::HaveCall);
                if let State::Waiting = self.state {
                    header.credits = 0;
                } else if let State::Assembling { assembly, .. } = &self.state {
                    let mut bitmap = [0; BITMAP_BYTES_MAX];
                    let (next, length) = assembly.report(&self.positions, &mut bitmap);
                    (header.fragment, header.shape.total) = (next, assembly.came());
                    bytes += length;
                    out[HEADER_BYTES..bytes].copy_from_slice(&bitmap[..length]);
                } else {
                    let replied = matches!(self.state, State::Replied(_));
                    header.flags = Flags::ALL.with_if(replied, Flags::REPLIED);
                }
                header
            }
        };
        emit_with(header, out, bytes);
        Send { bytes, range: 0..0 }
    }

    /// What would be lost.
    pub(crate) const fn standing(&self) -> Standing {
        match self.state {
            State::Vacant => Standing::Vacant,
            State::Idle => Standing::Idle,
            State::Assembling { .. } => Standing::Assembling,
            State::Waiting => Standing::Waiting,
            State::Replied(_) => Standing::Replied,
            State::Executing | State::Quitting | State::Leaving => Standing::Running,
        }
    }

    /// The number of the record's call.
    #[cfg(any(test, fuzzing))]
    pub(crate) const fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Whether a packet is a piece of the call that is coming.
    pub(crate) fn is_of_assembly(&self, header: &Header) -> bool {
        header.kind == Kind::Call
            && header.sequence == self.sequence
            && matches!(self.state, State::Assembling { .. })
    }

    /// What comes next if all goes well: of which call, how it is cut, and from which position on.
    pub(crate) fn expects(&self) -> Option<(u32, Cut, u32)> {
        let State::Assembling { assembly, .. } = &self.state else { return None };
        (!assembly.has_holes()).then(|| (self.sequence, *assembly.cut(), assembly.next()))
    }

    /// When a packet last came.
    pub(crate) const fn last_heard(&self) -> Moment {
        self.heard
    }

    pub(crate) const fn handle_of(&self) -> Handle {
        self.handle
    }

    /// The handle as it is granted.
    pub(crate) const fn lease(&self) -> Lease {
        Lease { handle: self.handle, generation: self.generation }
    }

    /// Revokes the handle: no packet of it does anything any more.
    ///
    /// If its client perhaps waits for a result that was made, the place is of another generation
    /// from here on. In the other states no knowledge is lost: a call that ran is not in them, unless
    /// its client has the result, has given the call up, or has said goodbye.
    pub(crate) fn forget(&mut self) {
        debug_assert!(self.standing() != Standing::Running);
        let forgets = match self.state {
            State::Replied(_) | State::Executing | State::Quitting | State::Leaving => 1,
            State::Vacant | State::Idle | State::Assembling { .. } | State::Waiting => 0,
        };
        // A result is kept for a minute at least: this does not wrap round.
        let generation = self.generation.wrapping_add(forgets);
        *self = Self { generation, ..Self::vacant(self.handle.place) };
    }
}

/// What a record is given when its handle is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Bytes of a full piece, until a call says another number.
    pub(crate) piece: u32,
    /// Positions that the client takes, and that this side takes.
    pub(crate) credits: u16,
    pub(crate) credits_here: u16,
    /// Bytes of the largest call.
    pub(crate) bytes_max: u32,
}

const fn dropped(why: Dropped) -> Received {
    Received { release: false, then: Then::Dropped(why) }
}

#[cfg(test)]
mod tests;
