//! Admission control: limits the procedures that run at a time and the calls that wait, and refuses further
//! calls as overload. When the server stops, it waits for running procedures.
//!
//! Each group of threads has one [`Admission`]: the pool of local workers, the stream threads, and the
//! receivers of each socket. Each group defines how its threads wait for calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::stop::Drain;
use crate::call::{Refusal, chain};
use crate::error::Kind;
use crate::limits;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// How long a thread that is not needed stays idle before it ends.
pub(crate) const LINGER: Duration = Duration::from_secs(5);
/// The interval at which a waiting nested call checks whether it may run. The call has to poll, because no
/// notification is sent when the number of threads that wait inside procedures changes.
const NESTED_POLL: Duration = Duration::from_millis(1);

/// Counts the running procedures and the waiting calls of a group of threads, and bounds both numbers.
pub(crate) struct Admission {
    /// The number of procedures that may run at a time.
    running_max: usize,
    /// The number of calls that may wait.
    waiting_max: usize,
    running: AtomicUsize,
    waiting: AtomicUsize,
    /// The number of procedures that still run although their callers have given up the calls.
    captured: AtomicUsize,
    stopping: AtomicBool,
    /// Returns how many threads of this process wait inside procedures for the results of nested calls.
    waiting_inside: Box<dyn Fn() -> u32 + Send + Sync>,
    lock: Mutex<()>,
    /// Notified when a procedure ends while calls wait, or while the server stops.
    changed: Condvar,
}

impl Admission {
    /// Returns an admission that lets `running_max` procedures run at a time and `waiting_max` calls wait.
    pub(crate) fn new(running_max: usize, waiting_max: usize) -> Arc<Self> {
        Self::with_nested(running_max, waiting_max, chain::waiting_inside)
    }

    /// Returns an admission as [`new`](Self::new) does. `waiting_inside` returns how many threads wait inside
    /// procedures.
    pub(crate) fn with_nested(
        running_max: usize,
        waiting_max: usize,
        waiting_inside: impl Fn() -> u32 + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            running_max: running_max.max(1),
            waiting_max,
            running: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            captured: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            waiting_inside: Box::new(waiting_inside),
            lock: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock()
    }

    // These functions are about the bounds.

    /// Returns the number of procedures that may run at a time, as the server's owner has configured it.
    pub(crate) const fn running_max(&self) -> usize {
        self.running_max
    }

    /// Returns the number of procedures that run.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// Returns whether as many procedures run as may run.
    pub(crate) fn is_full(&self) -> bool {
        self.running() >= self.bound(false)
    }

    /// Returns the number by which the running procedures exceed the configured bound.
    pub(crate) fn excess(&self) -> usize {
        self.running().saturating_sub(self.running_max)
    }

    /// Returns the number of procedures that may run at this moment. A `nested` call has a higher bound.
    ///
    /// A procedure whose caller has given up the call keeps its thread, and another thread replaces it
    /// (LRPC's captured thread). A nested call is a call for which a thread of this process waits. Nested
    /// calls may exceed the configured bound by at most the number of threads that wait. This limit is needed
    /// because any peer can claim that its call is nested.
    #[cold]
    pub(crate) fn bound(&self, nested: bool) -> usize {
        let replaced = self.captured.load(Ordering::SeqCst).min(limits::REPLACED_MAX);
        let nested = if nested { self.nested() } else { 0 };
        self.running_max.saturating_add(replaced).saturating_add(nested)
    }

    /// Returns the number of threads of this process that wait inside procedures. The same number of nested
    /// calls may exceed the bound.
    pub(crate) fn nested(&self) -> usize {
        (self.waiting_inside)() as usize
    }

    /// Returns whether any procedure still runs although its caller has given up the call.
    pub(crate) fn has_captured(&self) -> bool {
        self.captured.load(Ordering::SeqCst) > 0
    }

