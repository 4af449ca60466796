//! The keeper: one background thread of each process. It sleeps until a descriptor is ready or a timer
//! expires.
//!
//! The keeper watches sockets for requests and for the death of the other end. So threads that make or serve
//! calls only need to read memory. The first bind or export starts the keeper. A forked child that binds gets
//! its own keeper.

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

/// Something that the keeper watches. Its functions run on the keeper's thread and must not wait.
pub(crate) trait Watched: Send + Sync {
    /// Returns the descriptor that is watched.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Called when the descriptor is readable, or its other end was closed.
    fn ready(self: Arc<Self>) -> Next;

    /// As [`ready`](Self::ready), for something that must know which events have occurred. After a pause,
    /// `events` is empty.
    fn ready_for(self: Arc<Self>, events: EventFlags) -> Next {
        let _ = events;
        self.ready()
    }

    /// Returns the events for which the descriptor is watched. With `ONESHOT`, watching pauses after the
    /// first event until [`Watch::rearm`].
    fn interest(&self) -> EventFlags {
        EventFlags::IN | EventFlags::RDHUP
    }

    /// Called when the timer of this watch expires.
    fn tick(self: Arc<Self>) -> Next {
        Next::Sleep
    }
}

/// Something that is watched only for its timer. Its descriptor is never readable.
struct TimerOnly<F> {
    tick: F,
    never: OwnedFd,
}

impl<F: Fn() -> Next + Send + Sync> Watched for TimerOnly<F> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.never.as_fd()
    }

    /// Is never called, because the descriptor is never readable.
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

/// What the keeper does next with something that it watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait until the watched descriptor is readable.
    Sleep,
    /// Stop watching the descriptor, and cancel the timer.
    Forget,
    /// As `Forget`, but also call [`Watched::tick`] after this time.
    Tick(Duration),
    /// Stop watching the descriptor for this time. Then watch it again, and call [`Watched::ready`].
    Pause(Duration),
    /// Wait until the watched descriptor is readable, and also call [`Watched::tick`] after this time.
    SleepAndTick(Duration),
}

/// The keeper of a process: its thread, and what the thread watches.
pub(crate) struct Keeper {
    epoll: OwnedFd,
    /// Wakes the keeper's thread when a timer was set that may expire before the thread's current timeout.
    wake_event: OwnedFd,
    watched: Mutex<HashMap<u64, Entry>>,
    next_key: AtomicU64,
    pid: u32,
}

struct Entry {
    what: Arc<dyn Watched>,
    /// Whether the descriptor of `what` is on the interest list of epoll.
    listed: bool,
    /// The time at which [`Watched::tick`] is called.
    tick: Option<Instant>,
    /// When the descriptor is watched again after a pause. This time is separate from the timer: if a peer
    /// sends so much that the keeper pauses, the timer still expires in time.
    again: Option<Instant>,
}

const WAKE_KEY: u64 = 0;

/// Something that is being watched. Watching ends when this value is dropped.
pub(crate) struct Watch {
    keeper: Arc<Keeper>,
    key: u64,
}

/// Refers to a [`Watch`]. Dropping this handle does not end the watch. After the watch has ended, the
/// handle's functions do nothing.
pub(crate) struct WatchHandle {
    keeper: Arc<Keeper>,
    key: u64,
}

impl WatchHandle {
    /// Watches the descriptor again, for the events that [`Watched::interest`] now returns. Ends a pause.
    pub(crate) fn renew(&self) {
        if self.keeper.renew(self.key) {
            self.keeper.wake();
        }
    }

    /// Makes the timer expire at `at`, unless it expires earlier.
    pub(crate) fn remind_by(&self, at: Instant) {
        if self.remind_by_without_waking(at) {
            self.keeper.wake();
        }
    }

    /// As [`remind_by`](Self::remind_by), for functions that run on the keeper's thread. Returns whether the
    /// timer now expires at `at`.
    pub(crate) fn remind_by_without_waking(&self, at: Instant) -> bool {
        self.keeper.remind_by(self.key, at)
    }
}

