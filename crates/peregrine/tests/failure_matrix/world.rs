//! Makes the environment in which the failure matrix tests a path: a runtime directory, or two network
//! namespaces and the link between them.

use core::fmt;
use std::sync::atomic::Ordering;

use peregrine::{BindOptions, CallError};

use super::client::{Client, Form};
use super::document::Cell;
use super::elsewhere::understood;
use super::subject::{Answer, Notes};
use super::support::bridge::Bridge;
use super::support::impairments::Impairments;
use super::support::link::{ENDS, Link};
use super::support::nat::Nat;
use super::{Process, support};

/// The name of the export.
pub(crate) const NAME: &str = "subject";
const _: () = assert!(matches!(ENDS[1].as_bytes(), b"10.213.77.2"));
pub(crate) const PLACE: &str = "10.213.77.2:7000";
/// The host and port of another server that exports the same name.
pub(crate) const PLACE_BESIDE: &str = "10.213.77.2:7001";

/// The address of the near end after [`World::change_address`].
const OTHER_END: &str = "10.213.77.9";

/// A path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Local,
    Ethernet,
    Udp,
    Tcp,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Local, Self::Ethernet, Self::Udp, Self::Tcp];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Local => "local",
            Self::Ethernet => "ethernet",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        })
    }
}

/// A path, the directory of its processes, and the link between them if the path leads over a
/// network.
pub(crate) struct World {
    pub(crate) way: Way,
    /// The form of all calls.
    pub(crate) form: Form,
    pub(crate) home: tempfile::TempDir,
    link: Option<(Bridge, Link)>,
}

impl World {
    /// Makes the environment of a path.
    ///
    /// # Errors
    /// If this machine lacks what the environment needs. The text says what is missing.
    pub(crate) fn new(way: Way, form: Form) -> Result<Self, String> {
        let link = match way {
            Way::Local => None,
            _ => {
                let link = Link::with_middle()?;
                let bridge = Bridge::new(&link, Impairments::default(), 1, |_, _| {});
                Some((bridge, link))
            }
        };
        let home = tempfile::tempdir().map_err(|error| error.to_string())?;
        Ok(Self { way, form, home, link })
    }

    /// Calls `what` on a thread at the near end.
    pub(crate) fn inside(&self, what: impl FnOnce(&Self) + Send) {
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                if let Some((_, link)) = &self.link {
                    link.enter();
                }
                what(self);
            });
            there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    pub(crate) fn address(&self) -> String {
        match self.way {
            Way::Local => format!("local:{NAME}"),
            Way::Ethernet => format!("eth:{NAME}@{PLACE}"),
            Way::Udp => format!("udp:{NAME}@{PLACE}"),
            Way::Tcp => format!("tcp:{NAME}@{PLACE}"),
        }
    }

    /// Starts a server with `threads` threads and at most `queue` waiting calls.
    pub(crate) fn server(&self, threads: usize, queue: usize) -> Process {
        self.notes().forget();
        match &self.link {
            None => {
                let directory = std::env::var_os("PEREGRINE_DIR").expect("a directory");
                let role = format!("near {threads} {queue} {}", self.form);
                Process::start("child", &role, directory.as_ref())
            }
            Some((_, link)) => {
                let role = format!("far {threads} {queue} {}", self.form);
                link.start(1, "child", &role, self.home.path())
            }
        }
    }

    /// Returns the notes of the server's procedures.
    pub(crate) fn notes(&self) -> Notes {
        match &self.link {
            None => Notes::of(std::env::var_os("PEREGRINE_DIR").expect("a directory").as_ref()),
            Some(_) => Notes::of(self.home.path()),
        }
    }

    pub(crate) fn bind(&self, options: &BindOptions) -> Result<Client, CallError> {
        Client::bind(self.form, &self.address(), options)
    }

    /// Returns a bound client that has already made a call, like most clients.
    pub(crate) fn client(&self, options: &BindOptions) -> Client {
        use super::subject::Subject as _;
        let client = self.bind(options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(client.echo(7).unwrap_or_else(|error| panic!("{error}")), 7);
        self.notes().forget();
        client
    }

    /// Waits until a procedure has noted `what`.
    pub(crate) fn until(&self, what: &str) {
        support::until(what, || self.notes().say(what));
    }

    /// Returns an object of a caller, which writes the same notes as the procedures.
    pub(crate) fn object(&self) -> Answer {
        Answer::noting(self.notes())
    }

    /// Waits until a procedure that calls its caller's object has noted the outcome of this call. Returns the
    /// outcome.
    pub(crate) fn told(&self) -> Cell {
        self.until("outcome");
        understood(&self.notes().read("outcome"))
    }

    /// From now on, drops all packets between the ends. If `cut` is false, drops no packets.
    pub(crate) fn cut(&self, cut: bool) {
        let (bridge, _) = self.link.as_ref().expect("a network");
        bridge.seen.dark.store(cut, Ordering::SeqCst);
    }

    /// Drops all packets after `bytes` more bytes have arrived at the near end.
    pub(crate) fn cut_after(&self, bytes: usize) {
        let (bridge, _) = self.link.as_ref().expect("a network");
        bridge.seen.dark_after.store(bytes, Ordering::SeqCst);
    }

    /// Waits until the network drops all packets.
    pub(crate) fn until_cut(&self) {
        let (bridge, _) = self.link.as_ref().expect("a network");
        support::until("the network is cut", || bridge.seen.dark.load(Ordering::SeqCst));
    }

    /// Starts a client in a separate process, and waits until the client has made its first call.
    pub(crate) fn client_elsewhere(&self) -> Process {
        let role = format!("client {} {}", self.form, self.address());
        let mut client = match &self.link {
            None => {
                let directory = std::env::var_os("PEREGRINE_DIR").expect("a directory");
                Process::launch("child", &role, directory.as_ref())
            }
            Some((_, link)) => link.launch(0, "child", &role, self.home.path()),
        };
        client.until("bound");
        self.notes().forget();
        client
    }

    /// Starts another server at the far end, at the port of [`PLACE_BESIDE`].
    pub(crate) fn server_beside(&self) -> Process {
        let (_, link) = self.link.as_ref().expect("a network");
        let home = self.home.path().join("beside");
        std::fs::create_dir_all(&home).expect("a directory");
        link.start(1, "child", &format!("beside 2 1000 {}", self.form), &home)
    }

    /// Puts a load balancer in front of both servers. Returns the balancer, and a client that is bound
    /// through the balancer.
    pub(crate) fn balanced(&self, options: &BindOptions) -> (Nat, Client) {
        let balancer =
            Nat::start([PLACE, PLACE_BESIDE].map(|at| at.parse().expect("one")).to_vec());
        let address = format!("udp:{NAME}@{}", balancer.address());
        let client = Client::bind(self.form, &address, options);
        (balancer, client.unwrap_or_else(|error| panic!("{error}")))
    }

    /// Gives the near end another address, or its original address if `changed` is false.
    pub(crate) fn change_address(&self, changed: bool) {
        let (_, link) = self.link.as_ref().expect("a network");
        let (old, new) = if changed { (ENDS[0], OTHER_END) } else { (OTHER_END, ENDS[0]) };
        link.change_address(0, old, new);
    }

    /// From now on, drops packets that are larger than `bytes` bytes. If `bytes` is 0, drops no packets.
    pub(crate) fn narrow(&self, bytes: usize) {
        let (bridge, _) = self.link.as_ref().expect("a network");
        bridge.seen.narrow.store(bytes, Ordering::SeqCst);
    }

    pub(crate) const fn is_network(&self) -> bool {
        self.link.is_some()
    }
}
