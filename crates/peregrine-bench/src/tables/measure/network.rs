//! Measures calls and packets across links: network penalties, calls with their limits, switches of single
//! parts, and calls by other systems.

use super::super::measured::Measured;
use crate::cases::{Placement, Waiting};
use crate::foreign::onc::{self, Protocol};
use crate::local::split;
use crate::network::link::Link;
use crate::network::path::Path;
use crate::network::{self, Filter, on_each_link};
use crate::row::Row;
use crate::statistics::median;
use crate::subject::Failure;
use crate::{Progress, Selection};

/// Returns the key of the network penalty of packets of Peregrine's Table 1 or 2.
pub(crate) fn penalty_key(path: Path, case: &str) -> String {
    format!("penalty/{}/{case}", path.name())
}

/// Returns the key of a call across a link.
pub(crate) fn key(link: Link, path: Path, wait: Waiting, case: &str) -> String {
    format!("network/{}/{}/{}/{case}", link.name(), path.name(), wait.name())
}

/// Returns the key of the limit of a call across a link.
pub(crate) fn limit_key(link: Link, path: Path, wait: Waiting, case: &str) -> String {
    format!("{}/limit", key(link, path, wait, case))
}

/// Measures the network penalty over the veth pair.
pub(crate) fn penalty(
    into: &mut Measured,
    selection: &Selection,
    progress: &Progress,
) -> Result<(), Failure> {
    let rows = network::penalties(selection, &Filter::only(Link::Veth), progress)?;
    for row in rows {
        let (Some(ns), path) = (row.limit_ns, row.path.unwrap_or(Path::Udp.name())) else {
            continue;
        };
        if let Some(path) = Path::ALL.into_iter().find(|one| one.name() == path) {
            into.set(penalty_key(path, row.case), ns);
        }
    }
    Ok(())
}

/// The calls over the veth pair in which both sides poll.
pub(crate) const CASES: [&str; 9] = [
    "null",
    "in-4",
    "in-1024",
    "inout-1024",
    "in-3000",
    "inout-3000",
    "in-48000",
    "inout-48000",
    "out-1440",
];
/// The calls of Firefly's tables: `Null`, and `MaxResult`.
pub(crate) const FIREFLY: [&str; 2] = ["null", "out-1440"];

/// Adds the rows of an experiment in which both sides have a processor each.
fn add(into: &mut Measured, rows: &[Row]) {
    for row in rows.iter().filter(|row| row.placement == Some(Placement::TwoCores.name())) {
        let link = Link::ALL.into_iter().find(|one| Some(one.name()) == row.link);
        let path = Path::ALL.into_iter().find(|one| Some(one.name()) == row.path);
        let wait = Waiting::ALL.into_iter().find(|one| Some(one.name()) == row.wait);
        let (Some(link), Some(path), Some(wait)) = (link, path, wait) else { continue };
        // Calls over raw Ethernet are also compared with calls over UDP.
        if row.limit == Some("own-udp") {
            continue;
        }
        if let Some(ns) = row.ours_ns {
            into.set(key(link, path, wait, row.case), ns);
        }
        if let Some(ns) = row.limit_ns {
            into.set(limit_key(link, path, wait, row.case), ns);
        }
    }
}

/// Measures calls and their limits, and what single switches change.
pub(crate) fn calls(
    into: &mut Measured,
    selection: &Selection,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut selection = selection.clone();
    selection.placements = vec![Placement::TwoCores];
    let mut measure = |link, waits: &[Waiting], paths: &[Path], cases: &[&str]| {
        let only = Filter::only(link);
        let filter = Filter { waits: waits.to_vec(), paths: paths.to_vec(), ..only };
        let mut selection = selection.clone();
        selection.cases = cases.iter().map(|case| (*case).to_owned()).collect();
        add(into, &network::calls(&selection, &filter, cases, progress)?);
        Ok::<(), Failure>(())
    };
    let (all, both) =
        ([Path::Udp, Path::Ethernet, Path::EthernetPacket], [Waiting::Spin, Waiting::Block]);
    measure(Link::Veth, &both[..1], &all, &CASES)?;
    measure(Link::Veth, &both[1..], &all[..2], &FIREFLY)?;
    measure(Link::Loopback, &both, &all[..1], &FIREFLY)?;
    checks(into, &selection, progress)?;
    protocols(into, &selection, progress)
}

