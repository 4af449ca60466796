//! `Stream`: how a large message is written: piece by piece, into the caches or past them, each piece
//! told to the other side, which reads it meanwhile.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::time::Instant;

use super::PLACE_BYTES;
use crate::value::{Departs, How, Piece, Space};

/// Bytes written between two words about it, and what of it is much: whose message is long enough
/// to be read in larger pieces.
const PIECE: usize = PLACE_BYTES;
const LARGE_PIECE: usize = 32 << 10;
const MUCH: usize = 128 << 10;

/// A store of a line that takes longer waits for a processor far away: then it is better not to have
/// the line at all. Between near ones it takes a fifth of this, between far ones more than twice.
const SLOW_LINE: Duration = Duration::from_nanos(15);
const LINE: usize = 64;
/// What is shorter is not worth a look at the clock.
const TIMED: usize = 4096;
/// Messages past the caches, at most, before it is tried again with them.
const SPAN_MAX: u32 = 64;

/// What the writer of an A-stack's messages of one direction remembers from one to the next.
///
/// Processors do not come with a table of their distances, and virtual ones move: so the first piece
/// of a message is timed. Only hints: if two threads fill one result, they may share them.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    how: AtomicU32,
    /// Messages that still go past the caches, and how many will the next time.
    left: AtomicU32,
    span: AtomicU32,
}

/// Ways in which a message is written: the first piece into the caches tells how the others are.
const TRIAL: u32 = 0;
const CACHED: u32 = 1;
const PAST: u32 = 2;

impl Pace {
    /// Another message begins.
    fn begin(&self) {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        self.how.store(if left > 0 { PAST } else { TRIAL }, Ordering::Relaxed);
    }

    /// Copies one piece.
    fn copy(&self, to: Space<'_>, from: Piece<'_>) {
        if from.len() < TIMED {
            return from.copy_to(to, How::Short);
        }
        match self.how.load(Ordering::Relaxed) {
            PAST => from.copy_to(to, How::Past),
            CACHED => from.copy_to(to, How::Lines),
            _ => {
                let start = Instant::now();
                from.copy_to(to, How::Lines);
                self.learn(start.elapsed(), from.len() / LINE);
            }
        }
    }

    /// So many lines took so long.
    fn learn(&self, time: Duration, lines: usize) {
        let slow = time > SLOW_LINE * lines as u32;
        let span = self.span.load(Ordering::Relaxed);
        if slow {
            self.left.store(span, Ordering::Relaxed);
        }
        self.span.store(if slow { (2 * span).clamp(1, SPAN_MAX) } else { 0 }, Ordering::Relaxed);
        self.how.store(if slow { PAST } else { CACHED }, Ordering::Relaxed);
    }
}

/// One message on its way.
#[derive(Debug)]
pub(crate) struct Stream<'a> {
    pace: &'a Pace,
    /// Where the other side looks.
    progress: &'a AtomicU32,
    /// What stands there, as far as this side has written it.
    told: AtomicU32,
    changed: AtomicBool,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(pace: &'a Pace, progress: &'a AtomicU32) -> Self {
        pace.begin();
        Self { pace, progress, told: AtomicU32::new(0), changed: AtomicBool::new(false) }
    }

    /// So many bytes from the start of the message, or of the block that ends there or later, are in
    /// place.
    pub(crate) fn tell(&self, bytes: usize) {
        self.told.store(bytes as u32, Ordering::Relaxed);
        // SYNC: arrival, in the server's `Arrival::wait` and the client's `Following::news`.
        self.progress.store(bytes as u32, Ordering::Release);
    }

    /// Takes back all that was told if some of it did not stay; to be called when nothing more is
    /// written, before the message is posted.
    pub(crate) fn end(&self) {
        if self.changed.load(Ordering::Relaxed) {
            self.tell(0);
        }
    }
}

impl Departs for Stream<'_> {
    fn write(&self, at: usize, to: Space<'_>, from: Piece<'_>) {
        let piece = if from.len() < MUCH { PIECE } else { LARGE_PIECE };
        let mut done = 0;
        while done < from.len() {
            let bytes = piece.min(from.len() - done);
            if let (Some(to), Some(from)) = (to.part(done, bytes), from.part(done, bytes)) {
                self.pace.copy(to, from);
            }
            done += bytes;
            self.there(at + done);
        }
    }

    fn there(&self, end: usize) {
        let told = self.told.load(Ordering::Relaxed) as usize;
        if end.abs_diff(told) >= PIECE {
            self.tell(end);
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

    fn how(pace: &Pace) -> u32 {
        pace.how.load(Ordering::Relaxed)
    }

    #[test]
    fn slow_lines_go_past_the_caches_and_are_tried_again_ever_later() {
        let pace = Pace::default();
        let (fast, slow) = (Duration::from_nanos(300), Duration::from_micros(5));
        let mut trials = Vec::new();
        for message in 0..300 {
            pace.begin();
            if how(&pace) == TRIAL {
                trials.push(message);
                pace.learn(slow, 128);
                assert_eq!(how(&pace), PAST, "the rest of this message does too");
            }
        }
        assert_eq!(trials[..9], [0, 1, 3, 6, 11, 20, 37, 70, 135]);
        while how(&pace) != TRIAL {
            pace.begin();
        }
        pace.learn(fast, 128);
        assert_eq!(how(&pace), CACHED);
        pace.begin();
        assert_eq!(how(&pace), TRIAL, "the first piece of each message is timed");
    }

    #[test]
    fn what_is_written_is_told_piece_by_piece() {
        let (pace, progress) = (Pace::default(), AtomicU32::new(0));
        let stream = Stream::new(&pace, &progress);
        let there = || progress.load(Ordering::Relaxed);
        let (source, mut memory) = (vec![7; 100_000], vec![0; 100_000]);
        let space = Space::of_mut(&mut memory);
        let put = |at, bytes| {
            let from = Window::from(&source[at..at + bytes]);
            stream.write(at, space.part(at, bytes).unwrap(), from.into());
        };
        put(0, 100);
        assert_eq!(there(), 0, "not worth a word");
        put(100, 8092);
        assert_eq!(there(), 8192);
        put(8192, 20_000);
        assert_eq!(there(), 8192 + 2 * 8192);
        // Another block, before the one that was written last.
        put(1000, 9000);
        assert_eq!(there(), 1000 + 8192);
        stream.end();
        assert_eq!(there(), 1000 + 8192);
        stream.changed();
        put(30_000, 70_000);
        stream.end();
        assert_eq!(there(), 0, "nothing holds");
        assert!(memory[..28_192].iter().chain(&memory[30_000..]).all(|byte| *byte == 7));
    }
}
