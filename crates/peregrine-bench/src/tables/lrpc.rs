//! LRPC's Tables I to V, and its two figures.

use super::measure::{accounts, census, local, processors};
use super::measured::Measured;
use super::paper::lrpc as paper;
use super::plot::{self, Series};
use super::table::{
    Cell, Grid, Paper, Picture, Table, digits, exact, exact_or_missing, label, ours, ratio, theirs,
};
use crate::cases::{Placement, Waiting};

const ONE: Placement = Placement::OneCore;

fn table(name: &'static str, title: &str, grids: Vec<Grid>) -> Table {
    Table {
        paper: Paper::Lrpc,
        name,
        title: title.to_owned(),
        grids,
        minimum: None,
        how: String::new(),
        changed: String::new(),
        picture: None,
    }
}

/// Returns the minimum of a null call on one processor: a procedure call, two traps and two context switches.
fn least(measured: &Measured) -> Option<f64> {
    let keys = [local::key(ONE, "procedure", "null"), local::key(ONE, "yield", "null")];
    measured.sum(&[&keys[0], &keys[1]])
}

pub(super) fn table_1(measured: &Measured) -> Table {
    let columns =
        vec![label("system"), theirs("remote operations", "%"), ours("remote operations", "%")];
    let mut grid = Grid::new("", columns);
    for (system, percent) in paper::REMOTE {
        grid.row(vec![system.into(), exact(percent), Cell::Missing]);
    }
    let own = measured.value("packets/own");
    let other = measured.value("packets/other");
    let percent = own.zip(other).map(|(own, other)| 100.0 * other / (own + other).max(1.0));
    grid.row(vec!["this machine, IP packets".into(), Cell::Missing, percent.into()]);
    let mut table = table("Table I", "The frequency of remote activity.", vec![grid]);
    table.how = "The paper counts the operations of whole systems: messages in V, calls in Taos, and \
        system calls and NFS requests in UNIX. Our population is the packets that this machine has sent \
        since it was started, by the counters of its network interfaces: those over loopback are local, \
        and all others are remote. Calls through shared memory and Unix sockets are in no counter, so our \
        percentage is too large in comparison with the paper's."
        .into();
    table.changed = "What crosses machine boundaries depends on what the machine is for. A workstation of \
        1989 rarely needed another machine. Today a program may have all of its services elsewhere. \
        Peregrine therefore optimizes both, and chooses the path when a client binds."
        .into();
    table
}

pub(super) fn table_2(measured: &Measured) -> Table {
    let columns = vec![
        label("system"),
        label("processor"),
        theirs("min.", ""),
        theirs("time", ""),
        theirs("overhead", ""),
        theirs("ratio", ""),
        ours("min.", ""),
        ours("time", ""),
        ours("overhead", ""),
        ours("ratio", ""),
    ];
    let mut grid = Grid::new("", columns);
    let none = || [Cell::Missing, Cell::Missing, Cell::Missing, Cell::Missing];
    for (system, processor, least, actual, overhead) in paper::NULLS {
        let mut row = vec![system.into(), processor.into()];
        row.extend([
            exact(least),
            exact(actual),
            exact(overhead),
            ratio(Some(actual), Some(least)),
        ]);
        row.extend(none());
        grid.row(row);
    }
    let least = least(measured);
    let systems = [
        ("Peregrine, memory", local::key(ONE, "block", "null")),
        ("Peregrine, UDP", local::message_key("null")),
        ("two futexes", local::key(ONE, "futex", "null")),
    ];
    for (system, key) in systems {
        let actual = measured.value(&key);
        let overhead = actual.zip(least).map(|(actual, least)| actual - least);
        let mut row = vec![system.into(), "today".into()];
        row.extend(none());
        let us = |ns: Option<f64>| Cell::from(ns.map(|ns| ns / 1e3));
        row.extend([us(least), us(actual), us(overhead), ratio(actual, least)]);
        grid.row(row);
    }
    let mut table = table(
        "Table II",
        "A null call between two domains of one machine, in microseconds.",
        vec![grid],
    );
    table.minimum = Some(MINIMUM.into());
    table.how = "Ours are two processes on one processor, which sleep while they wait. *Memory* is the \
        local path. *UDP* is the same call over loopback, with messages that the kernel copies, as in the \
        systems of the paper. *Two futexes* is a program without RPC that wakes the other process and \
        sleeps, and so needs four system calls."
        .into();
    table.changed = "The minimum still has the same parts: traps and context switches. Both have become \
        faster with the processors, and the work of the stubs has become faster still. So the switches \
        are an even larger part of a call, and messages through the kernel still take several times the \
        minimum."
        .into();
    table
}

