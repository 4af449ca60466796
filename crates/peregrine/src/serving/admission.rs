//! Admission: how many procedures run at a time, how many calls wait for their turn, what is said to
//! those that may not even wait, and how all of that ends when the server stops.
//!
//! Every family of threads has one: the pool, the stream threads, and the receivers of each socket.
//! How a thread waits for a call is the family's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::stop::Drain;
use crate::call::{Refusal, chain};
use crate::error::Kind;
use crate::limits;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// How long a thread that nobody needs stays before it ends.
pub(crate) const LINGER: Duration = Duration::from_secs(5);
/// How often a nested call that waits looks whether it may run: how many threads wait inside of
/// procedures changes without a notice.
const NESTED_LOOK: Duration = Duration::from_millis(1);

/// Counts the procedures of a family of threads that run, and the calls that wait.
pub(crate) struct Admission {
    /// Procedures that may run at a time, and calls that may wait.
    running_max: usize,
    waiting_max: usize,
    running: AtomicUsize,
    waiting: AtomicUsize,
    /// Procedures that run although their callers have given them up.
    captured: AtomicUsize,
    stopping: AtomicBool,
    /// How many threads of this process wait inside of procedures for calls of their own.
    inside: Box<dyn Fn() -> u32 + Send + Sync>,
    turns: Mutex<()>,
    /// A procedure has ended while calls wait, or while the server stops.
    changed: Condvar,
}

impl Admission {
    /// So many procedures may run at a time, and so many calls may wait.
    pub(crate) fn new(running_max: usize, waiting_max: usize) -> Arc<Self> {
        Self::beside(running_max, waiting_max, chain::waiting_inside)
    }

    /// The same, where `inside` tells how many threads wait inside of procedures.
    pub(crate) fn beside(
        running_max: usize,
        waiting_max: usize,
        inside: impl Fn() -> u32 + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            running_max: running_max.max(1),
            waiting_max,
            running: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            captured: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            inside: Box::new(inside),
            turns: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn turns(&self) -> MutexGuard<'_, ()> {
        self.turns.lock()
    }

    // Bounds.

    /// Procedures that may run at a time, as the server's owner set it.
    pub(crate) const fn running_max(&self) -> usize {
        self.running_max
    }

    /// Procedures that run.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// Procedures that run beyond what the owner set.
    pub(crate) fn beyond(&self) -> usize {
        self.running().saturating_sub(self.running_max)
    }

    /// Procedures that may run at a time. One that its caller has given up keeps its thread, which
    /// another one replaces (LRPC's captured thread). A nested call, for which a thread of this
    /// process waits, runs beyond the bound. But no more of those run than threads wait, for any
    /// peer can say that its call is nested.
    #[cold]
    pub(crate) fn bound(&self, nested: bool) -> usize {
        let replaced = self.captured.load(Ordering::SeqCst).min(limits::REPLACED_MAX);
        let nested = if nested { self.nested() } else { 0 };
        self.running_max.saturating_add(replaced).saturating_add(nested)
    }

    /// Threads of this process that wait inside of procedures: as many nested calls run beyond the
    /// bound.
    pub(crate) fn nested(&self) -> usize {
        (self.inside)() as usize
    }

    /// Whether procedures run that their callers have given up.
    pub(crate) fn has_captured(&self) -> bool {
        self.captured.load(Ordering::SeqCst) > 0
    }

    /// So many procedures more, or fewer, run although their callers have given them up.
    pub(crate) fn captured(&self, more: usize, fewer: usize) {
        self.captured.fetch_sub(fewer, Ordering::SeqCst);
        // SYNC: admission. As in `end`.
        if more > 0 {
            self.captured.fetch_add(more, Ordering::SeqCst);
            if self.waiting() > 0 {
                self.notify();
            }
        }
    }

    /// So many procedures run although their callers have given them up, for those who count anew.
    pub(crate) fn set_captured(&self, count: usize) {
        self.captured.store(count, Ordering::SeqCst);
    }

    // A call runs.

    /// Whether one more procedure may run; then it is counted, until its [end](Self::end).
    #[inline]
    pub(crate) fn try_begin(&self, nested: bool) -> bool {
        self.begin_below(self.running_max)
            || (nested || self.has_captured()) && self.begin_below(self.bound(nested))
    }

