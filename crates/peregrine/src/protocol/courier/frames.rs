//! Frames, which divide a byte stream into messages. They replace the packets of Xerox's Sequenced Packet
//! Protocol (SPP), over which the standard sends Courier. Before the data of each frame come four bytes: the
//! type of the data, flags, and the number of bytes of data (two bytes).

/// The number of bytes before the data of a frame.
pub(crate) const HEADER_BYTES: usize = 4;
/// The largest number of bytes of data in a frame.
pub(crate) const DATA_BYTES_MAX: usize = u16::MAX as usize;
/// The largest number of frames of a message, including frames with the flag `ATTENTION`. Frames may be
/// empty, so a limit on the bytes alone would let a message go on without end.
pub(crate) const FRAMES_MAX: u32 = 1 << 16;

/// The type of a frame whose data belongs to a message.
const MESSAGES: u8 = 0;
/// The type of a frame that says that the sender sends no more data.
const END: u8 = 254;
/// The type of the answer to a frame of the type [`END`].
const END_REPLY: u8 = 255;
/// The flag of the last frame of a message.
const END_OF_MESSAGE: u8 = 1;
/// The flag of an *attention*: a frame with one byte, which is not part of a message.
const ATTENTION: u8 = 2;

/// The frame with which a side says that it sends no more data.
pub(crate) const END_FRAME: [u8; HEADER_BYTES] = [END, 0, 0, 0];
/// The answer to [`END_FRAME`].
pub(crate) const END_REPLY_FRAME: [u8; HEADER_BYTES] = [END_REPLY, 0, 0, 0];

/// Returns the header of a frame with a part of a message. The part has at most [`DATA_BYTES_MAX`] bytes.
pub(crate) const fn header(bytes: u16, is_last: bool) -> [u8; HEADER_BYTES] {
    let [high, low] = bytes.to_be_bytes();
    [MESSAGES, if is_last { END_OF_MESSAGE } else { 0 }, high, low]
}

/// Why frames cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadFrame {
    /// A message has more bytes than the receiver allows.
    TooLong,
    /// A message has more than [`FRAMES_MAX`] frames.
    TooMany,
    /// A frame has an unknown type, contradictory flags or the wrong number of bytes. The type of frames with
    /// bulk data counts as unknown.
    Invalid,
    /// The peer announced the end of its data within a message, or sent data after the end.
    AfterEnd,
}

impl core::fmt::Display for BadFrame {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::TooLong => f.write_str("a message is longer than allowed"),
            Self::TooMany => write!(f, "a message has more than {FRAMES_MAX} frames"),
            Self::Invalid => f.write_str("a frame has an unknown type, flags or length"),
            Self::AfterEnd => f.write_str("a message is not complete at the end of the data"),
        }
    }
}

/// A message or an event in a stream of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    Message(Vec<u8>),
    /// The peer sends no more data, and waits for [`END_REPLY_FRAME`].
    End,
    /// The peer has read all data up to [`END_FRAME`].
    EndReply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A header, and the number of its bytes that have arrived.
    Header([u8; HEADER_BYTES], usize),
    /// Data of a frame. `missing` is the number of bytes that have not arrived.
    Data { missing: usize, is_last: bool },
    /// The byte of an attention.
    Attention,
}

const BETWEEN: Place = Place::Header([0; HEADER_BYTES], 0);

/// Puts the messages of a stream of frames together. The bytes may arrive in pieces of any size.
///
/// A length in a header is only compared with the limit. Memory is allocated for bytes that have arrived.
/// Attentions stop bulk data, which this side neither sends nor accepts. So attentions are ignored.
#[derive(Debug)]
pub(crate) struct Assembler {
    bytes_max: usize,
    place: Place,
    frames: u32,
    /// Whether a message has begun.
    is_within: bool,
    message: Vec<u8>,
    has_ended: bool,
}

