//! Datagrams of any bytes, from a caller that the service knows and from others: the service takes
//! them, runs what is a call, and keeps nothing of it when its callers are forgotten.
#![no_main]

use std::cell::RefCell;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use peregrine::fuzzing::Datagrams;
use peregrine_fuzz::{EverythingServer, Object};

thread_local! {
    static SERVICE: RefCell<Datagrams> = {
        let server = Arc::new(EverythingServer::new(Object));
        RefCell::new(Datagrams::new(server).expect("a socket"))
    };
}

fuzz_target!(|bytes: &[u8]| SERVICE.with_borrow_mut(|service| service.take(bytes)));
