//! Converts JSON to values of a described type.

use serde_json::{Map, Value};

use super::kind;
use crate::interface::{
    Described, DescribedBody, DescribedField, DescribedParameter, DescribedType, Shape,
};
use crate::limits;
use crate::stub::Unfit;
use crate::value::Dynamic;
use crate::value::default_value;

type Read<T> = Result<T, Unfit>;

/// The maximum number of types that are examined to find out whether the JSON of a value may be `null`.
const LOOKS_MAX: u32 = 64;

impl Described {
    /// Converts JSON to an argument for a parameter. The parameter is sent with the call, and may also be
    /// returned.
    ///
    /// ```
    /// use peregrine::{Dynamic, interface::Described};
    /// use serde_json::json;
    ///
    /// let text = "interface Sum version 0\nsum(in values: [u16]) -> u64 or text\n";
    /// let sum = Described::parse(text)?;
    /// let parameter = &sum.procedures[0].parameters[0];
    /// let values = sum.argument_from_json(parameter, &json!([1, 2]))?;
    /// assert_eq!(values, Dynamic::List(vec![Dynamic::U16(1), Dynamic::U16(2)]));
    /// let error = sum.argument_from_json(parameter, &json!([1, 70_000])).unwrap_err();
    /// assert_eq!(error.to_string(), "values[1]: expected u16, got 70000");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the JSON is not a value of the parameter's type. The error names the place of the fault.
    pub fn argument_from_json(
        &self,
        parameter: &DescribedParameter,
        json: &Value,
    ) -> Result<Dynamic, Unfit> {
        let value = match parameter.shape {
            Shape::One => self.value_from_json(&parameter.ty, json),
            Shape::Text => self.value_from_json(&DescribedType::Text, json),
            Shape::Buffer => self.sequence(&parameter.ty, json, None, 0),
        };
        value.map_err(|unfit| unfit.of(&parameter.name))
    }

    /// Returns the default of a parameter for which the caller gives no argument: the declared default, or
    /// the empty option if the parameter is an option without a declared default. Returns `None` if the
    /// parameter has no default.
    pub fn default_argument(&self, parameter: &DescribedParameter) -> Option<Dynamic> {
        let bytes = self.parameter_default(parameter)?;
        match parameter.shape {
            Shape::One => default_value(self, &parameter.ty, bytes),
            Shape::Text => Some(Dynamic::Text(String::new())),
            Shape::Buffer => Some(Dynamic::List(Vec::new())),
        }
    }

    /// Converts JSON to a value of the type `ty`.
    ///
    /// # Errors
    /// Fails if the JSON is not a value of the type. The error names the place of the fault.
    pub fn value_from_json(&self, ty: &DescribedType, json: &Value) -> Result<Dynamic, Unfit> {
        self.value(ty, json, 0)
    }

    fn value(&self, ty: &DescribedType, json: &Value, depth: u32) -> Read<Dynamic> {
        // The JSON of a struct with one numbered field is the JSON of that field. So a type can be nested
        // more deeply than its JSON. The nesting of the type is therefore limited here.
        if depth > limits::INTERPRETED_DEPTH_MAX / 4 {
            return Err(Unfit::new("it is nested too deeply"));
        }
        let depth = depth + 1;
        if json.is_null() && !matches!(ty, DescribedType::Unit) && self.is_nothing(ty) {
            return Ok(Dynamic::Unit);
        }
        match ty {
            DescribedType::Unit => match json {
                Value::Null => Ok(Dynamic::Unit),
                other => Err(Unfit::expected("null", kind(other))),
            },
            DescribedType::Bool => match json {
                Value::Bool(value) => Ok(Dynamic::Bool(*value)),
                other => Err(Unfit::expected("bool", kind(other))),
            },
            DescribedType::Char => {
                let text = json.as_str().ok_or_else(|| Unfit::expected("a letter", kind(json)))?;
                let mut letters = text.chars();
                match (letters.next(), letters.next()) {
                    (Some(letter), None) => Ok(Dynamic::Char(letter)),
                    _ => Err(Unfit::expected("one letter", &format!("{}", text.chars().count()))),
                }
            }
            DescribedType::Text => match json {
                Value::String(text) => Ok(Dynamic::Text(text.clone())),
                other => Err(Unfit::expected("string", kind(other))),
            },
            DescribedType::F32 => single_float(json),
            DescribedType::F64 => float(json, "f64").map(Dynamic::F64),
            DescribedType::Array(one, count) => self.sequence(one, json, Some(*count), depth),
            DescribedType::Sequence(one) => self.sequence(one, json, None, depth),
            DescribedType::Option(one) => self.option(one, json, depth),
            DescribedType::Result(ok, err) => {
                let (name, inner) = single(json).ok_or_else(|| either(json))?;
                let inner = |ty| self.value(ty, inner, depth).map_err(|unfit| unfit.of(name));
                match name {
                    "ok" => Ok(Dynamic::Result(Ok(Box::new(inner(ok)?)))),
                    "err" => Ok(Dynamic::Result(Err(Box::new(inner(err)?)))),
                    _ => Err(either(json)),
                }
            }
            DescribedType::Tuple(parts) => {
                let values = array(json)?;
                if values.len() != parts.len() {
                    let wanted = format!("{} values", parts.len());
                    return Err(Unfit::expected(&wanted, &values.len().to_string()));
                }
                let part = |(i, (ty, value)): (usize, (&DescribedType, &Value))| {
                    self.value(ty, value, depth).map_err(|unfit| unfit.at(i))
                };
                let parts = parts.iter().zip(values).enumerate().map(part);
                Ok(Dynamic::List(parts.collect::<Read<_>>()?))
            }
            DescribedType::Named(number) => match self.types.get(*number).map(|one| &one.body) {
                Some(body) => self.named(body, json, depth),
                None => Err(Unfit::new("its type is described nowhere")),
            },
            integer => integer_of(integer, json),
        }
    }

