//! Async calls: a chapter of docs/GUIDE.md.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, current, park};

use peregrine::{Server, interface};

/// Adds numbers.
#[interface]
pub trait Adder {
    /// Returns the sum.
    fn add(&self, a: u64, b: u64) -> peregrine::Result<u64>;
}

struct Sum;

impl AdderAsync for Sum {
    async fn add(&self, a: u64, b: u64) -> peregrine::Result<u64> {
        Ok(a + b)
    }
}

/// Runs a future on this thread. Any other executor works, too.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unparks(Thread);
    impl Wake for Unparks {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unparks(current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => park(),
        }
    }
}

fn main() -> peregrine::Result<()> {
    let _running = Server::new().export("adder", AdderAsyncServer::new(Sum))?.spawn()?;
    let sum = block_on(async {
        let adder = AdderAsyncClient::bind("adder").await?;
        adder.add(2, 3).await
    })?;
    println!("{sum}");
    // A blocking client calls the same server.
    println!("{}", AdderClient::bind("adder")?.add(20, 3)?);
    Ok(())
}
