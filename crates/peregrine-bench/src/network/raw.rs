//! Implements the limits of raw Ethernet: the smallest programs that exchange a message and its answer in
//! Ethernet frames, without the network stack.
//!
//! `xdp-pingpong`, `blast-ack` (of several frames) and `packet-pingpong` are one program on different
//! devices. It sends as many frames as the message needs, and receives as many as the answer needs. The
//! outgoing frames contain their data already, so the program writes only the number of the round trip.
//! Incoming payloads are copied into contiguous memory, and each frame is returned to the kernel at once.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::str::FromStr;
use std::time::{Duration, Instant};

use peregrine::sys::{
    Described, Filter, LoneUmem, NetworkInterface, Ours, PacketRing, PacketSocket, Queue,
    QueueRings, SocketRings, Umem, UmemLayout, XdpProgram, XdpSocket, interface_of,
};
use peregrine::value::Window;
use rustix::event::{PollFd, PollFlags, poll};

use super::link::Link;
use super::wire::{Exchange, HEADER, Packets};

/// The EtherType of our frames: the first of the two that are reserved for experiments.
const ETHER_TYPE: u16 = 0x88b5;
/// The size of the Ethernet header in bytes.
const ETHERNET: usize = 14;
/// The size in bytes of the link header, which precedes each packet. It consists of the Ethernet header, the
/// receiver's endpoint and the sender's endpoint.
const LINK: usize = ETHERNET + 4;
/// The number of bytes of a link header that follow the Ethernet header.
pub(crate) const LINK_PAYLOAD: usize = LINK - ETHERNET;
/// The size in bytes of the memory that holds one frame.
const FRAME: usize = 2048;
/// The number of bytes that stay free before each link header, so that the packet after the header is
/// aligned.
const HEADROOM: usize = 14;
const _: () = assert!((HEADROOM + LINK).is_multiple_of(16));
/// The largest number of frames of a message that are sent before the far side has acknowledged any.
const WINDOW: usize = 64;
/// The endpoint of both sides: a byte that marks our frames, and the number of the only socket.
const ENDPOINT: [u8; 2] = [0x70, 0];

/// Divides `bytes` bytes of a call or result into packets for the largest frames of Ethernet.
pub(crate) fn packets(bytes: usize, link: Link) -> Packets {
    Packets::cut(bytes, (link.mtu() - LINK_PAYLOAD - HEADER) & !15)
}

/// A kind of device that passes frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// AF_XDP. The XDP program runs in the driver.
    Xdp,
    /// AF_XDP. The XDP program runs after the driver. This is faster than [`Xdp`](Self::Xdp) if the driver
    /// would have to copy frames first.
    XdpGeneric,
    /// AF_PACKET.
    Packet,
}

impl Device {
    /// All devices.
    pub(crate) const ALL: [Self; 3] = [Self::Xdp, Self::XdpGeneric, Self::Packet];

    /// Returns the name of the device in commands to the far process.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::XdpGeneric => "xdp-behind",
            Self::Packet => "packet",
        }
    }

    /// Returns the name of the limit that exchanges one frame in each direction.
    pub(crate) const fn pingpong(self) -> &'static str {
        match self {
            Self::Xdp => "xdp-pingpong",
            Self::XdpGeneric => "xdp-pingpong-behind",
            Self::Packet => "packet-pingpong",
        }
    }

    /// Returns the name of the limit that exchanges several frames.
    pub(crate) const fn blast(self) -> &'static str {
        match self {
            Self::Xdp | Self::Packet => "blast-ack",
            Self::XdpGeneric => "blast-ack-behind",
        }
    }
}

/// The source or destination of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    hardware: [u8; 6],
    endpoint: [u8; 2],
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hardware.iter().chain(&self.endpoint).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Place {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let bytes = u64::from_str_radix(text, 16).map_err(|_| io::Error::other(text.to_owned()))?;
        let [a, b, c, d, e, f, tag, slot] = bytes.to_be_bytes();
        Ok(Self { hardware: [a, b, c, d, e, f], endpoint: [tag, slot] })
    }
}

