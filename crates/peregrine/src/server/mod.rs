//! `Server`: exports objects, listens at endpoints, and lets running calls finish when the server stops.

mod disclosure;
mod health;
mod layers;
mod paths;
mod procedures;
mod refused;
mod registering;
mod security;
mod supervised;
#[cfg(test)]
mod tests;
mod watch;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use self::disclosure::StatHandle;
use self::disclosure::server_export;
use self::health::health_export;
use self::paths::{Listening, Paths};
use self::registering::{Registered, Registering};
pub use self::security::{Insecure, Security};
use self::supervised::Supervised;
use self::watch::watch_export;
use crate::address::Endpoint;
use crate::binding::EthernetDevice;
use crate::call::{Exported, Serve, Wait};
use crate::counters::Page;
use crate::directory::{self, Audience, Published};
use crate::error::{CallError, Kind, NO_THREAD, Phase};
use crate::keeper::{Keeper, Watch};
use crate::observe::Layers;
use crate::path::ConnectionTerms;
use crate::path::courier::exchange_export;
pub use crate::path::datagram::Losses;
use crate::path::onc::Registrations;
use crate::path::security::Refusals;
use crate::serving::access::Denials;
pub use crate::serving::access::Denied;
pub use crate::serving::descriptors::Late;
use crate::serving::descriptors::Procedures;
pub use crate::serving::disclosure::Disclosure;
use crate::serving::export::Export;
pub use crate::serving::export::ExportOptions;
pub use crate::serving::faults::Fault;
use crate::serving::faults::Faults;
pub use crate::serving::stop::StopHandle;
use crate::serving::stop::{Drain, Signals, Stop};
use crate::serving::{ServerCore, ServerPath, Threads};
use crate::systemd::Notifier;
use crate::{limits, sys};

