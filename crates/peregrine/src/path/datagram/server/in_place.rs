//! Receives the pieces of a call directly into the memory of the call. A piece is the payload of one packet.
//!
//! A thread can predict the next pieces of a call if it receives alone, and if the pieces so far arrived
//! without gaps. The prediction is right if no other client sends and no packet is lost. The thread borrows
//! the memory of the call from the client's record. Then the kernel writes payloads directly to their places,
//! and headers elsewhere. A right prediction saves one copy, and a wrong prediction costs one additional
//! copy. While the memory is borrowed, the server drops pieces of this call that arrive at another thread,
//! and the client retransmits them. So only a thread that receives alone borrows memory.

use super::{DatagramEffect, EStack, Header, Inner, ReceiverState, ServerSocket, Until};
use crate::device::udp::copy_across;
use crate::device::{Arrival, BYTES_MAX, GSO_DATAGRAMS_MAX, datagrams};
use crate::path::datagram::peer::moment;
use crate::protocol::exchange::header::{Flags, HEADER_BYTES, Handle, PacketKind};
use crate::protocol::exchange::message::Fragments;
use crate::protocol::exchange::server_end::Action;
use crate::value::Space;

/// The number of spaces into which a batch is received: one for each header and each payload, and one for
/// unexpected bytes.
const SPACES: usize = 2 * GSO_DATAGRAMS_MAX + 1;

/// The pieces that a thread expects next, and the memory that the thread has borrowed for them.
pub(super) struct ExpectedPieces {
    handle: Handle,
    sequence: u32,
    /// The number of this loan. The record has the same number while the loan is valid.
    loan: u32,
    group: u16,
    estack: EStack,
    held: usize,
    cut: Fragments,
    /// The number of the first expected piece, counted in the order in which pieces are sent.
    next: u32,
    count: usize,
}

impl ExpectedPieces {
    /// Returns the byte range of the call's message that the expected datagram `number` contains. The first
    /// expected datagram has the number 0.
    fn range(&self, number: usize) -> core::ops::Range<usize> {
        let range = self.cut.range(self.cut.fragment(self.next + number as u32));
        range.start as usize..range.end as usize
    }

