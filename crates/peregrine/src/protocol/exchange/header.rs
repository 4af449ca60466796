//! The header of a packet. Its 64 bytes identify the call and the piece of the message, and report what has
//! arrived.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 2 | magic |
//! | 2 | 1 | version of the protocol |
//! | 3 | 1 | [`PacketKind`] |
//! | 4 | 4 | check: CRC32C of the 64 bytes, with zeros in this field |
//! | 8 | 4 | handle: place in the server's table |
//! | 12 | 12 | handle: secret |
//! | 24 | 4 | sequence: number of the call |
//! | 28 | 2 | flags |
//! | 30 | 2 | serial: counts the packets that this side sent on this handle |
//! | 32 | 4 | `what` of the [`Shape`]: procedure, or answer |
//! | 36 | 4 | `total` of the [`Shape`] |
//! | 40 | 4 | `head` of the [`Shape`] |
//! | 44 | 4 | `at` of the [`Shape`]: bytes that are copied, or offset of the head |
//! | 48 | 4 | number of the fragment, or first missing position |
//! | 52 | 2 | piece / 16 |
//! | 54 | 2 | credits: how many positions this side accepts after those that arrived without a hole |
//! | 56 | 4 | check of the payload, if the flag [`CHECKED`](Flags::CHECKED) is set |
//! | 60 | 2 | bytes of extensions |
//! | 62 | 2 | echo: serial of the last packet received |
//!
//! All numbers are little-endian. [`Header`] is the validated form: a header that was read needs no further
//! checks. If a header is written and then read, the result equals the original.

use super::message::{self, Fragments, Shape};

/// The length of a header in bytes.
pub(crate) const HEADER_BYTES: usize = 64;
/// The length in bytes of the largest bitmap after a header. It equals the length of the smallest full piece,
/// because every path can carry a packet of that length.
pub(crate) const BITMAP_BYTES_MAX: usize = 512;
/// The length in bytes of the largest packet that neither carries a piece of a message nor serves to bind.
pub(crate) const CONTROL_BYTES_MAX: usize = HEADER_BYTES + BITMAP_BYTES_MAX;

/// The length in bytes of the largest packet of a handshake of TLS. Every path of IPv6 can carry it.
pub(crate) const SHAKE_BYTES_MAX: usize = 1280;
const SHAKE_BODY_BYTES_MAX: usize = SHAKE_BYTES_MAX - HEADER_BYTES;

/// The first bytes of every packet.
pub(crate) const MAGIC: [u8; 2] = *b"PX";
/// The version of the protocol. `docs/PROTOCOL.md` lists the changes of each version.
pub(crate) const VERSION: u8 = 3;

/// The kind of a packet. Each kind is sent either by clients or by servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum PacketKind {
    /// The client sends a piece of a call.
    Call = 1,
    /// The server sends a piece of a result.
    Result = 2,
    /// The server reports what has arrived of a call.
    HaveCall = 3,
    /// The client reports what has arrived of a result.
    HaveResult = 4,
    /// The client asks for the state of a call.
    Probe = 5,
    /// The client cancels a call.
    Cancel = 6,
    /// The server reports that the call is released. The call does not run, and will never run.
    Released = 7,
    /// The server reports that it does not know this handle.
    Refused = 8,
    /// The client reports that it does not need this handle any more (a goodbye).
    Bye = 9,
    /// The client begins to bind.
    Hello = 10,
    /// The server requests a proof of the client's address.
    Cookie = 11,
    /// The client binds to a name.
    Bind = 12,
    /// The server grants handles.
    Bound = 13,
    /// The server refuses to bind, and gives the reason.
    Unbound = 14,
    /// The server asks, while it runs this call, whether the client still waits for the result.
    Ask = 15,
    /// Either side continues a handshake of TLS.
    Shake = 16,
}

impl PacketKind {
    const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Call,
            2 => Self::Result,
            3 => Self::HaveCall,
            4 => Self::HaveResult,
            5 => Self::Probe,
            6 => Self::Cancel,
            7 => Self::Released,
            8 => Self::Refused,
            9 => Self::Bye,
            10 => Self::Hello,
            11 => Self::Cookie,
            12 => Self::Bind,
            13 => Self::Bound,
            14 => Self::Unbound,
            15 => Self::Ask,
            16 => Self::Shake,
            _ => return None,
        })
    }

    /// Returns whether packets of this kind carry a piece of a message.
    #[inline]
    pub(crate) const fn carries(self) -> bool {
        matches!(self, Self::Call | Self::Result)
    }

    /// Returns whether clients send packets of this kind in a call.
    #[cfg(test)]
    #[allow(dead_code)] // used by the simulator
    pub(crate) const fn is_from_client(self) -> bool {
        matches!(self, Self::Call | Self::HaveResult | Self::Probe | Self::Cancel | Self::Bye)
    }

    /// Returns whether packets of this kind serve to bind.
    pub(crate) const fn binds(self) -> bool {
        matches!(
            self,
            Self::Hello | Self::Cookie | Self::Bind | Self::Bound | Self::Unbound | Self::Shake
        )
    }
}

