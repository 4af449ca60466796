//! The steps before and after every procedure. They are the same on every path: the caller's identity, the
//! deadline, the chain of nested calls, cancellation, counting and panics.
//!
//! A path receives a call and passes it to [`Serving::begin`]. `begin` refuses the call, or returns a
//! [`Guard`] that runs the procedure. The guard removes the call's state from the thread when the guard is
//! dropped, also after a panic of the procedure.

use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::binding_table::BindingRow;
use crate::call::{
    Answer, CallerInfo, Calls, Nested, NestedReceived, Ran, Refusal, Serve, extensions, leave_call,
    serve_call, serve_calls_of, tell_caller,
};
use crate::counters::Counting;
use crate::value::Window;

/// The state that a server's thread keeps between calls. If the next call has the same caller and no
/// extensions, the thread need not set up this state again.
pub(crate) struct Serving {
    pub(crate) counting: Counting,
    /// The caller of the last call. `caller()` returns this value.
    caller: Option<Arc<CallerInfo>>,
    /// Whether the thread holds the call chain or the deadline of the last call.
    extended: bool,
}

/// A call that is about to run.
pub(crate) struct IncomingCall<'a, W, G> {
    /// The number that identifies the call among the calls of its source ([`Calls`]), such as a connection.
    pub(crate) number: u64,
    /// The number of bytes of the call's message.
    pub(crate) bytes: u32,
    /// The extensions of the call: data that is sent in addition to its message. Most calls have none.
    pub(crate) extensions: Window<'a>,
    /// Returns how long ago the call was received. This function is called only if the call has a deadline.
    pub(crate) waited: W,
    /// Returns whether the caller has given up the call.
    pub(crate) is_given_up: G,
}

/// A call that runs. When this value is dropped, it removes the call's state from the thread.
pub(crate) struct Guard<'a> {
    counting: &'a mut Counting,
    row: &'a BindingRow,
    bytes: u32,
    /// The time at which the procedure began, if the call is timed.
    begun: Option<u64>,
    /// How long the procedure took, if the call is timed.
    took: Option<u64>,
    /// Whether this guard need not count the call: it has counted the call, or the call is counted elsewhere.
    counted: bool,
}

impl Serving {
    /// Returns the state of a thread that has served no call yet.
    pub(crate) const fn new(counting: Counting) -> Self {
        Self { counting, caller: None, extended: false }
    }

    /// Begins a call of the binding `row`. `calls` returns the source of the call: an object that knows which
    /// calls were given up. `calls` is called only if the last call of this thread had another caller.
    ///
    /// # Errors
    /// If the binding was revoked, the message is too large, the deadline has passed, or the caller has given
    /// up the call. The refusal is counted.
    #[inline]
    pub(crate) fn begin<'a>(
        &'a mut self,
        row: &'a BindingRow,
        call: IncomingCall<'_, impl FnOnce() -> Duration, impl FnOnce() -> bool>,
        calls: impl FnOnce() -> Arc<dyn Calls>,
    ) -> Result<Guard<'a>, Refusal> {
        let IncomingCall { number, bytes, extensions, waited, is_given_up } = call;
        if !row.admits(bytes) {
            return Err(self.refuse(row, BindingRow::refusal(Some(row), bytes)));
        }
        if self.caller.as_ref().is_none_or(|caller| !Arc::ptr_eq(caller, &row.caller)) {
            self.change_caller(row, calls);
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

    /// Sets the caller and the source of the call. Called only if the last call had another caller.
    #[cold]
    fn change_caller(&mut self, row: &BindingRow, calls: impl FnOnce() -> Arc<dyn Calls>) {
        self.caller = Some(Arc::clone(&row.caller));
        tell_caller(Some(Arc::clone(&row.caller)));
        serve_calls_of(Some(calls()));
    }

    /// Sets the call chain and the deadline. Called only if this call or the last call has extensions.
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

    /// Removes the state of the last call, before the thread sleeps or serves calls of another source.
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
    /// If the procedure panics. The call is then counted as failed. A thread that runs many calls in a row
    /// can [catch](catching) the panics of all these calls at one place.
    #[inline]
    pub(crate) fn run(&mut self, procedure: impl FnOnce(&dyn Serve) -> Ran) -> Ran {
        let ran = procedure(self.row.serve());
        self.ran(&ran);
        ran
    }

    /// Runs the procedure. If the procedure panics, `refuse` writes the refusal in place of the result.
    #[inline]
    pub(crate) fn run_caught(
        &mut self,
        procedure: impl FnOnce(&dyn Serve) -> Ran,
        refuse: impl FnOnce(&Refusal) -> Ran,
    ) -> Ran {
        let ran = catching(|| procedure(self.row.serve()));
        let ran = ran.unwrap_or_else(|refusal| refuse(&refusal));
        self.ran(&ran);
        ran
    }

    /// Notes the end of the procedure.
    #[inline(always)]
    fn ran(&mut self, ran: &Ran) {
        self.took = Counting::took(self.begun);
        if ran.is_uncounted {
            // The calls of a batch were already counted one by one. If the batch also counted as running
            // when its reply arrives, the client would find one call too many in the counters.
            self.leave();
        }
    }

    /// Notes in the counters that the call does not run any more.
    #[cold]
    fn leave(&mut self) {
        if !core::mem::replace(&mut self.counted, true) {
            self.counting.leave(&self.row.tally);
        }
    }

    /// Ends the call on this thread, because its reply is sent later. The reply is counted when it is sent.
    #[cold]
    pub(crate) fn defer(mut self) {
        self.leave();
    }

    /// Counts the call, after its result was written or sent.
    #[inline]
    pub(crate) fn end(mut self, answer: Answer, bytes_out: u64) {
        if self.counted {
            return;
        }
        self.counted = true;
        self.counting.end(&self.row.tally, self.took, answer, self.bytes.into(), bytes_out);
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        leave_call();
        if !self.counted {
            // The procedure panicked.
            self.counting.end(&self.row.tally, None, Answer::MayHaveExecuted, 0, 0);
        }
    }
}

