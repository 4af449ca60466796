//! Seals and opens the packets of a connection after its handshake, and updates the keys.
//!
//! Each direction has one number for all packets, under whichever keys. A number is never used again, so no
//! two packets have the same key and number: a retransmitted packet is sealed again. Both directions go to
//! the next keys together, as in RFC 9001, section 6. One difference: a header shows the number of the keys
//! modulo four, not two. So a receiver knows from the header whether to take the previous, the current or the
//! next keys, and never decrypts a packet twice.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustls::quic::{Keys, PacketKey, PacketKeySet, Secrets};

use super::replays::Replays;
use super::{ConnectionId, Parameters};
use crate::protocol::exchange::header::{HEADER_BYTES, PacketKind};
use crate::protocol::exchange::sealed::{
    Cover, NUMBER_MAX, PHASES, TAG_BYTES, restore, whole_number,
};
use crate::secure::Peer;
use crate::sync::RwLock;

/// After how many packets this side updates the keys, unless the cipher demands it earlier.
const UPDATE_AFTER: u64 = 1 << 22;

/// How often keys are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// After how many sealed packets this side goes to the next keys.
    pub(crate) update_after: u64,
    /// After how many sealed packets keys are not used any more, even if the other side has not answered.
    pub(crate) sealed_max: u64,
    /// After how many forged packets the connection ends.
    pub(crate) forged_max: u64,
}

impl Limits {
    fn of(key: &dyn PacketKey) -> Self {
        let sealed_max = key.confidentiality_limit();
        let update_after = (sealed_max / 2).min(UPDATE_AFTER);
        Self { update_after, sealed_max, forged_max: key.integrity_limit() }
    }
}

/// The connection can seal no more packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended;

/// The keys in use.
struct Current {
    /// The number of the keys: how often they were updated.
    phase: u64,
    seal: Box<dyn PacketKey>,
    open: Box<dyn PacketKey>,
    /// Opens late packets.
    previous: Option<Box<dyn PacketKey>>,
    /// Prepared, so that a packet under the next keys takes no longer than others.
    next: PacketKeySet,
    secrets: Secrets,
    /// The number of the first packet that this side seals with these keys.
    first: u64,
    /// Whether a packet under these keys was opened, so the other side has them, too.
    is_confirmed: AtomicBool,
}

/// The packets of one connection after the handshake. Many threads seal and open at the same time. Nothing is
/// allocated for a packet.
pub(crate) struct Channel {
    id: ConnectionId,
    peer: Peer,
    theirs: Parameters,
    limits: Limits,
    /// The number of the next packet that is sealed.
    next: AtomicU64,
    /// The largest number of all packets that were opened.
    largest: AtomicU64,
    forged: AtomicU64,
    has_ended: AtomicBool,
    /// Which requests to bind were taken. Packets of other kinds need no such protection: the exchange takes
    /// each sequence once. They would even suffer from it: threads with sockets of their own open packets in
    /// another order than that of the numbers, with thousands of packets between them.
    binds: Replays,
    /// Threads that seal and open packets read. A thread that updates the keys writes, for a few microseconds.
    current: RwLock<Current>,
}

impl Channel {
    pub(super) fn new(
        id: ConnectionId,
        peer: Peer,
        theirs: Parameters,
        keys: Keys,
        mut secrets: Secrets,
        limits: Option<Limits>,
    ) -> Self {
        let next = secrets.next_packet_keys();
        let (seal, open) = (keys.local.packet, keys.remote.packet);
        let limits = limits.unwrap_or_else(|| Limits::of(&*seal));
        let current = Current {
            phase: 0,
            seal,
            open,
            previous: None,
            next,
            secrets,
            first: 0,
            is_confirmed: AtomicBool::new(false),
        };
        Self {
            id,
            peer,
            theirs,
            limits,
            next: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            forged: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            binds: Replays::new(),
            current: RwLock::new(current),
        }
    }

    /// Returns the name of the connection at the server.
    pub(crate) const fn id(&self) -> ConnectionId {
        self.id
    }

    /// Returns the other side.
    pub(crate) const fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns what the other side has told about itself in the handshake.
    pub(crate) const fn theirs(&self) -> &Parameters {
        &self.theirs
    }

    /// Returns whether the connection has ended: it seals and opens no more packets.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Ends the connection, for example because the other side is not trusted any more.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Returns how many packets were not authentic.
    #[cfg(test)]
    pub(crate) fn forged(&self) -> u64 {
        self.forged.load(Ordering::Relaxed)
    }

