//! Tests of a whole server. They use private items.

use std::sync::Arc;

use super::{Fault, Server};
use crate::binding::{BindOptions, Binding};
use crate::call::{Reply, Request, Serve, Served};
use crate::interface::{Digest, Interface, InterfaceRef};
use crate::serving::faults::injected;
use crate::sync::Mutex;

static NOTHING: Interface = Interface {
    name: "Nothing",
    version: 1,
    docs: "",
    procedures: &[],
    programs: &[],
    digest: || Digest([1; 16]),
};

struct Nothing;

impl Serve for Nothing {
    fn interface(&self) -> InterfaceRef {
        InterfaceRef::from(&NOTHING)
    }
    fn serve(&self, _: &mut Request<'_>, _: &mut Reply<'_>) -> Served {
        Ok(())
    }
}

#[test]
fn service_thread_that_panics_is_reported_and_serves_again() {
    let name = format!("faults-{}", std::process::id());
    let reported = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&reported);
    let server = Server::new().export(&name, Nothing).unwrap();
    let server = server.listen("tcp:127.0.0.1:0").unwrap();
    let server = server.on_fault(move |fault| hook.lock().push(fault.clone()));
    let running = server.spawn().unwrap();
    let listens = running.addresses()[0].to_string();
    let tcp = format!("tcp:{name}@{}", listens.trim_start_matches("tcp:"));
    for (thread, address) in [("peregrine-worker", &name), ("peregrine-stream", &tcp)] {
        injected::panic_in(thread);
        let options = BindOptions::default();
        let binding = Binding::bind(address, InterfaceRef::from(&NOTHING), &options).unwrap();
        binding.ping().unwrap();
        binding.ping().unwrap();
        let faults = core::mem::take(&mut *reported.lock());
        let text = format!("a fault in {thread}");
        assert_eq!(faults, [Fault::Thread { thread: thread.to_owned(), text }]);
    }
}
