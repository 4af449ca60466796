//! A running bridge: its threads, its connections, and how it stops.

use core::fmt;
use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use peregrine::Endpoint;
use peregrine::systemd::Notifier;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;

use crate::fronts::{self, Fronts};
use crate::patience::Patient;
use crate::route::Shared;
use crate::setup::{Bridge, Log, SetupError};

/// The maximum number of open connections. Further clients wait until one is closed.
const CONNECTIONS_MAX: usize = 256;
/// The maximum size in bytes of the header of a request.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// The largest number of threads that receive requests and send answers.
const THREADS_MAX: usize = 4;
/// How long a bridge waits for running calls before it stops.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How long a bridge pauses if it cannot accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running bridge. It stops when this value is dropped.
pub struct Running {
    /// `None` only while this value is dropped.
    runtime: Option<Runtime>,
    serves: Option<JoinHandle<()>>,
    /// Reports to systemd, and ends after it has reported that the bridge stops.
    reports: Option<JoinHandle<()>>,
    stop: StopHandle,
    addresses: Vec<SocketAddr>,
    fronts: Option<Arc<Fronts>>,
}

/// Stops a bridge from another thread.
#[derive(Clone, Debug)]
pub struct StopHandle(watch::Sender<bool>);

impl StopHandle {
    /// Makes the bridge stop: it accepts no more connections, and waits at most five seconds for running HTTP
    /// requests. It then waits at most five seconds for running calls of RPC clients.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Running {
    pub(crate) fn start(bridge: Bridge) -> Result<Self, SetupError> {
        let runtime = Self::runtime(&bridge).map_err(SetupError::Start)?;
        let entered = runtime.enter();
        let listeners = bridge.listeners.into_iter().map(TcpListener::from_std);
        let listeners: io::Result<Vec<TcpListener>> = listeners.collect();
        let listeners = listeners.map_err(SetupError::Start)?;
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>();
        let addresses = addresses.map_err(SetupError::Start)?;
        drop(entered);
        let stop = watch::Sender::new(false);
        let names: Vec<&str> = bridge.targets.iter().map(|target| &*target.name).collect();
        let names = names.join(", ");
        let shared = Arc::new(Shared::new(bridge.targets, bridge.limits));
        let fronts = match bridge.plan.is_empty() {
            true => None,
            false => {
                let Shared { targets, permits, limits, .. } = &*shared;
                let timers = runtime.handle().clone();
                Some(Arc::new(Fronts::start(bridge.plan, targets, permits, limits, timers)?))
            }
        };
        let watched = fronts.clone().map(|fronts| (fronts, bridge.log));
        let serves = serve(shared, listeners, watched, stop.subscribe());
        let serves = Some(runtime.spawn(serves));
        // From here on, an error drops `running`, which stops the bridge.
        let (runtime, stop) = (Some(runtime), StopHandle(stop));
        let mut running = Self { runtime, serves, reports: None, stop, addresses, fronts };
        if let Some(notifier) = bridge.notifier {
            running.report(notifier, &names)?;
        }
        Ok(running)
    }

    /// Reports to systemd that the bridge is ready. Later reports that it is alive, and that it stops.
    fn report(&mut self, notifier: Notifier, names: &str) -> Result<(), SetupError> {
        notifier.ready(&format!("offering {names}")).map_err(SetupError::Notify)?;
        if let Some(runtime) = &self.runtime {
            self.reports = Some(runtime.spawn(report(notifier, self.stop.0.subscribe())));
        }
        Ok(())
    }

    fn runtime(bridge: &Bridge) -> io::Result<Runtime> {
        // More threads than processors would only wake each other.
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Builder::new_multi_thread()
            .worker_threads(processors.min(THREADS_MAX))
            // One thread for each call, although most calls need none. One for each server that is asked for
            // its description, and one that checks whether interfaces have changed.
            .max_blocking_threads(bridge.limits.calls + bridge.targets.len() + 1)
            .thread_name("bridge")
            .enable_io()
            .enable_time()
            .build()
    }

    /// Returns the endpoints at which clients of RPC systems can call, with their actual ports.
    pub fn endpoints(&self) -> &[Endpoint] {
        self.fronts.as_ref().map_or(&[], |fronts| fronts.endpoints())
    }