    /// Returns how often the keys were updated.
    #[cfg(test)]
    pub(super) fn phase(&self) -> u64 {
        self.current.read().phase
    }

    /// Encrypts a packet in place: a written header, the payload, and room for the tag ([`TAG_BYTES`]).
    ///
    /// # Errors
    /// Fails if the connection has ended.
    ///
    /// # Panics
    /// Panics if the packet is shorter than a header and a tag.
    #[inline]
    pub(crate) fn seal(&self, packet: &mut [u8]) -> Result<(), Ended> {
        let (header, rest) = packet.split_first_chunk_mut::<HEADER_BYTES>().expect("a header");
        let (payload, tag) = rest.split_last_chunk_mut::<TAG_BYTES>().expect("room for a tag");
        loop {
            if self.has_ended() {
                return Err(Ended);
            }
            let current = self.current.read();
            let sealed = self.next.load(Ordering::Relaxed).saturating_sub(current.first);
            if sealed >= self.limits.update_after && current.is_confirmed.load(Ordering::Relaxed) {
                let phase = current.phase;
                drop(current);
                self.update(phase, false);
                continue;
            }
            // SYNC: the number is taken while the lock is held, so a packet under the next keys has a larger
            // number than all packets under these keys.
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number - current.first >= self.limits.sealed_max || number > NUMBER_MAX {
                self.end();
                return Err(Ended);
            }
            Cover { number: number as u32, phase: current.phase }.put(header);
            let sealed = current.seal.encrypt_in_place(number, header, payload);
            // It fails only if the packet has gigabytes.
            let sealed = sealed.map_err(|_| Ended)?;
            tag.copy_from_slice(sealed.as_ref());
            return Ok(());
        }
    }

    /// Decrypts a packet in place, and makes its header the same as before it was sealed. Returns the length
    /// without the tag. `None` means that the packet is not authentic, was recorded and sent again, or is not
    /// sealed at all. The bytes of such a packet may have changed.
    #[inline]
    pub(crate) fn open(&self, packet: &mut [u8]) -> Option<usize> {
        let (header, rest) = packet.split_first_chunk_mut::<HEADER_BYTES>()?;
        let Cover { number, phase } = Cover::of(header)?;
        if self.has_ended() {
            return None;
        }
        let number = whole_number(self.largest.load(Ordering::Relaxed), number);
        let current = self.current.read();
        let ahead = phase.wrapping_sub(current.phase) % PHASES;
        let key = match ahead {
            0 => &current.open,
            // The other side updates keys only after it has received a packet under them.
            1 if self.next.load(Ordering::Relaxed) > current.first => &current.next.remote,
            3 => current.previous.as_ref()?,
            _ => return None,
        };
        let Ok(payload) = key.decrypt_in_place(number, header, rest) else {
            drop(current);
            return self.refuse();
        };
        let length = HEADER_BYTES + payload.len();
        if header[3] == PacketKind::Bind as u8 && !self.binds.is_new(number) {
            return None;
        }
        self.largest.fetch_max(number, Ordering::Relaxed);
        match ahead {
            0 if !current.is_confirmed.load(Ordering::Relaxed) => {
                current.is_confirmed.store(true, Ordering::Relaxed);
            }
            1 => {
                let phase = current.phase;
                drop(current);
                self.update(phase, true);
            }
            _ => {}
        }
        restore(header);
        Some(length)
    }

    /// Counts a packet that is not authentic.
    #[cold]
    fn refuse(&self) -> Option<usize> {
        let forged = self.forged.fetch_add(1, Ordering::Relaxed) + 1;
        if forged >= self.limits.forged_max {
            self.end();
        }
        None
    }

    /// Goes to the keys after those of a phase, unless another thread has done so. `is_confirmed` says whether
    /// the other side has them already.
    #[cold]
    pub(super) fn update(&self, phase: u64, is_confirmed: bool) {
        let mut guard = self.current.write();
        let current = &mut *guard;
        if current.phase == phase {
            let next = current.secrets.next_packet_keys();
            let new = core::mem::replace(&mut current.next, next);
            current.previous = Some(core::mem::replace(&mut current.open, new.remote));
            current.seal = new.local;
            current.phase += 1;
            current.first = self.next.load(Ordering::Relaxed);
            current.is_confirmed = AtomicBool::new(is_confirmed);
        } else if current.phase == phase + 1 && is_confirmed {
            current.is_confirmed.store(true, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("id", &self.id)
            .field("peer", &self.peer)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
