//! The sending end of a message: what goes out next, how much at a time, what goes out again.

use super::flow::{Flow, FlowAccess, Pace};
use super::header::{BITMAP_BYTES_MAX, Flags, before};
use super::message::Fragments;
use super::positions::{PositionSet, SPAN};
use super::time::{MILLISECOND, Moment};

/// The receiver is asked what it has so many times a window, but not more often than after so many
/// positions.
const ASKS: u32 = 8;
const ASK_AFTER: u32 = 16;
/// Where positions are spread over the round trip, the receiver is asked each time after so many positions
/// or so much time, whichever is longer: each answer makes room for as many, and they leave in one burst.
const ASK_AFTER_PACED: u32 = 4;
const ASK_TIME: u64 = MILLISECOND / 5;
/// Positions that are sent at once where they are spread over the round trip: what the window allows in
/// this time, at least and at most so many. TCP sends two packets for each acknowledgement; a sender with
/// larger bursts loses as many packets where a queue overflows, but less often, and takes more than its share.
const BURST: u64 = MILLISECOND;
const BURST_MIN: u64 = 2;
const BURST_MAX: u64 = 44;

/// What the receiver says that it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceptionReport<'a> {
    /// All positions below.
    pub(crate) next: u32,
    /// Bit i of byte j for position `next + 8 j + i`.
    pub(crate) bitmap: &'a [u8],
    /// How many positions, those included that the bitmap had no room for.
    pub(crate) had: u32,
    /// The serial of ours that it heard last.
    pub(crate) echo: u16,
    /// It has waited: what was sent and it does not have is lost.
    pub(crate) waited: bool,
}

impl ReceptionReport<'_> {
    fn has(&self, position: u32) -> bool {
        let bit = position - self.next;
        self.bitmap.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    }

    /// The end of the positions that it has, as far as it tells.
    fn end(&self) -> u32 {
        let last = self.bitmap.iter().rposition(|byte| *byte != 0);
        last.map_or(self.next, |at| self.next + 8 * at as u32 + 8 - self.bitmap[at].leading_zeros())
    }

    /// The end of the positions of which it tells anything.
    fn covered_end(&self) -> u32 {
        let full = self.bitmap.len() == BITMAP_BYTES_MAX;
        if full { self.next.saturating_add(8 * BITMAP_BYTES_MAX as u32) } else { u32::MAX }
    }
}

/// What a sender knows of the way to a receiver.
pub(crate) struct SendPath<'a, L> {
    pub(crate) now: Moment,
    /// Positions that the receiver takes.
    pub(crate) credits: u16,
    pub(crate) flow: &'a L,
    /// The round of the flow in which this handle was counted last.
    pub(crate) seen: &'a mut u16,
}

impl<L: FlowAccess> SendPath<'_, L> {
    /// Positions that this handle may have in flight.
    fn share(&mut self, flow: &mut Flow) -> u32 {
        flow.share(self.now, self.credits, self.seen)
    }
}

/// What became of a [`Have`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportEffect {
    /// It says nothing that a sender can use: late, or impossible.
    Invalid,
    /// Nothing is known to be lost; there may be more to send.
    Progress,
    /// Some positions are missing, and none was before.
    NewLosses,
    /// Some are missing still.
    StillMissing,
}

/// Which positions were sent again, and are not known to be lost once more.
///
/// All that are missing below [`Blast::declared`] were sent again or wait for it. A round is those of
/// them that were below it when the first of the round was sent; they are lost again if the receiver has
/// heard what was sent last of the round and does not have them. Those that were declared later, and were
/// sent again during the round, are a round as soon as this one is over. Serials wrap round, so a round
/// is forgotten as soon as the receiver has all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    None,
    /// Some below this position wait to be sent again.
    Open(u32),
    /// The last one below it was sent with this serial.
    Sent(u32, u16),
}

/// One message on its way.
///
/// Positions that are to be sent again stand in [`Positions`] that the owner keeps and lends; a
/// message of one packet that is not lost never touches them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blast {
    fragments: Fragments,
    /// The receiver has all below.
    base: u32,
    /// Not sent from here on since the message was begun.
    next: u32,
    /// Not sent from here on before it was begun again, cut in the same way.
    earlier: u32,
    /// How many are to be sent again.
    missing: u32,
    /// How many the receiver had when it last said.
    had: u32,
    /// All below that the receiver does not have were lost once.
    declared: u32,
    again: Round,
    /// What was sent below was sent before the window was last reduced, and which reduction that was.
    recovery: u32,
    reductions: u16,
    /// Positions sent since the receiver was last asked what it has.
    unasked: u16,
    /// The serial of the position sent last.
    newest: u16,
    /// The position whose answer is timed: its serial, and when it was sent; zero if there is none.
    timed: u16,
    timed_at: Moment,
    /// When all that was sent would have been, had each waited for its turn; and whether the next one
    /// waits for that.
    paced: Moment,
    waits: bool,
    /// The whole message was sent before, cut otherwise.
    is_resent: bool,
}

impl Blast {
    /// A message that was never sent.
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

