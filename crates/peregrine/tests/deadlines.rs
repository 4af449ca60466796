//! Tests deadlines, and calls that their callers give up, on every path: what a procedure learns of them, and
//! which calls must not run.
//!
//! The tests do not depend on the speed of the machine. A test that needs a running procedure repeats the
//! call until its procedure has begun. A test that expects no effect first waits for an event. If the effect
//! occurred, it would occur before that event.

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Executed, Insecure, Kind, Running, Server, interface};
use support::link::{ENDS, Link, at_far_end, at_near_end};

/// The time limit of events that must happen.
const LONG: Duration = Duration::from_secs(30);
/// The time limit of calls that are to be given up.
const MOMENT: Duration = Duration::from_millis(40);

#[interface]
trait Clock {
    fn null(&self) -> peregrine::Result<()>;
    /// Returns the remaining time in microseconds, and whether the call is cancelled.
    fn left(&self) -> peregrine::Result<(Option<u64>, bool)>;
    /// Makes a nested call of `left` to another server, and returns its result.
    fn nested_left(&self) -> peregrine::Result<(Option<u64>, bool)>;
    /// Runs until its call is cancelled, and then makes a nested call.
    fn until_cancelled(&self) -> peregrine::Result<()>;
    /// Runs until the test sets `Seen::open`.
    fn stay(&self) -> peregrine::Result<()>;
    /// Counts its calls.
    fn count(&self) -> peregrine::Result<()>;
}

