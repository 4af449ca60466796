//! Predicts the times of stubs by the paper's model, with the parameters of this machine. The paper's model
//! adds the times of all parts. In a variant of the model, moving items overlaps with the other parts.

use crate::cost::{Cost, Design, Length, Parameters, Part, Symbol, costs};

use super::parameters::Measured;
use super::shipped::description;
use super::user::{Data, TEXT};

/// The predictions of both models for a stub, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prediction {
    /// The prediction of the paper's model, in which every part waits for the previous one.
    pub(crate) sum: f64,
    /// The prediction of the variant of the model. In this variant, moving items overlaps with the call of
    /// the stub, and with everything else except blocks. Of two overlapping times, only the longer one
    /// counts. Each loop has its own pair of overlapping times, and so has the part outside of loops.
    pub(crate) overlap: f64,
}

/// Returns the equation of a type in a design.
pub(crate) fn equation(design: Design, data: Data) -> Cost {
    costs(&description(), design).swap_remove(data as usize).call
}

/// Returns the value of a variable of an equation. Only the text has no bound in the description, so every
/// variable is the length of the text.
fn length(_: &str) -> f64 {
    TEXT as f64
}

/// Returns the time of a stub according to its equation.
pub(crate) fn predict(cost: &Cost, measured: &Measured) -> Prediction {
    let parameters = measured.parameters();
    let [moving, rest, serial] = overlapped(cost, &parameters);
    Prediction {
        sum: measured.call + cost.evaluate(&parameters, &length),
        overlap: moving.max(measured.call + rest) + serial,
    }
}

/// Returns three times in nanoseconds. The first is the time of moving items. The second is the time of
/// everything that overlaps with moving items. The third is the time of blocks and loops, which overlap with
/// nothing. A pass through a loop takes the longer of the first two times of its body, plus the third.
fn overlapped(cost: &Cost, parameters: &Parameters<'_>) -> [f64; 3] {
    let mut sums = [0.0; 3];
    for (symbol, count) in cost.symbols() {
        let moves = matches!(symbol, Symbol::ByteCopy | Symbol::ItemCopy);
        sums[usize::from(!moves)] += count * parameters.of(symbol);
    }
    // In an equation, moving elements and interpreting them are separate loops. In a stub they are one loop,
    // so loops with the same count are merged here.
    let mut loops: Vec<(&Length, [f64; 3])> = Vec::new();
    for part in cost.parts() {
        match part {
            Part::Block(count, bytes) => {
                sums[2] += parameters.block(times(count) * *bytes as f64);
            }
            Part::Times(count, one) => {
                let one = overlapped(one, parameters);
                match loops.iter_mut().find(|(known, _)| *known == count) {
                    Some((_, sums)) => sums.iter_mut().zip(one).for_each(|(sum, one)| *sum += one),
                    None => loops.push((count, one)),
                }
            }
            Part::Unknown(_) => {}
        }
    }
    let longer = |(count, [moving, rest, serial]): &(&Length, [f64; 3])| {
        times(count) * (moving.max(*rest) + serial)
    };
    sums[2] += loops.iter().map(longer).sum::<f64>();
    sums
}

fn times(count: &Length) -> f64 {
    match count {
        Length::Fixed(count) => *count as f64,
        Length::Variable(name) => length(name),
    }
}

#[cfg(test)]
mod tests {
    use crate::cost::{Control, Copying};

    use super::*;

    #[test]
    fn loops_take_the_longer_of_moving_and_the_rest() {
        let blocks = vec![(0, 0.0), (1000, 100.0)];
        let symbols = [8.0, 2.0, 5.0, 3.0, 1.0, 10.0, 20.0, 4.0];
        let measured = Measured { call: 7.0, symbols, blocks };
        let of = |control, copying, data| {
            predict(&equation(Design { control, copying }, data), &measured)
        };
        let item = of(Control::Compiled, Copying::InlineItem, Data::Array);
        assert_eq!(item.sum, 7.0 + 2.0 + 256.0 * 5.0);
        // The time to move the count overlaps with the call of the stub.
        assert_eq!(item.overlap, 7.0 + 256.0 * 3.0);
        let byte = of(Control::Compiled, Copying::InlineByte, Data::Array);
        assert_eq!(byte.overlap, 8.0 + 256.0 * 8.0);
        // Each of the 86 records takes the longer of two times. One is the time of 3 moves (3 * 8 = 24). The
        // other is the time of a loop step, a set-up and 3 codes (3 + 10 + 3 * 4 = 25).
        let structure = of(Control::Interpreted, Copying::InlineByte, Data::Structure);
        let once = 7.0 + 102.4 + 2.0 * 10.0 + 2.0 * 20.0 + 6.0 * 4.0;
        assert_eq!(structure.overlap, once + 256.0 * 8.0 + 86.0 * 25.0);
    }
}
