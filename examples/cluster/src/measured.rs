//! What is measured: calls, failures by their kind, and latency in buckets of about 6 percent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Each power of two has this number of buckets.
const STEPS: u64 = 16;
/// The last bucket. It has all that takes longer than about 2^41 µs.
const LAST: u16 = 16 * 38 - 1;

/// How often each latency occurred. The size is bounded, whatever is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u16, u64)>", into = "Vec<(u16, u64)>")]
pub(crate) struct Histogram {
    /// The counts of the buckets that are not empty.
    counts: BTreeMap<u16, u64>,
}

impl From<Vec<(u16, u64)>> for Histogram {
    fn from(counts: Vec<(u16, u64)>) -> Self {
        let counts = counts.into_iter().map(|(bucket, count)| (bucket.min(LAST), count));
        Self { counts: counts.collect() }
    }
}

impl From<Histogram> for Vec<(u16, u64)> {
    fn from(histogram: Histogram) -> Self {
        histogram.counts.into_iter().collect()
    }
}

impl Histogram {
    pub(crate) fn record(&mut self, microseconds: u64) {
        *self.counts.entry(bucket(microseconds)).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.counts {
            *self.counts.entry(*bucket).or_default() += count;
        }
    }

    /// Returns the latency in microseconds that this part of all values does not exceed. `None`: there are
    /// no values.
    pub(crate) fn quantile(&self, part: f64) -> Option<u64> {
        let all: u64 = self.counts.values().sum();
        let rank = ((all as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        found.map(|(bucket, _)| upper_end(*bucket))
    }
}

/// Returns the bucket of a value: one for each value below 16, and then 16 for each power of two.
fn bucket(value: u64) -> u16 {
    if value < STEPS {
        return value as u16;
    }
    let power = u64::from(value.ilog2());
    let step = (value >> (power - 4)) - STEPS;
    ((power - 3) * STEPS + step).min(u64::from(LAST)) as u16
}

/// Returns the largest value of a bucket.
fn upper_end(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    if bucket < STEPS {
        return bucket;
    }
    let (power, step) = (bucket / STEPS + 3, bucket % STEPS);
    ((STEPS + step + 1) << (power - 4)) - 1
}

/// The calls of some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// All calls that have ended, also the failed ones.
    pub(crate) calls: u64,
    /// The failed calls by their kind.
    pub(crate) failures: BTreeMap<String, u64>,
    /// From the moment for which the call was scheduled until its end, also of failed calls.
    pub(crate) latency: Histogram,
    /// The longest time in microseconds in which no call succeeded.
    pub(crate) gap_us: u64,
}

impl Tally {
    pub(crate) fn record(&mut self, microseconds: u64, failure: Option<String>) {
        self.calls += 1;
        self.latency.record(microseconds);
        if let Some(kind) = failure {
            *self.failures.entry(kind).or_default() += 1;
        }
    }

    /// Notes a successful call, and the time in microseconds since the successful call before it.
    pub(crate) fn succeeded(&mut self, after_us: u64) {
        self.gap_us = self.gap_us.max(after_us);
    }

    /// Notes a call that was not made. It has no latency.
    pub(crate) fn omit(&mut self, why: &str) {
        self.calls += 1;
        *self.failures.entry(why.to_owned()).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.latency.merge(&other.latency);
        self.gap_us = self.gap_us.max(other.gap_us);
        for (kind, count) in &other.failures {
            *self.failures.entry(kind.clone()).or_default() += count;
        }
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Returns the failures as a text, such as `3 TimedOut (may have executed)`, or `0`.
    pub(crate) fn failures_text(&self) -> String {
        if self.failures.is_empty() {
            return "0".to_owned();
        }
        let each = self.failures.iter().map(|(kind, count)| format!("{count} {kind}"));
        each.collect::<Vec<_>>().join(", ")
    }

    /// Returns a quantile of the latency in milliseconds as a text.
    pub(crate) fn quantile_text(&self, part: f64) -> String {
        self.latency.quantile(part).map_or_else(|| "-".to_owned(), milliseconds)
    }
}

/// Returns microseconds as milliseconds, with fewer decimals if there are many.
pub(crate) fn milliseconds(microseconds: u64) -> String {
    let value = microseconds as f64 / 1000.0;
    match value {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_narrow() {
        let mut last = 0;
        for value in (0..5000).chain((0..40).map(|n| 3 << n)) {
            let bucket = bucket(value);
            assert!(bucket <= LAST);
            let end = upper_end(bucket);
            assert!(end >= value, "{value} in {bucket}, which ends at {end}");
            assert!(end - value <= value / 16, "{value} in {bucket}, which ends at {end}");
            assert!(value == 0 || value < last || bucket >= self::bucket(last));
            last = value;
        }
        assert_eq!(bucket(u64::MAX), LAST);
    }

    #[test]
    fn merged_tallies_have_the_quantiles_of_all_values() {
        let (mut one, mut other) = (Tally::default(), Tally::default());
        (0..99).for_each(|n| one.record(n % 10, None));
        other.record(2_000_000, Some("TimedOut (not executed)".to_owned()));
        one.succeeded(5);
        other.succeeded(70);
        one.merge(&other);
        assert_eq!(one.gap_us, 70);
        assert_eq!((one.calls, one.failed()), (100, 1));
        assert_eq!(one.latency.quantile(0.99), Some(9));
        assert!(one.latency.quantile(1.0).unwrap() >= 2_000_000);
        assert_eq!(one.failures_text(), "1 TimedOut (not executed)");
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<Tally>(&text).unwrap(), one);
        assert_eq!(Tally::default().quantile_text(0.5), "-");
    }
}
