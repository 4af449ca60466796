//! Converts values to bytes and back: plain blocks, structured values, and buffers for arguments and results.
//!
//! In the *native* representation both sides have the same layout, so a plain value is sent as its own bytes.
//! (The first observation of the Peregrine paper is that most calls need no conversion.) In the *swapped*
//! representation, numbers are converted to the other byte order. This module uses no socket, clock or
//! thread. `docs/REPRESENTATION.md` defines every byte.

mod arriving;
mod buffer;
mod collections;
mod defaults;
mod departing;
mod dynamic;
mod head;
mod library;
mod list;
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
pub use defaults::default_bytes;
#[cfg(feature = "json")]
pub(crate) use defaults::default_value;
pub use departing::{Departing, Departs};
pub use dynamic::Dynamic;
pub(crate) use head::FIRST_BYTES;
pub use head::Head;
pub use list::{FreesInALoop, Nodes};
pub use plain::{Plain, bytes_of, bytes_of_mut, common_unit, plain_mut, plain_slice};
pub(crate) use plain::{big_endian_array, big_endian_numbers, bytes_of_blocks, put_big_endian};
pub use reader::{Invalid, Reader};
pub use representation::{ByteOrder, Native, Representation, Swapped};
pub(crate) use swap::CopyMethod;
pub use swap::{Block, Swap};
pub use writer::{Overflow, Writer};

use crate::interface::Type;
pub use crate::sys::{Space, Window};

/// The alignment in bytes of buffers and heads. No plain type may need a larger alignment.
pub const ALIGN: usize = 16;

/// Rounds `bytes` up to a multiple of [`ALIGN`]. Saturates, so that a huge length from a hostile peer does
/// not wrap around to a small one.
#[inline]
pub const fn align_up(bytes: usize) -> usize {
    bytes.saturating_add(ALIGN - 1) & !(ALIGN - 1)
}

/// A type that can be sent with a call: an argument, a result, or an element of either.
///
/// This trait is implemented for the primitive types, arrays, tuples, `Option`, `Result`, pointers, texts and
/// collections. It is also implemented for times, addresses and paths of the standard library and, with
/// [features](crate#features), for types of other crates. Derive it for your own types. Use
/// `#[derive(Plain)]` for types with a fixed layout, which are copied as one block of memory, and
/// `#[derive(Value)]` for all others.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel with a call",
    label = "not a Peregrine value",
    note = "derive `peregrine::Plain` (fixed layout, copied as one block) or `peregrine::Value` (structured) on your own types",
    note = "`usize` and `isize` differ between machines: use `u64` or `u32`"
)]
pub trait Value: Sized {
    /// The type as the interface describes it.
    const TYPE: Type;

    /// Whether the type is [`Plain`]. If so, slices of it are blocks, which are copied without encoding.
    const PLAIN: bool = false;

    /// The number of bytes that every value of the type takes at the start of a head. `None` if values differ
    /// in length.
    const FIXED_BYTES: Option<usize> = None;

    /// How slices of the type are converted to the other byte order. `None` if they are the same in both byte
    /// orders, or are not blocks.
    #[doc(hidden)]
    const SWAP: Option<&'static Swap> = None;

    /// Appends the value to a head. The head of a message is the part with its small values.
    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow>;

    /// Takes the value from a head that a peer wrote.
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid>;

    /// Appends every value of a slice, but not its length.
    #[inline]
    fn encode_all<R: Representation>(
        values: &[Self],
        head: &mut Writer<'_, R>,
    ) -> Result<(), Overflow> {
        values.iter().try_for_each(|value| value.encode(head))
    }

    /// Takes `count` values. Allocates memory only for values that were sent, not for a count that a peer
    /// claims.
    fn decode_all<R: Representation>(
        count: usize,
        head: &mut Reader<'_, R>,
    ) -> Result<Vec<Self>, Invalid> {
        let mut values = Vec::with_capacity(count.min(head.remaining() / size_of::<Self>().max(1)));
        for _ in 0..count {
            let before = head.remaining();
            values.push(Self::decode(head)?);
            // Values without bytes, such as `Box<()>`, are counted: a peer could claim any number of them.
            if head.remaining() == before {
                head.empty()?;
            }
        }
        Ok(values)
    }

    /// Takes an array of values. The length is not sent, because both sides know it.
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

    /// Returns the slice as one plain block. Returns `None` for structured types, whose slices are in the
    /// head.
    #[inline]
    fn as_block(_values: &[Self]) -> Option<&[u8]> {
        None
    }

    /// Returns the slice as a block that a result overwrites. Returns `None` for structured types.
    #[inline]
    fn as_block_mut(_values: &mut [Self]) -> Option<OutBlock<'_>> {
        None
    }

    /// Returns a received block as values, without copying. Returns `None` for structured types.
    #[inline]
    fn from_block(_block: &mut [u8]) -> Option<Result<&mut [Self], Invalid>> {
        None
    }
}

#[cfg(test)]
mod tests;
