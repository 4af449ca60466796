//! Tests servers whose threads are busy. No call waits for a long procedure while another thread is free. A
//! client that calls without pause does not keep the server from serving other clients.

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Server, Wait, interface};
use support::{Process, alone, role};

#[interface]
trait Work {
    /// Returns the number of the server's thread that serves the call.
    fn quick(&self) -> peregrine::Result<u64>;
    /// Counts the call in `began`, and returns when the test sends to `end`.
    fn long(&self) -> peregrine::Result<()>;
}

#[derive(Default)]
struct Worker {
    began: Arc<AtomicU32>,
    end: Arc<Mutex<Option<Receiver<()>>>>,
    threads: Mutex<Vec<ThreadId>>,
}

impl Work for Worker {
    fn quick(&self) -> peregrine::Result<u64> {
        let (mut threads, own) = (self.threads.lock().unwrap(), std::thread::current().id());
        let known = threads.iter().position(|one| *one == own);
        Ok(known.unwrap_or_else(|| {
            threads.push(own);
            threads.len() - 1
        }) as u64)
    }
    fn long(&self) -> peregrine::Result<()> {
        let end = self.end.lock().unwrap().take().expect("only one long call at a time");
        self.began.fetch_add(1, Ordering::SeqCst);
        // `recv_timeout` returns an error if the test has failed and dropped the sender.
        let _ = end.recv_timeout(3 * LIMIT);
        Ok(())
    }
}

/// Runs in client processes. The role is the number of threads, each of which calls without pause.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let threads: u32 = role.parse().unwrap();
    let work = WorkClient::bind_with("work", &BindOptions::default().astacks(threads)).unwrap();
    println!("\nready");
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| while work.quick().is_ok() {});
        }
    });
}

/// The procedure that a caller calls next.
enum Call {
    Quick,
    Long,
}

/// A thread of the client with its own A-stack.
struct Caller {
    calls: Sender<Call>,
    /// The number of the server's thread that served the call, and the duration of the call.
    done: Receiver<(u64, Duration)>,
    _thread: JoinHandle<()>,
}

impl Caller {
    fn new(work: &WorkClient) -> Self {
        let ((calls, todo), (report, done)) = (channel(), channel());
        let work = work.clone();
        let _thread = std::thread::spawn(move || {
            for call in todo {
                let start = Instant::now();
                let thread = match call {
                    Call::Quick => work.quick().unwrap(),
                    Call::Long => work.long().map(|()| u64::MAX).unwrap(),
                };
                if report.send((thread, start.elapsed())).is_err() {
                    break;
                }
            }
        });
        Self { calls, done, _thread }
    }

    fn begin(&self, call: Call) {
        self.calls.send(call).unwrap();
    }

    fn end(&self) -> (u64, Duration) {
        self.done.recv_timeout(LIMIT).expect("an answer")
    }
}

/// The time limit of events that must happen.
const LIMIT: Duration = Duration::from_secs(20);
/// On an otherwise idle machine, a free thread of the server starts polling in less than this time.
const SOON: Duration = Duration::from_millis(200);
/// The greatest number of times that a test is tried, because the machine may be busy.
const TRIES: usize = 10;

/// A server, and callers in this process. After `gather`, one thread of the server polls the A-stacks (call
/// frames) of all callers.
struct Stage {
    callers: Vec<Caller>,
    began: Arc<AtomicU32>,
    end: Arc<Mutex<Option<Receiver<()>>>>,
    running: peregrine::Running,
}

impl Stage {
    fn new(threads: usize, wait: Wait, callers: u32) -> Self {
        let worker = Worker::default();
        let (began, end) = (Arc::clone(&worker.began), Arc::clone(&worker.end));
        let server = Server::new().threads(threads).wait(wait);
        let running = server.export("work", WorkServer::new(worker)).unwrap().spawn().unwrap();
        let options = BindOptions::default().astacks(callers).wait(wait);
        let work = WorkClient::bind_with("work", &options).unwrap();
        let callers: Vec<_> = (0..callers).map(|_| Caller::new(&work)).collect();
        Self { callers, began, end, running }
    }

