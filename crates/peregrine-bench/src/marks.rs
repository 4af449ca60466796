//! The marks that rows are held to: what must be, and what is worth reaching.

use crate::row::Row;

/// What a row is to show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mark {
    /// The ratio to the limit: it must be at most the first, and the second is worth reaching.
    Ratio(f64, f64),
    /// The time, in nanoseconds, that it must not exceed.
    Within(f64),
}

/// Case, wait, placement, limit; must, reach.
const RATIOS: [(&str, &str, &str, &str, f64, f64); 10] = [
    ("null", "spin", "two-cores", "lines", 1.30, 1.10),
    ("in-200", "spin", "two-cores", "lines", 1.40, 1.15),
    ("inout-1024", "spin", "two-cores", "lines", 1.50, 1.15),
    ("in-48000", "spin", "two-cores", "copy-then-read", 1.15, 0.85),
    ("in-1m", "spin", "two-cores", "copy-then-read", 1.00, 0.75),
    ("in-1m-lent", "spin", "two-cores", "copy-then-read", 0.90, 0.65),
    ("null", "adaptive", "two-cores", "spin", 1.25, 1.05),
    ("null", "block", "one-core", "futex", 1.15, 0.80),
    // 1.44 is LRPC's own ratio to the minimum of its machine.
    ("null", "block", "one-core", "yield", 2.40, 1.44),
    ("null", "block", "two-cores", "futex", 1.20, 1.00),
];

/// The mark of a row, if it has one.
pub(crate) fn of(row: &Row) -> Option<Mark> {
    if row.case == "death-p99" {
        return Some(Mark::Within(100e6));
    }
    let key = (row.case, row.wait?, row.placement?, row.limit?);
    let marked = RATIOS.iter().find(|m| (m.0, m.1, m.2, m.3) == key)?;
    row.ratio.map(|_| Mark::Ratio(marked.4, marked.5))
}
