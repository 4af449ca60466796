//! The experiment `account`: shows how long each step of a call takes while both sides poll memory. It
//! compares each step with the same step of the limit. The *limit* is a minimal program that exchanges the
//! same messages without Peregrine.
//!
//! Both sides record the processor's clock at each step of a call. Such a record is a *stamp*. The steps add
//! up to the round trip by construction, because each step begins where another ends. But recording takes
//! time, too. So each round also measures the same calls without stamps. The account reports the difference
//! between the sum of the steps and the round trip without stamps.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table};
use peregrine::stats::{Moment, stamp, take_stamps};
use serde_json::{Value, json};

use crate::cases::{Case, Limit, Placement, Size, Waiting};
use crate::local::in_each_placement;
use crate::peer::Peer;
use crate::pingpong::{Exchange, Way};
use crate::row::Format;
use crate::statistics::median;
use crate::subject::{self, Failure, Subject};
use crate::{Progress, Selection, machine};

/// The number of calls in a round. The stamps of these calls fit into the stamp buffer of a process.
const CALLS: usize = 3000;

/// The steps of a round trip. The limit runs no procedure, so it reports two of the server's steps as one.
const STEPS: [&str; 5] = [
    "client: after a reply, until the next call's word is ready",
    "the word crosses, seen by the server",
    "server: until the procedure begins",
    "server: after the procedure begins, until the reply's word is ready",
    "the word crosses, seen by the client",
];

/// The results of one case, as medians of all rounds, in nanoseconds.
#[derive(Clone, Debug)]
struct Account {
    case: &'static str,
    limit: Side,
    ours: Side,
}

/// The times of Peregrine, or of the limit, in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Side {
    /// The time of each of [`STEPS`]. For the limit, the fourth step includes the third.
    steps: Vec<f64>,
    /// For each direction: the time from the moment at which a word is ready until the word has been written.
    /// The step in which the word crosses includes this time.
    posts: [f64; 2],
    /// The time of the round trip of a call that records no stamps.
    whole: f64,
}

impl Side {
    fn sum(&self) -> f64 {
        self.steps.iter().sum()
    }

    /// Returns by how much the sum of the steps exceeds the time of the round trip, as a fraction of the
    /// round trip.
    fn deviation(&self) -> f64 {
        self.sum() / self.whole - 1.0
    }
}

/// A stamp: its time in ticks, and the number of its [`Moment`].
type Stamp = (u64, u64);

/// Measures the selected cases and shows their accounts. Only cases of the interface `Small` can be selected.
pub(crate) fn show(selection: &Selection, progress: &Progress) -> Result<(), Failure> {
    if take_stamps().is_none() {
        let how = "cargo run --release -p peregrine-bench --features stamps -- account";
        return Err(format!("this program was built without stamps; run `{how}`").into());
    }
    let mut selection = selection.clone();
    selection.placements = vec![Placement::TwoCores];
    let default = ["null", "in-200", "inout-200", "inout-1024"];
    if selection.cases.is_empty() {
        selection.cases = default.map(str::to_owned).to_vec();
    }
    let mut accounts = Vec::new();
    in_each_placement(&selection, |_, peer| {
        for name in &selection.cases {
            let small = Case::named(name).filter(|case| case.size == Size::Small);
            let wrong = || format!("cannot measure the steps of `{name}`: it is not a small case");
            let case = small.ok_or_else(wrong)?;
            progress.show(&format!("account: {name}"));
            accounts.push(account(&selection, case, peer)?);
        }
        Ok(())
    })?;
    progress.show("");
    let mut out = io::stdout().lock();
    match selection.format {
        Format::Json => {
            let rows: Vec<Value> = accounts.iter().map(json).collect();
            let machine = machine::description();
            let all = json!({ "experiment": "account", "machine": machine, "rows": rows });
            writeln!(out, "{all:#}")?;
        }
        Format::Human => {
            for account in &accounts {
                writeln!(out, "{}\n", table(account))?;
            }
        }
    }
    Ok(())
}

/// Measures all rounds of one case.
fn account(selection: &Selection, case: Case, peer: &mut Peer) -> Result<Account, Failure> {
    let exchange =
        Exchange { way: Way::Stamped, in_bytes: case.in_bytes, out_bytes: case.out_bytes };
    let mut bare = Subject::limit(Limit::Lines, case);
    let mut remote = Subject::remote(case, Waiting::Spin);
    let (mut limits, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..selection.rounds() {
        let per_ns = ticks_per_ns();
        let add = |sides: &mut Vec<Side>, whole, stamps: [Vec<Stamp>; 2]| {
            let mut side = side_of(&stamps, per_ns)?;
            side.whole = whole;
            sides.push(side);
            Ok::<(), Failure>(())
        };
        let whole = bare.measure(peer, selection.slice())?.ns;
        let stamps =
            stamps_during(|| Ok(peer.exchange(exchange, 64, CALLS as u32).map(|_| ())?))?;
        add(&mut limits, whole, stamps)?;
        let whole = remote.measure(peer, selection.slice())?.ns;
        let stamps = stamps_during(|| subject::accounted(case, CALLS as u32).map(|_| ()))?;
        add(&mut ours, whole, stamps)?;
    }
    Ok(Account { case: case.name, limit: medians(&limits), ours: medians(&ours) })
}

/// Returns the stamps that both processes recorded while `body` ran: first those of this process, then those
/// of the server.
fn stamps_during(body: impl FnOnce() -> Result<(), Failure>) -> Result<[Vec<Stamp>; 2], Failure> {
    subject::server_stamps()?;
    take_stamps();
    body()?;
    let here = take_stamps().unwrap_or_default();
    Ok([split(&here), split(&subject::server_stamps()?)])
}

fn split(stamps: &[u64]) -> Vec<Stamp> {
    let moment = |stamp: u64| stamp & ((1 << Moment::BITS) - 1);
    stamps.iter().map(|stamp| (stamp >> Moment::BITS, moment(*stamp))).collect()
}

/// Returns the number of ticks per nanosecond of the clock that stamps use.
fn ticks_per_ns() -> f64 {
    take_stamps();
    stamp(Moment::Ready);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2) {}
    stamp(Moment::Ready);
    let took = start.elapsed();
    let all = split(&take_stamps().unwrap_or_default());
    let (first, last) = (all.first().map_or(0, |s| s.0), all.last().map_or(0, |s| s.0));
    (last - first) as f64 / took.as_nanos() as f64
}

