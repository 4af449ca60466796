//! The limits: the smallest programs that pass a word and a payload between two processes.
//!
//! | at | what |
//! |---|---|
//! | 0 | the word that the parent publishes, its payload right behind it |
//! | [`BACK`] | the word that the child publishes, likewise |
//!
//! A limit that is weak flatters us. Sizes are constants here, so that small payloads are moved
//! without a call, as compiled stubs do; the publishing swap drains the store buffer at once; the
//! pause in the poll keeps the polling processor from taking the line back too early.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use peregrine::stats::{Moment, stamp};
use peregrine::sys::{Memory, futex_wait, futex_wake};

use crate::cases::LARGE;
use crate::interfaces::{LINE, sum_of_lines};

/// From a word to its payload, in the same line.
const PAYLOAD: usize = 16;
/// Where the way back begins: on lines that nothing else shares.
/// (Not at the same place of a page as the way there: loads would wait for stores that only seem
/// to be to the same address.)
const BACK: usize = (PAYLOAD + LARGE).next_multiple_of(4096) + 2048 + 128;
/// Bytes of memory that both sides share.
pub(crate) const MEMORY: usize = 2 * BACK;
/// Payloads up to this are copied out by the receiver; of larger ones it reads a word per line.
const COPIED_MAX: usize = 4096;
/// Above this it is faster (measured: 72 us instead of 120 for 1 MiB) to copy the whole payload in
/// one go and then read the copy than to fetch its lines one by one.
const IN_PLACE_MAX: usize = 256 << 10;

/// How a word is handed over and waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Both sides look at memory all the time.
    Spin,
    /// A futex wait and a wake-up each way, whether they are needed or not.
    Futex,
    /// The processor is given up until the word has changed.
    Yield,
    /// As [`Spin`](Self::Spin), with stamps.
    Stamped,
}

impl Way {
    /// As it is told to the other process.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Futex => "futex",
            Self::Yield => "yield",
            Self::Stamped => "stamped",
        }
    }

    /// As it was told.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = [Self::Spin, Self::Futex, Self::Yield, Self::Stamped];
        all.into_iter().find(|way| way.name() == name)
    }
}

/// What passes between the two: so many bytes each way, so often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// How words are handed over.
    pub(crate) way: Way,
    /// Bytes to the child.
    pub(crate) in_bytes: usize,
    /// Bytes back.
    pub(crate) out_bytes: usize,
}

trait HandOver {
    fn publish(word: &AtomicU32, value: u32);
    /// Waits until the word is `value`; it is the one before until then.
    fn receive(word: &AtomicU32, value: u32);
}

struct Spin;
struct Futex;
struct Yield;
struct Stamped;

// Nothing here looks at a clock: both processes end when the other one does, see `peer.rs` and
// `child.rs`.
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

/// Asks for the lines of a payload that is to be put: they come over at once rather than one after
/// the other, and while what came is being taken.
#[inline(always)]
fn ask_for<const N: usize>(memory: &mut Memory, word_at: usize) {
    if N > 0
        && let Some(place) = memory.space_mut().part(word_at + PAYLOAD, N)
    {
        place.prefetch_write_all();
    }
}

/// Puts the payload behind a word.
#[inline(always)]
fn put<const N: usize>(memory: &mut Memory, word_at: usize, private: &[u8]) {
    if N > 0 {
        let payload: &[u8; N] = private.first_chunk().expect("room for the payload");
        let (first, rest) = black_box(payload).split_at(N.min(LINE - PAYLOAD));
        // The word's own line last: the other side looks at it, and takes it away in between.
        let written = memory
            .space_mut()
            .write(word_at + LINE, rest)
            .and_then(|()| memory.space_mut().write(word_at + PAYLOAD, first));
        written.expect("the payload lies in the memory");
    }
}

/// Takes the payload from behind a word: copied if small, read where it lies if large, copied and
/// read if very large.
#[inline(always)]
fn take<const N: usize>(memory: &mut Memory, word_at: usize, private: &mut [u8]) {
    let at = word_at + PAYLOAD;
    if N > COPIED_MAX && N <= IN_PLACE_MAX {
        let words = (at..at + N).step_by(LINE);
        let sum = words.map(|at| memory.word(at).load(Ordering::Relaxed));
        black_box(sum.fold(0, u32::wrapping_add));
    } else if N > 0 {
        let payload: &mut [u8; N] = private.first_chunk_mut().expect("room for the payload");
        let read = memory.space_mut().read(at, payload);
        read.expect("the payload lies in the memory");
        if N > COPIED_MAX {
            black_box(sum_of_lines(black_box(payload)));
        }
        black_box(payload);
    }
}

/// The parent's side: `warm` trips that are not measured, then `trips` that are.
fn lead<H: HandOver, const IN: usize, const OUT: usize>(
    memory: &mut Memory,
    warm: u32,
    trips: u32,
) -> Duration {
    // Two buffers: what goes need not wait for what came.
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

/// The child's side.
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

/// The function of that name, compiled for each size that there is a case of.
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
        };
        side.expect("a size that there is a case of")
    }};
    ($function:ident, $way:ty, $exchange:expr) => {
        sized!($function, $way, $exchange;
            (0, 0), (8, 4), (4, 0), (200, 0), (200, 200), (1024, 0), (1024, 1024), (1440, 0),
            (0, 1440), (3000, 0), (3000, 3000), (48_000, 0), (48_000, 48_000), (1_048_576, 0), (0, 1_048_576))
    };
}

type Side = fn(&mut Memory, u32, u32) -> Duration;

/// Makes both words zero: nobody may be exchanging anything.
pub(crate) fn reset(memory: &Memory) {
    memory.word(0).store(0, Ordering::Release);
    memory.word(BACK).store(0, Ordering::Release);
}

/// Exchanges `warm` and then `trips` messages with a process that [echoes](echo) as many; how
/// long the latter took.
///
/// # Panics
/// If there is no case of such sizes.
pub(crate) fn exchange(memory: &mut Memory, what: Exchange, warm: u32, trips: u32) -> Duration {
    of_all_sizes!(lead, what)(memory, warm, trips)
}

/// Answers so many messages.
///
/// # Panics
/// If there is no case of such sizes.
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
