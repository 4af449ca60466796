//! Peregrine's Tables 1 to 7.

use super::firefly::megabits;
use super::measure::{accounts, local, network, processors};
use super::measured::Measured;
use super::paper::peregrine as paper;
use super::table::{Cell, Column, Paper, Table, exact, label, ours, ratio, theirs};
use crate::cases::{Placement, Waiting};
use crate::network::link::Link;
use crate::network::path::Path;

const SPIN: Waiting = Waiting::Spin;

fn table(name: &'static str, title: &str, columns: Vec<Column>) -> Table {
    Table::new(Paper::Peregrine, name, title, columns)
}

fn us(ns: Option<f64>) -> Cell {
    ns.map(|ns| ns / 1e3).into()
}

/// Returns the network penalty of a number of packets, over UDP and in raw Ethernet frames.
fn penalties(measured: &Measured, case: &str) -> [Option<f64>; 2] {
    [Path::Udp, Path::Ethernet].map(|path| measured.value(&network::penalty_key(path, case)))
}

pub(super) fn table_1(measured: &Measured) -> Table {
    let columns = vec![
        label("data"),
        label("packet"),
        theirs("wire", ""),
        theirs("penalty", ""),
        theirs("overhead", ""),
        theirs("ratio", ""),
        ours("UDP", ""),
        ours("Ethernet", ""),
    ];
    let mut table = table(
        "Table 1",
        "The network penalty of one packet in microseconds, by its bytes.",
        columns,
    );
    for (bytes, total, wire, penalty, overhead) in paper::PENALTIES {
        let [udp, ethernet] = penalties(measured, &format!("packet-{bytes}"));
        table.grids[0].row(vec![
            bytes.to_string().into(),
            total.to_string().into(),
            exact(wire),
            exact(penalty),
            exact(overhead),
            ratio(Some(penalty), Some(wire)),
            us(udp),
            us(ethernet),
        ]);
    }
    table.minimum = Some(
        "the time on the wire. Ours has no wire: both machines share one memory, and the penalty is only \
        the work of the kernel."
            .into(),
    );
    table.how = "Half of a round trip in which both sides send one packet and poll, over UDP and by AF_XDP \
        in raw Ethernet frames. The sizes are those of the IP packet, or of what follows the Ethernet \
        header. Our smallest frame is larger than the paper's."
        .into();
    table.changed = "The penalty grew with every byte, because a byte took most of a microsecond on the \
        wire. Today the number of packets counts, and hardly the bytes: the kernel's work for a packet is \
        the same for all of these sizes."
        .into();
    table
}

pub(super) fn table_2(measured: &Measured) -> Table {
    let columns = vec![
        label("bytes"),
        label("packets"),
        theirs("penalty", "ms"),
        theirs("Mbit/s", ""),
        ours("UDP", "us"),
        ours("Mbit/s", ""),
        ours("Ethernet", "us"),
        ours("Mbit/s", ""),
    ];
    let mut table = table("Table 2", "The network penalty of several packets.", columns);
    for (bytes, packets, penalty, bandwidth) in paper::STREAMS {
        let case =
            if packets == 1 { "packet-1500".to_owned() } else { format!("packets-{packets}") };
        let mut row = vec![
            bytes.to_string().into(),
            packets.to_string().into(),
            exact(penalty),
            exact(bandwidth),
        ];
        for ns in penalties(measured, &case) {
            row.extend([us(ns), ns.map(|ns| f64::from(bytes) * 8e3 / ns).into()]);
        }
        table.grids[0].row(row);
    }
    table.minimum = Some("the wire's bandwidth: 10 Mbit/s in the paper, and none here.".into());
    table.how =
        "As in Table 1. Over UDP, the kernel takes and gives up to 64 packets in one system call \
        (GSO and GRO)."
            .into();
    table.changed = "The wire bounded the bandwidth, so each packet cost the same. Today the fixed work of a \
        system call bounds it, so several packets at a time cost little more than one, over UDP. Raw \
        frames by AF_XDP are copied one by one in this virtual device."
        .into();
    table
}

/// Our cases of Table 3, in the order of the paper.
const SINGLE: [&str; 4] = ["null", "in-4", "in-1024", "inout-1024"];
/// Our cases of Table 5, with the bytes of both directions.
const MULTI: [(&str, u32); 4] =
    [("in-3000", 3000), ("inout-3000", 6000), ("in-48000", 48_000), ("inout-48000", 96_000)];

/// Returns the time of a call over the veth pair, and the time of its limit, the network penalty of both
/// directions.
fn call(measured: &Measured, path: Path, case: &str) -> [Option<f64>; 2] {
    [
        measured.value(&network::key(Link::Veth, path, SPIN, case)),
        measured.value(&network::limit_key(Link::Veth, path, SPIN, case)),
    ]
}

/// How calls across the network are measured.
const CALLS: &str = "Both sides poll. The penalty is the round trip of a program that sends the same \
    packets in both directions without RPC. It is measured in the same rounds as the calls.";

