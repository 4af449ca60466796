//! The packets of packet Courier. The *payload* of a call or reply is the versions of Courier, followed by
//! the message. There are two forms:
//!
//! * *Whole*: one datagram has the payload, after a header of six bytes. This is Xerox's expedited Courier
//!   over the Packet Exchange Protocol, and all implementations have it.
//! * *Parts*: the payload is divided into parts, and each has a header of 28 bytes. Only this implementation
//!   has this form. A server of the other form does not answer such packets.
//!
//! | field of the header of a part | bytes |
//! |---|---|
//! | number of the call | 4 |
//! | [`PARTS`] | 2 |
//! | flag [`ASKS`], kind | 2 |
//! | conversation | 4 |
//! | cookie | 8 |
//! | length of the payload | 4 |
//! | length of a full part | 2 |
//! | position | 2 |

use core::ops::Range;

use super::message::{VERSIONS_BYTES, Versions};
use super::words::{Output, Unreadable, Words};
use crate::protocol::exchange::message::{Fragments, PIECE_MIN, is_piece};

/// The client type of expedited Courier. Xerox assigned it to the clearinghouse, which used expedited
/// Courier.
pub(crate) const WHOLE: u16 = 2;
/// The client type of parts. Xerox did not assign this number.
pub(crate) const PARTS: u16 = 0x5043;
/// The flag with which the sender of a part asks for a report of the parts that have arrived.
const ASKS: u16 = 0x8000;

/// A client calls procedure 0 of this program, in one datagram, to find out whether a server accepts calls in
/// parts. Servers of other implementations do not have this program.
pub(crate) const PARTS_PROGRAM: u32 = 0x5043_5043;
/// The version of [`PARTS_PROGRAM`].
pub(crate) const PARTS_VERSION: u16 = 1;

/// The number of bytes before the payload of a whole call or reply.
pub(crate) const WHOLE_BYTES: usize = 6;
/// The number of bytes of the header before a part.
pub(crate) const PART_BYTES: usize = 28;
/// The number of bytes of a report, after the header.
const REPORT_BYTES: usize = 6;
/// The largest number of bytes of a UDP datagram over IPv4.
const DATAGRAM_BYTES_MAX: usize = 65_507;
/// The largest number of bytes of a payload in one datagram.
pub(crate) const WHOLE_PAYLOAD_MAX: usize = DATAGRAM_BYTES_MAX - WHOLE_BYTES;
/// The largest number of bytes of a payload in parts.
pub(crate) const PAYLOAD_MAX: usize = 1 << 20;
/// The number of bytes of a full part. Packets with such parts fit nearly every network.
pub(crate) const PIECE: u16 = 1376;
/// The number of positions that a receiver accepts, beginning with the first missing one.
pub(crate) const WINDOW: u32 = u32::BITS;

// The header of a part has 16 bits for its position, which is its index in the order of sending.
const _: () = assert!(PAYLOAD_MAX / PIECE_MIN as usize <= u16::MAX as usize);

/// How a payload is divided into parts. The order of the parts is that of Peregrine's own packets: the part
/// at the front of the payload, which may be shorter than the others, comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    pub(crate) total: u32,
    pub(crate) piece: u16,
}

impl Division {
    /// Divides a payload. Returns `None` if it is too long, or if parts cannot have this length.
    pub(crate) fn of(total: usize, piece: u16) -> Option<Self> {
        let is_valid = total <= PAYLOAD_MAX && is_piece(piece.into());
        is_valid.then_some(Self { total: total as u32, piece })
    }

    fn fragments(self) -> Fragments {
        Fragments::new(self.total, self.piece.into())
    }

    /// Returns the number of parts, which is at least one.
    pub(crate) fn count(self) -> u32 {
        self.fragments().count()
    }

    /// Returns the byte range, in the payload, of the part at a position. The position must be below
    /// [`count`](Self::count).
    pub(crate) fn range(self, position: u32) -> Range<usize> {
        let fragments = self.fragments();
        let range = fragments.range(fragments.fragment(position));
        range.start as usize..range.end as usize
    }
}

/// Which positions of a payload have arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrivals {
    /// The first missing position.
    pub(crate) next: u32,
    /// Bit i is set if position `next + i` has arrived. Bit 0 is not set.
    pub(crate) later: u32,
}