    fn sequence(
        &self,
        one: &DescribedType,
        json: &Value,
        count: Option<u64>,
        depth: u32,
    ) -> Read<Dynamic> {
        let fits = |found: usize| match count {
            Some(count) if found as u64 != count => {
                Err(Unfit::expected(&format!("{count} values"), &found.to_string()))
            }
            _ => Ok(()),
        };
        if *one == DescribedType::U8
            && let Some(bytes) = bytes(json)?
        {
            fits(bytes.len())?;
            return Ok(Dynamic::Plain(bytes));
        }
        if let Some(("count", Value::Number(number))) = single(json)
            && self.is_nothing(one)
            && let Some(number) = number.as_u64().and_then(|number| u32::try_from(number).ok())
        {
            return Ok(Dynamic::Units(number));
        }
        let values = array(json)?;
        fits(values.len())?;
        let value = |(i, value)| self.value(one, value, depth).map_err(|unfit| unfit.at(i));
        Ok(Dynamic::List(values.iter().enumerate().map(value).collect::<Read<_>>()?))
    }

    fn option(&self, one: &DescribedType, json: &Value, depth: u32) -> Read<Dynamic> {
        if json.is_null() {
            return Ok(Dynamic::Option(None));
        }
        let inner = match single(json) {
            Some(("some", inner)) if self.may_be_null(one) => inner,
            _ if self.may_be_null(one) => {
                return Err(Unfit::expected("null or {\"some\": ...}", kind(json)));
            }
            _ => json,
        };
        Ok(Dynamic::Option(Some(Box::new(self.value(one, inner, depth)?))))
    }

