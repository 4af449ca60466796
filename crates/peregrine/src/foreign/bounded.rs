//! `Bounded`: types with a count, which an interface can bound by `#[foreign(max = N)]`.

use super::{Cells, Foreign, Input, Invalid, Output, Overflow};

/// A type with a count of bytes or elements, which an interface can bound: `String`,
/// [`ByteString`](super::ByteString) and `Vec<T>`. `#[foreign(max = N)]` on a field uses it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot have `#[foreign(max = N)]`",
    label = "has no count in `{R}`",
    note = "`max` bounds a `String`, a `ByteString` or a `Vec<T>`"
)]
pub trait Bounded<R: Cells>: Foreign<R> {
    /// Returns the number of bytes of a text or byte string, or the number of elements of a sequence.
    fn count(&self) -> usize;

    /// Takes a value from received bytes.
    ///
    /// # Errors
    /// [`Invalid::TooLong`] if its count is larger than `most`. Other errors are those of
    /// [`take`](Foreign::take).
    fn take_at_most(most: usize, from: &mut Input<'_, R>) -> Result<Self, Invalid>;

    /// Appends the value.
    ///
    /// # Errors
    /// [`Overflow::TooLong`] if its count is larger than `most`. Other errors are those of
    /// [`put`](Foreign::put).
    #[inline]
    fn put_at_most(&self, most: usize, to: &mut Output<'_, R>) -> Result<(), Overflow> {
        if self.count() > most { Err(Overflow::TooLong) } else { self.put(to) }
    }
}
