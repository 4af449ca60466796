//! Tests callers that are killed or stopped while their procedures wait. On every path, the server notices
//! that a caller is gone, and it keeps no resources for dead callers.

#[path = "attack/mod.rs"]
mod attack;
mod support;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use attack::vitals::Vitals;
use attack::{eventually, no_longer_than};
use peregrine::{BindOptions, Insecure, OnExhausted, Server, interface};
use support::link::{ENDS, Link, at_near_end};
use support::{Process, role};

/// The time limit of events that take at most 2.5 seconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(30);
const CLIENTS: usize = 0;
const SERVERS: usize = 1;
/// The number of callers in each of the client processes that the test kills.
const TOGETHER: u32 = 32;

#[interface]
trait Jobs {
    /// Waits for a job and returns it, or 0 if the call is cancelled.
    fn next(&self) -> peregrine::Result<u64>;
    /// Adds a job.
    fn put(&self, job: u64) -> peregrine::Result<()>;
    /// Returns how many calls wait for a job.
    fn waiting(&self) -> peregrine::Result<u32>;
    /// Returns how many calls have been cancelled so far.
    fn cancelled(&self) -> peregrine::Result<u32>;
    /// Waits until the call is cancelled, and then returns `number` as if nothing had happened.
    fn outlast(&self, number: u64) -> peregrine::Result<u64>;
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<Vec<u64>>,
    waiting: AtomicU32,
    cancelled: AtomicU32,
}

impl Queue {
    /// Waits until `look` finds something, or returns `None` when the call is cancelled.
    fn wait<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let caller = peregrine::caller().expect("a caller");
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            if caller.is_cancelled() {
                self.cancelled.fetch_add(1, Ordering::SeqCst);
                break None;
            }
            if let Some(found) = look() {
                break Some(found);
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        found
    }
}

struct Object(Arc<Queue>);

impl Jobs for Object {
    fn next(&self) -> peregrine::Result<u64> {
        Ok(self.0.wait(|| self.0.jobs.lock().unwrap().pop()).unwrap_or(0))
    }
    fn put(&self, job: u64) -> peregrine::Result<()> {
        self.0.jobs.lock().unwrap().push(job);
        Ok(())
    }
    fn waiting(&self) -> peregrine::Result<u32> {
        Ok(self.0.waiting.load(Ordering::SeqCst))
    }
    fn cancelled(&self) -> peregrine::Result<u32> {
        Ok(self.0.cancelled.load(Ordering::SeqCst))
    }
    fn outlast(&self, number: u64) -> peregrine::Result<u64> {
        let never: Option<()> = self.0.wait(|| None);
        assert!(never.is_none());
        Ok(number)
    }
}

/// Runs in child processes with a role: `server SCHEME`, `next ADDRESS COUNT`, `outlast ADDRESS`. In the test
/// itself this does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    // Over datagrams, the server notices the death of a caller after up to 2.5 seconds, and the procedure
    // runs until then. 64 to 128 threads run such procedures at the same time, so the test takes longer with
    // more callers.
    no_longer_than(Duration::from_secs(100) + Duration::from_millis(100) * callers_to_kill());
    let words: Vec<&str> = role.split(' ').collect();
    match words[0] {
        "server" => {
            let server = Server::new().export("jobs", JobsServer::new(Object(Arc::default())));
            let server = server.unwrap();
            let running = match words[1] {
                "local" => server.spawn(),
                "eth" => {
                    let at = format!("eth:{}:7001", ENDS[SERVERS]);
                    server
                        .listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork)
                        .unwrap()
                        .spawn()
                }
                scheme => server.listen(&format!("{scheme}:127.0.0.1:0")).unwrap().spawn(),
            };
            let running = running.unwrap();
            match running.addresses().first() {
                Some(place) => println!("\nat {place}/jobs"),
                None => println!("\nat local:jobs"),
            }
            running.wait();
        }
        "next" => {
            let count: u32 = words[2].parse().unwrap();
            let options = BindOptions::default().astacks(count).on_exhausted(OnExhausted::More);
            let jobs = JobsClient::bind_with(words[1], &options).unwrap();
            let threads: Vec<_> = (0..count)
                .map(|_| {
                    let jobs = jobs.clone();
                    std::thread::spawn(move || println!("\ngot {:?}", jobs.next()))
                })
                .collect();
            println!("\nready");
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
        "outlast" => {
            let jobs = JobsClient::bind(words[1]).unwrap();
            println!("\nready");
            println!("\ngot {:?}", jobs.outlast(42));
            // The client can still make calls.
            println!("\nthen {:?}", jobs.cancelled());
        }
        other => panic!("unknown role `{other}`"),
    }
}

/// Returns how many callers `many_dead_callers_leave_nothing` kills on each path.
fn callers_to_kill() -> u32 {
    let count = std::env::var("PEREGRINE_DEAD_CALLERS").ok().and_then(|count| count.parse().ok());
    count.unwrap_or(192)
}

/// A server, its address, and what is needed to start its callers.
struct Stage<'a> {
    link: Option<&'a Link>,
    directory: &'a Path,
    server: Process,
    address: String,
}

impl Stage<'_> {
    fn start(&self, role: &str) -> Process {
        match self.link {
            Some(link) => link.start(CLIENTS, "child", role, self.directory),
            None => Process::start("child", role, self.directory),
        }
    }

    /// Binds this process to the server.
    fn bound(&self) -> JobsClient {
        JobsClient::bind(&self.address).unwrap()
    }
}

