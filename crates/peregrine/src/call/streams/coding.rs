//! [`Coding`]: how items become bytes, and bytes become items.

use crate::error::{CallError, Executed, Kind};
use crate::value::{Invalid, Native, Overflow, Reader, Representation, Swapped, Value, Writer};

/// Writes and reads the items of a stream in the representation `R`.
pub(crate) trait Coding<T, R: Representation>: Send {
    /// Writes an item.
    ///
    /// # Errors
    /// If the item does not fit, or is refused. [`refusal`](Self::refusal) then returns the reason.
    fn encode(&mut self, item: &T, head: &mut Writer<'_, R>) -> Result<(), Overflow>;

    /// Returns the error of the item that [`encode`](Self::encode) has not written.
    #[cold]
    fn refusal(&mut self, overflow: Overflow) -> CallError {
        too_large(overflow)
    }

    /// Reads `count` items.
    ///
    /// # Errors
    /// If an item is invalid.
    fn decode(&mut self, count: usize, head: &mut Reader<'_, R>) -> Result<Vec<T>, Invalid>;
}

/// Returns the error of an item that does not fit.
#[cold]
pub(crate) fn too_large(overflow: Overflow) -> CallError {
    let text = match overflow {
        Overflow::Full => "an item of a stream does not fit a message",
        _ => "an item of a stream is nested too deeply, or has too many elements",
    };
    CallError::new(Kind::TooLarge, Executed::Maybe, text)
}

/// Writes and reads the items of a stream in either byte order.
pub(crate) trait InBothOrders<T>: Coding<T, Native> + Coding<T, Swapped> {}

impl<T, C: Coding<T, Native> + Coding<T, Swapped>> InBothOrders<T> for C {}

/// The coding of items whose type is known at compile time.
pub(crate) struct Compiled;

impl<T: Value, R: Representation> Coding<T, R> for Compiled {
    fn encode(&mut self, item: &T, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        item.encode(head)
    }

    fn decode(&mut self, count: usize, head: &mut Reader<'_, R>) -> Result<Vec<T>, Invalid> {
        T::decode_all(count, head)
    }
}
