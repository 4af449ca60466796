//! Binds clients to servers that have another interface, and lets the client stub convert any message.

use std::sync::Arc;

use peregrine::interface::{Described, Sides, compare};
use peregrine::value::ByteOrder;
use peregrine::{Argument, BindOptions, Binding, Dynamic, GenericClient};

use super::dynamic::{FixedAnswer, make_calls};

/// Compares two interfaces, and makes calls between them. The input consists of two descriptions and a
/// message, with the byte 0xff between them. Each of the two interfaces serves once as the client's
/// interface, and once as the server's interface. The client gets the message as the reply to every call.
///
/// # Panics
/// Panics if the client can bind although the comparison says that the client's interface does not fit. If
/// the interface fits, a bind may fail only if the conversion exceeds a limit. Any other failure panics.
pub fn run(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0xff);
    let mut described = || {
        let text = core::str::from_utf8(parts.next()?).ok()?;
        Described::parse(text).ok()
    };
    let (Some(one), Some(other)) = (described(), described()) else { return };
    let message = parts.next().unwrap_or(&[]);
    for (ours, theirs) in [(&one, &other), (&other, &one)] {
        for order in [ByteOrder::NATIVE, ByteOrder::NATIVE.other()] {
            call(ours, theirs, message, order);
        }
    }
}

fn call(ours: &Described, theirs: &Described, message: &[u8], order: ByteOrder) {
    let fits = compare(ours, theirs, Sides::BY_CLIENT).fits();
    let server = FixedAnswer(theirs.clone().into(), message.to_vec(), order);
    let options = BindOptions::default().astacks(1);
    match Binding::in_process_as(ours.clone(), Arc::new(server), &options) {
        Ok(binding) => {
            assert!(fits, "a client was bound although its interface does not fit");
            let client = GenericClient::over(binding, ours.clone());
            make_calls(&client);
            make_calls_with_units(&client);
        }
        Err(error) => assert!(!fits || error.to_string().contains("too many"), "{error}"),
    }
}

/// Calls the first procedures. The arguments hardly ever fit the parameters, so the stub must refuse or
/// convert them.
fn make_calls_with_units(client: &GenericClient) {
    for (number, procedure) in (0..).zip(&client.described().procedures).take(4) {
        let mut values: Vec<_> =
            procedure.parameters.iter().map(|_| Dynamic::List(Vec::new())).collect();
        let mut arguments: Vec<_> = values.iter_mut().map(Argument::InOut).collect();
        let _ = client.call_into(number, &mut arguments, &mut Dynamic::Unit);
    }
}
