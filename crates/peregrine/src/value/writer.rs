//! `Writer`: puts values into a head that is already in its place.

use super::{Plain, Space, Staged};

/// The value does not fit: the head is full, or a structure is nested too deeply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// The head has no room left.
    Full,
    /// More elements than a count can say, or than the interface allows.
    TooLong,
    /// Structures nested deeper than [`limits::DEPTH_MAX`](crate::limits::DEPTH_MAX).
    TooDeep,
}

impl core::fmt::Display for Overflow {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Full => "the values do not fit the message",
            Self::TooLong => "more elements than the interface allows",
            Self::TooDeep => "structures nested too deeply",
        })
    }
}

impl std::error::Error for Overflow {}

/// A cursor that appends values to a head; padding is written as zeros.
///
/// The first bytes are gathered and written last: nothing is complete before [`Writer::flush`].
#[derive(Debug)]
pub struct Writer<'a> {
    staged: Staged<'a>,
    /// Where the head begins: positions are aligned as seen from there.
    start: usize,
    at: usize,
    end: usize,
    depth: u32,
}

impl<'a> Writer<'a> {
    /// Begins at the start of `space`.
    #[inline]
    pub const fn new(space: Space<'a>) -> Self {
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

    /// The space in which it writes.
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

    /// Appends one plain value at its natural alignment.
    #[inline(always)]
    pub fn plain<T: Plain>(&mut self, value: &T) -> Result<(), Overflow> {
        let at = self.start + self.len().next_multiple_of(align_of::<T>());
        let end = at.saturating_add(size_of::<T>());
        // Most values of most calls go into the first line, whose padding is zero already.
        if end <= self.end && self.staged.gather(at, value) {
            self.at = end;
            return Ok(());
        }
        self.plain_beyond(value)
    }

    fn plain_beyond<T: Plain>(&mut self, value: &T) -> Result<(), Overflow> {
        self.align(align_of::<T>())?;
        self.room(size_of::<T>())?;
        self.staged.write_plain(self.at, value).ok_or(Overflow::Full)?;
        self.at += size_of::<T>();
        Ok(())
    }

    /// Appends a count of elements or bytes.
    #[inline]
    pub fn count(&mut self, count: usize) -> Result<(), Overflow> {
        self.plain(&u32::try_from(count).map_err(|_| Overflow::TooLong)?)
    }

    /// Appends plain values one after the other.
    #[inline]
    pub fn plain_all<T: Plain>(&mut self, values: &[T]) -> Result<(), Overflow> {
        // No element, no padding before it.
        if size_of_val(values) == 0 {
            return Ok(());
        }
        self.align(align_of::<T>())?;
        self.room(size_of_val(values))?;
        self.staged.write(self.at, super::bytes_of(values)).ok_or(Overflow::Full)?;
        self.at += size_of_val(values);
        Ok(())
    }

    /// Goes one structure deeper for as long as `inner` runs.
    #[inline]
    pub fn deeper(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<(), Overflow>,
    ) -> Result<(), Overflow> {
        if self.depth >= crate::limits::DEPTH_MAX {
            return Err(Overflow::TooDeep);
        }
        self.depth += 1;
        let done = inner(self);
        self.depth -= 1;
        done
    }
}
