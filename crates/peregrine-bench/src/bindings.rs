//! Measures the time of a null call through one of many bindings to the same server.
//!
//! If one process has all bindings, it calls either through all of them in rotation, or through only eight of
//! them. In the first case, the process makes a call through every other binding before it uses a binding
//! again. In the second case, the other bindings are idle, and only their existence can cost time. In the
//! same rounds, the bench also measures a server that has only one binding. Both cases are compared with
//! calls through that binding.
//!
//! If each process has one binding, the bench asks one process at a time to make some calls. The process
//! times its calls itself, so the time to wake the process does not count. Before the first of these calls,
//! the server has slept or has served other clients.

use std::time::{Duration, Instant};

use peregrine::BindOptions;

use crate::cases::{
    ACTIVE, ACTIVE_SPREAD, BINDINGS, Case, EACH, EACH_FIRST, Limit, Placement, SPREAD, Size, TURN,
    TURN_SPREAD, Waiting,
};
use crate::crowd::Crowd;
use crate::interfaces::{Small, SmallClient};
use crate::local::{Filter, in_turn, split};
use crate::orders::{Order, SINGLY};
use crate::peer::Peer;
use crate::row::Row;
use crate::subject::{Failure, Sample, Subject, quiet};
use crate::throughput::crowd;
use crate::{Progress, Selection, machine};

/// The number of bindings that are called while the others are idle.
const FEW: u32 = 8;
/// The number of calls before the measured ones. Fewer calls are made if they do not fit into [`WARM_TIME`].
const WARM_CALLS: u32 = 300;
/// The longest time of the calls before the measured ones.
const WARM_TIME: Duration = Duration::from_millis(3);
/// The pause between two measurements in a round. At the end of the pause, no thread of the server spins any
/// more.
const QUIET: Duration = Duration::from_millis(1);
/// The smallest number of requests per sample. With each request, the bench asks one process to make calls.
/// Each process receives the same number of requests, but at least one.
const ORDERS: usize = 24;
/// The largest number of descriptors that a binding takes.
const OF_BINDING: u64 = 3;
/// The number of descriptors that are reserved for other uses.
const OTHERS: u64 = 128;

/// Measures what was selected. This thread and the server run on two processors.
pub(crate) fn measure(
    selection: &Selection,
    filter: &Filter,
    progress: &Progress,
    peer: &mut Peer,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let all = [TURN, TURN_SPREAD, ACTIVE, ACTIVE_SPREAD, EACH, EACH_FIRST];
    let wanted = |count: &u32| filter.has_wait(Waiting::Adaptive) && filter.has(1, *count);
    let counts: Vec<u32> = BINDINGS.into_iter().filter(wanted).collect();
    if counts.is_empty() || !all.iter().any(|case| selection.has_case(case)) {
        return Ok(rows);
    }
    let pair = Placement::TwoCores.processors(&machine::processors());
    let [here, there] = pair.unwrap_or_default();
    let mut lone = Peer::start_as("lone-", there)?;
    for count in counts {
        if machine::descriptors() < u64::from(count) * OF_BINDING + OTHERS {
            eprintln!("{count} bindings: skipped: the limit of descriptors per process is too low");
            continue;
        }
        for spread in [false, true] {
            progress.show(&format!("two-cores, adaptive: {count} bindings"));
            rows.extend(of_one_process(selection, count, spread, peer, &mut lone)?);
        }
        progress.show(&format!("two-cores, adaptive: {count} processes"));
        rows.extend(of_a_process_each(selection, count, here, peer, &mut lone)?);
    }
    Ok(rows)
}

/// Returns one row for each limit with which a case is compared.
fn rows_of(
    case: &'static str,
    bindings: u32,
    ours: &[Sample],
    limits: &[(Limit, &[Sample])],
) -> Vec<Row> {
    let (ours, cpu) = split(ours);
    // A single binding is only compared with the single binding of another server. This is a check: both must
    // take about the same time.
    let limits = if bindings == 1 { &limits[..1] } else { limits };
    let rows = limits.iter().map(|(limit, samples)| {
        let (limit_ns, _) = split(samples);
        let row = Row {
            path: Some("local"),
            wait: Some(Waiting::Adaptive.name()),
            placement: Some(Placement::TwoCores.name()),
            bindings,
            ..Row::new(case)
        };
        let row = row.ours(&ours, &cpu).limit(limit.name(), &limit_ns);
        row.ratio(&ours, &limit_ns)
    });
    rows.collect()
}

