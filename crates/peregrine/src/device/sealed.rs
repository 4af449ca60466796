//! A socket whose packets are encrypted. What encrypts them is a [`PacketSeal`], so this module knows no
//! cryptography, and not what the packets mean.
//!
//! A packet is copied into memory of the thread, encrypted there, and sent. A received packet is decrypted
//! in memory of the thread, and then copied to where the caller wants it. So the memory of calls and results,
//! which other threads may use, never contains ciphertext.

use core::cell::Cell;
use core::fmt;
use std::io;
use std::sync::Arc;

use super::SendDatagrams;
use super::gso::{GSO_DATAGRAMS_MAX, cut};
use super::socket::{NoWait, Socket};
use super::udp::{Arrival, BYTES_MAX, Until, datagrams};
use crate::sys::Address;
use crate::value::{Space, Window};

/// The number of bytes by which an encrypted packet is longer than the packet itself.
pub(crate) const TAG_BYTES: usize = 16;

/// The largest number of receptions without a packet for the caller that one call of
/// [`receive`](SealedSocket::receive) makes.
const RECEPTIONS_MAX: u32 = 16;

/// Encrypts the packets that a socket sends, and decrypts those that it receives. Any number of threads use
/// it at the same time.
pub(crate) trait PacketSeal: Send + Sync + fmt::Debug {
    /// Returns the bytes that say in each packet which keys it has, if all packets have the same keys.
    fn connection(&self) -> Option<[u8; 8]>;

    /// Encrypts a packet in place. The last [`TAG_BYTES`] bytes of `packet` are room, and do not belong to
    /// the packet. Returns the number of bytes to send. Returns `None` if there are no keys for the packet. It
    /// is then not sent.
    fn seal(&self, packet: &mut [u8]) -> Option<usize>;

    /// Decrypts a packet in place. `from` is the sender if the socket has no fixed peer. Answers of the seal
    /// itself leave by the socket `by`, which does not encrypt.
    fn open(&self, packet: &mut [u8], from: Option<&Address>, by: &Socket) -> Opened;

    /// Ends the use of the keys, if all packets have the same keys: no more packets are encrypted or
    /// decrypted.
    fn end(&self) {}
}

/// What became of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(any(feature = "secure", test)), allow(dead_code))] // without TLS, no socket is sealed
pub(crate) enum Opened {
    /// The first bytes of the memory are the packet of the peer.
    Packet(usize),
    /// The packet is not for the caller.
    Dropped,
    /// The packet is a hint, which is not proven, that the peer does not know this socket.
    Unreachable,
}

/// A socket, and what encrypts its packets.
#[derive(Debug)]
pub(crate) struct SealedSocket {
    pub(super) socket: Socket,
    seal: Arc<dyn PacketSeal>,
}

