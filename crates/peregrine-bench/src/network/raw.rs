//! The limits of raw Ethernet: the smallest programs that pass a message and its answer in frames of
//! their own, past the network stack.
//!
//! `xdp-pingpong`, `blast-ack` (of several frames) and `packet-pingpong` are one program at two
//! devices: as many frames as the message needs, one back. What is sent lies in its frames already,
//! and only the number of the trip is written; what arrives is copied out, the payloads into
//! contiguous memory, and each frame goes back at once.

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

/// The type in the Ethernet header: the first of two that are for experiments.
const ETHER_TYPE: u16 = 0x88b5;
/// Bytes of the Ethernet header.
const ETHERNET: usize = 14;
/// Bytes in front of a packet: the Ethernet header, and the endpoints of receiver and sender.
const LINK: usize = ETHERNET + 4;
/// Those of them that count as the frame's payload.
pub(crate) const LINK_PAYLOAD: usize = LINK - ETHERNET;
/// Bytes of a frame of memory.
const FRAME: usize = 2048;
/// Those that are left free in front of what is sent or arrives, so that packets are aligned.
const HEADROOM: usize = 14;
const _: () = assert!((HEADROOM + LINK).is_multiple_of(16));
/// Frames of a message that are sent before the far side has said that it has them.
const WINDOW: usize = 64;
/// The byte that our endpoints begin with, and the one that names the only socket.
const ENDPOINT: [u8; 2] = [0x70, 0];

/// So many bytes of a call or result, in the largest frames that an Ethernet takes.
pub(crate) fn packets(bytes: usize, link: Link) -> Packets {
    Packets::cut(bytes, (link.mtu() - LINK_PAYLOAD - HEADER) & !15)
}

/// Through what frames pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// AF_XDP, in the driver.
    Xdp,
    /// AF_XDP, behind the driver, which is the shorter way if that has to copy frames before.
    XdpBehind,
    /// AF_PACKET.
    Packet,
}

impl Device {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Xdp, Self::XdpBehind, Self::Packet];

    /// As it stands in orders.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::XdpBehind => "xdp-behind",
            Self::Packet => "packet",
        }
    }

    /// What one frame there and one back is called in rows.
    pub(crate) const fn pingpong(self) -> &'static str {
        match self {
            Self::Xdp => "xdp-pingpong",
            Self::XdpBehind => "xdp-pingpong-behind",
            Self::Packet => "packet-pingpong",
        }
    }

    /// What several are called.
    pub(crate) const fn blast(self) -> &'static str {
        match self {
            Self::Xdp | Self::Packet => "blast-ack",
            Self::XdpBehind => "blast-ack-behind",
        }
    }
}

/// Where frames go to, or come from.
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

