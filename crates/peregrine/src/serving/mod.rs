//! What the server halves of all paths have in common: the exports, what happens around every
//! procedure, how many procedures run and calls wait, and how a server stops.
//!
//! A path implements [`ServerPath`]. It knows how its clients connect, how its threads wait for
//! calls, and how messages move. Everything else about a server is here.

pub(crate) mod admission;
pub(crate) mod binding_table;
pub(crate) mod disclosure;
pub(crate) mod export;
pub(crate) mod faults;
pub(crate) mod procedure;
pub(crate) mod stop;

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use self::admission::Admission;
use self::disclosure::{Disclosure, Teller};
use self::export::{Export, Exports};
use self::faults::Faults;
use self::stop::Drain;
use crate::call::Wait;
use crate::counters::Page;
use crate::keeper::Keeper;
use crate::sys;

/// What the owner of a server chose about its threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads {
    /// Procedures that run at one time.
    pub(crate) running_max: usize,
    /// Calls that wait for a thread.
    pub(crate) waiting_max: usize,
    /// How a thread waits for the next call.
    pub(crate) wait: Wait,
}

/// What the server halves of all paths share.
pub(crate) struct ServerCore {
    pub(crate) exports: Exports,
    pub(crate) threads: Threads,
    pub(crate) faults: Arc<Faults>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) teller: Teller,
    /// The addresses at which the server listens, once it does.
    pub(crate) listens: Arc<OnceLock<Vec<String>>>,
    /// Whether the server is stopping.
    pub(crate) stopping: Arc<AtomicBool>,
    /// Differs between two servers that listened at the same address one after the other.
    pub(crate) epoch: u64,
}

impl ServerCore {
    /// A server without exports.
    ///
    /// # Errors
    /// If the kernel gives no memory for the counters, no keeper thread or no random numbers.
    pub(crate) fn new(
        threads: Threads,
        faults: Arc<Faults>,
        keeper: Arc<Keeper>,
        page: Arc<Page>,
        disclosure: Disclosure,
    ) -> io::Result<Self> {
        Ok(Self {
            exports: Exports::new(Vec::new()),
            threads,
            faults,
            keeper,
            teller: Teller::new(page, disclosure),
            listens: Arc::default(),
            stopping: Arc::default(),
            epoch: u64::from_le_bytes(sys::random()?),
        })
    }

    /// The pages in which the server counts.
    pub(crate) fn page(&self) -> Arc<Page> {
        Arc::clone(&self.teller.page)
    }

    /// Returns permits for one group of threads.
    pub(crate) fn admission(&self) -> Arc<Admission> {
        Admission::new(self.threads.running_max, self.threads.waiting_max)
    }
}

/// The calls of one path that need the attention of people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Calls that run although their callers have given them up.
    pub(crate) captured: u64,
    /// Calls that wait for a thread.
    pub(crate) waiting: u64,
}

/// The server half of a path.
///
/// A server stops in this order: [`close`](Self::close), [`refuse`](Self::refuse),
/// [`drain`](Self::drain), [`farewell`](Self::farewell). Each step is taken on all paths before the
/// next one is, so that no path still lets calls begin while another one is waited for.
pub(crate) trait ServerPath: Send + Sync {
    /// Lets no client connect any more.
    fn close(&self);

    /// Revokes all bindings to an export, which is closed: their calls are refused from now on.
    fn revoke(&self, export: &Export);

    /// Lets no call begin any more.
    fn refuse(&self);

    /// Waits until no procedure runs any more. Returns false if some still did when the drain was
    /// over.
    fn drain(&self, drain: &Drain) -> bool;

    /// Ends all connections. Clients of calls that still run do not learn their results.
    fn farewell(&self);

    /// Returns how many calls are captured and how many wait.
    fn load(&self) -> Load;

    /// Returns the number of threads that run procedures or wait for calls.
    fn threads(&self) -> usize;
}
