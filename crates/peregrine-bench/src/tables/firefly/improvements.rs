//! Tables IX to XII, the speculations of section 4.2, and the Exerciser of section 5.

use super::super::measure::network::{self, PROTOCOLS, check_key, protocol_key};
use super::super::measure::processors::{Spread, thread_key};
use super::super::measure::{marshalled, versions};
use super::super::measured::Measured;
use super::super::paper::firefly as paper;
use super::super::peregrine::{OTHER_SYSTEMS, systems_of_today};
use super::super::plot::{self, Series};
use super::super::table::{Cell, Picture, Table, exact, label, ours, ratio, said, theirs, times};
use super::{megabits, table, us};
use crate::cases::Waiting;
use crate::network::link::Link;
use crate::network::path::Path;

pub(crate) fn table_9(measured: &Measured) -> Table {
    let columns = vec![
        label("version"),
        theirs("time", "us"),
        theirs("ratio", ""),
        label("our version"),
        ours("time", "ns"),
        ours("ratio", ""),
    ];
    let title = "Three versions of one routine: the Ethernet interrupt routine in the paper, and the check of a \
        packet's header here.";
    let mut table = table("Table IX", title, columns);
    let versions = ["plain, not optimized", "plain, optimized", "by hand, optimized"];
    let last = [paper::VERSIONS[2].1, measured.value(versions::KEYS[2]).unwrap_or(f64::NAN)];
    for (((version, time), own), key) in
        paper::VERSIONS.into_iter().zip(versions).zip(versions::KEYS)
    {
        let ns = measured.value(key);
        table.grids[0].row(vec![
            version.into(),
            exact(time),
            ratio(Some(time), Some(last[0])),
            own.into(),
            ns.into(),
            ratio(ns, Some(last[1])),
        ]);
    }
    table.how = "The routine reads a header of 64 bytes in the format of our packets, without its checksum. It \
        was written for this table, in two versions: field by field with a check for each, and by hand as \
        eight words with one check. The first row is the first version without optimization: the experiment \
        compiles the same file by `rustc -C opt-level=0` with debug assertions, and runs it. The other two are \
        in the program that measures. So the first row corresponds to a weak compiler, as the paper's was."
        .into();
    let [weak, plain, by_hand] = versions::KEYS.map(|key| measured.value(key));
    table.changed = format!(
        "The paper's compiler lost a factor of three to assembly language, and the authors expected less of a better \
        one. Here the version by hand takes {} times as long as the plain one if both are optimized, so there is no \
        assembly language in Peregrine. Without optimization, the plain version takes {} times as long.",
        times(by_hand, plain),
        times(weak, plain)
    );
    table
}

pub(crate) fn table_10(measured: &Measured) -> Table {
    let columns = vec![
        label("caller processors"),
        label("server processors"),
        theirs("1,000 calls", "s"),
        theirs("ratio", ""),
        ours("1,000 calls", "s"),
        ours("ratio", ""),
    ];
    let title = "Calls of `Null` by one thread, with different numbers of processors.";
    let mut table = table("Table X", title, columns);
    let of = |spread| measured.value(&thread_key(spread, "null", 1));
    let all = of(Spread::All);
    let most = paper::PROCESSORS[0].2;
    let seconds = |ns: Option<f64>| Cell::from(ns.map(|ns| ns * 1e3 / 1e9));
    for (caller, server, time) in paper::PROCESSORS {
        let spread = match (caller, server) {
            (5, 5) => Some(Spread::All),
            (1, 5) => Some(Spread::OneToAll),
            (1, 1) => Some(Spread::OneEach),
            _ => None,
        };
        let name = |count: u32| match (count, spread) {
            (5, Some(_)) => "5 (here: all)".to_owned(),
            _ => count.to_string(),
        };
        let ns = spread.and_then(of);
        table.grids[0].row(vec![
            name(caller).into(),
            name(server).into(),
            exact(time),
            ratio(Some(time), Some(most)),
            seconds(ns),
            ratio(ns, all),
        ]);
    }
    let shared = of(Spread::Shared);
    table.grids[0].row(vec![
        "1, shared".into(),
        "1, shared".into(),
        Cell::Missing,
        Cell::Missing,
        seconds(shared),
        ratio(shared, all),
    ]);
    table.how = "Over UDP and veth; both sides sleep while they wait. Both machines of the paper are one machine \
        here. *All* are all of its processors, which both sides may use. In the row of one and one, each side \
        has a processor that the other does not use. In the last row, both share one."
        .into();
    table.changed = format!(
        "A Firefly with one processor had to switch between the thread and the interrupt, and lost three quarters. \
        Here both sides on one shared processor take {} times as long as with all, and with one processor for each \
        side {} times as long: then every call wakes a processor that sleeps, twice.",
        times(shared, all),
        times(of(Spread::OneEach), all)
    );
    table
}

/// The columns of Table XI: which processors both sides have.
const SPREADS: [Spread; 3] = [Spread::All, Spread::OneToAll, Spread::OneEach];

