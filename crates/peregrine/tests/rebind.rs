//! Kills and restarts server processes. The tests check how a binding reacts under each rebind policy, on
//! every path.

mod ledger;
mod support;

use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ledger::{Book, Ledger as _, LedgerClient, LedgerServer, Outcomes};
use peregrine::directory::Directory;
use peregrine::{
    Address, BindOptions, CallError, Executed, Insecure, Kind, PathKind, Rebind, Server, interface,
};
use support::link::{ENDS, Link, at_far_end, at_near_end};
use support::{KeepGoing, Process, alone, own_directory, role, stream, until};

/// Does the work of a child process. Its role names the interface to export as `growing`, and an endpoint at
/// which the server listens. In the test run itself there is no role, and this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let (growing, endpoint) = role.split_once(' ').expect("an interface and an endpoint");
    let directory = support::directory();
    let server = Server::new().export("ledger", LedgerServer::new(Book::of(&directory))).unwrap();
    let server = server.export("twice", TwiceServer::new(Counts)).unwrap();
    let server = match growing {
        "before" => server.export("growing", BeforeServer::new(Version(1, Door::default()))),
        "after" => server.export("growing", AfterServer::new(Version(2, Door::default()))),
        "later" => server.export("growing", LaterServer::new(Version(3, Door::default()))),
        "other" => server.export("growing", OtherServer::new(Version(2, Door::default()))),
        _ => panic!("unknown role `{growing}`"),
    };
    let server = server
        .unwrap()
        .stop_on_signals()
        .listen_beyond_this_machine(endpoint, Insecure::ITrustThisNetwork)
        .unwrap();
    let running = server.spawn().unwrap();
    println!("\nready");
    running.wait();
    println!("ended");
}

#[interface]
trait Twice {
    /// Ends the server process at the first call of this procedure. A file in the runtime directory shows
    /// whether there was an earlier call.
    #[idempotent]
    fn perhaps(&self) -> peregrine::Result<u32>;
    /// Does the same as `perhaps`, but is not marked as idempotent.
    fn once(&self) -> peregrine::Result<u32>;
    fn process(&self) -> peregrine::Result<u32>;
}

struct Counts;

impl Counts {
    fn end_the_first_time(what: &str) {
        let directory = support::directory();
        if std::fs::File::create_new(directory.join(what)).is_ok() {
            std::process::abort();
        }
    }
}

impl Twice for Counts {
    fn perhaps(&self) -> peregrine::Result<u32> {
        Self::end_the_first_time("perhaps");
        Ok(2)
    }
    fn once(&self) -> peregrine::Result<u32> {
        Self::end_the_first_time("once");
        Ok(2)
    }
    fn process(&self) -> peregrine::Result<u32> {
        Ok(std::process::id())
    }
}

/// Stops a server process by a signal, and waits until the server has ended in an orderly way.
fn stop(mut server: Process) {
    server.signal(libc::SIGTERM);
    server.until("ended");
}

/// Where a test case starts its servers, and how a client reaches them.
struct Place<'a> {
    /// The address of an export of the server.
    address: &'a str,
    /// The path that a client uses for the address.
    path: PathKind,
    /// Starts a server. The argument names the interface that the server exports as `growing`.
    launch: &'a dyn Fn(&str) -> Process,
}

impl Place<'_> {
    /// Starts a server, and waits until it is ready. The argument names the interface that the server exports
    /// as `growing`, such as "before".
    fn serve(&self, growing: &str) -> Process {
        let mut server = (self.launch)(growing);
        server.until("ready");
        server
    }

    fn start(&self) -> Process {
        self.serve("before")
    }
}

