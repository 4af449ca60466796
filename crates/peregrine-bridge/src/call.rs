//! One call: in the task of its connection, or on a thread that may wait.

use core::future::poll_fn;
use core::ops::ControlFlow;
use core::pin::{Pin, pin};
use core::task::Poll;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use hyper::body::Bytes;
use peregrine::interface::{Described, DescribedParameter, DescribedProcedure};
use peregrine::json::{self, NoSlots, Slots};
use peregrine::{CallError, Dynamic, GenericClient, Limit, Sink};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::failure::Failure;
use crate::lines::{Event, Pending, line};
use crate::target::{Bound, Target};

/// The maximum number of stream items that wait for a slow reader, in addition to those in socket buffers.
const AHEAD: usize = 16;
/// The largest number of bytes that a task converts from JSON, or to JSON. Converting more takes so long that
/// other connections would wait. Only the first large result of a procedure is received in a task.
const HERE_BYTES_MAX: usize = 64 << 10;

/// A call that a request asks for.
pub(crate) struct Call {
    pub(crate) target: Arc<Target>,
    pub(crate) procedure: String,
    /// The JSON object of the arguments.
    pub(crate) body: Bytes,
    /// The metadata of the call, as keys and values that are not validated.
    pub(crate) metadata: Vec<(String, String)>,
    /// The time by which the call must end, if the request gives a limit.
    pub(crate) deadline: Option<Instant>,
    /// The time by which a call without streams must end, if the request gives no limit.
    pub(crate) default_deadline: Option<Instant>,
    /// Whether the call is made for the second time, because its server had ended before the first time.
    pub(crate) is_repeated: bool,
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
    /// Makes the call in this task, if that does not keep the task from other work: if a binding exists, the
    /// body is small, and the procedure has no streams and has returned no large result so far. Otherwise,
    /// returns the call and the permit.
    ///
    /// # Errors
    /// Returns why the call failed.
    pub(crate) async fn run_here(
        mut self,
        permit: OwnedSemaphorePermit,
    ) -> Result<Result<Bytes, Failure>, (Self, OwnedSemaphorePermit)> {
        let Some((bound, number)) = self.quick() else { return Err((self, permit)) };
        let mut slots = match self.slots(&bound, number) {
            Ok(slots) => slots,
            Err(failure) => return Ok(Err(failure)),
        };
        let made = match self.with_metadata(bound.client.with_limit(self.limit(false))) {
            Ok(client) => caught(make_here(&client, number, &mut slots)).await,
            Err(error) => Some(Err(error)),
        };
        let end = match made {
            None => Err(Failure::internal()),
            Some(Ok(made)) => {
                if is_large(&slots, made.as_ref().unwrap_or_else(|error| error)) {
                    bound.note_large(number);
                    // The permit bounds the number of results that are being converted, also if the client
                    // disconnects.
                    let ended = move || {
                        let _permit = permit;
                        ended(bound.described(), number, &slots, made)
                    };
                    let ended = tokio::task::spawn_blocking(ended).await;
                    return Ok(ended.unwrap_or_else(|_| Err(Failure::internal())));
                }
                ended(bound.described(), number, &slots, made)
            }
            Some(Err(error)) if self.target.failed(&bound, &error) => {
                self.is_repeated = true;
                return Err((self, permit));
            }
            Some(Err(error)) => Err(Failure::from(&error)),
        };
        if let Some(bound) = Arc::into_inner(bound) {
            // Another task has forgotten the binding meanwhile. Dropping a binding may take time.
            drop(tokio::task::spawn_blocking(move || drop(bound)));
        }
        Ok(end)
    }

    /// Returns the binding and the number of the procedure, if the call should soon end.
    fn quick(&self) -> Option<(Arc<Bound>, u32)> {
        if self.body.len() > HERE_BYTES_MAX {
            return None;
        }
        let bound = self.target.ready()?;
        let (number, procedure) = bound.described().procedure(&self.procedure)?;
        let has_streams = procedure.parameters.iter().any(|one| one.direction.is_stream());
        let is_quick = !procedure.oneway && !has_streams && !bound.was_large(number);
        is_quick.then_some((bound, number))
    }

