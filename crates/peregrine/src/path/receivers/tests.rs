//! Tests how the server chooses its receiving threads. The threads receive jobs, in place of datagrams.

use super::*;
use std::collections::HashSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ThreadId;

/// A queue of jobs, in place of a socket. Threads sleep until a job arrives in the queue.
struct Jobs {
    jobs: Mutex<VecDeque<Job>>,
    arrived: Condvar,
    closed: AtomicBool,
    seen: Mutex<HashSet<ThreadId>>,
    refused: AtomicU32,
    /// The number of threads that wait for nested calls. Each test sets this number.
    inside: Arc<AtomicU32>,
    panics: AtomicU32,
    /// The number of threads that receive. This number and the next two numbers change only under the lock of
    /// `jobs`.
    receiving: AtomicU32,
    /// The number of threads that receive with `alone` set.
    alone: AtomicU32,
    /// How often `alone` was set although another thread received.
    not_alone: AtomicU32,
}

/// A job that takes `time`, then waits until its gate opens, and then reports that it has ended. If `time` is
/// [`Duration::MAX`], the job panics.
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
    fn receive(&self, (): &mut (), mode: ReceiveMode, alone: bool) -> ReceiveOutcome<Job> {
        let mut jobs = self.jobs.lock();
        let others = self.receiving.fetch_add(1, Ordering::SeqCst);
        let another_is_alone = self.alone.fetch_add(alone.into(), Ordering::SeqCst) > 0;
        let wrong = another_is_alone || alone && others > 0;
        self.not_alone.fetch_add(wrong.into(), Ordering::SeqCst);
        let got = loop {
            match jobs.pop_front() {
                Some(job) => break ReceiveOutcome::Work(job),
                None if mode == ReceiveMode::Poll || self.closed.load(Ordering::SeqCst) => {
                    break ReceiveOutcome::Nothing;
                }
                None => jobs = self.arrived.wait(jobs),
            }
        };
        self.receiving.fetch_sub(1, Ordering::SeqCst);
        self.alone.fetch_sub(alone.into(), Ordering::SeqCst);
        got
    }
    fn release_expected(&self, (): &mut ()) {}
    fn run(&self, (): &mut (), Job { time, gate, done, .. }: Job) -> u64 {
        assert!(time < Duration::MAX, "the test requests a panic");
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
        self.arrived.notify_all();
    }
    fn panicked(&self, _: Box<dyn Any + Send>) {
        self.panics.fetch_add(1, Ordering::SeqCst);
    }
}

