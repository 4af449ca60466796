//! `Desk` under a model checker: every interleaving of a few threads, clients and a keeper.
//!
//! The desks, the words of A-stacks and `Attention` are the code of the server. The pool is a small
//! copy of `server/pool.rs`: a queue, its lock, and a fixed number of threads.

use core::sync::atomic::AtomicU32 as Untracked;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread;

use super::super::assignment::{self as attention, Asked, Attention};
use super::*;
use crate::path::local::region::word::{self, Atomic, Look, Owed, posted};

struct Model;

/// A word as the kernel sees it: values are compared under a lock, which wake-ups take too.
#[derive(Default)]
struct Word {
    value: AtomicU32,
    /// How often its sleepers were woken; under the lock of [`KERNEL`].
    wakes: Untracked,
}

loom::lazy_static! {
    static ref KERNEL: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
}

impl Word {
    fn wakes(&self) -> u32 {
        self.wakes.load(Ordering::Relaxed)
    }
    fn is(&self, value: u32) -> bool {
        self.value.load(Ordering::Relaxed) == value
    }
}

impl Machine for Model {
    type Astack = Place;
    type Flag = AtomicBool;
    type Key = AtomicU64;
    type Bell = Word;
    type Set = Mutex<Vec<Place>>;

    /// The barrier that another thread forces on this one. The model needs it only here: anywhere
    /// else it has no effect.
    fn keep_order() {
        fence(Ordering::SeqCst);
    }
    fn barrier() -> bool {
        fence(Ordering::SeqCst);
        true
    }
    fn fence() {
        fence(Ordering::SeqCst);
    }
    /// Ends only by a wake-up on one of these words, so that a lost wake-up is a deadlock.
    fn sleep(bell: &Word, value: u32, hot: &[Hot<Self>], _: Option<Duration>) {
        let calls = || hot.iter().map(|hot| &hot.place.0.call);
        let wakes = || bell.wakes() + calls().map(Word::wakes).sum::<u32>();
        let mut kernel = KERNEL.0.lock().unwrap();
        if bell.is(value) && calls().all(|call| call.is(SLEEP)) {
            let before = wakes();
            while wakes() == before {
                kernel = KERNEL.1.wait(kernel).unwrap();
            }
        }
    }
    fn wake(word: &Word) {
        let _kernel = KERNEL.0.lock().unwrap();
        word.wakes.fetch_add(1, Ordering::Relaxed);
        KERNEL.1.notify_all();
    }
}

impl Flag for AtomicBool {
    fn new(value: bool) -> Self {
        Self::new(value)
    }
    fn peek(&self) -> bool {
        self.load(Ordering::Relaxed)
    }
    fn load(&self) -> bool {
        self.load(Ordering::SeqCst)
    }
    fn store(&self, value: bool) {
        self.store(value, Ordering::SeqCst);
    }
    fn take(&self) -> bool {
        self.swap(false, Ordering::SeqCst)
    }
}

impl Key for AtomicU64 {
    fn new(value: u64) -> Self {
        Self::new(value)
    }
    fn load(&self) -> u64 {
        self.load(Ordering::SeqCst)
    }
    fn store(&self, value: u64) {
        self.store(value, Ordering::Release);
    }
}

impl Bell for Word {
    fn new(value: u32) -> Self {
        Self { value: AtomicU32::new(value), ..Self::default() }
    }
    fn load(&self) -> u32 {
        self.value.load(Ordering::SeqCst)
    }
    fn change(&self) {
        self.value.fetch_add(1, Ordering::SeqCst);
    }
}

impl Set<Place> for Mutex<Vec<Place>> {
    fn new() -> Self {
        Self::new(Vec::new())
    }
    fn lock(&self) -> impl DerefMut<Target = Vec<Place>> {
        self.lock().unwrap()
    }
}

