//! The simulated network. It decides what happens to each packet, at random or by a script.

use core::ops::Range;

use crate::exchange::header::{HEADER_BYTES, Header};
use crate::exchange::time::{MICROSECOND, MILLISECOND, SECOND};
use crate::random::Random;

/// The source or destination of a packet. The low eight bits are the number of the machine. The next eight
/// bits number the addresses of that machine, and the remaining bits are the port. Machine 0 runs the
/// servers, the machines from 1 on run the clients, and machine 255 is the attacker's.
pub(crate) type Address = u32;
pub(crate) const SERVER: Address = 0;
pub(crate) const ATTACKER: Address = 255;

/// Returns the machine of an address.
pub(crate) const fn machine_of(address: Address) -> Address {
    address & 0xff
}

/// Returns an address with port 0.
pub(crate) const fn host_of(address: Address) -> Address {
    address & 0xffff
}

/// Stands for the bytes of a message: the number of a call, plus [`RESULT`] if the message is the call's
/// result.
pub(crate) type Token = u64;
pub(crate) const RESULT: Token = 1 << 32;

/// The number of bytes that the headers of Ethernet, IP and UDP add to a packet.
const CARRIER: u64 = 42;
/// The number of bytes of a full Ethernet frame.
const FRAME: u64 = 1514;

/// A packet in flight. The header and the control payload are real bytes. A token stands for the bytes of the
/// message.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) from: Address,
    pub(crate) to: Address,
    /// The client's socket that sends or receives the packet.
    pub(crate) socket: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) data: Option<(Token, Range<u32>)>,
}

impl Packet {
    /// Returns the number of bytes on the wire.
    pub(crate) fn length(&self) -> usize {
        self.bytes.len() + self.data.as_ref().map_or(0, |(_, range)| range.len())
    }

    /// Returns the header, if it is valid.
    pub(crate) fn header(&self) -> Option<Header> {
        let header = self.bytes.first_chunk()?;
        Header::parse(header, self.length() - HEADER_BYTES).ok()
    }
}

/// What a link from one machine to another does to packets. Probabilities are in thousandths, and times in
/// nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) delay: u64,
    pub(crate) jitter: u64,
    pub(crate) loss: u32,
    pub(crate) duplicate: u32,
    /// The probability of a much longer delay.
    pub(crate) reorder: u32,
    pub(crate) corrupt: u32,
    pub(crate) truncate: u32,
    /// The probability that an additional copy arrives up to five minutes later.
    pub(crate) late_duplicate: u32,
    /// The size in bytes of the largest packet that arrives.
    pub(crate) mtu: usize,
    /// Whether all packets are lost.
    pub(crate) cut: bool,
    /// The probability that sending fails because the send buffer is full (`EAGAIN`).
    pub(crate) full: u32,
    /// Whether sending fails because there is no route (`ENETUNREACH`).
    pub(crate) no_route: bool,
    /// The size in bytes of the largest packet that can be sent. Sending a larger packet fails (`EMSGSIZE`).
    pub(crate) narrow: usize,
    /// The rate in bytes per second, or `None` if there is no limit.
    pub(crate) rate: Option<u64>,
    /// The largest number of bytes that may wait to be sent. A packet for which there is no space is lost.
    pub(crate) queue: u64,
    /// The probability that the packet after a lost one is lost, too. This makes bursts of losses.
    pub(crate) streak: u32,
    pub(crate) state: LinkState,
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// The packet was not sent, and counts as lost on the way.
    Lost,
    /// The packet is too large. The largest packet that can be sent has this number of bytes.
    TooLarge(usize),
    /// The machine no longer has the address of the socket.
    Moved,
}

/// The state of a link.
#[derive(Clone, Debug)]
pub(crate) struct LinkState {
    /// The time at which all queued packets will have left.
    free: u64,
    /// Whether the last packet was lost.
    loses: bool,
    /// The number of packets that were lost because the queue was full.
    pub(crate) overflowed: u64,
    /// The number of bytes that were carried.
    pub(crate) carried: u64,
}

impl Link {
    pub(crate) const PERFECT: Self = Self {
        delay: 50 * MICROSECOND,
        jitter: 0,
        loss: 0,
        duplicate: 0,
        reorder: 0,
        corrupt: 0,
        truncate: 0,
        late_duplicate: 0,
        mtu: 1472,
        cut: false,
        full: 0,
        no_route: false,
        narrow: usize::MAX,
        rate: None,
        queue: u64::MAX,
        streak: 0,
        state: LinkState { free: 0, loses: false, overflowed: 0, carried: 0 },
    };

