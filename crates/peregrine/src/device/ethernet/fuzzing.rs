//! The fuzz target for the reception of Ethernet frames. The unit tests below replay the corpus.

use std::collections::VecDeque;

use super::frame::{LINK_BYTES, LinkAddress, header, parse};
use super::{FrameSource, STRANGE_MAX, take};
use crate::device::gso::GSO_DATAGRAMS_MAX;
use crate::device::udp::datagrams;
use crate::sys::Address;
use crate::value::Space;

const HERE: LinkAddress = LinkAddress { hardware: [2, 0, 0, 0, 0, 1], endpoint: [7, 1] };
const ELSEWHERE: LinkAddress = LinkAddress { hardware: [2, 0, 0, 0, 0, 1], endpoint: [7, 2] };
const PEERS: [LinkAddress; 2] = [
    LinkAddress { hardware: [2, 0, 0, 0, 0, 2], endpoint: [9, 0] },
    LinkAddress { hardware: [2, 0, 0, 0, 0, 2], endpoint: [9, 1] },
];
/// The size in bytes of the largest space. A space is memory that receives bytes.
const SPACE_MAX: usize = 2048;
/// The largest number of spaces that one call fills.
const SPACES_MAX: usize = 3;

/// Frames that have arrived. The oldest frame is the first.
struct Frames(VecDeque<Vec<u8>>);

impl FrameSource for Frames {
    fn peek(&mut self) -> Option<Space<'_>> {
        self.0.front_mut().map(|frame| Space::of_mut(frame))
    }

    fn consume(&mut self) {
        self.0.pop_front();
    }
}

/// Fuzz input. Its bytes are consumed from the front.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<usize> {
        Some(usize::from(u16::from_le_bytes([self.byte()?, self.byte()?])))
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        first
    }

    /// Builds a frame from the input: either raw bytes, or bytes after a valid header.
    fn frame(&mut self) -> Option<Vec<u8>> {
        let kind = self.byte()?;
        let length = self.number()? % SPACE_MAX;
        let bytes = self.bytes(length);
        Some(match kind % 8 {
            0 => bytes.to_vec(),
            1 => [&header(ELSEWHERE, PEERS[0]), bytes].concat(),
            2 | 3 => [&header(HERE, PEERS[1]), bytes].concat(),
            _ => [&header(HERE, PEERS[0]), bytes].concat(),
        })
    }
}

/// Receives the frames of `input`. The first byte of `input` selects whether frames are merged, whether only
/// one sender is accepted, and the number of spaces. The next bytes are the lengths of the spaces.
///
/// # Panics
/// If the received bytes are not those of the frames for this endpoint, in order, or if one arrival
/// contains frames of several senders.
#[cfg_attr(not(fuzzing), allow(unreachable_pub))]
pub fn frames(input: &[u8]) {
    let mut input = Input(input);
    let Some(how) = input.byte() else { return };
    let (merges, only) = (how & 1 != 0, (how & 2 != 0).then_some(PEERS[0]));
    let lengths: [usize; SPACES_MAX] =
        core::array::from_fn(|_| input.number().unwrap_or(64) % (SPACE_MAX + 1));
    let count = usize::from(how >> 2) % SPACES_MAX + 1;
    let mut inbox = Frames(core::iter::from_fn(|| input.frame()).collect());
    while !inbox.0.is_empty() {
        let mut memory = lengths.map(|length| vec![0xa5; length]);
        let before: Vec<Vec<u8>> = inbox.0.iter().cloned().collect();
        let mut from = Address::default();
        let arrival = {
            let spaces: Vec<Space<'_>> =
                memory[..count].iter_mut().map(|space| Space::of_mut(space)).collect();
            take(&mut inbox, HERE, only, merges, &spaces, Some(&mut from))
        };
        let taken = &before[..before.len() - inbox.0.len()];
        assert!(!taken.is_empty(), "`take` consumed no frame");
        let sender = |frame: &Vec<u8>| {
            let (to, from) = parse(Space::of_mut(&mut frame.clone()))?;
            (to == HERE && only.is_none_or(|only| only == from)).then_some(from)
        };
        let first = taken.iter().position(|frame| sender(frame).is_some());
        let Some(arrival) = arrival else {
            assert!(first.is_none(), "a frame for this endpoint was lost");
            assert!(inbox.0.is_empty() || taken.len() == STRANGE_MAX);
            continue;
        };
        let ours = &taken[first.expect("a frame for this endpoint")..];
        let who = sender(&ours[0]).expect("a sender");
        assert_eq!(LinkAddress::of(&from), Some(who));
        assert!(
            ours.iter().all(|frame| sender(frame) == Some(who)),
            "one arrival has frames of several senders"
        );
        assert!(ours.len() <= if merges { GSO_DATAGRAMS_MAX } else { 1 });
        let payloads: Vec<&[u8]> = ours.iter().map(|frame| &frame[LINK_BYTES..]).collect();
        let room: usize = lengths[..count].iter().sum();
        assert_eq!(arrival.cut, payloads[0].len() > room);
        assert!(!arrival.cut || ours.len() == 1);
        let mut expected = payloads.concat();
        expected.truncate(room);
        let all = memory[..count].concat();
        assert_eq!((arrival.bytes, arrival.segment), (expected.len(), payloads[0].len().min(room)));
        assert_eq!(all[..arrival.bytes], expected);
        assert!(
            all[arrival.bytes..].iter().all(|byte| *byte == 0xa5),
            "bytes were written after the end"
        );
        if !arrival.cut && arrival.bytes > 0 {
            let packets = datagrams(arrival).map(|range| &all[range]);
            assert!(packets.eq(payloads.into_iter().filter(|packet| !packet.is_empty())));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn input(how: u8, spaces: [u16; 3], all: &[(u8, usize)]) -> Vec<u8> {
        let mut bytes = vec![how];
        spaces.iter().for_each(|space| bytes.extend(space.to_le_bytes()));
        for (n, (kind, length)) in all.iter().enumerate() {
            bytes.push(*kind);
            bytes.extend((*length as u16).to_le_bytes());
            bytes.extend(vec![n as u8; *length]);
        }
        bytes
    }

    #[test]
    fn batches_foreign_and_short_frames_are_distinguished() {
        let mixed = [(4, 64), (4, 64), (4, 10), (2, 64), (0, 5), (1, 64), (4, 0), (4, 0), (4, 64)];
        for how in 0..16 {
            for spaces in [[2048, 2048, 2048], [64, 100, 7], [0, 0, 0], [5, 0, 200]] {
                frames(&input(how, spaces, &mixed));
                frames(&input(how, spaces, &[(1, 20); 200]));
                frames(&input(how, spaces, &[(4, 30); 100]));
            }
        }
        frames(&[]);
        frames(&[1]);
    }

    proptest! {
        #[test]
        fn any_frames_are_received_without_harm(
            how in any::<u8>(),
            spaces in any::<[u16; 3]>(),
            all in prop::collection::vec((any::<u8>(), 0..300_usize), 0..100),
            noise in prop::collection::vec(any::<u8>(), 0..4000),
        ) {
            frames(&input(how, spaces, &all));
            frames(&noise);
        }
    }

    /// Replays the inputs that earlier fuzzing runs have saved.
    #[test]
    fn corpus_of_frames_is_received_safely() {
        let fuzz =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/frames");
        let mut count = 0;
        for entry in std::fs::read_dir(fuzz).expect("a corpus") {
            frames(&std::fs::read(entry.expect("a file").path()).expect("an input"));
            count += 1;
        }
        assert!(count >= 4, "{count} inputs");
    }
}
