//! Defines the marks of result rows. A mark is a bound for a measured value. Most marks have a required bound
//! (`must`) and a desirable one (`reach`).

use crate::cases::{ACTIVE, ACTIVE_SPREAD, PROCESSES, THREADS, TURN, TURN_SPREAD};
use crate::cluster::{BINDING, RANDOM};
use crate::foreign::bridge::{BOTH_ALONE, BRIDGE_NULL, HTTP, HTTP_NULL, HYPER_ECHO};
use crate::foreign::courier::OWN_UDP;
use crate::foreign::{ARRAY, TIRPC};
use crate::row::Row;
use crate::secure::{HANDSHAKE, PINGPONG, PLAIN_AND_SEALING, TONIC_TLS, UNTRACED};

/// The mark of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mark {
    /// Bounds of Peregrine's time divided by the limit's time. This ratio must be at most the first value,
    /// and should be at most the second.
    Ratio(f64, f64),
    /// The required maximum of Peregrine's time, in nanoseconds.
    Within(f64),
    /// The required maximum of the difference between Peregrine's time and the limit's time, in nanoseconds.
    More(f64),
}

/// The marks of rows with one caller and one binding. An entry has the case, the wait, the placement and the
/// limit of a row, and then the bounds `must` and `reach`.
const RATIOS: [(&str, &str, &str, &str, f64, f64); 12] = [
    ("null", "spin", "two-cores", "lines", 1.30, 1.10),
    ("in-200", "spin", "two-cores", "lines", 1.40, 1.15),
    ("inout-1024", "spin", "two-cores", "lines", 1.50, 1.15),
    ("in-48000", "spin", "two-cores", "copy-then-read", 1.15, 0.85),
    ("in-1m", "spin", "two-cores", "copy-then-read", 1.00, 0.75),
    ("in-1m-lent", "spin", "two-cores", "copy-then-read", 0.90, 0.65),
    ("null", "adaptive", "two-cores", "spin", 1.25, 1.05),
    ("null", "spin", "two-cores", "iceoryx2", 0.25, 0.12),
    ("null", "adaptive", "two-cores", "iceoryx2", 0.25, 0.12),
    ("null", "block", "one-core", "futex", 1.15, 0.80),
    // In the LRPC paper, the time of a call divided by the minimum of the machine is 1.44.
    ("null", "block", "one-core", "yield", 2.40, 1.44),
    ("null", "block", "two-cores", "futex", 1.20, 1.00),
];

/// The marks of rows with many callers or many bindings. An entry has the case, the limit, the smallest
/// number of callers and of bindings, and then the bounds `must` and `reach`. The mark holds for rows with at
/// least these numbers.
const CROWDS: [(&str, &str, u32, u32, f64, f64); 6] = [
    // Two or more callers together must make at least as many calls as one caller that spins.
    (THREADS, "spin", 2, 1, 1.00, 0.50),
    (PROCESSES, "spin", 2, 1, 1.00, 0.50),
    (ACTIVE, "one-binding", 1, 1000, 1.50, 1.15),
    (ACTIVE_SPREAD, "one-binding", 1, 1000, 1.50, 1.15),
    (TURN, "block", 1, 1000, 1.25, 0.50),
    (TURN_SPREAD, "block", 1, 1000, 1.25, 0.50),
];

