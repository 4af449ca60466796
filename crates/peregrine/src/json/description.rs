//! Converts the description of an interface to JSON, and JSON to a description.

use serde_json::{Map, Value, json};

use super::kind;
use crate::interface::{
    Case, Described, DescribedBody, DescribedField, DescribedGrowth, DescribedNamed,
    DescribedParameter, DescribedPlainVariant, DescribedProcedure, DescribedType, DescribedVariant,
    Direction, Program, SIMPLE, SYSTEMS, Shape,
};
use crate::limits;
use crate::stub::Unfit;

const DIRECTIONS: &[(&str, Direction)] = &[
    ("in", Direction::In),
    ("lent", Direction::Lent),
    ("out", Direction::Out),
    ("inout", Direction::InOut),
    ("sink", Direction::Sink),
    ("source", Direction::Source),
    ("callback", Direction::Callback),
];
const SHAPES: &[(&str, Shape)] =
    &[("one", Shape::One), ("buffer", Shape::Buffer), ("text", Shape::Text)];

type Read<T> = Result<T, Unfit>;

impl Described {
    /// Returns the description as a JSON object with the members `interface`, `version`, `digest`, `docs`,
    /// `procedures` and `types`.
    ///
    /// ```
    /// use peregrine::interface::Described;
    ///
    /// let text = "interface Add version 0\nadd(in a: i32, in b: i32) -> i32 or text\n";
    /// let add = Described::parse(text)?;
    /// let json = add.to_json();
    /// assert_eq!(json["procedures"][0]["parameters"][1]["type"], "i32");
    /// assert_eq!(Described::from_json(&json)?, add);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_json(&self) -> Value {
        let procedures: Vec<Value> = self.procedures.iter().map(procedure_to).collect();
        let types: Vec<Value> = self.types.iter().map(named_to).collect();
        let mut json = json!({
            "interface": self.name,
            "version": self.version,
            "digest": self.digest().to_string(),
            "docs": self.docs,
            "procedures": procedures,
            "types": types,
        });
        if !self.programs.is_empty() {
            let programs: Vec<Value> = self.programs.iter().map(program_to).collect();
            set(&mut json, "programs", json!(programs));
        }
        json
    }

    /// Reads a description from an object of the form that [`to_json`](Self::to_json) returns. Other members
    /// are ignored. If the object contains a `digest`, it must match the description.
    ///
    /// # Errors
    /// Fails if the object is not a description. The error names the place of the fault.
    pub fn from_json(json: &Value) -> Result<Self, Unfit> {
        let all = object(json)?;
        let name = text(all, "interface")?;
        let version = version_from(all)?;
        let procedures = each(all, "procedures", procedure_from)?;
        let types = each(all, "types", named_from)?;
        let docs = optional_text(all, "docs")?;
        let programs = match all.get("programs") {
            None => Vec::new(),
            Some(_) => each(all, "programs", program_from)?,
        };
        let described = Self { name, version, docs, procedures, types, programs };
        // The rules for canonical texts also apply here, so the description is printed and parsed as such a
        // text.
        let read = Self::parse(&described.to_string())
            .and_then(|read| read.with_foreign_text(&described.foreign_text()))
            .map_err(|error| {
                Unfit::new(format!("it does not describe a valid interface: {error}"))
            })?;
        let read = read.with_docs(&described.docs());
        if read != described {
            return Err(Unfit::new("it has names that no interface can have"));
        }
        let (said, digest) = (optional_text(all, "digest")?, read.digest().to_string());
        if !said.is_empty() && said != digest {
            let what = format!("expected {digest} for this description, got {said}");
            return Err(Unfit::new(what).of("digest"));
        }
        Ok(read)
    }
}

fn program_to(one: &Program) -> Value {
    json!({
        "system": name_of(SYSTEMS, &one.system),
        "number": one.number,
        "version": one.version,
        "procedures": one.procedures[..],
    })
}

fn procedure_to(one: &DescribedProcedure) -> Value {
    let parameters: Vec<Value> = one.parameters.iter().map(parameter_to).collect();
    let mut json = json!({
        "name": one.name,
        "docs": one.docs,
        "idempotent": one.idempotent,
        "oneway": one.oneway,
        "parameters": parameters,
        "result": type_to(&one.result),
        "error": type_to(&one.error),
    });
    with_was(&mut json, &one.was);
    json
}

/// Adds a member to an object.
fn set(json: &mut Value, name: &str, value: Value) {
    if let Value::Object(all) = json {
        all.insert(name.to_owned(), value);
    }
}

/// Adds the earlier names of a part to its JSON object, if there are any.
fn with_was(json: &mut Value, was: &[String]) {
    if !was.is_empty() {
        set(json, "was", json!(was));
    }
}

