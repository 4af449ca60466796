//! Pools: many servers of one name, which come, go, drain and fail while clients call them.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use peregrine::directory::{Directory, Offer, Offers, Standing, Watcher};
use peregrine::{
    Address, Balance, BindOptions, CallError, Executed, Kind, PathKind, PoolStanding, Rebind,
    Running, Server, interface,
};

/// Says which server answers.
#[interface]
trait Which {
    /// Returns the number of the server.
    #[idempotent]
    fn which(&self) -> peregrine::Result<u32>;
    /// Counts a call, and returns the number of the server.
    fn count(&self, call: u64) -> peregrine::Result<u32>;
    /// Notes a call.
    #[oneway]
    fn note(&self, call: u64) -> peregrine::Result<()>;
    /// Answers when the server is told to.
    fn wait(&self) -> peregrine::Result<u32>;
}

struct Counting {
    number: u32,
    calls: Arc<Calls>,
    gate: Arc<AtomicBool>,
}

/// Which calls have run, on any server.
#[derive(Default)]
struct Calls {
    ran: std::sync::Mutex<std::collections::HashMap<u64, u32>>,
    noted: std::sync::Mutex<Vec<u64>>,
}

impl Which for Counting {
    fn which(&self) -> peregrine::Result<u32> {
        Ok(self.number)
    }
    fn count(&self, call: u64) -> peregrine::Result<u32> {
        *self.calls.ran.lock().unwrap().entry(call).or_default() += 1;
        Ok(self.number)
    }
    fn note(&self, call: u64) -> peregrine::Result<()> {
        self.calls.noted.lock().unwrap().push(call);
        Ok(())
    }
    fn wait(&self) -> peregrine::Result<u32> {
        while !self.gate.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(self.number)
    }
}

/// A directory whose contents the test sets.
#[derive(Debug, Default)]
struct Board(Arc<std::sync::Mutex<Posted>>);

#[derive(Default)]
struct Posted {
    offers: Vec<Offer>,
    watchers: Vec<(u64, Watcher)>,
    next: u64,
}

impl std::fmt::Debug for Posted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.offers.fmt(f)
    }
}

impl Board {
    fn change(&self, change: impl FnOnce(&mut Vec<Offer>)) {
        let mut posted = self.0.lock().unwrap();
        let Posted { offers, watchers, .. } = &mut *posted;
        change(offers);
        watchers.iter_mut().for_each(|(_, watcher)| watcher(Offers::of(offers.clone())));
    }

    fn post(&self, servers: &[&Served]) {
        let offers = servers.iter().map(|server| server.offer.clone()).collect::<Vec<_>>();
        self.change(|all| *all = offers);
    }
}

impl Directory for Arc<BoardOf> {
    fn offers(&self, _: &str) -> Result<Vec<Address>, CallError> {
        let offers = Offers::of(self.0.0.lock().unwrap().offers.clone());
        Ok(offers.addresses().cloned().collect())
    }
    fn describe(&self) -> String {
        "the board of a test".to_owned()
    }
    fn look_up(&self, _: &str) -> Result<Offers, CallError> {
        Ok(Offers::of(self.0.0.lock().unwrap().offers.clone()))
    }
    fn watch(&self, _: &str, mut watcher: Watcher) -> Result<Standing, CallError> {
        let mut posted = self.0.0.lock().unwrap();
        watcher(Offers::of(posted.offers.clone()));
        let key = posted.next;
        posted.next += 1;
        posted.watchers.push((key, watcher));
        let board = Arc::clone(&self.0.0);
        let end = move || board.lock().unwrap().watchers.retain(|one| one.0 != key);
        Ok(Standing::new(end, || None))
    }
}
