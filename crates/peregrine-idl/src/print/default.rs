//! Prints a default as a Rust expression. The default is given as bytes, and `crate::default` evaluates the
//! expression to the same bytes.

use core::cell::RefCell;
use std::collections::HashMap;

use peregrine::interface::{Described, DescribedBody, DescribedField, DescribedType};

use super::name;
use crate::library::{self, Constructor};

/// How the expression of a default refers to named types.
pub(super) struct Types<'a> {
    /// Returns the path of the named type with this number.
    pub(super) path: &'a dyn Fn(usize) -> String,
    /// Returns whether the first named type contains the second named type in a box.
    pub(super) is_boxed: &'a dyn Fn(usize, usize) -> bool,
    /// The variants of the plain enums that have been printed.
    pub(super) choices: &'a Choices,
}

/// For each plain enum that has been printed, a table that maps discriminants to indices of variants. A
/// default may contain thousands of values of an enum with many variants. The table avoids a search through
/// the variants for each value.
pub(super) type Choices = RefCell<HashMap<usize, HashMap<u128, usize>>>;

/// Returns the expression for a default of the type `ty`. If the default belongs to a field, `within` is the
/// named type that contains the field. If it belongs to a parameter of a method, `within` is `None`.
///
/// `bytes` is a valid value of `ty`, because the description was checked when it was read.
pub(super) fn expression(
    described: &Described,
    ty: &DescribedType,
    bytes: &[u8],
    types: &Types<'_>,
    within: Option<usize>,
) -> String {
    Reader { described, bytes, at: 0, types, within }.value(ty)
}

/// The largest number of elements of 0 bytes that are printed one by one. A longer list of such elements is
/// printed as `value; count`.
const ALIKE_MAX: u64 = 64;

struct Reader<'a> {
    described: &'a Described,
    bytes: &'a [u8],
    at: usize,
    types: &'a Types<'a>,
    /// The named type whose fields are being read.
    within: Option<usize>,
}