/// Adds the attributes that say how a field or a parameter may differ at a peer, if there are any.
fn with_growth(mut json: Value, growth: &DescribedGrowth) -> Value {
    with_was(&mut json, &growth.was);
    if growth.widens {
        set(&mut json, "widens", json!(true));
    }
    if let Some(default) = &growth.default {
        let hex: String = default.iter().map(|byte| format!("{byte:02x}")).collect();
        set(&mut json, "default", json!(hex));
    }
    json
}

/// Adds the attributes of a variant, if there are any. The enum may be plain or structured.
fn with_variant(mut json: Value, was: &[String], is_other: bool) -> Value {
    with_was(&mut json, was);
    if is_other {
        set(&mut json, "other", json!(true));
    }
    json
}

fn parameter_to(one: &DescribedParameter) -> Value {
    let json = json!({
        "name": one.name,
        "direction": name_of(DIRECTIONS, &one.direction),
        "shape": name_of(SHAPES, &one.shape),
        "type": type_to(&one.ty),
        "max_len": one.max_len,
    });
    with_growth(json, &one.growth)
}

fn type_to(ty: &DescribedType) -> Value {
    match ty {
        DescribedType::Array(one, count) => json!({ "array": type_to(one), "count": count }),
        DescribedType::Sequence(one) => json!({ "sequence": type_to(one) }),
        DescribedType::Option(one) => json!({ "option": type_to(one) }),
        DescribedType::Result(ok, err) => json!({ "result": [type_to(ok), type_to(err)] }),
        DescribedType::Tuple(parts) => {
            json!({ "tuple": parts.iter().map(type_to).collect::<Vec<_>>() })
        }
        DescribedType::Named(number) => json!({ "named": number }),
        simple => name_of(SIMPLE, simple).into(),
    }
}

fn fields_to(fields: &[DescribedField]) -> Vec<Value> {
    let field = |one: &DescribedField| {
        let mut json =
            with_growth(json!({ "name": one.name, "type": type_to(&one.ty) }), &one.growth);
        if let Some(max) = one.max {
            set(&mut json, "max", json!(max));
        }
        json
    };
    fields.iter().map(field).collect()
}

fn named_to(one: &DescribedNamed) -> Value {
    let name = &one.name;
    match &one.body {
        DescribedBody::Plain { size, align, fields } => json!({
            "name": name, "kind": "plain", "size": size, "align": align, "fields": fields_to(fields),
        }),
        DescribedBody::PlainEnum { repr, variants } => {
            let variants = variants.iter().map(|one| {
                // If a JSON number may not represent the value exactly, the value is written as a string.
                let value = i64::try_from(one.value)
                    .map_or_else(|_| json!(one.value.to_string()), |one| json!(one));
                with_variant(json!({ "name": one.name, "value": value }), &one.was, one.is_other)
            });
            json!({
                "name": name, "kind": "plain enum", "repr": type_to(repr),
                "variants": variants.collect::<Vec<_>>(),
            })
        }
        DescribedBody::Struct(fields) => {
            json!({ "name": name, "kind": "struct", "fields": fields_to(fields) })
        }
        DescribedBody::Enum(variants) => {
            let variants = variants.iter().map(|one| {
                let mut json = json!({ "name": one.name, "fields": fields_to(&one.fields) });
                match one.case {
                    None => {}
                    Some(Case::Number(number)) => set(&mut json, "case", json!(number)),
                    Some(Case::Default) => set(&mut json, "case", json!("default")),
                    Some(Case::Error(number)) => set(&mut json, "reports", json!(number)),
                }
                with_variant(json, &one.was, one.is_other)
            });
            json!({ "name": name, "kind": "enum", "variants": variants.collect::<Vec<_>>() })
        }
        DescribedBody::Interface { version, procedures } => {
            let procedures: Vec<Value> = procedures.iter().map(procedure_to).collect();
            json!({
                "name": name, "kind": "interface", "version": version, "procedures": procedures,
            })
        }
    }
}

