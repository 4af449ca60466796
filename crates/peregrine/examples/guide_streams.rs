//! Streams: a chapter of docs/GUIDE.md.

use std::ops::ControlFlow;

use futures_lite::future::{block_on, zip};
use futures_lite::stream;
use peregrine::{Server, Sink, Source, interface};

/// Looks for numbers.
#[interface]
pub trait Numbers {
    /// Sends the primes below `end`, and returns how many it has sent.
    fn primes(&self, end: u32, found: Sink<'_, u32>) -> peregrine::Result<u32>;
    /// Returns the first sample above `limit`.
    fn above(&self, limit: u32, samples: Source<'_, u32>) -> peregrine::Result<Option<u32>>;
}

struct Finder;

impl Numbers for Finder {
    fn primes(&self, end: u32, mut found: Sink<'_, u32>) -> peregrine::Result<u32> {
        let is_prime = |n: &u32| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
        let mut sent = 0;
        for prime in (2..end).filter(is_prime) {
            // There is an error if the caller wants no more items, or has gone.
            if found.send(prime).is_err() {
                break;
            }
            sent += 1;
        }
        Ok(sent)
    }
    fn above(&self, limit: u32, mut samples: Source<'_, u32>) -> peregrine::Result<Option<u32>> {
        while let Some(sample) = samples.next()? {
            if sample > limit {
                // The procedure ends here, also if the caller has more samples.
                return Ok(Some(sample));
            }
        }
        Ok(None)
    }
}

fn main() -> peregrine::Result<()> {
    let _running = Server::new().export("numbers", NumbersServer::new(Finder))?.spawn()?;
    let numbers = NumbersClient::bind("numbers")?;

    // A closure receives the items.
    let mut sum = 0;
    let sent = numbers.primes(100, Sink::new(|prime| sum += prime))?;
    println!("{sent} primes, their sum is {sum}");

    // An iterator receives the items, while another thread makes the call.
    let (sink, primes) = Sink::channel(16);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| numbers.primes(1000, sink));
        println!("the largest one is {:?}", primes.max());
        call.join().expect("the thread has not panicked")
    })?;

    // The caller wants three items.
    let mut first = Vec::new();
    let receive = |prime| {
        first.push(prime);
        if first.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    numbers.primes(u32::MAX, Sink::until(receive))?;
    println!("the first ones are {first:?}");

    // An iterator makes the items. This one does not end.
    println!("{:?}", numbers.above(1000, Source::new((0..).step_by(7)))?);

    // The same with an async client.
    let numbers = NumbersAsyncClient::from(numbers);
    let samples = stream::iter([3, 12, 5]);
    println!("{:?}", block_on(numbers.above(10, Source::stream(samples)))?);

    let (sink, mut primes) = Sink::channel(16);
    let print = async {
        while let Some(prime) = primes.next_async().await {
            print!("{prime} ");
        }
    };
    let (sent, ()) = block_on(zip(numbers.primes(20, sink), print));
    println!("are {} primes", sent?);
    Ok(())
}
