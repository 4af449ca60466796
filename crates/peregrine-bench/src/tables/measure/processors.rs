//! Measures calls by several threads or processes, on one processor and on several.

use super::super::measured::Measured;
use crate::cases::{Case, Placement, Waiting};
use crate::local::{in_turn, split};
use crate::network::far::Far;
use crate::network::link::Link;
use crate::network::on_processors;
use crate::network::own::{self, Own};
use crate::network::path::Path;
use crate::peer::Peer;
use crate::statistics::median;
use crate::subject::Failure;
use crate::throughput::{Callers, crowd, sample};
use crate::window;
use crate::{Progress, Selection, machine};

/// Returns the key of the time per call of all calling processes, for a number of processors.
pub(crate) fn key(wait: Waiting, processors: usize) -> String {
    format!("processes/{}/{processors}", wait.name())
}

/// The ways to wait of the calling processes.
pub(crate) const WAITS: [Waiting; 2] = [Waiting::Block, Waiting::Adaptive];

/// Measures null calls by one process on one processor, and by as many processes as there are processors.
pub(crate) fn processors(
    into: &mut Measured,
    selection: &Selection,
    progress: &Progress,
) -> Result<(), Failure> {
    let all = machine::processors();
    let first = all.first().copied();
    let mut counts = vec![(1, first)];
    if all.len() > 1 {
        counts.push((all.len(), None));
    }
    into.set("processors".into(), all.len() as f64);
    for wait in WAITS {
        for &(count, cpu) in &counts {
            progress.show(&format!("tables: {count} processors, {}", wait.name()));
            let mut peer = Peer::start(cpu)?;
            let mut callers = Callers::Processes(crowd(&peer, wait, count, cpu)?);
            let samples = in_turn(selection.few_rounds(), 1, |_| {
                sample(&mut callers, &mut peer, selection.window())
            })?;
            into.set(key(wait, count), median(&split(&samples[0]).0));
        }
    }
    Ok(())
}

/// On which processors the caller and the server run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Both on all processors.
    All,
    /// The caller on one processor, and the server on all.
    OneToAll,
    /// Each on one processor, which the other does not use.
    OneEach,
    /// Both on the same processor.
    Shared,
}

impl Spread {
    pub(crate) const ALL: [Self; 4] = [Self::All, Self::OneToAll, Self::OneEach, Self::Shared];

    /// Returns the name of the spread in keys.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::OneToAll => "one-to-all",
            Self::OneEach => "one-each",
            Self::Shared => "shared",
        }
    }

    fn processors(self, all: &[u32]) -> Option<[Option<u32>; 2]> {
        match self {
            Self::All => Placement::Free.processors(all),
            Self::OneToAll => all.first().map(|first| [Some(*first), None]),
            Self::OneEach => Placement::TwoCores.processors(all),
            Self::Shared => Placement::OneCore.processors(all),
        }
    }
}

/// Returns the key of the time per call of all calling threads.
pub(crate) fn thread_key(spread: Spread, case: &str, threads: u32) -> String {
    format!("threads/{}/{case}/{threads}", spread.name())
}

/// Measures calls of `Null` and of `MaxResult` over UDP and the veth pair, by several threads. All threads
/// sleep while they wait.
pub(crate) fn threads(
    into: &mut Measured,
    selection: &Selection,
    progress: &Progress,
) -> Result<(), Failure> {
    let all = machine::processors();
    for spread in Spread::ALL {
        let Some(cpus) = spread.processors(&all) else { continue };
        on_processors(Link::Veth, cpus, |far| {
            let most = if spread == Spread::All { 8 } else { 5 };
            for threads in 1..=most {
                for case in ["null", "out-1440"] {
                    let wanted = case != "null" || threads == 1 || spread == Spread::All;
                    if wanted {
                        let name = spread.name();
                        progress.show(&format!("tables: {name}, {threads} threads: {case}"));
                        let ns = together(selection, far, case, threads)?;
                        into.set(thread_key(spread, case, threads), ns);
                    }
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Returns the time per call of calls by `threads` threads, in nanoseconds.
fn together(
    selection: &Selection,
    far: &mut Far,
    case: &str,
    threads: u32,
) -> Result<f64, Failure> {
    let case = Case::named(case).ok_or("there is no such case")?;
    let own = Own { path: Path::Udp, case, wait: Waiting::Block, check: None };
    let samples = in_turn(selection.few_rounds(), 1, |_| {
        window::sample(selection.window(), |window| {
            own::call_together(far, &own, threads as usize, window)
        })
    })?;
    Ok(median(&split(&samples[0]).0))
}
