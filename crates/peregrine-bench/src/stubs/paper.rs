//! Lists the measurements in Tables 2, 3 and 4 of the paper of Chung, Lazowska, Notkin and Zahorjan on
//! compiled and interpreted stubs. The machine was a MicroVAX-II with Ultrix 2.0.

/// Table 2: times in milliseconds for the three types. The rows are those of `Design::ALL`. See [`DOUBTFUL`].
pub(crate) const MEASURED_MS: [[f64; 3]; 10] = [
    [0.085, 4.75, 23.3],
    [0.079, 3.40, 19.0],
    [0.108, 11.2, 35.7],
    [0.101, 9.90, 31.0],
    [0.079, 0.585, 15.7],
    [0.015, 4.60, f64::NAN],
    [0.010, 3.32, 9.65],
    [0.040, 11.3, 28.9],
    [0.035, 10.0, 25.8],
    [0.035, 0.457, 4.08],
];

/// The row and the column of each figure of Table 2 that is missing in our copy or contradicts other figures.
/// The text says why the figure is doubtful.
pub(crate) const DOUBTFUL: [(usize, usize, &str); 2] = [
    (5, 2, "missing in our copy of the paper; its model gives 11.9 ms"),
    (
        9,
        0,
        "this is the figure in our copy of the paper; but the interpreted stub takes 0.079 ms, of which B + e take 0.068, so 0.011 remain",
    ),
];

/// Table 3: the percentage of the time that is due to interpretation. The rows are those of `Copying::ALL`.
/// Each percentage is the model's time of interpretation, divided by the measured time.
pub(crate) const INTERPRETATION: [[u32; 3]; 5] =
    [[80, 4, 51], [86, 6, 63], [63, 2, 33], [67, 2, 39], [86, 4, 76]];

/// Table 4: the percentage of the time that is due to procedure calls. The first half is for interpreted
/// stubs, and the second half for compiled stubs. In each half, the first row is for copying by bytes, and
/// the second row for copying by items. Each row has the three types.
pub(crate) const CALLS: [[[u32; 3]; 2]; 2] =
    [[[23, 57, 36], [25, 65, 42]], [[63, 57, 52], [83, 64, 59]]];
