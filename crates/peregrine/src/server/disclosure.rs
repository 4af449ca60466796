//! The export through which clients on networks read a server's exports and counters.

use std::sync::{Arc, Weak};

use crate::call::Refusal;
use crate::counters::{self, Stat};
use crate::error::{CallError, Executed, Kind};
use crate::limits;
use crate::server_info::{
    Exported, HEALTH_NAME, SERVER_NAME, ServerInfo, ServerInfoServer, WATCH_NAME,
};
use crate::serving::ServerCore;
use crate::serving::disclosure::Disclosure;
use crate::serving::export::{Export, ExportOptions};

/// Returns the export through which clients on networks read about the server.
pub(super) fn server_export(core: &Arc<ServerCore>) -> Arc<Export> {
    let serve = Arc::new(ServerInfoServer::new(Discloser(Arc::downgrade(core))));
    let (name, options) = (SERVER_NAME.to_owned(), ExportOptions::default());
    Export::new(name, Export::OF_SERVER, serve, options, core)
}

/// The object of the export that [`server_export`] returns. It does not keep the server alive.
pub(super) struct Discloser(pub(super) Weak<ServerCore>);

impl Discloser {
    /// Returns the server, unless it has ended.
    pub(super) fn core(&self) -> Option<Arc<ServerCore>> {
        self.0.upgrade()
    }

    /// Returns the server.
    ///
    /// # Errors
    /// If the server has ended.
    fn running(&self) -> Result<Arc<ServerCore>, CallError> {
        self.core().ok_or_else(|| {
            let refusal = Refusal::stopping();
            CallError::new(refusal.kind, Executed::Maybe, refusal.text)
        })
    }
}

/// Returns the exports that clients on networks may see.
fn offered(core: &ServerCore) -> Vec<Arc<Export>> {
    let offered = |export: &&Arc<Export>| {
        export.is_named() && export.is_offered_to_networks() && !export.is_closed()
    };
    core.exports.lock().iter().filter(offered).map(Arc::clone).collect()
}

impl ServerInfo for Discloser {
    fn list(&self) -> Result<Vec<Exported>, CallError> {
        let exported = |export: Arc<Export>| {
            let description = export.description();
            Exported {
                name: export.name.clone(),
                interface: description.interface,
                version: description.version,
                digest: description.digest.0,
                process: description.process,
                age_ms: description.age_ms,
                bindings: description.bindings,
                listens: description.listens,
            }
        };
        let core = self.running()?;
        Ok(offered(&core).into_iter().map(exported).collect())
    }

    fn stat(&self) -> Result<Stat, CallError> {
        let core = self.running()?;
        core.disclosed.refresh();
        let mut stat = counters::read(core.disclosed.page.memory()).map_err(|unreadable| {
            CallError::new(Kind::BadResult, Executed::Maybe, unreadable.to_string())
        })?;
        let offered = offered(&core);
        let known = |name: &str| {
            [SERVER_NAME, WATCH_NAME, HEALTH_NAME].contains(&name)
                || offered.iter().any(|export| export.name == name)
        };
        stat.exports.retain(|export| known(&export.name));
        stat.bindings.retain(|binding| known(&binding.export));
        if core.disclosed.disclosure == Disclosure::All {
            stat.sessions.truncate(limits::TOLD_ROWS);
            stat.bindings.truncate(limits::TOLD_ROWS);
        } else {
            (stat.sessions, stat.bindings) = (Vec::new(), Vec::new());
        }
        Ok(stat)
    }
}
