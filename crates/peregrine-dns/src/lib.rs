//! A directory of Peregrine in the Domain Name System.
//!
//! ```no_run
//! use peregrine::directory::{self, Directory};
//! use peregrine::{BindOptions, interface};
//!
//! # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
//! peregrine_dns::install();
//! let names = directory::open("dns:example.org")?;
//! let echo = EchoClient::bind_with("echo", &BindOptions::default().directory(names))?;
//! assert_eq!(echo.echo(3)?, 3);
//! # Ok::<(), peregrine::CallError>(())
//! ```
//!
//! | text | directory |
//! |---|---|
//! | `dns:DOMAIN` | the domain, at the name servers of the system (`/etc/resolv.conf`) |
//! | `dns:DOMAIN:PORT` | the same; servers for which DNS has only an address listen at this port |
//! | `dns://ADDRESS/DOMAIN` | the domain, at the name server at this IP address |
//! | `dns://ADDRESS:PORT,ADDRESS/DOMAIN:PORT` | the same with ports, and with several name servers |
//!
//! The domain is always absolute: the search list of the system does not apply. An IPv6 address is in
//! brackets. Without a port, that of a name server is 53, and that of a server is
//! [7193](peregrine::Place::DEFAULT_PORT).
//!
//! # Records
//!
//! The servers of the name `files` in the domain `example.org` are the first of these that exist:
//!
//! 1. The services (`SRV`, RFC 2782) `_files._tcp.example.org` and `_files._udp.example.org`. A server is
//!    called over TCP or UDP only, unless both have it.
//! 2. The services `_peregrine._tcp.files.example.org` and `_peregrine._udp.files.example.org`. This is the
//!    port `peregrine` of the service `files` of Kubernetes, if the domain is `NAMESPACE.svc.cluster.local`.
//! 3. The addresses (`A`, `AAAA`) of `files.example.org`, each of which is a server at the default port.
//!    A service of Kubernetes without an address of the cluster (*headless*) has such records. A machine
//!    that has an IPv4 and an IPv6 address counts as two servers.
//!
//! A client tries services with lower priority values first, and a pool calls the others only while it can
//! use none of these ([`Offer::priority`](directory::Offer::priority)). Each client that binds chooses a
//! random order within a priority, in proportion to the weights. With the name servers of the system, the
//! system finds the addresses of a service when a client binds. With chosen name servers, the directory asks
//! these for the addresses, so certificates must then contain addresses.
//!
//! Records that cannot be used are left out, with a remark: targets that are no names of hosts, port 0,
//! addresses of groups and link-local IPv6 addresses. Addresses of the loopback interface are only used if
//! the text of the directory names only name servers on this machine.
//!
//! # How long answers are used
//!
//! An answer is used until its time to live has passed (1 second to 1 day). The answer that there are no
//! records is used for 1 to 60 seconds. While the name servers do not answer, the last answers are used:
//! [`Offers::age`] is then their age, and a remark says why. Look-ups and watches of a name share one
//! task, so their number does not change the number of questions. After an answer has ended, a watch asks
//! again, up to a tenth of the time to live later (at most 10 seconds).
//!
//! Answers are not authenticated. An attacker between a client and its name server can name other servers, so
//! clients should verify servers by their keys (feature `secure` of Peregrine).

mod answer;
mod ask;
mod chance;
mod follow;
mod found;
mod place;
mod question;
mod round;
mod shared;

use core::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use peregrine::directory::{self, Directory, Offers, Standing, Watcher};
use peregrine::{Address, CallError, Executed, Kind};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::ask::NameServers;
use self::follow::{Asks, follow};
use self::place::Place;
use self::shared::Shared;

/// The name of the threads of a directory.
const THREAD: &str = "peregrine-dns";
/// The maximum number of watchers that run at the same time.
const WATCHER_THREADS_MAX: usize = 4;
/// How long a look-up waits for the first answer.
const FIRST_LIMIT: Duration = Duration::from_secs(4);
/// How long a look-up waits for a new answer if there is an old one.
const STALE_LIMIT: Duration = Duration::from_millis(1800);

/// Lets [`directory::open`] and `$PEREGRINE_DIRECTORY` open directories whose text begins with `dns:`.
/// Returns false if another crate has taken the scheme.
pub fn install() -> bool {
    directory::add_scheme("dns", |text| Ok(Arc::new(Dns::open(text)?)))
}

/// A directory in DNS.
pub struct Dns {
    place: Place,
    shared: Arc<Shared>,
    /// Names for which a task must begin.
    begins: UnboundedSender<String>,
    /// The process that has the thread of this directory.
    process: u32,
}

impl Dns {
    /// Opens the directory at `DOMAIN`, or at `//ADDRESS/DOMAIN` (see the [crate]). Nothing is asked
    /// yet.
    ///
    /// # Errors
    /// If the text is not valid, if the system has no name servers, or if no thread can be started.
    pub fn open(text: &str) -> Result<Self, CallError> {
        let place = Place::read(text)?;
        let name_servers = NameServers::new(&place.name_servers).map_err(|why| {
            let text = format!("`dns:{text}`: {why}; name one in dns://ADDRESS/DOMAIN");
            CallError::new(Kind::Unreachable, Executed::No, text)
        })?;
        let no_thread = |error: std::io::Error| {
            let text = format!("cannot start the thread of the directory: {error}");
            CallError::new(Kind::Exhausted, Executed::No, text)
        };
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        // The threads that call watchers have the name of the thread that asks.
        runtime.enable_all().thread_name(THREAD).max_blocking_threads(WATCHER_THREADS_MAX);
        let runtime = runtime.build().map_err(no_thread)?;
        let (begins, names) = unbounded_channel();
        let shared = Arc::new(Shared::default());
        let asks = Asks { place: place.clone(), name_servers, shared: Arc::clone(&shared) };
        let thread = thread::Builder::new().name(THREAD.to_owned());
        let run = move || runtime.block_on(follow(asks, names));
        thread.spawn(run).map_err(no_thread)?;
        Ok(Self { place, shared, begins, process: std::process::id() })
    }

    fn unreachable(&self, why: &str) -> CallError {
        CallError::new(Kind::Unreachable, Executed::No, format!("{}: {why}", self.describe()))
    }

    /// Begins the task of a name.
    fn begin(&self, name: &str) {
        let _ = self.begins.send(name.to_owned());
    }
}

impl Directory for Dns {
    fn offers(&self, name: &str) -> Result<Vec<Address>, CallError> {
        Ok(self.look_up(name)?.addresses().cloned().collect())
    }

    fn describe(&self) -> String {
        self.place.to_string()
    }

    fn look_up(&self, name: &str) -> Result<Offers, CallError> {
        // A forked child has no threads of its parent, and a lock may be held for ever.
        if self.process != std::process::id() {
            return Err(self.unreachable("it was opened before a fork: open it in the child"));
        }
        let found = self.shared.look_up(name, FIRST_LIMIT, STALE_LIMIT, || self.begin(name));
        found.map_err(|why| self.unreachable(&why))
    }

    fn watch(&self, name: &str, watcher: Watcher) -> Result<Standing, CallError> {
        self.look_up(name)?;
        let number = self.shared.watch(name, watcher, || self.begin(name));
        let (ends, tells) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        // The thread runs as long as there are senders.
        let begins = self.begins.clone();
        let (ended, watched) = (name.to_owned(), name.to_owned());
        let end = move || {
            ends.unwatch(&ended, number);
            drop(begins);
        };
        Ok(Standing::new(end, move || tells.trouble(&watched, number)))
    }
}

impl fmt::Debug for Dns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dns({})", self.describe())
    }
}
