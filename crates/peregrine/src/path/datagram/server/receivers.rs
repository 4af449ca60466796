//! The receivers of a socket: threads of which one or two receive, while others run what came.
//!
//! Any thread may receive at any time, so nothing here decides whether a call is served, only by
//! whom and how soon. A thread that has received a call runs it to its end. Firefly keeps idle
//! server threads waiting at the call table for the same reason: whoever has the packet needs
//! nobody else.
//!
//! * While procedures are short, one thread receives, the *head*: it looks all the time, or sleeps
//!   in the kernel, and runs what comes. Nobody else may block in the kernel beside it: beside one
//!   that looks it would be woken for each datagram for nothing; and where client and server share
//!   a processor, the client runs, and calls again, before the thread that answered it has come back
//!   from sending, so that another one would be woken, and that one switched to only to sleep.
//! * The *deputy* sleeps, and looks every now and then whether the head has been away, in a
//!   procedure that is long after all; then it takes its place.
//! * Where procedures take long, or make calls themselves, there is no head: two to eight threads
//!   sleep in the kernel. While some run procedures the others receive, and one more is fetched only
//!   if the last of them gets busy as well. The one that looks asks another one before it runs any.
//!   Further threads stand by, and end if they are not needed.
//! * A thread whose call was given up by its caller is replaced by another one.
//! * When all threads that the bound allows run procedures, one more receives: it answers what
//!   needs no procedure, and puts calls into a queue.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::call::chain::has_waited;
use crate::call::{Refusal, Wait, block_cost};
use crate::path::datagram::peer::YieldPolicy;
use crate::serving::admission::{Admission, LINGER};
use crate::serving::stop::Drain;
use crate::sync::{Condvar, Mutex, MutexGuard, Rank};
use crate::sys;

/// What its threads are called.
pub(super) const THREAD: &str = "peregrine-receive";
/// How long a thread that panicked waits before it begins anew.
const PAUSE: Duration = Duration::from_millis(2);
/// How often the deputy looks whether the head is away; how seldom, while nothing happens; and
/// how many times in a row nothing may have happened until it does not look any more.
const WATCH: Duration = Duration::from_millis(2);
const WATCH_MAX: Duration = Duration::from_millis(8);
const WATCHES: u32 = 100;
/// Looks between two pauses.
const PAUSE_EVERY: u32 = 8;
/// Nanoseconds of a procedure that are worth waking another thread for before it runs.
const SLOW: u64 = 20_000;
/// What a procedure counts as that makes calls: they may come back here, and need another thread.
const NESTED: u64 = 64 * SLOW;
/// What it counts as if another caller's call was waiting meanwhile, and how soon that was found.
const CROWDED: u64 = 16 * SLOW;
const AT_ONCE: u64 = 1500;
/// Threads that there are at least, and that block in the kernel where procedures take long; and how
/// many may do so at most, for calls that come together.
const ASLEEP: u32 = 2;
const ASLEEP_MAX: u32 = 8;

/// Where they receive.
pub(super) trait PacketService: Send + Sync + 'static {
    /// What each thread has of its own.
    type ReceiverState: Send;
    /// A call that is to be run.
    type Work: Send;

    /// What a new thread needs.
    ///
    /// # Errors
    /// If there is no memory.
    fn receiver(&self) -> io::Result<Self::ReceiverState>;

    /// Takes one datagram, waiting for it as `how` says, and answers it unless it is a call.
    /// `alone`: no other thread receives, and none begins to before this one has returned.
    fn receive(&self, receiver: &mut Self::ReceiverState, how: How, alone: bool)
    -> Got<Self::Work>;

    /// Looks between two readings of the clock.
    fn looks(&self) -> u32 {
        8
    }

    /// The thread does not receive any more, for now: others need what it kept for that.
    fn release_expected(&self, receiver: &mut Self::ReceiverState);

    /// Runs a call; when its procedure had ended, by [`boot_ns`](sys::boot_ns).
    fn run(&self, receiver: &mut Self::ReceiverState, work: Self::Work) -> u64;

    /// Makes a call independent of the hand that received it; refuses it if that is impossible.
    fn detach(&self, receiver: &mut Self::ReceiverState, work: Self::Work) -> Option<Self::Work>;

    /// Answers a call that does not run.
    fn refuse(&self, receiver: &mut Self::ReceiverState, work: Self::Work, refusal: &Refusal);

    /// Whether calls wait for something other than a thread.
    fn has_deferred(&self) -> bool {
        false
    }

    /// One of them, if it need not wait any more.
    fn deferred(&self) -> Option<Self::Work> {
        None
    }

    /// Who calls: a number that two calls at one time never share.
    fn caller(&self, work: &Self::Work) -> u32;

    /// Whether a thread of this process waits for the call to end, by way of others.
    fn is_from_inside(&self, receiver: &mut Self::ReceiverState, work: &mut Self::Work) -> bool;

    /// Makes threads that block in the kernel come back, from now on.
    fn close(&self);

    /// A thread panicked, and begins anew.
    fn panicked(&self, panic: Box<dyn Any + Send>);
}

