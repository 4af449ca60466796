//! Threads of a server that are busy: nobody waits behind a long procedure while another thread could
//! serve, and nobody who calls fast keeps others out.

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Server, Wait, interface};
use support::{Part, alone, part};

#[interface]
trait Work {
    /// Which of the server's threads serves it.
    fn quick(&self) -> peregrine::Result<u64>;
    /// Says that it has begun, and ends when it is let go.
    fn long(&self) -> peregrine::Result<()>;
}

#[derive(Default)]
struct Worker {
    began: Arc<AtomicU32>,
    goes: Arc<Mutex<Option<Receiver<()>>>>,
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
        let goes = self.goes.lock().unwrap().take().expect("one at a time");
        self.began.fetch_add(1, Ordering::SeqCst);
        // A test that fails meanwhile drops the other end.
        let _ = goes.recv_timeout(3 * LIMIT);
        Ok(())
    }
}

/// A client process of its own: calls as fast as it can with as many threads as its part says.
#[test]
fn child() {
    let Some(part) = part() else { return };
    let threads: u32 = part.parse().unwrap();
    let work = WorkClient::bind_with("work", &BindOptions::default().astacks(threads)).unwrap();
    println!("\nready");
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| while work.quick().is_ok() {});
        }
    });
}

/// What a caller is to do next.
enum Call {
    Quick,
    Long,
}

/// A thread of the client, which uses an A-stack of its own.
struct Caller {
    calls: Sender<Call>,
    /// Which of the server's threads served it, and how long that took.
    done: Receiver<(u64, Duration)>,
    _thread: JoinHandle<()>,
}

impl Caller {
    fn new(work: &WorkClient) -> Self {
        let ((calls, todo), (tell, done)) = (channel(), channel());
        let work = work.clone();
        let _thread = std::thread::spawn(move || {
            for call in todo {
                let start = Instant::now();
                let thread = match call {
                    Call::Quick => work.quick().unwrap(),
                    Call::Long => work.long().map(|()| u64::MAX).unwrap(),
                };
                if tell.send((thread, start.elapsed())).is_err() {
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

/// For what must happen.
const LIMIT: Duration = Duration::from_secs(20);
/// Long for anybody who only waits for another thread to come, on a machine that does little else.
const SOON: Duration = Duration::from_millis(200);
/// How often it is tried whether the machine does little else.
const TRIES: usize = 10;

/// A server, and callers whose A-stacks one thread has attended to lately.
struct Stage {
    callers: Vec<Caller>,
    began: Arc<AtomicU32>,
    goes: Arc<Mutex<Option<Receiver<()>>>>,
    running: peregrine::Running,
}

impl Stage {
    fn new(threads: usize, wait: Wait, callers: u32) -> Self {
        let worker = Worker::default();
        let (began, goes) = (Arc::clone(&worker.began), Arc::clone(&worker.goes));
        let server = Server::new().threads(threads).wait(wait);
        let running = server.export("work", WorkServer::new(worker)).unwrap().spawn().unwrap();
        let options = BindOptions::default().astacks(callers).wait(wait);
        let work = WorkClient::bind_with("work", &options).unwrap();
        let callers: Vec<_> = (0..callers).map(|_| Caller::new(&work)).collect();
        Self { callers, began, goes, running }
    }

    /// Calls in turn, until one thread of the server has served all of them.
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
                // Threads that sleep by turns never meet; those that are up at one time do.
                self.callers.iter().for_each(|caller| caller.begin(Call::Quick));
                for caller in &self.callers {
                    caller.end();
                }
            }
        }
        panic!("the A-stacks never came to one thread");
    }

    /// The first caller's call runs until it is let go.
    fn occupy(&self) -> Sender<()> {
        let before = self.began.load(Ordering::SeqCst);
        let (go, goes) = channel();
        *self.goes.lock().unwrap() = Some(goes);
        self.callers[0].begin(Call::Long);
        support::until("it has begun", || self.began.load(Ordering::SeqCst) > before);
        go
    }
}

/// How long the others wait at most, all of whom are served while the long procedure runs.
fn relieved(stage: &Stage) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..2 {
        stage.gather();
        let go = stage.occupy();
        let others = &stage.callers[1..];
        others.iter().for_each(|caller| caller.begin(Call::Quick));
        let waited = others.iter().map(|caller| caller.end().1).max();
        longest = longest.max(waited.unwrap_or_default());
        go.send(()).unwrap();
        stage.callers[0].end();
    }
    longest
}

#[test]
fn nobody_waits_behind_a_long_procedure() {
    let _alone = alone();
    let _directory = support::own_directory();
    for (wait, callers) in [(Wait::Adaptive, 2), (Wait::Adaptive, 31), (Wait::Block, 8)] {
        let stage = Stage::new(4, wait, callers);
        let mut all = Vec::new();
        while all.iter().all(|longest| *longest >= SOON) {
            assert!(all.len() < TRIES, "{wait:?}: one of {callers} waited, try by try: {all:?}");
            all.push(relieved(&stage));
        }
        println!("{wait:?}, {callers} A-stacks of one thread: {all:?}");
    }
}

#[test]
fn behind_the_only_thread_all_wait_and_are_served() {
    let _alone = alone();
    let _directory = support::own_directory();
    let stage = Stage::new(1, Wait::Adaptive, 8);
    stage.gather();
    let go = stage.occupy();
    let others = &stage.callers[1..];
    others.iter().for_each(|caller| caller.begin(Call::Quick));
    std::thread::sleep(SOON);
    for caller in others {
        assert!(caller.done.try_recv().is_err(), "one was served beside the only thread");
    }
    go.send(()).unwrap();
    for caller in &stage.callers {
        caller.end();
    }
    assert_eq!(stage.running.threads(), 1);
}

/// Another process calls as fast as it can, with more A-stacks than a thread looks at; single calls
/// come through.
#[test]
fn a_flood_keeps_nobody_out() {
    let _alone = alone();
    for (threads, flood) in [(2, "4"), (1, "40")] {
        let directory = support::own_directory();
        let worker = WorkServer::new(Worker::default());
        let server = Server::new().threads(threads).export("work", worker).unwrap();
        let running = server.spawn().unwrap();
        let work = WorkClient::bind("work").unwrap();
        let _flood = Part::start("child", flood, directory.path());
        let mut longest = Duration::ZERO;
        for _ in 0..100 {
            let start = Instant::now();
            work.quick().unwrap();
            longest = longest.max(start.elapsed());
            std::thread::sleep(Duration::from_millis(2));
        }
        println!("{flood} threads flood {threads} of the server: {longest:?}");
        assert!(longest < LIMIT / 2, "a single call took {longest:?}");
        assert!(running.threads() <= threads);
    }
}
