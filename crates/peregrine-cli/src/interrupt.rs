//! Handles signals: when a signal interrupts a long command, cleans up and reports the interruption.
//!
//! After the first signal, the command can still end regularly. Either the command polls
//! [`Interrupt::check`], or the first closure of [`Interrupt::handle`] stops the command. The exit is forced
//! in two cases: the command has not ended after a grace period, or a second signal arrives. Then a separate
//! thread runs the second closure and exits the process.

use std::sync::atomic::{AtomicI32, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::Format;
use crate::output::{self, Failure, OrFail as _};

/// How long a server or a bridge may take to stop. This is longer than the time for which a server that stops
/// waits for its running procedures.
const STOP_GRACE: Duration = Duration::from_secs(6);

/// How long the report of an interruption may take.
const REPORT_LIMIT: Duration = Duration::from_millis(500);

/// A closure that cleans up. It returns the text of the report: what was done, and what is left.
type CleanUp = Box<dyn FnOnce() -> String + Send>;

/// How a command reacts to signals.
pub(crate) struct InterruptOptions {
    /// The format of the report.
    pub(crate) format: Format,
    /// How long the command may take to end regularly after a signal.
    pub(crate) grace: Duration,
    /// Whether a call may have been executed: "no" or "maybe".
    pub(crate) executed: &'static str,
}

/// Handles SIGINT and SIGTERM, and SIGHUP unless it was ignored when the process started.
pub(crate) struct Interrupt {
    shared: Arc<Shared>,
}

/// A flag that other threads can read. It is set when a signal has arrived.
pub(crate) struct SignalFlag(Arc<Shared>);

impl SignalFlag {
    /// Returns whether a signal has arrived.
    pub(crate) fn is_set(&self) -> bool {
        self.0.signal.load(Ordering::Relaxed) != 0
    }
}

struct Shared {
    /// The number of the first signal; 0 before it arrives.
    signal: AtomicI32,
    /// The closure that cleans up before a forced exit. `None` once the command ends regularly.
    last: Mutex<Option<CleanUp>>,
    /// The time at which the process is forced to exit. `None` before the first signal.
    until: Mutex<Option<Instant>>,
    changed: Condvar,
    options: InterruptOptions,
    begun: Instant,
}

impl Interrupt {
    /// Handles signals from now on. The first signal stops a server or a bridge: it calls `stop` with
    /// `handle`, which is set once the server runs. If the server does not stop in time, the report contains
    /// `executed` and `text`.
    pub(crate) fn stopping<H: Send + Sync + 'static>(
        format: Format,
        handle: Arc<OnceLock<H>>,
        stop: impl FnOnce(&H) + Send + 'static,
        executed: &'static str,
        text: &'static str,
    ) -> Result<Self, Failure> {
        let first = move || {
            // Pairs with the fence in `signal`: either this thread finds the handle, or the command, which
            // sets the handle first, finds the signal.
            fence(Ordering::SeqCst);
            if let Some(handle) = handle.get() {
                stop(handle);
            }
        };
        let options = InterruptOptions { format, grace: STOP_GRACE, executed };
        Self::handle(options, first, || text.to_owned())
    }

    /// Handles signals from now on. The first signal calls `first` immediately. If the command does not end
    /// regularly after a signal, `last` is called: it cleans up, and returns the text of the report.
    pub(crate) fn handle(
        options: InterruptOptions,
        first: impl FnOnce() + Send + 'static,
        last: impl FnOnce() -> String + Send + 'static,
    ) -> Result<Self, Failure> {
        let shared = Arc::new(Shared {
            signal: AtomicI32::new(0),
            last: Mutex::new(Some(Box::new(last))),
            until: Mutex::default(),
            changed: Condvar::new(),
            options,
            begun: Instant::now(),
        });
        let hangup = (!is_hangup_ignored()).then_some(SIGHUP);
        let handled = [SIGINT, SIGTERM].into_iter().chain(hangup);
        let mut signals = Signals::new(handled).or_fail("cannot handle signals")?;
        let watching = Arc::clone(&shared);
        let watch = move || {
            let mut first = Some(first);
            for signal in signals.forever() {
                match first.take() {
                    Some(first) => {
                        watching.signal.store(signal, Ordering::SeqCst);
                        first();
                        watching.limit(watching.options.grace);
                    }
                    None => watching.limit(Duration::ZERO),
                }
            }
        };
        let ending = Arc::clone(&shared);
        for (name, run) in [
            ("signals", Box::new(watch) as Box<dyn FnOnce() + Send>),
            ("interrupt", Box::new(move || ending.end())),
        ] {
            let spawned = std::thread::Builder::new().name(name.into()).spawn(run);
            spawned.or_fail("cannot handle signals")?;
        }
        Ok(Self { shared })
    }

    /// Returns the number of the first signal. Returns `None` if no signal has arrived.
    pub(crate) fn signal(&self) -> Option<i32> {
        fence(Ordering::SeqCst);
        Some(self.shared.signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    /// Ends a command that serves until a signal stops it. `what` describes what the command has done.
    ///
    /// # Errors
    /// After any signal but SIGTERM, which is the regular way to stop a server.
    pub(crate) fn ended(&self, what: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.signal() != Some(SIGTERM) {
            return self.check(what);
        }
        self.leave();
        if self.shared.options.format == Format::Human {
            output::note(what());
        }
        Ok(())
    }

    /// Returns a flag that other threads can read. It is set when a signal has arrived.
    pub(crate) fn flag(&self) -> SignalFlag {
        SignalFlag(Arc::clone(&self.shared))
    }

    /// Returns an error after a signal, so that the command returns and its destructors clean up. `what`
    /// describes what the command has done until now.
    pub(crate) fn check(&self, what: impl FnOnce() -> String) -> Result<(), Failure> {
        match self.signal() {
            None => Ok(()),
            Some(signal) => {
                self.leave();
                let executed = self.shared.options.executed;
                Err(Failure::Interrupted { signal, what: what(), executed })
            }
        }
    }

    /// Records that the command ends regularly, so that `last` does not run any more. If the process is
    /// already exiting, this function never returns.
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
    /// Requests that the process exits after `time`, unless the command has ended before.
    fn limit(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut given = lock(&self.until);
        *given = Some(given.map_or(until, |before| before.min(until)));
        self.changed.notify_all();
    }

    /// Waits until the time in `until` has passed, and then exits the process.
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
        // This thread holds the lock until the exit. The command takes the same lock when it ends (`leave`).
        // So the command cannot report failures that the clean-up causes.
        let mut last = lock(&self.last);
        let signal = self.signal.load(Ordering::SeqCst);
        let Some(last) = last.take() else { std::process::exit(128 + signal) };
        let InterruptOptions { format, executed, .. } = self.options;
        let failure = Failure::Interrupted { signal, what: last(), executed };
        let took = self.begun.elapsed();
        // A separate thread writes the report, because writing blocks if nothing reads the output.
        let (done, reported) = mpsc::channel();
        let report = move || {
            let _ = done.send(failure.report(format, took));
        };
        let reporting = std::thread::Builder::new().name("interrupted".into()).spawn(report);
        let code = reporting.ok().and_then(|_| reported.recv_timeout(REPORT_LIMIT).ok());
        std::process::exit(code.map_or(128 + signal, i32::from))
    }
}

/// Returns whether SIGHUP was ignored when the process started. `nohup`, for example, starts programs in this
/// way.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (SIGHUP - 1)) != 0
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
