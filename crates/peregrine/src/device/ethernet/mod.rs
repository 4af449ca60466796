//! Sends and receives packets in raw Ethernet frames, without an internet protocol. The frames have an
//! Ethernet type that is reserved for experiments.
//!
//! Like [`udp`](super::udp), this module sends and receives packets alone and in batches. Each socket uses
//! one of two devices:
//!
//! * AF_XDP, an interface of Linux for raw frames. The frames pass through memory shared with the kernel, and
//!   a poll only reads memory. An AF_XDP socket serves one receive queue of an interface, and only one
//!   process can have this queue. If the interface has several queues, an additional AF_PACKET socket
//!   receives the frames that arrive through the other queues.
//! * AF_PACKET, an ordinary socket for raw frames. A process that does not have the queue uses AF_PACKET.
//!
//! Properties of both devices:
//!
//! * A frame is copied once in each direction: when received, into the receiver's memory, and when sent, from
//!   the sender's memory. In the memory that the kernel fills, packets begin at multiples of 16 bytes.
//! * Consecutive frames of one sender and one length that have arrived together can be received as one batch.
//!   This corresponds to UDP's generic receive offload (GRO).

mod frame;
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzzing;
mod link_port;
mod packet;
mod pool;
mod xdp;

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

pub(crate) use self::frame::LinkAddress;
use self::frame::{LINK_BYTES, LINK_PAYLOAD, header, parse};
pub(crate) use self::link_port::{LinkDevice, LinkPort};
use self::packet::AfPacketSocket;
use self::xdp::Xsk;
use super::gso::GSO_DATAGRAMS_MAX;
use super::udp::{Arrival, BYTES_MAX, Until};
use crate::sync::Mutex;
use crate::sys::Address;
use crate::value::{Space, Window};

/// The largest number of frames for other endpoints, or from unexpected peers, that one poll skips.
const STRANGE_MAX: usize = 64;

/// The largest number of bytes that follow the Ethernet header in a sent frame.
const MTU_MAX: usize = 1500;

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketUse {
    /// The calls of one thread.
    Calls,
    /// The calls of many threads.
    Shared,
    /// A server.
    Service,
}

impl SocketUse {
    /// Returns two numbers of frames for one socket: for receiving, and for sending. A queue has enough
    /// frames for all sockets that a client may have to one server, or for the socket of one server.
    const fn frames(self) -> (u32, u32) {
        match self {
            Self::Calls => (128, 64),
            Self::Shared => (512, 64),
            Self::Service => (2048, 128),
        }
    }

    /// Returns the number of slots in the receive ring of an AF_PACKET socket. A smaller ring reuses its
    /// slots sooner, while they are still in a CPU cache.
    const fn slots(self) -> u32 {
        match self {
            Self::Calls => 128,
            Self::Shared => 512,
            Self::Service => 1024,
        }
    }
}

/// A socket at an interface.
#[derive(Debug)]
pub(crate) struct Ethernet {
    node: LinkAddress,
    /// For a connected socket: the endpoint of the peer, and the header of packets to it.
    peer: Option<(LinkAddress, [u8; LINK_BYTES])>,
    device: Device,
    /// Receives the frames that arrive through the other queues of the interface. Present only if the device
    /// is AF_XDP and the interface has several queues, because AF_XDP serves one queue.
    others: Option<Box<AfPacketSocket>>,
    mtu: usize,
    merges: AtomicBool,
    /// An event that becomes readable when the socket is closed. The event wakes threads that sleep on the
    /// socket. Only a server's socket has such an event.
    closed: Option<OwnedFd>,
    link_port: Arc<LinkPort>,
}

#[derive(Debug)]
enum Device {
    Xdp(Arc<Xsk>),
    Packet(AfPacketSocket),
}

/// A source of frames that have arrived. The source returns the oldest frame first.
trait FrameSource {
    /// Returns the next frame.
    fn peek(&mut self) -> Option<Space<'_>>;
    /// Removes the next frame.
    fn consume(&mut self);
    /// Ends a series of peeks. From here on, the source may reuse the memory of the removed frames.
    fn rest(&mut self) {}
}

