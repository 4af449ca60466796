//! `Bridge`: what a bridge offers, where it listens, and its limits.

use core::fmt;
use core::time::Duration;
use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};

use peregrine::{Address, CallError};

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
    pub(crate) limits: Limits,
}

/// The limits of a bridge.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// The names of this machine that a request may contain as its host.
    pub(crate) hosts: Vec<String>,
    /// The maximum size of the body of a request.
    pub(crate) body_bytes: usize,
    /// The maximum number of requests that are answered at a time.
    pub(crate) calls: usize,
    /// How long a call without streams may take if the request does not say it.
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
    /// The name of an export cannot be used in a path.
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
    /// The threads of the bridge cannot be started.
    Start(io::Error),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => write!(f, "{error}"),
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
    pub const fn new() -> Self {
        let limits = Limits {
            hosts: Vec::new(),
            body_bytes: 1 << 20,
            calls: 64,
            call_limit: Duration::from_secs(60),
            client_limit: Duration::from_secs(10),
        };
        Self { targets: Vec::new(), listeners: Vec::new(), limits }
    }

    /// Offers the export at an address, under the name that the address contains. `NAME=ADDRESS` offers it
    /// under the name `NAME`. The server need not run yet.
    ///
    /// # Errors
    /// If the address or the name is invalid, or another export of the bridge has the name.
    pub fn offer(mut self, address: &str) -> Result<Self, SetupError> {
        let (name, address) = match address.split_once('=') {
            Some((name, address)) => (Some(name), address),
            None => (None, address),
        };
        let parsed: Address = address.parse().map_err(SetupError::Address)?;
        let name = name.unwrap_or_else(|| parsed.name());
        // The names of exports are those that an address accepts.
        let valid = format!("local:{name}").parse::<Address>();
        if !valid.is_ok_and(|valid| valid.name() == name) {
            return Err(SetupError::Name(name.to_owned()));
        }
        if self.targets.iter().any(|target| target.name == name) {
            return Err(SetupError::Duplicate(name.to_owned()));
        }
        self.targets.push(Target::new(name, address));
        Ok(self)
    }

    /// Listens for HTTP at a port that only processes of this machine can reach, such as `127.0.0.1:8080`.
    /// With port 0, any free port is used. May be called several times.
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
    /// HTTP is neither encrypted nor authenticated: every host that reaches the port can make calls with the
    /// rights of this process, and can read and change the calls of others on the way.
    ///
    /// # Errors
    /// If the address is invalid or in use.
    pub fn listen_beyond_this_machine(self, address: &str) -> Result<Self, SetupError> {
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

    /// Accepts requests whose `Host` is this name. Without it, the host must be `localhost` or an IP address
    /// of this machine. So a foreign page cannot reach the bridge through a name that it controls (DNS
    /// rebinding).
    pub fn host(mut self, name: &str) -> Self {
        self.limits.hosts.push(name.to_ascii_lowercase());
        self
    }

    /// Sets the maximum size in bytes of the body of a request. The default is 1 MiB.
    pub const fn body_bytes_max(mut self, bytes: usize) -> Self {
        self.limits.body_bytes = bytes;
        self
    }

    /// Sets the maximum number of requests that are answered at a time. Each call occupies a thread. Further
    /// requests are refused. The default is 64.
    ///
    /// # Panics
    /// If `count` is 0.
    pub const fn calls_max(mut self, count: usize) -> Self {
        assert!(count > 0, "a bridge needs at least one call");
        self.limits.calls = count;
        self
    }

    /// Sets how long a call without streams may take, if the request does not say it. The default is 60
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

    /// Starts the threads of the bridge.
    ///
    /// # Errors
    /// If the bridge offers nothing or listens nowhere, or there are no threads.
    pub fn spawn(self) -> Result<Running, SetupError> {
        if self.targets.is_empty() || self.targets.len() > OFFERS_MAX {
            return Err(SetupError::Offers(self.targets.len()));
        }
        if self.listeners.is_empty() {
            return Err(SetupError::Nowhere);
        }
        Running::start(self).map_err(SetupError::Start)
    }
}
