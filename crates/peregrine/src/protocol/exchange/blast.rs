//! The sending end of a message. A *blast* sends all pieces of a message without waiting for
//! acknowledgements. A *position* is the index of a piece in the order of sending. This module decides which
//! position to send next, at which rate, and what to retransmit.

use super::flow::{Flow, FlowAccess, Pace};
use super::header::{BITMAP_BYTES_MAX, Flags, before};
use super::message::Fragments;
use super::positions::{PositionSet, SPAN};
use super::time::{MILLISECOND, Moment};

/// The usual number of reports that the sender requests while it sends one window of positions.
const ASKS: u32 = 8;
/// The smallest number of positions between two requests for a report, if the positions are not paced.
const ASK_AFTER: u32 = 16;
/// The smallest number of positions between two requests for a report, if the positions are paced. The number
/// is small, because after each report the sender may send about this number of positions in one burst.
const ASK_AFTER_PACED: u32 = 4;
/// A paced sender requests a report at least once in this time, in nanoseconds. If it sends fewer than
/// [`ASK_AFTER_PACED`] positions in this time, it requests reports less often.
const ASK_TIME: u64 = MILLISECOND / 5;
/// A paced sender sends at once all positions that are due within this time. The burst is small, like the
/// bursts of TCP (two packets for each acknowledgement). With larger bursts, the losses of a sender would be
/// concentrated in fewer overflows of a queue. Then the sender would reduce its window less often than TCP,
/// and would take more than its fair share.
const BURST: u64 = MILLISECOND;
/// The smallest number of positions in a burst.
const BURST_MIN: u64 = 2;
/// The largest number of positions in a burst.
const BURST_MAX: u64 = 44;

/// The receiver's report of which positions have arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceptionReport<'a> {
    /// All positions below this one have arrived.
    pub(crate) next: u32,
    /// Bit i of byte j shows whether position `next + 8 j + i` has arrived.
    pub(crate) bitmap: &'a [u8],
    /// The number of positions that have arrived. Positions that did not fit into the bitmap are included.
    pub(crate) had: u32,
    /// The serial of the last packet that arrived at the receiver.
    pub(crate) echo: u16,
    /// Whether the receiver has waited for late packets. If it has, all positions that were sent and have not
    /// arrived are lost.
    pub(crate) waited: bool,
}

impl ReceptionReport<'_> {
    fn has(&self, position: u32) -> bool {
        let bit = position - self.next;
        self.bitmap.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    }

    /// Returns one more than the last position that has arrived according to the report.
    fn end(&self) -> u32 {
        let last = self.bitmap.iter().rposition(|byte| *byte != 0);
        last.map_or(self.next, |at| self.next + 8 * at as u32 + 8 - self.bitmap[at].leading_zeros())
    }

    /// Returns the end of the range that the report covers. For each position below this end, the report says
    /// whether the position has arrived.
    fn covered_end(&self) -> u32 {
        let full = self.bitmap.len() == BITMAP_BYTES_MAX;
        if full { self.next.saturating_add(8 * BITMAP_BYTES_MAX as u32) } else { u32::MAX }
    }
}

/// The state of the path to the receiver, as the sender knows it.
pub(crate) struct SendPath<'a, L> {
    pub(crate) now: Moment,
    /// The number of positions that the receiver accepts.
    pub(crate) credits: u16,
    pub(crate) flow: &'a L,
    /// The number of the flow's round in which the flow last counted this handle as active. A round of the
    /// flow lasts about one round trip, and is not a `Round` of retransmission.
    pub(crate) seen: &'a mut u16,
}

impl<L: FlowAccess> SendPath<'_, L> {
    /// Returns the number of positions that this handle may have in flight.
    fn share(&mut self, flow: &mut Flow) -> u32 {
        flow.share(self.now, self.credits, self.seen)
    }
}

/// The effect of a [`ReceptionReport`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportEffect {
    /// The report has no effect, because it is late or impossible.
    Invalid,
    /// No position is known to be lost. There may be more positions to send.
    Progress,
    /// Positions are missing, although none was missing before.
    NewLosses,
    /// Positions are still missing.
    StillMissing,
}