impl Arrivals {
    /// Notes the arrival of the part at a position. Returns whether the part was missing and is in the
    /// window.
    pub(crate) fn receive(&mut self, position: u32) -> bool {
        let Some(offset) = position.checked_sub(self.next) else { return false };
        if offset >= WINDOW || self.later >> offset & 1 == 1 {
            return false;
        }
        self.later |= 1 << offset;
        let arrived = self.later.trailing_ones();
        self.next += arrived;
        self.later = self.later.checked_shr(arrived).unwrap_or(0);
        true
    }

    /// Returns whether a position has arrived. The position must not be after the window.
    pub(crate) fn has(&self, position: u32) -> bool {
        position
            .checked_sub(self.next)
            .is_none_or(|offset| self.later.checked_shr(offset).is_some_and(|later| later & 1 == 1))
    }

    /// Returns the number of positions that have arrived.
    pub(crate) const fn count(&self) -> u32 {
        self.next + self.later.count_ones()
    }

    /// Returns one more than the last position that has arrived.
    pub(crate) const fn end(&self) -> u32 {
        self.next + u32::BITS - self.later.leading_zeros()
    }
}

/// A part of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    pub(crate) division: Division,
    pub(crate) position: u32,
    /// Whether the sender asks which parts have arrived.
    pub(crate) asks: bool,
    pub(crate) data: &'a [u8],
}

/// A receiver's report of the parts of a payload that have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// How the sender has divided the payload. `None` if no part has arrived.
    pub(crate) division: Option<Division>,
    pub(crate) arrivals: Arrivals,
    /// How many parts the sender may send now.
    pub(crate) window: u16,
}

/// The bytes of a packet that is to be sent: its header, and what follows the header. These are two slices,
/// so that a payload is sent without a copy.
pub(crate) type Datagram<'a> = [&'a [u8]; 2];

/// The content of a packet in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    /// The client asks for a cookie.
    Hello,
    /// The server gives the cookie that is in the header.
    Welcome,
    Call(Part<'a>),
    /// The server's report about the call.
    HaveCall(Report),
    /// The server has the whole call, and runs it.
    Working,
    Reply(Part<'a>),
    /// The client's report about the reply.
    HaveReply(Report),
    /// The server has run the call, and has discarded its reply.
    Forgotten,
}

const HELLO: u16 = 1;
const WELCOME: u16 = 2;
const CALL: u16 = 3;
const HAVE_CALL: u16 = 4;
const WORKING: u16 = 5;
const REPLY: u16 = 6;
const HAVE_REPLY: u16 = 7;
const FORGOTTEN: u16 = 8;

/// The fields that all packets of one call have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The number of the call.
    pub(crate) id: u32,
    /// A random number of the client, so that the calls of a restarted client differ from earlier ones.
    pub(crate) conversation: u32,
    /// The cookie that the server gave to the client, or 0 in [`Body::Hello`]. It proves that the client
    /// receives packets at its address. A restarted server does not accept it.
    pub(crate) cookie: u64,
}

/// A packet of either form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    Whole {
        id: u32,
        /// The client type, which a reply repeats.
        client: u16,
        payload: &'a [u8],
    },
    Parts(Name, Body<'a>),
}

/// Returns the message that a payload contains.
///
/// # Errors
/// Fails if the payload is too short, or if the sender does not speak the version of this module.
pub(crate) fn message(payload: &[u8]) -> Result<&[u8], Unreadable> {
    let (versions, message) = payload.split_first_chunk().ok_or(Unreadable::Truncated)?;
    let theirs = Versions::from_bytes(*versions);
    Versions::OURS.common(theirs).map(|_| message).ok_or(Unreadable::Invalid)
}

/// Returns a payload that contains this message.
pub(crate) fn payload(message: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(VERSIONS_BYTES + message.len());
    payload.extend(Versions::OURS.to_bytes());
    payload.extend(message);
    payload
}

