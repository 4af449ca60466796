//! Ctrl-C: what is undone and told when a long command is interrupted.
//!
//! The first signal lets the command come to an end by itself: it looks at [`Interrupt::check`], or
//! is told by what was given to [`Interrupt::mind`]. If it has not ended after a while, or a second
//! signal comes, it is ended from outside, after the same has been undone.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::Format;
use crate::output::{During as _, Failure};

/// How long telling of an interruption may take.
const TELLING: Duration = Duration::from_millis(500);

/// What a command says when it is interrupted: what was done, and what is left of it.
type Last = Box<dyn FnOnce() -> String + Send>;

/// How a command is interrupted.
pub(crate) struct Terms {
    /// How answers are told.
    pub(crate) format: Format,
    /// How long the command has to end by itself.
    pub(crate) grace: Duration,
    /// Whether anything may have been executed: "no" or "maybe".
    pub(crate) executed: &'static str,
}

/// A command that minds SIGINT, SIGTERM, and SIGHUP unless that was ignored when it was started.
pub(crate) struct Interrupt {
    shared: Arc<Shared>,
}

struct Shared {
    /// The signal that came, or 0.
    came: AtomicI32,
    /// How it ends from outside; none once it is ending by itself.
    last: Mutex<Option<Last>>,
    /// The first signal came, and when it is too late to end by oneself.
    until: Mutex<Option<Instant>>,
    changed: Condvar,
    terms: Terms,
    begun: Instant,
}

impl Interrupt {
    /// Minds signals from now on. When one comes `first` is called at once; `last` undoes what is
    /// to be undone and says so, should the command not have ended by itself.
    pub(crate) fn mind(
        terms: Terms,
        first: impl FnOnce() + Send + 'static,
        last: impl FnOnce() -> String + Send + 'static,
    ) -> Result<Self, Failure> {
        let shared = Arc::new(Shared {
            came: AtomicI32::new(0),
            last: Mutex::new(Some(Box::new(last))),
            until: Mutex::default(),
            changed: Condvar::new(),
            terms,
            begun: Instant::now(),
        });
        let hangup = (!is_hangup_ignored()).then_some(SIGHUP);
        let minded = [SIGINT, SIGTERM].into_iter().chain(hangup);
        let mut signals = Signals::new(minded).during("minding signals")?;
        let watching = Arc::clone(&shared);
        let watch = move || {
            let mut first = Some(first);
            for signal in signals.forever() {
                match first.take() {
                    Some(first) => {
                        watching.came.store(signal, Ordering::SeqCst);
                        first();
                        watching.give(watching.terms.grace);
                    }
                    None => watching.give(Duration::ZERO),
                }
            }
        };
        let ending = Arc::clone(&shared);
        for (name, run) in [
            ("signals", Box::new(watch) as Box<dyn FnOnce() + Send>),
            ("interrupt", Box::new(move || ending.end())),
        ] {
            let spawned = std::thread::Builder::new().name(name.into()).spawn(run);
            spawned.during("minding signals")?;
        }
        Ok(Self { shared })
    }

    /// The signal that has come, if one has.
    pub(crate) fn signal(&self) -> Option<i32> {
        Some(self.shared.came.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    /// Fails if a signal has come: then everything is undone that is undone by dropping it. `what`
    /// says what was done until now.
    pub(crate) fn check(&self, what: impl FnOnce() -> String) -> Result<(), Failure> {
        match self.signal() {
            None => Ok(()),
            Some(signal) => {
                self.leave();
                let executed = self.shared.terms.executed;
                Err(Failure::Interrupted { signal, what: what(), executed })
            }
        }
    }

    /// From now on the command ends by itself; what was to be undone is not undone any more. A
    /// process that is just being ended from outside never comes back from here.
    pub(crate) fn leave(&self) {
        lock(&self.shared.last).take();
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Shared {
    /// Gives the command so long to end.
    fn give(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut given = lock(&self.until);
        *given = Some(given.map_or(until, |before| before.min(until)));
        self.changed.notify_all();
    }

    /// Ends the process when its time is up.
    fn end(&self) {
        let mut until = lock(&self.until);
        loop {
            let now = Instant::now();
            until = match *until {
                Some(end) if end <= now => break,
                Some(end) => {
                    let waited = self.changed.wait_timeout(until, end - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(until).unwrap_or_else(PoisonError::into_inner),
            };
        }
        drop(until);
        // With the lock held: whoever fails now because of this has no time to say so.
        let mut last = lock(&self.last);
        let signal = self.came.load(Ordering::SeqCst);
        let Some(last) = last.take() else { std::process::exit(128 + signal) };
        let Terms { format, executed, .. } = self.terms;
        let failure = Failure::Interrupted { signal, what: last(), executed };
        let took = self.begun.elapsed();
        // The command may be just writing to somebody who does not read: that one is not waited for.
        let (done, told) = mpsc::channel();
        let tell = move || {
            let _ = done.send(failure.report(format, took));
        };
        let telling = std::thread::Builder::new().name("interrupted".into()).spawn(tell);
        let code = telling.ok().and_then(|_| told.recv_timeout(TELLING).ok());
        std::process::exit(code.map_or(128 + signal, i32::from))
    }
}

/// Whether whoever started us said that we are to outlive the terminal, as `nohup` does.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (SIGHUP - 1)) != 0
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