/// Runs a test case on each path. `name` is the name of the export to which the case binds.
fn on_every_path(name: &str, directory: &Path, case: impl Fn(&Place<'_>) + Sync) {
    let port = free_port();
    let at = format!("{name}@127.0.0.1:{port}");
    for (address, path) in [
        (format!("local:{name}"), PathKind::Local),
        (format!("udp:{at}"), PathKind::Udp),
        (format!("tcp:{at}"), PathKind::Tcp),
    ] {
        let launch =
            |what: &str| Process::launch("child", &format!("{what} 127.0.0.1:{port}"), directory);
        case(&Place { address: &address, path, launch: &launch });
    }
    at_near_end(Link::new(), |link| {
        let endpoint = format!("eth:{}:7000", ENDS[1]);
        let address = format!("eth:{name}@{}:7000", ENDS[1]);
        let launch = |what: &str| link.launch(1, "child", &format!("{what} {endpoint}"), directory);
        case(&Place { address: &address, path: PathKind::Ethernet, launch: &launch });
    });
}

/// Returns a free port that is outside the range from which the kernel picks the ports of clients.
fn free_port() -> u16 {
    let first = 20_000 + (std::process::id() % 10_000) as u16;
    let free = |port: &u16| {
        TcpListener::bind(("127.0.0.1", *port)).is_ok()
            && UdpSocket::bind(("127.0.0.1", *port)).is_ok()
    };
    (first..first + 1000).find(free).expect("a free port")
}

#[test]
fn restarted_server_is_found_again() {
    let _alone = alone();
    let directory = own_directory();
    on_every_path("twice", directory.path(), |place| {
        let (address, path) = (place.address, place.path);
        let mut server = place.start();
        let bind = |policy| {
            TwiceClient::bind_with(address, &BindOptions::default().rebind(policy)).unwrap()
        };
        let [never, again] = [Rebind::Never, Rebind::WhenNotExecuted].map(bind);
        let early = again.clone();
        assert_eq!(again.process().unwrap(), server.id());
        assert!(again.is_alive());
        server.kill();
        // While no server runs, calls fail. Their errors say why the client could not bind again.
        let mut error = again.process().unwrap_err();
        while error.executed() == Executed::Maybe {
            // The client sent this call before it noticed that the server had ended.
            error = again.process().unwrap_err();
        }
        assert!(matches!(error.kind(), Kind::ServerGone | Kind::Unreachable), "{error}");
        let text = error.to_string();
        assert!(text.contains(": binding") || text.contains(": resolving"), "{text}");

        let server = place.start();
        let mut said = again.process();
        // Over TCP and UDP the client may send the first calls before it notices that the server is gone.
        until("the new server is found", || {
            if said.is_err() {
                said = again.process();
            }
            said.is_ok()
        });
        assert_eq!(said.unwrap(), server.id(), "{address}");
        assert_eq!(again.binding().path(), path);
        assert!(again.is_alive());
        assert!(is_fast(&again), "{address}");
        // Clones of the binding, existing ones and new ones, call the new server, too.
        for client in [&early, &again.clone(), &again.with_timeout(Duration::from_secs(20))] {
            assert_eq!(client.process().unwrap(), server.id(), "{address}");
        }
        // A binding with `Rebind::Never` never binds again.
        let error = never.process().unwrap_err();
        assert_eq!(error.kind(), Kind::ServerGone, "{error}");
        assert!(!never.is_alive());
    });
}

/// Returns whether the next call takes the fast branch, as the first call after a bind does.
fn is_fast(client: &TwiceClient) -> bool {
    peregrine::__rt::target(client.binding()).is_straight()
}

#[test]
fn calls_take_the_fast_branch_again_after_a_rebind() {
    // Other tests of this program change the runtime directory, so this test must not run beside them.
    let _alone = alone();
    let _directory = own_directory();
    let start = || {
        let server = Server::new().export("fast-again", TwiceServer::new(Counts)).unwrap();
        server.spawn().unwrap()
    };
    let running = start();
    let options = BindOptions::default().rebind(Rebind::WhenNotExecuted);
    let client = TwiceClient::bind_with("local:fast-again", &options).unwrap();
    let early = client.clone();
    running.stop();
    for rebinds in 1..=20 {
        let running = start();
        assert_eq!(client.process().unwrap(), std::process::id());
        // Calls in other threads may still use the data of an earlier server, so a binding keeps these data.
        // It keeps them for at most eight servers. After eight rebinds, only a new clone takes the fast
        // branch.
        assert_eq!(is_fast(&client), rebinds <= 8, "{rebinds}");
        let clone = client.clone();
        assert_eq!(clone.process().unwrap(), std::process::id());
        assert!(is_fast(&clone), "{rebinds}");
        running.stop();
    }
    // The last server has stopped, and no call was made through `early`. So the next call of `early` must
    // first bind again.
    assert!(!is_fast(&early));
    let running = start();
    assert_eq!(early.process().unwrap(), std::process::id());
    assert!(is_fast(&early));
    running.stop();
}

/// An object that answers each call with the number of its server, after the call has passed the door.
struct Numbered(u32, Door);

impl Twice for Numbered {
    fn perhaps(&self) -> peregrine::Result<u32> {
        self.1.pass();
        Ok(self.0)
    }
    fn once(&self) -> peregrine::Result<u32> {
        self.perhaps()
    }
    fn process(&self) -> peregrine::Result<u32> {
        Ok(std::process::id())
    }
}

/// Calls the export `name`. While the call runs, a second server starts, and the first server stops. Checks
/// whether the call is repeated at the second server. Without an endpoint, the servers use the local path.
fn check_repeated(endpoint: Option<&str>, name: &str, policy: Rebind, idempotent: bool) {
    let (moving, doors) = (Moving::default(), [Door::default(), Door::default()]);
    let serve = |number: u32| {
        let object = TwiceServer::new(Numbered(number, doors[number as usize].clone()));
        let server = Server::new().export(name, object).unwrap();
        let Some(endpoint) = endpoint else { return server.spawn().unwrap() };
        let start = || {
            server
                .listen_beyond_this_machine(endpoint, Insecure::ITrustThisNetwork)
                .unwrap()
                .spawn()
                .unwrap()
        };
        let running = if endpoint.starts_with("eth:") { at_far_end(start) } else { start() };
        moving.to(running.addresses()[0].to_string().replacen(':', &format!(":{name}@"), 1));
        running
    };
    let first = serve(0);
    let options = BindOptions::default().directory(moving.clone()).rebind(policy);
    let address = match endpoint.and_then(|endpoint| endpoint.split_once(':')) {
        Some((scheme, _)) => format!("{scheme}:alias"),
        None => format!("local:{name}"),
    };
    let twice = TwiceClient::bind_with(&address, &options).unwrap();
    doors[0].shut(true);
    let returned = std::thread::scope(|scope| {
        let caller = scope.spawn(|| if idempotent { twice.perhaps() } else { twice.once() });
        until("the call has begun", || doors[0].passed() == 1);
        // The second server takes the name before the first one stops.
        first.withdraw(name);
        let _second = serve(1);
        first.drain(Duration::from_millis(1));
        let returned = caller.join().unwrap();
        doors[0].shut(false);
        returned
    });
    let what = format!("{address}, {policy:?}, idempotent: {idempotent}, {returned:?}");
    let repeats = policy == Rebind::Idempotent && idempotent;
    assert_eq!(doors.map(|door| door.passed()), [1, u64::from(repeats)], "{what}");
    match returned {
        Ok(number) => assert!(repeats && number == 1, "{what}"),
        Err(error) => assert!(!repeats && error.executed() == Executed::Maybe, "{what}"),
    }
}

#[test]
fn uncertain_calls_are_repeated_only_if_idempotent() {
    let _alone = alone();
    let _directory = own_directory();
    // All cases run at the same time, because a client takes seconds to notice that a server is silent.
    let check = |endpoint: Option<&str>, enter: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| {
            for policy in [Rebind::Never, Rebind::WhenNotExecuted, Rebind::Idempotent] {
                for idempotent in [true, false] {
                    scope.spawn(move || {
                        enter();
                        let name = format!("{policy:?}-{idempotent}").to_lowercase();
                        check_repeated(endpoint, &name, policy, idempotent);
                    });
                }
            }
        });
    };
    for endpoint in [None, Some("udp:127.0.0.1:0"), Some("tcp:127.0.0.1:0")] {
        check(endpoint, &|| ());
    }
    at_near_end(Link::new(), |link| {
        check(Some(&format!("eth:{}:0", ENDS[1])), &|| link.enter());
    });
}