/// How to wait for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Not at all.
    Look,
    /// Asleep.
    Sleep,
}

/// What came.
pub(super) enum Got<W> {
    /// Nothing.
    Nothing,
    /// Something that is settled.
    Settled,
    /// A call.
    Work(W),
}

/// Threads at one socket.
pub(super) struct Receivers<P: PacketService> {
    service: P,
    wait: Wait,
    admission: Arc<Admission>,
    /// Threads that receive, or are about to.
    receiving: AtomicU32,
    lead: Lead,
    /// About how long procedures take, in nanoseconds.
    pace: AtomicU64,
    /// Whether one of those that stand by watches the head.
    deputy: AtomicBool,
    stopping: AtomicBool,
    state: Mutex<State<P::Work>>,
    /// Threads that stand by are told.
    wanted: Condvar,
    ended: Condvar,
}

/// Which thread is the head, and whether it is away, in one word: so the head that comes back and the
/// deputy that takes its place agree which of them it is.
#[derive(Debug, Default)]
struct Lead(AtomicU64);

/// What that word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Led {
    /// The number of the head, or zero.
    head: u32,
    /// Procedures that heads have begun, twice, and one more while the head is in one.
    count: u32,
}

impl Lead {
    #[inline]
    fn read(&self) -> Led {
        let word = self.0.load(Ordering::SeqCst);
        Led { head: (word >> 32) as u32, count: word as u32 }
    }

    /// Changes it, unless another thread has done so since it was read.
    #[inline]
    fn change(&self, from: Led, to: Led) -> bool {
        let word = |led: Led| u64::from(led.head) << 32 | u64::from(led.count);
        let order = Ordering::SeqCst;
        self.0.compare_exchange(word(from), word(to), order, order).is_ok()
    }
}

impl Led {
    const fn next(self) -> Self {
        Self { head: self.head, count: self.count.wrapping_add(1) }
    }

    const fn is_away(self) -> bool {
        self.count % 2 == 1
    }
}

struct State<W> {
    /// Calls that wait, and whether they come from inside.
    queue: VecDeque<(W, bool)>,
    threads: u32,
    next: u32,
    standing_by: u32,
    /// Threads that were asked to receive, and have not begun.
    asked: u32,
}

/// A thread.
struct Member<H> {
    number: u32,
    receiver: H,
    /// Until when it looks before it sleeps; `None` if it is to sleep.
    until: Option<Instant>,
    looks: u32,
    yielding: YieldPolicy,
    /// Who called last, and when that call had been run.
    last: Option<(u32, u64)>,
}

/// Why a thread leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// There was nothing for it to do.
    Bored,
    /// The receivers stop.
    Stopped,
}

/// A thread that runs a call, until this is dropped: however its call ends, it is then among those
/// that receive.
struct Inside<'a, P: PacketService> {
    receivers: &'a Receivers<P>,
    /// What the head noted when it went away; `None` if the thread is not the head.
    away: Option<Led>,
}

