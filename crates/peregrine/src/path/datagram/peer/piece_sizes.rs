//! A table of hosts, with the size of the largest message pieces that reach each host. A host is in the table
//! if larger pieces were lost, and no router reported that they are too large.
//!
//! If a router reports that a packet is too large, the kernel remembers the path MTU of the host, and sockets
//! can read it. This table is for routes whose routers send no such report.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::sync::{Mutex, MutexGuard};
use crate::sys::PerProcess;

/// How long an entry is valid. Routes change, so after this time the client tries larger pieces again. The
/// kernel also forgets a path MTU after some time (`mtu_expires`).
const KEPT: Duration = Duration::from_secs(600);
/// The largest number of hosts in the table.
const HOSTS_MAX: usize = 1024;

type Sizes = HashMap<IpAddr, (u32, Instant)>;

fn sizes() -> MutexGuard<'static, Option<Sizes>> {
    static SIZES: PerProcess<Mutex<Option<Sizes>>> = PerProcess::new();
    SIZES.own().lock()
}

/// Notes that pieces of this size reach a host, and that larger pieces do not.
pub(crate) fn learn(host: IpAddr, piece: u32) {
    let now = Instant::now();
    let mut sizes = sizes();
    let sizes = sizes.get_or_insert_with(HashMap::new);
    sizes.retain(|_, (_, since)| now.duration_since(*since) < KEPT);
    if let Some((known, _)) = sizes.get_mut(&host) {
        // The entry keeps the time at which it was created.
        *known = piece.min(*known);
    } else if sizes.len() < HOSTS_MAX {
        sizes.insert(host, (piece, now));
    }
}

/// Returns the size of the largest pieces that reach a host, or `None` if no larger pieces were lost
/// recently.
pub(crate) fn known(host: IpAddr) -> Option<u32> {
    let (piece, since) = *sizes().as_ref()?.get(&host)?;
    (since.elapsed() < KEPT).then_some(piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrowest_piece_of_each_host_is_kept() {
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap());
        assert_eq!(known(one), None);
        learn(one, 704);
        learn(one, 1296);
        assert_eq!((known(one), known(other)), (Some(704), None));
        learn(one, 512);
        assert_eq!(known(one), Some(512));
    }
}