    /// A message all of which is sent again, perhaps cut otherwise.
    pub(crate) fn resent(fragments: Fragments) -> Self {
        Self { is_resent: true, ..Self::new(fragments) }
    }

    /// The same message from its start, for the receiver says that it has taken nothing. It may have said
    /// so long ago, and have taken positions since that were sent before.
    pub(crate) fn restarted(&self) -> Self {
        Self { earlier: self.next.max(self.earlier), ..Self::new(self.fragments) }
    }

    #[inline]
    pub(crate) const fn fragments(&self) -> &Fragments {
        &self.fragments
    }

    /// How many positions the receiver had when it last said.
    pub(crate) const fn had(&self) -> u32 {
        self.had
    }

    /// When there is more to send, if that is only a matter of time.
    #[inline]
    pub(crate) fn due(&self) -> Option<Moment> {
        self.waits.then_some(self.paced)
    }

    /// How many are believed to be on their way.
    const fn in_flight(&self) -> u32 {
        (self.next - self.missing).saturating_sub(self.had)
    }

    /// The next position to send, with its flags; `None` until more is heard, or [due](Self::due).
    /// `hold`: what is missing is perhaps only late, and waits.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        serial: u16,
        path: &mut SendPath<'_, impl FlowAccess>,
        hold: bool,
        missing: &mut PositionSet,
    ) -> Option<(u32, Flags)> {
        // A message of one packet, for the first time.
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
        // Not further than the receiver can keep apart.
        let more = self.next < self.fragments.count() && self.next - self.base < SPAN;
        if again.is_none() && !more {
            return None;
        }
        let (size, pace) = path.flow.with_flow(|flow| {
            if self.next == 0 {
                self.reductions = flow.reductions();
            } else if self.reductions != flow.reductions() {
                // By another handle: what was sent before tells nothing new.
                (self.reductions, self.recovery) = (flow.reductions(), self.next);
            }
            if again.is_some_and(|position| position >= self.recovery) {
                flow.reduce();
                (self.reductions, self.recovery) = (flow.reductions(), self.next);
            }
            let share = path.share(flow);
            (share, flow.pace(share))
        });
        if self.in_flight() >= size || self.must_wait(path.now, &pace) {
            return None;
        }
        let mut flags = Flags::NONE;
        let position = match again {
            Some(position) => {
                missing.remove(self.base, position);
                self.missing -= 1;
                self.note_retransmission(position, serial, missing);
                // The last of what was missing asks: nothing else may follow it.
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
        if self.requests_report(size, pace.interval) {
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

    /// Whether the next position has to wait for its turn; if not, it is reckoned as sent.
    fn must_wait(&mut self, now: Moment, pace: &Pace) -> bool {
        let interval = pace.interval;
        if interval == 0 {
            return false;
        }
        // A message begins as if nothing had been sent for a while.
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

    /// Whether the position sent just now asks what the receiver has: several of a window do, and the
    /// last before we would stop; none if the rest of the message may follow at once, for its end is
    /// answered without being asked for.
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

    /// The receiver says what it has.
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
            // Sent before the message was begun again: what is missing of it is no sign of congestion.
            (self.next, self.recovery) = (end, end);
        }
        let (flying, was_missing) = (self.in_flight(), self.missing > 0);
        let had = have.had.clamp(have.next, self.next).max(self.had);
        let progress = had - core::mem::replace(&mut self.had, had);
        self.sample_round_trip(have, path);
        // What it was told after the last packet of ours, all before it came or is lost.
        let settled = have.waited || !before(have.echo, self.newest);
        let known = if settled { self.next.min(have.covered_end()) } else { end };
        if self.missing == 0 && known == have.next && self.declared <= known {
            (self.base, self.again) = (known, Round::None);
        } else {
            self.find_missing(have, known, settled, missing);
        }
        self.unasked = 0;
        // What is sent while losses are mended says nothing yet of the smaller window.
        if progress > 0 && self.missing == 0 && self.base >= self.recovery {
            path.flow.with_flow(|flow| {
                let share = path.share(flow);
                // Nor does a window that was not used.
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

    /// Takes the time of an answer, unless it was kept back for late packets or its question was lost.
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

    /// Finds what is missing: all that was not declared lost before, up to `known`; and what was sent
    /// again and has not come, once its round is over or everything that was sent is known to have come
    /// or to be lost.
    fn find_missing(
        &mut self,
        have: &ReceptionReport<'_>,
        known: u32,
        settled: bool,
        set: &mut PositionSet,
    ) {
        if self.missing == 0 {
            // The last user of the set may have left something.
            set.clear();
        }
        // What has come since needs not be sent again.
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
            // Nothing is under way any more.
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
            // What of it had waited has come.
            Round::Open(end) if !is_over && set.first(self.base, self.base, end).is_none() => {
                Round::Sent(end, self.newest)
            }
            again if !is_over => again,
            // Others were sent again meanwhile.
            _ if self.missing == 0 && self.base < self.declared => {
                Round::Sent(self.declared, self.newest)
            }
            // The first that is sent again begins one.
            _ => Round::None,
        };
    }
}

#[cfg(test)]
mod tests;