/// Runs `case` on each of the paths `schemes` that this machine supports. The environment variable
/// `PEREGRINE_PATHS` may exclude some of them.
fn on(schemes: &[&str], case: impl Fn(&Stage<'_>) + Sync) {
    let wanted = std::env::var("PEREGRINE_PATHS").ok();
    let wanted = |scheme: &str| {
        wanted.as_ref().is_none_or(|wanted| wanted.split(',').any(|one| one == scheme))
    };
    for scheme in schemes.iter().filter(|scheme| wanted(scheme)) {
        let directory = support::own_directory();
        let directory = directory.path();
        println!("{scheme}:");
        if *scheme != "eth" {
            let mut server = Process::launch("child", &format!("server {scheme}"), directory);
            let address = server.until("at ");
            case(&Stage { link: None, directory, server, address });
            continue;
        }
        at_near_end(Link::new(), |link| {
            let mut server = link.launch(SERVERS, "child", "server eth", directory);
            let address = server.until("at ");
            case(&Stage { link: Some(link), directory, server, address });
        });
    }
}

const ALL: [&str; 4] = ["local", "tcp", "udp", "eth"];

#[test]
fn job_goes_to_a_live_caller() {
    let _alone = support::alone();
    on(&ALL, |stage| {
        let jobs = stage.bound();
        let mut dead = stage.start(&format!("next {} 1", stage.address));
        assert!(eventually(LIMIT, || jobs.waiting().unwrap() == 1), "the caller waits");
        // Over datagrams, the server treats a caller as dead if the caller answers nothing for 2.5 seconds.
        // This pause is longer. The live caller answers, so the server must not treat it as dead.
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!((jobs.waiting().unwrap(), jobs.cancelled().unwrap()), (1, 0));
        let killed = Instant::now();
        dead.kill();
        assert!(eventually(LIMIT, || jobs.cancelled().unwrap() == 1), "the death is noticed");
        println!("noticed after {:?}", killed.elapsed());
        let mut alive = stage.start(&format!("next {} 1", stage.address));
        assert!(eventually(LIMIT, || jobs.waiting().unwrap() == 1), "another caller waits");
        jobs.put(7).unwrap();
        assert_eq!(alive.until("got "), "Ok(7)");
    });
}

/// The server treats a stopped caller as dead. When the caller continues, it gets the result once.
#[test]
fn stopped_caller_gets_its_result_when_it_continues() {
    let _alone = support::alone();
    on(&["udp", "eth"], |stage| {
        let jobs = stage.bound();
        let mut caller = stage.start(&format!("outlast {}", stage.address));
        assert!(eventually(LIMIT, || jobs.waiting().unwrap() == 1), "the caller waits");
        caller.signal(libc::SIGSTOP);
        assert!(eventually(LIMIT, || jobs.cancelled().unwrap() == 1), "the silence is noticed");
        assert!(eventually(LIMIT, || jobs.waiting().unwrap() == 0), "the procedure has ended");
        std::thread::sleep(Duration::from_secs(1));
        caller.signal(libc::SIGCONT);
        assert_eq!(caller.until("got "), "Ok(42)");
        assert_eq!(caller.until("then "), "Ok(1)");
    });
}

/// `PEREGRINE_DEAD_CALLERS` sets the number of callers on each path, and `PEREGRINE_PATHS` selects the paths.
#[test]
fn many_dead_callers_leave_nothing() {
    let _alone = support::alone();
    let count = callers_to_kill();
    on(&ALL, |stage| {
        let jobs = stage.bound();
        jobs.put(1).unwrap();
        assert_eq!(jobs.next().unwrap(), 1);
        let before = Vitals::of(stage.server.id());
        let (mut killed, mut longest) = (0, Duration::ZERO);
        while killed < count {
            let mut callers = stage.start(&format!("next {} {TOGETHER}", stage.address));
            // At this point, some calls run, some are about to run, and some wait for a thread.
            let begun = Instant::now();
            jobs.waiting().unwrap();
            longest = longest.max(begun.elapsed());
            if killed == 0 {
                assert!(eventually(LIMIT, || jobs.waiting().unwrap() > 0), "some wait");
            }
            std::thread::sleep(Duration::from_millis(u64::from(killed % 5) * 10));
            callers.kill();
            killed += TOGETHER;
        }
        assert!(eventually(LIMIT, || jobs.waiting().unwrap() == 0), "{:?}", jobs.waiting());
        let cancelled = jobs.cancelled().unwrap();
        println!("{killed} killed, {cancelled} had begun; an honest call took {longest:?} at most");
        assert!(cancelled > 0, "no call was cancelled");
        let mut after = before;
        let back = eventually(LIMIT, || {
            // A superfluous thread of the server may sleep until it receives a packet, and can end only then.
            // This call sends such a packet.
            jobs.waiting().unwrap();
            after = Vitals::of(stage.server.id());
            after.is_back_to(before, 8, 64 << 10)
        });
        assert!(back, "{before:?} became {after:?}");
        // The server must serve 48 callers at once. It cannot if dead callers still occupy its threads.
        let mut alive = stage.start(&format!("next {} 48", stage.address));
        assert!(eventually(LIMIT, || jobs.waiting().unwrap() == 48), "{:?}", jobs.waiting());
        for job in 0..48 {
            jobs.put(100 + job).unwrap();
        }
        let mut got: Vec<String> = (0..48).map(|_| alive.until("got ")).collect();
        got.sort_unstable();
        let expected: Vec<String> = (100..148).map(|job| format!("Ok({job})")).collect();
        assert_eq!(got, expected, "each job goes to a live caller once");
    });
}
