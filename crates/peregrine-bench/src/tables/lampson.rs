//! The three tables of Lampson's handout.

use super::measure::hardware::{CACHE, DISK, MEMORY, bandwidth_key, latency_key};
use super::measure::{local, network};
use super::measured::Measured;
use super::paper::lampson as paper;
use super::table::{Cell, Column, Paper, Table, digits, label, ours, theirs};
use crate::cases::{Placement, Waiting};
use crate::network::link::Link;
use crate::network::path::Path;

fn table(name: &'static str, title: &str, columns: Vec<Column>) -> Table {
    Table::new(Paper::Lampson, name, title, columns)
}

/// Returns a time as text.
fn time(ns: Option<f64>) -> Cell {
    match ns {
        None => Cell::Missing,
        Some(ns) if ns < 1e3 => format!("{} ns", digits(ns)).into(),
        Some(ns) if ns < 1e6 => format!("{} us", digits(ns / 1e3)).into(),
        Some(ns) => format!("{} ms", digits(ns / 1e6)).into(),
    }
}

/// Returns a bandwidth in bytes per nanosecond as text.
fn rate(rate: Option<f64>) -> Cell {
    match rate {
        None => Cell::Missing,
        Some(rate) if rate >= 1.0 => format!("{} GB/s", digits(rate)).into(),
        Some(rate) => format!("{} MB/s", digits(rate * 1e3)).into(),
    }
}

fn hardware(measured: &Measured, of: &str) -> [Cell; 2] {
    [rate(measured.value(&bandwidth_key(of))), time(measured.value(&latency_key(of)))]
}

/// Returns the bandwidth and the latency of the veth pair.
fn link(measured: &Measured) -> [Cell; 2] {
    let penalty = |case: &str| measured.value(&network::penalty_key(Path::Udp, case));
    [rate(penalty("packets-64").map(|ns| 96_000.0 / ns)), time(penalty("packet-46"))]
}

fn columns(first: &str, second: &str, last: &str) -> Vec<Column> {
    vec![
        label(first),
        label(second),
        theirs("bandwidth", ""),
        theirs("latency", ""),
        theirs(last, ""),
        ours("bandwidth", ""),
        ours("latency", ""),
    ]
}

fn row(medium: &str, what: &str, there: [&str; 3], own: [Cell; 2]) -> Vec<Cell> {
    let mut row: Vec<Cell> = vec![medium.into(), what.into()];
    row.extend(there.map(|text| if text.is_empty() { Cell::Missing } else { text.into() }));
    row.extend(own);
    row
}

pub(super) fn table_1(measured: &Measured) -> Table {
    let mut table =
        table("Table 1", "Communication on a single link.", columns("medium", "link", "width"));
    for (medium, link, bandwidth, latency, width) in paper::LINKS {
        let there = [bandwidth, latency, width];
        table.grids[0].row(row(medium, link, there, [Cell::Missing, Cell::Missing]));
    }
    let today = [
        ("processor", "first-level cache", hardware(measured, CACHE)),
        ("board", "main memory", hardware(measured, MEMORY)),
        ("virtual LAN", "veth", link(measured)),
    ];
    for (medium, what, own) in today {
        table.grids[0].row(row(medium, what, ["", "", ""], own));
    }
    table.how = "The cache and the memory: one processor reads 16 KiB again and again, and 256 MiB; the latency \
        is that of a load whose address is the result of the previous load. veth: 64 packets of 1,500 bytes, \
        and one of 46, by Peregrine's Tables 1 and 2. A virtual machine has no PCI bus, Fibre Channel or SCSI \
        that could be measured."
        .into();
    table.changed = "Bandwidths have grown with the number of wires and their rates. Latencies inside a chip have \
        hardly changed, and the main memory is still far away: a program that waits for memory loses the time of many instructions for each load."
        .into();
    table
}

pub(super) fn table_2(measured: &Measured) -> Table {
    let title = "Communication through a switch that connects several links.";
    let mut table = table("Table 2", title, columns("medium", "switch", "links"));
    for (medium, switch, bandwidth, latency, links) in paper::SWITCHES {
        let there = [bandwidth, latency, links];
        table.grids[0].row(row(medium, switch, there, [Cell::Missing, Cell::Missing]));
    }
    let key = |subject: &str, case: &str| local::key(Placement::TwoCores, subject, case);
    let lines = measured.value(&key("lines", "null")).map(|trip| trip / 2.0);
    let call = measured.value(&key("spin", "in-1440")).map(|ns| 1440.0 / ns);
    table.grids[0].row(row(
        "chip",
        "between two processors",
        ["", "", ""],
        [rate(call), time(lines)],
    ));
    table.grids[0].row(row("kernel", "veth (forwards packets)", ["", "", ""], link(measured)));
    table.how = "Between two processors: the latency is half of a round trip of one cache line in each direction, \
        and the bandwidth is that of calls with 1440 bytes, one at a time. veth passes packets from one \
        network namespace to the other, and has two links."
        .into();
    table.changed = "The switch that local calls use is now inside of the processor's chip, and connects its cores. Two \
        processes that poll exchange messages over it without the kernel. The switch between machines is software \
        here, and every packet takes the time of a processor."
        .into();
    table
}

pub(super) fn table_3(measured: &Measured) -> Table {
    let columns = vec![
        label("medium"),
        theirs("bandwidth", ""),
        theirs("latency", ""),
        ours("bandwidth", ""),
        ours("latency", ""),
        label("today"),
    ];
    let mut table = table("Table 3", "Other kinds of work.", columns);
    let call = |path, wait: Waiting| measured.value(&network::key(Link::Veth, path, wait, "null"));
    let calls = |ns: Option<f64>| {
        let per_ms = ns.map_or(Cell::Missing, |ns| format!("{} calls/ms", digits(1e6 / ns)).into());
        [per_ms, time(ns)]
    };
    let durable = measured.value(&latency_key(DISK)).zip(call(Path::Udp, Waiting::Block));
    let durable = durable.map(|(disk, call)| disk + call);
    let transactions = [
        durable.map_or(Cell::Missing, |ns| format!("{} trans/s", digits(1e9 / ns)).into()),
        time(durable),
    ];
    let today: [([Cell; 2], &str); 5] = [
        (hardware(measured, DISK), "synchronized"),
        (calls(call(Path::Ethernet, Waiting::Spin)), "Ethernet, spin"),
        (calls(call(Path::Udp, Waiting::Block)), "UDP, block"),
        (transactions, "calculated"),
        ([Cell::Missing, Cell::Missing], "not measured"),
    ];
    for ((medium, bandwidth, latency), (own, what)) in paper::WORK.into_iter().zip(today) {
        let [first, second] = own;
        table.grids[0].row(vec![
            medium.into(),
            bandwidth.into(),
            latency.into(),
            first,
            second,
            what.into(),
        ]);
    }
    table.how = "The disk is the one with the temporary files: 64 MiB are written and synchronized, and 512 bytes \
        at a time. Calls are made one after the other. Raw Ethernet by AF_XDP takes the place of VIA: both \
        let a program use a network interface without system calls on its fast path. A transaction is the sum of one \
        call and one synchronized write, one at a time; an airline makes many at a time."
        .into();
    table.changed = "Disks have no moving parts any more, and a call takes microseconds instead of a millisecond. What was a special network in 2002 is what an ordinary kernel offers today, and a call over it takes less time than a call by UDP \
        in which both sides sleep."
        .into();
    table
}