/// The marks of calls across a network, in any placement.
const ACROSS: [Across; 22] = [
    across("null", "udp", "loopback", "spin", &["udp-pingpong"], 1.15, 1.05),
    across("null", "udp", "loopback", "block", &["udp-pingpong"], 1.15, 1.05),
    across("null", "udp", "veth", "spin", &["udp-pingpong"], 1.20, 1.07),
    across("in-1024", "udp", "veth", "spin", &["udp-pingpong"], 1.20, 1.07),
    // The value 1.06 comes from the Peregrine paper: the time of the largest call divided by the time in
    // which the network moves its packets.
    across("in-48000", "udp", "veth", "spin", &["blast-ack"], 1.15, 1.06),
    across("null", "ethernet", "veth", "spin", &XDP_PINGPONG, 1.25, 1.08),
    across("null", "ethernet", "veth", "spin", &["own-udp"], 0.65, 0.50),
    across("in-1024", "ethernet", "veth", "spin", &XDP_PINGPONG, 1.30, 1.10),
    across("in-48000", "ethernet", "veth", "spin", &["blast-ack", "blast-ack-behind"], 1.15, 1.06),
    across("null", "ethernet-packet", "veth", "spin", &["packet-pingpong"], 1.25, 1.08),
    across("null", "tcp", "loopback", "block", &["tcp-pingpong"], 1.15, 1.05),
    across("in-16m", "udp", "loopback", "spin", &["blast-ack", "tcp-pingpong"], 1.30, 1.05),
    across(THREADS, "udp", "loopback", "block", &["echo-each", "echo-shared"], 1.40, 1.10),
    across("null", "onc-udp", "loopback", "spin", &["udp-pingpong"], 1.15, 1.07),
    across("null", "onc-udp", "loopback", "block", &["udp-pingpong"], 1.15, 1.07),
    across("null", "onc-udp", "loopback", "block", &[TIRPC], 0.90, 0.70),
    across("null", "onc-tcp", "loopback", "block", &["tcp-pingpong"], 1.15, 1.07),
    across("in-48000", "onc-tcp", "loopback", "block", &[TIRPC], 0.70, 0.50),
    across("null", "courier-tcp", "loopback", "block", &["tcp-pingpong"], 1.20, 1.20),
    across("null", "courier-exchange", "loopback", "block", &[OWN_UDP], 1.10, 1.10),
    across(BRIDGE_NULL, "onc-udp", "loopback", "adaptive", &[BOTH_ALONE], 1.50, 1.20),
    across(HTTP_NULL, HTTP, "loopback", "block", &[HYPER_ECHO], 1.50, 1.20),
];

/// The mark of the time in which an array of 256 integers is written as XDR and read again, compared with two
/// copies of its bytes: `must` and `reach`.
const XDR_ARRAY: (f64, f64) = (2.00, 1.30);

/// The longest time in nanoseconds in which a caller must notice that its server has failed. The fields are
/// the case, the time if the server is on the same machine, and the time if it is across a network.
const DEATHS_NOTICED: [(&str, f64, f64); 4] = [
    ("death-p50", 10e6, 2.5e9),
    ("death-p99", 100e6, 5e9),
    ("cut-p50", 10e6, 2.5e9),
    ("cut-p99", 100e6, 5e9),
];

/// The marks of binding, compared with the system calls that binding needs. An entry has the case, and then
/// the bounds `must` and `reach`. Other costs of binding have no such mark, because no minimum is known for
/// them.
const BINDS: [(&str, f64, f64); 2] = [("bind-session", 2.0, 1.5), ("bind-further", 2.0, 1.5)];
/// The longest time in nanoseconds from the restart of the server to the first call that succeeds.
const BACK: f64 = 50e6;
/// The mark of calls to a server of the other byte order, compared with the same calls to a server of this
/// machine's byte order: the case, `must` and `reach`.
const SWAPPED: (&str, f64, f64) = ("in-1m-swapped", 1.30, 1.05);

/// The mark of calls whose arguments the client converts because the server's interface has grown. The limit
/// is the interpreted call of a procedure that has not grown. The fields are `must` and `reach`. The mark is
/// the same for the compiled and the interpreted client.
const GROWN: (f64, f64) = (1.50, 1.20);
/// The largest additional time of binding, in nanoseconds, if each of 100 procedures differs between client
/// and server. Binding to a server that has the client's interface is the base of the comparison.
const GROWN_BIND: f64 = 1e6;