impl<'a> Packet<'a> {
    /// Reads a packet. The payload of a whole call or reply is not read.
    ///
    /// # Errors
    /// Fails if the header is not complete, contradicts itself, or does not fit the data.
    pub(crate) fn parse(packet: &'a [u8]) -> Result<Self, Unreadable> {
        let header = &packet[..packet.len().min(PART_BYTES)];
        let mut words = Words::new(&header[..header.len() / 2 * 2])?;
        let (id, client) = (words.long()?, words.word()?);
        if client != PARTS {
            return Ok(Self::Whole { id, client, payload: &packet[WHOLE_BYTES..] });
        }
        let kind = words.word()?;
        let (conversation, cookie) = (words.long()?, words.number()?);
        let (total, piece) = (words.long()?, words.word()?);
        let position = u32::from(words.word()?);
        let data = &packet[PART_BYTES..];
        let division = Division::of(total as usize, piece).ok_or(Unreadable::Invalid);
        let part = || {
            let division = division?;
            if position >= division.count() || data.len() != division.range(position).len() {
                return Err(Unreadable::Invalid);
            }
            Ok(Part { division, position, asks: kind & ASKS != 0, data })
        };
        let report = || {
            let mut words = Words::new(data)?;
            let (window, later) = (words.word()?, words.long()?);
            words.end()?;
            let arrivals = Arrivals { next: position, later };
            let division = (total > 0).then_some(division).transpose()?;
            let count = division.map_or(0, Division::count);
            if later & 1 == 1 || arrivals.next > count || later != 0 && arrivals.end() > count {
                return Err(Unreadable::Invalid);
            }
            Ok(Report { division, arrivals, window })
        };
        let body = match kind & !ASKS {
            HELLO => Body::Hello,
            WELCOME => Body::Welcome,
            CALL => Body::Call(part()?),
            HAVE_CALL => Body::HaveCall(report()?),
            WORKING => Body::Working,
            REPLY => Body::Reply(part()?),
            HAVE_REPLY => Body::HaveReply(report()?),
            FORGOTTEN => Body::Forgotten,
            _ => return Err(Unreadable::Invalid),
        };
        Ok(Self::Parts(Name { id, conversation, cookie }, body))
    }

    /// Passes the bytes of the packet to `send`.
    pub(crate) fn send(self, send: &mut impl FnMut(Datagram<'_>)) {
        let mut header = [0; PART_BYTES];
        let mut report = [0; REPORT_BYTES];
        match self {
            Self::Whole { id, client, payload } => {
                header[..4].copy_from_slice(&id.to_be_bytes());
                header[4..WHOLE_BYTES].copy_from_slice(&client.to_be_bytes());
                send([&header[..WHOLE_BYTES], payload]);
            }
            Self::Parts(name, body) => {
                let done = emit(name, body, &mut header);
                debug_assert!(done.is_some(), "a header has that many bytes");
                let data = match body {
                    Body::Call(part) | Body::Reply(part) => part.data,
                    Body::HaveCall(Report { window, arrivals, .. })
                    | Body::HaveReply(Report { window, arrivals, .. }) => {
                        report[..2].copy_from_slice(&window.to_be_bytes());
                        report[2..].copy_from_slice(&arrivals.later.to_be_bytes());
                        &report
                    }
                    Body::Hello | Body::Welcome | Body::Working | Body::Forgotten => &[],
                };
                send([&header, data]);
            }
        }
    }

    /// Returns the bytes of the packet.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.send(&mut |datagram| bytes = datagram.concat());
        bytes
    }
}

fn emit(name: Name, body: Body<'_>, header: &mut [u8; PART_BYTES]) -> Option<()> {
    let (kind, division, position) = match body {
        Body::Hello => (HELLO, None, 0),
        Body::Welcome => (WELCOME, None, 0),
        Body::Working => (WORKING, None, 0),
        Body::Forgotten => (FORGOTTEN, None, 0),
        Body::Call(part) => (CALL, Some(part.division), part.position),
        Body::Reply(part) => (REPLY, Some(part.division), part.position),
        Body::HaveCall(report) => (HAVE_CALL, report.division, report.arrivals.next),
        Body::HaveReply(report) => (HAVE_REPLY, report.division, report.arrivals.next),
    };
    let asks =
        matches!(body, Body::Call(Part { asks: true, .. }) | Body::Reply(Part { asks: true, .. }));
    let mut output = Output::new(header);
    output.put(name.id.to_be_bytes())?;
    output.word(PARTS)?;
    output.word(kind | if asks { ASKS } else { 0 })?;
    output.put(name.conversation.to_be_bytes())?;
    output.put(name.cookie.to_be_bytes())?;
    output.put(division.map_or(0, |division| division.total).to_be_bytes())?;
    output.word(division.map_or(0, |division| division.piece))?;
    output.word(position as u16)
}

