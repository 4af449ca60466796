//! `call`: any procedure of any server, by what the server says of its interface.

mod arguments;
mod show;

use std::time::{Duration, Instant};

use peregrine::interface::{Described, DescribedProcedure, Direction};
use peregrine::json::Bytes;
use peregrine::{Argument, BindOptions, CallError, Dynamic, GenericClient, Kind, Limit, Out, Wait};
use serde_json::{Map, Value, json};

use self::arguments::{Given, Place, Target};
pub(crate) use self::arguments::{find_procedure, is_buffer_back};
use crate::args::{Call, Format};
use crate::interrupt::{Interrupt, Terms};
use crate::output::{self, Failure};
use crate::saved;

/// How long a call has to come to its end when it is interrupted.
const GRACE: Duration = Duration::from_millis(50);

/// Makes one call.
pub(crate) fn run(call: &Call, format: Format) -> Result<(), Failure> {
    let terms = Terms { format, grace: GRACE, executed: "maybe" };
    let name = call.procedure.clone();
    let interrupt =
        Interrupt::mind(terms, || {}, move || format!("the call of `{name}` was given up"))?;
    // What was saved tells before anybody is asked whether the arguments make sense.
    let saved = call.interface.as_deref().map(saved::read).transpose()?;
    let ready = saved.as_ref().map(|described| Given::read(described, call)).transpose()?;
    let begun = Instant::now();
    let (bound, mut given) = match (saved, ready) {
        (Some(described), Some(given)) => {
            (Bound::as_described(call, described, given.message_bytes)?, given)
        }
        _ => {
            let client = GenericClient::bind_with(&call.address, &options(0))?;
            let given = Given::read(client.described(), call)?;
            (Bound::enlarged(call, client, given.message_bytes)?, given)
        }
    };
    let Bound { client, refused } = bound;
    let client = match call.timeout {
        Some(limit) => client.with_limit(Limit::Within(limit)),
        None => client,
    };
    let bind = begun.elapsed();
    if format == Format::Human {
        given.notes.iter().for_each(output::tell);
    }
    let described = client.described().clone();
    let procedure = &described.procedures[given.number as usize];
    let called = Instant::now();
    let made = make(&client, &mut given);
    let took = called.elapsed();
    let path = client.binding().path().to_string();
    let told = json!({
        "path": path,
        "took_ns": output::whole_ns(took),
        "bind_ns": output::whole_ns(bind),
    });
    let made = made.map_err(|error| match refused {
        // The refusal says which size is allowed.
        Some(refused) if error.kind() == Kind::TooLarge => refused,
        _ => error,
    });
    let result = match made.map_err(Failure::from) {
        Ok(result) => result,
        Err(failure) => {
            interrupt.check(|| format!("the call of `{}` was given up", procedure.name))?;
            return Err(failure.with(told));
        }
    };
    interrupt.leave();
    let mut files = core::mem::take(&mut given.files);
    let done = Done { described: &described, procedure, given: &given, bytes: call.bytes.into() };
    match result {
        Ok(result) => done.show(&mut files, &result, told, format, &path, took),
        Err(error) => Err(done.said(&error, told)),
    }
}

/// A client, and why its messages are not as large as was asked.
struct Bound {
    client: GenericClient,
    refused: Option<CallError>,
}

impl Bound {
    /// Binds by a description, with messages of this size if the server allows it.
    fn as_described(
        call: &Call,
        described: Described,
        message_bytes: usize,
    ) -> Result<Self, CallError> {
        let bind =
            |bytes| GenericClient::bind_as(&call.address, described.clone(), &options(bytes));
        match bind(message_bytes) {
            // The size is an upper bound: the call may fit all the same.
            Err(error) if error.kind() == Kind::TooLarge && message_bytes > 0 => {
                Ok(Self { client: bind(0)?, refused: Some(error) })
            }
            bound => Ok(Self { client: bound?, refused: None }),
        }
    }

    /// Binds again if the messages of a client must be larger.
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
    // For one call it takes longer to find out how long to spin than to sleep once.
    let options = BindOptions::default().wait(Wait::Block);
    match message_bytes {
        0 => options,
        bytes => options.message_bytes(bytes),
    }
}

/// Makes the call; what came back stands in the places of the arguments.
fn make(client: &GenericClient, given: &mut Given) -> Result<Result<Dynamic, Dynamic>, CallError> {
    let mut filled: Vec<usize> = Vec::new();
    let mut result = Dynamic::Unit;
    let mut arguments: Vec<Argument<'_>> = given
        .places
        .iter_mut()
        .map(|place| match place {
            Place::In(value) => Argument::In(value),
            Place::Bytes(bytes) => Argument::Bytes((&bytes[..]).into()),
            Place::InOut(value) => Argument::InOut(value),
            Place::Out(room) => Argument::Out(Out::from(&mut room[..])),
        })
        .collect();
    let made = client.call_into(given.number, &mut arguments, &mut result);
    for argument in &arguments {
        if let Argument::Out(out) = argument {
            filled.push(out.filled());
        }
    }
    drop(arguments);
    let mut filled = filled.into_iter();
    for place in &mut given.places {
        if let Place::Out(room) = place {
            room.truncate(filled.next().unwrap_or(0));
        }
    }
    Ok(if made? { Ok(result) } else { Err(result) })
}

/// A call that came to its end.
struct Done<'a> {
    described: &'a Described,
    procedure: &'a DescribedProcedure,
    given: &'a Given,
    bytes: Bytes,
}

/// What came back in a parameter: its name, its bytes if it is a buffer of those, and as JSON.
struct Back<'a> {
    name: &'a str,
    raw: Option<&'a [u8]>,
    json: Value,
}

impl Done<'_> {
    /// What came back besides the result. Buffers for which a file was named are in it then; a file that
    /// could not be written is told beside the result, which is not lost for it.
    fn back(&self, files: &mut [Target]) -> (Vec<Back<'_>>, Option<Failure>) {
        let mut all = Vec::new();
        let mut failed = None;
        for (parameter, place) in self.procedure.parameters.iter().zip(&self.given.places) {
            let (value, raw) = match (parameter.direction, place) {
                (Direction::Out, Place::Out(bytes)) => {
                    (Dynamic::Plain(bytes.clone()), Some(&bytes[..]))
                }
                (Direction::InOut, Place::InOut(value)) => match value {
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
                            what: format!("writing {path}"),
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
            all.push(Back { name: &parameter.name, raw, json });
        }
        (all, failed)
    }

    fn show(
        &self,
        files: &mut [Target],
        result: &Dynamic,
        told: Value,
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
            if let (Some(whole), Value::Object(told)) = (whole.as_object_mut(), told) {
                whole.extend(told);
            }
            // Who reads JSON is told so, too.
            if !self.given.notes.is_empty() {
                whole["notes"] = json!(self.given.notes);
            }
            return match failed {
                Some(failure) => Err(failure.with(whole)),
                // What went to standard output instead stands there alone.
                None if piped => Ok(()),
                None => output::print(whole),
            };
        }
        show::people(&result, &back, piped)?;
        output::tell(show::how(path, took));
        failed.map_or(Ok(()), Err)
    }

    /// The procedure said no.
    fn said(&self, error: &Dynamic, mut told: Value) -> Failure {
        let value = self.described.value_to_json(&self.procedure.error, error, self.bytes);
        let text = match &value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        told["said"] = value;
        Failure::Said(format!("`{}` said no: {text}", self.procedure.name)).with(told)
    }
}