impl Ethernet {
    /// Creates a socket that receives from any endpoint on the link.
    ///
    /// # Errors
    /// If neither device is available.
    pub(crate) fn open(link_port: &Arc<LinkPort>, what: SocketUse) -> io::Result<Self> {
        // The event is created before the device is opened. If creating the event fails, there are thus no
        // frames that must be given back to the queue.
        let closed = match what {
            SocketUse::Service => Some(eventfd(0, EventfdFlags::CLOEXEC)?),
            SocketUse::Calls | SocketUse::Shared => None,
        };
        let node = LinkAddress {
            hardware: link_port.interface().hardware.ok_or(ErrorKind::Unsupported)?,
            endpoint: link_port.endpoint()?,
        };
        let by_queue = link_port.queue().map(|queue| queue.open(node.endpoint[1], what));
        let device = match by_queue {
            Some(Ok(xsk)) => Ok(Device::Xdp(xsk)),
            // The queue cannot open a socket if it has too few frames left for that socket.
            None | Some(Err(_)) => {
                AfPacketSocket::new(link_port.interface(), node.endpoint, what).map(Device::Packet)
            }
        };
        let device = device.inspect_err(|_| link_port.give_back(node.endpoint))?;
        let mut socket = Self {
            node,
            peer: None,
            device,
            others: None,
            mtu: link_port.interface().mtu,
            merges: AtomicBool::new(false),
            closed,
            link_port: Arc::clone(link_port),
        };
        if matches!(socket.device, Device::Xdp(_)) && link_port.interface().queues > 1 {
            let tap = AfPacketSocket::new(link_port.interface(), node.endpoint, what)?;
            socket.others = Some(Box::new(tap));
        }
        Ok(socket)
    }

