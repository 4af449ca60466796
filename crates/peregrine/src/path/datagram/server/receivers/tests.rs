//! Tests of who receives, with jobs instead of datagrams.

use super::*;
use std::collections::HashSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ThreadId;

/// A socket that is none: jobs in a queue, threads that sleep on it.
struct Jobs {
    jobs: Mutex<VecDeque<Job>>,
    come: Condvar,
    closed: AtomicBool,
    seen: Mutex<HashSet<ThreadId>>,
    refused: AtomicU32,
    /// Threads that wait inside, as the test has it.
    inside: Arc<AtomicU32>,
    panics: AtomicU32,
    /// Threads that receive, those of them that were told that they are alone, and how often one was
    /// that was not. Changed under the lock of the jobs.
    receiving: AtomicU32,
    alone: AtomicU32,
    not_alone: AtomicU32,
}

/// Takes so long, or until it is let go, then tells; panics if it would take for ever.
struct Job {
    time: Duration,
    gate: Option<Receiver<()>>,
    done: Sender<()>,
    inside: bool,
}

impl PacketService for Arc<Jobs> {
    type ReceiverState = ();
    type Work = Job;
    fn receiver(&self) -> io::Result<()> {
        Ok(())
    }
    fn receive(&self, (): &mut (), how: How, alone: bool) -> Got<Job> {
        let mut jobs = self.jobs.lock();
        let others = self.receiving.fetch_add(1, Ordering::SeqCst);
        let another_is_alone = self.alone.fetch_add(alone.into(), Ordering::SeqCst) > 0;
        let wrong = another_is_alone || alone && others > 0;
        self.not_alone.fetch_add(wrong.into(), Ordering::SeqCst);
        let got = loop {
            match jobs.pop_front() {
                Some(job) => break Got::Work(job),
                None if how == How::Look || self.closed.load(Ordering::SeqCst) => {
                    break Got::Nothing;
                }
                None => jobs = self.come.wait(jobs),
            }
        };
        self.receiving.fetch_sub(1, Ordering::SeqCst);
        self.alone.fetch_sub(alone.into(), Ordering::SeqCst);
        got
    }
    fn release_expected(&self, (): &mut ()) {}
    fn run(&self, (): &mut (), Job { time, gate, done, .. }: Job) -> u64 {
        assert!(time < Duration::MAX, "on purpose");
        self.seen.lock().insert(std::thread::current().id());
        std::thread::sleep(time);
        let _ = gate.map(|gate| gate.recv());
        let ended = sys::boot_ns();
        let _ = done.send(());
        ended
    }
    fn detach(&self, (): &mut (), job: Job) -> Option<Job> {
        Some(job)
    }
    fn refuse(&self, (): &mut (), _: Job, _: &Refusal) {
        self.refused.fetch_add(1, Ordering::SeqCst);
    }
    fn caller(&self, _: &Job) -> u32 {
        0
    }
    fn is_from_inside(&self, (): &mut (), job: &mut Job) -> bool {
        job.inside
    }
    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        drop(self.jobs.lock());
        self.come.notify_all();
    }
    fn panicked(&self, _: Box<dyn Any + Send>) {
        self.panics.fetch_add(1, Ordering::SeqCst);
    }
}

fn receivers(wait: Wait, bound: usize, queue: usize) -> (Arc<Jobs>, Arc<Receivers<Arc<Jobs>>>) {
    let inside = Arc::<AtomicU32>::default();
    let jobs = Arc::new(Jobs {
        jobs: Mutex::default(),
        come: Condvar::new(),
        closed: AtomicBool::new(false),
        seen: Mutex::default(),
        refused: AtomicU32::new(0),
        inside: Arc::clone(&inside),
        panics: AtomicU32::new(0),
        receiving: AtomicU32::new(0),
        alone: AtomicU32::new(0),
        not_alone: AtomicU32::new(0),
    });
    let admission = Admission::with_nested(bound, queue, move || inside.load(Ordering::SeqCst));
    let receivers = Receivers::start(Arc::clone(&jobs), wait, admission).unwrap();
    (jobs, receivers)
}

impl Jobs {
    fn send(&self, time: Duration) -> Receiver<()> {
        let (done, end) = channel();
        self.push(Job { time, gate: None, done, inside: false });
        end
    }

    fn push(&self, job: Job) {
        self.jobs.lock().push_back(job);
        self.come.notify_one();
    }

