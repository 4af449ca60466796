//! [`Balance`]: which of several servers a client calls.

/// Which of several servers of one name a client calls.
///
/// A client that binds chooses one server. A pool chooses one for each call. Both prefer the servers that
/// they reach over the fastest path ([`BindOptions::nearest_first`](crate::BindOptions::nearest_first)), and
/// `Balance` chooses among these.
///
/// ```
/// use peregrine::{Balance, BindOptions};
///
/// let options = BindOptions::default().balance(Balance::RoundRobin);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Balance {
    /// The first server in the order of the directory. The next one if the first one fails.
    First,
    /// A server at random.
    Random,
    /// Each server in turn. Each thread of a pool has a turn of its own.
    RoundRobin,
    /// The less loaded of two servers, which are chosen at random. A pool counts its own calls that are
    /// under way, and adds what each server has counted lately for its other clients.
    ///
    /// The two random choices are from M. Mitzenmacher, "The Power of Two Choices in Randomized Load
    /// Balancing", IEEE Transactions on Parallel and Distributed Systems 12(10), 2001.
    LeastLoaded,
    /// The server to which this key belongs. All clients with the same key choose the same server, as long as it
    /// serves. If a server is added or removed, only the keys that belong to this server change their server.
    /// The path is not considered.
    ///
    /// This is rendezvous hashing: D. Thaler and C. Ravishankar, "Using Name-Based Mappings to Increase Hit
    /// Rates", IEEE/ACM Transactions on Networking 6(1), 1998.
    Key(String),
}

impl Balance {
    /// Returns the weight of a server for a key. The key belongs to the server with the largest weight. This
    /// is the same on all machines.
    pub(crate) fn weight(key: &[u8], server: &str) -> u64 {
        use core::hash::Hasher as _;
        let mut hasher = siphasher::sip::SipHasher13::new();
        hasher.write(key);
        // No name of a server contains this byte, so different pairs are different bytes.
        hasher.write(&[0]);
        hasher.write(server.as_bytes());
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn owner<'a>(key: &str, servers: &[&'a str]) -> &'a str {
        servers.iter().max_by_key(|server| Balance::weight(key.as_bytes(), server)).unwrap()
    }

    #[test]
    fn keys_are_spread_and_only_those_of_a_removed_server_move() {
        let all = ["fs1", "fs2", "fs3", "fs4", "fs5"];
        let fewer = ["fs1", "fs2", "fs4", "fs5"];
        let mut counts: HashMap<&str, u32> = HashMap::new();
        for key in 0..10_000 {
            let key = format!("key {key}");
            let before = owner(&key, &all);
            *counts.entry(before).or_default() += 1;
            let after = owner(&key, &fewer);
            assert!(before == after || before == "fs3", "{key} moved from {before} to {after}");
        }
        assert_eq!(counts.len(), all.len());
        assert!(counts.values().all(|count| (1800..2200).contains(count)), "{counts:?}");
    }

    #[test]
    fn weight_is_the_same_on_all_machines() {
        // SipHash-1-3 of `user-42`, a zero byte and `fs1`, computed by another program.
        assert_eq!(Balance::weight(b"user-42", "fs1"), 3_353_405_324_271_143_727);
    }
}
