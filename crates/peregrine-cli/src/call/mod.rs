//! `call`: calls any procedure of any server. The interface comes from the server, or from a saved
//! description.

mod arguments;
mod callbacks;
pub(crate) mod repeated;
mod show;
mod streams;
pub(crate) mod via;

use std::sync::Arc;
use std::time::{Duration, Instant};

use peregrine::interface::{Described, DescribedProcedure, Direction};
use peregrine::json::Bytes;
use peregrine::{
    Argument, BindOptions, CallError, Dynamic, GenericClient, Kind, Limit, Out, Source, Wait,
};
use serde_json::{Map, Value, json};

use self::arguments::{PreparedCall, Slot, Target};
pub(crate) use self::arguments::{find_procedure, is_buffer_back, is_given};
use self::streams::{Collected, Printer};
use crate::args::{Call, Format};
use crate::interrupt::{Interrupt, InterruptOptions};
use crate::output::{self, Failure};
use crate::saved;
use crate::security::bind_options;

/// How long a call may still run after a signal interrupted the command.
const GRACE: Duration = Duration::from_millis(50);

/// Makes one call.
pub(crate) fn run(call: &Call, format: Format) -> Result<(), Failure> {
    let signals = InterruptOptions { format, grace: GRACE, executed: "maybe" };
    let name = call.procedure.clone();
    let interrupt =
        Interrupt::handle(signals, || {}, move || format!("the call of `{name}` was cancelled"))?;
    if let Some(via) = &call.via {
        return via::run(call, via, format, &interrupt);
    }
    // If the interface comes from a file, the arguments are checked before any server is contacted.
    let saved = call.interface.as_deref();
    let saved = saved.map(|path| saved::read_for_call(path, &call.address, &call.procedure));
    let saved = saved.transpose()?;
    let ready = saved.as_ref().map(|described| PreparedCall::read(described, call)).transpose()?;
    let begun = Instant::now();
    let (bound, mut given) = match (saved, ready) {
        (Some(described), Some(given)) => {
            (BoundClient::as_described(call, described, given.message_bytes)?, given)
        }
        _ => {
            let client = GenericClient::bind_with(&call.address, &options(0))?;
            let given = PreparedCall::read(client.described(), call)?;
            (BoundClient::enlarged(call, client, given.message_bytes)?, given)
        }
    };
    let BoundClient { client, refused } = bound;
    let client = match call.timeout {
        Some(limit) => client.with_limit(Limit::Within(limit)),
        None => client,
    };
    let mut metadata = call.metadata.iter();
    let client =
        metadata.try_fold(client, |client, (key, value)| client.with_metadata(key, value))?;
    let bind = begun.elapsed();
    if format == Format::Human {
        given.notes.iter().for_each(output::note);
    }
    let described = client.described().clone();
    let procedure = &described.procedures[given.number as usize];
    let bytes = call.bytes.into();
    let printer = Arc::new(Printer::new(&described, procedure, bytes, format, &interrupt));
    let called = Instant::now();
    let made = make(&client, &mut given, &printer)?;
    let took = called.elapsed();
    let collected = printer.end();
    let path = client.binding().path().to_string();
    let mut members = json!({
        "path": path,
        "took_ns": output::whole_ns(took),
        "bind_ns": output::whole_ns(bind),
    });
    let made = made.map_err(|error| match refused {
        // The error of the earlier bind states which message size the server allows.
        Some(refused) if error.kind() == Kind::TooLarge => refused,
        _ => error,
    });
    // If a line could not be printed, the command fails with the error of printing, whatever the outcome of
    // the call.
    let Collected { items, calls } = collected.inspect_err(|_| interrupt.leave())?;
    if streams::has_lines(procedure) {
        interrupt.check(|| format!("the call of `{}` was cancelled", procedure.name))?;
        for (name, all) in [("items", items), ("calls", calls)] {
            if !all.is_empty() {
                members[name] = Value::Object(all);
            }
        }
    }
    let result = match made.map_err(Failure::from) {
        Ok(result) => result,
        Err(failure) => {
            interrupt.check(|| format!("the call of `{}` was cancelled", procedure.name))?;
            return Err(failure.with(members));
        }
    };
    interrupt.leave();
    let mut files = core::mem::take(&mut given.files);
    let done = CompletedCall { described: &described, procedure, given: &given, bytes };
    match result {
        Ok(result) => done.show(&mut files, &result, members, format, &path, took),
        Err(error) => Err(done.returned_error(&error, members)),
    }
}