impl Atomic for Word {
    fn load(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }
    fn store(&self, to: u32) {
        self.value.store(to, Ordering::Release);
    }
    fn swap(&self, to: u32) -> u32 {
        self.value.swap(to, Ordering::AcqRel)
    }
    fn exchange(&self, from: u32, to: u32) -> bool {
        self.value.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// An A-stack, with a session of its own.
#[derive(Clone)]
struct Place(Arc<Line>);

struct Line {
    key: u64,
    call: Word,
    attention: Attention<Word>,
    seen: AtomicU32,
    closed: AtomicBool,
    /// Calls that were served. The increment is not atomic on purpose: a thread that does not see
    /// what the one before it wrote loses a count.
    served: AtomicU32,
}

impl Place {
    fn new(key: u64) -> Self {
        Self(Arc::new(Line {
            key,
            call: Word::default(),
            attention: Attention::default(),
            seen: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            served: AtomicU32::new(0),
        }))
    }
    fn seen(&self) -> u32 {
        self.0.seen.load(Ordering::Relaxed)
    }
    fn serve(&self, message: u32) {
        self.0.seen.store(message, Ordering::Relaxed);
        self.0.served.store(self.served() + 1, Ordering::Relaxed);
    }
    fn served(&self) -> u32 {
        self.0.served.load(Ordering::Relaxed)
    }
}

impl Astack for Place {
    fn key(&self) -> u64 {
        self.0.key
    }
    fn is_posted(&self) -> bool {
        attention::is_posted(&self.0.call, self.seen())
    }
    fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }
    fn attended(&self, by: Attendance) {
        self.0.attention.note(by);
    }
    fn watch(&self) {
        attention::watch(&self.0.call);
    }
    fn doze(&self) -> bool {
        attention::doze(&self.0.call, self.seen())
    }
    fn leave(&self) -> bool {
        self.0.attention.leave(&self.0.call, self.seen())
    }
}

/// Threads, and the A-stacks that wait for one.
struct Pool {
    queue: Mutex<VecDeque<Place>>,
    desks: Vec<Desk<Model>>,
    /// Calls and ends of sessions that are still to come. Under the lock of the queue.
    left: Untracked,
}

impl Pool {
    /// A pool of so many threads that stops after so many calls or ends of sessions.
    fn new(threads: u32, events: u32) -> Arc<Self> {
        let desks = (0..threads).map(Desk::new).collect();
        Arc::new(Self { queue: Mutex::default(), desks, left: Untracked::new(events) })
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Place>> {
        self.queue.lock().unwrap()
    }

    /// A client posts its first call.
    fn post(&self, place: &Place) {
        match word::post(&place.0.call, posted(1)) {
            Owed::Nothing => {}
            Owed::Wake => Model::wake(&place.0.call),
            Owed::Ring => self.rung(place),
        }
    }

    /// As [`Pool::rung`](crate::server) of the server.
    fn rung(&self, place: &Place) {
        match place.0.attention.ring(&place.0.call, place.seen()) {
            Asked::Enqueue => self.enqueue(place.clone()),
            Asked::Again => self.find_thread(&self.queue()),
            Asked::Relieve(desk) => {
                let desk = &self.desks[desk as usize];
                let waiting = desk.relieve(place);
                if waiting.is_empty() {
                    desk.ring();
                }
                for place in waiting {
                    place.attended(Attendance::Queued);
                    self.enqueue(place);
                }
            }
            Asked::Nothing => {}
        }
    }

    fn enqueue(&self, place: Place) {
        let mut queue = self.queue();
        queue.push_back(place);
        self.find_thread(&queue);
    }

    fn find_thread(&self, queue: &VecDeque<Place>) {
        call_one(self.desks.iter(), queue.len());
    }

    /// The session of an A-stack ends.
    fn close(&self, place: &Place) {
        place.0.closed.store(true, Ordering::Release);
        Model::fence();
        if let Attendance::At(desk) = place.0.attention.by() {
            self.desks[desk as usize].ring();
        }
    }

    /// A call was served, or a session has been left. After the last one the threads end.
    fn happened(&self) {
        let _queue = self.queue();
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.desks.iter().for_each(Desk::ring);
        }
    }

    /// What a thread does that begins with these A-stacks.
    fn work(&self, desk: u32, hot: Vec<Hot<Model>>) {
        let (desk, mut hot) = (&self.desks[desk as usize], hot);
        loop {
            self.serve_posted(desk, &hot);
            desk.refresh(&mut hot);
            while let Some(at) = hot.iter().position(|hot| hot.place.is_closed()) {
                assert!(desk.is_released(hot.remove(at)).is_none(), "a session that has ended");
                self.happened();
            }
            if desk.is_hungry() && self.take(desk, &mut hot) {
                continue;
            }
            if !self.rest(desk, &mut hot) {
                return;
            }
        }
    }

    fn serve_posted(&self, desk: &Desk<Model>, hot: &[Hot<Model>]) {
        for Hot { place, key, .. } in hot {
            let Look::Posted(message) = word::look(&place.0.call, place.seen()) else { continue };
            if !desk.begins(*key) {
                return;
            }
            place.serve(message);
            self.happened();
            desk.ends();
        }
    }

    fn take(&self, desk: &Desk<Model>, hot: &mut Vec<Hot<Model>>) -> bool {
        let mut queue = self.queue();
        let place = queue.pop_front();
        if queue.is_empty() {
            self.desks.iter().for_each(|desk| desk.make_hungry(false));
        }
        drop(queue);
        hot.extend(place.map(|place| desk.take_in(place, 0)));
        !hot.is_empty()
    }

    fn rest(&self, desk: &Desk<Model>, hot: &mut Vec<Hot<Model>>) -> bool {
        let mut queue = self.queue();
        if self.left.load(Ordering::Relaxed) == 0 {
            return false;
        }
        if !queue.is_empty() {
            desk.make_hungry(true);
            return true;
        }
        let others = || self.desks.iter().filter(|one| one.number != desk.number);
        if !hot.is_empty() && others().any(|one| one.looks_around()) {
            hot.clear();
            queue.extend(desk.give_all());
            others().for_each(|one| one.make_hungry(true));
        }
        let bell = desk.lie_down();
        drop(queue);
        desk.sleep(hot, bell, None);
        true
    }
}

/// At the end of each run an A-stack is at one desk, in the queue, or at neither, and its word agrees. An
/// A-stack that two desks have can be taken away from the wrong one. Then two threads take its calls.
impl Drop for Pool {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let mut found = HashMap::new();
        let mut find = |place: &Place, by| {
            let (key, before) = (place.key(), found.insert(place.key(), by));
            assert_eq!(before, None, "A-stack {key} is also {by:?}");
            assert_eq!(place.0.attention.by(), by, "A-stack {key}");
        };
        self.queue().iter().for_each(|place| find(place, Attendance::Queued));
        for desk in &self.desks {
            desk.set
                .lock()
                .unwrap()
                .iter()
                .for_each(|place| find(place, Attendance::At(desk.number)));
        }
    }
}

