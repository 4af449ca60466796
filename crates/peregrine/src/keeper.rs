//! The keeper: one thread a process, asleep unless something is owed.
//!
//! It watches sockets for death and for requests, so that threads inside calls need only look at
//! memory. It starts with the first bind or export; a forked child that binds gets its own.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::sync::Mutex;
use crate::sys::PerProcess;

/// Something that the keeper looks after. Called on the keeper's thread: it must not wait.
pub(crate) trait Watched: Send + Sync {
    /// The descriptor that is watched.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Its descriptor is readable, or its other end was closed.
    fn ready(self: Arc<Self>) -> Next;

    /// What of its descriptor is watched. With `ONESHOT` it is watched until it was ready once, and
    /// then from [`Watch::again`] on.
    fn interest(&self) -> EventFlags {
        EventFlags::IN | EventFlags::RDHUP
    }

    /// A moment that it asked for has come.
    fn tick(self: Arc<Self>) -> Next {
        Next::Sleep
    }
}

/// Something whose descriptor is never readable: only moments come for it.
struct Tended<F> {
    tick: F,
    never: OwnedFd,
}

impl<F: Fn() -> Next + Send + Sync> Watched for Tended<F> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.never.as_fd()
    }

    fn ready(self: Arc<Self>) -> Next {
        Next::Sleep
    }

    fn interest(&self) -> EventFlags {
        EventFlags::empty()
    }

    fn tick(self: Arc<Self>) -> Next {
        (self.tick)()
    }
}

/// What the keeper does next about something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Look again when its descriptor is readable.
    Sleep,
    /// Not look at the descriptor any more.
    Forget,
    /// As `Forget`, but call [`Watched::tick`] after this time.
    Tick(Duration),
    /// Look away for this time, then look again.
    Rest(Duration),
    /// Look again when its descriptor is readable, and call [`Watched::tick`] after this time.
    Tend(Duration),
}

/// The process's keeper.
pub(crate) struct Keeper {
    epoll: OwnedFd,
    /// Wakes the thread when a tick is due earlier than it thinks.
    nudge: OwnedFd,
    watched: Mutex<HashMap<u64, Entry>>,
    next_key: AtomicU64,
    pid: u32,
}

struct Entry {
    what: Arc<dyn Watched>,
    /// Whether its descriptor is on the interest list.
    listed: bool,
    /// When it is to be called, whatever its descriptor does.
    tick: Option<Instant>,
    /// When its descriptor is looked at again. Apart from the tick: who says so much that one looks
    /// away has no more time because of it.
    again: Option<Instant>,
}

const NUDGE: u64 = 0;

/// Watching ends when this is dropped.
pub(crate) struct Watch {
    keeper: Arc<Keeper>,
    key: u64,
}

impl Watch {
    /// Has [`Watched::tick`] called once after this time.
    pub(crate) fn remind(&self, after: Duration) {
        self.keeper.remind(self.key, after);
        // It sleeps until a moment that may be later.
        let _ = rustix::io::write(&self.keeper.nudge, &1u64.to_ne_bytes());
    }
}

impl Watch {
    /// Watches the descriptor again, or for something else than before, as
    /// [`Watched::interest`] says.
    pub(crate) fn again(&self) {
        self.keeper.again(self.key);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.keeper.forget(self.key);
    }
}

