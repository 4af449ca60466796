//! [`Bells`]: the thread of a process that sleeps for pending calls.
//!
//! A thread that waits for a reply in shared memory sleeps on one word. No thread waits for a single pending
//! call. Instead, one thread sleeps on the words of all pending calls at once (`futex_waitv`). It sleeps at
//! most until the next deadline or examination of a call. This thread starts when the first call is watched,
//! and ends when it has had nothing to watch for a while. If more calls are watched than one thread can sleep
//! on, further threads start: about one for each 100 words.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::timers::Timers;
use crate::sync::{Mutex, MutexGuard};
use crate::sys::{self, FutexSet, PerProcess};

/// The largest number of calls that one thread watches. One system call can sleep on 128 words, of which one
/// is the thread's own.
const WATCHED_MAX: usize = 127;
/// How long a thread without calls waits before it ends.
const LINGER: Duration = Duration::from_secs(5);
/// After this time, a pending call is examined. The interval to the next examination doubles each time, up to
/// [`EXAMINE_AFTER_MAX`].
const EXAMINE_AFTER: Duration = Duration::from_millis(1);
const EXAMINE_AFTER_MAX: Duration = Duration::from_millis(128);
/// The interval at which a thread reads all words, if the kernel cannot sleep on several words.
const READ_EVERY: Duration = Duration::from_millis(1);

/// An object that has pending calls. Each of its calls has a number.
pub(crate) trait Rings: Send + Sync {
    /// Returns the word of a call, and the value that the word has until there may be a reply. `None` if the
    /// call has no word.
    fn word(&self, call: u32) -> Option<(&AtomicU32, u32)>;

    /// Examines a call that has been pending for a while, for example whether its server still exists. Must
    /// not wait.
    fn examine(&self, call: u32);

    /// Wakes what waits for a call. Must not wait.
    fn ring(&self, call: u32);
}

/// A call that is watched.
struct Entry {
    of: Arc<dyn Rings>,
    call: u32,
    /// The time at which the bell rings in any case.
    deadline: Option<Instant>,
    /// The time of the next examination, and the interval after it. `None`: the call is not examined.
    examine: Option<(Instant, Duration)>,
}

impl Entry {
    fn is(&self, of: &Arc<dyn Rings>, call: u32) -> bool {
        self.call == call && core::ptr::addr_eq(Arc::as_ptr(&self.of), Arc::as_ptr(of))
    }

    /// Returns whether the bell must ring now.
    fn is_due(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
            || self
                .of
                .word(self.call)
                .is_some_and(|(word, idle)| word.load(Ordering::Acquire) != idle)
    }

    /// Returns when this entry has something to do if its word does not change.
    fn next(&self) -> Option<Instant> {
        let examine = self.examine.map(|(at, _)| at);
        self.deadline.into_iter().chain(examine).min()
    }
}

/// One of the threads that sleep for pending calls.
#[derive(Default)]
struct Watcher {
    /// The next thread. Set when this thread watches as many calls as it can.
    next: OnceLock<Arc<Self>>,
    entries: Mutex<Entries>,
    /// Changed to wake the thread.
    word: AtomicU32,
}

#[derive(Default)]
struct Entries {
    list: Vec<Entry>,
    /// Whether the thread runs.
    runs: bool,
}

/// The threads of this process that sleep for pending calls.
#[derive(Default)]
pub(crate) struct Bells {
    first: Arc<Watcher>,
    /// The calls without a word that have a deadline.
    timers: Timers,
}

