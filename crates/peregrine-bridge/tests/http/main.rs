//! Tests a bridge with servers in other processes, and with clients of every kind.

#[path = "../world/mod.rs"]
mod world;

mod calls;
mod failures;
mod hostile;

use std::net::SocketAddr;

use peregrine_bridge::{Bridge, Running};

/// A server in another process, and a bridge that offers it.
struct World {
    server: world::server::Running,
    _bridge: Running,
    at: SocketAddr,
}

impl World {
    fn new() -> Self {
        Self::with(|bridge| bridge)
    }

    fn with(set: impl FnOnce(Bridge) -> Bridge) -> Self {
        let server = world::server::Running::start();
        let bridge = set(Bridge::new().client_limit(world::TIMEOUT));
        let bridge = bridge.offer(&server.address()).unwrap().listen("127.0.0.1:0").unwrap();
        let bridge = bridge.spawn().unwrap();
        let at = bridge.addresses()[0];
        Self { server, _bridge: bridge, at }
    }

    fn call(&self, procedure: &str, body: &str) -> world::client::Answer {
        world::client::call(self.at, &format!("/demo/{procedure}"), body)
    }

    /// Waits until `count` calls of `wait` run.
    fn until_waiting(&self, count: u64) {
        world::until("calls run", || self.call("waiting", "{}").json()["result"] == count);
    }
}