impl Keeper {
    /// The keeper of this process, started if there is none yet.
    pub(crate) fn of_process() -> io::Result<Arc<Self>> {
        // A child leaves the keeper of its parent as it is: it has no thread there, and its
        // descriptors stay open, for closing them would touch the parent's interest list.
        static KEEPER: PerProcess<Mutex<Option<Arc<Keeper>>>> = PerProcess::new();
        let mut keeper = KEEPER.own().lock();
        if let Some(keeper) = &*keeper {
            return Ok(Arc::clone(keeper));
        }
        let pid = std::process::id();
        let new = Arc::new(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            nudge: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            watched: Mutex::new(HashMap::new()),
            next_key: AtomicU64::new(NUDGE + 1),
            pid,
        });
        epoll::add(&new.epoll, &new.nudge, EventData::new_u64(NUDGE), EventFlags::IN)?;
        let runs = Arc::clone(&new);
        std::thread::Builder::new().name("peregrine-keeper".into()).spawn(move || runs.run())?;
        *keeper = Some(Arc::clone(&new));
        Ok(new)
    }

    #[track_caller]
    fn entries(&self) -> crate::sync::MutexGuard<'_, HashMap<u64, Entry>> {
        self.watched.lock()
    }

    /// Watches something until the returned value is dropped.
    pub(crate) fn watch(self: &Arc<Self>, what: Arc<dyn Watched>) -> io::Result<Watch> {
        self.watch_until(what, None)
    }

    /// As [`watch`](Self::watch), and calls [`Watched::tick`] once after this time.
    pub(crate) fn watch_for(
        self: &Arc<Self>,
        what: Arc<dyn Watched>,
        time: Duration,
    ) -> io::Result<Watch> {
        let watch = self.watch_until(what, Some(Instant::now() + time))?;
        // It sleeps until a moment that may be later.
        rustix::io::write(&self.nudge, &1u64.to_ne_bytes())?;
        Ok(watch)
    }

    /// Calls a function when the returned value [reminds](Watch::remind) of it, and again when it
    /// says so with [`Next::Tend`].
    pub(crate) fn tend(
        self: &Arc<Self>,
        tick: impl Fn() -> Next + Send + Sync + 'static,
    ) -> io::Result<Watch> {
        let never = eventfd(0, EventfdFlags::CLOEXEC)?;
        self.watch(Arc::new(Tended { tick, never }))
    }

    fn watch_until(
        self: &Arc<Self>,
        what: Arc<dyn Watched>,
        tick: Option<Instant>,
    ) -> io::Result<Watch> {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let mut entries = self.entries();
        self.list(key, &*what)?;
        entries.insert(key, Entry { what, listed: true, tick, again: None });
        Ok(Watch { keeper: Arc::clone(self), key })
    }

    fn list(&self, key: u64, what: &dyn Watched) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, what.fd(), EventData::new_u64(key), what.interest())?)
    }

    fn again(&self, key: u64) {
        // In a forked child the interest list is the parent's.
        if self.pid != std::process::id() {
            return;
        }
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&key) else { return };
        let (data, interest) = (EventData::new_u64(key), entry.what.interest());
        if entry.listed {
            let _ = epoll::modify(&self.epoll, entry.what.fd(), data, interest);
        }
    }

    fn remind(&self, key: u64, after: Duration) {
        if let Some(entry) = self.entries().get_mut(&key) {
            entry.tick = Some(Instant::now() + after);
        }
    }

    fn forget(&self, key: u64) {
        // In a forked child the interest list is the parent's, and its lock may be held by a
        // thread that the child does not have.
        if self.pid != std::process::id() {
            return;
        }
        let entry = self.entries().remove(&key);
        if let Some(entry) = entry.filter(|entry| entry.listed) {
            let _ = epoll::delete(&self.epoll, entry.what.fd());
        }
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(64);
        loop {
            let timeout = self.next_due().map(|due| {
                let left = due.saturating_duration_since(Instant::now());
                rustix::time::Timespec {
                    tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: left.subsec_nanos().into(),
                }
            });
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, room, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                // The descriptor is ours and open: nothing else can happen.
                Err(error) => panic!("the keeper cannot wait: {error}"),
            }
            for event in events.drain(..) {
                self.ready(event.data.u64());
            }
            if timeout.is_some() {
                self.dues();
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.entries().values().flat_map(|entry| [entry.tick, entry.again]).flatten().min()
    }

    fn ready(&self, key: u64) {
        if key == NUDGE {
            let _ = rustix::io::read(&self.nudge, &mut [0; 8]);
            return;
        }
        // Not called under the lock: it may watch and forget others, or itself.
        let what = self.entries().get(&key).map(|entry| Arc::clone(&entry.what));
        if let Some(what) = what {
            self.settle(key, guarded(|| what.ready()));
        }
    }

    fn dues(&self) {
        let now = Instant::now();
        let due: Vec<_> = self
            .entries()
            .iter_mut()
            .filter_map(|(key, entry)| {
                let passed = |due: &mut Instant| *due <= now;
                let ticks = entry.tick.take_if(passed).is_some();
                let again = entry.again.take_if(passed).is_some();
                (ticks || again).then(|| (*key, ticks, again, Arc::clone(&entry.what)))
            })
            .collect();
        for (key, ticks, again, what) in due {
            if again {
                let listed = self.list(key, &*what).is_ok();
                if let Some(entry) = self.entries().get_mut(&key) {
                    entry.listed = listed;
                    // The kernel is short of memory: that passes.
                    entry.again = (!listed).then(|| now + Duration::from_millis(50));
                }
                self.settle(key, guarded(|| Arc::clone(&what).ready()));
            }
            if ticks {
                self.settle(key, guarded(|| what.tick()));
            }
        }
    }

    fn settle(&self, key: u64, next: Next) {
        if next == Next::Sleep {
            return;
        }
        if let Next::Tend(after) = next {
            self.remind(key, after);
            return;
        }
        if let Some(entry) = self.entries().get_mut(&key) {
            if core::mem::take(&mut entry.listed) {
                let _ = epoll::delete(&self.epoll, entry.what.fd());
            }
            match next {
                Next::Tick(after) => entry.tick = Some(Instant::now() + after),
                Next::Rest(after) => entry.again = Some(Instant::now() + after),
                Next::Sleep | Next::Forget | Next::Tend(_) => {
                    (entry.tick, entry.again) = (None, None);
                }
            }
        }
    }
}

/// What panics is looked after no more, and everything else as before.
fn guarded(call: impl FnOnce() -> Next) -> Next {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Next::Forget)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::mpsc;

    struct Note(Mutex<mpsc::Sender<&'static str>>, OwnedFd);

    impl Watched for Note {
        fn fd(&self) -> BorrowedFd<'_> {
            self.1.as_fd()
        }
        fn ready(self: Arc<Self>) -> Next {
            let _ = self.0.lock().send("ready");
            Next::Tick(Duration::from_millis(1))
        }
        fn tick(self: Arc<Self>) -> Next {
            let _ = self.0.lock().send("tick");
            Next::Forget
        }
    }

    #[test]
    fn it_notices_and_ticks() {
        let keeper = Keeper::of_process().unwrap();
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let (sender, notes) = mpsc::channel();
        let note = Arc::new(Note(Mutex::new(sender), event));
        let watch = keeper.watch(Arc::clone(&note) as Arc<dyn Watched>).unwrap();
        rustix::io::write(&note.1, &1u64.to_ne_bytes()).unwrap();
        let limit = Duration::from_secs(10);
        assert_eq!(notes.recv_timeout(limit), Ok("ready"));
        assert_eq!(notes.recv_timeout(limit), Ok("tick"));
        drop((watch, note));
        assert_eq!(notes.recv_timeout(limit), Err(mpsc::RecvTimeoutError::Disconnected));
    }
}
