//! `Head`: a cursor over the head of a message in the making, whatever its values look like.

use super::{Overflow, Piece, Plain, Representation, Space, Staged};

/// Where a head is being written. What a path knows of it: its length, its space, its completion.
///
/// The first bytes are gathered and written last: nothing is complete before [`Head::flush`].
#[derive(Debug)]
pub struct Head<'a> {
    staged: Staged<'a>,
    /// Where the head begins: positions are aligned as seen from there.
    start: usize,
    at: usize,
    end: usize,
    depth: u32,
}

impl<'a> Head<'a> {
    /// Begins at the start of `space`.
    #[inline]
    pub(super) const fn new(space: Space<'a>) -> Self {
        let end = space.window().len();
        Self { staged: Staged::new(space), start: 0, at: 0, end, depth: 0 }
    }

    /// Begins another head in the same space, between these two bytes of it.
    #[inline]
    pub(crate) fn restart(&mut self, start: usize, end: usize) {
        (self.start, self.at, self.end) = (start, start, end.min(self.space().window().len()));
        self.depth = 0;
        self.staged.forget_from(start);
    }

    /// Goes on in another space, to which what was written goes along. Positions stay as they are.
    #[cold]
    pub(crate) fn move_to(&mut self, space: Space<'a>) -> Option<()> {
        self.end = space.window().len();
        self.staged.move_to(space, self.at)
    }

    /// Bytes written to the head so far.
    #[inline]
    pub const fn len(&self) -> usize {
        self.at - self.start
    }

    /// Whether nothing was written yet.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.at == self.start
    }

    /// The space in which it is written.
    #[inline]
    pub const fn space(&self) -> Space<'a> {
        self.staged.space()
    }

    /// The same space, for what is no part of the head.
    #[inline]
    pub(crate) const fn staged(&mut self) -> &mut Staged<'a> {
        &mut self.staged
    }

    /// Puts the gathered first bytes into their place: the message is complete.
    #[inline]
    pub fn flush(&self) {
        self.staged.flush();
    }

    #[inline]
    fn align(&mut self, align: usize) -> Result<(), Overflow> {
        let at = self.start + self.len().next_multiple_of(align);
        if at != self.at {
            if at > self.end {
                return Err(Overflow::Full);
            }
            self.staged.zero(self.at, at - self.at).ok_or(Overflow::Full)?;
            self.at = at;
        }
        Ok(())
    }

    #[inline]
    fn room(&self, bytes: usize) -> Result<(), Overflow> {
        if bytes > self.end - self.at { Err(Overflow::Full) } else { Ok(()) }
    }

    /// Appends one plain value at its natural alignment, if it lies within the first bytes and fits.
    #[inline(always)]
    pub(super) fn gather<T: Plain, R: Representation>(&mut self, value: &T) -> bool {
        let at = self.start + self.len().next_multiple_of(align_of::<T>());
        let end = at.saturating_add(size_of::<T>());
        // Most values of most calls go into the first line, whose padding is zero already.
        let gathered = end <= self.end && self.staged.gather::<T, R>(at, value);
        if gathered {
            self.at = end;
        }
        gathered
    }

    /// Appends one plain value at its natural alignment, as it lies in memory.
    pub(super) fn plain<T: Plain>(&mut self, value: &T) -> Result<(), Overflow> {
        self.align(align_of::<T>())?;
        self.room(size_of::<T>())?;
        self.staged.write_plain(self.at, value).ok_or(Overflow::Full)?;
        self.at += size_of::<T>();
        Ok(())
    }

    /// Appends bytes at a multiple of `align`, as they lie in memory.
    #[inline]
    pub(super) fn bytes(&mut self, align: usize, bytes: &[u8]) -> Result<(), Overflow> {
        self.align(align)?;
        self.room(bytes.len())?;
        self.staged.write(self.at, bytes).ok_or(Overflow::Full)?;
        self.at += bytes.len();
        Ok(())
    }

    /// Appends bytes at a multiple of `align`, as they travel.
    #[cold]
    pub(super) fn piece(&mut self, align: usize, piece: Piece<'_>) -> Result<(), Overflow> {
        self.align(align)?;
        self.room(piece.len())?;
        self.staged.put(self.at, piece).ok_or(Overflow::Full)?;
        self.at += piece.len();
        Ok(())
    }

    /// Goes one structure deeper.
    #[inline]
    pub(super) const fn deepen(&mut self) -> Result<(), Overflow> {
        if self.depth >= crate::limits::DEPTH_MAX {
            return Err(Overflow::TooDeep);
        }
        self.depth += 1;
        Ok(())
    }

    /// Comes back from there.
    #[inline]
    pub(super) const fn rise(&mut self) {
        self.depth -= 1;
    }
}