/// Returns the key of a call over UDP and veth, with or without checksums of its messages.
pub(crate) fn check_key(case: &str, checked: bool) -> String {
    format!("checks/{}/{case}", if checked { "with" } else { "without" })
}

/// Measures calls with and without checksums of messages.
fn checks(into: &mut Measured, selection: &Selection, progress: &Progress) -> Result<(), Failure> {
    on_each_link(selection, &Filter::only(Link::Veth), Placement::TwoCores, |_, far| {
        for case in FIREFLY {
            progress.show(&format!("tables: checksums: {case}"));
            let conditions = (Placement::TwoCores, Waiting::Spin);
            let row = network::checked(selection, case, case, Path::Udp, conditions, far)?;
            if let Some((with, without)) = row.and_then(|row| row.ours_ns.zip(row.limit_ns)) {
                into.set(check_key(case, true), with);
                into.set(check_key(case, false), without);
            }
        }
        Ok(())
    })
}

/// Returns the key of a call over UDP and loopback, with Peregrine's protocol or with that of ONC RPC.
pub(crate) fn protocol_key(case: &str, onc: bool) -> String {
    format!("protocols/{}/{case}", if onc { "onc" } else { "own" })
}

/// The calls that both protocols make. The second one takes as many bytes as `MaxResult` returns.
pub(crate) const PROTOCOLS: [(&str, u32); 2] = [("null", 0), ("in-1440", 1440)];

/// Measures calls with the protocol of ONC RPC, and the same calls with Peregrine's protocol.
fn protocols(
    into: &mut Measured,
    selection: &Selection,
    progress: &Progress,
) -> Result<(), Failure> {
    on_each_link(selection, &Filter::only(Link::Loopback), Placement::TwoCores, |_, far| {
        for (name, bytes) in PROTOCOLS {
            progress.show(&format!("tables: protocols: {name}"));
            let wait = Waiting::Block;
            let case = crate::cases::Case::named(name).ok_or("there is no such case")?;
            let onc = onc::Calls { protocol: Protocol::Udp, wait, bytes };
            let subjects = vec![network::ours(Path::Udp, case, wait), Box::new(onc) as _];
            let samples = network::rounds(selection, far, subjects)?;
            for (onc, samples) in [false, true].into_iter().zip(&samples) {
                into.set(protocol_key(name, onc), median(&split(samples).0));
            }
        }
        Ok(())
    })
}

/// The systems with which calls are compared: the name in the experiment `peers`, and what it is.
pub(crate) const PEERS: [(&str, &str); 3] = [
    ("onc-rpc", "ONC RPC (libtirpc, UDP)"),
    ("tonic", "gRPC (tonic, TCP)"),
    ("tarpc", "tarpc (TCP)"),
];

/// Returns the key of a null call of another system, or of ours (`udp`, `tcp`), over the veth pair.
pub(crate) fn peer_key(name: &str) -> String {
    format!("peers/{name}")
}

/// Measures null calls of other systems.
#[cfg(feature = "peers")]
pub(crate) fn peers(
    into: &mut Measured,
    selection: &Selection,
    progress: &Progress,
) -> Result<(), Failure> {
    for row in network::others(selection, progress)? {
        if row.link != Some(Link::Veth.name()) {
            continue;
        }
        if let Some((name, ns)) = row.limit.zip(row.limit_ns) {
            into.set(peer_key(name), ns);
        }
        if let Some((path, ns)) = row.path.zip(row.ours_ns) {
            into.set(peer_key(path), ns);
        }
    }
    Ok(())
}

/// The group of other systems is missing in this build.
#[cfg(not(feature = "peers"))]
pub(crate) fn peers(_: &mut Measured, _: &Selection, _: &Progress) -> Result<(), Failure> {
    Err("this program was built without its peers".into())
}
