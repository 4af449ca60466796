//! Sends packets from a server's socket, and never waits. All clients share the socket. Answers to hosts that
//! have not proven their address may use only a part of the send buffer.
//!
//! On a local link, the kernel must first resolve the hardware address of a host. Until then, for up to three
//! seconds, a datagram to the host stays in the send buffer. An attacker can forge source addresses, so that
//! a server answers hosts that do not exist. Without a limit, a hundred such answers fill a send buffer of
//! the usual size, and no client gets results.

use core::sync::atomic::{AtomicU32, Ordering};
use std::io;

use super::replying::ReplyState;
use super::retention::{ResultFrame, RetainedResult};
use super::{COPIED, ErrorKind, Inner, ServerSocket};
use crate::counters::Counting;
use crate::device::GsoBatch;
use crate::path::datagram::peer::{PeerAddress, moment};
use crate::path::datagram::wire::checks;
use crate::protocol::exchange::header::{self, CONTROL_BYTES_MAX, HEADER_BYTES, Header};
use crate::protocol::exchange::server_end::ServerEnd;
use crate::protocol::exchange::time::{Moment, SECOND};
use crate::protocol::exchange::versions;
use crate::serving::deferrals::Deferrals;
use crate::stats::{self, Copy};
use crate::sync::MutexGuard;
use crate::sys::Address;
use crate::value::{Space, Window};

/// The number of groups of hosts. The group of a host depends on a secret, so attackers cannot predict it.
const GROUPS: usize = 1024;
/// The interval in nanoseconds in which the answers to a group are counted. The interval is longer than the
/// time for which the kernel tries to resolve a hardware address.
const INTERVAL: u64 = 4 * SECOND;
/// Below this fill level of the send buffer, in 256ths, every host gets answers. From this level on, each
/// group gets two answers in an interval.
const FILLS: u32 = 64;
/// From this fill level on, in 256ths, each group gets one answer in an interval.
const HALF: u32 = 128;
/// From this fill level on, in 256ths, a host gets no answer until it proves its address.
const FULL: u32 = 192;

/// Counts the answers that each group of hosts got in the current interval. When a host of a group proves its
/// address, the count of that group restarts at 0.
pub(super) struct UnverifiedHosts {
    /// For each group: the number of the interval in the upper half, and the number of answers in the lower
    /// half.
    groups: Box<[AtomicU32]>,
}

impl UnverifiedHosts {
    pub(super) fn new() -> Self {
        Self { groups: (0..GROUPS).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Returns whether a host of this group may get an answer. If so, counts the answer. `fill` is the fill
    /// level of the send buffer, in 256ths.
    fn admit(&self, now: Moment, group: u64, fill: u32) -> bool {
        let period = ((now.0 / INTERVAL) as u32) << 16;
        let most = match fill {
            0..FILLS => u32::from(u16::MAX),
            FILLS..HALF => 2,
            HALF..FULL => 1,
            _ => return false,
        };
        let one_more = |counted: u32| {
            let before = if counted & !0xffff == period { counted & 0xffff } else { 0 };
            let after = (before + 1).min(u32::from(u16::MAX));
            (before < most).then_some(period | after)
        };
        let count = &self.groups[(group % GROUPS as u64) as usize];
        let admitted = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        // The counter of a group may have reached its maximum. While the fill level is low, hosts of that
        // group get answers nevertheless.
        admitted.is_ok() || fill < FILLS
    }

    /// Restarts the count of a group at 0, because a host of the group has returned a valid cookie. Answers
    /// reach such a host, so they do not stay in the send buffer.
    fn prove(&self, group: u64) {
        self.groups[(group % GROUPS as u64) as usize].store(0, Ordering::Relaxed);
    }
}

/// Counts retransmitted packets.
pub(super) trait CountsResent {
    /// Counts packets of results that were retransmitted.
    fn resent(&self, packets: u64);
}

impl CountsResent for Counting {
    #[inline]
    fn resent(&self, packets: u64) {
        Self::resent(self, packets);
    }
}

impl CountsResent for Deferrals {
    #[inline]
    fn resent(&self, packets: u64) {
        Self::resent(self, packets);
    }
}

/// Whether packets fit the route to their receiver, as far as this machine knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SizeFit {
    Fits,
    TooLarge,
}

impl ServerSocket {
    /// Notes the outcome of sending `packets` packets. If the socket did not accept them, they count as lost.
    #[inline]
    pub(super) fn note_sent(&self, packets: usize, sent: io::Result<()>) -> SizeFit {
        match sent {
            Ok(()) => SizeFit::Fits,
            Err(error) => self.note_unsent(packets, &error),
        }
    }