    #[inline]
    fn begin_below(&self, bound: usize) -> bool {
        // Never more than there are: who is turned away relies on somebody who will look at the
        // calls that wait when a procedure has ended.
        let more = |running| (running < bound).then_some(running + 1);
        self.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// A procedure has ended.
    #[inline]
    pub(crate) fn end(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
        // SYNC: admission. Who waits says so, then looks; here one call fewer runs, and then it is
        // looked whether any waits. So one of both sees the other.
        if self.waiting() > 0 || self.is_stopping() {
            self.notify();
        }
    }

    /// Something happened that a waiting call, or the end of the server, may depend on.
    #[cold]
    pub(crate) fn notify(&self) {
        let _turns = self.turns();
        self.changed.notify_all();
    }

    // A call waits.

    /// Calls that wait.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Notes how many calls wait in the family's own queue.
    pub(crate) fn set_waiting(&self, count: usize) {
        self.waiting.store(count, Ordering::SeqCst);
    }

    /// Whether one more call may wait where so many do, `at_once` of which do not wait for long,
    /// since there are threads for them.
    ///
    /// # Errors
    /// What its caller is told.
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

    /// Waits until one more procedure may run. If it has to wait, `waits` is called first.
    ///
    /// # Errors
    /// Why the call does not run; those of `waits`.
    pub(crate) fn begin(
        &self,
        nested: bool,
        waits: &mut dyn FnMut() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if !self.is_stopping() && self.try_begin(nested) {
            return Ok(());
        }
        waits()?;
        self.wait_for_turn(nested)
    }

    #[cold]
    fn wait_for_turn(&self, nested: bool) -> Result<(), Refusal> {
        let mut turns = self.turns();
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
            // What can run at once does not wait.
            if let Some(refusal) = refusal {
                break Err(refusal);
            }
            let limit = if nested { NESTED_LOOK } else { LINGER };
            let waited = self.changed.wait_timeout(turns, limit);
            turns = waited.0;
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        result
    }

    // The server stops.

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Lets no call begin any more.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.notify();
    }

    /// Waits until `is_done`; false if it was not when the drain was over. It is asked whenever a
    /// procedure has ended.
    pub(crate) fn drain(&self, drain: &Drain, mut is_done: impl FnMut() -> bool) -> bool {
        loop {
            if is_done() {
                return true;
            }
            let Some(slice) = drain.slice() else { return false };
            // A procedure that began before the server stopped may end without a notice.
            let waited = self.changed.wait_timeout(self.turns(), slice);
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
    fn procedures_are_bounded_but_for_captured_ones_and_nested_calls() {
        let inside = Arc::new(AtomicU32::new(0));
        let waits_inside = Arc::clone(&inside);
        let admission = Admission::beside(2, 0, move || waits_inside.load(Ordering::SeqCst));
        assert!(admission.try_begin(false) && admission.try_begin(true));
        assert!(!admission.try_begin(false) && !admission.try_begin(true));
        admission.captured(1, 0);
        assert!(admission.try_begin(false) && !admission.try_begin(false));
        admission.captured(0, 1);
        inside.store(2, Ordering::SeqCst);
        assert!(!admission.try_begin(false) && admission.try_begin(true));
        assert!(!admission.try_begin(true), "four run, and there may be two and two");
        assert_eq!((admission.running(), admission.beyond()), (4, 2));
        admission.set_captured(limits::REPLACED_MAX + 5);
        assert_eq!(admission.bound(false), 2 + limits::REPLACED_MAX);
    }

    #[test]
    fn a_call_waits_for_its_turn_and_is_refused_if_too_many_do() {
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
            for said in
                ["1 threads run procedures", "1 calls wait", "Server::threads", "Server::queue"]
            {
                assert!(refusal.text.contains(said), "{}", refusal.text);
            }
            admission.end();
            assert!(first.join().unwrap().is_ok());
        });
        assert_eq!((waited, admission.running(), admission.waiting()), (1, 1, 0));
    }

    #[test]
    fn what_a_waiting_call_has_to_do_first_may_refuse_it() {
        let admission = Admission::new(1, 9);
        assert!(admission.try_begin(false));
        let mut refuses = || Err(Refusal::exhausted("no memory to wait in"));
        let refusal = admission.begin(false, &mut refuses).unwrap_err();
        assert_eq!((refusal.kind, admission.waiting()), (Kind::Exhausted, 0));
    }

    #[test]
    fn no_call_begins_on_a_server_that_stops_and_those_that_run_are_waited_for() {
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
