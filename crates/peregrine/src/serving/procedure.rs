//! What happens around every procedure, whichever path its call took: who calls, until when, through
//! which processes, whether the caller has given up, what is counted, and what becomes of a panic.
//!
//! A path receives a call and [begins](Serving::begin) it. The call is refused there, or a [`Guard`]
//! runs the procedure. When the guard is dropped, also because the procedure panics, nothing of the
//! call is left on the thread.

use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::binding_table::BindingRow;
use crate::call::{
    Answer, CallerInfo, Calls, Nested, Ran, Refusal, Serve, extensions, leave_call, serve_call,
    serve_calls_of, tell_caller,
};
use crate::counters::Counting;
use crate::value::Window;

/// What a server's thread keeps from call to call, so that a call like the last one sets up nothing.
pub(crate) struct Serving {
    pub(crate) counting: Counting,
    /// Whose call the thread ran last, as `caller()` tells.
    caller: Option<Arc<CallerInfo>>,
    /// Whether the thread holds the chain or the deadline of that call.
    extended: bool,
}

/// A call that is about to run.
pub(crate) struct Begins<'a, W, G> {
    /// The call's number where it came in.
    pub(crate) number: u64,
    /// Bytes of its message.
    pub(crate) bytes: u32,
    /// What it carries besides its message; empty for most calls.
    pub(crate) extensions: Window<'a>,
    /// How long ago it was taken off the wire. Asked if the call has a deadline.
    pub(crate) waited: W,
    /// Whether its caller has given it up.
    pub(crate) is_given_up: G,
}

/// A call that runs.
pub(crate) struct Guard<'a> {
    counting: &'a mut Counting,
    row: &'a BindingRow,
    bytes: u32,
    /// When the procedure began and how long it took, of calls that are timed.
    begun: Option<u64>,
    took: Option<u64>,
    /// Whether the call is counted.
    counted: bool,
}

impl Serving {
    /// For a thread that is about to serve calls.
    pub(crate) const fn new(counting: Counting) -> Self {
        Self { counting, caller: None, extended: false }
    }

    /// Begins a call of a binding. `calls` knows the calls of its source by their numbers.
    ///
    /// # Errors
    /// Why the call does not run: its binding was revoked, its message is too large, its caller's time
    /// is up, or its caller has given it up. The refusal is counted.
    #[inline]
    pub(crate) fn begin<'a>(
        &'a mut self,
        row: &'a BindingRow,
        call: Begins<'_, impl FnOnce() -> Duration, impl FnOnce() -> bool>,
        calls: impl FnOnce() -> Arc<dyn Calls>,
    ) -> Result<Guard<'a>, Refusal> {
        let Begins { number, bytes, extensions, waited, is_given_up } = call;
        if !row.admits(bytes) {
            return Err(self.refuse(row, BindingRow::refusal(Some(row), bytes)));
        }
        if self.caller.as_ref().is_none_or(|caller| !Arc::ptr_eq(caller, &row.caller)) {
            self.turn_to(row, calls);
        }
        if (!extensions.is_empty() || self.extended)
            && let Err(refusal) = self.extend(extensions, waited)
        {
            return Err(self.refuse(row, refusal));
        }
        if is_given_up() {
            return Err(self.refuse(row, Refusal::given_up()));
        }
        serve_call(number, row.caller.process);
        let begun = self.counting.begin(&row.tally);
        let counting = &mut self.counting;
        Ok(Guard { counting, row, bytes, begun, took: None, counted: false })
    }

    /// The next call has another caller than the last one.
    #[cold]
    fn turn_to(&mut self, row: &BindingRow, calls: impl FnOnce() -> Arc<dyn Calls>) {
        self.caller = Some(Arc::clone(&row.caller));
        tell_caller(Some(Arc::clone(&row.caller)));
        serve_calls_of(Some(calls()));
    }

    /// The call carries extensions, or the last one did.
    #[cold]
    fn extend(
        &mut self,
        extensions: Window<'_>,
        waited: impl FnOnce() -> Duration,
    ) -> Result<(), Refusal> {
        self.extended = !extensions.is_empty();
        extensions::enter(extensions, waited)
    }

    /// Counts a call that does not run.
    #[cold]
    pub(crate) fn refuse(&mut self, row: &BindingRow, refusal: Refusal) -> Refusal {
        self.counting.refused(Some(&row.tally));
        refusal
    }

    /// Forgets whose call the thread ran last: it is about to sleep, or to serve another source.
    pub(crate) fn forget(&mut self) {
        if self.caller.take().is_some() {
            tell_caller(None);
            serve_calls_of(None);
        }
        if core::mem::take(&mut self.extended) {
            extensions::leave();
        }
    }
}