impl Watch {
    /// Returns a handle of this watch.
    pub(crate) fn handle(&self) -> WatchHandle {
        WatchHandle { keeper: Arc::clone(&self.keeper), key: self.key }
    }

    /// Sets the timer: [`Watched::tick`] is called once after this time.
    pub(crate) fn remind(&self, after: Duration) {
        self.keeper.remind(self.key, after);
        // The keeper's thread may sleep longer than `after`, so it is woken.
        self.keeper.wake();
    }

    /// Watches the descriptor again, for the events that [`Watched::interest`] now returns.
    pub(crate) fn rearm(&self) {
        self.keeper.again(self.key);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.keeper.forget(self.key);
    }
}

impl Keeper {
    /// Returns the keeper of this process, and starts it first if necessary.
    pub(crate) fn of_process() -> io::Result<Arc<Self>> {
        // A forked child does not use its parent's keeper, because the child does not have the keeper's
        // thread. The keeper's descriptors stay open in the child, but the child does not use them.
        static KEEPER: PerProcess<Mutex<Option<Arc<Keeper>>>> = PerProcess::new();
        let mut keeper = KEEPER.own().lock();
        if let Some(keeper) = &*keeper {
            return Ok(Arc::clone(keeper));
        }
        let pid = std::process::id();
        let new = Arc::new(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            wake_event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            watched: Mutex::new(HashMap::new()),
            next_key: AtomicU64::new(WAKE_KEY + 1),
            pid,
        });
        epoll::add(&new.epoll, &new.wake_event, EventData::new_u64(WAKE_KEY), EventFlags::IN)?;
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

    /// Watches something as [`watch`](Self::watch) does, and also calls [`Watched::tick`] once after `time`.
    pub(crate) fn watch_for(
        self: &Arc<Self>,
        what: Arc<dyn Watched>,
        time: Duration,
    ) -> io::Result<Watch> {
        let watch = self.watch_until(what, Some(Instant::now() + time))?;
        // The keeper's thread may sleep longer than `time`, so it is woken.
        rustix::io::write(&self.wake_event, &1u64.to_ne_bytes())?;
        Ok(watch)
    }

    /// Calls `tick` when the timer that [`Watch::remind`] sets has expired. `tick` sets the next timer by
    /// returning [`Next::SleepAndTick`].
    pub(crate) fn watch_timer(
        self: &Arc<Self>,
        tick: impl Fn() -> Next + Send + Sync + 'static,
    ) -> io::Result<Watch> {
        let never = eventfd(0, EventfdFlags::CLOEXEC)?;
        self.watch(Arc::new(TimerOnly { tick, never }))
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
        // A forked child shares the interest list with its parent, and must not change the list.
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

    /// Does the same as [`again`](Self::again), and ends a pause. Returns whether the keeper's thread must be
    /// woken.
    fn renew(&self, key: u64) -> bool {
        // In a forked child, the interest list is the parent's.
        if self.pid != std::process::id() {
            return false;
        }
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&key) else { return false };
        if entry.listed {
            let (data, interest) = (EventData::new_u64(key), entry.what.interest());
            let _ = epoll::modify(&self.epoll, entry.what.fd(), data, interest);
            return false;
        }
        let pauses = entry.again.is_some();
        if pauses {
            entry.again = Some(Instant::now());
        }
        pauses
    }

