//! A message as the protocol knows it, and the division of the message into pieces. The protocol knows the
//! lengths of a message, but not its bytes.

use core::ops::Range;

/// The shape of a message, as its packets report it.
///
/// | field | in a call | in a result |
/// |---|---|---|
/// | `what` | procedure | answer |
/// | `total` | bytes of the message | the same |
/// | `head` | bytes of the head | the same |
/// | `at` | bytes at the front that the server copies before the procedure runs | offset of the head after the extensions |
/// | `extension` | bytes of extensions before the head, a multiple of 16 | the same |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) what: u32,
    pub(crate) total: u32,
    pub(crate) head: u32,
    pub(crate) at: u32,
    pub(crate) extension: u16,
}

impl Shape {
    /// Returns whether a call can have this shape.
    #[inline]
    pub(crate) fn fits_call(&self) -> bool {
        let front = u64::from(self.extension) + u64::from(self.head);
        front <= u64::from(self.total)
            && self.at <= self.total
            && self.extension.is_multiple_of(16)
            && self.total <= TOTAL_MAX
    }

    /// Returns whether a result can have this shape.
    #[inline]
    pub(crate) fn fits_result(&self) -> bool {
        let end = u64::from(self.extension) + u64::from(self.at) + u64::from(self.head);
        end <= u64::from(self.total) && self.extension.is_multiple_of(16) && self.total <= TOTAL_MAX
    }
}

/// The length in bytes of the largest message that the format carries.
pub(crate) const TOTAL_MAX: u32 = 1 << 30;
/// The length in bytes of the smallest full piece. Every path can carry this piece and its header in one
/// packet.
pub(crate) const PIECE_MIN: u32 = 512;
/// The length in bytes of the largest full piece. Such a piece fills the largest UDP datagram.
pub(crate) const PIECE_MAX: u32 = 65_440;

/// Returns whether messages may be cut into pieces of this size.
#[inline]
pub(crate) const fn is_piece(bytes: u32) -> bool {
    bytes >= PIECE_MIN && bytes <= PIECE_MAX && bytes.is_multiple_of(16)
}

/// The length in bytes of a full piece that nearly every network can carry. With all headers, including the
/// headers of IPv6, the packet has at most 1,500 bytes.
const PIECE_COMMON: u32 = 1376;

/// Returns the next smaller size of pieces, or `None` if `piece` is the smallest size. The client tries the
/// smaller size if full pieces do not arrive. If jumbo frames do not arrive, ordinary Ethernet frames usually
/// do.
pub(crate) fn smaller_piece(piece: u32) -> Option<u32> {
    if piece >= 2 * PIECE_COMMON {
        return Some(PIECE_COMMON);
    }
    (piece > PIECE_MIN).then(|| ((piece / 2) & !15).max(PIECE_MIN))
}

/// The division of a message into fragments. Each packet carries one fragment.
///
/// Fragment 0 is the front of the message. Its length is the *remainder*. All other fragments are full
/// pieces. Fragment 0 is sent last (Peregrine of 1991, section 4.3). So the only short packet of a blast is
/// the last one, as segmentation offload requires. A *position* is the index of a fragment in this order of
/// sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragments {
    total: u32,
    piece: u32,
    count: u32,
}

impl Fragments {
    #[inline]
    pub(crate) fn new(total: u32, piece: u32) -> Self {
        debug_assert!(is_piece(piece));
        // For calls of one packet, the comparison avoids the division.
        let count = if total <= piece { 1 } else { total.div_ceil(piece) };
        Self { total, piece, count }
    }

    /// Returns the number of fragments, which is at least one.
    #[inline]
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    #[inline]
    pub(crate) const fn piece(&self) -> u32 {
        self.piece
    }

    /// Returns the length of fragment 0 in bytes.
    #[inline]
    const fn first(&self) -> u32 {
        self.total - (self.count - 1) * self.piece
    }

