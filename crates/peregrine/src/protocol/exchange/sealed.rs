//! The header of a sealed packet, and the number of a packet.
//!
//! A sealed packet is a header, the encrypted payload, and a tag that proves both. The header differs from
//! that of other packets in two fields: the flags show that the packet is sealed, and with which keys; the
//! field `check` has the low half of the packet's number. The tag takes the place of the check.

use super::header::{Flags, HEADER_BYTES, Header, checksum};

/// The length of a tag in bytes.
pub(crate) const TAG_BYTES: usize = 16;
/// The number of phases of keys that a header can name. Beyond it, the numbers begin again.
pub(crate) const PHASES: u64 = 4;
/// The largest number of a packet.
pub(crate) const NUMBER_MAX: u64 = (1 << 48) - 1;

const SEALED: u16 = Flags::OF_SEALED[0];
const PHASE: u16 = Flags::OF_SEALED[1];
const PHASE_SHIFT: u32 = PHASE.trailing_zeros();
const _: () = assert!((PHASE >> PHASE_SHIFT) as u64 == PHASES - 1);

/// What the header of a sealed packet says about the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cover {
    /// The low half of the packet's number.
    pub(crate) number: u32,
    /// The number of the keys, modulo [`PHASES`].
    pub(crate) phase: u64,
}

impl Cover {
    /// Reads the header of a sealed packet. Returns `None` if the packet is not sealed.
    #[inline]
    pub(crate) fn of(header: &[u8; HEADER_BYTES]) -> Option<Self> {
        let flags = flags(header);
        let number = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let phase = u64::from((flags & PHASE) >> PHASE_SHIFT);
        (flags & SEALED != 0).then_some(Self { number, phase })
    }

    /// Makes a written header that of a sealed packet.
    #[inline]
    pub(crate) fn put(self, header: &mut [u8; HEADER_BYTES]) {
        let phase = ((self.phase % PHASES) as u16) << PHASE_SHIFT;
        let flags = flags(header) & !PHASE | SEALED | phase;
        header[28..30].copy_from_slice(&flags.to_le_bytes());
        header[4..8].copy_from_slice(&self.number.to_le_bytes());
    }
}

/// Makes the header of a packet that was opened the same as before the packet was sealed.
#[inline]
pub(crate) fn restore(header: &mut [u8; HEADER_BYTES]) {
    let flags = flags(header) & !(SEALED | PHASE);
    header[28..30].copy_from_slice(&flags.to_le_bytes());
    header[4..8].fill(0);
    let check = checksum(header);
    header[4..8].copy_from_slice(&check.to_le_bytes());
}

/// Returns whether a packet is sealed.
#[inline]
pub(crate) fn is_sealed(packet: &[u8]) -> bool {
    packet.first_chunk().is_some_and(|header| Cover::of(header).is_some())
}

/// Returns the header of a sealed packet as it would be if the packet were opened. Nothing in it is proven.
pub(crate) fn claimed(packet: &[u8]) -> Option<Header> {
    let (header, rest) = packet.split_first_chunk::<HEADER_BYTES>()?;
    Cover::of(header)?;
    let payload = rest.len().checked_sub(TAG_BYTES)?;
    let mut header = *header;
    restore(&mut header);
    Header::parse(&header, payload).ok()
}

#[inline]
fn flags(header: &[u8; HEADER_BYTES]) -> u16 {
    u16::from_le_bytes([header[28], header[29]])
}

/// Returns the number of a packet from its low half. It is the number nearest to the number after `largest`,
/// which is the largest number of all packets that were opened.
#[inline]
pub(crate) const fn whole_number(largest: u64, low: u32) -> u64 {
    const HALF: u64 = 1 << 31;
    let next = largest + 1;
    let near = next & !0xffff_ffff | low as u64;
    if near + HALF < next {
        near + 2 * HALF
    } else if near > next + HALF && near >= 2 * HALF {
        near - 2 * HALF
    } else {
        near
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::{Handle, PacketKind};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whole_number_is_found_near_the_largest(largest in 0..NUMBER_MAX, ahead in 0..1u64 << 31) {
            prop_assert_eq!(whole_number(largest, (largest + ahead) as u32), largest + ahead);
            let before = largest.saturating_sub(ahead);
            prop_assert_eq!(whole_number(largest, before as u32), before);
        }

        #[test]
        fn header_is_restored(number: u32, phase in 0..PHASES, flags in 0..4u16) {
            let handle = Handle { place: 3, secret: [7; 12] };
            let flags = Flags::CHECKED.with_if(flags & 1 != 0, Flags::REPORT);
            let header = Header { flags, ..Header::new(PacketKind::Bind, handle, 9) };
            let mut bytes = [0; HEADER_BYTES];
            header.emit(&mut bytes);
            let written = bytes;
            prop_assert_eq!(Cover::of(&bytes), None);
            Cover { number, phase }.put(&mut bytes);
            prop_assert_eq!(Cover::of(&bytes), Some(Cover { number, phase }));
            prop_assert!(Header::parse(&bytes, 0).is_err());
            restore(&mut bytes);
            prop_assert_eq!(bytes, written);
        }
    }
}
