//! The sending end of a message: what goes out next, how much at a time, what goes out again.

use super::header::{Flags, before};
use super::message::Cut;
use super::positions::{Positions, SPAN};

/// Positions in flight that a peer is given before anything is known of the way to it: the 48,000
/// bytes of Peregrine's largest call go in one blast.
const WINDOW_FIRST: u16 = 48;
const WINDOW_MIN: u16 = 2;
/// Below this the window grows four times as fast.
const WINDOW_SMALL: u16 = 64;

/// How many positions may be in flight: kept from call to call.
///
/// Grows by one packet a round trip and halves on loss, as TCP's does, so that exchanges yield to
/// each other and to TCP. A message that fits the window says nothing about the way, and changes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    size: u16,
    /// Acknowledged positions that did not yet make a packet of growth.
    earned: u16,
    /// What the peer takes.
    credits: u16,
}

impl Window {
    pub(crate) fn new(credits: u16) -> Self {
        let mut window = Self { size: WINDOW_FIRST, earned: 0, credits: 0 };
        window.allow(credits);
        window
    }

    /// The peer says how much it takes. One that takes nothing would never hear of us again.
    #[inline]
    pub(crate) fn allow(&mut self, credits: u16) {
        self.credits = credits.clamp(WINDOW_MIN, SPAN as u16);
    }

    #[inline]
    pub(crate) fn size(&self) -> u16 {
        self.size.min(self.credits)
    }

    fn grow(&mut self, acknowledged: u32) {
        let factor = if self.size < WINDOW_SMALL { 4 } else { 1 };
        let earned = u32::from(self.earned) + acknowledged.min(SPAN) * factor;
        let grown = (u32::from(self.size) + earned / u32::from(self.size)).min(SPAN);
        self.earned = (earned % u32::from(self.size)) as u16;
        self.size = grown as u16;
    }

    fn halve(&mut self) {
        self.size = (self.size() / 2).max(WINDOW_MIN);
        self.earned = 0;
    }
}

/// What the receiver says that it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Have<'a> {
    /// All positions below.
    pub(crate) next: u32,
    /// Bit i of byte j for position `next + 8 j + i`.
    pub(crate) bitmap: &'a [u8],
    /// The serial of ours that it heard last.
    pub(crate) echo: u16,
    /// It has waited: what was sent and it does not have is lost.
    pub(crate) waited: bool,
}

impl Have<'_> {
    fn has(&self, position: u32) -> bool {
        let bit = position - self.next;
        self.bitmap.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    }

    /// Behind the last position that it has, and how many it has.
    fn extent(&self) -> (u32, u32) {
        let ones: u32 = self.bitmap.iter().map(|byte| byte.count_ones()).sum();
        let last = self.bitmap.iter().rposition(|byte| *byte != 0);
        let end = last.map_or(self.next, |at| {
            self.next + 8 * at as u32 + 8 - self.bitmap[at].leading_zeros()
        });
        (end, self.next + ones)
    }
}

/// What became of a [`Have`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It says nothing that a sender can use: late, or impossible.
    Nothing,
    /// Nothing is known to be lost; there may be more to send.
    Onward,
    /// Some positions must be sent again.
    Holes,
}

/// One message on its way.
///
/// Positions that are to be sent again stand in [`Positions`] that the owner keeps and lends; a
/// message of one packet that is not lost never touches them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blast {
    cut: Cut,
    /// The receiver has all below.
    base: u32,
    /// Never sent from here on.
    next: u32,
    /// How many are to be sent again.
    missing: u32,
    /// How many are believed to be on their way.
    flying: u32,
    /// How many the receiver had when it last said.
    had: u32,
    /// The window was halved; not again before this position is acknowledged.
    recovery: u32,
    /// Positions sent since the receiver was last asked what it has.
    unasked: u16,
    /// The serial of the position sent last.
    newest: u16,
    /// The serial of the position sent again last, if any was.
    resent: Option<u16>,
    /// The whole message was sent before, cut otherwise.
    anew: bool,
}

impl Blast {
    /// A message that was never sent.
    #[inline]
    pub(crate) fn new(cut: Cut) -> Self {
        Self {
            cut,
            base: 0,
            next: 0,
            missing: 0,
            flying: 0,
            had: 0,
            recovery: 0,
            unasked: 0,
            newest: 0,
            resent: None,
            anew: false,
        }
    }

    /// A message all of which is sent again, perhaps cut otherwise.
    pub(crate) fn anew(cut: Cut) -> Self {
        Self { anew: true, ..Self::new(cut) }
    }

