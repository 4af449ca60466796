//! A server of a trait of one's own, as README has it.

use peregrine::{Server, interface};

/// Says hello.
#[interface]
pub trait Hello {
    /// Greets somebody, so many times.
    fn greet(&self, name: &str, times: u8) -> peregrine::Result<String>;
}

struct Polite;

impl Hello for Polite {
    fn greet(&self, name: &str, times: u8) -> peregrine::Result<String> {
        Ok(vec![format!("hello {name}"); times.into()].join(", "))
    }
}

fn main() -> peregrine::Result<()> {
    Server::new().export("hello", HelloServer::new(Polite))?.stop_on_signals().run()
}
