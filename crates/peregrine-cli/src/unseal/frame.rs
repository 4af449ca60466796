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

    /// Replaces the payload by a shorter one, and corrects the lengths and checksums before it. Removes padding
    /// after the payload.
    pub(super) fn replace(&self, frame: &mut Vec<u8>, payload: &[u8]) {
        frame.truncate(self.payload.start);
        frame.extend_from_slice(payload);
        let Some((at, header)) = self.internet else { return };
        let udp = at + header;
        // A length of zero is that of a packet which the kernel divides later.
        let length = |from: usize| u16::try_from(frame.len() - from).unwrap_or(0);
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

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESSES: [u8; 8] = [192, 0, 2, 1, 192, 0, 2, 2];
    const PAYLOAD: &[u8] = b"an odd number of bytes, 33 of all";

    fn udp_of(payload: &[u8]) -> Vec<u8> {
        let length = (8 + payload.len()) as u16;
        let ports = [0xc3, 0x50, 0x1c, 0x19];
        [&ports[..], &length.to_be_bytes(), &[0, 0], payload].concat()
    }

    /// Returns a packet of IPv4 with an option of 4 bytes.
    fn ipv4(payload: &[u8]) -> Vec<u8> {
        let datagram = udp_of(payload);
        let length = (24 + datagram.len()) as u16;
        let rest = [0, 0, 0x40, 0, 64, UDP, 0, 0];
        [&[0x46, 0], &length.to_be_bytes()[..], &rest, &ADDRESSES, &[1; 4], &datagram].concat()
    }

    fn ipv6(payload: &[u8]) -> Vec<u8> {
        let datagram = udp_of(payload);
        let length = (datagram.len() as u16).to_be_bytes();
        let addresses = [[0x20; 16], [0x21; 16]].concat();
        [&[0x60, 0, 0, 0], &length[..], &[UDP, 64], &addresses, &datagram].concat()
    }

    /// Returns the bytes before a packet on each link, for a type of Ethernet, with the type of the link.
    fn links(kind: u16) -> Vec<(u32, Vec<u8>)> {
        let kind = kind.to_be_bytes();
        let tag = |tag: u16| [tag.to_be_bytes(), [0, 7]].concat();
        vec![
            (ETHERNET, [&[2; 12], &kind[..]].concat()),
            (ETHERNET, [&[2; 12], &tag(0x8100)[..], &kind].concat()),
            (ETHERNET, [&[2; 12], &tag(0x88a8)[..], &tag(0x8100), &kind].concat()),
            (COOKED, [&[0; 14], &kind[..]].concat()),
            (COOKED_2, [&kind[..], &[0; 18]].concat()),
        ]
    }

    /// Returns the sum of 16-bit words, which is 0xffff if a checksum in them is right.
    fn sum(parts: &[&[u8]]) -> u16 {
        let mut sum = 0_u32;
        for pair in parts.concat().chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// Checks a packet of IP whose payload is `payload`.
    fn check(packet: &[u8], payload: &[u8]) {
        let (datagram, addresses) = match packet[0] >> 4 {
            4 => {
                assert_eq!(half(packet, 2), Some(packet.len() as u16));
                assert_eq!(sum(&[&packet[..24]]), 0xffff);
                (&packet[24..], &packet[12..20])
            }
            _ => {
                assert_eq!(half(packet, 4), Some((packet.len() - 40) as u16));
                (&packet[40..], &packet[8..40])
            }
        };
        let length = datagram.len() as u16;
        assert_eq!(half(datagram, 4), Some(length));
        assert_eq!(sum(&[addresses, &[0, UDP], &length.to_be_bytes(), datagram]), 0xffff);
        assert_eq!(&datagram[8..], payload);
    }

    #[test]
    fn payload_of_udp_is_replaced_on_each_link() {
        let mut all = Vec::new();
        for (kind, packet) in [(IPV4, ipv4(PAYLOAD)), (IPV6, ipv6(PAYLOAD))] {
            all.extend(links(kind).into_iter().map(|(link, head)| (link, head, packet.clone())));
            let only = if kind == IPV4 { IPV4_ONLY } else { IPV6_ONLY };
            let raw = RAW.into_iter().chain([only]);
            all.extend(raw.map(|link| (link, Vec::new(), packet.clone())));
            all.push((NULL, vec![2, 0, 0, 0], packet));
        }
        assert_eq!(all.len(), 20);
        for (link, head, packet) in all {
            // Short frames of Ethernet have padding.
            let mut frame = [&head[..], &packet, &[0; 5]].concat();
            let place = find(link, &frame).expect("a payload");
            assert_eq!(&frame[place.payload()], PAYLOAD, "link {link}");
            // Both an odd and an even number of bytes.
            for payload in [&PAYLOAD[..17], &PAYLOAD[..4], b""] {
                place.replace(&mut frame, payload);
                assert_eq!(&frame[..head.len()], head);
                check(&frame[head.len()..], payload);
                assert_eq!(
                    find(link, &frame).expect("a payload"),
                    Place {
                        payload: place.payload.start..place.payload.start + payload.len(),
                        internet: place.internet,
                    }
                );
            }
        }
    }

    #[test]
    fn payload_of_raw_ethernet_is_replaced() {
        for (link, head) in links(PEREGRINE) {
            let mut frame = [&head[..], &[0, 1, 0, 2], PAYLOAD].concat();
            let place = find(link, &frame).expect("a payload");
            assert_eq!(&frame[place.payload()], PAYLOAD, "link {link}");
            place.replace(&mut frame, b"short");
            assert_eq!(frame, [&head[..], &[0, 1, 0, 2], b"short"].concat());
        }
    }

    #[test]
    fn packets_that_the_kernel_divides_later_have_no_length() {
        let long = vec![7; 70_000];
        let mut packet = ipv6(&long);
        packet[4..6].fill(0);
        packet[44..46].fill(0);
        let place = find(IPV6_ONLY, &packet).expect("a payload");
        assert_eq!(place.payload().len(), long.len());
        place.replace(&mut packet, &long[16..]);
        assert_eq!([half(&packet, 4), half(&packet, 44)], [Some(0); 2]);
        assert_eq!(find(IPV6_ONLY, &packet).expect("a payload").payload().len(), long.len() - 16);
    }

    #[test]
    fn other_packets_are_left_alone() {
        let none = |link: u32, frame: &[u8]| assert_eq!(find(link, frame), None);
        let (four, six) = (ipv4(PAYLOAD), ipv6(PAYLOAD));
        none(147, &four);
        none(ETHERNET, &[&[2; 12], &[8, 6][..], &four].concat());
        let changed = |packet: &[u8], at: usize, byte: u8| {
            let mut packet = packet.to_vec();
            packet[at] = byte;
            packet
        };
        // TCP, fragments, a header that is too short, an unknown version, and a length beyond the frame.
        none(IPV4_ONLY, &changed(&four, 9, 6));
        none(IPV6_ONLY, &changed(&six, 6, 6));
        none(IPV4_ONLY, &changed(&four, 6, 0x20));
        none(IPV4_ONLY, &changed(&four, 7, 1));
        none(IPV4_ONLY, &changed(&four, 0, 0x44));
        none(IPV4_ONLY, &changed(&four, 0, 0x56));
        none(IPV4_ONLY, &changed(&four, 28, 1));
        none(IPV6_ONLY, &changed(&six, 45, 7));
        // A capture that keeps only the beginning of each frame.
        for (link, packet) in [(IPV4_ONLY, four), (IPV6_ONLY, six)] {
            for length in 0..packet.len() {
                none(link, &packet[..length]);
            }
        }
        for (link, head) in links(PEREGRINE) {
            for length in 0..head.len() + 4 {
                none(link, &[&head[..], &[0; 4]].concat()[..length]);
            }
        }
    }
}