    /// A job that ends when it is told to: how to tell it, and its end.
    fn gated(&self, inside: bool) -> (Sender<()>, Receiver<()>) {
        let ((open, gate), (done, end)) = (channel(), channel());
        self.push(Job { time: Duration::ZERO, gate: Some(gate), done, inside });
        (open, end)
    }
}

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn nobody_waits_behind_a_long_procedure() {
    for wait in [Wait::Block, Wait::Adaptive, Wait::Spin] {
        let (jobs, receivers) = receivers(wait, 4, 16);
        // Whoever looks has run something lately.
        for _ in 0..100 {
            jobs.send(Duration::ZERO).recv_timeout(LIMIT).unwrap();
        }
        let long = [(); 3].map(|()| jobs.gated(false));
        // While these run, for as long as they have to.
        for _ in 0..20 {
            let short = jobs.send(Duration::ZERO).recv_timeout(LIMIT);
            short.unwrap_or_else(|_| panic!("{wait:?}: it waits behind long procedures"));
        }
        for (open, end) in long {
            open.send(()).unwrap();
            end.recv_timeout(LIMIT).unwrap();
        }
        // Nothing has happened for so long that there is no deputy any more.
        std::thread::sleep(WATCH_MAX * (WATCHES + 30));
        let (open, end) = jobs.gated(false);
        let short = jobs.send(Duration::ZERO).recv_timeout(LIMIT);
        short.unwrap_or_else(|_| panic!("{wait:?}: it waits behind a long procedure"));
        open.send(()).unwrap();
        end.recv_timeout(LIMIT).unwrap();
        assert!(receivers.stop(LIMIT));
        assert_eq!(receivers.threads(), 0);
    }
}

#[test]
fn the_bound_holds_and_what_is_beyond_it_waits_or_is_refused() {
    let (jobs, receivers) = receivers(Wait::Adaptive, 2, 3);
    let short = Duration::from_millis(50);
    let ends: Vec<_> = (0..8).map(|_| jobs.send(short)).collect();
    let ran = ends.iter().filter(|end| end.recv_timeout(LIMIT).is_ok()).count();
    assert!((5..=8).contains(&ran), "{ran} ran");
    assert_eq!(ran + jobs.refused.load(Ordering::SeqCst) as usize, 8);
    assert!(receivers.threads() <= 3);
    assert!(jobs.seen.lock().len() <= 3);
    assert!(receivers.rest(&Drain::new(LIMIT, Arc::default())));
    assert!(receivers.stop(LIMIT));
}

#[test]
fn captured_threads_are_replaced() {
    let (jobs, receivers) = receivers(Wait::Adaptive, 2, 16);
    let captured = [(); 2].map(|()| jobs.gated(false));
    let waits = jobs.send(Duration::ZERO);
    assert!(waits.recv_timeout(Duration::from_millis(50)).is_err(), "the bound holds");
    receivers.admission().captured(2, 0);
    for _ in 0..20 {
        jobs.send(Duration::ZERO).recv_timeout(LIMIT).expect("a call that waits for no thread");
    }
    waits.recv_timeout(LIMIT).expect("what waited goes first");
    assert!(receivers.threads() <= 5, "{}", receivers.threads());
    receivers.admission().captured(0, 2);
    for (open, end) in captured {
        open.send(()).unwrap();
        end.recv_timeout(LIMIT).unwrap();
    }
    jobs.send(Duration::ZERO).recv_timeout(LIMIT).unwrap();
    assert!(receivers.stop(LIMIT));
}

