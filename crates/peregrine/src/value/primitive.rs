//! Implements `Value` for the plain built-in types: numbers, `bool`, `char`, and arrays of them.

use core::num::NonZero;

use super::{Invalid, OutBlock, Overflow, Plain, Reader, Representation, Swap, Value, Writer};
use crate::interface::Type;

/// Defines those methods of [`Value`] that are the same for all plain types.
#[doc(hidden)]
#[macro_export]
macro_rules! __plain_value {
    () => {
        const PLAIN: bool = true;
        const FIXED_BYTES: ::core::option::Option<usize> =
            ::core::option::Option::Some(::core::mem::size_of::<Self>());
        const SWAP: ::core::option::Option<&'static $crate::value::Swap> =
            $crate::value::Swap::of::<Self>();
        #[inline]
        fn encode<R: $crate::value::Representation>(
            &self,
            head: &mut $crate::value::Writer<'_, R>,
        ) -> ::core::result::Result<(), $crate::value::Overflow> {
            head.plain(self)
        }
        #[inline]
        fn decode<R: $crate::value::Representation>(
            head: &mut $crate::value::Reader<'_, R>,
        ) -> ::core::result::Result<Self, $crate::value::Invalid> {
            head.plain()
        }
        #[inline]
        fn encode_all<R: $crate::value::Representation>(
            values: &[Self],
            head: &mut $crate::value::Writer<'_, R>,
        ) -> ::core::result::Result<(), $crate::value::Overflow> {
            head.plain_all(values)
        }
        #[inline]
        fn decode_all<R: $crate::value::Representation>(
            count: usize,
            head: &mut $crate::value::Reader<'_, R>,
        ) -> ::core::result::Result<::std::vec::Vec<Self>, $crate::value::Invalid> {
            head.plain_vec(count)
        }
        #[inline]
        fn decode_array<R: $crate::value::Representation, const N: usize>(
            head: &mut $crate::value::Reader<'_, R>,
        ) -> ::core::result::Result<[Self; N], $crate::value::Invalid> {
            head.plain_array()
        }
        #[inline]
        fn decode_arrays<R: $crate::value::Representation, const M: usize, const N: usize>(
            head: &mut $crate::value::Reader<'_, R>,
        ) -> ::core::result::Result<[[Self; M]; N], $crate::value::Invalid> {
            head.plain_array()
        }
        #[inline]
        fn as_block(values: &[Self]) -> ::core::option::Option<&[u8]> {
            ::core::option::Option::Some($crate::value::bytes_of(values))
        }
        #[inline]
        fn as_block_mut(
            values: &mut [Self],
        ) -> ::core::option::Option<$crate::value::OutBlock<'_>> {
            ::core::option::Option::Some($crate::value::bytes_of_mut(values))
        }
        #[inline]
        fn from_block(
            block: &mut [u8],
        ) -> ::core::option::Option<::core::result::Result<&mut [Self], $crate::value::Invalid>> {
            ::core::option::Option::Some($crate::value::plain_mut(block))
        }
    };
}

macro_rules! primitives {
    ($($type:ty: $name:ident),* $(,)?) => {$(
        impl Value for $type {
            const TYPE: Type = Type::$name;
            $crate::__plain_value!();
        }
    )*};
}
primitives! {
    bool: Bool, char: Char,
    u8: U8, u16: U16, u32: U32, u64: U64, u128: U128,
    i8: I8, i16: I16, i32: I32, i64: I64, i128: I128,
    f32: F32, f64: F64,
}

/// Implements `Value` for [`NonZero`] types. They are described as the integer type that they wrap. A
/// received zero is an error.
macro_rules! non_zero {
    ($($type:ty: $name:ident),* $(,)?) => {$(
        impl Value for NonZero<$type> {
            const TYPE: Type = Type::$name;
            $crate::__plain_value!();
        }
    )*};
}
non_zero! {
    u8: U8, u16: U16, u32: U32, u64: U64, u128: U128,
    i8: I8, i16: I16, i32: I32, i64: I64, i128: I128,
}

/// An array is plain if its elements are plain and it is not empty. The elements follow each other without
/// padding.
impl<T: Value, const N: usize> Value for [T; N] {
    const TYPE: Type = Type::Array(&T::TYPE, N);
    const PLAIN: bool = T::PLAIN && N > 0;
    const FIXED_BYTES: Option<usize> = match T::FIXED_BYTES {
        Some(bytes) if T::PLAIN => Some(bytes * N),
        _ => None,
    };
    const SWAP: Option<&'static Swap> = T::SWAP;

    #[inline]
    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        T::encode_all(self, head)
    }

    #[inline]
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        T::decode_array(head)
    }

    #[inline]
    fn decode_array<R: Representation, const M: usize>(
        head: &mut Reader<'_, R>,
    ) -> Result<[Self; M], Invalid> {
        T::decode_arrays(head)
    }

    #[inline]
    fn as_block(values: &[Self]) -> Option<&[u8]> {
        if Self::PLAIN { T::as_block(values.as_flattened()) } else { None }
    }

    #[inline]
    fn as_block_mut(values: &mut [Self]) -> Option<OutBlock<'_>> {
        if Self::PLAIN { T::as_block_mut(values.as_flattened_mut()) } else { None }
    }

    #[inline]
    fn from_block(block: &mut [u8]) -> Option<Result<&mut [Self], Invalid>> {
        if !Self::PLAIN {
            return None;
        }
        T::from_block(block).map(|values| {
            let (arrays, rest) = values?.as_chunks_mut::<N>();
            if rest.is_empty() { Ok(arrays) } else { Err(Invalid::Block) }
        })
    }
}

/// Takes the elements of an array one by one.
pub(super) fn one_by_one<T: Value, R: Representation, const N: usize>(
    head: &mut Reader<'_, R>,
) -> Result<[T; N], Invalid> {
    let mut failed = None;
    let mut slots: [Option<T>; N] = core::array::from_fn(|_| match failed {
        Some(_) => None,
        None => T::decode(head).map_err(|invalid| failed = Some(invalid)).ok(),
    });
    match failed {
        Some(invalid) => Err(invalid),
        None => Ok(core::array::from_fn(|i| slots[i].take().expect("none failed"))),
    }
}

/// Checks at compile time that a plain type is a value.
const _: fn() = || {
    fn plain_is_value<T: Plain + Value>() {}
    plain_is_value::<u8>();
};
