//! Measures calls between two processes of this machine, and their limits.

use super::super::measured::Measured;
use super::marshalled;
use crate::cases::{Case, Limit, Placement, Procedure, Waiting};
use crate::local::{in_each_placement, rounds, split};
use crate::network::link::Link;
use crate::network::path::Path;
use crate::network::{self, Filter, on_each_link};
use crate::peer::Peer;
use crate::statistics::median;
use crate::subject::{Failure, Subject};
use crate::{Progress, Selection};

/// The cases between two processors.
pub(crate) const CASES: [&str; 9] =
    ["null", "add", "in-4", "in-200", "inout-200", "in-1024", "inout-1024", "in-1440", "out-1440"];
/// The cases on one processor.
const ON_ONE: [&str; 4] = ["null", "add", "in-200", "inout-200"];

/// Returns the key of a subject (`spin`, `block`, `adaptive`, or a limit) of a case in a placement.
pub(crate) fn key(placement: Placement, subject: &str, case: &str) -> String {
    format!("local/{}/{subject}/{case}", placement.name())
}

/// Returns the key of a call by messages of the kernel (UDP over loopback), on one processor.
pub(crate) fn message_key(case: &str) -> String {
    format!("messages/{case}")
}

/// Measures calls and limits.
pub(crate) fn local(
    into: &mut Measured,
    selection: &Selection,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut selection = selection.clone();
    selection.placements = vec![Placement::TwoCores, Placement::OneCore];
    in_each_placement(&selection, |placement, peer| {
        let cases: &[&str] = if placement == Placement::OneCore { &ON_ONE } else { &CASES };
        for case in cases.iter().copied().filter_map(Case::named) {
            progress.show(&format!("tables: {}: {}", placement.name(), case.name));
            let subjects = subjects(placement, case);
            let (names, subjects): (Vec<_>, Vec<_>) = subjects.into_iter().unzip();
            for (name, samples) in names.iter().zip(rounds(&selection, peer, subjects)?) {
                into.set(key(placement, name, case.name), median(&split(&samples).0));
            }
        }
        Ok(())
    })?;
    // The same calls by messages of the kernel.
    on_each_link(&selection, &Filter::only(Link::Loopback), Placement::OneCore, |_, far| {
        let cases: Vec<_> = ON_ONE.into_iter().filter_map(Case::named).collect();
        let ours = cases.iter().map(|case| network::ours(Path::Udp, *case, Waiting::Block));
        let samples = network::rounds(&selection, far, ours.collect())?;
        for (case, samples) in cases.iter().zip(&samples) {
            into.set(message_key(case.name), median(&split(samples).0));
        }
        Ok(())
    })
}

/// Returns the subjects of a case, with their names.
fn subjects(placement: Placement, case: Case) -> Vec<(&'static str, Subject)> {
    let one = placement == Placement::OneCore;
    let waits: &[Waiting] = match one {
        true => &[Waiting::Block],
        false => &[Waiting::Spin, Waiting::Block],
    };
    let mut subjects: Vec<_> =
        waits.iter().map(|wait| (wait.name(), Subject::remote(case, *wait))).collect();
    let limits: &[Limit] = if one { &[Limit::Yield] } else { &[Limit::Lines] };
    let null = case.procedure == Procedure::Null;
    let more: &[Limit] = if null { &[Limit::Futex, Limit::SystemCall] } else { &[] };
    subjects.extend(
        limits.iter().chain(more).map(|limit| (limit.name(), Subject::limit(*limit, case))),
    );
    if null {
        subjects.push(("procedure", Subject::object(Procedure::Null)));
        if !one {
            subjects.push((Waiting::Adaptive.name(), Subject::remote(case, Waiting::Adaptive)));
        }
    }
    subjects
}

/// Returns the key of a call of [`marshalled`], between two processes or within one.
pub(crate) fn marshalled_key(what: &str, near: bool) -> String {
    format!("marshalled/{}/{what}", if near { "within" } else { "between" })
}

/// Measures calls with arguments of several types, and calls without stubs.
pub(crate) fn marshalling(
    into: &mut Measured,
    selection: &Selection,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut selection = selection.clone();
    selection.placements = vec![Placement::TwoCores];
    in_each_placement(&selection, |_, peer: &mut Peer| {
        progress.show("tables: marshalling");
        for (near, run) in [(false, marshalled::between as _), (true, marshalled::within as _)] {
            let subjects = (0..marshalled::NAMES.len()).map(|which| Subject::other(run, which));
            let samples = rounds(&selection, peer, subjects.collect())?;
            for (name, samples) in marshalled::NAMES.iter().zip(&samples) {
                into.set(marshalled_key(name, near), median(&split(samples).0));
            }
        }
        let subjects = (0..marshalled::EXERCISED.len())
            .map(|which| Subject::other(marshalled::exercised, which));
        let samples = rounds(&selection, peer, subjects.collect())?;
        for (name, samples) in marshalled::EXERCISED.iter().zip(&samples) {
            into.set((*name).to_owned(), median(&split(samples).0));
        }
        Ok(())
    })
}
