//! Arbitrary datagrams from a known client and from unknown ones. The service accepts them, executes valid
//! calls, and keeps no state when their clients are forgotten.

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

/// Input: as in [`Datagrams::take`].
pub fn run(bytes: &[u8]) {
    SERVICE.with_borrow_mut(|service| service.take(bytes));
}
