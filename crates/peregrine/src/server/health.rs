//! The export through which clients on networks ask for a server's health.

use std::sync::{Arc, Weak};

use crate::call::Refusal;
use crate::error::{CallError, Executed};
use crate::server_info::{HEALTH_NAME, SERVER_NAME, ServerHealth, ServerHealthServer};
use crate::serving::ServerCore;
use crate::serving::export::{Applicant, Export, ExportOptions};
use crate::serving::health::Health;

/// Returns the export through which clients on networks ask for the server's health. Its calls need no
/// permit, so its procedure must never wait.
pub(super) fn health_export(core: &Arc<ServerCore>) -> Arc<Export> {
    let serve = Arc::new(ServerHealthServer::new(Reporter(Arc::downgrade(core))));
    let (name, options) = (HEALTH_NAME.to_owned(), ExportOptions::default());
    Export::new(name, Export::OF_HEALTH, serve, options, core)
}

/// The object of the export that [`health_export`] returns. It does not keep the server alive.
struct Reporter(Weak<ServerCore>);

impl ServerHealth for Reporter {
    fn check(&self, export: &str) -> Result<Option<Health>, CallError> {
        let core = self.0.upgrade().ok_or_else(|| {
            let refusal = Refusal::stopping();
            CallError::new(refusal.kind, Executed::Maybe, refusal.text)
        })?;
        let is_known = [SERVER_NAME, HEALTH_NAME].contains(&export)
            || core.drains(export)
            || core
                .exports
                .offered(export, &Applicant::STRANGER)
                .is_ok_and(|export| export.is_named());
        Ok(is_known.then(|| core.health()))
    }
}
