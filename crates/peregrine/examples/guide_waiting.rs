//! The program of the chapter about waiting in docs/GUIDE.md.

use std::thread;

use peregrine::{BindOptions, Server, Wait, interface};

/// Adds numbers.
#[interface]
pub trait Adder {
    /// Returns the sum.
    fn add(&self, a: u64, b: u64) -> peregrine::Result<u64>;
}

struct Sum;

impl Adder for Sum {
    fn add(&self, a: u64, b: u64) -> peregrine::Result<u64> {
        Ok(a + b)
    }
}

fn main() -> peregrine::Result<()> {
    let _running = Server::new().export("adder", AdderServer::new(Sum))?.spawn()?;
    // At most 16 calls are in progress. Callers and the server's threads sleep while they wait.
    let options = BindOptions::default().astacks(16).wait(Wait::Block);
    let adder = AdderClient::bind_with("adder", &options)?;
    let add = |i| adder.add(i, i);
    let sums: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..32).map(|i| scope.spawn(move || add(i))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let total = sums.into_iter().sum::<peregrine::Result<u64>>()?;
    println!("{total}");
    Ok(())
}
