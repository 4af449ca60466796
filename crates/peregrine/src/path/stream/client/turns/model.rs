//! Runs the turns at receiving under a model checker, which tries every interleaving of a few threads. One
//! call falls asleep while other threads call, and while the keeper works. The bell of the sleeping call must
//! ring.

use super::*;
use loom::sync::atomic::{AtomicBool, AtomicU32, fence};
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;

const ORDER: Ordering = Ordering::SeqCst;

// The states of the slot of the call that sleeps.
const SENDING: u32 = 0;
const ARMED: u32 = 1;
const DONE: u32 = 2;

/// The number of the reply to the call that sleeps. Other numbers are replies to the callers that wait.
const TO_SLEEPER: usize = 0;

/// What the lock of the received bytes protects.
#[derive(Default)]
struct Received {
    /// Replies that were received, and not yet passed to their calls.
    ahead: Vec<usize>,
    /// Whether the bell must ring.
    rings: bool,
}

/// What the kernel and the keeper know.
#[derive(Default)]
struct Kernel {
    /// Replies that have arrived.
    arrived: Vec<usize>,
    /// The registration with epoll, and whether it wakes the keeper when bytes arrive.
    registered: Option<bool>,
    /// Whether the keeper must try again after a pause, even without an event.
    pauses: bool,
}

/// The state of a caller's slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    Sends,
    Waits,
    Sleeps,
    /// The caller has been asked to lead.
    Leads,
    Done,
}

struct Connection {
    word: AtomicU32,
    received: Mutex<Received>,
    kernel: Mutex<Kernel>,
    slot: AtomicU32,
    callers: Mutex<Vec<Caller>>,
    /// Notified when a caller in the state `Sleeps` must wake.
    wakes: Condvar,
    /// Whether the pending call is awake: its bell has rung, or its reply came before it could fall asleep.
    is_awake: AtomicBool,
}

