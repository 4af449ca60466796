//! Receiving into place: pieces of a call that were received elsewhere, and, straight, the next ones of
//! a call that comes in many packets.
//!
//! A thread that receives alone, and has just placed pieces of a call that has no holes, knows what
//! comes next if nobody else sends and nothing is lost. For that it borrows the call's memory from
//! the record and lets the kernel put payloads where they belong, the headers aside. A guess that was
//! wrong costs what it was to save: a move. What another thread receives of the call meanwhile is as
//! good as lost, and sent again; so only a thread that is alone borrows.

use super::{EStack, Hand, Header, Heard, Inner, Service, Until};
use crate::device::udp::copy_across;
use crate::device::{Arrival, BYTES_MAX, TRAIN_MAX, datagrams};
use crate::path::datagram::moment;
use crate::protocol::exchange::callee::Then;
use crate::protocol::exchange::header::{Flags, HEADER_BYTES, Handle, Kind};
use crate::protocol::exchange::message::Cut;
use crate::value::Space;

/// Headers and payloads of a train, and room for what was not expected.
const SPACES: usize = 2 * TRAIN_MAX + 1;

/// What a thread expects next, and the memory that it has borrowed for it.
pub(super) struct Expected {
    handle: Handle,
    sequence: u32,
    /// Which loan of the record it is.
    loan: u32,
    group: u16,
    estack: EStack,
    held: usize,
    cut: Cut,
    /// Positions from here on.
    next: u32,
    count: usize,
}

impl Expected {
    /// Where the payload of the nth datagram belongs.
    fn range(&self, number: usize) -> core::ops::Range<usize> {
        let range = self.cut.range(self.cut.fragment(self.next + number as u32));
        range.start as usize..range.end as usize
    }

    /// Where what comes is put, in this order: header and payload of each datagram, then the rest.
    fn spaces<'a>(&'a mut self, input: &'a mut EStack) -> [Space<'a>; SPACES] {
        let mut spaces = [Space::none(); SPACES];
        let ranges = core::array::from_fn::<_, TRAIN_MAX, _>(|number| {
            if number < self.count { self.range(number) } else { 0..0 }
        });
        let (input, call) = (Space::of_mut(input.memory()), Space::of_mut(self.estack.memory()));
        for (number, range) in ranges.into_iter().enumerate().take(self.count) {
            spaces[2 * number] = input.range(number * HEADER_BYTES, HEADER_BYTES);
            spaces[2 * number + 1] = call.range(range.start, range.len());
        }
        let headers = self.count * HEADER_BYTES;
        spaces[2 * self.count] = input.range(headers, input.window().len() - headers);
        spaces
    }

    /// The header of the nth datagram, if that is what was expected there.
    fn right(
        &mut self,
        number: usize,
        bytes: usize,
        input: &mut EStack,
        inner: &Inner,
    ) -> Option<Header> {
        if number >= self.count {
            return None;
        }
        let range = self.range(number);
        if bytes != HEADER_BYTES + range.len() {
            return None;
        }
        let header = input.memory().get(number * HEADER_BYTES..)?.first_chunk()?;
        let header = Header::parse(header, range.len()).ok()?;
        let fragment = self.cut.fragment(self.next + number as u32);
        let is_it = header.kind == Kind::Call
            && (header.handle, header.sequence) == (self.handle, self.sequence)
            && (header.piece, header.fragment) == (self.cut.piece(), fragment)
            && (!inner.checked || header.flags.has(Flags::CHECKED));
        let holds = |header: &Header| header.holds(self.estack.memory().get(range).unwrap_or(&[]));
        Some(header).filter(|header| is_it && holds(header))
    }
}

