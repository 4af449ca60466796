//! Finds the payload of a datagram over UDP, or of a frame of raw Ethernet, and replaces it.

use core::ops::Range;

use super::capture::ETHERNET;

// Types of links (<https://www.tcpdump.org/linktypes.html>).
const NULL: u32 = 0;
const RAW: [u32; 3] = [12, 14, 101];
const COOKED: u32 = 113;
const IPV4_ONLY: u32 = 228;
const IPV6_ONLY: u32 = 229;
const COOKED_2: u32 = 276;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLANS: [u16; 2] = [0x8100, 0x88a8];
/// The type of Peregrine's Ethernet frames.
const PEREGRINE: u16 = 0x88b5;
/// The bytes of the endpoints before a packet in an Ethernet frame.
const ENDPOINTS: usize = 4;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

/// Where a payload is in a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    payload: Range<usize>,
    /// Where the header of IP begins, and how long it is. `None`: raw Ethernet.
    internet: Option<(usize, usize)>,
}

/// Returns where the payload is. Returns `None` for other protocols, for fragments of IP, and for frames of
/// which the capture has not all bytes.
pub(super) fn find(link: u32, frame: &[u8]) -> Option<Place> {
    let (kind, at) = match link {
        ETHERNET => {
            let mut at = 12;
            // At most two tags of virtual networks.
            for _ in 0..2 {
                if VLANS.contains(&half(frame, at)?) {
                    at += 4;
                }
            }
            (half(frame, at)?, at + 2)
        }
        COOKED => (half(frame, 14)?, 16),
        COOKED_2 => (half(frame, 0)?, 20),
        NULL => (version(frame, 4)?, 4),
        IPV4_ONLY | IPV6_ONLY => (version(frame, 0)?, 0),
        raw if RAW.contains(&raw) => (version(frame, 0)?, 0),
        _ => return None,
    };
    match kind {
        PEREGRINE => {
            let payload = at + ENDPOINTS..frame.len();
            (payload.start <= payload.end).then_some(Place { payload, internet: None })
        }
        IPV4 => {
            let header = usize::from(*frame.get(at)? & 15) * 4;
            let is_whole = half(frame, at + 6)? & 0x3fff == 0;
            let is_udp = *frame.get(at + 9)? == UDP;
            // A length of zero: the kernel divides the packet later.
            let end = match usize::from(half(frame, at + 2)?) {
                0 => frame.len(),
                length => at + length,
            };
            let fits = header >= IPV4_HEADER && is_whole && is_udp;
            if fits { udp(frame, at, header, end) } else { None }
        }
        IPV6 => {
            let end = match usize::from(half(frame, at + 4)?) {
                0 => frame.len(),
                length => at + IPV6_HEADER + length,
            };
            let is_udp = *frame.get(at + 6)? == UDP;
            if is_udp { udp(frame, at, IPV6_HEADER, end) } else { None }
        }
        _ => None,
    }
}

fn udp(frame: &[u8], internet: usize, header: usize, end: usize) -> Option<Place> {
    let at = internet + header;
    let end = match usize::from(half(frame, at + 4)?) {
        0 => end,
        length => at + length,
    };
    let payload = at + UDP_HEADER..end;
    let fits = payload.start <= end && end <= frame.len();
    fits.then_some(Place { payload, internet: Some((internet, header)) })
}

fn half(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Returns the type of Ethernet that means the version of IP at an offset.
fn version(frame: &[u8], at: usize) -> Option<u16> {
    match frame.get(at)? >> 4 {
        4 => Some(IPV4),
        6 => Some(IPV6),
        _ => None,
    }
}

impl Place {
    pub(super) fn payload(&self) -> Range<usize> {
        self.payload.clone()
    }

    /// Replaces the payload by a shorter one, and mends the lengths and checksums before it. Padding after the
    /// payload is removed.
    pub(super) fn replace(&self, frame: &mut Vec<u8>, payload: &[u8]) {
        frame.truncate(self.payload.start);
        frame.extend_from_slice(payload);
        let Some((at, header)) = self.internet else { return };
        let udp = at + header;
        // The same as before, or shorter: it fits.
        let length = |from: usize| (frame.len() - from) as u16;
        let [whole, rest] = [length(at), length(udp)].map(u16::to_be_bytes);
        frame[udp + 4..udp + 6].copy_from_slice(&rest);
        let addresses = match frame[at] >> 4 {
            4 => {
                frame[at + 2..at + 4].copy_from_slice(&whole);
                frame[at + 10..at + 12].fill(0);
                let sum = checksum(&[&frame[at..udp]]);
                frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
                at + 12..at + 20
            }
            _ => {
                frame[at + 4..at + 6].copy_from_slice(&rest);
                at + 8..at + 40
            }
        };
        frame[udp + 6..udp + 8].fill(0);
        let sum = checksum(&[&frame[addresses], &[0, UDP], &rest, &frame[udp..]]);
        // Zero would mean that there is no checksum.
        let sum = if sum == 0 { u16::MAX } else { sum };
        frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Returns the checksum of the Internet protocols (RFC 1071). All parts but the last have an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let word = |pair: &[u8]| {
        u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or_default()]))
    };
    let mut sum: u64 = words.map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