/// Returns the link header that precedes a packet.
fn link_header(to: Place, from: Place) -> [u8; LINK] {
    let mut header = [0; LINK];
    header[..6].copy_from_slice(&to.hardware);
    header[6..12].copy_from_slice(&from.hardware);
    header[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
    header[14..16].copy_from_slice(&to.endpoint);
    header[16..].copy_from_slice(&from.endpoint);
    header
}

/// Returns the sender that a link header contains.
fn sender(header: &[u8; LINK]) -> Place {
    let (mut hardware, mut endpoint) = ([0; 6], [0; 2]);
    hardware.copy_from_slice(&header[6..12]);
    endpoint.copy_from_slice(&header[16..]);
    Place { hardware, endpoint }
}

/// Sleeps until a frame has arrived.
fn sleep(on: &impl AsFd) -> io::Result<()> {
    match poll(&mut [PollFd::new(on, PollFlags::IN)], None) {
        Err(error) if error != rustix::io::Errno::INTR => Err(error.into()),
        _ => Ok(()),
    }
}

/// A device that passes frames at an interface.
trait Frames: Sized {
    /// Opens the device. It has `sent` frames for sending, and at most `received` frames may arrive together.
    fn open(interface: &NetworkInterface, sent: usize, received: usize) -> io::Result<Self>;

    /// Writes `bytes` into the frame for sending with the number `number`, at the byte offset `at`. The frame
    /// was never sent, or the kernel has returned it.
    fn write(&mut self, number: usize, at: usize, bytes: &[u8]) -> io::Result<()>;

    /// Sends the frames whose numbers are in `frames`. `bytes` takes the number of a frame and returns its
    /// length.
    fn send(&mut self, frames: Range<usize>, bytes: impl Fn(usize) -> usize) -> io::Result<()>;

    /// Waits for a frame, and passes it to `look`.
    fn receive<T>(&mut self, spin: bool, look: impl FnOnce(Window<'_>) -> T) -> io::Result<T>;
}

/// AF_XDP at the only queue of an interface. The XDP program runs after the driver if `GENERIC` is true,
/// otherwise in the driver.
struct Xdp<const GENERIC: bool> {
    // The order of the fields matters: the program is detached before the socket is closed.
    _program: XdpProgram,
    socket: XdpSocket,
    rings: SocketRings,
    queue: QueueRings,
    umem: LoneUmem,
    /// The number of the first frame for sending. The frames before it are for receiving.
    first: usize,
    /// The number of frames that were sent and that the kernel has not returned yet.
    out: usize,
}

impl<const GENERIC: bool> Xdp<GENERIC> {
    fn reclaim(&mut self) {
        while self.out > 0 {
            if self.queue.completion.take().is_some() {
                self.out -= 1;
            }
        }
        self.queue.completion.release();
    }

    /// Returns the byte offset in memory of the frame for sending with the number `number`.
    const fn place(&self, number: usize) -> usize {
        (self.first + number) * FRAME + HEADROOM
    }
}

impl<const GENERIC: bool> Frames for Xdp<GENERIC> {
    fn open(interface: &NetworkInterface, sent: usize, received: usize) -> io::Result<Self> {
        let transmit = (sent as u32).next_power_of_two().max(64);
        let receive = (received as u32).next_power_of_two();
        let layout = UmemLayout {
            frame: FRAME as u32,
            count: (received + sent) as u32,
            headroom: HEADROOM as u32,
            // The fill ring has two entries per frame, because the kernel delivers a frame before it shows
            // that it has taken the frame from this ring.
            fill: 2 * receive,
            completion: transmit,
        };
        let queue = Queue { interface: interface.number, queue: 0 };
        let (umem, mut queue) = Umem::new(layout, queue, false, Duration::from_secs(1))?;
        for frame in 0..received {
            queue.fill.put((frame * FRAME) as u64);
        }
        queue.fill.publish();
        let umem = LoneUmem::new(umem);
        let (socket, rings) = XdpSocket::new(umem.umem(), receive, transmit)?;
        let ours = Ours { ether_type: ETHER_TYPE, queue: 0, tag: ENDPOINT[0] };
        let attach = if GENERIC { XdpProgram::attach_behind } else { XdpProgram::attach };
        let program = attach(interface.number, ours)?;
        program.lead(ENDPOINT[1], &socket)?;
        Ok(Self { _program: program, socket, rings, queue, umem, first: received, out: 0 })
    }

    fn write(&mut self, number: usize, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.reclaim();
        let written = self.umem.space().write(self.place(number) + at, bytes);
        written.ok_or_else(|| ErrorKind::InvalidInput.into())
    }

    fn send(&mut self, frames: Range<usize>, bytes: impl Fn(usize) -> usize) -> io::Result<()> {
        self.reclaim();
        self.out = frames.len();
        for number in frames {
            let frame = Described::new(self.place(number) as u64, bytes(number) as u32);
            if !self.rings.transmit.put(frame) {
                return Err(io::Error::other("more frames than the ring has entries"));
            }
        }
        self.rings.transmit.publish();
        loop {
            match self.socket.kick() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                kicked => kicked?,
            }
            if self.rings.transmit.is_taken() {
                return Ok(());
            }
        }
    }

    #[inline]
    fn receive<T>(&mut self, spin: bool, look: impl FnOnce(Window<'_>) -> T) -> io::Result<T> {
        let frame = loop {
            match self.rings.receive.take() {
                Some(frame) => break frame,
                None if spin => std::hint::spin_loop(),
                None => sleep(&self.socket)?,
            }
        };
        let whole = self.umem.space().part(frame.at as usize, frame.bytes as usize);
        let seen = look(whole.ok_or(ErrorKind::InvalidData)?.window());
        if !self.queue.fill.put(frame.at - frame.at % FRAME as u64) {
            return Err(io::Error::other("the fill ring is full"));
        }
        self.queue.fill.publish();
        self.rings.receive.release();
        Ok(seen)
    }
}

/// A socket whose filter passes only our frames.
struct Packet {
    socket: PacketSocket,
    ring: PacketRing,
    frames: Vec<[u8; FRAME]>,
}

impl Frames for Packet {
    fn open(interface: &NetworkInterface, sent: usize, received: usize) -> io::Result<Self> {
        let filter = Filter { ether_type: ETHER_TYPE, endpoint: ENDPOINT };
        let count = 2 * received as u32;
        let (socket, ring) = PacketSocket::new(interface.number, filter, FRAME as u32, count)?;
        Ok(Self { socket, ring, frames: vec![[0; FRAME]; sent] })
    }

    fn write(&mut self, number: usize, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.frames[number][at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn send(&mut self, frames: Range<usize>, bytes: impl Fn(usize) -> usize) -> io::Result<()> {
        let whole: Vec<_> =
            frames.map(|number| Window::of(&self.frames[number][..bytes(number)])).collect();
        match &whole[..] {
            [one] => self.socket.send(*one)?,
            many => self.socket.send_all(many)?,
        }
        Ok(())
    }

    #[inline]
    fn receive<T>(&mut self, spin: bool, look: impl FnOnce(Window<'_>) -> T) -> io::Result<T> {
        let seen = loop {
            match self.ring.peek() {
                Some(frame) => break look(frame.window()),
                None if spin => std::hint::spin_loop(),
                None => sleep(&self.socket)?,
            }
        };
        self.ring.release();
        Ok(seen)
    }
}

/// One end of an exchange.
struct End<F> {
    frames: F,
    here: Place,
    spin: bool,
    sends: Packets,
    /// The link header of the last packet that arrived.
    link: [u8; LINK],
    /// The header of the last packet that arrived.
    header: [u8; HEADER],
    /// The received part of a message, without headers.
    payload: Vec<u8>,
}

impl<F: Frames> End<F> {
    fn open(at: IpAddr, spin: bool, sends: Packets, receives: Packets) -> io::Result<Self> {
        let interface = interface_of(at)?;
        let hardware = interface.hardware.ok_or(ErrorKind::Unsupported)?;
        let [sent, received] = [sends, receives].map(|packets| packets.count().min(WINDOW));
        let mut frames = F::open(&interface, sent, received)?;
        for number in 0..sent {
            frames.write(number, 0, &[0xa5; LINK + HEADER])?;
            frames.write(number, LINK + HEADER, &vec![0x5a; sends.segment - HEADER])?;
        }
        let payload = vec![0; receives.bytes - receives.count() * HEADER];
        let here = Place { hardware, endpoint: ENDPOINT };
        let (link, header) = ([0; LINK], [0; HEADER]);
        Ok(Self { frames, here, spin, sends, link, header, payload })
    }

    /// Writes the link header, with the destination `to`, into all frames for sending.
    fn address(&mut self, to: Place) -> io::Result<()> {
        let header = link_header(to, self.here);
        (0..self.sends.count().min(WINDOW)).try_for_each(|n| self.frames.write(n, 0, &header))
    }

    /// Sends a part of a message: at most [`WINDOW`] packets, beginning with the packet number `first` of the
    /// message. Returns the number of the packet that follows the part.
    fn send(&mut self, trip: u32, first: usize) -> io::Result<usize> {
        let Packets { bytes, segment } = self.sends;
        let sent = (self.sends.count() - first).min(WINDOW);
        self.frames.write(0, LINK, &trip.to_le_bytes())?;
        self.frames.send(0..sent, |n| LINK + segment.min(bytes - (first + n) * segment))?;
        Ok(first + sent)
    }

    /// Receives a packet, and places its payload after the `received` bytes that arrived earlier. Returns the
    /// new total number of bytes.
    #[inline]
    fn receive(&mut self, received: usize) -> io::Result<usize> {
        let Self { frames, link, header, payload, .. } = self;
        let read = frames.receive(self.spin, |frame| {
            frame.read(0, link)?;
            frame.read(LINK, header)?;
            let end = received + frame.len() - LINK - HEADER;
            frame.read(LINK + HEADER, payload.get_mut(received..end)?)?;
            Some(end)
        })?;
        read.ok_or_else(|| io::Error::other("a frame has an unexpected size"))
    }
}

/// Runs the near side through a device: first `warm` round trips that are not measured, then the measured
/// round trips. Returns the time of the measured ones.
fn lead_by<F: Frames>(near: IpAddr, far: Place, what: Exchange, warm: u32) -> io::Result<Duration> {
    let mut end = End::<F>::open(near, what.spin, what.there, what.back)?;
    end.address(far)?;
    let (there, back) = (what.there.count(), what.back.count());
    let mut start = Instant::now();
    for trip in 0..what.trips {
        if trip == warm {
            start = Instant::now();
        }
        let mut next = end.send(trip, 0)?;
        while next < there {
            end.receive(0)?;
            next = end.send(trip, next)?;
        }
        let mut received = end.receive(0)?;
        if end.header[..4] != trip.to_le_bytes() {
            return Err(io::Error::other("a frame was lost or duplicated"));
        }
        for _ in 1..back {
            received = end.receive(received)?;
        }
    }
    Ok(start.elapsed())
}

/// Runs the far side through a device. `announce` reports the address and the endpoint of the far
/// side.
fn follow_by<F: Frames>(
    at: IpAddr,
    what: Exchange,
    announce: impl FnOnce(Place) -> io::Result<()>,
) -> io::Result<()> {
    let mut end = End::<F>::open(at, what.spin, what.back, what.there)?;
    announce(end.here)?;
    let mut peer = None;
    for _ in 0..what.trips {
        let mut received = 0;
        let mut trip = [0; 4];
        for number in 0..what.there.count() {
            if number > 0 && number % WINDOW == 0 {
                end.send(u32::from_le_bytes(trip), 0)?;
            }
            received = end.receive(received)?;
            if number == 0 {
                trip.copy_from_slice(&end.header[..4]);
                let from = sender(&end.link);
                if peer.replace(from) != Some(from) {
                    end.address(from)?;
                }
            }
        }
        end.send(u32::from_le_bytes(trip), 0)?;
    }
    Ok(())
}

/// Returns why a device cannot be used, or `None` if it can.
pub(crate) fn missing(device: Device, near: IpAddr) -> Option<String> {
    let one = packets(0, Link::Veth);
    let opened = match device {
        Device::Xdp => End::<Xdp<false>>::open(near, true, one, one).map(drop),
        Device::XdpGeneric => End::<Xdp<true>>::open(near, true, one, one).map(drop),
        Device::Packet => End::<Packet>::open(near, true, one, one).map(drop),
    };
    opened.err().map(|error| error.to_string())
}

/// Runs the near side of an exchange.
pub(crate) fn lead(
    device: Device,
    near: IpAddr,
    far: Place,
    what: Exchange,
    warm: u32,
) -> io::Result<Duration> {
    match device {
        Device::Xdp => lead_by::<Xdp<false>>(near, far, what, warm),
        Device::XdpGeneric => lead_by::<Xdp<true>>(near, far, what, warm),
        Device::Packet => lead_by::<Packet>(near, far, what, warm),
    }
}

/// Runs the far side of an exchange. `announce` reports the address and the endpoint of the far
/// side.
pub(crate) fn follow(
    device: Device,
    at: IpAddr,
    what: Exchange,
    announce: impl FnOnce(Place) -> io::Result<()>,
) -> io::Result<()> {
    match device {
        Device::Xdp => follow_by::<Xdp<false>>(at, what, announce),
        Device::XdpGeneric => follow_by::<Xdp<true>>(at, what, announce),
        Device::Packet => follow_by::<Packet>(at, what, announce),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;

    use super::*;

    /// The name of the environment variable that is set if this process has a private pair of interfaces.
    const PAIR: &str = "PEREGRINE_BENCH_TEST_PAIR";

    #[test]
    fn place_is_parsed_from_its_text() {
        let place = Place { hardware: [2, 0, 0xab, 0, 0xff, 1], endpoint: [7, 0] };
        assert_eq!(place.to_string().parse::<Place>().unwrap(), place);
        assert_eq!(sender(&link_header(place, place)), place);
        assert!("no place".parse::<Place>().is_err());
    }

    #[test]
    fn through_a_pair() {
        if std::env::var_os(PAIR).is_none() {
            return;
        }
        let [near, far] = ["10.1.1.1", "10.1.1.2"].map(|ip| ip.parse::<IpAddr>().unwrap());
        for device in Device::ALL {
            for (there, back) in [(0, 0), (1024, 0), (48_000, 0), (3000, 3000), (200_000, 0)] {
                for spin in [false, true] {
                    let [there, back] = [there, back].map(|bytes| packets(bytes, Link::Veth));
                    let what = Exchange { spin, there, back, trips: 50 };
                    let (sender, receiver) = mpsc::channel();
                    std::thread::scope(|scope| {
                        let announce = move |at: Place| sender.send(at).map_err(io::Error::other);
                        scope.spawn(move || follow(device, far, what, announce).unwrap());
                        let at = receiver.recv().unwrap();
                        let took = lead(device, near, at, what, 10).unwrap();
                        println!("{device:?} {spin} {there:?} {:?}", took / 40);
                    });
                }
            }
        }
        println!("exchanged");
    }

    #[test]
    fn messages_and_answers_are_exchanged_through_each_device() {
        let setup = "ip link add near type veth peer name far && \
            ip addr add 10.1.1.1/32 dev near && ip addr add 10.1.1.2/32 dev far && \
            ip link set near up && ip link set far up && exec \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", setup]).arg(std::env::current_exe().unwrap());
        command.args(["network::raw::tests::through_a_pair", "--exact", "--nocapture"]);
        match command.env(PAIR, "1").output() {
            Err(error) => println!("skipped: {error}"),
            Ok(output) => {
                let text = [&output.stdout[..], &output.stderr].concat();
                let text = String::from_utf8_lossy(&text);
                if !text.contains("running 1 test") {
                    println!("skipped: no private network namespace: {text}");
                    return;
                }
                println!("{text}");
                assert!(output.status.success() && text.contains("exchanged"), "{text}");
            }
        }
    }
}
