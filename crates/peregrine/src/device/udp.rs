//! Sends and receives UDP datagrams, alone and in batches, to and from the caller's memory.
//!
//! The design follows from measured costs in the kernel (see `docs/PERFORMANCE.md`):
//!
//! * A datagram that lies in one part of memory costs least. If a header lies directly before its payload,
//!   both are sent with `send`. This takes a tenth of a microsecond less than `sendmsg` with two parts. The
//!   same holds for receiving. Copying a kilobyte so that it follows its header costs less than a second
//!   part. So a [`GsoBatch`](super::GsoBatch) copies small parts and gathers large ones.
//! * The kernel can handle a batch of datagrams of one length as a whole (`UDP_SEGMENT`, `UDP_GRO`). The
//!   batch then costs at most a third of what the same datagrams cost when they are sent singly.
//! * A connected socket saves the look-up of a route for each datagram. This saves a tenth of a round trip.
//! * A datagram wakes a thread that sleeps on a socket, even if another thread polls the same socket and
//!   takes the datagram. So a thread that polls must be the only thread on its socket.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use rustix::net::SocketType;

use super::SendDatagrams;
use super::inherited::{self, Taken};
pub(crate) use crate::sys::Arrival;
use crate::sys::{Address, Datagrams, IfFull};
use crate::value::{Space, Window};

/// The size in bytes of the largest datagram or batch: the payload of the largest IPv4 packet.
pub(crate) const BYTES_MAX: usize = 65_535 - IP_V4 - UDP;
const IP_V4: usize = 20;
const IP_V6: usize = 40;
const UDP: usize = 8;

/// How long to wait for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Return at once.
    Now,
    /// Sleep until a datagram arrives, or for at least this time. Without a datagram, the sleep may exceed
    /// this time by a quarter and some milliseconds.
    After(Duration),
    /// Sleep until a datagram arrives, or for this time, with a precision of some tens of microseconds. This
    /// mode costs an additional system call.
    Precisely(Duration),
    /// Sleep until a datagram arrives.
    Ever,
}

/// A socket, with its current settings.
#[derive(Debug)]
pub(crate) struct Udp {
    socket: Datagrams,
    connected: bool,
    /// Whether the socket is bound to all addresses of this machine, and the kernel reports the
    /// destination address of each datagram.
    everywhere: bool,
    merges: AtomicBool,
    /// The receive timeout of the socket, in nanoseconds. 0 means no timeout.
    limit_ns: AtomicU64,
    /// Set if this process has inherited the socket.
    inherited: Option<Inherited>,
}

/// What must be known of an inherited socket.
#[derive(Debug)]
struct Inherited {
    _taken: Taken,
    /// Whether the socket was [closed](Udp::close).
    closed: AtomicBool,
}

impl Udp {
    /// Creates a socket that is bound to the address `to`, and that receives from any host.
    ///
    /// # Errors
    /// Those of `bind`: another socket has the address, or the address does not belong to this machine.
    pub(crate) fn bound(to: SocketAddr) -> io::Result<Self> {
        let everywhere = to.ip().is_unspecified();
        if let Some((socket, taken)) = inherited::take(SocketType::DGRAM, &to)? {
            return Self::adopted(Datagrams::of(socket), taken, &to.into(), everywhere);
        }
        let to = Address::from(to);
        let mut socket = Self::new(&to)?;
        if to.is_v6() {
            // A server for both IP versions listens at two addresses, as it does over TCP. So this socket is
            // for IPv6 only.
            socket.socket.only_v6()?;
        }
        if everywhere {
            // This option must be set before a datagram can arrive.
            socket.socket.report_local_address(to.is_v6())?;
            socket.everywhere = true;
        }
        let bound = socket.socket.bind(&to);
        bound.map_err(|error| inherited::explain(error, SocketType::DGRAM))?;
        Ok(socket)
    }

    /// Prepares an inherited socket, which may have the settings of the server that used it before.
    fn adopted(
        socket: Datagrams,
        taken: Taken,
        at: &Address,
        everywhere: bool,
    ) -> io::Result<Self> {
        if everywhere {
            socket.report_local_address(at.is_v6())?;
        }
        rustix::io::ioctl_fionbio(&socket, false)?;
        // Kernels without GRO do not know the option, and need not.
        let _ = socket.merge(false);
        socket.limit(Duration::ZERO)?;
        let inherited = Inherited { _taken: taken, closed: AtomicBool::new(false) };
        let new = Self::of(socket, at)?;
        Ok(Self { everywhere, inherited: Some(inherited), ..new })
    }