impl Service {
    /// Borrows the memory of a record's call, if it is clear what comes next.
    pub(super) fn expect(&self, hand: &mut Hand, inner: &mut Inner) {
        let Some((sequence, cut, next)) = inner.callee.expects() else { return };
        if hand.rest.is_some() || hand.expected.is_some() {
            return;
        }
        let Some((estack, held)) = inner.call.take() else { return };
        let train = BYTES_MAX / (HEADER_BYTES + cut.piece() as usize);
        let count = (train.clamp(1, TRAIN_MAX)).min((cut.count() - next) as usize);
        inner.loans = inner.loans.wrapping_add(1);
        inner.lent = Some(inner.loans);
        let (handle, loan, group) = (inner.callee.handle_of(), inner.loans, inner.group);
        hand.expected =
            Some(Expected { handle, sequence, loan, group, estack, held, cut, next, count });
    }

    /// Gives back what a thread has borrowed, for it does not receive alone any more.
    #[cold]
    pub(crate) fn put_down(&self, hand: &mut Hand) {
        let Some(Expected { handle, loan, group, estack, held, .. }) = hand.expected.take() else {
            return;
        };
        let record = self.record(handle.place).map(|record| record.0.lock());
        match record.filter(|inner| inner.lent == Some(loan)) {
            Some(mut inner) => (inner.lent, inner.call) = (None, Some((estack, held))),
            None => self.done_with(group, estack, held),
        }
    }

    /// Takes what comes where something is expected. What came otherwise is then in the hand, as if it
    /// had been received there; `None` if nothing came.
    pub(super) fn receive_expected(&self, hand: &mut Hand, until: Until) -> Option<Heard> {
        let mut expected = hand.expected.take()?;
        let used = 2 * expected.count + 1;
        let spaces = expected.spaces(&mut hand.input);
        let came = self.socket.receive(&spaces[..used], Some(&mut hand.from), until);
        let Ok(Some(arrival)) = came else {
            hand.expected = Some(expected);
            return None;
        };
        let Some(record) = self.record(expected.handle.place) else { return Some(Heard::Nothing) };
        let mut inner = record.0.lock();
        let (ours, now) = (inner.lent == Some(expected.loan), moment());
        let mut right = 0;
        let mut whole = None;
        if ours && inner.to == hand.from {
            for (number, at) in datagrams(arrival).enumerate() {
                let cut = arrival.cut && at.end == arrival.bytes;
                let header = expected.right(number, at.len(), &mut hand.input, &inner);
                let Some(header) = header.filter(|_| !cut && whole.is_none()) else { break };
                right = number + 1;
                self.calls.goes_on(inner.group);
                // Otherwise it is in its place, or was not wanted there.
                if let Then::Execute(_) = inner.handle(now, &header, &[]).then {
                    whole = Some(header);
                }
            }
        }
        let segment = arrival.segment.max(1);
        let skipped = (right * segment).min(arrival.bytes);
        let left = arrival.bytes - skipped;
        if left > 0 {
            let spaces = expected.spaces(&mut hand.input);
            let moved = Space::of_mut(&mut hand.output).range(0, left);
            copy_across(&spaces, skipped, moved);
            hand.input.memory()[..left].copy_from_slice(&hand.output[..left]);
            hand.rest = Some((Arrival { bytes: left, segment, ..arrival }, 0));
        }
        let Expected { estack, held, group, .. } = expected;
        if !ours {
            drop(inner);
            self.done_with(group, estack, held);
            return Some(Heard::Nothing);
        }
        (inner.lent, inner.call) = (None, Some((estack, held)));
        let heard = match whole {
            Some(header) => inner.whole(now, &header),
            None => Heard::Nothing,
        };
        if whole.is_none() {
            self.expect(hand, &mut inner);
        }
        self.say(inner, &mut hand.output, &hand.serving.counting);
        Some(heard)
    }
}

/// Puts a piece of a call where it belongs.
pub(super) fn place(
    inner: &mut Inner,
    hand: &mut Hand,
    to: core::ops::Range<u32>,
    payload: core::ops::Range<usize>,
) {
    let Some((estack, _)) = &mut inner.call else { return };
    let to = estack.memory().get_mut(to.start as usize..to.end as usize);
    if let (Some(to), Some(from)) = (to, hand.input.memory().get(payload)) {
        to.copy_from_slice(from);
    }
}