    #[cold]
    fn note_unsent(&self, packets: usize, error: &io::Error) -> SizeFit {
        let full = error.kind() == io::ErrorKind::WouldBlock
            || error.raw_os_error() == Some(libc::ENOBUFS);
        if full {
            self.unsent.fetch_add(packets as u64, Ordering::Relaxed);
        }
        let too_large = error.raw_os_error() == Some(libc::EMSGSIZE);
        if too_large { SizeFit::TooLarge } else { SizeFit::Fits }
    }

    /// Sends a result again in smaller pieces, because its packets were too large. They were larger than the
    /// MTU of this machine's interface, or than an MTU that a router has reported.
    #[cold]
    fn narrow(
        &self,
        mut record: MutexGuard<'_, Inner>,
        output: &mut [u8],
        counting: &impl CountsResent,
    ) {
        let Inner { server_end, to, .. } = &mut *record;
        let fits = self.socket.payload_to(to, HEADER_BYTES);
        if fits.is_ok_and(|piece| server_end.reduce_piece(piece as u32)) {
            // The recursion ends, because each level makes the pieces smaller.
            self.send_pending(record, output, counting);
        }
    }

    /// Answers a host that has not proven its address, unless the group of the host has used up its answers.
    #[cold]
    pub(crate) fn answer_unverified(&self, now: Moment, packet: &[u8], to: &Address) {
        let fill = self.socket.fill_of_send_buffer();
        if !self.unverified.admit(now, self.peer(PeerAddress::of(to).host()), fill) {
            self.unsent.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.note_sent(1, self.socket.send(&[Window::from(packet)], Some(to)));
    }

    /// Notes that a host has proven its address.
    pub(super) fn note_verified(&self, from: &Address) {
        self.unverified.prove(self.peer(PeerAddress::of(from).host()));
    }

    /// Sends the due packets of a record, and schedules the packets that are due later.
    pub(super) fn send_pending(
        &self,
        record: MutexGuard<'_, Inner>,
        output: &mut [u8],
        counting: &impl CountsResent,
    ) {
        self.send_due(record, None, output, counting);
    }

    /// Sends the result of a call that has just ended. `fresh` is the frame in which it was built, if the
    /// record keeps a copy of the result.
    #[inline]
    pub(super) fn send_result(
        &self,
        record: MutexGuard<'_, Inner>,
        fresh: Option<ResultFrame>,
        state: &mut ReplyState,
        counting: &impl CountsResent,
    ) {
        self.send_due(record, fresh.as_ref(), &mut state.output, counting);
        if let Some(frame) = fresh {
            self.results.recycle(&mut state.spare, frame);
        }
    }

    /// Sends the due packets of a record. If `fresh` is given, it contains the whole result, too.
    fn send_due(
        &self,
        mut record: MutexGuard<'_, Inner>,
        fresh: Option<&ResultFrame>,
        output: &mut [u8],
        counting: &impl CountsResent,
    ) {
        let now = moment();
        let Inner { server_end, flow, paced, to, result, checked, .. } = &mut *record;
        let (space, total) = result.as_mut().map_or((Space::none(), 0), RetainedResult::space);
        let mut out = [0; CONTROL_BYTES_MAX];
        let Some(send) = server_end.poll_send(now, &**flow, &mut out) else {
            return self.pace(server_end, paced);
        };
        let mut resent = u64::from(header::is_resent(&out));
        let whole = space.part(0, HEADER_BYTES + send.range.len());
        if send.range.len() as u32 == total
            && send.bytes == HEADER_BYTES
            && let (Some(whole), Some(header)) = (whole, out.first_chunk_mut::<HEADER_BYTES>())
        {
            if *checked {
                let payload = whole.range(HEADER_BYTES, total as usize);
                checks::seal(header, &[payload.window()]);
            }
            counting.resent(resent);
            // This packet contains the whole result. If the packet is lost, the client asks for the result.
            // So nothing needs to be scheduled.
            let bytes = whole.window().len();
            if bytes > COPIED {
                let _ = whole.write(0, header);
                let sent = self.note_sent(1, self.socket.send(&[whole.window()], Some(to)));
                if sent == SizeFit::TooLarge {
                    self.narrow(record, output, counting);
                }
                return;
            }
            // The client may run on this processor before `send` returns. When the client's next call
            // arrives, the record must not be locked.
            let (to, place) = (*to, server_end.bound_handle().place);
            let packet = match fresh {
                Some(frame) => {
                    let packet = frame.packet(total as usize);
                    let _ = packet.write(0, header);
                    packet.window()
                }
                None => {
                    let out = &mut output[..bytes];
                    let _ = whole.read(0, out);
                    out[..HEADER_BYTES].copy_from_slice(header);
                    stats::count(Copy::R, total as usize);
                    Window::from(&*out)
                }
            };
            drop(record);
            let sent = self.note_sent(1, self.socket.send(&[packet], Some(&to)));
            if sent == SizeFit::TooLarge
                && let Some(record) = self.record(place)
            {
                self.narrow(record.0.lock(), output, counting);
            }
            return;
        }
        let mut batch = GsoBatch::new(output, &self.socket);
        let mut next = Some(send);
        let mut chunk = checks::ChecksumBuffer::default();
        let mut fits = SizeFit::Fits;
        while let Some(send) = next {
            let (start, length) = (HEADER_BYTES + send.range.start as usize, send.range.len());
            // If the server retains no result, `space` is empty. In that case, the payloads are empty, too.
            let payload = if length > 0 { space.range(start, length) } else { Space::none() };
            let payload = [payload.window()];
            if *checked {
                checks::seal_one_of_many(&mut out, &payload, &mut chunk);
            }
            if !batch.push(&out[..send.bytes], &payload) {
                let sent = self.note_sent(batch.len(), batch.send(&self.socket, Some(to)));
                fits = fits.max(sent);
                batch.push(&out[..send.bytes], &payload);
            }
            next = server_end.poll_send(now, &**flow, &mut out);
            resent += u64::from(next.is_some() && header::is_resent(&out));
        }
        counting.resent(resent);
        fits = fits.max(self.note_sent(batch.len(), batch.send(&self.socket, Some(to))));
        if fits == SizeFit::TooLarge {
            return self.narrow(record, output, counting);
        }
        self.pace(server_end, paced);
    }

    /// Refuses a packet whose handle the record does not have. Does nothing if the packet requires no answer.
    #[cold]
    pub(super) fn refuse(
        &self,
        server_end: &ServerEnd,
        now: Moment,
        header: &Header,
        to: &Address,
    ) {
        if let Some(refusal) = server_end.refusal_of(header, self.number) {
            let mut out = [0; HEADER_BYTES];
            refusal.emit(&mut out);
            self.answer_unverified(now, &out, to);
        }
    }

    /// Counts a datagram that this release cannot read. If the datagram is a bind request of another protocol
    /// version, answers it.
    #[cold]
    pub(super) fn handle_unreadable(&self, now: Moment, datagram: &[u8], from: &Address) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        if let Some(answer) = versions::refuse(datagram, ErrorKind::ProtocolMismatch as u32) {
            self.answer_unverified(now, &answer, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(100 * SECOND);

    #[test]
    fn all_hosts_are_answered_while_the_buffer_has_room() {
        let unverified = UnverifiedHosts::new();
        assert!((0..200_000).all(|_| unverified.admit(NOW, 7, FILLS - 1)));
    }

    #[test]
    fn each_group_gets_few_answers_while_the_buffer_fills() {
        let unverified = UnverifiedHosts::new();
        let admitted =
            |now, group| (0..100).filter(|_| unverified.admit(now, group, FILLS)).count();
        assert_eq!([admitted(NOW, 1), admitted(NOW, 2), admitted(NOW, 1)], [2, 2, 0]);
        unverified.prove(2);
        assert_eq!([admitted(NOW, 2), admitted(NOW, 1)], [2, 0]);
        assert_eq!(admitted(Moment(NOW.0 + INTERVAL), 1), 2, "in the next interval");
        assert!(unverified.admit(NOW, 4, HALF) && !unverified.admit(NOW, 4, HALF));
        assert!(!unverified.admit(NOW, 3, FULL));
        assert!(unverified.admit(NOW, 1, FILLS - 1));
    }
}
