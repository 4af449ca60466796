//! The network: what becomes of a packet, by chance or by a script.

use core::ops::Range;

use crate::exchange::header::{HEADER_BYTES, Header};
use crate::exchange::time::{MICROSECOND, MILLISECOND, SECOND};
use crate::random::Random;

/// Where a packet comes from or goes to: the machine in the low eight bits, then which of its addresses
/// it is, then a port. The servers' machine is 0, clients' follow, and the last one is who attacks.
pub(crate) type Address = u32;
pub(crate) const SERVER: Address = 0;
pub(crate) const ATTACKER: Address = 255;

/// The machine of an address.
pub(crate) const fn machine_of(address: Address) -> Address {
    address & 0xff
}

/// An address without its port.
pub(crate) const fn host_of(address: Address) -> Address {
    address & 0xffff
}

/// Stands for the bytes of a message: a call's number, or [`RESULT`] more for its result.
pub(crate) type Token = u64;
pub(crate) const RESULT: Token = 1 << 32;

/// Bytes around a packet on Ethernet, and those of a full frame.
const CARRIER: u64 = 42;
const FRAME: u64 = 1514;

/// A packet under way: real header and what the protocol put behind it; of the message only which.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) from: Address,
    pub(crate) to: Address,
    /// Which of a client's sockets it leaves from, or has come to.
    pub(crate) socket: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) data: Option<(Token, Range<u32>)>,
}

impl Packet {
    /// Bytes on the wire.
    pub(crate) fn length(&self) -> usize {
        self.bytes.len() + self.data.as_ref().map_or(0, |(_, range)| range.len())
    }

    /// The header, if it is one and undamaged.
    pub(crate) fn header(&self) -> Option<Header> {
        let header = self.bytes.first_chunk()?;
        Header::parse(header, self.length() - HEADER_BYTES).ok()
    }
}

/// What one direction between two machines does to packets; chances in a thousand.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) delay: u64,
    pub(crate) jitter: u64,
    pub(crate) loss: u32,
    pub(crate) duplicate: u32,
    /// Takes much longer than others.
    pub(crate) reorder: u32,
    pub(crate) corrupt: u32,
    pub(crate) truncate: u32,
    /// Comes once more after up to five minutes.
    pub(crate) haunt: u32,
    /// Bytes of the largest packet that gets through.
    pub(crate) mtu: usize,
    /// Nothing gets through.
    pub(crate) cut: bool,
    /// Sending fails for want of room (`EAGAIN`), so often in a thousand times.
    pub(crate) full: u32,
    /// Sending fails, as there is no route (`ENETUNREACH`).
    pub(crate) no_route: bool,
    /// Sending a larger packet fails (`EMSGSIZE`).
    pub(crate) narrow: usize,
    /// Bytes a second; none: as many as one likes.
    pub(crate) rate: Option<u64>,
    /// Bytes that wait for their turn at most; what comes beyond is lost.
    pub(crate) queue: u64,
    /// Losses come together: once a packet is lost, so are the next ones with this chance.
    pub(crate) streak: u32,
    pub(crate) state: LinkState,
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It counts as lost.
    Lost,
    /// It has more bytes than that.
    TooLarge(usize),
    /// The machine has lost the address of the socket.
    Moved,
}

/// What a link remembers.
#[derive(Clone, Debug)]
pub(crate) struct LinkState {
    /// When all that was sent has left.
    free: u64,
    loses: bool,
    /// Packets that found no room.
    pub(crate) overflowed: u64,
    /// Bytes that were carried.
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
        haunt: 0,
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

    /// A link of so many bits a second and so long a delay, with a queue of as much as is under way, or
    /// of a hundred packets.
    pub(crate) fn shaped(bits: u64, delay: u64) -> Self {
        let rate = bits / 8;
        // There and back.
        let under_way = rate * 2 * delay / SECOND;
        Self { delay, rate: Some(rate), queue: under_way.max(100 * FRAME), ..Self::PERFECT }
    }

    /// Whether the machine takes a packet that is to be sent.
    pub(crate) fn take(&self, bytes: usize, random: &mut Random) -> Result<(), Trouble> {
        if bytes > self.narrow {
            return Err(Trouble::TooLarge(self.narrow));
        }
        if self.no_route || random.chance(self.full) {
            return Err(Trouble::Lost);
        }
        Ok(())
    }

    /// When a packet arrives, if it does, once or more often, and what of it.
    pub(crate) fn carry(
        &mut self,
        now: u64,
        packet: Packet,
        random: &mut Random,
    ) -> Vec<(u64, Packet)> {
        let mut arrivals = Vec::new();
        if random.chance(self.haunt) {
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

    /// How long a packet waits for those before it, and until it has left itself; `None` if there is no
    /// room for it.
    fn wait(&mut self, now: u64, bytes: u64) -> Option<u64> {
        self.state.carried += bytes;
        let Some(rate) = self.rate else { return Some(0) };
        let waits = self.state.free.saturating_sub(now);
        if waits * rate / SECOND + bytes > self.queue {
            self.state.carried -= bytes;
            self.state.overflowed += 1;
            return None;
        }
        // With what carries it: IP, UDP and Ethernet.
        let leaves = waits + (bytes + CARRIER) * SECOND / rate;
        self.state.free = now + leaves;
        Some(leaves)
    }
}

/// Flips up to three bits; false if the checksum of what carries packets sees it, or the payload's.
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
    /// What the link does.
    Pass,
    Drop,
    /// It takes so much longer.
    Late(u64),
    /// It comes, and once more so much later.
    Twice(u64),
}
