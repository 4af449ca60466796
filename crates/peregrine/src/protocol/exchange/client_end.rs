//! The client end of a handle. It makes one call at a time, decides when to send packets of the call, and
//! reports the outcome of the call. A handle identifies one sequence of calls and the server's record of it.
//! A piece is the part of a message that one packet carries. A position is the index of a piece in the order
//! of sending.
//!
//! | from | to | when |
//! |---|---|---|
//! | `Idle`, `AckPending` | `Sending` | [`begin`](ClientEnd::begin) |
//! | `Sending` | `Probing` | nothing of the call was sent yet, and the last packet from the server arrived long ago |
//! | `Probing` | `Sending` | the server still knows the handle |
//! | `Sending` | `Executing` | the server has all of the call |
//! | `Sending`, `Executing` | `Replied` | the server reports that it has sent the result |
//! | `Sending`, `Executing`, `Replied` | `Receiving` | a piece of a longer result arrives |
//! | the four states from `Sending` to `Receiving` | `AckPending` | the result is complete; its acknowledgement has not been sent |
//! | `AckPending` | `Idle` | [`acknowledge`](ClientEnd::acknowledge); the next call acknowledges, too |
//! | `Probing`, and the four states from `Sending` to `Receiving` | `Cancelling` | [`cancel`](ClientEnd::cancel), or a result that is too large: the handle is captured, so no call can use it yet |
//! | `Cancelling` | `Idle` | the server has released the call |
//! | any | `Closed` | the server refused the handle or gave no answer for too long, or [`close`](ClientEnd::close): the handle is never used again |
//!
//! While the server is silent, the client sends only questions, never data. It sends `PROBE` to ask about the
//! call, and `HAVE_RESULT` once the server has sent the result. Data are retransmitted only after the other
//! end has reported what is missing.

mod ending;
mod outcome;
mod probing;
#[cfg(test)]
mod tests;

use core::ops::Range;

pub(crate) use self::outcome::{
    BeginError, ClientTerms, DropReason, Executed, FailureReason, Handled, Outcome, Outgoing,
};
use super::assembly::{Assembly, PieceArrival};
use super::bind::GrantedHandle;
use super::blast::{Blast, ReceptionReport, ReportEffect, SendPath};
use super::flow::FlowAccess;
use super::header::{BITMAP_BYTES_MAX, CONTROL_BYTES_MAX, Flags, HEADER_BYTES};
use super::header::{Handle, Header, PacketKind, before, checksum};
use super::message::{self, Fragments, PIECE_MIN, Shape};
use super::positions::PositionSet;
use super::rtt::{Rtt, WAIT_MAX};
use super::time::{MILLISECOND, Moment, SECOND};
use ending::Unproven;

/// The longest interval between probes while the server answers that the procedure runs. The interval grows
/// up to this time. On average, half of the interval passes after the death of the server before the client
/// sends the next probe.
const CALM_MAX: u64 = 400 * MILLISECOND;
/// The longest interval between probes while the client only waits until the server releases a cancelled
/// call.
const CAPTURED_MAX: u64 = 2 * SECOND;
const NEVER: Moment = Moment(u64::MAX);

#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    AckPending,
    /// The client sends probes that ask whether the server still knows the handle. `first` is the serial of
    /// the first of these probes. Nothing of the call was sent.
    Probing {
        first: u16,
    },
    /// `held` is true if some positions are missing, but are perhaps only late. They are retransmitted when
    /// the timer expires.
    Sending {
        blast: Blast,
        held: bool,
    },
    Executing,
    Replied,
    Receiving {
        assembly: Assembly,
        /// What the timer does when it expires.
        timer: ReportTimer,
    },
    Cancelling,
    Closed,
}

/// What to send when the timer of an incomplete result expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportTimer {
    /// Request everything that has not arrived, because it is lost.
    Request,
    /// Report what has arrived, because the client has waited for late packets.
    Report,
}

/// A control packet that the client sends before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingControl {
    Nothing,
    Probe,
    Report(Flags),
    /// A report, and then a probe that asks for the state of the call.
    ReportAndProbe,
    Cancel,
    Bye,
}