impl<P: PacketService> Drop for Inside<'_, P> {
    #[inline]
    fn drop(&mut self) {
        let Receivers { receiving, admission, .. } = self.receivers;
        // The deputy that takes the place of the head takes its count as well.
        let is_counted =
            self.away.is_some_and(|away| self.receivers.lead.change(away, away.next()));
        if !is_counted {
            receiving.fetch_add(1, Ordering::SeqCst);
        }
        admission.end();
    }
}

impl<P: PacketService> Receivers<P> {
    /// Receivers that have begun.
    ///
    /// # Errors
    /// If there is no memory, or no thread can be started.
    pub(super) fn start(
        service: P,
        wait: Wait,
        admission: Arc<Admission>,
    ) -> io::Result<Arc<Self>> {
        let state = State { queue: VecDeque::new(), threads: 0, next: 1, standing_by: 0, asked: 0 };
        let receivers = Arc::new(Self {
            service,
            wait,
            admission,
            receiving: AtomicU32::new(0),
            lead: Lead::default(),
            pace: AtomicU64::new(0),
            deputy: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            state: Mutex::ranked(Rank::Threads, state),
            wanted: Condvar::new(),
            ended: Condvar::new(),
        });
        for _ in 0..ASLEEP {
            if let Err(error) = receivers.add(&mut receivers.state()) {
                receivers.stop(Duration::ZERO);
                return Err(error);
            }
        }
        Ok(receivers)
    }

    /// Where it works.
    pub(super) const fn service(&self) -> &P {
        &self.service
    }

    /// What bounds its procedures.
    pub(super) fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Threads that there are.
    pub(super) fn threads(&self) -> usize {
        self.state().threads as usize
    }

