//! The words of desks under a model checker: every interleaving of a few threads.

use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::*;

enum Model {}

#[derive(Default)]
struct ModelBell {
    value: AtomicU32,
    /// A futex as the kernel has it: the value is compared under a lock.
    queue: Mutex<()>,
    woken: Condvar,
}

word!(AtomicBool, bool);
word!(AtomicU64, u64);

impl Bell for ModelBell {
    fn heard(&self) -> u32 {
        self.value.load(Ordering::SeqCst)
    }
    fn ring(&self) {
        self.value.fetch_add(1, Ordering::SeqCst);
        let _queue = self.queue.lock().unwrap();
        self.woken.notify_all();
    }
}

impl ModelBell {
    fn sleep(&self, heard: u32) {
        let mut queue = self.queue.lock().unwrap();
        while self.heard() == heard {
            queue = self.woken.wait(queue).unwrap();
        }
    }
}

impl Machine for Model {
    type Key = AtomicU64;
    type Flag = AtomicBool;
    type Bell = ModelBell;
    /// A barrier that another thread forces on this one is one that this one might make itself.
    fn keep_order() {
        fence(Ordering::SeqCst);
    }
    fn barrier() -> bool {
        fence(Ordering::SeqCst);
        true
    }
}

/// Every interleaving with at most so many involuntary switches.
fn check(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

/// The thread of a desk has two A-stacks, at which a call each is posted. Another thread finds that one of
/// them waits, and takes it away if it can.
#[test]
fn call_at_an_astack_that_is_taken_away_runs_once() {
    const WAITS: u64 = 2;
    struct Desk {
        words: Words<Model>,
        set: Mutex<Vec<u64>>,
        runs: [AtomicU32; 3],
    }
    fn run(desk: &Desk, key: u64) {
        desk.runs[key as usize].fetch_add(1, Ordering::Relaxed);
    }
    check(3, || {
        let desk = Arc::new(Desk {
            words: Words::default(),
            set: Mutex::new(vec![1, WAITS]),
            runs: [0; 3].map(AtomicU32::new),
        });
        let reliever = {
            let desk = Arc::clone(&desk);
            thread::spawn(move || {
                let mut set = desk.set.lock().unwrap();
                if desk.words.runs_another(WAITS).is_some() {
                    set.retain(|key| *key != WAITS);
                    drop(set);
                    run(&desk, WAITS);
                }
            })
        };
        let mut hot = vec![1, WAITS];
        while let Some(&key) = hot.first() {
            if desk.words.begins(key) {
                run(&desk, key);
                hot.remove(0);
                desk.words.ends();
            } else if desk.words.has_changed() {
                let set = desk.set.lock().unwrap();
                desk.words.saw_change();
                hot.retain(|key| set.contains(key));
            }
        }
        reliever.join().unwrap();
        for key in [1, WAITS] {
            assert_eq!(desk.runs[key as usize].load(Ordering::Relaxed), 1, "of A-stack {key}");
        }
    });
}

/// What threads and rings share: the pool's queue, which has numbers of A-stacks here.
struct Pool {
    desks: Vec<Words<Model>>,
    state: Mutex<(Vec<u32>, bool)>,
    served: AtomicU32,
}

impl Pool {
    fn new(desks: usize) -> Arc<Self> {
        let desks = (0..desks).map(|_| Words::default()).collect();
        Arc::new(Self { desks, state: Mutex::default(), served: AtomicU32::new(0) })
    }

    /// A ring came for an A-stack. As in the pool: a thread that looks around is relied on for one, a thread
    /// that sleeps is woken, and a thread that runs a procedure looks into the queue after that.
    fn rung(&self, astack: u32) {
        let mut state = self.state.lock().unwrap();
        state.0.push(astack);
        self.desks.iter().for_each(|desk| desk.make_hungry(true));
        let looking = self.desks.iter().filter(|desk| desk.looks_around()).count();
        if looking < state.0.len()
            && let Some(asleep) = self.desks.iter().find(|desk| !desk.is_up())
        {
            asleep.ring();
        }
    }

    fn stop(&self) {
        self.state.lock().unwrap().1 = true;
        for desk in &self.desks {
            desk.make_hungry(true);
            desk.ring();
        }
    }

    /// What a thread does: it runs what is in the queue, looks around once, and sleeps.
    fn work(&self, number: usize) {
        let own = &self.desks[number];
        loop {
            if own.feels_hungry() || own.is_hungry() {
                let mut state = self.state.lock().unwrap();
                let astack = state.0.pop();
                if let Some(astack) = astack {
                    own.make_hungry(!state.0.is_empty());
                    drop(state);
                    assert!(own.begins(astack.into()));
                    self.served.fetch_add(1, Ordering::Relaxed);
                    own.ends();
                    continue;
                }
                if state.1 {
                    return;
                }
                own.make_hungry(false);
            }
            let state = self.state.lock().unwrap();
            if !state.0.is_empty() || state.1 {
                own.make_hungry(true);
                continue;
            }
            let heard = own.lie_down();
            drop(state);
            own.bell().sleep(heard);
            own.rise();
        }
    }
}

/// A lost ring leaves a thread asleep, which the model checker reports as a deadlock.
#[test]
fn no_ring_is_lost_by_a_thread_that_falls_asleep() {
    check(3, || {
        let pool = Pool::new(1);
        let ringing = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                pool.rung(1);
                while pool.served.load(Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
                pool.stop();
            })
        };
        pool.work(0);
        ringing.join().unwrap();
        assert_eq!(pool.served.load(Ordering::Relaxed), 1);
    });
}

/// The A-stack is served, whichever of two threads sleeps or looks around when its ring comes.
#[test]
fn no_ring_is_lost_between_two_threads() {
    check(2, || {
        let pool = Pool::new(2);
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.work(1))
        };
        let ringing = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                pool.rung(1);
                while pool.served.load(Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
                pool.stop();
            })
        };
        pool.work(0);
        other.join().unwrap();
        ringing.join().unwrap();
        assert_eq!(pool.served.load(Ordering::Relaxed), 1);
    });
}