pub(super) fn table_3(measured: &Measured) -> Table {
    let columns = vec![
        label("procedure"),
        theirs("penalty", ""),
        theirs("measured", ""),
        theirs("ratio", ""),
        ours("penalty", ""),
        ours("UDP", ""),
        ours("ratio", ""),
        ours("Ethernet", ""),
        ours("ratio", ""),
    ];
    let mut table =
        table("Table 3", "Calls of one packet in each direction, in microseconds.", columns);
    for ((procedure, penalty, time, _), case) in paper::SINGLE.into_iter().zip(SINGLE) {
        let [udp, udp_least] = call(measured, Path::Udp, case);
        let [ethernet, ethernet_least] = call(measured, Path::Ethernet, case);
        table.grids[0].row(vec![
            procedure.into(),
            exact(penalty),
            exact(time),
            ratio(Some(time), Some(penalty)),
            us(udp_least),
            us(udp),
            ratio(udp, udp_least),
            us(ethernet),
            ratio(ethernet, ethernet_least),
        ]);
    }
    table.minimum = Some("the network penalty of the call packet and of the result packet.".into());
    table.how = format!(
        "{CALLS} The last two columns are calls in raw Ethernet frames (AF_XDP), with the \
        ratio to the same program there."
    );
    table.changed = "The Peregrine of 1991 took twice the penalty for a null call. What it saved by careful \
        code in the kernel is saved here by polling in the user's process, and what remains above the \
        penalty is the check of a header and the stubs."
        .into();
    table
}

pub(super) fn table_4(measured: &Measured) -> Table {
    let columns = vec![
        label("component"),
        theirs("time", "us"),
        ours("time", "us"),
        label("our part of the account"),
    ];
    let mut table = table("Table 4", "Where the time of a null call goes.", columns);
    // The numbers of the parts of the account, and their names. The operating system's parts are all in the
    // transfer.
    let parts: [Option<(&[usize], &str)>; 15] = [
        Some((&[0], "stub begins")),
        Some((&[1], "takes a frame, marshals")),
        None,
        Some((&[2], "makes the message")),
        Some((&[3], "transfer, with both kernels")),
        None,
        Some((&[4], "checks the call")),
        Some((&[5], "takes the arguments")),
        None,
        None,
        Some((&[6], "server stub and procedure")),
        Some((&[7], "makes the result")),
        None,
        Some((&[8], "takes the result")),
        Some((&[9], "unmarshals, ends")),
    ];
    for ((component, time), part) in paper::COMPONENTS.into_iter().zip(parts) {
        let ns = part.and_then(|(parts, _)| measured.parts(accounts::SPIN, parts));
        let name = part.map_or("in the transfer", |(_, name)| name);
        table.grids[0].row(vec![component.into(), exact(time), us(ns), name.into()]);
    }
    let account = measured.accounts.get(accounts::SPIN);
    let (sum, whole) = paper::COMPONENTS_TOTAL;
    let rows = [
        ("total of the components", sum, account.map(|account| account.sum_ns())),
        ("measured time of the whole call", whole, account.map(|account| account.whole_ns)),
    ];
    for (name, paper, ns) in rows {
        table.grids[0].row(vec![name.into(), exact(paper), us(ns), Cell::from("")]);
    }
    table.minimum = Some(
        "the network penalty of both packets, which is 52 % of the paper's sum. Ours is the transfer."
            .into(),
    );
    table.how = match account {
        Some(account) => format!(
            "An account of a null call over UDP and veth. Both sides poll. Every part is measured at the client \
            or at the server; the transfer is measured with messages in which no object takes part. The \
            parts leave {:.1} % of the call. The call takes {:.1} us in the account, and {:.1} us outside \
            of it.",
            100.0 * account.rest_ratio(),
            account.whole_ns / 1e3,
            account.plain_ns / 1e3
        ),
        None => "The account of this call was not measured.".into(),
    };
    table.changed = "The paper's kernel did everything: interrupts, traps, context switches and page \
        mappings were separate lines, each of several microseconds. Here all of these are Linux's, and one \
        line. Everything that Peregrine itself does is a small part of the whole."
        .into();
    table
}

pub(super) fn table_5(measured: &Measured) -> Table {
    let columns = vec![
        label("procedure"),
        theirs("penalty", ""),
        theirs("latency", ""),
        theirs("ratio", ""),
        theirs("Mbit/s", ""),
        ours("penalty", ""),
        ours("UDP", ""),
        ours("ratio", ""),
        ours("Mbit/s", ""),
    ];
    let mut table = table(
        "Table 5",
        "Calls of several packets: the paper's times in milliseconds, ours in microseconds.",
        columns,
    );
    for ((procedure, penalty, time, rate), (case, bytes)) in paper::MULTI.into_iter().zip(MULTI) {
        let [udp, least] = call(measured, Path::Udp, case);
        table.grids[0].row(vec![
            procedure.into(),
            exact(penalty),
            exact(time),
            ratio(Some(time), Some(penalty)),
            exact(rate),
            us(least),
            us(udp),
            ratio(udp, least),
            udp.map(|ns| f64::from(bytes) * 8e3 / ns).into(),
        ]);
    }
    table.minimum =
        Some("the network penalty of all packets of the call and of the result.".into());
    table.how = format!("{CALLS} Packets have at most 1,500 bytes.");
    table.changed = "The paper's large calls came close to the penalty, because the copy of a packet was \
        hidden in the time that the next one needed on the wire. Today there is no such time to hide a copy \
        in. The penalty itself is made of copies, so each further copy of a call shows in the ratio."
        .into();
    table
}

