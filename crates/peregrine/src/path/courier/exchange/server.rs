//! The export through which clients call a program of Courier over Peregrine's own paths.

use core::cell::RefCell;
use std::sync::Arc;

use super::{CALL, name_of};
use crate::call::{PathKind, Refusal, Reply, Request, Serve, Served};
use crate::error::Kind;
use crate::interface::{InterfaceRef, System};
use crate::observe::TapStub;
use crate::path::courier::wire::answers::{HEADER_BYTES_MAX, foreign_call, payload_of, put_answer};
use crate::path::courier::wire::payload::HEADER_BYTES;
use crate::path::foreign::serving::ReplyBuffer;
use crate::protocol::courier::message;
use crate::protocol::courier::packet;
use crate::serving::export::Export;

thread_local! {
    /// The memory in which a thread makes replies.
    static REPLY: RefCell<ReplyBuffer> = RefCell::default();
}

/// Returns an export of the same object for clients of Courier. Returns `None` if the interface of the object
/// is no program of Courier.
pub(crate) fn exchange_export(export: &Export) -> Option<Arc<Export>> {
    let interface = export.serve.interface();
    let program = interface.program(System::Courier)?;
    let name = name_of(program.number, program.version);
    let (number, version) = (program.number, program.version);
    let serve = export.serve_strangers(PathKind::CourierExchange);
    let tap = TapStub::new(Arc::clone(&export.tap));
    let serve = Arc::new(Messages { serve, tap, number, version });
    Some(export.viewed(name, serve))
}

/// The server stub of the export. The argument of its procedure is a call of Courier, and the result is the
/// reply. A call that the server does not run gets a refusal of Peregrine, which is more precise than a
/// rejection of Courier.
struct Messages {
    serve: Arc<dyn Serve>,
    tap: TapStub,
    number: u32,
    version: u32,
}

impl Serve for Messages {
    fn interface(&self) -> InterfaceRef {
        self.serve.interface()
    }

    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        if request.procedure() != CALL {
            return Err(Refusal::no_such_procedure(request.procedure()));
        }
        let payload = request.raw().copied;
        let call = packet::message(payload).ok();
        let call = call.and_then(|message| message::Call::parse(message).ok());
        let Some((call, _)) = call else {
            let text = "the argument is no call of version 3 of Courier";
            return Err(Refusal::new(Kind::BadArguments, text));
        };
        if (call.program, call.version.into()) != (self.number, self.version) {
            let text = format!("the export is version {} of program {}", self.version, self.number);
            return Err(Refusal::new(Kind::InterfaceMismatch, text));
        }
        let foreign = foreign_call(&call, &payload[HEADER_BYTES..]);
        // While the procedure runs, it may call an object of this process. That call runs on this thread,
        // and may use `REPLY`. So the buffer is taken out of `REPLY` meanwhile.
        let mut buffer = REPLY.take();
        let results = buffer.begin_results(HEADER_BYTES_MAX);
        let served = self.tap.of(&self.serve).serve_foreign(&foreign, results).and_then(|answer| {
            put_answer(&mut buffer, call.transaction, answer);
            reply.raw(answer.into(), payload_of(&mut buffer))
        });
        buffer.trim();
        REPLY.set(buffer);
        served
    }
}
