//! Tests a bridge between RPC systems: each system calls a server of each system through it.

#[path = "../world/mod.rs"]
mod world;

mod changes;
mod failures;
mod own;
mod pairs;
mod stock;

use std::sync::atomic::{AtomicU32, Ordering};

use peregrine_bridge::{Bridge, InterfaceFile, Running};

use stock::Stocked;
use world::{client, until};

/// Returns a name that no other test uses.
pub(crate) fn fresh(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("bridge-{what}-{}-{next}", std::process::id())
}

/// Returns an [`InterfaceFile`] for the JSON file at `path`.
pub(crate) fn interface_file(path: &std::path::Path) -> Result<InterfaceFile, String> {
    InterfaceFile::new(path, |path| {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let json = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        peregrine::interface::Described::from_json(&json).map_err(|error| error.to_string())
    })
}

/// The fronts of every bridge of these tests: the endpoints at which the bridge listens.
pub(crate) const FRONTS: [&str; 6] = [
    "tcp:127.0.0.1:0",
    "udp:127.0.0.1:0",
    "onc+udp:127.0.0.1:0",
    "onc+tcp:127.0.0.1:0",
    "courier+udp:127.0.0.1:0",
    "courier+tcp:127.0.0.1:0",
];

/// A bridge that offers one server under the name `name`: over HTTP, at all [`FRONTS`], and on this machine.
pub(crate) struct World {
    pub(crate) bridge: Running,
    name: String,
}

impl World {
    /// Returns a bridge that calls the server over the path with this scheme.
    pub(crate) fn to(server: &Stocked, scheme: &str) -> Self {
        Self::with(server, scheme, |bridge| bridge)
    }

    pub(crate) fn with(server: &Stocked, scheme: &str, set: impl FnOnce(Bridge) -> Bridge) -> Self {
        let name = fresh("front");
        let offer = format!("{name}={}", server.address(scheme));
        let bridge = set(Bridge::new());
        let bridge = match scheme.contains('+') {
            true => bridge.offer_as(&offer, interface_file(server.file()).unwrap()),
            false => bridge.offer(&offer),
        };
        let bridge = bridge.unwrap().listen("127.0.0.1:0").unwrap();
        let bridge = bridge.export_at(&format!("local:{name}")).unwrap();
        let bridge = FRONTS.iter().fold(bridge, |bridge, front| bridge.export_at(front).unwrap());
        Self { bridge: bridge.spawn().unwrap(), name }
    }

    /// Returns the address at which a client of the path with this scheme finds the bridge.
    pub(crate) fn address(&self, scheme: &str) -> String {
        stock::address(scheme, &self.name, self.bridge.endpoints())
    }

    /// Makes a call over HTTP.
    pub(crate) fn http(&self, procedure: &str, body: &str) -> client::Answer {
        self.http_with("", procedure, body)
    }

    /// Makes a call over HTTP, with further headers.
    pub(crate) fn http_with(&self, headers: &str, procedure: &str, body: &str) -> client::Answer {
        let to = self.bridge.addresses()[0];
        client::ask(to, &client::post(to, &format!("/{}/{procedure}", self.name), headers, body))
    }
}
