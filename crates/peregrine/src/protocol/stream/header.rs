//! The header of a message. It has 32 bytes.

/// The version of the protocol. Client and server must have the same version.
pub(crate) const VERSION: u8 = 1;
/// The magic number of this protocol: "Pg".
const MAGIC: u16 = u16::from_le_bytes(*b"Pg");
pub(crate) const HEADER_BYTES: usize = 32;
const ALIGN: usize = 16;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// The kind of a message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum MessageKind {
            $($(#[$doc])* $name = $number,)*
        }

        impl MessageKind {
            const ALL: &'static [Self] = &[$(Self::$name),*];

            fn from_number(number: u8) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| *kind as u8 == number)
            }
        }
    };
}

kinds! {
    /// The client asks for a binding to the export whose name is in the body.
    Bind = 1,
    /// The client asks for the description of the export whose name is in the body.
    Describe = 2,
    /// The client releases a binding.
    Unbind = 3,
    /// The client makes a call.
    Call = 4,
    /// The client cancels a call. The server still sends a reply to this call.
    Abandon = 5,
    /// The server grants a binding.
    Bound = 65,
    /// The server refuses the request that has the number in the header. If that number is 0, the server
    /// refuses the whole connection.
    Refused = 66,
    /// The server describes an export.
    Description = 67,
    /// The server reports that the export of the binding in the header was withdrawn.
    Revoked = 68,
    /// The server reports that calls without a reply were not executed, and that it will execute no more
    /// calls.
    Goodbye = 69,
    /// The server reports the outcome of a call.
    Reply = 70,
}

/// The first 32 bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: MessageKind,
    /// The length of the body in bytes.
    pub(crate) body: u32,
    /// The number of the call or request to which the message belongs.
    pub(crate) number: u32,
    pub(crate) binding: u32,
    /// The procedure of a call, or the answer of a reply.
    pub(crate) procedure: u32,
    /// The length in bytes of the head, which is a part of the body.
    pub(crate) head: u32,
    /// In a call: the number of bytes of the body before the lent blocks (buffers that the caller lends to
    /// the server). In a reply: the offset of the head in the body.
    pub(crate) split: u32,
    /// The length in bytes of the extensions after the body.
    pub(crate) extensions: u32,
}

/// Why received bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The bytes do not belong to this protocol.
    Foreign,
    /// The peer uses another version of the protocol.
    Version(u8),
    /// This version of the protocol has no message of this kind.
    Kind(u8),
}

impl core::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Foreign => f.write_str("the message is not of this protocol"),
            Self::Version(other) => {
                write!(f, "the peer speaks version {other}, this side {VERSION}")
            }
            Self::Kind(kind) => write!(f, "there is no message of kind {kind}"),
        }
    }
}

/// Returns the number of bytes of padding that follow `bytes` bytes.
pub(crate) const fn padding(bytes: usize) -> usize {
    bytes.wrapping_neg() % ALIGN
}

const fn padded(bytes: u32) -> usize {
    (bytes as usize).saturating_add(padding(bytes as usize))
}

impl Header {
    /// Returns the header of a message without a body.
    pub(crate) const fn new(kind: MessageKind, number: u32) -> Self {
        Self { kind, body: 0, number, binding: 0, procedure: 0, head: 0, split: 0, extensions: 0 }
    }

    /// Returns the number of bytes that follow the header, padding included.
    pub(crate) const fn rest(&self) -> usize {
        padded(self.body).saturating_add(padded(self.extensions))
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.body.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[5] = VERSION;
        bytes[6..8].copy_from_slice(&MAGIC.to_le_bytes());
        let Self { number, binding, procedure, head, split, extensions, .. } = self;
        let words = [number, binding, procedure, head, split, extensions];
        for (place, word) in bytes[8..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// Fails if the bytes are not a header of this version.
    pub(crate) fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Unreadable> {
        let word = |at: usize| {
            let four = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            u32::from_le_bytes(four)
        };
        if u16::from_le_bytes([bytes[6], bytes[7]]) != MAGIC {
            return Err(Unreadable::Foreign);
        }
        if bytes[5] != VERSION {
            return Err(Unreadable::Version(bytes[5]));
        }
        let kind = MessageKind::from_number(bytes[4]).ok_or(Unreadable::Kind(bytes[4]))?;
        Ok(Self {
            kind,
            body: word(0),
            number: word(8),
            binding: word(12),
            procedure: word(16),
            head: word(20),
            split: word(24),
            extensions: word(28),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn header_fields_are_at_the_documented_offsets() {
        let header = Header {
            kind: MessageKind::Call,
            body: 0x0403_0201,
            number: 5,
            binding: 6,
            procedure: 7,
            head: 8,
            split: 9,
            extensions: 10,
        };
        let bytes = header.to_bytes();
        assert_eq!(bytes[..8], [1, 2, 3, 4, 4, 1, b'P', b'g']);
        assert!(bytes[8..].iter().step_by(4).copied().eq(5..=10));
        assert_eq!(Header::from_bytes(&bytes), Ok(header));
        assert_eq!((padding(0), padding(1), padding(16), padding(31)), (0, 15, 0, 1));
        assert_eq!(header.rest(), 0x0403_0201 + 15 + 16);
    }

    #[test]
    fn bytes_of_other_protocols_are_refused() {
        let good = Header::new(MessageKind::Goodbye, 0).to_bytes();
        let with = |at: usize, byte| {
            let mut bytes = good;
            bytes[at] = byte;
            Header::from_bytes(&bytes)
        };
        assert_eq!(with(6, b'Q'), Err(Unreadable::Foreign));
        assert_eq!(with(5, 9), Err(Unreadable::Version(9)));
        assert_eq!(with(4, 64), Err(Unreadable::Kind(64)));
        assert_eq!(with(4, 0), Err(Unreadable::Kind(0)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in any::<[u8; HEADER_BYTES]>()) {
            if let Ok(header) = Header::from_bytes(&bytes) {
                prop_assert_eq!(Header::from_bytes(&header.to_bytes()), Ok(header));
            }
        }
    }
}