/// Sends missing parts of a payload: at most `window` parts, at positions before `end`. `send` sends one
/// part. The last part asks for a report. Returns the number of parts.
pub(crate) fn send_missing<'a>(
    payload: &'a [u8],
    division: Division,
    arrivals: &Arrivals,
    end: u32,
    window: u16,
    mut send: impl FnMut(Part<'a>),
) -> u32 {
    let end = end.min(division.count()).min(arrivals.next + WINDOW);
    let missing = (arrivals.next..end).filter(|position| !arrivals.has(*position));
    let mut missing = missing.take(window.into()).peekable();
    let mut sent = 0;
    while let Some(position) = missing.next() {
        let asks = missing.peek().is_none();
        send(Part { division, position, asks, data: &payload[division.range(position)] });
        sent += 1;
    }
    sent
}

/// A payload that arrives in parts. Memory is allocated for the parts that have arrived, and for the gaps
/// between them, which are at most [`WINDOW`] parts.
#[derive(Debug)]
pub(crate) struct Incoming {
    division: Division,
    arrivals: Arrivals,
    payload: Vec<u8>,
}

impl Incoming {
    pub(crate) fn new(division: Division) -> Self {
        Self { division, arrivals: Arrivals::default(), payload: Vec::new() }
    }

    pub(crate) const fn division(&self) -> Division {
        self.division
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.arrivals.next == self.division.count()
    }

    /// Returns the report about this payload, which permits the sender to send `window` parts.
    pub(crate) const fn report(&self, window: u16) -> Report {
        Report { division: Some(self.division), arrivals: self.arrivals, window }
    }

    /// Takes a part. Returns whether the part is new. The division of the part must be that of the payload.
    pub(crate) fn receive(&mut self, part: &Part<'_>) -> bool {
        debug_assert_eq!(part.division, self.division);
        if !self.arrivals.receive(part.position) {
            return false;
        }
        let range = self.division.range(part.position);
        if self.payload.len() < range.end {
            self.payload.resize(range.end, 0);
        }
        self.payload[range].copy_from_slice(part.data);
        true
    }

