//! Checks, in both byte orders, that the head of a call with streams has the documented bytes.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use peregrine::call::{Refusal, Reply, Request, Serve, Served};
use peregrine::interface::InterfaceRef;
use peregrine::value::ByteOrder;
use peregrine::{BindOptions, Binding, Sink, Source, interface};

use crate::document::check;

#[interface]
trait Watch {
    fn watch(
        &self,
        from: u16,
        numbers: Sink<'_, u16>,
        texts: Source<'_, String>,
    ) -> peregrine::Result<()>;
}

/// The vectors that the tests of this file check.
pub(crate) const STREAMS: &[&str] = &["head of watch"];

/// A server that sends the head of a call to the test, and refuses the call.
struct Recorder(Sender<Vec<u8>>, ByteOrder);

impl Serve for Recorder {
    fn interface(&self) -> InterfaceRef {
        WatchClient::INTERFACE.into()
    }
    fn byte_order(&self) -> ByteOrder {
        self.1
    }
    fn serve(&self, request: &mut Request<'_>, _: &mut Reply<'_>) -> Served {
        if request.procedure() == 0 {
            let raw = request.raw();
            let mut head = vec![0; raw.head.len()];
            raw.head.read(0, &mut head).expect("the whole head");
            self.0.send(head).expect("the test waits");
        }
        Err(Refusal::no_such_procedure(request.procedure()))
    }
}

#[test]
fn client_sends_documented_bytes_for_streams() {
    for (order, name) in
        [(ByteOrder::Little, "head of watch"), (ByteOrder::Big, "big head of watch")]
    {
        let (heads, told) = channel();
        let server = Arc::new(Recorder(heads, order));
        let client = WatchClient { binding: Binding::in_process(server, &BindOptions::default()) };
        assert!(client.watch(7, Sink::new(drop), Source::new([])).is_err());
        check(name, &told.recv().expect("a head"));
    }
}
