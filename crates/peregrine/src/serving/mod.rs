//! The parts of a server that all paths share: the exports, the steps before and after every procedure,
//! the admission of calls, and how a server stops.
//!
//! A path implements [`ServerPath`]. The path defines how its clients connect, how its threads wait for
//! calls, and how messages move. All other parts of a server are here.

pub(crate) mod access;
pub(crate) mod admission;
pub(crate) mod binding_table;
pub(crate) mod deferrals;
pub(crate) mod descriptors;
pub(crate) mod disclosure;
pub(crate) mod export;
pub(crate) mod faults;
pub(crate) mod health;
pub(crate) mod procedure;
pub(crate) mod spares;
pub(crate) mod stop;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use self::access::Denials;
use self::admission::Admission;
use self::deferrals::Deferrals;
use self::descriptors::Procedures;
use self::disclosure::{Disclosed, Disclosure};
use self::export::{Applicant, Export, Exports};
use self::faults::Faults;
use self::health::DrainingNames;
use self::stop::Drain;
use crate::call::{Refusal, Wait};
use crate::counters::{Page, ThreadKind};
use crate::error::Kind;
use crate::interface::HEALTH_NAME;
use crate::keeper::Keeper;
use crate::sys;

/// How many threads a server has, and how they wait, as configured by its owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads {
    /// The number of procedures that may run at one time.
    pub(crate) running_max: usize,
    /// The number of calls that may wait for a thread.
    pub(crate) waiting_max: usize,
    /// How a thread waits for the next call.
    pub(crate) wait: Wait,
}

/// The state of a server that the server halves of all paths share.
pub(crate) struct ServerCore {
    pub(crate) exports: Exports,
    pub(crate) threads: Threads,
    pub(crate) faults: Arc<Faults>,
    pub(crate) denials: Arc<Denials>,
    pub(crate) procedures: Arc<Procedures>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) disclosed: Disclosed,
    pub(crate) deferrals: Arc<Deferrals>,
    /// The addresses at which the server listens, set when it has begun to listen.
    pub(crate) listens: Arc<OnceLock<Vec<String>>>,
    /// Whether the server is stopping.
    pub(crate) stopping: Arc<AtomicBool>,
    /// Set when the server begins to stop.
    draining: DrainingNames,
    /// A random number that differs between two servers that listened at the same address one after the
    /// other.
    pub(crate) epoch: u64,
}

impl ServerCore {
    /// Returns the core of a server without exports.
    ///
    /// # Errors
    /// If the kernel provides no random numbers.
    pub(crate) fn new(
        threads: Threads,
        (faults, denials, procedures): (Arc<Faults>, Arc<Denials>, Arc<Procedures>),
        keeper: Arc<Keeper>,
        page: Arc<Page>,
        disclosure: Disclosure,
    ) -> io::Result<Self> {
        let deferrals = Deferrals::new(&page);
        denials.count_in(&page);
        Ok(Self {
            exports: Exports::new(Vec::new()),
            threads,
            faults,
            denials,
            keeper,
            disclosed: Disclosed::new(
                page,
                disclosure,
                Arc::clone(&deferrals),
                Arc::clone(&procedures),
            ),
            procedures,
            deferrals,
            listens: Arc::default(),
            stopping: Arc::default(),
            draining: DrainingNames::new(),
            epoch: u64::from_le_bytes(sys::random()?),
        })
    }

    /// Returns the export with this name if `applicant` may bind to it.
    ///
    /// # Errors
    /// If there is no such export, it was withdrawn, or it is limited to others; or if the server is stopping.
    /// A server that stops offers only its health.
    pub(crate) fn offered(
        &self,
        name: &str,
        applicant: &Applicant<'_>,
    ) -> Result<Arc<Export>, (Kind, String)> {
        let found = self.exports.offered(name, applicant);
        // A server that stops notes this before it removes its exports. So this check comes after the search:
        // a search that misses an export for this reason is always followed by a check that sees it.
        if self.stopping.load(Ordering::Relaxed) && name != HEALTH_NAME {
            let Refusal { kind, text, .. } = Refusal::stopping();
            return Err((kind, text));
        }
        found
    }

    /// Returns the pages in which the server counts.
    pub(crate) fn page(&self) -> Arc<Page> {
        Arc::clone(&self.disclosed.page)
    }

    /// Returns a new admission for one group of threads. It limits the running and the waiting calls of the
    /// group.
    pub(crate) fn admission(&self) -> Arc<Admission> {
        Admission::new(self.threads.running_max, self.threads.waiting_max)
    }
}

/// The load of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// The number of calls that still run although their callers have given up the calls.
    pub(crate) captured: u64,
    /// The number of calls that wait for a thread.
    pub(crate) waiting: u64,
}

/// The server half of a path: it accepts clients and calls over the path.
///
/// A server stops in this order: [`close`](Self::close), [`refuse`](Self::refuse), [`drain`](Self::drain),
/// [`disconnect`](Self::disconnect). The server completes each step on all paths before it begins the next
/// one. Otherwise one path could begin new calls while the server waits for another path.
pub(crate) trait ServerPath: Send + Sync {
    /// Returns the kind of thread under which the counters count the threads of this path.
    fn counted_as(&self) -> ThreadKind;

    /// Refuses new clients. A path may still accept clients, so that they can ask for the server's health.
    fn close(&self);

    /// Revokes all bindings to a closed export. The calls of these bindings are refused from now on.
    fn revoke(&self, export: &Export);

    /// Refuses new calls.
    fn refuse(&self);

    /// Waits until no procedure runs, but not longer than `drain` allows. Returns false if procedures still
    /// run after that.
    fn drain(&self, drain: &Drain) -> bool;

    /// Closes all connections. Clients get no results of calls that still run.
    fn disconnect(&self);

    /// Returns how many calls are captured and how many wait.
    fn load(&self) -> Load;

    /// Returns whether as many procedures run as may run, so that a further call would have to wait. Takes
    /// little time, because any client may ask for it.
    fn is_full(&self) -> bool;

    /// Returns the number of threads that run procedures or wait for calls.
    fn threads(&self) -> usize;
}