    #[inline]
    pub(crate) const fn cut(&self) -> &Cut {
        &self.cut
    }

    /// How many positions the receiver had when it last said.
    pub(crate) const fn had(&self) -> u32 {
        self.had
    }

    /// The next position to send, with its flags; `None` until more is heard.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        serial: u16,
        window: &mut Window,
        missing: &mut Positions,
    ) -> Option<(u32, Flags)> {
        // A message of one packet, for the first time.
        if self.cut.count() == 1 && self.next == 0 && !self.anew {
            self.next = 1;
            self.flying = 1;
            self.newest = serial;
            return Some((0, Flags::NONE));
        }
        self.poll_many(serial, window, missing)
    }

    fn poll_many(
        &mut self,
        serial: u16,
        window: &mut Window,
        missing: &mut Positions,
    ) -> Option<(u32, Flags)> {
        // What was late only, and came before this, is no loss.
        if self.missing > 0 && self.base >= self.recovery {
            window.halve();
            self.recovery = self.next;
        }
        let size = u32::from(window.size());
        if self.flying >= size {
            return None;
        }
        let mut flags = Flags::NONE;
        let position = if self.missing > 0 {
            let position = missing.first(self.base, self.next)?;
            missing.remove(position);
            self.missing -= 1;
            self.resent = Some(serial);
            // The last of what was missing asks: nothing else may follow it.
            flags = Flags::RESENT.with_if(self.missing == 0, Flags::PLEASE);
            position
        } else {
            // Not further than the receiver can keep apart.
            if self.next == self.cut.count() || self.next - self.base >= SPAN {
                return None;
            }
            self.next += 1;
            flags = flags.with_if(self.anew, Flags::RESENT);
            self.next - 1
        };
        self.flying += 1;
        self.newest = serial;
        self.unasked += 1;
        if self.asks(size) {
            flags = flags.with(Flags::PLEASE);
        }
        if flags.has(Flags::PLEASE) {
            self.unasked = 0;
        }
        Some((position, flags))
    }

    /// Whether the position sent just now asks what the receiver has: the last of each half window
    /// does, and the last before we would stop; none if the rest of the message may follow at once,
    /// for its end is answered without being asked for.
    fn asks(&self, size: u32) -> bool {
        let rest = self.cut.count() - self.next + self.missing;
        let full = self.next - self.base >= SPAN;
        let room = if full && self.missing == 0 { 0 } else { size - self.flying };
        rest > room && (u32::from(self.unasked) >= size.div_ceil(2) || room == 0)
    }

    /// The receiver says what it has.
    pub(crate) fn heard(
        &mut self,
        have: &Have<'_>,
        window: &mut Window,
        missing: &mut Positions,
    ) -> Heard {
        if have.next < self.base || have.next > self.next {
            return Heard::Nothing;
        }
        let (end, had) = have.extent();
        if end > self.next {
            return Heard::Nothing;
        }
        let progress = had.saturating_sub(self.had);
        self.had = self.had.max(had);
        let was_missing = self.missing;
        // What it was told after the last packet of ours, all before it came or is lost.
        let settled = have.waited || !before(have.echo, self.newest);
        // What it says is older than what was sent again: then that is not lost once more.
        let current = have.waited || self.resent.is_none_or(|last| !before(have.echo, last));
        let known = if settled { self.next } else { end };
        if was_missing == 0 && end == have.next && known == have.next {
            self.base = have.next;
        } else {
            self.find_missing(have, known, current, missing);
        }
        self.flying =
            if current { self.next - known } else { self.flying.saturating_sub(progress) };
        self.unasked = 0;
        if self.missing > 0 {
            return Heard::Holes;
        }
        if self.cut.count() > u32::from(window.size()) {
            window.grow(progress);
        }
        Heard::Onward
    }

    /// Sets what is missing: all below `known` that it does not have, or, if it did not know yet what
    /// was sent again, those of them that were still to be sent.
    fn find_missing(&mut self, have: &Have<'_>, known: u32, current: bool, set: &mut Positions) {
        if self.missing == 0 {
            // The last user of the set may have left something.
            set.clear();
        }
        let mut count = 0;
        for position in self.base..known {
            let was = set.has(position);
            if position >= have.next && !have.has(position) && (current || was) {
                set.insert(position);
                count += 1;
            } else if was {
                set.remove(position);
            }
        }
        self.base = have.next;
        self.missing = count;
    }
}

#[cfg(test)]
mod tests;
