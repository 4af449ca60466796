//! Reads and writes the items of which ONC RPC messages consist. Each item is a multiple of four bytes, and
//! all numbers are big-endian (XDR, RFC 4506).
//!
//! Padding is written as zeros. The content of received padding is ignored, as other implementations do.

/// The size of the smallest item in bytes.
const ITEM: usize = 4;

/// Returns the number of bytes of padding that follow `bytes` bytes.
const fn padding(bytes: usize) -> usize {
    bytes.wrapping_neg() % ITEM
}

/// Why bytes could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The message ends within an item.
    Truncated,
    /// A length exceeds its limit, or the message has more bytes than items.
    TooLong,
    /// A number has no meaning in its place, or a text is not UTF-8.
    Invalid,
}

impl core::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the message ends too early",
            Self::TooLong => "a part of the message is longer than the protocol allows",
            Self::Invalid => "the message contains a number or text without meaning",
        })
    }
}

/// The items of a message that have not been read yet. Nothing is copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Items<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Items<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the offset of the first byte that has not been read.
    pub(crate) const fn offset(&self) -> usize {
        self.at
    }

    /// Returns the bytes that have not been read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub(crate) fn number(&mut self) -> Result<u32, Unreadable> {
        let four = self.rest().first_chunk().ok_or(Unreadable::Truncated)?;
        self.at += ITEM;
        Ok(u32::from_be_bytes(*four))
    }

    /// Reads a boolean, which is 0 or 1.
    pub(crate) fn flag(&mut self) -> Result<bool, Unreadable> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Unreadable::Invalid),
        }
    }

    /// Reads a length, that number of bytes, and their padding. At most `most` bytes are allowed.
    pub(crate) fn opaque(&mut self, most: usize) -> Result<&'a [u8], Unreadable> {
        let length = self.number()? as usize;
        if length > most {
            return Err(Unreadable::TooLong);
        }
        let rest = self.rest();
        // The last item of a message must be padded, too.
        if rest.len() < length + padding(length) {
            return Err(Unreadable::Truncated);
        }
        self.at += length + padding(length);
        Ok(&rest[..length])
    }

    /// Reads a text of at most `most` bytes.
    pub(crate) fn text(&mut self, most: usize) -> Result<&'a str, Unreadable> {
        core::str::from_utf8(self.opaque(most)?).map_err(|_| Unreadable::Invalid)
    }

    /// Checks that everything was read.
    pub(crate) fn end(&self) -> Result<(), Unreadable> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(Unreadable::TooLong) }
    }
}

/// A buffer of fixed size to which numbers and other items are written.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Output<'a> {
    pub(crate) const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the number of bytes that were written.
    pub(crate) const fn len(&self) -> usize {
        self.at
    }

    /// Writes the bytes of a number, the highest first. Returns `None` if the buffer is full.
    pub(crate) fn put<const N: usize>(&mut self, bytes: [u8; N]) -> Option<()> {
        *self.bytes.get_mut(self.at..)?.first_chunk_mut()? = bytes;
        self.at += N;
        Some(())
    }

    /// Writes a number of two bytes, as [`put`](Self::put) does.
    pub(crate) fn word(&mut self, word: u16) -> Option<()> {
        self.put(word.to_be_bytes())
    }

    /// Writes a number of four bytes, as [`put`](Self::put) does.
    pub(crate) fn number(&mut self, number: u32) -> Option<()> {
        self.put(number.to_be_bytes())
    }

    /// Writes a length, the bytes and padding. Returns `None` if the buffer is full.
    pub(crate) fn opaque(&mut self, bytes: &[u8]) -> Option<()> {
        self.number(u32::try_from(bytes.len()).ok()?)?;
        let place = self.bytes.get_mut(self.at..)?;
        let place = place.get_mut(..bytes.len() + padding(bytes.len()))?;
        let (content, zeros) = place.split_at_mut(bytes.len());
        content.copy_from_slice(bytes);
        zeros.fill(0);
        self.at += bytes.len() + zeros.len();
        Some(())
    }
}

/// Appends a number to a growing message.
pub(crate) fn push_number(bytes: &mut Vec<u8>, number: u32) {
    bytes.extend(number.to_be_bytes());
}

/// Appends a length, the bytes and padding to a growing message. The length must fit 32 bits.
pub(crate) fn push_opaque(bytes: &mut Vec<u8>, opaque: &[u8]) {
    push_number(bytes, opaque.len() as u32);
    bytes.extend(opaque);
    bytes.extend(&[0; ITEM][..padding(opaque.len())]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn items_are_padded_and_bounded() {
        let mut bytes = Vec::new();
        push_opaque(&mut bytes, b"lisp!");
        push_number(&mut bytes, 1);
        assert_eq!(bytes, b"\0\0\0\x05lisp!\0\0\0\0\0\0\x01");
        let mut items = Items::new(&bytes);
        assert_eq!(items.text(5), Ok("lisp!"));
        assert_eq!(items.offset(), 12);
        assert_eq!(items.flag(), Ok(true));
        assert_eq!(items.end(), Ok(()));
        assert_eq!(items.number(), Err(Unreadable::Truncated));
        assert_eq!(Items::new(&bytes).opaque(4), Err(Unreadable::TooLong));
        assert_eq!(Items::new(&bytes[..11]).opaque(5), Err(Unreadable::Truncated));
        assert_eq!(Items::new(&bytes).flag(), Err(Unreadable::Invalid));
        assert_eq!(Items::new(&bytes).end(), Err(Unreadable::TooLong));
        assert_eq!(Items::new(b"\0\0\0\x01\xff\0\0\0").text(1), Err(Unreadable::Invalid));
        // The length is not used for an allocation or an index before it is checked.
        assert_eq!(Items::new(&[0xff; 8]).opaque(usize::MAX >> 1), Err(Unreadable::Truncated));
    }

    proptest! {
        #[test]
        fn both_writers_write_what_is_read(
            numbers in any::<[u32; 2]>(), opaque in proptest::collection::vec(any::<u8>(), 0..40),
            room in 0_usize..60,
        ) {
            let mut bytes = Vec::new();
            push_number(&mut bytes, numbers[0]);
            push_opaque(&mut bytes, &opaque);
            push_number(&mut bytes, numbers[1]);
            let mut fixed = vec![0xaa; room];
            let mut output = Output::new(&mut fixed);
            let written = output.number(numbers[0]).is_some()
                && output.opaque(&opaque).is_some()
                && output.number(numbers[1]).is_some();
            prop_assert_eq!(written, room >= bytes.len());
            if written {
                prop_assert_eq!(output.len(), bytes.len());
                prop_assert_eq!(&fixed[..bytes.len()], &*bytes);
            }
            let mut items = Items::new(&bytes);
            prop_assert_eq!(items.number(), Ok(numbers[0]));
            prop_assert_eq!(items.opaque(opaque.len()), Ok(&*opaque));
            prop_assert_eq!(items.rest(), numbers[1].to_be_bytes());
        }
    }
}
