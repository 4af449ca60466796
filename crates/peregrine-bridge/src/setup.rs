//! `Bridge`: what a bridge offers, where it listens, and its limits.

use core::fmt;
use core::time::Duration;
use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};

use std::sync::Arc;

use peregrine::systemd::Notifier;
use peregrine::{Address, BindOptions, CallError, Insecure, Security};

use crate::fronts::{GivenProgram, Plan};
use crate::interface_file::InterfaceFile;
use crate::running::Running;
use crate::target::Target;

/// The maximum number of exports of one bridge.
const OFFERS_MAX: usize = 64;

/// A bridge that is not running yet.
#[derive(Debug)]
#[must_use]
pub struct Bridge {
    pub(crate) targets: Vec<Target>,
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) plan: Plan,
    pub(crate) limits: Limits,
    pub(crate) log: Log,
    pub(crate) notifier: Option<Notifier>,
    pub(crate) options: BindOptions,
}

/// The function that receives the messages of a running bridge.
#[derive(Clone)]
pub(crate) struct Log(Arc<dyn Fn(&str) + Send + Sync>);

impl Log {
    pub(crate) fn say(&self, text: &str) {
        (self.0)(text);
    }
}

impl Default for Log {
    fn default() -> Self {
        Self(Arc::new(|text| eprintln!("peregrine bridge: {text}")))
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

/// The limits of a bridge.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// The names of this machine that a request may contain as its host.
    pub(crate) hosts: Vec<String>,
    /// The maximum size in bytes of the body of a request.
    pub(crate) body_bytes: usize,
    /// The maximum number of requests and calls that are answered at the same time.
    pub(crate) calls: usize,
    /// How long a call without streams may take if the caller gives no limit.
    pub(crate) call_limit: Duration,
    /// How long a client may take to send a header, to send a body, or to read what was sent to it.
    pub(crate) client_limit: Duration,
}

/// Why a bridge was not set up.
#[derive(Debug)]
#[non_exhaustive]
pub enum SetupError {
    /// The address of an export is invalid.
    Address(CallError),
    /// The name of an export cannot be used in the path of a request.
    Name(String),
    /// Two exports have the same name.
    Duplicate(String),
    /// The bridge has no export, or more than 64.
    Offers(usize),
    /// The bridge listens nowhere.
    Nowhere,
    /// Other machines can reach the address.
    Beyond(String),
    /// The bridge cannot listen at the address.
    Listen(String, io::Error),
    /// The server of the address is of another RPC system, so it cannot describe its interface.
    NoInterface(String),
    /// The text is not `NAME=onc:NUMBER.VERSION` or `NAME=courier:NUMBER.VERSION`.
    Program(String),
    /// The bridge has no export of this name.
    NoExport(String),
    /// The bridge cannot export at an endpoint or under a name.
    Front(CallError),
    /// The clients of an RPC system cannot call an export. The texts are the name of the export, and the
    /// reason, such as the place of a type that the system cannot carry.
    Unfit(String, String),
    /// The address of the export with this name is an address of the bridge itself.
    Loop(String),
    /// The threads of the bridge cannot be started.
    Start(io::Error),
    /// The bridge cannot report to systemd.
    Notify(CallError),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) | Self::Front(error) | Self::Notify(error) => write!(f, "{error}"),
            Self::Name(name) => write!(
                f,
                "`{name}` cannot be the name of an export: a name has 1 to 64 letters, digits, '-', \
                 '_' or '.', and does not begin with a dot"
            ),
            Self::Duplicate(name) => write!(
                f,
                "two exports have the name `{name}`: write NAME=ADDRESS to give one of them \
                 another name"
            ),
            Self::Offers(count) => {
                write!(f, "a bridge offers 1 to {OFFERS_MAX} exports, and {count} were given")
            }
            Self::Nowhere => f.write_str("the bridge has no address at which it listens"),
            Self::Beyond(address) => write!(
                f,
                "other machines can reach `{address}`, and HTTP is not encrypted: listen at a \
                 loopback address, such as 127.0.0.1:8080, or allow it expressly"
            ),
            Self::Listen(address, error) => write!(f, "cannot listen at `{address}`: {error}"),
            Self::NoInterface(address) => write!(
                f,
                "the server at `{address}` cannot describe its interface: give a file with the \
                 interface"
            ),
            Self::Program(text) => {
                write!(f, "`{text}` is not NAME=onc:NUMBER.VERSION or NAME=courier:NUMBER.VERSION")
            }
            Self::NoExport(name) => write!(f, "the bridge has no export `{name}`"),
            Self::Unfit(name, why) => write!(f, "the clients cannot call `{name}`: {why}"),
            Self::Loop(name) => {
                write!(f, "the address of `{name}` leads to the bridge itself: give another one")
            }
            Self::Start(error) => write!(f, "cannot start the threads of the bridge: {error}"),
        }
    }
}

