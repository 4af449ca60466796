//! Implements the limits of calls on the local path: the smallest programs that pass a word and a payload
//! between two processes. The table shows the memory that both processes share.
//!
//! | at | what |
//! |---|---|
//! | 0 | the word that the parent publishes, then the parent's payload |
//! | [`BACK`] | the word that the child publishes, then the child's payload |
//!
//! A slow limit would make Peregrine look better. So sizes are constants here, and small payloads are moved
//! without a function call, as in compiled stubs. A word is published by a swap, because a swap drains the
//! store buffer at once. The polling loop pauses, so that the polling processor does not take the cache line
//! back too early.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use peregrine::stats::{Moment, stamp};
use peregrine::sys::{Memory, futex_wait, futex_wake};

use crate::cases::LARGE;
use crate::interfaces::{LINE, sum_of_lines};

/// The distance in bytes from a word to its payload. The payload begins in the cache line of the word.
pub(crate) const PAYLOAD: usize = 16;
/// The offset of the word and payload that the child writes. Nothing else is on their cache lines. Modulo the
/// size of a page, this offset differs from the offset of the parent's word and payload. Otherwise loads
/// would wait for stores that only seem to have the same address (4K aliasing).
const BACK: usize = (PAYLOAD + LARGE).next_multiple_of(4096) + 2048 + 128;
/// The size in bytes of the memory that both sides share.
pub(crate) const MEMORY: usize = 2 * BACK;
/// The size in bytes of the largest payload that the receiver only copies. Of a larger payload, the receiver
/// reads one word per cache line.
const COPIED_MAX: usize = 4096;
/// The size in bytes of the largest payload that the receiver reads in the shared memory. A larger payload
/// is first copied as a whole, and then read. This is faster than to fetch the cache lines one by one
/// (measured for 1 MiB: 72 us instead of 120 us).
const IN_PLACE_MAX: usize = 256 << 10;

/// How a word is handed over, and how the receiver waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Both sides poll memory all the time.
    Spin,
    /// A futex wait and a futex wake-up in each direction, even if they are not needed.
    Futex,
    /// The receiver yields the processor until the word has changed.
    Yield,
    /// As [`Spin`](Self::Spin), but each side also records the clock at each step (stamps).
    Stamped,
    /// The parent sends messages through a [ring](crate::ring), and the child answers none of them.
    Ring,
}

impl Way {
    /// Returns the name of the way, as the parent writes it to the child.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Futex => "futex",
            Self::Yield => "yield",
            Self::Stamped => "stamped",
            Self::Ring => "ring",
        }
    }

    /// Returns the way with the name `name`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = [Self::Spin, Self::Futex, Self::Yield, Self::Stamped, Self::Ring];
        all.into_iter().find(|way| way.name() == name)
    }
}

/// One kind of exchange: how words are handed over, and how large the payloads are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// How words are handed over.
    pub(crate) way: Way,
    /// The number of payload bytes that the parent sends to the child.
    pub(crate) in_bytes: usize,
    /// The number of payload bytes that the child sends to the parent.
    pub(crate) out_bytes: usize,
}

trait HandOver {
    fn publish(word: &AtomicU32, value: u32);
    /// Waits until the word is `value`. Until then the word is `value - 1`.
    fn receive(word: &AtomicU32, value: u32);
}

struct Spin;
struct Futex;
struct Yield;
struct Stamped;

// The loops have no timeout, so they read no clock. No timeout is necessary, because each process ends when
// the other one ends: see `peer.rs` and `child.rs`.
impl HandOver for Spin {
    #[inline(always)]
    fn publish(word: &AtomicU32, value: u32) {
        word.swap(value, Ordering::AcqRel);
    }

    #[inline(always)]
    fn receive(word: &AtomicU32, value: u32) {
        while word.load(Ordering::Acquire) != value {
            spin_loop();
        }
    }
}

impl HandOver for Stamped {
    #[inline(always)]
    fn publish(word: &AtomicU32, value: u32) {
        stamp(Moment::Ready);
        Spin::publish(word, value);
        stamp(Moment::Posted);
    }