impl<'a> Reader<'a> {
    fn take(&mut self, align: usize, count: usize) -> &'a [u8] {
        let at = self.at.next_multiple_of(align.max(1));
        self.at = at + count;
        self.bytes.get(at..at + count).unwrap_or(&[])
    }

    /// Reads an unsigned integer of `bytes` bytes.
    fn number(&mut self, bytes: usize) -> u128 {
        let mut all = [0; 16];
        let taken = self.take(bytes, bytes);
        all[..taken.len()].copy_from_slice(taken);
        u128::from_le_bytes(all)
    }

    /// Returns the text that is printed between the brackets of an array or a sequence with `count` elements.
    /// `one` reads an element, and returns its expression.
    fn values(&mut self, count: u64, mut one: impl FnMut(&mut Self) -> String) -> String {
        let at = self.at;
        let mut all = Vec::new();
        for place in 0..count {
            all.push(one(self));
            if place == 0 && self.at == at && count > ALIKE_MAX {
                // The elements take no bytes, so they are all equal.
                return format!("{}; {count}", all.concat());
            }
        }
        all.join(", ")
    }

    fn value(&mut self, ty: &DescribedType) -> String {
        match ty {
            DescribedType::Unit => "()".into(),
            DescribedType::Text => {
                let count = self.number(4) as usize;
                format!("{:?}.to_owned()", String::from_utf8_lossy(self.take(1, count)))
            }
            DescribedType::Array(one, count) => {
                format!("[{}]", self.values(*count, |reader| reader.value(one)))
            }
            DescribedType::Sequence(one) => {
                let count = self.number(4) as u64;
                let values = self.values(count, |reader| match &**one {
                    // The elements need no box, because the size of a `Vec` does not depend on them.
                    DescribedType::Named(number) => reader.named(*number),
                    one => reader.value(one),
                });
                format!("vec![{values}]")
            }
            DescribedType::Option(one) => match self.number(1) {
                0 => "None".into(),
                _ => format!("Some({})", self.value(one)),
            },
            DescribedType::Result(ok, error) => match self.number(1) {
                0 => format!("Ok({})", self.value(ok)),
                _ => format!("Err({})", self.value(error)),
            },
            DescribedType::Tuple(parts) => {
                let all: Vec<_> = parts.iter().map(|part| self.value(part)).collect();
                format!("({}{})", all.join(", "), if all.len() == 1 { "," } else { "" })
            }
            DescribedType::Named(number) => {
                let value = self.named(*number);
                let is_boxed =
                    self.within.is_some_and(|whole| (self.types.is_boxed)(whole, *number));
                if is_boxed { format!("Box::new({value})") } else { value }
            }
            simple => self.simple(simple),
        }
    }

    fn named(&mut self, number: usize) -> String {
        let described = self.described;
        let Some(named) = described.types.get(number) else { return "()".into() };
        let path = (self.types.path)(number);
        match &named.body {
            DescribedBody::Struct(fields) => {
                let constructor = library::constructor_of(described, named);
                if constructor == Some(Constructor::FromText) {
                    let before = self.at;
                    let count = self.number(4) as usize;
                    match core::str::from_utf8(self.take(1, count)) {
                        Ok(text) => return format!("{path}::from({text:?})"),
                        // The code below prints bytes that are not valid UTF-8 as the field of the struct.
                        Err(_) => self.at = before,
                    }
                }
                let values = self.fields(number, fields);
                match constructor {
                    Some(Constructor::New) => format!("{path}::new({})", values.join(", ")),
                    Some(Constructor::From) => format!("{path}::from({})", values.join(", ")),
                    _ if fields.is_empty() => format!("{path} {{}}"),
                    _ => format!("{path}{}", written(fields, &values)),
                }
            }
            DescribedBody::Plain { size, align, fields } => {
                let bytes = self.take(*align as usize, *size as usize);
                let mut at = 0;
                let mut all = Vec::new();
                for field in fields {
                    let size = described.plain_bytes(&field.ty).unwrap_or(0) as usize;
                    let bytes = bytes.get(at..at + size).unwrap_or(&[]);
                    all.push(expression(described, &field.ty, bytes, self.types, Some(number)));
                    at += size;
                }
                format!("{path}{}", written(fields, &all))
            }
            DescribedBody::PlainEnum { repr, variants } => {
                let size = described.plain_bytes(repr).unwrap_or(1) as usize;
                let value = self.number(size);
                let mut choices = self.types.choices.borrow_mut();
                let known = choices.entry(number).or_insert_with(|| {
                    // A key contains only as many bits as the integer of the enum. If several variants have
                    // the same discriminant, the first of them is used.
                    let bits = |one: i128| one as u128 & (u128::MAX >> (128 - 8 * size.min(16)));
                    let all = variants.iter().enumerate().rev();
                    all.map(|(place, one)| (bits(one.value), place)).collect()
                });
                let variant = known.get(&value).map(|place| name(&variants[*place].name));
                format!("{path}::{}", variant.unwrap_or_default())
            }
            DescribedBody::Enum(variants) => {
                let place = self.number(4) as usize;
                match variants.get(place) {
                    Some(one) => {
                        let values = self.fields(number, &one.fields);
                        format!("{path}::{}{}", name(&one.name), written(&one.fields, &values))
                    }
                    None => path,
                }
            }
            _ => path,
        }
    }

    /// Returns the expressions of the fields of the named type `whole`.
    fn fields(&mut self, whole: usize, fields: &[DescribedField]) -> Vec<String> {
        let before = self.within.replace(whole);
        let all = fields.iter().map(|field| self.value(&field.ty)).collect();
        self.within = before;
        all
    }

    fn simple(&mut self, ty: &DescribedType) -> String {
        let bytes = self.described.plain_bytes(ty).unwrap_or(1) as usize;
        let value = self.number(bytes);
        let shift = 128 - 8 * bytes as u32;
        match ty {
            DescribedType::Bool => (value != 0).to_string(),
            DescribedType::Char => {
                format!("{:?}", char::from_u32(value as u32).unwrap_or_default())
            }
            DescribedType::F32 => {
                let float = f32::from_bits(value as u32);
                float_of(
                    "f32",
                    f64::from(float),
                    format!("{float:?}"),
                    value,
                    f32::NAN.to_bits().into(),
                )
            }
            DescribedType::F64 => {
                let float = f64::from_bits(value as u64);
                float_of("f64", float, format!("{float:?}"), value, f64::NAN.to_bits().into())
            }
            DescribedType::I8
            | DescribedType::I16
            | DescribedType::I32
            | DescribedType::I64
            | DescribedType::I128 => (((value << shift) as i128) >> shift).to_string(),
            _ => value.to_string(),
        }
    }
}

/// Returns the expression for a float. A finite float is a literal, and an infinity is a constant of its
/// type. A NaN is a constant if its bits are `nan`. Otherwise it is a call of `from_bits`.
fn float_of(ty: &str, value: f64, literal: String, bits: u128, nan: u128) -> String {
    match value {
        _ if value.is_finite() => literal,
        f64::INFINITY => format!("{ty}::INFINITY"),
        f64::NEG_INFINITY => format!("{ty}::NEG_INFINITY"),
        _ if bits == nan => format!("{ty}::NAN"),
        _ => format!("{ty}::from_bits({bits:#x})"),
    }
}

/// Returns the text that follows the name of a struct or a variant. `all` contains the expressions of its
/// fields.
fn written(fields: &[DescribedField], all: &[String]) -> String {
    if all.is_empty() {
        return String::new();
    }
    if super::numbered(fields) {
        return format!("({})", all.join(", "));
    }
    let pairs =
        fields.iter().zip(all).map(|(field, value)| format!("{}: {value}", name(&field.name)));
    format!(" {{ {} }}", pairs.collect::<Vec<_>>().join(", "))
}
