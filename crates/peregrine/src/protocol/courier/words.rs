//! Reads and writes the words of which Courier messages consist. A word has 16 bits, and its high byte comes
//! first.

pub(crate) use crate::protocol::onc::items::{Output, Unreadable};

/// The size of a word in bytes.
pub(crate) const WORD: usize = 2;

/// The words of a message that have not been read yet. Nothing is copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Words<'a> {
    /// Makes a reader of the words of a message.
    ///
    /// # Errors
    /// Fails if the last word is incomplete.
    pub(crate) const fn new(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        if bytes.len().is_multiple_of(WORD) {
            Ok(Self { bytes, at: 0 })
        } else {
            Err(Unreadable::Truncated)
        }
    }

    /// Returns the offset of the first byte that has not been read.
    pub(crate) const fn offset(&self) -> usize {
        self.at
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let array = self.bytes[self.at..].first_chunk().ok_or(Unreadable::Truncated)?;
        self.at += N;
        Ok(*array)
    }

    pub(crate) fn word(&mut self) -> Result<u16, Unreadable> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads a number of two words.
    pub(crate) fn long(&mut self) -> Result<u32, Unreadable> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a number of four words.
    pub(crate) fn number(&mut self) -> Result<u64, Unreadable> {
        self.array().map(u64::from_be_bytes)
    }

    /// Checks that everything was read.
    pub(crate) fn end(&self) -> Result<(), Unreadable> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(Unreadable::TooLong) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_big_endian_and_whole() {
        let bytes = [0x12, 0x34, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9];
        let mut words = Words::new(&bytes).expect("whole words");
        assert_eq!((words.word(), words.long()), (Ok(0x1234), Ok(2)));
        assert_eq!((words.offset(), words.end()), (6, Err(Unreadable::TooLong)));
        assert_eq!((words.number(), words.end()), (Ok(9), Ok(())));
        assert_eq!(words.word(), Err(Unreadable::Truncated));
        assert!(matches!(Words::new(&bytes[..5]), Err(Unreadable::Truncated)));
        let mut place = [0; 3];
        let mut output = Output::new(&mut place);
        assert_eq!((output.word(0x1234), output.word(1), output.len()), (Some(()), None, 2));
        assert_eq!(place, [0x12, 0x34, 0]);
    }
}
