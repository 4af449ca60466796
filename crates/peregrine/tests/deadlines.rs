//! Deadlines and calls that were given up, on every path: what a procedure is told, what does not run.
//!
//! Nothing here depends on how fast the machine is: where a call must have begun, it is made again
//! until it has; what must never be is looked for after something that comes behind it.

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Executed, Kind, Running, Server, interface};
use support::link::{ENDS, Link, at_far_end};

/// What must happen happens within this.
const LONG: Duration = Duration::from_secs(30);
/// How long those wait who give up.
const MOMENT: Duration = Duration::from_millis(40);

#[interface]
trait Clock {
    fn null(&self) -> peregrine::Result<()>;
    /// Microseconds that the caller still waits, and whether it waits no more.
    fn left(&self) -> peregrine::Result<(Option<u64>, bool)>;
    /// The same, as it comes to a server that this one calls.
    fn left_behind(&self) -> peregrine::Result<(Option<u64>, bool)>;
    /// Runs until nobody waits for it; then calls on.
    fn until_cancelled(&self) -> peregrine::Result<()>;
    /// Runs until the door opens.
    fn stay(&self) -> peregrine::Result<()>;
    /// Counts.
    fn count(&self) -> peregrine::Result<()>;
}

/// What the procedures do, as the test sees it.
#[derive(Default)]
struct Seen {
    entered: AtomicU32,
    cancelled: AtomicU32,
    counted: AtomicU32,
    /// What became of a call that was made when nobody waited any more.
    called_on: Mutex<Option<(Kind, Executed)>>,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Seen {
    fn set(&self, open: bool) {
        *self.open.lock().unwrap() = open;
        self.opened.notify_all();
    }
}

struct Hands {
    seen: Arc<Seen>,
    /// Where it calls on.
    behind: Option<ClockClient>,
}

impl Clock for Hands {
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn left(&self) -> peregrine::Result<(Option<u64>, bool)> {
        let caller = peregrine::caller().expect("a caller");
        Ok((caller.remaining().map(|left| left.as_micros() as u64), caller.is_cancelled()))
    }
    fn left_behind(&self) -> peregrine::Result<(Option<u64>, bool)> {
        self.behind.as_ref().expect("a server behind").left()
    }
    fn until_cancelled(&self) -> peregrine::Result<()> {
        self.seen.entered.fetch_add(1, Ordering::SeqCst);
        let caller = peregrine::caller().expect("a caller");
        // From whatever thread.
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
        let behind = self.behind.as_ref().filter(|_| caller.remaining().is_some());
        if let Some(behind) = behind {
            while caller.remaining() > Some(Duration::ZERO) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let error = behind.count().expect_err("nothing is left for that");
            *self.seen.called_on.lock().unwrap() = Some((error.kind(), error.executed()));
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

/// A server at an endpoint (none: this machine's own path), and one behind it on the same path.
struct Stage {
    seen: Arc<Seen>,
    address: String,
    _running: [Running; 2],
}

impl Stage {
    fn new(endpoint: &str, threads: usize) -> Self {
        let seen = Arc::<Seen>::default();
        let serve = |name: &str, behind: Option<ClockClient>| {
            let hands = Hands { seen: Arc::clone(&seen), behind };
            let server = Server::new().threads(threads).export(name, ClockServer::new(hands));
            let server = server.unwrap();
            let start = || match endpoint {
                "" => server.spawn().unwrap(),
                _ => server.listen_beyond_this_machine(endpoint).unwrap().spawn().unwrap(),
            };
            let running = if endpoint.starts_with("eth") { at_far_end(start) } else { start() };
            let address = running.addresses().first().map(|at| format!("{at}/{name}"));
            (running, address.unwrap_or_else(|| name.to_owned()))
        };
        let (behind, address) = serve("behind", None);
        // Who calls on is at the far end too.
        let bind = || ClockClient::bind(&address).unwrap();
        let client = if endpoint.starts_with("eth") { None } else { Some(bind()) };
        let (running, address) = serve("clock", client);
        Self { seen, address, _running: [running, behind] }
    }

    fn client(&self) -> ClockClient {
        ClockClient::bind(&self.address).unwrap()
    }

    /// Does something until it has brought a further call into a procedure.
    fn until_inside(&self, mut what: impl FnMut()) {
        let before = self.seen.entered.load(Ordering::SeqCst);
        support::until("a call runs", || {
            what();
            self.seen.entered.load(Ordering::SeqCst) > before
        });
    }
}

/// Does something on every path of this machine, each in a directory of its own.
fn on_each_path(what: impl Fn(&str)) {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for endpoint in ["", "tcp:127.0.0.1:0", "udp:127.0.0.1:0"] {
        println!("{endpoint:?}");
        what(endpoint);
    }
}

/// The same by frames of our own.
fn on_a_link(what: impl Fn(&str) + Sync) {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            link.enter();
            what(&format!("eth:{}:0", ENDS[1]));
        });
        there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn is_told(endpoint: &str) {
    let stage = Stage::new(endpoint, 8);
    let client = stage.client();
    assert_eq!(client.left().unwrap(), (None, false));
    let (left, cancelled) = client.with_timeout(LONG).left().unwrap();
    assert!(left.is_some_and(|left| (1..=LONG.as_micros() as u64).contains(&left)), "{left:?}");
    assert!(!cancelled);
    // Nothing is left of it for the next one.
    assert_eq!(client.left().unwrap(), (None, false));
    let (later, _) = client.with_deadline(Instant::now() + 2 * LONG).left().unwrap();
    assert!(later > left, "{later:?}");
}

#[test]
fn a_procedure_is_told_what_is_left() {
    on_each_path(is_told);
    let hands = Hands { seen: Arc::default(), behind: None };
    let client = ClockClient::in_process(hands);
    assert_eq!(client.left().unwrap(), (None, false));
    let (left, cancelled) = client.with_timeout(LONG).left().unwrap();
    assert!(left.is_some_and(|left| left <= LONG.as_micros() as u64) && !cancelled, "{left:?}");
    assert_eq!(client.left().unwrap(), (None, false));
}

#[test]
fn a_procedure_is_told_over_raw_ethernet() {
    on_a_link(is_told);
}

fn is_cancelled(endpoint: &str) {
    let stage = Stage::new(endpoint, 8);
    let client = stage.client();
    let hasty = client.with_timeout(MOMENT);
    stage.until_inside(|| {
        // Both sides look at the same moment: the answer may still come in time.
        if let Err(error) = hasty.until_cancelled() {
            assert_eq!(error.kind(), Kind::TimedOut, "{error}");
        }
    });
    let noticed = || stage.seen.cancelled.load(Ordering::SeqCst) > 0;
    support::until("the procedure is told", noticed);
    client.null().unwrap();
    if !endpoint.starts_with("eth") {
        // What it then called was not even sent.
        let called_on = *stage.seen.called_on.lock().unwrap();
        assert_eq!(called_on, Some((Kind::TimedOut, Executed::No)));
        assert_eq!(stage.seen.counted.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn a_procedure_learns_that_its_caller_has_given_up() {
    on_each_path(is_cancelled);
}

#[test]
fn a_procedure_learns_that_over_raw_ethernet() {
    on_a_link(is_cancelled);
}

/// All threads are busy: calls wait, are given up, and do not run when there is a thread again.
fn never_runs(endpoint: &str) {
    let stage = Stage::new(endpoint, 1);
    let client = stage.client();
    let hasty = client.with_timeout(MOMENT);
    let other = stage.client().with_timeout(MOMENT);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| client.stay());
        support::until("the only thread is busy", || {
            stage.seen.entered.load(Ordering::SeqCst) == 1
        });
        let all: Vec<_> = [&hasty, &other, &hasty]
            .map(|client| scope.spawn(|| client.count().unwrap_err()))
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .collect();
        for error in all {
            assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe));
        }
        // What they said then is heard before a thread is free.
        std::thread::sleep(4 * MOMENT);
        stage.seen.set(true);
        busy.join().unwrap().unwrap();
    });
    // As many at a time as waited, so that all of them have had their turn.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..10).for_each(|_| client.null().unwrap()));
        }
    });
    assert_eq!(stage.seen.counted.load(Ordering::SeqCst), 0, "what was given up has run");
    client.count().unwrap();
    assert_eq!(stage.seen.counted.load(Ordering::SeqCst), 1);
}