#[test]
fn uncertain_call_stays_uncertain_if_no_server_is_left() {
    let _alone = alone();
    let directory = own_directory();
    on_every_path("twice", directory.path(), |place| {
        let address = place.address;
        let options = BindOptions::default();
        for (policy, repeats) in
            [(Rebind::Never, false), (Rebind::WhenNotExecuted, false), (Rebind::Idempotent, true)]
        {
            for idempotent in [true, false] {
                for file in ["perhaps", "once"] {
                    let _ = std::fs::remove_file(directory.path().join(file));
                }
                let mut server = place.start();
                let twice =
                    TwiceClient::bind_with(address, &options.clone().rebind(policy)).unwrap();
                // The procedure ends its server process, and the test starts no other server.
                let failed = std::thread::scope(|scope| {
                    let caller = scope.spawn(|| match idempotent {
                        true => twice.perhaps().unwrap_err(),
                        false => twice.once().unwrap_err(),
                    });
                    until("the call has begun", || {
                        directory.path().join("perhaps").exists()
                            || directory.path().join("once").exists()
                    });
                    caller.join().unwrap()
                });
                // No server is left for a second attempt. So the outcome of the call stays uncertain under
                // every policy.
                assert_eq!(failed.executed(), Executed::Maybe, "{address}: {failed}");
                assert_eq!(failed.kind(), Kind::ServerGone, "{address}: {failed}");
                let tried = failed.to_string().contains(": binding")
                    || failed.to_string().contains(": resolving");
                assert_eq!(tried, repeats && idempotent, "{policy:?} {address}: {failed}");
                server.kill();
            }
        }
    });
}