    /// Creates a socket that sends to and receives from one peer only.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub(crate) fn connected(
        link_port: &Arc<LinkPort>,
        peer: LinkAddress,
        what: SocketUse,
    ) -> io::Result<Self> {
        let mut socket = Self::open(link_port, what)?;
        socket.peer = Some((peer, header(peer, socket.node)));
        Ok(socket)
    }

    /// Returns the link address of the socket.
    pub(crate) const fn node(&self) -> LinkAddress {
        self.node
    }

    /// Returns the size in bytes of the largest payload after a header of `header` bytes: a multiple of 16.
    /// An interface may accept longer frames than the network or the peer accepts, and dropped frames are not
    /// reported. So frames are never longer than [`MTU_MAX`], which every Ethernet accepts.
    pub(crate) fn payload(&self, header: usize) -> usize {
        let room = match &self.device {
            Device::Xdp(xsk) => xsk.room() - LINK_BYTES,
            Device::Packet(_) => packet::ROOM - LINK_BYTES,
        };
        (self.mtu.min(MTU_MAX) - LINK_PAYLOAD).min(room).saturating_sub(header) & !15
    }

    /// Returns how many received frames the socket can hold.
    pub(crate) fn frames(&self) -> usize {
        match &self.device {
            Device::Xdp(xsk) => xsk.frames(),
            Device::Packet(tap) => tap.frames(),
        }
    }

    /// Returns the number of frames that were dropped because the socket's receive ring was full.
    pub(crate) fn overflowed(&self) -> io::Result<u64> {
        let overflowed = match &self.device {
            Device::Xdp(xsk) => xsk.overflowed(),
            Device::Packet(tap) => tap.overflowed(),
        };
        let others = self.others.as_deref().map_or(Ok(0), AfPacketSocket::overflowed);
        Ok(overflowed? + others?)
    }

    /// Lets consecutive packets of one sender arrive together, as one batch.
    pub(crate) fn enable_gro(&self) {
        self.merges.store(true, Ordering::Relaxed);
    }

    /// Returns whether packets may arrive in batches.
    #[inline]
    pub(crate) fn has_gro(&self) -> bool {
        self.merges.load(Ordering::Relaxed)
    }

    #[inline]
    fn header(&self, to: Option<&Address>) -> io::Result<[u8; LINK_BYTES]> {
        match (to, &self.peer) {
            (None, Some((_, header))) => Ok(*header),
            (Some(to), _) => {
                let to = LinkAddress::of(to).ok_or(ErrorKind::InvalidInput)?;
                Ok(header(to, self.node))
            }
            (None, None) => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Sends one packet, which consists of `parts`, to `to`. If `to` is `None`, sends to the peer of the
    /// socket.
    ///
    /// # Errors
    /// If the packet was not sent, because the interface is down or no memory for the frame is free. The
    /// caller treats the packet as lost.
    #[inline]
    pub(crate) fn send(&self, parts: &[Window<'_>], to: Option<&Address>) -> io::Result<()> {
        let header = self.header(to)?;
        match &self.device {
            Device::Xdp(xsk) => xsk.send(&header, parts),
            Device::Packet(tap) => tap.send(&header, parts),
        }
    }

    /// Sends several packets in order. Each packet has `segment` bytes, but the last packet may be shorter.
    ///
    /// # Errors
    /// As for [`send`](Self::send). After an error, the number of sent packets is unknown.
    pub(crate) fn send_batch(
        &self,
        parts: &[Window<'_>],
        segment: usize,
        to: Option<&Address>,
    ) -> io::Result<()> {
        let header = self.header(to)?;
        match &self.device {
            Device::Xdp(xsk) => xsk.send_batch(&header, parts, segment),
            Device::Packet(tap) => tap.send_batch(&header, parts, segment),
        }
    }

    /// Returns whether a frame may have arrived. This function makes no system call. It only reads memory.
    #[inline]
    pub(crate) fn has_arrived(&self) -> bool {
        let arrived = match &self.device {
            Device::Xdp(xsk) => xsk.has_arrived(),
            Device::Packet(tap) => tap.has_arrived(),
        };
        arrived || self.others.as_deref().is_some_and(AfPacketSocket::has_arrived)
    }

    /// Receives a packet into the spaces `into`, which are filled one after another. With
    /// [GRO](Self::enable_gro), receives a batch. Returns `None` if nothing arrived in time.
    ///
    /// # Errors
    /// Those of `poll`.
    #[inline]
    pub(crate) fn receive(
        &self,
        into: &[Space<'_>],
        mut from: Option<&mut Address>,
        until: Until,
    ) -> io::Result<Option<Arrival>> {
        loop {
            let taken = self.take_any(into, from.as_deref_mut(), until);
            if taken.is_some() || until == Until::Now || !self.sleep(until)? {
                return Ok(taken);
            }
            if matches!(until, Until::After(_) | Until::Precisely(_)) {
                // A frame has probably arrived. If this second poll finds nothing, the caller checks its
                // clock before it waits again.
                return Ok(self.take_any(into, from, until));
            }
        }
    }

    /// Takes the packet or batch that has arrived through any queue, if there is one.
    #[inline]
    fn take_any(
        &self,
        into: &[Space<'_>],
        mut from: Option<&mut Address>,
        until: Until,
    ) -> Option<Arrival> {
        let taken = match &self.device {
            Device::Xdp(xsk) => self.take(&xsk.inbox, into, from.as_deref_mut(), until),
            Device::Packet(tap) => self.take(&tap.inbox, into, from.as_deref_mut(), until),
        };
        match (&self.others, taken) {
            (Some(others), None) => self.take(&others.inbox, into, from, until),
            (_, taken) => taken,
        }
    }

    /// Takes the packet or batch that has arrived, if there is one. While another thread receives from the
    /// socket, a call with [`Until::Now`] returns `None`. Other calls wait for that thread.
    #[inline]
    fn take<I: FrameSource>(
        &self,
        inbox: &Mutex<I>,
        into: &[Space<'_>],
        from: Option<&mut Address>,
        until: Until,
    ) -> Option<Arrival> {
        let mut inbox = match inbox.try_lock() {
            Some(inbox) => inbox,
            None if until == Until::Now => return None,
            None => inbox.lock(),
        };
        let only = self.peer.as_ref().map(|(peer, _)| *peer);
        take(&mut *inbox, self.node, only, self.has_gro(), into, from)
    }

    /// Sleeps until a frame arrives. Returns false if the time has expired, if a signal arrived, or if the
    /// socket was closed.
    #[cold]
    fn sleep(&self, until: Until) -> io::Result<bool> {
        let limit = match until {
            Until::After(limit) | Until::Precisely(limit) => Some(timespec(limit)),
            Until::Ever | Until::Now => None,
        };
        let all = [
            Some(self.as_fd()),
            self.closed.as_ref().map(AsFd::as_fd),
            self.others.as_deref().map(AsFd::as_fd),
        ];
        let mut fds: [_; 3] = core::array::from_fn(|_| PollFd::new(self, PollFlags::IN));
        let mut count = 0;
        for fd in all.into_iter().flatten() {
            fds[count] = PollFd::from_borrowed_fd(fd, PollFlags::IN);
            count += 1;
        }
        let fds = &mut fds[..count];
        match poll(fds, limit.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        if self.closed.is_some() && !fds[1].revents().is_empty() {
            return Ok(false);
        }
        if fds.iter().any(|fd| fd.revents().contains(PollFlags::ERR)) {
            self.clear_error();
        }
        Ok(true)
    }

    /// Returns the number of descriptors that become readable when a frame arrives.
    pub(super) const fn descriptors(&self) -> usize {
        if self.others.is_some() { 2 } else { 1 }
    }

    /// Returns the descriptor with this number.
    pub(super) fn descriptor(&self, number: usize) -> BorrowedFd<'_> {
        match (number, &self.others) {
            (0, _) | (_, None) => self.as_fd(),
            (_, Some(others)) => others.as_fd(),
        }
    }

    /// Clears the error that the socket has because its interface went down or came up.
    pub(super) fn clear_error(&self) {
        let tap = match &self.device {
            Device::Packet(tap) => Some(tap),
            Device::Xdp(_) => self.others.as_deref(),
        };
        if let Some(tap) = tap {
            let _ = tap.error();
        }
    }

    /// Wakes all threads that sleep in [`receive`](Self::receive). Later calls of `receive` do not sleep.
    /// Does nothing if the socket is not a server's ([`SocketUse::Service`]).
    pub(crate) fn close(&self) {
        if let Some(closed) = &self.closed {
            let _ = rustix::io::write(closed, &1u64.to_ne_bytes());
        }
    }
}

fn timespec(limit: Duration) -> Timespec {
    let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: limit.subsec_nanos().into() }
}

impl AsFd for Ethernet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.device {
            Device::Xdp(xsk) => xsk.as_fd(),
            Device::Packet(tap) => tap.as_fd(),
        }
    }
}

impl Drop for Ethernet {
    fn drop(&mut self) {
        if let (Device::Xdp(xsk), Some(queue)) = (&self.device, self.link_port.queue()) {
            queue.close(self.node.endpoint[1], xsk);
        }
        self.link_port.give_back(self.node.endpoint);
    }
}

/// Writes bytes into several spaces, one space after another.
struct SpacesWriter<'a> {
    into: &'a [Space<'a>],
    /// The index of the current space.
    space: usize,
    /// The offset in bytes in the current space.
    at: usize,
}

impl SpacesWriter<'_> {
    /// Returns the number of bytes that are still free.
    fn room(&self) -> usize {
        let all: usize = self.into[self.space..].iter().map(|space| space.window().len()).sum();
        all - self.at
    }

    /// Writes as many bytes as fit. Returns their number.
    fn put(&mut self, from: Window<'_>) -> usize {
        let mut done = 0;
        while done < from.len()
            && let Some(space) = self.into.get(self.space)
        {
            let some = (space.window().len() - self.at).min(from.len() - done);
            if let (Some(to), Some(part)) = (space.part(self.at, some), from.part(done, some)) {
                to.copy_from(part);
            }
            (done, self.at) = (done + some, self.at + some);
            if self.at == space.window().len() {
                (self.space, self.at) = (self.space + 1, 0);
            }
        }
        done
    }
}

