//! What a server tells of itself: its counters to its own user, and an export that is always there.

use std::sync::{Arc, OnceLock, Weak};

use super::ExportOptions;
use super::datagram::Datagrams;
use super::export::Export;
use super::network::{Exports, Network};
use super::pool::Pool;
use super::session::Sessions;
use crate::call::Refusal;
use crate::counters::{self, Gauges, Page, Stat};
use crate::error::{CallError, Executed, Kind};
use crate::limits;
use crate::server_info::{Exported, SERVER_NAME, ServerInfo, ServerInfoServer};
use crate::sync::Mutex;

/// What a server tells of itself, and to whom.
///
/// Its own user on its own machine, and root, may look at everything it counts, unless it tells
/// nothing: they could as well trace it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disclosure {
    /// Nothing, to nobody.
    Nothing,
    /// Over networks: what it exports there, and how much that is called; of sessions and bindings how
    /// many there are.
    #[default]
    Totals,
    /// Over networks also all sessions and bindings: who is connected, from where, and what each calls
    /// how often. To be told only where everybody may know that.
    All,
}

/// What a server needs to tell of itself.
pub(super) struct Teller {
    pub(super) page: Arc<Page>,
    pub(super) disclosure: Disclosure,
    asks: OnceLock<Asks>,
}

/// Who knows what is not counted.
struct Asks {
    pool: Weak<Pool>,
    network: Weak<Network>,
    datagrams: Weak<Datagrams>,
}

impl Teller {
    pub(super) const fn new(page: Arc<Page>, disclosure: Disclosure) -> Self {
        Self { page, disclosure, asks: OnceLock::new() }
    }

    /// From here on it asks these.
    pub(super) fn asks(
        &self,
        pool: &Arc<Pool>,
        network: &Arc<Network>,
        datagrams: &Arc<Datagrams>,
    ) {
        let (pool, network) = (Arc::downgrade(pool), Arc::downgrade(network));
        let _ = self.asks.set(Asks { pool, network, datagrams: Arc::downgrade(datagrams) });
    }

    /// Brings into the page what is known only when it is asked for.
    pub(super) fn refresh(&self) {
        let Some(Asks { pool, network, datagrams }) = self.asks.get() else { return };
        let of_each = [
            pool.upgrade().map_or([0; 2], |pool| pool.captured()),
            network.upgrade().map_or([0; 2], |network| network.captured()),
            datagrams.upgrade().map_or([0; 2], |datagrams| datagrams.captured()),
        ];
        let queued = of_each.iter().map(|[_, queued]| queued).sum();
        let captured = of_each.map(|[captured, _]| captured);
        self.page.set_gauges(&Gauges { captured, queued });
    }
}

/// The export by which a server tells of itself over networks.
pub(super) fn server_export(sessions: &Arc<Sessions>, exports: &Exports) -> Arc<Export> {
    let told = OfItself { sessions: Arc::downgrade(sessions), exports: Arc::downgrade(exports) };
    let serve = Arc::new(ServerInfoServer::new(told));
    let (name, options) = (SERVER_NAME.to_owned(), ExportOptions::default());
    Export::new(name, u64::MAX, serve, options, None, Arc::clone(sessions))
}

/// A server, as seen from its own export: that does not keep it alive.
struct OfItself {
    sessions: Weak<Sessions>,
    exports: Weak<Mutex<Vec<Arc<Export>>>>,
}

fn gone() -> CallError {
    let refusal = Refusal::stopping();
    CallError::new(refusal.kind, Executed::Maybe, refusal.text)
}

impl OfItself {
    /// What networks may know of.
    fn offered(&self) -> Result<Vec<Arc<Export>>, CallError> {
        let exports = self.exports.upgrade().ok_or_else(gone)?;
        let exports = exports.lock();
        let offered = |export: &&Arc<Export>| {
            export.is_published() && export.is_offered_to_networks() && !export.is_closed()
        };
        Ok(exports.iter().filter(offered).map(Arc::clone).collect())
    }
}

impl ServerInfo for OfItself {
    fn list(&self) -> Result<Vec<Exported>, CallError> {
        let exported = |export: Arc<Export>| {
            let said = export.description();
            Exported {
                name: export.name.clone(),
                interface: said.interface,
                version: said.version,
                digest: said.digest.0,
                process: said.process,
                age_ms: said.age_ms,
                bindings: said.bindings,
                listens: said.listens,
            }
        };
        Ok(self.offered()?.into_iter().map(exported).collect())
    }

    fn stat(&self) -> Result<Stat, CallError> {
        let sessions = self.sessions.upgrade().ok_or_else(gone)?;
        let told = &sessions.told;
        told.refresh();
        let mut stat = counters::read(told.page.memory()).map_err(|unreadable| {
            CallError::new(Kind::BadResult, Executed::Maybe, unreadable.to_string())
        })?;
        let offered = self.offered()?;
        let known =
            |name: &str| name == SERVER_NAME || offered.iter().any(|export| export.name == name);
        stat.exports.retain(|export| known(&export.name));
        stat.bindings.retain(|binding| known(&binding.export));
        if told.disclosure == Disclosure::All {
            stat.sessions.truncate(limits::TOLD_ROWS);
            stat.bindings.truncate(limits::TOLD_ROWS);
        } else {
            (stat.sessions, stat.bindings) = (Vec::new(), Vec::new());
        }
        Ok(stat)
    }
}
