//! Measures the resources that a process uses: descriptors, threads, memory, and processor time.

use std::path::PathBuf;
use std::time::Duration;

/// The resources that a process uses at one moment, as `/proc` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vitals {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    /// The resident memory: private memory, and shared memory that the process has touched.
    pub(crate) resident_kib: u64,
    /// The number of session regions that the process has mapped.
    pub(crate) regions: usize,
}

impl Vitals {
    pub(crate) fn of(pid: u32) -> Self {
        let count = |what: &str| {
            std::fs::read_dir(format!("/proc/{pid}/{what}")).map_or(0, Iterator::count)
        };
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        Self {
            descriptors: count("fd"),
            threads: count("task"),
            resident_kib: status(pid, "VmRSS:"),
            regions: maps.lines().filter(|line| line.contains("memfd:peregrine")).count(),
        }
    }

    /// Returns whether the process uses no more than `before`, except for `threads` threads that have not
    /// ended yet, and `kib` KiB that the allocator keeps.
    pub(crate) fn is_back_to(self, before: Self, threads: usize, kib: u64) -> bool {
        self.descriptors <= before.descriptors
            && self.regions <= before.regions
            && self.threads <= before.threads + threads
            && self.resident_kib <= before.resident_kib + kib
    }
}

fn status(pid: u32, what: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(what));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Returns the directories in `/proc` of the threads whose names begin with `name`.
pub(crate) fn threads(pid: u32, name: &str) -> impl Iterator<Item = PathBuf> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    tasks.flatten().map(|task| task.path()).filter(move |task| {
        // A thread may end meanwhile.
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.starts_with(name))
    })
}

/// Returns the processor time that a process has used.
pub(crate) fn used(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the process may contain spaces, so `rest` begins after the name. The 12th and 13th fields
    // of `rest` are the user time and the system time.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        rest.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    // The kernel reports these times in hundredths of a second on all machines.
    Duration::from_millis(10 * ticks)
}

/// Returns whether all threads of a process are halted.
pub(crate) fn is_halted(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    tasks.flatten().all(|task| {
        let text = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}
