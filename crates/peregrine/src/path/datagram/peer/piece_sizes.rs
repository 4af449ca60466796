//! What gets through to each host: pieces that were narrowed because larger ones vanished on their way.
//!
//! Where routers say what they do not forward, the kernel keeps that for each host, and sockets ask it.
//! This is for paths on which nothing is said.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::sync::{Mutex, MutexGuard};
use crate::sys::PerProcess;

/// Paths change: after so long larger pieces are tried again, as the kernel does (`mtu_expires`).
const KEPT: Duration = Duration::from_secs(600);
/// Hosts that are remembered.
const HOSTS_MAX: usize = 1024;

type Widths = HashMap<IpAddr, (u32, Instant)>;

fn widths() -> MutexGuard<'static, Option<Widths>> {
    static WIDTHS: PerProcess<Mutex<Option<Widths>>> = PerProcess::new();
    WIDTHS.own().lock()
}

/// Pieces of so many bytes get through to a host, and larger ones do not.
pub(crate) fn learn(host: IpAddr, piece: u32) {
    let now = Instant::now();
    let mut widths = widths();
    let widths = widths.get_or_insert_with(HashMap::new);
    widths.retain(|_, (_, since)| now.duration_since(*since) < KEPT);
    if let Some((known, _)) = widths.get_mut(&host) {
        // It is as old as what was found first.
        *known = piece.min(*known);
    } else if widths.len() < HOSTS_MAX {
        widths.insert(host, (piece, now));
    }
}

/// Bytes of a piece that gets through to a host, if larger ones did not lately.
pub(crate) fn known(host: IpAddr) -> Option<u32> {
    let (piece, since) = *widths().as_ref()?.get(&host)?;
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