/// The flags of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u16);

impl Flags {
    pub(crate) const NONE: Self = Self(0);
    /// Requests a report. In a client's report about a result, this flag means that the client has waited for
    /// late packets. Pieces that are still missing are then lost.
    pub(crate) const REPORT: Self = Self(1);
    /// This piece was sent before.
    pub(crate) const RESENT: Self = Self(2);
    /// The header has a check of the payload.
    pub(crate) const CHECKED: Self = Self(4);
    /// The sender of this packet has received the whole message.
    pub(crate) const ALL: Self = Self(8);
    /// The server has sent the result.
    pub(crate) const REPLIED: Self = Self(16);
    /// In a refusal: the server knows the handle, but for another address.
    pub(crate) const ELSEWHERE: Self = Self(32);
    const KNOWN: u16 = 63;
    /// The bits that sealed packets use. They are never set in a header that was parsed: who opens a packet
    /// clears them.
    #[cfg(feature = "secure")]
    pub(super) const OF_SEALED: [u16; 2] = [64, 128 | 256];

    #[inline]
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    pub(crate) const fn with_if(self, condition: bool, other: Self) -> Self {
        if condition { self.with(other) } else { self }
    }

    #[inline]
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Identifies one activity, that is, one sequence of calls, and the server's record of these calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    /// The index of the record in the server's table.
    pub(crate) place: u32,
    /// A random number. A host that does not know the number can neither make calls nor answer them.
    pub(crate) secret: [u8; 12],
}

impl Handle {
    /// Returns the sequence that precedes the sequence of the first call. The value is a part of the random
    /// secret, so the sequences of some handles wrap around soon. If they all began at zero, errors in the
    /// handling of wrapped sequences would only show after years.
    #[inline]
    pub(crate) const fn sequence(&self) -> u32 {
        u32::from_le_bytes([self.secret[8], self.secret[9], self.secret[10], self.secret[11]])
    }
}

/// A validated header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: PacketKind,
    pub(crate) flags: Flags,
    pub(crate) handle: Handle,
    pub(crate) sequence: u32,
    pub(crate) serial: u16,
    pub(crate) echo: u16,
    pub(crate) shape: Shape,
    /// The number of the fragment that the packet carries. In a report: the first missing position, that is,
    /// its index in the order of sending.
    pub(crate) fragment: u32,
    /// The length of a full piece in bytes, a multiple of 16.
    pub(crate) piece: u32,
    pub(crate) credits: u16,
    /// CRC32C of the payload, if the flag [`CHECKED`](Flags::CHECKED) is set.
    pub(crate) check: u32,
}

/// Why the header of a packet cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HeaderError {
    /// The packet does not belong to this protocol.
    Foreign,
    /// The packet has another version.
    Version,
    /// The packet is damaged.
    Check,
    /// This version of the protocol does not define the packet's kind, or not all of its flags.
    UnknownKind,
    /// The fields contradict each other, or contradict the length of the packet.
    Fields,
}

/// Why the receiver ignores a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DropReason {
    /// The packet has another handle than the receiver.
    UnknownHandle,
    /// The packet belongs to a call that has ended, or a newer packet has made it obsolete.
    Late,
    /// The piece has arrived before.
    Duplicate,
    /// The payload is damaged.
    Damaged,
    /// The packet contradicts an earlier packet, or this side must never receive such a packet.
    Violation,
}

/// Returns the CRC32C of `bytes`. Uses the processor's instruction for this checksum, if there is one.
#[inline]
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Continues the checksum `check`, a CRC32C, with more bytes.
#[inline]
pub(crate) fn checksum_more(check: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(check, bytes)
}

impl Header {
    /// Makes a header with these three fields. All other fields are zero.
    #[inline]
    pub(crate) const fn new(kind: PacketKind, handle: Handle, sequence: u32) -> Self {
        Self {
            kind,
            flags: Flags::NONE,
            handle,
            sequence,
            serial: 0,
            echo: 0,
            shape: Shape { what: 0, total: 0, head: 0, at: 0, extension: 0 },
            fragment: 0,
            piece: 0,
            credits: 0,
            check: 0,
        }
    }

