//! Converts values of a described type to JSON.

use core::cell::{Cell, RefCell};
use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::from::numbered;
use crate::interface::{
    Described, DescribedBody, DescribedField, DescribedParameter, DescribedPlainVariant,
    DescribedType, Shape,
};
use crate::limits;
use crate::value::Dynamic;

/// How bytes (sequences, arrays and buffers of `u8`) are converted to JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bytes {
    /// A string, if the bytes are text without control characters other than tabs and line ends. Otherwise
    /// `{"hex": "..."}`.
    #[default]
    Auto,
    /// A string, in which a replacement character replaces each invalid part.
    Text,
    /// `{"hex": "..."}`.
    Hex,
    /// An array of numbers.
    Array,
}

impl Described {
    /// Converts a value of the type `ty` to JSON. A part of the value that does not fit its type becomes
    /// `null`.
    ///
    /// ```
    /// use peregrine::interface::{Described, DescribedType};
    /// use peregrine::{Dynamic, json::Bytes};
    ///
    /// let all = Described::parse("interface I version 0\n")?;
    /// let ty = DescribedType::Sequence(Box::new(DescribedType::U8));
    /// let json = |bytes: &[u8]| all.value_to_json(&ty, &Dynamic::plain(bytes), Bytes::Auto);
    /// assert_eq!(json(b"falcon"), "falcon");
    /// assert_eq!(json(&[1, 255]), serde_json::json!({ "hex": "01ff" }));
    /// # Ok::<(), peregrine::interface::TextError>(())
    /// ```
    pub fn value_to_json(&self, ty: &DescribedType, value: &Dynamic, bytes: Bytes) -> Value {
        To::new(self, bytes, usize::MAX).value(ty, value, 0)
    }

    /// As [`value_to_json`](Self::value_to_json), unless the text of the JSON surely has more than `most`
    /// bytes. The conversion then ends early and returns `None`, so that its memory depends on `most`, and not
    /// on the size of the value. The text of the returned JSON may still be longer than `most`.
    ///
    /// ```
    /// use peregrine::interface::{Described, DescribedType};
    /// use peregrine::{Dynamic, json::Bytes};
    ///
    /// let all = Described::parse("interface I version 0\n")?;
    /// let (ty, text) = (DescribedType::Text, Dynamic::Text("falcon".to_owned()));
    /// assert!(all.value_to_json_within(&ty, &text, Bytes::Auto, 8).is_some());
    /// assert!(all.value_to_json_within(&ty, &text, Bytes::Auto, 7).is_none());
    /// # Ok::<(), peregrine::interface::TextError>(())
    /// ```
    pub fn value_to_json_within(
        &self,
        ty: &DescribedType,
        value: &Dynamic,
        bytes: Bytes,
        most: usize,
    ) -> Option<Value> {
        let to = To::new(self, bytes, most);
        let json = to.value(ty, value, 0);
        to.left.get().map(|_| json)
    }

    /// Returns the JSON of a value, unless its text surely has more bytes than `left`. Otherwise, the text is
    /// subtracted from `left`.
    pub(super) fn value_within(
        &self,
        ty: &DescribedType,
        value: &Dynamic,
        left: &mut usize,
    ) -> Option<Value> {
        let to = To::new(self, Bytes::Auto, *left);
        let json = to.value(ty, value, 0);
        *left = to.left.get()?;
        Some(json)
    }

    /// Converts to JSON a parameter that the procedure returned. If the parameter is a buffer, `value`
    /// contains its elements as [`Plain`](Dynamic::Plain).
    pub fn argument_to_json(
        &self,
        parameter: &DescribedParameter,
        value: &Dynamic,
        bytes: Bytes,
    ) -> Value {
        To::new(self, bytes, usize::MAX).argument(parameter, value)
    }

    /// As [`value_within`](Self::value_within), for a parameter that the procedure returned.
    pub(super) fn argument_within(
        &self,
        parameter: &DescribedParameter,
        value: &Dynamic,
        left: &mut usize,
    ) -> Option<Value> {
        let to = To::new(self, Bytes::Auto, *left);
        let json = to.argument(parameter, value);
        *left = to.left.get()?;
        Some(json)
    }
}

/// The maximum number of values without bytes that are written to the JSON. Without this limit, a few nested
/// types could make the JSON arbitrarily long.
const UNITS_MAX: u32 = 64;
/// The maximum number of variants of an enum that is searched without a table.
const FEW: usize = 32;

