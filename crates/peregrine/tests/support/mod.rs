//! Real processes for end-to-end tests: a test runs its own program again, as a child that plays
//! a part, and ends it in whatever way it wants.

// Each test program uses its own part of this.
#![allow(dead_code)]

pub(crate) mod raw;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The variable that names a child's part.
const PART: &str = "PEREGRINE_TEST_PART";

/// A child process; killed when dropped.
pub(crate) struct Part {
    child: Child,
    lines: BufReader<ChildStdout>,
}

/// The part that this process plays; `None` in the test itself.
pub(crate) fn part() -> Option<String> {
    std::env::var(PART).ok()
}

impl Part {
    /// Runs the test function `name` of this program in a process of its own, which exports and
    /// binds in `directory`, and waits for its first line, `ready`.
    pub(crate) fn start(name: &str, part: &str, directory: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("our own path"))
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(PART, part)
            .env("PEREGRINE_DIR", directory)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child process");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut part = Self { child, lines };
        while part.line() != "ready" {}
        part
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let bytes = self.lines.read_line(&mut line).expect("text");
        assert!(bytes > 0, "the child ended before it said so");
        line.trim().to_owned()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it at once, wherever it is.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child to kill");
        self.child.wait().expect("a child to wait for");
    }

    /// Halts it, or lets it go on.
    pub(crate) fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).expect("a process number");
        // SAFETY: no memory is involved; the child is ours and not yet waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many descriptors a process of this user has open.
pub(crate) fn descriptors(pid: u32) -> usize {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process of ours");
    // The directory that is being read is one of our own.
    open.count() - usize::from(pid == std::process::id())
}

/// Waits until something is so that another process or thread brings about.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < limit, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Threads go on for as long as this lives: also a test that fails ends.
pub(crate) struct GoOn<'a>(&'a AtomicBool);

impl<'a> GoOn<'a> {
    pub(crate) fn with(going: &'a AtomicBool) -> Self {
        going.store(true, Ordering::Relaxed);
        Self(going)
    }
}

impl Drop for GoOn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Tests that change the environment, or count what their process has, run one at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A runtime directory of this test's own, for all that this process exports and binds. To be
/// called once, first of all.
pub(crate) fn own_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // SAFETY: before any other thread of this process looks at the environment.
    unsafe { std::env::set_var("PEREGRINE_DIR", directory.path()) };
    directory
}
