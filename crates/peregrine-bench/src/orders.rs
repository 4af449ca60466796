//! Defines the commands ([`Order`]) that a parent gives to its child processes, and the [reports](Report) of
//! the children. Each child has a slot of shared memory. Each side sleeps until the other side has written to
//! the slot. The table shows the content of a slot.
//!
//! | at | written by | what |
//! |---|---|---|
//! | 0 | parent (the child waits for it) | the number of the command; [`END`] ends the child |
//! | 4 | parent | the kind of the command |
//! | 8 | parent | the two numbers of the command |
//! | 128 | child (the parent waits for it) | the number of the command that has been carried out |
//! | 136 | child | the report |

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clap::Args;
use peregrine::sys::{Memory, futex_wait, futex_wake, pin_to};
use peregrine::value::bytes_of;

use crate::window::Window;

/// The size of a slot in bytes.
const SLOT: usize = 256;
const KIND: usize = 4;
const NUMBERS: usize = 8;
const DONE: usize = 128;
const REPORT: usize = 136;
const EACH: usize = 160;

/// This number ends a child. It is used in place of the number of a command.
const END: u32 = u32::MAX;
/// The number under which a child reports that it is ready.
pub(crate) const READY: u32 = 1;

/// The number of calls that a child makes for [`Order::Singly`].
pub(crate) const SINGLY: usize = 8;

const _: () = assert!(REPORT + 3 * 8 <= EACH && EACH + 4 * SINGLY <= SLOT);

/// A command: the work that a child has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Nothing. The child reports at once.
    Idle,
    /// To call during this window, at the same time as other children.
    Window(Window),
    /// To make [`SINGLY`] calls, one after the other, each timed by itself.
    Singly,
    /// To make two series of calls. The fields are the numbers of calls of the two series. Only the second
    /// series is timed, as a whole.
    Calls(u32, u32),
    /// To serve until the next command arrives. There is no report.
    Serve,
}

/// The result of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// The number of calls that are measured: those inside the window, or those that are timed.
    pub(crate) calls: u64,
    /// The number of all calls, including those that are not measured.
    pub(crate) all: u64,
    /// The time in nanoseconds of the calls that were timed together, or the delay with which the child began
    /// a window.
    pub(crate) ns: u64,
    /// The times in nanoseconds of the calls that were timed one by one.
    pub(crate) each_ns: [u32; SINGLY],
}

/// Returns the size in bytes of memory for `slots` slots.
pub(crate) const fn memory_bytes(slots: usize) -> usize {
    (slots * SLOT).next_multiple_of(4096)
}

fn long(memory: &Memory, at: usize) -> u64 {
    let mut bytes = [0; 8];
    memory.read(at, &mut bytes).expect("an existing slot");
    u64::from_ne_bytes(bytes)
}

/// Gives a command to the child of a slot. `number` must differ from the number of the previous command and
/// from [`END`].
pub(crate) fn give(memory: &Memory, slot: usize, number: u32, order: Order) {
    let (kind, numbers) = match order {
        Order::Idle => (0, [0; 2]),
        Order::Window(Window { begins_ns, ends_ns }) => (1, [begins_ns, ends_ns]),
        Order::Singly => (2, [0; 2]),
        Order::Calls(warm, calls) => (3, [warm.into(), calls.into()]),
        Order::Serve => (4, [0; 2]),
    };
    let at = slot * SLOT;
    memory.word(at + KIND).store(kind, Ordering::Relaxed);
    memory.write(at + NUMBERS, bytes_of(&numbers)).expect("an existing slot");
    // SYNC: bench-order, acquired in ChildSlot::next.
    memory.word(at).store(number, Ordering::Release);
    futex_wake(memory.word(at));
}

/// Returns the report on the command `number`. If the report has not arrived, sleeps for at most `WAIT_MAX`.
/// If the report has still not arrived then, returns `None`.
pub(crate) fn reported(memory: &Memory, slot: usize, number: u32) -> Option<Report> {
    const WAIT_MAX: Duration = Duration::from_millis(200);
    let at = slot * SLOT;
    let word = memory.word(at + DONE);
    // SYNC: bench-report, released in ChildSlot::report.
    let done = word.load(Ordering::Acquire);
    if done != number {
        futex_wait(word, done, Some(WAIT_MAX));
    }
    (word.load(Ordering::Acquire) == number).then(|| {
        let [calls, all, ns] = [0, 8, 16].map(|byte| long(memory, at + REPORT + byte));
        let each = |one: usize| memory.word(at + EACH + 4 * one).load(Ordering::Relaxed);
        let each_ns = std::array::from_fn(each);
        Report { calls, all, ns, each_ns }
    })
}

/// The slot in which a child receives its commands, and the processor of the child.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// The file of the memory that is shared with the parent
    #[arg(long)]
    memory: PathBuf,
    /// The number of slots in that memory
    #[arg(long)]
    slots: usize,
    /// The slot of this process
    #[arg(long)]
    slot: usize,
    /// The processor to run on
    #[arg(long)]
    cpu: Option<u32>,
}