/// Kills and restarts servers while threads call through clones of one binding. The reported outcome of every
/// call must be true, and no call may run twice.
#[test]
fn concurrent_callers_all_rebind_to_the_next_server() {
    let _alone = alone();
    let directory = own_directory();
    on_every_path("ledger", directory.path(), |place| {
        let address = place.address;
        let _ = std::fs::remove_file(Book::of(directory.path()).0);
        let mut server = place.start();
        let ledger = LedgerClient::bind(address).unwrap();
        let (next, going) = (AtomicU64::new(0), AtomicBool::new(true));
        let answered = AtomicU64::new(0);
        let outcomes: Vec<Outcomes> = std::thread::scope(|scope| {
            let keep_going = KeepGoing::new(&going);
            let callers: Vec<_> = (0..4)
                .map(|_| {
                    let ledger = ledger.clone();
                    let (next, going, answered) = (&next, &going, &answered);
                    scope.spawn(move || {
                        let mut outcomes = Outcomes::default();
                        while going.load(Ordering::Relaxed) {
                            let number = next.fetch_add(1, Ordering::Relaxed);
                            match ledger.enter(number, 0) {
                                Ok(_) => {
                                    outcomes.returned.push(number);
                                    answered.fetch_add(1, Ordering::Relaxed);
                                }
                                Err(error) => {
                                    outcomes.failed(number, &error);
                                    std::thread::sleep(Duration::from_millis(1));
                                }
                            }
                        }
                        outcomes
                    })
                })
                .collect();
            for _ in 0..4 {
                let before = answered.load(Ordering::Relaxed);
                until("calls return", || answered.load(Ordering::Relaxed) > before + 100);
                server.kill();
                server = place.start();
            }
            let before = answered.load(Ordering::Relaxed);
            until("calls return", || answered.load(Ordering::Relaxed) > before + 100);
            drop(keep_going);
            callers.into_iter().map(|caller| caller.join().expect("no panic")).collect()
        });
        let [returned, not_executed, maybe] = Outcomes::check(&outcomes, directory.path());
        println!("{address}: {returned} returned, {not_executed} not executed, {maybe} uncertain");
        assert!(returned > 500, "{returned}");
        server.kill();
    });
}

/// Versions of one interface: the first version, the next version with one more procedure, a later version,
/// and an incompatible interface of the same name.
mod growing {
    #[peregrine::interface(name = "Growing")]
    pub(crate) trait Before {
        #[idempotent]
        fn version(&self) -> peregrine::Result<u32>;
    }

    #[peregrine::interface(name = "Growing")]
    pub(crate) trait After {
        fn more(&self) -> peregrine::Result<u32>;
        #[idempotent]
        fn version(&self) -> peregrine::Result<u32>;
    }

    /// Has no procedure `more`. Its procedure `version` has a parameter that older clients do not send.
    #[peregrine::interface(name = "Growing")]
    pub(crate) trait Later {
        #[idempotent]
        fn version(&self, #[default(5)] add: u32) -> peregrine::Result<u32>;
    }

    #[peregrine::interface(name = "Growing")]
    pub(crate) trait Other {
        fn version(&self, of: String) -> peregrine::Result<u64>;
    }