fn check(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

fn spawn(pool: &Arc<Pool>, f: impl FnOnce(&Pool) + 'static) -> thread::JoinHandle<()> {
    let pool = Arc::clone(pool);
    thread::spawn(move || f(&pool))
}

/// A thread has two A-stacks with a call each, and the keeper relieves it of both if it can.
#[test]
fn relief_takes_no_call_twice() {
    check(5, || {
        let pool = Pool::new(1, 2);
        let places = [1, 2].map(Place::new);
        let mut hot: Vec<_> =
            places.iter().map(|place| pool.desks[0].take_in(place.clone(), 0)).collect();
        places.iter().for_each(|place| pool.post(place));
        let busy = spawn(&pool, move |pool| {
            let desk = &pool.desks[0];
            while hot.iter().any(|hot| hot.place.is_posted()) {
                pool.serve_posted(desk, &hot);
                desk.refresh(&mut hot);
            }
        });
        for place in places.iter().rev() {
            pool.desks[0].relieve(place).iter().for_each(|place| place.serve(posted(1)));
        }
        busy.join().unwrap();
        assert_eq!(places.map(|place| place.served()), [1, 1]);
    });
}

/// The same in a pool, whose other thread serves the A-stacks that are taken away.
#[test]
fn relief_loses_no_call() {
    check(2, || {
        let pool = Pool::new(2, 2);
        let places = [1, 2].map(Place::new);
        let hot = places.iter().map(|place| pool.desks[0].take_in(place.clone(), 0)).collect();
        places.iter().for_each(|place| pool.post(place));
        let busy = spawn(&pool, |pool| pool.work(0, hot));
        places.iter().rev().for_each(|place| pool.rung(place));
        pool.work(1, Vec::new());
        busy.join().unwrap();
        assert_eq!(places.map(|place| place.served()), [1, 1]);
    });
}

/// One call comes to an A-stack on which the thread is about to sleep, one through the queue.
#[test]
fn calls_reach_a_thread_that_falls_asleep() {
    check(3, || {
        let pool = Pool::new(1, 2);
        let places = [1, 2].map(Place::new);
        let hot = vec![pool.desks[0].take_in(places[0].clone(), 0)];
        let thread = spawn(&pool, |pool| pool.work(0, hot));
        let client = {
            let place = places[0].clone();
            spawn(&pool, move |pool| pool.post(&place))
        };
        pool.post(&places[1]);
        client.join().unwrap();
        thread.join().unwrap();
        assert_eq!(places.map(|place| place.served()), [1, 1]);
    });
}

/// Two threads that find nothing to do: each may give its A-stack to the other one.
#[test]
fn calls_reach_threads_that_give_their_astacks_away() {
    check(2, || {
        let pool = Pool::new(2, 2);
        let places = [1, 2].map(Place::new);
        let threads = [0, 1].map(|desk| {
            let place = places[desk as usize].clone();
            let hot = vec![pool.desks[desk as usize].take_in(place, 0)];
            spawn(&pool, move |pool| pool.work(desk, hot))
        });
        places.iter().for_each(|place| pool.post(place));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(places.map(|place| place.served()), [1, 1]);
    });
}

/// A thread leaves an A-stack to the next ring while its client posts a call and rings again. Another
/// thread may be the one that takes the call.
#[test]
fn call_reaches_an_astack_that_is_left() {
    check(3, || {
        let pool = Pool::new(2, 1);
        let place = Place::new(1);
        let hot = pool.desks[0].take_in(place.clone(), 0);
        let thread = spawn(&pool, |pool| {
            if let Some(posted) = pool.desks[0].is_released(hot) {
                pool.enqueue(posted);
            }
            pool.work(0, Vec::new());
        });
        pool.post(&place);
        pool.rung(&place);
        pool.work(1, Vec::new());
        thread.join().unwrap();
        assert_eq!(place.served(), 1);
    });
}

/// A session ends while a thread takes its A-stack from the queue and falls asleep there.
#[test]
fn end_of_a_session_reaches_a_thread_that_falls_asleep() {
    check(3, || {
        let pool = Pool::new(1, 1);
        let place = Place::new(1);
        pool.rung(&place);
        let thread = spawn(&pool, |pool| pool.work(0, Vec::new()));
        pool.close(&place);
        thread.join().unwrap();
        assert_eq!(place.0.attention.by(), Attendance::Idle);
    });
}
