//! Computes medians and percentiles of the samples of a run.

/// Returns the value below which `fraction` of the samples lie, interpolated between two samples.
///
/// # Panics
/// If there are no samples.
pub(crate) fn percentile(samples: &[f64], fraction: f64) -> f64 {
    assert!(!samples.is_empty(), "no samples");
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let place = fraction.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    let part = place - place.floor();
    sorted[below] + (sorted[above] - sorted[below]) * part
}

/// Returns the median of the samples.
///
/// # Panics
/// If there are no samples.
pub(crate) fn median(samples: &[f64]) -> f64 {
    percentile(samples, 0.5)
}

/// Returns the lower quartile, the median, and the upper quartile.
///
/// # Panics
/// If there are no samples.
pub(crate) fn quartiles(samples: &[f64]) -> [f64; 3] {
    [0.25, 0.5, 0.75].map(|fraction| percentile(samples, fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_needs_no_order_and_is_interpolated() {
        assert_eq!(median(&[7.0]), 7.0);
        assert_eq!(median(&[9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
    }

    #[test]
    fn quartiles_and_extremes_are_found() {
        let samples = [5.0, 3.0, 1.0, 4.0, 2.0];
        assert_eq!(quartiles(&samples), [2.0, 3.0, 4.0]);
        assert_eq!(percentile(&samples, 0.0), 1.0);
        assert_eq!(percentile(&samples, 1.0), 5.0);
        assert_eq!(quartiles(&[1.0, 2.0]), [1.25, 1.5, 1.75]);
        // An outlier does not change the quartiles.
        assert_eq!(quartiles(&[2.0, 3.0, 4.0, 1.0, 1e9]), [2.0, 3.0, 4.0]);
    }
}
