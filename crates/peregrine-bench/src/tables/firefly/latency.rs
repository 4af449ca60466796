//! Tables VI to VIII: where the time of a call goes.

use super::super::measure::network::{self, check_key};
use super::super::measure::{accounts, local};
use super::super::measured::Measured;
use super::super::paper::firefly as paper;
use super::super::table::{
    Cell, Table, exact, exact_or_missing, label, ours, ratio, said, theirs, times,
};
use super::{table, us};
use crate::cases::{Placement, Waiting};
use crate::network::link::Link;
use crate::network::path::Path;

/// Returns the network penalty of a packet over UDP, in nanoseconds: of a null call, or of 1440 bytes.
fn penalty(measured: &Measured, large: bool) -> Option<f64> {
    let case = if large { "packet-1500" } else { "packet-100" };
    measured.value(&network::penalty_key(Path::Udp, case))
}

/// Returns what a wake-up costs, in nanoseconds: how much longer half of a round trip of a program without RPC
/// takes if both sides sleep than if they poll.
fn wake_up(measured: &Measured) -> Option<f64> {
    let [block, spin] = [Waiting::Block, Waiting::Spin]
        .map(|wait| measured.value(&network::limit_key(Link::Veth, Path::Udp, wait, "null")));
    block.zip(spin).map(|(block, spin)| (block - spin) / 2.0)
}

/// Returns what the checksums of a message cost in one direction, in nanoseconds. Only one of the packets of
/// a call with 1440 bytes is large.
fn checksum(measured: &Measured, large: bool) -> Option<f64> {
    let of = |case: &str| {
        let [with, without] =
            [true, false].map(|checked| measured.value(&check_key(case, checked)));
        with.zip(without).map(|(with, without)| with - without)
    };
    let null = of("null")?;
    if large { of("out-1440").map(|both| both - null / 2.0) } else { Some(null / 2.0) }
}

