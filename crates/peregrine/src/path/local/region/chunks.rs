//! How a large message is written: in chunks, through the processor's caches or past them. After each chunk,
//! the writer announces how much is written, so that the other side can read while the rest is being
//! written.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::time::Instant;

use super::slots::SLOT_BYTES;
use crate::value::{Block, CopyMethod, Departs, Space};

/// The number of bytes that are written between two announcements.
const CHUNK: usize = SLOT_BYTES;
/// The number of bytes written between two announcements for blocks of at least [`LARGE_CHUNKS_FROM`] bytes.
/// The reader of such a block works on larger chunks.
const LARGE_CHUNK: usize = 32 << 10;
/// The size in bytes of the smallest block that is written in chunks of [`LARGE_CHUNK`] bytes.
const LARGE_CHUNKS_FROM: usize = 128 << 10;

/// If another, distant processor holds a cache line, storing the line takes longer than this time. It is then
/// faster to write past the caches, without fetching the line. Between near processors, a store takes a fifth
/// of this time. Between distant processors, it takes more than twice this time.
const SLOW_LINE: Duration = Duration::from_nanos(15);
const LINE: usize = 64;
/// The size in bytes of the smallest copy that is timed. For a shorter copy, reading the clock would take a
/// large part of the time.
const TIMED: usize = 4096;
/// The largest number of messages that are written past the caches in a row. The first chunk of the next
/// message is a trial: it is stored through the caches, and timed.
const SPAN_MAX: u32 = 64;

/// Remembers how the messages of one direction of an A-stack are best stored.
///
/// Processors do not report their distances, and virtual processors move. The first chunk of a message is
/// therefore timed. All fields are hints. Two threads that fill one result may change them at the same time.
#[derive(Debug, Default)]
pub(crate) struct StoreMode {
    mode: AtomicU32,
    /// The number of messages that are still to be written past the caches before the next trial.
    left: AtomicU32,
    /// The value that `left` gets after the next trial, if that trial is slow.
    span: AtomicU32,
}

/// The mode in which the first chunk of a message is stored through the caches, and timed.
const TRIAL: u32 = 0;
/// The mode in which the rest of the message is stored through the caches.
const CACHED: u32 = 1;
/// The mode in which the message, or its rest after the first chunk, is stored past the caches.
const PAST: u32 = 2;

impl StoreMode {
    /// Begins to store another message, and chooses the mode of its first chunk.
    fn begin(&self) {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        self.mode.store(if left > 0 { PAST } else { TRIAL }, Ordering::Relaxed);
    }

    /// Copies one chunk of a block.
    fn copy(&self, to: Space<'_>, block: &Block<'_>, from: usize) {
        if to.len() < TIMED {
            return block.copy_to(from, to, CopyMethod::Short);
        }
        match self.mode.load(Ordering::Relaxed) {
            PAST => block.copy_to(from, to, CopyMethod::Streaming),
            CACHED => block.copy_to(from, to, CopyMethod::Cached),
            _ => {
                let start = Instant::now();
                block.copy_to(from, to, CopyMethod::Cached);
                self.learn(start.elapsed(), to.len() / LINE);
            }
        }
    }

    /// Chooses the mode of the following chunks, from the `time` in which `lines` cache lines were stored.
    fn learn(&self, time: Duration, lines: usize) {
        let slow = time > SLOW_LINE * lines as u32;
        let span = self.span.load(Ordering::Relaxed);
        if slow {
            self.left.store(span, Ordering::Relaxed);
        }
        self.span.store(if slow { (2 * span).clamp(1, SPAN_MAX) } else { 0 }, Ordering::Relaxed);
        self.mode.store(if slow { PAST } else { CACHED }, Ordering::Relaxed);
    }
}

/// Writes one large message in chunks.
#[derive(Debug)]
pub(crate) struct ChunkWriter<'a> {
    mode: &'a StoreMode,
    /// The word in which this side announces its progress to the other side.
    progress: &'a AtomicU32,
    /// The value that this side last wrote to the progress word.
    announced: AtomicU32,
    /// Whether bytes of the message were changed after this side had announced them.
    changed: AtomicBool,
}

