//! `Server`: several exports, one pool of threads, and a way to stop.

mod export;
mod pool;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use self::export::Export;
use self::pool::Pool;
use crate::call::{Serve, Wait};
use crate::directory::{self, Audience, Published};
use crate::error::{CallError, Phase};
use crate::keeper::{Keeper, Next, Watch, Watched};
use crate::{limits, sys};

/// How long stopping waits for procedures that still run.
const STOP: Duration = Duration::from_secs(5);

/// Serves objects under names.
///
/// ```no_run
/// # use peregrine::{interface, Server};
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// Server::new().export("echo", EchoServer::new(Same))?.run()?;
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[must_use]
pub struct Server {
    exports: Vec<(String, Arc<dyn Serve>, ExportOptions, Published)>,
    threads: usize,
    queue: usize,
    wait: Wait,
    signals: bool,
}

/// What a server may choose for each export.
///
/// ```no_run
/// use peregrine::{ExportOptions, Server};
///
/// # use peregrine::interface;
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// let options = ExportOptions::default().public().astacks_max(4);
/// let running = Server::new().export_with("echo", EchoServer::new(Same), options)?.spawn()?;
/// assert_eq!(running.names(), ["echo"]);
/// running.stop();
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ExportOptions {
    pub(crate) public: bool,
    pub(crate) astacks_max: u32,
    /// As the interface needs it, if none is set.
    pub(crate) message_bytes_max: Option<usize>,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self { public: false, astacks_max: limits::ASTACKS_MAX, message_bytes_max: None }
    }
}

impl ExportOptions {
    /// Lets every user of the machine bind; otherwise only the server's own, and root.
    pub const fn public(mut self) -> Self {
        self.public = true;
        self
    }

    /// A-stacks that one binding gets at most, 1 to [`limits::ASTACKS_MAX`].
    ///
    /// # Panics
    /// If it is out of that range.
    pub const fn astacks_max(mut self, count: u32) -> Self {
        assert!(count >= 1 && count <= limits::ASTACKS_MAX, "A-stacks out of range");
        self.astacks_max = count;
        self
    }

    /// Bytes that an A-stack may have each way at most; clients that want more are refused. Unless
    /// set: 1 MiB, or what the interface's bounded parameters need.
    pub const fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = Some(bytes);
        self
    }
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// A server without exports.
    pub const fn new() -> Self {
        Self {
            exports: Vec::new(),
            threads: limits::WORKERS_MAX,
            queue: limits::QUEUE_MAX,
            wait: Wait::Adaptive,
            signals: false,
        }
    }

    /// Exports an object under a name, which is taken from now on; clients are let in when the
    /// server runs.
    ///
    /// # Errors
    /// If the name is taken by a live server or is none, or the runtime directory cannot be
    /// written.
    pub fn export(self, name: &str, serve: impl Serve + 'static) -> Result<Self, CallError> {
        self.export_with(name, serve, ExportOptions::default())
    }

    /// As [`Server::export`], with options.
    ///
    /// # Errors
    /// As [`Server::export`].
    pub fn export_with(
        mut self,
        name: &str,
        serve: impl Serve + 'static,
        options: ExportOptions,
    ) -> Result<Self, CallError> {
        let audience = if options.public { Audience::Public } else { Audience::Private };
        let published = directory::publish(name, audience)?;
        self.exports.push((name.to_owned(), Arc::new(serve), options, published));
        Ok(self)
    }

    /// Procedures that run at one time: 64 unless set.
    pub fn threads(mut self, most: usize) -> Self {
        self.threads = most.max(1);
        self
    }

    /// Calls that wait for a thread before more are refused as overload: 1024 unless set.
    pub const fn queue(mut self, most: usize) -> Self {
        self.queue = most;
        self
    }

    /// How threads wait for the next call.
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Stops in good order on SIGINT and SIGTERM; otherwise they end the process at once.
    pub const fn stop_on_signals(mut self) -> Self {
        self.signals = true;
        self
    }

    /// Serves until stopped: by a signal, if [`Server::stop_on_signals`] was asked for.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn run(self) -> Result<(), CallError> {
        self.spawn()?.wait();
        Ok(())
    }

    /// Serves in the background; clients are let in when this returns.
    ///
    /// # Errors
    /// If a thread or a descriptor cannot be had.
    pub fn spawn(self) -> Result<Running, CallError> {
        let failed =
            |what: &str, error: io::Error| CallError::system(Phase::Export, what.to_owned(), error);
        let keeper = Keeper::of_process().map_err(|error| failed("starting the keeper", error))?;
        let pool = Pool::new(self.threads, self.queue, self.wait);
        // Measured before the first call rather than in it.
        crate::path::local::block_cost();
        let stop = Arc::new(Stop::default());
        let mut watches = Vec::new();
        if self.signals {
            let event = sys::on_stop_signals().map_err(|error| failed("minding signals", error))?;
            let signals = Arc::new(Signals { event, stop: Arc::clone(&stop) });
            let watch = keeper.watch(signals);
            watches.push(watch.map_err(|error| failed("minding signals", error))?);
        }
        let mut exports = Vec::new();
        for (name, serve, options, published) in self.exports {
            let (pool, keeper) = (Arc::clone(&pool), Arc::clone(&keeper));
            let export = Export::new(name, serve, options, published, pool, keeper);
            watches.push(export.open().map_err(|error| failed("letting clients in", error))?);
            exports.push(export);
        }
        Ok(Running { stop, pool, exports, watches, pid: std::process::id() })
    }
}

/// A server that runs in the background; it stops when this is dropped.
#[must_use = "the server stops when this is dropped"]
pub struct Running {
    stop: Arc<Stop>,
    pool: Arc<Pool>,
    exports: Vec<Arc<Export>>,
    watches: Vec<Watch>,
    pid: u32,
}

impl Running {
    /// A handle that stops the server from anywhere.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(Arc::clone(&self.stop))
    }

    /// Waits until the server is told to stop, then stops it.
    pub fn wait(self) {
        self.stop.wait();
    }

    /// Stops the server: new calls are refused as not executed, running ones may finish within
    /// five seconds.
    pub fn stop(self) {
        drop(self);
    }

    /// The names under which it serves.
    pub fn names(&self) -> Vec<&str> {
        self.exports.iter().map(|export| export.name.as_str()).collect()
    }

    /// Threads that run procedures or wait for calls now.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A forked child owns nothing of it, and would speak in its parent's name.
        if self.pid != std::process::id() {
            return;
        }
        self.watches.clear();
        self.pool.stop(STOP);
        for export in &self.exports {
            export.farewell();
        }
    }
}

/// Stops a server from anywhere.
#[derive(Clone)]
pub struct StopHandle(Arc<Stop>);

impl StopHandle {
    /// Tells the server to stop; returns at once.
    pub fn stop(&self) {
        self.0.stop();
    }
}

#[derive(Default)]
struct Stop {
    told: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn stop(&self) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        while !*told {
            told = self.changed.wait(told).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The signals that a server minds.
struct Signals {
    event: BorrowedFd<'static>,
    stop: Arc<Stop>,
}

impl Watched for Signals {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event
    }

    fn ready(&self) -> Next {
        // Taken, so that a server which comes later is not stopped by it.
        let _ = rustix::io::read(self.event, &mut [0; 8]);
        self.stop.stop();
        Next::Forget
    }
}

macro_rules! opaque_debug {
    ($($type:ty: $text:literal),*) => {$(
        impl core::fmt::Debug for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str($text)
            }
        }
    )*};
}
opaque_debug!(Server: "Server", Running: "Running", StopHandle: "StopHandle");
