//! [`Slots`]: the arguments of a call of a generic client, from JSON, and what the call returns, as JSON.

use core::fmt;

use serde_json::{Map, Value, json};

use crate::call::streams::{Sink, Source};
use crate::interface::{
    Described, DescribedParameter, DescribedProcedure, DescribedType, Direction, Shape,
};
use crate::limits;
use crate::stub::Argument;
use crate::value::{Dynamic, Out};

/// The default total capacity, in bytes, of the returned buffers of a call. Each buffer for which the JSON
/// gives no size gets an equal share of this capacity.
const CAPACITY_BYTES: usize = limits::MESSAGE_BYTES_ASKED / 4 * 3;

/// Why JSON cannot be the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoSlots {
    /// The parameter with this name is a callback, which JSON cannot carry.
    Callback(String),
    /// An argument is missing, unknown, or not of its type. The text begins with the place of the argument.
    Unfit(String),
}

impl fmt::Display for NoSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Callback(name) => write!(f, "`{name}` is a callback, which JSON cannot carry"),
            Self::Unfit(text) => f.write_str(text),
        }
    }
}

impl core::error::Error for NoSlots {}

/// An argument, in the form that the direction of its parameter requires.
#[derive(Clone, Debug)]
enum Slot {
    In(Dynamic),
    InOut(Dynamic),
    Out(Vec<u8>),
    Sink,
    Source(Vec<Dynamic>),
}

/// The arguments of a call of a generic client, from a JSON object with the names of the arguments. They own
/// their values, and keep what the call returns in them.
///
/// ```
/// use peregrine::interface::Described;
/// use peregrine::json::Slots;
/// use peregrine::{Dynamic, Sink};
/// use serde_json::json;
///
/// let text = "interface Sum version 0\nsum(in a: u16, in b: u16) -> u64 or text\n";
/// let sum = Described::parse(text)?;
/// let procedure = &sum.procedures[0];
/// let given = json!({ "a": 1, "b": 2 });
/// let mut slots = Slots::read(&sum, procedure, given.as_object().unwrap())?;
/// // What `GenericClient::call_into` takes:
/// assert_eq!(slots.arguments(procedure, |_| Sink::new(drop)).len(), 2);
/// let whole = slots.returned(&sum, procedure, &Dynamic::U64(3));
/// assert_eq!(whole, json!({ "result": 3 }));
///
/// let error = Slots::read(&sum, procedure, json!({ "a": 1 }).as_object().unwrap()).unwrap_err();
/// assert_eq!(error.to_string(), "arguments.b: it is missing");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Slots(Vec<Slot>);

impl Slots {
    /// Reads one argument for each parameter of a procedure. For a returned buffer, the JSON may contain the
    /// maximum number of elements. For a source, it contains an array of all items.
    ///
    /// # Errors
    /// If the JSON has no argument for a parameter without a default, an argument for no parameter, or an
    /// argument that is not of its type. Also if the procedure has a callback.
    pub fn read(
        described: &Described,
        procedure: &DescribedProcedure,
        given: &Map<String, Value>,
    ) -> Result<Self, NoSlots> {
        Self::read_within(described, procedure, given, limits::MESSAGE_BYTES)
    }