#[test]
fn threads_end_that_are_not_needed_after_long_procedures() {
    for wait in [Wait::Block, Wait::Adaptive] {
        let (jobs, receivers) = receivers(wait, 48, 16);
        let long: Vec<_> = (0..48).map(|_| jobs.gated(false)).collect();
        let until = |what: &str, is_so: &dyn Fn() -> bool| {
            let until = Instant::now() + LIMIT;
            while !is_so() {
                assert!(
                    Instant::now() < until,
                    "{wait:?}: {what}: {} threads",
                    receivers.threads()
                );
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        until("they do not run", &|| receivers.admission().running() == 48);
        for (open, end) in long {
            open.send(()).unwrap();
            end.recv_timeout(LIMIT).unwrap();
        }
        // Nothing comes that could wake a thread.
        until("too many stay", &|| receivers.threads() <= ASLEEP_MAX as usize);
        // Those that are left serve as many again.
        let long: Vec<_> = (0..48).map(|_| jobs.gated(false)).collect();
        until("they do not run again", &|| receivers.admission().running() == 48);
        for (open, end) in long {
            open.send(()).unwrap();
            end.recv_timeout(LIMIT).unwrap();
        }
        assert!(receivers.stop(LIMIT));
    }
}

/// A thread that receives alone takes what comes next for its own. Where procedures have become short
/// again, there is a head, and beside it a thread that has slept in the kernel since they were long.
#[test]
fn thread_is_alone_only_if_no_other_one_sleeps_in_the_kernel() {
    for wait in [Wait::Block, Wait::Adaptive] {
        let (jobs, receivers) = receivers(wait, 4, 16);
        for _ in 0..30 {
            let long = [(); 3].map(|()| jobs.send(Duration::from_micros(500)));
            long.iter().for_each(|end| end.recv_timeout(LIMIT).unwrap());
            for _ in 0..40 {
                jobs.send(Duration::ZERO).recv_timeout(LIMIT).unwrap();
            }
        }
        assert_eq!(jobs.not_alone.load(Ordering::SeqCst), 0, "{wait:?}");
        assert!(receivers.stop(LIMIT));
        assert_eq!(receivers.receiving.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn nothing_is_lost_by_a_single_receiver() {
    for wait in [Wait::Block, Wait::Adaptive] {
        let (jobs, receivers) = receivers(wait, 1, 10_000);
        let ends: Vec<_> = (0..2000).map(|_| jobs.send(Duration::ZERO)).collect();
        ends.iter().for_each(|end| end.recv_timeout(LIMIT).unwrap());
        assert!(receivers.threads() <= 2);
        assert!(receivers.stop(LIMIT));
    }
}

#[test]
fn a_call_from_inside_is_found_in_the_queue() {
    for wait in [Wait::Block, Wait::Adaptive] {
        let (jobs, receivers) = receivers(wait, 1, 16);
        let runs = |count| {
            let until = Instant::now() + LIMIT;
            while receivers.admission().running() != count {
                assert!(Instant::now() < until, "{count} do not run");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let queued = |count| {
            let until = Instant::now() + LIMIT;
            while receivers.state().queue.len() != count {
                assert!(Instant::now() < until, "{count} are not queued");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        // One runs, and waits inside for another one, which has ended but for its thread.
        let (first, first_end) = jobs.gated(false);
        runs(1);
        jobs.inside.store(1, Ordering::SeqCst);
        let (before, before_end) = jobs.gated(true);
        runs(2);
        // So the next that it waits for comes too early, and behind somebody else's.
        let (outer, outer_end) = jobs.gated(false);
        queued(1);
        let (next, next_end) = jobs.gated(true);
        queued(2);
        outer.send(()).unwrap();
        next.send(()).unwrap();
        before.send(()).unwrap();
        before_end.recv_timeout(LIMIT).unwrap();
        next_end.recv_timeout(LIMIT).expect("nobody ran the call from inside");
        assert!(outer_end.try_recv().is_err(), "the bound does not hold");
        jobs.inside.store(0, Ordering::SeqCst);
        first.send(()).unwrap();
        first_end.recv_timeout(LIMIT).unwrap();
        outer_end.recv_timeout(LIMIT).unwrap();
        assert!(receivers.stop(LIMIT));
    }
}

#[test]
fn thread_that_panics_takes_its_own_place() {
    const PANICS: u32 = 40;
    for wait in [Wait::Block, Wait::Adaptive, Wait::Spin] {
        let (jobs, receivers) = receivers(wait, 2, 100);
        for _ in 0..PANICS / 2 {
            // Its end is the sender, dropped while the thread unwinds.
            assert!(jobs.send(Duration::MAX).recv_timeout(LIMIT).is_err());
            let (open, end) = jobs.gated(false);
            assert!(jobs.send(Duration::MAX).recv_timeout(LIMIT).is_err());
            jobs.send(Duration::ZERO).recv_timeout(LIMIT).unwrap();
            open.send(()).unwrap();
            end.recv_timeout(LIMIT).unwrap();
        }
        assert!(receivers.threads() <= 3, "{} threads", receivers.threads());
        assert!(receivers.rest(&Drain::new(LIMIT, Arc::default())), "a call is counted as running");
        assert!(receivers.stop(LIMIT));
        assert_eq!(receivers.threads(), 0);
        assert_eq!(receivers.receiving.load(Ordering::SeqCst), 0);
        // A thread tells of its panic after its job has ended.
        assert_eq!(jobs.panics.load(Ordering::SeqCst), PANICS);
    }
}