    /// Lets the callers call one by one, until one thread of the server serves all of them.
    fn gather(&self) {
        let until = Instant::now() + LIMIT;
        for round in 1.. {
            let one_by_one = self.callers.iter().map(|caller| {
                caller.begin(Call::Quick);
                caller.end().0
            });
            let threads: Vec<u64> = one_by_one.collect();
            if threads.iter().all(|thread| *thread == threads[0]) {
                return;
            }
            if Instant::now() >= until {
                break;
            }
            if round % 10 == 0 {
                // If the server's threads sleep alternately, none of them takes over the A-stacks of another
                // thread. Concurrent calls keep the threads awake at the same time.
                self.callers.iter().for_each(|caller| caller.begin(Call::Quick));
                for caller in &self.callers {
                    caller.end();
                }
            }
        }
        panic!("no thread serves all A-stacks");
    }

    /// Lets the first caller begin a long call, and returns when the procedure of that call runs. The
    /// procedure ends when the test sends to the returned sender.
    fn occupy(&self) -> Sender<()> {
        let before = self.began.load(Ordering::SeqCst);
        let (sender, end) = channel();
        *self.end.lock().unwrap() = Some(end);
        self.callers[0].begin(Call::Long);
        support::until("the long procedure has begun", || {
            self.began.load(Ordering::SeqCst) > before
        });
        sender
    }
}

/// Returns the longest time for which a caller waits while the long procedure of another caller runs. All
/// callers must be served during that procedure.
fn longest_wait_during_long_procedure(stage: &Stage) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..2 {
        stage.gather();
        let end = stage.occupy();
        let others = &stage.callers[1..];
        others.iter().for_each(|caller| caller.begin(Call::Quick));
        let waited = others.iter().map(|caller| caller.end().1).max();
        longest = longest.max(waited.unwrap_or_default());
        end.send(()).unwrap();
        stage.callers[0].end();
    }
    longest
}

#[test]
fn calls_do_not_wait_for_a_long_procedure() {
    let _alone = alone();
    let _directory = support::own_directory();
    for (wait, callers) in [(Wait::Adaptive, 2), (Wait::Adaptive, 31), (Wait::Block, 8)] {
        let stage = Stage::new(4, wait, callers);
        let mut all = Vec::new();
        while all.iter().all(|longest| *longest >= SOON) {
            assert!(all.len() < TRIES, "{wait:?}: one of {callers} waited; longest waits: {all:?}");
            all.push(longest_wait_during_long_procedure(&stage));
        }
        println!("{wait:?}, {callers} A-stacks of one thread: {all:?}");
    }
}

#[test]
fn calls_wait_while_the_only_thread_is_busy_and_are_then_served() {
    let _alone = alone();
    let _directory = support::own_directory();
    let stage = Stage::new(1, Wait::Adaptive, 8);
    stage.gather();
    let end = stage.occupy();
    let others = &stage.callers[1..];
    others.iter().for_each(|caller| caller.begin(Call::Quick));
    std::thread::sleep(SOON);
    for caller in others {
        assert!(
            caller.done.try_recv().is_err(),
            "a call was served while the only thread was busy"
        );
    }
    end.send(()).unwrap();
    for caller in &stage.callers {
        caller.end();
    }
    assert_eq!(stage.running.threads(), 1);
}

/// Another process calls without pause, with more A-stacks than a thread polls. The server must still serve
/// single calls of the test's process.
#[test]
fn flood_of_calls_does_not_block_other_clients() {
    let _alone = alone();
    for (threads, flood) in [(2, "4"), (1, "40")] {
        let directory = support::own_directory();
        let worker = WorkServer::new(Worker::default());
        let server = Server::new().threads(threads).export("work", worker).unwrap();
        let running = server.spawn().unwrap();
        let work = WorkClient::bind("work").unwrap();
        let _flood = Process::start("child", flood, directory.path());
        let mut longest = Duration::ZERO;
        for _ in 0..100 {
            let start = Instant::now();
            work.quick().unwrap();
            longest = longest.max(start.elapsed());
            std::thread::sleep(Duration::from_millis(2));
        }
        println!("{flood} calling threads, {threads} server threads: {longest:?}");
        assert!(longest < LIMIT / 2, "a single call took {longest:?}");
        assert!(running.threads() <= threads);
    }
}
