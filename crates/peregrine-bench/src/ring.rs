//! The limit of one-way calls on the local path: a ring with one producer and one consumer, in memory that both
//! processes share.
//!
//! Each slot is a cache line: a word, which the producer sets to the number of the message, and 16 bytes. The consumer
//! copies the bytes, and says from time to time how many messages it has taken.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use peregrine::sys::Memory;

use crate::interfaces::LINE;

/// The number of slots. The whole ring fits in the L2 cache.
const SLOTS: u32 = 1024;
/// The offset of the bytes in a slot.
const BYTES: usize = 16;
/// The offset of the word that the consumer writes.
const TAKEN: usize = (SLOTS as usize + 2) * LINE;
/// After this number of messages, the consumer says how many it has taken.
const SAY_EVERY: u32 = 64;

const fn slot(number: u32) -> usize {
    (number % SLOTS) as usize * LINE
}

/// Empties the ring. No messages may be under way.
pub(crate) fn reset(memory: &Memory) {
    (0..SLOTS).for_each(|number| memory.word(slot(number)).store(0, Ordering::Relaxed));
    memory.word(TAKEN).store(0, Ordering::Release);
}

/// Passes `warm` messages, and then `messages` messages. Returns the time until the consumer has taken the latter.
pub(crate) fn lead(memory: &mut Memory, warm: u32, messages: u32) -> Duration {
    let mut taken = 0;
    let mut pass = |numbers: core::ops::RangeInclusive<u32>| {
        let last = *numbers.end();
        for number in numbers {
            while number - taken > SLOTS {
                taken = memory.word(TAKEN).load(Ordering::Acquire);
                spin_loop();
            }
            let bytes = black_box([0xa5u8; 16]);
            let written = memory.space_mut().write(slot(number) + BYTES, &bytes);
            written.expect("the slot is inside the memory");
            memory.word(slot(number)).store(number, Ordering::Release);
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

/// Takes messages.
pub(crate) fn follow(memory: &mut Memory, warm: u32, messages: u32) {
    for number in 1..=warm + messages {
        while memory.word(slot(number)).load(Ordering::Acquire) != number {
            spin_loop();
        }
        let mut bytes = [0u8; 16];
        let read = memory.space_mut().read(slot(number) + BYTES, &mut bytes);
        read.expect("the slot is inside the memory");
        take(&bytes);
        if number.is_multiple_of(SAY_EVERY) || number == warm || number == warm + messages {
            memory.word(TAKEN).store(number, Ordering::Release);
        }
    }
}

#[inline(never)]
fn take(bytes: &[u8; 16]) {
    black_box(bytes);
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::pingpong::MEMORY;

    #[test]
    fn all_messages_are_taken() {
        let (mut memory, file) = Memory::shared(MEMORY).unwrap();
        let mut other = Memory::received(file.as_fd(), MEMORY).unwrap();
        for messages in [1, 5000] {
            reset(&memory);
            std::thread::scope(|scope| {
                scope.spawn(|| follow(&mut other, 64, messages));
                lead(&mut memory, 64, messages);
            });
            assert_eq!(memory.word(TAKEN).load(Ordering::Relaxed), 64 + messages);
        }
    }
}