impl<'a> ChunkWriter<'a> {
    pub(crate) fn new(mode: &'a StoreMode, progress: &'a AtomicU32) -> Self {
        mode.begin();
        Self { mode, progress, announced: AtomicU32::new(0), changed: AtomicBool::new(false) }
    }

    /// Announces that a block has been written from its start up to the offset `end` in the message.
    pub(crate) fn announce(&self, end: usize) {
        self.announced.store(end as u32, Ordering::Relaxed);
        // SYNC: arrival, in the server's `Arrival::wait` and the client's `LargeReplyWait::poll_progress`.
        self.progress.store(end as u32, Ordering::Release);
    }

    /// Ends the message. The caller then posts it. If bytes were changed after they had been announced, this
    /// function withdraws all announcements.
    pub(crate) fn finish(&self) {
        if self.changed.load(Ordering::Relaxed) {
            self.announce(0);
        }
    }
}

impl Departs for ChunkWriter<'_> {
    fn write(&self, at: usize, to: Space<'_>, block: &Block<'_>, from: usize) {
        let chunk = if to.len() < LARGE_CHUNKS_FROM { CHUNK } else { LARGE_CHUNK };
        let mut done = 0;
        while done < to.len() {
            let bytes = chunk.min(to.len() - done);
            self.mode.copy(to.range(done, bytes), block, from + done);
            done += bytes;
            self.there(at + done);
        }
    }

    fn there(&self, end: usize) {
        let announced = self.announced.load(Ordering::Relaxed) as usize;
        if end.abs_diff(announced) >= CHUNK {
            self.announce(end);
        }
    }

    fn changed(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Window;

    fn current(mode: &StoreMode) -> u32 {
        mode.mode.load(Ordering::Relaxed)
    }

    #[test]
    fn slow_stores_bypass_the_caches_for_exponentially_many_messages() {
        let mode = StoreMode::default();
        let (fast, slow) = (Duration::from_nanos(300), Duration::from_micros(5));
        let mut trials = Vec::new();
        for message in 0..300 {
            mode.begin();
            if current(&mode) == TRIAL {
                trials.push(message);
                mode.learn(slow, 128);
                assert_eq!(
                    current(&mode),
                    PAST,
                    "the rest of the message bypasses the caches, too"
                );
            }
        }
        assert_eq!(trials[..9], [0, 1, 3, 6, 11, 20, 37, 70, 135]);
        while current(&mode) != TRIAL {
            mode.begin();
        }
        mode.learn(fast, 128);
        assert_eq!(current(&mode), CACHED);
        mode.begin();
        assert_eq!(current(&mode), TRIAL, "the first chunk of each message is timed");
    }

    #[test]
    fn writer_announces_each_chunk() {
        let (mode, progress) = (StoreMode::default(), AtomicU32::new(0));
        let writer = ChunkWriter::new(&mode, &progress);
        let announced = || progress.load(Ordering::Relaxed);
        let (source, mut memory) = (vec![7; 100_000], vec![0; 100_000]);
        let space = Space::of_mut(&mut memory);
        let put = |at, bytes| {
            let from = Window::from(&source[at..at + bytes]);
            writer.write(at, space.part(at, bytes).unwrap(), &from.into(), 0);
        };
        put(0, 100);
        assert_eq!(announced(), 0, "less than a chunk is not announced");
        put(100, 8092);
        assert_eq!(announced(), 8192);
        put(8192, 20_000);
        assert_eq!(announced(), 8192 + 2 * 8192);
        // This block ends before the last announced byte, so the announced number falls.
        put(1000, 9000);
        assert_eq!(announced(), 1000 + 8192);
        writer.finish();
        assert_eq!(announced(), 1000 + 8192);
        writer.changed();
        put(30_000, 70_000);
        writer.finish();
        assert_eq!(announced(), 0, "the announcements are withdrawn");
        assert!(memory[..28_192].iter().chain(&memory[30_000..]).all(|byte| *byte == 7));
    }
}