    /// As [`read`](Self::read), with another maximum for the total size of the returned buffers in bytes.
    ///
    /// # Errors
    /// As for [`read`](Self::read). Also if the JSON asks for larger returned buffers.
    pub fn read_within(
        described: &Described,
        procedure: &DescribedProcedure,
        given: &Map<String, Value>,
        buffer_bytes: usize,
    ) -> Result<Self, NoSlots> {
        let parameters = &procedure.parameters;
        let is_known = |name: &String| {
            parameters.iter().any(|one| one.name == *name && one.direction != Direction::Sink)
        };
        if let Some(unknown) = given.keys().find(|name| !is_known(name)) {
            let names = parameters.iter().filter(|one| one.direction != Direction::Sink);
            let names: Vec<_> = names.map(|one| format!("`{}`", one.name)).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(unfit(format!("{unknown}: there is no such argument; there is {there}")));
        }
        let outs = parameters.iter().filter(|one| one.direction == Direction::Out).count().max(1);
        let mut room = buffer_bytes;
        let slot = |parameter: &DescribedParameter| {
            let given = given.get(&parameter.name);
            match parameter.direction {
                Direction::Callback => Err(NoSlots::Callback(parameter.name.clone())),
                Direction::Sink => Ok(Slot::Sink),
                Direction::Out => {
                    let share = CAPACITY_BYTES.min(buffer_bytes) / outs;
                    let bytes = capacity(described, parameter, given, share, room)?;
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
                            .map_err(|why| unfit(why.to_string()))?,
                        None => {
                            let default = described.default_argument(parameter);
                            default.ok_or_else(|| missing(parameter))?
                        }
                    };
                    Ok(match direction {
                        Direction::InOut => Slot::InOut(value),
                        _ => Slot::In(value),
                    })
                }
            }
        };
        Ok(Self(parameters.iter().map(slot).collect::<Result<_, _>>()?))
    }

    /// Returns the arguments in the form that a [`GenericClient`](crate::GenericClient) takes. `sink` returns
    /// the receiver of the items of a sink. The items of sources are moved out.
    pub fn arguments<'a>(
        &'a mut self,
        procedure: &'a DescribedProcedure,
        sink: impl Fn(&'a DescribedParameter) -> Sink<'a, Dynamic>,
    ) -> Vec<Argument<'a>> {
        let argument = |(slot, parameter): (&'a mut Slot, &'a DescribedParameter)| match slot {
            Slot::In(value) => Argument::In(value),
            Slot::InOut(value) => Argument::InOut(value),
            Slot::Out(room) => Argument::Out(Out::from(&mut room[..])),
            Slot::Sink => Argument::Sink(sink(parameter)),
            Slot::Source(items) => Argument::Source(Source::new(core::mem::take(items))),
        };
        self.0.iter_mut().zip(&procedure.parameters).map(argument).collect()
    }

    /// Returns for each returned buffer the number of bytes that the procedure has filled. The arguments are
    /// those of the call after its end.
    pub fn filled(arguments: &[Argument<'_>]) -> Vec<usize> {
        let filled = arguments.iter().filter_map(|argument| match argument {
            Argument::Out(out) => Some(out.filled()),
            _ => None,
        });
        filled.collect()
    }

    /// Shortens the returned buffers to the bytes that the procedure has filled, as
    /// [`filled`](Self::filled) has returned them.
    pub fn truncate(&mut self, filled: Vec<usize>) {
        let rooms = self.0.iter_mut().filter_map(|slot| match slot {
            Slot::Out(room) => Some(room),
            _ => None,
        });
        rooms.zip(filled).for_each(|(room, filled)| room.truncate(filled));
    }

    /// Returns the parts of what the call returned in its arguments: values, and the lengths of buffers in
    /// bytes.
    pub fn back(&self) -> impl Iterator<Item = Result<&Dynamic, usize>> {
        self.0.iter().filter_map(|slot| match slot {
            Slot::InOut(value) => Some(Ok(value)),
            Slot::Out(room) => Some(Err(room.len())),
            _ => None,
        })
    }

    /// Returns the JSON of a result and of returned parameters: an object with the member `result`, and, if
    /// parameters are returned, the member `out`.
    pub fn returned(
        &self,
        described: &Described,
        procedure: &DescribedProcedure,
        result: &Dynamic,
    ) -> Value {
        self.returned_within(described, procedure, result, usize::MAX).unwrap_or_default()
    }

    /// As [`returned`](Self::returned), unless the text of the JSON surely has more than `most` bytes. The
    /// conversion then ends early and returns `None`, so that its memory depends on `most`, and not on what
    /// the procedure has returned. The text of the returned JSON may still be longer than `most`.
    pub fn returned_within(
        &self,
        described: &Described,
        procedure: &DescribedProcedure,
        result: &Dynamic,
        most: usize,
    ) -> Option<Value> {
        let mut left = most;
        let value = described.value_within(&procedure.result, result, &mut left)?;
        let mut whole = json!({ "result": value });
        let mut back = Map::new();
        for (parameter, slot) in procedure.parameters.iter().zip(&self.0) {
            let json = match (parameter.direction, slot) {
                (Direction::Out, Slot::Out(room)) => {
                    described.argument_within(parameter, &Dynamic::plain(room), &mut left)?
                }
                (Direction::InOut, Slot::InOut(value)) => {
                    described.argument_within(parameter, value, &mut left)?
                }
                _ => continue,
            };
            back.insert(parameter.name.clone(), json);
        }
        if !back.is_empty() {
            whole["out"] = Value::Object(back);
        }
        Some(whole)
    }
}

fn unfit(text: String) -> NoSlots {
    NoSlots::Unfit(format!("arguments.{text}"))
}

fn missing(parameter: &DescribedParameter) -> NoSlots {
    unfit(format!("{}: it is missing", parameter.name))
}

/// Returns the items of a source.
fn source(
    described: &Described,
    parameter: &DescribedParameter,
    items: &Value,
) -> Result<Vec<Dynamic>, NoSlots> {
    if !items.is_array() {
        return Err(unfit(format!("{}: expected an array of items", parameter.name)));
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
    match described.argument_from_json(&all, items).map_err(|why| unfit(why.to_string()))? {
        Dynamic::List(items) => Ok(items),
        Dynamic::Units(count) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            Ok(vec![Dynamic::Unit; count.min(limits::EMPTY_VALUES_MAX)])
        }
        _ => Err(unfit(format!("{}: expected an array of items", parameter.name))),
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
) -> Result<usize, NoSlots> {
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
                    unfit(format!("{}: {text}", parameter.name))
                },
            )?
        }
    };
    count.checked_mul(one).filter(|bytes| *bytes <= room).ok_or_else(|| {
        let (name, most) = (&parameter.name, room / one);
        unfit(format!("{name}: the maximum is {most} elements"))
    })
}