impl Guard<'_> {
    /// Runs the procedure.
    ///
    /// # Panics
    /// If the procedure does: the call is then counted as one that failed. Whoever runs many calls in
    /// a row [catches](catching) their panics around all of them.
    #[inline]
    pub(crate) fn run(&mut self, procedure: impl FnOnce(&dyn Serve) -> Ran) -> Ran {
        let ran = procedure(&*self.row.serve);
        self.took = Counting::took(self.begun);
        ran
    }

    /// Runs the procedure; if it panics, `refuse` puts the refusal in the place of the result.
    #[inline]
    pub(crate) fn run_caught(
        &mut self,
        procedure: impl FnOnce(&dyn Serve) -> Ran,
        refuse: impl FnOnce(&Refusal) -> Ran,
    ) -> Ran {
        let ran = catching(|| procedure(&*self.row.serve));
        self.took = Counting::took(self.begun);
        ran.unwrap_or_else(|refusal| refuse(&refusal))
    }

    /// Counts the call, whose result is made, or is with its caller already.
    #[inline]
    pub(crate) fn end(mut self, answer: Answer, bytes_out: u64) {
        self.counted = true;
        self.counting.end(&self.row.tally, self.took, answer, self.bytes.into(), bytes_out);
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        leave_call();
        if !self.counted {
            // The procedure panics.
            self.counting.end(&self.row.tally, None, Answer::MayHaveExecuted, 0, 0);
        }
    }
}

/// Runs procedures; the refusal that stands for a result if one panics. What a panic may leave broken
/// is the object's own, as with a poisoned lock.
#[inline]
pub(crate) fn catching<T>(run: impl FnOnce() -> T) -> Result<T, Refusal> {
    catch_unwind(AssertUnwindSafe(run)).map_err(Refusal::panicked)
}