/// What stands in front of a packet.
fn link_header(to: Place, from: Place) -> [u8; LINK] {
    let mut header = [0; LINK];
    header[..6].copy_from_slice(&to.hardware);
    header[6..12].copy_from_slice(&from.hardware);
    header[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
    header[14..16].copy_from_slice(&to.endpoint);
    header[16..].copy_from_slice(&from.endpoint);
    header
}

/// Whom such a header is from.
fn sender(header: &[u8; LINK]) -> Place {
    let (mut hardware, mut endpoint) = ([0; 6], [0; 2]);
    hardware.copy_from_slice(&header[6..12]);
    endpoint.copy_from_slice(&header[16..]);
    Place { hardware, endpoint }
}

/// Sleeps until something has arrived.
fn sleep(on: &impl AsFd) -> io::Result<()> {
    match poll(&mut [PollFd::new(on, PollFlags::IN)], None) {
        Err(error) if error != rustix::io::Errno::INTR => Err(error.into()),
        _ => Ok(()),
    }
}

/// What passes frames at an interface.
trait Frames: Sized {
    /// Opens it, with `sent` frames to send and for at most `received` that arrive at a time.
    fn open(interface: &NetworkInterface, sent: usize, received: usize) -> io::Result<Self>;

    /// Writes into a frame that was sent and has left, or was never sent.
    fn write(&mut self, number: usize, at: usize, bytes: &[u8]) -> io::Result<()>;

    /// Sends frames, of so many bytes each.
    fn send(&mut self, frames: Range<usize>, bytes: impl Fn(usize) -> usize) -> io::Result<()>;

    /// Waits for a frame and shows it.
    fn receive<T>(&mut self, spin: bool, look: impl FnOnce(Window<'_>) -> T) -> io::Result<T>;
}

/// A whole interface's only queue; its program runs in the driver unless `BEHIND` it.
struct Xdp<const BEHIND: bool> {
    // In this order: nothing is led to the socket any more when it goes.
    _program: XdpProgram,
    socket: XdpSocket,
    rings: SocketRings,
    queue: QueueRings,
    umem: LoneUmem,
    /// Where the first frame to send is.
    first: usize,
    /// Frames that were sent and have not come back.
    out: usize,
}

impl<const BEHIND: bool> Xdp<BEHIND> {
    fn reclaim(&mut self) {
        while self.out > 0 {
            if self.queue.completion.take().is_some() {
                self.out -= 1;
            }
        }
        self.queue.completion.release();
    }

    /// Where a frame to send begins.
    const fn place(&self, number: usize) -> usize {
        (self.first + number) * FRAME + HEADROOM
    }
}

impl<const BEHIND: bool> Frames for Xdp<BEHIND> {
    fn open(interface: &NetworkInterface, sent: usize, received: usize) -> io::Result<Self> {
        let transmit = (sent as u32).next_power_of_two().max(64);
        let receive = (received as u32).next_power_of_two();
        let layout = UmemLayout {
            frame: FRAME as u32,
            count: (received + sent) as u32,
            headroom: HEADROOM as u32,
            // Twice: the kernel shows a frame before it says that it has taken it from this ring.
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
        let attach = if BEHIND { XdpProgram::attach_behind } else { XdpProgram::attach };
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
            return Err(io::Error::other("the ring that frames go back to is full"));
        }
        self.queue.fill.publish();
        self.rings.receive.release();
        Ok(seen)
    }
}

/// A socket that has frames to itself by a filter.
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
    /// Of the packet that came last.
    link: [u8; LINK],
    header: [u8; HEADER],
    /// What has come of a message, without headers.
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

    /// Makes the frames ready for whom they go to.
    fn address(&mut self, to: Place) -> io::Result<()> {
        let header = link_header(to, self.here);
        (0..self.sends.count().min(WINDOW)).try_for_each(|n| self.frames.write(n, 0, &header))
    }

    /// Sends the part of a message that begins with a frame; which one comes next.
    fn send(&mut self, trip: u32, first: usize) -> io::Result<usize> {
        let Packets { bytes, segment } = self.sends;
        let sent = (self.sends.count() - first).min(WINDOW);
        self.frames.write(0, LINK, &trip.to_le_bytes())?;
        self.frames.send(0..sent, |n| LINK + segment.min(bytes - (first + n) * segment))?;
        Ok(first + sent)
    }

    /// Receives a packet, whose payload goes behind what came before it; how many bytes there are then.
    #[inline]
    fn receive(&mut self, came: usize) -> io::Result<usize> {
        let Self { frames, link, header, payload, .. } = self;
        let read = frames.receive(self.spin, |frame| {
            frame.read(0, link)?;
            frame.read(LINK, header)?;
            let end = came + frame.len() - LINK - HEADER;
            frame.read(LINK + HEADER, payload.get_mut(came..end)?)?;
            Some(end)
        })?;
        read.ok_or_else(|| io::Error::other("a frame has another size than was agreed on"))
    }
}

/// The near side through a device: `warm` trips that are not measured, then the others.
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
        let mut came = end.receive(0)?;
        if end.header[..4] != trip.to_le_bytes() {
            return Err(io::Error::other("a frame was lost, or came twice"));
        }
        for _ in 1..back {
            came = end.receive(came)?;
        }
    }
    Ok(start.elapsed())
}

