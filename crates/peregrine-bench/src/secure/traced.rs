//! Measures local null calls with the layer `Tracing` at both sides, while no program has a subscriber. The
//! limit is the same call without layers. Both are measured in turn, in the same rounds.

use super::UNTRACED;
use crate::cases::{Case, Placement, Waiting};
use crate::local::{in_each_placement, rounds, split};
use crate::row::Row;
use crate::subject::{Failure, Subject};
use crate::{Progress, Selection};

/// The name of the measurement.
pub(super) const CASE: &str = "null-traced";

/// Returns the row without results.
fn row() -> Row {
    Row {
        path: Some("local"),
        wait: Some(Waiting::Spin.name()),
        placement: Some(Placement::TwoCores.name()),
        bindings: 1,
        ..Row::new(CASE)
    }
}

/// Measures the row if it was selected.
pub(super) fn measure(selection: &Selection, progress: &Progress) -> Result<Option<Row>, Failure> {
    let wanted = selection.has_case(CASE) && selection.has_placement(Placement::TwoCores);
    let mut measured = None;
    if !wanted {
        return Ok(measured);
    }
    let case = Case::named("null").ok_or("there is no case `null`")?;
    let selection = Selection { placements: vec![Placement::TwoCores], ..selection.clone() };
    in_each_placement(&selection, |_, peer| {
        progress.show(CASE);
        let subjects = vec![Subject::traced(case), Subject::remote(case, Waiting::Spin)];
        let samples = rounds(&selection, peer, subjects)?;
        let ((ours, cpu), (limit, _)) = (split(&samples[0]), split(&samples[1]));
        let row = row().ours(&ours, &cpu).limit(UNTRACED, &limit);
        measured = Some(row.ratio(&ours, &limit));
        Ok(())
    })?;
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::{self, Mark};

    #[test]
    fn row_has_a_mark() {
        let row = row().ours(&[3.0], &[]).limit(UNTRACED, &[4.0]).ratio(&[3.0], &[4.0]);
        assert_eq!(marks::of(&row), Some(Mark::Ratio(1.01, 1.00)));
    }
}
