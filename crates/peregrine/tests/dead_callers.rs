//! Callers that are killed, or halted, while their procedures wait for something: the server notices,
//! on every path, and keeps nothing for them.

#[path = "attack/mod.rs"]
mod attack;
mod support;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use attack::vitals::Vitals;
use attack::{eventually, no_longer_than};
use peregrine::{BindOptions, OnExhausted, Server, interface};
use support::link::{ENDS, Link, at_near_end};
use support::{Part, part};

/// What takes 2.5 seconds at most, or no time of its own.
const LIMIT: Duration = Duration::from_secs(30);
const CLIENTS: usize = 0;
const SERVERS: usize = 1;
/// Callers in each process that is killed.
const TOGETHER: u32 = 32;

#[interface]
trait Jobs {
    /// Waits for a job, and returns it; 0 if nobody waits for it any more.
    fn next(&self) -> peregrine::Result<u64>;
    /// Adds a job.
    fn put(&self, job: u64) -> peregrine::Result<()>;
    /// How many wait for a job.
    fn waiting(&self) -> peregrine::Result<u32>;
    /// How many learned that nobody waits for them, since the beginning.
    fn cancelled(&self) -> peregrine::Result<u32>;
    /// Waits until nobody waits for it, as far as is known, and returns this number all the same.
    fn outlast(&self, number: u64) -> peregrine::Result<u64>;
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<Vec<u64>>,
    waiting: AtomicU32,
    cancelled: AtomicU32,
}

impl Queue {
    /// Waits for something; `None` if that is of no use any more.
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

/// The parts that children play: `server SCHEME`, `next ADDRESS COUNT`, `outlast ADDRESS`; in the test
/// itself this does nothing.
#[test]
fn child() {
    let Some(part) = part() else { return };
    // A server over datagrams has each dead caller's procedure for 2.5 seconds, and 64 to 128 threads.
    no_longer_than(Duration::from_secs(100) + Duration::from_millis(100) * many());
    let words: Vec<&str> = part.split(' ').collect();
    match words[0] {
        "server" => {
            let server = Server::new().export("jobs", JobsServer::new(Object(Arc::default())));
            let server = server.unwrap();
            let running = match words[1] {
                "local" => server.spawn(),
                "eth" => {
                    let at = format!("eth:{}:7001", ENDS[SERVERS]);
                    server.listen_beyond_this_machine(&at).unwrap().spawn()
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
            // The caller is as good as before.
            println!("\nthen {:?}", jobs.cancelled());
        }
        other => panic!("nobody knows how to play `{other}`"),
    }
}

/// How many callers are killed on each path by the test of many.
fn many() -> u32 {
    let count = std::env::var("PEREGRINE_DEAD_CALLERS").ok().and_then(|count| count.parse().ok());
    count.unwrap_or(192)
}

/// A server and where it is, and how to start its callers.
struct Stage<'a> {
    link: Option<&'a Link>,
    directory: &'a Path,
    server: Part,
    address: String,
}

impl Stage<'_> {
    fn start(&self, part: &str) -> Part {
        match self.link {
            Some(link) => link.start(CLIENTS, "child", part, self.directory),
            None => Part::start("child", part, self.directory),
        }
    }

    /// The server, called by this process.
    fn bound(&self) -> JobsClient {
        JobsClient::bind(&self.address).unwrap()
    }
}

/// Runs a case on these paths, those that there are here.
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
            let mut server = Part::launch("child", &format!("server {scheme}"), directory);
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
fn a_job_goes_to_the_caller_that_lives() {
    let _alone = support::alone();
    on(&ALL, |stage| {
        let jobs = stage.bound();
        let mut dead = stage.start(&format!("next {} 1", stage.address));
        assert!(eventually(LIMIT, || jobs.waiting().unwrap() == 1), "it waits");
        // Longer than a caller may be silent: one that lives is not taken for gone.
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!((jobs.waiting().unwrap(), jobs.cancelled().unwrap()), (1, 0));
        let killed = Instant::now();
        dead.kill();
        assert!(eventually(LIMIT, || jobs.cancelled().unwrap() == 1), "its death is noticed");
        println!("noticed after {:?}", killed.elapsed());
        let mut alive = stage.start(&format!("next {} 1", stage.address));
        assert!(eventually(LIMIT, || jobs.waiting().unwrap() == 1), "another one waits");
        jobs.put(7).unwrap();
        assert_eq!(alive.until("got "), "Ok(7)");
    });
}

/// A caller that was halted is taken for gone. When it goes on it gets the result, once.
#[test]
fn a_caller_that_was_only_halted_gets_its_result() {
    let _alone = support::alone();
    on(&["udp", "eth"], |stage| {
        let jobs = stage.bound();
        let mut caller = stage.start(&format!("outlast {}", stage.address));
        assert!(eventually(LIMIT, || jobs.waiting().unwrap() == 1), "it waits");
        caller.signal(libc::SIGSTOP);
        assert!(eventually(LIMIT, || jobs.cancelled().unwrap() == 1), "its silence is noticed");
        assert!(eventually(LIMIT, || jobs.waiting().unwrap() == 0), "the procedure has ended");
        std::thread::sleep(Duration::from_secs(1));
        caller.signal(libc::SIGCONT);
        assert_eq!(caller.until("got "), "Ok(42)");
        assert_eq!(caller.until("then "), "Ok(1)");
    });
}

/// `PEREGRINE_DEAD_CALLERS` says how many, on each path; `PEREGRINE_PATHS` which paths, if not all.
#[test]
fn many_dead_callers_leave_nothing() {
    let _alone = support::alone();
    let count = many();
    on(&ALL, |stage| {
        let jobs = stage.bound();
        jobs.put(1).unwrap();
        assert_eq!(jobs.next().unwrap(), 1);
        let before = Vitals::of(stage.server.id());
        let (mut killed, mut longest) = (0, Duration::ZERO);
        while killed < count {
            let mut callers = stage.start(&format!("next {} {TOGETHER}", stage.address));
            // Some have begun, some are about to, some wait for a thread.
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
        assert!(cancelled > 0, "nobody learned of anything");
        let mut after = before;
        let back = eventually(LIMIT, || {
            // Threads that sleep in receiving end when they are woken and not needed.
            jobs.waiting().unwrap();
            after = Vitals::of(stage.server.id());
            after.is_back_to(before, 8, 64 << 10)
        });
        assert!(back, "{before:?} became {after:?}");
        // As many callers as the server has threads are served at once: none is held.
        let mut alive = stage.start(&format!("next {} 48", stage.address));
        assert!(eventually(LIMIT, || jobs.waiting().unwrap() == 48), "{:?}", jobs.waiting());
        for job in 0..48 {
            jobs.put(100 + job).unwrap();
        }
        let mut got: Vec<String> = (0..48).map(|_| alive.until("got ")).collect();
        got.sort_unstable();
        let expected: Vec<String> = (100..148).map(|job| format!("Ok({job})")).collect();
        assert_eq!(got, expected, "each job once, to somebody who lives");
    });
}
