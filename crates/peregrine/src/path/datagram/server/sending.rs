//! Sending from a socket that all callers share: it never waits, and what goes to hosts that have
//! proven nothing gets a part of the send buffer only.
//!
//! A datagram to a host on the link whose hardware address is not known stays in the send buffer while
//! the kernel asks for it, for up to three seconds. Anybody can have a server answer hosts that do not
//! exist, by sending in their names. Without a bound, a hundred such answers take all of a usual send
//! buffer, and every caller's result is refused room.

use core::sync::atomic::{AtomicU32, Ordering};
use std::io;

use super::retention::RetainedResult;
use super::{COPIED, ErrorKind, Inner, ServerSocket};
use crate::counters::Counting;
use crate::device::GsoBatch;
use crate::path::datagram::peer::{PeerAddress, moment};
use crate::path::datagram::wire::checks;
use crate::protocol::exchange::header::{self, CONTROL_BYTES_MAX, HEADER_BYTES, Header};
use crate::protocol::exchange::server_end::ServerEnd;
use crate::protocol::exchange::time::{Moment, SECOND};
use crate::protocol::exchange::versions;
use crate::sync::MutexGuard;
use crate::sys::Address;
use crate::value::{Space, Window};

/// Groups that hosts fall into, by a secret.
const GROUPS: usize = 1024;
/// For so long a group's answers are counted together: longer than the kernel looks for a host.
const PERIOD: u64 = 4 * SECOND;
/// How full the send buffer is, in 256ths, when each group gets two answers in one period, when it gets
/// one, and when none gets any.
const FILLS: u32 = 64;
const HALF: u32 = 128;
const FULL: u32 = 192;

/// How many answers each group of hosts got since one of them proved that it is there.
pub(super) struct UnverifiedHosts {
    /// The period, in the upper half, and how many in it.
    groups: Box<[AtomicU32]>,
}

impl UnverifiedHosts {
    pub(super) fn new() -> Self {
        Self { groups: (0..GROUPS).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Whether a host of this group gets an answer, which is counted then. `fill`: how full the send
    /// buffer is, in 256ths.
    fn admit(&self, now: Moment, group: u64, fill: u32) -> bool {
        let period = ((now.0 / PERIOD) as u32) << 16;
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
        // A group that got all that can be counted gets more as long as there is room for everybody.
        admitted.is_ok() || fill < FILLS
    }

    /// A host of this group has shown a cookie: answers reach it, and do not stay in the send buffer.
    fn prove(&self, group: u64) {
        self.groups[(group % GROUPS as u64) as usize].store(0, Ordering::Relaxed);
    }
}

/// Whether a packet fits the way to its receiver, as far as this machine knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SizeFit {
    Fits,
    TooLarge,
}

impl ServerSocket {
    /// Notes how sending so many packets went: what the socket did not take is lost, like any other
    /// packet, and counted.
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
        let wide = error.raw_os_error() == Some(libc::EMSGSIZE);
        if wide { SizeFit::TooLarge } else { SizeFit::Fits }
    }

    /// The way to a client does not take the packets of its result: this machine's own interface, or
    /// a router on the way that said so, takes only shorter ones. The result is sent again in pieces
    /// that fit.
    #[cold]
    fn narrow(&self, mut record: MutexGuard<'_, Inner>, output: &mut [u8], counting: &Counting) {
        let Inner { server_end, to, .. } = &mut *record;
        let fits = self.socket.payload_to(to, HEADER_BYTES);
        if fits.is_ok_and(|piece| server_end.reduce_piece(piece as u32)) {
            // Not again without end: each time the pieces are smaller.
            self.send_pending(record, output, counting);
        }
    }

    /// Answers a host that has proven nothing, if it gets an answer.
    #[cold]
    pub(super) fn answer_unverified(&self, now: Moment, packet: &[u8], to: &Address) {
        let fill = self.socket.fill_of_send_buffer();
        if !self.unverified.admit(now, self.peer(PeerAddress::of(to).host()), fill) {
            self.unsent.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.note_sent(1, self.socket.send(&[Window::from(packet)], Some(to)));
    }

    /// A host has proven that it is where it says.
    pub(super) fn note_verified(&self, from: &Address) {
        self.unverified.prove(self.peer(PeerAddress::of(from).host()));
    }

    /// Sends what a record has to send.
    pub(super) fn send_pending(
        &self,
        mut record: MutexGuard<'_, Inner>,
        output: &mut [u8],
        counting: &Counting,
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
            let _ = whole.write(0, header);
            counting.resent(resent);
            // All in one packet. If it is lost the client asks for it.
            let bytes = whole.window().len();
            if bytes > COPIED {
                let sent = self.note_sent(1, self.socket.send(&[whole.window()], Some(to)));
                if sent == SizeFit::TooLarge {
                    self.narrow(record, output, counting);
                }
                return;
            }
            // On the processor that this thread is on, the client may run before `send` returns;
            // then its next call must not find the record locked.
            let (to, place, out) = (*to, server_end.bound_handle().place, &mut output[..bytes]);
            let _ = whole.read(0, out);
            drop(record);
            let sent = self.note_sent(1, self.socket.send(&[Window::from(&*out)], Some(&to)));
            if sent == SizeFit::TooLarge
                && let Some(record) = self.record(place)
            {
                self.narrow(record.0.lock(), output, counting);
            }
            return;
        }
        let mut batch = GsoBatch::new(output, &self.socket);
        let mut next = Some(send);
        let mut chunk = checks::Chunk::default();
        let mut fits = SizeFit::Fits;
        while let Some(send) = next {
            let (start, length) = (HEADER_BYTES + send.range.start as usize, send.range.len());
            // A packet without payload needs no memory.
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

    /// Refuses a packet that a record does not know.
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

    /// Counts a datagram that this release cannot read. A client of another version of the wire that
    /// wants to bind is told so.
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
    fn everybody_is_answered_while_there_is_room() {
        let unverified = UnverifiedHosts::new();
        assert!((0..200_000).all(|_| unverified.admit(NOW, 7, FILLS - 1)));
    }

    #[test]
    fn a_group_gets_few_answers_while_the_buffer_fills_and_others_get_theirs() {
        let unverified = UnverifiedHosts::new();
        let admitted =
            |now, group| (0..100).filter(|_| unverified.admit(now, group, FILLS)).count();
        assert_eq!([admitted(NOW, 1), admitted(NOW, 2), admitted(NOW, 1)], [2, 2, 0]);
        unverified.prove(2);
        assert_eq!([admitted(NOW, 2), admitted(NOW, 1)], [2, 0]);
        assert_eq!(admitted(Moment(NOW.0 + PERIOD), 1), 2, "in the next period");
        assert!(unverified.admit(NOW, 4, HALF) && !unverified.admit(NOW, 4, HALF));
        assert!(!unverified.admit(NOW, 3, FULL));
        assert!(unverified.admit(NOW, 1, FILLS - 1));
    }
}