impl Error for SetupError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Listen(_, error) | Self::Start(error) => Some(error),
            _ => None,
        }
    }
}

impl Default for Bridge {
    fn default() -> Self {
        Self::new()
    }
}

impl Bridge {
    /// Returns a bridge that offers nothing and listens nowhere.
    pub fn new() -> Self {
        let limits = Limits {
            hosts: Vec::new(),
            body_bytes: 1 << 20,
            calls: 64,
            call_limit: Duration::from_secs(60),
            client_limit: Duration::from_secs(10),
        };
        let (targets, listeners) = (Vec::new(), Vec::new());
        let (plan, log, notifier) = (Plan::default(), Log::default(), None);
        let options = BindOptions::default();
        Self { targets, listeners, plan, limits, log, notifier, options }
    }

    /// Offers the export at an address, under the name that the address contains. `NAME=ADDRESS` offers it
    /// under the name `NAME`. The server need not run yet.
    ///
    /// # Errors
    /// If the address is invalid or of another RPC system, or another export of the bridge has the name.
    pub fn offer(self, address: &str) -> Result<Self, SetupError> {
        self.offer_from(address, None)
    }

    /// Offers the export at an address, like [`offer`](Self::offer), with the interface in a file. The export
    /// may be a program of another RPC system, such as `files=onc+tcp:192.0.2.7/100003.3`, which cannot
    /// describe itself.
    ///
    /// # Errors
    /// If the address is invalid, or another export of the bridge has the name.
    pub fn offer_as(self, address: &str, file: InterfaceFile) -> Result<Self, SetupError> {
        self.offer_from(address, Some(file))
    }

    fn offer_from(
        mut self,
        address: &str,
        file: Option<InterfaceFile>,
    ) -> Result<Self, SetupError> {
        let (name, address) = match address.split_once('=') {
            Some((name, address)) => (Some(name), address),
            None => (None, address),
        };
        let parsed: Address = address.parse().map_err(SetupError::Address)?;
        let name = name.unwrap_or_else(|| parsed.name());
        // An export may have any name that an address accepts.
        let valid = format!("local:{name}").parse::<Address>();
        if !valid.is_ok_and(|valid| valid.name() == name) {
            return Err(SetupError::Name(name.to_owned()));
        }
        if self.targets.iter().any(|target| target.name == name) {
            return Err(SetupError::Duplicate(name.to_owned()));
        }
        if file.is_none() && parsed.path().is_some_and(|path| path.system().is_some()) {
            return Err(SetupError::NoInterface(address.to_owned()));
        }
        self.targets.push(Target::new(name, address, file));
        Ok(self)
    }

