//! Implements the limits of UDP and TCP: the smallest programs that exchange a message and its answer across
//! a network.
//!
//! `udp-pingpong` and `blast-ack` are one program. It sends as many packets as the message needs, and
//! receives as many as the answer needs. An answer without data is one packet. On both sides, the packets and
//! their headers are contiguous in memory. Nothing is gathered or scattered, and the receiver reads only the
//! number of the round trip. A message of many packets is sent in batches that the kernel segments (GSO). The
//! client's socket is connected. The server's socket is not connected.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use peregrine::sys::{Address, Arrival, Datagrams, IfFull};
use peregrine::value::{Space, Window};

use super::link::Link;

/// The size in bytes of the header of every packet, and of every message on a stream.
pub(crate) const HEADER: usize = 64;
/// The size in bytes of the IP and UDP headers.
pub(crate) const IP_UDP: usize = 28;
/// The largest number of bytes that one system call may send.
const BATCH_BYTES_MAX: usize = 65_507;
/// The largest number of packets that one system call may send.
const BATCH_MAX: usize = 64;
/// The requested size of the socket's receive buffer in bytes.
const BUFFER: usize = 64 << 20;

/// A message that is divided into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packets {
    /// The number of bytes of all packets, with their headers.
    pub(crate) bytes: usize,
    /// The number of bytes of each packet except the last.
    pub(crate) segment: usize,
}

impl Packets {
    /// Divides `bytes` bytes of a call or result into the largest packets that the link carries.
    pub(crate) fn of_message(bytes: usize, link: Link) -> Self {
        Self::cut(bytes, (link.mtu() - IP_UDP - HEADER) & !15)
    }

    /// Divides `bytes` bytes into packets, each with a header and at most `piece` bytes.
    pub(crate) fn cut(bytes: usize, piece: usize) -> Self {
        let count = bytes.div_ceil(piece).max(1);
        Self { bytes: bytes + count * HEADER, segment: piece + HEADER }
    }

    /// Returns the number of packets.
    pub(crate) const fn count(self) -> usize {
        self.bytes.div_ceil(self.segment)
    }

    /// Returns whether there are several packets.
    pub(crate) const fn is_blast(self) -> bool {
        self.bytes > self.segment
    }

    /// Returns the number of bytes that one system call sends.
    fn batch(self) -> usize {
        (BATCH_BYTES_MAX / self.segment).clamp(1, BATCH_MAX) * self.segment
    }
}

/// A series of round trips: the messages of both directions, and how both sides wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// Whether both sides poll all the time instead of sleeping.
    pub(crate) spin: bool,
    pub(crate) there: Packets,
    pub(crate) back: Packets,
    /// The number of round trips.
    pub(crate) trips: u32,
}

/// Returns the number of bytes of a message that may be sent before the far side has acknowledged any. This
/// window is a multiple of the bytes of one batch. `granted` is the size of the receive buffer. The window is
/// smaller than the buffer, because the kernel's headers occupy a part of the buffer.
fn window(granted: usize, there: Packets) -> usize {
    (granted / 4 / there.batch()).max(1) * there.batch()
}

/// One end of an exchange.
struct End<'a> {
    socket: &'a Datagrams,
    spin: bool,
    peer: Option<Address>,
}

impl<'a> End<'a> {
    fn new(socket: &'a Datagrams, spin: bool, receives: Packets) -> io::Result<(Self, usize)> {
        let [granted, _] = socket.size_buffers(BUFFER, BUFFER)?;
        if receives.is_blast() {
            socket.merge(true)?;
        }
        Ok((Self { socket, spin, peer: None }, granted))
    }