impl Bells {
    /// Returns the bells of this process. A forked child has its own.
    pub(crate) fn of_process() -> &'static Self {
        static BELLS: PerProcess<Bells> = PerProcess::new();
        BELLS.own()
    }

    /// Watches a call until its word changes, or until `deadline`. Then the bell of the call rings. Before,
    /// the call is examined from time to time if `examines` is true. If the call is watched already, the new
    /// values replace the old ones. Any number of calls without a word may be watched for their deadlines.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn watch(
        &'static self,
        of: &Arc<dyn Rings>,
        call: u32,
        deadline: Option<Instant>,
        examines: bool,
    ) -> io::Result<()> {
        if let (false, None) = (examines, of.word(call)) {
            return match deadline {
                Some(at) => self.timers.set(of, call, at),
                None => Ok(()),
            };
        }
        let examine = examines.then(|| (Instant::now() + EXAMINE_AFTER, EXAMINE_AFTER));
        let entry = Entry { of: Arc::clone(of), call, deadline, examine };
        // The call may be watched already, for example because its future was polled once more.
        for watcher in self.watchers() {
            let mut entries = watcher.entries.lock();
            if let Some(known) = entries.list.iter_mut().find(|one| one.is(of, call)) {
                *known = entry;
                drop(entries);
                watcher.wake();
                return Ok(());
            }
        }
        let mut watcher = &self.first;
        while watcher.entries.lock().list.len() >= WATCHED_MAX {
            watcher = watcher.next.get_or_init(Arc::default);
        }
        watcher.add(entry)
    }

    fn watchers(&self) -> impl Iterator<Item = &Arc<Watcher>> {
        core::iter::successors(Some(&self.first), |watcher| watcher.next.get())
    }

    /// Stops watching a call, if it is watched.
    pub(crate) fn forget(&self, of: &Arc<dyn Rings>, call: u32) {
        self.timers.clear(of, call);
        for watcher in self.watchers() {
            let mut entries = watcher.entries.lock();
            if let Some(at) = entries.list.iter().position(|one| one.is(of, call)) {
                let entry = entries.list.swap_remove(at);
                drop(entries);
                return drop(entry);
            }
        }
    }
}

impl Watcher {
    fn wake(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(&self.word);
    }

    fn add(self: &Arc<Self>, entry: Entry) -> io::Result<()> {
        let mut entries = self.entries.lock();
        if !entries.runs {
            let watcher = Arc::clone(self);
            let thread = std::thread::Builder::new().name("peregrine-bells".into());
            thread.spawn(move || watcher.run())?;
            entries.runs = true;
        }
        entries.list.push(entry);
        drop(entries);
        self.wake();
        Ok(())
    }