    /// Makes the call on this thread, and reports its items and its end.
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
    ) -> Result<Bytes, Failure> {
        // An error means that the sender was dropped, because the connection is gone.
        let mut gone = pin!(async move { drop(gone.await) });
        let mut is_repeated = self.is_repeated;
        loop {
            let (bound, number) = self.bound()?;
            let error = match self.attempt(&bound, number, events, gone.as_mut())? {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            if !self.target.failed(&bound, &error) || is_repeated {
                return Err(Failure::from(&error));
            }
            is_repeated = true;
        }
    }

    /// Returns the arguments of the call.
    fn slots(&self, bound: &Bound, number: u32) -> Result<Slots, Failure> {
        let procedure = &bound.described().procedures[number as usize];
        match serde_json::from_slice(&self.body) {
            Ok(Value::Object(given)) => {
                Slots::read(bound.described(), procedure, &given).map_err(|error| match error {
                    NoSlots::Callback(name) => Failure::callback(&name),
                    error => Failure::bad_arguments(error.to_string()),
                })
            }
            Ok(_) => Err(Failure::bad_arguments(
                "arguments: expected an object with the names of arguments",
            )),
            Err(error) => {
                let text = format!("arguments: cannot parse the body as JSON: {error}");
                Err(Failure::bad_arguments(text))
            }
        }
    }

    /// Returns the client with the metadata of the call.
    ///
    /// # Errors
    /// If the metadata is invalid, or the target cannot take any.
    fn with_metadata(&self, client: GenericClient) -> Result<GenericClient, CallError> {
        let mut pairs = self.metadata.iter();
        pairs.try_fold(client, |client, (key, value)| client.with_metadata(key, value))
    }

    fn limit(&self, has_streams: bool) -> Limit {
        let deadline = self.deadline.or(self.default_deadline.filter(|_| !has_streams));
        deadline.map_or(Limit::None, Limit::Until)
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
        events: &mpsc::Sender<Event>,
        gone: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Result<Bytes, CallError>, Failure> {
        let described = bound.described();
        let procedure = &described.procedures[number as usize];
        let mut slots = self.slots(bound, number)?;
        let has_streams = procedure.parameters.iter().any(|one| one.direction.is_stream());
        let limit = self.limit(has_streams);
        let made = self.target.call(&bound.client, procedure, limit, |client| {
            let client = self.with_metadata(client.clone())?;
            make(&client, number, procedure, &mut slots, events, gone)
        });
        match made {
            Ok(made) => ended(described, number, &slots, made).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }
}

/// Returns the JSON text of the end of a call.
fn ended(
    described: &Described,
    number: u32,
    slots: &Slots,
    made: Result<Dynamic, Dynamic>,
) -> Result<Bytes, Failure> {
    let procedure = &described.procedures[number as usize];
    match made {
        Ok(result) => Ok(slots.returned(described, procedure, &result).to_string().into()),
        Err(error) => {
            let error = described.value_to_json(&procedure.error, &error, json::Bytes::Auto);
            Err(Failure::refused(&procedure.name, error))
        }
    }
}

/// Returns whether converting the values to JSON takes long.
fn is_large(slots: &Slots, result: &Dynamic) -> bool {
    /// Subtracts the size of a value from the number of bytes that are left.
    fn take(value: &Dynamic, left: usize) -> Option<usize> {
        let left = left.checked_sub(size_of::<Dynamic>())?;
        match value {
            Dynamic::Text(text) => left.checked_sub(text.len()),
            Dynamic::Plain(bytes) => left.checked_sub(bytes.len()),
            Dynamic::List(values) | Dynamic::Variant(_, values) => {
                values.iter().try_fold(left, |left, value| take(value, left))
            }
            Dynamic::Option(Some(value)) | Dynamic::Result(Ok(value) | Err(value)) => {
                take(value, left)
            }
            Dynamic::Units(count) => left.checked_sub(*count as usize),
            _ => Some(left),
        }
    }
    let left = slots.back().try_fold(HERE_BYTES_MAX, |left, part| match part {
        Ok(value) => take(value, left),
        Err(bytes) => left.checked_sub(bytes),
    });
    left.and_then(|left| take(result, left)).is_none()
}

/// Runs a future. Returns `None` if it panics.
async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        let poll = AssertUnwindSafe(|| future.as_mut().poll(context));
        match catch_unwind(poll) {
            Ok(poll) => poll.map(Some),
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}

/// Makes a call without streams, as [`make`] does, but does not block the thread.
async fn make_here(
    client: &GenericClient,
    number: u32,
    slots: &mut Slots,
) -> Result<Result<Dynamic, Dynamic>, CallError> {
    let procedure = &client.described().procedures[number as usize];
    let mut arguments = slots.arguments(procedure, |_| Sink::new(drop));
    let mut result = Dynamic::Unit;
    let made = client.call_async(number, &mut arguments, &mut result).await;
    let filled = Slots::filled(&arguments);
    drop(arguments);
    slots.truncate(filled);
    Ok(if made? { Ok(result) } else { Err(result) })
}

/// Makes the call. The returned values replace the arguments in `slots`. Gives up the call when the future
/// `gone` completes.
fn make(
    client: &GenericClient,
    number: u32,
    procedure: &DescribedProcedure,
    slots: &mut Slots,
    events: &mpsc::Sender<Event>,
    gone: Pin<&mut impl Future<Output = ()>>,
) -> Result<Result<Dynamic, Dynamic>, CallError> {
    let described = client.described();
    let sink = |parameter| sink(described, parameter, events);
    let mut arguments = slots.arguments(procedure, sink);
    let mut result = Dynamic::Unit;
    let made = client.call_unless(number, &mut arguments, &mut result, gone);
    let filled = Slots::filled(&arguments);
    drop(arguments);
    slots.truncate(filled);
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
