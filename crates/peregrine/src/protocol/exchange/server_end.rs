//! The server's end of one handle: the duplicate record. What it says answers a packet, except for one
//! question: whether the caller of a procedure that runs long still waits
//! ([`look_after`](ServerEnd::look_after)).
//!
//! | from | to | when |
//! |---|---|---|
//! | `Vacant` | `Idle` | [`occupy`](ServerEnd::occupy): the handle is bound |
//! | `Idle`, `Replied` | `Assembling` | a piece of a newer call comes, and there are more |
//! | `Idle`, `Replied`, `Assembling` | `Executing` | all of a newer call is here: it runs, this once |
//! | `Assembling` | `Waiting` | [`wait_for_room`](ServerEnd::wait_for_room): there is no room for the call yet |
//! | `Waiting` | `Assembling` | [`go_on`](ServerEnd::go_on): there is room; the call comes again from its start |
//! | `Executing`, `Assembling`, `Waiting` | `Replied` | [`replied`](ServerEnd::replied); from `Assembling`, a refusal to run it |
//! | `Replied` | `Idle` | the client has the result, or asks for a newer call |
//! | `Idle`, `Assembling`, `Waiting`, `Replied` | `Idle` | the client gave the call up: it will not run any more |
//! | `Executing` | `Quitting` | the same while it runs |
//! | `Quitting` | `Idle` | the procedure has ended; its result is dropped |
//! | `Executing`, `Quitting` | `Leaving` | the client said goodbye |
//! | `Leaving` | `Idle` | the procedure has ended; the driver forgets the record |
//! | any | `Vacant` | [`forget`](ServerEnd::forget): the handle is revoked |
//!
//! A number runs once because only a number above that of the record starts anything, and the record
//! takes that number in the same step. It never goes back, but to an assembly's start: nothing ran.

mod liveness;

use core::ops::Range;

use super::assembly::{Assembly, PieceArrival};
use super::bind::GrantedHandle;
use super::blast::{Blast, ReceptionReport, SendPath};
use super::client_end::{DropReason, Outgoing, emit_with};
use super::flow::FlowAccess;
use super::header::{BITMAP_BYTES_MAX, CONTROL_BYTES_MAX, Flags, HEADER_BYTES};
use super::header::{Handle, Header, PacketKind};
use super::message::{Fragments, PIECE_MIN, Shape};
use super::positions::{PositionSet, SPAN};
use super::time::{MILLISECOND, Moment, SECOND};

/// What a packet means to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// The retained result is not needed any more; it was that of an earlier call, or is that of
    /// this one, which the client has or does not want.
    pub(crate) release: bool,
    pub(crate) action: Action,
}

/// What the driver does about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Nothing,
    /// A call of several packets begins, with this piece at this range. Room for all of it is
    /// needed from here on; without it the driver has the client [wait](ServerEnd::wait_for_room), or
    /// [replies](ServerEnd::replied) with a refusal.
    Begin(Range<u32>),
    /// What stands behind the header belongs at this range of the call.
    Place(Range<u32>),
    /// The same, and then the call is whole and runs. Never again for this number.
    Execute(Range<u32>),
    /// The client does not need the handle any more: [`forget`](ServerEnd::forget) it.
    Forget,
    /// What there is of this call is not needed: the client gave it up, or begins it again.
    Discard,
    Dropped(DropReason),
}

/// Whether a result that was made is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retain {
    /// It is kept, unchanged, until it is released.
    Keep,
    /// The client gave the call up.
    Drop,
    /// The client said goodbye meanwhile: as `Drop`, and then [`forget`](ServerEnd::forget) the record.
    Forget,
}

/// What a record would lose if it were forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordPhase {
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
    Cancelled,
    Closing,
    Replied(Blast),
}

/// What is to be said before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingAnswer {
    Nothing,
    /// What is here of the record's call.
    Report,
    /// That nothing is here of the call of this number.
    ReportNothing(u32),
    Released,
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
pub(crate) struct ServerEnd {
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
    pending: PendingAnswer,
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
    positions: PositionSet,
}

