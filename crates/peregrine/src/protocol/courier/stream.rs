//! Messages on a stream. Courier needs to know where a message ends, which TCP does not say. So a message is
//! framed in one of two ways. Each side begins with the range of the versions of Courier that it speaks.

use core::ops::Range;

use super::frames::{self, Arrived, BadFrame};
use super::message::{VERSIONS_BYTES, Versions};
use crate::protocol::onc::record;

/// How the ends of messages are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Each message is a record of ONC RPC.
    Records,
    /// Each message is a sequence of [`frames`].
    Frames,
}

impl Framing {
    /// Returns the piece of a message of `bytes` bytes that has the index `index`: the bytes before the
    /// piece, and the range of the piece in the message. A record has one piece. Returns `None` if the
    /// message is too long, or has no such piece.
    ///
    /// The first message of each side begins with [`Versions::to_bytes`].
    pub(crate) fn piece(self, bytes: usize, index: usize) -> Option<([u8; 4], Range<usize>)> {
        let piece = match self {
            Self::Records => record::marker(bytes).map(|_| record::FRAGMENT_BYTES_MAX)?,
            Self::Frames => frames::DATA_BYTES_MAX,
        };
        let start = index.checked_mul(piece).filter(|start| *start < bytes.max(1))?;
        let range = start..bytes.min(start.saturating_add(piece));
        let before = match self {
            Self::Records => record::marker(bytes)?,
            Self::Frames => frames::header(range.len() as u16, range.end == bytes),
        };
        Some((before, range))
    }
}

/// Why a stream cannot be read any further. The receiver closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Record(record::Broken),
    Frame(BadFrame),
    /// A message is longer than the receiver allows.
    TooLong,
    /// The first message does not begin with versions, or the stream ended within a message.
    Truncated,
    /// The two sides have no version of Courier in common. These are the versions of the peer.
    NoCommonVersion(Versions),
}

impl core::fmt::Display for Broken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Record(broken) => broken.fmt(f),
            Self::Frame(bad) => bad.fmt(f),
            Self::TooLong => f.write_str("a message is longer than allowed"),
            Self::Truncated => f.write_str("the stream ends within a message"),
            Self::NoCommonVersion(Versions { low, high }) => {
                write!(f, "the peer speaks versions {low} to {high} of Courier, not 3")
            }
        }
    }
}

/// What has arrived on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A call or a reply.
    Message(Vec<u8>),
    /// The peer sends no more data. This side answers with [`frames::END_REPLY_FRAME`].
    End,
    /// The peer has read all data of this side.
    EndReply,
}

#[derive(Debug)]
enum Assembler {
    Records(record::Assembler),
    Frames(frames::Assembler),
}

/// What one side of a connection receives.
#[derive(Debug)]
pub(crate) struct Input {
    bytes_max: usize,
    assembler: Assembler,
    /// The version that both sides use, once the peer's versions have arrived.
    version: Option<u16>,
}

impl Input {
    /// Makes the input of a new connection. A message may have up to `bytes_max` bytes.
    pub(crate) const fn new(framing: Framing, bytes_max: usize) -> Self {
        // The first message is longer, because it begins with versions.
        let longest = bytes_max.saturating_add(VERSIONS_BYTES);
        let assembler = match framing {
            Framing::Records => Assembler::Records(record::Assembler::new(longest)),
            Framing::Frames => Assembler::Frames(frames::Assembler::new(longest)),
        };
        Self { bytes_max, assembler, version: None }
    }

    /// Returns the version of Courier that both sides use, or `None` if the peer's versions have not arrived.
    pub(crate) const fn version(&self) -> Option<u16> {
        self.version
    }

    /// Returns the memory of the message that has arrived in part.
    pub(crate) const fn message(&mut self) -> &mut Vec<u8> {
        match &mut self.assembler {
            Assembler::Records(records) => records.message(),
            Assembler::Frames(frames) => frames.message(),
        }
    }

    /// Checks that the stream may end here.
    ///
    /// # Errors
    /// Fails if only a part of a message has arrived.
    pub(crate) fn end(&self) -> Result<(), Broken> {
        let is_between = match &self.assembler {
            Assembler::Records(records) => records.is_between_records(),
            Assembler::Frames(frames) => frames.is_between_messages(),
        };
        if is_between { Ok(()) } else { Err(Broken::Truncated) }
    }

