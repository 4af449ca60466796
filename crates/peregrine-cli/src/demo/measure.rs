//! Measures round trips of calls and of the ping-pong in `limit.rs`, which is the limit of the machine.
//! Rounds of calls and rounds of the ping-pong alternate.

use std::time::{Duration, Instant};

use peregrine::sys::pin_to;
use peregrine::{BindOptions, CallError};
use rustix::process::{Pid, Signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};

use super::directions::{Directions, DirectionsClient};
use super::limit::{Limit, RoundTrip};
use crate::args::WaitOption;
use crate::home::{Home, signal};
use crate::output::{Failure, OrFail};

/// The conditions of a measurement: the processors, the way to wait, and the limit.
struct Setting {
    wait: WaitOption,
    placement: &'static str,
    limit: &'static str,
    /// The processor of the client, and that of the server.
    cpus: [u32; 2],
    /// The number of round trips in each round.
    calls: u32,
}

/// A call that is measured.
struct Case {
    name: &'static str,
    there: usize,
    back: usize,
    call: fn(&DirectionsClient, &mut [u8]) -> Result<(), CallError>,
}

const CASES: [Case; 4] = [
    Case { name: "null", there: 0, back: 0, call: |server, _| server.null() },
    Case { name: "add", there: 8, back: 4, call: |server, _| server.add(1, 2).map(drop) },
    Case { name: "in-1024", there: 1024, back: 0, call: |server, bytes| server.take(bytes) },
    Case {
        name: "inout-1024",
        there: 1024,
        back: 1024,
        call: |server, bytes| server.exchange(bytes),
    },
];

/// The number of round trips that are made, but not measured, before each round. They ensure that both
/// processes are awake.
const WARM_UP: u32 = 50;

/// One row of the table of results.
pub(super) struct Row {
    /// The kind of call.
    pub(super) case: &'static str,
    /// How client and server wait.
    pub(super) wait: &'static str,
    /// The processors on which client and server run.
    pub(super) placement: &'static str,
    /// The limit with which the call is compared: `lines` or `futex`.
    pub(super) limit: &'static str,
    /// The median, over all rounds, of the duration of a call in nanoseconds.
    pub(super) ours_ns: f64,
    /// The median, over all rounds, of the duration of a round trip of the limit in nanoseconds.
    pub(super) limit_ns: f64,
    /// The duration of a call divided by that of a round trip of the limit. The three numbers are the median,
    /// the 10th and the 90th percentile over all rounds.
    pub(super) ratio: [f64; 3],
}

impl Row {
    /// Returns the row as JSON, with the members that the results of all experiments have.
    pub(super) fn to_json(&self, path: &str) -> Value {
        json!({
            "case": self.case,
            "path": path,
            "link": "memory",
            "wait": self.wait,
            "placement": self.placement,
            "callers": 1,
            "bindings": 1,
            "ours_ns": self.ours_ns,
            "cpu_ns": null,
            "per_s": 1e9 / self.ours_ns,
            "limit": self.limit,
            "limit_ns": self.limit_ns,
            "ratio": self.ratio[0],
            "ratio_low": self.ratio[1],
            "ratio_high": self.ratio[2],
        })
    }
}

/// Measures all settings for which this machine has enough processors.
pub(super) fn run(home: &Home, quick: bool, mut step: impl FnMut()) -> Result<Vec<Row>, Failure> {
    let before = sched_getaffinity(None).or_fail("cannot read the processor affinity")?;
    let mut rows = Vec::new();
    for setting in settings(&before) {
        let measured = measure(home, &setting, quick, &mut rows, &mut step);
        sched_setaffinity(None, &before).or_fail("cannot restore the processor affinity")?;
        measured?;
    }
    Ok(rows)
}

/// Returns the number of rows that [`run`] returns.
pub(super) fn rows() -> usize {
    sched_getaffinity(None).map_or(0, |cpus| settings(&cpus).len() * CASES.len())
}

fn settings(allowed: &CpuSet) -> Vec<Setting> {
    let cpus: Vec<u32> =
        (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).map(|cpu| cpu as u32).collect();
    let Some(first) = cpus.first().copied() else { return Vec::new() };
    let mut settings = Vec::new();
    if let Some(second) = other_core(first, &cpus) {
        for (wait, limit, calls) in [
            (WaitOption::Spin, "lines", 4000),
            (WaitOption::Adaptive, "lines", 4000),
            (WaitOption::Block, "futex", 400),
        ] {
            let cpus = [first, second];
            settings.push(Setting { wait, placement: "two-cores", limit, cpus, calls });
        }
    }
    let (wait, placement) = (WaitOption::Block, "one-core");
    settings.push(Setting { wait, placement, limit: "futex", cpus: [first; 2], calls: 400 });
    settings
}

