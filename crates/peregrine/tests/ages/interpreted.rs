//! Makes calls with interpreted stubs, which read the description of an interface at run time. Arguments and
//! results are in JSON.

use std::fmt::Debug;

use peregrine::interface::Direction;
use peregrine::json::Bytes;
use peregrine::{Argument, CallError, Dynamic, GenericClient, Out};
use serde_json::Value;

/// A call: the name of the procedure, and a JSON object with the arguments. The argument of an out parameter
/// is the number of elements that the client's buffer can hold.
pub(crate) type Call = (&'static str, &'static str);

/// Returns an outcome as text. The text of a failed call does not contain the server's address.
pub(crate) fn told<T: Debug>(outcome: Result<T, CallError>) -> String {
    match outcome {
        Ok(value) => format!("{value:?}"),
        Err(error) => told_error(&error),
    }
}

pub(crate) fn told_error(error: &CallError) -> String {
    format!("{:?}, executed {:?}: {}", error.kind(), error.executed(), error.detail())
}

/// Returns a JSON text in which the names of each object are sorted. The order of `serde_json` itself depends
/// on its features.
fn sorted(json: &Value) -> String {
    match json {
        Value::Object(all) => {
            let mut parts: Vec<String> =
                all.iter().map(|(name, value)| format!("\"{name}\":{}", sorted(value))).collect();
            parts.sort();
            format!("{{{}}}", parts.join(","))
        }
        Value::Array(all) => {
            format!("[{}]", all.iter().map(sorted).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

/// Makes a call. Returns the result, and the values of the out and in-out parameters, in JSON.
pub(crate) fn call(client: &GenericClient, (name, arguments): &Call) -> String {
    let described = client.described();
    let (_, procedure) = described.procedure(name).expect("a procedure of the client");
    let json: Value = serde_json::from_str(arguments).expect("JSON");
    let mut values = Vec::new();
    let mut spaces = Vec::new();
    for one in &procedure.parameters {
        let given = &json[&one.name];
        let (mut value, mut space) = (Dynamic::Unit, Vec::new());
        if one.direction == Direction::Out {
            let count = given.as_u64().expect("a number of elements");
            let bytes = count * described.plain_bytes(&one.ty).expect("plain elements");
            space.reserve_exact(bytes as usize);
        } else {
            value =
                described.argument_from_json(one, given).unwrap_or_else(|unfit| panic!("{unfit}"));
        }
        values.push(value);
        spaces.push(space);
    }
    let mut all = Vec::new();
    for ((one, value), space) in procedure.parameters.iter().zip(&mut values).zip(&mut spaces) {
        all.push(match one.direction {
            Direction::Out => Argument::Out(Out::from(space)),
            Direction::InOut => Argument::InOut(value),
            _ => Argument::In(value),
        });
    }
    let outcome = client.call(name, &mut all);
    drop(all);
    let mut text = match &outcome {
        Ok(Ok(value)) => sorted(&described.value_to_json(&procedure.result, value, Bytes::Auto)),
        Ok(Err(value)) => {
            let json = described.value_to_json(&procedure.error, value, Bytes::Auto);
            return format!("error {}", sorted(&json));
        }
        Err(error) => return told_error(error),
    };
    for ((one, value), space) in procedure.parameters.iter().zip(values).zip(spaces) {
        let value = match one.direction {
            Direction::Out => Dynamic::Plain(space),
            Direction::InOut => value,
            _ => continue,
        };
        let json = described.argument_to_json(one, &value, Bytes::Auto);
        text.push_str(&format!(", {} {}", one.name, sorted(&json)));
    }
    text
}