/// How long a stopping server waits for procedures that still run.
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
    exports: Vec<NewExport>,
    threads: Threads,
    /// How long running procedures may continue after a signal. `None` if signals do not stop the server.
    signals: Option<Duration>,
    listeners: Vec<Listening>,
    connections: ConnectionTerms,
    /// Counts and reports the clients that encrypted endpoints refuse.
    refusals: Option<Arc<Refusals>>,
    ethernet: Option<EthernetDevice>,
    /// Whether to register the programs of ONC RPC at rpcbind.
    registers: bool,
    disclosure: Disclosure,
    /// Reports faults. Created by the first export or by `on_fault`.
    faults: Option<Arc<Faults>>,
    /// Counts and reports callers that are refused because of who they are.
    denials: Option<Arc<Denials>>,
    /// What the server keeps for procedures.
    procedures: Option<Arc<Procedures>>,
    /// Reports to systemd.
    notifier: Option<Notifier>,
    /// The layers of all exports.
    layers: Layers,
    registering: Registering,
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// Returns a server without exports.
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
            refusals: None,
            ethernet: None,
            registers: false,
            disclosure: Disclosure::Totals,
            faults: None,
            denials: None,
            procedures: None,
            notifier: None,
            layers: Layers::none(),
            registering: Registering::nowhere(),
        }
    }

    /// Exports an object under a name. The name is reserved at once. Clients can bind as soon as the server
    /// runs.
    ///
    /// # Errors
    /// If the name is invalid or in use by a live server, or the runtime directory cannot be written.
    pub fn export(self, name: &str, serve: impl Serve + 'static) -> Result<Self, CallError> {
        self.export_with(name, serve, ExportOptions::default())
    }

    /// Exports an object as [`Server::export`] does, with options.
    ///
    /// # Errors
    /// As [`Server::export`].
    pub fn export_with(
        mut self,
        name: &str,
        serve: impl Serve + 'static,
        options: ExportOptions,
    ) -> Result<Self, CallError> {
        let faults = self.faults.get_or_insert_default();
        self.exports.push(NewExport::new(name, serve, options, faults)?);
        Ok(self)
    }

    /// Also listens at a port that only processes of this machine can reach: `tcp:127.0.0.1:7000`,
    /// `tcp:[::1]:0` (any free port), `tcp:localhost:7000` (IPv4 and IPv6). May be called any number of
    /// times.
    ///
    /// `127.0.0.1:7000` without a scheme listens over TCP and UDP at the same port: clients that bind
    /// to `NAME@127.0.0.1:7000` take the fastest path that works.
    ///
    /// With `udp:` instead of `tcp:`, the server listens for datagrams. With `eth:`, it listens for datagrams
    /// and Ethernet frames: see [`Server::listen_beyond_this_machine`].
    ///
    /// With `onc+udp:` or `onc+tcp:`, the server listens for clients of ONC RPC (Sun RPC), and serves the
    /// exports whose interface is a program of ONC RPC: `#[interface(onc(program = N, version = N))]`. Such
    /// clients are not asked to bind, and may be programs in any language.
    ///
    /// Every user of the machine can call the exports at this port. Exports that are limited to
    /// [users](ExportOptions::users) or [groups](ExportOptions::groups) are not offered there, because such a
    /// connection does not prove the user.
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
    /// If the endpoint is invalid or in use, or other machines can reach it.
    pub fn listen(self, endpoint: &str) -> Result<Self, CallError> {
        self.listen_at(endpoint, None)
    }

    /// Registers the exported programs of ONC RPC at the rpcbind of this machine, so that clients of
    /// addresses such as `onc+udp:HOST` find their ports. The server registers them when it starts, and
    /// removes them when it ends or an export is withdrawn. Without this setting, a server registers nothing.
    ///
    /// Registrations that a killed server has left are replaced. If another server still answers at a
    /// registered port, this server does not start.
    ///
    /// rpcbind reports to every host that can reach it which programs are registered, and at which ports. If
    /// rpcbind is restarted, it may forget the registrations.
    ///
    /// ```no_run
    /// # use peregrine::{interface, Server};
    /// #[interface(onc(program = 0x2000_0042, version = 1))]
    /// trait Echo {
    ///     #[onc(1)]
    ///     fn echo(&self, x: u32) -> peregrine::Result<u32>;
    /// }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// let server = Server::new().export("echo", EchoServer::new(Same))?;
    /// let running = server.listen("onc+udp:127.0.0.1:0")?.register_programs().spawn()?;
    /// assert_eq!(EchoClient::bind("onc+udp:127.0.0.1")?.echo(7)?, 7);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    ///
    /// [`run`](Self::run) and [`spawn`](Self::spawn) fail in the following cases, with these
    /// [`Kind`](crate::Kind)s:
    ///
    /// * No rpcbind answers within 5 seconds (`Unreachable` or `TimedOut`).
    /// * Another server has one of the programs (`NameTaken`), or another user has registered it (`Denied`).
    /// * The server exports no program of ONC RPC, or listens at no `onc+udp:` or `onc+tcp:` (`BadName`).
    pub const fn register_programs(mut self) -> Self {
        self.registers = true;
        self
    }

    /// Sets the congestion control of accepted TCP connections, as with
    /// [`BindOptions::congestion`](crate::BindOptions::congestion).
    pub fn congestion(mut self, name: &str) -> Self {
        self.connections.congestion = Some(name.to_owned());
        self
    }

    /// Sets how many TCP connections may be open at one time. The default is [`limits::CONNECTIONS_MAX`].
    /// Each connection needs a descriptor, so `RLIMIT_NOFILE` bounds their number as well.
    pub const fn connections(mut self, most: usize) -> Self {
        self.connections.connections = most;
        self
    }

    /// Sets how many TCP connections from one host (one IPv4 address, or one IPv6 /64) may be open at one
    /// time. The default is [`limits::CONNECTIONS_PER_HOST`]. All bindings of a client process to a server
    /// share one connection, so this limit bounds the number of client processes of a host. Raise the limit
    /// where many clients share an address, for example through NAT.
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

    /// Sets the device for raw Ethernet: see [`EthernetDevice`].
    pub const fn ethernet_device(mut self, device: EthernetDevice) -> Self {
        self.ethernet = Some(device);
        self
    }

    /// Sets how much the server discloses about itself. The default is [`Disclosure::Totals`].
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

    /// Sets how many procedures may run at the same time. The default is [`limits::WORKERS_MAX`]. The limit
    /// applies to calls from this machine and to calls over networks separately. Over networks, further
    /// threads may wait for calls: as many as may run procedures, but at least 16 and at most 64. On this
    /// machine, a user that is neither root nor the server's own user gets at most three quarters of the
    /// threads.
    pub fn threads(mut self, most: usize) -> Self {
        self.threads.running_max = most.max(1);
        self
    }

    /// Sets how many calls may wait for a thread. Further calls are refused as overload. The default is 1024.
    /// For calls from this machine, the limit applies to each user separately.
    pub const fn queue(mut self, most: usize) -> Self {
        self.threads.waiting_max = most;
        self
    }

    /// Sets how threads wait for the next call.
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.threads.wait = wait;
        self
    }

    /// Calls `hook` for each panic outside of any call: when an object panics as it is dropped, or when one
    /// of the server's threads panics. The server continues in any case. Without a hook, only the panic's
    /// message on standard error reports the panic.
    ///
    /// The hook runs on the thread that panicked, and other threads may wait for that thread. It should
    /// record the fault and return, and must not use the server. It may run after the server has stopped,
    /// because a running call keeps its object alive.
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

    /// Lets SIGINT and SIGTERM stop the server. The server first waits up to five seconds for running
    /// procedures. [`Server::drain_on_signals`] sets another limit. A second signal ends this wait, as if the
    /// time had passed.
    ///
    /// Without this setting, these signals end the process at once.
    pub const fn stop_on_signals(self) -> Self {
        self.drain_on_signals(STOP)
    }

    /// Lets signals stop the server as [`Server::stop_on_signals`] does, with a limit for running procedures.
    /// A procedure can check with [`Caller::is_stopping`](crate::Caller::is_stopping) whether the server
    /// stops.
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

    /// Lets the server report to systemd, if systemd has started this process (`Type=notify`): that it is
    /// ready, that it is about to stop, and that it is alive (`WatchdogSec=`). Does nothing if the environment
    /// variable `NOTIFY_SOCKET` is not set.
    ///
    /// Call this function before the program starts threads. The variables are then removed, so that child
    /// processes do not notify systemd ([`Notifier::from_environment`]).
    ///
    /// ```no_run
    /// # use peregrine::{interface, Server};
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// let server = Server::new().notify_systemd()?.export("echo", EchoServer::new(Same))?;
    /// server.stop_on_signals().run()?;
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    ///
    /// # Errors
    /// If one of the variables `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID` is invalid.
    /// [`spawn`](Self::spawn) and [`run`](Self::run) fail if systemd does not receive that the server is
    /// ready.
    pub fn notify_systemd(mut self) -> Result<Self, CallError> {
        self.notifier = Notifier::from_environment()?;
        Ok(self)
    }

    /// Serves until a signal stops the server: see [`Server::stop_on_signals`].
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn run(self) -> Result<(), CallError> {
        self.spawn()?.wait();
        Ok(())
    }

    /// Serves in the background. Clients can bind as soon as this function returns.
    ///
    /// # Errors
    /// If a thread, a descriptor or memory cannot be obtained, or an endpoint is in use.
    pub fn spawn(self) -> Result<Running, CallError> {
        let failed = |what: &'static str| {
            move |error: io::Error| CallError::system(Phase::Export, what, error)
        };
        // This call registers the process for memory barriers before the server starts threads. In a process
        // with threads, the kernel needs 10 ms for the registration, and the first call would wait for that.
        sys::membarrier();
        // The cost of sleeping and waking is measured here, so that the measurement does not delay the first
        // call.
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
        let page = Page::new().map_err(failed("cannot allocate memory for the counters"))?;
        let (faults, denials) = (self.faults.unwrap_or_default(), self.denials.unwrap_or_default());
        let reports = (faults, denials, self.procedures.unwrap_or_default());
        let core = ServerCore::new(self.threads, reports, keeper, page, self.disclosure);
        let core = Arc::new(core.map_err(failed("cannot obtain random numbers"))?);
        let mut published = Vec::new();
        let mut exports = Vec::new();
        for (number, new) in (0..).zip(self.exports) {
            let (export, place) = new.numbered(number, &core, &self.layers);
            exports.push(export);
            published.push(place);
        }
        let next = AtomicU64::new(exports.len() as u64);
        let named = exports.clone();
        if !self.listeners.is_empty() {
            exports.extend(named.iter().filter_map(|export| exchange_export(export)));
            exports.push(health_export(&core));
            if self.disclosure != Disclosure::Nothing {
                exports.extend([server_export(&core), watch_export(&core)]);
            }
        }
        core.exports.lock().extend(exports);
        let paths = Paths::new(&core, self.connections)?;
        let all = paths.all();
        core.disclosed.measure(all.iter().map(Arc::downgrade).collect());
        let (addresses, pid) = (Vec::new(), std::process::id());
        // From here on, an error drops `running`. The drop closes everything that is open.
        let drain = self.signals.unwrap_or(STOP);
        let (registrations, supervised) = (None, None);
        let mut running = Running {
            stop,
            drain,
            core,
            paths,
            all,
            next,
            layers: self.layers,
            addresses,
            registrations,
            supervised,
            registered: None,
            signals,
            #[cfg(feature = "secure")]
            refusals: self.refusals,
            pid,
        };
        for listening in self.listeners {
            let endpoint = running.paths.open_endpoint(listening, self.ethernet)?;
            running.addresses.push(endpoint);
        }
        let listens = running.addresses.iter().map(ToString::to_string).collect();
        let _ = running.core.listens.set(listens);
        for (export, published) in named.iter().zip(published) {
            if let Some(published) = published {
                running.paths.open_export(export, published)?;
            }
        }
        if self.registers {
            running.registrations = Some(Registrations::make(&named, &running.addresses)?);
        }
        running.registered = self.registering.register(&named, &running.addresses)?;
        if let Some(notifier) = self.notifier {
            let (names, keeper) = (running.names(), &running.core.keeper);
            let begun = Supervised::begin(notifier, keeper, &names, &running.addresses)?;
            running.supervised = Some(begun);
        }
        Ok(running)
    }
}

