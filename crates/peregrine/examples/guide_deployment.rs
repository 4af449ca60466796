//! The program of the chapter about deployment in docs/GUIDE.md.

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
    // At most 32 procedures run, and at most 100 calls of each user wait. Other calls are refused.
    let server = Server::new().threads(32).queue(100);
    // Members of group 7 may use the printer, too.
    let options = ExportOptions::default().groups([7]);
    let server = server.export_with("printer", PrinterServer::new(Paperless), options)?;
    let server = server.on_fault(|fault| eprintln!("printer: {fault}"));
    let running = server.spawn()?;

    println!("{} pages", PrinterClient::bind("printer")?.print("hello")?);

    // At the end, the server accepts no new calls, and running calls have a minute to end.
    if !running.drain(Duration::from_secs(60)) {
        eprintln!("a call has not ended within a minute");
    }
    Ok(())
}
