//! Domain caching (LRPC): a worker that was called recently keeps polling on an idle processor. The next call
//! then finds the worker awake.
//!
//! All servers of a runtime directory map one file with a word for each processor. The word holds the tag of
//! the thread that polls there. A thread that begins to poll there writes its own tag. The thread whose tag
//! was replaced detects the replacement, and sleeps. At most one thread polls on a processor, regardless of
//! the number of servers.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use crate::sys::{self, Memory};

/// How long a worker without calls keeps polling.
pub(super) const KEEP_POLLING: Duration = Duration::from_millis(10);
/// If a yield takes longer than this, another thread needs the processor.
pub(super) const YIELD_WHEN_IDLE: Duration = Duration::from_micros(20);

const LINE: usize = 64;
/// The number of processors that have a word. On other processors, no thread keeps polling.
const PROCESSORS: usize = 1024;
/// The size in bytes of the file with the words of all processors.
pub(crate) const PROCESSORS_BYTES: usize = PROCESSORS * LINE;

/// The table that has one word for each processor.
#[derive(Debug)]
pub(crate) struct Processors(Memory);

impl Processors {
    /// Makes the table from the words in this memory. Other servers may share the memory.
    pub(crate) const fn new(memory: Memory) -> Self {
        Self(memory)
    }

    fn word(&self, cpu: u32) -> Option<&AtomicU32> {
        let at = (cpu as usize).checked_mul(LINE)?;
        (at + LINE <= self.0.len()).then(|| self.0.word(at))
    }

    /// Claims a processor for a thread. If another thread had claimed the processor, that thread stops
    /// polling. Returns false if the processor has no word.
    pub(super) fn claim(&self, cpu: u32, tag: u32) -> bool {
        self.word(cpu).map(|word| word.store(tag, Ordering::Relaxed)).is_some()
    }

    /// Returns whether the claim of the thread with this tag still holds: no other thread has claimed the
    /// processor since.
    pub(super) fn is_claimed_by(&self, cpu: u32, tag: u32) -> bool {
        self.word(cpu).is_some_and(|word| word.load(Ordering::Relaxed) == tag)
    }
}

/// Returns a tag that is not zero, and that another thread of this machine is unlikely to have.
pub(super) fn tag() -> u32 {
    sys::random().map_or(std::process::id(), u32::from_ne_bytes) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_claim_of_a_processor_counts() {
        let processors = Processors::new(Memory::private(PROCESSORS_BYTES).unwrap());
        assert!(processors.claim(3, 7) && processors.is_claimed_by(3, 7));
        assert!(processors.claim(4, 7) && processors.claim(3, 9));
        assert!(!processors.is_claimed_by(3, 7) && processors.is_claimed_by(4, 7));
        assert!(!processors.claim(1 << 20, 7) && !processors.is_claimed_by(u32::MAX, 7));
    }
}
