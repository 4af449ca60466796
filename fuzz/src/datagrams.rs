//! Passes arbitrary datagrams from a known client and from unknown clients to a service. The service accepts
//! the datagrams and executes valid calls. It keeps no state of a client after it has forgotten the client.

use std::cell::RefCell;
use std::sync::Arc;

use peregrine::fuzzing::Datagrams;

use super::{EverythingServer, Object};

thread_local! {
    static SERVICE: RefCell<Datagrams> = {
        let server = Arc::new(EverythingServer::new(Object));
        RefCell::new(Datagrams::new(server).expect("a socket"))
    };
}

/// Passes an input to the service. [`Datagrams::take`] describes the form of the input.
pub fn run(bytes: &[u8]) {
    SERVICE.with_borrow_mut(|service| service.take(bytes));
}
