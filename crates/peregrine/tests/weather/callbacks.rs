//! Tests callbacks. Each call of a caller's object runs once, and the calls run in the order in which the
//! procedure makes them.

use std::pin::pin;

use futures_lite::future::{block_on, poll_once};

use super::*;

#[interface]
pub(crate) trait Asked {
    /// Returns an item with the next number.
    fn answer(&self, item: Item) -> peregrine::Result<Item>;
    #[oneway]
    fn tell(&self, item: Item) -> peregrine::Result<()>;
}

/// An object of a caller, with the number of calls that have run.
#[derive(Default)]
pub(crate) struct Counted(AtomicU64);

impl Counted {
    pub(crate) fn ran(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
    fn run(&self, item: &Item) {
        let ran = self.0.fetch_add(1, Ordering::SeqCst);
        assert!(item.number == ran && item.is_intact(), "{} after {ran}", item.number);
    }
}

impl Asked for Counted {
    fn answer(&self, item: Item) -> peregrine::Result<Item> {
        self.run(&item);
        Ok(Item::new(item.number + 1, item.ballast.len() as u32))
    }
    fn tell(&self, item: Item) -> peregrine::Result<()> {
        self.run(&item);
        Ok(())
    }
}

/// Makes a call whose procedure calls an object `end` times.
pub(crate) fn asked(client: &WeatherClient, end: u64, size: u32) {
    let object = Counted::default();
    client.ask(end, size, Callback::new(&object)).unwrap();
    assert_eq!(object.ran(), end);
}

/// Begins a call with a callback, and drops the call's future after `polls` polls.
pub(crate) fn given_up(client: &WeatherAsyncClient, polls: u64, size: u32) {
    let object = Counted::default();
    let mut call = pin!(client.ask(u64::MAX, size, Callback::new(&object)));
    for _ in 0..polls {
        if let Some(ended) = block_on(poll_once(call.as_mut())) {
            panic!("an endless call has ended: {ended:?}");
        }
    }
}