pub(super) fn table_6(measured: &Measured) -> Table {
    let columns = vec![
        label("procedure"),
        theirs("time", "us"),
        ours("spin", "us"),
        ours("lines", "us"),
        ours("ratio", ""),
        ours("block", "us"),
    ];
    let mut table = table("Table 6", "Local calls.", columns);
    let key = |subject: &str, case: &str| local::key(Placement::TwoCores, subject, case);
    for ((procedure, time), case) in paper::LOCAL.into_iter().zip(SINGLE) {
        let [spin, lines] = ["spin", "lines"].map(|subject| measured.value(&key(subject, case)));
        table.grids[0].row(vec![
            procedure.into(),
            exact(time),
            us(spin),
            us(lines),
            ratio(spin, lines),
            us(measured.value(&key("block", case))),
        ]);
    }
    table.minimum = Some(format!(
        "in the paper, a procedure call and two traps with a change of the address space: {} us, so the null \
        call takes {:.1} times the minimum. Ours is *lines*: two processors pass the same bytes in cache \
        lines to each other, and poll.",
        paper::LOCAL_LEAST,
        paper::LOCAL[0].1 / paper::LOCAL_LEAST
    ));
    table.how = "Each process has its own processor. *Block*: both sleep in the kernel while they \
        wait. LRPC's Table IV has calls on one processor."
        .into();
    table.changed =
        "The paper remapped the argument's page into the server, because copying a kilobyte was \
        dearer than a mapping. Today a mapping costs more than many kilobytes: it has to be \
        removed from the translation buffers of all processors. So Peregrine copies."
            .into();
    table
}

pub(super) fn table_7(measured: &Measured) -> Table {
    let columns = vec![
        label("system"),
        label("machine"),
        label("MIPS"),
        theirs("latency", "us"),
        theirs("Mbit/s", ""),
        ours("latency", "us"),
        ours("Mbit/s", ""),
    ];
    let mut table = table("Table 7", "Other systems: a null call, and the throughput.", columns);
    for (system, machine, processor, mips, latency, rate) in paper::SYSTEMS {
        table.grids[0].row(vec![
            system.into(),
            format!("{machine}, {processor}").into(),
            mips.into(),
            exact(latency),
            exact(rate),
            Cell::Missing,
            Cell::Missing,
        ]);
    }
    for (system, latency, rate) in systems_of_today(measured) {
        table.grids[0].row(vec![
            system.into(),
            "today".into(),
            Cell::Missing,
            Cell::Missing,
            Cell::Missing,
            us(latency),
            rate.into(),
        ]);
    }
    table.how = OTHER_SYSTEMS.into();
    table.changed = "The systems of the paper were operating systems, or parts of one, for one network. The \
        systems of today are libraries over sockets. All of them wait for the same two wake-ups, so they \
        differ by what they add to them: a protocol with streams and flow control for each call takes \
        longer than the wake-ups."
        .into();
    table
}

/// How other systems are measured.
pub(super) const OTHER_SYSTEMS: &str = "Ours are between two network namespaces, over veth. All systems sleep \
    while they wait, because the others cannot poll. The throughput is that of calls which return 1440 bytes, \
    by the number of threads that is fastest (Firefly's Table I), and of calls with 48,000 bytes in both \
    directions that poll (Table 5). The throughput of the other systems was not measured.";

/// Returns the systems of today: the name, the time of a null call in nanoseconds, and the throughput in
/// megabits per second.
pub(super) fn systems_of_today(measured: &Measured) -> Vec<(String, Option<f64>, Option<f64>)> {
    let of = |key: &str| measured.value(&network::peer_key(key));
    let mut systems: Vec<_> =
        network::PEERS.iter().map(|(key, what)| ((*what).to_owned(), of(key), None)).collect();
    let threads = (1..=8).filter_map(|threads| {
        measured.value(&processors::thread_key(processors::Spread::All, "out-1440", threads))
    });
    let fastest = threads.fold(f64::INFINITY, f64::min);
    let rate = megabits(Some(fastest).filter(|ns| ns.is_finite()));
    let key = network::key(Link::Veth, Path::Udp, SPIN, "inout-48000");
    let large = measured.value(&key).map(|ns| 96_000.0 * 8e3 / ns);
    let polling = measured.value(&network::key(Link::Veth, Path::Ethernet, SPIN, "null"));
    systems.extend([
        ("Peregrine, TCP".to_owned(), of("tcp"), None),
        ("Peregrine, UDP".to_owned(), of("udp"), rate),
        (
            "Peregrine, UDP, polling".to_owned(),
            measured.value(&network::key(Link::Veth, Path::Udp, SPIN, "null")),
            large,
        ),
        ("Peregrine, raw Ethernet, polling".to_owned(), polling, None),
    ]);
    systems
}
