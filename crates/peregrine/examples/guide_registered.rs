//! The listing of the chapter "Names" of docs/GUIDE.md, about servers that register themselves.

use peregrine::directory::{Directory, Tree};
use peregrine::{BindOptions, ExportOptions, Server, interface};

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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let names = format!("peregrine-guide-{}", std::process::id());
    let shared = std::env::temp_dir().join(names);
    std::fs::create_dir_all(&shared)?;
    let names = Tree::at(&shared);
    // A client on this machine would find the export without the directory.
    let options = ExportOptions::default().networks_only();
    let server = Server::new().export_with("clock", ClockServer::new(Stopped), options)?;
    // Clients on other machines would need another host.
    let server = server.listen("127.0.0.1:0")?.advertise("127.0.0.1")?;
    let running = server.register_in(names.clone()).spawn()?;
    println!("{} server", names.look_up("clock")?.servers.len());
    let clock = ClockClient::bind_with("clock", &BindOptions::default().directory(names.clone()))?;
    println!("{} ticks", clock.ticks()?);
    running.stop();
    println!("{} servers", names.look_up("clock")?.servers.len());
    std::fs::remove_dir_all(&shared)?;
    Ok(())
}
