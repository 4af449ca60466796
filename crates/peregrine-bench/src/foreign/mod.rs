//! The experiment `foreign`: measures calls by the protocols of other RPC systems, and the conversion of
//! values to XDR and back.
//!
//! Calls by ONC RPC are compared with exchanges of the same number of bytes by the same protocol and, with
//! the feature `peers`, with calls by libtirpc between two processes (`native/onc.c`). Calls by Courier are
//! compared with an exchange by TCP, and with Peregrine's own calls. Calls by ONC RPC through a bridge are
//! compared with the two calls of which they consist. Calls by HTTP through a bridge are compared with
//! requests to a server of `hyper`. All calls cross loopback.

mod array;
pub(crate) mod bridge;
pub(crate) mod courier;
pub(crate) mod onc;

use peregrine::sys::pin_to;

pub(crate) use self::array::ARRAY;
use self::onc::{Calls, Protocol};
use crate::cases::{Placement, Waiting};
use crate::local::split;
use crate::network::far::Far;
use crate::network::link::Link;
use crate::network::{Filter, Subject, on_each_link, rounds, row};
use crate::row::Row;
use crate::subject::Failure;
use crate::{Progress, Selection, machine};

/// The name of the limit that uses libtirpc, the C library for ONC RPC, at both ends.
pub(crate) const TIRPC: &str = "libtirpc";

/// The case of calls that do nothing.
const NULL: &str = "null";

/// Calls that are measured in the same rounds as their limits.
struct Measured {
    case: &'static str,
    protocol: Protocol,
    wait: Waiting,
    /// The number of bytes of arguments.
    bytes: u32,
    /// Whether the limits include an exchange of the same number of bytes, without RPC.
    pingpong: bool,
    /// Whether the limits include libtirpc.
    tirpc: bool,
}

const MEASURED: [Measured; 4] = {
    use Protocol::{Tcp, Udp};
    use Waiting::{Block, Spin};
    const FIRST: Measured =
        Measured { case: NULL, protocol: Udp, wait: Spin, bytes: 0, pingpong: true, tirpc: false };
    [
        FIRST,
        Measured { wait: Block, tirpc: true, ..FIRST },
        Measured { protocol: Tcp, wait: Block, ..FIRST },
        Measured {
            case: "in-48000",
            protocol: Tcp,
            wait: Block,
            bytes: onc::LARGE,
            pingpong: false,
            tirpc: true,
        },
    ]
};

/// Measures everything that was selected.
pub(crate) fn measure(selection: &Selection, progress: &Progress) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let filter = Filter::only(Link::Loopback);
    on_each_link(selection, &filter, PLACEMENT, |_, far| {
        for measured in MEASURED.iter().filter(|one| selection.has_case(one.case)) {
            let Measured { case, protocol, wait, .. } = measured;
            progress.show(&format!("{}, {}: {case}", protocol.name(), wait.name()));
            rows.extend(calls(selection, measured, far)?);
        }
        if selection.has_case(NULL) {
            for (path, ours, limit) in courier::compared() {
                progress.show(path);
                rows.push(against(selection, (NULL, path, courier::WAIT), ours, limit, far)?);
            }
        }
        for bridged in BRIDGED.iter().filter(|one| selection.has_case(one.case)) {
            progress.show(bridged.case);
            let &Bridged { case, path, wait, ours, limit } = bridged;
            let (ours, limit) = (Box::new(ours), Box::new(limit));
            rows.push(against(selection, (case, path, wait), ours, limit, far)?);
        }
        Ok(())
    })?;
    if selection.has_case(ARRAY) {
        progress.show(ARRAY);
        rows.push(on_one_processor(|| array::measure(selection))?);
    }
    Ok(rows)
}

/// Calls through a bridge, and their limit.
struct Bridged {
    case: &'static str,
    path: &'static str,
    wait: Waiting,
    ours: bridge::Calls,
    limit: bridge::Calls,
}

const BRIDGED: [Bridged; 2] = {
    use bridge::Calls;
    const WAIT: Waiting = Waiting::Adaptive;
    [
        Bridged {
            case: bridge::BRIDGE_NULL,
            path: Protocol::Udp.name(),
            wait: WAIT,
            ours: Calls::Bridge(WAIT),
            limit: Calls::BothAlone(WAIT),
        },
        Bridged {
            case: bridge::HTTP_NULL,
            path: bridge::HTTP,
            wait: Waiting::Block,
            ours: Calls::Http,
            limit: Calls::Echo,
        },
    ]
};

