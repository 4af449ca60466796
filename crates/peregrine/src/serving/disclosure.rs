//! [`Disclosure`]: how much a server discloses about itself, and the counters that it discloses.

use std::sync::{Arc, OnceLock, Weak};

use super::ServerPath;
use super::deferrals::Deferrals;
use super::descriptors::Procedures;
use crate::counters::{Gauges, Page, THREAD_KINDS};

/// How much a server discloses about itself, and to which clients.
///
/// On the server's machine, processes of its user and of root may read all of the server's counters, unless
/// the server discloses nothing. Such processes could trace the server anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disclosure {
    /// No client may read anything.
    Nothing,
    /// Over networks, a client may read which exports networks can call, how often they are called, and the
    /// number of sessions and of bindings. The client cannot read about a single session or binding.
    #[default]
    Totals,
    /// Over networks, a client may also read all sessions and bindings: which processes are connected, from
    /// which hosts, and how often each process calls which export. Choose this only if every client may know
    /// these facts.
    All,
}

/// The counters of a server, and how much of them it discloses.
pub(crate) struct Disclosed {
    pub(crate) page: Arc<Page>,
    pub(crate) disclosure: Disclosure,
    /// The paths of the server. They measure their load when a client asks for it.
    paths: OnceLock<Vec<Weak<dyn ServerPath>>>,
    deferrals: Arc<Deferrals>,
    procedures: Arc<Procedures>,
}

impl Disclosed {
    pub(crate) const fn new(
        page: Arc<Page>,
        disclosure: Disclosure,
        deferrals: Arc<Deferrals>,
        procedures: Arc<Procedures>,
    ) -> Self {
        Self { page, disclosure, paths: OnceLock::new(), deferrals, procedures }
    }

    /// Sets the paths whose load is measured.
    pub(crate) fn measure(&self, paths: Vec<Weak<dyn ServerPath>>) {
        let _ = self.paths.set(paths);
    }

    /// Returns whether on any path as many procedures run as may run.
    pub(crate) fn is_full(&self) -> bool {
        let paths = self.paths.get().into_iter().flatten();
        paths.filter_map(Weak::upgrade).any(|path| path.is_full())
    }

    /// Measures the load of the paths, and writes the load and what is kept for procedures into the pages of
    /// counters.
    pub(crate) fn refresh(&self) {
        let Some(paths) = self.paths.get() else { return };
        let (mut captured, mut queued) = ([0; THREAD_KINDS], 0);
        for path in paths.iter().filter_map(Weak::upgrade) {
            let load = path.load();
            captured[path.counted_as().index()] += load.captured;
            queued += load.waiting;
        }
        let (deferred, in_flight) = (self.deferrals.deferred(), self.deferrals.in_flight());
        self.page.set_gauges(&Gauges { captured, queued, deferred, in_flight });
        self.procedures.show();
    }
}
