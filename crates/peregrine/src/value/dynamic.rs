//! `Dynamic` is a value whose type is known only at run time.

use super::plain::{Plain, bytes_of};

/// A value whose type is known only at run time. A [generic client](crate::GenericClient) sends such values,
/// and a [generic server](crate::GenericServer) answers with them.
///
/// The type, as an interface describes it, determines the variant of the value:
///
/// | type | value |
/// |---|---|
/// | types without bytes: `()`, `[(); 3]`, a struct without fields | [`Unit`](Self::Unit); a sequence of them is [`Units`](Self::Units) |
/// | numbers, `bool`, `char` | the variant of that name |
/// | a plain enum | its discriminant, as the variant of its integer type |
/// | text | [`Text`](Self::Text) |
/// | a plain struct, an array of plain values, a sequence of plain values, a buffer of them | [`Plain`](Self::Plain), or a [`List`](Self::List) of its parts |
/// | other structs, arrays, tuples and sequences | [`List`](Self::List): the fields or elements in order |
/// | an option, a result | [`Option`](Self::Option), [`Result`](Self::Result) |
/// | an enum | [`Variant`](Self::Variant): its number, and its fields in order |
///
/// A [`Plain`](Self::Plain) value is copied as one block, whatever it contains. So for a large array, an
/// interpreted stub costs only the copy. Received values are `Plain` wherever possible.
///
/// ```
/// use peregrine::Dynamic;
///
/// let numbers = Dynamic::plain(&[1u32, 2, 3]);
/// assert_eq!(numbers.to_vec::<u32>(), Some(vec![1, 2, 3]));
/// assert_eq!(Dynamic::from("falcon"), Dynamic::Text("falcon".into()));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Dynamic {
    /// A value without bytes.
    #[default]
    Unit,
    /// A `bool`.
    Bool(bool),
    /// A `char`.
    Char(char),
    /// A `u8`.
    U8(u8),
    /// A `u16`.
    U16(u16),
    /// A `u32`.
    U32(u32),
    /// A `u64`.
    U64(u64),
    /// A `u128`.
    U128(u128),
    /// An `i8`.
    I8(i8),
    /// An `i16`.
    I16(i16),
    /// An `i32`.
    I32(i32),
    /// An `i64`.
    I64(i64),
    /// An `i128`.
    I128(i128),
    /// An `f32`.
    F32(f32),
    /// An `f64`.
    F64(f64),
    /// Text in UTF-8.
    Text(String),
    /// One or several values without padding, in the layout of this machine's memory.
    Plain(Vec<u8>),
    /// Several values without bytes. Only the number of the values is kept.
    Units(u32),
    /// The elements of a sequence or array, the parts of a tuple, or the fields of a struct.
    List(Vec<Self>),
    /// An optional value.
    Option(Option<Box<Self>>),
    /// A result.
    Result(Result<Box<Self>, Box<Self>>),
    /// The number of an enum's variant, and its fields.
    Variant(u32, Vec<Self>),
}

impl Dynamic {
    /// Makes a [`Plain`](Self::Plain) value by copying `values`.
    pub fn plain<T: Plain>(values: &[T]) -> Self {
        Self::Plain(bytes_of(values).to_vec())
    }

    /// Returns the values of a [`Plain`](Self::Plain). Returns `None` in three cases: the variant is another
    /// one, the bytes are not a whole number of values, or one of them is not a valid `T`.
    pub fn to_vec<T: Plain>(&self) -> Option<Vec<T>> {
        let Self::Plain(bytes) = self else { return None };
        let size = size_of::<T>();
        if size == 0 || !bytes.len().is_multiple_of(size) {
            return None;
        }
        let mut reader = super::Reader::new(super::Window::from(&bytes[..]));
        reader.plain_vec(bytes.len() / size).ok()
    }

    /// Returns the kind of the value, as text for error messages.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unit => "nothing",
            Self::Bool(_) => "a bool",
            Self::Char(_) => "a letter",
            Self::U8(_) => "a u8",
            Self::U16(_) => "a u16",
            Self::U32(_) => "a u32",
            Self::U64(_) => "a u64",
            Self::U128(_) => "a u128",
            Self::I8(_) => "an i8",
            Self::I16(_) => "an i16",
            Self::I32(_) => "an i32",
            Self::I64(_) => "an i64",
            Self::I128(_) => "an i128",
            Self::F32(_) => "an f32",
            Self::F64(_) => "an f64",
            Self::Text(_) => "text",
            Self::Plain(_) => "plain data",
            Self::Units(_) => "empty values",
            Self::List(_) => "a list",
            Self::Option(_) => "an option",
            Self::Result(_) => "a result",
            Self::Variant(..) => "a variant",
        }
    }
}

macro_rules! from {
    ($($ty:ty, $variant:ident;)*) => {$(
        impl From<$ty> for Dynamic {
            fn from(value: $ty) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}
from! {
    bool, Bool; char, Char; u8, U8; u16, U16; u32, U32; u64, U64; u128, U128;
    i8, I8; i16, I16; i32, I32; i64, I64; i128, I128; f32, F32; f64, F64; String, Text;
}

impl From<&str> for Dynamic {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<()> for Dynamic {
    fn from((): ()) -> Self {
        Self::Unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_values_are_returned_if_they_are_valid() {
        let flags = Dynamic::plain(&[true, false]);
        assert_eq!(flags.to_vec::<bool>(), Some(vec![true, false]));
        assert_eq!(flags.to_vec::<u16>(), Some(vec![u16::from_ne_bytes([1, 0])]));
        assert_eq!(flags.to_vec::<u32>(), None);
        assert_eq!(Dynamic::Plain(vec![2]).to_vec::<bool>(), None);
        assert_eq!(Dynamic::from(7u8).to_vec::<u8>(), None);
    }
}
