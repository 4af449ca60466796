//! The server of the tests: one interface for all systems.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use peregrine::foreign::Foreign;
use peregrine::interface::Described;
use peregrine::{CallError, Endpoint, Executed, Kind, Running, Server, Value, caller, interface};
use tempfile::TempDir;

use crate::{fresh, until};

/// An item of the stock.
#[derive(Clone, Debug, PartialEq, Value, Foreign)]
pub(crate) struct Item {
    pub(crate) name: String,
    pub(crate) counts: Vec<u16>,
}

#[interface(onc(program = 0x2000_0777, version = 2), courier(program = 777, version = 2))]
pub(crate) trait Stock {
    #[onc(1)]
    #[courier(0)]
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32>;
    /// Returns an item. Fails if there are no counts.
    #[onc(2)]
    #[courier(1)]
    fn find(&self, name: &str, counts: &[u16]) -> peregrine::Result<Item>;
    /// Panics.
    #[onc(3)]
    #[courier(2)]
    fn fail(&self) -> peregrine::Result<()>;
    /// Waits until its caller gives up, or until `release` is called.
    #[onc(4)]
    #[courier(3)]
    fn wait(&self) -> peregrine::Result<()>;
    /// Returns how many calls of `wait` run, and how many were given up.
    #[onc(5)]
    #[courier(4)]
    fn waiting(&self) -> peregrine::Result<Waiting>;
    #[onc(6)]
    #[courier(5)]
    fn release(&self) -> peregrine::Result<()>;
    /// Returns for how many milliseconds its caller still waits, or the largest number if there is no
    /// deadline.
    #[onc(7)]
    #[courier(6)]
    fn left(&self) -> peregrine::Result<u32>;
    /// Waits until `release` is called, even if its caller gives up.
    #[onc(8)]
    #[courier(7)]
    fn stay(&self) -> peregrine::Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Value, Foreign)]
pub(crate) struct Waiting {
    pub(crate) run: u32,
    pub(crate) given_up: u32,
}

#[derive(Clone, Default)]
pub(crate) struct Object(Arc<State>);

#[derive(Default)]
struct State {
    run: AtomicU32,
    given_up: AtomicU32,
    is_released: AtomicBool,
}

impl Stock for Object {
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32> {
        Ok(a.wrapping_add(b))
    }

    fn find(&self, name: &str, counts: &[u16]) -> peregrine::Result<Item> {
        match counts {
            [] => Err(CallError::new(Kind::Relayed, Executed::Maybe, "no counts")),
            counts => Ok(Item { name: name.to_owned(), counts: counts.to_vec() }),
        }
    }

    fn fail(&self) -> peregrine::Result<()> {
        panic!("as asked");
    }

    fn wait(&self) -> peregrine::Result<()> {
        let (state, caller) = (&self.0, caller().expect("a caller"));
        state.run.fetch_add(1, Ordering::SeqCst);
        while !caller.is_cancelled() && !state.is_released.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        state.given_up.fetch_add(u32::from(caller.is_cancelled()), Ordering::SeqCst);
        state.run.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn waiting(&self) -> peregrine::Result<Waiting> {
        let [run, given_up] = [&self.0.run, &self.0.given_up].map(|one| one.load(Ordering::SeqCst));
        Ok(Waiting { run, given_up })
    }

    fn release(&self) -> peregrine::Result<()> {
        self.0.is_released.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn left(&self) -> peregrine::Result<u32> {
        let left = caller().and_then(|caller| caller.remaining());
        Ok(left.map_or(u32::MAX, |left| left.as_millis() as u32))
    }

    fn stay(&self) -> peregrine::Result<()> {
        until("it is released", || self.0.is_released.load(Ordering::SeqCst));
        Ok(())
    }
}

/// Returns the description of the interface, with its numbers in other systems.
pub(crate) fn described() -> Described {
    StockClient::INTERFACE.described().unwrap()
}

/// A server that clients of all systems can call.
pub(crate) struct Stocked {
    running: Running,
    object: Object,
    name: String,
    file: PathBuf,
    _directory: TempDir,
}

impl Stocked {
    pub(crate) fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("stock.json");
        std::fs::write(&file, described().to_json().to_string()).unwrap();
        let (name, object) = (fresh("stock"), Object::default());
        let server = Server::new().threads(32).export(&name, StockServer::new(object.clone()));
        let server = crate::FRONTS
            .iter()
            .fold(server.unwrap(), |server, endpoint| server.listen(endpoint).unwrap());
        Self { running: server.spawn().unwrap(), object, name, file, _directory: directory }
    }

    /// Returns the address of the server for the path with this scheme.
    pub(crate) fn address(&self, scheme: &str) -> String {
        address(scheme, &self.name, self.running.addresses())
    }

    /// Returns the object that the server exports.
    pub(crate) fn object(&self) -> Object {
        self.object.clone()
    }

    /// Returns the file with the interface.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }
}

/// Returns the address of the export `name` of a server for the path with this scheme.
pub(crate) fn address(scheme: &str, name: &str, endpoints: &[Endpoint]) -> String {
    if scheme == "local" {
        return format!("local:{name}");
    }
    // Messages of Courier over the packet exchange arrive at the endpoint for UDP.
    let listening = if scheme == "courier+exchange" { "udp" } else { scheme };
    let mut all = endpoints.iter().map(ToString::to_string);
    let endpoint = all.find(|one| one.starts_with(&format!("{listening}:"))).unwrap();
    let endpoint = endpoint.replacen(listening, scheme, 1);
    if scheme.contains('+') { endpoint } else { format!("{endpoint}/{name}") }
}
