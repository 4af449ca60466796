//! The receiving threads of a datagram socket of a server. At any time, some of them receive, while others
//! run calls.
//!
//! Any thread may receive at any time. So correctness does not depend on this module. The module only decides
//! which thread serves a call, and how soon. The thread that has received a call usually runs the call to its
//! end, because waking another thread costs time. For this reason, Firefly keeps idle server threads waiting
//! in the call table.
//!
//! * While procedures are short, only one thread receives: the *head*. The head polls, or sleeps in the
//!   kernel, and runs the calls that it receives. No other thread sleeps in the kernel then. Otherwise each
//!   datagram would wake that thread, although a polling head has already taken the datagram. If client and
//!   server share a processor, the client makes its next call before the head has returned from sending the
//!   reply. This call, too, would wake a thread that sleeps in the kernel.
//! * The *deputy* sleeps, and checks from time to time whether the head runs a procedure that takes long. If
//!   so, the deputy becomes the head.
//! * If procedures take long, or make calls that may come back to this server, there is no head. Two to eight threads sleep in the
//!   kernel. While some of them run procedures, the others receive. If the only thread that still receives
//!   gets a call, this thread first lets a further thread receive. A thread that stops polling also lets a
//!   further thread receive, if fewer than two threads receive. Further threads are on standby, and end if
//!   they are not needed.
//! * If a client cancels a call whose procedure runs, another thread replaces the thread that runs the
//!   procedure.
//! * If the largest allowed number of threads runs procedures, one more thread receives. This thread answers
//!   packets that need no procedure, and queues calls.

mod head;
mod living;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use self::head::{HeadState, HeadWord};
use self::living::Living;
use super::yielding::YieldPolicy;
use crate::call::chain::has_waited;
use crate::call::{Refusal, Wait, block_cost};
use crate::serving::admission::{Admission, LINGER};
use crate::serving::spares::Spares;
use crate::serving::stop::Drain;
use crate::sync::{Condvar, Mutex, MutexGuard, Rank};
use crate::sys;

/// The name that each of these threads has.
pub(in crate::path) const THREAD: &str = "peregrine-receive";
/// The pause of a thread after a panic.
const PAUSE: Duration = Duration::from_millis(2);
/// The time between two checks in which the deputy looks at the head.
const WATCH: Duration = Duration::from_millis(2);
/// The longest time between two checks in which the deputy looks at the head. The deputy waits for this time
/// if nothing has happened for a while.
const WATCH_MAX: Duration = Duration::from_millis(8);
/// After this many successive checks without an event, the deputy stops checking.
const WATCHES: u32 = 100;
/// The number of polls between two `spin_loop` hints, which let the processor pause for a moment.
const PAUSE_EVERY: u32 = 8;
/// If procedures take longer than this many nanoseconds on average, waking another thread before a procedure
/// begins is worth its cost.
const SLOW: u64 = 20_000;
/// A procedure that makes calls counts in the average with at least this many nanoseconds, if calls tell from
/// which calls they were made. Its nested calls may come back to this server, and then need another thread.
const NESTED: u64 = 64 * SLOW;
/// If another client's call already waits when a thread ends a call, the waiting call counts in the average
/// with at least this many nanoseconds.
const CROWDED: u64 = 16 * SLOW;
/// A call counts as already waiting if it begins less than this many nanoseconds after the end of the
/// previous call of its thread.
const AT_ONCE: u64 = 1500;
/// The smallest number of threads of one socket. If procedures take long, at least this many threads receive,
/// and sleep in the kernel meanwhile. So a call need not wake a further thread first.
const ASLEEP: u32 = 2;
/// At most this number of threads sleep in the kernel at a time. Each of them can take one of several calls
/// that arrive together.
const ASLEEP_MAX: u32 = 8;