pub(crate) fn table_11(measured: &Measured) -> Table {
    let mut columns = vec![label("threads")];
    columns.extend(["5, 5", "1, 5", "1, 1"].map(|name| theirs(name, "")));
    columns.extend(["all, all", "1, all", "1, 1", "shared"].map(|name| ours(name, "")));
    let title = "The throughput of `MaxResult` in Mbit/s, by the number of calling threads and the processors of \
        caller and server.";
    let mut table = table("Table XI", title, columns);
    let of = |spread, threads| megabits(measured.value(&thread_key(spread, "out-1440", threads)));
    for (threads, there) in paper::THROUGHPUT {
        let mut row = vec![threads.to_string().into()];
        row.extend(there.map(exact));
        row.extend(Spread::ALL.map(|spread| Cell::from(of(spread, threads))));
        table.grids[0].row(row);
    }
    table.how = "As in Table X, with as many threads at the server as at the caller. *Shared*: both sides are on \
        one processor. The picture shows each column in proportion to one thread with all processors."
        .into();
    let five = |spread| times(of(spread, 5), of(spread, 1));
    table.changed = format!(
        "In the paper, a second processor at the caller nearly doubled the throughput. Here it decides how often a \
        processor that sleeps has to be woken. If both sides have one processor each, five threads have {} times the \
        throughput of one, because packets arrive while a side is awake. With all processors it is {} times.",
        five(Spread::OneEach),
        five(Spread::All)
    );
    let line = |name: String, values: Vec<Option<f64>>, one: f64| Series {
        name,
        points: (1..)
            .zip(values)
            .filter_map(|(n, value)| Some((f64::from(n), value? / one)))
            .collect(),
    };
    let mut series = Vec::new();
    for (column, name) in ["five processors", "one and five", "one and one"].into_iter().enumerate()
    {
        let values = paper::THROUGHPUT.iter().map(|row| Some(row.1[column])).collect();
        series.push(line(format!("Firefly: {name}"), values, paper::THROUGHPUT[0].1[0]));
    }
    let one = of(Spread::All, 1).unwrap_or(1.0);
    for (spread, name) in SPREADS.into_iter().zip(["all processors", "one and all", "one and one"])
    {
        let values = (1..=5).map(|threads| of(spread, threads)).collect();
        series.push(line(format!("Peregrine: {name}"), values, one));
    }
    table.picture = Some(Picture {
        file: "firefly-table-11.svg",
        title: "The throughput of MaxResult by threads and processors".into(),
        svg: plot::lines(
            "The throughput of MaxResult by threads and processors",
            "threads",
            "times one thread with all processors",
            &series,
        ),
    });
    table
}

pub(crate) fn table_12(measured: &Measured) -> Table {
    let columns = vec![
        label("system"),
        label("machine"),
        label("MIPS"),
        theirs("ms", ""),
        theirs("Mbit/s", ""),
        ours("us", ""),
        ours("Mbit/s", ""),
    ];
    let mut table = table("Table XII", "Calls of other systems, between two machines.", columns);
    for (system, machine, mips, ms, rate) in paper::SYSTEMS {
        table.grids[0].row(vec![
            system.into(),
            machine.into(),
            mips.into(),
            exact(ms),
            exact(rate),
            Cell::Missing,
            Cell::Missing,
        ]);
    }
    for (system, ns, rate) in systems_of_today(measured) {
        table.grids[0].row(vec![
            system.into(),
            "today".into(),
            Cell::Missing,
            Cell::Missing,
            Cell::Missing,
            us(ns),
            rate.into(),
        ]);
    }
    table.how = OTHER_SYSTEMS.into();
    table.changed = "The paper's warning still holds: systems differ in what they do for a call, in how their stubs are made, and in what they check. At least all of these were measured on one machine, in the same \
        rounds."
        .into();
    table
}

/// Returns by how many per cent the time of `to` is shorter than that of `from`. Negative if it is longer.
fn saved(from: Option<f64>, to: Option<f64>) -> Cell {
    from.zip(to).map(|(from, to)| 100.0 * (from - to) / from).into()
}