    /// Returns the spaces into which the kernel writes: two for each datagram, for its header and its
    /// payload, and then one for unexpected bytes.
    fn spaces<'a>(&'a mut self, input: &'a mut EStack) -> [Space<'a>; SPACES] {
        let mut spaces = [Space::none(); SPACES];
        let ranges = core::array::from_fn::<_, GSO_DATAGRAMS_MAX, _>(|number| {
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

    /// Returns the header of the received datagram `number`, if this datagram is the expected one.
    fn expected_header(
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
        let is_it = header.kind == PacketKind::Call
            && (header.handle, header.sequence) == (self.handle, self.sequence)
            && (header.piece, header.fragment) == (self.cut.piece(), fragment)
            && (!inner.checked || header.flags.has(Flags::CHECKED));
        let holds = |header: &Header| header.holds(self.estack.memory().get(range).unwrap_or(&[]));
        Some(header).filter(|header| is_it && holds(header))
    }
}

impl ServerSocket {
    /// If the next pieces of a record's call can be predicted, borrows the memory of the call. The kernel can
    /// then write these pieces directly to their places.
    pub(super) fn expect_next(&self, receiver: &mut ReceiverState, inner: &mut Inner) {
        let Some((sequence, cut, next)) = inner.server_end.next_expected() else { return };
        if receiver.rest.is_some() || receiver.expected.is_some() {
            return;
        }
        let Some((estack, held)) = inner.call.take() else { return };
        let batch = BYTES_MAX / (HEADER_BYTES + cut.piece() as usize);
        let count = (batch.clamp(1, GSO_DATAGRAMS_MAX)).min((cut.count() - next) as usize);
        inner.loans = inner.loans.wrapping_add(1);
        inner.lent = Some(inner.loans);
        let (handle, loan, group) = (inner.server_end.bound_handle(), inner.loans, inner.group);
        receiver.expected =
            Some(ExpectedPieces { handle, sequence, loan, group, estack, held, cut, next, count });
    }

    /// Gives borrowed memory back to the record, because other threads receive now.
    #[cold]
    pub(crate) fn release_expected(&self, receiver: &mut ReceiverState) {
        let Some(ExpectedPieces { handle, loan, group, estack, held, .. }) =
            receiver.expected.take()
        else {
            return;
        };
        let record = self.record(handle.place).map(|record| record.0.lock());
        match record.filter(|inner| inner.lent == Some(loan)) {
            Some(mut inner) => (inner.lent, inner.call) = (None, Some((estack, held))),
            None => self.done_with(group, estack, held),
        }
    }

    /// Receives the expected pieces. Moves unexpected bytes to the thread's input memory, as if they had been
    /// received there. Returns `None` if nothing arrived.
    pub(super) fn receive_expected(
        &self,
        receiver: &mut ReceiverState,
        until: Until,
    ) -> Option<DatagramEffect> {
        let mut expected = receiver.expected.take()?;
        let used = 2 * expected.count + 1;
        let spaces = expected.spaces(&mut receiver.input);
        let received = self.socket.receive(&spaces[..used], Some(&mut receiver.from), until);
        let Ok(Some(arrival)) = received else {
            receiver.expected = Some(expected);
            return None;
        };
        let Some(record) = self.record(expected.handle.place) else {
            return Some(DatagramEffect::Nothing);
        };
        let mut inner = record.0.lock();
        let (ours, now) = (inner.lent == Some(expected.loan), moment());
        let (mut right, mut completing) = (0, None);
        if ours && inner.to == receiver.from {
            for (number, at) in datagrams(arrival).enumerate() {
                let cut = arrival.cut && at.end == arrival.bytes;
                let header =
                    expected.expected_header(number, at.len(), &mut receiver.input, &inner);
                let Some(header) = header.filter(|_| !cut && completing.is_none()) else { break };
                right = number + 1;
                self.calls.note_progress(inner.group);
                // Actions other than `Execute` need no work here: the piece already lies at its place, or is
                // not needed.
                if let Action::Execute(_) = inner.handle(now, &header, &[]).action {
                    completing = Some(header);
                }
            }
        }
        let segment = arrival.segment.max(1);
        let skipped = (right * segment).min(arrival.bytes);
        let left = arrival.bytes - skipped;
        if left > 0 {
            let spaces = expected.spaces(&mut receiver.input);
            let moved = Space::of_mut(&mut receiver.reply.output).range(0, left);
            copy_across(&spaces, skipped, moved);
            receiver.input.memory()[..left].copy_from_slice(&receiver.reply.output[..left]);
            receiver.rest = Some((Arrival { bytes: left, segment, ..arrival }, 0));
        }
        let ExpectedPieces { estack, held, group, .. } = expected;
        if !ours {
            drop(inner);
            self.done_with(group, estack, held);
            return Some(DatagramEffect::Nothing);
        }
        (inner.lent, inner.call) = (None, Some((estack, held)));
        let effect = match completing {
            Some(header) => inner.note_complete(now, &header),
            None => DatagramEffect::Nothing,
        };
        if completing.is_none() {
            self.expect_next(receiver, &mut inner);
        }
        self.send_pending(inner, &mut receiver.reply.output, &receiver.serving.counting);
        Some(effect)
    }
}

/// Copies a piece of a call from the input memory to its place in the memory of the call.
pub(super) fn place(
    inner: &mut Inner,
    receiver: &mut ReceiverState,
    to: core::ops::Range<u32>,
    payload: core::ops::Range<usize>,
) {
    let Some((estack, _)) = &mut inner.call else { return };
    let to = estack.memory().get_mut(to.start as usize..to.end as usize);
    if let (Some(to), Some(from)) = (to, receiver.input.memory().get(payload)) {
        to.copy_from_slice(from);
    }
}