    /// Lets clients of RPC systems call the exports at an endpoint that only processes of this machine can
    /// reach. The endpoint is `tcp:127.0.0.1:7000`, `udp:`... or `127.0.0.1:7000` for clients of Peregrine,
    /// `onc+tcp:127.0.0.1:2049` or `onc+udp:`... for clients of ONC RPC, and `courier+tcp:127.0.0.1:530` or
    /// `courier+udp:`... for clients of Courier. Clients of Courier that bind to `courier+exchange:` use the
    /// endpoint `udp:`... Clients of Peregrine find each export by its name, and clients of other systems
    /// find it by the numbers of its program. `local:NAME` lets clients of Peregrine on this machine call the
    /// export `NAME`. This method may be called several times.
    ///
    /// Every user of the machine can then make calls with the rights of this process, except with
    /// `local:NAME`, which only the user of this process and root can use.
    ///
    /// # Errors
    /// If `local:` is followed by an invalid name. Other endpoints are opened when the bridge starts.
    ///
    /// ```
    /// use peregrine::{Server, interface};
    /// use peregrine_bridge::Bridge;
    ///
    /// # struct Seven;
    /// #[interface]
    /// trait Sevens {
    ///     fn seven(&self) -> peregrine::Result<u32>;
    /// }
    /// # impl Sevens for Seven {
    /// #     fn seven(&self) -> peregrine::Result<u32> { Ok(7) }
    /// # }
    /// # let name = format!("doc-export-at-{}", std::process::id());
    /// let running = Server::new().export(&name, SevensServer::new(Seven))?.spawn()?;
    ///
    /// let bridge = Bridge::new().offer(&format!("sevens=local:{name}"))?;
    /// let bridge = bridge.program("sevens=onc:536870983.1")?;
    /// let bridge = bridge.export_at("onc+udp:127.0.0.1:0")?.spawn()?;
    ///
    /// #[interface(onc(program = 536870983, version = 1))]
    /// trait Numbers {
    ///     #[onc(1)]
    ///     fn seven(&self) -> peregrine::Result<u32>;
    /// }
    /// let numbers = NumbersClient::bind(&bridge.endpoints()[0].to_string())?;
    /// assert_eq!(numbers.seven()?, 7);
    /// # drop(bridge);
    /// # drop(running);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn export_at(self, endpoint: &str) -> Result<Self, SetupError> {
        self.front(endpoint, None)
    }

    /// Lets clients call the exports, as [`export_at`](Self::export_at) does, but also accepts endpoints that
    /// other machines can reach.
    ///
    /// `security` says what protects the calls, as in
    /// [`Server::listen_beyond_this_machine`](peregrine::Server::listen_beyond_this_machine). ONC RPC and Courier
    /// have no encryption. With [`Insecure::ITrustThisNetwork`], every host that reaches the port can make calls
    /// with the rights of this process, and can read and change the calls of others on the way.
    ///
    /// # Errors
    /// Like [`export_at`](Self::export_at).
    pub fn export_beyond_this_machine(
        self,
        endpoint: &str,
        security: impl Into<Security>,
    ) -> Result<Self, SetupError> {
        self.front(endpoint, Some(security.into()))
    }

    fn front(mut self, endpoint: &str, security: Option<Security>) -> Result<Self, SetupError> {
        match endpoint.strip_prefix("local:") {
            Some(name) => {
                endpoint.parse::<Address>().map_err(SetupError::Address)?;
                self.plan.names.push(name.to_owned());
            }
            None => self.plan.endpoints.push((endpoint.to_owned(), security)),
        }
        Ok(self)
    }

    /// Gives an export the numbers by which clients of another RPC system know it: `NAME=onc:NUMBER.VERSION`
    /// or `NAME=courier:NUMBER.VERSION`. If the export is already a program of that system, its procedures
    /// keep their numbers. Otherwise, the procedures are numbered in order: from 1 in ONC RPC, and from 0 in
    /// Courier.
    ///
    /// # Errors
    /// If the text has another form.
    pub fn program(mut self, text: &str) -> Result<Self, SetupError> {
        let program = GivenProgram::parse(text);
        let program = program.ok_or_else(|| SetupError::Program(text.to_owned()))?;
        self.plan.programs.push(program);
        Ok(self)
    }

    /// Sets the options of the bindings to the servers, such as the identity that the bridge shows to them. A
    /// bridge always binds again itself, so [`BindOptions::rebind`] has no effect. Bindings to servers of ONC
    /// RPC and Courier, which cannot be encrypted, do not use these options.
    ///
    /// ```no_run
    /// use core::time::Duration;
    ///
    /// use peregrine::BindOptions;
    /// use peregrine_bridge::Bridge;
    ///
    /// let options = BindOptions::default().bind_timeout(Duration::from_secs(1));
    /// let bridge = Bridge::new().bind_with(options).offer("files@fs.example.org")?;
    /// # Ok::<(), peregrine_bridge::SetupError>(())
    /// ```
    pub fn bind_with(mut self, options: BindOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the function that receives messages of the running bridge, such as why a changed file is not
    /// used. By default, they are written to standard error.
    pub fn log(mut self, log: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.log = Log(Arc::new(log));
        self
    }

    /// Listens for HTTP at a port that only processes of this machine can reach, such as `127.0.0.1:8080`.
    /// With port 0, any free port is used. This method may be called several times.
    ///
    /// Every user of the machine can then make calls with the rights of this process.
    ///
    /// # Errors
    /// If the address is invalid or in use, or other machines can reach it.
    pub fn listen(self, address: &str) -> Result<Self, SetupError> {
        self.listen_at(address, false)
    }

    /// Listens as [`listen`](Self::listen) does, but also accepts addresses that other machines can reach.
    ///
    /// HTTP is neither encrypted nor authenticated, and `insecure` says that this is known: every host that
    /// reaches the port can make calls with the rights of this process, and can read and change the calls of
    /// others on the way.
    ///
    /// # Errors
    /// If the address is invalid or in use.
    pub fn listen_beyond_this_machine(
        self,
        address: &str,
        insecure: Insecure,
    ) -> Result<Self, SetupError> {
        let Insecure::ITrustThisNetwork = insecure;
        self.listen_at(address, true)
    }

    fn listen_at(mut self, address: &str, beyond: bool) -> Result<Self, SetupError> {
        let failed = |error| SetupError::Listen(address.to_owned(), error);
        let found: Vec<SocketAddr> = address.to_socket_addrs().map_err(failed)?.collect();
        if !beyond && found.iter().any(|one| !one.ip().is_loopback()) {
            return Err(SetupError::Beyond(address.to_owned()));
        }
        for one in found {
            let listener = TcpListener::bind(one).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            self.listeners.push(listener);
        }
        Ok(self)
    }

    /// Accepts requests whose `Host` is this name. By default, the host must be `localhost`, a loopback
    /// address, or the IP address to which the client connected. So a page of another site cannot reach the
    /// bridge through a name that the other site controls (DNS rebinding).
    pub fn host(mut self, name: &str) -> Self {
        self.limits.hosts.push(name.to_ascii_lowercase());
        self
    }

    /// Sets the maximum size in bytes of the body of a request. The default is 1 MiB.
    pub const fn body_bytes_max(mut self, bytes: usize) -> Self {
        self.limits.body_bytes = bytes;
        self
    }

    /// Sets the maximum number of requests and calls that are answered at the same time. Each call
    /// may occupy a thread. Further calls are refused. The default is 64.
    ///
    /// # Panics
    /// If `count` is 0.
    pub const fn calls_max(mut self, count: usize) -> Self {
        assert!(count > 0, "a bridge needs at least one call");
        self.limits.calls = count;
        self
    }

    /// Sets how long a call without streams may take, if the caller gives no limit. The default is 60
    /// seconds.
    pub const fn call_limit(mut self, limit: Duration) -> Self {
        self.limits.call_limit = limit;
        self
    }

    /// Sets how long a client may take to send a header, to send a body, or to read bytes of an answer before
    /// the bridge closes the connection. The default is 10 seconds.
    pub const fn client_limit(mut self, limit: Duration) -> Self {
        self.limits.client_limit = limit;
        self
    }

    /// Lets the bridge report to systemd, if systemd has started this process, as
    /// [`Server::notify_systemd`](peregrine::Server::notify_systemd) does for a server. Call this function
    /// before the program starts threads.
    ///
    /// # Errors
    /// If one of the environment variables that systemd sets is invalid.
    pub fn notify_systemd(mut self) -> Result<Self, SetupError> {
        self.notifier = Notifier::from_environment().map_err(SetupError::Notify)?;
        Ok(self)
    }

    /// Starts the threads of the bridge.
    ///
    /// # Errors
    /// If the bridge offers no export or more than 64, listens nowhere, or would offer itself. If an export
    /// that `local:` or [`program`](Self::program) names is not offered. If the threads cannot be started, or
    /// an endpoint cannot be opened. If the clients of a system cannot call an export whose server runs.
    pub fn spawn(mut self) -> Result<Running, SetupError> {
        if self.targets.is_empty() || self.targets.len() > OFFERS_MAX {
            return Err(SetupError::Offers(self.targets.len()));
        }
        if self.listeners.is_empty() && self.plan.is_empty() {
            return Err(SetupError::Nowhere);
        }
        let offers = |name: &str| self.targets.iter().any(|target| target.name == name);
        if let Some(name) = self.plan.names.iter().find(|name| !offers(name)) {
            return Err(SetupError::NoExport(name.clone()));
        }
        if let Some(program) = self.plan.programs.iter().find(|one| !offers(one.target())) {
            return Err(SetupError::NoExport(program.target().to_owned()));
        }
        for target in &mut self.targets {
            target.log_to(self.log.clone());
            target.bind_with(&self.options);
        }
        Running::start(self)
    }
}