    /// Adds `added` to the number of captured procedures, and subtracts `removed` from it.
    pub(crate) fn captured(&self, added: usize, removed: usize) {
        self.captured.fetch_sub(removed, Ordering::SeqCst);
        // SYNC: admission. A waiting call increments `waiting` and then reads `captured`. This function
        // increments `captured` and then reads `waiting`. So at least one of the two sees the increment of
        // the other.
        if added > 0 {
            self.captured.fetch_add(added, Ordering::SeqCst);
            if self.waiting() > 0 {
                self.notify();
            }
        }
    }

    /// Sets the number of captured procedures, for a group of threads that counts captured procedures itself.
    pub(crate) fn set_captured(&self, count: usize) {
        self.captured.store(count, Ordering::SeqCst);
    }

    // These functions are about running calls.

    /// Returns whether one more procedure may run. If so, counts the procedure as running until
    /// [`end`](Self::end).
    #[inline]
    pub(crate) fn try_begin(&self, nested: bool) -> bool {
        self.begin_below(self.running_max)
            || (nested || self.has_captured()) && self.begin_below(self.bound(nested))
    }

    #[inline]
    fn begin_below(&self, bound: usize) -> bool {
        // The count is raised only if the procedure may run. If the count were raised first and then lowered
        // again, another call could get no permit meanwhile, and no `end` would notify that call.
        let more = |running| (running < bound).then_some(running + 1);
        self.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Counts that a procedure has ended.
    #[inline]
    pub(crate) fn end(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
        // SYNC: admission. A waiting call increments `waiting` and then reads `running`. This function
        // decrements `running` and then reads `waiting`. So at least one of the two sees the change that the
        // other has made.
        if self.waiting() > 0 || self.is_stopping() {
            self.notify();
        }
    }

    /// Wakes the waiting calls and the thread that drains the server, so that they check again.
    #[cold]
    pub(crate) fn notify(&self) {
        let _held = self.lock();
        self.changed.notify_all();
    }

    // These functions are about waiting calls.

    /// Returns the number of calls that wait.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Sets the number of waiting calls, for a group of threads that has its own queue.
    pub(crate) fn set_waiting(&self, count: usize) {
        self.waiting.store(count, Ordering::SeqCst);
    }

    /// Checks whether one more call may wait when `waiting` calls wait already. Threads can take `at_once`
    /// calls without delay, so these calls do not count.
    ///
    /// # Errors
    /// If the server stops, or its queue is full.
    pub(crate) fn may_wait(&self, waiting: usize, at_once: usize) -> Result<(), Refusal> {
        if self.is_stopping() {
            return Err(Refusal::stopping());
        }
        let most = self.waiting_max.saturating_add(at_once);
        if waiting < most { Ok(()) } else { Err(self.overloaded(waiting)) }
    }

    #[cold]
    fn overloaded(&self, waiting: usize) -> Refusal {
        let (running, most) = (self.running(), self.running_max);
        let text = format!(
            "{running} threads run procedures, {waiting} calls wait: `Server::threads` is {most}, \
             and `Server::queue` is {}",
            self.waiting_max
        );
        Refusal::new(Kind::Overloaded, text)
    }

    /// Waits for a permit to run one more procedure. If no permit is free, runs the closure `waits` before it
    /// waits.
    ///
    /// # Errors
    /// If the server stops, its queue is full, or `waits` fails.
    pub(crate) fn begin(
        &self,
        nested: bool,
        waits: &mut dyn FnMut() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if !self.is_stopping() && self.try_begin(nested) {
            return Ok(());
        }
        waits()?;
        self.wait_for_permit(nested)
    }

    #[cold]
    fn wait_for_permit(&self, nested: bool) -> Result<(), Refusal> {
        let mut held = self.lock();
        // SYNC: admission, in `end`.
        let before = self.waiting.fetch_add(1, Ordering::SeqCst);
        let refusal = if nested { None } else { self.may_wait(before, 0).err() };
        let result = loop {
            if self.is_stopping() {
                break Err(Refusal::stopping());
            }
            if self.try_begin(nested) {
                break Ok(());
            }
            // The bound on waiting calls applies only to calls that cannot run at once.
            if let Some(refusal) = refusal {
                break Err(refusal);
            }
            let limit = if nested { NESTED_POLL } else { LINGER };
            let waited = self.changed.wait_timeout(held, limit);
            held = waited.0;
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        result
    }

    // These functions are about stopping the server.

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Refuses all further calls and the calls that wait.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.notify();
    }

    /// Waits until `is_done` returns true, but not longer than `drain` allows. Returns false if that time
    /// ends first. Calls `is_done` again when a procedure ends, and at short intervals.
    pub(crate) fn drain(&self, drain: &Drain, mut is_done: impl FnMut() -> bool) -> bool {
        loop {
            if is_done() {
                return true;
            }
            let Some(slice) = drain.next_wait() else { return false };
            // A procedure that began before the server stopped may end without a notification, so the wait is
            // limited.
            let waited = self.changed.wait_timeout(self.lock(), slice);
            drop(waited);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Executed;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn captured_procedures_and_nested_calls_raise_the_bound() {
        let inside = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&inside);
        let admission = Admission::with_nested(2, 0, move || counted.load(Ordering::SeqCst));
        assert!(admission.try_begin(false) && admission.try_begin(true));
        assert!(!admission.try_begin(false) && !admission.try_begin(true));
        admission.captured(1, 0);
        assert!(admission.try_begin(false) && !admission.try_begin(false));
        admission.captured(0, 1);
        inside.store(2, Ordering::SeqCst);
        assert!(!admission.try_begin(false) && admission.try_begin(true));
        assert!(
            !admission.try_begin(true),
            "four procedures run: the bound of two, and two nested calls"
        );
        assert_eq!((admission.running(), admission.excess()), (4, 2));
        admission.set_captured(limits::REPLACED_MAX + 5);
        assert_eq!(admission.bound(false), 2 + limits::REPLACED_MAX);
    }

    #[test]
    fn call_waits_for_a_permit_and_is_refused_if_the_queue_is_full() {
        let admission = Admission::new(1, 1);
        assert!(admission.try_begin(false));
        let mut waited = 0;
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let mut waits = || {
                    waited += 1;
                    Ok(())
                };
                admission.begin(false, &mut waits)
            });
            while admission.waiting() == 0 {
                std::thread::yield_now();
            }
            let refusal = admission.begin(false, &mut || Ok(())).unwrap_err();
            assert_eq!((refusal.kind, refusal.executed), (Kind::Overloaded, Executed::No));
            assert!(admission.is_full());
            for part in
                ["1 threads run procedures", "1 calls wait", "Server::threads", "Server::queue"]
            {
                assert!(refusal.text.contains(part), "{}", refusal.text);
            }
            admission.end();
            assert!(first.join().unwrap().is_ok());
        });
        assert_eq!((waited, admission.running(), admission.waiting()), (1, 1, 0));
    }

    #[test]
    fn error_of_the_waits_function_refuses_the_call() {
        let admission = Admission::new(1, 9);
        assert!(admission.try_begin(false));
        let mut refuses = || Err(Refusal::exhausted("no memory to wait in"));
        let refusal = admission.begin(false, &mut refuses).unwrap_err();
        assert_eq!((refusal.kind, admission.waiting()), (Kind::Exhausted, 0));
    }

    #[test]
    fn stopping_refuses_new_calls_and_waits_for_running_ones() {
        let admission = Admission::new(1, 9);
        assert!(admission.try_begin(false));
        let long = Drain::new(Duration::from_secs(30), Arc::default());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| admission.begin(false, &mut || Ok(())));
            while admission.waiting() == 0 {
                std::thread::yield_now();
            }
            admission.stop();
            let refusal = waits.join().unwrap().unwrap_err();
            assert_eq!((refusal.kind, refusal.executed), (Kind::Withdrawn, Executed::No));
            let refusal = admission.begin(false, &mut || Ok(())).unwrap_err();
            assert_eq!(refusal.kind, Kind::Withdrawn);
            assert!(!admission.drain(&Drain::over(), || admission.running() == 0));
            let drained = scope.spawn(|| admission.drain(&long, || admission.running() == 0));
            admission.end();
            assert!(drained.join().unwrap());
        });
    }
}
