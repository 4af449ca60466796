//! The server end of a handle: the record that detects duplicate calls. It only answers packets, except that
//! it asks whether the client of a long procedure still waits ([`check_caller`](ServerEnd::check_caller)). A
//! position is the index of a piece of a message in the order of sending.
//!
//! | from | to | when |
//! |---|---|---|
//! | `Vacant` | `Idle` | [`assign`](ServerEnd::assign): the handle is bound |
//! | `Idle`, `Replied` | `Assembling` | a piece of a newer call of several packets arrives |
//! | `Idle`, `Replied`, `Assembling` | `Executing` | a newer call has arrived completely: it is executed, only once |
//! | `Assembling` | `Waiting` | [`wait_for_room`](ServerEnd::wait_for_room): there is no memory for the call yet |
//! | `Waiting` | `Assembling` | [`resume`](ServerEnd::resume): there is memory; the client sends the call from its start |
//! | `Executing`, `Assembling`, `Waiting` | `Replied` | [`complete`](ServerEnd::complete); from `Assembling` and `Waiting`, with a refusal |
//! | `Replied` | `Idle` | the client has the result, or asks for a newer call |
//! | `Idle`, `Assembling`, `Waiting`, `Replied` | `Idle` | the client cancelled the call: it will not be executed, or its result is dropped |
//! | `Executing` | `Cancelled` | the client cancelled the call while the procedure runs |
//! | `Cancelled` | `Idle` | the procedure has ended; its result is dropped |
//! | `Executing`, `Cancelled` | `Closing` | the client sent a goodbye |
//! | `Closing` | `Idle` | the procedure has ended; the driver forgets the record |
//! | any except `Executing`, `Cancelled` and `Closing` | `Vacant` | [`forget`](ServerEnd::forget): the handle is revoked |
//!
//! A call is executed at most once. The record has the number of its last call. Only a call with a higher
//! number can start a procedure, and the record takes that number in the same step. The record's number never
//! decreases, with one exception: an assembly, of which nothing was executed, may begin again.

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

/// The effects of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Whether the server can release the retained result, because the client has it or does not want it.
    pub(crate) release: bool,
    pub(crate) action: Action,
}

/// What the driver, the code that calls this state machine, must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Nothing,
    /// A call of several packets begins, and this packet has the piece at this range of the call. The driver
    /// must provide memory for the whole call, and copy the payload there. Without memory, the driver makes
    /// the client [wait](ServerEnd::wait_for_room), or [completes](ServerEnd::complete) the call with a
    /// refusal.
    Begin(Range<u32>),
    /// Copy the payload to this range of the call.
    Place(Range<u32>),
    /// Copy the payload to this range of the call, which is now complete. Then execute the call. This action
    /// occurs at most once for each number of a call.
    Execute(Range<u32>),
    /// [Forget](ServerEnd::forget) the handle, because the client does not need it any more.
    Forget,
    /// Drop what has arrived of this call. The client has cancelled the call, or begins it again.
    Discard,
    Dropped(DropReason),
}

/// What the driver must do with a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retain {
    /// Keep the result unchanged until it is released.
    Keep,
    /// Drop the result, because the client cancelled the call.
    Drop,
    /// Drop the result and [`forget`](ServerEnd::forget) the record, because the client sent a goodbye.
    Forget,
}

/// The phase of a record. It determines what would be lost if the server forgot the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordPhase {
    /// The place has no handle.
    Vacant,
    /// No call is open, so nothing would be lost.
    Idle,
    /// A call has arrived in part. If the record is forgotten, the call will never be executed.
    Assembling,
    /// The client waits until the server has memory. If the record is forgotten, the call is never executed.
    Waiting,
    /// The record has a result, which the client perhaps does not have yet.
    Replied,
    /// The procedure runs, so the record cannot be forgotten.
    Running,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Vacant,
    Idle,
    Assembling {
        assembly: Assembly,
        /// Whether a report has shown missing positions. If so, another report follows when they arrive.
        reported: bool,
    },
    /// A call of several packets has begun, but there is no memory for the call, so nothing of it is kept.
    Waiting,
    Executing,
    Cancelled,
    Closing,
    Replied(Blast),
}

/// The control packet that the server sends before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingAnswer {
    Nothing,
    /// A report of what has arrived of the record's call.
    Report,
    /// A report that nothing has arrived of the call that has this number.
    ReportNothing(u32),
    Released,
    Ask,
}