fn receivers(wait: Wait, bound: usize, queue: usize) -> (Arc<Jobs>, Arc<Receivers<Arc<Jobs>>>) {
    let inside = Arc::<AtomicU32>::default();
    let jobs = Arc::new(Jobs {
        jobs: Mutex::default(),
        arrived: Condvar::new(),
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
        self.arrived.notify_one();
    }

    /// Pushes a job that ends when its gate opens. Returns the sender that opens the gate, and the receiver
    /// that reports the end.
    fn gated(&self, inside: bool) -> (Sender<()>, Receiver<()>) {
        let ((open, gate), (done, end)) = (channel(), channel());
        self.push(Job { time: Duration::ZERO, gate: Some(gate), done, inside });
        (open, end)
    }
}

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn no_thread_has_the_service_after_the_stop() {
    for wait in [Wait::Block, Wait::Adaptive] {
        for _ in 0..200 {
            let (jobs, receivers) = receivers(wait, 4, 4);
            assert!(receivers.stop(Duration::from_secs(20)));
            drop(receivers);
            assert_eq!(Arc::strong_count(&jobs), 1);
        }
    }
}

#[test]
fn short_procedures_do_not_wait_for_long_ones() {
    for wait in [Wait::Block, Wait::Adaptive, Wait::Spin] {
        let (jobs, receivers) = receivers(wait, 4, 16);
        // After these jobs, threads poll.
        for _ in 0..100 {
            jobs.send(Duration::ZERO).recv_timeout(LIMIT).unwrap();
        }
        let long = [(); 3].map(|()| jobs.gated(false));
        // The gates stay closed, so the long jobs run during this whole loop.
        for _ in 0..20 {
            let short = jobs.send(Duration::ZERO).recv_timeout(LIMIT);
            short.unwrap_or_else(|_| panic!("{wait:?}: a short procedure waits for long ones"));
        }
        for (open, end) in long {
            open.send(()).unwrap();
            end.recv_timeout(LIMIT).unwrap();
        }
        // The deputy is the thread that checks whether the receiving thread is in a long job. After this
        // time without events, the deputy has stopped checking. Even then, a short job must not wait for a
        // long one.
        std::thread::sleep(WATCH_MAX * (WATCHES + 30));
        let (open, end) = jobs.gated(false);
        let short = jobs.send(Duration::ZERO).recv_timeout(LIMIT);
        short.unwrap_or_else(|_| panic!("{wait:?}: a short procedure waits for a long one"));
        open.send(()).unwrap();
        end.recv_timeout(LIMIT).unwrap();
        assert!(receivers.stop(LIMIT));
        assert_eq!(receivers.threads(), 0);
    }
}

#[test]
fn calls_beyond_the_limit_are_queued_or_refused() {
    let (jobs, receivers) = receivers(Wait::Adaptive, 2, 3);
    let short = Duration::from_millis(50);
    let ends: Vec<_> = (0..8).map(|_| jobs.send(short)).collect();
    let ran = ends.iter().filter(|end| end.recv_timeout(LIMIT).is_ok()).count();
    assert!((5..=8).contains(&ran), "{ran} ran");
    assert_eq!(ran + jobs.refused.load(Ordering::SeqCst) as usize, 8);
    assert!(receivers.threads() <= 3);
    assert!(jobs.seen.lock().len() <= 3);
    assert!(receivers.drain(&Drain::new(LIMIT, Arc::default())));
    assert!(receivers.stop(LIMIT));
}

#[test]
fn captured_threads_are_replaced() {
    let (jobs, receivers) = receivers(Wait::Adaptive, 2, 16);
    let captured = [(); 2].map(|()| jobs.gated(false));
    let waits = jobs.send(Duration::ZERO);
    assert!(waits.recv_timeout(Duration::from_millis(50)).is_err(), "a call runs beyond the limit");
    receivers.admission().captured(2, 0);
    for _ in 0..20 {
        jobs.send(Duration::ZERO).recv_timeout(LIMIT).expect("captured threads were not replaced");
    }
    waits.recv_timeout(LIMIT).expect("the queued call did not run");
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
fn surplus_threads_end_after_long_procedures() {
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
        until("48 jobs do not run", &|| receivers.admission().running() == 48);
        for (open, end) in long {
            open.send(()).unwrap();
            end.recv_timeout(LIMIT).unwrap();
        }
        // No further job arrives that could wake a sleeping thread.
        until("too many threads stay", &|| receivers.threads() <= ASLEEP_MAX as usize);
        // The remaining threads can start further threads again.
        let long: Vec<_> = (0..48).map(|_| jobs.gated(false)).collect();
        until("48 jobs do not run again", &|| receivers.admission().running() == 48);
        for (open, end) in long {
            open.send(()).unwrap();
            end.recv_timeout(LIMIT).unwrap();
        }
        assert!(receivers.stop(LIMIT));
    }
}

/// A thread that receives alone borrows memory for the next pieces. So no thread may count as alone while
/// another thread sleeps in the kernel: the sleeping thread may receive the next piece. Such a sleeping
/// thread can be left over from a time when procedures took long.
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
fn single_receiver_loses_nothing() {
    for wait in [Wait::Block, Wait::Adaptive] {
        let (jobs, receivers) = receivers(wait, 1, 10_000);
        let ends: Vec<_> = (0..2000).map(|_| jobs.send(Duration::ZERO)).collect();
        ends.iter().for_each(|end| end.recv_timeout(LIMIT).unwrap());
        assert!(receivers.threads() <= 2);
        assert!(receivers.stop(LIMIT));
    }
}

#[test]
fn queued_nested_call_runs_before_earlier_calls() {
    for wait in [Wait::Block, Wait::Adaptive] {
        let (jobs, receivers) = receivers(wait, 1, 16);
        let runs = |count| {
            let until = Instant::now() + LIMIT;
            while receivers.admission().running() != count {
                assert!(Instant::now() < until, "the number of running jobs is not {count}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let queued = |count| {
            let until = Instant::now() + LIMIT;
            while receivers.state().queue.len() != count {
                assert!(Instant::now() < until, "the number of queued jobs is not {count}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        // The first job runs, and waits for a nested call. The job `before` imitates an earlier nested call.
        // That call has ended, but its thread still counts as running.
        let (first, first_end) = jobs.gated(false);
        runs(1);
        jobs.inside.store(1, Ordering::SeqCst);
        let (before, before_end) = jobs.gated(true);
        runs(2);
        // The thread of `before` still counts as running, so the next nested job may not run yet. That job is
        // queued after a job of another caller.
        let (outer, outer_end) = jobs.gated(false);
        queued(1);
        let (next, next_end) = jobs.gated(true);
        queued(2);
        outer.send(()).unwrap();
        next.send(()).unwrap();
        before.send(()).unwrap();
        before_end.recv_timeout(LIMIT).unwrap();
        next_end.recv_timeout(LIMIT).expect("no thread ran the nested call");
        assert!(outer_end.try_recv().is_err(), "the limit is exceeded");
        jobs.inside.store(0, Ordering::SeqCst);
        first.send(()).unwrap();
        first_end.recv_timeout(LIMIT).unwrap();
        outer_end.recv_timeout(LIMIT).unwrap();
        assert!(receivers.stop(LIMIT));
    }
}

#[test]
fn thread_continues_to_receive_after_a_panic() {
    const PANICS: u32 = 40;
    for wait in [Wait::Block, Wait::Adaptive, Wait::Spin] {
        let (jobs, receivers) = receivers(wait, 2, 100);
        for _ in 0..PANICS / 2 {
            // Unwinding drops the sending end of the job's channel. So receiving the report fails.
            assert!(jobs.send(Duration::MAX).recv_timeout(LIMIT).is_err());
            let (open, end) = jobs.gated(false);
            assert!(jobs.send(Duration::MAX).recv_timeout(LIMIT).is_err());
            jobs.send(Duration::ZERO).recv_timeout(LIMIT).unwrap();
            open.send(()).unwrap();
            end.recv_timeout(LIMIT).unwrap();
        }
        assert!(receivers.threads() <= 3, "{} threads", receivers.threads());
        assert!(
            receivers.drain(&Drain::new(LIMIT, Arc::default())),
            "a call is counted as running"
        );
        assert!(receivers.stop(LIMIT));
        assert_eq!(receivers.threads(), 0);
        assert_eq!(receivers.receiving.load(Ordering::SeqCst), 0);
        // A thread reports its panic only after its job has ended. So the number of panics is checked last.
        assert_eq!(jobs.panics.load(Ordering::SeqCst), PANICS);
    }
}
