//! A directory of Peregrine in an [etcd](https://etcd.io) cluster (version 3.4 and later).
//!
//! ```no_run
//! use peregrine::{Server, directory, interface};
//!
//! # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
//! # struct Same;
//! # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
//! peregrine_etcd::install();
//! let names = directory::open("etcd://etcd1.example.org,etcd2.example.org/production")?;
//! let server = Server::new().export("echo", EchoServer::new(Same))?;
//! server.listen("127.0.0.1:0")?.register_in(names).advertise("fs1.example.org")?.run()?;
//! # Ok::<(), peregrine::CallError>(())
//! ```
//!
//! # What a client knows
//!
//! A process reads all names below the prefix once. One request then follows their changes: etcd sends each
//! change when it happens. So a look-up needs no request, and works while the cluster does not answer.
//! [`Offers::age`] is then the time since the cluster last answered, and [`Directory::describe`] repeats it.
//! If a member sends nothing for 22 to 30 seconds, the process asks it whether it still runs, and goes to
//! another member if it does not answer.
//!
//! If all members were killed and have started again without their data, the names that were known stay known
//! for a grace time of three leases, so that their servers can register again meanwhile.
//!
//! # How servers register
//!
//! Servers register with a lease of 10 seconds: the cluster removes a server that has ended without a
//! withdrawal. A server whose lease or whose key was lost registers again. If two servers register under one
//! name with the same [`Offer::server`], the later one counts, and the earlier one learns it from
//! [`Standing::problem`].
//!
//! If a server withdraws while the cluster does not answer, the process tries again until the cluster does, or
//! until the lease is over. A registration fails if the cluster does not answer: then a server does not start.
//!
//! The key of a server is `/PREFIX/NAME/SERVER`, and the value is a JSON object, as [`Offer::to_json`] writes
//! it.
//!
//! # How to enter the cluster
//!
//! The text of a directory is `etcd://HOST,HOST:PORT/PREFIX?OPTION=VALUE&...`. Without a port, it is 2379,
//! and without a prefix, it is `peregrine`. Options that are not in the text may be in the environment:
//!
//! | option | variable | meaning |
//! |---|---|---|
//! | `ca` | `PEREGRINE_ETCD_CA` | PEM file of the CAs of the members; it turns TLS (1.3) on |
//! | `cert` | `PEREGRINE_ETCD_CERT` | PEM file of the own certificate |
//! | `key` | `PEREGRINE_ETCD_KEY` | PEM file of its private key |
//! | `USER@` in front of the hosts | `PEREGRINE_ETCD_USER` | the user of etcd |
//! | `password_file` | `PEREGRINE_ETCD_PASSWORD_FILE` | the file that contains the password |
//! | | `PEREGRINE_ETCD_PASSWORD` | the password itself, if there is no such file |
//! | `trust_network=true` | | allows a password without TLS to members on other machines |
//! | `lease_s` | | the lease of servers in seconds |
//! | `grace_s` | | the grace time in seconds |
//!
//! In a value, `%26` is `&`. The files are read again when they are needed again, so that they may be
//! replaced while programs run. A program that has more rights than its user ignores the variables.
//!
//! The crate uses the JSON gateway of etcd over HTTP, which each member has. It opens its own connections,
//! and has two threads: `peregrine-etcd` follows the cluster and keeps the lease, and `peregrine-watch`,
//! which runs while there are watches, calls watchers.

mod access;
#[cfg(test)]
mod crowd;
mod follow;
mod gateway;
mod known;
mod lease;
mod pause;
mod place;
mod shared;
mod watches;

use core::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use peregrine::directory::{self, Directory, Offer, Offers, Standing, Watcher};
use peregrine::{Address, CallError, Executed, Kind, Phase};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::access::Access;
use self::gateway::Gateway;
use self::lease::{Order, Problem};
use self::place::{Place, wrong};
use self::shared::Shared;

/// How long a look-up waits for the first answer of the cluster.
const FIRST_LIMIT: Duration = Duration::from_secs(4);
/// How long a registration may take.
const REGISTER_LIMIT: Duration = Duration::from_secs(10);
/// How long a withdrawal waits. After this time, the thread of the directory goes on trying.
const WITHDRAW_LIMIT: Duration = Duration::from_secs(2);

/// Lets [`directory::open`] and `$PEREGRINE_DIRECTORY` open directories whose text begins with `etcd:`.
/// Returns false if another crate has taken the scheme.
pub fn install() -> bool {
    directory::add_scheme("etcd", |text| Ok(Arc::new(Etcd::open(text)?)))
}

/// A directory in an etcd cluster.
pub struct Etcd {
    place: Place,
    shared: Arc<Shared>,
    orders: UnboundedSender<Order>,
    next: AtomicU64,
    /// A forked child has no thread that follows the cluster.
    process: u32,
}

