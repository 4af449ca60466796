//! Tests of `FramePool` with callers that are futures.

use core::sync::atomic::AtomicUsize;
use std::task::Wake;
use std::thread;
use std::time::Instant;

use super::*;

const LONG: Duration = Duration::from_secs(10);

/// Counts the times that a future was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future that takes a frame when it is polled.
struct Waits<'a> {
    pool: &'a FramePool,
    ticket: Option<u64>,
    woken: Arc<Woken>,
}

impl<'a> Waits<'a> {
    fn new(pool: &'a FramePool) -> Self {
        Self { pool, ticket: None, woken: Arc::default() }
    }

    fn poll(&mut self) -> Option<u32> {
        self.poll_as(OnExhausted::Wait)
    }

    fn poll_as(&mut self, on_exhausted: OnExhausted) -> Option<u32> {
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.pool.take_for_future(0, &|_| false, on_exhausted, self.ticket, &waker) {
            Ok(index) => {
                self.ticket = None;
                Some(index)
            }
            Err(ticket) => {
                self.ticket = Some(ticket);
                None
            }
        }
    }

    /// Returns how many times the future was woken since the last call of this function.
    fn woken(&self) -> usize {
        self.woken.0.swap(0, Ordering::SeqCst)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.pool.leave_future(ticket);
        }
    }
}

/// Takes a frame for a thread. While the thread waits, it checks for frames once in each interval
/// `look_every`.
fn take(pool: &FramePool, look_every: Duration) -> Option<u32> {
    let until = Instant::now() + LONG;
    let left = || until.saturating_duration_since(Instant::now());
    let policy = WaitPolicy { left: &left, look_every };
    pool.take_slowly(0, &policy, &|_| false, OnExhausted::Wait)
}

/// Takes a frame for a thread if one is free.
fn take_at_once(pool: &FramePool) -> Option<u32> {
    let policy = WaitPolicy { left: &|| Duration::ZERO, look_every: LONG };
    pool.take(0).or_else(|| pool.take_slowly(0, &policy, &|_| false, OnExhausted::Wait))
}

fn until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "the condition was not reached in time");
        thread::yield_now();
    }
}

fn is_at_rest(pool: &FramePool) {
    assert_eq!((pool.waiting(), pool.slots.open.peek()), (0, pool.active()));
    let taken: Vec<_> = (0..pool.active()).map_while(|_| take_at_once(pool)).collect();
    assert_eq!(taken.len() as u32, pool.active(), "a frame was lost");
}

#[test]
fn thread_does_not_take_a_frame_that_was_freed_for_a_future() {
    let pool = FramePool::new(1, 1);
    assert_eq!(take_at_once(&pool), Some(0));
    let mut future = Waits::new(&pool);
    for _ in 0..100 {
        assert_eq!(future.poll(), None);
        pool.give_back(0);
        // Even a thread that asks before the future is polled does not get the frame.
        assert_eq!(take_at_once(&pool), None);
        assert_eq!(pool.try_take(0, &|_| false, OnExhausted::Wait), None);
        assert_eq!(Waits::new(&pool).poll(), None, "a later future waits, too");
        assert_eq!(future.woken(), 1);
        assert_eq!(future.poll(), Some(0));
    }
    pool.give_back(0);
    is_at_rest(&pool);
}

#[test]
fn threads_and_futures_are_served_in_order_of_arrival() {
    let pool = FramePool::new(1, 1);
    assert_eq!(take_at_once(&pool), Some(0));
    let (mut first, mut third) = (Waits::new(&pool), Waits::new(&pool));
    thread::scope(|scope| {
        assert_eq!(first.poll(), None);
        let second = scope.spawn(|| take(&pool, LONG));
        until(|| pool.waiting() == 2);
        assert_eq!(third.poll(), None);
        let fourth = scope.spawn(|| take(&pool, LONG));
        until(|| pool.waiting() == 4);
        pool.give_back(0);
        assert_eq!((first.woken(), third.woken()), (1, 0));
        assert_eq!((third.poll(), first.poll()), (None, Some(0)));
        pool.give_back(0);
        assert_eq!(second.join().unwrap(), Some(0));
        assert_eq!((third.poll(), third.woken()), (None, 0));
        pool.give_back(0);
        assert_eq!((third.woken(), third.poll()), (1, Some(0)));
        assert!(!fourth.is_finished());
        pool.give_back(0);
        assert_eq!(fourth.join().unwrap(), Some(0));
    });
    pool.give_back(0);
    is_at_rest(&pool);
}

#[test]
fn frame_offered_to_a_dropped_future_goes_to_the_next_caller() {
    let pool = FramePool::new(1, 1);
    assert_eq!(take_at_once(&pool), Some(0));
    let [mut first, mut second] = [(); 2].map(|()| Waits::new(&pool));
    assert_eq!((first.poll(), second.poll()), (None, None));
    pool.give_back(0);
    drop(first);
    assert_eq!((second.woken(), second.poll()), (1, Some(0)));
    // If no other caller waits, a frame that was offered to a dropped future is free again.
    let mut third = Waits::new(&pool);
    assert_eq!(third.poll(), None);
    pool.give_back(0);
    drop(third);
    is_at_rest(&pool);
}

