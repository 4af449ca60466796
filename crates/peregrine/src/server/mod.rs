//! `Server`: several exports, one pool of threads, and a way to stop.

mod disclosure;
mod paths;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::disclosure::server_export;
use self::paths::{Listening, Paths};
use crate::address::Endpoint;
use crate::binding::EthernetDevice;
use crate::call::{Exported, Serve, Wait};
use crate::counters::Page;
use crate::directory::{self, Audience, Published};
use crate::error::{CallError, NO_THREAD, Phase};
use crate::keeper::{Keeper, Watch};
pub use crate::path::datagram::Losses;
use crate::path::stream::ConnectionTerms;
pub use crate::serving::disclosure::Disclosure;
use crate::serving::export::Export;
pub use crate::serving::export::ExportOptions;
pub use crate::serving::faults::Fault;
use crate::serving::faults::Faults;
pub use crate::serving::stop::StopHandle;
use crate::serving::stop::{Drain, Signals, Stop};
use crate::serving::{ServerCore, ServerPath, Threads};
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
    threads: Threads,
    /// How long a signal lets procedures run on. `None` if signals do not stop the server.
    signals: Option<Duration>,
    listeners: Vec<Listening>,
    connections: ConnectionTerms,
    ethernet: Option<EthernetDevice>,
    disclosure: Disclosure,
    /// Made with the first export, or the hook, whichever comes first.
    faults: Option<Arc<Faults>>,
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
            threads: Threads {
                running_max: limits::WORKERS_MAX,
                waiting_max: limits::QUEUE_MAX,
                wait: Wait::Adaptive,
            },
            signals: None,
            listeners: Vec::new(),
            connections: ConnectionTerms {
                congestion: None,
                connections: limits::CONNECTIONS_MAX,
                connections_per_host: limits::CONNECTIONS_PER_HOST,
            },
            ethernet: None,
            disclosure: Disclosure::Totals,
            faults: None,
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
        let published = directory::publish(name, audience(&options))?;
        let faults = self.faults.get_or_insert_default();
        let (faults, export) = (Arc::clone(faults), name.to_owned());
        let report = move |text| faults.dropping(&export, text);
        let serve = Arc::new(Exported::new(serve, report));
        self.exports.push((name.to_owned(), serve, options, published));
        Ok(self)
    }

    /// Listens also at a port of this machine, for its own processes alone: `tcp:127.0.0.1:7000`,
    /// `tcp:[::1]:0` (any port that is free), `tcp:localhost:7000` (both). May be asked for any number
    /// of times.
    ///
    /// `127.0.0.1:7000` without a scheme listens over TCP and UDP at the same port: clients that bind
    /// to `NAME@127.0.0.1:7000` take the fastest path that works.
    ///
    /// `udp:` and `eth:` in place of `tcp:` listen for datagrams, and for these and Ethernet frames: see
    /// [`Server::listen_beyond_this_machine`].
    ///
    /// Every user of the machine can call what is exported, save for exports that are limited to
    /// [users](ExportOptions::users) or [groups](ExportOptions::groups): those are not offered
    /// there, for nobody vouches for who calls.
    ///
    /// ```no_run
    /// # use peregrine::{interface, Server};
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// let server = Server::new().export("echo", EchoServer::new(Same))?;
    /// let running = server.listen("tcp:127.0.0.1:0")?.spawn()?;
    /// let echo = EchoClient::bind(&format!("{}/echo", running.addresses()[0]))?;
    /// assert_eq!(echo.echo(7)?, 7);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    ///
    /// # Errors
    /// If the endpoint is none, leads beyond this machine, or is taken.
    pub fn listen(self, endpoint: &str) -> Result<Self, CallError> {
        self.listen_at(endpoint, false)
    }

    /// As [`Server::listen`], also at endpoints that other machines can reach, such as
    /// `tcp:0.0.0.0:7000`.
    ///
    /// **Nothing on a network path is encrypted or authenticated in this version.** Whoever can
    /// reach the port can call, and whoever can see the wire can read and change calls and results.
    /// Do this only in a network in which you trust everybody, or behind something that keeps
    /// everybody else out.
    ///
    /// `eth:192.0.2.7:7000` listens at that UDP address, and for raw Ethernet frames at the interface
    /// that has it: clients on the same link then call without an internet protocol. It takes
    /// `CAP_NET_RAW`, and is faster with `CAP_NET_ADMIN` and `CAP_BPF`
    /// ([`EthernetDevice`]). `192.0.2.7:7000` listens over TCP and UDP, and for frames too if the
    /// process may and the interface is Ethernet; it attaches no program to the interface unless
    /// [`Server::ethernet_device`] is set. Of `0.0.0.0` no interface is the one, so there are no
    /// frames.
    ///
    /// # Errors
    /// If the endpoint is none, or is taken.
    pub fn listen_beyond_this_machine(self, endpoint: &str) -> Result<Self, CallError> {
        self.listen_at(endpoint, true)
    }

    fn listen_at(mut self, endpoint: &str, beyond: bool) -> Result<Self, CallError> {
        let parsed: Endpoint = endpoint.parse().map_err(|error: CallError| error.at(endpoint))?;
        let listeners = paths::listen(&parsed, beyond).map_err(|error| error.at(endpoint))?;
        self.listeners.extend(listeners);
        Ok(self)
    }

    /// Congestion control of TCP connections that come, as with
    /// [`BindOptions::congestion`](crate::BindOptions::congestion).
    pub fn congestion(mut self, name: &str) -> Self {
        self.connections.congestion = Some(name.to_owned());
        self
    }

    /// TCP connections that the server accepts at one time: [`limits::CONNECTIONS_MAX`] unless set.
    /// Each takes a descriptor, so `RLIMIT_NOFILE` bounds them as well.
    pub const fn connections(mut self, most: usize) -> Self {
        self.connections.connections = most;
        self
    }

    /// TCP connections that the server accepts from one host (one address of IPv4, one /64 of IPv6) at
    /// one time: [`limits::CONNECTIONS_PER_HOST`] unless set. All bindings of a client process to a
    /// server share one connection, so this bounds the processes of a host. Allow more where many
    /// clients share an address, as those behind a NAT do.
    ///
    /// ```no_run
    /// # use peregrine::{interface, Server};
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// let server = Server::new().export("echo", EchoServer::new(Same))?;
    /// server.listen("tcp:127.0.0.1:7000")?.connections_per_host(2000).run()?;
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub const fn connections_per_host(mut self, most: usize) -> Self {
        self.connections.connections_per_host = most;
        self
    }

    /// By which device raw Ethernet is spoken: see [`EthernetDevice`].
    pub const fn ethernet_device(mut self, device: EthernetDevice) -> Self {
        self.ethernet = Some(device);
        self
    }

    /// What it tells of itself, and to whom: [`Disclosure::Totals`] unless set.
    ///
    /// ```no_run
    /// # use peregrine::{interface, Server, Disclosure};
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// let server = Server::new().export("echo", EchoServer::new(Same))?;
    /// server.listen("127.0.0.1:7000")?.disclosure(Disclosure::Nothing).run()?;
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub const fn disclosure(mut self, what: Disclosure) -> Self {
        self.disclosure = what;
        self
    }

    /// The number of procedures that run at the same time: [`limits::WORKERS_MAX`] unless set. It holds
    /// for calls from this machine and for calls over networks separately. For the latter, as many
    /// threads again (16 to 64) may wait for calls. A user of this machine other than the server's own and
    /// root leaves a quarter of the threads to other users.
    pub fn threads(mut self, most: usize) -> Self {
        self.threads.running_max = most.max(1);
        self
    }

    /// Calls that wait for a thread before more are refused as overload: 1024 unless set. Of calls of
    /// this machine each user has so many.
    pub const fn queue(mut self, most: usize) -> Self {
        self.threads.waiting_max = most;
        self
    }

    /// How threads wait for the next call.
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.threads.wait = wait;
        self
    }

    /// Tells `hook` of each panic outside of any call: of an object that panics when it is dropped, or
    /// of one of the server's own threads. The server goes on either way; without a hook only the
    /// panic's message on standard error tells of it.
    ///
    /// The hook runs on the thread on which the panic was, where others may wait for it: it should
    /// note the fault and return, and not use the server. It may run after the server has stopped,
    /// for an object lives as long as a call that runs.
    ///
    /// ```no_run
    /// # use peregrine::{interface, Server};
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// let server = Server::new().on_fault(|fault| eprintln!("peregrine: {fault}"));
    /// server.export("echo", EchoServer::new(Same))?.run()?;
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn on_fault(mut self, hook: impl Fn(&Fault) + Send + Sync + 'static) -> Self {
        self.faults.get_or_insert_default().set_hook(hook);
        self
    }

    /// Stops in good order on SIGINT and SIGTERM; otherwise they end the process at once. A second
    /// signal ends the wait for procedures that still run, as if the time for them had passed.
    ///
    /// Running procedures have five seconds to return. [`Server::drain_on_signals`] sets another limit.
    pub const fn stop_on_signals(self) -> Self {
        self.drain_on_signals(STOP)
    }

    /// Like [`Server::stop_on_signals`], with a limit for running procedures. They can ask
    /// [`Caller::is_stopping`](crate::Caller::is_stopping) whether the server stops.
    ///
    /// ```no_run
    /// # use core::time::Duration;
    /// # use peregrine::{interface, Server};
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// let server = Server::new().export("echo", EchoServer::new(Same))?;
    /// server.drain_on_signals(Duration::from_secs(60)).run()?;
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub const fn drain_on_signals(mut self, limit: Duration) -> Self {
        self.signals = Some(limit);
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
        let failed = |what: &'static str| {
            move |error: io::Error| CallError::system(Phase::Export, what, error)
        };
        // Before there are threads: among those the kernel takes 10 ms to make such barriers possible,
        // which the first call would wait for.
        sys::membarrier();
        // Measured before the first call rather than in it.
        crate::call::block_cost();
        let keeper = Keeper::of_process().map_err(failed(NO_THREAD))?;
        let stop = Arc::new(Stop::default());
        let signals = match self.signals {
            Some(_) => Signals::new(Arc::clone(&stop))
                .and_then(|signals| keeper.watch(Arc::new(signals)))
                .map(Some)
                .map_err(failed("cannot watch for signals"))?,
            None => None,
        };
        let page = Page::new().map_err(failed("no memory for counters"))?;
        let faults = self.faults.unwrap_or_default();
        let core = ServerCore::new(self.threads, faults, keeper, page, self.disclosure);
        let core = Arc::new(core.map_err(failed("no random numbers"))?);
        let mut published = Vec::new();
        let mut exports = Vec::new();
        for (number, (name, serve, options, place)) in (0..).zip(self.exports) {
            exports.push(Export::new(name, number, serve, options, &core));
            published.push(place);
        }
        let named = exports.clone();
        if !self.listeners.is_empty() && self.disclosure != Disclosure::Nothing {
            exports.push(server_export(&core));
        }
        core.exports.lock().extend(exports);
        let paths = Paths::new(&core, self.connections);
        let paths = paths.map_err(failed("no memory for words that servers share"))?;
        let all = paths.all();
        core.disclosed.measure(all.iter().map(Arc::downgrade));
        let (addresses, pid) = (Vec::new(), std::process::id());
        // From here on, dropping `running` closes what is open already.
        let drain = self.signals.unwrap_or(STOP);
        let mut running = Running { stop, drain, core, paths, all, addresses, signals, pid };
        for listening in self.listeners {
            let endpoint = running.paths.open(listening, self.ethernet)?;
            running.addresses.push(endpoint);
        }
        let listens = running.addresses.iter().map(ToString::to_string).collect();
        let _ = running.core.listens.set(listens);
        for (export, published) in named.iter().zip(published) {
            let opened = running.paths.local.open(export, published);
            opened.map_err(failed("cannot watch the socket of an export"))?;
        }
        Ok(running)
    }
}

