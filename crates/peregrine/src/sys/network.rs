//! Which network this process sees.

use core::hash::{Hash as _, Hasher as _};
use std::sync::OnceLock;

/// A number of this machine, since it was booted, and of this process's network namespace: what the
/// same addresses mean the same in.
pub(crate) fn network_number() -> u64 {
    static NOBODY_ELSES: OnceLock<u64> = OnceLock::new();
    let mut hasher = siphasher::sip::SipHasher13::new();
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id");
    let net = rustix::fs::stat("/proc/thread-self/ns/net").map(|stat| (stat.st_dev, stat.st_ino));
    match (boot, net) {
        (Ok(boot), Ok(net)) => (boot, net).hash(&mut hasher),
        // Who cannot say where it is, is where nobody else is.
        _ => {
            let own = || super::random().map_or(std::process::id().into(), u64::from_le_bytes);
            NOBODY_ELSES.get_or_init(own).hash(&mut hasher);
        }
    }
    hasher.finish()
}
