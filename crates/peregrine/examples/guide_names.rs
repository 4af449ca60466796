//! The program of the chapter about names in docs/GUIDE.md.

use peregrine::directory::Directory;
use peregrine::{Address, BindOptions, CallError, Place, Server, interface};

/// Counts ticks.
#[interface]
pub trait Clock {
    /// Returns how many ticks have passed.
    fn ticks(&self) -> peregrine::Result<u64>;
}

struct Stopped;

impl Clock for Stopped {
    fn ticks(&self) -> peregrine::Result<u64> {
        Ok(42)
    }
}

/// Finds every name at one place.
#[derive(Debug)]
struct Everywhere(Place);

impl Directory for Everywhere {
    fn offers(&self, name: &str) -> Result<Vec<Address>, CallError> {
        Ok(vec![format!("udp:{name}@{}", self.0).parse()?])
    }
    fn describe(&self) -> String {
        format!("everything is at {}", self.0)
    }
}

fn main() -> peregrine::Result<()> {
    let server = Server::new().export("clock", ClockServer::new(Stopped))?;
    let running = server.listen("udp:127.0.0.1:0")?.spawn()?;
    let place = Everywhere(running.addresses()[0].place().clone());
    let options = BindOptions::default().directory(place);
    // Names on this machine are found first. A prefix selects another path.
    println!("by {}", ClockClient::bind_with("clock", &options)?.binding().path());
    println!("by {}", ClockClient::bind_with("udp:clock", &options)?.binding().path());
    Ok(())
}
