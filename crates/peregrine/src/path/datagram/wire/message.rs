//! Describes a message as a list of parts, because the bytes of a message may lie at several places in
//! memory.

use core::ops::Range;

use crate::value::{Window, align_up};

/// The largest number of parts of a message. A message of more parts is first copied into one part.
pub(crate) const PARTS_MAX: usize = 60;
/// The largest number of windows that a range of a message can have. Each part needs up to two windows: one
/// for the part, and one for the padding before it.
pub(crate) const WINDOWS_MAX: usize = 2 * PARTS_MAX + 2;

static ZEROS: [u8; 16] = [0; 16];

/// The memory that holds the bytes of a message.
#[allow(clippy::large_enum_variant)] // each call has one, on the stack
pub(crate) enum Message<'a> {
    /// One contiguous range.
    Whole(Window<'a>),
    /// Several ranges. In the message, each range begins at the next multiple of 16 after the end of the
    /// previous range.
    Parts(Parts<'a>),
}

/// The parts of a message. Each part has its offset in the message.
pub(crate) struct Parts<'a> {
    parts: [(usize, Window<'a>); PARTS_MAX],
    count: usize,
    end: usize,
}

impl<'a> Parts<'a> {
    /// Creates an empty list of parts.
    pub(crate) const fn new() -> Self {
        Self { parts: [(0, Window::empty()); PARTS_MAX], count: 0, end: 0 }
    }

    /// Adds a part. Returns false if the message already has [`PARTS_MAX`] parts.
    pub(crate) fn push(&mut self, part: Window<'a>) -> bool {
        let Some(next) = self.parts.get_mut(self.count) else { return false };
        let start = align_up(self.end);
        *next = (start, part);
        (self.count, self.end) = (self.count + 1, start + part.len());
        true
    }
}

impl<'a> Message<'a> {
    /// Writes the windows of a range of the message to `out`, in order. Returns the number of these windows.
    pub(crate) fn range(&self, range: Range<u32>, out: &mut [Window<'a>; WINDOWS_MAX]) -> usize {
        let (mut at, end) = (range.start as usize, range.end as usize);
        let mut count = 0;
        let mut add = |window: Window<'a>| {
            out[count] = window;
            count += 1;
        };
        match self {
            Self::Whole(whole) => add(whole.range(at, end - at)),
            Self::Parts(Parts { parts, count, .. }) => {
                for (start, part) in &parts[..*count] {
                    if at < end && at < *start {
                        add(Window::from(&ZEROS[..]).range(0, end.min(*start) - at));
                        at = end.min(*start);
                    }
                    let stop = end.min(start + part.len());
                    if at < stop {
                        add(part.range(at - start, stop - at));
                        at = stop;
                    }
                }
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_equal_those_of_the_contiguous_message() {
        let blocks: [&[u8]; 4] = [&[1; 21], &[2; 16], &[], &[3; 40]];
        let mut parts = Parts::new();
        let mut whole = Vec::new();
        for block in blocks {
            assert!(parts.push(Window::from(block)));
            whole.resize(align_up(whole.len()), 0);
            whole.extend_from_slice(block);
        }
        let message = Message::Parts(parts);
        for start in 0..whole.len() {
            for end in start..=whole.len() {
                let mut windows = [Window::empty(); WINDOWS_MAX];
                let count = message.range(start as u32..end as u32, &mut windows);
                let mut found = Vec::new();
                for window in &windows[..count] {
                    let from = found.len();
                    found.resize(from + window.len(), 9);
                    window.read(0, &mut found[from..]).unwrap();
                }
                assert_eq!(found, whole[start..end], "{start}..{end}");
            }
        }
    }

    #[test]
    fn number_of_parts_is_bounded() {
        let mut parts = Parts::new();
        assert_eq!((0..100).take_while(|_| parts.push(Window::empty())).count(), PARTS_MAX);
    }
}