#[test]
fn a_call_that_was_given_up_while_it_waited_never_runs() {
    on_each_path(never_runs);
}

#[test]
fn nor_does_it_over_raw_ethernet() {
    on_a_link(never_runs);
}

#[test]
fn calls_of_a_procedure_have_no_longer_than_it_has() {
    on_each_path(|endpoint| {
        let stage = Stage::new(endpoint, 8);
        let client = stage.client();
        assert_eq!(client.left_behind().unwrap(), (None, false));
        let (left, _) = client.with_timeout(LONG).left_behind().unwrap();
        assert!(left.is_some_and(|left| left <= LONG.as_micros() as u64), "{left:?}");
        assert_eq!(client.left_behind().unwrap(), (None, false));
    });
    // Within the process, and the other way round: its own limit is the smaller one.
    let hands = |behind| Hands { seen: Arc::default(), behind };
    let inner = ClockClient::in_process(hands(None));
    let short = inner.with_timeout(LONG);
    for (behind, most) in [(inner, 2 * LONG), (short, LONG)] {
        let outer = ClockClient::in_process(hands(Some(behind))).with_timeout(2 * LONG);
        let (left, _) = outer.left_behind().unwrap();
        let most = most.as_micros() as u64;
        assert!(left.is_some_and(|left| left > most / 2 && left <= most), "{left:?}");
        assert!(outer.left().unwrap().0 > left, "its own is as it was");
    }
}

/// What waiting for an A-stack has used up is not there for the call.
#[test]
fn one_limit_is_for_all_that_a_call_waits_for() {
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
fn what_has_no_time_left_is_not_sent() {
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
    let client = ClockClient::in_process(Hands { seen: Arc::default(), behind: None });
    let error = client.with_timeout(Duration::ZERO).count().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
}

/// Whoever listens there says nothing.
#[test]
fn binding_without_a_limit_takes_five_seconds_at_most() {
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
                let error = ClockClient::bind(&address).expect_err("nobody answers");
                let took = begun.elapsed();
                assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No));
                assert!(took > Duration::from_secs(2) && took < LONG, "{address}: {took:?}");
                println!("{address}: {took:?}, {error}");
            });
        }
    });
}
