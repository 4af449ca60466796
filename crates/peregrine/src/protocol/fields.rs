//! Reads and writes the little-endian fields of messages: numbers and texts, one after another.

/// The bytes of a message that have not been read yet. Each function reads a field from the front of these
/// bytes, and returns `None` if the field is incomplete or invalid.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a text. The text begins with its length in four bytes, and UTF-8 follows.
    pub(crate) fn text(&mut self) -> Option<String> {
        let bytes = self.u32()? as usize;
        let (text, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        core::str::from_utf8(text).ok().map(str::to_owned)
    }

    /// Returns `Some` if all bytes have been read.
    pub(crate) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Appends a text in the form that [`Fields::text`] reads.
pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
}