/// Where our counterpart of a step is.
#[derive(Clone, Copy)]
enum Step {
    /// A measured quantity, for a small and for a large packet, and how it was measured.
    Own(fn(&Measured, bool) -> Option<f64>, &'static str),
    /// It is a part of a step above.
    Within,
}

pub(crate) fn table_6(measured: &Measured) -> Table {
    let columns = vec![
        label("action"),
        theirs("74", ""),
        theirs("1514", ""),
        ours("null", ""),
        ours("1440", ""),
        label("how"),
    ];
    let title = "The steps of sending and receiving a packet, in microseconds, by its bytes.";
    let mut table = table("Table VI", title, columns);
    fn makes(measured: &Measured, large: bool) -> Option<f64> {
        measured.parts(account(large), &[7])
    }
    fn half(measured: &Measured, large: bool) -> Option<f64> {
        checksum(measured, large).map(|ns| ns / 2.0)
    }
    fn trap(measured: &Measured, _: bool) -> Option<f64> {
        measured.value(&local::key(Placement::TwoCores, "syscall", "null"))
    }
    fn checks(measured: &Measured, large: bool) -> Option<f64> {
        measured.parts(account(large), &[8])
    }
    fn wakes(measured: &Measured, _: bool) -> Option<f64> {
        wake_up(measured)
    }
    let steps: [Step; 14] = [
        Step::Own(makes, "account: makes the result"),
        Step::Own(half, "b, half of both"),
        Step::Own(trap, "an empty system call"),
        Step::Own(penalty, "network penalty"),
        Step::Within,
        Step::Within,
        Step::Within,
        Step::Within,
        Step::Within,
        Step::Within,
        Step::Within,
        Step::Own(checks, "account: takes the result"),
        Step::Own(half, "b, half of both"),
        Step::Own(wakes, "calculated: block - spin"),
    ];
    // A trap is a part of the penalty, so it is not in the sum.
    let mut sums = [Some(0.0), Some(0.0)];
    for ((action, small, how, large), step) in paper::STEPS.into_iter().zip(steps) {
        let values = match step {
            Step::Own(of, _) => [of(measured, false), of(measured, true)],
            Step::Within => [None, None],
        };
        if !action.starts_with("handle trap") && matches!(step, Step::Own(..)) {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = sum.zip(value).map(|(sum, value)| sum + value);
            }
        }
        let name = match step {
            Step::Own(_, name) => name,
            Step::Within => "in the network penalty",
        };
        table.grids[0].row(vec![
            action.into(),
            format!("{small} {how}").into(),
            large.map_or(Cell::Missing, |(large, how)| format!("{large} {how}").into()),
            us(values[0]),
            us(values[1]),
            name.into(),
        ]);
    }
    let (small, large) = paper::STEPS_TOTAL;
    table.grids[0].row(vec![
        "total".into(),
        exact(small),
        exact(large),
        us(sums[0]),
        us(sums[1]),
        "calculated, without the trap".into(),
    ]);
    let transfer = |name| measured.parts(name, &[3]);
    let result = transfer(accounts::RESULT).zip(transfer(accounts::BLOCK));
    table.grids[0].row(vec![
        "transfer of a packet".into(),
        Cell::Missing,
        Cell::Missing,
        us(transfer(accounts::BLOCK).map(|ns| ns / 2.0)),
        us(result.map(|(result, null)| result - null / 2.0)),
        "account, half of both packets".into(),
    ]);
    table.minimum = Some(
        "the transmission time on Ethernet: a sixteenth of the small packet's time in the paper. Ours has \
        no wire."
            .into(),
    );
    table.how = "The paper's letters: a, instructions added up; b, by disabling checksums; c, estimated; d, by a \
        logic analyzer; e, d adjusted. Ours: the penalty is that of packets of 100 and of 1500 bytes, and \
        contains everything from the system call of the sender to that of the receiver. The checksums are \
        Peregrine's own of whole messages, which are off by default. The wake-up is how much longer a program \
        without RPC takes per packet if it sleeps. The last row is not a sum: it is the transfer of the \
        account, which has the trap, the penalty and the wake-up."
        .into();
    let share = wake_up(measured).zip(sums[0]).map(|(wake_up, sum)| 100.0 * wake_up / sum);
    table.changed = format!(
        "In the paper, waking the thread was the largest step of the software, and 23 % of the time of a small \
        packet. Here it is {} % of the sum. Processors have become faster by orders of magnitude, but to wake one \
        that sleeps still needs an interrupt. A large packet takes {} times as long as a small one (4.6 times in \
        the paper), since nothing in its way moves bytes as slowly as the QBus and the Ethernet did.",
        said(share, 0),
        times(sums[1], sums[0])
    );
    table
}

/// Returns the account of a call with a small or with a large result.
const fn account(large: bool) -> &'static str {
    if large { accounts::RESULT } else { accounts::BLOCK }
}

/// The parts of the account that are all but the transfer.
const RUNTIME: [usize; 9] = [0, 1, 2, 4, 5, 6, 7, 8, 9];

pub(crate) fn table_7(measured: &Measured) -> Table {
    let columns = vec![
        label("machine"),
        label("procedure"),
        theirs("time", "us"),
        ours("time", "ns"),
        label("our part of the account"),
    ];
    let mut table = table("Table VII", "Stubs and runtime of a call of `Null`.", columns);
    let parts: [(&[usize], &str); 10] = [
        (&[], "not in the account: the loop"),
        (&[0], "stub begins"),
        (&[1], "takes a frame, marshals"),
        (&[2], "makes the message"),
        (&[4, 5], "checks the call, takes the arguments"),
        (&[6], "server stub and procedure"),
        (&[], "in the row above"),
        (&[7], "makes the result"),
        (&[8], "takes the result"),
        (&[9], "unmarshals, ends"),
    ];
    for ((machine, procedure, time), (parts, name)) in paper::RUNTIME.into_iter().zip(parts) {
        let ns = match (parts, procedure.starts_with("calling program")) {
            ([], true) => measured.value(&local::key(Placement::TwoCores, "procedure", "null")),
            ([], false) => None,
            (parts, _) => measured.parts(accounts::BLOCK, parts),
        };
        table.grids[0].row(vec![
            machine.into(),
            procedure.into(),
            exact(time),
            ns.into(),
            name.into(),
        ]);
    }
    let runtime = measured.parts(accounts::BLOCK, &RUNTIME);
    table.grids[0].row(vec![
        "".into(),
        "total".into(),
        exact(paper::RUNTIME_TOTAL),
        runtime.into(),
        "without the loop".into(),
    ]);
    table.how = "An account of a null call over UDP and veth; both sides sleep while they wait. The loop is \
        measured with calls of an empty procedure. Code that runs after a sleep runs with cold caches, so \
        the same parts take less time if both sides poll (Peregrine's Table 4)."
        .into();
    let receiver = measured.parts(accounts::BLOCK, &[4, 5]).zip(runtime);
    table.changed = format!(
        "The receiver at the server had the most to do, a quarter of the time, because it has to find out what a \
        packet is. Here it takes {} %. The Starter, which took a packet from a pool in shared memory, only takes a \
        frame of the binding here.",
        said(receiver.map(|(receiver, all)| 100.0 * receiver / all), 0)
    );
    table
}

