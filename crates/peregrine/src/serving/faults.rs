//! Faults: panics outside of any call. They are reported to the server's owner, and the server continues.

use core::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::call::Refusal;
use crate::sync::Mutex;

/// How long a service thread that panicked waits before it restarts. The wait bounds the rate at which a
/// repeated fault is reported.
const PAUSE: Duration = Duration::from_millis(2);

/// A panic in a server outside of any call. The server continues, and reports the panic to the hook of
/// [`Server::on_fault`](crate::Server::on_fault).
///
/// The panic of a procedure is not a fault, but the result of its call
/// ([`Kind::Panicked`](crate::Kind::Panicked)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// An exported object panicked when it was dropped.
    #[non_exhaustive]
    Dropping {
        /// The name under which the object was exported.
        export: String,
        /// The message of the panic.
        text: String,
    },
    /// A thread of the server panicked, and restarts. The calls that it had not answered end as
    /// [`Executed::Maybe`](crate::Executed::Maybe).
    #[non_exhaustive]
    Thread {
        /// The thread's name.
        thread: String,
        /// The message of the panic.
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

/// The function to which a server reports its faults, if there is one.
#[derive(Default)]
pub(crate) struct Faults(Mutex<Option<Arc<Hook>>>);

impl Faults {
    /// Reports faults to `hook` from now on.
    pub(crate) fn set_hook(&self, hook: impl Fn(&Fault) + Send + Sync + 'static) {
        *self.0.lock() = Some(Arc::new(hook));
    }

    /// Reports that the object of an export panicked when it was dropped.
    pub(crate) fn dropping(&self, export: &str, text: String) {
        self.report(&Fault::Dropping { export: export.to_owned(), text });
    }

    fn report(&self, fault: &Fault) {
        let hook = self.0.lock().clone();
        // Without a hook, only the panic's own message on standard error reports the fault.
        if let Some(hook) = hook
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| hook(fault)))
        {
            // A panic of the hook cannot be reported. Its payload is leaked, because dropping it may panic.
            core::mem::forget(panic);
        }
    }

    /// Reports that a service thread panicked.
    pub(crate) fn thread(&self, thread: &str, panic: Box<dyn Any + Send>) {
        let text = Refusal::panicked(panic).text;
        self.report(&Fault::Thread { thread: thread.to_owned(), text });
    }

    /// Runs the work of a service thread, and restarts the work after each panic. The same thread continues,
    /// because it is counted among the threads until this function returns.
    pub(crate) fn restart_on_panic(&self, thread: &str, mut work: impl FnMut()) {
        let mut work = || {
            #[cfg(test)]
            injected::panic_if_set(thread);
            work();
        };
        while let Err(panic) = catch_unwind(AssertUnwindSafe(&mut work)) {
            self.thread(thread, panic);
            std::thread::sleep(PAUSE);
        }
    }
}

/// Injects panics into service threads, for tests.
#[cfg(test)]
pub(crate) mod injected {
    use crate::sync::Mutex;
    use crate::sys::PerProcess;

    /// Names of threads. For each entry, the next thread of that name panics when it begins to work.
    static NAMES: PerProcess<Mutex<Vec<&'static str>>> = PerProcess::new();

    /// Causes the next thread of this name to panic when it begins to work.
    pub(crate) fn panic_in(thread: &'static str) {
        NAMES.own().lock().push(thread);
    }

    /// Panics if a panic is injected in a thread of this name.
    pub(super) fn panic_if_set(thread: &str) {
        let mut names = NAMES.own().lock();
        let at = names.iter().position(|one| *one == thread);
        let found = at.map(|at| names.swap_remove(at));
        drop(names);
        assert!(found.is_none(), "a fault in {thread}");
    }
}
