//! One call, on a thread that may wait.

use core::ops::ControlFlow;
use core::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use hyper::body::Bytes;
use peregrine::interface::{Described, DescribedParameter, DescribedProcedure, Direction};
use peregrine::json;
use peregrine::{Argument, CallError, Dynamic, GenericClient, Limit, Out, Sink, Source};
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::arguments::{self, Slot};
use crate::failure::Failure;
use crate::lines::{Event, Pending, line};
use crate::target::{Bound, Target};

/// The maximum number of stream items that wait for a slow reader, in addition to those in socket buffers.
const AHEAD: usize = 16;

/// A call that a request asks for.
pub(crate) struct Call {
    pub(crate) target: Arc<Target>,
    pub(crate) procedure: String,
    /// The JSON object of the arguments.
    pub(crate) body: Bytes,
    /// The time by which the call must end, if the request gives a limit.
    pub(crate) deadline: Option<Instant>,
    /// The time by which a call without streams must end, if the request gives no limit.
    pub(crate) default_deadline: Option<Instant>,
}

/// The side of a call that belongs to the thread that makes the call.
pub(crate) struct Reporter {
    events: mpsc::Sender<Event>,
    gone: oneshot::Receiver<()>,
}

/// Returns the two sides of a call: the side of the connection, and the side of the thread that makes the
/// call.
pub(crate) fn sides() -> (Pending, Reporter) {
    let (sender, events) = mpsc::channel(AHEAD);
    let (waits, gone) = oneshot::channel();
    (Pending { events, _waits: waits }, Reporter { events: sender, gone })
}

impl Call {
    /// Makes the call, and reports its items and its end.
    pub(crate) fn run(self, reporter: Reporter, permit: OwnedSemaphorePermit) {
        let Reporter { events, gone } = reporter;
        let end = self.end(&events, gone);
        // The permit is released before the end is reported. So a client that has received this answer can
        // get the permit for its next request.
        drop(permit);
        // Sending fails if the connection is closed. Then nothing waits for the end of the call.
        let _ = events.blocking_send(Event::End(end));
    }