    /// Rings bells and examines calls until there has been nothing to watch for a while.
    fn run(&self) {
        let mut idle_since = Instant::now();
        let (mut due, mut old, mut watched) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            // The word is read before the entries, so that a change after this reading ends the sleep.
            let seen = self.word.load(Ordering::SeqCst);
            self.ring_all(&mut due);
            self.examine_all(&mut old);
            let mut entries = self.entries.lock();
            let now = Instant::now();
            if !entries.list.is_empty() {
                idle_since = now;
            } else if now.duration_since(idle_since) >= LINGER {
                entries.runs = false;
                return;
            }
            let next = entries.list.iter().filter_map(Entry::next).min();
            let until = next.unwrap_or(now + LINGER).saturating_duration_since(now);
            watched.extend(entries.list.iter().map(|one| (Arc::clone(&one.of), one.call)));
            drop(entries);
            self.sleep(seen, &watched, until);
            watched.clear();
        }
    }

    /// Rings the bells that are due, and stops watching their calls. `due` is an empty vector, whose memory
    /// is reused.
    fn ring_all(&self, due: &mut Vec<Entry>) {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        due.extend(entries.list.extract_if(.., |one| one.is_due(now)));
        drop(entries);
        for Entry { of, call, .. } in due.drain(..) {
            of.ring(call);
        }
    }

    /// Examines the calls that have been pending for a while. `due` is an empty vector, whose memory is
    /// reused.
    fn examine_all(&self, due: &mut Vec<(Arc<dyn Rings>, u32)>) {
        let now = Instant::now();
        let examine = |entry: &mut Entry| {
            let (at, interval) = entry.examine.as_mut()?;
            if *at > now {
                return None;
            }
            *interval = (*interval * 2).min(EXAMINE_AFTER_MAX);
            *at = now + *interval;
            Some((Arc::clone(&entry.of), entry.call))
        };
        let mut entries: MutexGuard<'_, Entries> = self.entries.lock();
        due.extend(entries.list.iter_mut().filter_map(examine));
        drop(entries);
        for (of, call) in due.drain(..) {
            of.examine(call);
        }
    }

    /// Sleeps until the word of this thread or of a call changes, but not longer than `until`.
    fn sleep(&self, seen: u32, watched: &[(Arc<dyn Rings>, u32)], until: Duration) {
        if !sys::has_futex_sets() {
            return sys::futex_wait(&self.word, seen, Some(until.min(READ_EVERY)));
        }
        let mut set = FutexSet::<{ WATCHED_MAX + 1 }>::new();
        set.push(&self.word, seen);
        for (of, call) in watched {
            if let Some((word, idle)) = of.word(*call) {
                set.push(word, idle);
            }
        }
        set.wait(Some(until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const LONG: Duration = Duration::from_secs(20);

    /// Calls that have one word each. Rings and examinations are sent to the test.
    struct Calls {
        words: Vec<AtomicU32>,
        rings: Mutex<Sender<u32>>,
        examined: Mutex<Sender<u32>>,
    }

    impl Rings for Calls {
        fn word(&self, call: u32) -> Option<(&AtomicU32, u32)> {
            self.words.get(call as usize).map(|word| (word, 0))
        }
        fn examine(&self, call: u32) {
            let _ = self.examined.lock().send(call);
        }
        fn ring(&self, call: u32) {
            let _ = self.rings.lock().send(call);
        }
    }

    fn calls(count: usize) -> (Arc<Calls>, Receiver<u32>, Receiver<u32>) {
        let (rings, rung) = channel();
        let (examined, looks) = channel();
        let words = (0..count).map(|_| AtomicU32::new(0)).collect();
        let (rings, examined) = (Mutex::new(rings), Mutex::new(examined));
        (Arc::new(Calls { words, rings, examined }), rung, looks)
    }

    #[test]
    fn bell_rings_when_the_word_changes_and_only_once() {
        let bells: &'static Bells = Box::leak(Box::default());
        let (calls, rung, _looks) = calls(300);
        let of: Arc<dyn Rings> = calls.clone();
        for call in 0..300 {
            bells.watch(&of, call, None, false).unwrap();
        }
        assert_eq!(bells.watchers().count(), 3, "one thread for each {WATCHED_MAX} words");
        for call in [299, 0, 150] {
            let word = &calls.words[call as usize];
            word.store(1, Ordering::Release);
            sys::futex_wake(word);
            assert_eq!(rung.recv_timeout(LONG), Ok(call));
        }
        assert!(rung.try_recv().is_err());
        // If the word of a call has already changed, the bell rings at once.
        bells.watch(&of, 150, None, false).unwrap();
        assert_eq!(rung.recv_timeout(LONG), Ok(150));
    }

    #[test]
    fn bell_rings_at_the_deadline_and_calls_are_examined_before() {
        let bells: &'static Bells = Box::leak(Box::default());
        let (calls, rung, looks) = calls(1);
        let of: Arc<dyn Rings> = calls.clone();
        bells.watch(&of, 0, None, true).unwrap();
        assert_eq!(looks.recv_timeout(LONG), Ok(0));
        let deadline = Instant::now() + Duration::from_millis(20);
        bells.watch(&of, 0, Some(deadline), true).unwrap();
        assert_eq!(rung.recv_timeout(LONG), Ok(0));
        assert!(Instant::now() >= deadline);
        // A call without a word is watched for its deadline only.
        bells.watch(&of, 5, Some(deadline), false).unwrap();
        assert_eq!(rung.recv_timeout(LONG), Ok(5));
    }
}
