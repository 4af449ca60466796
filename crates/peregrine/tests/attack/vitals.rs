//! What a process has of the machine: descriptors, threads, memory, time.

use std::path::PathBuf;
use std::time::Duration;

/// Counted from outside, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vitals {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    /// Memory of its own, and what it has touched of shared memory.
    pub(crate) resident_kib: u64,
    /// Regions of sessions that it has mapped.
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

    /// Whether it has no more than `before`, save for threads that are not idle long enough yet and
    /// memory that an allocator keeps.
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

/// The threads of a process whose names begin so, as directories of `/proc`.
pub(crate) fn threads(pid: u32, name: &str) -> impl Iterator<Item = PathBuf> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    tasks.flatten().map(|task| task.path()).filter(move |task| {
        // A thread may end meanwhile.
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.starts_with(name))
    })
}

/// Processor time that a process has used.
pub(crate) fn used(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may have blanks: user time and system time are the 12th and 13th.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        rest.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    // A tick is a hundredth of a second wherever Linux runs.
    Duration::from_millis(10 * ticks)
}

/// Whether all threads of a process are halted.
pub(crate) fn is_halted(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    tasks.flatten().all(|task| {
        let text = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}
