//! The measurements of Larus, *On the Performance of Courier Remote Procedure Calls Under 4.1c BSD*. The rows
//! are those of `Test::ALL`.

/// Table 1: the average elapsed time of 2,000 calls of Courier in seconds, to a VAX and to a Sun.
pub(crate) const COURIER_S: [[f64; 2]; 8] = [
    [26.2, 33.4],
    [193.0, 129.2],
    [41.2, 47.7],
    [139.5, 142.4],
    [102.8, 88.0],
    [177.6, 166.1],
    [376.7, 402.7],
    [422.4, 479.4],
];

/// Table 2: the same for packet Courier, which did not carry the last two tests.
pub(crate) const PACKET_S: [[f64; 2]; 6] =
    [[8.5, 11.6], [117.3, 51.6], [9.1, 10.1], [107.4, 51.9], [28.6, 29.8], [211.9, 87.6]];

/// Tables 3 and 4: the milliseconds of a call of Courier, of packet Courier, and of packet Courier without
/// the waits for lost packets, first to a VAX and then to a Sun.
pub(crate) const CALL_MS: [[[Option<f64>; 3]; 8]; 2] = {
    const fn all(courier: f64, packet: f64, corrected: f64) -> [Option<f64>; 3] {
        [Some(courier), Some(packet), Some(corrected)]
    }
    const fn courier(courier: f64) -> [Option<f64>; 3] {
        [Some(courier), None, None]
    }
    [
        [
            // The column of corrected figures is empty in this row of our copy.
            [Some(13.1), Some(4.2), None],
            all(96.5, 58.6, 21.6),
            all(20.6, 4.5, 4.5),
            all(69.7, 53.7, 25.9),
            all(51.4, 14.3, 14.3),
            all(88.8, 106.0, 35.9),
            courier(188.3),
            courier(211.2),
        ],
        [
            all(16.7, 5.8, 5.8),
            all(64.6, 25.8, 25.4),
            all(23.8, 5.0, 5.0),
            all(71.2, 25.9, 24.9),
            all(44.0, 14.9, 14.9),
            all(83.1, 43.8, 42.5),
            courier(201.3),
            courier(248.5),
        ],
    ]
};

/// A row of Tables 5 to 8: the processor seconds of 2,000 calls, and the percentages for sending, receiving
/// and swapping bytes.
pub(crate) type Profiled = (f64, f64, f64, Option<f64>);

/// Tables 5 and 6: the profile of Courier, to a VAX and to a Sun.
pub(crate) const COURIER_CPU: [[Profiled; 8]; 2] = [
    [
        (13.7, 93.0, 0.2, None),
        (25.5, 54.2, 25.1, None),
        (21.5, 88.1, 0.1, None),
        (30.4, 66.6, 26.7, None),
        (36.4, 66.8, 0.1, Some(24.4)),
        (43.2, 51.6, 14.8, Some(24.9)),
        (159.6, 22.5, 0.0, Some(75.6)),
        (140.5, 25.1, 5.8, Some(65.9)),
    ],
    [
        (15.3, 92.7, 0.3, None),
        (26.9, 55.6, 29.5, None),
        (23.3, 88.9, 0.2, None),
        (32.8, 65.5, 21.2, None),
        (41.1, 66.2, 0.1, Some(26.4)),
        (47.7, 55.9, 15.2, Some(18.9)),
        (160.4, 29.9, 0.0, Some(68.0)),
        (155.1, 31.1, 4.7, Some(61.1)),
    ],
];

/// Tables 7 and 8: the profile of packet Courier, to a VAX and to a Sun.
pub(crate) const PACKET_CPU: [[Profiled; 6]; 2] = [
    [
        (8.8, 89.5, 0.3, None),
        (20.1, 47.0, 36.3, None),
        (9.2, 81.0, 0.3, None),
        (20.2, 42.0, 33.8, None),
        (25.3, 48.0, 0.1, Some(35.0)),
        (37.8, 33.0, 24.0, Some(26.0)),
    ],
    [
        (9.2, 90.0, 0.2, None),
        (19.2, 54.0, 31.0, None),
        (9.7, 80.0, 0.2, None),
        (20.5, 51.0, 32.0, None),
        (25.2, 50.0, 0.0, Some(32.0)),
        (34.1, 35.0, 22.0, Some(27.0)),
    ],
];

/// Table 9: the time of Courier divided by that of packet Courier, without and with correction, first to a
/// VAX and then to a Sun.
pub(crate) const RATIOS: [[[f64; 2]; 2]; 6] = [
    [[3.1, 3.1], [2.9, 2.9]],
    [[1.6, 4.5], [2.5, 2.5]],
    [[4.5, 4.5], [4.7, 4.7]],
    [[1.3, 2.7], [2.7, 2.9]],
    [[3.6, 3.6], [2.9, 2.9]],
    [[0.84, 5.9], [1.9, 2.0]],
];

/// Table 10: the time on the network of 3 Mbit/s divided by that on the network of 10 Mbit/s: Courier, packet
/// Courier, and corrected packet Courier.
pub(crate) const NETWORKS: [[Option<f64>; 3]; 8] = [
    [Some(0.78), Some(0.73), Some(0.73)],
    [Some(1.49), Some(2.3), Some(0.85)],
    [Some(0.86), Some(0.9), Some(0.9)],
    [Some(0.98), Some(2.1), Some(1.04)],
    [Some(1.17), Some(0.96), Some(0.96)],
    [Some(1.17), Some(2.4), Some(0.84)],
    [Some(0.94), None, None],
    [Some(0.88), None, None],
];

/// Table 11: the processor time of Courier divided by that of packet Courier: in total, for sending and for
/// receiving.
pub(crate) const CPU_RATIOS: [(f64, f64, Option<f64>); 6] = [
    (1.6, 1.6, None),
    (1.3, 1.4, Some(0.87)),
    (2.3, 2.5, None),
    (1.5, 2.3, Some(1.2)),
    (1.4, 2.0, None),
    (1.1, 1.8, Some(0.71)),
];

/// Table 9: the averages of both columns, first to a VAX and then to a Sun.
pub(crate) const RATIOS_AVERAGE: [&str; 2] = ["2.49 ± 1.3, 4.05 ± 1.06", "2.9 ± 0.96, 3.0 ± 0.83"];