    /// Returns the addresses at which the bridge listens for HTTP.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns a handle that stops the bridge.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Waits until the bridge has stopped.
    ///
    /// # Panics
    /// If it is called in an async task.
    pub fn wait(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let (Some(runtime), Some(serves)) = (&self.runtime, self.serves.take()) {
            // An error means that the task has panicked. It has ended in this case, too.
            let _ = runtime.block_on(serves);
        }
        if let (Some(runtime), Some(reports)) = (&self.runtime, self.reports.take()) {
            // Without this wait, a bridge that stops at once could end before its report is sent.
            self.stop.stop();
            let _ = runtime.block_on(reports);
        }
        // Stops the servers of the fronts. Each server waits for its running calls.
        drop(self.fronts.take());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        self.end();
        if let Some(runtime) = self.runtime.take() {
            // Calls that still run are given up, because their connections are dropped.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// Accepts connections until the bridge is stopped. Returns after running requests have ended.
async fn serve(
    shared: Arc<Shared>,
    listeners: Vec<TcpListener>,
    fronts: Option<(Arc<Fronts>, Log)>,
    stop: watch::Receiver<bool>,
) {
    let watches = tokio::spawn(watch_fronts(fronts, stop.clone()));
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = Arc::new(GracefulShutdown::new());
    let accepts = listeners.into_iter().map(|listener| {
        let (shared, connections) = (Arc::clone(&shared), Arc::clone(&connections));
        tokio::spawn(accept(shared, listener, connections, Arc::clone(&graceful), stop.clone()))
    });
    for accepts in accepts.collect::<Vec<_>>() {
        let _ = accepts.await;
    }
    let _ = watches.await;
    // The tasks that accept have ended, so there is no other reference to `graceful`.
    if let Some(graceful) = Arc::into_inner(graceful) {
        let _ = tokio::time::timeout(STOP_LIMIT, graceful.shutdown()).await;
    }
}

/// Reports to systemd that the bridge is alive. Ends after it has reported that the bridge stops.
async fn report(notifier: Notifier, mut stop: watch::Receiver<bool>) {
    // Half of the time in which systemd expects a report.
    let every = notifier.watchdog().map(|time| time / 2);
    let lives = async {
        let Some(every) = every else { return core::future::pending().await };
        loop {
            notifier.keep_alive();
            tokio::time::sleep(every).await;
        }
    };
    let stops = stop.wait_for(|stopped| *stopped);
    tokio::select! {
        () = lives => {}
        _ = stops => {}
    }
    notifier.stopping("draining: waiting for calls that run");
}

/// Keeps the exports up to date until the bridge is stopped.
async fn watch_fronts(fronts: Option<(Arc<Fronts>, Log)>, mut stop: watch::Receiver<bool>) {
    let Some((fronts, log)) = fronts else {
        let _ = stop.wait_for(|stopped| *stopped).await;
        return;
    };
    loop {
        tokio::select! {
            () = tokio::time::sleep(fronts::LOOK) => {}
            _ = stop.wait_for(|stopped| *stopped) => return,
        }
        let looks = Arc::clone(&fronts);
        let refused = tokio::task::spawn_blocking(move || looks.look()).await;
        for refused in refused.unwrap_or_default() {
            log.say(&refused.to_string());
        }
    }
}

/// Accepts connections at one address until the bridge is stopped.
async fn accept(
    shared: Arc<Shared>,
    listener: TcpListener,
    connections: Arc<Semaphore>,
    graceful: Arc<GracefulShutdown>,
    mut stop: watch::Receiver<bool>,
) {
    let accepted = async {
        loop {
            // The semaphore is never closed.
            let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => connect(&shared, stream, permit, &graceful),
                // The process may have no free descriptor.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    };
    tokio::select! {
        () = accepted => {}
        _ = stop.wait_for(|stopped| *stopped) => {}
    }
}

/// Serves the requests of one connection.
fn connect(
    shared: &Arc<Shared>,
    stream: TcpStream,
    permit: OwnedSemaphorePermit,
    graceful: &GracefulShutdown,
) {
    // If the socket has no local address, the connection is closed already.
    let Ok(here) = stream.local_addr() else { return };
    let _ = stream.set_nodelay(true);
    let limit = shared.limits.client_limit;
    let shared = Arc::clone(shared);
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, core::convert::Infallible>(shared.answer(request, here.ip()).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limit)
        .max_header_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(Patient::new(stream, limit)), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        // An error concerns only this connection, whose client sees that it was closed.
        let _ = connection.await;
        drop(permit);
    });
}
