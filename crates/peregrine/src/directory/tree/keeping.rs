//! The thread of a tree. It renews registrations and looks for changes, because file systems that machines
//! share report none. It runs while there are registrations or watches.
//!
//! The keeper, the background thread of the process, does not do this: a shared file system may block for
//! minutes.

use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::directory::{Offers, Standing, Watcher};
use crate::error::CallError;
use crate::sync::{Condvar, Mutex};

/// How often the thread looks for changes of watched names.
const LOOK: Duration = Duration::from_millis(500);

/// The file of a registration.
#[derive(Debug)]
pub(super) struct Registered {
    /// The directory of the name.
    place: PathBuf,
    path: PathBuf,
    /// Where the file is written before it gets its name. So no reader sees a part of it.
    aside: PathBuf,
    line: String,
}

impl Registered {
    pub(super) fn new(place: &Path, server: &str, line: String) -> Self {
        let (path, aside) = (format!("{server}.json"), format!(".{server}.new"));
        Self { path: place.join(path), aside: place.join(aside), place: place.to_owned(), line }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file, and the directory of the name if it does not exist.
    pub(super) fn write(&self) -> io::Result<()> {
        match fs::create_dir(&self.place) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        fs::write(&self.aside, format!("{}\n", self.line))?;
        fs::rename(&self.aside, &self.path)
    }

    /// Extends the lease. If the file has gone, writes it again.
    fn renew(&self) -> io::Result<()> {
        let touched = File::options().write(true).open(&self.path).and_then(|file| {
            // The time is that of the file system. Its clock is the same for all machines.
            let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
            let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
            Ok(rustix::fs::futimens(&file, &times)?)
        });
        match touched {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.write(),
            touched => touched,
        }
    }

    fn withdraw(&self) {
        let _ = fs::remove_file(&self.path);
        // Fails if the name has other servers.
        let _ = fs::remove_dir(&self.place);
    }
}

type Look = Box<dyn Fn() -> Result<Offers, CallError> + Send>;

/// What the thread does again and again for one registration or watch.
enum Duty {
    Renew(Arc<Registered>),
    Look {
        look: Look,
        watcher: Watcher,
        /// What `watcher` was told last.
        told: Offers,
    },
}

/// A duty, and when it is due.
struct Task {
    number: u64,
    duty: Duty,
    every: Duration,
    due: Instant,
    problem: Arc<Mutex<Option<String>>>,
}

impl Task {
    /// Does the duty once. If a watcher panics, the panic is the problem, and the watch goes on.
    fn run(&mut self) {
        let done = catch_unwind(AssertUnwindSafe(|| self.duty.fulfil()));
        *self.problem.lock() = done.unwrap_or_else(|_| Some("the watcher panicked".to_owned()));
        self.due = Instant::now() + self.every;
    }
}

impl Duty {
    /// Fulfils the duty once. Returns why this failed, if it did.
    fn fulfil(&mut self) -> Option<String> {
        match self {
            Self::Renew(file) => {
                let path = file.path.display();
                file.renew().err().map(|error| format!("cannot renew {path}: {error}"))
            }
            Self::Look { look, watcher, told } => match look() {
                Ok(now) => {
                    if now != *told {
                        told.clone_from(&now);
                        watcher(now);
                    }
                    None
                }
                Err(error) => Some(error.to_string()),
            },
        }
    }
}

#[derive(Default)]
struct State {
    /// The tasks, without the one that the thread works on.
    tasks: Vec<Task>,
    /// The number of the task that the thread works on.
    current: Option<u64>,
    /// Whether this task shall end.
    ends: bool,
    next: u64,
    /// The thread, if it runs.
    thread: Option<ThreadId>,
}

/// The registrations and watches of a tree.
#[derive(Default)]
pub(super) struct Keeping {
    state: Mutex<State>,
    changed: Condvar,
}

impl Keeping {
    /// Renews a file that was written.
    ///
    /// # Errors
    /// If no thread can be started. The file was withdrawn then.
    pub(super) fn register(
        self: &Arc<Self>,
        file: Registered,
        every: Duration,
    ) -> io::Result<Standing> {
        let file = Arc::new(file);
        let withdrawn = Arc::clone(&file);
        let added = self.add(Duty::Renew(Arc::clone(&file)), every, move || withdrawn.withdraw());
        added.inspect_err(|_| file.withdraw())
    }

    /// Tells `watcher` what is known now, and then each change.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn watch(
        self: &Arc<Self>,
        look: Look,
        mut watcher: Watcher,
        now: Offers,
    ) -> io::Result<Standing> {
        watcher(now.clone());
        self.add(Duty::Look { look, watcher, told: now }, LOOK, || {})
    }

    fn add(
        self: &Arc<Self>,
        duty: Duty,
        every: Duration,
        end: impl FnOnce() + Send + Sync + 'static,
    ) -> io::Result<Standing> {
        let mut state = self.state.lock();
        if state.thread.is_none() {
            let (keeping, thread) = (Arc::clone(self), thread::Builder::new());
            let thread = thread.name("peregrine-tree".to_owned()).spawn(move || keeping.run())?;
            state.thread = Some(thread.thread().id());
        }
        let (number, due) = (state.next, Instant::now() + every);
        state.next += 1;
        let problem = Arc::default();
        let told = Arc::clone(&problem);
        state.tasks.push(Task { number, duty, every, due, problem });
        drop(state);
        self.changed.notify_all();
        let keeping = Arc::clone(self);
        let end = move || {
            keeping.end(number);
            end();
        };
        Ok(Standing::new(end, move || told.lock().clone()))
    }

    /// Ends a task. When this function returns, the task does not run any more, unless this thread runs it.
    fn end(&self, number: u64) {
        let mut state = self.state.lock();
        let at = state.tasks.iter().position(|task| task.number == number);
        if let Some(at) = at {
            let ended = state.tasks.swap_remove(at);
            drop(state);
            self.changed.notify_all();
            drop(ended);
            return;
        }
        if state.current == Some(number) {
            state.ends = true;
            let is_own = state.thread == Some(thread::current().id());
            while !is_own && state.current == Some(number) {
                state = self.changed.wait(state);
            }
        }
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
            let mut task = state.tasks.swap_remove(at);
            state.current = Some(task.number);
            drop(state);
            task.run();
            state = self.state.lock();
            state.current = None;
            if core::mem::take(&mut state.ends) {
                drop(state);
                drop(task);
                state = self.state.lock();
            } else {
                state.tasks.push(task);
            }
            self.changed.notify_all();
        }
    }
}

impl core::fmt::Debug for Keeping {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} tasks", self.state.lock().tasks.len())
    }
}
