//! What the account computes of its samples.

/// Returns the mean of the samples that are at most three times their median. Longer ones are those of calls
/// that were interrupted. Returns NaN if there are no samples.
pub(crate) fn undisturbed_mean(mut samples: Vec<u64>) -> f64 {
    samples.sort_unstable();
    let median = samples.get(samples.len() / 2).copied().unwrap_or(0);
    samples.retain(|sample| *sample <= 3 * median);
    samples.iter().map(|sample| *sample as f64).sum::<f64>() / samples.len() as f64
}

/// Sorts the samples, and returns the one after the fraction `of_all` of them: the median for 0.5. Returns NaN if
/// there are no samples.
pub(crate) fn quantile(mut samples: Vec<f64>, of_all: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let at = (samples.len() as f64 * of_all) as usize;
    samples.get(at.min(samples.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_leave_out_what_was_disturbed() {
        assert_eq!(undisturbed_mean(vec![1, 9, 3, 3, 3, 3, 10, 1000]), 22.0 / 6.0);
        assert_eq!(undisturbed_mean(vec![7]), 7.0);
        assert!(undisturbed_mean(Vec::new()).is_nan());
    }

    #[test]
    fn quantiles_are_samples() {
        let samples = vec![4.0, 1.0, 3.0, 2.0, 5.0];
        let quartiles = [0.0, 0.25, 0.5, 0.75, 1.0].map(|at| quantile(samples.clone(), at));
        assert_eq!(quartiles, [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!(quantile(Vec::new(), 0.5).is_nan());
    }
}
