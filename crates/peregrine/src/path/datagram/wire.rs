//! Converts between messages in memory and packets. Finds the bytes of a message in memory, and checks
//! whether received bytes are undamaged.

pub(super) mod checks;
pub(super) mod message;
pub(super) mod packing;

use core::ops::Range;

use crate::protocol::exchange::header::{HEADER_BYTES, Header};
use crate::value::Space;

/// The number of the procedure that returns the description of an export. Every export has this procedure.
pub(super) const DESCRIBE: u32 = u32::MAX - 1;

/// A datagram with a valid header, in the memory into which it was received.
pub(super) struct Packet {
    pub(super) header: Header,
    /// The offset in bytes of the payload in that memory.
    pub(super) from: usize,
    /// The length of the payload in bytes.
    pub(super) payload: usize,
}

impl Packet {
    /// Returns the datagram at this range of `place`, or `None` if its header is not valid.
    #[inline]
    pub(super) fn at(place: Space<'_>, at: Range<usize>) -> Option<Self> {
        let payload = at.len().checked_sub(HEADER_BYTES)?;
        let mut header = [0; HEADER_BYTES];
        place.read(at.start, &mut header)?;
        let header = Header::parse(&header, payload).ok()?;
        Some(Self { header, from: at.start + HEADER_BYTES, payload })
    }
}
