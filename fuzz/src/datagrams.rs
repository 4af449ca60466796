//! Datagrams of any bytes, from a caller that the service knows and from others: the service takes
//! them, runs what is a call, and keeps nothing of it when its callers are forgotten.

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

/// Input: as [`Datagrams::take`] has it.
pub fn run(bytes: &[u8]) {
    SERVICE.with_borrow_mut(|service| service.take(bytes));
}