/// If the client answered the previous question before the server sent another, the server asks again only
/// after this silence. So such a client gets only one question a second during a long procedure.
const QUIET_MAX: u64 = SECOND;
/// The time between unanswered questions. A caller counts as gone after some unanswered questions, not after
/// a time: a server that was halted for long has perhaps not read the caller's packets yet.
const ASK_EVERY: u64 = 300 * MILLISECOND;

/// One record. It belongs to one place in the server's table.
#[derive(Clone, Debug)]
pub(crate) struct ServerEnd {
    handle: Handle,
    /// A number that stands for the address, without the port, from which the handle was bound.
    peer: u64,
    /// When the last packet of the client arrived.
    heard: Moment,
    /// When the server last asked the client, in milliseconds after the client's last packet.
    asked_ms: u32,
    /// The number of results that were discarded at this place although their clients may have needed them.
    generation: u32,
    sequence: u32,
    /// The serial of the packet that this side sent last.
    serial: u16,
    /// The serial of the packet that this side received last.
    echo: u16,
    piece: u32,
    /// The largest length in bytes that a call may have.
    bytes_max: u32,
    /// The shape of the call. If there is a result, the shape of the result.
    shape: Shape,
    pending: PendingAnswer,
    /// The number of positions that the client accepts.
    credits: u16,
    /// The number of positions that the server accepts.
    credits_here: u16,
    /// The number of the flow's round in which the flow last counted this handle as active.
    seen: u16,
    /// The number of questions that the server asked since the client's last packet.
    unanswered: u8,
    /// Whether the client answered the previous question of this call before the server sent another one.
    answers_soon: bool,
    /// Whether the client was presumed dead during this call. The call then stays cancelled, even if the
    /// client sends packets again.
    lost: bool,
    state: State,
    /// While the server receives: positions of the call that arrived after the first missing one. While it
    /// sends: missing positions of the result.
    positions: PositionSet,
}

// A server has a record even for an idle client, so the size of a record must be small.
const _: () = assert!(size_of::<ServerEnd>() <= 320);

impl ServerEnd {
    /// Makes the record of a place that has no handle.
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