/// The far side, which says where it is.
fn follow_by<F: Frames>(
    at: IpAddr,
    what: Exchange,
    say: impl FnOnce(Place) -> io::Result<()>,
) -> io::Result<()> {
    let mut end = End::<F>::open(at, what.spin, what.back, what.there)?;
    say(end.here)?;
    let mut peer = None;
    for _ in 0..what.trips {
        let mut came = 0;
        let mut trip = [0; 4];
        for number in 0..what.there.count() {
            if number > 0 && number % WINDOW == 0 {
                end.send(u32::from_le_bytes(trip), 0)?;
            }
            came = end.receive(came)?;
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

/// Why a device cannot be used, if that is so.
pub(crate) fn missing(device: Device, near: IpAddr) -> Option<String> {
    let one = packets(0, Link::Veth);
    let opened = match device {
        Device::Xdp => End::<Xdp<false>>::open(near, true, one, one).map(drop),
        Device::XdpBehind => End::<Xdp<true>>::open(near, true, one, one).map(drop),
        Device::Packet => End::<Packet>::open(near, true, one, one).map(drop),
    };
    opened.err().map(|error| error.to_string())
}

/// The near side of an exchange.
pub(crate) fn lead(
    device: Device,
    near: IpAddr,
    far: Place,
    what: Exchange,
    warm: u32,
) -> io::Result<Duration> {
    match device {
        Device::Xdp => lead_by::<Xdp<false>>(near, far, what, warm),
        Device::XdpBehind => lead_by::<Xdp<true>>(near, far, what, warm),
        Device::Packet => lead_by::<Packet>(near, far, what, warm),
    }
}

/// The far side, which is told whom it says where it is.
pub(crate) fn follow(
    device: Device,
    at: IpAddr,
    what: Exchange,
    say: impl FnOnce(Place) -> io::Result<()>,
) -> io::Result<()> {
    match device {
        Device::Xdp => follow_by::<Xdp<false>>(at, what, say),
        Device::XdpBehind => follow_by::<Xdp<true>>(at, what, say),
        Device::Packet => follow_by::<Packet>(at, what, say),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;

    use super::*;

    /// Tells that this process has a pair of interfaces to itself.
    const PAIR: &str = "PEREGRINE_BENCH_TEST_PAIR";

    #[test]
    fn places_are_read_as_they_are_written() {
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
                    let (tell, told) = mpsc::channel();
                    std::thread::scope(|scope| {
                        let say = move |at: Place| tell.send(at).map_err(io::Error::other);
                        scope.spawn(move || follow(device, far, what, say).unwrap());
                        let at = told.recv().unwrap();
                        let took = lead(device, near, at, what, 10).unwrap();
                        println!("{device:?} {spin} {there:?} {:?}", took / 40);
                    });
                }
            }
        }
        println!("exchanged");
    }

    #[test]
    fn messages_and_answers_cross_through_either_device() {
        let setup = "ip link add near type veth peer name far && \
            ip addr add 10.1.1.1/32 dev near && ip addr add 10.1.1.2/32 dev far && \
            ip link set near up && ip link set far up && exec \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", setup]).arg(std::env::current_exe().unwrap());
        command.args(["network::raw::tests::through_a_pair", "--exact", "--nocapture"]);
        match command.env(PAIR, "1").output() {
            Err(error) => println!("skipped: {error}"),
            Ok(output) => {
                let said = [&output.stdout[..], &output.stderr].concat();
                let said = String::from_utf8_lossy(&said);
                if !said.contains("running 1 test") {
                    println!("skipped: no network of its own: {said}");
                    return;
                }
                println!("{said}");
                assert!(output.status.success() && said.contains("exchanged"), "{said}");
            }
        }
    }
}