    /// Makes a link that carries `bits` bits per second, with a delay of `delay` nanoseconds in each
    /// direction. The queue of the link holds the bandwidth-delay product of the round trip, but at least a
    /// hundred packets.
    pub(crate) fn shaped(bits: u64, delay: u64) -> Self {
        let rate = bits / 8;
        // The round trip contains the delay twice.
        let under_way = rate * 2 * delay / SECOND;
        Self { delay, rate: Some(rate), queue: under_way.max(100 * FRAME), ..Self::PERFECT }
    }

    /// Checks whether the machine accepts a packet of `bytes` bytes for sending.
    pub(crate) fn take(&self, bytes: usize, random: &mut Random) -> Result<(), NotSent> {
        if bytes > self.narrow {
            return Err(NotSent::TooLarge(self.narrow));
        }
        if self.no_route || random.chance(self.full) {
            return Err(NotSent::Lost);
        }
        Ok(())
    }

    /// Returns the arrivals of a packet, each with its delay and with the contents that arrive. There are
    /// none if the packet is lost, and several if it is duplicated.
    pub(crate) fn carry(
        &mut self,
        now: u64,
        packet: Packet,
        random: &mut Random,
    ) -> Vec<(u64, Packet)> {
        let mut arrivals = Vec::new();
        if random.chance(self.late_duplicate) {
            arrivals.push((random.range(SECOND..300 * SECOND), packet.clone()));
        }
        if self.cut || packet.length() > self.mtu || self.loses(random) {
            return arrivals;
        }
        let Some(waits) = self.wait(now, packet.length() as u64) else { return arrivals };
        let copies = if random.chance(self.duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            let mut delay = waits + self.delay + random.below(self.jitter);
            if random.chance(self.reorder) {
                delay += random.below(self.delay * 4 + MILLISECOND);
            }
            let mut packet = packet.clone();
            if random.chance(self.corrupt) && !damage(&mut packet, random) {
                continue;
            }
            if random.chance(self.truncate) {
                truncate(&mut packet, random);
            }
            arrivals.push((delay, packet));
        }
        arrivals
    }

    fn loses(&mut self, random: &mut Random) -> bool {
        let again = self.state.loses && random.chance(self.streak);
        self.state.loses = again || random.chance(self.loss);
        self.state.loses
    }

    /// Returns how long it takes until a packet has left the queue. This is the time for the packets before
    /// it and for the packet itself. Returns `None` if the queue is full.
    fn wait(&mut self, now: u64, bytes: u64) -> Option<u64> {
        self.state.carried += bytes;
        let Some(rate) = self.rate else { return Some(0) };
        let waits = self.state.free.saturating_sub(now);
        if waits * rate / SECOND + bytes > self.queue {
            self.state.carried -= bytes;
            self.state.overflowed += 1;
            return None;
        }
        // The time to send a packet includes the headers of IP, UDP and Ethernet.
        let departure = waits + (bytes + CARRIER) * SECOND / rate;
        self.state.free = now + departure;
        Some(departure)
    }
}

/// Flips up to three bits of a packet. Returns false if a checksum of the network or of the payload would
/// detect the damage.
fn damage(packet: &mut Packet, random: &mut Random) -> bool {
    for _ in 0..random.range(1..4) {
        let bit = random.below(packet.length() as u64 * 8) as usize;
        match packet.bytes.get_mut(bit / 8) {
            Some(byte) => *byte ^= 1 << (bit % 8),
            None => return false,
        }
    }
    true
}

fn truncate(packet: &mut Packet, random: &mut Random) {
    let length = random.below(packet.length() as u64) as usize;
    match &mut packet.data {
        Some((_, range)) if length >= packet.bytes.len() => {
            range.end = range.start + (length - packet.bytes.len()) as u32;
        }
        _ => {
            packet.data = None;
            packet.bytes.truncate(length);
        }
    }
}

/// What a script does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Leaves the packet to the link.
    Pass,
    Drop,
    /// Delays the packet by this time.
    Late(u64),
    /// Delivers the packet, and a duplicate after this time.
    Twice(u64),
}
