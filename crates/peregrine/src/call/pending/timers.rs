//! [`Timers`]: the thread of a process that rings the bells of pending calls at their deadlines.
//!
//! The thread starts when the first timer is set, and ends when it has had no timer for a while.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::bells::Rings;
use crate::sync::Mutex;
use crate::sys;

/// How long the thread waits without a timer before it ends.
const LINGER: Duration = Duration::from_secs(5);

/// Identifies a call: the address of the object that has the call, and the number of the call in this object.
/// The timer of the call holds the object, so no other object has this address meanwhile.
type Key = (usize, u32);

fn key(of: &Arc<dyn Rings>, call: u32) -> Key {
    (Arc::as_ptr(of).cast::<()>() as usize, call)
}

/// The timers of a process, at most one for each call.
#[derive(Default)]
pub(super) struct Timers {
    state: Mutex<State>,
    /// Changed to wake the thread.
    word: AtomicU32,
}

#[derive(Default)]
struct State {
    /// The calls, by the time at which their bells ring. The number in the key distinguishes calls with the
    /// same time.
    due: BTreeMap<(Instant, u64), (Arc<dyn Rings>, u32)>,
    times: HashMap<Key, (Instant, u64)>,
    next: u64,
    runs: bool,
}

impl State {
    fn remove(&mut self, key: Key) -> Option<(Arc<dyn Rings>, u32)> {
        let time = self.times.remove(&key)?;
        self.due.remove(&time)
    }
}

impl Timers {
    /// Rings the bell of a call at `at`, unless the timer of the call is changed before.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn set(
        &'static self,
        of: &Arc<dyn Rings>,
        call: u32,
        at: Instant,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.runs {
            let thread = std::thread::Builder::new().name("peregrine-timers".into());
            thread.spawn(|| self.run())?;
            state.runs = true;
        }
        let before = state.remove(key(of, call));
        let number = state.next;
        state.next += 1;
        state.times.insert(key(of, call), (at, number));
        state.due.insert((at, number), (Arc::clone(of), call));
        let is_first = state.due.first_key_value().is_some_and(|(first, _)| first.1 == number);
        drop(state);
        drop(before);
        if is_first {
            self.word.fetch_add(1, Ordering::SeqCst);
            sys::futex_wake(&self.word);
        }
        Ok(())
    }

    /// Removes the timer of a call, if it has one.
    pub(super) fn clear(&self, of: &Arc<dyn Rings>, call: u32) {
        let removed = self.state.lock().remove(key(of, call));
        drop(removed);
    }

    fn run(&self) {
        let (mut idle_since, mut due) = (Instant::now(), Vec::new());
        loop {
            // The word is read before the timers, so that a change after this reading ends the sleep.
            let seen = self.word.load(Ordering::SeqCst);
            let now = Instant::now();
            let mut state = self.state.lock();
            while let Some(first) = state.due.first_entry().filter(|first| first.key().0 <= now) {
                let (of, call) = first.remove();
                state.times.remove(&key(&of, call));
                due.push((of, call));
            }
            let next = state.due.first_key_value().map(|((at, _), _)| *at);
            if next.is_some() || !due.is_empty() {
                idle_since = now;
            } else if now.duration_since(idle_since) >= LINGER {
                state.runs = false;
                return;
            }
            drop(state);
            if due.is_empty() {
                let left = next.map_or(LINGER, |next| next.saturating_duration_since(now));
                sys::futex_wait(&self.word, seen, Some(left));
            }
            for (of, call) in due.drain(..) {
                of.ring(call);
            }
        }
    }
}
