//! The experiment `limits`: measures only the limits, without Peregrine. A limit is a minimal program that
//! moves the same data as a call.

use crate::cases::{CASES, Case, Limit, Placement, Procedure, SYSTEM_CALL};
use crate::local::{in_each_placement, rounds, split};
use crate::row::Row;
use crate::subject::{Failure, Subject};
use crate::{Progress, Selection, network};

/// Measures everything that was selected. Across a network, it measures only what `filter` admits.
pub(crate) fn measure(
    selection: &Selection,
    filter: network::Filter,
    progress: &Progress,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    in_each_placement(selection, |placement, peer| {
        for (name, limit, case) in limits(placement) {
            if !selection.has_case(name) {
                continue;
            }
            progress.show(&format!("{}, {}: {name}", placement.name(), limit.name()));
            let samples = rounds(selection, peer, vec![Subject::limit(limit, case)])?;
            let (limit_ns, _) = split(&samples[0]);
            rows.push(Row {
                placement: Some(placement.name()),
                ..Row::new(name).limit(limit.name(), &limit_ns)
            });
        }
        Ok(())
    })?;
    let filter = filter.limits_only();
    rows.extend(network::penalties(selection, &filter, progress)?);
    rows.extend(network::measure(selection, &filter, progress)?);
    Ok(rows)
}

/// Returns the limits that are meaningful in a placement.
fn limits(placement: Placement) -> Vec<(&'static str, Limit, Case)> {
    // A limit moves a lent payload like any other payload. So a case with a lent payload would repeat another
    // case.
    let cases = || CASES.into_iter().filter(|case| case.procedure != Procedure::Lend);
    let of = |limit| cases().map(move |case| (case.name, limit, case));
    let null = |limit| {
        let case = CASES.into_iter().find(|case| case.procedure == Procedure::Null);
        case.map(|case| (case.name, limit, case))
    };
    match placement {
        Placement::TwoCores => {
            let spinning = cases().map(|case| (case.name, Limit::spinning(case), case));
            let syscall =
                null(Limit::SystemCall).map(|(_, limit, case)| (SYSTEM_CALL, limit, case));
            let futex = null(Limit::Futex);
            syscall.into_iter().chain(futex).chain(spinning).collect()
        }
        Placement::OneCore => of(Limit::Futex).chain(of(Limit::Yield)).collect(),
        Placement::Free => null(Limit::Lines).into_iter().chain(null(Limit::Futex)).collect(),
    }
}