    impl Other for Version {
        fn version(&self, _: String) -> peregrine::Result<u64> {
            panic!("no client can call this procedure")
        }
    }

    /// An object with a version number, and with the door that each call passes before it returns.
    pub(crate) struct Version(pub(crate) u32, pub(crate) super::Door);

    impl Before for Version {
        fn version(&self) -> peregrine::Result<u32> {
            self.1.pass();
            Ok(self.0)
        }
    }

    impl After for Version {
        fn more(&self) -> peregrine::Result<u32> {
            Ok(self.0 + 10)
        }
        fn version(&self) -> peregrine::Result<u32> {
            Ok(self.0)
        }
    }

    impl Later for Version {
        fn version(&self, add: u32) -> peregrine::Result<u32> {
            Ok(self.0 + add)
        }
    }
}

use growing::{
    After, AfterClient, AfterServer, Before, BeforeClient, BeforeServer, LaterServer, OtherServer,
    Version,
};

/// A door that counts calls and blocks them while it is shut.
#[derive(Clone, Default)]
struct Door(Arc<(AtomicBool, AtomicU64)>);

impl Door {
    fn pass(&self) {
        self.0.1.fetch_add(1, Ordering::SeqCst);
        let begun = std::time::Instant::now();
        while self.0.0.load(Ordering::SeqCst) && begun.elapsed() < Duration::from_secs(40) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn shut(&self, shut: bool) {
        self.0.0.store(shut, Ordering::SeqCst);
    }

    fn passed(&self) -> u64 {
        self.0.1.load(Ordering::SeqCst)
    }
}

/// A directory service whose only entry can change.
#[derive(Clone, Debug, Default)]
struct Moving(Arc<Mutex<String>>);

impl Moving {
    fn to(&self, address: String) {
        *self.0.lock().unwrap() = address;
    }
}

impl Directory for Moving {
    fn offers(&self, _: &str) -> Result<Vec<Address>, CallError> {
        Ok(vec![self.0.lock().unwrap().parse()?])
    }
    fn describe(&self) -> String {
        "what moves".to_owned()
    }
}

#[test]
fn server_restarted_with_a_larger_interface_is_called_as_before() {
    let _alone = alone();
    let directory = own_directory();
    on_every_path("growing", directory.path(), |place| {
        let before = place.serve("before");
        let client = BeforeClient::bind(place.address).unwrap();
        assert_eq!(client.binding().path(), place.path);
        assert_eq!(client.version().unwrap(), 1);
        stop(before);
        let _after = place.serve("after");
        until("the new server is found", || client.version().is_ok_and(|version| version == 2));
    });
}

/// A binding is bound to servers of different ages, one after the other. The client converts its calls to the
/// interface of the current server, and knows which procedures that server lacks.
#[test]
fn binding_goes_on_with_servers_of_other_ages() {
    let _alone = alone();
    let directory = own_directory();
    on_every_path("growing", directory.path(), |place| {
        let server = place.serve("after");
        let client = AfterClient::bind(place.address).unwrap();
        assert_eq!(client.binding().path(), place.path);
        let same_age = || {
            assert_eq!((client.version().unwrap(), client.more().unwrap()), (2, 12));
            assert!(client.binding().lacks().is_empty());
        };
        same_age();
        stop(server);
        let later = place.serve("later");
        until("the later server is found", || client.version().is_ok_and(|version| version == 8));
        assert_eq!(client.binding().lacks(), ["more"]);
        let error = client.more().unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::NoSuchProcedure, Executed::No));
        assert!(error.to_string().contains("`more`"), "{error}");
        assert_eq!(client.version().unwrap(), 8);
        stop(later);
        let _again = place.serve("after");
        until("the last server is found", || client.version().is_ok_and(|version| version == 2));
        same_age();
    });
}

/// The restarted server exports another interface under the same name. Waiting cannot help, so the error must
/// be `InterfaceMismatch`.
#[test]
fn restarted_server_with_another_interface_has_a_distinct_error() {
    let _alone = alone();
    let directory = own_directory();
    on_every_path("growing", directory.path(), |place| {
        let before = place.serve("before");
        let client = BeforeClient::bind(place.address).unwrap();
        assert_eq!(client.binding().path(), place.path);
        assert_eq!(client.version().unwrap(), 1);
        stop(before);
        let _other = place.serve("other");
        until("the server with the other interface is found", || {
            let error = client.version().unwrap_err();
            error.executed() == Executed::No && error.kind() == Kind::InterfaceMismatch
        });
        for _ in 0..3 {
            let error = client.version().unwrap_err();
            let said = (error.kind(), error.executed());
            assert_eq!(said, (Kind::InterfaceMismatch, Executed::No), "{}: {error}", place.address);
            assert!(error.to_string().contains("version"), "{error}");
        }
    });
}

