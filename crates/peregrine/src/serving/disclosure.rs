//! What a server discloses about itself, and the counters that it discloses.

use std::sync::{Arc, OnceLock, Weak};

use super::{Load, ServerPath};
use crate::counters::{Gauges, Page};

/// What a server discloses about itself, and to whom.
///
/// Processes of the server's user on its machine, and those of root, may read everything that the
/// server counts, unless it discloses nothing. They could trace the server anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disclosure {
    /// Nothing, to nobody.
    Nothing,
    /// Over networks: which exports networks can call, and how much those are called. The number of
    /// sessions and bindings, but nothing about each.
    #[default]
    Totals,
    /// Over networks also all sessions and bindings: who is connected, from where, and what each of
    /// them calls how often. Choose this only where everybody may know that.
    All,
}

/// The counters of a server, and who may read them.
pub(crate) struct Teller {
    pub(crate) page: Arc<Page>,
    pub(crate) disclosure: Disclosure,
    /// The paths, which know what is not counted but measured when somebody asks.
    paths: OnceLock<Vec<Weak<dyn ServerPath>>>,
}

impl Teller {
    pub(crate) const fn new(page: Arc<Page>, disclosure: Disclosure) -> Self {
        Self { page, disclosure, paths: OnceLock::new() }
    }

    /// Measures these paths from now on.
    pub(crate) fn measure(&self, paths: impl IntoIterator<Item = Weak<dyn ServerPath>>) {
        let _ = self.paths.set(paths.into_iter().collect());
    }

    /// Brings what is measured up to date in the counters' pages.
    pub(crate) fn refresh(&self) {
        let Some(paths) = self.paths.get() else { return };
        let load = |path: &Weak<dyn ServerPath>| {
            path.upgrade().map_or(Load::default(), |path| path.load())
        };
        let loads: Vec<Load> = paths.iter().map(load).collect();
        let captured = loads.iter().map(|load| load.captured).collect();
        let queued = loads.iter().map(|load| load.waiting).sum();
        self.page.set_gauges(&Gauges { captured, queued });
    }
}
