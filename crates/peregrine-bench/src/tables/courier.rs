//! Tables 1 to 11 of the study of Courier.

use super::measured::Measured;
use super::table::{Paper, Table};
use crate::larus::{self, report};

/// Returns a table with the parts of the report whose names begin with `name`.
fn table(measured: &Measured, name: &'static str, title: &str, changed: &str) -> Table {
    let none = larus::Study::default();
    let study = measured.courier.as_ref().unwrap_or(&none);
    let is_part = |part: &str| {
        let letter = part.strip_prefix(name);
        letter.is_some_and(|letter| !letter.starts_with(|c: char| c.is_ascii_digit()))
    };
    let parts = report::tables(study).into_iter().filter(|(part, _)| is_part(part));
    Table {
        paper: Paper::Courier,
        name,
        title: title.to_owned(),
        grids: parts.map(|(_, grid)| grid).collect(),
        minimum: None,
        how: String::new(),
        changed: changed.to_owned(),
        picture: None,
    }
}

const BOTH: &str = "The paper's columns are both of its networks: to a VAX, and to a Sun.";
const THREE: &str = "The paper's figures are those of Courier, of PCourier, and of PCourier without the waits for \
    lost packets.";
const PARTS: &str = "The profile is made of samples that `perf` takes of the client. *Sending* and *receiving* are \
    system calls, and waiting counts as receiving. *Swapping* is measured alone, and calculated for all calls.";

pub(super) fn table_1(measured: &Measured) -> Table {
    let title = "The elapsed time of 2,000 calls of Courier.";
    let changed = "Calls without a result need no wake-up at the client, which only writes. They were fast in the \
        paper for the same reason. The size of the argument mattered then, because each word was swapped by a \
        procedure, and hardly matters now.";
    Table { how: BOTH.into(), ..table(measured, "Table 1", title, changed) }
}

pub(super) fn table_2(measured: &Measured) -> Table {
    let title = "The elapsed time of 2,000 calls of packet Courier, of Courier's messages over Peregrine's packet \
        exchange, and of Peregrine.";
    let changed = "PCourier sent calls without a result and forgot them, so they were fast and could be lost. Our \
        packet Courier waits for each reply, so that calls run in their order and only once. Peregrine has the \
        same guarantees, and sends many such calls in one packet.";
    Table { how: BOTH.into(), ..table(measured, "Table 2", title, changed) }
}

pub(super) fn table_3(measured: &Measured) -> Table {
    let changed = "A stream cost up to six times as much as a packet. Today they differ by little for calls with a result: most of the time is the two wake-ups, which both need.";
    Table {
        how: THREE.into(),
        ..table(measured, "Table 3", "Calls over the first network.", changed)
    }
}

pub(super) fn table_4(measured: &Measured) -> Table {
    let changed = "The paper's second network was faster, but its machine (a Sun) was slower. Here both links are the kernel's work.";
    Table {
        how: THREE.into(),
        ..table(measured, "Table 4", "Calls over the second network.", changed)
    }
}

pub(super) fn table_5(measured: &Measured) -> Table {
    let title = "The client's processor time with Courier, over the first network.";
    let changed = "In the paper, swapping bytes took up to three quarters of the client's time. The shuffle \
        instructions of a processor swap many words at once, while they are copied.";
    Table { how: PARTS.into(), ..table(measured, "Table 5", title, changed) }
}

pub(super) fn table_6(measured: &Measured) -> Table {
    let title = "The client's processor time with Courier, over the second network.";
    let changed = "As in Table 5: the system calls remain, and the conversion is gone.";
    Table { how: PARTS.into(), ..table(measured, "Table 6", title, changed) }
}

pub(super) fn table_7(measured: &Measured) -> Table {
    let title = "The client's processor time with packet Courier, over the first network.";
    let changed = "Sending and receiving were nearly all of the client's work, and are still most of it. On a virtual link, sending includes the arrival at the other side.";
    Table { how: PARTS.into(), ..table(measured, "Table 7", title, changed) }
}

pub(super) fn table_8(measured: &Measured) -> Table {
    let title = "The client's processor time with packet Courier, and with Peregrine over both networks, over the \
        second network.";
    let changed = "Peregrine's calls without a result take so little time because one system call sends many of \
        them.";
    Table { how: PARTS.into(), ..table(measured, "Table 8", title, changed) }
}

pub(super) fn table_9(measured: &Measured) -> Table {
    let title = "The time of Courier divided by that of others.";
    let changed = "The paper recommended packets for short calls. Today a packet gains little over a stream for a \
        call with a result. For calls without one, what counts is how many of them a system call carries.";
    let how = "The paper's ratios are without and with its correction for lost packets.";
    Table { how: how.into(), ..table(measured, "Table 9", title, changed) }
}

pub(super) fn table_10(measured: &Measured) -> Table {
    let title = "The time over the second network divided by that over the first.";
    let changed = "The network hardly mattered for most calls, because the processors' work took longer. Here both links are work of processors, and a ratio shows how soon the other side is woken.";
    Table { how: THREE.into(), ..table(measured, "Table 10", title, changed) }
}

pub(super) fn table_11(measured: &Measured) -> Table {
    let title = "The client's processor time with Courier divided by that with packet Courier.";
    let changed = "A stream needed more processor time than packets in the paper, in all tests. Here it needs less for calls without results, because it carries many of them before anything has to be received.";
    let how = "The paper's figures are for the total, for sending and for receiving.";
    Table { how: how.into(), ..table(measured, "Table 11", title, changed) }
}