/// A client. If the server refused the requested message size, also the error of that refusal.
struct BoundClient {
    client: GenericClient,
    refused: Option<CallError>,
}

impl BoundClient {
    /// Binds with the interface `described`. Requests messages of `message_bytes`, and binds with the default
    /// size if the server refuses that size.
    fn as_described(
        call: &Call,
        described: Described,
        message_bytes: usize,
    ) -> Result<Self, CallError> {
        let bind =
            |bytes| GenericClient::bind_as(&call.address, described.clone(), &options(bytes));
        match bind(message_bytes) {
            // `message_bytes` is an upper bound: the messages of the call may fit the default size
            // nevertheless.
            Err(error) if error.kind() == Kind::TooLarge && message_bytes > 0 => {
                Ok(Self { client: bind(0)?, refused: Some(error) })
            }
            bound => Ok(Self { client: bound?, refused: None }),
        }
    }

    /// Binds again if the call needs larger messages.
    fn enlarged(
        call: &Call,
        client: GenericClient,
        message_bytes: usize,
    ) -> Result<Self, CallError> {
        match message_bytes {
            0 => Ok(Self { client, refused: None }),
            bytes => Self::as_described(call, client.described().clone(), bytes),
        }
    }
}

fn options(message_bytes: usize) -> BindOptions {
    // Measuring how long to spin takes longer than sleeping once, so a single call is not worth the
    // measurement.
    let options = bind_options().wait(Wait::Block);
    match message_bytes {
        0 => options,
        bytes => options.message_bytes(bytes),
    }
}

/// The outcome of a call: the result, the procedure's own error, or the error of the call.
type Made = Result<Result<Dynamic, Dynamic>, CallError>;

/// Makes the call. The returned values replace the arguments in `given`.
///
/// # Errors
/// If a source cannot be read. In this case, no call was made.
fn make(
    client: &GenericClient,
    given: &mut PreparedCall,
    printer: &Arc<Printer>,
) -> Result<Made, Failure> {
    let described = client.described();
    let parameters = &described.procedures[given.number as usize].parameters;
    let mut filled: Vec<usize> = Vec::new();
    let mut result = Dynamic::Unit;
    let arguments = given.slots.iter_mut().zip(parameters).map(|(slot, parameter)| {
        Ok(match slot {
            Slot::In(value) => Argument::In(value),
            Slot::Bytes(bytes) => Argument::Bytes((&bytes[..]).into()),
            Slot::InOut(value) => Argument::InOut(value),
            Slot::Out(room) => Argument::Out(Out::from(&mut room[..])),
            Slot::Sink => Argument::Sink(printer.sink(parameter)),
            Slot::Callback => Argument::Callback(callbacks::server(printer, parameter)),
            Slot::Source(items) => Argument::Source(match items.take() {
                Some(items) => items.source(described, parameter)?,
                None => Source::new([]),
            }),
        })
    });
    let mut arguments: Vec<Argument<'_>> = arguments.collect::<Result<_, Failure>>()?;
    let made = client.call_into(given.number, &mut arguments, &mut result);
    // A one-way call returns before its procedure ends. `flush` waits for the end, and reports a
    // failure.
    let is_oneway = client.described().procedures[given.number as usize].oneway;
    let made = made.and_then(|made| match is_oneway {
        true => client.flush().map(|()| made),
        false => Ok(made),
    });
    for argument in &arguments {
        if let Argument::Out(out) = argument {
            filled.push(out.filled());
        }
    }
    drop(arguments);
    let mut filled = filled.into_iter();
    for place in &mut given.slots {
        if let Slot::Out(room) = place {
            room.truncate(filled.next().unwrap_or(0));
        }
    }
    Ok(made.map(|is_ok| if is_ok { Ok(result) } else { Err(result) }))
}

