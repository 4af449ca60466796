//! The first program of README.md. Run `cargo run --example hello -- serve`, and then, in another terminal,
//! `cargo run --example hello`.

use peregrine::{Server, interface};

/// Says hello.
#[interface]
pub trait Hello {
    /// Greets a person, as often as asked.
    fn greet(&self, name: &str, times: u8) -> peregrine::Result<String>;
}

struct Polite;

impl Hello for Polite {
    fn greet(&self, name: &str, times: u8) -> peregrine::Result<String> {
        Ok(vec![format!("hello {name}"); times.into()].join(", "))
    }
}

fn main() -> peregrine::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        return Server::new().export("hello", HelloServer::new(Polite))?.stop_on_signals().run();
    }
    let hello = HelloClient::bind("hello")?;
    println!("{}", hello.greet("world", 2)?);
    Ok(())
}
