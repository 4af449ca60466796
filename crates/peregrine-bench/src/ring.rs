//! The limits of one-way calls and of streams on the local path: a ring with one producer and one
//! consumer, in memory that both processes share.
//!
//! Each slot has a word, which the producer sets to the number of the message, and the bytes of the
//! message. The consumer takes the bytes, and says from time to time how many messages it has taken. Both
//! sides move the bytes as the other limits do (`pingpong.rs`): the consumer copies a small message, and
//! reads one word of each cache line of a large one.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use peregrine::sys::Memory;

use crate::interfaces::LINE;
use crate::pingpong::{MEMORY, PAYLOAD, ask_for, put, take};

/// The number of bytes of a large message.
pub(crate) const LARGE_ITEM: usize = 64 << 10;
/// The offset of the word that the consumer writes.
const TAKEN: usize = MEMORY - LINE;

/// A ring of messages with `N` bytes. The whole ring fits in the L2 cache.
struct Ring<const N: usize>;

impl<const N: usize> Ring<N> {
    const SLOT: usize = (PAYLOAD + N).next_multiple_of(LINE);
    const SLOTS: u32 = if N == LARGE_ITEM { 4 } else { 1024 };
    /// After this number of messages, the consumer says how many it has taken.
    const SAY_EVERY: u32 = Self::SLOTS.div_ceil(16);

    const fn slot(number: u32) -> usize {
        (number % Self::SLOTS) as usize * Self::SLOT
    }

    fn lead(memory: &mut Memory, warm: u32, messages: u32) -> Duration {
        let (sent, mut taken) = (vec![0xa5; N], 0);
        let mut pass = |numbers: core::ops::RangeInclusive<u32>| {
            let last = *numbers.end();
            for number in numbers {
                while number - taken > Self::SLOTS {
                    taken = memory.word(TAKEN).load(Ordering::Acquire);
                    spin_loop();
                }
                if N == LARGE_ITEM {
                    ask_for::<N>(memory, Self::slot(number));
                }
                put::<N>(memory, Self::slot(number), &sent);
                memory.word(Self::slot(number)).store(number, Ordering::Release);
            }
            while taken != last {
                taken = memory.word(TAKEN).load(Ordering::Acquire);
                spin_loop();
            }
        };
        pass(1..=warm);
        let start = Instant::now();
        pass(warm + 1..=warm + messages);
        start.elapsed()
    }

    fn follow(memory: &mut Memory, warm: u32, messages: u32) {
        let mut private = vec![0; N];
        for number in 1..=warm + messages {
            while memory.word(Self::slot(number)).load(Ordering::Acquire) != number {
                spin_loop();
            }
            take::<N>(memory, Self::slot(number), &mut private);
            note(&private);
            if number.is_multiple_of(Self::SAY_EVERY) || number == warm || number == warm + messages
            {
                memory.word(TAKEN).store(number, Ordering::Release);
            }
        }
    }
}

/// Empties the ring. No messages may be under way.
pub(crate) fn reset(memory: &Memory) {
    // The slots of small messages and those of large messages have different offsets. So the words of both
    // kinds of slots are reset.
    for number in 0..1024 {
        memory.word(Ring::<16>::slot(number)).store(0, Ordering::Relaxed);
    }
    for number in 0..4 {
        memory.word(Ring::<LARGE_ITEM>::slot(number)).store(0, Ordering::Relaxed);
    }
    memory.word(TAKEN).store(0, Ordering::Release);
}

/// Passes `warm` messages of `bytes` bytes, and then `messages` messages. Returns the time until the
/// consumer has taken the `messages` messages.
pub(crate) fn lead(memory: &mut Memory, bytes: usize, warm: u32, messages: u32) -> Duration {
    match bytes {
        LARGE_ITEM => Ring::<LARGE_ITEM>::lead(memory, warm, messages),
        _ => Ring::<16>::lead(memory, warm, messages),
    }
}

/// Takes messages of `bytes` bytes.
pub(crate) fn follow(memory: &mut Memory, bytes: usize, warm: u32, messages: u32) {
    match bytes {
        LARGE_ITEM => Ring::<LARGE_ITEM>::follow(memory, warm, messages),
        _ => Ring::<16>::follow(memory, warm, messages),
    }
}

#[inline(never)]
fn note(bytes: &[u8]) {
    black_box(bytes);
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn all_messages_are_taken() {
        let (mut memory, file) = Memory::shared(MEMORY).unwrap();
        let mut other = Memory::received(file.as_fd(), MEMORY).unwrap();
        for (bytes, messages) in [(16, 1), (16, 5000), (LARGE_ITEM, 100)] {
            reset(&memory);
            std::thread::scope(|scope| {
                scope.spawn(|| follow(&mut other, bytes, 64, messages));
                lead(&mut memory, bytes, 64, messages);
            });
            assert_eq!(memory.word(TAKEN).load(Ordering::Relaxed), 64 + messages);
        }
    }
}
