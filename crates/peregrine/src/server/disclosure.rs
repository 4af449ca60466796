//! How a server's exports and counters are read: by its own process, and through an export by clients on
//! networks.

use core::fmt;
use std::sync::{Arc, Weak};

use super::Running;
use crate::call::Refusal;
use crate::counters::{self, Stat};
use crate::error::{CallError, Executed, Kind};
use crate::limits;
use crate::server_info::{
    Exported, HEALTH_NAME, SERVER_NAME, ServerInfo, ServerInfoServer, WATCH_NAME, hide_unused,
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
        export.is_named() && export.is_offered_in_clear() && !export.is_closed()
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
        if let Some(procedures) = &mut stat.procedures {
            procedures.retain(|procedure| known(&procedure.export));
        }
        if core.disclosed.disclosure == Disclosure::All {
            stat.sessions.truncate(limits::TOLD_ROWS);
            stat.bindings.truncate(limits::TOLD_ROWS);
        } else {
            (stat.sessions, stat.bindings) = (Vec::new(), Vec::new());
        }
        Ok(stat)
    }
}

/// A handle through which any thread of the server's process can read the server's counters. It does not
/// keep the server alive.
#[derive(Clone)]
pub struct StatHandle(Weak<ServerCore>);

impl StatHandle {
    /// Returns what the server has counted, as [`Running::stat`] does. Returns `None` after the server has
    /// ended.
    ///
    /// ```no_run
    /// # fn answer(handle: &peregrine::StatHandle) -> Option<String> {
    /// handle.stat().map(|stat| stat.to_prometheus())
    /// # }
    /// ```
    pub fn stat(&self) -> Option<Stat> {
        self.0.upgrade().and_then(|core| own(&core))
    }
}

impl fmt::Debug for StatHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StatHandle")
    }
}

impl Running {
    /// Returns what this server has counted, or zeros in a forked child of its process. Sessions and bindings cannot begin or end meanwhile, which takes
    /// microseconds for a server with few clients. Calls are not delayed. Other processes ask with
    /// [`stat`](crate::stat()).
    ///
    /// ```
    /// # use peregrine::{interface, Server};
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// let running = Server::new().export("own-stat-example", EchoServer::new(Same))?.spawn()?;
    /// EchoClient::bind("own-stat-example")?.echo(7)?;
    /// assert_eq!(running.stat().server.counts.calls, 1);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn stat(&self) -> Stat {
        own(&self.core).unwrap_or_default()
    }

    /// Returns a handle through which other threads of this process read the counters, such as the thread of
    /// an HTTP endpoint.
    ///
    /// ```
    /// # use peregrine::{interface, Server};
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// let running = Server::new().export("stat-handle-example", EchoServer::new(Same))?.spawn()?;
    /// let handle = running.stat_handle();
    /// let reader = std::thread::spawn(move || handle.stat().map(|stat| stat.to_prometheus()));
    /// let text = reader.join().expect("no panic").expect("the server runs");
    /// assert!(text.contains("\nperegrine_calls_total 0\n"));
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn stat_handle(&self) -> StatHandle {
        StatHandle(Arc::downgrade(&self.core))
    }
}

/// Returns the counters of a server of this process. A forked child does not have its parent's counters.
fn own(core: &ServerCore) -> Option<Stat> {
    if !core.disclosed.page.memory().is_ours() {
        return None;
    }
    core.disclosed.refresh();
    let mut stat = core.disclosed.page.read();
    hide_unused(&mut stat);
    Some(stat)
}