    /// Creates a socket that sends to and receives from one peer only.
    ///
    /// # Errors
    /// If there is no route to the peer.
    pub(crate) fn connected(to: SocketAddr) -> io::Result<Self> {
        let to = Address::from(to);
        let mut socket = Self::new(&to)?;
        socket.socket.connect(&to)?;
        socket.connected = true;
        Ok(socket)
    }

    fn new(like: &Address) -> io::Result<Self> {
        Self::of(Datagrams::new(like)?, like)
    }

    fn of(socket: Datagrams, like: &Address) -> io::Result<Self> {
        // A 16-bit number identifies the IP fragments that belong together. At a high rate, numbers repeat
        // soon, and the kernel combines fragments of different packets. The checksum then misses one case in
        // 65,536. So fragmentation is disabled, and messages are divided into pieces that fit the MTU of the
        // network path.
        socket.keep_whole(like.is_v6(), true)?;
        Ok(Self {
            socket,
            connected: false,
            everywhere: false,
            merges: AtomicBool::new(false),
            limit_ns: AtomicU64::new(0),
            inherited: None,
        })
    }

    /// Returns the socket's address.
    pub(crate) fn local(&self) -> io::Result<SocketAddr> {
        Ok(self.socket.local()?.into())
    }

    /// Returns what to do if the send buffer is full. A thread that makes a call waits until the buffer has
    /// free space. A server's socket does not wait. If it waited, all clients would wait until the network
    /// accepts the datagrams for one client, and that client may not even exist.
    const fn if_full(&self) -> IfFull {
        if self.connected { IfFull::Wait } else { IfFull::Fail }
    }