    /// Returns whether `null` can be the JSON of a value of this type.
    pub(super) fn may_be_null<'a>(&'a self, mut ty: &'a DescribedType) -> bool {
        for _ in 0..LOOKS_MAX {
            ty = match ty {
                DescribedType::Unit | DescribedType::Option(_) => return true,
                DescribedType::Named(number) => {
                    match self.types.get(*number).map(|one| &one.body) {
                        // The JSON of a struct with one numbered field is the JSON of that field.
                        Some(
                            DescribedBody::Struct(fields) | DescribedBody::Plain { fields, .. },
                        ) if fields.len() == 1 && numbered(fields) => &fields[0].ty,
                        _ => return self.is_nothing(ty),
                    }
                }
                _ => return self.is_nothing(ty),
            };
        }
        // Either the structs are nested too deeply for this search, or a struct contains itself.
        true
    }

    /// Returns whether values of the type take no bytes. Such values may be `null` in JSON. The search is
    /// limited, so the function may return false for such a type.
    pub(super) fn is_nothing(&self, ty: &DescribedType) -> bool {
        fn look(all: &Described, ty: &DescribedType, looks: &mut u32) -> bool {
            *looks += 1;
            if *looks > LOOKS_MAX {
                return false;
            }
            match ty {
                DescribedType::Unit | DescribedType::Array(_, 0) => true,
                DescribedType::Array(one, _) => look(all, one, looks),
                DescribedType::Tuple(parts) => parts.iter().all(|one| look(all, one, looks)),
                DescribedType::Named(number) => match all.types.get(*number).map(|one| &one.body) {
                    Some(DescribedBody::Struct(fields)) => {
                        fields.iter().all(|field| look(all, &field.ty, looks))
                    }
                    _ => false,
                },
                _ => false,
            }
        }
        look(self, ty, &mut 0)
    }

    fn named(&self, body: &DescribedBody, json: &Value, depth: u32) -> Read<Dynamic> {
        match body {
            DescribedBody::Plain { fields, .. } | DescribedBody::Struct(fields) => {
                Ok(Dynamic::List(self.fields(fields, json, depth)?))
            }
            DescribedBody::PlainEnum { repr, variants } => {
                if let Value::String(name) = json
                    && let Some(one) = variants.iter().find(|one| one.name == *name)
                {
                    return integer_of(repr, &Value::String(one.value.to_string()));
                }
                let number = integer_of(repr, json)
                    .map_err(|_| unknown(json, variants.iter().map(|one| &*one.name)))?;
                Ok(number)
            }
            DescribedBody::Interface { .. } => Err(Unfit::new("an interface has no values")),
            DescribedBody::Enum(variants) => {
                let (name, inner) = match json {
                    Value::String(name) => (name.as_str(), None),
                    _ => {
                        let names = || variants.iter().map(|one| &*one.name);
                        let (name, inner) = single(json).ok_or_else(|| unknown(json, names()))?;
                        (name, Some(inner))
                    }
                };
                let names = variants.iter().map(|one| &*one.name);
                let found = variants.iter().position(|one| one.name == name);
                let number = found.ok_or_else(|| unknown(&Value::from(name), names))?;
                let fields = &variants[number].fields;
                let values = match inner {
                    Some(inner) => {
                        self.fields(fields, inner, depth).map_err(|unfit| unfit.of(name))?
                    }
                    None if fields.is_empty() => Vec::new(),
                    None => {
                        let wanted = format!("{{\"{name}\": ...}} because `{name}` has fields");
                        return Err(Unfit::expected(&wanted, "only its name"));
                    }
                };
                Ok(Dynamic::Variant(number as u32, values))
            }
        }
    }

    fn fields(&self, fields: &[DescribedField], json: &Value, depth: u32) -> Read<Vec<Dynamic>> {
        match fields {
            [] => match json {
                Value::Null => Ok(Vec::new()),
                Value::Object(all) => known(all, fields).map(|()| Vec::new()),
                other => Err(Unfit::expected("{}", kind(other))),
            },
            [one] if one.name == "0" => Ok(vec![self.value(&one.ty, json, depth)?]),
            fields if numbered(fields) => {
                let values = array(json)?;
                if values.len() != fields.len() {
                    let wanted = format!("{} values", fields.len());
                    return Err(Unfit::expected(&wanted, &values.len().to_string()));
                }
                let field = |(i, (field, value)): (usize, (&DescribedField, &Value))| {
                    self.value(&field.ty, value, depth).map_err(|unfit| unfit.at(i))
                };
                fields.iter().zip(values).enumerate().map(field).collect()
            }
            fields => {
                let all = json.as_object().ok_or_else(|| Unfit::expected("object", kind(json)))?;
                known(all, fields)?;
                let field = |field: &DescribedField| match (all.get(&field.name), &field.ty) {
                    (Some(value), ty) => {
                        self.value(ty, value, depth).map_err(|unfit| unfit.of(&field.name))
                    }
                    // The object may omit a field that has a default.
                    (None, ty) => self
                        .default_of(ty, &field.growth)
                        .and_then(|bytes| default_value(self, ty, bytes))
                        .ok_or_else(|| Unfit::new("it is missing").of(&field.name)),
                };
                fields.iter().map(field).collect()
            }
        }
    }
}

/// Returns whether the names of the fields are numbers, like those of a tuple.
pub(super) fn numbered(fields: &[DescribedField]) -> bool {
    fields.iter().enumerate().all(|(i, field)| field.name == i.to_string())
}

fn array(json: &Value) -> Read<&Vec<Value>> {
    json.as_array().ok_or_else(|| Unfit::expected("array", kind(json)))
}