pub(crate) fn table_8(measured: &Measured) -> Table {
    let columns = vec![
        label("action"),
        theirs("Null", "us"),
        theirs("MaxResult", "us"),
        ours("Null", "us"),
        ours("MaxResult", "us"),
    ];
    let mut table = table("Table VIII", "The latency of a call from its parts.", columns);
    let [null, result] = [accounts::BLOCK, accounts::RESULT];
    let runtime = measured.parts(null, &RUNTIME);
    // Marshalling is the difference of the accounts' parts other than the transfer.
    let marshal =
        measured.parts(result, &RUNTIME).zip(runtime).map(|(with, without)| with - without);
    let transfer = [null, result].map(|account| measured.parts(account, &[3]));
    let half = transfer[0].map(|ns| ns / 2.0);
    let large = transfer[1].zip(half).map(|(both, half)| both - half);
    let rows = [[runtime, runtime], [None, marshal], [half, half], [half, large]];
    for ((action, null, largest), own) in paper::WHOLE.into_iter().zip(rows) {
        table.grids[0].row(vec![
            action.into(),
            exact_or_missing(null),
            exact_or_missing(largest),
            us(own[0]),
            us(own[1]),
        ]);
    }
    let accounts = [null, result].map(|name| measured.accounts.get(name));
    let sums = accounts.map(|one| one.map(|account| account.sum_ns()));
    let wholes = accounts.map(|one| one.map(|account| account.whole_ns));
    let mut add = |name: &str, paper: (f64, f64), own: [Option<f64>; 2]| {
        let row = vec![name.into(), exact(paper.0), exact(paper.1), us(own[0]), us(own[1])];
        table.grids[0].row(row);
    };
    add("total", paper::WHOLE_TOTAL, sums);
    add("measured", paper::MEASURED, wholes);
    let row = [
        ratio(Some(paper::WHOLE_TOTAL.0), Some(paper::MEASURED.0)),
        ratio(Some(paper::WHOLE_TOTAL.1), Some(paper::MEASURED.1)),
        ratio(sums[0], wholes[0]),
        ratio(sums[1], wholes[1]),
    ];
    table.grids[0].row([vec!["total / measured".into()], row.to_vec()].concat());
    table.how = "The parts are those of the accounts of both calls. An account measures the transfer of both \
        packets together. Half of the transfer of `Null` is calculated as the time of its call packet, in \
        both columns, and the rest as that of the result packet. Marshalling is calculated as the difference \
        between both accounts without their transfers."
        .into();
    let rests = accounts.map(|one| one.map(|account| 100.0 * account.rest_ratio()));
    let share = transfer[0].zip(wholes[0]).map(|(transfer, whole)| 100.0 * transfer / whole);
    table.changed = format!(
        "The paper accounted for its calls within about five per cent. The rests of our accounts are {} % and {} %. In \
        the paper, the wire and the controller dominated large packets, and software small ones. Here the transfer \
        with its two wake-ups is {} % of `Null`.",
        said(rests[0], 1),
        said(rests[1], 1),
        said(share, 0)
    );
    table
}