    /// Sends one datagram, which consists of `parts`, to `to`. If `to` is `None`, sends to the peer.
    ///
    /// # Errors
    /// Those of `sendmsg`. `ConnectionRefused` means that an *earlier* datagram reached a closed port. Even
    /// then, this datagram was not sent. `WouldBlock` means that the send buffer is full. This error occurs
    /// only on an unconnected socket.
    #[inline]
    pub(crate) fn send(&self, parts: &[Window<'_>], to: Option<&Address>) -> io::Result<()> {
        self.send_or(parts, to, self.if_full())
    }

    /// Sends one datagram as [`send`](Self::send) does. `if_full` says what to do if the send buffer is full.
    ///
    /// # Errors
    /// As for [`send`](Self::send), but `WouldBlock` may also occur on a connected socket.
    #[inline]
    pub(super) fn send_or(
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

    /// Sends datagrams as a batch. If the kernel refuses the batch, sends them one by one. `if_full` says
    /// what to do if the send buffer is full.
    ///
    /// # Errors
    /// As for [`send`](Self::send). After an error, no datagram was sent.
    pub(super) fn send_batch_or(
        &self,
        parts: &[Window<'_>],
        segment: usize,
        to: Option<&Address>,
        if_full: IfFull,
    ) -> io::Result<()> {
        let singly = || send_singly(parts, segment, |part| self.send_or(part, to, if_full));
        let Ok(short) = u16::try_from(segment) else { return singly() };
        match self.socket.gather(parts, to, Some(short), if_full) {
            Err(error) if is_gso_refused(&error) => singly(),
            sent => sent.map(|_| ()),
        }
    }

    /// Sends a batch with one system call. The kernel segments the batch, or refuses it.
    #[cfg(test)]
    pub(super) fn gather(&self, parts: &[Window<'_>], segment: u16) -> io::Result<usize> {
        self.socket.gather(parts, None, Some(segment), IfFull::Wait)
    }

    /// Wakes all threads that sleep in [`receive`](Self::receive). Later calls of `receive` do not sleep.
    pub(crate) fn close(&self) {
        /// More threads than this do not sleep on a server's socket.
        const SLEEPERS_MAX: usize = 16;
        if let Some(inherited) = &self.inherited {
            // Shutting the socket down would also shut it down for the next process that gets it. So each
            // sleeping thread is woken by a datagram. The next process drops those that are left.
            inherited.closed.store(true, Ordering::SeqCst);
            (0..SLEEPERS_MAX).for_each(|_| drop(self.wake_one()));
            return;
        }
        // For an unconnected socket, the kernel returns an error. But before that, it wakes all threads.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Read);
    }

    /// Sends an empty datagram to this socket.
    fn wake_one(&self) -> io::Result<()> {
        let mut at = self.local()?;
        if at.ip().is_unspecified() {
            at.set_ip(match at {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        self.socket.send(Window::of(&[]), Some(&at.into()), IfFull::Fail).map(drop)
    }

    /// Returns whether this is an inherited socket that was closed.
    fn is_closed(&self) -> bool {
        self.inherited.as_ref().is_some_and(|inherited| inherited.closed.load(Ordering::SeqCst))
    }

    /// Receives a datagram into the spaces `into`, which are filled one after another. With
    /// [GRO](Self::enable_gro), may receive a batch. Returns `None` if nothing arrived in time.
    ///
    /// # Errors
    /// Those of `recvmsg`. `ConnectionRefused` means that an earlier datagram of this socket reached a closed
    /// port. This error occurs only on a connected socket. The kernel reports each such error once.
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
            Until::Ever if self.is_closed() => return Ok(None),
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

    /// Sets the receive timeout of the socket to `limit`. [`Duration::ZERO`] means no timeout. The current
    /// timeout is kept if it equals `limit` or is slightly longer, because a slightly longer wait costs less
    /// than a system call. All threads that sleep on the socket share the timeout. So a thread may request a
    /// timeout only if no other thread sleeps on the socket.
    fn limit(&self, limit: Duration) -> io::Result<()> {
        let wanted = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let set = self.limit_ns.load(Ordering::Relaxed);
        if is_about(set, wanted) {
            return Ok(());
        }
        // The kernel would round a timeout below one microsecond to zero, which means no timeout.
        self.socket.limit(if wanted == 0 { limit } else { limit.max(Duration::from_micros(1)) })?;
        self.limit_ns.store(wanted, Ordering::Relaxed);
        Ok(())
    }

    /// Lets several datagrams arrive as one batch from now on. Each reception then takes a tenth of a
    /// microsecond more, and needs memory for [`BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// If the kernel does not support GRO.
    pub(crate) fn enable_gro(&self) -> io::Result<()> {
        // The flag must be set before a batch can arrive.
        self.merges.store(true, Ordering::Relaxed);
        self.socket.merge(true)
    }

    /// Returns whether datagrams may arrive in batches.
    #[inline]
    pub(crate) fn has_gro(&self) -> bool {
        self.merges.load(Ordering::Relaxed)
    }

    /// Requests a receive buffer of `receive` bytes and a send buffer of `send` bytes. Returns the two sizes
    /// that the kernel granted. Against these sizes, the kernel also counts its own data: about 770 bytes for
    /// each datagram.
    ///
    /// # Errors
    /// Those of `setsockopt`. It is not an error if the kernel grants less than requested.
    pub(crate) fn size_buffers(&self, receive: usize, send: usize) -> io::Result<[usize; 2]> {
        self.socket.size_buffers(receive, send)
    }

    /// Returns the used and the total bytes of the send buffer, as the kernel counts them.
    ///
    /// # Errors
    /// If the kernel does not report them (before Linux 4.12).
    pub(crate) fn send_buffer(&self) -> io::Result<[u32; 2]> {
        self.socket.send_buffer()
    }

    /// Returns the number of datagrams that were dropped because the receive buffer was full.
    ///
    /// # Errors
    /// If the kernel does not report this number (before Linux 4.12).
    pub(crate) fn overflowed(&self) -> io::Result<u32> {
        self.socket.overflowed()
    }

    /// Allows fragmentation, for a network path on which even the smallest pieces do not fit one packet.
    ///
    /// # Errors
    /// Those of `setsockopt`.
    pub(crate) fn allow_fragmentation(&self) -> io::Result<()> {
        self.socket.keep_whole(self.socket.local()?.is_v6(), false)
    }

    /// Returns the size in bytes of the largest payload, after a header of `header` bytes, that reaches the
    /// peer without fragmentation. The result is based on what the kernel knows about the network path now.
    /// The size is a multiple of 16. The socket must be connected.
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

/// Returns the size that [`Udp::payload`] describes, for a peer of an unconnected socket.
///
/// # Errors
/// If there is no route to the peer.
pub(crate) fn payload_to(peer: SocketAddr, header: usize) -> io::Result<usize> {
    // Connecting a UDP socket sends no packet.
    Udp::connected(peer)?.payload(header)
}

/// Returns the size in bytes of the largest payload that fits a packet of `mtu` bytes. The packet also
/// contains the IP header, the UDP header and a header of `header` bytes. The size is rounded down to a
/// multiple of 16.
fn payload(mtu: usize, v6: bool, header: usize) -> usize {
    let ip = if v6 { IP_V6 } else { IP_V4 };
    mtu.saturating_sub(ip + UDP).min(BYTES_MAX).saturating_sub(header) & !15
}

/// Returns whether an error means that the kernel or a network device refuses GSO. `EIO`: the device computes
/// no checksums. `EINVAL`: the kernel has no GSO. `EMSGSIZE`: the datagrams would be fragmented.
pub(super) fn is_gso_refused(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [libc::EIO, libc::EINVAL, libc::EMSGSIZE, libc::EOPNOTSUPP].map(Some).contains(&code)
}

/// Sends the datagrams of a batch one by one. If the first datagram cannot be sent, returns the error. If a
/// later datagram cannot be sent, that datagram counts as lost.
pub(super) fn send_singly(
    parts: &[Window<'_>],
    segment: usize,
    send: impl Fn(&[Window<'_>]) -> io::Result<()>,
) -> io::Result<()> {
    let mut left = false;
    super::gso::cut(parts, segment, &mut |datagram| match send(datagram) {
        Ok(()) => {
            left = true;
            Ok(())
        }
        // If this function returns an error, its caller assumes that no datagram was sent.
        Err(error) if !left => Err(error),
        Err(_) => Ok(()),
    })
}

/// Returns whether the timeout `set_ns` can be kept although `wanted_ns` is requested. This is so if `set_ns`
/// is not shorter than `wanted_ns`, and not much longer. 0 means no timeout.
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

    fn send_batch(
        &self,
        parts: &[Window<'_>],
        segment: usize,
        to: Option<&Address>,
    ) -> io::Result<()> {
        self.send_batch_or(parts, segment, to, self.if_full())
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the range of bytes of each datagram in an arrival.
pub(crate) fn datagrams(arrival: Arrival) -> impl ExactSizeIterator<Item = Range<usize>> {
    let Arrival { bytes, segment, .. } = arrival;
    let count = if bytes == 0 { 1 } else { bytes.div_ceil(segment.max(1)) };
    (0..count).map(move |n| n * segment..((n + 1) * segment).min(bytes))
}

/// Fills `to` with bytes of an arrival, from offset `at` of the arrival on. The bytes of the arrival lie one
/// after another in the spaces `from`. Returns false if `from` ends before `to` is full.
///
/// Source and destination may overlap within one space. A caller that moves several datagrams to higher
/// offsets in the same memory must begin with the last datagram.
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

    /// Returns two sockets. The first is connected to the second. The second receives from any host.
    pub(crate) fn pair(at: SocketAddr) -> (Udp, Udp) {
        let far = Udp::bound(at).unwrap();
        let near = Udp::connected(far.local().unwrap()).unwrap();
        (near, far)
    }

    /// Returns `bytes` bytes, whose values depend on the position and on `seed`.
    pub(crate) fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
        (0..bytes).map(|n| (n * 7 + n / 251 + seed) as u8).collect()
    }

    pub(crate) fn received(by: &Udp, into: &mut [u8], from: Option<&mut Address>) -> Arrival {
        by.receive(&[Space::of_mut(into)], from, SOON).unwrap().expect("a datagram")
    }

    #[test]
    fn datagrams_travel_both_ways_over_both_versions() {
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
            // The datagram is sent back as one part. It is received into two spaces: one for the header, and
            // one for the payload.
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
    fn datagram_too_long_is_truncated_and_marked() {
        let (near, far) = pair(loopback());
        for spaces in [1, 2] {
            near.send(&[Window::of(&[7; 100])], None).unwrap();
            let (mut one, mut other) = ([0; 40], [0; 40]);
            let into = [Space::of_mut(&mut one), Space::of_mut(&mut other)];
            let arrival = far.receive(&into[..spaces], None, SOON).unwrap().unwrap();
            assert_eq!((arrival.bytes, arrival.cut), (40 * spaces, true));
        }
        // An empty datagram arrives as well.
        near.send(&[], None).unwrap();
        let arrival = received(&far, &mut [0; 8], None);
        assert_eq!((arrival.bytes, arrival.cut), (0, false));
        assert_eq!(datagrams(arrival).len(), 1);
    }

    #[test]
    fn receive_limit_is_kept_and_set_only_if_needed() {
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
        // A wait without a limit ends when a datagram arrives.
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
    fn closed_port_is_reported() {
        let (near, far) = pair(loopback());
        let there = far.local().unwrap();
        drop(far);
        near.send(&[Window::of(b"anybody?")], None).unwrap();
        let error = near.receive(&[Space::none()], None, SOON).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        // A later send reports the closed port as well, but only once. The send after that succeeds.
        near.send(&[Window::of(b"anybody?")], None).unwrap();
        let again = near.send(&[Window::of(b"anybody?")], None);
        assert_eq!(again.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let far = Udp::bound(there).unwrap();
        near.send(&[Window::of(b"anybody?")], None).unwrap();
        assert_eq!(received(&far, &mut [0; 64], None).bytes, 8);
    }

    #[test]
    fn overflow_of_a_buffer_is_counted() {
        let (near, far) = pair(loopback());
        let [receive, send] = far.size_buffers(16 << 10, 16 << 10).unwrap();
        assert!(receive >= 16 << 10 && send >= 4 << 10, "{receive} {send}");
        assert_eq!(far.overflowed().unwrap(), 0);
        for _ in 0..200 {
            near.send(&[Window::of(&[1; 1000])], None).unwrap();
        }
        let mut arrived = 0;
        while far.receive(&[Space::of_mut(&mut [0; 1000])], None, Until::Now).unwrap().is_some() {
            arrived += 1;
        }
        assert!(arrived > 0);
        assert_eq!(far.overflowed().unwrap(), 200 - arrived);
        // A privileged process may exceed the system's limit of the buffer size. Other processes get at most
        // the limit.
        let [receive, _] = far.size_buffers(64 << 20, 1 << 20).unwrap();
        assert!(receive > 64 << 10, "{receive}");
    }

    #[test]
    fn payloads_fit_the_route_and_are_multiples_of_16() {
        assert_eq!(payload(1500, false, HEADER), 1408);
        assert_eq!(payload(1500, true, HEADER), 1376);
        assert_eq!(payload(9000, false, HEADER), 8896);
        assert_eq!(payload(100, false, HEADER), 0);
        assert_eq!(payload(0, true, HEADER), 0);
        assert_eq!(payload(usize::MAX, false, HEADER), (BYTES_MAX - HEADER) & !15);
        let (near, far) = pair(loopback());
        // Loopback has an MTU of 65,536 by default.
        let mtu = near.socket.mtu(false).unwrap();
        assert_eq!(near.payload(HEADER).unwrap(), payload(mtu, false, HEADER));
        assert_eq!(payload(65_536, false, HEADER), 65_440);
        let to = far.local().unwrap();
        assert_eq!(payload_to(to, HEADER).unwrap(), near.payload(HEADER).unwrap());
        assert_eq!(far.payload(HEADER).unwrap_err().kind(), ErrorKind::NotConnected);
    }

    #[test]
    fn misplaced_bytes_are_moved() {
        // The first of three datagrams is lost. So the second and the third lie in the places of the first
        // and the second.
        let mut memory = pattern(300, 1);
        let before = memory.clone();
        let all = Space::of_mut(&mut memory);
        let place = |n: usize| all.part(n * 100, 100).unwrap();
        let arrived = [place(0), place(1)];
        assert!(copy_across(&arrived, 100, place(2)));
        assert!(copy_across(&arrived, 0, place(1)));
        assert!(memory[100..] == before[..200]);
        // The bytes may lie in several spaces. A range beyond the end is rejected.
        let mut memory = pattern(300, 1);
        let all = Space::of_mut(&mut memory);
        let parts = [all.part(0, 30).unwrap(), Space::none(), all.part(50, 100).unwrap()];
        let mut out = [0; 60];
        assert!(copy_across(&parts, 10, Space::of_mut(&mut out)));
        assert!(out[..20] == before[10..30] && out[20..] == before[50..90]);
        assert!(!copy_across(&parts, 71, Space::of_mut(&mut out)));
        assert!(copy_across(&parts, 500, Space::none()));
    }
}
