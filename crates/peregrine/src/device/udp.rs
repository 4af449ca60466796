//! UDP: datagrams, alone and in trains, to and from where the caller says.
//!
//! What the kernel charges decides how this is used (measured, see `docs/PERFORMANCE.md`):
//!
//! * One piece is cheapest. A header and its payload that lie behind each other go by `send`, which
//!   takes a tenth of a microsecond less than `sendmsg` with two parts, and so when receiving.
//!   Copying a kilobyte behind its header costs less than a second part does. So a [`GsoBatch`](super::GsoBatch) copies
//!   what is small and gathers what is large.
//! * A train of equal datagrams that the kernel carries as one (`UDP_SEGMENT`, `UDP_GRO`) costs a
//!   third of the same datagrams one by one, or less.
//! * A connected socket saves the look-up of a route with every datagram: a tenth of a round trip.
//! * A datagram wakes a thread that sleeps on its socket, even if another one spins there and takes
//!   it: who spins must be alone on its socket.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::SendDatagrams;
pub(crate) use crate::sys::Arrival;
use crate::sys::{Address, Datagrams, IfFull};
use crate::value::{Space, Window};

/// Bytes that a datagram or a train may have at most: what fits an IPv4 packet.
pub(crate) const BYTES_MAX: usize = 65_535 - IP_V4 - UDP;
const IP_V4: usize = 20;
const IP_V6: usize = 40;
const UDP: usize = 8;

/// How long to wait for something to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Not at all: one look.
    Now,
    /// Asleep, for at least so long; a quarter and some milliseconds more are possible.
    After(Duration),
    /// The same to some tens of microseconds, for one more system call.
    Precisely(Duration),
    /// Asleep, until something comes.
    Ever,
}

/// A socket, and what was set last.
#[derive(Debug)]
pub(crate) struct Udp {
    socket: Datagrams,
    connected: bool,
    /// Whether it is bound to all addresses of this machine, and learns which one was asked.
    everywhere: bool,
    merges: AtomicBool,
    /// How long receiving waits, in nanoseconds; 0 is for ever.
    limit_ns: AtomicU64,
}

impl Udp {
    /// A socket with an address of its own, that anybody may send to.
    ///
    /// # Errors
    /// Those of `bind`: another socket has that address, or this machine has not.
    pub(crate) fn bound(to: SocketAddr) -> io::Result<Self> {
        let everywhere = to.ip().is_unspecified();
        let to = Address::from(to);
        let mut socket = Self::new(&to)?;
        if to.is_v6() {
            // As over TCP: who wants both versions listens at both.
            socket.socket.only_v6()?;
        }
        if everywhere {
            // Before anything can arrive.
            socket.socket.tell_asked(to.is_v6())?;
            socket.everywhere = true;
        }
        socket.socket.bind(&to)?;
        Ok(socket)
    }

    /// A socket that sends to and hears from one peer only.
    ///
    /// # Errors
    /// If there is no route to it.
    pub(crate) fn connected(to: SocketAddr) -> io::Result<Self> {
        let to = Address::from(to);
        let mut socket = Self::new(&to)?;
        socket.socket.connect(&to)?;
        socket.connected = true;
        Ok(socket)
    }

    fn new(like: &Address) -> io::Result<Self> {
        let socket = Datagrams::new(like)?;
        // Fragments share 16 bits of a number: at a high rate those of different packets are put together,
        // and one time in 65,536 the checksum does not tell. Pieces are made smaller instead.
        socket.keep_whole(like.is_v6(), true)?;
        Ok(Self {
            socket,
            connected: false,
            everywhere: false,
            merges: AtomicBool::new(false),
            limit_ns: AtomicU64::new(0),
        })
    }

    /// Its own address.
    pub(crate) fn local(&self) -> io::Result<SocketAddr> {
        Ok(self.socket.local()?.into())
    }