/// Takes a packet for the endpoint `to`. If `only` is given, takes only a packet from the endpoint `only`. If
/// `merges` is true, also takes the following packets of the same sender, as one batch.
#[inline]
fn take<I: FrameSource>(
    inbox: &mut I,
    to: LinkAddress,
    only: Option<LinkAddress>,
    merges: bool,
    into: &[Space<'_>],
    from: Option<&mut Address>,
) -> Option<Arrival> {
    let is_ours = |frame: Space<'_>, only: Option<LinkAddress>| {
        let (destination, sender) = parse(frame)?;
        (destination == to && only.is_none_or(|only| only == sender)).then_some(sender)
    };
    let mut pen = SpacesWriter { into, space: 0, at: 0 };
    let mut strange = 0;
    let (sender, bytes, put) = loop {
        let Some(frame) = inbox.peek() else {
            if strange > 0 {
                // Until the series of peeks ends, the kernel reports the skipped frames to each thread that
                // begins to sleep.
                inbox.rest();
            }
            return None;
        };
        let Some(sender) = is_ours(frame, only) else {
            inbox.consume();
            strange += 1;
            if strange == STRANGE_MAX {
                inbox.rest();
                return None;
            }
            continue;
        };
        let bytes = frame.window().len() - LINK_BYTES;
        let packet = frame.range(LINK_BYTES, bytes);
        break (sender, bytes, pen.put(packet.window()));
    };
    inbox.consume();
    let mut arrival = Arrival { bytes: put, segment: put, cut: put < bytes };
    if merges && !arrival.cut {
        for _ in 1..GSO_DATAGRAMS_MAX {
            let Some(frame) = inbox.peek() else { break };
            let more = frame.window().len().saturating_sub(LINK_BYTES);
            let fits = more <= bytes && more <= pen.room() && arrival.bytes + more <= BYTES_MAX;
            if is_ours(frame, Some(sender)).is_none() || !fits {
                break;
            }
            let packet = frame.range(LINK_BYTES, more);
            arrival.bytes += pen.put(packet.window());
            inbox.consume();
            if more < bytes {
                break;
            }
        }
    }
    inbox.rest();
    if let Some(from) = from {
        *from = sender.into();
    }
    Some(arrival)
}

