//! Defines the marks of the study of stubs. A mark is the largest acceptable value of a result.

use super::shipped::Row;
use super::study::Study;
use super::user::Data;

/// A measured value, and the largest acceptable value.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) what: String,
    pub(crate) must: f64,
    pub(crate) is: f64,
}

impl Mark {
    pub(crate) fn is_met(&self) -> bool {
        self.is <= self.must
    }
}

/// The largest acceptable ratio for each type: the time to encode or decode a native value, divided by the
/// time to copy as many bytes.
const OVER_COPY: [(Data, f64); 2] = [(Data::Array, 1.10), (Data::Structure, 1.50)];
/// The largest acceptable ratio of the time of interpreted calls to that of compiled calls.
const OVER_COMPILED: [(Data, f64); 2] = [(Data::Array, 1.25), (Data::Structure, 2.00)];
/// The largest acceptable difference between an interpreted and a compiled call of one integer, in
/// nanoseconds.
const MORE_NS: f64 = 30.0;
/// The largest acceptable deviation of the model's predictions from the times on this machine. It is the
/// largest deviation of the model in the paper.
const MODEL: f64 = 0.12;

/// Returns all marks.
pub(crate) fn of(study: &Study) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (data, must) in OVER_COPY {
        for (marshals, way) in [(true, "marshal"), (false, "unmarshal")] {
            if let Some(ours) = study.ours(Row::Value, data, marshals) {
                let what = format!("{}, {way}, native value over memcpy", data.name());
                marks.push(Mark { what, must, is: ours.ratio[1] });
            }
        }
    }
    for (data, must) in OVER_COMPILED {
        if let Some(ours) = study.ours(Row::Interpreted, data, true) {
            let what = format!("{}, interpreted client over compiled, whole call", data.name());
            marks.push(Mark { what, must, is: ours.ratio[1] });
        }
    }
    if let Some(ours) = study.ours(Row::Interpreted, Data::One, true) {
        let what = format!("{}, interpreted client, ns more than compiled", Data::One.name());
        marks.push(Mark { what, must: MORE_NS, is: ours.more });
    }
    let worst = |off: &dyn Fn(&super::study::Cell) -> f64| {
        study.cells.iter().map(|cell| off(cell).abs()).fold(0.0, f64::max)
    };
    marks.push(Mark {
        what: "the sum's worst deviation".into(),
        must: MODEL,
        is: worst(&|cell| cell.off(cell.prediction.sum)),
    });
    marks.push(Mark {
        what: "the worst deviation with overlap".into(),
        must: MODEL,
        is: worst(&|cell| cell.off(cell.prediction.overlap)),
    });
    marks
}
