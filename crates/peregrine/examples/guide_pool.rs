//! The listing of the chapter "Many machines" of docs/GUIDE.md.

use peregrine::directory::Tree;
use peregrine::{Balance, BindOptions, ExportOptions, Running, Server, interface};

/// Counts ticks.
#[interface]
pub trait Clock {
    /// Returns the number of the clock.
    #[idempotent]
    fn number(&self) -> peregrine::Result<u32>;
}

struct Numbered(u32);

impl Clock for Numbered {
    fn number(&self) -> peregrine::Result<u32> {
        Ok(self.0)
    }
}

/// Starts a server and registers it. Several servers on one machine can only be called over networks.
fn start(number: u32, names: &Tree) -> peregrine::Result<Running> {
    let options = ExportOptions::default().networks_only();
    let clock = ClockServer::new(Numbered(number));
    let server = Server::new().export_with("clock", clock, options)?.listen("127.0.0.1:0")?;
    server.advertise("127.0.0.1")?.register_in(names.clone()).spawn()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = format!("peregrine-guide-pool-{}", std::process::id());
    let shared = std::env::temp_dir().join(directory);
    std::fs::create_dir_all(&shared)?;
    let names = Tree::at(&shared);
    let first = start(1, &names)?;
    let _second = start(2, &names)?;

    let options = BindOptions::default().directory(names.clone()).balance(Balance::RoundRobin);
    let clocks = ClockPool::bind_with("clock", &options)?;
    let mut answers = [clocks.number()?, clocks.number()?];
    answers.sort();
    println!("the servers {answers:?} answer");

    first.stop();
    println!("now the server {} answers each call", clocks.number()?);
    println!("{}", clocks.number()?);
    std::fs::remove_dir_all(&shared)?;
    Ok(())
}