/// The current round of retransmission. The rounds show which retransmitted positions are lost again.
///
/// All missing positions below [`Blast::declared`] either were retransmitted, or wait for retransmission. A
/// round begins when the first of these positions is retransmitted. The round consists of all positions that
/// are below `declared` at that time. Once the last packet of the round has arrived, the positions of the
/// round that have not arrived are lost again. Positions that are declared lost during the round form the
/// next round.
///
/// A round also ends as soon as all of its positions have arrived. The reason: serials wrap around, so the
/// last serial of a round can be compared only for a limited time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    None,
    /// The round ends at this position. Some positions of the round still wait for retransmission.
    Open(u32),
    /// The round ends at this position. All of its missing positions were retransmitted, in packets up to the
    /// one with this serial.
    Sent(u32, u16),
}

/// The state of a message that this side sends.
///
/// Positions that wait for retransmission are in a [`PositionSet`], which the owner passes to each
/// function. A message of one packet uses the set only if the packet is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blast {
    fragments: Fragments,
    /// All positions below this one have arrived at the receiver.
    base: u32,
    /// The first position that has not been sent since the message began, or since it last began again.
    next: u32,
    /// If the message began again with the same pieces, this is the end of the positions that were sent
    /// before the restart. Otherwise zero.
    earlier: u32,
    /// The number of positions that wait for retransmission.
    missing: u32,
    /// The largest number of arrived positions that the receiver has reported.
    had: u32,
    /// All missing positions below this one were declared lost at least once.
    declared: u32,
    again: Round,
    /// Positions below this one were sent before the last reduction of the window.
    recovery: u32,
    /// The value of [`Flow::reductions`] when this handle last read it.
    reductions: u16,
    /// The number of positions sent since the last report or request for a report, whichever was later.
    unasked: u16,
    /// The serial of the packet that carried the last position that was sent.
    newest: u16,
    /// The serial of the packet whose round trip is measured.
    timed: u16,
    /// The time at which the packet with the serial `timed` was sent. Zero if no round trip is measured.
    timed_at: Moment,
    /// The pacing clock. It holds the time at which the last position was due.
    paced: Moment,
    /// Whether pacing delays the next position.
    waits: bool,
    /// Whether the message was sent before, in pieces of another size.
    is_resent: bool,
}

impl Blast {
    /// Makes the state of a message that was never sent.
    #[inline]
    pub(crate) fn new(fragments: Fragments) -> Self {
        Self {
            fragments,
            base: 0,
            next: 0,
            earlier: 0,
            missing: 0,
            had: 0,
            declared: 0,
            again: Round::None,
            recovery: 0,
            reductions: 0,
            unasked: 0,
            newest: 0,
            timed: 0,
            timed_at: Moment(0),
            paced: Moment(0),
            waits: false,
            is_resent: false,
        }
    }

    /// Makes the state of a message that is sent again, perhaps in pieces of another size.
    pub(crate) fn resent(fragments: Fragments) -> Self {
        Self { is_resent: true, ..Self::new(fragments) }
    }

    /// Returns the state in which this message begins again from its start. The receiver has reported that it
    /// kept nothing of the message. That report may be old, and positions may have arrived since. So later
    /// reports may contain positions that were sent before the restart.
    pub(crate) fn restarted(&self) -> Self {
        Self { earlier: self.next.max(self.earlier), ..Self::new(self.fragments) }
    }

    #[inline]
    pub(crate) const fn fragments(&self) -> &Fragments {
        &self.fragments
    }

    /// Returns the number of positions that were sent since the message began, or since it last began again.
    pub(crate) const fn sent_count(&self) -> u32 {
        self.next
    }

    /// Returns the largest number of arrived positions that the receiver has reported.
    pub(crate) const fn had(&self) -> u32 {
        self.had
    }

    /// Returns when the next position is due, if only pacing delays it.
    #[inline]
    pub(crate) fn due(&self) -> Option<Moment> {
        self.waits.then_some(self.paced)
    }

    /// Returns the number of positions that are in flight, as far as the sender knows.
    const fn in_flight(&self) -> u32 {
        (self.next - self.missing).saturating_sub(self.had)
    }

