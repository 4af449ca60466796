//! The figures of Bershad, Anderson, Lazowska and Levy, *Lightweight Remote Procedure Call*.

/// Table I: the operating system, and the percentage of operations that cross machine boundaries.
pub(crate) const REMOTE: [(&str, f64); 3] = [("V", 3.0), ("Taos", 5.3), ("Sun UNIX+NFS", 0.6)];

/// Table II: the system, the processor, and the theoretical minimum, the actual time and the overhead of a
/// null call in microseconds.
pub(crate) const NULLS: [(&str, &str, f64, f64, f64); 6] = [
    ("Accent", "PERQ", 444.0, 2300.0, 1856.0),
    ("Taos", "Firefly C-VAX", 109.0, 464.0, 355.0),
    ("Mach", "C-VAX", 90.0, 754.0, 664.0),
    ("V", "68020", 170.0, 730.0, 560.0),
    ("Amoeba", "68020", 170.0, 800.0, 630.0),
    ("DASH", "68020", 170.0, 1590.0, 1420.0),
];

/// Table III: the operation, and its copies with LRPC, with messages, and with restricted messages.
pub(crate) const COPIES: [(&str, [&str; 3]); 3] = [
    ("call, mutable parameters", ["A", "ABCE", "ADE"]),
    ("call, immutable parameters", ["AE", "ABCE", "ADE"]),
    ("return", ["F", "BCF", "BF"]),
];

/// Table IV: the test, and its time in microseconds with LRPC on a multiprocessor, with LRPC on one processor,
/// and with Taos.
pub(crate) const TESTS: [(&str, [f64; 3]); 4] = [
    ("Null", [125.0, 157.0, 464.0]),
    ("Add", [130.0, 164.0, 480.0]),
    ("BigIn", [173.0, 192.0, 539.0]),
    ("BigInOut", [219.0, 227.0, 636.0]),
];

/// A row of Table V: the part of a null call on one processor, and its time in microseconds as a part of the
/// minimum or of the overhead.
pub(crate) type Part = (&'static str, Option<f64>, Option<f64>);

/// Table V.
pub(crate) const PARTS: [Part; 5] = [
    ("procedure call", Some(7.0), None),
    ("two kernel traps", Some(36.0), None),
    ("two context switches", Some(66.0), None),
    ("stubs", None, Some(21.0)),
    ("kernel transfer", None, Some(27.0)),
];

/// Table V: the totals.
pub(crate) const PARTS_TOTAL: (f64, f64) = (109.0, 48.0);

/// Figure 2: the number of processors, and thousands of calls in a second, with LRPC and with SRC RPC. Our copy
/// of the paper (slides) has no figures. The article states these points: one processor makes about 6,300
/// calls, four make more than 23,000, and SRC RPC levels off with two processors at about 4,000.
pub(crate) const THROUGHPUT: [(f64, f64); 2] = [(1.0, 6.3), (4.0, 23.0)];
/// See [`THROUGHPUT`].
pub(crate) const THROUGHPUT_SRC: [(f64, f64); 2] = [(2.0, 4.0), (4.0, 4.0)];

/// Figure 1: what the article states of the sizes of calls. Our copy of the paper (slides) has no figures.
pub(crate) const SIZES: &str = "the most frequent calls transfer fewer than 50 bytes, and the majority fewer \
    than 200";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overheads_are_what_exceeds_the_minimum() {
        for (system, _, least, actual, overhead) in NULLS {
            assert_eq!(actual - least, overhead, "{system}");
        }
    }

    #[test]
    fn parts_add_up_to_the_totals_and_to_the_null_call() {
        let sum = |of: fn(&Part) -> Option<f64>| PARTS.iter().filter_map(of).sum::<f64>();
        assert_eq!((sum(|part| part.1), sum(|part| part.2)), PARTS_TOTAL);
        assert_eq!(PARTS_TOTAL.0 + PARTS_TOTAL.1, TESTS[0].1[1]);
        // The minimum of Taos in Table II is that of the same machine.
        assert_eq!(NULLS[1].2, PARTS_TOTAL.0);
    }
}
