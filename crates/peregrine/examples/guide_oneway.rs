//! One-way calls: a chapter of docs/GUIDE.md.

use std::sync::Mutex;

use peregrine::{CallError, Executed, Kind, Server, interface};

/// Keeps lines.
#[interface]
pub trait Journal {
    /// Appends a line. The caller does not wait.
    #[oneway]
    fn log(&self, line: &str) -> peregrine::Result<()>;
    /// Returns the number of lines.
    fn count(&self) -> peregrine::Result<u64>;
}

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Journal for Lines {
    fn log(&self, line: &str) -> peregrine::Result<()> {
        if line.is_empty() {
            return Err(CallError::new(Kind::BadArguments, Executed::Maybe, "an empty line"));
        }
        self.0.lock().unwrap().push(line.to_owned());
        Ok(())
    }
    fn count(&self) -> peregrine::Result<u64> {
        Ok(self.0.lock().unwrap().len() as u64)
    }
}

fn main() -> peregrine::Result<()> {
    let _running =
        Server::new().export("journal", JournalServer::new(Lines::default()))?.spawn()?;
    let journal = JournalClient::bind("journal")?;
    for number in 0..1000 {
        journal.log(&format!("line {number}"))?;
    }
    // Another call runs after the one-way calls that were made before it.
    println!("{} lines", journal.count()?);
    journal.log("")?;
    match journal.flush() {
        Ok(()) => println!("all lines are kept"),
        Err(error) => {
            println!("failed: {}, not run: {}", error.oneway_failed(), error.oneway_not_run())
        }
    }
    Ok(())
}