    /// Gives the place to a new handle. The secret must be random, so that no old handle is accepted.
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
            // Zero credits would mean that the client must wait.
            credits_here: terms.credits_here.max(1),
            state: State::Idle,
            generation: self.generation,
            ..Self::vacant(handle.place)
        };
    }

    /// Returns whether a packet has the handle of this place, and comes from the address that bound the
    /// handle.
    #[inline]
    pub(crate) fn accepts(&self, header: &Header, peer: u64) -> bool {
        self.is_for(header) && self.peer == peer
    }

    /// Returns whether a packet has the handle of this place. The packet may come from any address.
    #[inline]
    pub(crate) fn is_for(&self, header: &Header) -> bool {
        self.handle == header.handle && !matches!(self.state, State::Vacant)
    }

    /// Returns the refusal of a packet for this place, or `None` if the client expects no answer. Called
    /// only if the record does not [accept](Self::accepts) the packet. The refusal is not longer than it.
    ///
    /// A refusal is true even if it arrives late, because a forgotten handle never becomes valid again.
    pub(crate) fn refusal_of(&self, header: &Header, table: u64) -> Option<Header> {
        let waits = match header.kind {
            PacketKind::Call | PacketKind::Probe | PacketKind::Cancel => true,
            PacketKind::HaveResult => !header.flags.has(Flags::ALL),
            _ => false,
        };
        let refusal = Header::refusal(header, table, self.generation);
        // If the handle is valid for another address, the refusal says nothing about the calls of the handle.
        let flags = Flags::NONE.with_if(self.is_for(header), Flags::ELSEWHERE);
        waits.then_some(Header { flags, ..refusal })
    }

    /// Handles a packet that this record [accepts](Self::accepts). `bitmap` is the payload of a report.
    #[inline]
    pub(crate) fn handle(
        &mut self,
        now: Moment,
        flow: &impl FlowAccess,
        header: &Header,
        bitmap: &[u8],
    ) -> Effect {
        let ahead = header.sequence.wrapping_sub(self.sequence) as i32;
        // The usual case: one packet contains a whole new call.
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

    /// Stores a call's number, shape and piece size in this record. The record then belongs to that call.
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
            // A packet that the client sent before it got the question does not answer the question.
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
            // The client sent the packet before its goodbye.
            return dropped(DropReason::Late);
        }
        // A client begins a call only when it knows that the previous one has ended.
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

    /// Handles the first piece that arrives of a newer call.
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
            // `handle` left this call to this function, because the previous call was incomplete.
            self.state = State::Executing;
            return Effect { release, action: Action::Execute(range) };
        }
        let assembly = Assembly::new(fragments, &mut self.positions);
        self.state = State::Assembling { assembly, reported: false };
        Effect { release, action: self.assemble(header, Action::Begin(range)) }
    }

    /// Handles another piece of the record's call, or a duplicate of a piece.
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
            // The client sent this piece before it began again with smaller pieces.
            return Action::Dropped(DropReason::Late);
        }
        self.note_heard(now, header);
        if header.piece < fragments.piece() {
            // The larger pieces did not arrive, so the call begins again. Nothing of it was executed.
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

    /// Drops a piece of a call for which there is no memory yet.
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

    /// Handles a piece of a call that has already arrived completely.
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

    /// Adds a piece to the assembly. Returns `new` if the piece was missing.
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
        // The piece at the last position always requests a report. After a report with missing positions, the
        // server sends another report as soon as these positions have arrived.
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

    /// Handles a probe, by which the client asks for the state of its call.
    fn handle_probe(&mut self, now: Moment, header: &Header, ahead: i32) -> Effect {
        self.note_heard(now, header);
        if ahead > 0 {
            return self.report_nothing(header.sequence);
        }
        match &mut self.state {
            State::Assembling { assembly, .. } if header.piece < assembly.fragments().piece() => {
                // The call begins again with smaller pieces. The next piece begins a new assembly.
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

    /// Reports that nothing has arrived of a newer call. The client's probe for the newer call shows that the
    /// record's call has ended for the client.
    fn report_nothing(&mut self, sequence: u32) -> Effect {
        self.pending = PendingAnswer::ReportNothing(sequence);
        self.end_call()
    }

    /// Ends the record's call.
    fn end_call(&mut self) -> Effect {
        let release = matches!(self.state, State::Replied(_));
        let abandon = matches!(self.state, State::Assembling { .. });
        self.positions.release();
        self.state = State::Idle;
        Effect { release, action: if abandon { Action::Discard } else { Action::Nothing } }
    }

    /// Handles the client's report of the pieces of the result that have arrived.
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
            // The report is late. The client sent it before it requested smaller pieces, or before it
            // received the server's report with the smaller size.
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

    /// Handles a cancellation.
    fn handle_cancel(&mut self, now: Moment, header: &Header, ahead: i32) -> Effect {
        self.note_heard(now, header);
        if ahead == 0 && matches!(self.state, State::Executing | State::Cancelled) {
            self.state = State::Cancelled;
            self.pending = PendingAnswer::Report;
            return Effect { release: false, action: Action::Nothing };
        }
        // The record takes the number of the cancelled call, so late packets cannot execute the call.
        self.sequence = header.sequence;
        self.pending = PendingAnswer::Released;
        self.end_call()
    }

    /// Handles a goodbye. The client no longer uses the handle, and does not wait for the result of its last
    /// call. The sequence in the header of a goodbye is not checked.
    fn handle_bye(&mut self) -> Effect {
        if self.phase() == RecordPhase::Running {
            // The place can be reused only after the procedure has ended.
            self.state = State::Closing;
            self.pending = PendingAnswer::Nothing;
            return Effect { release: false, action: Action::Nothing };
        }
        let release = self.end_call().release;
        self.pending = PendingAnswer::Nothing;
        Effect { release, action: Action::Forget }
    }

    /// Makes the call wait, because there is no memory for it. The pieces that have arrived are dropped. The
    /// client sends no more of the call until the server [resumes](Self::resume) it.
    pub(crate) fn wait_for_room(&mut self) {
        if let State::Assembling { .. } = self.state {
            self.state = State::Waiting;
            self.pending = PendingAnswer::Report;
        }
    }

    /// Returns whether the call that has this number waits for memory.
    pub(crate) const fn waits_for_room(&self, sequence: u32) -> bool {
        matches!(self.state, State::Waiting) && self.sequence == sequence
    }

    /// Returns the length in bytes of the record's call. Valid only while the call is incomplete.
    pub(crate) const fn call_bytes(&self) -> u32 {
        self.shape.total
    }

    /// Reports to the client that there is memory for a [waiting](Self::wait_for_room) call.
    pub(crate) fn resume(&mut self) {
        if let State::Waiting = self.state {
            let fragments = Fragments::new(self.shape.total, self.piece);
            let assembly = Assembly::new(fragments, &mut self.positions);
            self.state = State::Assembling { assembly, reported: false };
            self.pending = PendingAnswer::Report;
        }
    }

    /// Ends the procedure with this result, or refuses the call before it is executed. In both cases, no call
    /// with this number can be executed any more.
    #[inline]
    pub(crate) fn complete(&mut self, result: Shape) -> Retain {
        match self.state {
            State::Executing | State::Assembling { .. } | State::Waiting => {
                self.shape = result;
                self.state = State::Replied(Blast::new(Fragments::new(result.total, self.piece)));
                // The result also shows that the whole call has arrived, so no report is needed.
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

    /// Reduces the size of pieces, because the driver knows that larger packets do not fit the path to the
    /// client. If a result is being sent, it is divided again, and a report announces the new size to the
    /// client. Returns false if nothing changes.
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

    /// Writes the next packet to `out`. Returns `None` if there is nothing to send. The returned range is a
    /// range of the retained result.
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
        header.emit(out.first_chunk_mut().expect("a packet has a header"));
        Some(Outgoing { bytes: HEADER_BYTES, range: fragments.range(fragment) })
    }

    /// Returns the time of the next [send](Self::poll_send), if only pacing delays it.
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

    /// Writes the pending answer.
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

    /// Returns the phase of the record.
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

    /// Returns the number of the record's call.
    #[cfg(any(test, fuzzing))]
    pub(crate) const fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Returns whether a packet is a piece of the call that is being assembled.
    pub(crate) fn is_of_assembly(&self, header: &Header) -> bool {
        header.kind == PacketKind::Call
            && header.sequence == self.sequence
            && matches!(self.state, State::Assembling { .. })
    }

    /// Returns which pieces arrive next if nothing is lost: the number of their call, the call's fragments,
    /// and the position of the next piece. Returns `None` if this cannot be predicted.
    pub(crate) fn next_expected(&self) -> Option<(u32, Fragments, u32)> {
        let State::Assembling { assembly, .. } = &self.state else { return None };
        (!assembly.has_holes()).then(|| (self.sequence, *assembly.fragments(), assembly.next()))
    }

    /// Returns when the client's last packet arrived.
    pub(crate) const fn last_heard(&self) -> Moment {
        self.heard
    }

    pub(crate) const fn bound_handle(&self) -> Handle {
        self.handle
    }

    /// Returns the handle with the generation of its place, for the grant.
    pub(crate) const fn granted_handle(&self) -> GrantedHandle {
        GrantedHandle { handle: self.handle, generation: self.generation }
    }

    /// Revokes the handle. Packets with this handle have no effect afterwards.
    ///
    /// Raises the generation of the place if the client may still wait for the result of an executed call. In
    /// the states `Vacant`, `Idle`, `Assembling` and `Waiting`, no such result is lost: the client has the
    /// result, has cancelled the call, or has sent a goodbye.
    pub(crate) fn forget(&mut self) {
        debug_assert!(self.phase() != RecordPhase::Running);
        let forgets = match self.state {
            State::Replied(_) | State::Executing | State::Cancelled | State::Closing => 1,
            State::Vacant | State::Idle | State::Assembling { .. } | State::Waiting => 0,
        };
        // A result is kept for at least a minute, so the generation does not wrap around in practice.
        let generation = self.generation.wrapping_add(forgets);
        *self = Self { generation, ..Self::vacant(self.handle.place) };
    }
}

/// The terms of a record. They are set when its handle is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerTerms {
    /// The length of a full piece in bytes, until a call uses another size.
    pub(crate) piece: u32,
    /// The number of positions that the client accepts.
    pub(crate) credits: u16,
    /// The number of positions that the server accepts.
    pub(crate) credits_here: u16,
    /// The largest length in bytes that a call may have.
    pub(crate) bytes_max: u32,
}

const fn dropped(reason: DropReason) -> Effect {
    Effect { release: false, action: Action::Dropped(reason) }
}

#[cfg(test)]
mod tests;
