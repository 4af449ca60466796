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
    /// Says that it has begun, and takes its time.
    fn long(&self, ms: u32) -> peregrine::Result<()>;
}

#[derive(Default)]
struct Worker {
    began: Arc<AtomicU32>,
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
    fn long(&self, ms: u32) -> peregrine::Result<()> {
        self.began.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(ms.into()));
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
    Long(u32),
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
                    Call::Long(ms) => work.long(ms).map(|()| u64::MAX).unwrap(),
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
        self.done.recv_timeout(Duration::from_secs(20)).expect("an answer")
    }
}

/// Calls that last this long keep their thread busy.
const LONG_MS: u32 = 400;
/// Well below that, and long for anybody who only waits for another thread to come.
const SOON: Duration = Duration::from_millis(LONG_MS as u64 / 2);

/// A server, and callers whose A-stacks one thread has attended to lately.
struct Stage {
    callers: Vec<Caller>,
    began: Arc<AtomicU32>,
    running: peregrine::Running,
}

impl Stage {
    fn new(threads: usize, wait: Wait, callers: u32) -> Self {
        let worker = Worker::default();
        let began = Arc::clone(&worker.began);
        let server = Server::new().threads(threads).wait(wait);
        let running = server.export("work", WorkServer::new(worker)).unwrap().spawn().unwrap();
        let options = BindOptions::default().astacks(callers).wait(wait);
        let work = WorkClient::bind_with("work", &options).unwrap();
        let callers: Vec<_> = (0..callers).map(|_| Caller::new(&work)).collect();
        Self { callers, began, running }
    }

    /// Calls in turn, until one thread of the server has served all of them.
    fn gather(&self) {
        let until = Instant::now() + Duration::from_secs(20);
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

    /// The first caller's call runs for long.
    fn occupy(&self) {
        let before = self.began.load(Ordering::SeqCst);
        self.callers[0].begin(Call::Long(LONG_MS));
        support::until("it has begun", || self.began.load(Ordering::SeqCst) > before);
    }
}

fn relieved(wait: Wait, callers: u32) -> Duration {
    let stage = Stage::new(4, wait, callers);
    let mut longest = Duration::ZERO;
    for _ in 0..2 {
        stage.gather();
        stage.occupy();
        let others = &stage.callers[1..];
        others.iter().for_each(|caller| caller.begin(Call::Quick));
        let waited = others.iter().map(|caller| caller.end().1).max();
        longest = longest.max(waited.unwrap_or_default());
        let (_, long) = stage.callers[0].end();
        assert!(long >= Duration::from_millis(LONG_MS.into()));
    }
    longest
}

#[test]
fn nobody_waits_behind_a_long_procedure() {
    let _alone = alone();
    let _directory = support::own_directory();
    for (wait, callers) in [(Wait::Adaptive, 2), (Wait::Adaptive, 31), (Wait::Block, 8)] {
        let longest = relieved(wait, callers);
        println!("{wait:?}, {callers} A-stacks of one thread: {longest:?}");
        assert!(longest < SOON, "{wait:?}: one of {callers} waited {longest:?}");
    }
}

#[test]
fn behind_the_only_thread_all_wait_and_are_served() {
    let _alone = alone();
    let _directory = support::own_directory();
    let stage = Stage::new(1, Wait::Adaptive, 8);
    stage.gather();
    stage.occupy();
    let others = &stage.callers[1..];
    others.iter().for_each(|caller| caller.begin(Call::Quick));
    let (_, long) = stage.callers[0].end();
    for caller in others {
        let (_, waited) = caller.end();
        assert!(waited > SOON, "one was served in {waited:?}, beside the only thread");
        assert!(waited < long + Duration::from_secs(2), "one waited {waited:?}, and {long:?}");
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
        assert!(longest < Duration::from_secs(2), "a single call took {longest:?}");
        assert!(running.threads() <= threads);
    }
}