/// The client end of one handle.
#[derive(Clone, Debug)]
pub(crate) struct ClientEnd {
    state: State,
    pending: PendingControl,
    unanswered: u8,
    fruitless: u8,
    /// Whether the server has no memory for the call. The client sends nothing of the call until the server
    /// reports that it has memory.
    waits: bool,
    /// The refusals that came without a proof that the server sent them.
    unreachable: Unproven,
    /// The serial of the packet that this side sent last.
    serial: u16,
    /// The serial of the packet that this side received last.
    echo: u16,
    sequence: u32,
    piece: u32,
    /// The number of positions that had arrived at the server when the client last retransmitted missing
    /// positions.
    had: u32,
    handle: Handle,
    /// The generation of the handle's place in the server's table, at the time when the handle was granted.
    generation: u32,
    shape: Shape,
    result: Shape,
    outcome: Option<Outcome>,
    /// Whether any packet of the call was sent.
    sent: bool,
    /// How many packets of calls this client has sent again. The count wraps around, and continues from call
    /// to call, so that the begin of a call does not touch it.
    retransmissions: u32,
    /// When the last packet of the server arrived.
    heard: Moment,
    due: Moment,
    /// Nanoseconds until the next probe if no packet arrives.
    interval: u64,
    /// Nanoseconds until the next probe, if the server answers that the procedure runs.
    calm: u64,
    /// The serial and the send time of the packet whose round trip is measured. `None` once the server has
    /// received this packet or a later one.
    timed: Option<(u16, Moment)>,
    /// The serial of the last control packet. `None` once the server has received this packet or a later one.
    asked: Option<u16>,
    rtt: Rtt,
    /// The number of positions beyond the acknowledged ones that the server accepts.
    credits: u16,
    seen: u16,
    terms: ClientTerms,
    random: u64,
    /// While the client sends: the missing positions of the call. While it receives: the positions of the
    /// result that arrived after the first missing one.
    positions: PositionSet,
}

impl ClientEnd {
    /// Makes the client end of a handle that was just bound. `round_trip` is the first measured round trip in
    /// nanoseconds.
    pub(crate) fn new(
        granted: GrantedHandle,
        terms: ClientTerms,
        round_trip: u64,
        seed: u64,
    ) -> Self {
        let GrantedHandle { handle, generation } = granted;
        Self {
            state: State::Idle,
            pending: PendingControl::Nothing,
            unanswered: 0,
            fruitless: 0,
            waits: false,
            unreachable: Unproven::default(),
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
            retransmissions: 0,
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
            positions: PositionSet::default(),
        }
    }