/// What the minimum of a local call is.
const MINIMUM: &str = "a procedure call, two kernel traps and two context switches, in the paper and \
    here. Here it is measured: a call of an empty procedure, and a round trip of two processes on one \
    processor that only yield to each other.";

pub(super) fn table_3(_: &Measured) -> Table {
    let columns = vec![
        label("operation"),
        theirs("LRPC", ""),
        theirs("messages", ""),
        theirs("restricted messages", ""),
        ours("local path", ""),
        ours("UDP", ""),
    ];
    let mut grid = Grid::new("", columns);
    let [now, udp] = [["AE", "AE", "F"], ["ABCE", "ABCE", "BCF"]];
    for ((operation, there), (now, udp)) in paper::COPIES.into_iter().zip(now.into_iter().zip(udp))
    {
        let mut row = vec![operation.into()];
        row.extend(there.map(Cell::from));
        row.extend([
            format!("{now} ({})", now.len()).into(),
            format!("{udp} ({})", udp.len()).into(),
        ]);
        grid.row(row);
    }
    let mut table = table("Table III", "The copies of a call, with their number.", vec![grid]);
    table.how = "A: from the client's stack to the message or A-stack. B: from the sender to the kernel. \
        C: from the kernel to the receiver. D: from the sender or the kernel to the receiver. E: from the \
        message or A-stack to the server's stack. F: from the message or A-stack into the results of the \
        client. Ours are not measured but counted, by the tests of the library (`tests/counts.rs`): every \
        call, also one with mutable parameters, makes copy E, because the memory of an A-stack stays \
        writable by the client. Only an argument that is `Lent` leaves it out."
        .into();
    table.changed = "Nothing: the number of copies is a matter of protection, and not of machines. UDP \
        copies as messages did in 1989, because the kernel is between both processes. A copy of a small argument hardly costs anything today, so copy E is made for all of them."
        .into();
    table
}

/// The tests of Table IV: our case, and what the paper's test passes.
const TESTS: [(&str, &str); 4] = [
    ("null", "nothing"),
    ("add", "two integers in, one out"),
    ("in-200", "200 bytes in"),
    ("inout-200", "200 bytes in and out"),
];

pub(super) fn table_4(measured: &Measured) -> Table {
    let times = ["LRPC/MP", "LRPC", "Taos"].map(|name| theirs(name, ""));
    let mut columns = vec![label("test")];
    columns.extend(times);
    columns.extend(["spin", "block", "UDP"].map(|name| ours(name, "")));
    columns.extend([theirs("LRPC/min.", ""), ours("block/min.", "")]);
    let mut grid = Grid::new("", columns);
    let minimum = least(measured);
    for ((test, there), (case, _)) in paper::TESTS.into_iter().zip(TESTS) {
        let one = measured.value(&local::key(ONE, "block", case));
        let mut row = vec![test.into()];
        row.extend(there.map(exact));
        row.push(measured.us(&local::key(Placement::TwoCores, "spin", case)).into());
        row.push(one.map(|ns| ns / 1e3).into());
        row.push(measured.us(&local::message_key(case)).into());
        row.push(ratio(Some(there[1]), Some(paper::PARTS_TOTAL.0)));
        row.push(ratio(one, minimum));
        grid.row(row);
    }
    let what =
        TESTS.iter().zip(paper::TESTS).map(|((_, what), (test, _))| format!("{test}: {what}"));
    let title = format!("Four tests, in microseconds. {}.", what.collect::<Vec<_>>().join("; "));
    let mut table = table("Table IV", &title, vec![grid]);
    table.minimum = Some(MINIMUM.into());
    table.how = "*Spin* has a processor for each side, and both poll memory: the counterpart of LRPC/MP, \
        which keeps domains on idle processors. *Block* has one processor for both, as the paper's column \
        LRPC. *UDP* is the same call with messages through the kernel, on one processor, in the place of \
        Taos."
        .into();
    table.changed = "On a multiprocessor, LRPC avoided a part of the context switches, and gained a fifth. \
        Today two processes on two processors need no kernel at all, and a call is only the movement of \
        cache lines between processors. On one processor, the switches remain."
        .into();
    table
}