    /// Makes the refusal of the packet `of`, whose handle is unknown. `table` is the number of the table that
    /// refuses. `generation` is the number of results that the server has discarded at the handle's place.
    pub(crate) fn refusal(of: &Self, table: u64, generation: u32) -> Self {
        let (total, head) = (table as u32, (table >> 32) as u32);
        Self {
            echo: of.serial,
            shape: Shape { total, head, at: generation, ..Shape::default() },
            ..Self::new(PacketKind::Refused, of.handle, of.sequence)
        }
    }

    /// Returns the number of the table that sent this refusal. Valid only for a refusal.
    pub(crate) const fn table(&self) -> u64 {
        self.shape.total as u64 | (self.shape.head as u64) << 32
    }

    /// Returns the generation of the handle's place. Valid only for a refusal.
    pub(crate) const fn generation(&self) -> u32 {
        self.shape.at
    }

    /// Returns how the message to which this piece belongs is divided into fragments.
    #[inline]
    pub(crate) fn fragments(&self) -> Fragments {
        Fragments::new(self.shape.total, self.piece)
    }

    /// Writes the header with its check.
    #[inline]
    pub(crate) fn emit(&self, out: &mut [u8; HEADER_BYTES]) {
        let mut words = [0u64; 8];
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let quad = |[a, b]: [u8; 2], c: u8, d: u8| u32::from_le_bytes([a, b, c, d]);
        let halves = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
        let secret = &self.handle.secret;
        let [s0, s1, s2] = [word(secret, 0), word(secret, 4), word(secret, 8)];
        let piece = (self.piece / 16) as u16;
        words[0] = pair(quad(MAGIC, VERSION, self.kind as u8), 0);
        words[1] = pair(self.handle.place, s0);
        words[2] = pair(s1, s2);
        words[3] = pair(self.sequence, halves(self.flags.0, self.serial));
        words[4] = pair(self.shape.what, self.shape.total);
        words[5] = pair(self.shape.head, self.shape.at);
        words[6] = pair(self.fragment, halves(piece, self.credits));
        words[7] = pair(self.check, halves(self.shape.extension, self.echo));
        for (to, from) in out.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = from.to_le_bytes();
        }
        let check = checksum(out);
        out[4..8].copy_from_slice(&check.to_le_bytes());
    }

    /// Reads the header of a packet. `payload` is the number of bytes after the header.
    ///
    /// # Errors
    /// Fails if the bytes are not a header of this version, or are damaged.
    #[inline]
    pub(crate) fn parse(bytes: &[u8; HEADER_BYTES], payload: usize) -> Result<Self, HeaderError> {
        if bytes[..2] != MAGIC {
            return Err(HeaderError::Foreign);
        }
        if bytes[2] != VERSION {
            return Err(HeaderError::Version);
        }
        let mut zeroed = *bytes;
        // The check is cleared by writing a whole 64-bit word, because the checksum reads this word next. If
        // only half of the word were written, the processor could not forward the word from its store buffer.
        zeroed[..8].copy_from_slice(&u64::from(word(bytes, 0)).to_le_bytes());
        if checksum(&zeroed) != word(bytes, 4) {
            return Err(HeaderError::Check);
        }
        let kind = PacketKind::from_byte(bytes[3]).ok_or(HeaderError::UnknownKind)?;
        let flags = Flags(half(bytes, 28));
        if flags.0 & !Flags::KNOWN != 0 {
            return Err(HeaderError::UnknownKind);
        }
        let mut secret = [0; 12];
        secret.copy_from_slice(&bytes[12..24]);
        let header = Self {
            kind,
            flags,
            handle: Handle { place: word(bytes, 8), secret },
            sequence: word(bytes, 24),
            serial: half(bytes, 30),
            echo: half(bytes, 62),
            shape: Shape {
                what: word(bytes, 32),
                total: word(bytes, 36),
                head: word(bytes, 40),
                at: word(bytes, 44),
                extension: half(bytes, 60),
            },
            fragment: word(bytes, 48),
            piece: u32::from(half(bytes, 52)) * 16,
            credits: half(bytes, 54),
            check: word(bytes, 56),
        };
        if header.is_consistent(payload) { Ok(header) } else { Err(HeaderError::Fields) }
    }

    /// Returns whether the fields agree with each other, and with a payload of `payload` bytes.
    #[inline]
    fn is_consistent(&self, payload: usize) -> bool {
        match self.kind {
            PacketKind::Call | PacketKind::Result => {
                let shape = &self.shape;
                let fits = if self.kind == PacketKind::Call {
                    shape.fits_call()
                } else {
                    shape.fits_result()
                };
                if !fits || !message::is_piece(self.piece) {
                    return false;
                }
                let fragments = self.fragments();
                self.fragment < fragments.count() && fragments.range(self.fragment).len() == payload
            }
            PacketKind::HaveCall | PacketKind::HaveResult => {
                let checked = self.flags.has(Flags::CHECKED);
                message::is_piece(self.piece)
                    && payload <= BITMAP_BYTES_MAX
                    && checked == (payload > 0)
            }
            PacketKind::Probe => message::is_piece(self.piece) && payload == 0,
            PacketKind::Cancel
            | PacketKind::Released
            | PacketKind::Refused
            | PacketKind::Bye
            | PacketKind::Ask => payload == 0,
            PacketKind::Hello
            | PacketKind::Cookie
            | PacketKind::Bind
            | PacketKind::Bound
            | PacketKind::Unbound => self.flags.has(Flags::CHECKED),
            PacketKind::Shake => self.flags.has(Flags::CHECKED) && payload <= SHAKE_BODY_BYTES_MAX,
        }
    }

    /// Returns whether the payload is undamaged, or has no check.
    pub(crate) fn holds(&self, payload: &[u8]) -> bool {
        !self.flags.has(Flags::CHECKED) || checksum(payload) == self.check
    }
}

