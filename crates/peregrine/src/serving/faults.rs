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
/// [`Server::on_fault`](super::Server::on_fault).
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
            tests::trip(thread);
            work();
        };
        while let Err(panic) = catch_unwind(AssertUnwindSafe(&mut work)) {
            self.thread(thread, panic);
            std::thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::{BindOptions, Binding};
    use crate::call::{Reply, Request, Serve, Served};
    use crate::interface::{Digest, Interface, InterfaceRef};
    use crate::server::Server;

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

    /// Threads of which the next that begins to work panics.
    static TRIPS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

    /// Panics if a thread of that name is to.
    pub(crate) fn trip(thread: &str) {
        let mut trips = TRIPS.lock();
        let at = trips.iter().position(|one| *one == thread);
        let tripped = at.map(|at| trips.swap_remove(at));
        drop(trips);
        assert!(tripped.is_none(), "a fault in {thread}");
    }

    /// A thread that serves calls panics outside of any procedure, and serves calls all the same.
    #[test]
    fn threads_that_panic_are_told_of_and_serve_on() {
        let name = format!("faults-{}", std::process::id());
        let told = Arc::new(Mutex::new(Vec::new()));
        let hook = Arc::clone(&told);
        let server = Server::new().export(&name, Nothing).unwrap();
        let server = server.listen("tcp:127.0.0.1:0").unwrap();
        let server = server.on_fault(move |fault| hook.lock().push(fault.clone()));
        let running = server.spawn().unwrap();
        let listens = running.addresses()[0].to_string();
        let tcp = format!("tcp:{name}@{}", listens.trim_start_matches("tcp:"));
        for (thread, address) in [("peregrine-worker", &name), ("peregrine-stream", &tcp)] {
            TRIPS.lock().push(thread);
            let options = BindOptions::default();
            let binding = Binding::bind(address, InterfaceRef::from(&NOTHING), &options).unwrap();
            binding.ping().unwrap();
            binding.ping().unwrap();
            let faults = core::mem::take(&mut *told.lock());
            let text = format!("a fault in {thread}");
            assert_eq!(faults, [Fault::Thread { thread: thread.to_owned(), text }]);
        }
    }
}
