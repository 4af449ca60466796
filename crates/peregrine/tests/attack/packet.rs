//! Forges packets of the packet exchange (the protocol over UDP and raw Ethernet). A forged packet has
//! changed header fields and a valid checksum.

use super::noise::Noise;

pub(crate) const HEADER_BYTES: usize = 64;
pub(crate) const SECRET: core::ops::Range<usize> = 12..24;
const CHECK: core::ops::Range<usize> = 4..8;
const SEQUENCE: core::ops::Range<usize> = 24..28;
/// The offset of the field that holds the number of bytes of the whole message.
const TOTAL: usize = 36;
/// The largest number of bytes that a forged header claims for its message. All clients on one host share 64
/// MiB of a server's memory for incomplete calls. Forged headers must leave enough of this memory for the
/// honest clients on that host.
const FORGED_TOTAL_MAX: u32 = 1 << 20;

/// The offset and the size in bytes of each header field that is forged (`docs/PROTOCOL.md` describes the
/// fields): kind, place, sequence, flags, serial, total, head, at, fragment, piece, credits, extensions,
/// echo. The procedure is not forged, because the ledger (the service under attack, which records its calls)
/// would run and record a forged call.
const FIELDS: [(usize, usize); 13] = [
    (3, 1),
    (8, 4),
    (24, 4),
    (28, 2),
    (30, 2),
    (TOTAL, 4),
    (40, 4),
    (44, 4),
    (48, 4),
    (52, 2),
    (54, 2),
    (60, 2),
    (62, 2),
];

/// Changes one to three fields of a packet's header, and then makes the packet's checksum valid again. A
/// packet without a whole header is left unchanged.
pub(crate) fn forge(noise: &mut Noise, packet: &mut [u8]) {
    let Some(header) = packet.get_mut(..HEADER_BYTES) else { return };
    for _ in 0..1 + noise.below(3) {
        let (at, bytes) = noise.one_of(&FIELDS);
        let mut old = [0; 4];
        old[..bytes].copy_from_slice(&header[at..at + bytes]);
        let new = noise.word(u32::from_le_bytes(old));
        let new = if at == TOTAL { new.min(FORGED_TOTAL_MAX) } else { new }.to_le_bytes();
        header[at..at + bytes].copy_from_slice(&new[..bytes]);
    }
    set_check(header);
}

/// Makes the packet of a call of one packet into the next call of the same caller.
pub(crate) fn make_next_call(packet: &mut [u8]) {
    let header = &mut packet[..HEADER_BYTES];
    let sequence = u32::from_le_bytes(header[SEQUENCE].try_into().unwrap());
    header[SEQUENCE].copy_from_slice(&sequence.wrapping_add(1).to_le_bytes());
    set_check(header);
}

/// Makes the checksum of a header valid.
fn set_check(header: &mut [u8]) {
    header[CHECK].fill(0);
    let check = crc32c::crc32c(header);
    header[CHECK].copy_from_slice(&check.to_le_bytes());
}