impl Assembler {
    /// Makes an assembler for messages of at most `bytes_max` bytes.
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            place: BETWEEN,
            frames: 0,
            is_within: false,
            message: Vec::new(),
            has_ended: false,
        }
    }

    /// Returns whether no part of a message or frame has arrived.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.place == BETWEEN && !self.is_within
    }

    /// Returns the memory of the message that has arrived in part.
    pub(crate) const fn message(&mut self) -> &mut Vec<u8> {
        &mut self.message
    }

    /// Takes received bytes from the front of `bytes`, up to the end of a message. Returns `None` if more
    /// bytes are needed. Call it again until it returns `None`, because `bytes` may contain several messages.
    ///
    /// # Errors
    /// Fails if a frame is not valid, or if a limit is exceeded. The stream is of no use any more.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Arrived>, BadFrame> {
        loop {
            match &mut self.place {
                Place::Header(header, have) => {
                    let wanted = &mut header[*have..];
                    let taken = wanted.len().min(bytes.len());
                    let (now, later) = bytes.split_at(taken);
                    wanted[..taken].copy_from_slice(now);
                    *bytes = later;
                    *have += taken;
                    if *have < HEADER_BYTES {
                        return Ok(None);
                    }
                    let header = *header;
                    self.place = BETWEEN;
                    if let Some(arrived) = self.begin(header)? {
                        return Ok(Some(arrived));
                    }
                }
                Place::Attention => {
                    let Some((_, later)) = bytes.split_first() else { return Ok(None) };
                    *bytes = later;
                    self.place = BETWEEN;
                }
                Place::Data { missing, is_last } => {
                    let (now, later) = bytes.split_at((*missing).min(bytes.len()));
                    self.message.extend_from_slice(now);
                    *bytes = later;
                    *missing -= now.len();
                    if *missing > 0 {
                        return Ok(None);
                    }
                    let is_complete = *is_last;
                    self.place = BETWEEN;
                    if is_complete {
                        (self.frames, self.is_within) = (0, false);
                        let message = core::mem::take(&mut self.message);
                        return Ok(Some(Arrived::Message(message)));
                    }
                }
            }
        }
    }

    fn begin(&mut self, header: [u8; HEADER_BYTES]) -> Result<Option<Arrived>, BadFrame> {
        let [kind, flags, high, low] = header;
        let length = usize::from(u16::from_be_bytes([high, low]));
        match header {
            END_FRAME | END_REPLY_FRAME if self.is_within => return Err(BadFrame::AfterEnd),
            END_FRAME if !self.has_ended => {
                self.has_ended = true;
                return Ok(Some(Arrived::End));
            }
            END_REPLY_FRAME => return Ok(Some(Arrived::EndReply)),
            _ => {}
        }
        if self.has_ended {
            return Err(BadFrame::AfterEnd);
        }
        self.frames += 1;
        if self.frames > FRAMES_MAX {
            return Err(BadFrame::TooMany);
        }
        self.place = match (kind, flags) {
            (MESSAGES, 0 | END_OF_MESSAGE) => {
                if length > self.bytes_max - self.message.len() {
                    return Err(BadFrame::TooLong);
                }
                self.is_within = true;
                Place::Data { missing: length, is_last: flags == END_OF_MESSAGE }
            }
            (MESSAGES, ATTENTION) if length == 1 => Place::Attention,
            _ => return Err(BadFrame::Invalid),
        };
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Appends a message in frames of the given lengths. The last frame has what is left.
    fn divided(stream: &mut Vec<u8>, message: &[u8], lengths: &[usize]) {
        let mut rest = message;
        for length in lengths {
            let (frame, later) = rest.split_at(rest.len().min(*length));
            stream.extend(header(frame.len() as u16, false));
            stream.extend(frame);
            rest = later;
        }
        stream.extend(header(rest.len() as u16, true));
        stream.extend(rest);
    }

    fn received(
        assembler: &mut Assembler,
        stream: &[u8],
        piece: usize,
    ) -> Result<Vec<Arrived>, BadFrame> {
        let mut all = Vec::new();
        for mut bytes in stream.chunks(piece) {
            while let Some(arrived) = assembler.take(&mut bytes)? {
                all.push(arrived);
            }
            assert!(bytes.is_empty());
        }
        Ok(all)
    }

    #[test]
    fn frames_have_type_flags_and_length() {
        assert_eq!(header(0x1234, true), [0, 1, 0x12, 0x34]);
        assert_eq!(header(2, false), [0, 0, 0, 2]);
        assert_eq!((END_FRAME, END_REPLY_FRAME), ([254, 0, 0, 0], [255, 0, 0, 0]));
    }

    #[test]
    fn attention_within_a_message_is_ignored() {
        let stream = [0, 0, 0, 2, 7, 8, 0, 2, 0, 1, 1, 0, 1, 0, 2, 9, 9];
        for piece in 1..stream.len() {
            let arrived = received(&mut Assembler::new(4), &stream, piece);
            assert_eq!(arrived, Ok(vec![Arrived::Message(vec![7, 8, 9, 9])]));
        }
    }

    #[test]
    fn frames_that_are_not_valid_end_the_stream() {
        let invalid = [
            [1, 1, 0, 2],   // bulk data
            [7, 1, 0, 2],   // an unknown type
            [0, 4, 0, 2],   // an unknown flag
            [0, 3, 0, 1],   // an attention that ends a message
            [0, 2, 0, 2],   // an attention of two bytes
            [254, 0, 0, 2], // an end with data
            [255, 1, 0, 0], // an answer with flags
        ];
        for header in invalid {
            let mut assembler = Assembler::new(100);
            assert_eq!(assembler.take(&mut &header[..]), Err(BadFrame::Invalid), "{header:?}");
        }
        let texts = [BadFrame::TooLong, BadFrame::TooMany, BadFrame::Invalid, BadFrame::AfterEnd];
        assert!(texts.map(|bad| bad.to_string()).iter().all(|text| text.len() > 10));
    }

    #[test]
    fn data_end_once_and_between_messages() {
        let mut assembler = Assembler::new(100);
        let mut stream = Vec::new();
        divided(&mut stream, &[1, 2], &[]);
        stream.extend(END_FRAME);
        stream.extend(END_REPLY_FRAME);
        let expected = [Arrived::Message(vec![1, 2]), Arrived::End, Arrived::EndReply];
        assert_eq!(received(&mut assembler, &stream, 3).as_deref(), Ok(&expected[..]));
        assert_eq!(assembler.take(&mut &header(2, true)[..]), Err(BadFrame::AfterEnd));
        assert_eq!(assembler.take(&mut &END_FRAME[..]), Err(BadFrame::AfterEnd));
        for end in [END_FRAME, END_REPLY_FRAME] {
            let mut assembler = Assembler::new(100);
            let within = [&header(1, false)[..], &[5], &end].concat();
            assert_eq!(received(&mut assembler, &within, 99), Err(BadFrame::AfterEnd));
        }
    }

    #[test]
    fn announced_bytes_are_not_allocated_and_limits_hold() {
        let mut assembler = Assembler::new(70_000);
        assert!(assembler.is_between_messages());
        assert_eq!(assembler.take(&mut &header(u16::MAX, false)[..]), Ok(None));
        assert_eq!(assembler.message.capacity(), 0);
        assert!(!assembler.is_between_messages());
        assert_eq!(assembler.take(&mut &[0; DATA_BYTES_MAX][..]), Ok(None));
        assert!(!assembler.is_between_messages());
        assert_eq!(assembler.take(&mut &header(u16::MAX, true)[..]), Err(BadFrame::TooLong));
        let endless = header(0, false).repeat(FRAMES_MAX as usize);
        let mut assembler = Assembler::new(40);
        assert_eq!(assembler.take(&mut &endless[..]), Ok(None));
        assert_eq!(assembler.take(&mut &header(0, true)[..]), Err(BadFrame::TooMany));
        let endless = [0, 2, 0, 1, 1].repeat(FRAMES_MAX as usize);
        let mut assembler = Assembler::new(40);
        assert_eq!(assembler.take(&mut &endless[..]), Ok(None));
        assert_eq!(assembler.take(&mut &endless[..5]), Err(BadFrame::TooMany));
    }

    proptest! {
        #[test]
        fn messages_arrive_whole_and_in_order(
            messages in vec((vec(any::<u8>(), 0..60), vec(0_usize..20, 0..8)), 0..6),
            piece in 1_usize..50,
        ) {
            let mut stream = Vec::new();
            for (message, lengths) in &messages {
                divided(&mut stream, message, lengths);
            }
            let mut assembler = Assembler::new(60);
            let sent = messages.into_iter().map(|(message, _)| Arrived::Message(message)).collect();
            prop_assert_eq!(received(&mut assembler, &stream, piece), Ok(sent));
            prop_assert!(assembler.is_between_messages());
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes in vec(0_u8..4, 0..400)) {
            let mut assembler = Assembler::new(100);
            for arrived in received(&mut assembler, &bytes, 7).unwrap_or_default() {
                let Arrived::Message(message) = arrived else { continue };
                prop_assert!(message.len() <= 100);
            }
        }
    }
}
