//! Which network this process sees.

use core::hash::{Hash as _, Hasher as _};

/// A number of this machine, since it was booted, and of this process's network namespace: what the
/// same addresses mean the same in.
pub(crate) fn network_number() -> u64 {
    let mut hasher = siphasher::sip::SipHasher13::new();
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id");
    boot.unwrap_or_default().hash(&mut hasher);
    let net = rustix::fs::stat("/proc/self/ns/net").map(|stat| (stat.st_dev, stat.st_ino));
    net.unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}
