//! Passes any message to the interpreted client stub and server stub of any description.

use std::sync::Arc;

use peregrine::call::{Answer, EStack, Incoming, Reply, Request, Serve, Served, execute};
use peregrine::interface::{Described, Direction, InterfaceRef};
use peregrine::json::Bytes;
use peregrine::value::{ByteOrder, Space, Window};
use peregrine::{
    Argument, BindOptions, Binding, Dynamic, GenericClient, GenericParameter, GenericServer, Out,
};

/// A server that answers every call with the same bytes, in the given byte order.
pub(crate) struct FixedAnswer(pub(crate) InterfaceRef, pub(crate) Vec<u8>, pub(crate) ByteOrder);

impl Serve for FixedAnswer {
    fn interface(&self) -> InterfaceRef {
        self.0.clone()
    }
    fn byte_order(&self) -> ByteOrder {
        self.2
    }
    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        request.raw();
        let answer =
            if self.1.first().is_some_and(|byte| byte & 1 == 1) { Answer::Err } else { Answer::Ok };
        reply.raw(answer, self.1.get(1..).unwrap_or(&[]))
    }
}

/// Runs the interpreted stubs of an interface. The input consists of a description, the byte 0xff, and a
/// message. The server stub interprets the first three bytes of the message as the number of the procedure,
/// the length of the head, and the length of the copied part. The client stub gets the whole message as its
/// reply.
///
/// # Panics
/// Panics if the server's answer lies outside the memory of the reply, or is `PostAgain`.
pub fn run(bytes: &[u8]) {
    let Some(end) = bytes.iter().position(|byte| *byte == 0xff) else { return };
    let Ok(text) = core::str::from_utf8(&bytes[..end]) else { return };
    let Ok(described) = Described::parse(text) else { return };
    let message = &bytes[end + 1..];
    serve(&described, message);
    for order in [ByteOrder::NATIVE, ByteOrder::NATIVE.other()] {
        call(&described, message, order);
    }
}

fn serve(described: &Described, message: &[u8]) {
    let Some((&[procedure, head, copied], message)) = message.split_first_chunk::<3>() else {
        return;
    };
    let all = described.clone();
    let server = GenericServer::new(described.clone(), move |call| {
        let parameters = &all.procedures[call.number() as usize].parameters;
        for (parameter, taken) in parameters.iter().zip(call.parameters()) {
            match taken {
                GenericParameter::In(value) | GenericParameter::InOut(value) => {
                    let _ = all.argument_to_json(parameter, value, Bytes::Auto).to_string();
                }
                GenericParameter::Out(out) => {
                    let _ = out.put(&[1, 2, 3, 4]);
                }
                GenericParameter::Lent(lent) => {
                    let _ = lent.write_to(&mut std::io::sink());
                }
                // Here no client sends items or answers callbacks. A procedure that used these parameters
                // would wait without end.
                GenericParameter::Sink(_)
                | GenericParameter::Source(_)
                | GenericParameter::Callback(_) => {}
            }
        }
        Ok(Ok(Dynamic::Unit))
    });
    let incoming = Incoming {
        procedure: u32::from(procedure),
        space: Window::from(message),
        head_bytes: head.into(),
        copied: copied.into(),
        total: message.len(),
        arrives: None,
        departs: None,
    };
    let mut memory = [0; 4096];
    let ran = execute(&server, &incoming, Space::of_mut(&mut memory), &mut EStack::default());
    assert!(ran.head_at + ran.head_bytes <= 4096 && ran.answer != Answer::PostAgain);
}

fn call(described: &Described, message: &[u8], order: ByteOrder) {
    let server = FixedAnswer(described.clone().into(), message.to_vec(), order);
    let options = BindOptions::default().astacks(1);
    let binding = Binding::in_process(Arc::new(server), &options);
    make_calls(&GenericClient::over(binding, described.clone()));
}

/// Calls those of the first four procedures that have only out parameters, and reads their results.
pub(crate) fn make_calls(client: &GenericClient) {
    let described = client.described();
    for (number, procedure) in (0..).zip(&described.procedures).take(4) {
        if procedure.parameters.iter().any(|one| one.direction != Direction::Out) {
            continue;
        }
        let mut room = vec![[0u8; 64]; procedure.parameters.len()];
        let mut arguments: Vec<_> =
            room.iter_mut().map(|room| Argument::Out(Out::from(room))).collect();
        let mut result = Dynamic::Unit;
        if let Ok(ok) = client.call_into(number, &mut arguments, &mut result) {
            let ty = if ok { &procedure.result } else { &procedure.error };
            let json = described.value_to_json(ty, &result, Bytes::Auto);
            let _ = described.value_from_json(ty, &json);
        }
    }
}