/// Runs a procedure on the thread of its caller, which may be inside of another procedure.
#[inline]
pub(crate) fn within(
    caller: &Arc<CallerInfo>,
    due: Option<Instant>,
    procedure: impl FnOnce() -> Ran,
) -> Result<Ran, Refusal> {
    let _restores = Nested::enter(caller, due);
    catching(procedure)
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::call::{PathKind, Reply, Request, Served, caller, due, extensions::Extensions};
    use crate::counters::{ExportTold, Page, Tally, ThreadKind, Visitor, read};
    use crate::error::{Executed, Kind};
    use crate::interface::{Digest, Interface, InterfaceRef};

    static NOTHING: Interface = Interface {
        name: "Nothing",
        version: 1,
        docs: "",
        procedures: &[],
        digest: || Digest([1; 16]),
    };

    struct Nothing;

    impl Serve for Nothing {
        fn interface(&self) -> InterfaceRef {
            InterfaceRef::from(&NOTHING)
        }
        fn serve(&self, _: &mut Request<'_>, _: &mut Reply<'_>) -> Served {
            Ok(())
        }
    }

    /// Knows that all calls were given up, or none.
    struct All(AtomicBool);

    impl Calls for All {
        fn is_given_up(&self, _: u64) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// A thread that serves calls of one binding.
    struct Server {
        page: Arc<Page>,
        serving: Serving,
        row: BindingRow,
        calls: Arc<All>,
    }

    const RAN: Ran = Ran { answer: Answer::Ok, head_at: 0, head_bytes: 0, block_bytes: 0 };

    impl Server {
        fn new() -> Self {
            let page = Page::new().unwrap();
            let serving = Serving::new(Counting::new(&page, ThreadKind::Local));
            let caller = CallerInfo {
                path: PathKind::Local,
                export: "nothing".into(),
                process: 7,
                user: 8,
                group: 9,
                from: None,
                hardware: None,
                stopping: None,
            };
            let told = ExportTold::new(&page, "nothing", &InterfaceRef::from(&NOTHING));
            let tally: Tally = told.tally_of(&Visitor::of(&caller));
            let row =
                BindingRow::new(0, Arc::new(Nothing), Arc::new(caller), 100, Arc::default(), tally);
            Self { page, serving, row, calls: Arc::new(All(AtomicBool::new(false))) }
        }

        /// Makes a call; what `procedure` returns, or why it did not run.
        fn call<T>(
            &mut self,
            bytes: u32,
            extensions: &[u8],
            is_given_up: bool,
            procedure: impl FnOnce() -> T,
        ) -> Result<T, Refusal> {
            let call = Begins {
                number: 5,
                bytes,
                extensions: Window::from(extensions),
                waited: || Duration::from_secs(2),
                is_given_up: || is_given_up,
            };
            let calls = Arc::clone(&self.calls);
            let mut guard = self.serving.begin(&self.row, call, || calls)?;
            let mut result = None;
            let ran = guard.run(|_| {
                result = Some(procedure());
                RAN
            });
            guard.end(ran.answer, 3);
            Ok(result.expect("it ran"))
        }

        /// Calls that ended, failed, and were refused.
        fn counted(&self) -> [u64; 3] {
            let counts = read(self.page.memory()).unwrap().server.counts;
            [counts.calls, counts.failed, counts.refused]
        }
    }

    /// The extensions of a call that has this long left.
    fn left(limit: Duration) -> Vec<u8> {
        let sent = Extensions::of(None, Some(Instant::now() + limit)).expect("time is left");
        sent.as_bytes().to_vec()
    }

    #[test]
    fn nothing_of_a_call_is_left_on_its_thread() {
        let mut server = Server::new();
        let limited = left(Duration::from_secs(100));
        let told = server.call(100, &limited, false, || {
            let caller = caller().expect("a call runs");
            (caller.process(), caller.remaining().is_some(), caller.is_cancelled())
        });
        assert_eq!(told.unwrap(), (7, true, false));
        assert!(caller().is_none() && due().is_none());
        // The next call has no deadline, and its caller gives it up while it runs.
        let calls = Arc::clone(&server.calls);
        let told = server.call(0, &[], false, || {
            calls.0.store(true, Ordering::Relaxed);
            let caller = caller().expect("a call runs");
            (caller.remaining(), caller.is_cancelled())
        });
        assert_eq!(told.unwrap(), (None, true));
        assert_eq!(server.counted(), [2, 0, 0]);
        assert_eq!(Arc::strong_count(&server.calls), 3, "this test has two");
        server.serving.forget();
        assert_eq!(Arc::strong_count(&server.calls), 2);
    }

    #[test]
    fn nothing_is_left_of_a_call_that_panics() {
        let mut server = Server::new();
        let limited = left(Duration::from_secs(100));
        let panicked = catching(|| server.call(0, &limited, false, || panic!("a fault")));
        let refusal = panicked.expect_err("the panic is caught");
        assert_eq!((refusal.kind, refusal.executed), (Kind::Panicked, Executed::Maybe));
        assert!(caller().is_none() && due().is_none());
        assert_eq!(server.counted(), [1, 1, 0], "it is counted as failed");
    }

    #[test]
    fn refused_calls_do_not_run_and_are_counted() {
        let mut server = Server::new();
        let (late, in_time) = (left(Duration::from_secs(1)), left(Duration::from_secs(100)));
        let mut refused = |bytes, extensions: &[u8], is_given_up| {
            let refused = server.call(bytes, extensions, is_given_up, || panic!("it ran"));
            let refusal = refused.map(|()| unreachable!()).unwrap_err();
            assert_eq!(refusal.executed, Executed::No);
            assert!(caller().is_none());
            refusal.kind
        };
        assert_eq!(refused(101, &[], false), Kind::TooLarge);
        assert_eq!(refused(0, &late, false), Kind::TimedOut);
        assert_eq!(refused(0, &in_time, true), Kind::TimedOut);
        server.row.revoke();
        let refusal = server.call(0, &[], false, || ()).unwrap_err();
        assert_eq!((refusal.kind, refusal.executed), (Kind::Withdrawn, Executed::No));
        assert_eq!(server.counted(), [0, 0, 4]);
    }
}