    #[inline(always)]
    fn receive(word: &AtomicU32, value: u32) {
        Spin::receive(word, value);
        stamp(Moment::Seen);
    }
}

impl HandOver for Futex {
    #[inline(always)]
    fn publish(word: &AtomicU32, value: u32) {
        word.store(value, Ordering::Release);
        futex_wake(word);
    }

    #[inline(always)]
    fn receive(word: &AtomicU32, value: u32) {
        loop {
            futex_wait(word, value.wrapping_sub(1), None);
            if word.load(Ordering::Acquire) == value {
                return;
            }
        }
    }
}

impl HandOver for Yield {
    #[inline(always)]
    fn publish(word: &AtomicU32, value: u32) {
        word.store(value, Ordering::Release);
    }

    #[inline(always)]
    fn receive(word: &AtomicU32, value: u32) {
        while word.load(Ordering::Acquire) != value {
            std::thread::yield_now();
        }
    }
}

/// Prefetches the cache lines of a payload for writing, so that they are transferred concurrently. In the
/// child, they are transferred while the child copies the received payload.
#[inline(always)]
pub(crate) fn ask_for<const N: usize>(memory: &mut Memory, word_at: usize) {
    if N > 0
        && let Some(place) = memory.space_mut().part(word_at + PAYLOAD, N)
    {
        place.prefetch_write_all();
    }
}

/// Writes a payload to its place, which follows the word at `word_at`.
#[inline(always)]
pub(crate) fn put<const N: usize>(memory: &mut Memory, word_at: usize, private: &[u8]) {
    if N > 0 {
        let payload: &[u8; N] = private.first_chunk().expect("the payload fits");
        let (first, rest) = black_box(payload).split_at(N.min(LINE - PAYLOAD));
        // The line of the word is written last, because the other side polls this line and takes it from this
        // processor's cache.
        let written = memory
            .space_mut()
            .write(word_at + LINE, rest)
            .and_then(|()| memory.space_mut().write(word_at + PAYLOAD, first));
        written.expect("the payload is inside the memory");
    }
}

/// Receives the payload whose place follows the word at `word_at`. A small payload is copied. A large payload
/// is read in the shared memory. A very large payload is copied and then read.
#[inline(always)]
pub(crate) fn take<const N: usize>(memory: &mut Memory, word_at: usize, private: &mut [u8]) {
    let at = word_at + PAYLOAD;
    if N > COPIED_MAX && N <= IN_PLACE_MAX {
        let words = (at..at + N).step_by(LINE);
        let sum = words.map(|at| memory.word(at).load(Ordering::Relaxed));
        black_box(sum.fold(0, u32::wrapping_add));
    } else if N > 0 {
        let payload: &mut [u8; N] = private.first_chunk_mut().expect("the payload fits");
        let read = memory.space_mut().read(at, payload);
        read.expect("the payload is inside the memory");
        if N > COPIED_MAX {
            black_box(sum_of_lines(black_box(payload)));
        }
        black_box(payload);
    }
}

/// Runs the parent's side: `warm` trips that are not measured, then `trips` measured trips.
fn lead<H: HandOver, const IN: usize, const OUT: usize>(
    memory: &mut Memory,
    warm: u32,
    trips: u32,
) -> Duration {
    // Sending and receiving use different buffers, so that a payload can be sent before the received payload
    // has been copied completely.
    let (sent, mut private) = (vec![0xa5; IN], vec![0xa5; OUT]);
    let mut pass = |n| {
        ask_for::<IN>(memory, 0);
        put::<IN>(memory, 0, &sent);
        H::publish(memory.word(0), n);
        H::receive(memory.word(BACK), n);
        take::<OUT>(memory, BACK, &mut private);
    };
    (1..=warm).for_each(&mut pass);
    let start = Instant::now();
    (warm + 1..=warm + trips).for_each(pass);
    start.elapsed()
}