pub(super) fn table_5(measured: &Measured) -> Table {
    let columns = vec![
        label("operation"),
        theirs("minimum", "us"),
        theirs("overhead", "us"),
        ours("minimum", "us"),
        ours("overhead", "us"),
        label("how"),
    ];
    let mut grid = Grid::new("", columns);
    let us = |ns: Option<f64>| Cell::from(ns.map(|ns| ns / 1e3));
    let call = measured.value(&local::key(ONE, "procedure", "null"));
    let traps = measured.value(&local::key(ONE, "syscall", "null")).map(|ns| 2.0 * ns);
    let switches = measured.value(&local::key(ONE, "yield", "null")).zip(traps);
    let switches = switches.map(|(trip, traps)| trip - traps);
    let least = least(measured);
    // The client's stub, the server's stub and the procedure.
    let stubs = measured.parts(accounts::LOCAL, &[0, 1, 6, 9]);
    let transfer = measured.parts(accounts::LOCAL, &[2, 3, 4, 5, 7, 8]);
    // The minimum consists of traps and switches, which are in the transfer, and of a call.
    let kernel = transfer.zip(least).map(|(transfer, least)| transfer - least);
    let parts = [
        (call, None, "measured"),
        (traps, None, "measured"),
        (switches, None, "calculated: two yields without the traps"),
        (None, stubs, "account"),
        (None, kernel, "calculated: the account without the minimum"),
    ];
    for ((part, low, over), (ours_low, ours_over, how)) in paper::PARTS.into_iter().zip(parts) {
        let row = vec![
            part.into(),
            exact_or_missing(low),
            exact_or_missing(over),
            us(ours_low),
            us(ours_over),
            how.into(),
        ];
        grid.row(row);
    }
    let overhead = stubs.zip(kernel).map(|(stubs, kernel)| stubs + kernel);
    let (low, over) = paper::PARTS_TOTAL;
    grid.row(vec!["total".into(), exact(low), exact(over), us(least), us(overhead), "sums".into()]);
    let mut table = table("Table V", "The parts of a null call on one processor.", vec![grid]);
    table.minimum = Some(MINIMUM.into());
    table.how = match measured.accounts.get(accounts::LOCAL) {
        Some(account) => format!(
            "The account measures each part of the call at the client or at the server. Its parts leave a \
            rest of {:.1} % of the call. *Stubs* includes the server's procedure. *Kernel transfer* is \
            what the transfer takes beyond the minimum, so it has the two further system calls of a call \
            that sleeps.",
            100.0 * account.rest_ratio()
        ),
        None => "The account of this call was not measured.".into(),
    };
    table.changed = "LRPC's kernel validated the caller and switched the thread to the other domain. \
        Here the kernel knows nothing of calls: it only wakes a thread that sleeps at a word of memory. \
        The stubs are a small part of a call that sleeps, and nearly all of it is what Linux takes to \
        switch between processes."
        .into();
    table
}

/// The upper ends of the classes of Figure 1, in bytes.
const CLASSES: [u64; 9] = [50, 100, 200, 300, 500, 750, 1000, 1450, 1800];

