//! Typed values to bytes and back: plain blocks, structured values, buffers in and out.
//!
//! In the *native* representation both sides lay data out alike, so a plain value travels as its own
//! bytes (Peregrine's first observation: most calls need no conversion); in the *swapped* one numbers
//! are turned to the other byte order on their way. Nothing here knows a socket, a clock or a thread.
//! Every byte is fixed in `docs/REPRESENTATION.md`.

mod arriving;
mod buffer;
mod departing;
mod dynamic;
mod head;
mod plain;
mod primitive;
mod reader;
mod relayed;
mod representation;
mod structured;
mod swap;
mod window;
mod writer;

pub use arriving::{Arrives, Arriving};
pub use buffer::{Full, Lent, Out, OutBlock};
pub use departing::{Departing, Departs};
pub use dynamic::Dynamic;
pub(crate) use head::FIRST_BYTES;
pub use head::Head;
pub(crate) use plain::bytes_of_blocks;
pub use plain::{Plain, bytes_of, bytes_of_mut, common_unit, plain_mut, plain_slice};
pub use reader::{Invalid, Reader};
pub use representation::{ByteOrder, Native, Representation, Swapped};
pub(crate) use swap::CopyMethod;
pub use swap::{Block, Swap};
pub use writer::{Overflow, Writer};

use crate::interface::Type;
pub use crate::sys::{Space, Window};

/// Buffers and heads begin at multiples of this many bytes; no plain type may need more.
pub const ALIGN: usize = 16;

/// `bytes` rounded up to a multiple of [`ALIGN`]; saturates, so that a hostile length stays too large.
#[inline]
pub const fn align_up(bytes: usize) -> usize {
    bytes.saturating_add(ALIGN - 1) & !(ALIGN - 1)
}

/// A type that can travel with a call: an argument, a result, an element of either.
///
/// Implemented for the primitive types, arrays, tuples, `String`, `Vec`, `Option`, `Result` and
/// `Box`, and derived for your own: `#[derive(Plain)]` for fixed layouts that are copied as they
/// lie in memory, `#[derive(Value)]` for everything else.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel with a call",
    label = "not a Peregrine value",
    note = "derive `peregrine::Plain` (fixed layout, copied as one block) or `peregrine::Value` (structured) on your own types",
    note = "`usize` and `isize` differ between machines: use `u64` or `u32`"
)]
pub trait Value: Sized {
    /// How the interface describes the type.
    const TYPE: Type;

    /// Whether the type is [`Plain`]: its slices are blocks, copied as they lie in memory.
    const PLAIN: bool = false;

    /// Bytes the value takes at the start of a head, if every value of the type takes the same.
    const FIXED_BYTES: Option<usize> = None;

    /// How its slices are turned to the other byte order as blocks; `None` if they look the same in
    /// both, or are no blocks.
    #[doc(hidden)]
    const SWAP: Option<&'static Swap> = None;

    /// Appends the value to a head.
    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow>;

    /// Takes the value from a head that a peer wrote.
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid>;

    /// Appends every value of a slice (not its length).
    #[inline]
    fn encode_all<R: Representation>(
        values: &[Self],
        head: &mut Writer<'_, R>,
    ) -> Result<(), Overflow> {
        values.iter().try_for_each(|value| value.encode(head))
    }

    /// Takes `count` values. Memory grows with what was really sent, never with what was claimed.
    fn decode_all<R: Representation>(
        count: usize,
        head: &mut Reader<'_, R>,
    ) -> Result<Vec<Self>, Invalid> {
        let mut values = Vec::with_capacity(count.min(head.remaining() / size_of::<Self>().max(1)));
        for _ in 0..count {
            let before = head.remaining();
            values.push(Self::decode(head)?);
            // What takes no bytes, such as `Box<()>`, could be claimed any number of times.
            if head.remaining() == before {
                head.empty()?;
            }
        }
        Ok(values)
    }

    /// Takes an array of values, whose number is known to both sides.
    #[doc(hidden)]
    #[inline]
    fn decode_array<R: Representation, const N: usize>(
        head: &mut Reader<'_, R>,
    ) -> Result<[Self; N], Invalid> {
        primitive::one_by_one(head)
    }

    /// Takes an array of arrays of values.
    #[doc(hidden)]
    #[inline]
    fn decode_arrays<R: Representation, const M: usize, const N: usize>(
        head: &mut Reader<'_, R>,
    ) -> Result<[[Self; M]; N], Invalid> {
        primitive::one_by_one(head)
    }

    /// The slice as one plain block; `None` for structured types, whose slices go into the head.
    #[inline]
    fn as_block(_values: &[Self]) -> Option<&[u8]> {
        None
    }

    /// As [`Value::as_block`], to be written by a result.
    #[inline]
    fn as_block_mut(_values: &mut [Self]) -> Option<OutBlock<'_>> {
        None
    }

    /// A received block seen as values, in place. `None` for structured types.
    #[inline]
    fn from_block(_block: &mut [u8]) -> Option<Result<&mut [Self], Invalid>> {
        None
    }
}

#[cfg(test)]
mod tests;
