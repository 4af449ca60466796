//! Builds and parses the header that precedes each Peregrine packet in an Ethernet frame.
//!
//! The header consists of the Ethernet header and two endpoints. An endpoint identifies one socket of one
//! process at an interface.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 6 | hardware address of the destination |
//! | 6 | 6 | hardware address of the source |
//! | 12 | 2 | [`ETHER_TYPE`], big-endian |
//! | 14 | 2 | endpoint of the destination: the tag of a process, and the index of a slot in that process |
//! | 16 | 2 | endpoint of the source |
//! | 18 | | the packet, as in a datagram |

use crate::sys::Address;
use crate::value::Space;

/// The size of the header in bytes.
pub(crate) const LINK_BYTES: usize = 18;
/// The number of header bytes that Ethernet counts as payload of the frame: the two endpoints.
pub(crate) const LINK_PAYLOAD: usize = 4;
/// The Ethernet type of Peregrine's frames: one of the two types reserved for local experiments (IEEE 802).
pub(crate) const ETHER_TYPE: u16 = 0x88b5;

/// The address of an endpoint on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkAddress {
    pub(crate) hardware: [u8; 6],
    /// The tag of the process, and the index of the socket's slot in that process.
    pub(crate) endpoint: [u8; 2],
}

impl From<LinkAddress> for Address {
    fn from(node: LinkAddress) -> Self {
        Self::of_link(node.hardware, node.endpoint)
    }
}

impl LinkAddress {
    /// Returns the link address that an address contains, if it contains one.
    #[inline]
    pub(crate) fn of(address: &Address) -> Option<Self> {
        address.link().map(|(hardware, endpoint)| Self { hardware, endpoint })
    }
}

/// Returns the bytes that precede a packet on a link: the Ethernet header, and the endpoints of the
/// destination and of the source.
pub(super) fn header(to: LinkAddress, from: LinkAddress) -> [u8; LINK_BYTES] {
    let mut header = [0; LINK_BYTES];
    header[..6].copy_from_slice(&to.hardware);
    header[6..12].copy_from_slice(&from.hardware);
    header[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
    header[14..16].copy_from_slice(&to.endpoint);
    header[16..18].copy_from_slice(&from.endpoint);
    header
}

/// Returns the destination and the source of a frame, in this order, or `None` if the frame is not
/// Peregrine's.
#[inline]
pub(super) fn parse(frame: Space<'_>) -> Option<(LinkAddress, LinkAddress)> {
    let mut header = [0; LINK_BYTES];
    frame.read(0, &mut header)?;
    if header[12..14] != ETHER_TYPE.to_be_bytes() {
        return None;
    }
    let node = |hardware: usize, endpoint: usize| {
        let mut node = LinkAddress { hardware: [0; 6], endpoint: [0; 2] };
        node.hardware.copy_from_slice(&header[hardware..hardware + 6]);
        node.endpoint.copy_from_slice(&header[endpoint..endpoint + 2]);
        node
    };
    Some((node(0, 14), node(6, 16)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: LinkAddress = LinkAddress { hardware: [2, 0, 0, 0, 0, 1], endpoint: [9, 1] };
    const B: LinkAddress = LinkAddress { hardware: [2, 0, 0, 0, 0, 2], endpoint: [7, 3] };

    #[test]
    fn header_names_source_and_destination() {
        let mut frame = header(A, B).to_vec();
        frame.extend([5; 40]);
        assert_eq!(parse(Space::of_mut(&mut frame)), Some((A, B)));
        assert_eq!(LinkAddress::of(&Address::from(A)), Some(A));
        assert_eq!(Address::from(A).ip(), None);
        frame[13] ^= 1;
        assert_eq!(parse(Space::of_mut(&mut frame)), None);
        assert_eq!(parse(Space::of_mut(&mut frame[..LINK_BYTES - 1])), None);
    }
}
