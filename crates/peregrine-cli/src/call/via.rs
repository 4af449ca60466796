//! `call --via`: a name service finds the server and makes the call.

use std::time::Instant;

use peregrine::interface::{Described, DescribedParameter, DescribedType, Direction};
use peregrine::json::Bytes;
use peregrine::{CallError, Dynamic, Executed, Kind, Phase};
use peregrine_names::{Lookup as _, LookupClient, NamesError};
use serde_json::{Map, Value, json};

use super::arguments::{PreparedCall, Slot};
use super::{CompletedCall, options};
use crate::args::{Call, Format};
use crate::interrupt::Interrupt;
use crate::output::{self, Failure};

/// Makes a call through the name service `via`.
pub(super) fn run(
    call: &Call,
    via: &str,
    format: Format,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let begun = Instant::now();
    let names = LookupClient::bind_with(via, &options(0))?;
    let names = match call.timeout {
        Some(limit) => names.with_timeout(limit),
        None => names,
    };
    let mut metadata = call.metadata.iter();
    let names = metadata.try_fold(names, |names, (key, value)| names.with_metadata(key, value))?;
    let described = describe(&names, &call.address)?;
    let mut given = PreparedCall::read(&described, call)?;
    let procedure = &described.procedures[given.number as usize];
    check_files(&given, &procedure.parameters)?;
    let arguments = arguments(&described, &given, &procedure.parameters)?;
    let bind = begun.elapsed();
    if format == Format::Human {
        given.notes.iter().for_each(output::note);
    }
    let called = Instant::now();
    let made = names.call(&call.address, &procedure.name, &arguments.to_string());
    let took = called.elapsed();
    let path = format!("{} via {via}", names.binding().path());
    let mut members = json!({
        "path": names.binding().path().to_string(),
        "via": via,
        "took_ns": output::whole_ns(took),
        "bind_ns": output::whole_ns(bind),
    });
    let returned = match made {
        Ok(returned) => returned,
        Err(error) => {
            interrupt.check(|| format!("the call of `{}` was cancelled", procedure.name))?;
            return Err(Failure::from(error.into_call_error()).with(members));
        }
    };
    interrupt.leave();
    members["server"] = json!(returned.address);
    let path = format!("{path}, server {}", output::visible(&returned.address));
    let json: Value = serde_json::from_str(&returned.json).map_err(|error| unreadable(&error))?;
    let ty = if returned.is_error { &procedure.error } else { &procedure.result };
    let value = if returned.is_error { &json } else { &json["result"] };
    let value = described.value_from_json(ty, value).map_err(|error| unreadable(&error))?;
    if !returned.is_error {
        for (parameter, slot) in procedure.parameters.iter().zip(&mut given.slots) {
            if let Slot::Out(_) | Slot::InOut(_) = slot {
                let value = described.argument_from_json(parameter, &json["out"][&parameter.name]);
                *slot = Slot::InOut(value.map_err(|error| unreadable(&error))?);
            }
        }
    }
    let mut files = core::mem::take(&mut given.files);
    let done =
        CompletedCall { described: &described, procedure, given: &given, bytes: call.bytes.into() };
    match returned.is_error {
        false => done.show(&mut files, &value, members, format, &path, took),
        true => Err(done.returned_error(&value, members)),
    }
}

/// Returns the interface of a name, as the name service describes it. If that fails, the call of the user was
/// certainly not executed, because it comes later.
pub(crate) fn describe(names: &LookupClient, name: &str) -> Result<Described, Failure> {
    let interface = names.describe(name).map_err(|error| {
        let error = NamesError::into_call_error(error);
        match error.executed() {
            Executed::Maybe => {
                let text = format!("reading the interface of `{name}`: {}", error.chain());
                CallError::new(error.kind(), Executed::No, text).in_phase(Phase::Resolve)
            }
            _ => error,
        }
    })?;
    let unreadable = |error: &dyn core::fmt::Display| {
        let text =
            format!("the interface that the name service describes is not readable: {error}");
        CallError::new(Kind::BadResult, Executed::No, text).in_phase(Phase::Resolve)
    };
    let json = serde_json::from_str(&interface.json).map_err(|error| unreadable(&error))?;
    Ok(Described::from_json(&json).map_err(|error| unreadable(&error))?)
}

/// Binds to a name service.
pub(crate) fn bind(via: &str) -> Result<LookupClient, Failure> {
    Ok(LookupClient::bind_with(via, &options(0))?)
}

#[cold]
fn unreadable(error: &dyn core::fmt::Display) -> CallError {
    let text = format!("the name service has returned what does not fit the interface: {error}");
    CallError::new(Kind::BadResult, Executed::Maybe, text)
}

/// # Errors
/// If a file is for a buffer that is not of bytes: JSON does not say how its elements lie in memory.
fn check_files(given: &PreparedCall, parameters: &[DescribedParameter]) -> Result<(), Failure> {
    let of_file = |one: &&DescribedParameter| given.files.iter().any(|file| file.name == one.name);
    match parameters.iter().filter(of_file).find(|one| one.ty != DescribedType::U8) {
        None => Ok(()),
        Some(one) => {
            let what = format!("--out {}: it is not a buffer of bytes", one.name);
            Err(Failure::local(what, "call the server without --via"))
        }
    }
}

/// Returns the arguments as the JSON object that the name service takes.
fn arguments(
    described: &Described,
    given: &PreparedCall,
    parameters: &[DescribedParameter],
) -> Result<Value, Failure> {
    let mut all = Map::new();
    for (parameter, slot) in parameters.iter().zip(&given.slots) {
        let value = |value: &Dynamic| described.argument_to_json(parameter, value, Bytes::Auto);
        let json = match slot {
            Slot::In(argument) | Slot::InOut(argument) => value(argument),
            Slot::Bytes(bytes) => value(&Dynamic::plain(bytes)),
            Slot::Out(room) => {
                let one = described.plain_bytes(&parameter.ty).unwrap_or(1).max(1);
                json!(room.len() as u64 / one)
            }
            Slot::Sink | Slot::Callback | Slot::Source(_) => {
                let kind = match parameter.direction {
                    Direction::Callback => "callback",
                    _ => "stream",
                };
                let what = format!("a name service does not carry the {kind} `{}`", parameter.name);
                return Err(Failure::local(what, "call the server without --via"));
            }
        };
        all.insert(parameter.name.clone(), json);
    }
    Ok(Value::Object(all))
}
