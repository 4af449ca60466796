//! A message in the memory where its parts lie.

use core::ops::Range;

use crate::value::{Window, align_up};

/// Parts that a message may have before it is put together rather than gathered.
pub(crate) const PARTS_MAX: usize = 60;
/// Windows that a range may need: each part, and what lies before it.
pub(crate) const WINDOWS_MAX: usize = 2 * PARTS_MAX + 2;

static ZEROS: [u8; 16] = [0; 16];

/// Which memory the bytes of a message are.
#[allow(clippy::large_enum_variant)] // one a call, on the stack
pub(crate) enum Message<'a> {
    /// One stretch of it.
    Whole(Window<'a>),
    /// Several, each at a multiple of 16 behind the one before.
    Parts(Parts<'a>),
}

/// Where each part begins in the message, and the parts.
pub(crate) struct Parts<'a> {
    parts: [(usize, Window<'a>); PARTS_MAX],
    count: usize,
    end: usize,
}

impl<'a> Parts<'a> {
    /// No part yet.
    pub(crate) const fn new() -> Self {
        Self { parts: [(0, Window::empty()); PARTS_MAX], count: 0, end: 0 }
    }

    /// One part more; false if there are too many.
    pub(crate) fn push(&mut self, part: Window<'a>) -> bool {
        let Some(next) = self.parts.get_mut(self.count) else { return false };
        let start = align_up(self.end);
        *next = (start, part);
        (self.count, self.end) = (self.count + 1, start + part.len());
        true
    }
}

impl<'a> Message<'a> {
    /// The memory of a range, in order; how many windows it is.
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
    fn ranges_are_what_the_message_would_be_in_one_piece() {
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
    fn there_is_an_end_to_parts() {
        let mut parts = Parts::new();
        assert_eq!((0..100).take_while(|_| parts.push(Window::empty())).count(), PARTS_MAX);
    }
}
