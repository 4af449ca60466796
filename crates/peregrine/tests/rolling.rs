//! Tests a rolling upgrade: two servers of a service are replaced by newer servers, one after the other.
//! Meanwhile, old and new clients call the service. No call may fail.

mod support;

use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use peregrine::directory::Directory;
use peregrine::{Address, BindOptions, CallError, Server};
use support::{KeepGoing, Process, alone, own_directory, role, until};

/// The interface of the first servers.
mod old {
    use peregrine::{CallError, Result, Value, interface};

    #[derive(Clone, Debug, PartialEq, Value)]
    pub(crate) struct Item {
        pub(crate) name: String,
        #[widens]
        pub(crate) price: u32,
    }

    #[derive(Debug, Value)]
    pub(crate) enum Trouble {
        Call(CallError),
        SoldOut { item: String },
    }

    impl From<CallError> for Trouble {
        fn from(error: CallError) -> Self {
            Self::Call(error)
        }
    }

    #[interface]
    pub(crate) trait Shop {
        /// Returns the version of the server: 1 if it is old, 2 if it is new.
        fn age(&self) -> Result<u32>;
        fn add(&self, items: &[Item]) -> Result<u64>;
        fn find(&self, name: &str) -> std::result::Result<Item, Trouble>;
    }

    pub(crate) struct Shelf;

    impl Shop for Shelf {
        fn age(&self) -> Result<u32> {
            Ok(1)
        }
        fn add(&self, items: &[Item]) -> Result<u64> {
            Ok(items.iter().map(|one| u64::from(one.price)).sum())
        }
        fn find(&self, name: &str) -> std::result::Result<Item, Trouble> {
            match name {
                "salt" => Err(Trouble::SoldOut { item: name.into() }),
                _ => Ok(Item { name: name.into(), price: 3 }),
            }
        }
    }
}

/// The interface of the new servers. It has one more field, parameter, procedure and error, and a wider
/// price.
mod new {
    use peregrine::{CallError, Result, Value, interface};

    #[derive(Clone, Debug, PartialEq, Value)]
    pub(crate) struct Item {
        pub(crate) name: String,
        #[default("piece")]
        pub(crate) unit: String,
        #[widens]
        pub(crate) price: u64,
    }

    #[derive(Debug, Value)]
    pub(crate) enum Trouble {
        Call(CallError),
        Closed,
        SoldOut {
            item: String,
            #[default(7)]
            days: u32,
        },
    }

    impl From<CallError> for Trouble {
        fn from(error: CallError) -> Self {
            Self::Call(error)
        }
    }

    #[interface]
    pub(crate) trait Shop {
        /// Returns the version of the server: 1 if it is old, 2 if it is new.
        fn age(&self) -> Result<u32>;
        fn count(&self) -> Result<u32>;
        fn add(&self, items: &[Item], #[default(1)] times: u64) -> Result<u64>;
        fn find(&self, name: &str) -> std::result::Result<Item, Trouble>;
    }

    pub(crate) struct Shelf;

    impl Shop for Shelf {
        fn age(&self) -> Result<u32> {
            Ok(2)
        }
        fn count(&self) -> Result<u32> {
            Ok(8)
        }
        fn add(&self, items: &[Item], times: u64) -> Result<u64> {
            Ok(times * items.iter().map(|one| one.price).sum::<u64>())
        }
        fn find(&self, name: &str) -> std::result::Result<Item, Trouble> {
            match name {
                "salt" => Err(Trouble::SoldOut { item: name.into(), days: 3 }),
                _ => Ok(Item { name: name.into(), unit: "kg".into(), price: 4 }),
            }
        }
    }
}

/// Runs a server process with the role `AGE NAME PORT`. In the test run itself there is no role, and this
/// function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let [age, name, port] = role.split(' ').collect::<Vec<_>>()[..] else { panic!("{role}") };
    let server = match age {
        "old" => Server::new().export(name, old::ShopServer::new(old::Shelf)),
        _ => Server::new().export(name, new::ShopServer::new(new::Shelf)),
    };
    let server = server.unwrap().listen(&format!("127.0.0.1:{port}")).unwrap().stop_on_signals();
    let running = server.spawn().unwrap();
    println!("\nready");
    running.wait();
    println!("ended");
}

/// A directory service that offers every name at the same two addresses, as a line of a hosts file does.
#[derive(Debug)]
struct Places([String; 2]);

impl Directory for Places {
    fn offers(&self, _: &str) -> Result<Vec<Address>, CallError> {
        self.0.iter().map(|one| one.parse()).collect()
    }
    fn describe(&self) -> String {
        "two places".to_owned()
    }
}

/// Returns two free ports that are outside the range from which the kernel picks the ports of clients.
fn free_ports() -> [u16; 2] {
    let first = 20_000 + (std::process::id() % 10_000) as u16;
    let is_free = |port: &u16| {
        TcpListener::bind(("127.0.0.1", *port)).is_ok()
            && UdpSocket::bind(("127.0.0.1", *port)).is_ok()
    };
    let mut free = (first..first + 1000).filter(is_free);
    [(); 2].map(|()| free.next().expect("a free port"))
}

/// Two places where a server of the service can run.
struct Service<'a> {
    directory: &'a Path,
    servers: [Option<Process>; 2],
    ports: [u16; 2],
}

impl Service<'_> {
    /// Ends the server at a place.
    fn end(&mut self, place: usize) {
        let mut server = self.servers[place].take().expect("a server at this place");
        server.signal(libc::SIGTERM);
        server.until("ended");
    }

    /// Starts a server at a place. The server is old or new, as `age` says.
    fn start(&mut self, place: usize, age: &str) {
        let role = format!("{age} shop-{place} {}", self.ports[place]);
        self.servers[place] = Some(Process::start("child", &role, self.directory));
    }
}