/// Measures a subject and its limit in the same rounds. Returns the row, which has the given case, path and
/// wait.
fn against(
    selection: &Selection,
    (case, path, wait): (&'static str, &'static str, Waiting),
    ours: Box<dyn Subject>,
    limit: Box<dyn Subject>,
    far: &mut Far,
) -> Result<Row, Failure> {
    let name = limit.name();
    let samples = rounds(selection, far, vec![ours, limit])?;
    let ((ours, cpu), (base, _)) = (split(&samples[0]), split(&samples[1]));
    let row = row(case, Some(path), wait, PLACEMENT, far.link());
    let row = row.ours(&ours, &cpu).limit(name, &base).ratio(&ours, &base);
    Ok(Row { bindings: 1, ..row })
}

/// Where the processes run.
const PLACEMENT: Placement = Placement::TwoCores;

/// Measures calls and their limits in the same rounds. Returns a row for each limit.
fn calls(selection: &Selection, measured: &Measured, far: &mut Far) -> Result<Vec<Row>, Failure> {
    let &Measured { case, protocol, wait, bytes, pingpong, tirpc } = measured;
    let ours = Calls { protocol, wait, bytes };
    let (mut names, mut subjects) = (Vec::new(), vec![Box::new(ours) as Box<dyn Subject>]);
    if pingpong {
        let limit = protocol.pingpong(wait);
        names.push(limit.name());
        subjects.push(limit);
    }
    if tirpc && let Some(peer) = peer(measured, far)? {
        names.push(TIRPC);
        subjects.push(peer);
    }
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let samples = rounds(selection, far, subjects)?;
    let (ours, cpu) = split(&samples[0]);
    let rows = names.into_iter().zip(&samples[1..]).map(|(name, samples)| {
        let (limit, _) = split(samples);
        let row = row(case, Some(protocol.name()), wait, PLACEMENT, far.link());
        let row = row.ours(&ours, &cpu).limit(name, &limit).ratio(&ours, &limit);
        Row { bindings: 1, ..row }
    });
    Ok(rows.collect())
}

/// Starts the client and the server of libtirpc. Returns `None`, and reports why, if these programs are
/// missing.
#[cfg(feature = "peers")]
fn peer(measured: &Measured, far: &Far) -> Result<Option<Box<dyn Subject>>, Failure> {
    use crate::network::other::{Pair, Peer};
    let peer = match measured.protocol {
        Protocol::Udp => Peer::OncRpc,
        Protocol::Tcp => Peer::OncRpcTcp,
    };
    if let Some(why) = peer.missing() {
        eprintln!("{}, {}, {TIRPC}: skipped: {why}", measured.protocol.name(), measured.case);
        return Ok(None);
    }
    let cpus = PLACEMENT.processors(&machine::processors()).unwrap_or_default();
    Ok(Some(Box::new(Pair::start_onc(peer, far, cpus, measured.bytes)?)))
}

/// Reports that this program was built without the limit of libtirpc.
#[cfg(not(feature = "peers"))]
fn peer(measured: &Measured, _: &Far) -> Result<Option<Box<dyn Subject>>, Failure> {
    let (path, case) = (measured.protocol.name(), measured.case);
    eprintln!(
        "{path}, {case}, {TIRPC}: skipped: this program was built without the feature `peers`"
    );
    Ok(None)
}

/// Runs `measure` on one processor, on a thread of its own.
fn on_one_processor<T: Send>(
    measure: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // The last processor is used, because the first processors often handle the machine's interrupts.
            if let Some(cpu) = machine::processors().last() {
                pin_to(*cpu)?;
            }
            measure()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::{self, Mark};

    #[test]
    fn every_row_has_a_mark() {
        let marked = |row: Row, limit| {
            let row = row.ours(&[3.0], &[]).limit(limit, &[4.0]).ratio(&[3.0], &[4.0]);
            assert!(matches!(marks::of(&row), Some(Mark::Ratio(..))), "{row:?}");
        };
        for Measured { case, protocol, wait, pingpong, tirpc, .. } in MEASURED {
            let row = || row(case, Some(protocol.name()), wait, PLACEMENT, Link::Loopback);
            if pingpong {
                marked(row(), protocol.pingpong(wait).name());
            }
            if tirpc {
                marked(row(), TIRPC);
            }
        }
        for Bridged { case, path, wait, limit, .. } in BRIDGED {
            marked(row(case, Some(path), wait, PLACEMENT, Link::Loopback), limit.name());
        }
        for (path, _, limit) in courier::compared() {
            let row = row(NULL, Some(path), courier::WAIT, PLACEMENT, Link::Loopback);
            marked(row, limit.name());
        }
        marked(Row::new(ARRAY), array::COPIES);
    }
}
