//! Streams: parameters whose items are sent while the call runs.
//!
//! A procedure sends the items of a [`Sink`], and its caller receives them. The caller sends the items of a
//! [`Source`], and the procedure receives them. In both directions the receiver grants *credit*: the number
//! of bytes that the sender may send. A sender without credit waits. So a slow receiver delays only the
//! sender of its own stream.
//!
//! All streams of a client binding share a *conduit*, which has a random token. The conduit consists of calls
//! of the procedure [`STREAMS`], which every export has. The argument of such a call has records from the
//! client, and the result has records from the server. The server *holds* one of these calls: it answers the
//! call when it has records to send. For a path, these calls are like any others, so every path carries
//! streams.
//!
//! The argument and the result are a header of 32 bytes and then records, each at a multiple of 16 bytes.
//! Numbers are little-endian.
//!
//! | at | bytes | header of the argument |
//! |---|---|---|
//! | 0 | 16 | the token of the conduit |
//! | 16 | 8 | the number of the message: 0 for the first message of the conduit, then 1 and so on |
//! | 24 | 4 | flags: 1 if the client has open streams; 2 if it had none before this message |
//! | 28 | 4 | zero |
//!
//! | at | bytes | header of the result |
//! |---|---|---|
//! | 0 | 8 | the number of the result: results are counted as messages are, and each message has one |
//! | 8 | 24 | zero |
//!
//! | at | bytes | record |
//! |---|---|---|
//! | 0 | 4 | the kind: see [`RecordKind`] |
//! | 4 | 4 | the number of the stream |
//! | 8 | 4 | the number of bytes after this header |
//! | 12 | 4 | the number of items in these bytes |
//! | 16 | 8 | the credit: the total cost that the receiver allows since the stream began |
//! | 24 | 8 | a number of items, whose meaning depends on the kind |
//! | 32 | | items, or a text |
//!
//! Items are encoded one after the other, like values in the head of a message, in the byte order of the
//! server. The cost of an item is its number of bytes plus 16. Credit is counted in the same unit.
//!
//! The server may hold a call only if flag 1 is set. Flag 2 is set in the first message, and in each message
//! that follows a message without flag 1.
//!
//! Messages can overtake each other, and so can results. Each side handles them in the order of their
//! numbers. A server forgets a conduit that has no open streams. The next message has flag 2, and the server
//! begins again with the number of this message.
//!
//! | file | what |
//! |---|---|
//! | `flow` | one end of a stream: what may be sent, what has arrived, and how the stream ends |
//! | `conduit` | the server's side: which call is held, and which streams have records to send |
//! | `remote` | the ends of streams in a procedure |
//! | `sink`, `source` | the parameters, and what a caller makes them from |
//! | `coding` | how items become bytes, and bytes become items |
//! | `channel` | a queue between a stream and another thread or task |
//! | `callback` | the two streams of a callback |

mod callback;
mod channel;
mod coding;
mod conduit;
mod flow;
mod remote;
mod sink;
mod source;

pub(crate) use callback::{CallbackEnds, Carries};
pub use channel::{Items, Sender};
pub(crate) use coding::{Coding, Compiled, InBothOrders, too_large};
pub(crate) use conduit::serve_streams;
pub(crate) use flow::{Flow, Left, Received, Room};
pub(crate) use remote::{Taken, open_sink, open_source};
pub use sink::Sink;
pub(crate) use sink::{Receive, Stopped};
pub(crate) use source::Produce;
pub use source::Source;

pub(crate) use super::words::HEADER_BYTES;
use super::words::{halves, to_bytes, wide, words_at};
use crate::value::align_up;

/// The number of the procedure whose calls carry streams. Every export has this procedure.
pub(crate) const STREAMS: u32 = u32::MAX - 3;

/// The cost of an item in addition to its bytes.
const ITEM_COST: u64 = 16;

/// Returns the cost of an item of `bytes` bytes.
pub(crate) const fn item_cost(bytes: usize) -> u64 {
    bytes as u64 + ITEM_COST
}

/// The token of a conduit.
pub(crate) type Token = [u8; 16];

/// What a call says of a stream in its arguments: four words of the conduit's token, the number of the
/// stream, the client's first credit, the largest record that the client takes, and zero. For a callback, the
/// last word is the byte order of the client.
pub(crate) type Opening = [u32; 8];

/// The kind of a record. It also says what the field `items` of the [`Record`] means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum RecordKind {
    /// Items. `items` is the number of items that were sent before them.
    Items = 1,
    /// The receiver's credit. `items` is the number of items that the receiver has taken.
    Credit = 2,
    /// The sender has sent all items. `items` is their number.
    End = 3,
    /// The receiver wants no more items. `items` is the number of items that the receiver has taken.
    Stop = 4,
    /// The sender sends no more items, although they are not complete. `items` is the number of items that
    /// were sent.
    Break = 5,
    /// The receiver asks whether the stream was opened, because its call has ended and nothing has arrived.
    Ask = 6,
}

impl RecordKind {
    /// Returns whether this is the last record of a stream from its sender.
    pub(crate) const fn is_last(self) -> bool {
        matches!(self, Self::End | Self::Break)
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: RecordKind,
    pub(crate) stream: u32,
    pub(crate) bytes: u32,
    pub(crate) count: u32,
    pub(crate) credit: u64,
    pub(crate) items: u64,
}

impl Record {
    /// Returns a record that has only a kind and the number of a stream.
    pub(crate) const fn bare(kind: RecordKind, stream: u32) -> Self {
        Self { kind, stream, bytes: 0, count: 0, credit: 0, items: 0 }
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let Self { kind, stream, bytes, count, credit, items } = self;
        let [credit, items] = [credit, items].map(halves);
        to_bytes([kind as u32, stream, bytes, count, credit[0], credit[1], items[0], items[1]])
    }