/// What the test observes of the procedures.
#[derive(Default)]
struct Seen {
    entered: AtomicU32,
    cancelled: AtomicU32,
    counted: AtomicU32,
    /// The outcome of a nested call that was made after the cancellation.
    nested_outcome: Mutex<Option<(Kind, Executed)>>,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Seen {
    fn set(&self, open: bool) {
        *self.open.lock().unwrap() = open;
        self.opened.notify_all();
    }
}

struct Object {
    seen: Arc<Seen>,
    /// A client of the other server, which serves the nested calls.
    nested: Option<ClockClient>,
}

impl Clock for Object {
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn left(&self) -> peregrine::Result<(Option<u64>, bool)> {
        let caller = peregrine::caller().expect("a caller");
        Ok((caller.remaining().map(|left| left.as_micros() as u64), caller.is_cancelled()))
    }
    fn nested_left(&self) -> peregrine::Result<(Option<u64>, bool)> {
        self.nested.as_ref().expect("a server for nested calls").left()
    }
    fn until_cancelled(&self) -> peregrine::Result<()> {
        self.seen.entered.fetch_add(1, Ordering::SeqCst);
        let caller = peregrine::caller().expect("a caller");
        // `Caller` may be used on any thread.
        let cancelled = std::thread::scope(|scope| {
            let look = || {
                let begun = Instant::now();
                while !caller.is_cancelled() && begun.elapsed() < LONG {
                    std::thread::sleep(Duration::from_millis(1));
                }
                caller.is_cancelled()
            };
            scope.spawn(look).join().unwrap()
        });
        let nested = self.nested.as_ref().filter(|_| caller.remaining().is_some());
        if let Some(nested) = nested {
            while caller.remaining() > Some(Duration::ZERO) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let error = nested.count().expect_err("no time is left for the nested call");
            *self.seen.nested_outcome.lock().unwrap() = Some((error.kind(), error.executed()));
        }
        self.seen.cancelled.fetch_add(cancelled.into(), Ordering::SeqCst);
        Ok(())
    }
    fn stay(&self) -> peregrine::Result<()> {
        self.seen.entered.fetch_add(1, Ordering::SeqCst);
        let open = self.seen.open.lock().unwrap();
        drop(self.seen.opened.wait_timeout_while(open, LONG, |open| !*open).unwrap());
        Ok(())
    }
    fn count(&self) -> peregrine::Result<()> {
        self.seen.counted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A server at an endpoint (empty: the local path). A second server on the same path serves the nested calls
/// of the first.
struct Stage {
    seen: Arc<Seen>,
    address: String,
    _running: [Running; 2],
}

impl Stage {
    fn new(endpoint: &str, threads: usize) -> Self {
        let seen = Arc::<Seen>::default();
        let serve = |name: &str, nested: Option<ClockClient>| {
            let object = Object { seen: Arc::clone(&seen), nested };
            let server = Server::new().threads(threads).export(name, ClockServer::new(object));
            let server = server.unwrap();
            let start = || match endpoint {
                "" => server.spawn().unwrap(),
                _ => server
                    .listen_beyond_this_machine(endpoint, Insecure::ITrustThisNetwork)
                    .unwrap()
                    .spawn()
                    .unwrap(),
            };
            let running = if endpoint.starts_with("eth") { at_far_end(start) } else { start() };
            let address = running.addresses().first().map(|at| format!("{at}/{name}"));
            (running, address.unwrap_or_else(|| name.to_owned()))
        };
        let (nested, address) = serve("nested", None);
        // Over raw Ethernet, both servers are at the far end, and a client cannot call a server at its own
        // end. So no nested calls are made.
        let bind = || ClockClient::bind(&address).unwrap();
        let client = if endpoint.starts_with("eth") { None } else { Some(bind()) };
        let (running, address) = serve("clock", client);
        Self { seen, address, _running: [running, nested] }
    }

    fn client(&self) -> ClockClient {
        ClockClient::bind(&self.address).unwrap()
    }

    /// Repeats `what` until a further procedure has begun.
    fn until_inside(&self, mut what: impl FnMut()) {
        let before = self.seen.entered.load(Ordering::SeqCst);
        support::until("a call runs", || {
            what();
            self.seen.entered.load(Ordering::SeqCst) > before
        });
    }
}

/// Runs `what` on the paths local, TCP and UDP.
fn on_each_path(what: impl Fn(&str)) {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for endpoint in ["", "tcp:127.0.0.1:0", "udp:127.0.0.1:0"] {
        println!("{endpoint:?}");
        what(endpoint);
    }
}

/// Runs `what` over raw Ethernet.
fn over_raw_ethernet(what: impl Fn(&str) + Sync) {
    let _alone = support::alone();
    let _directory = support::own_directory();
    at_near_end(Link::new(), |_| what(&format!("eth:{}:0", ENDS[1])));
}

fn learns_remaining_time(endpoint: &str) {
    let stage = Stage::new(endpoint, 8);
    let client = stage.client();
    assert_eq!(client.left().unwrap(), (None, false));
    let (left, cancelled) = client.with_timeout(LONG).left().unwrap();
    assert!(left.is_some_and(|left| (1..=LONG.as_micros() as u64).contains(&left)), "{left:?}");
    assert!(!cancelled);
    // The next call has no limit.
    assert_eq!(client.left().unwrap(), (None, false));
    let (later, _) = client.with_deadline(Instant::now() + 2 * LONG).left().unwrap();
    assert!(later > left, "{later:?}");
}

#[test]
fn procedure_learns_remaining_time() {
    on_each_path(learns_remaining_time);
    let object = Object { seen: Arc::default(), nested: None };
    let client = ClockClient::in_process(object);
    assert_eq!(client.left().unwrap(), (None, false));
    let (left, cancelled) = client.with_timeout(LONG).left().unwrap();
    assert!(left.is_some_and(|left| left <= LONG.as_micros() as u64) && !cancelled, "{left:?}");
    assert_eq!(client.left().unwrap(), (None, false));
}

#[test]
fn procedure_learns_remaining_time_over_raw_ethernet() {
    over_raw_ethernet(learns_remaining_time);
}

fn learns_cancellation(endpoint: &str) {
    let stage = Stage::new(endpoint, 8);
    let client = stage.client();
    let impatient = client.with_timeout(MOMENT);
    stage.until_inside(|| {
        // The deadline passes at the client and at the server at the same moment, so the reply may still
        // arrive in time.
        if let Err(error) = impatient.until_cancelled() {
            assert_eq!(error.kind(), Kind::TimedOut, "{error}");
        }
    });
    let noticed = || stage.seen.cancelled.load(Ordering::SeqCst) > 0;
    support::until("the procedure learns of the cancellation", noticed);
    client.null().unwrap();
    if !endpoint.starts_with("eth") {
        // The cancelled procedure made a nested call, which was not sent.
        let nested_outcome = *stage.seen.nested_outcome.lock().unwrap();
        assert_eq!(nested_outcome, Some((Kind::TimedOut, Executed::No)));
        assert_eq!(stage.seen.counted.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn procedure_learns_that_its_caller_has_given_up() {
    on_each_path(learns_cancellation);
}

#[test]
fn procedure_learns_that_its_caller_has_given_up_over_raw_ethernet() {
    over_raw_ethernet(learns_cancellation);
}

/// Gives up calls that wait because the server's only thread is busy. Checks that these calls do not run when
/// the thread is free again.
fn does_not_run(endpoint: &str) {
    let stage = Stage::new(endpoint, 1);
    let client = stage.client();
    let impatient = client.with_timeout(MOMENT);
    let other = stage.client().with_timeout(MOMENT);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| client.stay());
        support::until("the only thread is busy", || {
            stage.seen.entered.load(Ordering::SeqCst) == 1
        });
        let all: Vec<_> = [&impatient, &other, &impatient]
            .map(|client| scope.spawn(|| client.count().unwrap_err()))
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .collect();
        for error in all {
            assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe));
        }
        // During this pause the server receives the cancellations, while its thread is still busy.
        std::thread::sleep(4 * MOMENT);
        stage.seen.set(true);
        busy.join().unwrap().unwrap();
    });
    // The check below means nothing while a call that was given up is still in the server's queue. The server
    // empties the queue while it serves these 80 calls.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..10).for_each(|_| client.null().unwrap()));
        }
    });
    assert_eq!(stage.seen.counted.load(Ordering::SeqCst), 0, "a call that was given up has run");
    client.count().unwrap();
    assert_eq!(stage.seen.counted.load(Ordering::SeqCst), 1);
}