struct To<'a> {
    all: &'a Described,
    bytes: Bytes,
    units: Cell<u32>,
    /// How many bytes the text of the JSON may still have. `None`: it has too many. This never counts more
    /// bytes than the text has, so that nothing is refused that would fit.
    left: Cell<Option<usize>>,
    /// For each plain enum with more than [`FEW`] variants, a table that maps discriminants to the indices of
    /// variants. The key is the number of the type.
    choices: RefCell<HashMap<usize, HashMap<i128, usize>>>,
}

impl<'a> To<'a> {
    fn new(all: &'a Described, bytes: Bytes, most: usize) -> Self {
        let (units, left) = (Cell::new(0), Cell::new(Some(most)));
        Self { all, bytes, units, left, choices: RefCell::default() }
    }

    /// Counts bytes of the text of the JSON.
    fn count(&self, bytes: usize) {
        self.left.set(self.left.get().and_then(|left| left.checked_sub(bytes)));
    }

    /// Returns whether the text of the JSON is known to be too long.
    const fn is_over(&self) -> bool {
        self.left.get().is_none()
    }

    fn argument(&self, parameter: &DescribedParameter, value: &Dynamic) -> Value {
        match parameter.shape {
            Shape::One => self.value(&parameter.ty, value, 0),
            Shape::Text => self.value(&DescribedType::Text, value, 0),
            Shape::Buffer => self.sequence(&parameter.ty, value, 0),
        }
    }

    fn value(&self, ty: &DescribedType, value: &Dynamic, depth: u32) -> Value {
        if depth > limits::INTERPRETED_DEPTH_MAX || self.is_over() {
            return Value::Null;
        }
        let depth = depth + 1;
        if matches!(value, Dynamic::Unit) {
            self.units.set(self.units.get() + 1);
            if self.units.get() > UNITS_MAX {
                return Value::Null;
            }
        }
        match (ty, value) {
            (_, Dynamic::Bool(value)) => self.counted(4, || json!(value)),
            (_, Dynamic::Char(letter)) => self.counted(3, || json!(letter.to_string())),
            (_, Dynamic::F32(value)) => {
                self.counted(1, || float(f64::from(*value), || value.to_string()))
            }
            (_, Dynamic::F64(value)) => self.counted(1, || float(*value, || value.to_string())),
            (_, Dynamic::Text(text)) => self.counted(text.len() + 2, || json!(text)),
            (DescribedType::Sequence(one) | DescribedType::Array(one, _), value) => {
                self.sequence(one, value, depth)
            }
            // The bytes of a plain value are split into the parts of the value.
            (ty, Dynamic::Plain(bytes)) => self.plain(ty, &mut &bytes[..]),
            (DescribedType::Option(one), Dynamic::Option(value)) => match value {
                None => self.counted(4, || Value::Null),
                Some(value) => {
                    let inner = self.value(one, value, depth);
                    if self.all.may_be_null(one) { json!({ "some": inner }) } else { inner }
                }
            },
            (DescribedType::Result(ok, err), Dynamic::Result(value)) => match value {
                Ok(value) => self.counted(7, || json!({ "ok": self.value(ok, value, depth) })),
                Err(value) => self.counted(8, || json!({ "err": self.value(err, value, depth) })),
            },
            (DescribedType::Tuple(parts), Dynamic::List(values)) => {
                self.count(parts.len().min(values.len()) + 1);
                parts.iter().zip(values).map(|(ty, value)| self.value(ty, value, depth)).collect()
            }
            (DescribedType::Named(number), value) => {
                match (self.all.types.get(*number).map(|one| &one.body), value) {
                    (
                        Some(DescribedBody::Plain { fields, .. } | DescribedBody::Struct(fields)),
                        Dynamic::List(values),
                    ) => self.fields(fields, values, depth),
                    (Some(DescribedBody::Struct(fields)), Dynamic::Unit) => {
                        self.fields(fields, &vec![Dynamic::Unit; fields.len()], depth)
                    }
                    (Some(DescribedBody::PlainEnum { variants, .. }), value) => {
                        self.choice(*number, variants, integer(value))
                    }
                    (Some(DescribedBody::Enum(variants)), Dynamic::Variant(number, values)) => {
                        let Some(variant) = variants.get(*number as usize) else {
                            return Value::Null;
                        };
                        self.count(variant.name.len() + 2);
                        if variant.fields.is_empty() {
                            return json!(variant.name);
                        }
                        let units;
                        let values = match values.is_empty() {
                            true => {
                                units = vec![Dynamic::Unit; variant.fields.len()];
                                &units
                            }
                            false => values,
                        };
                        let inner = self.fields(&variant.fields, values, depth);
                        Value::Object(Map::from_iter([(variant.name.clone(), inner)]))
                    }
                    _ => Value::Null,
                }
            }
            (_, value) => self.counted(1, || integer(value)),
        }
    }