    /// Reads the records of a message or of a result, and passes each to `take` with the bytes after its
    /// header. Returns `None` if a record is malformed, or if `take` returns `None`.
    pub(crate) fn all(
        message: &[u8],
        mut take: impl FnMut(Self, &[u8]) -> Option<()>,
    ) -> Option<()> {
        let mut at = HEADER_BYTES;
        while at < message.len() {
            let [kind, stream, bytes, count, credit @ .., low, high] = words_at(message, at)?;
            let kind = match kind {
                1 => RecordKind::Items,
                2 => RecordKind::Credit,
                3 => RecordKind::End,
                4 => RecordKind::Stop,
                5 => RecordKind::Break,
                6 => RecordKind::Ask,
                _ => return None,
            };
            let start = at + HEADER_BYTES;
            let end = start.checked_add(bytes as usize)?;
            let (credit, items) = (wide(credit[0], credit[1]), wide(low, high));
            let record = Self { kind, stream, bytes, count, credit, items };
            take(record, message.get(start..end)?)?;
            at = align_up(end);
        }
        Some(())
    }
}

/// Returns the header of a message. `is_open` is whether the client has open streams. `is_first` is whether
/// the client had no open streams before this message.
pub(crate) fn message_header(
    token: Token,
    number: u64,
    is_open: bool,
    is_first: bool,
) -> [u8; HEADER_BYTES] {
    let flags = u32::from(is_open) | u32::from(is_first) << 1;
    let mut header = to_bytes([0, 0, 0, 0, halves(number)[0], halves(number)[1], flags, 0]);
    header[..token.len()].copy_from_slice(&token);
    header
}

/// The header of a message, without the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MessageHeader {
    number: u64,
    /// Whether the client has open streams.
    is_open: bool,
    /// Whether the client had no open streams before this message.
    is_first: bool,
}

/// Reads the header of a message. Returns `None` if it is malformed.
fn read_message(message: &[u8]) -> Option<(Token, MessageHeader)> {
    let [.., low, high, flags, _] = words_at(message, 0)?;
    let (is_open, is_first) = (flags & 1 != 0, flags & 2 != 0);
    // No client can send 2^63 messages, so a larger number is not that of a message.
    let number = Some(wide(low, high)).filter(|number| *number <= u64::MAX / 2)?;
    Some((*message.first_chunk()?, MessageHeader { number, is_open, is_first }))
}

fn result_header(number: u64) -> [u8; HEADER_BYTES] {
    let [low, high] = halves(number);
    to_bytes([low, high, 0, 0, 0, 0, 0, 0])
}

/// Reads the number of a result.
pub(crate) fn result_number(result: &[u8]) -> Option<u64> {
    let [low, high, ..] = words_at(result, 0)?;
    Some(wide(low, high))
}

/// Returns the words that describe a stream in the arguments of its call.
pub(crate) fn opening(token: Token, number: u32, credit: u32, room: u32) -> Opening {
    let mut opening = [0; 8];
    for (word, bytes) in opening.iter_mut().zip(token.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    opening[4..7].copy_from_slice(&[number, credit, room]);
    opening
}

/// Returns the token of the conduit that carries a stream.
fn token_of(opening: &Opening) -> Token {
    let mut token = Token::default();
    for (bytes, word) in token.as_chunks_mut().0.iter_mut().zip(opening) {
        *bytes = word.to_le_bytes();
    }
    token
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_written() {
        let token: Token = core::array::from_fn(|at| at as u8);
        for (is_open, is_first) in [(true, false), (false, true)] {
            let message = message_header(token, 1 << 40 | 7, is_open, is_first);
            let header = MessageHeader { number: 1 << 40 | 7, is_open, is_first };
            assert_eq!(read_message(&message), Some((token, header)));
        }
        assert_eq!(result_number(&result_header(1 << 33 | 1)), Some(1 << 33 | 1));
        let opening = opening(token, 3, 4, 5);
        assert_eq!((token_of(&opening), &opening[4..]), (token, &[3, 4, 5, 0][..]));
    }

    #[test]
    fn records_are_read_as_written_and_malformed_ones_are_refused() {
        let (kind, credit, items) = (RecordKind::Items, 1 << 35, 1 << 34 | 1);
        let record = Record { kind, stream: 9, bytes: 3, count: 1, credit, items };
        let mut message = vec![0; HEADER_BYTES];
        message.extend_from_slice(&record.to_bytes());
        message.extend_from_slice(b"abc");
        let read = |message: &[u8]| {
            let mut records = Vec::new();
            Record::all(message, |record, bytes| {
                records.push((record, bytes.to_vec()));
                Some(())
            })
            .map(|()| records)
        };
        assert_eq!(read(&message), Some(vec![(record, b"abc".to_vec())]));
        assert_eq!(read(&message[..message.len() - 1]), None);
        assert_eq!(read(&message[..HEADER_BYTES + 5]), None);
        assert_eq!(read(&[]), Some(Vec::new()));
        message[HEADER_BYTES] = 7;
        assert_eq!(read(&message), None);
    }
}