#[test]
fn call_given_up_while_waiting_does_not_run() {
    on_each_path(does_not_run);
}

#[test]
fn call_given_up_while_waiting_does_not_run_over_raw_ethernet() {
    over_raw_ethernet(does_not_run);
}

#[test]
fn nested_call_has_no_more_time_than_its_procedure() {
    on_each_path(|endpoint| {
        let stage = Stage::new(endpoint, 8);
        let client = stage.client();
        assert_eq!(client.nested_left().unwrap(), (None, false));
        let (left, _) = client.with_timeout(LONG).nested_left().unwrap();
        assert!(left.is_some_and(|left| left <= LONG.as_micros() as u64), "{left:?}");
        assert_eq!(client.nested_left().unwrap(), (None, false));
    });
    // Within one process, too, a nested call has no more time than the procedure that makes it. The client
    // `short` also sets a limit of its own, which is smaller than that of the procedure.
    let object = |nested| Object { seen: Arc::default(), nested };
    let inner = ClockClient::in_process(object(None));
    let short = inner.with_timeout(LONG);
    for (nested, most) in [(inner, 2 * LONG), (short, LONG)] {
        let outer = ClockClient::in_process(object(Some(nested))).with_timeout(2 * LONG);
        let (left, _) = outer.nested_left().unwrap();
        let most = most.as_micros() as u64;
        assert!(left.is_some_and(|left| left > most / 2 && left <= most), "{left:?}");
        assert!(outer.left().unwrap().0 > left, "the outer call should keep its longer limit");
    }
}

/// The time that a call waits for an A-stack counts against its limit.
#[test]
fn time_limit_includes_waiting_for_an_a_stack() {
    on_each_path(|endpoint| {
        let stage = Stage::new(endpoint, 8);
        let options = BindOptions::default().astacks(1);
        let client = ClockClient::bind_with(&stage.address, &options).unwrap();
        let limit = 4 * MOMENT;
        std::thread::scope(|scope| {
            let first = scope.spawn(|| client.stay());
            support::until("the only A-stack is taken", || {
                stage.seen.entered.load(Ordering::SeqCst) == 1
            });
            let waits = scope.spawn(|| {
                let until = Instant::now() + LONG;
                let begun = Instant::now();
                let left = client.with_deadline(until).left().unwrap().0.unwrap();
                (begun.elapsed(), Duration::from_micros(left), begun.elapsed())
            });
            std::thread::sleep(limit);
            stage.seen.set(true);
            first.join().unwrap().unwrap();
            let (_, left, took) = waits.join().unwrap();
            assert!(left + limit.min(took) / 2 <= LONG, "{left:?} after {took:?}");
        });
    });
}

#[test]
fn call_without_remaining_time_is_not_sent() {
    on_each_path(|endpoint| {
        let stage = Stage::new(endpoint, 8);
        let client = stage.client();
        for limited in [client.with_timeout(Duration::ZERO), client.with_deadline(Instant::now())] {
            let error = limited.count().unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
        }
        client.count().unwrap();
        assert_eq!(stage.seen.counted.load(Ordering::SeqCst), 1);
    });
    let client = ClockClient::in_process(Object { seen: Arc::default(), nested: None });
    let error = client.with_timeout(Duration::ZERO).count().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
}

/// The sockets accept connections or receive datagrams, but never answer.
#[test]
fn binding_without_a_limit_ends_after_five_seconds() {
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addresses = [
        format!("tcp:clock@{}", tcp.local_addr().unwrap()),
        format!("udp:clock@{}", udp.local_addr().unwrap()),
    ];
    std::thread::scope(|scope| {
        for address in addresses {
            scope.spawn(move || {
                let begun = Instant::now();
                let error = ClockClient::bind(&address).expect_err("the server never answers");
                let took = begun.elapsed();
                assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No));
                assert!(took > Duration::from_secs(2) && took < LONG, "{address}: {took:?}");
                println!("{address}: {took:?}, {error}");
            });
        }
    });
}
