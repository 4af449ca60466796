//! `Watch`: detects calls that exceed their limits, and prints what each thread does at that time.

use std::fmt::Write as _;
use std::io::{Read as _, Seek as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a call may take after its limit. Creating or closing a socket for raw Ethernet waits until each
/// processor has passed through the kernel's scheduler (RCU), which takes long on a busy machine.
const GRACE: Duration = Duration::from_secs(5);
/// The interval between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The number of checks in which a call must be late before the test fails. In a single check, a call may be
/// late because the whole machine was halted.
const LOOKS: u64 = 10;

const NO_CALL: u64 = u64::MAX;

/// Monitors the current call of each caller.
pub(crate) struct Watch {
    begun: Instant,
    /// For each caller, when its current call must have ended: milliseconds after `begun`, or [`NO_CALL`].
    ends: Box<[AtomicU64]>,
    /// For each caller, the number of checks in which its current call was late.
    late: Box<[AtomicU64]>,
}

impl Watch {
    pub(crate) fn new(callers: usize) -> Self {
        let (ends, late) = (AtomicU64::new(NO_CALL), AtomicU64::new(0));
        let copies = |of: &AtomicU64| {
            let value = of.load(Ordering::Relaxed);
            (0..callers).map(|_| AtomicU64::new(value)).collect()
        };
        Self { begun: Instant::now(), ends: copies(&ends), late: copies(&late) }
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// Makes a call with a limit, and monitors it.
    pub(crate) fn during<T>(&self, caller: usize, limit: Duration, call: impl FnOnce() -> T) -> T {
        let ends = self.now() + (limit + GRACE).as_millis() as u64;
        self.ends[caller].store(ends, Ordering::Relaxed);
        let result = call();
        self.ends[caller].store(NO_CALL, Ordering::Relaxed);
        self.late[caller].store(0, Ordering::Relaxed);
        result
    }

    /// Sleeps for [`LOOK_EVERY`], then checks all calls once.
    ///
    /// # Panics
    /// If a call was late in [`LOOKS`] checks. Before the panic, this prints what the threads of `processes`
    /// do.
    pub(crate) fn look(&self, processes: &[u32]) {
        std::thread::sleep(LOOK_EVERY);
        let now = self.now();
        for (caller, (ends, late)) in self.ends.iter().zip(&self.late).enumerate() {
            let is_late = now > ends.load(Ordering::Relaxed);
            if is_late && late.fetch_add(1, Ordering::Relaxed) + 1 >= LOOKS {
                processes.iter().for_each(|process| eprintln!("{}", stacks(*process)));
                panic!("a call of caller {caller} has outlived its limit by {GRACE:?}");
            }
        }
    }
}

/// Returns what each thread of a process does: the thread's state in the kernel, and its stack if `gdb` is
/// installed.
fn stacks(process: u32) -> String {
    let mut text = format!("threads of process {process}:\n");
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return text + "it has ended";
    };
    for thread in threads.flatten().map(|entry| entry.path()) {
        let _ = writeln!(text, "{}", thread_state(&thread));
    }
    text.push_str(
        &stacks_by_gdb(process).unwrap_or_else(|error| format!("no stacks: gdb: {error}\n")),
    );
    text
}

/// Returns the stacks of a process from `gdb`, if `gdb` is installed and may trace processes.
fn stacks_by_gdb(process: u32) -> std::io::Result<String> {
    // The output goes to a file. If the output went to a pipe, gdb might have halted the process that reads
    // the pipe.
    let mut said = tempfile::tempfile()?;
    let gdb = Command::new("timeout")
        .args(["60", "gdb", "-p", &process.to_string(), "-batch", "-nx"])
        .args(["-ex", "set print frame-arguments none", "-ex", "thread apply all backtrace 40"])
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(Stdio::null())
        .status()?;
    let mut all = Vec::new();
    said.rewind()?;
    said.read_to_end(&mut all)?;
    let all = String::from_utf8_lossy(&all);
    let told = all.lines().filter(|line| line.starts_with(['#', 'T']));
    Ok(told.fold(format!("gdb: {gdb}\n"), |text, line| text + line + "\n"))
}

/// Returns a line about a thread: its number, name and wait channel, and its system call.
fn thread_state(thread: &Path) -> String {
    let read = |name: &str| {
        let text = std::fs::read_to_string(thread.join(name)).unwrap_or_default();
        text.trim().replace('\n', "; ")
    };
    let number = thread.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let [name, waits, call, stack] = ["comm", "wchan", "syscall", "stack"].map(read);
    format!("{number:>8} {name:<16} waits in {waits}, system call {call}, stack {stack}")
}