impl core::fmt::Debug for Xsk {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Xsk").finish_non_exhaustive()
    }
}

impl core::fmt::Debug for LinkPort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let name = &self.interface().name;
        f.debug_struct("LinkPort").field("interface", name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;
    use crate::device::gso::tests::Namespaces;
    use crate::sys::interface_of;

    /// This environment variable is set in the child process, which runs out of file descriptors.
    const ROLE: &str = "PEREGRINE_TEST_ROLE";

    /// The limit of descriptors applies to a whole process. So the test runs in a child process.
    #[test]
    fn socket_that_cannot_be_opened_leaves_its_frames_to_the_queue() {
        if std::env::var_os(ROLE).is_some() {
            return without_descriptors();
        }
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let name = "socket_that_cannot_be_opened_leaves_its_frames_to_the_queue";
        let name = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
        alone.args([&*name, "--exact", "--nocapture"]).env(ROLE, "without descriptors");
        let ran = alone.output().unwrap();
        let output = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && output.contains("1 passed"), "{output}");
    }

    fn without_descriptors() {
        let namespaces = match Namespaces::new() {
            Ok(namespaces) => namespaces,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        namespaces.within(0, || {
            let interface = interface_of([10, 1, 1, 1].into()).unwrap();
            let device = LinkDevice::Xdp { zero_copy: false };
            let link_port = LinkPort::at(&interface, device, None).unwrap();
            if link_port.queue().is_none() {
                return eprintln!("skipped: {}", link_port.describe());
            }
            let is_xdp = |socket: &Ethernet| matches!(socket.device, Device::Xdp(_));
            // When `first` is dropped, the queue keeps the AF_XDP socket of `first`. The next socket uses
            // this AF_XDP socket again, and so needs no descriptor for a new one.
            let first = Ethernet::open(&link_port, SocketUse::Service).unwrap();
            assert!(is_xdp(&first));
            drop(first);
            let all = getrlimit(Resource::Nofile);
            setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..all }).unwrap();
            let failed = Ethernet::open(&link_port, SocketUse::Service);
            setrlimit(Resource::Nofile, all).unwrap();
            assert_eq!(failed.unwrap_err().raw_os_error(), Some(libc::EMFILE));
            // A queue has enough frames for one server only. If the failed socket had kept these frames,
            // `again` would get no frames, and would use AF_PACKET.
            let again = Ethernet::open(&link_port, SocketUse::Service).unwrap();
            assert!(is_xdp(&again), "the frames of the failed socket are lost");
        });
    }
}