/// The marks of async calls, of one-way calls and of streams. An entry has the case and the limit, and
/// then the bounds `must` and `reach`.
const CONCURRENT: [(&str, &str, f64, f64); 9] = [
    ("async-null", "own-blocking", 1.50, 1.15),
    ("async-null", "tarpc-uds", 0.05, 0.03),
    ("async-null", "tonic-uds", 0.05, 0.03),
    ("async-1000", "own-spin", 0.60, 0.30),
    ("async-1000", "tarpc-tcp", 0.25, 0.12),
    ("oneway-16", "ring", 2.00, 1.30),
    ("oneway-16", "own-two-way", 0.10, 0.05),
    ("stream-16", "ring", 2.00, 1.30),
    ("stream-64k", "copy-then-read", 1.10, 0.90),
];

/// The marks of encrypted calls, of binding to servers that require encryption, and of calls that an idle layer
/// does not see. An entry has the case and the limit, and then the bounds `must` and `reach`.
const SECURE: [(&str, &str, f64, f64); 7] = [
    ("null-sealed", PLAIN_AND_SEALING, 1.10, 1.03),
    ("in-48000-sealed", PLAIN_AND_SEALING, 1.10, 1.00),
    ("null-tls", PINGPONG, 1.15, 1.05),
    ("bind", HANDSHAKE, 1.30, 1.10),
    ("bind-resumed", HANDSHAKE, 1.30, 1.10),
    ("null-tls-peer", TONIC_TLS, 0.30, 0.10),
    ("null-traced", UNTRACED, 1.01, 1.00),
];

/// The marks of pools. An entry has the case and the limit, and then the bounds `must` and `reach`.
const CLUSTER: [(&str, &str, f64, f64); 3] = [
    ("pool-null", BINDING, 1.15, 1.05),
    ("pool-throughput", BINDING, 1.02, 1.02),
    ("least-loaded-p99", RANDOM, 0.60, 0.60),
];

/// The names of the limits that send one Ethernet frame in each direction. The XDP program runs in the driver
/// for the first limit, and after the driver for the second.
const XDP_PINGPONG: [&str; 2] = ["xdp-pingpong", "xdp-pingpong-behind"];

/// A mark for calls across a network.
struct Across {
    /// The case, the path, the link and the way to wait of the rows for which the mark holds.
    key: [&'static str; 4],
    /// The names of the limits. The mark holds for a row that is compared with one of these limits.
    limits: &'static [&'static str],
    /// The mark, which is a [`Mark::Ratio`].
    mark: Mark,
}

const fn across(
    case: &'static str,
    path: &'static str,
    link: &'static str,
    wait: &'static str,
    limits: &'static [&'static str],
    must: f64,
    reach: f64,
) -> Across {
    Across { key: [case, path, link, wait], limits, mark: Mark::Ratio(must, reach) }
}

