//! Tests of `FramePool`, the pool of call frames, under a model checker. The checker runs every interleaving
//! of a few threads. `Model` is the `Machine` of these tests.

use super::queue::State;
use super::*;
use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;

#[derive(Debug)]
struct Model;

struct ModelWord {
    value: AtomicU32,
    /// The lock under which [`sleep`](Word::sleep) compares the value, as the kernel's futex does.
    queue: Mutex<()>,
    woken: Condvar,
}

impl Machine for Model {
    type Word = ModelWord;
    type Lock = Mutex<State<Self>>;
    /// Two checks cover all interleavings, because each check may happen at any moment.
    const LOOKS: u32 = 2;
    fn offer_processor() {
        thread::yield_now();
    }
    /// Models a barrier that another thread executes on this thread's processor. Only a barrier between the
    /// store before this call and the load after it matters. So this thread itself executes the barrier here.
    fn keep_order() {
        fence(Ordering::SeqCst);
    }
    fn barrier() {
        fence(Ordering::SeqCst);
    }
    fn waiter() -> Arc<Waiter<Self>> {
        Arc::new(Waiter::new())
    }
    /// Always returns 0, so that the policy of the caller determines whether a check is due. Lets other
    /// threads run.
    fn clock() -> u32 {
        thread::yield_now();
        0
    }
}

impl Word for ModelWord {
    fn new(value: u32) -> Self {
        let value = AtomicU32::new(value);
        Self { value, queue: Mutex::new(()), woken: Condvar::new() }
    }
    fn peek(&self) -> u32 {
        self.value.load(Ordering::Relaxed)
    }
    fn load(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }
    fn store(&self, value: u32) {
        self.value.store(value, Ordering::Release);
    }
    fn exchange(&self, from: u32, to: u32) -> bool {
        let taken = self.value.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }
    /// Short sleeps end at once. Long sleeps end by a wake-up only, so a lost wake-up is a deadlock.
    fn sleep(&self, value: u32, limit: Duration) {
        let mut queue = self.queue.lock().unwrap();
        while limit == LONG && self.load() == value {
            queue = self.woken.wait(queue).unwrap();
        }
    }
    fn wake(&self) {
        let _queue = self.queue.lock().unwrap();
        self.woken.notify_all();
    }
}

impl Lock<Model> for Mutex<State<Model>> {
    fn new(state: State<Model>) -> Self {
        Self::new(state)
    }
    fn lock(&self) -> impl DerefMut<Target = State<Model>> {
        Self::lock(self).unwrap()
    }
}

const LONG: Duration = Duration::MAX;

/// Frames with a count in each frame. Only the caller that holds a frame may change the frame's count.
struct Frames {
    pool: FramePool<Model>,
    counts: Vec<AtomicU32>,
}

impl Frames {
    fn new(count: usize, active: u32) -> Arc<Self> {
        let counts = (0..count).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { pool: FramePool::new(count as u32, active), counts })
    }

    fn take(&self, hint: u32, left: &dyn Fn() -> Duration) -> Option<u32> {
        let policy = WaitPolicy { left, look_every: LONG };
        let slowly = || self.pool.take_slowly(hint, &policy, &|_| false, OnExhausted::Wait);
        self.pool.take(hint).or_else(slowly)
    }

    /// Increments the count of a frame. The increment is deliberately not atomic. A count is lost if two
    /// callers have the frame at once, or if a caller does not see the previous one's store.
    fn count(&self, index: u32) {
        let count = &self.counts[index as usize];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn call(&self, hint: u32) {
        let index = self.take(hint, &|| LONG).expect("a patient caller gets a frame");
        self.count(index);
        self.pool.give_back(index);
    }

    fn counted(&self) -> u32 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Checks that the pool is in its first state: no caller waits, and all frames can be taken.
    fn is_at_rest(&self) {
        let active = self.pool.active();
        assert_eq!((self.pool.waiting(), self.pool.slots.open.load()), (0, active));
        let free = |index: &u32| self.pool.slots.seize(*index);
        assert_eq!((0..active).filter(free).count() as u32, active, "a frame was lost");
    }
}

