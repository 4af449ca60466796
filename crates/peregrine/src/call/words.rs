//! The headers of 32 bytes that batches, streams and callbacks have within messages. A header consists of
//! words, which are little-endian.

use crate::value::bytes_of;

/// The size in bytes of a header.
pub(crate) const HEADER_BYTES: usize = 32;

/// The words of a header.
pub(crate) type Words = [u32; HEADER_BYTES / 4];

/// Returns the bytes of a header.
pub(crate) fn to_bytes(words: Words) -> [u8; HEADER_BYTES] {
    let words = words.map(u32::to_le);
    let mut bytes = [0; HEADER_BYTES];
    bytes.copy_from_slice(bytes_of(&words));
    bytes
}

/// Reads the header at the offset `at`. Returns `None` if there are too few bytes.
pub(crate) fn words_at(bytes: &[u8], at: usize) -> Option<Words> {
    let bytes: &[u8; HEADER_BYTES] = bytes.get(at..)?.first_chunk()?;
    let mut words = Words::default();
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    Some(words)
}

/// Returns the number of 64 bits whose lower and upper halves are these words.
pub(crate) const fn wide(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// Returns the lower and the upper half of a number.
pub(crate) const fn halves(wide: u64) -> [u32; 2] {
    [wide as u32, (wide >> 32) as u32]
}
