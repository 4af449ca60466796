//! Runs the study: measures all operations alternately, round by round, and compares the times with the
//! model.

use crate::cost::Design;

use super::effects::{self, Effect};
use super::model::{self, Prediction};
use super::parameters::{self, Measured};
use super::repeated::{Repeated, stub};
use super::shipped::{self, Row};
use super::user::Data;
use crate::local::in_turn;
use crate::statistics::{median, quartiles};
use crate::subject::Failure;
use crate::{Progress, Selection};

/// The result of one design's stub, for one type and one direction.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) design: Design,
    pub(crate) data: Data,
    pub(crate) marshals: bool,
    /// The quartiles of the time in nanoseconds, including the call of the stub.
    pub(crate) ns: [f64; 3],
    pub(crate) prediction: Prediction,
}

impl Cell {
    /// Returns the error of a prediction, as a fraction of the measured time.
    pub(crate) fn off(&self, predicted: f64) -> f64 {
        predicted / self.ns[1] - 1.0
    }
}

/// The result of one of Peregrine's stubs, or of the copy with which the stubs are compared.
#[derive(Clone, Debug)]
pub(crate) struct Ours {
    pub(crate) row: Row,
    pub(crate) data: Data,
    pub(crate) marshals: bool,
    pub(crate) ns: [f64; 3],
    /// The quartiles of the ratios of all rounds. A ratio is the time of `row` divided by the time of [the
    /// base](Row::base).
    pub(crate) ratio: [f64; 3],
    /// The median of the differences of all rounds, in nanoseconds. A difference is the time of `row` minus
    /// the time of the base.
    pub(crate) more: f64,
}

/// The two times that show an effect.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) effect: Effect,
    /// The time of the program with the effect, in nanoseconds.
    pub(crate) with: f64,
    /// The time of the program without the effect, in nanoseconds.
    pub(crate) without: f64,
}

/// All results of a run.
#[derive(Clone, Debug)]
pub(crate) struct Study {
    pub(crate) rounds: usize,
    pub(crate) cells: Vec<Cell>,
    /// The parameters of moves to the message, and the parameters of moves from the message.
    pub(crate) parameters: [Measured; 2],
    pub(crate) differences: Vec<Difference>,
    pub(crate) ours: Vec<Ours>,
}

const WAYS: [bool; 2] = [true, false];

/// All operations, and the samples of each in nanoseconds.
#[derive(Default)]
struct Operations {
    all: Vec<Repeated>,
    samples: Vec<Vec<f64>>,
}

impl Operations {
    fn add(&mut self, operations: impl IntoIterator<Item = Repeated>) -> std::ops::Range<usize> {
        let start = self.all.len();
        self.all.extend(operations);
        start..self.all.len()
    }

    fn medians(&self, of: std::ops::Range<usize>) -> Vec<f64> {
        self.samples[of].iter().map(|samples| median(samples)).collect()
    }
}

/// Measures the whole study.
pub(crate) fn measure(selection: &Selection, progress: &Progress) -> Result<Study, Failure> {
    let mut operations = Operations::default();
    let of_parameters = WAYS.map(|marshals| operations.add(parameters::all(marshals)));
    let mut cells = Vec::new();
    for marshals in WAYS {
        for design in Design::ALL {
            for data in Data::ALL {
                let at = operations.add([Repeated::of(stub(design, data, marshals), data)]);
                cells.push((design, data, marshals, at.start));
            }
        }
    }
    let effects: Vec<_> = effects::all()
        .into_iter()
        .map(|one| (one, operations.add(one.operations()).start))
        .collect();
    let calling = shipped::Calling::shared();
    let mut ours = Vec::new();
    for marshals in WAYS {
        for data in Data::ALL {
            for row in Row::ALL.into_iter().filter(|row| marshals || row.has_ways()) {
                let at = operations.add([shipped::program(row, data, marshals, &calling)?]);
                ours.push((row, data, marshals, at.start));
            }
        }
    }
    let (rounds, slice) = (selection.rounds(), selection.slice() / 2);
    let count = operations.all.len();
    let mut done = 0;
    let samples = in_turn(rounds, count, |which| {
        if done % count == 0 {
            progress.show(&format!("round {} of {rounds}", done / count + 1));
        }
        done += 1;
        operations.all[which].measure(slice)
    })?;
    operations.samples =
        samples.iter().map(|all| all.iter().map(|sample| sample.ns).collect()).collect();

    let parameters = of_parameters.map(|of| Measured::from_medians(&operations.medians(of)));
    let cells = cells.into_iter().map(|(design, data, marshals, at)| {
        let measured = &parameters[usize::from(!marshals)];
        let prediction = model::predict(&model::equation(design, data), measured);
        Cell { design, data, marshals, ns: quartiles(&operations.samples[at]), prediction }
    });
    let cells = cells.collect();
    let differences = effects.into_iter().map(|(effect, at)| {
        let [with, without] = [at, at + 1].map(|at| median(&operations.samples[at]));
        Difference { effect, with, without }
    });
    let differences = differences.collect();
    let bases = ours.clone();
    let ours = ours.into_iter().map(|(row, data, marshals, at)| {
        let base = bases.iter().find(|one| (one.0, one.1, one.2) == (row.base(), data, marshals));
        let base = &operations.samples[base.map_or(at, |base| base.3)];
        let samples = &operations.samples[at];
        let ratios: Vec<f64> = samples.iter().zip(base).map(|(ours, base)| ours / base).collect();
        let more: Vec<f64> = samples.iter().zip(base).map(|(ours, base)| ours - base).collect();
        let (ns, ratio, more) = (quartiles(samples), quartiles(&ratios), median(&more));
        Ours { row, data, marshals, ns, ratio, more }
    });
    let ours = ours.collect();
    Ok(Study { rounds, cells, parameters, differences, ours })
}