/// Runs procedures. If one panics, returns a refusal in place of the result. A panic may leave the exported
/// object inconsistent, as with a poisoned lock. The object itself must handle the inconsistency.
#[inline]
pub(crate) fn catching<T>(run: impl FnOnce() -> T) -> Result<T, Refusal> {
    catch_unwind(AssertUnwindSafe(run)).map_err(Refusal::panicked)
}

/// Runs a procedure on the thread of its caller. This thread may be inside another procedure.
#[inline]
pub(crate) fn within(
    caller: &Arc<CallerInfo>,
    due: Option<Instant>,
    calls: Arc<dyn Calls>,
    call: u64,
    procedure: impl FnOnce() -> Ran,
) -> Result<Ran, Refusal> {
    let _restores = Nested::enter(caller, due, calls, call);
    catching(procedure)
}

/// As [`within`], for a call that was received with extensions.
/// `waited` returns how long ago the call was received.
pub(crate) fn within_received(
    caller: &Arc<CallerInfo>,
    calls: Arc<dyn Calls>,
    call: u64,
    extensions: Window<'_>,
    waited: impl FnOnce() -> Duration,
    procedure: impl FnOnce() -> Ran,
) -> Result<Ran, Refusal> {
    let _restores = NestedReceived::enter(caller, calls, call, extensions, waited)?;
    catching(procedure)
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::call::{
        CallTerms, Metadata, PathKind, Reply, Request, Served, caller, due, extensions::Extensions,
    };
    use crate::counters::{ExportCounters, Page, Tally, ThreadKind, Visitor, read};
    use crate::error::{Executed, Kind};
    use crate::interface::{Digest, Interface, InterfaceRef};

    static NOTHING: Interface = Interface {
        name: "Nothing",
        version: 1,
        docs: "",
        procedures: &[],
        programs: &[],
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

    /// A source of calls. Either the callers of all its calls have given up, or none has.
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

    const RAN: Ran =
        Ran { answer: Answer::Ok, head_at: 0, head_bytes: 0, block_bytes: 0, is_uncounted: false };

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
                claimed: None,
                identity: None,
                ending: None,
                carried: None,
                account: Default::default(),
            };
            let counters = ExportCounters::new(&page, "nothing", &InterfaceRef::from(&NOTHING));
            let tally: Tally = counters.tally_of(&Visitor::of(&caller));
            let row = BindingRow::new(
                0,
                (Arc::new(Nothing), Arc::default()),
                Arc::new(caller),
                100,
                Arc::default(),
                tally,
            );
            Self { page, serving, row, calls: Arc::new(All(AtomicBool::new(false))) }
        }

        /// Makes a call. Returns the result of `procedure`, or the refusal if the procedure did not run.
        fn call<T>(
            &mut self,
            bytes: u32,
            extensions: &[u8],
            is_given_up: bool,
            procedure: impl FnOnce() -> T,
        ) -> Result<T, Refusal> {
            let call = IncomingCall {
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
            Ok(result.expect("the procedure ran"))
        }

        /// Returns the numbers of calls that ended, that failed, and that were refused.
        fn counted(&self) -> [u64; 3] {
            let counts = read(self.page.memory()).unwrap().server.counts;
            [counts.calls, counts.failed, counts.refused]
        }
    }

    /// Returns the extensions of a call whose deadline passes after `limit`.
    fn left(limit: Duration) -> Vec<u8> {
        let terms = CallTerms::Until(Instant::now() + limit);
        let sent = Extensions::of(None, terms).expect("time is left");
        sent.as_bytes().to_vec()
    }

    #[test]
    fn ended_call_leaves_no_state_on_its_thread() {
        let mut server = Server::new();
        let limited = left(Duration::from_secs(100));
        let seen = server.call(100, &limited, false, || {
            let caller = caller().expect("a call runs");
            (caller.process(), caller.remaining().is_some(), caller.is_cancelled())
        });
        assert_eq!(seen.unwrap(), (7, true, false));
        assert!(caller().is_none() && due().is_none());
        // The next call has no deadline, and its caller gives it up while it runs.
        let calls = Arc::clone(&server.calls);
        let seen = server.call(0, &[], false, || {
            calls.0.store(true, Ordering::Relaxed);
            let caller = caller().expect("a call runs");
            (caller.remaining(), caller.is_cancelled())
        });
        assert_eq!(seen.unwrap(), (None, true));
        assert_eq!(server.counted(), [2, 0, 0]);
        assert_eq!(Arc::strong_count(&server.calls), 3, "this test holds two references");
        server.serving.forget();
        assert_eq!(Arc::strong_count(&server.calls), 2);
    }

    #[test]
    fn metadata_is_that_of_the_running_call() {
        let mut server = Server::new();
        let metadata = |key: &str| {
            let metadata = Metadata::EMPTY.with([(key, "v")]).unwrap();
            let terms = CallTerms::Metadata { metadata: &metadata, deadline: None };
            Extensions::of(None, terms).unwrap().as_bytes().to_vec()
        };
        let (one, other) = (metadata("one"), metadata("other"));
        let invalid = vec![3, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0xff];
        for (extensions, expected) in [
            (&one, Some("one")),
            (&other, Some("other")),
            (&left(Duration::from_secs(100)), None),
            (&one, Some("one")),
            (&invalid, None),
            (&Vec::new(), None),
        ] {
            let seen = server.call(0, extensions, false, || {
                let caller = caller().expect("a call runs");
                let keys = caller.metadata().iter().map(|(key, _)| key.to_owned());
                (keys.collect::<Vec<_>>(), caller.process())
            });
            match seen {
                Ok(seen) => {
                    assert_eq!(seen, (expected.into_iter().map(str::to_owned).collect(), 7))
                }
                Err(refusal) => {
                    assert_eq!(refusal.kind, Kind::BadArguments);
                    assert!(*extensions == invalid && refusal.executed == Executed::No);
                }
            }
        }
        // The thread keeps the caller of its last call, and nothing of earlier metadata.
        assert_eq!(Arc::strong_count(&server.row.caller), 3);
        server.serving.forget();
        assert_eq!(Arc::strong_count(&server.row.caller), 1);
    }

    #[test]
    fn call_that_panics_leaves_no_state_on_its_thread() {
        let mut server = Server::new();
        let limited = left(Duration::from_secs(100));
        let panicked = catching(|| server.call(0, &limited, false, || panic!("a fault")));
        let refusal = panicked.expect_err("the panic is caught");
        assert_eq!((refusal.kind, refusal.executed), (Kind::Panicked, Executed::Maybe));
        assert!(caller().is_none() && due().is_none());
        assert_eq!(server.counted(), [1, 1, 0], "the call is counted as failed");
    }

    #[test]
    fn uncounted_call_is_not_in_flight_when_its_reply_is_sent() {
        let mut server = Server::new();
        for answer in [Answer::Ok, Answer::Deferred] {
            let call = IncomingCall {
                number: 5,
                bytes: 0,
                extensions: Window::empty(),
                waited: || Duration::ZERO,
                is_given_up: || false,
            };
            let calls = Arc::clone(&server.calls);
            let mut guard = server.serving.begin(&server.row, call, || calls).unwrap();
            let in_flight = || read(server.page.memory()).unwrap().server.counts.in_flight;
            assert_eq!(in_flight(), 1);
            let ran = guard.run(|_| Ran { answer, is_uncounted: true, ..RAN });
            assert_eq!(in_flight(), 0);
            match ran.answer {
                Answer::Deferred => guard.defer(),
                answer => guard.end(answer, 0),
            }
            assert_eq!(in_flight(), 0);
            assert_eq!(server.counted(), [0, 0, 0]);
        }
    }

    #[test]
    fn refused_calls_do_not_run_and_are_counted() {
        let mut server = Server::new();
        let (late, in_time) = (left(Duration::from_secs(1)), left(Duration::from_secs(100)));
        let mut refused = |bytes, extensions: &[u8], is_given_up| {
            let refused =
                server.call(bytes, extensions, is_given_up, || panic!("a refused call ran"));
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