    /// Counts bytes of the text. Returns the JSON, or null if the text has become too long.
    fn counted(&self, bytes: usize, json: impl FnOnce() -> Value) -> Value {
        self.count(bytes);
        if self.is_over() { Value::Null } else { json() }
    }

    /// Counts what the text of these fields has beside the values.
    fn count_fields(&self, fields: &[DescribedField]) {
        match fields {
            [one] if one.name == "0" => {}
            fields if numbered(fields) => self.count(fields.len() + 1),
            fields => self.count(fields.iter().map(|one| one.name.len() + 4).sum::<usize>() + 1),
        }
    }

    fn fields(&self, fields: &[DescribedField], values: &[Dynamic], depth: u32) -> Value {
        self.count_fields(&fields[..fields.len().min(values.len())]);
        let all = fields.iter().zip(values);
        shaped(fields, all.map(|(field, value)| self.value(&field.ty, value, depth)))
    }

    fn sequence(&self, one: &DescribedType, value: &Dynamic, depth: u32) -> Value {
        match value {
            Dynamic::Plain(bytes) if *one == DescribedType::U8 => self.bytes(bytes),
            Dynamic::Plain(bytes) => {
                let (mut rest, mut values) = (&bytes[..], Vec::new());
                while !rest.is_empty() && !self.is_over() {
                    self.count(1);
                    let before = rest.len();
                    values.push(self.plain(one, &mut rest));
                    if rest.len() == before {
                        break;
                    }
                }
                Value::Array(values)
            }
            Dynamic::List(values) => {
                let fitting = values.iter().take_while(|_| {
                    self.count(1);
                    !self.is_over()
                });
                fitting.map(|value| self.value(one, value, depth)).collect()
            }
            // For more than 64 values without bytes, only their number is written.
            Dynamic::Units(count) if *count > 64 => json!({ "count": count }),
            Dynamic::Units(count) => {
                (0..*count).map(|_| self.value(one, &Dynamic::Unit, depth)).collect()
            }
            _ => Value::Null,
        }
    }