/// Bindings of this process.
struct Many(Vec<SmallClient>);

/// The state of calls that are made through `active` bindings in rotation.
struct Rotation {
    active: u32,
    next: usize,
    last_ns: Option<f64>,
}

impl Many {
    /// Binds, and calls once through each binding.
    fn bind(peer: &Peer, count: u32, spread: bool) -> Result<Self, Failure> {
        let bind = BindOptions::default().wait(Waiting::Adaptive.wait());
        let small = peer.export(Waiting::Adaptive, Size::Small);
        let clients = (0..count as usize).map(|number| {
            let name = if spread { peer.spread_export(number) } else { small.clone() };
            let client = SmallClient::bind_with(&name, &bind)?;
            client.null()?;
            Ok(client)
        });
        Ok(Self(clients.collect::<peregrine::Result<_>>()?))
    }

    /// Makes calls for about the time `slice`. The number of calls is the same for each binding of the
    /// rotation.
    fn sample(
        &self,
        peer: &mut Peer,
        rotation: &mut Rotation,
        slice: Duration,
    ) -> Result<Sample, Failure> {
        let last_ns = match rotation.last_ns {
            Some(ns) => ns,
            None => self.call(rotation, rotation.active)?,
        };
        let start = Instant::now();
        let mut warm = 0;
        while warm < WARM_CALLS && start.elapsed() < WARM_TIME {
            self.call(rotation, 4)?;
            warm += 4;
        }
        let before = peer.cpu_time()?;
        // Reading the processor times disturbs both processes. A few calls that are not timed let the
        // processes settle.
        self.call(rotation, FEW)?;
        let fit = slice.as_nanos() as f64 / last_ns.max(1.0);
        let calls = (fit as u32).clamp(1, 1_000_000).next_multiple_of(rotation.active);
        let ns = self.call(rotation, calls)?;
        let ran = peer.cpu_time()?.saturating_sub(before);
        std::thread::sleep(QUIET);
        rotation.last_ns = Some(ns);
        let cpu_ns = Some(ran.as_nanos() as f64 / f64::from(calls + FEW));
        Ok(Sample { ns, cpu_ns })
    }

    /// Makes `calls` calls, and returns the mean time of a call in nanoseconds.
    fn call(&self, rotation: &mut Rotation, calls: u32) -> peregrine::Result<f64> {
        // If the bindings are spread, binding n leads to export n modulo `SPREAD` (8). The step between
        // successive active bindings is odd, so eight active bindings use eight different exports.
        let step = (self.0.len() / rotation.active as usize - 1) | 1;
        let end = step * rotation.active as usize;
        let start = Instant::now();
        for _ in 0..calls {
            rotation.next += step;
            if rotation.next >= end {
                rotation.next = 0;
            }
            self.0[rotation.next].null()?;
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(calls))
    }
}

/// Measures the bindings of this process: first all of them in rotation, then a few of them in rotation.
fn of_one_process(
    selection: &Selection,
    count: u32,
    spread: bool,
    peer: &mut Peer,
    lone: &mut Peer,
) -> Result<Vec<Row>, Failure> {
    let cases = if spread { [TURN_SPREAD, ACTIVE_SPREAD] } else { [TURN, ACTIVE] };
    // If at most `FEW` bindings exist, the few active bindings are all bindings, so one case is enough. A
    // single binding cannot be spread over exports.
    let cases = match count {
        1 if spread => &cases[..0],
        1..=FEW => &cases[..1],
        _ => &cases[..],
    };
    if !cases.iter().any(|case| selection.has_case(case)) {
        return Ok(Vec::new());
    }
    let many = Many::bind(peer, count, spread)?;
    let mut rotations =
        [count, FEW.min(count)].map(|active| Rotation { active, next: 0, last_ns: None });
    let null = Case::named("null").expect("a case");
    let mut one = Subject::limit(Limit::OneBinding, null);
    let mut block = Subject::limit(Limit::OwnBlock, null);
    let slice = selection.slice();
    let samples = in_turn(selection.few_rounds(), 4, |subject| match subject {
        0 | 1 => many.sample(peer, &mut rotations[subject], slice),
        2 => one.measure(lone, slice),
        _ => block.measure(lone, slice),
    })?;
    drop(many);
    quiet_all(peer)?;
    let limits = [(Limit::OneBinding, &samples[2][..]), (Limit::OwnBlock, &samples[3][..])];
    let mut rows = Vec::new();
    for (case, ours) in cases.iter().zip(&samples) {
        if selection.has_case(case) {
            // The cases with a few active bindings are compared with `OneBinding` only. In these cases
            // the server is expected to poll all the time. Blocking calls (`OwnBlock`) are slower, so a
            // comparison with them would make Peregrine look better.
            let limits =
                if [ACTIVE, ACTIVE_SPREAD].contains(case) { &limits[..1] } else { &limits };
            rows.extend(rows_of(case, count, ours, limits));
        }
    }
    Ok(rows)
}