/// Changes the version in a written header, and updates its check.
pub(crate) fn set_version(header: &mut [u8; HEADER_BYTES], version: u8) {
    header[2] = version;
    header[4..8].fill(0);
    let check = checksum(header);
    header[4..8].copy_from_slice(&check.to_le_bytes());
}

/// Returns whether a written header belongs to a piece of a message.
pub(crate) const fn carries(header: &[u8; HEADER_BYTES]) -> bool {
    header[3] == PacketKind::Call as u8 || header[3] == PacketKind::Result as u8
}

/// Returns whether a written header belongs to a retransmitted piece of a result.
#[inline]
pub(crate) fn is_resent(header: &[u8; CONTROL_BYTES_MAX]) -> bool {
    u16::from(header[28]) & Flags::RESENT.0 != 0 && header[3] == PacketKind::Result as u8
}

/// Adds the check of the payload to a written header.
///
/// The driver, the code that sends the packet, calls this function for handles with payload checks. This
/// module does not see payloads.
pub(crate) fn seal(header: &mut [u8; HEADER_BYTES], check: u32) {
    let flags = half(header, 28) | Flags::CHECKED.0;
    header[28..30].copy_from_slice(&flags.to_le_bytes());
    header[56..60].copy_from_slice(&check.to_le_bytes());
    header[4..8].fill(0);
    let check = checksum(header);
    header[4..8].copy_from_slice(&check.to_le_bytes());
}

