//! What the paper measured: a MicroVAX-II with Ultrix 2.0 (its Tables 2, 3, 4 and 6).

/// Milliseconds, of the three types; the rows are those of `Design::ALL`. Where our copy of the paper has none, or
/// contradicts itself, what follows from the rest of it: see [`DOUBTFUL`].
pub(crate) const MEASURED_MS: [[f64; 3]; 10] = [
    [0.085, 4.75, 23.3],
    [0.079, 3.40, 19.0],
    [0.108, 11.2, 35.7],
    [0.101, 9.90, 31.0],
    [0.079, 0.585, 15.7],
    [0.015, 4.60, 11.4],
    [0.010, 3.32, 9.65],
    [0.040, 11.3, 28.9],
    [0.035, 10.0, 25.8],
    [0.011, 0.457, 4.08],
];

/// Row and column of figures that are not the text's, and why.
pub(crate) const DOUBTFUL: [(usize, usize, &str); 2] = [
    (5, 2, "missing in our copy; interpretation is 51 % of 23.3 ms in Table 3"),
    (9, 0, "0.035 in our copy; interpretation is 86 % of 0.079 ms in Table 3"),
];
