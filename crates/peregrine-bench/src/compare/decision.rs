//! Decides whether the newer of two builds is slower in a row of the results. In each *turn*, both builds
//! measure the row once, which gives the ratio of the newer build's time to the older build's time. The
//! decision uses the median of these ratios and a confidence interval of the median.
//!
//! The interval is bounded by two of the sorted ratios (the interval of the sign test). This method assumes
//! no distribution of the ratios, and draws no random numbers. One disturbed turn does not move the interval
//! far.

use crate::statistics::median;

/// A row is slower if the ratio of its new time to its old time is above this value.
pub(crate) const SLOWER: f64 = 1.03;

/// The least probability with which the interval contains the true median.
const COVERAGE: f64 = 0.99;

/// The smallest number of turns with which the interval reaches [`COVERAGE`].
const SURE_TURNS: usize = 8;

/// The median of some ratios, and the confidence interval of the median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

/// Whether the turns of a row show that the row is slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The median is not above [`SLOWER`].
    NotSlower,
    /// The median is above [`SLOWER`], but a part of the interval is not, or there are too few turns.
    Undecided,
    /// The whole interval is above [`SLOWER`].
    Slower,
}

/// Returns the median of the ratios and the confidence interval of the median. With fewer than [`SURE_TURNS`]
/// ratios, the interval covers all of them.
///
/// # Panics
/// If there are no ratios.
pub(crate) fn spread(ratios: &[f64]) -> Spread {
    let mut sorted = ratios.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let outside = left_out(sorted.len());
    let (low, high) = (sorted[outside], sorted[sorted.len() - 1 - outside]);
    Spread { low, median: median(ratios), high }
}

/// Returns how many ratios are outside of the interval at each end.
fn left_out(count: usize) -> usize {
    // The true median is below the k-th smallest of n ratios with the probability that fewer than
    // k of n fair coins show heads.
    let mut term = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let (mut below, mut outside) = (0.0, 0);
    for heads in 0..count / 2 {
        below += term;
        if 2.0 * below > 1.0 - COVERAGE {
            break;
        }
        outside = heads;
        term *= (count - heads) as f64 / (heads + 1) as f64;
    }
    outside
}

/// Decides whether a row is slower.
///
/// # Panics
/// If there are no ratios.
pub(crate) fn decide(ratios: &[f64]) -> Decision {
    let Spread { low, median, .. } = spread(ratios);
    match (median > SLOWER, low > SLOWER && ratios.len() >= SURE_TURNS) {
        (false, _) => Decision::NotSlower,
        (true, false) => Decision::Undecided,
        (true, true) => Decision::Slower,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_of_few_ratios_covers_all_of_them() {
        assert_eq!(spread(&[1.2]), Spread { low: 1.2, median: 1.2, high: 1.2 });
        let few = spread(&[1.1, 0.9, 1.3]);
        assert_eq!(few, Spread { low: 0.9, median: 1.1, high: 1.3 });
        assert_eq!(left_out(SURE_TURNS - 1), 0);
        assert_eq!(left_out(SURE_TURNS), 0);
    }

    #[test]
    fn interval_leaves_out_as_many_as_the_table_of_the_sign_test() {
        // These are the critical values of the two-sided sign test at 1 %.
        for (count, outside) in [(11, 0), (12, 1), (15, 2), (20, 3), (25, 5), (40, 11)] {
            assert_eq!(left_out(count), outside, "{count}");
        }
    }

    #[test]
    fn one_disturbed_turn_does_not_decide() {
        let mut ratios = vec![1.0; 23];
        ratios.push(9.0);
        assert_eq!(decide(&ratios), Decision::NotSlower);
        assert_eq!(spread(&ratios), Spread { low: 1.0, median: 1.0, high: 1.0 });
        let mut ratios = vec![1.05; 23];
        ratios.push(0.1);
        assert_eq!(decide(&ratios), Decision::Slower);
    }

    #[test]
    fn noisy_row_and_row_of_few_turns_are_undecided() {
        assert_eq!(decide(&[1.2; 7]), Decision::Undecided);
        assert_eq!(decide(&[1.2; 8]), Decision::Slower);
        assert_eq!(decide(&[1.0; 1]), Decision::NotSlower);
        let noisy = [0.9, 1.2, 1.1, 0.95, 1.2, 1.1, 1.0, 1.3];
        assert_eq!(decide(&noisy), Decision::Undecided);
    }
}