/// The service that the threads use to receive datagrams and to run calls.
pub(in crate::path) trait PacketService: Send + Sync + 'static {
    /// Whether calls tell from which calls they were made. If so, a call that a procedure makes may come back
    /// to this server, and the server then knows that it belongs to that procedure.
    const KNOWS_NESTED: bool = true;

    /// The state of one thread.
    type ReceiverState: Send;
    /// A call that is ready to run.
    type Work: Send;

    /// Creates the state of a new thread.
    ///
    /// # Errors
    /// If there is no memory.
    fn receiver(&self) -> io::Result<Self::ReceiverState>;

    /// Receives datagrams, and handles those that are not calls. Waits as `mode` requests. `alone` is true if
    /// no other thread receives, and no other thread begins to receive before this function returns.
    fn receive(
        &self,
        receiver: &mut Self::ReceiverState,
        mode: ReceiveMode,
        alone: bool,
    ) -> ReceiveOutcome<Self::Work>;

    /// Returns the number of polls between two readings of the clock.
    fn looks(&self) -> u32 {
        8
    }

    /// Gives back memory that the thread has borrowed for receiving. The thread calls this function when
    /// other threads receive.
    fn release_expected(&self, receiver: &mut Self::ReceiverState);

    /// Runs a call. Returns the time at which its procedure ended, on the clock of
    /// [`boot_ns`](sys::boot_ns).
    fn run(&self, receiver: &mut Self::ReceiverState, work: Self::Work) -> u64;

    /// Detaches a call from the thread that received it, so that another thread can run it. If this is
    /// impossible, refuses the call, and returns `None`.
    fn detach(&self, receiver: &mut Self::ReceiverState, work: Self::Work) -> Option<Self::Work>;

    /// Answers a call with a refusal. The call does not run.
    fn refuse(&self, receiver: &mut Self::ReceiverState, work: Self::Work, refusal: &Refusal);

    /// Returns whether calls wait for something other than a thread, for example for memory.
    fn has_postponed(&self) -> bool {
        false
    }

    /// Removes and returns a call that has waited for something other than a thread, and that may run now.
    fn postponed(&self) -> Option<Self::Work> {
        None
    }

    /// Returns whether any call is deferred: its thread has left it, and its reply is not sent yet.
    fn has_deferred(&self) -> bool {
        false
    }

    /// Returns the number of the call's caller. Two callers that call at the same time rarely have the same
    /// number.
    fn caller(&self, work: &Self::Work) -> u32;

    /// Returns whether a thread of this process waits for this call, directly or through further nested
    /// calls.
    fn is_from_inside(&self, receiver: &mut Self::ReceiverState, work: &mut Self::Work) -> bool;

    /// Returns whether a call is answered as a packet that needs no procedure, because it never waits.
    fn needs_no_permit(&self, _: &Self::Work) -> bool {
        false
    }

    /// Wakes the threads that sleep in the kernel. From then on, no thread sleeps in the kernel.
    fn close(&self);

    /// Reports that a thread panicked. The thread continues afterwards.
    fn panicked(&self, panic: Box<dyn Any + Send>);
}

/// How to wait for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::path) enum ReceiveMode {
    /// Return at once.
    Poll,
    /// Sleep until a datagram arrives.
    Sleep,
}

/// The result of one attempt to receive.
pub(in crate::path) enum ReceiveOutcome<W> {
    /// Nothing arrived.
    Nothing,
    /// Datagrams arrived, but none of them is a call that is ready to run.
    Settled,
    /// A call that is ready to run.
    Work(W),
}

/// The threads of one socket.
pub(in crate::path) struct Receivers<P: PacketService> {
    service: P,
    wait: Wait,
    admission: Arc<Admission>,
    /// The number of threads that receive, or are about to receive.
    receiving: AtomicU32,
    head: HeadWord,
    /// The moving average of the run times of procedures, in nanoseconds.
    pace: AtomicU64,
    /// Whether one of the threads on standby is the deputy.
    deputy: AtomicBool,
    stopping: AtomicBool,
    state: Mutex<State<P::Work>>,
    /// Wakes threads on standby.
    wanted: Condvar,
    living: Arc<Living>,
}