#[test]
fn future_that_leaves_the_queue_is_not_woken() {
    let pool = FramePool::new(1, 1);
    assert_eq!(take_at_once(&pool), Some(0));
    let [mut first, mut second] = [(); 2].map(|()| Waits::new(&pool));
    assert_eq!((first.poll(), second.poll()), (None, None));
    let woken = Arc::clone(&first.woken);
    drop(first);
    pool.give_back(0);
    assert_eq!((woken.0.load(Ordering::SeqCst), second.woken()), (0, 1));
    assert_eq!(second.poll(), Some(0));
    pool.give_back(0);
    is_at_rest(&pool);
}

/// A future may stay unpolled for a long time, for example because its owner waits for a thread that itself
/// waits for a frame. That thread must then get the frame that was offered to the future.
#[test]
fn frame_offered_to_a_future_that_is_not_polled_goes_to_the_next_caller() {
    let pool = FramePool::new(1, 1);
    assert_eq!(take_at_once(&pool), Some(0));
    let mut idle = Waits::new(&pool);
    assert_eq!(idle.poll(), None);
    pool.give_back(0);
    assert_eq!(idle.woken(), 1);
    assert_eq!(take(&pool, Duration::from_millis(1)), Some(0));
    // The future has kept its place: it comes before later callers.
    let mut later = Waits::new(&pool);
    assert_eq!((later.poll(), idle.poll()), (None, None));
    pool.give_back(0);
    assert_eq!((later.woken(), idle.woken()), (0, 1));
    // While only futures wait, `wake_future` withdraws the offer. Outside of this test, a timer calls it.
    until(|| {
        pool.wake_future(Duration::from_millis(1));
        later.poll().is_some()
    });
    assert_eq!(idle.poll(), None);
    pool.give_back(0);
    assert_eq!(idle.poll(), Some(0));
    pool.give_back(0);
    is_at_rest(&pool);
}

/// A procedure that makes a call activates a frame instead of joining the queue. Callers in the queue may
/// wait for this procedure.
#[test]
fn future_that_activates_frames_does_not_queue() {
    let pool = FramePool::new(2, 1);
    assert_eq!(take_at_once(&pool), Some(0));
    let [mut waits, mut nested] = [(); 2].map(|()| Waits::new(&pool));
    assert_eq!(waits.poll(), None);
    assert_eq!(nested.poll_as(OnExhausted::More), Some(1));
    pool.give_back(1);
    assert_eq!(waits.poll(), Some(1));
    pool.give_back(0);
    pool.give_back(1);
    is_at_rest(&pool);
}

#[test]
fn each_future_is_asked_in_turn_for_released_frames() {
    let pool = FramePool::new(1, 1);
    assert_eq!(take_at_once(&pool), Some(0));
    let mut all = [(); 3].map(|()| Waits::new(&pool));
    assert!(all.iter_mut().all(|one| one.poll().is_none()));
    assert!(pool.wake_future(LONG) && pool.wake_future(LONG) && !pool.wake_future(LONG));
    assert_eq!(all.each_ref().map(Waits::woken), [1; 3]);
    assert!(
        !pool.wake_future(LONG),
        "a future that was woken is not woken again before it is polled"
    );
    // A frame that becomes free now wakes no future, but the next poll finds the frame.
    pool.give_back(0);
    assert_eq!(all.each_ref().map(Waits::woken), [0; 3]);
    assert_eq!(all.each_mut().map(Waits::poll), [Some(0), None, None]);
    drop(all);
    pool.give_back(0);
    is_at_rest(&pool);
}

/// Threads and futures share two frames, and give up at random.
#[test]
fn no_frame_is_lost_among_threads_and_futures() {
    let pool = FramePool::new(2, 2);
    let holders = [(); 2].map(|()| AtomicUsize::new(0));
    let hold = |index: u32| {
        assert_eq!(holders[index as usize].swap(1, Ordering::SeqCst), 0, "held twice");
        thread::yield_now();
        holders[index as usize].store(0, Ordering::SeqCst);
        pool.give_back(index);
    };
    thread::scope(|scope| {
        for seed in 0..2 {
            let (pool, hold) = (&pool, &hold);
            scope.spawn(move || {
                for _ in 0..2000 {
                    hold(take(pool, Duration::from_millis(1)).expect("a frame"));
                }
            });
            scope.spawn(move || {
                for call in 0..2000 {
                    let mut future = Waits::new(pool);
                    let gives_up = (call * 7 + seed) % 5 == 0;
                    loop {
                        if let Some(index) = future.poll() {
                            break hold(index);
                        }
                        if gives_up {
                            break;
                        }
                        until(|| future.woken() > 0);
                    }
                }
            });
        }
    });
    is_at_rest(&pool);
}
