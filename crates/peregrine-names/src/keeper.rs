//! [`Keeper`]: the thread of a name service. It looks whether callers have given up, reads directories that
//! cannot be watched, and ends idle bindings. It sleeps without a limit while there is nothing of this.

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Instant;

use peregrine::Caller;
use peregrine::directory::Directory;

use crate::bindings::Bindings;
use crate::watching::Latest;

/// The interval at which the keeper looks whether callers have given up.
const LOOK: Duration = Duration::from_millis(100);
/// The interval at which it reads names, and ends idle bindings.
const READ: Duration = Duration::from_secs(2);

/// The work of the keeper.
#[derive(Default)]
struct Work {
    /// The second calls that run.
    calls: Vec<Waker>,
    /// The names that are read again and again, for as long as something watches them.
    read: Vec<(String, Weak<Latest>)>,
    /// Whether there may be bindings.
    has_bindings: bool,
    is_ended: bool,
}

impl Work {
    const fn is_none(&self) -> bool {
        self.calls.is_empty() && self.read.is_empty() && !self.has_bindings && !self.is_ended
    }
}

/// The side of the keeper that gives it work. The thread ends when this is dropped.
pub(crate) struct Keeper(Arc<(Mutex<Work>, Condvar)>);

impl Keeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub(crate) fn start(
        directory: Arc<dyn Directory>,
        bindings: Arc<Bindings>,
    ) -> io::Result<Self> {
        let shared = Arc::<(Mutex<Work>, Condvar)>::default();
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("peregrine-names".to_owned());
        thread.spawn(move || keep(&own, &*directory, &bindings))?;
        Ok(Self(shared))
    }

    fn give(&self, give: impl FnOnce(&mut Work)) {
        give(&mut lock(&self.0.0));
        self.0.1.notify_one();
    }

    /// Lets the keeper read a name for as long as `latest` exists.
    pub(crate) fn read(&self, name: &str, latest: &Arc<Latest>) {
        let entry = (name.to_owned(), Arc::downgrade(latest));
        self.give(|work| work.read.push(entry));
    }

    /// Lets the keeper end idle bindings.
    pub(crate) fn end_idle(&self) {
        if !lock(&self.0.0).has_bindings {
            self.give(|work| work.has_bindings = true);
        }
    }

    /// Returns a future that ends when the caller has given up its call.
    pub(crate) fn given_up(&self, caller: Option<Caller>) -> GivenUp<'_> {
        GivenUp { keeper: self, caller }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.give(|work| work.is_ended = true);
    }
}

/// Ends when a caller has given up its call.
pub(crate) struct GivenUp<'a> {
    keeper: &'a Keeper,
    caller: Option<Caller>,
}

impl Future for GivenUp<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(caller) = &self.caller else { return Poll::Pending };
        if caller.is_cancelled() {
            return Poll::Ready(());
        }
        let waker = context.waker();
        self.keeper.give(|work| {
            if !work.calls.iter().any(|known| known.will_wake(waker)) {
                work.calls.push(waker.clone());
            }
        });
        Poll::Pending
    }
}

fn lock(work: &Mutex<Work>) -> MutexGuard<'_, Work> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does the work until it is ended.
fn keep(shared: &(Mutex<Work>, Condvar), directory: &dyn Directory, bindings: &Bindings) {
    let mut due = Instant::now() + READ;
    loop {
        let mut work = lock(&shared.0);
        if work.is_none() {
            let woken = shared.1.wait_while(work, |work| work.is_none());
            work = woken.unwrap_or_else(PoisonError::into_inner);
            due = Instant::now() + READ;
        }
        if work.is_ended {
            return;
        }
        let calls = core::mem::take(&mut work.calls);
        drop(work);
        thread::sleep(if calls.is_empty() { READ.min(LOOK * 5) } else { LOOK });
        calls.into_iter().for_each(Waker::wake);
        if Instant::now() < due {
            continue;
        }
        due = Instant::now() + READ;
        let has_bindings = bindings.expire();
        let mut work = lock(&shared.0);
        work.has_bindings = has_bindings;
        work.read.retain(|(_, latest)| latest.strong_count() > 0);
        let read = work.read.clone();
        drop(work);
        for (name, latest) in read {
            let Some(latest) = latest.upgrade() else { continue };
            match directory.look_up(&name) {
                Ok(offers) => latest.put(offers),
                Err(error) => latest.grow_old(&error),
            }
        }
    }
}