    fn bytes(&self, bytes: &[u8]) -> Value {
        let hex =
            || json!({ "hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() });
        let is_text =
            |text: &&str| text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'));
        match self.bytes {
            Bytes::Auto => match core::str::from_utf8(bytes).ok().filter(is_text) {
                Some(text) => self.counted(text.len() + 2, || json!(text)),
                None => self.counted(2 * bytes.len() + 10, hex),
            },
            Bytes::Text => self.counted(bytes.len() + 2, || json!(String::from_utf8_lossy(bytes))),
            Bytes::Hex => self.counted(2 * bytes.len() + 10, hex),
            Bytes::Array => self.counted(2 * bytes.len() + 1, || json!(bytes)),
        }
    }

    /// Converts the value at the start of `rest` to JSON, and removes it from `rest`. `rest` is the unread
    /// part of a block. In a block, there are no gaps between the parts of a plain value.
    fn plain(&self, ty: &DescribedType, rest: &mut &[u8]) -> Value {
        fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
            let (first, behind) = rest.split_first_chunk::<N>()?;
            *rest = behind;
            Some(*first)
        }
        macro_rules! number {
            ($ty:ty, $variant:ident) => {
                match take(rest) {
                    Some(bytes) => {
                        self.value(ty, &Dynamic::$variant(<$ty>::from_ne_bytes(bytes)), 0)
                    }
                    None => Value::Null,
                }
            };
        }
        match ty {
            DescribedType::Bool => {
                self.count(4);
                take::<1>(rest).map_or(Value::Null, |[byte]| json!(byte != 0))
            }
            DescribedType::Char => {
                self.count(3);
                let letter = take(rest).and_then(|bytes| char::from_u32(u32::from_ne_bytes(bytes)));
                letter.map_or(Value::Null, |letter| json!(letter.to_string()))
            }
            DescribedType::U8 => number!(u8, U8),
            DescribedType::U16 => number!(u16, U16),
            DescribedType::U32 => number!(u32, U32),
            DescribedType::U64 => number!(u64, U64),
            DescribedType::U128 => number!(u128, U128),
            DescribedType::I8 => number!(i8, I8),
            DescribedType::I16 => number!(i16, I16),
            DescribedType::I32 => number!(i32, I32),
            DescribedType::I64 => number!(i64, I64),
            DescribedType::I128 => number!(i128, I128),
            DescribedType::F32 => number!(f32, F32),
            DescribedType::F64 => number!(f64, F64),
            DescribedType::Array(one, count) if **one == DescribedType::U8 => {
                let count = usize::try_from(*count).unwrap_or(usize::MAX).min(rest.len());
                let (bytes, behind) = rest.split_at(count);
                *rest = behind;
                self.bytes(bytes)
            }
            DescribedType::Array(one, count) => {
                let mut values = Vec::new();
                for _ in 0..*count {
                    self.count(1);
                    if self.is_over() {
                        break;
                    }
                    let before = rest.len();
                    values.push(self.plain(one, rest));
                    // If the elements take no bytes, the array may have any number of them. So only the first
                    // element is written.
                    if rest.len() == before {
                        break;
                    }
                }
                Value::Array(values)
            }
            DescribedType::Tuple(parts) => {
                self.count(parts.len() + 1);
                parts.iter().map(|part| self.plain(part, rest)).collect()
            }
            DescribedType::Named(number) => {
                match self.all.types.get(*number).map(|one| &one.body) {
                    Some(DescribedBody::Plain { fields, .. } | DescribedBody::Struct(fields)) => {
                        self.count_fields(fields);
                        let values: Vec<Value> =
                            fields.iter().map(|field| self.plain(&field.ty, rest)).collect();
                        shaped(fields, values.into_iter())
                    }
                    Some(DescribedBody::PlainEnum { repr, variants }) => {
                        self.choice(*number, variants, self.plain(repr, rest))
                    }
                    _ => Value::Null,
                }
            }
            _ => Value::Null,
        }
    }

    /// Returns the name of the variant with this discriminant. If no variant has it, returns the
    /// discriminant.
    fn choice(&self, ty: usize, variants: &[DescribedPlainVariant], number: Value) -> Value {
        let value = match &number {
            Value::Number(number) => {
                number.as_i64().map(i128::from).or(number.as_u64().map(i128::from))
            }
            Value::String(digits) => digits.parse().ok(),
            _ => None,
        };
        let Some(value) = value else { return number };
        let place = match variants.len() {
            ..=FEW => variants.iter().position(|one| one.value == value),
            _ => {
                let mut choices = self.choices.borrow_mut();
                let known = choices.entry(ty).or_insert_with(|| {
                    // The order is reversed. If several variants have the same discriminant, the table
                    // therefore contains the first of them.
                    variants.iter().enumerate().rev().map(|(i, one)| (one.value, i)).collect()
                });
                known.get(&value).copied()
            }
        };
        place.map_or(number, |place| json!(variants[place].name))
    }
}

/// Returns the values of fields as JSON: as an object, as an array, or, if there is only one numbered field,
/// as its value.
fn shaped(fields: &[DescribedField], mut values: impl Iterator<Item = Value>) -> Value {
    match fields {
        [] => json!({}),
        [one] if one.name == "0" => values.next().unwrap_or_default(),
        fields if numbered(fields) => values.collect(),
        fields => {
            let names = fields.iter().map(|field| field.name.clone());
            Value::Object(names.zip(values).collect())
        }
    }
}

/// Converts a float to JSON. A finite float becomes a number. Other floats become text, because JSON has only
/// finite numbers.
fn float(value: f64, text: impl Fn() -> String) -> Value {
    // An `f32` is written with as few digits as are necessary to identify it.
    let short = text().parse::<f64>().unwrap_or(value);
    serde_json::Number::from_f64(short).map_or_else(|| json!(text()), Value::Number)
}

fn integer(value: &Dynamic) -> Value {
    let wide = |digits: String| json!(digits);
    match *value {
        Dynamic::U8(value) => json!(value),
        Dynamic::U16(value) => json!(value),
        Dynamic::U32(value) => json!(value),
        Dynamic::U64(value) => json!(value),
        Dynamic::I8(value) => json!(value),
        Dynamic::I16(value) => json!(value),
        Dynamic::I32(value) => json!(value),
        Dynamic::I64(value) => json!(value),
        Dynamic::U128(value) => {
            u64::try_from(value).map_or_else(|_| wide(value.to_string()), |one| json!(one))
        }
        Dynamic::I128(value) => {
            i64::try_from(value).map_or_else(|_| wide(value.to_string()), |one| json!(one))
        }
        _ => Value::Null,
    }
}