struct State<W> {
    /// Calls that wait for a thread. The flag is true if a thread of this process waits for the result of the
    /// call.
    queue: VecDeque<(W, bool)>,
    threads: u32,
    next: u32,
    standby: u32,
    /// The number of threads on standby that were asked to receive, and have not begun to receive yet.
    asked: u32,
    spares: Spares,
}

/// The data of one thread.
struct ReceivingThread<S> {
    number: u32,
    state: S,
    /// The time at which the thread stops polling, and sleeps instead. `None` if the thread does not poll.
    until: Option<Instant>,
    looks: u32,
    yielding: YieldPolicy,
    /// The caller of the last call that the thread has run, and the time at which that call ended.
    last: Option<(u32, u64)>,
}

/// Why a thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The thread was not needed.
    Idle,
    /// The server stops.
    Stopped,
}

/// The guard of a thread that runs a call. Dropping the guard counts the thread as receiving again, even
/// after a panic.
struct RunningCall<'a, P: PacketService> {
    receivers: &'a Receivers<P>,
    /// The state of the head while this thread runs the call as the head. `None` if the thread was not the
    /// head.
    away: Option<HeadState>,
}

impl<P: PacketService> Drop for RunningCall<'_, P> {
    #[inline]
    fn drop(&mut self) {
        let Receivers { receiving, admission, .. } = self.receivers;
        // While the head runs a call, it stays counted as receiving. If a deputy has replaced the head
        // meanwhile, the deputy is counted instead. In that case, this thread must be counted again.
        let is_counted =
            self.away.is_some_and(|away| self.receivers.head.change(away, away.next()));
        if !is_counted {
            receiving.fetch_add(1, Ordering::SeqCst);
        }
        admission.end();
    }
}

impl<P: PacketService> Receivers<P> {
    /// Starts the threads of a socket.
    ///
    /// # Errors
    /// If there is no memory, or no thread can be started.
    pub(in crate::path) fn start(
        service: P,
        wait: Wait,
        admission: Arc<Admission>,
    ) -> io::Result<Arc<Self>> {
        let state = State {
            queue: VecDeque::new(),
            threads: 0,
            next: 1,
            standby: 0,
            asked: 0,
            spares: Spares::default(),
        };
        let receivers = Arc::new(Self {
            service,
            wait,
            admission,
            receiving: AtomicU32::new(0),
            head: HeadWord::default(),
            pace: AtomicU64::new(0),
            deputy: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            state: Mutex::ranked(Rank::Threads, state),
            wanted: Condvar::new(),
            living: Arc::default(),
        });
        for _ in 0..ASLEEP {
            if let Err(error) = receivers.add(&mut receivers.state()) {
                receivers.stop(Duration::ZERO);
                return Err(error);
            }
        }
        Ok(receivers)
    }

    /// Returns the service of the threads.
    pub(in crate::path) const fn service(&self) -> &P {
        &self.service
    }

    /// Returns the admission of the threads.
    pub(in crate::path) fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Returns the number of threads.
    pub(in crate::path) fn threads(&self) -> usize {
        self.state().threads as usize
    }

