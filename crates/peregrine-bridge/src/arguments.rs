//! Converts the JSON object of a request to the arguments of a call.

use peregrine::interface::{
    Described, DescribedParameter, DescribedProcedure, DescribedType, Direction, Shape,
};
use peregrine::{Dynamic, limits};
use serde_json::{Map, Value};

use crate::failure::Failure;

/// The default total capacity, in bytes, of the returned buffers of a call. Each buffer for which the request
/// gives no size gets an equal share of this capacity.
const CAPACITY_BYTES: usize = limits::MESSAGE_BYTES_ASKED / 4 * 3;

/// An argument, in the form that the direction of its parameter requires.
pub(crate) enum Slot {
    In(Dynamic),
    InOut(Dynamic),
    Out(Vec<u8>),
    Sink,
    Source(Vec<Dynamic>),
}

/// Reads one argument for each parameter of a procedure.
pub(crate) fn read(
    described: &Described,
    procedure: &DescribedProcedure,
    given: &Map<String, Value>,
) -> Result<Vec<Slot>, Failure> {
    let parameters = &procedure.parameters;
    let is_known = |name: &String| {
        parameters.iter().any(|one| one.name == *name && one.direction != Direction::Sink)
    };
    if let Some(unknown) = given.keys().find(|name| !is_known(name)) {
        let names = parameters.iter().filter(|one| one.direction != Direction::Sink);
        let names: Vec<_> = names.map(|one| format!("`{}`", one.name)).collect();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let text = format!("arguments.{unknown}: there is no such argument; there is {there}");
        return Err(Failure::bad_arguments(text));
    }
    let outs = parameters.iter().filter(|one| one.direction == Direction::Out).count().max(1);
    let mut room = limits::MESSAGE_BYTES;
    let slot = |parameter: &DescribedParameter| {
        let given = given.get(&parameter.name);
        match parameter.direction {
            Direction::Callback => Err(Failure::callback(&parameter.name)),
            Direction::Sink => Ok(Slot::Sink),
            Direction::Out => {
                let bytes = capacity(described, parameter, given, CAPACITY_BYTES / outs, room)?;
                room -= bytes;
                Ok(Slot::Out(vec![0; bytes]))
            }
            Direction::Source => match given {
                Some(items) => Ok(Slot::Source(source(described, parameter, items)?)),
                None => Err(missing(parameter)),
            },
            direction => {
                let value = match given {
                    Some(json) => described
                        .argument_from_json(parameter, json)
                        .map_err(|unfit| Failure::bad_arguments(format!("arguments.{unfit}")))?,
                    None => {
                        described.default_argument(parameter).ok_or_else(|| missing(parameter))?
                    }
                };
                Ok(match direction {
                    Direction::InOut => Slot::InOut(value),
                    _ => Slot::In(value),
                })
            }
        }
    };
    parameters.iter().map(slot).collect()
}

fn missing(parameter: &DescribedParameter) -> Failure {
    Failure::bad_arguments(format!("arguments.{}: it is missing", parameter.name))
}

/// Returns the items of a source.
fn source(
    described: &Described,
    parameter: &DescribedParameter,
    items: &Value,
) -> Result<Vec<Dynamic>, Failure> {
    let refused = |text: String| Failure::bad_arguments(format!("arguments.{text}"));
    if !items.is_array() {
        return Err(refused(format!("{}: expected an array of items", parameter.name)));
    }
    // The items are read as one sequence, so an error names the place of the wrong item in it.
    let ty = DescribedType::Sequence(Box::new(parameter.ty.clone()));
    let all = DescribedParameter {
        direction: Direction::In,
        shape: Shape::One,
        ty,
        max_len: None,
        ..parameter.clone()
    };
    match described.argument_from_json(&all, items).map_err(|unfit| refused(unfit.to_string()))? {
        Dynamic::List(items) => Ok(items),
        Dynamic::Units(count) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            Ok(vec![Dynamic::Unit; count.min(limits::EMPTY_VALUES_MAX)])
        }
        _ => Err(refused(format!("{}: expected an array of items", parameter.name))),
    }
}

/// Returns the capacity of a returned buffer in bytes. Without a size in the request, this is about `share`
/// bytes. Fails if the capacity is larger than `room`, the bytes that are left for returned buffers.
fn capacity(
    described: &Described,
    parameter: &DescribedParameter,
    given: Option<&Value>,
    share: usize,
    room: usize,
) -> Result<usize, Failure> {
    let one = described.plain_bytes(&parameter.ty).and_then(|one| usize::try_from(one).ok());
    let one = one.unwrap_or(1).max(1);
    let count = match given {
        None => {
            let most = parameter.max_len.map_or(usize::MAX, |most| most as usize);
            (share / one).max(1).min(most)
        }
        Some(given) => {
            let digits = given.as_str().and_then(|digits| digits.parse().ok());
            given.as_u64().or(digits).and_then(|count| usize::try_from(count).ok()).ok_or_else(
                || {
                    let text = "expected the maximum number of elements of the returned buffer";
                    Failure::bad_arguments(format!("arguments.{}: {text}", parameter.name))
                },
            )?
        }
    };
    count.checked_mul(one).filter(|bytes| *bytes <= room).ok_or_else(|| {
        let (name, most) = (&parameter.name, room / one);
        Failure::bad_arguments(format!("arguments.{name}: the maximum is {most} elements"))
    })
}
