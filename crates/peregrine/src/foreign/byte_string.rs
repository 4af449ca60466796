//! `ByteString`: a string of bytes in no known character set.

use core::fmt;
use core::ops::{Deref, DerefMut};

use peregrine_macros::Value;

use super::{Bounded, Cells, Foreign, Input, Invalid, Output, Overflow};

/// A string of bytes in no known character set. Programs that use XDR and Courier often send other character
/// sets than UTF-8. If all bytes must be UTF-8, use `String`, which checks them on arrival.
///
/// ```
/// use peregrine::foreign::ByteString;
///
/// let name = ByteString::from("/export/home");
/// assert_eq!(&name[..7], b"/export");
/// assert_eq!(format!("{:?}", ByteString(vec![b'a', 0xff])), r#"b"a\xff""#);
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Value)]
pub struct ByteString(
    /// The bytes.
    pub Vec<u8>,
);

impl ByteString {
    /// Returns the bytes as text. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn to_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

/// Writes the bytes as a byte string literal of Rust.
impl fmt::Debug for ByteString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

impl Deref for ByteString {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for ByteString {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl AsRef<[u8]> for ByteString {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for ByteString {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&[u8]> for ByteString {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<String> for ByteString {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<&str> for ByteString {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl<R: Cells> Foreign<R> for ByteString {
    const LEAST: usize = R::CELL;

    #[inline]
    fn put(&self, to: &mut Output<'_, R>) -> Result<(), Overflow> {
        to.byte_string(&self.0)
    }

    #[inline]
    fn take(from: &mut Input<'_, R>) -> Result<Self, Invalid> {
        Self::take_at_most(usize::MAX, from)
    }
}

impl<R: Cells> Bounded<R> for ByteString {
    #[inline]
    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn take_at_most(most: usize, from: &mut Input<'_, R>) -> Result<Self, Invalid> {
        from.byte_string(most).map(Self::from)
    }
}