    /// Begins a call. Afterwards, [`poll_send`](Self::poll_send) returns the packets of the call.
    ///
    /// # Errors
    /// Fails if the handle is busy or closed, or if the call is larger than agreed or has contradictory
    /// lengths. Nothing was executed.
    #[inline]
    pub(crate) fn begin(&mut self, call: Shape) -> Result<(), BeginError> {
        if !matches!(self.state, State::Idle | State::AckPending) || self.outcome.is_some() {
            return Err(if self.is_closed() { BeginError::Closed } else { BeginError::Busy });
        }
        if call.total > self.terms.call_bytes_max || !call.fits_call() {
            return Err(BeginError::TooLarge);
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.shape = call;
        self.state = State::Sending {
            blast: Blast::new(Fragments::new(call.total, self.piece)),
            held: false,
        };
        // The new call acknowledges the previous result, so no separate acknowledgement is sent.
        self.pending = PendingControl::Nothing;
        (self.sent, self.timed, self.asked) = (false, None, None);
        self.unanswered = 0;
        self.fruitless = 0;
        self.waits = false;
        self.had = 0;
        self.interval = self.rtt.wait();
        Ok(())
    }

    /// Writes the next packet to `out`. Returns `None` if there is nothing to send.
    #[inline]
    pub(crate) fn poll_send(
        &mut self,
        now: Moment,
        flow: &impl FlowAccess,
        out: &mut [u8; CONTROL_BYTES_MAX],
    ) -> Option<Outgoing> {
        if self.pending != PendingControl::Nothing {
            return Some(self.write_control(now, out));
        }
        if !matches!(self.state, State::Sending { .. }) {
            return None;
        }
        if !self.sent && now.since(self.heard) > self.rtt.trusted_for() {
            return Some(self.probe_before_call(now, out));
        }
        let State::Sending { blast, held } = &mut self.state else { return None };
        if self.waits {
            return None;
        }
        let serial = self.serial.wrapping_add(1);
        let path = &mut SendPath { now, credits: self.credits, flow, seen: &mut self.seen };
        let (position, flags) = blast.poll(serial, path, *held, &mut self.positions)?;
        let (fragments, held) = (*blast.fragments(), *held);
        self.serial = serial;
        self.sent = true;
        if !held {
            self.due = now.after(self.interval);
        }
        if flags.has(Flags::RESENT) {
            self.retransmissions = self.retransmissions.wrapping_add(1);
        }
        if flags.has(Flags::REPORT) || position == fragments.count() - 1 {
            self.time_answer(serial, now);
        }
        let fragment = fragments.fragment(position);
        let header =
            Header { flags, shape: self.shape, fragment, ..self.header(PacketKind::Call, serial) };
        header.emit(out.first_chunk_mut().expect("a packet has a header"));
        Some(Outgoing { bytes: HEADER_BYTES, range: fragments.range(fragment) })
    }

    /// Measures the time until the answer to a packet, unless this is already measured for an earlier packet.
    /// If the round trip is longer than the estimate, the client sends several packets in each round trip. If
    /// each packet restarted the measurement, the client would then never complete one.
    #[inline]
    fn time_answer(&mut self, serial: u16, now: Moment) {
        self.timed.get_or_insert((serial, now));
    }

    /// Probes the server before anything of the call is sent. The server may have restarted since its last
    /// packet, or may have forgotten the handle. If the server refuses the probe, this proves that the call
    /// was not executed. The clock only decides whether the probe is worth a round trip. The proof does not
    /// depend on the clock.
    #[cold]
    fn probe_before_call(&mut self, now: Moment, out: &mut [u8; CONTROL_BYTES_MAX]) -> Outgoing {
        self.state = State::Probing { first: self.serial.wrapping_add(1) };
        self.pending = PendingControl::Probe;
        self.due = now.after(self.interval);
        self.write_control(now, out)
    }

    #[inline]
    fn header(&self, kind: PacketKind, serial: u16) -> Header {
        Header {
            serial,
            echo: self.echo,
            piece: self.piece,
            credits: self.terms.credits_here,
            ..Header::new(kind, self.handle, self.sequence)
        }
    }

    /// Writes the pending control packet.
    #[cold]
    fn write_control(&mut self, now: Moment, out: &mut [u8; CONTROL_BYTES_MAX]) -> Outgoing {
        self.serial = self.serial.wrapping_add(1);
        let mut bytes = HEADER_BYTES;
        let header = match core::mem::replace(&mut self.pending, PendingControl::Nothing) {
            PendingControl::Probe => self.header(PacketKind::Probe, self.serial),
            PendingControl::Cancel => self.header(PacketKind::Cancel, self.serial),
            pending @ (PendingControl::Report(_) | PendingControl::ReportAndProbe) => {
                let mut flags = Flags::REPORT;
                match pending {
                    PendingControl::Report(of_report) => flags = of_report,
                    _ => self.pending = PendingControl::Probe,
                }
                let mut bitmap = [0; BITMAP_BYTES_MAX];
                let mut header = self.header(PacketKind::HaveResult, self.serial);
                header.flags = flags;
                if let State::Receiving { assembly, .. } = &self.state {
                    let (next, length) = assembly.report(&self.positions, &mut bitmap);
                    (header.fragment, header.shape.total) = (next, assembly.received_count());
                    bytes += length;
                    out[HEADER_BYTES..bytes].copy_from_slice(&bitmap[..length]);
                }
                header
            }
            PendingControl::Bye | PendingControl::Nothing => {
                self.header(PacketKind::Bye, self.serial)
            }
        };
        self.asked = Some(self.serial);
        self.time_answer(self.serial, now);
        emit_with(header, out, bytes);
        Outgoing { bytes, range: 0..0 }
    }

    /// Handles a packet of the server. `bitmap` is the payload if the packet is a report.
    #[inline]
    pub(crate) fn handle(
        &mut self,
        now: Moment,
        flow: &impl FlowAccess,
        header: &Header,
        bitmap: &[u8],
    ) -> Handled {
        if header.handle != self.handle {
            return Handled::Dropped(DropReason::UnknownHandle);
        }
        // The usual case: one packet contains the whole result.
        if header.kind == PacketKind::Result
            && header.sequence == self.sequence
            && let State::Sending { .. } = self.state
            && header.shape.total <= header.piece
            && header.shape.total <= self.terms.result_bytes_max
        {
            self.note_heard(now, header);
            return self.finish_with_result(header.shape, 0..header.shape.total);
        }
        self.handle_slowly(now, flow, header, bitmap)
    }

    #[inline]
    fn finish_with_result(&mut self, result: Shape, range: Range<u32>) -> Handled {
        self.outcome = Some(Outcome::Returned(result));
        self.state = State::AckPending;
        self.pending = PendingControl::Nothing;
        self.due = NEVER;
        Handled::Place(range)
    }

    /// Notes a packet of the current call. The packet shows that the server is alive.
    #[inline]
    fn note_heard(&mut self, now: Moment, header: &Header) {
        self.echo = header.serial;
        self.heard = now;
        self.unanswered = 0;
        self.unreachable.count = 0;
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
        flow: &impl FlowAccess,
        header: &Header,
        bitmap: &[u8],
    ) -> Handled {
        if header.kind == PacketKind::Refused {
            return self.handle_refusal(header);
        }
        if header.sequence != self.sequence {
            return Handled::Dropped(DropReason::Late);
        }
        if header.kind == PacketKind::Ask {
            return self.handle_ask(now, header);
        }
        match (header.kind, self.state) {
            (PacketKind::Released | PacketKind::HaveCall, State::Cancelling) => {
                self.handle_released(now, header)
            }
            (PacketKind::Result, State::Cancelling)
            | (PacketKind::Released, State::Idle | State::Closed)
            | (PacketKind::Result, State::Probing { .. })
            | (
                PacketKind::Result | PacketKind::HaveCall,
                State::Idle | State::AckPending | State::Closed,
            ) => Handled::Dropped(DropReason::Late),
            (PacketKind::HaveCall, State::Probing { first }) => {
                self.handle_known(now, first, header)
            }
            (PacketKind::Result, _) => self.handle_result(now, header),
            (PacketKind::HaveCall, _) => self.handle_call_report(now, flow, header, bitmap),
            _ => Handled::Dropped(DropReason::Violation),
        }
    }

    /// Handles the answer to a probe. The server still knows the handle, so the client may send the call.
    fn handle_known(&mut self, now: Moment, first: u16, header: &Header) -> Handled {
        if header.flags.has(Flags::ALL) {
            return Handled::Dropped(DropReason::Violation);
        }
        // The server sent this packet before it received the first probe, so the packet proves nothing.
        if before(header.echo, first) {
            return Handled::Dropped(DropReason::Late);
        }
        self.note_heard(now, header);
        // A server that lacks memory for a call sends zero credits, but only after it has received a part of
        // the call. This server has received nothing of the call, so zero credits count as one.
        self.credits = header.credits.max(1);
        let fragments = Fragments::new(self.shape.total, self.piece);
        self.state = State::Sending { blast: Blast::new(fragments), held: false };
        self.interval = self.rtt.wait();
        Handled::Nothing
    }

    /// Handles a piece of the result.
    fn handle_result(&mut self, now: Moment, header: &Header) -> Handled {
        if header.shape.total > self.terms.result_bytes_max {
            self.cancel_because(now, FailureReason::Protocol);
            return Handled::Dropped(DropReason::Violation);
        }
        let fragments = header.fragments();
        if fragments.count() == 1 {
            self.note_heard(now, header);
            return self.finish_with_result(header.shape, 0..header.shape.total);
        }
        if header.piece != self.piece {
            // The server sent this piece before it received the request for smaller pieces.
            return Handled::Dropped(DropReason::Late);
        }
        let (mut assembly, mut timer) = match self.state {
            State::Receiving { assembly, timer } => {
                if header.shape != self.result {
                    return Handled::Dropped(DropReason::Violation);
                }
                (assembly, timer)
            }
            _ => {
                self.result = header.shape;
                self.pending = PendingControl::Nothing;
                (Assembly::new(fragments, &mut self.positions), ReportTimer::Request)
            }
        };
        self.note_heard(now, header);
        let arrival = assembly.receive(fragments.position(header.fragment), &mut self.positions);
        if assembly.is_whole() && arrival == PieceArrival::New {
            return self.finish_with_result(header.shape, fragments.range(header.fragment));
        }
        if arrival == PieceArrival::New {
            self.fruitless = 0;
        }
        self.interval = self.rtt.wait();
        let is_requested = header.flags.has(Flags::REPORT);
        if !assembly.has_holes() {
            // No position before the last arrived one is missing, so a report need not wait for late packets.
            if is_requested || timer == ReportTimer::Report {
                self.pending = PendingControl::Report(Flags::NONE);
            }
            timer = ReportTimer::Request;
            self.due = now.after(self.interval);
        } else if timer == ReportTimer::Request {
            let report = is_requested || assembly.has_last();
            timer = if report { ReportTimer::Report } else { ReportTimer::Request };
            let wait = if report { self.rtt.reorder_allowance() } else { self.interval };
            self.due = now.after(wait);
        }
        self.state = State::Receiving { assembly, timer };
        match arrival {
            PieceArrival::New => Handled::Place(fragments.range(header.fragment)),
            PieceArrival::Duplicate => Handled::Dropped(DropReason::Duplicate),
            PieceArrival::OutOfWindow => Handled::Dropped(DropReason::Violation),
        }
    }

    /// Handles the server's report of the pieces of the call that have arrived.
    fn handle_call_report(
        &mut self,
        now: Moment,
        flow: &impl FlowAccess,
        header: &Header,
        bitmap: &[u8],
    ) -> Handled {
        if !header.holds(bitmap) {
            return Handled::Dropped(DropReason::Damaged);
        }
        let question = self.asked.or(self.timed.map(|(serial, _)| serial));
        let answers = question == Some(header.echo);
        let silent = self.unanswered > 0;
        self.note_heard(now, header);
        if header.flags.has(Flags::ALL) {
            self.credits = header.credits;
            let replied = header.flags.has(Flags::REPLIED);
            if replied && header.piece < self.piece && self.is_in_progress() {
                self.accept_smaller_pieces(now, header.piece);
                return Handled::Nothing;
            }
            let asked = matches!(self.state, State::Replied | State::Receiving { .. });
            if asked && replied && answers && silent {
                self.note_result_withheld(now);
                return Handled::Nothing;
            }
            return self.call_is_received(now, replied, answers);
        }
        let State::Sending { blast, held } = &mut self.state else {
            return Handled::Dropped(DropReason::Late);
        };
        if header.credits == 0 {
            return self.wait_for_room(now);
        }
        self.credits = header.credits;
        if core::mem::take(&mut self.waits) && header.fragment == 0 && bitmap.is_empty() {
            // The server kept nothing of what the client sent before, but no packet was lost.
            self.retransmissions = self.retransmissions.wrapping_add(blast.sent_count());
            (*blast, *held) = (blast.restarted(), false);
            self.interval = self.rtt.wait();
            self.due = now.after(self.interval);
            return Handled::Nothing;
        }
        // If the report is about pieces of another size, no piece of the current size has arrived.
        let same = header.piece == self.piece;
        let have = ReceptionReport {
            next: if same { header.fragment } else { 0 },
            bitmap: if same { bitmap } else { &[] },
            had: if same { header.shape.total } else { 0 },
            echo: header.echo,
            waited: false,
        };
        let path = &mut SendPath { now, credits: self.credits, flow, seen: &mut self.seen };
        match blast.handle_report(&have, path, &mut self.positions) {
            ReportEffect::Invalid => return Handled::Dropped(DropReason::Late),
            ReportEffect::Progress => {
                *held = false;
                self.interval = self.rtt.wait();
                self.due = now.after(self.interval);
            }
            ReportEffect::NewLosses => {
                if !*held {
                    self.due = now.after(self.rtt.reorder_allowance());
                }
                *held = true;
            }
            ReportEffect::StillMissing if *held => {}
            // The report answers the last control packet of the client. So each piece that the client sent
            // before that packet has arrived or is lost.
            ReportEffect::StillMissing if answers => self.retransmit_missing(now),
            ReportEffect::StillMissing => self.due = now.after(self.interval),
        }
        Handled::Nothing
    }

    /// Stops sending, because the server has no memory for the call. The server sends a packet as soon as it
    /// has memory. The client sends probes, in case that packet is lost.
    fn wait_for_room(&mut self, now: Moment) -> Handled {
        self.calm = if self.waits { (self.calm * 2).min(CALM_MAX) } else { WAIT_MAX };
        self.waits = true;
        self.due = now.after(self.calm);
        Handled::Nothing
    }

    /// Accepts smaller pieces of the result, because pieces of the agreed size do not fit the path from the
    /// server. Larger pieces that have arrived are discarded.
    fn accept_smaller_pieces(&mut self, now: Moment, piece: u32) {
        (self.piece, self.fruitless) = (piece, 0);
        self.state = State::Replied;
        self.pending = PendingControl::Nothing;
        self.interval = self.rtt.wait();
        self.due = now.after(self.rtt.reorder_allowance());
    }

    fn call_is_received(&mut self, now: Moment, replied: bool, answers: bool) -> Handled {
        match self.state {
            State::Sending { .. } | State::Executing if replied => {
                // The result is on its way, or lost. If it is still missing when the timer expires, the
                // client requests it.
                self.state = State::Replied;
                self.pending = PendingControl::Nothing;
                self.interval = self.rtt.wait();
                self.due = now.after(self.rtt.reorder_allowance());
            }
            State::Sending { .. } => {
                self.state = State::Executing;
                self.pending = PendingControl::Nothing;
                self.calm = self.rtt.probe_interval_max();
                self.due = now.after(self.calm);
            }
            State::Executing if answers => self.lengthen_interval(now),
            State::Executing | State::Replied | State::Receiving { .. } => {}
            _ => return Handled::Dropped(DropReason::Late),
        }
        Handled::Nothing
    }

    /// Doubles the time until the next probe, because the server answers that the procedure still runs.
    fn lengthen_interval(&mut self, now: Moment) {
        let waits = matches!(self.state, State::Executing);
        let most = if waits { CALM_MAX } else { CAPTURED_MAX };
        self.calm = (self.calm * 2).min(most.max(self.rtt.probe_interval_max()));
        self.due = now.after(self.calm);
    }

    fn handle_released(&mut self, now: Moment, header: &Header) -> Handled {
        self.note_heard(now, header);
        if header.kind == PacketKind::Released {
            self.state = State::Idle;
            self.pending = PendingControl::Nothing;
            self.due = NEVER;
        } else if header.flags.has(Flags::ALL) {
            self.lengthen_interval(now);
        }
        Handled::Nothing
    }

    /// Handles the server's question whether the client still waits for the call.
    fn handle_ask(&mut self, now: Moment, header: &Header) -> Handled {
        match self.state {
            State::Sending { .. } | State::Executing => {
                self.note_heard(now, header);
                self.call_is_received(now, false, false);
                self.pending = PendingControl::Probe;
            }
            State::Cancelling => {
                self.note_heard(now, header);
                self.pending = PendingControl::Cancel;
            }
            // The client has closed the handle, and sends its goodbye again.
            State::Closed => self.pending = PendingControl::Bye,
            // The question is late. The server asked before it sent the result.
            State::Idle
            | State::AckPending
            | State::Probing { .. }
            | State::Replied
            | State::Receiving { .. } => {
                return Handled::Dropped(DropReason::Late);
            }
        }
        Handled::Nothing
    }

    /// Returns whether a call has begun and has not ended.
    #[inline]
    pub(crate) const fn is_in_progress(&self) -> bool {
        matches!(
            self.state,
            State::Probing { .. }
                | State::Sending { .. }
                | State::Executing
                | State::Replied
                | State::Receiving { .. }
        )
    }

    /// Reduces the size of pieces. The driver, the code that sends and receives the packets, knows that
    /// larger packets do not fit the path. If a call is being sent, it begins again. If a result is being
    /// received, its pieces keep their size.
    pub(crate) fn reduce_piece(&mut self, piece: u32, now: Moment) {
        let piece = (piece & !15).max(PIECE_MIN);
        if piece >= self.piece {
            return;
        }
        match self.state {
            State::Idle | State::AckPending => self.piece = piece,
            State::Sending { .. } => {
                (self.piece, self.fruitless, self.had) = (piece, 0, 0);
                let fragments = Fragments::new(self.shape.total, self.piece);
                self.state = State::Sending { blast: Blast::resent(fragments), held: false };
                self.due = now.after(self.interval);
            }
            _ => {}
        }
    }

    /// Returns the time at which to call [`handle_timer`](Self::handle_timer).
    #[inline]
    pub(crate) fn next_timer(&self) -> Option<Moment> {
        (self.due != NEVER).then_some(self.due)
    }

    /// Returns the time of the next [send](Self::poll_send), if only pacing delays it.
    #[inline]
    pub(crate) fn next_send(&self) -> Option<Moment> {
        match &self.state {
            State::Sending { blast, .. } if !self.waits => blast.due(),
            _ => None,
        }
    }

    /// Handles the expiry of the timer. Does nothing before the time that [`next_timer`](Self::next_timer)
    /// returns.
    pub(crate) fn handle_timer(&mut self, now: Moment) {
        if now < self.due {
            return;
        }
        match &mut self.state {
            State::Sending { held, .. } if *held && !self.waits => self.retransmit_missing(now),
            State::Probing { .. } | State::Sending { .. } | State::Executing => {
                self.ask_again(now, PendingControl::Probe)
            }
            State::Receiving { timer, .. } if *timer == ReportTimer::Report => {
                *timer = ReportTimer::Request;
                self.pending = PendingControl::Report(Flags::NONE);
                self.due = now.after(self.interval);
            }
            State::Receiving { .. } | State::Replied => self.request_result(now),
            State::Cancelling => self.ask_again(now, PendingControl::Cancel),
            State::Idle | State::AckPending | State::Closed => self.due = NEVER,
        }
    }

    /// Returns how the call ended. Returns this only once for each call.
    #[inline]
    pub(crate) fn outcome(&mut self) -> Option<Outcome> {
        self.outcome.take()
    }

    /// Returns whether the server keeps a result that the client has not acknowledged yet.
    #[inline]
    pub(crate) const fn owes_acknowledgement(&self) -> bool {
        matches!(self.state, State::AckPending)
    }

    /// Acknowledges the last result explicitly, because no further call has done so.
    pub(crate) fn acknowledge(&mut self) {
        if self.owes_acknowledgement() {
            self.state = State::Idle;
            self.pending = PendingControl::Report(Flags::ALL);
        }
    }

    /// Returns whether the server has not yet released a cancelled call.
    pub(crate) const fn is_captured(&self) -> bool {
        matches!(self.state, State::Cancelling)
    }

    /// Returns whether the handle can no longer be used.
    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    pub(crate) const fn bound_handle(&self) -> Handle {
        self.handle
    }

    #[cfg(test)]
    #[allow(dead_code)] // used by the simulator
    pub(crate) const fn sequence(&self) -> u32 {
        self.sequence
    }

    pub(crate) const fn piece(&self) -> u32 {
        self.piece
    }
}

/// Writes a header. If the packet has a bitmap, adds the checksum of the bitmap.
pub(super) fn emit_with(mut header: Header, out: &mut [u8; CONTROL_BYTES_MAX], bytes: usize) {
    if bytes > HEADER_BYTES {
        header.flags = header.flags.with(Flags::CHECKED);
        header.check = checksum(&out[HEADER_BYTES..bytes]);
    }
    header.emit(out.first_chunk_mut().expect("a packet has a header"));
}
