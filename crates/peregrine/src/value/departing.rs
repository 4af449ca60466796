//! `Departing` is the memory of a message that is being written. The receiver may read the message before it
//! is complete.
//!
//! `Departing` is the counterpart of `Arriving`: each piece that is written is announced to the receiver.

use super::{Block, Space, Window};

/// Announces to the receiver how much of a message has been written. The path that carries the message
/// implements this trait.
pub trait Departs: core::fmt::Debug + Sync {
    /// Copies the bytes of `block`, from its byte `from` on, into `to`, and announces them to the receiver.
    /// `to` begins at the offset `at` of the message.
    fn write(&self, at: usize, to: Space<'_>, block: &Block<'_>, from: usize);
    /// Announces that a block has been written, from its start up to the offset `end` in the message.
    fn there(&self, end: usize);
    /// Withdraws all announcements of the message, because bytes that were announced may have been
    /// overwritten.
    fn changed(&self);
}

/// A part of a message that is being written.
#[derive(Clone, Copy)]
pub struct Departing<'a> {
    space: Space<'a>,
    /// The offset of the part in the message.
    at: usize,
    /// Announces written bytes to the receiver. `None` if the receiver reads only complete messages.
    departs: Option<&'a dyn Departs>,
}

impl<'a> Departing<'a> {
    /// Makes the part of a message that lies in `space`, `at` bytes from the start of the message.
    #[inline]
    pub const fn new(space: Space<'a>, at: usize, departs: Option<&'a dyn Departs>) -> Self {
        Self { space, at, departs }
    }

    /// Returns the space itself. Writes through the space are not announced. After such a write, the writer
    /// calls [`there`](Self::there), or [`changed`](Self::changed), which withdraws all announcements of the
    /// message.
    #[inline]
    pub const fn space(&self) -> Space<'a> {
        self.space
    }

    /// Returns the number of bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.space.window().len()
    }

    /// Returns whether the length is 0.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the first `bytes` bytes, or `None` if there are fewer.
    #[inline]
    pub fn beginning(&self, bytes: usize) -> Option<Self> {
        Some(Self { space: self.space.part(0, bytes)?, ..*self })
    }

    /// Copies `private` to the offset `at`, directly after the bytes that were written before. Returns `None`
    /// if `private` does not fit.
    #[inline]
    pub fn write(&self, at: usize, private: &[u8]) -> Option<()> {
        match self.departs {
            None => self.space.write(at, private),
            Some(departs) => {
                let to = self.space.part(at, private.len())?;
                departs.write(self.at + at, to, &Window::from(private).into(), 0);
                Some(())
            }
        }
    }

    /// Announces that the first `bytes` bytes have been written through the space itself.
    #[inline]
    pub fn there(&self, bytes: usize) {
        if let Some(departs) = self.departs {
            departs.there(self.at + bytes);
        }
    }

    /// Withdraws all announcements of the message, because announced bytes are overwritten. The receiver may
    /// already have read the old bytes.
    #[inline]
    pub fn changed(&self) {
        if let Some(departs) = self.departs {
            departs.changed();
        }
    }
}

impl<'a> From<Space<'a>> for Departing<'a> {
    #[inline]
    fn from(space: Space<'a>) -> Self {
        Self::new(space, 0, None)
    }
}

impl core::fmt::Debug for Departing<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Departing({} bytes)", self.len())
    }
}