/// Returns whether the serial `a` was used before the serial `b`. Serials wrap around.
#[inline]
pub(crate) const fn before(a: u16, b: u16) -> bool {
    (a.wrapping_sub(b) as i16) < 0
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds() -> impl Strategy<Value = PacketKind> {
        (1..=16u8).prop_map(|byte| PacketKind::from_byte(byte).expect("a kind"))
    }

    prop_compose! {
        fn shapes()(
            what: u32,
            total in 0..=message::TOTAL_MAX,
            head: u32,
            at: u32,
            extension in 0..4u16,
        ) -> Shape {
            let extension = if total < 64 { 0 } else { extension * 16 };
            let head = head % (total - u32::from(extension) + 1);
            let at = at % (total - u32::from(extension) - head + 1);
            Shape { what, total, head, at, extension }
        }
    }

    prop_compose! {
        /// Generates any valid header, and the length of its payload in bytes.
        fn headers()(
            kind in kinds(),
            flags in 0..64u16,
            place: u32,
            secret: [u8; 12],
            (sequence, serial, echo, credits, check) in any::<(u32, u16, u16, u16, u32)>(),
            shape in shapes(),
            fragment: u32,
            piece in message::PIECE_MIN / 16..=message::PIECE_MAX / 16,
            bitmap in 0..=BITMAP_BYTES_MAX,
        ) -> (Header, usize) {
            let handle = Handle { place, secret };
            let (piece, mut flags, mut fragment) = (piece * 16, Flags(flags), fragment);
            let mut payload = 0;
            if kind.carries() {
                let fragments = Fragments::new(shape.total, piece);
                fragment %= fragments.count();
                payload = fragments.range(fragment).len();
            }
            if matches!(kind, PacketKind::HaveCall | PacketKind::HaveResult) {
                payload = bitmap;
                flags = Flags(flags.0 & !4).with_if(bitmap > 0, Flags::CHECKED);
            }
            if kind.binds() {
                flags = flags.with(Flags::CHECKED);
            }
            let header = Header {
                kind, flags, handle, sequence, serial, echo, shape, fragment, piece, credits, check,
            };
            (header, payload)
        }
    }

    proptest! {
        #[test]
        fn header_is_read_back_equal_after_writing((header, payload) in headers()) {
            let mut bytes = [0xa5; HEADER_BYTES];
            header.emit(&mut bytes);
            prop_assert_eq!(Header::parse(&bytes, payload), Ok(header));
            if header.kind.carries() {
                prop_assert_eq!(Header::parse(&bytes, payload + 1), Err(HeaderError::Fields));
            }
            let mut sealed = bytes;
            seal(&mut sealed, 0x1234_5678);
            if let Ok(sealed) = Header::parse(&sealed, payload) {
                prop_assert!(sealed.flags.has(Flags::CHECKED));
                prop_assert_eq!(sealed.check, 0x1234_5678);
            }
        }

        #[test]
        fn header_with_flipped_bits_is_rejected((header, payload) in headers(), flips: [usize; 3]) {
            let mut bytes = [0; HEADER_BYTES];
            header.emit(&mut bytes);
            let written = bytes;
            for flip in flips {
                bytes[flip / 8 % HEADER_BYTES] ^= 1 << (flip % 8);
            }
            prop_assert!(bytes == written || Header::parse(&bytes, payload).is_err());
        }

        #[test]
        fn no_bytes_make_the_parser_panic(mut bytes: [u8; 64], payload in 0..70_000usize) {
            bytes[..2].copy_from_slice(&MAGIC);
            bytes[2] = VERSION;
            bytes[3] &= 31;
            bytes[28] &= 63;
            bytes[29] = 0;
            bytes[4..8].fill(0);
            let check = checksum(&bytes);
            bytes[4..8].copy_from_slice(&check.to_le_bytes());
            if let Ok(header) = Header::parse(&bytes, payload) {
                let mut again = [0; 64];
                header.emit(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn change_of_any_byte_is_detected() {
        let header = Header::new(PacketKind::Cancel, Handle { place: 3, secret: [7; 12] }, 9);
        let mut bytes = [0; HEADER_BYTES];
        header.emit(&mut bytes);
        for at in 0..HEADER_BYTES {
            let mut changed = bytes;
            changed[at] ^= 0x40;
            assert!(Header::parse(&changed, 0).is_err(), "byte {at}");
        }
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
        assert_eq!(checksum_more(checksum(b"1234"), b"56789"), 0xe306_9283);
    }

    /// Compares a written header with the example in `docs/PROTOCOL.md`.
    #[test]
    fn document_shows_the_bytes_of_a_header() {
        let document = include_str!("../../../../../docs/PROTOCOL.md");
        let (_, vector) = document.split_once("in one packet:\n").expect("a vector");
        let (vector, _) = vector.split_once("```").expect("the end of the vector");
        let bytes = vector.split_whitespace().filter(|word| *word != "|");
        let bytes: Vec<u8> =
            bytes.map(|word| u8::from_str_radix(word, 16).expect("a byte")).collect();
        let handle = Handle { place: 3, secret: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] };
        let call = Header {
            serial: 9,
            echo: 8,
            shape: Shape { what: 7, total: 5, head: 4, at: 5, extension: 0 },
            piece: 1408,
            credits: 64,
            ..Header::new(PacketKind::Call, handle, 2)
        };
        let mut written = [0; HEADER_BYTES];
        call.emit(&mut written);
        assert_eq!(written[..], bytes);
    }

    #[test]
    fn serials_wrap_around() {
        assert!(before(1, 2) && before(0xffff, 0) && before(0xfff0, 5));
        assert!(!before(2, 2) && !before(0, 0xffff));
    }

    #[test]
    fn refusals_carry_table_and_generation() {
        let call = Header { serial: 8, ..Header::new(PacketKind::Call, Handle::default(), 1) };
        let refusal = Header::refusal(&call, 0x1_0000_0002, 0x8000_0003);
        assert_eq!((refusal.table(), refusal.generation()), (0x1_0000_0002, 0x8000_0003));
        assert_eq!((refusal.echo, refusal.sequence), (8, 1));
        let mut bytes = [0; HEADER_BYTES];
        refusal.emit(&mut bytes);
        assert_eq!(Header::parse(&bytes, 0), Ok(refusal));
    }
}
