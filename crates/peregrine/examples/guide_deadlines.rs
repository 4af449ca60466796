//! The program of the chapter about deadlines in docs/GUIDE.md.

use std::time::Duration;

use peregrine::{Kind, Server, interface};

/// Looks for numbers.
#[interface]
pub trait Search {
    /// Returns the largest prime below `limit` that it finds in time.
    fn prime(&self, limit: u64) -> peregrine::Result<u64>;
    /// Searches until the call is cancelled.
    fn forever(&self) -> peregrine::Result<()>;
}

struct Sieve;

impl Search for Sieve {
    fn prime(&self, limit: u64) -> peregrine::Result<u64> {
        let caller = peregrine::caller().expect("a procedure has a caller");
        // Leave some of the time for the result to reach the caller.
        let in_time = |_: &u64| caller.remaining().is_none_or(|left| left.as_millis() > 20);
        let is_prime = |n: &u64| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
        Ok((2..limit).take_while(in_time).filter(is_prime).last().unwrap_or(2))
    }
    fn forever(&self) -> peregrine::Result<()> {
        let caller = peregrine::caller().expect("a procedure has a caller");
        while !caller.is_cancelled() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Cleaning up: the caller does not wait for this any more.
        std::thread::sleep(Duration::from_millis(500));
        Ok(())
    }
}

fn main() -> peregrine::Result<()> {
    let _running = Server::new().export("search", SearchServer::new(Sieve))?.spawn()?;
    let search = SearchClient::bind("search")?;
    println!("{}", search.prime(100)?);

    let hasty = search.with_timeout(Duration::from_millis(100));
    println!("found one in time: {}", hasty.prime(u64::MAX)? > 2);
    match hasty.forever() {
        Err(error) if error.kind() == Kind::TimedOut => println!("{}", error.executed()),
        other => println!("unexpected: {other:?}"),
    }
    Ok(())
}