/// Returns the mean time of each step, over the last calls for which both sides recorded all stamps.
fn side_of([client, server]: &[Vec<Stamp>; 2], per_ns: f64) -> Result<Side, Failure> {
    let [ready, posted, seen, run] =
        [Moment::Ready, Moment::Posted, Moment::Seen, Moment::Run].map(|moment| moment as u64);
    // For each call, the client records the stamps Ready, Posted, Seen. The server records Seen, Run (not in
    // the limit), Ready, Posted. The server's stamps before its first Seen are left over from
    // `server_stamps`, a call that is not measured.
    let calls: Vec<_> = client.chunk_by(|_, next| next.1 != ready).collect();
    let begun = server.iter().position(|stamp| stamp.1 == seen).unwrap_or(server.len());
    let served: Vec<_> = server[begun..].chunk_by(|_, next| next.1 != seen).collect();
    let at = |stamps: &[Stamp], moment| {
        stamps.iter().find(|stamp| stamp.1 == moment).map(|stamp| stamp.0 as f64)
    };
    let mut steps: Vec<[f64; 7]> = Vec::new();
    for ((pair, next), served) in calls.iter().zip(calls.iter().skip(1)).zip(&served) {
        let found = (|| {
            let (call, seen_back) = (at(pair, ready)?, at(pair, seen)?);
            let (arrived, reply) = (at(served, seen)?, at(served, ready)?);
            let begins = at(served, run).unwrap_or(arrived);
            Some([
                at(next, ready)? - seen_back,
                arrived - call,
                begins - arrived,
                reply - begins,
                seen_back - reply,
                at(pair, posted)? - call,
                at(served, posted)? - reply,
            ])
        })();
        steps.extend(found);
    }
    if steps.len() < CALLS {
        return Err(format!("only {} calls were recorded by both sides", steps.len()).into());
    }
    // Only the last calls are evaluated. The calls before them warm up both processes.
    let last = &steps[steps.len() - CALLS / 2..];
    let ns = |step: usize| {
        // Clocks tick coarsely (every 10 ns on some machines), so the mean of many times is more precise than
        // their median. The smallest and largest 5 % are left out, so that interruptions do not distort the
        // mean.
        let mut all: Vec<f64> = last.iter().map(|steps| steps[step]).collect();
        all.sort_unstable_by(f64::total_cmp);
        let kept = &all[all.len() / 20..all.len() - all.len() / 20];
        kept.iter().sum::<f64>() / kept.len() as f64 / per_ns
    };
    Ok(Side { steps: (0..5).map(ns).collect(), posts: [ns(5), ns(6)], whole: 0.0 })
}

/// Returns, for each time of a [`Side`], the median of all rounds.
fn medians(sides: &[Side]) -> Side {
    let of = |value: &dyn Fn(&Side) -> f64| median(&sides.iter().map(value).collect::<Vec<_>>());
    Side {
        steps: (0..STEPS.len()).map(|step| of(&|side| side.steps[step])).collect(),
        posts: [0, 1].map(|post| of(&|side| side.posts[post])),
        whole: of(&|side| side.whole),
    }
}

fn json(account: &Account) -> Value {
    let to = |value: f64| (value * 10.0).round() / 10.0;
    let side = |side: &Side| {
        json!({
            "steps_ns": side.steps.iter().map(|ns| to(*ns)).collect::<Vec<_>>(),
            "posts_ns": side.posts.map(to),
            "sum_ns": to(side.sum()),
            "whole_ns": to(side.whole),
            "open": (side.deviation() * 1000.0).round() / 1000.0,
        })
    };
    json!({
        "case": account.case,
        "steps": STEPS,
        "limit": side(&account.limit),
        "ours": side(&account.ours),
    })
}

fn table(account: &Account) -> String {
    let Account { case, limit, ours } = account;
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header([case, "lines, ns", "ours, ns", "more, ns"]);
    let mut add = |what: &str, limit: f64, ours: f64| {
        let cells = [limit, ours, ours - limit].map(|ns| format!("{ns:.1}"));
        table.add_row([vec![what.to_owned()], cells.to_vec()].concat());
    };
    for (step, what) in STEPS.iter().enumerate() {
        add(what, limit.steps[step], ours.steps[step]);
        // The step of a crossing includes the time until the sending processor owns every cache line that it
        // writes. That time is also shown separately.
        match step {
            1 => add("  of which until the word is written", limit.posts[0], ours.posts[0]),
            4 => add("  of which until the word is written", limit.posts[1], ours.posts[1]),
            _ => {}
        }
    }
    add("sum of the steps", limit.sum(), ours.sum());
    add("round trip without stamps", limit.whole, ours.whole);
    let deviation = |side: &Side| format!("{:+.0} %", side.deviation() * 100.0);
    table.add_row([
        "deviation of the sum from the round trip".to_owned(),
        deviation(limit),
        deviation(ours),
        String::new(),
    ]);
    for number in 1..4 {
        if let Some(column) = table.column_mut(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}