    #[track_caller]
    fn state(&self) -> MutexGuard<'_, State<P::Work>> {
        self.state.lock()
    }

    /// Starts a thread, which receives.
    fn add(self: &Arc<Self>, state: &mut State<P::Work>) -> io::Result<()> {
        let receiver = self.service.receiver()?;
        let member = Member {
            number: state.next,
            receiver,
            until: None,
            looks: 0,
            yielding: YieldPolicy::default(),
            last: None,
        };
        let receivers = Arc::clone(self);
        let thread = std::thread::Builder::new().name(THREAD.into());
        // Before it runs: what is received in between is waited for by it.
        self.receiving.fetch_add(1, Ordering::SeqCst);
        let started = thread.spawn(move || receivers.live(member));
        if let Err(error) = started {
            self.receiving.fetch_sub(1, Ordering::SeqCst);
            return Err(error);
        }
        state.next = state.next.checked_add(1).unwrap_or(1);
        state.threads += 1;
        Ok(())
    }

    /// A thread's life: it begins among those that receive. If it panics it begins anew, and it is
    /// among them still: what counts otherwise is put right while it unwinds.
    fn live(self: &Arc<Self>, mut member: Member<P::ReceiverState>) {
        let left = loop {
            match catch_unwind(AssertUnwindSafe(|| self.work(&mut member))) {
                Ok(left) => break left,
                Err(panic) => {
                    self.service.panicked(panic);
                    // The panic may have left the old one in any state.
                    if let Ok(receiver) = self.service.receiver() {
                        member.receiver = receiver;
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        };
        if left == Left::Bored {
            // It is not counted any more.
            return;
        }
        self.receiving.fetch_sub(1, Ordering::SeqCst);
        let ends = AssertUnwindSafe(|| {
            self.hand_over(&mut member);
            let queue = core::mem::take(&mut self.state().queue);
            let deferred = core::iter::from_fn(|| self.service.deferred());
            for work in queue.into_iter().map(|(work, _)| work).chain(deferred) {
                self.service.refuse(&mut member.receiver, work, &Refusal::stopping());
            }
        });
        if let Err(panic) = catch_unwind(ends) {
            self.service.panicked(panic);
        }
        self.state().threads -= 1;
        self.ended.notify_all();
    }

    /// A thread's work, until it is to end.
    fn work(self: &Arc<Self>, member: &mut Member<P::ReceiverState>) -> Left {
        // A thread that panicked did not look into the queue when its call had ended.
        self.run_queued(member);
        while !self.stopping.load(Ordering::SeqCst) {
            let Some(how) = self.how(member) else {
                // Others receive.
                self.service.release_expected(&mut member.receiver);
                if self.stand_by(member.number) {
                    continue;
                }
                return Left::Bored;
            };
            let alone = self.is_alone(member.number);
            match self.service.receive(&mut member.receiver, how, alone) {
                Got::Nothing => self.tire(member, how),
                Got::Settled => {
                    // Perhaps a question about a call that waits: more may run than when it came.
                    self.run_queued(member);
                    self.refresh(member);
                }
                Got::Work(work) => {
                    self.take(member, work);
                    self.refresh(member);
                }
            }
        }
        Left::Stopped
    }

    /// Whether the thread of that number receives, and no other one does. Beside a head there may be
    /// threads that sleep in the kernel since procedures took long: they take the next datagram.
    #[inline]
    fn is_alone(&self, number: u32) -> bool {
        self.lead.read().head == number && self.receiving.load(Ordering::SeqCst) == 1
    }

    /// How to wait now; `None` if others receive: then the thread is not among them any more.
    #[inline]
    fn how(&self, member: &mut Member<P::ReceiverState>) -> Option<How> {
        let head = self.lead.read().head;
        if head != 0 && head != member.number {
            self.receiving.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        let looks = member.until.is_some();
        let may = looks || !self.is_slow();
        if head != 0 && !may {
            self.hand_over(member);
        }
        if may && (head != 0 || self.begin_to_lead(member.number)) {
            return Some(if looks { How::Look } else { How::Sleep });
        }
        if looks {
            // The thread that looks is alone.
            self.receiving.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        (!self.leave_to_others()).then_some(How::Sleep)
    }

    /// Whether enough others receive: then the thread is not among them any more. A thread that sleeps
    /// in the kernel has no time limit there, so each one too many would stay.
    fn leave_to_others(&self) -> bool {
        let fewer = |receiving| (receiving > ASLEEP_MAX).then(|| receiving - 1);
        self.receiving.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok()
    }

    /// Whether procedures take long.
    #[inline]
    fn is_slow(&self) -> bool {
        self.pace.load(Ordering::Relaxed) > SLOW
    }

    /// Something came: it pays to look for what comes next.
    #[inline]
    fn refresh(&self, member: &mut Member<P::ReceiverState>) {
        let looks = self.service.looks();
        member.yielding.note_arrival(member.looks / looks, member.looks.is_multiple_of(looks));
        member.looks = 0;
        member.until = match self.wait {
            Wait::Block => None,
            // Set when the first look has found nothing.
            Wait::Spin | Wait::Adaptive => Some(Instant::now() + block_cost()),
        };
    }

    /// A look found nothing, or a sleep ended without anything.
    fn tire(self: &Arc<Self>, member: &mut Member<P::ReceiverState>, how: How) {
        if how == How::Sleep {
            return;
        }
        member.looks += 1;
        let looks = self.service.looks();
        if !member.looks.is_multiple_of(looks) {
            // Not each time: it may take as long as several looks.
            if member.looks.is_multiple_of(PAUSE_EVERY) {
                core::hint::spin_loop();
            }
            return;
        }
        if member.yielding.is_due(member.looks / looks) {
            // Whoever is to send the next datagram may need this very processor.
            std::thread::yield_now();
        }
        if self.wait == Wait::Spin || member.until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        member.until = None;
        if self.is_slow() {
            self.hand_over(member);
            // Who is woken then need not wake another one.
            if self.receiving.load(Ordering::SeqCst) < ASLEEP {
                self.fetch();
            }
        }
    }

    /// Whether the thread of that number has become the head, where there was none.
    fn begin_to_lead(&self, number: u32) -> bool {
        let led = self.lead.read();
        led.head == 0 && self.lead.change(led, Led { head: number, ..led })
    }

    /// The thread is not the head any more, and others may receive beside it.
    fn hand_over(&self, member: &mut Member<P::ReceiverState>) {
        self.service.release_expected(&mut member.receiver);
        let led = self.lead.read();
        if led.head == member.number {
            // It is not away, so only the head itself changes this.
            self.lead.change(led, Led { head: 0, ..led });
        }
    }

    /// A call has come: this thread runs it, or it waits for one that does.
    #[inline]
    fn take(self: &Arc<Self>, member: &mut Member<P::ReceiverState>, mut work: P::Work) {
        if self.admission.try_begin(false) {
            self.run(member, work);
        } else {
            let inside = self.service.is_from_inside(&mut member.receiver, &mut work);
            if inside && self.admission.try_begin(true) {
                self.run(member, work);
            } else {
                self.enqueue(member, work, inside);
            }
        }
        self.run_queued(member);
    }

    #[inline]
    fn run_queued(self: &Arc<Self>, member: &mut Member<P::ReceiverState>) {
        while let Some(next) = self.next() {
            self.run(member, next);
        }
    }

    /// A call from the queue, and the right to run it.
    #[inline]
    fn next(&self) -> Option<P::Work> {
        let queued = if self.admission.waiting() > 0 { self.next_queued() } else { None };
        queued.or_else(|| if self.service.has_deferred() { self.next_deferred() } else { None })
    }

    /// A call that waited for something other than a thread, and the right to run it.
    #[cold]
    fn next_deferred(&self) -> Option<P::Work> {
        if !self.admission.try_begin(false) {
            // Whoever has run its call looks again.
            return None;
        }
        let next = self.service.deferred();
        if next.is_none() {
            self.admission.end();
        }
        next
    }

    /// A call from inside goes first, wherever it waits: what runs may wait for it, so that it must
    /// not wait for that.
    #[cold]
    fn next_queued(&self) -> Option<P::Work> {
        let mut state = self.state();
        let inside = state.queue.iter().position(|(_, inside)| *inside);
        let next = match inside {
            Some(at) if self.admission.try_begin(true) => state.queue.remove(at),
            None if self.admission.try_begin(false) => {
                let next = state.queue.pop_front();
                if next.is_none() {
                    self.admission.end();
                }
                next
            }
            _ => None,
        };
        self.admission.set_waiting(state.queue.len());
        next.map(|(work, _)| work)
    }

    /// Runs a call, for which this thread has been counted.
    #[inline]
    fn run(self: &Arc<Self>, member: &mut Member<P::ReceiverState>, work: P::Work) {
        // The deputy takes the place of the head, if it is away for long; who sleeps in the kernel
        // beside us takes ours.
        let start = sys::boot_ns();
        let caller = self.service.caller(&work);
        // Somebody else's call was there before this thread was back: there is enough for two.
        let waited = |(last, ended)| last != caller && start.saturating_sub(ended) < AT_ONCE;
        let crowded = member.last.is_some_and(waited);
        let mut led = self.lead.read();
        if led.head == member.number && self.is_slow() {
            self.hand_over(member);
            led = self.lead.read();
        }
        let mut inside = Inside { receivers: self, away: None };
        if led.head == member.number && self.lead.change(led, led.next()) {
            inside.away = Some(led.next());
            if !self.deputy.load(Ordering::SeqCst) {
                self.appoint();
            }
        } else if self.receiving.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.fetch();
        }
        let ended = self.service.run(&mut member.receiver, work);
        member.last = Some((caller, sys::boot_ns()));
        let mut took = ended.saturating_sub(start);
        if has_waited() {
            took = took.max(NESTED);
        } else if crowded {
            took = took.max(CROWDED);
        }
        let pace = self.pace.load(Ordering::Relaxed);
        // What two threads note at once is lost for one of them, and matters to neither.
        self.pace.store(pace - pace / 8 + took / 8, Ordering::Relaxed);
        drop(inside);
    }

    #[cold]
    fn enqueue(&self, member: &mut Member<P::ReceiverState>, work: P::Work, inside: bool) {
        if let Err(refusal) = self.admission.may_wait(self.state().queue.len(), 0) {
            self.service.refuse(&mut member.receiver, work, &refusal);
        } else if let Some(work) = self.service.detach(&mut member.receiver, work) {
            let mut state = self.state();
            state.queue.push_back((work, inside));
            self.admission.set_waiting(state.queue.len());
        }
    }

    /// Whether there may be one thread more: one beyond those that may run procedures, or that do.
    fn may_add(&self, state: &State<P::Work>) -> bool {
        let may_run = self.admission.bound(true);
        // Who waited inside when a call began beyond the bound may not do so any more, and soon again.
        state.threads as usize <= may_run.max(self.admission.running())
    }

    /// One thread more is to receive, if there may be one.
    #[cold]
    fn fetch(self: &Arc<Self>) {
        let mut state = self.state();
        if state.standing_by > state.asked {
            state.asked += 1;
            drop(state);
            self.wanted.notify_one();
        } else if self.may_add(&state) {
            // Without it, what comes waits until one of those that there are is back.
            let _ = self.add(&mut state);
        }
    }

    /// The head is about to be away, and there is no deputy.
    #[cold]
    fn appoint(self: &Arc<Self>) {
        let mut state = self.state();
        if state.standing_by > 0 {
            drop(state);
            self.wanted.notify_one();
        } else if self.may_add(&state) {
            // It comes to receive, and finds that there is a head.
            let _ = self.add(&mut state);
        }
    }

    /// Waits until one more thread is to receive, and counts it; false if the thread has ended.
    #[cold]
    fn stand_by(&self, number: u32) -> bool {
        let mut state = self.state();
        state.standing_by += 1;
        let (mut deputy, mut pause, mut seen) = (false, WATCH, self.lead.read());
        let (mut quiet, mut retired) = (0, false);
        let (receives, counted) = loop {
            if self.stopping.load(Ordering::SeqCst) {
                break (true, false);
            }
            if state.asked > 0 {
                state.asked -= 1;
                break (true, false);
            }
            if self.lead.read().head == 0 && self.receiving.load(Ordering::SeqCst) == 0 {
                // The last that received looked for one that stands by just before this one did.
                break (true, false);
            }
            deputy |= !retired && !self.deputy.swap(true, Ordering::SeqCst);
            let limit = if deputy { pause } else { LINGER };
            let timed_out;
            (state, timed_out) = self.wanted.wait_timeout(state, limit);
            if !timed_out || state.asked > 0 {
                // Perhaps to be the deputy.
                retired = false;
                continue;
            }
            if !deputy {
                if state.threads > ASLEEP {
                    break (false, false);
                }
                continue;
            }
            let led = self.lead.read();
            if led.head == 0 && self.receiving.load(Ordering::SeqCst) < ASLEEP {
                break (true, false);
            }
            let long = led.head != 0 && led == seen && led.is_away();
            if long && self.lead.change(led, Led { head: number, ..led.next() }) {
                // The thread that was the head counts itself when it is back.
                break (true, true);
            }
            // Where nothing happens it looks less often, and in the end not at all.
            (pause, quiet) =
                if led == seen { ((pause * 2).min(WATCH_MAX), quiet + 1) } else { (WATCH, 0) };
            seen = led;
            if quiet > WATCHES {
                self.deputy.store(false, Ordering::SeqCst);
                // Who went away before that has seen a deputy.
                if self.lead.read() == seen {
                    (deputy, retired) = (false, true);
                } else {
                    deputy = !self.deputy.swap(true, Ordering::SeqCst);
                }
                quiet = 0;
            }
        };
        state.standing_by -= 1;
        if deputy {
            self.deputy.store(false, Ordering::SeqCst);
        }
        if !receives {
            state.threads -= 1;
        } else if !counted {
            self.receiving.fetch_add(1, Ordering::SeqCst);
        }
        receives
    }

    /// Waits until no procedure runs and no call waits; false if that was not so when the drain was
    /// over.
    pub(super) fn rest(&self, drain: &Drain) -> bool {
        self.admission.drain(drain, || self.admission.waiting() + self.admission.running() == 0)
    }

    /// Ends all threads; false if one still ran a procedure after `limit`.
    pub(super) fn stop(&self, limit: Duration) -> bool {
        self.stopping.store(true, Ordering::SeqCst);
        self.service.close();
        self.wanted.notify_all();
        let there = |state: &mut State<P::Work>| state.threads > 0;
        let waited = self.ended.wait_timeout_while(self.state(), limit, there);
        let (state, _) = waited;
        state.threads == 0
    }
}
