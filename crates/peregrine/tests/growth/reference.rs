//! Converts values between the ages (versions) of an interface, part by part, as docs/EVOLUTION.md says.

use peregrine::Dynamic;
use peregrine::interface::{Described, DescribedBody, DescribedField, DescribedType};

use crate::evolve::{Age, id};

/// The error of a value that cannot be converted: a variant is unknown, or an integer is too large.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Impossible;

/// Returns the integer `bits`, which is sign-extended, as a value of the type `ty`. Returns `None` if the
/// integer does not fit the type.
pub(crate) fn integer(ty: &DescribedType, bits: u128) -> Option<Dynamic> {
    let signed = bits as i128;
    Some(match ty {
        DescribedType::U8 => Dynamic::U8(bits.try_into().ok()?),
        DescribedType::U16 => Dynamic::U16(bits.try_into().ok()?),
        DescribedType::U32 => Dynamic::U32(bits.try_into().ok()?),
        DescribedType::U64 => Dynamic::U64(bits.try_into().ok()?),
        DescribedType::U128 => Dynamic::U128(bits),
        DescribedType::I8 => Dynamic::I8(signed.try_into().ok()?),
        DescribedType::I16 => Dynamic::I16(signed.try_into().ok()?),
        DescribedType::I32 => Dynamic::I32(signed.try_into().ok()?),
        DescribedType::I64 => Dynamic::I64(signed.try_into().ok()?),
        DescribedType::I128 => Dynamic::I128(signed),
        _ => return None,
    })
}

/// Returns the bits of an integer, sign-extended.
fn bits(value: &Dynamic) -> Option<u128> {
    Some(match *value {
        Dynamic::U8(value) => value.into(),
        Dynamic::U16(value) => value.into(),
        Dynamic::U32(value) => value.into(),
        Dynamic::U64(value) => value.into(),
        Dynamic::U128(value) => value,
        Dynamic::I8(value) => i128::from(value) as u128,
        Dynamic::I16(value) => i128::from(value) as u128,
        Dynamic::I32(value) => i128::from(value) as u128,
        Dynamic::I64(value) => i128::from(value) as u128,
        Dynamic::I128(value) => value as u128,
        _ => return None,
    })
}

/// A conversion from the sender's age of the interface to the receiver's age.
#[derive(Clone, Copy)]
pub(crate) struct Conversion<'a> {
    pub(crate) from: &'a Age,
    pub(crate) to: &'a Age,
}