// A server remembers an idle client in this.
const _: () = assert!(size_of::<ServerEnd>() <= 320);

impl ServerEnd {
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
            pending: PendingAnswer::Nothing,
            credits: 0,
            credits_here: 0,
            seen: 0,
            unanswered: 0,
            answers_soon: false,
            lost: false,
            state: State::Vacant,
            positions: PositionSet::default(),
        }
    }

    /// The place is a handle's from now on. The secret must be random: old ones are then strange.
    pub(crate) fn assign(&mut self, now: Moment, secret: [u8; 12], peer: u64, terms: &ServerTerms) {
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
    pub(crate) fn accepts(&self, header: &Header, peer: u64) -> bool {
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
    pub(crate) fn refusal_of(&self, header: &Header, table: u64) -> Option<Header> {
        let waits = match header.kind {
            PacketKind::Call | PacketKind::Probe | PacketKind::Cancel => true,
            PacketKind::HaveResult => !header.flags.has(Flags::ALL),
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
        flow: &impl FlowAccess,
        header: &Header,
        bitmap: &[u8],
    ) -> Effect {
        let ahead = header.sequence.wrapping_sub(self.sequence) as i32;
        // A new call in one packet.
        if header.kind == PacketKind::Call
            && ahead > 0
            && matches!(self.state, State::Idle | State::Replied(_))
            && header.shape.total <= header.piece
            && header.shape.total <= self.bytes_max
        {
            let release = matches!(self.state, State::Replied(_));
            self.adopt_call(now, header);
            self.positions.release();
            self.state = State::Executing;
            return Effect { release, action: Action::Execute(0..header.shape.total) };
        }
        self.handle_slowly(now, flow, header, bitmap, ahead)
    }

    /// The record is of this call from here on.
    #[inline]
    fn adopt_call(&mut self, now: Moment, header: &Header) {
        self.note_heard(now, header);
        self.sequence = header.sequence;
        self.shape = header.shape;
        self.piece = header.piece;
        self.pending = PendingAnswer::Nothing;
        (self.answers_soon, self.lost) = (false, false);
    }

    #[inline]
    fn note_heard(&mut self, now: Moment, header: &Header) {
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
        flow: &impl FlowAccess,
        header: &Header,
        bitmap: &[u8],
        ahead: i32,
    ) -> Effect {
        if header.kind == PacketKind::Bye {
            return self.handle_bye();
        }
        let running = self.phase() == RecordPhase::Running;
        if matches!(self.state, State::Closing) {
            // From before the client said goodbye.
            return dropped(DropReason::Late);
        }
        // A client never begins a call before it knows that the one before it has ended.
        if ahead < 0 || (ahead > 0 && running) {
            return dropped(DropReason::Late);
        }
        let action = match header.kind {
            PacketKind::Call if ahead > 0 => return self.begin_call(now, header),
            PacketKind::Call => self.handle_piece(now, header),
            PacketKind::Probe => return self.handle_probe(now, header, ahead),
            PacketKind::HaveResult if ahead == 0 => {
                return self.handle_result_report(now, flow, header, bitmap);
            }
            PacketKind::Cancel => return self.handle_cancel(now, header, ahead),
            _ => Action::Dropped(DropReason::Violation),
        };
        Effect { release: false, action }
    }

    /// The first piece that comes of a newer call.
    fn begin_call(&mut self, now: Moment, header: &Header) -> Effect {
        if header.shape.total > self.bytes_max {
            return dropped(DropReason::Violation);
        }
        let fragments = header.fragments();
        if fragments.position(header.fragment) >= SPAN {
            return dropped(DropReason::Violation);
        }
        let release = matches!(self.state, State::Replied(_));
        self.adopt_call(now, header);
        let range = fragments.range(header.fragment);
        if fragments.count() == 1 {
            // Instead of one that never became whole.
            self.state = State::Executing;
            return Effect { release, action: Action::Execute(range) };
        }
        let assembly = Assembly::new(fragments, &mut self.positions);
        self.state = State::Assembling { assembly, reported: false };
        Effect { release, action: self.assemble(header, Action::Begin(range)) }
    }

    /// A further piece of the record's call, or one again.
    fn handle_piece(&mut self, now: Moment, header: &Header) -> Action {
        (self.heard, self.unanswered) = (now, 0);
        let State::Assembling { assembly, .. } = &self.state else {
            return match self.state {
                State::Waiting => self.refuse_piece_for_now(now, header),
                _ => self.handle_duplicate_call(header),
            };
        };
        if header.shape != self.shape {
            return Action::Dropped(DropReason::Violation);
        }
        let fragments = *assembly.fragments();
        if header.piece > fragments.piece() {
            // From before the client began again with smaller pieces.
            return Action::Dropped(DropReason::Late);
        }
        self.note_heard(now, header);
        if header.piece < fragments.piece() {
            // The larger ones do not get through: again from the start. Nothing of it ran.
            let fragments = header.fragments();
            if fragments.position(header.fragment) >= SPAN {
                return Action::Dropped(DropReason::Violation);
            }
            self.piece = header.piece;
            let assembly = Assembly::new(fragments, &mut self.positions);
            self.state = State::Assembling { assembly, reported: false };
            return self.assemble(header, Action::Begin(fragments.range(header.fragment)));
        }
        self.assemble(header, Action::Place(fragments.range(header.fragment)))
    }

    /// A piece of a call for which there is no room: it is not taken.
    fn refuse_piece_for_now(&mut self, now: Moment, header: &Header) -> Action {
        if header.shape != self.shape {
            return Action::Dropped(DropReason::Violation);
        }
        self.note_heard(now, header);
        self.piece = self.piece.min(header.piece);
        if header.flags.has(Flags::REPORT) || header.fragment == 0 {
            self.pending = PendingAnswer::Report;
        }
        Action::Dropped(DropReason::Late)
    }

    /// A piece of a call that is here already.
    fn handle_duplicate_call(&mut self, header: &Header) -> Action {
        match self.state {
            State::Executing if header.shape != self.shape => {
                return Action::Dropped(DropReason::Violation);
            }
            State::Executing | State::Cancelled | State::Closing | State::Replied(_) => {
                self.echo = header.serial;
                self.piece = self.piece.min(header.piece);
                if header.flags.has(Flags::REPORT) {
                    self.pending = PendingAnswer::Report;
                }
            }
            _ => return Action::Dropped(DropReason::Late),
        }
        Action::Dropped(DropReason::Duplicate)
    }

    /// Takes a piece into the assembly; `new` is what to do with one that was missing.
    fn assemble(&mut self, header: &Header, new: Action) -> Action {
        let State::Assembling { assembly, reported } = &mut self.state else {
            return Action::Dropped(DropReason::Late);
        };
        let position = assembly.fragments().position(header.fragment);
        let range = assembly.fragments().range(header.fragment);
        let arrival = assembly.receive(position, &mut self.positions);
        if arrival == PieceArrival::New && assembly.is_whole() {
            if *reported || header.flags.has(Flags::REPORT) {
                self.pending = PendingAnswer::Report;
            }
            self.state = State::Executing;
            return Action::Execute(range);
        }
        // The end of the blast asks what is missing; who was told of holes waits to hear of their end.
        let ends = position + 1 == assembly.fragments().count();
        let closed = *reported && !assembly.has_holes();
        if header.flags.has(Flags::REPORT) || ends || closed {
            *reported = assembly.has_holes();
            self.pending = PendingAnswer::Report;
        }
        match arrival {
            PieceArrival::New => new,
            PieceArrival::Duplicate => Action::Dropped(DropReason::Duplicate),
            PieceArrival::OutOfWindow => Action::Dropped(DropReason::Violation),
        }
    }

    /// The client asks where its call is.
    fn handle_probe(&mut self, now: Moment, header: &Header, ahead: i32) -> Effect {
        self.note_heard(now, header);
        if ahead > 0 {
            return self.report_nothing(header.sequence);
        }
        match &mut self.state {
            State::Assembling { assembly, .. } if header.piece < assembly.fragments().piece() => {
                // It begins again; what comes next is new.
                self.state = State::Idle;
                self.sequence = self.sequence.wrapping_sub(1);
                self.pending = PendingAnswer::ReportNothing(header.sequence);
                self.piece = header.piece;
                return Effect { release: false, action: Action::Discard };
            }
            State::Assembling { assembly, reported } => *reported |= assembly.has_holes(),
            State::Idle | State::Vacant => return dropped(DropReason::Late),
            State::Executing
            | State::Cancelled
            | State::Closing
            | State::Replied(_)
            | State::Waiting => {
                self.piece = self.piece.min(header.piece);
            }
        }
        self.pending = PendingAnswer::Report;
        Effect { release: false, action: Action::Nothing }
    }

    /// Nothing came of a newer call than the record's, which is over: the client has its result.
    fn report_nothing(&mut self, sequence: u32) -> Effect {
        self.pending = PendingAnswer::ReportNothing(sequence);
        self.end_call()
    }

    /// The record's call is over.
    fn end_call(&mut self) -> Effect {
        let release = matches!(self.state, State::Replied(_));
        let abandon = matches!(self.state, State::Assembling { .. });
        self.positions.release();
        self.state = State::Idle;
        Effect { release, action: if abandon { Action::Discard } else { Action::Nothing } }
    }

    /// The client says what it has of the result.
    fn handle_result_report(
        &mut self,
        now: Moment,
        flow: &impl FlowAccess,
        header: &Header,
        bitmap: &[u8],
    ) -> Effect {
        let State::Replied(blast) = &mut self.state else {
            return dropped(DropReason::Late);
        };
        if !header.holds(bitmap) {
            return dropped(DropReason::Damaged);
        }
        if header.flags.has(Flags::ALL) {
            self.heard = now;
            return self.end_call();
        }
        if header.piece > blast.fragments().piece() {
            // From before it asked for smaller pieces, or before it heard that it gets them.
            if header.flags.has(Flags::REPORT) {
                self.note_heard(now, header);
                self.pending = PendingAnswer::Report;
            }
            return dropped(DropReason::Late);
        }
        let waited = header.flags.has(Flags::REPORT);
        if header.piece < blast.fragments().piece() {
            *blast = Blast::resent(Fragments::new(self.shape.total, header.piece));
            self.piece = header.piece;
        } else {
            let (next, had, echo) = (header.fragment, header.shape.total, header.echo);
            let path = &mut SendPath { now, credits: header.credits, flow, seen: &mut self.seen };
            blast.handle_report(
                &ReceptionReport { next, bitmap, had, echo, waited },
                path,
                &mut self.positions,
            );
        }
        self.note_heard(now, header);
        Effect { release: false, action: Action::Nothing }
    }

    /// The client gave the call up.
    fn handle_cancel(&mut self, now: Moment, header: &Header, ahead: i32) -> Effect {
        self.note_heard(now, header);
        if ahead == 0 && matches!(self.state, State::Executing | State::Cancelled) {
            self.state = State::Cancelled;
            self.pending = PendingAnswer::Report;
            return Effect { release: false, action: Action::Nothing };
        }
        // Its late packets must not run it.
        self.sequence = header.sequence;
        self.pending = PendingAnswer::Released;
        self.end_call()
    }

    /// The client does not need the handle any more, nor what it called last, whichever number that
    /// has.
    fn handle_bye(&mut self) -> Effect {
        if self.phase() == RecordPhase::Running {
            // Only when the procedure has ended may its place be another's.
            self.state = State::Closing;
            self.pending = PendingAnswer::Nothing;
            return Effect { release: false, action: Action::Nothing };
        }
        let release = self.end_call().release;
        self.pending = PendingAnswer::Nothing;
        Effect { release, action: Action::Forget }
    }

    /// There is no room for the call that has begun: what came of it is dropped, and the client sends
    /// nothing more of it until it hears that it may.
    pub(crate) fn wait_for_room(&mut self) {
        if let State::Assembling { .. } = self.state {
            self.state = State::Waiting;
            self.pending = PendingAnswer::Report;
        }
    }

    /// Whether the call of that number waits for room.
    pub(crate) const fn waits_for_room(&self, sequence: u32) -> bool {
        matches!(self.state, State::Waiting) && self.sequence == sequence
    }

    /// Bytes of the record's call, while it has not come whole.
    pub(crate) const fn call_bytes(&self) -> u32 {
        self.shape.total
    }

    /// There is room for the call that [waits](Self::wait_for_room): the client is told to send it.
    pub(crate) fn resume(&mut self) {
        if let State::Waiting = self.state {
            let fragments = Fragments::new(self.shape.total, self.piece);
            let assembly = Assembly::new(fragments, &mut self.positions);
            self.state = State::Assembling { assembly, reported: false };
            self.pending = PendingAnswer::Report;
        }
    }

    /// The procedure has ended with this result, or the call is refused before it ran: from now on
    /// its number is used up either way.
    #[inline]
    pub(crate) fn complete(&mut self, result: Shape) -> Retain {
        match self.state {
            State::Executing | State::Assembling { .. } | State::Waiting => {
                self.shape = result;
                self.state = State::Replied(Blast::new(Fragments::new(result.total, self.piece)));
                // The result says that all of the call is here.
                self.pending = PendingAnswer::Nothing;
                Retain::Keep
            }
            State::Cancelled => {
                self.state = State::Idle;
                self.pending = PendingAnswer::Released;
                Retain::Drop
            }
            State::Closing => {
                self.state = State::Idle;
                self.pending = PendingAnswer::Nothing;
                Retain::Forget
            }
            State::Vacant | State::Idle | State::Replied(_) => Retain::Drop,
        }
    }

    /// The driver knows that packets with larger pieces do not fit the way to the client: a result that
    /// is being sent is cut anew, and the client is told. False if there is no need to.
    pub(crate) fn reduce_piece(&mut self, piece: u32) -> bool {
        let piece = (piece & !15).max(PIECE_MIN);
        let State::Replied(blast) = &mut self.state else { return false };
        if piece >= blast.fragments().piece() {
            return false;
        }
        *blast = Blast::resent(Fragments::new(self.shape.total, piece));
        (self.piece, self.pending) = (piece, PendingAnswer::Report);
        true
    }

    /// The next packet to send, if there is one: written to `out`. Its range is one of the retained
    /// result.
    #[inline]
    pub(crate) fn poll_send(
        &mut self,
        now: Moment,
        flow: &impl FlowAccess,
        out: &mut [u8; CONTROL_BYTES_MAX],
    ) -> Option<Outgoing> {
        if self.pending != PendingAnswer::Nothing {
            return Some(self.write_answer(out));
        }
        let State::Replied(blast) = &mut self.state else { return None };
        let serial = self.serial.wrapping_add(1);
        let path = &mut SendPath { now, credits: self.credits, flow, seen: &mut self.seen };
        let (position, flags) = blast.poll(serial, path, false, &mut self.positions)?;
        let fragments = *blast.fragments();
        self.serial = serial;
        let fragment = fragments.fragment(position);
        let header = Header {
            flags,
            shape: self.shape,
            fragment,
            piece: fragments.piece(),
            ..self.header(PacketKind::Result)
        };
        header.emit(out.first_chunk_mut().expect("room for a header"));
        Some(Outgoing { bytes: HEADER_BYTES, range: fragments.range(fragment) })
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
    fn header(&self, kind: PacketKind) -> Header {
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
    fn write_answer(&mut self, out: &mut [u8; CONTROL_BYTES_MAX]) -> Outgoing {
        self.serial = self.serial.wrapping_add(1);
        let mut bytes = HEADER_BYTES;
        let header = match core::mem::replace(&mut self.pending, PendingAnswer::Nothing) {
            PendingAnswer::Released | PendingAnswer::Nothing => self.header(PacketKind::Released),
            PendingAnswer::Ask => Header { flags: Flags::ALL, ..self.header(PacketKind::Ask) },
            PendingAnswer::ReportNothing(sequence) => {
                Header { sequence, ..self.header(PacketKind::HaveCall) }
            }
            PendingAnswer::Report => {
                let mut header = self.header(PacketKind::HaveCall);
                if let State::Waiting = self.state {
                    header.credits = 0;
                } else if let State::Assembling { assembly, .. } = &self.state {
                    let mut bitmap = [0; BITMAP_BYTES_MAX];
                    let (next, length) = assembly.report(&self.positions, &mut bitmap);
                    (header.fragment, header.shape.total) = (next, assembly.received_count());
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
        Outgoing { bytes, range: 0..0 }
    }

    /// What would be lost.
    pub(crate) const fn phase(&self) -> RecordPhase {
        match self.state {
            State::Vacant => RecordPhase::Vacant,
            State::Idle => RecordPhase::Idle,
            State::Assembling { .. } => RecordPhase::Assembling,
            State::Waiting => RecordPhase::Waiting,
            State::Replied(_) => RecordPhase::Replied,
            State::Executing | State::Cancelled | State::Closing => RecordPhase::Running,
        }
    }

    /// The number of the record's call.
    #[cfg(any(test, fuzzing))]
    pub(crate) const fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Whether a packet is a piece of the call that is coming.
    pub(crate) fn is_of_assembly(&self, header: &Header) -> bool {
        header.kind == PacketKind::Call
            && header.sequence == self.sequence
            && matches!(self.state, State::Assembling { .. })
    }

    /// What comes next if all goes well: of which call, how it is cut, and from which position on.
    pub(crate) fn next_expected(&self) -> Option<(u32, Fragments, u32)> {
        let State::Assembling { assembly, .. } = &self.state else { return None };
        (!assembly.has_holes()).then(|| (self.sequence, *assembly.fragments(), assembly.next()))
    }

    /// When a packet last came.
    pub(crate) const fn last_heard(&self) -> Moment {
        self.heard
    }

    pub(crate) const fn bound_handle(&self) -> Handle {
        self.handle
    }

    /// The handle as it is granted.
    pub(crate) const fn granted_handle(&self) -> GrantedHandle {
        GrantedHandle { handle: self.handle, generation: self.generation }
    }

    /// Revokes the handle: no packet of it does anything any more.
    ///
    /// If its client perhaps waits for a result that was made, the place is of another generation
    /// from here on. In the other states no knowledge is lost: a call that ran is not in them, unless
    /// its client has the result, has given the call up, or has said goodbye.
    pub(crate) fn forget(&mut self) {
        debug_assert!(self.phase() != RecordPhase::Running);
        let forgets = match self.state {
            State::Replied(_) | State::Executing | State::Cancelled | State::Closing => 1,
            State::Vacant | State::Idle | State::Assembling { .. } | State::Waiting => 0,
        };
        // A result is kept for a minute at least: this does not wrap round.
        let generation = self.generation.wrapping_add(forgets);
        *self = Self { generation, ..Self::vacant(self.handle.place) };
    }
}

/// What a record is given when its handle is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerTerms {
    /// Bytes of a full piece, until a call says another number.
    pub(crate) piece: u32,
    /// Positions that the client takes, and that this side takes.
    pub(crate) credits: u16,
    pub(crate) credits_here: u16,
    /// Bytes of the largest call.
    pub(crate) bytes_max: u32,
}

const fn dropped(reason: DropReason) -> Effect {
    Effect { release: false, action: Action::Dropped(reason) }
}

#[cfg(test)]
mod tests;