fn name_of<T: PartialEq>(names: &[(&'static str, T)], one: &T) -> &'static str {
    names.iter().find(|(_, known)| known == one).map_or("", |(name, _)| name)
}

// The functions below read JSON.

fn object(json: &Value) -> Read<&Map<String, Value>> {
    json.as_object().ok_or_else(|| Unfit::expected("object", kind(json)))
}

fn member<'a, T>(
    all: &'a Map<String, Value>,
    name: &str,
    read: impl FnOnce(&'a Value) -> Read<T>,
) -> Read<T> {
    let value = all.get(name).ok_or_else(|| Unfit::new(format!("there is no `{name}`")))?;
    read(value).map_err(|unfit| unfit.of(name))
}

fn string(json: &Value) -> Read<&str> {
    json.as_str().ok_or_else(|| Unfit::expected("string", kind(json)))
}

fn text(all: &Map<String, Value>, name: &str) -> Read<String> {
    member(all, name, |one| string(one).map(str::to_owned))
}

fn optional_text(all: &Map<String, Value>, name: &str) -> Read<String> {
    match all.get(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(_) => text(all, name),
    }
}

fn number(json: &Value, most: u64) -> Read<u64> {
    let found = json.as_u64().ok_or_else(|| Unfit::expected("number", kind(json)))?;
    if found > most {
        return Err(Unfit::new(format!("{found} is more than {most}")));
    }
    Ok(found)
}

fn version_from(all: &Map<String, Value>) -> Read<u32> {
    Ok(member(all, "version", |one| number(one, u64::from(u32::MAX)))? as u32)
}

fn each<T>(all: &Map<String, Value>, name: &str, read: impl Fn(&Value) -> Read<T>) -> Read<Vec<T>> {
    member(all, name, |json| list(json, &read))
}

fn list<T>(json: &Value, read: impl Fn(&Value) -> Read<T>) -> Read<Vec<T>> {
    let values = json.as_array().ok_or_else(|| Unfit::expected("array", kind(json)))?;
    let one = |(i, value)| read(value).map_err(|unfit| unfit.at(i));
    values.iter().enumerate().map(one).collect()
}

fn one_of<T: Clone>(json: &Value, names: &[(&'static str, T)]) -> Read<T> {
    let said = string(json)?;
    match names.iter().find(|(name, _)| *name == said) {
        Some((_, one)) => Ok(one.clone()),
        None => {
            let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
            Err(Unfit::new(format!("`{}` is not one of {}", said.escape_debug(), names.join(", "))))
        }
    }
}

fn procedure_from(json: &Value) -> Read<DescribedProcedure> {
    let all = object(json)?;
    Ok(DescribedProcedure {
        name: text(all, "name")?,
        docs: optional_text(all, "docs")?,
        idempotent: all.get("idempotent").and_then(Value::as_bool).unwrap_or(false),
        oneway: all.get("oneway").and_then(Value::as_bool).unwrap_or(false),
        was: was_from(all)?,
        parameters: each(all, "parameters", parameter_from)?,
        result: member(all, "result", |one| type_from(one, 0))?,
        error: member(all, "error", |one| type_from(one, 0))?,
    })
}

fn parameter_from(json: &Value) -> Read<DescribedParameter> {
    let all = object(json)?;
    let max_len = optional_u32(all, "max_len")?;
    Ok(DescribedParameter {
        name: text(all, "name")?,
        direction: member(all, "direction", |one| one_of(one, DIRECTIONS))?,
        shape: member(all, "shape", |one| one_of(one, SHAPES))?,
        ty: member(all, "type", |one| type_from(one, 0))?,
        max_len,
        growth: growth_from(all)?,
    })
}

fn optional_u32(all: &Map<String, Value>, name: &str) -> Read<Option<u32>> {
    Ok(match all.get(name) {
        None | Some(Value::Null) => None,
        Some(_) => Some(u32_of(all, name)?),
    })
}

fn u32_of(all: &Map<String, Value>, name: &str) -> Read<u32> {
    Ok(member(all, name, |one| number(one, u64::from(u32::MAX)))? as u32)
}

fn program_from(json: &Value) -> Read<Program> {
    let all = object(json)?;
    let procedure = |one: &Value| Ok(number(one, u64::from(u32::MAX))? as u32);
    Ok(Program {
        system: member(all, "system", |one| one_of(one, SYSTEMS))?,
        number: u32_of(all, "number")?,
        version: u32_of(all, "version")?,
        procedures: each(all, "procedures", procedure)?.into(),
    })
}

/// Reads the number of a variant in other RPC systems.
fn case_from(all: &Map<String, Value>) -> Read<Option<Case>> {
    if all.contains_key("reports") {
        let number = member(all, "reports", |one| number(one, u64::from(u16::MAX)))?;
        return Ok(Some(Case::Error(number as u16)));
    }
    match all.get("case") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(word)) if word == "default" => Ok(Some(Case::Default)),
        Some(_) => member(all, "case", |one| {
            let number = one.as_i64().ok_or_else(|| Unfit::expected("number", kind(one)))?;
            Ok(Some(Case::Number(number)))
        }),
    }
}

fn was_from(all: &Map<String, Value>) -> Read<Vec<String>> {
    match all.get("was") {
        None => Ok(Vec::new()),
        Some(_) => each(all, "was", |one| string(one).map(str::to_owned)),
    }
}

fn flag(all: &Map<String, Value>, name: &str) -> bool {
    all.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn growth_from(all: &Map<String, Value>) -> Read<DescribedGrowth> {
    let default = match all.get("default") {
        None => None,
        Some(_) => Some(member(all, "default", |one| {
            let digits = string(one)?;
            let pair = |at: usize| {
                let pair = digits.get(at..at + 2).filter(|pair| !pair.starts_with('+'));
                pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())
            };
            let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(pair).collect();
            bytes.ok_or_else(|| Unfit::new("expected pairs of hexadecimal digits"))
        })?),
    };
    Ok(DescribedGrowth { was: was_from(all)?, widens: flag(all, "widens"), default })
}

fn type_from(json: &Value, depth: usize) -> Read<DescribedType> {
    if depth > limits::CANONICAL_DEPTH_MAX {
        return Err(Unfit::new("types are nested too deeply"));
    }
    let Value::Object(all) = json else { return one_of(json, SIMPLE) };
    let boxed = |name| member(all, name, |one| type_from(one, depth + 1)).map(Box::new);
    let Some((name, _)) = all.iter().find(|(name, _)| *name != "count") else {
        return Err(Unfit::new("an object without members is no type"));
    };
    Ok(match name.as_str() {
        "array" => DescribedType::Array(
            boxed("array")?,
            member(all, "count", |one| number(one, u64::MAX))?,
        ),
        "sequence" => DescribedType::Sequence(boxed("sequence")?),
        "option" => DescribedType::Option(boxed("option")?),
        "result" => {
            let parts = member(all, "result", |one| list(one, |one| type_from(one, depth + 1)))?;
            let Ok([ok, err]) = <[DescribedType; 2]>::try_from(parts) else {
                return Err(Unfit::new("a result must have two types").of("result"));
            };
            DescribedType::Result(Box::new(ok), Box::new(err))
        }
        "tuple" => DescribedType::Tuple(member(all, "tuple", |one| {
            list(one, |one| type_from(one, depth + 1))
        })?),
        "named" => {
            DescribedType::Named(
                member(all, "named", |one| number(one, u64::from(u32::MAX)))? as usize
            )
        }
        other => {
            return Err(Unfit::new(format!("`{}` is no kind of type", other.escape_debug())));
        }
    })
}

fn field_from(json: &Value) -> Read<DescribedField> {
    let all = object(json)?;
    Ok(DescribedField {
        name: text(all, "name")?,
        ty: member(all, "type", |one| type_from(one, 0))?,
        growth: growth_from(all)?,
        max: optional_u32(all, "max")?,
    })
}

fn named_from(json: &Value) -> Read<DescribedNamed> {
    let all = object(json)?;
    let fields = || each(all, "fields", field_from);
    let body = match &*text(all, "kind")? {
        "plain" => DescribedBody::Plain {
            size: member(all, "size", |one| number(one, u64::MAX))?,
            align: member(all, "align", |one| number(one, 16))?,
            fields: fields()?,
        },
        "plain enum" => DescribedBody::PlainEnum {
            repr: member(all, "repr", |one| type_from(one, 0))?,
            variants: each(all, "variants", |json| {
                let all = object(json)?;
                let value = member(all, "value", |one| match one {
                    Value::String(digits) => {
                        digits.parse().map_err(|_| Unfit::new(format!("{digits:?} is no number")))
                    }
                    other => other
                        .as_i64()
                        .map(i128::from)
                        .ok_or_else(|| Unfit::expected("number", kind(other))),
                })?;
                Ok(DescribedPlainVariant {
                    name: text(all, "name")?,
                    value,
                    was: was_from(all)?,
                    is_other: flag(all, "other"),
                })
            })?,
        },
        "struct" => DescribedBody::Struct(fields()?),
        "enum" => DescribedBody::Enum(each(all, "variants", |json| {
            let all = object(json)?;
            Ok(DescribedVariant {
                name: text(all, "name")?,
                fields: each(all, "fields", field_from)?,
                was: was_from(all)?,
                is_other: flag(all, "other"),
                case: case_from(all)?,
            })
        })?),
        "interface" => DescribedBody::Interface {
            version: version_from(all)?,
            procedures: each(all, "procedures", |json| {
                procedure_from(json).map(|one| DescribedProcedure { docs: String::new(), ..one })
            })?,
        },
        other => {
            let what = format!("`{}` is no kind of type", other.escape_debug());
            return Err(Unfit::new(what).of("kind"));
        }
    };
    Ok(DescribedNamed { name: text(all, "name")?, body })
}