/// Returns a processor other than `first`. It is on another core if possible.
fn other_core(first: u32, cpus: &[u32]) -> Option<u32> {
    let core = |cpu: u32| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        std::fs::read_to_string(path).ok()
    };
    let own = core(first);
    let mut others = cpus.iter().copied().filter(|cpu| *cpu != first);
    let apart = others.clone().find(|cpu| own.is_some() && core(*cpu) != own);
    apart.or_else(|| others.next())
}

fn measure(
    home: &Home,
    setting: &Setting,
    quick: bool,
    rows: &mut Vec<Row>,
    step: &mut impl FnMut(),
) -> Result<(), Failure> {
    let wait = setting.wait.text();
    let name = format!("{wait}-{}", setting.placement);
    let (process, _) = home.spawn(&["demo-server", "--name", &name, "--wait", wait])?;
    let options = BindOptions::default().wait(setting.wait.into());
    let server = DirectionsClient::bind_with(&name, &options)?;
    server.null()?;
    let mut limit = Limit::start(home)?;
    pin_to(setting.cpus[0]).or_fail("cannot set the processor affinity")?;
    // After the first call, the server has all threads that the measurement uses. So all of these threads are
    // pinned here. Later threads inherit the affinity.
    pin_process(process, setting.cpus[1])?;
    pin_process(limit.process, setting.cpus[1])?;
    for case in &CASES {
        rows.push(row(setting, case, quick, &server, process, &mut limit)?);
        step();
    }
    drop(server);
    home.stop(limit.process);
    home.stop(process);
    Ok(())
}

fn row(
    setting: &Setting,
    case: &Case,
    quick: bool,
    server: &DirectionsClient,
    process: u32,
    limit: &mut Limit,
) -> Result<Row, Failure> {
    let (rounds, calls) = if quick { (5, setting.calls / 4) } else { (25, setting.calls) };
    let asleep = setting.limit == "futex";
    let terms = RoundTrip { there: case.there, back: case.back, asleep };
    let mut bytes = vec![7; case.there];
    let mut repeat = |times: u32| -> Result<Duration, CallError> {
        let begun = Instant::now();
        for _ in 0..times {
            (case.call)(server, &mut bytes)?;
        }
        Ok(begun.elapsed())
    };
    let per_call = |took: Duration| took.as_nanos() as f64 / f64::from(calls);
    let (mut ours, mut limits, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        // A spinning server is paused while the limit is measured. Otherwise the server would occupy the
        // processor on which the peer of the ping-pong runs.
        let spins = setting.wait == WaitOption::Spin;
        if spins {
            signal(process, Signal::STOP);
        }
        let warm = limit.round(terms, WARM_UP);
        let limited = warm.and_then(|_| limit.round(terms, calls));
        if spins {
            signal(process, Signal::CONT);
        }
        let limited = per_call(limited?);
        repeat(WARM_UP)?;
        let one = per_call(repeat(calls)?);
        ours.push(one);
        limits.push(limited);
        ratios.push(one / limited);
    }
    for list in [&mut ours, &mut limits, &mut ratios] {
        list.sort_unstable_by(f64::total_cmp);
    }
    let tenth = |list: &[f64], tenths: usize| list[(list.len() - 1) * tenths / 10];
    Ok(Row {
        case: case.name,
        wait: setting.wait.text(),
        placement: setting.placement,
        limit: setting.limit,
        ours_ns: tenth(&ours, 5),
        limit_ns: tenth(&limits, 5),
        ratio: [5, 1, 9].map(|tenths| tenth(&ratios, tenths)),
    })
}

/// Pins all threads of a child to one processor.
fn pin_process(process: u32, cpu: u32) -> Result<(), Failure> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu as usize);
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    for task in tasks.or_fail("cannot list the threads of the child")? {
        let task = task.or_fail("cannot list the threads of the child")?;
        let thread = task.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(thread) = thread.and_then(Pid::from_raw) {
            // This call fails if the thread has ended meanwhile.
            let _ = sched_setaffinity(Some(thread), &cpus);
        }
    }
    Ok(())
}