/// Runs the child's side.
fn follow<H: HandOver, const IN: usize, const OUT: usize>(
    memory: &mut Memory,
    trips: u32,
    _: u32,
) -> Duration {
    let (sent, mut private) = (vec![0x5a; OUT], vec![0x5a; IN]);
    for n in 1..=trips {
        H::receive(memory.word(0), n);
        ask_for::<OUT>(memory, BACK);
        take::<IN>(memory, 0, &mut private);
        put::<OUT>(memory, BACK, &sent);
        H::publish(memory.word(BACK), n);
    }
    Duration::ZERO
}

/// Returns the instance of `$function` that is compiled for the sizes of an exchange, or `None` if no case
/// has these sizes.
macro_rules! sized {
    ($function:ident, $way:ty, $exchange:expr; $(($in:literal, $out:literal)),*) => {
        match ($exchange.in_bytes, $exchange.out_bytes) {
            $(($in, $out) => Some($function::<$way, $in, $out>),)*
            _ => None,
        }
    };
}

macro_rules! of_all_sizes {
    ($function:ident, $exchange:expr) => {{
        let exchange: Exchange = $exchange;
        let side: Option<Side> = match exchange.way {
            Way::Spin => of_all_sizes!($function, Spin, exchange),
            Way::Futex => of_all_sizes!($function, Futex, exchange),
            Way::Yield => of_all_sizes!($function, Yield, exchange),
            Way::Stamped => of_all_sizes!($function, Stamped, exchange),
            Way::Ring => None,
        };
        side.expect("the sizes are those of a case")
    }};
    ($function:ident, $way:ty, $exchange:expr) => {
        sized!($function, $way, $exchange;
            (0, 0), (8, 4), (4, 0), (200, 0), (200, 200), (1024, 0), (1024, 1024), (1440, 0),
            (0, 1440), (3000, 0), (3000, 3000), (48_000, 0), (48_000, 48_000), (1_048_576, 0), (0, 1_048_576))
    };
}

type Side = fn(&mut Memory, u32, u32) -> Duration;

/// Resets the words of both processes, and those of the ring, to zero. No exchange may be in progress.
pub(crate) fn reset(memory: &Memory) {
    crate::ring::reset(memory);
    memory.word(0).store(0, Ordering::Release);
    memory.word(BACK).store(0, Ordering::Release);
}

/// Exchanges `warm` messages, and then `trips` messages, with a process that [echoes](echo) all of them.
/// Returns the time of the `trips` messages.
///
/// # Panics
/// If no case has the sizes of `what`.
pub(crate) fn exchange(memory: &mut Memory, what: Exchange, warm: u32, trips: u32) -> Duration {
    if what.way == Way::Ring {
        return crate::ring::lead(memory, what.in_bytes, warm, trips);
    }
    of_all_sizes!(lead, what)(memory, warm, trips)
}

/// Answers `trips` messages.
///
/// # Panics
/// If no case has the sizes of `what`.
pub(crate) fn echo(memory: &mut Memory, what: Exchange, trips: u32) {
    of_all_sizes!(follow, what)(memory, trips, 0);
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::cases::CASES;

    #[test]
    fn every_case_has_its_limit_and_the_payload_arrives() {
        let (mut memory, file) = Memory::shared(MEMORY).unwrap();
        let mut other = Memory::received(file.as_fd(), MEMORY).unwrap();
        for case in CASES {
            let what =
                Exchange { way: Way::Yield, in_bytes: case.in_bytes, out_bytes: case.out_bytes };
            reset(&memory);
            std::thread::scope(|scope| {
                scope.spawn(|| echo(&mut other, what, 5));
                exchange(&mut memory, what, 2, 3);
            });
            let arrived = |word_at: usize, bytes: usize, what: u8| {
                let mut last = [0];
                if bytes > 0 {
                    memory.read(word_at + PAYLOAD + bytes - 1, &mut last).unwrap();
                    assert_eq!(last, [what], "{}", case.name);
                }
            };
            arrived(0, case.in_bytes, 0xa5);
            arrived(BACK, case.out_bytes, 0x5a);
        }
    }
}
