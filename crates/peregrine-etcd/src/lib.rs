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
//! A process reads all names below the prefix once, and then follows their changes by one request. So to look
//! up a name needs no request, and works when the cluster does not answer: [`Offers::age`] is then the time
//! since it did. Servers register with a lease: the cluster removes a server that has ended without
//! a withdrawal. A server whose lease was lost registers again.
//!
//! The key of a server is `/PREFIX/NAME/SERVER`, and the value is a JSON object, as
//! [`Offer::to_json`](peregrine::directory::Offer::to_json) writes it.
//!
//! The crate uses the JSON gateway of etcd over HTTP, which each member has.

mod follow;
mod gateway;
mod known;
mod lease;
mod pause;
mod place;
mod shared;

use core::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use peregrine::directory::{self, Directory, Offer, Offers, Standing, Watcher};
use peregrine::{Address, CallError, Executed, Kind};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::gateway::{Gateway, Login};
use self::lease::{Order, Problem};
use self::place::Place;
use self::shared::{Shared, aged};

/// The environment variable with the password of the user in the text of a directory.
const PASSWORD: &str = "PEREGRINE_ETCD_PASSWORD";
/// How long a look-up waits for the first answer of the cluster.
const FIRST_LIMIT: Duration = Duration::from_secs(4);
/// How long a registration may take.
const REGISTER_LIMIT: Duration = Duration::from_secs(10);
/// How long a withdrawal may take.
const WITHDRAW_LIMIT: Duration = Duration::from_secs(3);
/// The lease of a server.
const LEASE_SECONDS: u64 = 10;

/// Lets [`directory::open`] and `$PEREGRINE_DIRECTORY` open directories whose text begins with `etcd:`. Returns
/// false if another crate has taken the scheme.
///
/// The text is `etcd://HOST,HOST:PORT/PREFIX`, or with a user in front, `etcd://USER@HOST/PREFIX`, whose
/// password is in `$PEREGRINE_ETCD_PASSWORD`. Without a port, it is 2379, and without a prefix, it is
/// `peregrine`.
pub fn install() -> bool {
    directory::add_scheme("etcd", |text| Ok(Arc::new(Etcd::open(text)?)))
}

/// A directory in an etcd cluster.
pub struct Etcd {
    place: Place,
    shared: Arc<Shared>,
    problem: Arc<Problem>,
    orders: UnboundedSender<Order>,
    next: AtomicU64,
}

impl Etcd {
    /// Opens the directory at `//HOST,HOST:PORT/PREFIX` (see [`install`]). The cluster is asked in the
    /// background.
    ///
    /// # Errors
    /// If the text is not valid, or no thread can be started.
    pub fn open(text: &str) -> Result<Self, CallError> {
        let place = Place::read(text)?;
        let login = match &place.user {
            None => None,
            Some(user) => {
                let password = std::env::var(PASSWORD).map_err(|_| {
                    let text = format!("${PASSWORD} has no password for the user `{user}`");
                    CallError::new(Kind::BadName, Executed::No, text)
                })?;
                Some(Login { user: user.clone(), password })
            }
        };
        let no_thread = |error: std::io::Error| {
            let text = format!("cannot start the thread of the directory: {error}");
            CallError::new(Kind::Exhausted, Executed::No, text)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(no_thread)?;
        let (orders, mut given) = unbounded_channel();
        let shared = Arc::new(Shared::new(place.clone()));
        let problem = Arc::new(Problem::default());
        let (follows, keeps) = (Arc::clone(&shared), Arc::clone(&problem));
        let at = place.clone();
        let run = move || {
            follows.is_own_thread();
            runtime.block_on(async {
                let gateway = Gateway::new(&at.members, None, login);
                tokio::select! {
                    () = follow::follow(&gateway, &at, &follows) => {}
                    () = lease::keep(&gateway, LEASE_SECONDS, &keeps, &mut given) => {}
                }
            });
        };
        let thread = thread::Builder::new().name("peregrine-etcd".to_owned());
        thread.spawn(run).map_err(no_thread)?;
        Ok(Self { place, shared, problem, orders, next: AtomicU64::new(0) })
    }

    fn unreachable(&self, why: &str) -> CallError {
        CallError::new(Kind::Unreachable, Executed::No, format!("{}: {why}", self.describe()))
    }
}

impl Directory for Etcd {
    fn offers(&self, name: &str) -> Result<Vec<Address>, CallError> {
        Ok(self.look_up(name)?.addresses().cloned().collect())
    }

    fn describe(&self) -> String {
        format!("etcd at {} below {}", self.place.members.join(", "), self.place.prefix)
    }

    fn look_up(&self, name: &str) -> Result<Offers, CallError> {
        let found = self.shared.look_up(FIRST_LIMIT, |known| known.offers(name));
        found.map(aged).map_err(|why| self.unreachable(&why))
    }

    fn names(&self) -> Result<Vec<String>, CallError> {
        let found = self.shared.look_up(FIRST_LIMIT, known::Known::names);
        found.map(|(names, _)| names).map_err(|why| self.unreachable(&why))
    }

    fn register(&self, name: &str, offer: &Offer) -> Result<Standing, CallError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (done, answer) = mpsc::channel();
        let (key, value) = (self.place.key(name, offer.server()), offer.to_json());
        let _ = self.orders.send(Order::Register { number, key, value, done });
        let orders = self.orders.clone();
        let withdraw = move || {
            let (done, answer) = mpsc::channel();
            if orders.send(Order::Withdraw { number, done }).is_ok() {
                let _ = answer.recv_timeout(WITHDRAW_LIMIT);
            }
        };
        match answer.recv_timeout(REGISTER_LIMIT) {
            Ok(Ok(())) => {
                let problem = Arc::clone(&self.problem);
                Ok(Standing::new(withdraw, move || problem.get()))
            }
            Ok(Err(trouble)) => Err(self.unreachable(&trouble.to_string())),
            Err(_) => {
                withdraw();
                Err(self.unreachable("the cluster does not answer"))
            }
        }
    }

    fn watch(&self, name: &str, watcher: Watcher) -> Result<Standing, CallError> {
        self.look_up(name)?;
        let number = self.shared.watch(name, watcher);
        let (ends, tells) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        // The thread runs as long as there are senders.
        let orders = self.orders.clone();
        let end = move || {
            ends.unwatch(number);
            drop(orders);
        };
        Ok(Standing::new(end, move || tells.trouble()))
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Etcd({})", self.describe())
    }
}
