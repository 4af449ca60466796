//! The program of the chapter about health and supervisors in docs/GUIDE.md.

use peregrine::{Health, Kind, Server, health, interface};

/// Prints documents.
#[interface]
pub trait Printer {
    /// Prints a text, and returns the number of pages.
    fn print(&self, text: &str) -> peregrine::Result<u32>;
}

struct Paperless;

impl Printer for Paperless {
    fn print(&self, text: &str) -> peregrine::Result<u32> {
        Ok(text.len().div_ceil(2000) as u32)
    }
}

fn main() -> peregrine::Result<()> {
    // If systemd has started this program, the server reports to systemd.
    let server = Server::new().notify_systemd()?.stop_on_signals();
    let server = server.export("printer", PrinterServer::new(Paperless))?;
    let running = server.listen("tcp:127.0.0.1:0")?.spawn()?;

    for address in ["printer", &format!("{}/printer", running.addresses()[0])] {
        match health(address)? {
            Health::Serving => println!("serving"),
            Health::Overloaded => println!("try another server"),
            other => println!("do not begin: {other}"),
        }
    }
    running.stop();
    match health("printer") {
        Err(error) if error.kind() == Kind::NotFound => println!("gone"),
        other => println!("{other:?}"),
    }
    Ok(())
}
