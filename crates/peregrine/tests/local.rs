//! Runs the contract tests, which every path must pass, on the local path. This path uses shared memory.

mod contract;
mod support;

use std::sync::atomic::{AtomicU32, Ordering};

use contract::pressure::{self, PressureClient, PressureServer};
use contract::{ContractClient, ContractServer, Object};
use peregrine::Server;

#[test]
fn contract_holds() {
    let _directory = support::own_directory();
    pressure::calls_within_their_bounds_wait_for_each_other(&|store| {
        let server = Server::new().export("pressure", PressureServer::new(store));
        let server = server.expect("a free name").spawn().expect("a running server");
        let client = PressureClient::bind("pressure").expect("a binding");
        // The server runs until the process ends.
        std::mem::forget(server);
        client
    });
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let running = std::sync::Mutex::new(Vec::new());
    contract::suite(&|object: Object| {
        let name = format!("contract-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let server = Server::new().export(&name, ContractServer::new(object)).expect("a free name");
        running.lock().expect("no panic").push(server.spawn().expect("a running server"));
        ContractClient::bind(&name).expect("a binding")
    });
}
