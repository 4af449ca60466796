//! The figures of Lampson's handout *Performance* (2002). It does not number its tables.

/// Communication on a single link: the medium, the link, the bandwidth, the latency, and the width in bits.
pub(crate) const LINKS: [(&str, &str, &str, &str, &str); 7] = [
    ("Alpha EV7 chip", "on-chip bus", "10 GB/s", "0.8 ns", "64"),
    ("PC board", "PCI I/O bus", "266 MB/s", "250 ns", "32"),
    ("Wires", "Fibrechannel", "125 MB/s", "200 ns", "1"),
    ("Wires", "SCSI", "40 MB/s", "500 ns", "32"),
    ("LAN", "Gigabit Ethernet", "125 MB/s", "100+ us", "1"),
    ("LAN", "Fast Ethernet", "12.5 MB/s", "100+ us", "1"),
    ("LAN", "Ethernet", "1.25 MB/s", "100+ us", "1"),
];

/// Communication through a switch: the medium, the switch, the bandwidth, the latency, and the links.
pub(crate) const SWITCHES: [(&str, &str, &str, &str, &str); 5] = [
    ("Alpha chip", "register file", "60 GB/s", "0.8 ns", "6"),
    ("Wires", "Cray T3E", "122 GB/s", "1 us", "2K"),
    ("LAN", "ATM switch", "10 GB/s", "10 us", "52"),
    ("LAN", "Ethernet switch", "40 MB/s", "100-1200 us", "32"),
    ("Copper pair", "central office", "80 MB/s", "125 us", "50K"),
];

/// Other kinds of work: the medium, the bandwidth, and the latency.
pub(crate) const WORK: [(&str, &str, &str); 5] = [
    ("disk", "40 MB/s", "10 ms"),
    ("RPC on Giganet with VIA", "30 calls/ms", "30 us"),
    ("RPC", "3 calls/ms", "1 ms"),
    ("airline reservation transactions", "10000 trans/s", "1 sec"),
    ("published papers", "20 papers/yr", "2 years"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ethernet_is_ten_times_as_fast_as_the_one_before() {
        let of = |bandwidth: &str| bandwidth.split(' ').next().unwrap().parse::<f64>().unwrap();
        let rates: Vec<f64> = LINKS[4..].iter().map(|link| of(link.2)).collect();
        assert!(rates.windows(2).all(|pair| pair[0] == 10.0 * pair[1]), "{rates:?}");
        assert_eq!((SWITCHES.len(), WORK.len()), (5, 5));
    }
}