/// Waits until no client is bound any more to the exports that the measurements of this file use.
fn quiet_all(peer: &Peer) -> Result<(), Failure> {
    quiet(&peer.export(Waiting::Adaptive, Size::Small))?;
    (0..SPREAD).try_for_each(|number| quiet(&peer.spread_export(number)))
}

/// The times of calls, as the calling processes report them. Each process makes a series of calls at a time.
#[derive(Default)]
struct CallTimes {
    /// For each sample: the mean time of all calls.
    all: Vec<Sample>,
    /// For each sample: the mean time of the first calls of all series.
    first: Vec<Sample>,
}

impl CallTimes {
    /// Asks each process in turn for a series of calls, `rounds` times. Adds a sample to `all` and a sample
    /// to `first`. Returns the mean time of all calls.
    fn measure_each(&mut self, crowd: &mut Crowd, rounds: usize) -> Result<Sample, Failure> {
        let (mut all, mut first) = (0.0, 0.0);
        for _ in 0..rounds {
            for member in 0..crowd.len() {
                crowd.order(member, Order::Singly);
                let report = crowd.report(member)?;
                all += report.ns as f64 / SINGLY as f64;
                first += f64::from(report.each_ns[0]);
            }
        }
        let asked = (rounds * crowd.len()) as f64;
        let sample = |ns: f64| Sample { ns: ns / asked, cpu_ns: None };
        self.all.push(sample(all));
        self.first.push(sample(first));
        Ok(sample(all))
    }
}

/// Measures processes that have one binding each, on the processor `cpu`.
fn of_a_process_each(
    selection: &Selection,
    count: u32,
    cpu: Option<u32>,
    peer: &mut Peer,
    lone: &mut Peer,
) -> Result<Vec<Row>, Failure> {
    if ![EACH, EACH_FIRST].iter().any(|case| selection.has_case(case)) {
        return Ok(Vec::new());
    }
    let mut all = crowd(peer, Waiting::Adaptive, count as usize, cpu)?;
    let mut only = crowd(lone, Waiting::Adaptive, 1, cpu)?;
    let null = Case::named("null").expect("a case");
    let mut block = Subject::limit(Limit::OwnBlock, null);
    let (mut ours, mut one) = (CallTimes::default(), CallTimes::default());
    // If there are few processes, each is asked several times per sample.
    let again = ORDERS.div_ceil(count as usize);
    let samples = in_turn(selection.few_rounds(), 3, |subject| match subject {
        0 => ours.measure_each(&mut all, again),
        1 => one.measure_each(&mut only, ORDERS),
        _ => block.measure(lone, selection.slice()),
    })?;
    drop((all, only));
    quiet_all(peer)?;
    let mut rows = Vec::new();
    for (case, ours, one) in [(EACH, &ours.all, &one.all), (EACH_FIRST, &ours.first, &one.first)] {
        if selection.has_case(case) {
            let limits = [(Limit::OneBinding, &one[..]), (Limit::OwnBlock, &samples[2][..])];
            rows.extend(rows_of(case, count, ours, &limits));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interfaces::Object;

    #[test]
    fn rotation_uses_each_binding_equally_often() {
        let many = Many((0..10).map(|_| SmallClient::in_process(Object)).collect());
        for (active, places) in [(10, 0..10), (FEW, 0..8), (1, 0..1)] {
            let mut rotation = Rotation { active, next: 0, last_ns: None };
            let mut seen = Vec::new();
            for _ in 0..active {
                many.call(&mut rotation, 1).unwrap();
                seen.push(rotation.next);
            }
            seen.sort_unstable();
            assert_eq!(seen, places.collect::<Vec<_>>());
        }
    }
}