/// Returns the mark of a row, if it has one.
pub(crate) fn of(row: &Row) -> Option<Mark> {
    if let Some(marked) = DEATHS_NOTICED.iter().find(|m| m.0 == row.case) {
        let local = row.path == Some("local");
        return Some(Mark::Within(if local { marked.1 } else { marked.2 }));
    }
    // A whole `peregrine call` has a mark only if the server is on this machine.
    if row.case == crate::command::CASE {
        return (row.path == Some("local")).then_some(Mark::Within(5e6));
    }
    if row.case.starts_with("rebind-") {
        return Some(Mark::Within(BACK));
    }
    let limit = row.limit?;
    if let Some(marked) = BINDS.iter().find(|m| m.0 == row.case) {
        return row.ratio.map(|_| Mark::Ratio(marked.1, marked.2));
    }
    if let Some(marked) = CONCURRENT.iter().find(|m| (m.0, m.1) == (row.case, limit)) {
        return row.ratio.map(|_| Mark::Ratio(marked.2, marked.3));
    }
    if let Some(marked) = SECURE.iter().find(|m| (m.0, m.1) == (row.case, limit)) {
        return row.ratio.map(|_| Mark::Ratio(marked.2, marked.3));
    }
    if let Some(marked) = CLUSTER.iter().find(|m| (m.0, m.1) == (row.case, limit)) {
        return row.ratio.map(|_| Mark::Ratio(marked.2, marked.3));
    }
    if crate::growth::CALLS.contains(&row.case) {
        return row.ratio.map(|_| Mark::Ratio(GROWN.0, GROWN.1));
    }
    if row.case == crate::growth::BIND {
        return Some(Mark::More(GROWN_BIND));
    }
    if row.case == ARRAY {
        return row.ratio.map(|_| Mark::Ratio(XDR_ARRAY.0, XDR_ARRAY.1));
    }
    if row.case == SWAPPED.0 {
        return row.ratio.map(|_| Mark::Ratio(SWAPPED.1, SWAPPED.2));
    }
    if row.link != Some("memory") {
        let key = [row.case, row.path?, row.link?, row.wait?];
        let marked = ACROSS.iter().find(|m| m.key == key && m.limits.contains(&limit))?;
        return row.ratio.map(|_| marked.mark);
    }
    let crowd = CROWDS
        .iter()
        .find(|m| (m.0, m.1) == (row.case, limit) && row.callers >= m.2 && row.bindings >= m.3);
    let (must, reach) = match crowd {
        Some(marked) => (marked.4, marked.5),
        None => {
            let key = (row.case, row.wait?, row.placement?, limit);
            let marked = RATIOS.iter().find(|m| (m.0, m.1, m.2, m.3) == key)?;
            (marked.4, marked.5)
        }
    };
    row.ratio.map(|_| Mark::Ratio(must, reach))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Case, MANY};

    #[test]
    fn every_marked_case_exists() {
        for marked in RATIOS {
            assert!(Case::named(marked.0).is_some(), "{}", marked.0);
        }
        for marked in CROWDS {
            assert!(MANY.contains(&marked.0), "{}", marked.0);
        }
    }

    #[test]
    fn encrypted_calls_and_pools_are_marked() {
        for (case, limit, must, reach) in SECURE.into_iter().chain(CLUSTER) {
            let row = |limit| {
                let row = Row::new(case).ours(&[3.0], &[]).limit(limit, &[4.0]);
                row.ratio(&[3.0], &[4.0])
            };
            assert_eq!(of(&row(limit)), Some(Mark::Ratio(must, reach)));
            assert_eq!(of(&row("udp-pingpong")), None);
            let known =
                crate::secure::CASES.contains(&case) || crate::cluster::CASES.contains(&case);
            assert!(known, "{case}");
        }
    }

    #[test]
    fn calls_across_a_network_are_marked_only_for_their_limits() {
        for marked in ACROSS {
            let [case, path, link, wait] = marked.key;
            let others = ["in-16m", BRIDGE_NULL, HTTP_NULL];
            let is_known = MANY.contains(&case) || others.contains(&case);
            assert!(is_known || Case::named(case).is_some(), "{case}");
            let row = |limit| {
                let (path, link, wait) = (Some(path), Some(link), Some(wait));
                let row = Row { path, link, wait, ..Row::new(case) };
                row.ours(&[3.0], &[]).limit(limit, &[4.0]).ratio(&[3.0], &[4.0])
            };
            assert_eq!(of(&row(marked.limits[0])), Some(marked.mark));
            assert_eq!(of(&row("tonic")), None);
        }
    }

    #[test]
    fn many_bindings_are_marked_and_few_are_not() {
        let row = |bindings| {
            let row = Row { bindings, ..Row::new(TURN) };
            row.ours(&[3.0], &[]).limit("block", &[4.0]).ratio(&[3.0], &[4.0])
        };
        assert_eq!(of(&row(1000)), Some(Mark::Ratio(1.25, 0.50)));
        assert_eq!(of(&row(100)), None);
    }

    #[test]
    fn many_callers_are_marked_and_one_is_not() {
        let row = |callers| {
            let row = Row { callers, bindings: 1, ..Row::new(THREADS) };
            row.ours(&[3.0], &[]).limit("spin", &[4.0]).ratio(&[3.0], &[4.0])
        };
        assert_eq!(of(&row(2)), Some(Mark::Ratio(1.00, 0.50)));
        assert_eq!(of(&row(1)), None);
    }
}