/// An export that is not open yet.
struct NewExport {
    name: String,
    serve: Arc<dyn Serve>,
    options: ExportOptions,
    /// The reserved name. `None` if the export is offered only to networks.
    published: Option<Published>,
}

impl NewExport {
    /// Reserves the name. If the object panics when it is dropped, `faults` reports the panic.
    ///
    /// # Errors
    /// If the name is invalid or in use by a live server, or the runtime directory cannot be written.
    fn new(
        name: &str,
        serve: impl Serve + 'static,
        mut options: ExportOptions,
        faults: &Arc<Faults>,
    ) -> Result<Self, CallError> {
        options.check_access(&serve).map_err(|error| error.at(name))?;
        let published = match options.is_published() {
            true => Some(directory::publish(name, audience(&options))?),
            false => directory::check_name(name, Phase::Export).map(|()| None)?,
        };
        let (faults, name) = (Arc::clone(faults), name.to_owned());
        let export = name.clone();
        let report = move |text| faults.dropping(&export, text);
        let serve = Arc::new(Exported::new(serve, report));
        Ok(Self { name, serve, options, published })
    }

    /// Gives the export its number.
    fn numbered(
        self,
        number: u64,
        core: &ServerCore,
        layers: &Layers,
    ) -> (Arc<Export>, Option<Published>) {
        let Self { name, serve, options, published } = self;
        let serve = core.procedures.around(&name, serve, &core.page());
        let serve = options.layered(&name, serve, layers);
        (Export::new(name, number, serve, options, core), published)
    }
}