    /// Returns the range of a fragment in the message. The fragment must exist.
    #[inline]
    pub(crate) const fn range(&self, fragment: u32) -> Range<u32> {
        if fragment == 0 {
            return 0..self.first();
        }
        let start = self.first() + (fragment - 1) * self.piece;
        start..start + self.piece
    }

    /// Returns the position at which a fragment is sent.
    #[inline]
    pub(crate) const fn position(&self, fragment: u32) -> u32 {
        if fragment == 0 { self.count - 1 } else { fragment - 1 }
    }

    /// Returns the fragment that is sent at a position.
    #[inline]
    pub(crate) const fn fragment(&self, position: u32) -> u32 {
        if position == self.count - 1 { 0 } else { position + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_have_at_most_the_largest_size() {
        let largest = Shape { total: TOTAL_MAX, ..Shape::default() };
        assert!(largest.fits_call() && largest.fits_result());
        let larger = Shape { total: TOTAL_MAX + 1, ..largest };
        assert!(!larger.fits_call() && !larger.fits_result());
    }

    #[test]
    fn remainder_is_the_front_and_is_sent_last() {
        let fragments = Fragments::new(2500, 1024);
        assert_eq!(fragments.count(), 3);
        assert_eq!(
            [fragments.range(0), fragments.range(1), fragments.range(2)],
            [0..452, 452..1476, 1476..2500]
        );
        assert_eq!(
            [fragments.fragment(0), fragments.fragment(1), fragments.fragment(2)],
            [1, 2, 0]
        );
        assert_eq!(Fragments::new(0, 1024).range(0), 0..0);
        assert_eq!(Fragments::new(1024, 1024).count(), 1);
        assert_eq!(Fragments::new(2048, 1024).range(0), 0..1024);
    }

    #[test]
    fn pieces_halve_down_to_the_smallest() {
        assert_eq!(smaller_piece(1408), Some(704));
        assert_eq!(smaller_piece(704), Some(512));
        assert_eq!(smaller_piece(512), None);
        assert_eq!(smaller_piece(2 * PIECE_COMMON - 16), Some(1360));
    }

    #[test]
    fn pieces_of_jumbo_frames_shrink_to_common_ones_at_once() {
        assert_eq!(smaller_piece(PIECE_MAX), Some(PIECE_COMMON));
        assert_eq!(smaller_piece(8896), Some(PIECE_COMMON));
        assert!(is_piece(PIECE_COMMON));
    }

    #[test]
    fn contradictory_shapes_are_rejected() {
        let call = Shape { what: 1, total: 100, head: 84, at: 100, extension: 16 };
        assert!(call.fits_call());
        assert!(!Shape { head: 85, ..call }.fits_call());
        assert!(!Shape { at: 101, ..call }.fits_call());
        assert!(!Shape { extension: 8, ..call }.fits_call());
        assert!(!Shape { head: u32::MAX, ..call }.fits_call());
        assert!(!Shape { total: TOTAL_MAX + 1, ..call }.fits_call());
        let result = Shape { what: 1, total: 100, head: 60, at: 40, extension: 0 };
        assert!(result.fits_result());
        assert!(!Shape { at: 41, ..result }.fits_result());
        assert!(!Shape { at: u32::MAX, head: u32::MAX, ..result }.fits_result());
    }

    proptest! {
        #[test]
        fn fragments_cover_a_message_once(total in 0..3_000_000u32, piece in 32..4090u32) {
            let fragments = Fragments::new(total, piece * 16);
            let mut at = 0;
            for fragment in 0..fragments.count() {
                let range = fragments.range(fragment);
                prop_assert_eq!(range.start, at);
                prop_assert!(range.len() as u32 <= fragments.piece());
                prop_assert_eq!(fragments.fragment(fragments.position(fragment)), fragment);
                at = range.end;
            }
            prop_assert_eq!(at, total);
        }
    }
}
