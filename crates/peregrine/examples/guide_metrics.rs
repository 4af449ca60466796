//! The program of the chapter about metrics in docs/GUIDE.md.

use peregrine::counters::PROMETHEUS_CONTENT_TYPE;
use peregrine::{Server, StatHandle, interface};

/// Welcomes guests.
#[interface]
pub trait Greeter {
    /// Returns a greeting for a guest.
    fn greet(&self, name: &str) -> peregrine::Result<String>;
}

struct Polite;

impl Greeter for Polite {
    fn greet(&self, name: &str) -> peregrine::Result<String> {
        Ok(format!("Welcome, {name}!"))
    }
}

/// Returns the content type and the body of the answer to `GET /metrics`. The program's own HTTP
/// server calls this function, on any thread.
fn metrics(server: &StatHandle) -> Option<(&'static str, String)> {
    server.stat().map(|stat| (PROMETHEUS_CONTENT_TYPE, stat.to_prometheus()))
}

fn main() -> peregrine::Result<()> {
    let running = Server::new().export("greeter", GreeterServer::new(Polite))?.spawn()?;
    let handle = running.stat_handle();

    let greeter = GreeterClient::bind("greeter")?;
    println!("{}", greeter.greet("Ada")?);

    let (_, body) = metrics(&handle).expect("the server runs");
    for line in body.lines().filter(|line| line.contains("peregrine_export_bindings")) {
        println!("{line}");
    }
    Ok(())
}