/// Returns which processes can connect to an export's socket.
const fn audience(options: &ExportOptions) -> Audience {
    if options.is_for_others() { Audience::Public } else { Audience::Private }
}

/// A server that runs in the background; it stops when this is dropped.
#[must_use = "the server stops when this is dropped"]
pub struct Running {
    stop: Arc<Stop>,
    /// How long a signal lets procedures run on.
    drain: Duration,
    core: Arc<ServerCore>,
    paths: Paths,
    all: Vec<Arc<dyn ServerPath>>,
    addresses: Vec<Endpoint>,
    /// Watched until the drain has ended, because a second signal shortens it.
    signals: Option<Watch>,
    pid: u32,
}

impl Running {
    /// A handle that stops the server from anywhere.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle::new(&self.stop)
    }

    /// Waits until the server is told to stop, then stops it.
    pub fn wait(mut self) {
        let limit = if self.stop.wait() { self.drain } else { STOP };
        self.end(limit);
    }

    /// Stops the server: new calls are refused as not executed, running ones may finish within
    /// five seconds.
    pub fn stop(self) {
        drop(self);
    }

    /// As [`stop`](Self::stop), but running procedures may take so long; false if some still ran
    /// then. Their callers have no result: the call may have executed.
    ///
    /// ```no_run
    /// # use core::time::Duration;
    /// # use peregrine::{interface, Server};
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// let running = Server::new().export("echo", EchoServer::new(Same))?.spawn()?;
    /// if !running.drain(Duration::from_secs(60)) {
    ///     eprintln!("a call has not ended within a minute");
    /// }
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn drain(mut self, limit: Duration) -> bool {
        self.end(limit)
    }

    /// Withdraws one export while the others go on: its name goes, and calls of those who are
    /// bound to it are refused as not executed. Those that run finish. The object goes when all
    /// calls have ended that run now, those of other exports included. False if it serves under no
    /// such name.
    pub fn withdraw(&self, name: &str) -> bool {
        let mut exports = self.core.exports.lock();
        let named = |export: &Arc<Export>| export.name == name && export.is_named();
        let Some(at) = exports.iter().position(named) else { return false };
        let export = exports.remove(at);
        drop(exports);
        export.close();
        self.all.iter().for_each(|path| path.revoke(&export));
        true
    }

    fn end(&mut self, limit: Duration) -> bool {
        // A forked child owns nothing of it, and would speak in its parent's name.
        if self.pid != std::process::id() || core::mem::replace(&mut self.pid, 0) == 0 {
            return true;
        }
        self.core.stopping.store(true, Ordering::Relaxed);
        self.core.exports.lock().iter().for_each(|export| export.close());
        self.all.iter().for_each(|path| path.close());
        let exports = core::mem::take(&mut *self.core.exports.lock());
        drop(exports);
        let drain = Drain::new(limit, Arc::clone(&self.stop));
        self.all.iter().for_each(|path| path.refuse());
        let ended: Vec<bool> = self.all.iter().map(|path| path.drain(&drain)).collect();
        self.signals = None;
        self.all.iter().for_each(|path| path.disconnect());
        ended.into_iter().all(|ended| ended)
    }

    /// The names under which it serves.
    pub fn names(&self) -> Vec<String> {
        let exports = self.core.exports.lock();
        exports
            .iter()
            .filter(|export| export.is_named())
            .map(|export| export.name.clone())
            .collect()
    }

    /// Where it listens for calls over networks, with the ports that it was given.
    pub fn addresses(&self) -> &[Endpoint] {
        &self.addresses
    }

    /// Datagrams that were lost at the addresses where it listens over UDP.
    ///
    /// ```
    /// # use peregrine::{interface, Server};
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// let server = Server::new().export("losses-example", EchoServer::new(Same))?;
    /// let running = server.listen("udp:127.0.0.1:0")?.spawn()?;
    /// if running.losses().overflowed > 0 {
    ///     eprintln!("give the sockets larger buffers, or the server more threads");
    /// }
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn losses(&self) -> Losses {
        self.paths.datagrams.losses()
    }

    /// Threads that run procedures or wait for calls now.
    pub fn threads(&self) -> usize {
        self.all.iter().map(|path| path.threads()).sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end(STOP);
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
opaque_debug!(Server: "Server", Running: "Running");