    #[track_caller]
    fn state(&self) -> MutexGuard<'_, State<P::Work>> {
        self.state.lock()
    }

    /// Starts a thread that receives.
    fn add(self: &Arc<Self>, state: &mut State<P::Work>) -> io::Result<()> {
        let thread = ReceivingThread {
            number: state.next,
            state: self.service.receiver()?,
            until: None,
            looks: 0,
            yielding: YieldPolicy::default(),
            last: None,
        };
        let (receivers, living) = (Arc::clone(self), Arc::clone(&self.living));
        let builder = std::thread::Builder::new().name(THREAD.into());
        // The thread is counted as receiving before it runs, because it will receive the datagrams that
        // arrive until then.
        self.receiving.fetch_add(1, Ordering::SeqCst);
        self.living.begin();
        let started = builder.spawn(move || {
            receivers.main(thread);
            drop(receivers);
            living.end();
        });
        if let Err(error) = started {
            self.living.end();
            self.receiving.fetch_sub(1, Ordering::SeqCst);
            return Err(error);
        }
        state.next = state.next.checked_add(1).unwrap_or(1);
        state.threads += 1;
        Ok(())
    }

    /// Runs a thread until the thread must end. When the thread begins, it is already counted as receiving.
    /// After a panic, the thread continues, and it still counts as receiving: guards restore the counts
    /// during unwinding.
    fn main(self: &Arc<Self>, mut thread: ReceivingThread<P::ReceiverState>) {
        let ended = loop {
            match catch_unwind(AssertUnwindSafe(|| self.work(&mut thread))) {
                Ok(ended) => break ended,
                Err(panic) => {
                    self.service.panicked(panic);
                    // The panic may have left the state of the thread broken. So the thread gets a new state.
                    if let Ok(state) = self.service.receiver() {
                        thread.state = state;
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        };
        if ended == Ended::Idle {
            // `wait_on_standby` has already subtracted this thread from the number of threads.
            return;
        }
        self.receiving.fetch_sub(1, Ordering::SeqCst);
        let ends = AssertUnwindSafe(|| {
            self.hand_over(&mut thread);
            let queue = core::mem::take(&mut self.state().queue);
            let postponed = core::iter::from_fn(|| self.service.postponed());
            for work in queue.into_iter().map(|(work, _)| work).chain(postponed) {
                self.service.refuse(&mut thread.state, work, &Refusal::stopping());
            }
        });
        if let Err(panic) = catch_unwind(ends) {
            self.service.panicked(panic);
        }
        self.state().threads -= 1;
    }

    /// Receives and runs calls until the thread must end.
    fn work(self: &Arc<Self>, thread: &mut ReceivingThread<P::ReceiverState>) -> Ended {
        // If this thread has panicked before, it may have left calls in the queue.
        self.run_queued(thread);
        while !self.stopping.load(Ordering::SeqCst) {
            let Some(mode) = self.receive_mode(thread) else {
                // Enough other threads receive.
                self.service.release_expected(&mut thread.state);
                if self.wait_on_standby(thread.number) {
                    continue;
                }
                return Ended::Idle;
            };
            let alone = self.is_alone(thread.number);
            match self.service.receive(&mut thread.state, mode, alone) {
                ReceiveOutcome::Nothing => self.note_nothing(thread, mode),
                ReceiveOutcome::Settled => {
                    // The datagram may have been a probe for a queued call. Or the limit of running
                    // procedures may have risen since a call was queued.
                    self.run_queued(thread);
                    self.note_arrival(thread);
                }
                ReceiveOutcome::Work(work) => {
                    self.take(thread, work);
                    self.note_arrival(thread);
                }
            }
        }
        Ended::Stopped
    }

    /// Returns whether the thread with this number is the head, and no other thread receives. Even if there
    /// is a head, other threads may still sleep in the kernel, because earlier procedures took long. Such a
    /// thread may receive the next datagram.
    #[inline]
    fn is_alone(&self, number: u32) -> bool {
        self.head.read().head == number && self.receiving.load(Ordering::SeqCst) == 1
    }

    /// Returns how the thread must wait for the next datagram. Returns `None` if enough other threads
    /// receive. In that case, the thread no longer counts as receiving.
    #[inline]
    fn receive_mode(&self, thread: &mut ReceivingThread<P::ReceiverState>) -> Option<ReceiveMode> {
        let head = self.head.read().head;
        if head != 0 && head != thread.number {
            self.receiving.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        let looks = thread.until.is_some();
        let may = looks || !self.is_slow();
        if head != 0 && !may {
            self.hand_over(thread);
        }
        if may && (head != 0 || self.begin_to_lead(thread.number)) {
            return Some(if looks { ReceiveMode::Poll } else { ReceiveMode::Sleep });
        }
        if looks {
            // Only the head may poll.
            self.receiving.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        (!self.is_surplus()).then_some(ReceiveMode::Sleep)
    }

    /// If more threads than necessary receive, stops counting this thread as receiving, and returns true.
    /// Without this check, surplus threads would sleep in the kernel without a time limit.
    fn is_surplus(&self) -> bool {
        let fewer = |receiving| (receiving > ASLEEP_MAX).then(|| receiving - 1);
        self.receiving.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok()
    }

    /// Returns whether procedures take long on average.
    #[inline]
    fn is_slow(&self) -> bool {
        self.pace.load(Ordering::Relaxed) > SLOW
    }

    /// Lets the thread poll for some time after a datagram, because the next datagram may follow soon.
    #[inline]
    fn note_arrival(&self, thread: &mut ReceivingThread<P::ReceiverState>) {
        let looks = self.service.looks();
        thread.yielding.note_arrival(thread.looks / looks, thread.looks.is_multiple_of(looks));
        thread.looks = 0;
        thread.until = match self.wait {
            Wait::Block => None,
            // Polling ends when it has lasted as long as a sleep would cost. The time counts from the last
            // datagram.
            Wait::Spin | Wait::Adaptive => Some(Instant::now() + block_cost()),
        };
    }

    /// Notes that a poll or a sleep found no datagram.
    fn note_nothing(
        self: &Arc<Self>,
        thread: &mut ReceivingThread<P::ReceiverState>,
        mode: ReceiveMode,
    ) {
        if mode == ReceiveMode::Sleep {
            return;
        }
        thread.looks += 1;
        let looks = self.service.looks();
        if !thread.looks.is_multiple_of(looks) {
            // A pause of the processor may take as long as several polls. So the processor does not pause
            // after each poll.
            if thread.looks.is_multiple_of(PAUSE_EVERY) {
                core::hint::spin_loop();
            }
            return;
        }
        if thread.yielding.is_due(thread.looks / looks) {
            // The sender of the next datagram may need the processor on which this thread runs.
            std::thread::yield_now();
        }
        if self.wait == Wait::Spin || thread.until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        thread.until = None;
        if self.is_slow() {
            self.hand_over(thread);
            // This thread stops polling, so it now has time to wake a second thread. Otherwise the next call
            // would have to wake that second thread.
            if self.receiving.load(Ordering::SeqCst) < ASLEEP {
                self.fetch();
            }
        }
    }

    /// Lets the thread with this number become the head, if there is no head. Returns whether the thread
    /// became the head.
    fn begin_to_lead(&self, number: u32) -> bool {
        let led = self.head.read();
        led.head == 0 && self.head.change(led, HeadState { head: number, ..led })
    }

    /// Ends the leadership of the thread if it is the head, so that other threads may receive.
    fn hand_over(&self, thread: &mut ReceivingThread<P::ReceiverState>) {
        self.service.release_expected(&mut thread.state);
        let led = self.head.read();
        if led.head == thread.number {
            // The head runs no procedure now. So no other thread changes the word.
            self.head.change(led, HeadState { head: 0, ..led });
        }
    }

    /// Runs a call that has arrived, or queues it.
    #[inline]
    fn take(self: &Arc<Self>, thread: &mut ReceivingThread<P::ReceiverState>, mut work: P::Work) {
        if self.service.needs_no_permit(&work) {
            self.service.run(&mut thread.state, work);
        } else if self.admission.try_begin(false) {
            self.run(thread, work);
        } else {
            let inside = self.service.is_from_inside(&mut thread.state, &mut work);
            if inside && self.admission.try_begin(true) {
                self.run(thread, work);
            } else {
                self.enqueue(thread, work, inside);
            }
        }
        self.run_queued(thread);
    }

    #[inline]
    fn run_queued(self: &Arc<Self>, thread: &mut ReceivingThread<P::ReceiverState>) {
        while let Some(next) = self.next() {
            self.run(thread, next);
        }
    }

    /// Returns a waiting call that may run now, and counts the call as running.
    #[inline]
    fn next(&self) -> Option<P::Work> {
        let queued = if self.admission.waiting() > 0 { self.next_queued() } else { None };
        queued.or_else(|| if self.service.has_postponed() { self.next_postponed() } else { None })
    }

    /// Returns a call that has waited for something other than a thread, for example for memory. Counts the
    /// call as running.
    #[cold]
    fn next_postponed(&self) -> Option<P::Work> {
        if !self.admission.try_begin(false) {
            // The next thread whose call ends tries again.
            return None;
        }
        let next = self.service.postponed();
        if next.is_none() {
            self.admission.end();
        }
        next
    }

    /// Returns a queued call that may run now, and counts the call as running. If a thread of this process
    /// waits for one of the queued calls, that call goes first, because running procedures may wait for its
    /// result.
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

    /// Runs a call that is already counted as running.
    #[inline]
    fn run(self: &Arc<Self>, thread: &mut ReceivingThread<P::ReceiverState>, work: P::Work) {
        // If this thread is the head and the procedure takes long, the deputy will replace this thread. If
        // procedures take long on average, this thread stops being the head, and a thread that sleeps in the
        // kernel receives.
        let start = sys::boot_ns();
        let caller = self.service.caller(&work);
        // If another client's call was already waiting when the previous call ended, there is enough work for
        // two threads.
        let waited = |(last, ended)| last != caller && start.saturating_sub(ended) < AT_ONCE;
        let crowded = thread.last.is_some_and(waited);
        let mut led = self.head.read();
        if led.head == thread.number && self.is_slow() {
            self.hand_over(thread);
            led = self.head.read();
        }
        let mut running = RunningCall { receivers: self, away: None };
        if led.head == thread.number && self.head.change(led, led.next()) {
            running.away = Some(led.next());
            if !self.deputy.load(Ordering::SeqCst) {
                self.appoint_deputy();
            }
        } else if self.receiving.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.fetch();
        }
        let ended = self.service.run(&mut thread.state, work);
        thread.last = Some((caller, sys::boot_ns()));
        let mut took = ended.saturating_sub(start);
        if has_waited() && P::KNOWS_NESTED {
            took = took.max(NESTED);
        } else if crowded {
            took = took.max(CROWDED);
        }
        let pace = self.pace.load(Ordering::Relaxed);
        // Of two simultaneous updates, one may be lost. This does not matter for an average.
        self.pace.store(pace - pace / 8 + took / 8, Ordering::Relaxed);
        drop(running);
    }

    #[cold]
    fn enqueue(&self, thread: &mut ReceivingThread<P::ReceiverState>, work: P::Work, inside: bool) {
        if let Err(refusal) = self.admission.may_wait(self.state().queue.len(), 0) {
            self.service.refuse(&mut thread.state, work, &refusal);
        } else if let Some(work) = self.service.detach(&mut thread.state, work) {
            let mut state = self.state();
            state.queue.push_back((work, inside));
            self.admission.set_waiting(state.queue.len());
        }
    }

    /// Returns whether another thread may be started. The limit is one more than the number of procedures
    /// that may run. If more procedures than that already run, the limit is one more than the number of
    /// running procedures.
    fn may_add(&self, state: &State<P::Work>) -> bool {
        let may_run = self.admission.bound(true);
        // Each thread of this process that waits inside a procedure raises `may_run` by one, for a nested
        // call. When the thread stops waiting, `may_run` falls, although the nested call may still run. So
        // `may_run` may be less than the number of running procedures.
        state.threads as usize <= may_run.max(self.admission.running())
    }

    /// Lets one more thread receive, if the limit of threads allows this.
    #[cold]
    fn fetch(self: &Arc<Self>) {
        let mut state = self.state();
        if state.standby > state.asked {
            state.asked += 1;
            drop(state);
            self.wanted.notify_one();
        } else if self.may_add(&state) {
            // If no thread can be started, datagrams wait until the call of some thread ends.
            let _ = self.add(&mut state);
        }
    }

    fn nobody_receives(&self) -> bool {
        self.head.read().head == 0 && self.receiving.load(Ordering::SeqCst) == 0
    }

    /// Lets a thread on standby become the deputy.
    #[cold]
    fn appoint_deputy(self: &Arc<Self>) {
        let mut state = self.state();
        if state.standby > 0 {
            drop(state);
            self.wanted.notify_one();
        } else if self.may_add(&state) {
            // The new thread begins as a receiving thread. It then finds that there is a head, and goes on
            // standby.
            let _ = self.add(&mut state);
        }
    }

    /// Waits until the thread is needed for receiving, and then counts it as receiving. Returns false if the
    /// thread must end instead.
    #[cold]
    fn wait_on_standby(&self, number: u32) -> bool {
        let mut state = self.state();
        if state.asked == 0 && !self.nobody_receives() {
            let State { threads, standby, spares, .. } = &mut *state;
            if spares.must_end(*standby as usize) && *threads > ASLEEP {
                *threads -= 1;
                return false;
            }
        }
        state.standby += 1;
        let (mut deputy, mut pause, mut seen) = (false, WATCH, self.head.read());
        let (mut quiet, mut retired) = (0, false);
        let (receives, counted) = loop {
            if self.stopping.load(Ordering::SeqCst) {
                break (true, false);
            }
            if state.asked > 0 {
                state.asked -= 1;
                break (true, false);
            }
            if self.nobody_receives() {
                // No thread receives. When the last receiving thread began its call, this thread did not yet
                // count as a thread on standby. So that thread did not wake this one.
                break (true, false);
            }
            deputy |= !retired && !self.deputy.swap(true, Ordering::SeqCst);
            let limit = if deputy { pause } else { LINGER };
            let timed_out;
            (state, timed_out) = self.wanted.wait_timeout(state, limit);
            if !timed_out || state.asked > 0 {
                // The thread was woken, perhaps so that it becomes the deputy.
                retired = false;
                continue;
            }
            if !deputy {
                if state.threads > ASLEEP {
                    break (false, false);
                }
                continue;
            }
            let led = self.head.read();
            if led.head == 0 && self.receiving.load(Ordering::SeqCst) < ASLEEP {
                break (true, false);
            }
            let long = led.head != 0 && led == seen && led.is_away();
            if long && self.head.change(led, HeadState { head: number, ..led.next() }) {
                // From now on, this thread takes the head's place in the count of receiving threads. The
                // former head counts itself again when its call ends.
                break (true, true);
            }
            // While nothing happens, the deputy checks more and more seldom, and finally stops checking.
            (pause, quiet) =
                if led == seen { ((pause * 2).min(WATCH_MAX), quiet + 1) } else { (WATCH, 0) };
            seen = led;
            if quiet > WATCHES {
                self.deputy.store(false, Ordering::SeqCst);
                // The head may have begun a procedure before this store. In that case, the head still saw a
                // deputy, and did not appoint one. So if the state of the head has changed, this thread stays
                // the deputy, unless another thread has become the deputy meanwhile.
                if self.head.read() == seen {
                    (deputy, retired) = (false, true);
                } else {
                    deputy = !self.deputy.swap(true, Ordering::SeqCst);
                }
                quiet = 0;
            }
        };
        let State { standby, spares, .. } = &mut *state;
        *standby -= 1;
        spares.note_idle(*standby as usize);
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

    /// Waits until no procedure runs, no call waits, and no call is deferred. Returns false if the time for
    /// draining expires before that.
    pub(in crate::path) fn drain(&self, drain: &Drain) -> bool {
        // A procedure counts as running until its call is deferred. So deferred calls are counted last.
        let runs = || self.admission.waiting() + self.admission.running() > 0;
        self.admission.drain(drain, || !runs() && !self.service.has_deferred())
    }

    /// Ends all threads. Returns false if any thread still runs after the time `limit`.
    pub(in crate::path) fn stop(&self, limit: Duration) -> bool {
        self.stopping.store(true, Ordering::SeqCst);
        self.service.close();
        self.wanted.notify_all();
        self.living.wait(limit)
    }
}