    /// Returns the next position to send, with its flags. Returns `None` if nothing can be sent until a
    /// report arrives or a position is [due](Self::due). If `hold` is true, missing positions are perhaps
    /// only late, so they are not retransmitted yet.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        serial: u16,
        path: &mut SendPath<'_, impl FlowAccess>,
        hold: bool,
        missing: &mut PositionSet,
    ) -> Option<(u32, Flags)> {
        // A message of one packet is sent without pacing, unless the message is sent again.
        if self.fragments.count() == 1 && self.next == 0 && !self.is_resent {
            self.next = 1;
            self.newest = serial;
            return Some((0, Flags::NONE));
        }
        self.poll_many(serial, path, hold, missing)
    }

    fn poll_many(
        &mut self,
        serial: u16,
        path: &mut SendPath<'_, impl FlowAccess>,
        hold: bool,
        missing: &mut PositionSet,
    ) -> Option<(u32, Flags)> {
        self.waits = false;
        let again = if hold || self.missing == 0 {
            None
        } else {
            Some(missing.first(self.base, self.base, self.next)?)
        };
        // The receiver's position set cannot contain positions that are `SPAN` or more beyond the base.
        let more = self.next < self.fragments.count() && self.next - self.base < SPAN;
        if again.is_none() && !more {
            return None;
        }
        let (size, interval, sends) = path.flow.with_flow(|flow| {
            if self.next == 0 {
                self.reductions = flow.reductions();
            } else if self.reductions != flow.reductions() {
                // Another handle has reduced the window. The loss of positions that this handle sent before
                // the reduction must not reduce the window again.
                (self.reductions, self.recovery) = (flow.reductions(), self.next);
            }
            if again.is_some_and(|position| position >= self.recovery) {
                flow.reduce();
                (self.reductions, self.recovery) = (flow.reductions(), self.next);
            }
            let share = path.share(flow);
            let pace = flow.pace(share);
            let sends = self.in_flight() < share && !self.must_wait(path.now, &pace);
            if sends {
                flow.sends(path.now);
            }
            (share, pace.interval, sends)
        });
        if !sends {
            return None;
        }
        let mut flags = Flags::NONE;
        let position = match again {
            Some(position) => {
                missing.remove(self.base, position);
                self.missing -= 1;
                self.note_retransmission(position, serial, missing);
                // The packet with the last missing position requests a report, because perhaps no other
                // packet follows this one.
                flags = Flags::RESENT.with_if(self.missing == 0, Flags::REPORT);
                position
            }
            None => {
                self.next += 1;
                flags = flags.with_if(self.is_resent, Flags::RESENT);
                self.next - 1
            }
        };
        self.newest = serial;
        self.unasked += 1;
        if self.requests_report(size, interval) {
            flags = flags.with(Flags::REPORT);
        }
        if flags.has(Flags::REPORT) {
            self.unasked = 0;
            if self.timed_at == Moment(0) {
                (self.timed, self.timed_at) = (serial, path.now);
            }
        }
        Some((position, flags))
    }

    /// Returns whether the next position must wait. If it need not wait, the pacing clock counts it as sent.
    fn must_wait(&mut self, now: Moment, pace: &Pace) -> bool {
        let interval = pace.interval;
        if interval == 0 {
            return false;
        }
        // At the start of a message the sender is treated as late, so it sends the first positions at once.
        let late = if self.next == 0 { u64::from(pace.first) * interval } else { pace.late };
        let burst = (BURST / interval).clamp(BURST_MIN, BURST_MAX) * interval;
        self.paced = self.paced.max(Moment(now.0.saturating_sub(late)));
        self.waits = self.paced.since(now) >= burst;
        if !self.waits {
            self.paced = self.paced.after(interval);
        }
        self.waits
    }

    fn note_retransmission(&mut self, position: u32, serial: u16, missing: &PositionSet) {
        let end = match self.again {
            Round::None => self.declared,
            Round::Open(end) => end,
            Round::Sent(..) => return,
        };
        let last = missing.first(self.base, position, end).is_none();
        self.again = if last { Round::Sent(end, serial) } else { Round::Open(end) };
    }

    /// Returns whether the current position requests a report. Several positions of each window request a
    /// report, and so does the last position before the sender must stop. If the rest of the message can
    /// follow at once, no position requests a report. The receiver answers the end of a message in any case.
    fn requests_report(&self, size: u32, interval: u64) -> bool {
        let rest = self.fragments.count() - self.next + self.missing;
        let full = self.next - self.base >= SPAN;
        let room =
            if full && self.missing == 0 { 0 } else { size.saturating_sub(self.in_flight()) };
        let often = match ASK_TIME.checked_div(interval) {
            None => (size / ASKS).max(ASK_AFTER),
            Some(positions) => (size / ASKS).min(positions as u32).max(ASK_AFTER_PACED),
        };
        let often = often.min(size.div_ceil(2));
        rest > room && (u32::from(self.unasked) >= often || room == 0)
    }

    /// Handles the receiver's report.
    pub(crate) fn handle_report(
        &mut self,
        have: &ReceptionReport<'_>,
        path: &mut SendPath<'_, impl FlowAccess>,
        missing: &mut PositionSet,
    ) -> ReportEffect {
        let sent = self.next.max(self.earlier);
        if have.next < self.base || have.next > sent {
            return ReportEffect::Invalid;
        }
        let end = have.end();
        if end > sent {
            return ReportEffect::Invalid;
        }
        if end > self.next {
            // The positions up to `end` were sent before the message began again. If some of them are
            // missing, this is no sign of congestion.
            (self.next, self.recovery) = (end, end);
        }
        let (flying, was_missing) = (self.in_flight(), self.missing > 0);
        let had = have.had.clamp(have.next, self.next).max(self.had);
        let progress = had - core::mem::replace(&mut self.had, had);
        self.sample_round_trip(have, path);
        // If the last packet has arrived, or the receiver has waited, each sent position has either arrived
        // or is lost.
        let settled = have.waited || !before(have.echo, self.newest);
        let known = if settled { self.next.min(have.covered_end()) } else { end };
        if self.missing == 0 && known == have.next && self.declared <= known {
            (self.base, self.again) = (known, Round::None);
        } else {
            self.find_missing(have, known, settled, missing);
        }
        self.unasked = 0;
        // Positions that were sent before the last reduction do not show whether the smaller window can grow.
        if progress > 0 && self.missing == 0 && self.base >= self.recovery {
            path.flow.with_flow(|flow| {
                let share = path.share(flow);
                // The window grows only if the sender used it. That is the case if the message does not fit
                // into the window, and at least half of the window was in flight.
                if self.fragments.count() > share && flying >= share / 2 {
                    flow.acknowledged(path.now, progress);
                }
            });
        }
        match (was_missing, self.missing > 0) {
            (_, false) => ReportEffect::Progress,
            (false, true) => ReportEffect::NewLosses,
            (true, true) => ReportEffect::StillMissing,
        }
    }

    /// Measures the round trip of the timed position, unless that position was lost or the receiver
    /// delayed its answer.
    fn sample_round_trip(
        &mut self,
        have: &ReceptionReport<'_>,
        path: &SendPath<'_, impl FlowAccess>,
    ) {
        if self.timed_at == Moment(0) || before(have.echo, self.timed) {
            return;
        }
        let sent = core::mem::replace(&mut self.timed_at, Moment(0));
        if have.echo == self.timed && !have.waited && have.bitmap.is_empty() {
            path.flow.with_flow(|flow| flow.sample(path.now.since(sent)));
        }
    }

    /// Finds missing positions. These are the positions below `known` that have not arrived and were not
    /// declared lost before. Retransmitted positions that have not arrived are missing again when their round
    /// is over, or if `settled` is true. `settled` means that each position that was sent has arrived or is
    /// lost.
    fn find_missing(
        &mut self,
        have: &ReceptionReport<'_>,
        known: u32,
        settled: bool,
        set: &mut PositionSet,
    ) {
        if self.missing == 0 {
            // The set may still contain positions of an earlier message or round.
            set.clear();
        }
        // Positions that have arrived meanwhile need no retransmission.
        let mut at = self.base;
        while let Some(position) = set.first(self.base, at, self.declared) {
            if position < have.next || have.has(position) {
                set.remove(self.base, position);
                self.missing -= 1;
            }
            at = position + 1;
        }
        self.base = have.next;
        let lost_again = match self.again {
            // No packet of this message is in flight any more.
            _ if settled => self.declared,
            Round::Sent(end, last) if !before(have.echo, last) => end,
            _ => 0,
        };
        for position in self.base..lost_again.min(have.covered_end()) {
            if !have.has(position) && !set.has(self.base, position) {
                set.insert(self.base, position);
                self.missing += 1;
            }
        }
        for position in self.declared.max(self.base)..known {
            if !have.has(position) {
                set.insert(self.base, position);
                self.missing += 1;
            }
        }
        self.declared = self.declared.max(known);
        let is_over = match self.again {
            Round::None => true,
            Round::Open(end) | Round::Sent(end, _) => lost_again > 0 || self.base >= end,
        };
        self.again = match self.again {
            // The positions of the round that still waited for retransmission have arrived meanwhile.
            Round::Open(end) if !is_over && set.first(self.base, self.base, end).is_none() => {
                Round::Sent(end, self.newest)
            }
            again if !is_over => again,
            // Positions beyond the round were retransmitted meanwhile. They form the next round.
            _ if self.missing == 0 && self.base < self.declared => {
                Round::Sent(self.declared, self.newest)
            }
            // The next retransmission begins a new round.
            _ => Round::None,
        };
    }
}

#[cfg(test)]
mod tests;
