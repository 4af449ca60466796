//! Runs the contract tests, which every path must pass, on the local path. This path uses shared memory.

mod contract;
mod support;

use std::sync::atomic::{AtomicU32, Ordering};

use contract::{AnyServer, Client, pressure};
use peregrine::{BindOptions, Server};

#[test]
fn contract_holds() {
    let _directory = support::own_directory();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let running = std::sync::Mutex::new(Vec::new());
    let exported = |server: AnyServer| {
        let name = format!("contract-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let server = Server::new().export(&name, server).expect("a free name");
        running.lock().expect("no panic").push(server.spawn().expect("a running server"));
        name
    };
    let options = BindOptions::default();
    pressure::calls_within_their_bounds_wait_for_each_other(&|server, form| {
        pressure::Client::bind(form, &exported(server), &options).expect("a binding")
    });
    let connect =
        |server, form| Client::bind(form, &exported(server), &options).expect("a binding");
    contract::suite("local", &connect);
    contract::suite_on_an_executor("local", &connect);
}
