//! `Dynamic`: a value whose type is known at run time only.

use super::plain::{Plain, bytes_of};

/// A value whose type is known at run time only: what a [generic client](crate::GenericClient) sends
/// and a [generic server](crate::GenericServer) answers.
///
/// Which of them stands for a value is a matter of its type, as an interface describes it:
///
/// | type | value |
/// |---|---|
/// | what takes no bytes: `()`, `[(); 3]`, a struct without fields | [`Unit`](Self::Unit); a sequence of them is [`Units`](Self::Units) |
/// | numbers, `bool`, `char` | the variant of that name |
/// | a plain enum | its discriminant, as the variant of its integer |
/// | text | [`Text`](Self::Text) |
/// | a plain struct, an array of plain values, a sequence of plain values, a buffer of them | [`Plain`](Self::Plain), or a [`List`](Self::List) of its parts |
/// | other structs, arrays, tuples and sequences | [`List`](Self::List): the fields or elements in order |
/// | an option, a result | [`Option`](Self::Option), [`Result`](Self::Result) |
/// | an enum | [`Variant`](Self::Variant): its number, and its fields in order |
///
/// What is [`Plain`](Self::Plain) is moved as one block, whatever is in it: so the interpreted stub of a
/// large array costs what the copy costs. What comes back is `Plain` wherever it may be.
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
    /// No bytes.
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
    /// UTF-8.
    Text(String),
    /// Values without padding one behind the other, as they lie in this machine's memory.
    Plain(Vec<u8>),
    /// So many values that take no bytes.
    Units(u32),
    /// Elements, parts of a tuple, or fields.
    List(Vec<Self>),
    /// Present or absent.
    Option(Option<Box<Self>>),
    /// Either.
    Result(Result<Box<Self>, Box<Self>>),
    /// The number of a variant, and its fields.
    Variant(u32, Vec<Self>),
}

impl Dynamic {
    /// Plain values, copied.
    pub fn plain<T: Plain>(values: &[T]) -> Self {
        Self::Plain(bytes_of(values).to_vec())
    }

    /// The values of a [`Plain`](Self::Plain); `None` if it is none, is no whole number of them, or has
    /// bits that no `T` has.
    pub fn to_vec<T: Plain>(&self) -> Option<Vec<T>> {
        let Self::Plain(bytes) = self else { return None };
        let size = size_of::<T>();
        if size == 0 || !bytes.len().is_multiple_of(size) {
            return None;
        }
        let mut reader = super::Reader::new(super::Window::from(&bytes[..]));
        reader.plain_vec(bytes.len() / size).ok()
    }

    /// What it is, for people.
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
    fn plain_values_come_back_if_they_are_such() {
        let flags = Dynamic::plain(&[true, false]);
        assert_eq!(flags.to_vec::<bool>(), Some(vec![true, false]));
        assert_eq!(flags.to_vec::<u16>(), Some(vec![u16::from_ne_bytes([1, 0])]));
        assert_eq!(flags.to_vec::<u32>(), None);
        assert_eq!(Dynamic::Plain(vec![2]).to_vec::<bool>(), None);
        assert_eq!(Dynamic::from(7u8).to_vec::<u8>(), None);
    }
}