/// If an object has exactly one member, returns the name and the value of this member.
fn single(json: &Value) -> Option<(&str, &Value)> {
    let all = json.as_object().filter(|all| all.len() == 1)?;
    all.iter().next().map(|(name, value)| (name.as_str(), value))
}

#[cold]
fn either(json: &Value) -> Unfit {
    Unfit::expected("{\"ok\": ...} or {\"err\": ...}", kind(json))
}

#[cold]
fn unknown<'a>(json: &Value, names: impl Iterator<Item = &'a str>) -> Unfit {
    let names: Vec<_> = names.take(32).map(|name| format!("`{name}`")).collect();
    let got = match json {
        Value::String(name) => format!("`{}`", name.escape_debug()),
        other => kind(other).to_owned(),
    };
    Unfit::expected(&format!("one of {}", names.join(", ")), &got)
}

fn known(all: &Map<String, Value>, fields: &[DescribedField]) -> Read<()> {
    match all.keys().find(|name| fields.iter().all(|field| field.name != **name)) {
        None => Ok(()),
        Some(name) => {
            let names: Vec<_> =
                fields.iter().take(32).map(|field| format!("`{}`", field.name)).collect();
            let there = if names.is_empty() { "none".into() } else { names.join(", ") };
            Err(Unfit::new(format!("there is no such field; there is {there}")).of(name))
        }
    }
}

/// Returns the bytes that a string, `{"hex": ...}` or `{"text": ...}` represents. Returns `None` for an
/// array.
fn bytes(json: &Value) -> Read<Option<Vec<u8>>> {
    match json {
        Value::String(text) => Ok(Some(text.clone().into_bytes())),
        Value::Array(_) => Ok(None),
        other => match single(other) {
            Some(("text", Value::String(text))) => Ok(Some(text.clone().into_bytes())),
            Some(("hex", Value::String(digits))) => match from_hex(digits) {
                Some(bytes) => Ok(Some(bytes)),
                None => {
                    Err(Unfit::expected("pairs of hexadecimal digits", "other letters").of("hex"))
                }
            },
            _ => Err(Unfit::expected("string, array or {\"hex\": ...}", kind(other))),
        },
    }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = digits
        .chars()
        .filter(|c| !c.is_ascii_whitespace())
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| (high * 16 + low) as u8).collect())
}

fn float(json: &Value, name: &str) -> Read<f64> {
    let said = match json {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    said.ok_or_else(|| Unfit::expected(name, &got(json)))
}

/// Parses an `f32` directly from the digits. Rounding the number to an `f64` first could change the result.
fn single_float(json: &Value) -> Read<Dynamic> {
    let value: Option<f32> = match json {
        Value::Number(number) => {
            number.to_string().parse().ok().filter(|one: &f32| one.is_finite())
        }
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    value.map(Dynamic::F32).ok_or_else(|| Unfit::expected("f32", &got(json)))
}

#[cold]
fn got(json: &Value) -> String {
    match json {
        Value::Number(number) => number.to_string(),
        Value::String(text) if text.len() < 40 => format!("{text:?}"),
        other => kind(other).to_owned(),
    }
}

fn integer_of(ty: &DescribedType, json: &Value) -> Read<Dynamic> {
    fn parsed<T>(json: &Value, name: &str) -> Read<T>
    where
        T: core::str::FromStr,
    {
        let digits = match json {
            Value::Number(number) => number.to_string(),
            Value::String(digits) => digits.clone(),
            other => return Err(Unfit::expected(name, kind(other))),
        };
        digits.parse().map_err(|_| Unfit::expected(name, &got(json)))
    }
    Ok(match ty {
        DescribedType::U8 => Dynamic::U8(parsed(json, "u8")?),
        DescribedType::U16 => Dynamic::U16(parsed(json, "u16")?),
        DescribedType::U32 => Dynamic::U32(parsed(json, "u32")?),
        DescribedType::U64 => Dynamic::U64(parsed(json, "u64")?),
        DescribedType::U128 => Dynamic::U128(parsed(json, "u128")?),
        DescribedType::I8 => Dynamic::I8(parsed(json, "i8")?),
        DescribedType::I16 => Dynamic::I16(parsed(json, "i16")?),
        DescribedType::I32 => Dynamic::I32(parsed(json, "i32")?),
        DescribedType::I64 => Dynamic::I64(parsed(json, "i64")?),
        DescribedType::I128 => Dynamic::I128(parsed(json, "i128")?),
        _ => return Err(Unfit::new("its type is unknown here")),
    })
}