    fn send(&self, message: &[u8], packets: Packets) -> io::Result<()> {
        for batch in message.chunks(packets.batch()) {
            let whole = Window::of(batch);
            if batch.len() > packets.segment {
                let segment = u16::try_from(packets.segment).map_err(io::Error::other)?;
                self.socket.gather(&[whole], self.peer.as_ref(), Some(segment), IfFull::Wait)?;
            } else {
                self.socket.send(whole, self.peer.as_ref(), IfFull::Wait)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn receive_some(
        &self,
        into: &mut [u8],
        blast: bool,
        mut from: Option<&mut Address>,
    ) -> io::Result<Arrival> {
        loop {
            let (space, from) = (Space::of_mut(into), from.as_deref_mut());
            let arrived = match blast {
                true => self.socket.scatter(&[space], from, self.spin),
                false => self.socket.receive(space, from, self.spin),
            };
            match arrived {
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.spin => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                arrived => return arrived,
            }
        }
    }
}

/// Runs the near side: first `warm` round trips that are not measured, then the measured round trips. Returns
/// the time of the measured ones.
pub(crate) fn udp_lead(to: SocketAddr, what: Exchange, warm: u32) -> io::Result<Duration> {
    let to = Address::from(to);
    let socket = Datagrams::new(&to)?;
    socket.connect(&to)?;
    let (end, _) = End::new(&socket, what.spin, what.back)?;
    let mut there = vec![0xa5; what.there.bytes];
    let mut back = vec![0; what.back.bytes];
    // Asks the far side for its window (the number of bytes that it can receive before it acknowledges any).
    let mut window = [0; 4];
    socket.send(Window::of(&window), None, IfFull::Wait)?;
    end.receive_some(&mut window, what.back.is_blast(), None)?;
    let window = u32::from_le_bytes(window) as usize;
    let mut start = Instant::now();
    for trip in 0..what.trips {
        if trip == warm {
            start = Instant::now();
        }
        there[..4].copy_from_slice(&trip.to_le_bytes());
        let mut parts = there.chunks(window).peekable();
        while let Some(part) = parts.next() {
            end.send(part, what.there)?;
            if parts.peek().is_some() {
                end.receive_some(&mut back[..1], what.back.is_blast(), None)?;
            }
        }
        let mut received = 0;
        while received < back.len() {
            received += end.receive_some(&mut back[received..], what.back.is_blast(), None)?.bytes;
        }
        if back[..4] != trip.to_le_bytes() {
            return Err(io::Error::other("a packet was lost or duplicated"));
        }
    }
    Ok(start.elapsed())
}

/// Runs the far side of `udp-pingpong` and `blast-ack`.
pub(crate) fn udp_follow(socket: &Datagrams, what: Exchange) -> io::Result<()> {
    let (mut end, granted) = End::new(socket, what.spin, what.there)?;
    let blast = what.there.is_blast();
    let (mut there, mut back) = (vec![0; what.there.bytes], vec![0x5a; what.back.bytes]);
    let mut peer = Address::default();
    end.receive_some(&mut there[..4], blast, Some(&mut peer))?;
    let window = window(granted, what.there);
    let granted = u32::try_from(window).map_err(io::Error::other)?.to_le_bytes();
    socket.send(Window::of(&granted), Some(&peer), IfFull::Wait)?;
    for _ in 0..what.trips {
        let (mut received, mut acknowledged) = (0, 0);
        while received < there.len() {
            received += end.receive_some(&mut there[received..], blast, Some(&mut peer))?.bytes;
            if received - acknowledged >= window && received < there.len() {
                socket.send(Window::of(&[0]), Some(&peer), IfFull::Wait)?;
                acknowledged += window;
            }
        }
        back[..4].copy_from_slice(&there[..4]);
        end.peer = Some(peer);
        end.send(&back, what.back)?;
    }
    Ok(())
}

/// The messages on a stream, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    /// Whether both sides poll all the time instead of sleeping.
    pub(crate) spin: bool,
    /// The number of bytes of a message to the far side.
    pub(crate) there: usize,
    /// The number of bytes of an answer.
    pub(crate) back: usize,
    /// The number of round trips.
    pub(crate) trips: u32,
}

/// Sets the options of a connection.
pub(crate) fn prepared(stream: &TcpStream, spin: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // Cubic is selected, because the machine's default congestion control may pace packets. If the kernel
    // lacks cubic, the default stays.
    let _ = rustix::net::sockopt::set_tcp_congestion(stream.as_fd(), "cubic");
    stream.set_nonblocking(spin)
}

fn write(stream: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(some) => bytes = &bytes[some..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn read(stream: &mut TcpStream, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match stream.read(into) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(some) => into = &mut into[some..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Runs the near side of `tcp-pingpong`.
pub(crate) fn tcp_lead(to: SocketAddr, what: Stream, warm: u32) -> io::Result<Duration> {
    let mut stream = TcpStream::connect(to)?;
    prepared(&stream, what.spin)?;
    let (there, mut back) = (vec![0xa5; what.there], vec![0; what.back]);
    let mut start = Instant::now();
    for trip in 0..what.trips {
        if trip == warm {
            start = Instant::now();
        }
        write(&mut stream, &there)?;
        read(&mut stream, &mut back)?;
    }
    Ok(start.elapsed())
}

/// Runs the far side of `tcp-pingpong`.
pub(crate) fn tcp_follow(listener: &TcpListener, what: Stream) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    prepared(&stream, what.spin)?;
    let (mut there, back) = (vec![0; what.there], vec![0x5a; what.back]);
    for _ in 0..what.trips {
        read(&mut stream, &mut there)?;
        write(&mut stream, &back)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_into_the_largest_packets_of_the_link() {
        let of = |bytes, link| Packets::of_message(bytes, link);
        assert_eq!(of(0, Link::Veth), Packets { bytes: 64, segment: 1472 });
        assert!(!of(1408, Link::Veth).is_blast() && of(1409, Link::Veth).is_blast());
        assert_eq!(of(48_000, Link::Veth).bytes, 48_000 + 35 * 64);
        assert!(!of(65_440, Link::Loopback).is_blast());
        assert_eq!(of(48_000, Link::Veth).batch(), 44 * 1472);
    }

    #[test]
    fn messages_and_answers_of_all_sizes_are_exchanged() {
        let any = Address::from(SocketAddr::from(([127, 0, 0, 1], 0)));
        for (there, back, link) in [
            (0, 0, Link::Loopback),
            (48_000, 0, Link::Veth),
            (3000, 3000, Link::Veth),
            (4 << 20, 0, Link::Loopback),
        ] {
            let socket = Datagrams::new(&any).unwrap();
            socket.bind(&any).unwrap();
            let to = socket.local().unwrap().into();
            let [there, back] = [there, back].map(|bytes| Packets::of_message(bytes, link));
            let what = Exchange { spin: false, there, back, trips: 3 };
            std::thread::scope(|scope| {
                scope.spawn(|| udp_follow(&socket, what).unwrap());
                udp_lead(to, what, 1).unwrap();
            });
        }
    }

    #[test]
    fn stream_carries_messages_and_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for spin in [false, true] {
            let what = Stream { spin, there: 48_000, back: 5, trips: 3 };
            std::thread::scope(|scope| {
                scope.spawn(|| tcp_follow(&listener, what).unwrap());
                tcp_lead(listener.local_addr().unwrap(), what, 1).unwrap();
            });
        }
    }
}
