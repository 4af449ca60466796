//! The threads of a tree: one renews registrations, and one looks for changes, because file systems that
//! machines share report none. Each runs while there is something to do.
//!
//! The keeper, the background thread of the process, does not do this: a shared file system may block for
//! minutes. For the same reason, watchers do not run on the thread that renews.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::directory::Standing;
use crate::sync::{Condvar, Mutex};

/// How long the end of a registration or a watch waits for the thread.
const END_LIMIT: Duration = Duration::from_secs(1);

/// What a thread does again and again for one registration or watch.
pub(super) trait Duty: Send {
    /// Fulfils the duty once.
    ///
    /// # Errors
    /// Why this failed, for people.
    fn fulfil(&mut self) -> Result<(), String>;

    /// Ends the duty. It is not fulfilled any more.
    fn end(&mut self);
}

/// A duty, and when it is due.
struct Task {
    number: u64,
    /// `None` while the thread works on it.
    duty: Option<Box<dyn Duty>>,
    every: Duration,
    due: Instant,
    /// Whether the duty shall end.
    ends: bool,
    problem: Arc<Mutex<Option<String>>>,
}

#[derive(Default)]
struct State {
    tasks: Vec<Task>,
    next: u64,
    /// The thread, if it runs.
    thread: Option<ThreadId>,
}

/// The duties of one kind.
pub(super) struct Keeping {
    /// The name of the thread.
    name: &'static str,
    /// A forked child has no thread, and the lock may be held for ever.
    process: u32,
    state: Mutex<State>,
    changed: Condvar,
}

impl Keeping {
    /// Returns a value without duties. `name` is the name of its thread.
    pub(super) fn new(name: &'static str) -> Arc<Self> {
        let (process, state, changed) = (std::process::id(), Mutex::default(), Condvar::new());
        Arc::new(Self { name, process, state, changed })
    }

    /// Adds a duty, which is first due after the time `every`, and then each time when this time has passed.
    ///
    /// # Errors
    /// If no thread can be started, or this process was forked after the directory was opened. The duty was
    /// ended then.
    pub(super) fn add(
        self: &Arc<Self>,
        duty: impl Duty + 'static,
        every: Duration,
    ) -> std::io::Result<Standing> {
        let mut duty = Box::new(duty);
        let begun = self.begin();
        let mut state = match begun {
            Ok(state) => state,
            Err(error) => {
                duty.end();
                return Err(error);
            }
        };
        let (number, due) = (state.next, Instant::now() + every);
        state.next += 1;
        let problem = Arc::<Mutex<_>>::default();
        let known = Arc::clone(&problem);
        state.tasks.push(Task { number, duty: Some(duty), every, due, ends: false, problem });
        drop(state);
        self.changed.notify_all();
        let keeping = Arc::clone(self);
        Ok(Standing::new(move || keeping.end(number), move || known.lock().clone()))
    }

    /// Takes the lock, and starts the thread if it does not run.
    fn begin(self: &Arc<Self>) -> std::io::Result<crate::sync::MutexGuard<'_, State>> {
        if self.process != std::process::id() {
            let text = "the directory was opened before this process was forked: open it again";
            return Err(std::io::Error::other(text));
        }
        let mut state = self.state.lock();
        if state.thread.is_none() {
            let (keeping, thread) = (Arc::clone(self), thread::Builder::new());
            let thread = thread.name(self.name.to_owned()).spawn(move || keeping.run())?;
            state.thread = Some(thread.thread().id());
        }
        Ok(state)
    }

    /// Lets the thread end a duty, and waits for this, but at most for [`END_LIMIT`], and not on the thread
    /// itself.
    fn end(&self, number: u64) {
        let mut state = self.state.lock();
        let Some(task) = state.tasks.iter_mut().find(|task| task.number == number) else { return };
        (task.ends, task.due) = (true, Instant::now());
        self.changed.notify_all();
        if state.thread == Some(thread::current().id()) {
            return;
        }
        let is_there = |state: &mut State| state.tasks.iter().any(|task| task.number == number);
        drop(self.changed.wait_timeout_while(state, END_LIMIT, is_there));
    }

    /// Does what is due until there is nothing left to do.
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            let next = state.tasks.iter().enumerate().min_by_key(|(_, task)| task.due);
            let Some((at, due)) = next.map(|(at, task)| (at, task.due)) else {
                state.thread = None;
                return;
            };
            let left = due.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                state = self.changed.wait_timeout(state, left).0;
                continue;
            }
            let task = &mut state.tasks[at];
            let (number, ends) = (task.number, task.ends);
            let mut duty = task.duty.take();
            drop(state);
            let done = match (&mut duty, ends) {
                (Some(duty), false) => fulfil(&mut **duty),
                _ => {
                    finish(duty.take());
                    Ok(())
                }
            };
            state = self.state.lock();
            // Only this thread removes tasks.
            let at = state.tasks.iter().position(|task| task.number == number);
            let Some(at) = at else { continue };
            if ends {
                state.tasks.swap_remove(at);
            } else {
                let task = &mut state.tasks[at];
                task.duty = duty;
                // The duty may have been ended meanwhile. Then it is due now.
                if !task.ends {
                    task.due = Instant::now() + task.every;
                }
                let problem = Arc::clone(&task.problem);
                drop(state);
                *problem.lock() = done.err();
                state = self.state.lock();
            }
            self.changed.notify_all();
        }
    }
}

/// Fulfils a duty once. A panic is a failure like others.
fn fulfil(duty: &mut dyn Duty) -> Result<(), String> {
    let done = catch_unwind(AssertUnwindSafe(|| duty.fulfil()));
    done.unwrap_or_else(|_| Err("the watcher panicked".to_owned()))
}

/// Ends a duty, and drops it. A panic ends nothing else.
fn finish(duty: Option<Box<dyn Duty>>) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if let Some(mut duty) = duty {
            duty.end();
        }
    }));
}

impl core::fmt::Debug for Keeping {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let tasks = self.state.try_lock().map(|state| state.tasks.len());
        write!(f, "{}: {tasks:?} tasks", self.name)
    }
}
