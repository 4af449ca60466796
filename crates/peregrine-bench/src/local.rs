//! The experiment `local`: measures calls to another process of this machine, and compares each call with its
//! limits. A limit is the smallest program that moves the same data in the same way (see `cases.rs`).

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use peregrine::sys::pin_to;

use crate::cases::{CASES, Case, IN_PROCESS, LOCAL_CALL, Limit, Placement, Procedure, Waiting};
use crate::peer::Peer;
use crate::row::Row;
use crate::subject::{Failure, Sample, Subject};
use crate::{Progress, Selection, bindings, machine, throughput};

/// The filters that this experiment has in addition to those of `Selection`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Filter {
    /// Only this way to wait (may be repeated)
    #[arg(long = "wait", value_enum)]
    waits: Vec<Waiting>,
    /// Only rows of this number of callers (may be repeated)
    #[arg(long, value_name = "N", value_parser = numbers(&["1", "2", "4", "8"]))]
    callers: Vec<u32>,
    /// Only rows of this number of bindings (may be repeated)
    #[arg(long, value_name = "N", value_parser = numbers(&["1", "2", "4", "8", "10", "100", "1000"]))]
    bindings: Vec<u32>,
}

fn numbers(all: &'static [&'static str]) -> impl TypedValueParser<Value = u32> {
    PossibleValuesParser::new(all).try_map(|number| number.parse())
}

impl Filter {
    pub(crate) fn has_wait(&self, wait: Waiting) -> bool {
        self.waits.is_empty() || self.waits.contains(&wait)
    }

    /// Returns whether rows with `callers` callers and `bindings` bindings are wanted.
    pub(crate) fn has(&self, callers: u32, bindings: u32) -> bool {
        (self.callers.is_empty() || self.callers.contains(&callers))
            && (self.bindings.is_empty() || self.bindings.contains(&bindings))
    }
}

/// Measures everything that was selected. If no way to wait is selected, measures every way.
pub(crate) fn measure(
    selection: &Selection,
    filter: &Filter,
    progress: &Progress,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    in_each_placement(selection, |placement, peer| {
        if filter.has(1, 1) {
            if placement == Placement::TwoCores && filter.waits.is_empty() {
                rows.extend(inside(selection, progress, peer)?);
            }
            for wait in Waiting::ALL.into_iter().filter(|wait| filter.has_wait(*wait)) {
                if placement == Placement::OneCore && wait == Waiting::Spin {
                    continue; // a side that polls would keep the other side off the only processor
                }
                for case in CASES.iter().filter(|case| selection.has_case(case.name)) {
                    let (wait_name, place) = (wait.name(), placement.name());
                    progress.show(&format!("{place}, {wait_name}: {}", case.name));
                    rows.extend(remote(selection, *case, wait, placement, peer)?);
                }
            }
        }
        match placement {
            Placement::TwoCores => {
                rows.extend(bindings::measure(selection, filter, progress, peer)?)
            }
            Placement::OneCore => {}
            Placement::Free => rows.extend(throughput::measure(selection, filter, progress, peer)?),
        }
        Ok(())
    })?;
    Ok(rows)
}

/// Runs `body` in every selected placement, with a new child process. Each run uses a new thread, so that the
/// processor affinity of the placement ends with the thread.
pub(crate) fn in_each_placement(
    selection: &Selection,
    mut body: impl FnMut(Placement, &mut Peer) -> Result<(), Failure> + Send,
) -> Result<(), Failure> {
    let allowed = machine::processors();
    for placement in Placement::ALL {
        if !selection.has_placement(placement) {
            continue;
        }
        let Some([here, there]) = placement.processors(&allowed) else {
            eprintln!("{}: skipped: only one processor may be used", placement.name());
            continue;
        };
        let body = &mut body;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                if let Some(cpu) = here {
                    pin_to(cpu)?;
                }
                body(placement, &mut Peer::start(there)?)
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
    }
    Ok(())
}

/// Measures calls that do not leave this process.
fn inside(
    selection: &Selection,
    progress: &Progress,
    peer: &mut Peer,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let mut add = |case, subject, bindings| {
        if selection.has_case(case) {
            progress.show(&format!("in-process: {case}"));
            let [ours] = &rounds(selection, peer, vec![subject])?[..] else {
                return Err("a measurement is missing".into());
            };
            let (ns, cpu) = split(ours);
            let path = Some("in-process");
            rows.push(Row { path, bindings, ..Row::new(case).ours(&ns, &cpu) });
        }
        Ok::<(), Failure>(())
    };
    add(LOCAL_CALL, Subject::object(Procedure::Null), 0)?;
    for case in IN_PROCESS.into_iter().filter_map(Case::named) {
        add(case.name, Subject::in_process(case), 1)?;
    }
    Ok(rows)
}

/// Measures calls to the other process. Returns one row for each limit.
fn remote(
    selection: &Selection,
    case: Case,
    wait: Waiting,
    placement: Placement,
    peer: &mut Peer,
) -> Result<Vec<Row>, Failure> {
    let limits = Limit::of(case, wait, placement);
    let mut subjects = vec![Subject::remote(case, wait)];
    subjects.extend(limits.iter().map(|limit| Subject::limit(*limit, case)));
    let samples = rounds(selection, peer, subjects)?;
    let (ours, cpu) = split(&samples[0]);
    let rows = limits.iter().zip(&samples[1..]).map(|(limit, samples)| {
        let (limit_ns, _) = split(samples);
        let row = Row {
            path: Some("local"),
            wait: Some(wait.name()),
            placement: Some(placement.name()),
            bindings: 1,
            ..Row::new(case.name)
        };
        let row = row.ours(&ours, &cpu).limit(limit.name(), &limit_ns);
        row.ratio(&ours, &limit_ns)
    });
    Ok(rows.collect())
}

/// Measures each subject (a limit or Peregrine's calls) once per round. In every other round, the order of
/// the subjects is reversed. Returns the samples by subject.
pub(crate) fn rounds(
    selection: &Selection,
    peer: &mut Peer,
    mut subjects: Vec<Subject>,
) -> Result<Vec<Vec<Sample>>, Failure> {
    in_turn(selection.rounds(), subjects.len(), |subject| {
        subjects[subject].measure(peer, selection.slice())
    })
}

/// Measures each of `subjects` subjects once in each of `rounds` rounds. In every other round, the order is
/// reversed. `measure` takes the index of a subject. Returns the samples by subject.
pub(crate) fn in_turn(
    rounds: usize,
    subjects: usize,
    mut measure: impl FnMut(usize) -> Result<Sample, Failure>,
) -> Result<Vec<Vec<Sample>>, Failure> {
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); subjects];
    for round in 0..rounds {
        for place in 0..subjects {
            let subject = if round % 2 == 1 { subjects - 1 - place } else { place };
            samples[subject].push(measure(subject)?);
        }
    }
    Ok(samples)
}

/// Returns two lists: the round-trip time of each sample, and the processor time of each sample that has one.
pub(crate) fn split(samples: &[Sample]) -> (Vec<f64>, Vec<f64>) {
    let ns = samples.iter().map(|sample| sample.ns).collect();
    (ns, samples.iter().filter_map(|sample| sample.cpu_ns).collect())
}