/// Returns which processes can connect to an export's socket.
fn audience(options: &ExportOptions) -> Audience {
    if options.is_for_others() { Audience::Public } else { Audience::Private }
}

/// A server that runs in the background. The server stops when this value is dropped.
#[must_use = "the server stops when this is dropped"]
pub struct Running {
    stop: Arc<Stop>,
    /// How long running procedures may continue after a signal.
    drain: Duration,
    core: Arc<ServerCore>,
    paths: Paths,
    all: Vec<Arc<dyn ServerPath>>,
    /// The number of the next export.
    next: AtomicU64,
    /// The layers of all exports.
    layers: Layers,
    addresses: Vec<Endpoint>,
    /// The programs that are registered at rpcbind.
    registrations: Option<Registrations>,
    /// Reports to systemd.
    supervised: Option<Supervised>,
    /// The registrations in a directory.
    registered: Option<Registered>,
    /// Watches the signals until the drain (the wait for running procedures) has ended, because a second
    /// signal shortens the drain.
    signals: Option<Watch>,
    /// The clients that encrypted endpoints have refused.
    #[cfg(feature = "secure")]
    refusals: Option<Arc<Refusals>>,
    pid: u32,
}

impl Running {
    /// Returns a handle through which any thread can stop the server.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle::new(&self.stop)
    }

    /// Waits for a request to stop, then stops the server.
    pub fn wait(mut self) {
        let limit = if self.stop.wait() { self.drain } else { STOP };
        self.end(limit);
    }

    /// Stops the server. New calls are refused as not executed. Waits up to five seconds for running calls.
    /// Calls that still run then get no result, and may have executed.
    pub fn stop(self) {
        drop(self);
    }

    /// Stops the server as [`stop`](Self::stop) does, but waits up to `limit` for running procedures. Returns
    /// false if some procedures still run after that. The callers of these procedures get no result, and
    /// their calls may have executed.
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

    /// Exports one more object, as [`Server::export_with`] does. Clients can bind when this function returns.
    ///
    /// ```
    /// # use peregrine::{ExportOptions, Server, interface};
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// # let name = format!("doc-more-{}", std::process::id());
    /// let running = Server::new().listen("tcp:127.0.0.1:0")?.spawn()?;
    /// running.export_with(&name, EchoServer::new(Same), ExportOptions::default())?;
    /// let echo = EchoClient::bind(&format!("{}/{name}", running.addresses()[0]))?;
    /// assert_eq!(echo.echo(7)?, 7);
    ///
    /// // The client binds again by itself when the object was replaced.
    /// assert!(running.withdraw(&name));
    /// running.export_with(&name, EchoServer::new(Same), ExportOptions::default())?;
    /// assert_eq!(echo.echo(8)?, 8);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    ///
    /// # Errors
    /// If the name is invalid or in use, also by another export of this server, or the server is stopping.
    pub fn export_with(
        &self,
        name: &str,
        serve: impl Serve + 'static,
        options: ExportOptions,
    ) -> Result<(), CallError> {
        let new = NewExport::new(name, serve, options, &self.core.faults)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (export, published) = new.numbered(number, &self.core, &self.layers);
        let refused =
            |kind, text: &str| Err(CallError::not_executed(kind, Phase::Export, text).at(name));
        let mut exports = self.core.exports.lock();
        if exports.iter().any(|one| one.name == name) {
            return refused(Kind::NameTaken, "this server exports the name");
        }
        if self.core.stopping.load(Ordering::Relaxed) {
            return refused(Kind::Withdrawn, "the server is stopping");
        }
        exports.push(Arc::clone(&export));
        if !self.addresses.is_empty() {
            exports.extend(exchange_export(&export));
        }
        drop(exports);
        let opened =
            published.map_or(Ok(()), |published| self.paths.open_export(&export, published));
        match opened.and_then(|()| self.register(&export)) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.withdraw(name);
                Err(error)
            }
        }
    }

    /// Registers an export that was added, unless it has been withdrawn meanwhile.
    fn register(&self, export: &Export) -> Result<(), CallError> {
        let Some(registered) = &self.registered else { return Ok(()) };
        if !export.is_registered() {
            return Ok(());
        }
        registered.add(&export.name)?;
        if export.is_closed() {
            registered.remove(&export.name);
        }
        Ok(())
    }

    /// Withdraws one export while the others continue. The export's name is released. New calls of clients
    /// that are bound to the export are refused as not executed. Running calls finish. The object is dropped
    /// when all calls that run now, also those of other exports, have ended. Returns false if there is no
    /// such export.
    pub fn withdraw(&self, name: &str) -> bool {
        // Clients that look the name up from now on choose another server.
        if let Some(registered) = &self.registered {
            registered.remove(name);
        }
        let mut exports = self.core.exports.lock();
        let named = |export: &Arc<Export>| export.name == name && export.is_named();
        let Some(at) = exports.iter().position(named) else { return false };
        let export = exports.remove(at);
        let views: Vec<_> = exports.extract_if(.., |one| one.number == export.number).collect();
        let others = exports.clone();
        drop(exports);
        drop(views);
        if let Some(registrations) = &self.registrations {
            registrations.keep(&others);
        }
        export.close();
        // It may have been registered since, if another thread has just added it.
        if let Some(registered) = &self.registered {
            registered.remove(name);
        }
        self.all.iter().for_each(|path| path.revoke(&export));
        true
    }

    fn end(&mut self, limit: Duration) -> bool {
        // A forked child does not own the server. Stopping here would disconnect its parent's clients.
        if self.pid != std::process::id() || core::mem::replace(&mut self.pid, 0) == 0 {
            return true;
        }
        if let Some(supervised) = &self.supervised {
            supervised.stops();
        }
        if let Some(registrations) = &self.registrations {
            registrations.keep(&[]);
        }
        // Clients that look the names up from now on choose another server.
        self.registered = None;
        self.core.begin_to_stop();
        // Clients can ask for the health of the server until it has stopped.
        let ends = |export: &mut Arc<Export>| export.number != Export::OF_HEALTH;
        let exports: Vec<_> = self.core.exports.lock().extract_if(.., ends).collect();
        exports.iter().for_each(|export| export.close());
        self.all.iter().for_each(|path| path.close());
        drop(exports);
        let drain = Drain::new(limit, Arc::clone(&self.stop));
        self.all.iter().for_each(|path| path.refuse());
        let ended: Vec<bool> = self.all.iter().map(|path| path.drain(&drain)).collect();
        self.signals = None;
        self.all.iter().for_each(|path| path.disconnect());
        self.core.exports.lock().clear();
        self.supervised = None;
        ended.into_iter().all(|ended| ended)
    }

    /// Returns the names of the exports.
    pub fn names(&self) -> Vec<String> {
        let exports = self.core.exports.lock();
        exports
            .iter()
            .filter(|export| export.is_named())
            .map(|export| export.name.clone())
            .collect()
    }

    /// Returns the endpoints at which the server listens, with their actual ports.
    pub fn addresses(&self) -> &[Endpoint] {
        &self.addresses
    }

    /// Returns the number of datagrams that were lost at the endpoints at which the server listens over UDP.
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
        self.paths.losses()
    }

    /// Returns the number of threads that run procedures or wait for calls now.
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