    fn remind_by(&self, key: u64, at: Instant) -> bool {
        if self.pid != std::process::id() {
            return false;
        }
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&key) else { return false };
        let is_earlier = entry.tick.is_none_or(|tick| at < tick);
        if is_earlier {
            entry.tick = Some(at);
        }
        is_earlier
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake_event, &1u64.to_ne_bytes());
    }

    fn remind(&self, key: u64, after: Duration) {
        if let Some(entry) = self.entries().get_mut(&key) {
            entry.tick = Some(Instant::now() + after);
        }
    }

    fn forget(&self, key: u64) {
        // In a forked child, the interest list is the parent's. The lock may be held by a thread that the
        // child does not have.
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
                // The descriptor is valid and open, so no other error is possible.
                Err(error) => panic!("the keeper cannot wait: {error}"),
            }
            for event in events.drain(..) {
                self.ready(event.data.u64(), event.flags);
            }
            if timeout.is_some() {
                self.run_due();
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.entries().values().flat_map(|entry| [entry.tick, entry.again]).flatten().min()
    }

    fn ready(&self, key: u64, events: EventFlags) {
        if key == WAKE_KEY {
            let _ = rustix::io::read(&self.wake_event, &mut [0; 8]);
            return;
        }
        // The lock is not held during the call of `ready`, because `ready` may start or stop watching
        // something.
        let what = self.entries().get(&key).map(|entry| Arc::clone(&entry.what));
        if let Some(what) = what {
            self.apply(key, guarded(|| what.ready_for(events)));
        }
    }

    fn run_due(&self) {
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
                    // The kernel lacks memory at the moment, so the keeper tries again later.
                    entry.again = (!listed).then(|| now + Duration::from_millis(50));
                }
                let ready = || Arc::clone(&what).ready_for(EventFlags::empty());
                self.apply(key, guarded(ready));
            }
            if ticks {
                self.apply(key, guarded(|| what.tick()));
            }
        }
    }

    fn apply(&self, key: u64, next: Next) {
        if next == Next::Sleep {
            return;
        }
        if let Next::SleepAndTick(after) = next {
            self.remind(key, after);
            return;
        }
        if let Some(entry) = self.entries().get_mut(&key) {
            if core::mem::take(&mut entry.listed) {
                let _ = epoll::delete(&self.epoll, entry.what.fd());
            }
            match next {
                Next::Tick(after) => entry.tick = Some(Instant::now() + after),
                Next::Pause(after) => entry.again = Some(Instant::now() + after),
                Next::Sleep | Next::Forget | Next::SleepAndTick(_) => {
                    (entry.tick, entry.again) = (None, None);
                }
            }
        }
    }
}

/// Calls a function of something that is watched. If the function panics, the keeper stops watching this
/// thing.
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
    fn keeper_calls_ready_and_then_tick() {
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

    /// Pauses for an hour after each event.
    struct Pauses(Mutex<mpsc::Sender<Option<EventFlags>>>, OwnedFd);

    impl Watched for Pauses {
        fn fd(&self) -> BorrowedFd<'_> {
            self.1.as_fd()
        }
        fn ready(self: Arc<Self>) -> Next {
            Next::Forget
        }
        fn ready_for(self: Arc<Self>, events: EventFlags) -> Next {
            let _ = self.0.lock().send(Some(events));
            Next::Pause(Duration::from_secs(3600))
        }
        fn tick(self: Arc<Self>) -> Next {
            let _ = self.0.lock().send(None);
            Next::Sleep
        }
    }

    #[test]
    fn handle_ends_a_pause_and_advances_the_timer() {
        let keeper = Keeper::of_process().unwrap();
        let event = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        let (sender, notes) = mpsc::channel();
        let pauses = Arc::new(Pauses(Mutex::new(sender), event));
        let watch = keeper.watch(pauses).unwrap();
        let handle = watch.handle();
        let limit = Duration::from_secs(10);
        assert_eq!(notes.recv_timeout(limit), Ok(Some(EventFlags::IN)));
        let hour = Instant::now() + Duration::from_secs(3600);
        // The keeper sends a note before it begins a pause. So the first `renew` may come too early. The test
        // repeats the call until a note without events arrives, which shows that a pause has ended.
        let begins = Instant::now();
        loop {
            assert!(begins.elapsed() < limit, "the pause does not end");
            handle.renew();
            let note = notes.recv_timeout(Duration::from_millis(5));
            if note == Ok(Some(EventFlags::empty())) {
                break;
            }
        }
        handle.remind_by(hour);
        assert!(!handle.remind_by_without_waking(hour + limit), "a later time changed the timer");
        handle.remind_by(Instant::now());
        while notes.recv_timeout(limit).expect("the timer expires").is_some() {}
        drop(watch);
        handle.renew();
        handle.remind_by(Instant::now());
        assert_eq!(notes.recv_timeout(limit), Err(mpsc::RecvTimeoutError::Disconnected));
    }
}
