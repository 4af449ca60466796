//! The callbacks of a call: the command serves their interfaces. Each call that arrives is printed, and
//! returns an empty value.

use std::sync::Arc;

use peregrine::call::Serve;
use peregrine::interface::{
    Described, DescribedBody, DescribedField, DescribedParameter, DescribedType,
};
use peregrine::json::Bytes;
use peregrine::{
    CallError, Dynamic, Executed, GenericCall, GenericOutcome, GenericParameter, GenericServer,
    Kind,
};
use serde_json::{Map, Value};

use super::streams::Printer;

/// The maximum number of values in a result. A peer chooses the lengths of arrays in a result.
const VALUES_MAX: usize = 1 << 16;

/// The maximum nesting depth of the types in a result.
const DEPTH_MAX: usize = 64;

/// Returns the server of a callback's interface.
pub(super) fn server(printer: &Arc<Printer>, parameter: &DescribedParameter) -> Arc<dyn Serve> {
    let described = printer.described.interface_of(&parameter.ty);
    // `None` does not occur, because the type of a callback is an interface in every description that was
    // read.
    let described = Arc::new(described.unwrap_or_else(|| printer.described.clone()));
    let (printer, callback, own) =
        (Arc::clone(printer), parameter.name.clone(), Arc::clone(&described));
    let answer = move |call: &mut GenericCall<'_>| answer(&printer, &callback, &own, call);
    Arc::new(GenericServer::new((*described).clone(), answer))
}

/// Prints a call. Returns an empty value.
fn answer(
    printer: &Printer,
    callback: &str,
    described: &Described,
    call: &mut GenericCall<'_>,
) -> GenericOutcome {
    let procedure = call.procedure();
    let mut arguments = Map::new();
    for (parameter, value) in procedure.parameters.iter().zip(call.parameters()) {
        if let Some(json) = argument(described, parameter, value, printer.bytes) {
            arguments.insert(parameter.name.clone(), json);
        }
    }
    let refused = |text: String| CallError::new(Kind::Relayed, Executed::Maybe, text);
    printer
        .called(callback, &procedure.name, arguments)
        .map_err(|()| refused("the caller has ended".to_owned()))?;
    let mut left = VALUES_MAX;
    match empty(described, &procedure.result, &mut left, 0) {
        Some(result) => Ok(Ok(result)),
        None => Err(refused(format!(
            "`peregrine call` cannot answer `{}`: its result {} has no empty value",
            procedure.name,
            described.type_text(&procedure.result)
        ))),
    }
}

/// Returns an argument of a callback's call as JSON. Returns `None` if the argument is not a value, such as a
/// stream.
fn argument(
    described: &Described,
    parameter: &DescribedParameter,
    value: &GenericParameter<'_>,
    bytes: Bytes,
) -> Option<Value> {
    match value {
        GenericParameter::In(value) | GenericParameter::InOut(value) => {
            Some(described.argument_to_json(parameter, value, bytes))
        }
        GenericParameter::Lent(lent) => {
            let mut block = vec![0; lent.len()];
            lent.copy_to(0, &mut block).ok()?;
            Some(described.argument_to_json(parameter, &Dynamic::Plain(block), bytes))
        }
        GenericParameter::Out(_)
        | GenericParameter::Sink(_)
        | GenericParameter::Source(_)
        | GenericParameter::Callback(_) => None,
    }
}

/// Returns the empty value of a type: zero, no text, no elements. Returns `None` if the type is an enum,
/// which has no empty value. Also returns `None` if the value has too many parts or levels. `left` is the
/// number of values that the result may still have.
fn empty(
    described: &Described,
    ty: &DescribedType,
    left: &mut usize,
    depth: usize,
) -> Option<Dynamic> {
    *left = left.checked_sub(1)?;
    if depth > DEPTH_MAX {
        return None;
    }
    let mut part = |ty: &DescribedType| empty(described, ty, left, depth + 1);
    let list = |values: Option<Vec<Dynamic>>| values.map(Dynamic::List);
    Some(match ty {
        DescribedType::Unit => Dynamic::Unit,
        DescribedType::Bool => Dynamic::Bool(false),
        DescribedType::Char => Dynamic::Char('\0'),
        DescribedType::Text => Dynamic::Text(String::new()),
        DescribedType::U8 => Dynamic::U8(0),
        DescribedType::U16 => Dynamic::U16(0),
        DescribedType::U32 => Dynamic::U32(0),
        DescribedType::U64 => Dynamic::U64(0),
        DescribedType::U128 => Dynamic::U128(0),
        DescribedType::I8 => Dynamic::I8(0),
        DescribedType::I16 => Dynamic::I16(0),
        DescribedType::I32 => Dynamic::I32(0),
        DescribedType::I64 => Dynamic::I64(0),
        DescribedType::I128 => Dynamic::I128(0),
        DescribedType::F32 => Dynamic::F32(0.0),
        DescribedType::F64 => Dynamic::F64(0.0),
        DescribedType::Sequence(_) => Dynamic::List(Vec::new()),
        DescribedType::Option(_) => Dynamic::Option(None),
        DescribedType::Array(one, count) => list((0..*count).map(|_| part(one)).collect())?,
        DescribedType::Result(ok, _) => Dynamic::Result(Ok(Box::new(part(ok)?))),
        DescribedType::Tuple(parts) => list(parts.iter().map(part).collect())?,
        DescribedType::Named(number) => match &described.types.get(*number)?.body {
            DescribedBody::Plain { fields, .. } | DescribedBody::Struct(fields) => {
                list(fields.iter().map(|DescribedField { ty, .. }| part(ty)).collect())?
            }
            _ => return None,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_values_have_their_types_and_are_small() {
        let all = "interface A version 0\nf() -> A#0 or C#1\n\
                   A#0 = struct {x: tuple<u8, option<C#1>, sequence<C#1>>, y: B#2, z: result<bool, C#1>}\n\
                   C#1 = enum D {}\nB#2 = plain 12 align 4 {x: [u32; 2], y: u32}\n";
        let all = Described::parse(all).unwrap();
        let of = |ty: &DescribedType| empty(&all, ty, &mut { VALUES_MAX }, 0);
        let value = of(&all.procedures[0].result).unwrap();
        let json = all.value_to_json(&all.procedures[0].result, &value, Bytes::Auto);
        let expected = serde_json::json!({
            "x": [0, null, []], "y": { "x": [0, 0], "y": 0 }, "z": { "ok": false },
        });
        assert_eq!(json, expected);
        assert_eq!(of(&all.procedures[0].error), None);
        let array = |count| DescribedType::Array(Box::new(DescribedType::Unit), count);
        assert!(of(&array(10_000)).is_some());
        assert_eq!(of(&array(u64::MAX)), None);
        let endless = "interface A version 0\nf() -> A#0 or unit\nA#0 = struct {x: A#0}\n";
        let endless = Described::parse(endless).unwrap();
        let ty = &endless.procedures[0].result;
        assert_eq!(empty(&endless, ty, &mut { VALUES_MAX }, 0), None);
    }
}