impl Place {
    /// Returns the command-line arguments of a child, except the one that selects the processor.
    pub(crate) fn arguments(memory: &str, slots: usize, slot: usize) -> [String; 6] {
        let [slots, slot] = [slots, slot].map(|number| number.to_string());
        ["--memory".into(), memory.into(), "--slots".into(), slots, "--slot".into(), slot]
    }
}

/// A child's slot.
#[derive(Debug)]
pub(crate) struct ChildSlot {
    memory: Arc<Memory>,
    at: usize,
    taken: u32,
}

impl ChildSlot {
    /// Maps the slot, and pins this process to the processor of `place`. From now on this process ends when
    /// its standard input ends. The input ends when the parent ends, in whatever way.
    pub(crate) fn open(place: &Place) -> io::Result<Self> {
        // The process is pinned before it starts any thread, so that all its threads run on this processor.
        if let Some(cpu) = place.cpu {
            pin_to(cpu)?;
        }
        let file = File::options().read(true).write(true).open(&place.memory)?;
        let memory = Arc::new(Memory::received(file.as_fd(), memory_bytes(place.slots))?);
        let at = place.slot * SLOT;
        let ours = Arc::clone(&memory);
        std::thread::spawn(move || end_with_input(ours.word(at)));
        Ok(Self { memory, at, taken: 0 })
    }

    /// Reports that the process is ready for commands.
    pub(crate) fn ready(&self) {
        self.done(READY, Report::default());
    }

    /// Sleeps until the next command arrives, and returns it. Returns `None` if the standard input of this
    /// process has ended.
    pub(crate) fn next(&mut self) -> Option<Order> {
        let word = self.memory.word(self.at);
        let number = loop {
            // SYNC: bench-order, released in `give`.
            let number = word.load(Ordering::Acquire);
            if number != self.taken {
                break number;
            }
            futex_wait(word, number, None);
        };
        self.taken = number;
        if number == END {
            return None;
        }
        let [first, second] = [0, 8].map(|byte| long(&self.memory, self.at + NUMBERS + byte));
        Some(match self.memory.word(self.at + KIND).load(Ordering::Relaxed) {
            1 => Order::Window(Window { begins_ns: first, ends_ns: second }),
            2 => Order::Singly,
            3 => Order::Calls(first as u32, second as u32),
            4 => Order::Serve,
            _ => Order::Idle,
        })
    }

    /// Returns whether another command has arrived, or the standard input of this process has ended.
    #[cfg(any(test, feature = "peers"))]
    pub(crate) fn is_superseded(&self) -> bool {
        self.memory.word(self.at).load(Ordering::Relaxed) != self.taken
    }

    /// Reports that the last command was carried out.
    pub(crate) fn report(&self, report: Report) {
        self.done(self.taken, report);
    }

    fn done(&self, number: u32, report: Report) {
        let Report { calls, all, ns, each_ns } = report;
        let written = self.memory.write(self.at + REPORT, bytes_of(&[calls, all, ns]));
        let both = written.and_then(|()| self.memory.write(self.at + EACH, bytes_of(&each_ns)));
        both.expect("the slot is inside the memory");
        let word = self.memory.word(self.at + DONE);
        // SYNC: bench-report, acquired in `reported`.
        word.store(number, Ordering::Release);
        futex_wake(word);
    }
}

/// Waits until the standard input ends. Then gives the command [`END`], and ends this process if it still
/// runs after a second.
fn end_with_input(order: &AtomicU32) {
    let (mut input, mut none) = (io::stdin().lock(), [0; 64]);
    while matches!(input.read(&mut none), Ok(1..)) {}
    order.store(END, Ordering::Release);
    futex_wake(order);
    std::thread::sleep(Duration::from_secs(1));
    process::exit(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_its_report_arrive_unchanged() {
        let (memory, _file) = Memory::shared(memory_bytes(2)).unwrap();
        let memory = Arc::new(memory);
        let mut slot = ChildSlot { memory: Arc::clone(&memory), at: SLOT, taken: 0 };
        slot.ready();
        assert!(reported(&memory, 1, READY).is_some());
        let window = Window { begins_ns: 1 << 40, ends_ns: u64::MAX };
        let orders =
            [Order::Window(window), Order::Singly, Order::Calls(7, u32::MAX), Order::Serve];
        for (number, order) in (2..).zip(orders) {
            assert!(!slot.is_superseded() || number == 2);
            give(&memory, 1, number, order);
            assert!(slot.is_superseded());
            assert_eq!(slot.next(), Some(order));
            let report = Report { calls: 3, all: 1 << 50, ns: 5, each_ns: [number; SINGLY] };
            assert_eq!(reported(&memory, 1, number), None);
            slot.report(report);
            assert_eq!(reported(&memory, 1, number), Some(report));
        }
        memory.word(SLOT).store(END, Ordering::Release);
        assert_eq!(slot.next(), None);
    }
}