/// Runs the model in every interleaving with at most `switches` involuntary switches of threads. Lost
/// wake-ups are found with few switches. Without a bound the models take hours.
fn check(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

fn spawn(frames: &Arc<Frames>, f: impl FnOnce(&Frames) + 'static) -> thread::JoinHandle<()> {
    let frames = Arc::clone(frames);
    thread::spawn(move || f(&frames))
}

#[test]
fn two_callers_share_one_frame() {
    check(5, || {
        let frames = Frames::new(1, 1);
        let other = spawn(&frames, |frames| frames.call(1));
        frames.call(0);
        other.join().unwrap();
        assert_eq!(frames.counted(), 2);
        frames.is_at_rest();
    });
}

#[test]
fn three_callers_share_one_frame() {
    check(2, || {
        let frames = Frames::new(1, 1);
        let others = [1, 2].map(|hint| spawn(&frames, move |frames| frames.call(hint)));
        frames.call(0);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(frames.counted(), 3);
        frames.is_at_rest();
    });
}

#[test]
fn frame_given_to_a_caller_that_gives_up_is_not_lost() {
    check(2, || {
        let frames = Frames::new(1, 1);
        assert_eq!(frames.pool.take(0), Some(0));
        let hasty = spawn(&frames, |frames| {
            let asked = core::cell::Cell::new(0);
            let left = || {
                asked.set(asked.get() + 1);
                if asked.get() == 1 { Duration::from_nanos(1) } else { Duration::ZERO }
            };
            if let Some(index) = frames.take(0, &left) {
                frames.count(index);
                frames.pool.give_back(index);
            }
        });
        let patient = spawn(&frames, |frames| frames.call(0));
        frames.pool.give_back(0);
        hasty.join().unwrap();
        patient.join().unwrap();
        assert!((1..=2).contains(&frames.counted()));
        frames.is_at_rest();
    });
}

#[test]
fn shrinking_takes_no_frame_from_a_caller() {
    check(3, || {
        let frames = Frames::new(2, 1);
        frames.pool.queue.inner.activate_free(&frames.pool.slots);
        frames.pool.shrink(&|_| panic!("the first call must not release a frame"));
        assert_eq!(frames.pool.take(0), Some(0));
        let keeper = spawn(&frames, |frames| {
            frames.pool.shrink(&|index| frames.count(index));
        });
        let caller = spawn(&frames, |frames| frames.call(1));
        frames.pool.give_back(0);
        keeper.join().unwrap();
        caller.join().unwrap();
        assert!((1..=2).contains(&frames.counted()));
        frames.is_at_rest();
    });
}

#[test]
fn new_frames_go_to_waiting_callers() {
    check(3, || {
        let frames = Frames::new(2, 1);
        assert_eq!(frames.pool.take(0), Some(0));
        let caller = spawn(&frames, |frames| frames.call(0));
        frames.pool.at_least(2);
        caller.join().unwrap();
        assert_eq!(frames.counted(), 1);
        frames.pool.give_back(0);
        frames.is_at_rest();
    });
}

/// A path whose `is_released` does everything that `is_released` of a connection does: it takes a lock, calls
/// the pool, and finds a frame that another caller returns at the same time.
struct Path {
    input: Mutex<()>,
    replied: AtomicU32,
}

impl Path {
    fn new() -> Arc<Self> {
        Arc::new(Self { input: Mutex::new(()), replied: AtomicU32::new(0) })
    }

    fn is_released(&self, pool: &FramePool<Model>) -> bool {
        let _input = self.input.lock().unwrap();
        // Calls each function of the pool that takes the pool's lock.
        pool.at_least(1);
        pool.reclaim(&|_| panic!("a second thread asks for the same frame"));
        pool.active() == 1 && self.replied.load(Ordering::Acquire) == 1
    }
}

#[test]
fn is_released_may_call_the_pool() {
    check(2, || {
        let (frames, path) = (Frames::new(1, 1), Path::new());
        assert_eq!(frames.pool.take(0), Some(0));
        frames.pool.capture(0);
        let caller = {
            let path = Arc::clone(&path);
            move |frames: &Frames| {
                let policy = WaitPolicy { left: &|| LONG, look_every: Duration::ZERO };
                let is_released = |_| path.is_released(&frames.pool);
                let index = frames.pool.take_slowly(0, &policy, &is_released, OnExhausted::Wait);
                frames.count(index.expect("the released frame"));
                frames.pool.give_back(0);
            }
        };
        let other = spawn(&frames, caller.clone());
        path.replied.store(1, Ordering::Release);
        caller(&frames);
        other.join().unwrap();
        assert_eq!(frames.counted(), 2);
        frames.is_at_rest();
    });
}

/// One caller checks for released frames on behalf of all. When it leaves the queue, another caller must
/// check.
#[test]
fn one_caller_checks_while_any_caller_waits() {
    check(1, || {
        let (frames, path) = (Frames::new(1, 1), Path::new());
        assert_eq!(frames.pool.take(0), Some(0));
        let hasty = {
            let path = Arc::clone(&path);
            spawn(&frames, move |frames| {
                let asked = core::cell::Cell::new(0);
                let left = || {
                    asked.set(asked.get() + 1);
                    if asked.get() == 1 { Duration::from_nanos(1) } else { Duration::ZERO }
                };
                let policy = WaitPolicy { left: &left, look_every: LONG };
                let is_released = |_| path.is_released(&frames.pool);
                let index = frames.pool.take_slowly(0, &policy, &is_released, OnExhausted::Wait);
                index.into_iter().for_each(|index| frames.pool.give_back(index));
            })
        };
        let patient = {
            let path = Arc::clone(&path);
            spawn(&frames, move |frames| {
                let policy = WaitPolicy { left: &|| LONG, look_every: Duration::ZERO };
                let is_released = |_| path.is_released(&frames.pool);
                let index = frames.pool.take_slowly(0, &policy, &is_released, OnExhausted::Wait);
                frames.pool.give_back(index.expect("the released frame"));
            })
        };
        frames.pool.capture(0);
        path.replied.store(1, Ordering::Release);
        hasty.join().unwrap();
        patient.join().unwrap();
        frames.is_at_rest();
    });
}