    /// Returns the payload, which must be whole.
    pub(crate) fn into_payload(self) -> Vec<u8> {
        debug_assert!(self.is_whole());
        self.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const NAME: Name = Name { id: 0x0102_0304, conversation: 0x0506_0708, cookie: 9 };

    #[test]
    fn whole_call_is_expedited_courier() {
        let bytes = [0, 0, 0, 7, 0, 2, 0, 2, 0, 3, 0, 0];
        let packet = Packet::parse(&bytes).expect("a packet");
        let expected = Packet::Whole { id: 7, client: WHOLE, payload: &bytes[6..] };
        assert_eq!((packet, packet.to_vec()), (expected, bytes.to_vec()));
        assert_eq!(message(&bytes[6..]), Ok(&[0, 0][..]));
        assert_eq!(message(&[0, 1, 0, 2, 0, 0]), Err(Unreadable::Invalid));
        assert_eq!(message(&[0, 3, 0]), Err(Unreadable::Truncated));
        assert_eq!(payload(&[7, 8]), [0, 3, 0, 3, 7, 8]);
        for end in 0..WHOLE_BYTES {
            assert_eq!(Packet::parse(&bytes[..end]), Err(Unreadable::Truncated));
        }
    }

    #[test]
    fn every_packet_of_parts_is_read_as_it_was_written() {
        let division = Division::of(1200, 512).expect("a division");
        let data = [7; 512];
        let part = |position: u32, asks| Part {
            division,
            position,
            asks,
            data: &data[..division.range(position).len()],
        };
        let arrivals = Arrivals { next: 0, later: 0b110 };
        let report = Report { division: Some(division), arrivals, window: 32 };
        let nothing = Report { division: None, arrivals: Arrivals::default(), window: 4 };
        let bodies = [
            Body::Hello,
            Body::Welcome,
            Body::Call(part(0, false)),
            Body::HaveCall(report),
            Body::Working,
            Body::Reply(part(2, true)),
            Body::HaveReply(report),
            Body::HaveReply(nothing),
            Body::Forgotten,
        ];
        for body in bodies {
            let bytes = Packet::Parts(NAME, body).to_vec();
            assert_eq!(Packet::parse(&bytes), Ok(Packet::Parts(NAME, body)));
            for end in WHOLE_BYTES..PART_BYTES {
                assert!(Packet::parse(&bytes[..end]).is_err(), "{body:?} {end}");
            }
        }
        // The front of the payload, which has 176 bytes, comes last.
        assert_eq!([division.range(0), division.range(2)], [176..688, 0..176]);
    }

    #[test]
    fn contradictory_packets_are_refused() {
        let division = Division::of(1200, 512).expect("a division");
        let part = Part { division, position: 0, asks: false, data: &[7; 512] };
        let good = Packet::Parts(NAME, Body::Call(part)).to_vec();
        let changed = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        let contradictory = [
            good[..good.len() - 1].to_vec(),
            [&good[..], &[0]].concat(),
            changed(7, 99), // an unknown kind
            changed(20, 1), // a payload of 16 MiB
            changed(25, 1), // parts of an odd length
            changed(27, 3), // a position after the end
            changed(27, 2), // a position whose part is shorter
        ];
        for bytes in contradictory {
            assert_eq!(Packet::parse(&bytes), Err(Unreadable::Invalid));
        }
        let report = |next, later| {
            let arrivals = Arrivals { next, later };
            let report = Report { division: Some(division), arrivals, window: 1 };
            let bytes = Packet::Parts(NAME, Body::HaveCall(report)).to_vec();
            Packet::parse(&bytes).is_ok()
        };
        assert!(report(3, 0) && report(1, 0b10));
        assert!(!report(4, 0) && !report(1, 0b100) && !report(1, 1));
        assert_eq!(Division::of(PAYLOAD_MAX + 1, PIECE), None);
    }

    #[test]
    fn announced_payload_is_not_allocated() {
        let division = Division::of(PAYLOAD_MAX, PIECE).expect("a division");
        let mut incoming = Incoming::new(division);
        assert_eq!(incoming.payload.capacity(), 0);
        let part = |position| Part { division, position, asks: false, data: &[7; PIECE as usize] };
        assert!(!incoming.receive(&part(WINDOW)));
        assert!(incoming.receive(&part(WINDOW - 1)));
        assert!(!incoming.receive(&part(WINDOW - 1)));
        let most = (WINDOW as usize + 1) * usize::from(PIECE);
        assert!(incoming.payload.capacity() <= most);
    }

    proptest! {
        #[test]
        fn parts_in_any_order_give_the_payload(
            payload in vec(any::<u8>(), 1..9000), seeds in vec(any::<u32>(), 300), piece in 32_u16..60,
        ) {
            let division = Division::of(payload.len(), piece * 16).expect("a division");
            let (mut incoming, mut rounds) = (Incoming::new(division), seeds.into_iter());
            let mut model = std::collections::BTreeSet::new();
            while let Some(seed) = rounds.next() && !incoming.is_whole() {
                let arrivals = incoming.report(32).arrivals;
                let mut parts = Vec::new();
                let end = division.count();
                let sent = send_missing(&payload, division, &arrivals, end, 32, |part| parts.push(part));
                prop_assert_eq!(sent as usize, parts.len());
                prop_assert!(parts.iter().rev().skip(1).all(|part| !part.asks));
                prop_assert!(parts.last().is_some_and(|part| part.asks));
                for (at, part) in parts.iter().enumerate().rev() {
                    if seed >> at & 1 == 1 {
                        prop_assert_eq!(incoming.receive(part), model.insert(part.position));
                        prop_assert!(!incoming.receive(part));
                    }
                }
                let arrivals = incoming.report(32).arrivals;
                prop_assert_eq!(arrivals.count() as usize, model.len());
                prop_assert_eq!(model.last().map_or(0, |last| last + 1), arrivals.end().max(arrivals.next));
                let all = (0..arrivals.next + WINDOW).filter(|position| arrivals.has(*position));
                prop_assert!(all.eq(model.iter().copied()));
            }
            prop_assert!(incoming.is_whole());
            prop_assert_eq!(incoming.into_payload(), payload);
        }

        #[test]
        fn any_bytes_are_read_without_harm(kind in 0_u8..10, rest in vec(any::<u8>(), 0..60)) {
            let start = [0, 0, 0, 1, 0x50, 0x43, 0, kind];
            for bytes in [&[&start[..], &rest].concat(), &rest] {
                if let Ok(packet) = Packet::parse(bytes) {
                    let again = packet.to_vec();
                    prop_assert_eq!(Packet::parse(&again), Ok(packet));
                }
            }
        }
    }
}
