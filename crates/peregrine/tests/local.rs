//! The contract on the local path: the same suite, through shared memory.

mod contract;

use std::sync::atomic::{AtomicU32, Ordering};

use contract::pressure::{self, PressureClient, PressureServer};
use contract::{ContractClient, ContractServer, Object};
use peregrine::Server;

/// A runtime directory of this test's own, for all that this process exports.
fn own_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // SAFETY: called before any other thread of this process looks at the environment.
    unsafe { std::env::set_var("PEREGRINE_DIR", directory.path()) };
    directory
}

#[test]
fn the_local_path_keeps_the_contract() {
    let _directory = own_directory();
    pressure::calls_within_their_bounds_wait_for_each_other(&|store| {
        let server = Server::new().export("pressure", PressureServer::new(store));
        let server = server.expect("a free name").spawn().expect("a running server");
        let client = PressureClient::bind("pressure").expect("a binding");
        // It serves for as long as the process lives.
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
