//! The export through which clients on networks watch a server's counters.
//!
//! The procedure is async, so a client that watches occupies no thread of the server. The server stub is
//! written by hand, because the crate can be built without the feature that generates async servers.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::disclosure::Discloser;
use crate::call::pending::{Bells, Rings};
use crate::call::streams::Sink;
use crate::call::{Answered, OwnedCall, Refusal, Reply, Request, Serve, Served, serve_async};
use crate::counters::Stat;
use crate::error::Kind;
use crate::interface::InterfaceRef;
use crate::limits;
use crate::server_info::{ServerInfo as _, ServerWatchClient, WATCH_NAME};
use crate::serving::ServerCore;
use crate::serving::export::{Export, ExportOptions};
use crate::sync::Mutex;

/// The shortest interval between two readings of the counters.
const EVERY_MIN: Duration = Duration::from_millis(10);
/// The longest interval between two checks whether the client still watches and the server still runs.
const LOOK: Duration = Duration::from_millis(100);

/// Returns the export through which clients on networks watch the server's counters.
pub(super) fn watch_export(core: &Arc<ServerCore>) -> Arc<Export> {
    let serve = Arc::new(Watch { core: Arc::downgrade(core), watchers: Arc::default() });
    let (name, options) = (WATCH_NAME.to_owned(), ExportOptions::default());
    Export::new(name, Export::OF_WATCH, serve, options, core)
}

/// The server stub of the export. It does not keep the server alive.
#[derive(Clone)]
struct Watch {
    core: Weak<ServerCore>,
    /// The number of clients that watch.
    watchers: Arc<AtomicU32>,
}

/// A client that watches.
struct Watcher {
    watch: Watch,
    every: Duration,
    readings: Sink<'static, Stat>,
}

impl Serve for Watch {
    fn interface(&self) -> InterfaceRef {
        InterfaceRef::from(ServerWatchClient::INTERFACE)
    }

    fn is_async(&self) -> bool {
        true
    }

    fn shared(&self) -> Option<Arc<dyn Serve>> {
        Some(Arc::new(self.clone()))
    }

    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        if request.procedure() > 0 {
            return Err(Refusal::no_such_procedure(request.procedure()));
        }
        let watch = self.clone();
        serve_async(None, request, reply, |mut call: OwnedCall| async move {
            let begun = Watcher::begin(watch, &mut call);
            match begun {
                Ok(watcher) => watcher.run().await,
                Err(refusal) => refusal.into(),
            }
        })
    }
}

impl Watcher {
    /// Takes the arguments of a call.
    fn begin(watch: Watch, call: &mut OwnedCall) -> Result<Self, Refusal> {
        let mut request = call.request()?;
        let every = Duration::from_millis(request.value::<u32>()?.into()).max(EVERY_MIN);
        let readings = request.sink_async::<Stat>()?;
        request.finish()?;
        let before = watch.watchers.fetch_add(1, Ordering::Relaxed);
        let watcher = Self { watch, every, readings };
        if before >= limits::WATCHERS {
            let text = format!("{} clients watch the counters already", limits::WATCHERS);
            return Err(Refusal::new(Kind::Exhausted, text));
        }
        Ok(watcher)
    }

    /// Sends readings until the client wants no more, or the server stops.
    async fn run(mut self) -> Answered {
        let discloser = Discloser(Weak::clone(&self.watch.core));
        let mut due = Instant::now();
        while !self.readings.is_stopped() {
            if discloser.core().is_none_or(|core| core.stopping.load(Ordering::Relaxed)) {
                return Refusal::stopping().into();
            }
            if Instant::now() < due {
                Pause::until(due.min(Instant::now() + LOOK)).await;
                continue;
            }
            let sent = match discloser.stat() {
                Ok(stat) => self.readings.send_async(stat).await,
                Err(error) => Err(error),
            };
            match sent {
                Err(error) if error.kind() == Kind::Stopped => break,
                Err(error) => return Answered::err(&error),
                Ok(()) => {}
            }
            // If the client takes readings slowly, the missed ones are skipped.
            due = (due + self.every).max(Instant::now());
        }
        Answered::ok(&(), Vec::new(), |_| Ok(()))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.watch.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A wait of an async procedure.
#[derive(Default)]
struct Pause {
    is_over: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Pause {
    /// Waits until the time `at`.
    async fn until(at: Instant) {
        let pause = Arc::new(Self::default());
        let rings: Arc<dyn Rings> = Arc::clone(&pause) as _;
        if Bells::of_process().watch(&rings, 0, Some(at), false).is_ok() {
            core::future::poll_fn(|context| pause.poll(context)).await;
        }
    }

    fn poll(&self, context: &Context<'_>) -> Poll<()> {
        *self.waker.lock() = Some(context.waker().clone());
        // SYNC: the lock of the waker. This thread has stored its waker, and now reads the flag. The ring
        // sets the flag, and then takes the waker. So either the ring finds this waker, or this thread finds
        // the flag set.
        if self.is_over.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Rings for Pause {
    fn word(&self, _: u32) -> Option<(&AtomicU32, u32)> {
        None
    }
    fn examine(&self, _: u32) {}
    fn ring(&self, _: u32) {
        self.is_over.store(true, Ordering::SeqCst);
        let waker = self.waker.lock().take();
        waker.into_iter().for_each(Waker::wake);
    }
}
