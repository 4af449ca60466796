//! `Departing`: a space of a message whose receiver may read it while it is still being written.
//!
//! The mirror image of `arriving`: what is put there is told piece by piece.

use super::{Block, Space, Window};

/// How much of a message is in place is told to its receiver; the message's path knows how.
pub trait Departs: core::fmt::Debug + Sync {
    /// Fills `to`, which is `at` bytes from the start of the message, with the bytes of a block from
    /// its byte `from` on, and announces them.
    fn write(&self, at: usize, to: Space<'_>, block: &Block<'_>, from: usize);
    /// What lies between the start of a block and `end` bytes from the start of the message is in
    /// place.
    fn there(&self, end: usize);
    /// What was told to be there may have been written over: nothing said about this message holds.
    fn changed(&self);
}

/// A part of a message in the making.
#[derive(Clone, Copy)]
pub struct Departing<'a> {
    space: Space<'a>,
    /// Where it begins in the message.
    at: usize,
    /// `None`: nobody looks before the message is whole.
    departs: Option<&'a dyn Departs>,
}

impl<'a> Departing<'a> {
    /// The part of a message that lies in `space`, `at` bytes from its start.
    #[inline]
    pub const fn new(space: Space<'a>, at: usize, departs: Option<&'a dyn Departs>) -> Self {
        Self { space, at, departs }
    }

    /// The space itself, for whoever writes there without telling.
    #[inline]
    pub const fn space(&self) -> Space<'a> {
        self.space
    }

    /// How many bytes there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.space.window().len()
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `bytes` bytes.
    #[inline]
    pub fn beginning(&self, bytes: usize) -> Option<Self> {
        Some(Self { space: self.space.part(0, bytes)?, ..*self })
    }

    /// Copies `private` to `at`, behind what was written before; `None` if there is no room.
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

    /// Somebody else has put the first `bytes` bytes in place.
    #[inline]
    pub fn there(&self, bytes: usize) {
        if let Some(departs) = self.departs {
            departs.there(self.at + bytes);
        }
    }

    /// What was written before is written over.
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
