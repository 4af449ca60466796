//! Faults: panics outside of any call, which are told to the server's owner and harm nothing else.

use core::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::call::Refusal;
use crate::sync::Mutex;

/// How long a service thread that panicked waits before it begins anew: this bounds how often a
/// fault that repeats itself is told.
const PAUSE: Duration = Duration::from_millis(2);

/// A panic in a server outside of any call: the server goes on, and tells
/// [`Server::on_fault`](crate::Server::on_fault).
///
/// A panic of a procedure is not among them: it is the result of its call
/// ([`Kind::Panicked`](crate::Kind::Panicked)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// An exported object panicked when it was dropped.
    #[non_exhaustive]
    Dropping {
        /// The name under which the object was exported.
        export: String,
        /// What the panic said.
        text: String,
    },
    /// A thread of the server panicked. It begins anew; what it was doing has failed, and calls that
    /// it had not answered end as [`Executed::Maybe`](crate::Executed::Maybe).
    #[non_exhaustive]
    Thread {
        /// The thread's name.
        thread: String,
        /// What the panic said.
        text: String,
    },
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Dropping { export, text } => {
                write!(f, "the object exported as `{export}` panicked when it was dropped: {text}")
            }
            Self::Thread { thread, text } => {
                write!(f, "the thread `{thread}` of the server panicked: {text}")
            }
        }
    }
}

type Hook = dyn Fn(&Fault) + Send + Sync;

/// Whom a server tells of its faults.
#[derive(Default)]
pub(crate) struct Faults(Mutex<Option<Arc<Hook>>>);

impl Faults {
    /// Tells `hook` from now on.
    pub(crate) fn tell(&self, hook: impl Fn(&Fault) + Send + Sync + 'static) {
        *self.0.lock() = Some(Arc::new(hook));
    }

    /// The object of an export panicked when it was dropped.
    pub(crate) fn dropping(&self, export: &str, text: String) {
        self.happened(&Fault::Dropping { export: export.to_owned(), text });
    }

    fn happened(&self, fault: &Fault) {
        let hook = self.0.lock().clone();
        // Without a hook the panic's own message, on standard error, is all that is said.
        if let Some(hook) = hook
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| hook(fault)))
        {
            // The hook's own panic has nobody left to be told to. Dropping the payload may panic.
            core::mem::forget(panic);
        }
    }

    /// A service thread panicked.
    pub(crate) fn thread(&self, thread: &str, panic: Box<dyn Any + Send>) {
        let text = Refusal::panicked(panic).text;
        self.happened(&Fault::Thread { thread: thread.to_owned(), text });
    }

    /// Runs the work of a service thread, again and again if it panics: the thread is counted as long
    /// as this runs, so it takes its own place.
    pub(crate) fn outlive(&self, thread: &str, mut work: impl FnMut()) {
        let mut work = || {
            #[cfg(test)]
            trips::trip(thread);
            work();
        };
        while let Err(panic) = catch_unwind(AssertUnwindSafe(&mut work)) {
            self.thread(thread, panic);
            std::thread::sleep(PAUSE);
        }
    }
}

/// Makes service threads panic in tests.
#[cfg(test)]
pub(crate) mod trips {
    use crate::sync::Mutex;
    use crate::sys::PerProcess;

    /// Names of threads. The next thread of each name that begins to work panics.
    static TRIPS: PerProcess<Mutex<Vec<&'static str>>> = PerProcess::new();

    /// Makes the next thread of this name panic that begins to work.
    pub(crate) fn set(thread: &'static str) {
        TRIPS.own().lock().push(thread);
    }

    /// Panics if this thread is to.
    pub(super) fn trip(thread: &str) {
        let mut trips = TRIPS.own().lock();
        let at = trips.iter().position(|one| *one == thread);
        let tripped = at.map(|at| trips.swap_remove(at));
        drop(trips);
        assert!(tripped.is_none(), "a fault in {thread}");
    }
}
