//! Domain caching (LRPC): a server that was called lately goes on looking on a processor that has
//! nothing else to do, so that the next call finds it awake.
//!
//! One word per processor, in a file that all servers of a runtime directory map, holds the tag of
//! the thread that looks there. Whoever was called most lately writes its own; the one before sees
//! that and sleeps. So at most one spins on a processor, however many servers there are.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use crate::sys::{self, Memory};

/// How long a server without a call goes on looking.
pub(super) const LOOKS_ON: Duration = Duration::from_millis(10);
/// Who offers the processor and has it back only after so long was not alone there.
pub(super) const ALONE: Duration = Duration::from_micros(20);

const LINE: usize = 64;
/// Processors that have a word; on others nobody looks on.
const PROCESSORS: usize = 1024;
/// Bytes of the file.
pub(crate) const PROCESSORS_BYTES: usize = PROCESSORS * LINE;

/// The words of all processors.
#[derive(Debug)]
pub(crate) struct Processors(Memory);

impl Processors {
    /// The words in memory that servers share, or that this one has for itself.
    pub(crate) const fn new(memory: Memory) -> Self {
        Self(memory)
    }

    fn word(&self, cpu: u32) -> Option<&AtomicU32> {
        let at = (cpu as usize).checked_mul(LINE)?;
        (at + LINE <= self.0.len()).then(|| self.0.word(at))
    }

    /// Takes a processor: whoever looked there before stops. False if it has no word.
    pub(super) fn take(&self, cpu: u32, tag: u32) -> bool {
        self.word(cpu).map(|word| word.store(tag, Ordering::Relaxed)).is_some()
    }

    /// Whether nobody has taken it since.
    pub(super) fn has(&self, cpu: u32, tag: u32) -> bool {
        self.word(cpu).is_some_and(|word| word.load(Ordering::Relaxed) == tag)
    }
}

/// A tag that no other thread of this machine is likely to have, and that is not zero.
pub(super) fn tag() -> u32 {
    sys::random().map_or(std::process::id(), u32::from_ne_bytes) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_last_has_the_processor() {
        let processors = Processors::new(Memory::private(PROCESSORS_BYTES).unwrap());
        assert!(processors.take(3, 7) && processors.has(3, 7));
        assert!(processors.take(4, 7) && processors.take(3, 9));
        assert!(!processors.has(3, 7) && processors.has(4, 7));
        assert!(!processors.take(1 << 20, 7) && !processors.has(u32::MAX, 7));
    }
}
