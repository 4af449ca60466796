//! Identifies the network that this process sees.

use core::hash::{Hash as _, Hasher as _};
use std::sync::OnceLock;

/// Returns a number that identifies this boot of this machine and the network namespace of this process. If
/// two processes have equal numbers, the same address means the same endpoint to both.
pub(crate) fn network_number() -> u64 {
    static NOBODY_ELSES: OnceLock<u64> = OnceLock::new();
    let mut hasher = siphasher::sip::SipHasher13::new();
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id");
    let net = rustix::fs::stat("/proc/thread-self/ns/net").map(|stat| (stat.st_dev, stat.st_ino));
    match (boot, net) {
        (Ok(boot), Ok(net)) => (boot, net).hash(&mut hasher),
        // Without this information, the process is treated as the only one in its network: it gets a random
        // number.
        _ => {
            let own = || super::random().map_or(std::process::id().into(), u64::from_le_bytes);
            NOBODY_ELSES.get_or_init(own).hash(&mut hasher);
        }
    }
    hasher.finish()
}
