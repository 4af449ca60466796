//! Computes and checks checksums of payloads, for bindings that request them. The protocol module cannot do
//! this, because it does not see payloads.

use crate::protocol::exchange::header::{self, Flags, Header, checksum_more};
use crate::value::Window;

/// A buffer for computing checksums. One buffer serves many packets, because clearing a buffer costs as much
/// as the checksum of some hundred bytes.
pub(crate) struct ChecksumBuffer([u8; 1536]);

impl Default for ChecksumBuffer {
    fn default() -> Self {
        Self([0; 1536])
    }
}

/// Returns the checksum of the bytes in `windows`, taken one after another.
fn checksum(windows: &[Window<'_>]) -> u32 {
    /// A payload of at most this size uses a smaller buffer, because clearing a smaller buffer costs less.
    const FEW: usize = 64;
    if let [window] = windows
        && window.len() <= FEW
    {
        let mut chunk = [0; FEW];
        let _ = window.read(0, &mut chunk[..window.len()]);
        return checksum_more(0, &chunk[..window.len()]);
    }
    checksum_with(&mut ChecksumBuffer::default(), windows)
}

/// Returns the checksum of the bytes in `windows`, taken one after another. Uses the caller's buffer.
fn checksum_with(ChecksumBuffer(chunk): &mut ChecksumBuffer, windows: &[Window<'_>]) -> u32 {
    let mut check = 0;
    for window in windows {
        let mut at = 0;
        while at < window.len() {
            let bytes = (window.len() - at).min(chunk.len());
            let _ = window.read(at, &mut chunk[..bytes]);
            check = checksum_more(check, &chunk[..bytes]);
            at += bytes;
        }
    }
    check
}

/// Adds the checksum of the payload to the header of a packet, if the packet carries a piece of a message.
#[cold]
pub(crate) fn seal(packet: &mut [u8], payload: &[Window<'_>]) {
    if let Some(header) = packet.first_chunk_mut()
        && header::carries(header)
    {
        header::seal(header, checksum(payload));
    }
}

/// Adds the checksum as [`seal`] does, but with the caller's buffer. A caller with many packets uses this
/// function.
#[cold]
pub(crate) fn seal_one_of_many(
    packet: &mut [u8],
    payload: &[Window<'_>],
    buffer: &mut ChecksumBuffer,
) {
    if let Some(header) = packet.first_chunk_mut()
        && header::carries(header)
    {
        header::seal(header, checksum_with(buffer, payload));
    }
}

/// Returns true if a piece of a message has a checksum and the checksum is correct.
#[cold]
pub(crate) fn holds(header: &Header, payload: Window<'_>) -> bool {
    header.flags.has(Flags::CHECKED) && checksum(&[payload]) == header.check
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::exchange::header::{HEADER_BYTES, Handle, PacketKind};
    use crate::protocol::exchange::message::Shape;

    #[test]
    fn checksum_covers_all_parts_together() {
        let whole: Vec<u8> = (0..10_000u32).map(|at| (at * 7) as u8).collect();
        let parts = [0..1, 1..1, 1..4097, 4097..10_000].map(|part| Window::of(&whole[part]));
        assert_eq!(checksum(&parts), header::checksum(&whole));
        assert_eq!(checksum(&[]), header::checksum(&[]));
        for bytes in [0, 1, 63, 64, 65, 1536, 1537] {
            let part = &whole[..bytes];
            assert_eq!(checksum(&[Window::of(part)]), header::checksum(part));
        }
    }

    #[test]
    fn only_pieces_of_messages_are_sealed() {
        let payload = [5; 40];
        let shape = Shape { total: 40, ..Shape::default() };
        for kind in [
            PacketKind::Call,
            PacketKind::Result,
            PacketKind::Probe,
            PacketKind::HaveResult,
            PacketKind::Released,
        ] {
            let mut packet = [0; HEADER_BYTES];
            let bytes = if kind.carries() { 40 } else { 0 };
            let piece = 1024;
            Header { shape, piece, ..Header::new(kind, Handle::default(), 3) }.emit(&mut packet);
            seal(&mut packet, &[Window::of(&payload[..bytes])]);
            let header = Header::parse(&packet, bytes).unwrap();
            assert_eq!(header.flags.has(Flags::CHECKED), kind.carries());
            assert_eq!(holds(&header, Window::of(&payload[..bytes])), kind.carries());
            assert!(!holds(&header, Window::of(&[4; 40])));
        }
    }
}