    fn end(
        &self,
        events: &mpsc::Sender<Event>,
        gone: oneshot::Receiver<()>,
    ) -> Result<Value, Failure> {
        let given = match serde_json::from_slice(&self.body) {
            Ok(Value::Object(given)) => given,
            Ok(_) => {
                return Err(Failure::bad_arguments(
                    "arguments: expected an object with the names of arguments",
                ));
            }
            Err(error) => {
                let text = format!("arguments: cannot parse the body as JSON: {error}");
                return Err(Failure::bad_arguments(text));
            }
        };
        // An error means that the sender was dropped, because the connection is gone.
        let mut gone = core::pin::pin!(async move { drop(gone.await) });
        let mut is_repeated = false;
        loop {
            let (bound, number) = self.bound()?;
            let error = match self.attempt(&bound, number, &given, events, gone.as_mut())? {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            if !self.target.failed(&bound, &error) || is_repeated {
                return Err(Failure::from(&error));
            }
            is_repeated = true;
        }
    }

    /// Returns the binding, and the number of the procedure.
    fn bound(&self) -> Result<(Arc<Bound>, u32), Failure> {
        let number = |bound: &Bound| Some(bound.described().procedure(&self.procedure)?.0);
        let mut bound = self.target.bound()?;
        if number(&bound).is_none() {
            // A server that was restarted may have the procedure.
            bound = self.target.renewed()?;
        }
        match number(&bound) {
            Some(number) => Ok((bound, number)),
            None => {
                let (name, interface) = (&self.procedure, &bound.described().name);
                let text = format!("`{interface}` has no procedure `{name}`");
                let names = bound.described().procedures.iter().map(|one| &*one.name).take(32);
                let advice = format!("its procedures are {}", names.collect::<Vec<_>>().join(", "));
                Err(Failure::no_such(text, advice))
            }
        }
    }

    /// Attempts the call once.
    ///
    /// # Errors
    /// The outer error ends the call. After the inner error, the caller of this function may attempt the call
    /// again.
    fn attempt(
        &self,
        bound: &Bound,
        number: u32,
        given: &Map<String, Value>,
        events: &mpsc::Sender<Event>,
        gone: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Result<Value, CallError>, Failure> {
        let described = bound.described();
        let procedure = &described.procedures[number as usize];
        let mut slots = arguments::read(described, procedure, given)?;
        let has_streams = procedure.parameters.iter().any(|one| one.direction.is_stream());
        let deadline = self.deadline.or(self.default_deadline.filter(|_| !has_streams));
        let limit = deadline.map_or(Limit::None, Limit::Until);
        let made = self.target.call(&bound.client, procedure, limit, |client| {
            make(client, number, procedure, &mut slots, events, gone)
        });
        Ok(match made {
            Ok(Ok(result)) => Ok(returned(described, procedure, &slots, &result)),
            Ok(Err(error)) => {
                let bytes = json::Bytes::Auto;
                let error = described.value_to_json(&procedure.error, &error, bytes);
                return Err(Failure::refused(&procedure.name, error));
            }
            Err(error) => Err(error),
        })
    }
}

/// Makes the call. The returned values replace the arguments in `slots`. Gives up the call when the future
/// `gone` completes.
fn make(
    client: &GenericClient,
    number: u32,
    procedure: &DescribedProcedure,
    slots: &mut [Slot],
    events: &mpsc::Sender<Event>,
    gone: Pin<&mut impl Future<Output = ()>>,
) -> Result<Result<Dynamic, Dynamic>, CallError> {
    let described = client.described();
    let both = slots.iter_mut().zip(&procedure.parameters);
    let mut arguments: Vec<Argument<'_>> = both
        .map(|(slot, parameter)| match slot {
            Slot::In(value) => Argument::In(value),
            Slot::InOut(value) => Argument::InOut(value),
            Slot::Out(room) => Argument::Out(Out::from(&mut room[..])),
            Slot::Sink => Argument::Sink(sink(described, parameter, events)),
            Slot::Source(items) => Argument::Source(Source::new(core::mem::take(items))),
        })
        .collect();
    let mut result = Dynamic::Unit;
    let made = client.call_unless(number, &mut arguments, &mut result, gone);
    let mut filled = arguments.iter().filter_map(|argument| match argument {
        Argument::Out(out) => Some(out.filled()),
        _ => None,
    });
    let filled: Vec<usize> = filled.by_ref().collect();
    drop(arguments);
    let mut filled = filled.into_iter();
    for slot in slots {
        if let Slot::Out(room) = slot {
            room.truncate(filled.next().unwrap_or(0));
        }
    }
    Ok(if made? { Ok(result) } else { Err(result) })
}

/// Returns a sink that reports each item as a line.
fn sink<'a>(
    described: &'a Described,
    parameter: &'a DescribedParameter,
    events: &'a mpsc::Sender<Event>,
) -> Sink<'a, Dynamic> {
    Sink::until(move |item| {
        let item = described.value_to_json(&parameter.ty, &item, json::Bytes::Auto);
        let line = line(&json!({ "sink": parameter.name, "item": item }));
        // If a slow reader leaves no space in the channel, the procedure waits here.
        match events.blocking_send(Event::Item(line)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })
}

/// Returns the JSON of a result and of returned parameters.
fn returned(
    described: &Described,
    procedure: &DescribedProcedure,
    slots: &[Slot],
    result: &Dynamic,
) -> Value {
    let bytes = json::Bytes::Auto;
    let mut whole = json!({ "result": described.value_to_json(&procedure.result, result, bytes) });
    let back = procedure.parameters.iter().zip(slots).filter_map(|(parameter, slot)| {
        let json = match (parameter.direction, slot) {
            (Direction::Out, Slot::Out(room)) => {
                described.argument_to_json(parameter, &Dynamic::plain(room), bytes)
            }
            (Direction::InOut, Slot::InOut(value)) => {
                described.argument_to_json(parameter, value, bytes)
            }
            _ => return None,
        };
        Some((parameter.name.clone(), json))
    });
    let back: Map<String, Value> = back.collect();
    if !back.is_empty() {
        whole["out"] = Value::Object(back);
    }
    whole
}