pub(crate) fn speculations(measured: &Measured) -> Table {
    let columns = vec![
        label("improvement"),
        theirs("Null", "%"),
        theirs("MaxResult", "%"),
        ours("Null", "%"),
        ours("MaxResult", "%"),
        label("our switch"),
    ];
    let title = "How much faster calls would be, estimated in the paper, and measured here where it can be \
        switched.";
    let mut table = table("Section 4.2", title, columns);
    let [null, result] = network::FIREFLY;
    let call = |link, path, wait: Waiting, case: &str| {
        measured.value(&network::key(link, path, wait, case))
    };
    let veth = |path, case: &str| call(Link::Veth, path, Waiting::Spin, case);
    let each = |of: &dyn Fn(&str) -> [Option<f64>; 2]| {
        [null, result].map(|case| {
            let [from, to] = of(case);
            saved(from, to)
        })
    };
    let packet = veth(Path::EthernetPacket, null);
    let frames = veth(Path::Ethernet, null);
    let checks =
        each(&|case| [true, false].map(|checked| measured.value(&check_key(case, checked))));
    let protocols = PROTOCOLS.map(|(case, _)| {
        let [onc, own] = [true, false].map(|onc| measured.value(&protocol_key(case, onc)));
        saved(onc, own)
    });
    let networks = each(&|case| {
        [Link::Veth, Link::Loopback].map(|link| call(link, Path::Udp, Waiting::Spin, case))
    });
    let layers = each(&|case| [Path::Udp, Path::Ethernet].map(|path| veth(path, case)));
    let waits = each(&|case| {
        [Waiting::Block, Waiting::Spin].map(|wait| call(Link::Veth, Path::Udp, wait, case))
    });
    let recoded = [[0, 1], [2, 3]].map(|both| {
        let [generated, by_hand] = both.map(|which| measured.value(marshalled::EXERCISED[which]));
        saved(generated, by_hand)
    });
    let per_cent = |cell: &Cell| match cell {
        Cell::Number(number) => said(Some(*number), 0),
        _ => said(None, 0),
    };
    let (polling, raw) = (per_cent(&waits[0]), per_cent(&layers[0]));
    let rows: [([Cell; 2], &str); 8] = [
        ([saved(packet, frames), Cell::Missing], "AF_XDP, not AF_PACKET"),
        (networks, "loopback, not veth"),
        ([Cell::Missing, Cell::Missing], "none: the processor is what it is"),
        (checks, "no checksums of messages"),
        (protocols, "our protocol, not ONC RPC"),
        (layers, "raw Ethernet, not UDP"),
        (waits, "spin, not block"),
        (recoded, "client stubs by hand"),
    ];
    for ((improvement, null, result), ([first, second], switch)) in
        paper::SPECULATIONS.into_iter().zip(rows)
    {
        table.grids[0].row(vec![
            improvement.into(),
            exact(null[1]),
            exact(result[1]),
            first,
            second,
            switch.into(),
        ]);
    }
    table.how = "Each switch is measured with both positions in the same rounds, as far as both can run at a \
        time; positive numbers are savings. All are over veth, and both sides poll, unless the switch says \
        something else. 4.2.1: AF_XDP shares frames with the kernel, and AF_PACKET copies them; only `Null` is \
        measured. 4.2.5: over loopback, both sides sleep; in the place of `MaxResult`, 1440 bytes are an \
        argument. Courier's tables compare further protocols. 4.2.8: local calls that poll, by the stubs of section 5."
        .into();
    table.changed = format!(
        "The largest saving that the paper saw was a processor that is three times as fast, and it came many times \
        over. The second was to poll. Here that saves {} % of `Null`, and can be chosen for each binding. Raw Ethernet \
        saves {} %: not two headers, but the kernel's work for IP and UDP. Checksums of messages hardly count for \
        small calls, since processors have an instruction for them.",
        polling, raw
    );
    table
}

pub(crate) fn exerciser(measured: &Measured) -> Table {
    let columns = vec![
        label("call"),
        theirs("faster by", "us"),
        theirs("in %", ""),
        ours("generated", "ns"),
        ours("by hand", "ns"),
        ours("in %", ""),
        ours("no stubs", "ns"),
        ours("in %", ""),
    ];
    let title = "The RPC Exerciser: calls by hand-produced stubs, next to generated stubs.";
    let mut table = table("Section 5", title, columns);
    let times = [paper::THREADS[0].1, paper::THREADS[0].3].map(|seconds| seconds * 1e6 / 1e4);
    for (call, name) in ["Null", "MaxResult"].into_iter().enumerate() {
        let of = |which: usize| measured.value(marshalled::EXERCISED[which]);
        let [generated, by_hand] = [0, 1].map(|which| of(2 * call + which));
        // Only a null call can be made without any stub.
        let without = of(4).filter(|_| call == 0);
        table.grids[0].row(vec![
            name.into(),
            exact(paper::EXERCISER[call]),
            Some(100.0 * paper::EXERCISER[call] / times[call]).into(),
            generated.into(),
            by_hand.into(),
            saved(generated, by_hand),
            without.into(),
            saved(generated, without),
        ]);
    }
    table.how = "Local calls; both sides poll. The stubs *by hand* are client stubs for one procedure each. They \
        leave out what they know: the representation of the server, the bound of the array, and what could \
        follow the result. The call without stubs is a ping, which the runtime makes and answers without an \
        object or generated code. The paper's stubs also did no marshalling: they read and wrote packets in \
        place."
        .into();
    table.changed = "Hand-produced stubs saved a twentieth of a null call and a tenth of a large one. Generated \
        stubs are compiled together with the runtime today, and consist of what a programmer would write. So \
        little is left to gain by writing them by hand."
        .into();
    table
}
