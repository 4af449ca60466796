//! Counts the null calls that many callers of one server make together. The result is compared with that of
//! one caller that spins.
//!
//! The calls in an interval, called the window, are counted. The time of a row is the length of the window
//! divided by the number of all calls in the window. At a ratio of 1, all callers together make calls at the
//! rate of a single caller on its own processor. The scheduler places the callers freely. The single caller
//! and its server are pinned to processors, because their figures would otherwise be meaningless.

use std::time::Duration;

use peregrine::BindOptions;
use peregrine::sys::pin_to;

use crate::cases::{CALLERS, Case, Limit, PROCESSES, Placement, Size, THREADS, Waiting};
use crate::crowd::Crowd;
use crate::interfaces::{Small, SmallClient};
use crate::local::{Filter, in_turn, split};
use crate::orders::Order;
use crate::peer::Peer;
use crate::row::Row;
use crate::subject::{Failure, Sample, Subject, quiet};
use crate::window::{Counted, Window, now_ns};
use crate::{Progress, Selection, machine};

/// The callers of a row.
pub(crate) enum Callers {
    /// Threads of this process that share one binding.
    Threads(u32, Waiting),
    /// Processes with a binding each.
    Processes(Crowd),
}

/// The time in nanoseconds from the start of the first attempt until the window begins. All callers usually
/// begin within this time. Each further attempt doubles the time.
const LEAD_NS: u64 = 5_000_000;
/// The number of windows that are tried before the measurement fails because callers begin too late.
const ATTEMPTS: u32 = 5;

/// Measures what was selected, with a server that the scheduler places freely.
pub(crate) fn measure(
    selection: &Selection,
    filter: &Filter,
    progress: &Progress,
    peer: &mut Peer,
) -> Result<Vec<Row>, Failure> {
    let mut wanted = Vec::new();
    for wait in [Waiting::Adaptive, Waiting::Block] {
        for case in [THREADS, PROCESSES] {
            for callers in CALLERS {
                let bindings = if case == THREADS { 1 } else { callers };
                if selection.has_case(case)
                    && filter.has_wait(wait)
                    && filter.has(callers, bindings)
                {
                    wanted.push((wait, case, callers, bindings));
                }
            }
        }
    }
    let mut rows = Vec::new();
    if wanted.is_empty() {
        return Ok(rows);
    }
    let pair = Placement::TwoCores.processors(&machine::processors());
    let Some([Some(here), Some(there)]) = pair else {
        eprintln!("many callers: skipped: only one processor may be used");
        return Ok(rows);
    };
    let mut lone = Peer::start_as("lone-", Some(there))?;
    for (wait, case, count, bindings) in wanted {
        progress.show(&format!("free, {}: {case}, {count}", wait.name()));
        let callers = if case == THREADS {
            Callers::Threads(count, wait)
        } else {
            Callers::Processes(crowd(peer, wait, count as usize, None)?)
        };
        let row = Row {
            path: Some("local"),
            wait: Some(wait.name()),
            placement: Some(Placement::Free.name()),
            callers: count,
            bindings,
            ..Row::new(case)
        };
        rows.push(compare_with_one(selection, row, callers, peer, &mut lone, here)?);
        quiet(&peer.export(wait, Size::Small))?;
    }
    Ok(rows)
}

/// Starts `count` processes, each bound to the export of the interface `Small` of a server.
pub(crate) fn crowd(
    peer: &Peer,
    wait: Waiting,
    count: usize,
    cpu: Option<u32>,
) -> Result<Crowd, Failure> {
    let export = peer.export(wait, Size::Small);
    Ok(Crowd::start(count, |command| {
        command.args(["caller", "--export", &export, "--wait", wait.name()]);
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
    })?)
}

/// Measures `callers` and a single caller alternately, round by round. The single caller runs on the
/// processor `here`, and calls the separate server `lone`.
fn compare_with_one(
    selection: &Selection,
    row: Row,
    mut callers: Callers,
    peer: &mut Peer,
    lone: &mut Peer,
    here: u32,
) -> Result<Row, Failure> {
    let null = Case::named("null").expect("a case");
    let mut one = Subject::limit(Limit::OwnSpin, null);
    let samples = in_turn(selection.few_rounds(), 2, |subject| match subject {
        0 => sample(&mut callers, peer, selection.window()),
        _ => std::thread::scope(|scope| {
            let pinned = scope.spawn(|| {
                pin_to(here)?;
                one.measure(lone, selection.slice())
            });
            pinned.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }),
    })?;
    let ((ours, cpu), (limit, _)) = (split(&samples[0]), split(&samples[1]));
    let row = row.ours(&ours, &cpu).limit(Limit::OwnSpin.name(), &limit);
    Ok(row.ratio(&ours, &limit))
}

/// Measures one window in which all callers call.
pub(crate) fn sample(
    callers: &mut Callers,
    peer: &mut Peer,
    window: Duration,
) -> Result<Sample, Failure> {
    let mut lead_ns = LEAD_NS;
    for _ in 0..ATTEMPTS {
        let before = cpu_time(callers, peer)?;
        let window = Window::after(now_ns(), lead_ns, window.as_nanos() as u64);
        let counted = match callers {
            Callers::Threads(count, wait) => threads(peer, *count, *wait, window)?,
            Callers::Processes(crowd) => processes(crowd, window)?,
        };
        let ran = cpu_time(callers, peer)?.saturating_sub(before);
        if counted.iter().all(|one| one.late_ns == 0) {
            let calls: u64 = counted.iter().map(|one| one.calls).sum();
            let all: u64 = counted.iter().map(|one| one.all).sum();
            if calls == 0 {
                return Err("no call ended within the window".into());
            }
            let cpu_ns = Some(ran.as_nanos() as f64 / all as f64);
            return Ok(Sample { ns: window.ns() as f64 / calls as f64, cpu_ns });
        }
        lead_ns *= 2;
    }
    Err("the machine is too busy: callers begin too late".into())
}

fn cpu_time(callers: &Callers, peer: &mut Peer) -> Result<Duration, Failure> {
    let crowd = match callers {
        Callers::Threads(..) => Duration::ZERO,
        Callers::Processes(crowd) => crowd.cpu_time()?,
    };
    Ok(peer.cpu_time()? + crowd)
}

/// Runs threads that share a binding. The binding exists for this window only.
fn threads(
    peer: &Peer,
    count: u32,
    wait: Waiting,
    window: Window,
) -> Result<Vec<Counted>, Failure> {
    let bind = BindOptions::default().wait(wait.wait());
    let client = SmallClient::bind_with(&peer.export(wait, Size::Small), &bind)?;
    std::thread::scope(|scope| {
        let call = || window.count(now_ns, || client.null());
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(call)).collect();
        let ended = threads.into_iter().map(|thread| {
            let counted = thread.join();
            Ok(counted.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
        });
        ended.collect()
    })
}

fn processes(crowd: &mut Crowd, window: Window) -> Result<Vec<Counted>, Failure> {
    for member in 0..crowd.len() {
        crowd.order(member, Order::Window(window));
    }
    let mut counted = Vec::new();
    for member in 0..crowd.len() {
        let report = crowd.report(member)?;
        counted.push(Counted { calls: report.calls, all: report.all, late_ns: report.ns });
    }
    Ok(counted)
}