pub(super) fn figure_1(measured: &Measured) -> Table {
    let columns =
        vec![label("bytes"), ours("calls", ""), ours("calls", "%"), ours("calls up to here", "%")];
    let mut grid = Grid::new("", columns);
    let total: u64 = measured.sizes.values().sum();
    let percent = |calls: u64| 100.0 * calls as f64 / total.max(1) as f64;
    let (mut from, mut below, mut bars) = (0, 0, Vec::new());
    for to in CLASSES.into_iter().chain([u64::MAX]) {
        let calls: u64 = measured.sizes.range(from..to).map(|(_, calls)| calls).sum();
        below += calls;
        let class = if to == u64::MAX {
            format!("{from} or more")
        } else {
            format!("{from} to {}", to - 1)
        };
        grid.row(vec![
            class.clone().into(),
            (total > 0).then_some(calls as f64).into(),
            (total > 0).then_some(percent(calls)).into(),
            (total > 0).then_some(percent(below)).into(),
        ]);
        bars.push((class.replace(" to ", "-").replace(" or more", "+"), percent(calls)));
        from = to;
    }
    let small: u64 = measured.sizes.range(..200).map(|(_, calls)| calls).sum();
    let mut table = table(
        "Figure 1",
        "The number of calls by the bytes of their arguments and results.",
        vec![grid],
    );
    table.how = format!(
        "Our copy of the paper has no figures. The article says that {}. Our population is one program: \
        it reads all files below `{}` through a file service, as a search for a word does. It lists each \
        directory, asks for the size of each file, and reads blocks of 4096 bytes. All values of a call \
        count: its path, its numbers, and what it returns.",
        paper::SIZES,
        census::ROOT
    );
    table.changed = match total {
        0 => "The calls were not counted.".into(),
        _ => format!(
            "Of {total} calls, {} % carry fewer than 200 bytes. The other ones are mostly reads of files. \
            Files and blocks have grown, but paths, numbers and flags have not. So there are still two \
            kinds of calls, and the small ones decide how fast a service seems.",
            digits(percent(small))
        ),
    };
    let title = "Calls of a program that reads a tree of files, by their bytes";
    table.picture = Some(Picture {
        file: "lrpc-figure-1.svg",
        title: "The calls of a program by their bytes".into(),
        svg: plot::bars(title, "per cent of all calls", &bars),
    });
    table
}

pub(super) fn figure_2(measured: &Measured) -> Table {
    let columns = vec![
        label("processors"),
        theirs("LRPC", ""),
        theirs("SRC RPC", ""),
        ours("block", ""),
        ours("adaptive", ""),
        ours("block, speed-up", ""),
    ];
    let mut grid = Grid::new("", columns);
    let all = measured.value("processors").map_or(1, |all| all as usize);
    let per_s =
        |wait: Waiting, count| measured.value(&processors::key(wait, count)).map(|ns| 1e6 / ns);
    let of = |points: &[(f64, f64)], count: usize| {
        points.iter().find(|point| point.0 == count as f64).map(|point| point.1)
    };
    let mut counts = vec![1, 2, 4, all];
    counts.sort_unstable();
    counts.dedup();
    for count in counts {
        let alone = per_s(Waiting::Block, 1);
        grid.row(vec![
            count.to_string().into(),
            exact_or_missing(of(&paper::THROUGHPUT, count)),
            exact_or_missing(of(&paper::THROUGHPUT_SRC, count)),
            per_s(Waiting::Block, count).into(),
            per_s(Waiting::Adaptive, count).into(),
            ratio(per_s(Waiting::Block, count), alone),
        ]);
    }
    let line = |name: &str, points: Vec<(f64, f64)>| {
        // Relative to the first point, because the machines differ by a factor of hundreds.
        let first = points.first().map_or(1.0, |point| point.1 / point.0);
        let points = points.into_iter().map(|(x, y)| (x, y / first)).collect();
        Series { name: name.to_owned(), points }
    };
    let ours_of = |wait: Waiting| {
        let mut points: Vec<_> =
            [1, all].into_iter().filter_map(|n| Some((n as f64, per_s(wait, n)?))).collect();
        points.dedup();
        points
    };
    let series = [
        line("LRPC (article)", paper::THROUGHPUT.to_vec()),
        line("SRC RPC (article)", paper::THROUGHPUT_SRC.to_vec()),
        line("Peregrine, block", ours_of(Waiting::Block)),
        line("Peregrine, adaptive", ours_of(Waiting::Adaptive)),
    ];
    let mut table = table(
        "Figure 2",
        "Thousands of null calls in a second, by the number of processors.",
        vec![grid],
    );
    table.how = "Our copy of the paper has no figures, so only the points that the article states are \
        here. Ours are as many calling processes as processors, each with its own binding, and one server process. With one processor, all processes are on it. Otherwise the scheduler places them. \
        The picture shows each system in proportion to its first point. That of SRC RPC is drawn at 2."
        .into();
    table.changed = "LRPC scaled because no lock is shared by calls of different bindings, and that holds \
        here, too. But a call that polls occupies two processors, so two processors are what one caller \
        and its server need. Callers that sleep gain from a second processor only as far as Linux places \
        a caller and the thread that serves it on the same one."
        .into();
    table.picture = Some(Picture {
        file: "lrpc-figure-2.svg",
        title: "Calls in a second by the number of processors".into(),
        svg: plot::lines(
            "Null calls in a second, in proportion to the first point",
            "processors",
            "times the first point",
            &series,
        ),
    });
    table
}
