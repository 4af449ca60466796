//! JSON Schema of described types: the forms that the module `peregrine::json` reads and writes.

use peregrine::interface::{Described, DescribedBody, DescribedField, DescribedType};
use serde_json::{Map, Value, json};

/// Makes the schemas of the types of one interface.
pub(crate) struct Schemas<'a> {
    described: &'a Described,
    /// The prefix of the names of schemas: the name of the export.
    prefix: &'a str,
}

impl<'a> Schemas<'a> {
    /// Returns the schemas of the types of `described`. The schema of a named type has the name
    /// `PREFIX.TYPE`.
    pub(crate) const fn new(described: &'a Described, prefix: &'a str) -> Self {
        Self { described, prefix }
    }

    /// Returns the name of the schema of a named type. If an earlier type has the same name, the name of the
    /// schema also contains the number of the type.
    pub(crate) fn name(&self, number: usize) -> String {
        let types = &self.described.types;
        let Some(named) = types.get(number) else { return number.to_string() };
        let is_first = types.iter().position(|one| one.name == named.name) == Some(number);
        match is_first {
            true => format!("{}.{}", self.prefix, named.name),
            false => format!("{}.{}.{number}", self.prefix, named.name),
        }
    }

    /// Returns the schema of a type.
    pub(crate) fn of(&self, ty: &DescribedType) -> Value {
        match ty {
            DescribedType::Unit => json!({ "type": "null" }),
            DescribedType::Bool => json!({ "type": "boolean" }),
            DescribedType::Char => json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
            DescribedType::Text => json!({ "type": "string" }),
            DescribedType::U8 => integer(0, u8::MAX.into()),
            DescribedType::U16 => integer(0, u16::MAX.into()),
            DescribedType::U32 => integer(0, u32::MAX.into()),
            DescribedType::I8 => integer(i8::MIN.into(), i8::MAX.into()),
            DescribedType::I16 => integer(i16::MIN.into(), i16::MAX.into()),
            DescribedType::I32 => integer(i32::MIN.into(), i32::MAX.into()),
            DescribedType::U64 => long("uint64", "^[0-9]+$"),
            DescribedType::I64 => long("int64", "^-?[0-9]+$"),
            DescribedType::U128 => long("uint128", "^[0-9]+$"),
            DescribedType::I128 => long("int128", "^-?[0-9]+$"),
            DescribedType::F32 => float("float"),
            DescribedType::F64 => float("double"),
            DescribedType::Array(one, count) => self.array(one, Some(*count)),
            DescribedType::Sequence(one) => self.array(one, None),
            DescribedType::Option(one) => json!({ "anyOf": [self.of(one), { "type": "null" }] }),
            DescribedType::Result(ok, err) => {
                json!({ "oneOf": [self.only("ok", self.of(ok)), self.only("err", self.of(err))] })
            }
            DescribedType::Tuple(parts) => tuple(parts.iter().map(|one| self.of(one)).collect()),
            DescribedType::Named(number) => {
                json!({ "$ref": format!("#/components/schemas/{}", self.name(*number)) })
            }
            _ => json!({}),
        }
    }

    /// Returns the schema of a sequence, array or buffer. `count` is the length if it is fixed.
    pub(crate) fn array(&self, one: &DescribedType, count: Option<u64>) -> Value {
        let mut array = json!({ "type": "array", "items": self.of(one) });
        if let Some(count) = count {
            array["minItems"] = json!(count);
            array["maxItems"] = json!(count);
        }
        match one {
            DescribedType::U8 => {
                json!({ "anyOf": [{ "type": "string" }, self.only("hex", json!({ "type": "string" })), array] })
            }
            _ => array,
        }
    }

    /// Returns the schema of an object with one member.
    fn only(&self, name: &str, value: Value) -> Value {
        object(Map::from_iter([(name.to_owned(), value)]), vec![json!(name)])
    }

    /// Returns the schema of the body of a named type.
    pub(crate) fn body(&self, body: &DescribedBody) -> Value {
        match body {
            DescribedBody::Plain { fields, .. } | DescribedBody::Struct(fields) => {
                self.fields(fields)
            }
            DescribedBody::PlainEnum { variants, .. } => {
                let names: Vec<&str> = variants.iter().map(|one| &*one.name).collect();
                json!({ "anyOf": [{ "enum": names }, { "type": "integer" }] })
            }
            DescribedBody::Enum(variants) => {
                let variant = |one: &peregrine::interface::DescribedVariant| match one.fields[..] {
                    [] => json!({ "const": one.name }),
                    _ => self.only(&one.name, self.fields(&one.fields)),
                };
                json!({ "oneOf": variants.iter().map(variant).collect::<Vec<_>>() })
            }
            _ => json!({}),
        }
    }

    fn fields(&self, fields: &[DescribedField]) -> Value {
        let is_numbered = fields.iter().enumerate().all(|(i, one)| one.name == i.to_string());
        match fields {
            [] => json!({ "type": ["object", "null"], "additionalProperties": false }),
            [one] if is_numbered => self.of(&one.ty),
            _ if is_numbered => tuple(fields.iter().map(|one| self.of(&one.ty)).collect()),
            _ => {
                let members = fields.iter().map(|one| (one.name.clone(), self.of(&one.ty)));
                let is_required = |one: &&DescribedField| {
                    one.growth.default.is_none() && !matches!(one.ty, DescribedType::Option(_))
                };
                let required = fields.iter().filter(is_required).map(|one| json!(one.name));
                object(members.collect(), required.collect())
            }
        }
    }
}

/// Returns the schema of an object that can have no other members than `members`.
pub(crate) fn object(members: Map<String, Value>, required: Vec<Value>) -> Value {
    json!({
        "type": "object",
        "properties": members,
        "required": required,
        "additionalProperties": false,
    })
}

fn tuple(parts: Vec<Value>) -> Value {
    let count = parts.len();
    json!({ "type": "array", "prefixItems": parts, "minItems": count, "maxItems": count })
}

fn integer(min: i64, max: i64) -> Value {
    json!({ "type": "integer", "minimum": min, "maximum": max })
}

/// Returns the schema of an integer that a JSON number may not represent exactly.
fn long(format: &str, digits: &str) -> Value {
    json!({ "type": ["integer", "string"], "format": format, "pattern": digits })
}

fn float(format: &str) -> Value {
    json!({ "anyOf": [
        { "type": "number", "format": format },
        { "enum": ["NaN", "inf", "-inf"] },
    ] })
}
