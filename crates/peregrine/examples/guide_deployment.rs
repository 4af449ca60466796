//! Deployment: a chapter of docs/GUIDE.md.

use std::time::Duration;

use peregrine::{ExportOptions, Server, interface};

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
    // 32 procedures run at a time, and 100 calls of each user wait. More are refused.
    let server = Server::new().threads(32).queue(100);
    // The printer is open to members of group 7 too.
    let options = ExportOptions::default().groups([7]);
    let server = server.export_with("printer", PrinterServer::new(Paperless), options)?;
    let server = server.on_fault(|fault| eprintln!("printer: {fault}"));
    let running = server.spawn()?;

    println!("{} pages", PrinterClient::bind("printer")?.print("hello")?);

    // At the end: no new calls, and a minute for those that run.
    if !running.drain(Duration::from_secs(60)) {
        eprintln!("a call has not ended within a minute");
    }
    Ok(())
}
