//! The figures of Johnson and Zwaenepoel, *The Peregrine High-Performance RPC System*.

/// Table 1: the bytes of data and of the packet, and the transmission time, the network penalty and the
/// overhead in microseconds.
pub(crate) const PENALTIES: [(u32, u32, f64, f64, f64); 7] = [
    (46, 64, 51.2, 132.0, 80.8),
    (100, 118, 94.4, 173.0, 78.6),
    (200, 218, 174.4, 255.0, 80.6),
    (400, 418, 334.4, 417.0, 82.6),
    (800, 818, 654.4, 743.0, 88.6),
    (1024, 1042, 833.6, 927.0, 93.4),
    (1500, 1518, 1214.4, 1314.0, 99.6),
];

/// Table 2: the bytes of data, the number of packets, the network penalty in milliseconds, and the bandwidth
/// in megabits per second.
pub(crate) const STREAMS: [(u32, u32, f64, f64); 7] = [
    (1500, 1, 1.31, 9.16),
    (3000, 2, 2.58, 9.30),
    (6000, 4, 5.13, 9.36),
    (12_000, 8, 10.21, 9.40),
    (24_000, 16, 20.40, 9.41),
    (48_000, 32, 40.83, 9.40),
    (96_000, 64, 81.59, 9.41),
];

/// Table 3: the procedure, and the network penalty, the measured time and the overhead in microseconds.
pub(crate) const SINGLE: [(&str, f64, f64, f64); 4] = [
    ("null", 264.0, 562.0, 298.0),
    ("4-byte argument", 264.0, 563.0, 299.0),
    ("1024-byte in", 1059.0, 1364.0, 305.0),
    ("1024-byte in-out", 1854.0, 2321.0, 467.0),
];

/// Table 4: the component of a null call, and its time in microseconds.
pub(crate) const COMPONENTS: [(&str, f64); 15] = [
    ("procedure call to the client stub and return", 2.0),
    ("client stub", 5.0),
    ("client kernel trap and context switch on return", 37.0),
    ("client sending call packet", 49.0),
    ("network penalty for call packet", 132.0),
    ("server Ethernet receive interrupt handling", 43.0),
    ("duplicate packet detection", 5.0),
    ("page remapping of receive buffer into server stack", 4.0),
    ("other server handling of call packet", 8.0),
    ("server context switch and kernel trap on return", 26.0),
    ("server stub", 4.0),
    ("server sending result packet", 16.0),
    ("network penalty for result packet", 132.0),
    ("client Ethernet receive interrupt handling", 43.0),
    ("client handling of result packet", 5.0),
];

/// Table 4: the total of the components, and the measured time.
pub(crate) const COMPONENTS_TOTAL: (f64, f64) = (511.0, 562.0);

/// Table 5: the procedure, the network penalty and the latency in milliseconds, and the throughput in
/// megabits per second.
pub(crate) const MULTI: [(&str, f64, f64, f64); 4] = [
    ("3000-byte in", 2.71, 3.20, 7.50),
    ("3000-byte in-out", 5.16, 6.04, 7.95),
    ("48000-byte in", 40.96, 43.31, 8.87),
    ("48000-byte in-out", 81.66, 86.27, 8.90),
];

/// Table 6: the procedure, and its time in microseconds.
pub(crate) const LOCAL: [(&str, f64); 4] = [
    ("null", 149.0),
    ("4-byte argument", 150.0),
    ("1024-byte in", 310.0),
    ("1024-byte in-out", 468.0),
];

/// The theoretical minimum of a null local call in microseconds.
pub(crate) const LOCAL_LEAST: f64 = 65.0;

/// Table 7: the system, the machine, the processor, millions of instructions in a second, the latency in
/// microseconds, and the throughput in megabits per second.
pub(crate) const SYSTEMS: [(&str, &str, &str, &str, f64, f64); 9] = [
    ("Cedar", "Dorado", "custom", "1 x 4", 1097.0, 2.0),
    ("Amoeba", "SUN-3/60", "MC68020", "1 x 3", 1100.0, 6.4),
    ("x-kernel", "SUN-3/75", "MC68020", "1 x 2", 1730.0, 7.1),
    ("V-System", "SUN-3/75", "MC68020", "1 x 2", 2540.0, 4.4),
    ("Firefly", "FF", "MicroVax II", "5 x 1", 2660.0, 4.6),
    ("Sprite", "SUN-3/75", "MC68020", "1 x 2", 2800.0, 5.7),
    ("Firefly", "FF", "MicroVax II", "1 x 1", 4800.0, 2.5),
    ("SunRPC", "SUN-3/60", "MC68020", "1 x 3", 6700.0, 2.7),
    ("Peregrine", "SUN-3/60", "MC68020", "1 x 3", 562.0, 8.9),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overheads_are_what_exceeds_the_penalty() {
        for (bytes, total, sent, penalty, overhead) in PENALTIES {
            assert!((penalty - sent - overhead).abs() < 0.01, "{bytes}");
            assert_eq!(total, bytes + 18);
            assert!((f64::from(total) * 0.8 - sent).abs() < 0.01, "{bytes}");
        }
        for (procedure, penalty, measured, overhead) in SINGLE {
            assert_eq!(measured - penalty, overhead, "{procedure}");
        }
    }

    #[test]
    fn components_add_up_to_the_total() {
        let sum: f64 = COMPONENTS.iter().map(|part| part.1).sum();
        assert_eq!(sum, COMPONENTS_TOTAL.0);
        assert_eq!(COMPONENTS_TOTAL.1, SINGLE[0].2);
    }

    #[test]
    fn bandwidths_are_those_of_the_penalties() {
        for (bytes, packets, ms, bandwidth) in STREAMS {
            assert_eq!(bytes, 1500 * packets);
            assert!((f64::from(bytes) * 8.0 / ms / 1e3 - bandwidth).abs() < 0.05, "{bytes}");
        }
        for (procedure, _, ms, throughput) in MULTI {
            let bytes: f64 = procedure.split('-').next().unwrap().parse().unwrap();
            let ways = if procedure.ends_with("in-out") { 2.0 } else { 1.0 };
            assert!((ways * bytes * 8.0 / ms / 1e3 - throughput).abs() < 0.01, "{procedure}");
        }
    }
}