    /// A calling thread waits until there is room for what it sends. A socket that many send to waits
    /// for nobody: all would wait until one of them, who may not even exist, takes what is under way.
    const fn if_full(&self) -> IfFull {
        if self.connected { IfFull::Wait } else { IfFull::Fail }
    }

    /// Sends one datagram made of these parts; without `to` on a connected socket.
    ///
    /// # Errors
    /// Those of `sendmsg`. `ConnectionRefused`: an *earlier* datagram met a closed port, and this
    /// one was not sent. `WouldBlock`, only on a socket that is not connected: the send buffer is full.
    #[inline]
    pub(crate) fn send(&self, parts: &[Window<'_>], to: Option<&Address>) -> io::Result<()> {
        self.send_or(parts, to, self.if_full())
    }

    /// The same, on behalf of somebody else: it does not wait.
    ///
    /// # Errors
    /// As for [`send`](Self::send), and `WouldBlock` on every socket.
    pub(crate) fn send_now(&self, parts: &[Window<'_>]) -> io::Result<()> {
        self.send_or(parts, None, IfFull::Fail)
    }

    #[inline]
    fn send_or(
        &self,
        parts: &[Window<'_>],
        to: Option<&Address>,
        if_full: IfFull,
    ) -> io::Result<()> {
        let sent = match parts {
            [whole] => self.socket.send(*whole, to, if_full),
            _ => self.socket.gather(parts, to, None, if_full),
        };
        sent.map(|_| ())
    }

    /// A train that the kernel has to make, or refuse.
    #[cfg(test)]
    pub(super) fn gather(&self, parts: &[Window<'_>], segment: u16) -> io::Result<usize> {
        self.socket.gather(parts, None, Some(segment), IfFull::Wait)
    }

    /// Makes threads that sleep in receiving come back, from now on.
    pub(crate) fn close(&self) {
        // A socket that is connected to nobody cannot be shut down, which is what the kernel says
        // after it has woken everybody.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Read);
    }

    /// Receives a datagram, or a train if the socket [merges](Self::merge), into these spaces,
    /// filled one after the other. `None` if nothing came in time.
    ///
    /// # Errors
    /// Those of `recvmsg`. `ConnectionRefused`: what was sent met a closed port (connected sockets
    /// only; told once).
    #[inline]
    pub(crate) fn receive(
        &self,
        into: &[Space<'_>],
        from: Option<&mut Address>,
        until: Until,
    ) -> io::Result<Option<Arrival>> {
        let now = matches!(until, Until::Now | Until::Precisely(_));
        match until {
            Until::Now => {}
            Until::Precisely(limit) => {
                let limit = Timespec::try_from(limit).unwrap_or_default();
                let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&limit));
            }
            Until::After(limit) => self.limit(limit)?,
            Until::Ever => self.limit(Duration::ZERO)?,
        }
        let arrived = match into {
            [whole] if !self.has_gro() && !self.everywhere => {
                self.socket.receive(*whole, from, now)
            }
            _ => self.socket.scatter(into, from, now),
        };
        match arrived {
            Ok(arrival) => Ok(Some(arrival)),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Sets how long receiving waits, if it is not about so long already: a call that waits a little
    /// longer than it asked for is better than one more system call. Threads that sleep on one
    /// socket share its limit: all of them are to sleep until something comes.
    fn limit(&self, limit: Duration) -> io::Result<()> {
        let wanted = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let set = self.limit_ns.load(Ordering::Relaxed);
        if is_about(set, wanted) {
            return Ok(());
        }
        // Less than a microsecond would be for ever.
        self.socket.limit(if wanted == 0 { limit } else { limit.max(Duration::from_micros(1)) })?;
        self.limit_ns.store(wanted, Ordering::Relaxed);
        Ok(())
    }

    /// Lets trains arrive in one piece from now on. Receiving then takes a tenth of a microsecond
    /// more, and needs room for [`BYTES_MAX`].
    ///
    /// # Errors
    /// If the kernel does not know how.
    pub(crate) fn enable_gro(&self) -> io::Result<()> {
        // Before anything can arrive that way.
        self.merges.store(true, Ordering::Relaxed);
        self.socket.merge(true)
    }

    /// Whether trains may arrive in one piece.
    #[inline]
    pub(crate) fn has_gro(&self) -> bool {
        self.merges.load(Ordering::Relaxed)
    }

    /// Asks for so many bytes of memory for what has arrived and for what is under way, and gives
    /// what the kernel granted. It counts with its own headers: some 700 bytes a datagram.
    ///
    /// # Errors
    /// Those of `setsockopt`; to be granted less is none.
    pub(crate) fn size_buffers(&self, receive: usize, send: usize) -> io::Result<[usize; 2]> {
        self.socket.size_buffers(receive, send)
    }

    /// Bytes of the send buffer that are taken, and all there are, as the kernel counts.
    ///
    /// # Errors
    /// If the kernel does not tell (before Linux 4.12).
    pub(crate) fn send_buffer(&self) -> io::Result<[u32; 2]> {
        self.socket.send_buffer()
    }

    /// How many datagrams found no room since the socket was made.
    ///
    /// # Errors
    /// If the kernel does not tell (before Linux 4.12).
    pub(crate) fn overflowed(&self) -> io::Result<u32> {
        self.socket.overflowed()
    }

    /// Lets packets be cut up on their way: what has to be sent does not fit it otherwise.
    ///
    /// # Errors
    /// Those of `setsockopt`.
    pub(crate) fn allow_fragmentation(&self) -> io::Result<()> {
        self.socket.keep_whole(self.socket.local()?.is_v6(), false)
    }

    /// Bytes behind a header of so many that a datagram to the peer may have without being cut up on
    /// the way, as far as is known now: a multiple of 16. For connected sockets.
    ///
    /// # Errors
    /// If the socket is not connected.
    pub(crate) fn payload(&self, header: usize) -> io::Result<usize> {
        if !self.connected {
            return Err(ErrorKind::NotConnected.into());
        }
        let v6 = self.socket.local()?.is_v6();
        Ok(payload(self.socket.mtu(v6)?, v6, header))
    }
}

/// As [`Udp::payload`], for a peer that an unconnected socket answers.
///
/// # Errors
/// If there is no route to it.
pub(crate) fn payload_to(peer: SocketAddr, header: usize) -> io::Result<usize> {
    // Connecting sends nothing.
    Udp::connected(peer)?.payload(header)
}

/// Bytes behind a header in a packet of `mtu` bytes.
fn payload(mtu: usize, v6: bool, header: usize) -> usize {
    let ip = if v6 { IP_V6 } else { IP_V4 };
    mtu.saturating_sub(ip + UDP).min(BYTES_MAX).saturating_sub(header) & !15
}

/// Whether the kernel, or a device on the way, refuses a train for what it is: `EIO` for want of
/// checksums made by the device, `EINVAL` from kernels that know none, `EMSGSIZE` if its datagrams
/// would have to be cut up.
pub(super) fn is_gso_refused(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [libc::EIO, libc::EINVAL, libc::EMSGSIZE, libc::EOPNOTSUPP].map(Some).contains(&code)
}

/// Sends the datagrams of a train, each for itself. Once one has left, the others are lost if they do not.
pub(super) fn send_singly(
    by: &Udp,
    parts: &[Window<'_>],
    segment: usize,
    to: Option<&Address>,
) -> io::Result<()> {
    let mut left = false;
    super::gso::cut(parts, segment, &mut |datagram| match by.send(datagram, to) {
        Ok(()) => {
            left = true;
            Ok(())
        }
        // An error says that nothing has left.
        Err(error) if !left => Err(error),
        Err(_) => Ok(()),
    })
}

/// Whether a limit will do for another: not shorter, and not much longer.
const fn is_about(set_ns: u64, wanted_ns: u64) -> bool {
    const SOME_MS: u64 = 1_000_000;
    if set_ns == 0 || wanted_ns == 0 {
        return set_ns == wanted_ns;
    }
    set_ns >= wanted_ns && set_ns - wanted_ns <= wanted_ns / 4 + SOME_MS
}

impl SendDatagrams for Udp {
    fn send(&self, parts: &[Window<'_>], to: Option<&Address>) -> io::Result<()> {
        self.send(parts, to)
    }

    /// As a train, or one by one where the kernel makes no trains of these.
    fn send_batch(
        &self,
        parts: &[Window<'_>],
        segment: usize,
        to: Option<&Address>,
    ) -> io::Result<()> {
        let Ok(short) = u16::try_from(segment) else {
            return send_singly(self, parts, segment, to);
        };
        match self.socket.gather(parts, to, Some(short), self.if_full()) {
            Err(error) if is_gso_refused(&error) => send_singly(self, parts, segment, to),
            sent => sent.map(|_| ()),
        }
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The datagrams of what arrived, by where each lies in it.
pub(crate) fn datagrams(arrival: Arrival) -> impl ExactSizeIterator<Item = Range<usize>> {
    let Arrival { bytes, segment, .. } = arrival;
    let count = if bytes == 0 { 1 } else { bytes.div_ceil(segment.max(1)) };
    (0..count).map(move |n| n * segment..((n + 1) * segment).min(bytes))
}

/// Copies what arrived from byte `at` on out of the spaces that it was received into, until `to` is
/// full: for what was expected elsewhere. False if not so much can have arrived.
///
/// Source and destination may overlap within one space. If several datagrams have to be moved up,
/// among places of each other, the last is to be moved first.
pub(crate) fn copy_across(from: &[Space<'_>], at: usize, to: Space<'_>) -> bool {
    let (mut skip, mut done) = (at, 0);
    let all = to.window().len();
    for space in from {
        let bytes = space.window().len();
        if skip >= bytes {
            skip -= bytes;
            continue;
        }
        let some = (bytes - skip).min(all - done);
        let (source, place) = (space.part(skip, some), to.part(done, some));
        let (Some(source), Some(place)) = (source, place) else { return false };
        place.copy_from(source.window());
        (skip, done) = (0, done + some);
        if done == all {
            return true;
        }
    }
    done == all
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::Instant;

    pub(crate) const HEADER: usize = 64;
    pub(crate) const SOON: Until = Until::After(Duration::from_secs(5));

    pub(crate) fn loopback() -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 0).into()
    }

    /// Somebody that anybody may send to, and one who is connected to it.
    pub(crate) fn pair(at: SocketAddr) -> (Udp, Udp) {
        let far = Udp::bound(at).unwrap();
        let near = Udp::connected(far.local().unwrap()).unwrap();
        (near, far)
    }

    /// Bytes that tell where they were.
    pub(crate) fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
        (0..bytes).map(|n| (n * 7 + n / 251 + seed) as u8).collect()
    }

    pub(crate) fn received(by: &Udp, into: &mut [u8], from: Option<&mut Address>) -> Arrival {
        by.receive(&[Space::of_mut(into)], from, SOON).unwrap().expect("a datagram")
    }

    #[test]
    fn datagrams_go_there_and_back_in_both_versions() {
        let v6 = Udp::bound("[::1]:0".parse().unwrap());
        if v6.is_err() {
            eprintln!("skipped in part: this machine has no IPv6");
        }
        for at in [Some(loopback()), v6.ok().map(|_| "[::1]:0".parse().unwrap())] {
            let Some(at) = at else { continue };
            let (near, far) = pair(at);
            let (head, body) = (pattern(HEADER, 1), pattern(1024, 2));
            let parts = [Window::of(&head), Window::of(&body[..1000]), Window::of(&body[1000..])];
            near.send(&parts, None).unwrap();
            let mut buffer = [0; 2048];
            let mut from = Address::default();
            let arrival = received(&far, &mut buffer, Some(&mut from));
            assert_eq!((arrival.bytes, arrival.cut), (HEADER + 1024, false));
            assert_eq!(buffer[..HEADER + 1024], [&head[..], &body[..]].concat());
            assert_eq!(SocketAddr::from(from), near.local().unwrap());
            // Back in one piece, to the header's and the payload's places.
            far.send(&[Window::of(&buffer[..HEADER + 1024])], Some(&from)).unwrap();
            let (mut head_in, mut body_in) = ([0; HEADER], [0; 1500]);
            let into = [Space::of_mut(&mut head_in), Space::of_mut(&mut body_in)];
            let arrival = near.receive(&into, None, SOON).unwrap().unwrap();
            assert_eq!(datagrams(arrival).next(), Some(0..HEADER + 1024));
            assert_eq!(datagrams(arrival).len(), 1);
            assert_eq!((&head_in[..], &body_in[..1024]), (&head[..], &body[..]));
        }
    }

    #[test]
    fn what_is_too_long_is_cut_and_said_to_be() {
        let (near, far) = pair(loopback());
        for spaces in [1, 2] {
            near.send(&[Window::of(&[7; 100])], None).unwrap();
            let (mut one, mut other) = ([0; 40], [0; 40]);
            let into = [Space::of_mut(&mut one), Space::of_mut(&mut other)];
            let arrival = far.receive(&into[..spaces], None, SOON).unwrap().unwrap();
            assert_eq!((arrival.bytes, arrival.cut), (40 * spaces, true));
        }
        // An empty datagram is one, too.
        near.send(&[], None).unwrap();
        let arrival = received(&far, &mut [0; 8], None);
        assert_eq!((arrival.bytes, arrival.cut), (0, false));
        assert_eq!(datagrams(arrival).len(), 1);
    }

    #[test]
    fn nothing_comes_now_or_within_a_limit_that_is_set_only_when_it_must_be() {
        let (near, far) = pair(loopback());
        let mut buffer = [0; 8];
        let mut wait = |until| {
            let start = Instant::now();
            let into = [Space::of_mut(&mut buffer)];
            assert_eq!(far.receive(&into, None, until).unwrap(), None);
            start.elapsed()
        };
        wait(Until::Now);
        let limit = |ms| Until::After(Duration::from_millis(ms));
        assert!(wait(limit(20)) >= Duration::from_millis(20));
        let set = || far.limit_ns.load(Ordering::Relaxed) / 1_000_000;
        assert!(wait(limit(17)) >= Duration::from_millis(17));
        assert_eq!(set(), 20);
        assert!(wait(limit(40)) >= Duration::from_millis(40));
        assert_eq!(set(), 40);
        wait(limit(5));
        assert_eq!(set(), 5);
        wait(Until::Now);
        assert_eq!(set(), 5);
        // For ever, which ends as soon as something comes.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                near.send(&[Window::of(b"now")], None).unwrap();
            });
            let arrival = far.receive(&[Space::of_mut(&mut buffer)], None, Until::Ever);
            assert_eq!(arrival.unwrap().unwrap().bytes, 3);
        });
        assert_eq!(set(), 0);
    }

    #[test]
    fn limits_are_about_the_same_if_not_shorter() {
        const MS: u64 = 1_000_000;
        assert!(
            is_about(5 * MS, 5 * MS) && is_about(7 * MS, 5 * MS) && is_about(250 * MS, 200 * MS)
        );
        assert!(!is_about(5 * MS - 1, 5 * MS) && !is_about(8 * MS, 5 * MS));
        assert!(is_about(0, 0) && !is_about(0, MS) && !is_about(MS, 0));
    }

    #[test]
    fn a_closed_port_is_told_as_what_it_is() {
        let (near, far) = pair(loopback());
        let there = far.local().unwrap();
        drop(far);
        near.send(&[Window::of(b"anybody?")], None).unwrap();
        let error = near.receive(&[Space::none()], None, SOON).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        // Sending tells of it as well, once, and the next one goes.
        near.send(&[Window::of(b"anybody?")], None).unwrap();
        let again = near.send(&[Window::of(b"anybody?")], None);
        assert_eq!(again.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let far = Udp::bound(there).unwrap();
        near.send(&[Window::of(b"anybody?")], None).unwrap();
        assert_eq!(received(&far, &mut [0; 64], None).bytes, 8);
    }

    #[test]
    fn buffers_have_a_size_and_overflow_is_counted() {
        let (near, far) = pair(loopback());
        let [receive, send] = far.size_buffers(16 << 10, 16 << 10).unwrap();
        assert!(receive >= 16 << 10 && send >= 4 << 10, "{receive} {send}");
        assert_eq!(far.overflowed().unwrap(), 0);
        for _ in 0..200 {
            near.send(&[Window::of(&[1; 1000])], None).unwrap();
        }
        let mut came = 0;
        while far.receive(&[Space::of_mut(&mut [0; 1000])], None, Until::Now).unwrap().is_some() {
            came += 1;
        }
        assert!(came > 0);
        assert_eq!(far.overflowed().unwrap(), 200 - came);
        // More than everybody may have is granted to those who may have it, and else cut.
        let [receive, _] = far.size_buffers(64 << 20, 1 << 20).unwrap();
        assert!(receive > 64 << 10, "{receive}");
    }

    #[test]
    fn payloads_fit_the_route_and_are_multiples_of_a_quadword() {
        assert_eq!(payload(1500, false, HEADER), 1408);
        assert_eq!(payload(1500, true, HEADER), 1376);
        assert_eq!(payload(9000, false, HEADER), 8896);
        assert_eq!(payload(100, false, HEADER), 0);
        assert_eq!(payload(0, true, HEADER), 0);
        assert_eq!(payload(usize::MAX, false, HEADER), (BYTES_MAX - HEADER) & !15);
        let (near, far) = pair(loopback());
        // Loopback has an MTU of 65,536 unless somebody changed it.
        let mtu = near.socket.mtu(false).unwrap();
        assert_eq!(near.payload(HEADER).unwrap(), payload(mtu, false, HEADER));
        assert_eq!(payload(65_536, false, HEADER), 65_440);
        let to = far.local().unwrap();
        assert_eq!(payload_to(to, HEADER).unwrap(), near.payload(HEADER).unwrap());
        assert_eq!(far.payload(HEADER).unwrap_err().kind(), ErrorKind::NotConnected);
    }

    #[test]
    fn what_lies_elsewhere_than_expected_is_moved() {
        // Two datagrams, of which the first was lost: they lie where the first two belong.
        let mut memory = pattern(300, 1);
        let was = memory.clone();
        let all = Space::of_mut(&mut memory);
        let place = |n: usize| all.part(n * 100, 100).unwrap();
        let came = [place(0), place(1)];
        assert!(copy_across(&came, 100, place(2)));
        assert!(copy_across(&came, 0, place(1)));
        assert!(memory[100..] == was[..200]);
        // Across the border of two, and further than there is.
        let mut memory = pattern(300, 1);
        let all = Space::of_mut(&mut memory);
        let parts = [all.part(0, 30).unwrap(), Space::none(), all.part(50, 100).unwrap()];
        let mut out = [0; 60];
        assert!(copy_across(&parts, 10, Space::of_mut(&mut out)));
        assert!(out[..20] == was[10..30] && out[20..] == was[50..90]);
        assert!(!copy_across(&parts, 71, Space::of_mut(&mut out)));
        assert!(copy_across(&parts, 500, Space::none()));
    }
}