/// A completed call, with what is needed to show its results.
struct CompletedCall<'a> {
    described: &'a Described,
    procedure: &'a DescribedProcedure,
    given: &'a PreparedCall,
    bytes: Bytes,
}

/// A returned parameter: its name, its value as JSON, and its bytes if it is a plain buffer.
struct Returned<'a> {
    name: &'a str,
    raw: Option<&'a [u8]>,
    json: Value,
}

impl CompletedCall<'_> {
    /// Collects the returned parameters, and writes buffers to the files that `--out` names. If a file
    /// cannot be written, the other results are still shown.
    fn back(&self, files: &mut [Target]) -> (Vec<Returned<'_>>, Option<Failure>) {
        let mut all = Vec::new();
        let mut failed = None;
        for (parameter, place) in self.procedure.parameters.iter().zip(&self.given.slots) {
            let (value, raw) = match (parameter.direction, place) {
                (Direction::Out, Slot::Out(bytes)) => {
                    (Dynamic::Plain(bytes.clone()), Some(&bytes[..]))
                }
                // A name service returns each parameter as a value.
                (Direction::Out | Direction::InOut, Slot::InOut(value)) => match value {
                    Dynamic::Plain(bytes) => (value.clone(), Some(&bytes[..])),
                    _ => (value.clone(), None),
                },
                _ => continue,
            };
            let file = files.iter_mut().find(|one| one.name == parameter.name);
            let is_kept = file.is_some() && raw.is_some();
            let json = match (file, raw) {
                (Some(target), Some(bytes)) => {
                    let path = target.path.display().to_string();
                    let written = match target.is_piped() {
                        true => output::print_bytes(bytes),
                        false => target.write(bytes).map_err(|error| Failure::Unwritten {
                            what: format!("cannot write {path}"),
                            error,
                        }),
                    };
                    if let Err(failure) = written {
                        failed.get_or_insert(failure);
                    }
                    json!({ "file": path, "bytes": bytes.len() })
                }
                _ => self.described.argument_to_json(parameter, &value, self.bytes),
            };
            let raw = raw.filter(|_| !is_kept);
            all.push(Returned { name: &parameter.name, raw, json });
        }
        (all, failed)
    }

    fn show(
        &self,
        files: &mut [Target],
        result: &Dynamic,
        members: Value,
        format: Format,
        path: &str,
        took: Duration,
    ) -> Result<(), Failure> {
        let piped = files.iter().any(Target::is_piped);
        let (back, failed) = self.back(files);
        let result = self.described.value_to_json(&self.procedure.result, result, self.bytes);
        if format.is_json() {
            let out: Map<String, Value> =
                back.into_iter().map(|one| (one.name.to_owned(), one.json)).collect();
            let mut whole = json!({ "result": result, "out": out });
            if let (Some(whole), Value::Object(members)) = (whole.as_object_mut(), members) {
                whole.extend(members);
            }
            // The human format prints the notes before the call. The JSON output contains them.
            if !self.given.notes.is_empty() {
                whole["notes"] = json!(self.given.notes);
            }
            return match failed {
                Some(failure) => Err(failure.with(whole)),
                // Standard output must contain only the content of the buffer.
                None if piped => Ok(()),
                None => output::print(whole),
            };
        }
        // If standard output has lines of items and calls, all other text goes to standard error.
        let say = match streams::has_lines(self.procedure) {
            true => |text: String| {
                output::note(text);
                Ok(())
            },
            false => |text: String| output::say(text),
        };
        if !streams::has_lines(self.procedure) || !result.is_null() || !back.is_empty() {
            show::text(&result, &back, piped, say)?;
        }
        output::note(show::how(path, took));
        failed.map_or(Ok(()), Err)
    }

    /// Returns the failure of the command if the procedure returned the error `error`.
    fn returned_error(&self, error: &Dynamic, mut members: Value) -> Failure {
        let value = self.described.value_to_json(&self.procedure.error, error, self.bytes);
        let text = match &value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        members["error_value"] = value;
        Failure::Refused(format!("`{}` returned an error: {text}", self.procedure.name))
            .with(members)
    }
}
