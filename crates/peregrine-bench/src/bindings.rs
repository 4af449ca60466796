//! Many bindings to one server: what a null call costs through one of them.
//!
//! Of one process they are all called in turn, so that each was last used as many calls ago as there
//! are; or eight of them are called in turn, so that what the others cost is only that they are
//! there. Held against the only binding of another server, in the same rounds.
//!
//! Of a process each, one process at a time is told to make some calls. It times them itself, so that
//! waking it is not counted; the first finds a server that has slept or served others since.

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

/// Bindings that are called while the others are idle.
const FEW: u32 = 8;
/// Calls before the measured ones, or as many as fit [`WARM_TIME`].
const WARM_CALLS: u32 = 300;
const WARM_TIME: Duration = Duration::from_millis(3);
/// From a slice to the next subject's: by then no thread of the server spins any more.
const QUIET: Duration = Duration::from_millis(1);
/// Orders to the only process, for one sample.
const ORDERS: usize = 24;
/// Descriptors that a binding takes of one process, at most, and those that are for other things.
const OF_BINDING: u64 = 3;
const OTHERS: u64 = 128;

/// Measures what was selected; this thread and the server run on two processors.
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
            eprintln!("{count} bindings: skipped: a process may have too few descriptors");
            continue;
        }
        for spread in [false, true] {
            progress.say(&format!("two-cores, adaptive: {count} bindings"));
            rows.extend(of_one_process(selection, count, spread, peer, &mut lone)?);
        }
        progress.say(&format!("two-cores, adaptive: {count} processes"));
        rows.extend(of_a_process_each(selection, count, here, peer, &mut lone)?);
    }
    Ok(rows)
}

/// A row for each limit.
fn rows_of(
    case: &'static str,
    bindings: u32,
    ours: &[Sample],
    limits: &[(Limit, &[Sample])],
) -> Vec<Row> {
    let (ours, cpu) = split(ours);
    // One binding, beside one: that the rows are made alike. There is no more to see.
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

/// So many of them, called in turn.
struct Turn {
    active: u32,
    next: usize,
    last_ns: Option<f64>,
}

impl Many {
    /// Binds, and calls through each once.
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

    /// Calls as often as there is time for, and through each of the turn as often as through the
    /// others.
    fn sample(&self, peer: &mut Peer, turn: &mut Turn, slice: Duration) -> Result<Sample, Failure> {
        let last_ns = match turn.last_ns {
            Some(ns) => ns,
            None => self.call(turn, turn.active)?,
        };
        let start = Instant::now();
        let mut warm = 0;
        while warm < WARM_CALLS && start.elapsed() < WARM_TIME {
            self.call(turn, 4)?;
            warm += 4;
        }
        let before = peer.cpu_time()?;
        // Looking at the time disturbed both processes.
        self.call(turn, FEW)?;
        let fit = slice.as_nanos() as f64 / last_ns.max(1.0);
        let calls = (fit as u32).clamp(1, 1_000_000).next_multiple_of(turn.active);
        let ns = self.call(turn, calls)?;
        let ran = peer.cpu_time()?.saturating_sub(before);
        std::thread::sleep(QUIET);
        turn.last_ns = Some(ns);
        let cpu_ns = Some(ran.as_nanos() as f64 / f64::from(calls + FEW));
        Ok(Sample { ns, cpu_ns })
    }

    /// So many calls; the nanoseconds of each.
    fn call(&self, turn: &mut Turn, calls: u32) -> peregrine::Result<f64> {
        // Evenly chosen, and odd: if bindings are spread over exports, so are those of the turn.
        let step = (self.0.len() / turn.active as usize - 1) | 1;
        let end = step * turn.active as usize;
        let start = Instant::now();
        for _ in 0..calls {
            turn.next += step;
            if turn.next >= end {
                turn.next = 0;
            }
            self.0[turn.next].null()?;
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(calls))
    }
}

/// Bindings that this process has, all in turn and a few in turn.
fn of_one_process(
    selection: &Selection,
    count: u32,
    spread: bool,
    peer: &mut Peer,
    lone: &mut Peer,
) -> Result<Vec<Row>, Failure> {
    let cases = if spread { [TURN_SPREAD, ACTIVE_SPREAD] } else { [TURN, ACTIVE] };
    // Where all are active, there is one row; where there is one binding, nothing is spread.
    let cases = match count {
        1 if spread => &cases[..0],
        1..=FEW => &cases[..1],
        _ => &cases[..],
    };
    if !cases.iter().any(|case| selection.has_case(case)) {
        return Ok(Vec::new());
    }
    let many = Many::bind(peer, count, spread)?;
    let mut turns = [count, FEW.min(count)].map(|active| Turn { active, next: 0, last_ns: None });
    let null = Case::named("null").expect("a case");
    let mut one = Subject::limit(Limit::OneBinding, null);
    let mut block = Subject::limit(Limit::OwnBlock, null);
    let slice = selection.slice();
    let samples = in_turn(selection.few_rounds(), 4, |subject| match subject {
        0 | 1 => many.sample(peer, &mut turns[subject], slice),
        2 => one.measure(lone, slice),
        _ => block.measure(lone, slice),
    })?;
    drop(many);
    quiet_all(peer)?;
    let limits = [(Limit::OneBinding, &samples[2][..]), (Limit::OwnBlock, &samples[3][..])];
    let mut rows = Vec::new();
    for (case, ours) in cases.iter().zip(&samples) {
        if selection.has_case(case) {
            // A server that serves but a few is not to sleep.
            let limits =
                if [ACTIVE, ACTIVE_SPREAD].contains(case) { &limits[..1] } else { &limits };
            rows.extend(rows_of(case, count, ours, limits));
        }
    }
    Ok(rows)
}

/// Waits until nobody is bound any more to what the bindings were spread over.
fn quiet_all(peer: &Peer) -> Result<(), Failure> {
    quiet(&peer.export(Waiting::Adaptive, Size::Small))?;
    (0..SPREAD).try_for_each(|number| quiet(&peer.spread_export(number)))
}

/// What processes told of their calls: of all, and of the first that each made.
#[derive(Default)]
struct Told {
    all: Vec<Sample>,
    first: Vec<Sample>,
}

impl Told {
    /// Every process makes some calls, `rounds` times; one process at a time.
    fn ask(&mut self, crowd: &mut Crowd, rounds: usize) -> Result<Sample, Failure> {
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

/// Processes with a binding each, on the processor `cpu`.
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
    let (mut ours, mut one) = (Told::default(), Told::default());
    // As many samples of a few processes as of many.
    let again = ORDERS.div_ceil(count as usize);
    let samples = in_turn(selection.few_rounds(), 3, |subject| match subject {
        0 => ours.ask(&mut all, again),
        1 => one.ask(&mut only, ORDERS),
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
    fn a_turn_comes_to_each_as_often_as_to_the_others() {
        let many = Many((0..10).map(|_| SmallClient::in_process(Object)).collect());
        for (active, places) in [(10, 0..10), (FEW, 0..8), (1, 0..1)] {
            let mut turn = Turn { active, next: 0, last_ns: None };
            let mut seen = Vec::new();
            for _ in 0..active {
                many.call(&mut turn, 1).unwrap();
                seen.push(turn.next);
            }
            seen.sort_unstable();
            assert_eq!(seen, places.collect::<Vec<_>>());
        }
    }
}