impl Etcd {
    /// Opens the directory at `//HOST,HOST:PORT/PREFIX`, which is the text without `etcd:` (see the
    /// [crate]). The cluster is asked in the background.
    ///
    /// # Errors
    /// If the text is not valid, a file of TLS cannot be used, or no thread can be started.
    pub fn open(text: &str) -> Result<Self, CallError> {
        let (place, options) = Place::read(text)?;
        let access = Access::new(options, &place.members, directory::trusted_variable)?;
        let gateway = Gateway::new(&place.members, access).map_err(|why| wrong(&why))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(no_thread)?;
        let (orders, mut given) = unbounded_channel();
        let shared = Arc::new(Shared::new(place.clone()));
        let (follows, at) = (Arc::clone(&shared), place.clone());
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = follow::follow(&gateway, &at, &follows) => {}
                    () = lease::keep(&gateway, &at, &follows, &mut given) => {}
                }
            });
        };
        let thread = thread::Builder::new().name("peregrine-etcd".to_owned());
        thread.spawn(run).map_err(no_thread)?;
        let process = std::process::id();
        Ok(Self { place, shared, orders, next: AtomicU64::new(0), process })
    }

    /// Returns where the directory is.
    fn at(&self) -> String {
        format!("etcd at {} below {}", self.place.members.join(", "), self.place.prefix)
    }

    fn unreachable(&self, phase: Phase, why: &str) -> CallError {
        let text = format!("{}: {why}", self.at());
        CallError::new(Kind::Unreachable, Executed::No, text).in_phase(phase)
    }

    /// # Errors
    /// If this process was forked after the directory was opened.
    fn check_process(&self, phase: Phase) -> Result<(), CallError> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(self.unreachable(
                phase,
                "the directory was opened before this process was forked: open it again",
            )),
        }
    }

    /// # Errors
    /// If a name or an identity has a form that would make another key of it.
    fn check_name(&self, name: &str, phase: Phase) -> Result<(), CallError> {
        // An address has the same rules for its name.
        let is_name = name.parse::<Address>().is_ok_and(|address| {
            address.name() == name && address.place().is_none() && address.path().is_none()
        });
        if is_name {
            return Ok(());
        }
        let text = format!("`{name}` cannot be a name");
        Err(CallError::new(Kind::BadName, Executed::No, text).in_phase(phase))
    }
}

fn no_thread(error: std::io::Error) -> CallError {
    let text = format!("cannot start a thread of the directory: {error}");
    CallError::new(Kind::Exhausted, Executed::No, text).in_phase(Phase::Resolve)
}

impl Directory for Etcd {
    fn offers(&self, name: &str) -> Result<Vec<Address>, CallError> {
        Ok(self.look_up(name)?.addresses().cloned().collect())
    }

    fn is_ordered(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        let silence = (self.process == std::process::id()).then(|| self.shared.silence()).flatten();
        match silence {
            None => self.at(),
            Some((age, why)) => {
                format!("{}, as it was {} s ago ({why})", self.at(), age.as_secs())
            }
        }
    }

    fn look_up(&self, name: &str) -> Result<Offers, CallError> {
        self.check_process(Phase::Resolve)?;
        let found = self.shared.look_up(FIRST_LIMIT, |known| known.offers(name));
        let found = found.map(|(offers, age)| {
            let mut offers = offers;
            offers.age = age;
            offers
        });
        found.map_err(|why| self.unreachable(Phase::Resolve, &why))
    }

    fn names(&self) -> Result<Vec<String>, CallError> {
        self.check_process(Phase::Resolve)?;
        let found = self.shared.look_up(FIRST_LIMIT, known::Known::names);
        found.map(|(names, _)| names).map_err(|why| self.unreachable(Phase::Resolve, &why))
    }

    fn register(&self, name: &str, offer: &Offer) -> Result<Standing, CallError> {
        self.check_process(Phase::Export)?;
        self.check_name(name, Phase::Export)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (done, answer) = mpsc::channel();
        let problem = Arc::<Problem>::default();
        let (name, offer, noted) = (name.to_owned(), offer.clone(), Arc::clone(&problem));
        let _ = self.orders.send(Order::Register { number, name, offer, problem: noted, done });
        let orders = self.orders.clone();
        let withdraw = move || {
            let (done, answer) = mpsc::channel();
            if orders.send(Order::Withdraw { number, done }).is_ok() {
                let _ = answer.recv_timeout(WITHDRAW_LIMIT);
            }
        };
        match answer.recv_timeout(REGISTER_LIMIT) {
            Ok(Ok(())) => Ok(Standing::new(withdraw, move || problem.get())),
            Ok(Err(trouble)) => Err(self.unreachable(Phase::Export, &trouble.to_string())),
            Err(_) => {
                withdraw();
                Err(self.unreachable(Phase::Export, "the cluster does not answer"))
            }
        }
    }

    fn watch(&self, name: &str, watcher: Watcher) -> Result<Standing, CallError> {
        self.look_up(name)?;
        let number = self.shared.watch(name, watcher).map_err(no_thread)?;
        let (ends, asked) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        // The thread of the directory runs as long as there are senders.
        let orders = self.orders.clone();
        let end = move || {
            ends.unwatch(number);
            drop(orders);
        };
        Ok(Standing::new(end, move || asked.problem(number)))
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Etcd({})", self.at())
    }
}