/// Makes rounds of calls while `going` is set. In each round, the age of the server that answers the first
/// call selects the counter in `answered`.
fn call_old(client: &old::ShopClient, going: &AtomicBool, answered: &[AtomicU64; 2]) {
    use old::Shop as _;
    let item = |price| old::Item { name: "tea".into(), price };
    while going.load(Ordering::Relaxed) {
        let age = client.age().expect("the age");
        assert_eq!(client.add(&[item(3), item(4)]).expect("the sum"), 7);
        // Each call may be answered by a different server.
        let found = client.find("tea").expect("an item");
        assert!(found == item(3) || found == item(4), "{found:?}");
        match client.find("salt") {
            Err(old::Trouble::SoldOut { item }) => assert_eq!(item, "salt"),
            other => panic!("{other:?}"),
        }
        answered[age as usize - 1].fetch_add(1, Ordering::Relaxed);
    }
}

/// Does the same as [`call_old`], but with the new interface.
fn call_new(client: &new::ShopClient, going: &AtomicBool, answered: &[AtomicU64; 2]) {
    use new::Shop as _;
    let item = |price| new::Item { name: "tea".into(), unit: "kg".into(), price };
    while going.load(Ordering::Relaxed) {
        let age = client.age().expect("the age");
        let sum = client.add(&[item(3), item(4)], 2).expect("the sum");
        // A new server doubles the sum because of `times`. An old server does not receive `times`.
        assert!(sum == 7 || sum == 14, "{sum}");
        let found = client.find("tea").expect("an item");
        let by_old = new::Item { unit: "piece".into(), ..item(3) };
        assert!(found == by_old || found == item(4), "{found:?}");
        match client.find("salt") {
            Err(new::Trouble::SoldOut { days, .. }) => assert!(days == 7 || days == 3),
            other => panic!("{other:?}"),
        }
        match client.count() {
            Ok(count) => assert_eq!(count, 8),
            Err(error) => {
                assert_eq!(error.kind(), peregrine::Kind::NoSuchProcedure, "{error}");
                assert_eq!(error.executed(), peregrine::Executed::No);
            }
        }
        answered[age as usize - 1].fetch_add(1, Ordering::Relaxed);
    }
}

/// Replaces both servers while old and new clients make calls. `address` returns the address of a server from
/// its number (0 or 1) and its port.
fn upgrade(directory: &Path, address: impl Fn(usize, u16) -> String) {
    let ports = free_ports();
    let mut service = Service { directory, servers: [None, None], ports };
    service.start(0, "old");
    service.start(1, "old");
    let addresses = [address(0, ports[0]), address(1, ports[1])];
    let options = BindOptions::default().directory(Places(addresses));
    let answered: [[AtomicU64; 2]; 4] = Default::default();
    let going = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let _keep_going = KeepGoing::new(&going);
        for (number, answered) in answered.iter().enumerate() {
            let (options, going) = (&options, &going);
            scope.spawn(move || match number % 2 {
                0 => {
                    call_old(&old::ShopClient::bind_with("shop", options).unwrap(), going, answered)
                }
                _ => {
                    call_new(&new::ShopClient::bind_with("shop", options).unwrap(), going, answered)
                }
            });
        }
        // Waits until each client has received further answers from servers of this age.
        let goes_on = |age: usize| {
            let before = answered.each_ref().map(|one| one[age].load(Ordering::Relaxed));
            until("every client is answered", || {
                let now = answered.each_ref().map(|one| one[age].load(Ordering::Relaxed));
                now.iter().zip(before).all(|(now, before)| *now > before + 20)
            });
        };
        goes_on(0);
        // Clients of the first server now use the second server, which is still old.
        service.end(0);
        goes_on(0);
        service.start(0, "new");
        service.end(1);
        goes_on(1);
        service.start(1, "new");
        goes_on(1);
    });
}

#[test]
fn no_call_fails_while_servers_are_replaced() {
    let _alone = alone();
    let directory = own_directory();
    upgrade(directory.path(), |place, _| format!("local:shop-{place}"));
    upgrade(directory.path(), |place, port| format!("udp:shop-{place}@127.0.0.1:{port}"));
    upgrade(directory.path(), |place, port| format!("tcp:shop-{place}@127.0.0.1:{port}"));
}

/// If the first server of the list does not fit a client, the client binds to the next server.
#[test]
fn client_binds_to_the_server_that_fits_it() {
    mod other {
        use peregrine::{Result, interface};

        #[interface]
        pub(crate) trait Shop {
            fn age(&self) -> Result<String>;
        }

        pub(crate) struct Shelf;

        impl Shop for Shelf {
            fn age(&self) -> Result<String> {
                Ok("none".into())
            }
        }
    }
    let _alone = alone();
    let _directory = own_directory();
    let server = Server::new().export("shop-0", other::ShopServer::new(other::Shelf)).unwrap();
    let _running =
        server.export("shop-1", old::ShopServer::new(old::Shelf)).unwrap().spawn().unwrap();
    let places = Places(["local:shop-0".to_owned(), "local:shop-1".to_owned()]);
    let options = BindOptions::default().directory(places);
    let client = new::ShopClient::bind_with("shop", &options).unwrap();
    assert_eq!(new::Shop::age(&client).unwrap(), 1);
    assert_eq!(client.binding().lacks(), ["count"]);
}