impl Conversion<'_> {
    pub(crate) fn value(
        self,
        from: &DescribedType,
        to: &DescribedType,
        value: &Dynamic,
    ) -> Result<Dynamic, Impossible> {
        use DescribedType as T;
        let all = |a: &DescribedType, b: &DescribedType, values: &[Dynamic]| {
            values.iter().map(|one| self.value(a, b, one)).collect::<Result<Vec<_>, _>>()
        };
        Ok(match (from, to, value) {
            (T::Array(a, _), T::Array(b, _), Dynamic::List(values))
            | (T::Sequence(a), T::Sequence(b), Dynamic::List(values)) => {
                Dynamic::List(all(a, b, values)?)
            }
            (T::Option(a), T::Option(b), Dynamic::Option(Some(value))) => {
                Dynamic::Option(Some(Box::new(self.value(a, b, value)?)))
            }
            (T::Result(a, _), T::Result(b, _), Dynamic::Result(Ok(value))) => {
                Dynamic::Result(Ok(Box::new(self.value(a, b, value)?)))
            }
            (T::Result(_, a), T::Result(_, b), Dynamic::Result(Err(value))) => {
                Dynamic::Result(Err(Box::new(self.value(a, b, value)?)))
            }
            (T::Tuple(ours), T::Tuple(theirs), Dynamic::List(values)) => {
                let parts = ours.iter().zip(theirs).zip(values);
                let parts = parts.map(|((a, b), value)| self.value(a, b, value));
                Dynamic::List(parts.collect::<Result<_, _>>()?)
            }
            (T::Named(a), T::Named(b), _) => {
                self.body(&self.from.whole.types[*a].body, &self.to.whole.types[*b].body, value)?
            }
            _ => match bits(value) {
                Some(bits) => integer(to, bits).ok_or(Impossible)?,
                None => value.clone(),
            },
        })
    }

    fn body(
        self,
        from: &DescribedBody,
        to: &DescribedBody,
        value: &Dynamic,
    ) -> Result<Dynamic, Impossible> {
        use DescribedBody as B;
        match (from, to, value) {
            (B::Struct(from), B::Struct(to), Dynamic::List(values))
            | (B::Plain { fields: from, .. }, B::Plain { fields: to, .. }, Dynamic::List(values)) => {
                Ok(Dynamic::List(self.fields(from, to, values)?))
            }
            (B::Enum(from), B::Enum(to), Dynamic::Variant(number, values)) => {
                let sent = &from[*number as usize];
                let other = to.iter().position(|one| one.is_other);
                let same = to.iter().position(|one| id(&one.name) == id(&sent.name));
                match same.or(other) {
                    None => Err(Impossible),
                    Some(number) if Some(number) == other && !sent.is_other => {
                        let name = Dynamic::Text(sent.name.clone());
                        let fields = to[number].fields.iter().map(|_| name.clone()).collect();
                        Ok(Dynamic::Variant(number as u32, fields))
                    }
                    Some(number) => {
                        let fields = self.fields(&sent.fields, &to[number].fields, values)?;
                        Ok(Dynamic::Variant(number as u32, fields))
                    }
                }
            }
            (B::PlainEnum { variants: from, .. }, B::PlainEnum { repr, variants: to }, _) => {
                let value = bits(value).expect("a discriminant");
                let sent = from.iter().find(|one| one.value as u128 == value).expect("a variant");
                let same = to.iter().find(|one| id(&one.name) == id(&sent.name));
                let found =
                    same.or_else(|| to.iter().find(|one| one.is_other)).ok_or(Impossible)?;
                Ok(integer(repr, found.value as u128).expect("the value of a variant"))
            }
            _ => panic!("{value:?} is not a value of {from:?}, or {to:?} does not fit"),
        }
    }

    fn fields(
        self,
        from: &[DescribedField],
        to: &[DescribedField],
        values: &[Dynamic],
    ) -> Result<Vec<Dynamic>, Impossible> {
        let field = |receiver: &DescribedField| match from
            .iter()
            .zip(values)
            .find(|(sent, _)| id(&sent.name) == id(&receiver.name))
        {
            Some((sent, value)) => self.value(&sent.ty, &receiver.ty, value),
            None => Ok(self.missing(&receiver.name)),
        };
        // Fields that the receiver does not have are not converted. If one field cannot be converted, the
        // whole value cannot be converted.
        to.iter().map(field).collect()
    }

    /// Returns the default that the receiver uses for a part that the sender does not have.
    pub(crate) fn missing(self, name: &str) -> Dynamic {
        self.to.defaults.get(name).cloned().unwrap_or(Dynamic::Option(None))
    }
}

/// Returns the little-endian form of a value: equal values have equal bytes.
pub(crate) fn bytes_of(whole: &Described, ty: &DescribedType, value: &Dynamic) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(whole, ty, value, &mut bytes);
    bytes
}

fn align(bytes: &mut Vec<u8>, to: u64) {
    bytes.resize(bytes.len().next_multiple_of(to as usize), 0);
}