impl Word for AtomicU32 {
    fn load(&self) -> u32 {
        self.load(ORDER)
    }
    fn add(&self, what: u32) {
        self.fetch_add(what, ORDER);
    }
    fn sub(&self, what: u32) {
        self.fetch_sub(what, ORDER);
    }
    fn update(&self, mut change: impl FnMut(u32) -> Option<u32>) {
        let mut seen = self.load(Ordering::Relaxed);
        while let Some(new) = change(seen) {
            match self.compare_exchange(seen, new, ORDER, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}

impl Turns for Connection {
    type Word = AtomicU32;
    type Lead<'a> = MutexGuard<'a, Received>;

    fn fence() {
        fence(ORDER);
    }
    fn word(&self) -> &AtomicU32 {
        &self.word
    }
    fn try_lead(&self) -> Option<Self::Lead<'_>> {
        self.received.try_lock().ok()
    }
    fn receive(&self, lead: &mut Self::Lead<'_>) -> bool {
        let arrived = core::mem::take(&mut self.kernel.lock().unwrap().arrived);
        lead.ahead.extend(arrived);
        self.receive_ahead(lead);
        lead.rings
    }
    fn receive_ahead(&self, lead: &mut Self::Lead<'_>) -> bool {
        for reply in core::mem::take(&mut lead.ahead) {
            self.fill(lead, reply);
        }
        true
    }
    fn ring(&self, mut lead: Self::Lead<'_>) {
        let rings = core::mem::take(&mut lead.rings);
        drop(lead);
        if rings {
            self.is_awake.store(true, ORDER);
        }
    }
    fn poke(&self) {
        let mut callers = self.callers.lock().unwrap();
        let waits = |caller: &&mut Caller| matches!(caller, Caller::Waits | Caller::Sleeps);
        if let Some(caller) = callers.iter_mut().find(waits) {
            *caller = Caller::Leads;
            self.wakes.notify_all();
        }
    }
    fn owes_replies(&self) -> bool {
        false
    }
    fn renew(&self) {
        let mut kernel = self.kernel.lock().unwrap();
        kernel.registered = Some(self.word.load(ORDER) & WATCHED != 0);
    }
}

impl Connection {
    fn new(callers: usize, arrived: &[usize]) -> Arc<Self> {
        let arrived = arrived.to_vec();
        Arc::new(Self {
            word: AtomicU32::new(0),
            received: Mutex::default(),
            kernel: Mutex::new(Kernel { arrived, registered: Some(false), pauses: false }),
            slot: AtomicU32::new(SENDING),
            callers: Mutex::new(vec![Caller::Sends; callers + 1]),
            wakes: Condvar::new(),
            is_awake: AtomicBool::new(false),
        })
    }

    fn fill(&self, lead: &mut Received, reply: usize) {
        if reply != TO_SLEEPER {
            self.callers.lock().unwrap()[reply] = Caller::Done;
            self.wakes.notify_all();
        } else if self.slot.swap(DONE, ORDER) == ARMED {
            self.word.sub(SLEEPER);
            lead.rings = true;
        }
    }

    /// Changes the state of a caller from one of `from` to `to`. Returns false if it has another state.
    fn moves(&self, own: usize, from: &[Caller], to: Caller) -> bool {
        let mut callers = self.callers.lock().unwrap();
        let moves = from.contains(&callers[own]);
        if moves {
            callers[own] = to;
        }
        moves
    }

    fn is_done(&self, own: usize) -> bool {
        self.callers.lock().unwrap()[own] == Caller::Done
    }

    /// Lets the pending call fall asleep. If its reply has already arrived, the call stays awake.
    fn fall_asleep(&self) {
        self.word.add(SLEEPER);
        if self.slot.compare_exchange(SENDING, ARMED, ORDER, ORDER).is_err() {
            self.word.sub(SLEEPER);
            return self.is_awake.store(true, ORDER);
        }
        self.sleep();
    }

    /// Waits for the reply to the call `own`, as a blocking caller does.
    fn wait(&self, own: usize) {
        self.moves(own, &[Caller::Sends], Caller::Waits);
        let lead = self.try_lead().or_else(|| self.follow(own));
        if let Some(lead) = lead {
            self.lead(lead, own);
        }
        self.pass_on();
    }

    /// Waits until the reply has arrived, or until this thread becomes the leader.
    fn follow(&self, own: usize) -> Option<MutexGuard<'_, Received>> {
        self.word.add(FOLLOWER);
        Self::fence();
        let lead = loop {
            if self.is_done(own) {
                break None;
            }
            self.moves(own, &[Caller::Leads], Caller::Waits);
            if let Some(lead) = self.try_lead() {
                break Some(lead);
            }
            self.moves(own, &[Caller::Waits], Caller::Sleeps);
            let mut callers = self.callers.lock().unwrap();
            while callers[own] == Caller::Sleeps {
                callers = self.wakes.wait(callers).unwrap();
            }
        };
        self.word.sub(FOLLOWER);
        lead
    }

    /// Receives until the reply to the call `own` is there. Later replies stay in `ahead`.
    fn lead(&self, mut lead: MutexGuard<'_, Received>, own: usize) {
        while !self.is_done(own) {
            if lead.ahead.is_empty() {
                lead.ahead = core::mem::take(&mut self.kernel.lock().unwrap().arrived);
            }
            let reply = lead.ahead.remove(0);
            self.fill(&mut lead, reply);
        }
        self.ring(lead);
    }

    /// Lets the keeper handle an event, if there is one.
    fn keep(&self) -> bool {
        let mut kernel = self.kernel.lock().unwrap();
        let is_readable = kernel.registered == Some(true) && !kernel.arrived.is_empty();
        let again = core::mem::take(&mut kernel.pauses);
        if !is_readable && !again {
            return false;
        }
        kernel.registered = again.then_some(false);
        drop(kernel);
        if self.fired(false) == Fired::Retry {
            self.kernel.lock().unwrap().pauses = true;
        }
        true
    }

    /// Lets the keeper handle all events that are left. Afterwards, the call that fell asleep must be awake.
    fn check(&self) {
        while self.keep() {}
        assert!(self.is_awake.load(ORDER), "the bell of the call does not ring");
        let word = self.word.load(ORDER);
        assert_eq!(word & (FOLLOWERS | SLEEPERS), 0, "{word:x}");
        assert!(self.kernel.lock().unwrap().registered.is_some(), "the keeper does not watch");
    }
}

fn spawn(
    connection: &Arc<Connection>,
    what: impl FnOnce(&Connection) + 'static,
) -> thread::JoinHandle<()> {
    let connection = Arc::clone(connection);
    thread::spawn(move || what(&connection))
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn bell_rings_although_the_reply_was_received_ahead() {
    check(|| {
        // The reply to the caller that waits arrives together with the reply to the call that sleeps.
        let connection = Connection::new(1, &[1, TO_SLEEPER]);
        let caller = spawn(&connection, |one| one.wait(1));
        connection.fall_asleep();
        caller.join().unwrap();
        connection.check();
    });
}

#[test]
fn bell_rings_while_the_keeper_and_a_caller_take_turns() {
    check(|| {
        let connection = Connection::new(1, &[1]);
        // The keeper has watched since an earlier call, but no call sleeps now.
        connection.word.store(WATCHED, ORDER);
        connection.kernel.lock().unwrap().registered = Some(true);
        let caller = spawn(&connection, |one| one.wait(1));
        let keeper = spawn(&connection, |one| {
            let _ = one.keep();
        });
        connection.fall_asleep();
        connection.kernel.lock().unwrap().arrived.push(TO_SLEEPER);
        caller.join().unwrap();
        keeper.join().unwrap();
        connection.check();
    });
}

#[test]
fn bell_rings_among_several_callers() {
    check(|| {
        let connection = Connection::new(2, &[1, 2]);
        let callers = [1, 2].map(|own| spawn(&connection, move |one| one.wait(own)));
        connection.fall_asleep();
        connection.kernel.lock().unwrap().arrived.push(TO_SLEEPER);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        connection.check();
    });
}
