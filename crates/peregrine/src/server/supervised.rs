//! Reports to the supervisor of the process that a server is ready, alive, and about to stop.

use std::io;
use std::sync::Arc;

use crate::address::Endpoint;
use crate::error::{CallError, Phase};
use crate::keeper::{Keeper, Next, Watch};
use crate::systemd::Notifier;

/// A server that a supervisor, such as systemd, watches. While this value lives, the keeper reports that the
/// process is alive.
pub(super) struct Supervised {
    notifier: Arc<Notifier>,
    _watchdog: Option<Watch>,
}

impl Supervised {
    /// Reports that the server is ready.
    ///
    /// # Errors
    /// If the supervisor does not receive the report, or the keeper cannot set a timer.
    pub(super) fn begin(
        notifier: Notifier,
        keeper: &Arc<Keeper>,
        names: &[String],
        addresses: &[Endpoint],
    ) -> Result<Self, CallError> {
        let notifier = Arc::new(notifier);
        let failed = |error: io::Error| {
            CallError::system(Phase::Export, "cannot set the timer of the watchdog", error)
        };
        // The keeper answers clients that bind or ask for the health. So if the keeper does not run any more,
        // the server is not alive.
        let watchdog = match notifier.watchdog() {
            None => None,
            Some(time) => {
                let (every, reports) = (time / 2, Arc::clone(&notifier));
                let watch = keeper.watch_timer(move || {
                    reports.keep_alive();
                    Next::SleepAndTick(every)
                });
                let watch = watch.map_err(failed)?;
                watch.remind(every);
                Some(watch)
            }
        };
        notifier.ready(&status("serving", names, addresses))?;
        Ok(Self { notifier, _watchdog: watchdog })
    }

    /// Reports that the server is about to stop.
    pub(super) fn stops(&self) {
        self.notifier.stopping("draining: waiting for calls that run");
    }
}

/// Returns a text such as `serving files at tcp:127.0.0.1:7000`.
fn status(what: &str, names: &[String], addresses: &[Endpoint]) -> String {
    let mut text = format!("{what} {}", names.join(", "));
    if !addresses.is_empty() {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        text += &format!(" at {}", addresses.join(", "));
    }
    text
}
