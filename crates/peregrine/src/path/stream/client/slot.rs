//! `Slot`: one call in flight, and whether its caller looks, sleeps or has given up.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::limits;
use crate::protocol::stream::{self as wire, Header};
use crate::sys;

/// Nobody waits for anything here.
pub(super) const IDLE: u32 = 0;
/// A call is being sent; its reply may come already.
pub(super) const SENDING: u32 = 1;
/// Its caller waits, and looks.
pub(super) const WAITING: u32 = 2;
/// Its caller sleeps on the word.
pub(super) const ASLEEP: u32 = 3;
/// Its caller is to take the receive turn.
pub(super) const POKED: u32 = 4;
/// Its caller has given up; the reply still comes.
pub(super) const CAPTURED: u32 = 5;
/// The reply has come.
pub(super) const DONE: u32 = 6;

/// One call in flight, in the frame of the same index.
#[repr(align(128))]
pub(super) struct Slot {
    pub(super) word: AtomicU32,
    /// The number of the call: the index, and above it how often the slot was used.
    pub(super) number: AtomicU32,
    /// Whether the server is to be told that the call was given up.
    pub(super) unsaid: AtomicBool,
    /// Of the reply: kind, answer, where the head begins, bytes of the head, bytes of the body.
    pub(super) reply: [AtomicU32; 5],
    /// How many times of tidying since a large message passed here keep its memory.
    pub(super) large: AtomicU32,
}

pub(super) const INDEX_BITS: u32 = limits::ASTACKS_MAX.ilog2();
const _: () = assert!(limits::ASTACKS_MAX.is_power_of_two());

impl Slot {
    /// Goes from one state to another, if it is in the first.
    #[inline]
    pub(super) fn moves(&self, from: u32, to: u32) -> bool {
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.word.load(Ordering::Acquire) == DONE
    }

    /// Whether the answer to that question is to come.
    #[inline]
    pub(super) fn awaits(&self, number: u32) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word != IDLE && word != DONE && self.number.load(Ordering::Relaxed) == number
    }

    /// The caller gives up; false if the reply has come meanwhile.
    #[cold]
    pub(super) fn capture(&self) -> bool {
        let give_up = |word| (word != DONE).then_some(CAPTURED);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, give_up).is_ok()
    }

    /// The reply is in its place.
    #[inline]
    pub(super) fn fill(&self, header: &Header) {
        let words = [header.kind as u32, header.procedure, header.split, header.head, header.body];
        for (place, word) in self.reply.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        if header.body as usize > limits::ASTACK_BYTES_KEPT {
            self.large.store(2, Ordering::Relaxed);
        }
        // SYNC: slot. What was received is seen by whoever finds it done.
        if self.word.swap(DONE, Ordering::AcqRel) == ASLEEP {
            sys::futex_wake(&self.word);
        }
    }

    pub(super) fn reply(&self) -> [u32; 5] {
        core::array::from_fn(|i| self.reply[i].load(Ordering::Relaxed))
    }

    /// The header of an answer to a question; of `asked` kind if it was none that there is.
    pub(super) fn question(&self, asked: wire::Kind) -> Header {
        let [kind, _, _, _, body] = self.reply();
        let answers = [wire::Kind::Bound, wire::Kind::Refused, wire::Kind::Description];
        let kind = answers.into_iter().find(|one| *one as u32 == kind).unwrap_or(asked);
        Header { body, ..Header::new(kind, self.number.load(Ordering::Relaxed)) }
    }
}