thread_local! {
    /// Memory of this thread in which packets are encrypted and decrypted. It is allocated at the first use.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Runs `with` on memory for the largest batch of packets.
fn with_scratch<T>(with: impl FnOnce(&mut [u8]) -> T) -> T {
    // During the end of a thread, the memory of the thread may be gone already.
    let mut scratch = SCRATCH.try_with(Cell::take).unwrap_or_default();
    scratch.resize(BYTES_MAX + TAG_BYTES, 0);
    let done = with(&mut scratch);
    let _ = SCRATCH.try_with(|place| place.set(scratch));
    done
}

/// Copies the bytes of `parts` to the front of `to`. Returns their number, or `None` if they do not fit.
fn gather(parts: &[Window<'_>], to: &mut [u8]) -> Option<usize> {
    let mut at = 0;
    for part in parts {
        part.read(0, to.get_mut(at..at + part.len())?)?;
        at += part.len();
    }
    Some(at)
}

/// Packets that were encrypted one after another, and that are sent together.
struct Batch<'a> {
    memory: &'a mut [u8],
    used: usize,
    count: usize,
    /// Whether packets of the batch have left already.
    left: bool,
}

impl Batch<'_> {
    /// Encrypts one more packet of the batch. All packets but the last have the length `segment`.
    fn add(&mut self, seal: &dyn PacketSeal, packet: &[Window<'_>]) -> bool {
        let room = &mut self.memory[self.used..];
        let Some(bytes) = gather(packet, room) else { return false };
        let Some(room) = room.get_mut(..bytes + TAG_BYTES) else { return false };
        if seal.seal(room) == Some(bytes + TAG_BYTES) {
            (self.used, self.count) = (self.used + bytes + TAG_BYTES, self.count + 1);
        }
        true
    }

    fn send(
        &mut self,
        by: &impl SendDatagrams,
        segment: usize,
        to: Option<&Address>,
    ) -> io::Result<()> {
        let all = [Window::of(&self.memory[..self.used])];
        let sent = match core::mem::take(&mut self.count) {
            0 => Ok(()),
            1 => by.send(&all, to),
            _ => by.send_batch(&all, segment, to),
        };
        self.used = 0;
        match sent {
            // If sending returns an error, the caller assumes that no packet was sent.
            Err(error) if !self.left => Err(error),
            _ => {
                self.left = true;
                Ok(())
            }
        }
    }
}

impl SealedSocket {
    /// Sends one packet, which consists of `parts`.
    fn send_by(
        &self,
        by: &impl SendDatagrams,
        parts: &[Window<'_>],
        to: Option<&Address>,
    ) -> io::Result<()> {
        with_scratch(|scratch| {
            let bytes = gather(parts, &mut scratch[..BYTES_MAX - TAG_BYTES]);
            let bytes = bytes.ok_or_else(|| io::Error::from_raw_os_error(libc::EMSGSIZE))?;
            match self.seal.seal(&mut scratch[..bytes + TAG_BYTES]) {
                Some(bytes) => by.send(&[Window::of(&scratch[..bytes])], to),
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }

    /// Sends the bytes of `parts` as packets of `segment` bytes, of which the last may be shorter.
    fn send_batch_by(
        &self,
        by: &impl SendDatagrams,
        parts: &[Window<'_>],
        segment: usize,
        to: Option<&Address>,
    ) -> io::Result<()> {
        with_scratch(|scratch| {
            let memory = &mut scratch[..BYTES_MAX];
            let mut batch = Batch { memory, used: 0, count: 0, left: false };
            let sealed = segment + TAG_BYTES;
            cut(parts, segment, &mut |packet| {
                if batch.count == GSO_DATAGRAMS_MAX || batch.used + sealed > BYTES_MAX {
                    batch.send(by, sealed, to)?;
                }
                if batch.add(&*self.seal, packet) {
                    Ok(())
                } else {
                    Err(io::Error::from_raw_os_error(libc::EMSGSIZE))
                }
            })?;
            batch.send(by, sealed, to)
        })
    }

    pub(super) fn send(&self, parts: &[Window<'_>], to: Option<&Address>) -> io::Result<()> {
        self.send_by(&self.socket, parts, to)
    }

    pub(super) fn send_now(&self, parts: &[Window<'_>], to: Option<&Address>) -> io::Result<()> {
        self.send_by(&NoWait(&self.socket), parts, to)
    }

    pub(super) fn send_batch(
        &self,
        parts: &[Window<'_>],
        segment: usize,
        to: Option<&Address>,
    ) -> io::Result<()> {
        self.send_batch_by(&self.socket, parts, segment, to)
    }

    pub(super) fn send_batch_now(
        &self,
        parts: &[Window<'_>],
        segment: usize,
        to: Option<&Address>,
    ) -> io::Result<()> {
        self.send_batch_by(&NoWait(&self.socket), parts, segment, to)
    }

    /// Receives as [`Socket::receive`] does. Returns `None` also if only packets arrived that are not for the
    /// caller.
    ///
    /// # Errors
    /// Those of [`Socket::receive`]. `ConnectionRefused` may also mean that the peer says, without proof, that
    /// it does not know this socket.
    pub(super) fn receive(
        &self,
        into: &[Space<'_>],
        mut from: Option<&mut Address>,
        until: Until,
    ) -> io::Result<Option<Arrival>> {
        with_scratch(|scratch| {
            let mut until = until;
            for _ in 0..RECEPTIONS_MAX {
                let memory = [Space::of_mut(&mut scratch[..BYTES_MAX])];
                let received = self.socket.receive(&memory, from.as_deref_mut(), until)?;
                let Some(arrival) = received else { return Ok(None) };
                if let Some(opened) = self.open(scratch, arrival, from.as_deref(), into)? {
                    return Ok(Some(opened));
                }
                until = Until::Now;
            }
            Ok(None)
        })
    }

    /// Decrypts the packets of an arrival, and copies them one after another into the spaces `into`. Returns
    /// `None` if none of them is for the caller.
    fn open(
        &self,
        scratch: &mut [u8],
        arrival: Arrival,
        from: Option<&Address>,
        into: &[Space<'_>],
    ) -> io::Result<Option<Arrival>> {
        let mut place = Place { into, at: 0 };
        // All packets of an arrival have one length, except the last. So a packet that is longer than the
        // first, or that follows a shorter one, is dropped. Only forged packets are like this.
        let (mut segment, mut is_last, mut cut) = (None, false, false);
        let mut is_unreachable = false;
        for range in datagrams(arrival) {
            if is_last || (arrival.cut && range.end == arrival.bytes) {
                break;
            }
            let packet = &mut scratch[range];
            let bytes = match self.seal.open(packet, from, &self.socket) {
                Opened::Packet(bytes) => bytes.min(packet.len()),
                Opened::Dropped => continue,
                Opened::Unreachable => {
                    is_unreachable = true;
                    continue;
                }
            };
            let most = *segment.get_or_insert(bytes);
            if bytes > most {
                continue;
            }
            is_last = bytes < most;
            if place.put(&packet[..bytes]) < bytes {
                cut = true;
                break;
            }
        }
        match segment {
            Some(segment) => Ok(Some(Arrival { bytes: place.at, segment: segment.max(1), cut })),
            None if is_unreachable => Err(io::ErrorKind::ConnectionRefused.into()),
            None => Ok(None),
        }
    }
}

/// Spaces that are filled one after another.
struct Place<'a> {
    into: &'a [Space<'a>],
    /// The number of bytes that were written.
    at: usize,
}

impl Place<'_> {
    /// Appends bytes. Returns how many of them had room.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let (mut skip, mut done) = (self.at, 0);
        for space in self.into {
            let room = space.window().len();
            if skip >= room {
                skip -= room;
                continue;
            }
            let some = (room - skip).min(bytes.len() - done);
            if space.write(skip, &bytes[done..done + some]).is_none() {
                break;
            }
            (skip, done) = (0, done + some);
        }
        self.at += done;
        done
    }
}

impl Socket {
    /// Returns a socket that encrypts the packets of this one.
    pub(crate) fn sealed(self, seal: Arc<dyn PacketSeal>) -> Self {
        Self::Sealed(Box::new(SealedSocket { socket: self, seal }))
    }

    /// Returns whether the socket encrypts its packets.
    #[inline]
    pub(crate) const fn is_sealed(&self) -> bool {
        matches!(self, Self::Sealed(_))
    }

    /// Returns what the packets of this socket contain so that the peer finds their keys. `None` if the
    /// packets are not encrypted.
    pub(crate) fn connection(&self) -> Option<[u8; 8]> {
        match self {
            Self::Sealed(sealed) => sealed.seal.connection(),
            Self::Udp(_) | Self::Ethernet(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::udp::tests::{SOON, loopback, pair, pattern};
    use super::*;
    use crate::device::{GsoBatch, udp::Udp};

    /// Adds one to every byte, and marks the packet in its tag. Packets that begin with 9 are secret.
    #[derive(Debug)]
    struct AddOne;

    const MARK: [u8; TAG_BYTES] = [0xee; TAG_BYTES];

    impl PacketSeal for AddOne {
        fn connection(&self) -> Option<[u8; 8]> {
            None
        }

        fn seal(&self, packet: &mut [u8]) -> Option<usize> {
            let (text, tag) = packet.split_last_chunk_mut::<TAG_BYTES>()?;
            if text.first() == Some(&9) {
                return None;
            }
            text.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
            *tag = MARK;
            Some(packet.len())
        }

        fn open(&self, packet: &mut [u8], _: Option<&Address>, _: &Socket) -> Opened {
            if packet.first() == Some(&200) {
                return Opened::Unreachable;
            }
            let Some((text, tag)) = packet.split_last_chunk_mut::<TAG_BYTES>() else {
                return Opened::Dropped;
            };
            if *tag != MARK {
                return Opened::Dropped;
            }
            text.iter_mut().for_each(|byte| *byte = byte.wrapping_sub(1));
            Opened::Packet(text.len())
        }
    }

    fn sealed(udp: Udp) -> Socket {
        Socket::Udp(udp).sealed(Arc::new(AddOne))
    }

    #[test]
    fn packets_are_sealed_on_the_wire_and_arrive_open() {
        let (near, far) = pair(loopback());
        let near = sealed(near);
        let text = pattern(1000, 3);
        let parts = [Window::of(&text[..64]), Window::of(&text[64..])];
        near.send(&parts, None).unwrap();
        let mut wire = [0; 2000];
        let arrival = far.receive(&[Space::of_mut(&mut wire)], None, SOON).unwrap().unwrap();
        assert_eq!(arrival.bytes, 1000 + TAG_BYTES);
        assert!(wire[..1000].iter().zip(&text).all(|(there, here)| *there == here.wrapping_add(1)));
        // A packet without keys is not sent.
        let refused = near.send(&[Window::of(&[9; 100])], None).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        near.send_now(&parts).unwrap();
        let far = sealed(far);
        let (mut head, mut body) = ([0; 64], [0; 1000]);
        let into = [Space::of_mut(&mut head), Space::of_mut(&mut body)];
        let mut from = Address::default();
        let arrival = far.receive(&into, Some(&mut from), SOON).unwrap().unwrap();
        assert_eq!((arrival.bytes, arrival.segment, arrival.cut), (1000, 1000, false));
        assert!(head == text[..64] && body[..936] == text[64..]);
        assert_eq!(from, near.local().unwrap());
    }

    #[test]
    fn batches_are_sealed_packet_by_packet() {
        let (near, far) = pair(loopback());
        let (near, far) = (sealed(near), sealed(far));
        far.enable_gro().unwrap();
        let text = pattern(60_000, 8);
        let mut buffer = vec![0; BYTES_MAX];
        let mut batch = GsoBatch::new(&mut buffer, &near);
        let mut sent = 0;
        for piece in text.chunks(1408) {
            assert!(batch.push(&[7; 64], &[Window::of(piece)]) || sent == 0);
            sent += 1;
        }
        batch.send(&near, None).unwrap();
        let (mut got, mut arrived) = (Vec::new(), 0);
        let mut memory = vec![0; BYTES_MAX];
        while arrived < sent {
            let arrival = far.receive(&[Space::of_mut(&mut memory)], None, SOON).unwrap().unwrap();
            for range in datagrams(arrival) {
                let (head, piece) = memory[range].split_at(64);
                assert_eq!(head, [7; 64]);
                got.extend_from_slice(piece);
                arrived += 1;
            }
        }
        assert!(got == text);
    }

    #[test]
    fn forged_packets_are_dropped_and_hints_are_reported() {
        let (near, far) = pair(loopback());
        let far = sealed(far);
        near.send(&[Window::of(&[1; 100])], None).unwrap();
        near.send(&[Window::of(&[200; 100])], None).unwrap();
        let mut memory = [0; 200];
        let into = [Space::of_mut(&mut memory)];
        // The first packet is not for the caller, and the second is a hint.
        let refused = far.receive(&into, None, SOON).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(far.receive(&into, None, Until::Now).unwrap(), None);
        assert_eq!(memory, [0; 200]);
    }

    #[test]
    fn packet_that_does_not_fit_is_marked_as_cut() {
        let (near, far) = pair(loopback());
        let (near, far) = (sealed(near), sealed(far));
        near.send(&[Window::of(&[1; 100])], None).unwrap();
        let mut memory = [0; 60];
        let arrival = far.receive(&[Space::of_mut(&mut memory)], None, SOON).unwrap().unwrap();
        assert_eq!((arrival.bytes, arrival.cut), (60, true));
        assert!(far.payload_to(&near.local().unwrap(), 64).unwrap() % 16 == 0);
        assert_eq!(near.payload(64).unwrap() + TAG_BYTES, {
            let Socket::Sealed(sealed) = &near else { unreachable!() };
            sealed.socket.payload(64).unwrap()
        });
    }
}
