//! Tests of workers under a model checker. The checker runs the interleavings of a few workers, clients and a
//! keeper, with a bounded number of preemptions.
//!
//! `WorkerHandle`, `AssignmentWord` and the words of A-stacks are the code that servers run. The pool is a
//! small copy of the server's pool: a queue, its lock, and a fixed number of workers.

use core::sync::atomic::AtomicU32 as Untracked;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread;

use super::super::assignment::{self, AssignmentWord, RingAction};
use super::*;
use crate::path::local::region::word::{self, Atomic, Look, Notify, posted};

struct Model;

/// A word with a futex. Like the kernel, `sleep` compares values under a lock that wake-ups also take.
#[derive(Default)]
struct Word {
    value: AtomicU32,
    /// The number of wake-ups of threads that sleep on the word. The lock of [`KERNEL`] protects this field.
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
    type Astack = ModelAstack;
    type Flag = AtomicBool;
    type Key = AtomicU64;
    type WakeWord = Word;
    type Set = Mutex<Vec<ModelAstack>>;

    /// Executes a fence. On Linux this function is only a compiler fence: when another thread calls
    /// [`barrier`](Machine::barrier), the kernel executes a fence on this thread, wherever this thread is. In
    /// the model, `barrier` affects only its own thread. So this thread executes the fence here, at the only
    /// point where the fence can change the outcome.
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
    /// Once the thread sleeps, only a wake-up on one of these words ends the sleep. A lost wake-up is
    /// therefore a deadlock.
    fn sleep(word: &Word, value: u32, assigned: &[Assigned<Self>], _: Option<Duration>) {
        let calls = || assigned.iter().map(|one| &one.astack.0.call);
        let wakes = || word.wakes() + calls().map(Word::wakes).sum::<u32>();
        let mut kernel = KERNEL.0.lock().unwrap();
        if word.is(value) && calls().all(|call| call.is(SLEEP)) {
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

impl WakeWord for Word {
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

impl Set<ModelAstack> for Mutex<Vec<ModelAstack>> {
    fn new() -> Self {
        Self::new(Vec::new())
    }
    fn lock(&self) -> impl DerefMut<Target = Vec<ModelAstack>> {
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

/// The only A-stack of a session.
#[derive(Clone)]
struct ModelAstack(Arc<AstackState>);

struct AstackState {
    key: u64,
    call: Word,
    assignment: AssignmentWord<Word>,
    last_call: AtomicU32,
    closed: AtomicBool,
    /// The number of served calls. The increment is deliberately not atomic: a worker that does not see the
    /// writes of the previous worker loses a count.
    served: AtomicU32,
}

impl ModelAstack {
    fn new(key: u64) -> Self {
        Self(Arc::new(AstackState {
            key,
            call: Word::default(),
            assignment: AssignmentWord::default(),
            last_call: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            served: AtomicU32::new(0),
        }))
    }
    fn last_call(&self) -> u32 {
        self.0.last_call.load(Ordering::Relaxed)
    }
    fn serve(&self, id: u32) {
        self.0.last_call.store(id, Ordering::Relaxed);
        self.0.served.store(self.served() + 1, Ordering::Relaxed);
    }
    fn served(&self) -> u32 {
        self.0.served.load(Ordering::Relaxed)
    }
}

impl Astack for ModelAstack {
    fn key(&self) -> u64 {
        self.0.key
    }
    fn is_posted(&self) -> bool {
        assignment::is_posted(&self.0.call, self.last_call())
    }
    fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }
    fn set_assignment(&self, to: Assignment) {
        self.0.assignment.set(to);
    }
    fn mark_polled(&self) {
        assignment::mark_polled(&self.0.call);
    }
    fn mark_asleep(&self) -> bool {
        assignment::mark_asleep(&self.0.call, self.last_call())
    }
    fn unassign(&self) -> bool {
        self.0.assignment.clear(&self.0.call, self.last_call())
    }
}

/// Workers, and the A-stacks that wait for a worker.
struct WorkerPool {
    queue: Mutex<VecDeque<ModelAstack>>,
    workers: Vec<WorkerHandle<Model>>,
    /// The number of events that have not happened yet: calls that are served, and sessions that end. The
    /// lock of the queue protects this field.
    left: Untracked,
}

impl WorkerPool {
    /// Makes a pool that stops after `events` events: calls that are served, and sessions that end.
    fn new(workers: u32, events: u32) -> Arc<Self> {
        let workers = (0..workers).map(WorkerHandle::new).collect();
        Arc::new(Self { queue: Mutex::default(), workers, left: Untracked::new(events) })
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<ModelAstack>> {
        self.queue.lock().unwrap()
    }

    /// Posts the first call of a client.
    fn post(&self, astack: &ModelAstack) {
        match word::post(&astack.0.call, posted(1)) {
            Notify::Nothing => {}
            Notify::Wake => Model::wake(&astack.0.call),
            Notify::Ring => self.on_ring(astack),
        }
    }

    /// Handles a ring, as the server's pool does.
    fn on_ring(&self, astack: &ModelAstack) {
        match astack.0.assignment.on_ring(&astack.0.call, astack.last_call()) {
            RingAction::Enqueue => self.enqueue(astack.clone()),
            RingAction::FindWorker => self.find_worker(&self.queue()),
            RingAction::Reassign(number) => {
                let worker = &self.workers[number as usize];
                let waiting = worker.take_waiting(astack);
                if waiting.is_empty() {
                    worker.wake();
                }
                for astack in waiting {
                    astack.set_assignment(Assignment::Queued);
                    self.enqueue(astack);
                }
            }
            RingAction::Nothing => {}
        }
    }

    fn enqueue(&self, astack: ModelAstack) {
        let mut queue = self.queue();
        queue.push_back(astack);
        self.find_worker(&queue);
    }

    fn find_worker(&self, queue: &VecDeque<ModelAstack>) {
        wake_one(self.workers.iter(), queue.len());
    }

    /// Ends the session of an A-stack.
    fn close(&self, astack: &ModelAstack) {
        astack.0.closed.store(true, Ordering::Release);
        Model::fence();
        if let Assignment::Worker(number) = astack.0.assignment.get() {
            self.workers[number as usize].wake();
        }
    }

    /// Counts a served call or an ended session. After the last of these events, the workers end.
    fn count_event(&self) {
        let _queue = self.queue();
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.workers.iter().for_each(WorkerHandle::wake);
        }
    }

    /// Runs a worker that begins with the A-stacks in `list`.
    fn work(&self, number: u32, mut list: Vec<Assigned<Model>>) {
        let worker = &self.workers[number as usize];
        loop {
            self.poll_all(worker, &list);
            worker.apply_changes(&mut list);
            while let Some(at) = list.iter().position(|one| one.astack.is_closed()) {
                assert!(worker.unassign(list.remove(at)).is_none(), "the session has ended");
                self.count_event();
            }
            if worker.is_queue_ready() && self.take(worker, &mut list) {
                continue;
            }
            if !self.rest(worker, &mut list) {
                return;
            }
        }
    }

    fn poll_all(&self, worker: &WorkerHandle<Model>, list: &[Assigned<Model>]) {
        for Assigned { astack, key, .. } in list {
            let Look::Posted(id) = word::look(&astack.0.call, astack.last_call()) else { continue };
            if !worker.begin_call(*key) {
                return;
            }
            astack.serve(id);
            self.count_event();
            worker.end_call();
        }
    }

    fn take(&self, worker: &WorkerHandle<Model>, list: &mut Vec<Assigned<Model>>) -> bool {
        let mut queue = self.queue();
        let astack = queue.pop_front();
        if queue.is_empty() {
            self.workers.iter().for_each(|one| one.set_queue_ready(false));
        }
        drop(queue);
        list.extend(astack.map(|astack| worker.assign(astack, 0)));
        !list.is_empty()
    }

    fn rest(&self, worker: &WorkerHandle<Model>, list: &mut Vec<Assigned<Model>>) -> bool {
        let mut queue = self.queue();
        if self.left.load(Ordering::Relaxed) == 0 {
            return false;
        }
        if !queue.is_empty() {
            worker.set_queue_ready(true);
            return true;
        }
        let others = || self.workers.iter().filter(|one| one.number != worker.number);
        if !list.is_empty() && others().any(|one| one.is_polling()) {
            list.clear();
            worker.requeue_all(|astack| queue.push_back(astack));
            others().for_each(|one| one.set_queue_ready(true));
        }
        let wake_word = worker.prepare_sleep();
        drop(queue);
        worker.sleep(list, wake_word, None);
        true
    }
}

/// Checks the A-stacks at the end of each run. An A-stack must be assigned to one worker, or be in the queue,
/// or neither, and its assignment word must agree. If an A-stack were assigned to two workers, both would
/// take its calls, and another thread might take the A-stack away from the wrong worker.
impl Drop for WorkerPool {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let mut found = HashMap::new();
        let mut find = |astack: &ModelAstack, by| {
            let (key, before) = (astack.key(), found.insert(astack.key(), by));
            assert_eq!(before, None, "A-stack {key} is also {by:?}");
            assert_eq!(astack.0.assignment.get(), by, "A-stack {key}");
        };
        self.queue().iter().for_each(|astack| find(astack, Assignment::Queued));
        for worker in &self.workers {
            let assigned = worker.assigned.lock().unwrap();
            assigned.iter().for_each(|astack| find(astack, Assignment::Worker(worker.number)));
        }
    }
}

fn check(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

fn spawn(pool: &Arc<WorkerPool>, f: impl FnOnce(&WorkerPool) + 'static) -> thread::JoinHandle<()> {
    let pool = Arc::clone(pool);
    thread::spawn(move || f(&pool))
}

/// A worker has two A-stacks with a call each. Another thread tries to take both A-stacks away while the
/// worker serves them.
#[test]
fn call_of_an_astack_that_is_taken_away_runs_once() {
    check(5, || {
        let pool = WorkerPool::new(1, 2);
        let astacks = [1, 2].map(ModelAstack::new);
        let mut list: Vec<_> =
            astacks.iter().map(|astack| pool.workers[0].assign(astack.clone(), 0)).collect();
        astacks.iter().for_each(|astack| pool.post(astack));
        let busy = spawn(&pool, move |pool| {
            let worker = &pool.workers[0];
            while list.iter().any(|one| one.astack.is_posted()) {
                pool.poll_all(worker, &list);
                worker.apply_changes(&mut list);
            }
        });
        for astack in astacks.iter().rev() {
            let taken = pool.workers[0].take_waiting(astack);
            taken.iter().for_each(|astack| astack.serve(posted(1)));
        }
        busy.join().unwrap();
        assert_eq!(astacks.map(|astack| astack.served()), [1, 1]);
    });
}

/// A worker has two A-stacks with a call each. The other worker of the pool serves the A-stacks that are
/// taken away.
#[test]
fn call_of_an_astack_that_is_taken_away_is_not_lost() {
    check(2, || {
        let pool = WorkerPool::new(2, 2);
        let astacks = [1, 2].map(ModelAstack::new);
        let list = astacks.iter().map(|astack| pool.workers[0].assign(astack.clone(), 0)).collect();
        astacks.iter().for_each(|astack| pool.post(astack));
        let busy = spawn(&pool, |pool| pool.work(0, list));
        astacks.iter().rev().for_each(|astack| pool.on_ring(astack));
        pool.work(1, Vec::new());
        busy.join().unwrap();
        assert_eq!(astacks.map(|astack| astack.served()), [1, 1]);
    });
}

/// A client posts a call on an A-stack while the worker is about to sleep there. Another client rings for a
/// second A-stack. The worker must serve both calls.
#[test]
fn calls_reach_a_worker_that_falls_asleep() {
    check(3, || {
        let pool = WorkerPool::new(1, 2);
        let astacks = [1, 2].map(ModelAstack::new);
        let list = vec![pool.workers[0].assign(astacks[0].clone(), 0)];
        let thread = spawn(&pool, |pool| pool.work(0, list));
        let client = {
            let astack = astacks[0].clone();
            spawn(&pool, move |pool| pool.post(&astack))
        };
        pool.post(&astacks[1]);
        client.join().unwrap();
        thread.join().unwrap();
        assert_eq!(astacks.map(|astack| astack.served()), [1, 1]);
    });
}

/// Two workers have one A-stack each. While calls are posted on both A-stacks, each idle worker may hand its
/// A-stack to the other worker.
#[test]
fn calls_reach_workers_that_requeue_their_astacks() {
    check(2, || {
        let pool = WorkerPool::new(2, 2);
        let astacks = [1, 2].map(ModelAstack::new);
        let threads = [0, 1].map(|number| {
            let astack = astacks[number as usize].clone();
            let list = vec![pool.workers[number as usize].assign(astack, 0)];
            spawn(&pool, move |pool| pool.work(number, list))
        });
        astacks.iter().for_each(|astack| pool.post(astack));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(astacks.map(|astack| astack.served()), [1, 1]);
    });
}

/// A worker unassigns an A-stack while a client posts a call there and rings again. The call may run on
/// another worker, but must not be lost.
#[test]
fn call_reaches_an_astack_that_is_unassigned() {
    check(3, || {
        let pool = WorkerPool::new(2, 1);
        let astack = ModelAstack::new(1);
        let one = pool.workers[0].assign(astack.clone(), 0);
        let thread = spawn(&pool, |pool| {
            if let Some(posted) = pool.workers[0].unassign(one) {
                pool.enqueue(posted);
            }
            pool.work(0, Vec::new());
        });
        pool.post(&astack);
        pool.on_ring(&astack);
        pool.work(1, Vec::new());
        thread.join().unwrap();
        assert_eq!(astack.served(), 1);
    });
}

/// A session ends while a worker takes the session's A-stack from the queue and falls asleep.
#[test]
fn end_of_a_session_reaches_a_worker_that_falls_asleep() {
    check(3, || {
        let pool = WorkerPool::new(1, 1);
        let astack = ModelAstack::new(1);
        pool.on_ring(&astack);
        let thread = spawn(&pool, |pool| pool.work(0, Vec::new()));
        pool.close(&astack);
        thread.join().unwrap();
        assert_eq!(astack.0.assignment.get(), Assignment::Unassigned);
    });
}