#[test]
fn binding_moves_from_a_silent_address_to_another() {
    let _alone = alone();
    let _directory = own_directory();
    let moving = Moving::default();
    let serve = |version| {
        let server =
            Server::new().export("growing", BeforeServer::new(Version(version, Door::default())));
        server.unwrap().listen("udp:127.0.0.1:0").unwrap().spawn().unwrap()
    };
    let old = serve(1);
    let place = old.addresses()[0].place().clone();
    moving.to(format!("udp:growing@{place}"));
    let options = BindOptions::default()
        .directory(moving.clone())
        .bind_timeout(Duration::from_secs(1))
        .rebind(Rebind::WhenNotExecuted);
    let client = BeforeClient::bind_with("udp:alias", &options).unwrap();
    assert_eq!(client.version().unwrap(), 1);
    old.stop();
    let mut silent = None;
    until("the port is free", || {
        silent = UdpSocket::bind(("127.0.0.1", place.port())).ok();
        silent.is_some()
    });
    let new = serve(2);
    moving.to(format!("udp:growing@{}", new.addresses()[0].place()));
    until("the other address is found", || client.version().is_ok_and(|version| version == 2));
    drop(silent);
}

#[test]
fn call_that_was_sent_only_in_part_is_repeated() {
    let _alone = alone();
    let directory = own_directory();
    let book = LedgerServer::new(Book::of(directory.path()));
    let server = Server::new().export("ledger", book).unwrap();
    let server = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let (moving, place) = (Moving::default(), server.addresses()[0].place().clone());
    let first = stream::reads_a_part({
        let moving = moving.clone();
        // When the closure ends, the connection is closed. The client then binds again, now to the other
        // server.
        move |_stream| moving.to(format!("tcp:ledger@{place}"))
    });
    moving.to(format!("tcp:ledger@{first}"));
    let options = BindOptions::default().directory(moving);
    let ledger = LedgerClient::bind_with("tcp:alias", &options).unwrap();
    let bytes = vec![1; stream::UNREAD];
    assert_eq!(ledger.swallow(&bytes).unwrap(), stream::UNREAD as u64);
}

/// The first attempt of a call may have run, but the second attempt certainly did not run. The error must say
/// that the call may have run.
#[test]
fn uncertain_first_attempt_stays_uncertain_after_a_retry() {
    let _alone = alone();
    let _directory = own_directory();
    let (moving, first, second) = (Moving::default(), Door::default(), Door::default());
    let serve = |door: &Door, threads| {
        door.shut(true);
        let object = BeforeServer::new(Version(1, door.clone()));
        let server = Server::new().threads(threads).queue(0).export("growing", object).unwrap();
        server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap()
    };
    let one = serve(&first, 4);
    moving.to(format!("tcp:growing@{}", one.addresses()[0].place()));
    let options = BindOptions::default().directory(moving.clone()).rebind(Rebind::Idempotent);
    let client = BeforeClient::bind_with("tcp:alias", &options).unwrap();
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| client.version());
        until("the call has begun", || first.passed() == 1);
        // The next server starts before the first one stops. The only thread of the next server is busy.
        one.withdraw("growing");
        let other = serve(&second, 1);
        let place = other.addresses()[0].place().clone();
        let busy = BeforeClient::bind(&format!("tcp:growing@{place}")).unwrap();
        let held = scope.spawn(move || busy.version());
        until("the next server is busy", || second.passed() == 1);
        moving.to(format!("tcp:growing@{place}"));
        one.drain(Duration::from_millis(1));
        let error = caller.join().unwrap().unwrap_err();
        assert_eq!(
            (error.kind(), error.executed()),
            (Kind::Overloaded, Executed::Maybe),
            "{error}"
        );
        first.shut(false);
        second.shut(false);
        assert_eq!(held.join().unwrap().unwrap(), 1);
    });
}