    /// Takes received bytes from the front of `bytes`, up to the end of a message. Returns `None` if more
    /// bytes are needed. Call it again until it returns `None`, because `bytes` may contain several messages.
    ///
    /// # Errors
    /// Fails if a limit is exceeded, if the bytes have another form, or if both sides have no version in
    /// common. The stream is of no use any more.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Event>, Broken> {
        loop {
            let arrived = match &mut self.assembler {
                Assembler::Records(records) => {
                    records.take(bytes).map_err(Broken::Record)?.map(Arrived::Message)
                }
                Assembler::Frames(frames) => frames.take(bytes).map_err(Broken::Frame)?,
            };
            let mut message = match arrived {
                None => return Ok(None),
                Some(Arrived::End) => return Ok(Some(Event::End)),
                Some(Arrived::EndReply) => return Ok(Some(Event::EndReply)),
                Some(Arrived::Message(message)) => message,
            };
            if self.version.is_none() {
                let first = message.first_chunk().ok_or(Broken::Truncated)?;
                let theirs = Versions::from_bytes(*first);
                let common = Versions::OURS.common(theirs);
                self.version = Some(common.ok_or(Broken::NoCommonVersion(theirs))?);
                message.drain(..VERSIONS_BYTES);
                if message.is_empty() {
                    continue;
                }
            }
            if message.len() > self.bytes_max {
                return Err(Broken::TooLong);
            }
            return Ok(Some(Event::Message(message)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const BOTH: [Framing; 2] = [Framing::Records, Framing::Frames];

    fn pieces(framing: Framing, bytes: usize) -> Vec<([u8; 4], Range<usize>)> {
        (0..).map_while(|index| framing.piece(bytes, index)).collect()
    }

    fn write(stream: &mut Vec<u8>, framing: Framing, message: &[u8]) {
        for (before, range) in pieces(framing, message.len()) {
            stream.extend(before);
            stream.extend(&message[range]);
        }
    }

    fn received(input: &mut Input, stream: &[u8], piece: usize) -> Result<Vec<Event>, Broken> {
        let mut events = Vec::new();
        for mut bytes in stream.chunks(piece) {
            while let Some(event) = input.take(&mut bytes)? {
                events.push(event);
            }
        }
        Ok(events)
    }

    #[test]
    fn versions_come_first_alone_or_with_a_message() {
        for framing in BOTH {
            let mut apart = Vec::new();
            write(&mut apart, framing, &[0, 2, 0, 3]);
            write(&mut apart, framing, &[9; 6]);
            let mut together = Vec::new();
            write(&mut together, framing, &[0, 2, 0, 3, 9, 9, 9, 9, 9, 9]);
            for stream in [apart, together] {
                let mut input = Input::new(framing, 6);
                assert_eq!(input.version(), None);
                let message = Event::Message(vec![9; 6]);
                assert_eq!(received(&mut input, &stream, 3), Ok(vec![message]));
                assert_eq!((input.version(), input.end()), (Some(3), Ok(())));
            }
        }
    }

    #[test]
    fn ranges_that_do_not_meet_end_the_connection() {
        for framing in BOTH {
            let mut stream = Vec::new();
            write(&mut stream, framing, &[0, 1, 0, 2, 9, 9]);
            let theirs = Versions { low: 1, high: 2 };
            let broken = received(&mut Input::new(framing, 6), &stream, 99);
            assert_eq!(broken, Err(Broken::NoCommonVersion(theirs)));
            let mut stream = Vec::new();
            write(&mut stream, framing, &[0, 3, 0]);
            let broken = received(&mut Input::new(framing, 6), &stream, 99);
            assert_eq!(broken, Err(Broken::Truncated));
        }
    }

    #[test]
    fn limit_does_not_count_the_versions() {
        for framing in BOTH {
            let mut stream = Vec::new();
            write(&mut stream, framing, &[0, 3, 0, 3, 7, 7, 7, 7, 7, 7]);
            let mut input = Input::new(framing, 6);
            assert_eq!(received(&mut input, &stream, 99).map(|events| events.len()), Ok(1));
            let mut stream = Vec::new();
            write(&mut stream, framing, &[7; 8]);
            assert_eq!(received(&mut input, &stream, 99), Err(Broken::TooLong));
            let mut stream = Vec::new();
            write(&mut stream, framing, &[7; 11]);
            let broken = received(&mut Input::new(framing, 6), &stream, 99).unwrap_err();
            assert!(matches!(broken, Broken::Record(_) | Broken::Frame(BadFrame::TooLong)));
            assert!(broken.to_string().contains("longer"));
        }
    }

    #[test]
    fn stream_that_ends_within_a_message_is_truncated() {
        for framing in BOTH {
            let mut stream = Vec::new();
            write(&mut stream, framing, &[0, 3, 0, 3]);
            write(&mut stream, framing, &[7; 6]);
            for end in 0..stream.len() {
                let mut input = Input::new(framing, 6);
                assert_eq!(received(&mut input, &stream[..end], 99), Ok(Vec::new()));
                assert_eq!(input.end().is_ok(), end == 0 || end == 8, "{end}");
            }
        }
    }

    #[test]
    fn frames_announce_the_end_of_the_data() {
        let mut input = Input::new(Framing::Frames, 6);
        let stream = [frames::END_FRAME, frames::END_REPLY_FRAME].concat();
        assert_eq!(received(&mut input, &stream, 99), Ok(vec![Event::End, Event::EndReply]));
    }

    #[test]
    fn long_message_has_several_frames_and_one_record() {
        let bytes = 2 * frames::DATA_BYTES_MAX + 2;
        let frames = pieces(Framing::Frames, bytes);
        assert_eq!(frames.len(), 3);
        assert_eq!(frames[1], ([0, 0, 0xff, 0xff], 65_535..131_070));
        assert_eq!(frames[2], ([0, 1, 0, 2], 131_070..131_072));
        let records = pieces(Framing::Records, bytes);
        assert_eq!(records, [([0x80, 2, 0, 0], 0..bytes)]);
        assert_eq!(Framing::Records.piece(record::FRAGMENT_BYTES_MAX + 1, 0), None);
    }

    proptest! {
        #[test]
        fn messages_arrive_whole_and_in_order(
            messages in vec(vec(any::<u8>(), 1..60), 0..6), is_record in any::<bool>(),
            piece in 1_usize..50,
        ) {
            let framing = BOTH[usize::from(is_record)];
            let mut stream = Vec::new();
            write(&mut stream, framing, &Versions::OURS.to_bytes());
            for message in &messages {
                write(&mut stream, framing, message);
            }
            let sent = messages.into_iter().map(Event::Message).collect();
            let mut input = Input::new(framing, 60);
            prop_assert_eq!(received(&mut input, &stream, piece), Ok(sent));
            prop_assert_eq!(input.end(), Ok(()));
        }
    }
}