fn write(whole: &Described, ty: &DescribedType, value: &Dynamic, bytes: &mut Vec<u8>) {
    if let Some(align_to) = whole.plain_alignment(ty) {
        align(bytes, align_to);
        return pack(whole, ty, value, bytes);
    }
    let count = |count: usize, bytes: &mut Vec<u8>| {
        align(bytes, 4);
        bytes.extend((count as u32).to_le_bytes());
    };
    let fields = |fields: &[DescribedField], values: &[Dynamic], bytes: &mut Vec<u8>| {
        fields.iter().zip(values).for_each(|(one, value)| write(whole, &one.ty, value, bytes));
    };
    match (ty, value) {
        // The interpreter returns a unit for a struct without fields.
        (_, Dynamic::Unit) | (DescribedType::Unit | DescribedType::Array(_, 0), _) => {}
        (DescribedType::Text, Dynamic::Text(text)) => {
            count(text.len(), bytes);
            bytes.extend(text.as_bytes());
        }
        (DescribedType::Array(one, _), Dynamic::List(values)) => {
            values.iter().for_each(|value| write(whole, one, value, bytes));
        }
        (DescribedType::Array(..), Dynamic::Units(_)) => {}
        (DescribedType::Sequence(_), Dynamic::Units(units)) => count(*units as usize, bytes),
        (DescribedType::Sequence(one), Dynamic::List(values)) => {
            count(values.len(), bytes);
            values.iter().for_each(|value| write(whole, one, value, bytes));
        }
        (DescribedType::Sequence(one), Dynamic::Plain(block)) => {
            let size = bytes_without_gaps(whole, one);
            count(block.len() / size, bytes);
            for part in block.chunks_exact(size) {
                write(whole, one, &Dynamic::Plain(part.to_vec()), bytes);
            }
        }
        (ty, Dynamic::Plain(block)) => {
            // The interpreter returns a value without padding between its parts as one block.
            let mut rest = &block[..];
            for part in parts_of(whole, ty) {
                let (first, others) = rest.split_at(bytes_without_gaps(whole, part));
                write(whole, part, &Dynamic::Plain(first.to_vec()), bytes);
                rest = others;
            }
        }
        (DescribedType::Option(one), Dynamic::Option(value)) => {
            bytes.push(value.is_some().into());
            if let Some(value) = value {
                write(whole, one, value, bytes);
            }
        }
        (DescribedType::Result(ok, error), Dynamic::Result(value)) => {
            bytes.push(value.is_err().into());
            match value {
                Ok(value) => write(whole, ok, value, bytes),
                Err(value) => write(whole, error, value, bytes),
            }
        }
        (DescribedType::Tuple(parts), Dynamic::List(values)) => {
            parts.iter().zip(values).for_each(|(one, value)| write(whole, one, value, bytes));
        }
        (DescribedType::Named(number), _) => match (&whole.types[*number].body, value) {
            (DescribedBody::Struct(all), Dynamic::List(values)) => fields(all, values, bytes),
            (DescribedBody::Enum(variants), Dynamic::Variant(number, values)) => {
                count(*number as usize, bytes);
                fields(&variants[*number as usize].fields, values, bytes);
            }
            (body, value) => panic!("{value:?} is not a value of {body:?}"),
        },
        (ty, value) => panic!("{value:?} is not a value of {ty:?}"),
    }
}

/// Returns the types of the parts of an array, a tuple or a struct.
fn parts_of<'a>(whole: &'a Described, ty: &'a DescribedType) -> Vec<&'a DescribedType> {
    match ty {
        DescribedType::Array(one, count) => vec![&**one; *count as usize],
        DescribedType::Tuple(parts) => parts.iter().collect(),
        DescribedType::Named(number) => match &whole.types[*number].body {
            DescribedBody::Struct(fields) => fields.iter().map(|field| &field.ty).collect(),
            body => panic!("{body:?} is not a struct"),
        },
        DescribedType::Unit => Vec::new(),
        ty => panic!("{ty:?} is not an array, tuple or struct"),
    }
}

/// Returns the size in bytes of a value whose parts all have fixed sizes.
pub(crate) fn bytes_without_gaps(whole: &Described, ty: &DescribedType) -> usize {
    match whole.plain_bytes(ty) {
        Some(bytes) => bytes as usize,
        None => parts_of(whole, ty).iter().map(|part| bytes_without_gaps(whole, part)).sum(),
    }
}

/// Appends a plain value without padding.
pub(crate) fn pack(whole: &Described, ty: &DescribedType, value: &Dynamic, bytes: &mut Vec<u8>) {
    match (ty, value) {
        (_, Dynamic::Plain(block)) => bytes.extend(block),
        (DescribedType::Array(one, _), Dynamic::List(values)) => {
            values.iter().for_each(|value| pack(whole, one, value, bytes));
        }
        (DescribedType::Named(number), _) => match (&whole.types[*number].body, value) {
            (DescribedBody::Plain { fields, .. }, Dynamic::List(values)) => {
                let parts = fields.iter().zip(values);
                parts.for_each(|(one, value)| pack(whole, &one.ty, value, bytes));
            }
            (DescribedBody::PlainEnum { repr, .. }, value) => pack(whole, repr, value, bytes),
            (body, value) => panic!("{value:?} is not a value of {body:?}"),
        },
        (_, Dynamic::Bool(value)) => bytes.push((*value).into()),
        (_, Dynamic::Char(value)) => bytes.extend(u32::from(*value).to_le_bytes()),
        (_, Dynamic::F32(value)) => bytes.extend(value.to_le_bytes()),
        (_, Dynamic::F64(value)) => bytes.extend(value.to_le_bytes()),
        (ty, value) => {
            let all = bits(value).unwrap_or_else(|| panic!("{value:?} is not a value of {ty:?}"));
            let size = Described {
                name: String::new(),
                version: 0,
                docs: String::new(),
                procedures: Vec::new(),
                types: Vec::new(),
                programs: Vec::new(),
            };
            let size = size.plain_bytes(ty).expect("a number");
            bytes.extend(&all.to_le_bytes()[..size as usize]);
        }
    }
}
