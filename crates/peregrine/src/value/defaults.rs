//! The defaults of fields and parameters, in the form in which a description contains them.

use super::{ByteOrder, Native, Overflow, Representation, Space, Swapped, Value, Writer};
#[cfg(feature = "json")]
use super::{Dynamic, Reader, Window};
use crate::interface::DEFAULT_BYTES_MAX;
#[cfg(feature = "json")]
use crate::interface::{Described, DescribedBody, DescribedField, DescribedType};

/// The largest nesting of types in a default.
#[cfg(feature = "json")]
const DEPTH_MAX: usize = 128;

/// Returns the bytes of a default, as a description contains them: at the start of a little-endian head. The
/// head of a message is the part with its small values.
///
/// ```
/// use peregrine::value::default_bytes;
///
/// assert_eq!(default_bytes(&258u32), [2, 1, 0, 0]);
/// ```
///
/// # Panics
/// If the default has more than [`DEFAULT_BYTES_MAX`] bytes.
pub fn default_bytes<T: Value>(value: &T) -> Vec<u8> {
    let mut memory = vec![0u8; DEFAULT_BYTES_MAX];
    let space = Space::of_mut(&mut memory);
    let written = match ByteOrder::Little.is_native() {
        true => write_value(value, Writer::<Native>::represented(space)),
        false => write_value(value, Writer::<Swapped>::represented(space)),
    };
    match written {
        Ok(bytes) => memory.truncate(bytes),
        Err(overflow) => panic!("a default has at most {DEFAULT_BYTES_MAX} bytes: {overflow}"),
    }
    memory
}

fn write_value<T: Value, R: Representation>(
    value: &T,
    mut head: Writer<'_, R>,
) -> Result<usize, Overflow> {
    value.encode(&mut head)?;
    head.flush();
    Ok(head.len())
}

/// Returns the value of a default. Returns `None` if the bytes are not a value of the type.
#[cfg(feature = "json")]
pub(crate) fn default_value(
    described: &Described,
    ty: &DescribedType,
    bytes: &[u8],
) -> Option<Dynamic> {
    match ByteOrder::Little.is_native() {
        true => Taker::<Native>::of(described, bytes).value(ty, 0),
        false => Taker::<Swapped>::of(described, bytes).value(ty, 0),
    }
}

#[cfg(feature = "json")]
struct Taker<'a, R: Representation> {
    described: &'a Described,
    head: Reader<'a, R>,
}

#[cfg(feature = "json")]
impl<'a, R: Representation> Taker<'a, R> {
    fn of(described: &'a Described, bytes: &'a [u8]) -> Self {
        Self { described, head: Reader::represented(Window::from(bytes)) }
    }

    fn values(&mut self, one: &DescribedType, count: u64, depth: usize) -> Option<Dynamic> {
        let count = usize::try_from(count).ok().filter(|count| *count <= DEFAULT_BYTES_MAX)?;
        let values: Option<Vec<_>> = (0..count).map(|_| self.value(one, depth + 1)).collect();
        values.map(Dynamic::List)
    }

    fn fields(&mut self, fields: &[DescribedField], depth: usize) -> Option<Vec<Dynamic>> {
        fields.iter().map(|field| self.value(&field.ty, depth + 1)).collect()
    }

    fn value(&mut self, ty: &DescribedType, depth: usize) -> Option<Dynamic> {
        if depth > DEPTH_MAX {
            return None;
        }
        let head = &mut self.head;
        Some(match ty {
            DescribedType::Unit => Dynamic::Unit,
            DescribedType::Bool => Dynamic::Bool(head.plain().ok()?),
            DescribedType::Char => Dynamic::Char(head.plain().ok()?),
            DescribedType::Text => Dynamic::Text(String::decode(head).ok()?),
            DescribedType::U8 => Dynamic::U8(head.plain().ok()?),
            DescribedType::U16 => Dynamic::U16(head.plain().ok()?),
            DescribedType::U32 => Dynamic::U32(head.plain().ok()?),
            DescribedType::U64 => Dynamic::U64(head.plain().ok()?),
            DescribedType::U128 => Dynamic::U128(head.plain().ok()?),
            DescribedType::I8 => Dynamic::I8(head.plain().ok()?),
            DescribedType::I16 => Dynamic::I16(head.plain().ok()?),
            DescribedType::I32 => Dynamic::I32(head.plain().ok()?),
            DescribedType::I64 => Dynamic::I64(head.plain().ok()?),
            DescribedType::I128 => Dynamic::I128(head.plain().ok()?),
            DescribedType::F32 => Dynamic::F32(head.plain().ok()?),
            DescribedType::F64 => Dynamic::F64(head.plain().ok()?),
            DescribedType::Array(one, count) => self.values(one, *count, depth)?,
            DescribedType::Sequence(one) => {
                let count = head.count().ok()?;
                self.values(one, count as u64, depth)?
            }
            DescribedType::Option(one) => {
                let is_some: bool = head.plain().ok()?;
                let value =
                    if is_some { Some(Box::new(self.value(one, depth + 1)?)) } else { None };
                Dynamic::Option(value)
            }
            DescribedType::Result(ok, error) => {
                let is_error: bool = head.plain().ok()?;
                let value = Box::new(self.value(if is_error { error } else { ok }, depth + 1)?);
                Dynamic::Result(if is_error { Err(value) } else { Ok(value) })
            }
            DescribedType::Tuple(parts) => {
                let parts: Option<Vec<_>> =
                    parts.iter().map(|part| self.value(part, depth + 1)).collect();
                Dynamic::List(parts?)
            }
            DescribedType::Named(number) => {
                let described = self.described;
                match &described.types.get(*number)?.body {
                    DescribedBody::Plain { size, align, fields } => {
                        let (size, align) = (usize::try_from(*size).ok()?, *align as usize);
                        let whole = self.head.window(align, size).ok()?;
                        let (mut all, mut at) = (Vec::new(), 0);
                        for field in fields {
                            let bytes = usize::try_from(described.plain_bytes(&field.ty)?).ok()?;
                            let part = whole.part(at, bytes)?;
                            let head = Reader::<R>::represented(part);
                            all.push(Taker { described, head }.value(&field.ty, depth + 1)?);
                            at += bytes;
                        }
                        Dynamic::List(all)
                    }
                    DescribedBody::PlainEnum { repr, .. } => self.value(repr, depth + 1)?,
                    DescribedBody::Struct(fields) => Dynamic::List(self.fields(fields, depth)?),
                    DescribedBody::Interface { .. } => return None,
                    DescribedBody::Enum(variants) => {
                        let number: u32 = self.head.plain().ok()?;
                        let fields = &variants.get(number as usize)?.fields;
                        Dynamic::Variant(number, self.fields(fields, depth)?)
                    }
                }
            }
        })
    }
}
