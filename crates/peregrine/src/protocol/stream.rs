//! The stream protocol: messages with lengths in front, one after the other, many calls in flight.
//!
//! Every message is a header of 32 bytes, a body, and extensions, each padded to a multiple of 16,
//! so that whatever is received into aligned memory is aligned there. All numbers of the protocol
//! are little-endian; values in the body of a call or a reply are as the server lays them out.

use crate::interface::{Description, Digest};
use crate::limits;

/// The version that this build speaks; different ones do not talk.
pub(crate) const VERSION: u8 = 1;
/// "Pg": tells our messages from anybody else's.
const MAGIC: u16 = u16::from_le_bytes(*b"Pg");
pub(crate) const HEADER_BYTES: usize = 32;
const ALIGN: usize = 16;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// What a message is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Kind {
            $($(#[$doc])* $name = $number,)*
        }

        impl Kind {
            const ALL: &'static [Self] = &[$(Self::$name),*];

            fn from_number(number: u8) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| *kind as u8 == number)
            }
        }
    };
}

kinds! {
    /// Client: bind me to the export of this name.
    Bind = 1,
    /// Client: tell me what the export of this name is.
    Describe = 2,
    /// Client: I have no further use for this binding.
    Unbind = 3,
    /// Client: run this.
    Call = 4,
    /// Client: nobody waits for this call any more. Its reply is still sent.
    Abandon = 5,
    /// Server: bound.
    Bound = 65,
    /// Server: no to what was asked by this number, or, by number 0, to the whole connection.
    Refused = 66,
    /// Server: what the export is.
    Description = 67,
    /// Server: the export of this binding was withdrawn.
    Revoked = 68,
    /// Server: what is not answered by now was not executed, and nothing will be.
    Goodbye = 69,
    /// Server: what came of a call.
    Reply = 70,
}

/// The first 32 bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Bytes of the body.
    pub(crate) body: u32,
    /// The call, or the question, that it belongs to.
    pub(crate) number: u32,
    pub(crate) binding: u32,
    /// The procedure of a call, the answer of a reply.
    pub(crate) procedure: u32,
    /// Bytes of head in the body.
    pub(crate) head: u32,
    /// Of a call: bytes of the body before the blocks that are lent. Of a reply: where its head is.
    pub(crate) split: u32,
    /// Bytes of extensions behind the body.
    pub(crate) extensions: u32,
}

/// Why what has come is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is not of this protocol at all.
    Foreign,
    /// Another version.
    Version(u8),
    /// No kind of message of this version.
    Kind(u8),
}

impl core::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Foreign => f.write_str("what came is not of this protocol"),
            Self::Version(other) => {
                write!(f, "the other side speaks version {other}, this one {VERSION}")
            }
            Self::Kind(kind) => write!(f, "there is no message of kind {kind}"),
        }
    }
}

/// Bytes of padding behind so many.
pub(crate) const fn padding(bytes: usize) -> usize {
    bytes.wrapping_neg() % ALIGN
}

const fn padded(bytes: u32) -> usize {
    (bytes as usize).saturating_add(padding(bytes as usize))
}

impl Header {
    /// A message without a body.
    pub(crate) const fn new(kind: Kind, number: u32) -> Self {
        Self { kind, body: 0, number, binding: 0, procedure: 0, head: 0, split: 0, extensions: 0 }
    }

    /// Bytes that follow the header.
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

    /// The header that these bytes are.
    ///
    /// # Errors
    /// If they are none of this version.
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
        let kind = Kind::from_number(bytes[4]).ok_or(Unreadable::Kind(bytes[4]))?;
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

/// The body of [`Kind::Bind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    /// Identity of the client's interface; `None` binds to whatever is there.
    pub(crate) digest: Option<[u8; 16]>,
    /// How the client lays its values out: 1 little-endian, 2 big-endian. The server need not know.
    pub(crate) representation: u32,
    /// Calls that it would like to have in flight at one time.
    pub(crate) count: u32,
    /// Bytes of the largest message.
    pub(crate) bytes: u64,
    /// The client's process, as it says.
    pub(crate) process: u32,
    /// The name of the export.
    pub(crate) name: String,
}

/// The body of [`Kind::Bound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// Differs between incarnations of a server.
    pub(crate) epoch: u64,
    /// The binding's number on this connection.
    pub(crate) binding: u32,
    /// How the server lays its values out, and so how those of the binding's calls and results are.
    pub(crate) representation: u32,
    pub(crate) count: u32,
    pub(crate) bytes: u64,
}

/// The body of [`Kind::Refused`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// An error's number.
    pub(crate) kind: u32,
    pub(crate) text: String,
}

/// Bytes that are read from the front; what is not there is `None`.
struct Taking<'a>(&'a [u8]);

impl Taking<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let bytes = self.u32()? as usize;
        let (text, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        core::str::from_utf8(text).ok().map(str::to_owned)
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
}

impl Bind {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend(self.digest.unwrap_or_default());
        bytes.extend(u32::from(self.digest.is_some()).to_le_bytes());
        bytes.extend(self.representation.to_le_bytes());
        bytes.extend(self.bytes.to_le_bytes());
        bytes.extend(self.count.to_le_bytes());
        bytes.extend(self.process.to_le_bytes());
        put_text(&mut bytes, &self.name);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut taking = Taking(bytes);
        let digest = taking.array()?;
        let given = taking.u32()?;
        let representation = taking.u32()?;
        let bytes = taking.u64()?;
        let (count, process, name) = (taking.u32()?, taking.u32()?, taking.text()?);
        taking.end()?;
        let digest = match given {
            0 => None,
            1 => Some(digest),
            _ => return None,
        };
        Some(Self { digest, representation, count, bytes, process, name })
    }
}

impl Bound {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        bytes.extend(self.epoch.to_le_bytes());
        bytes.extend(self.binding.to_le_bytes());
        bytes.extend(self.representation.to_le_bytes());
        bytes.extend(self.bytes.to_le_bytes());
        bytes.extend(self.count.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut taking = Taking(bytes);
        let epoch = taking.u64()?;
        let (binding, representation) = (taking.u32()?, taking.u32()?);
        let (bytes, count) = (taking.u64()?, taking.u32()?);
        taking.end()?;
        Some(Self { epoch, binding, representation, count, bytes })
    }
}

impl Refused {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let text = &self.text[..self.text.floor_char_boundary(limits::TEXT_BYTES_MAX)];
        let mut bytes = Vec::with_capacity(8 + text.len());
        bytes.extend(self.kind.to_le_bytes());
        put_text(&mut bytes, text);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut taking = Taking(bytes);
        let (kind, text) = (taking.u32()?, taking.text()?);
        taking.end()?;
        Some(Self { kind, text })
    }
}

/// The body of [`Kind::Description`].
pub(crate) fn description_to_bytes(description: &Description) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256 + description.text.len());
    put_text(&mut bytes, &description.interface);
    bytes.extend(description.version.to_le_bytes());
    bytes.extend(description.digest.0);
    put_text(&mut bytes, &description.text);
    bytes.extend((description.docs.len() as u32).to_le_bytes());
    description.docs.iter().for_each(|docs| put_text(&mut bytes, docs));
    bytes.extend(description.process.to_le_bytes());
    bytes.extend(description.age_ms.to_le_bytes());
    bytes.extend(description.bindings.to_le_bytes());
    bytes.extend((description.listens.len() as u32).to_le_bytes());
    description.listens.iter().for_each(|endpoint| put_text(&mut bytes, endpoint));
    bytes.extend(description.network.to_le_bytes());
    bytes
}

pub(crate) fn description_from_bytes(bytes: &[u8]) -> Option<Description> {
    let mut taking = Taking(bytes);
    let (interface, version) = (taking.text()?, taking.u32()?);
    let (digest, text) = (Digest(taking.array()?), taking.text()?);
    // Each takes four bytes at least: what is claimed is not believed before it comes.
    let docs = (0..taking.u32()?).map(|_| taking.text()).collect::<Option<Vec<_>>>()?;
    let (process, age_ms, bindings) = (taking.u32()?, taking.u64()?, taking.u32()?);
    let listens = (0..taking.u32()?).map(|_| taking.text()).collect::<Option<Vec<_>>>()?;
    let network = taking.u64()?;
    taking.end()?;
    Some(Description {
        interface,
        version,
        digest,
        text,
        docs,
        process,
        age_ms,
        bindings,
        listens,
        network,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn and_a_byte(bytes: &[u8]) -> Vec<u8> {
        [bytes, &[0]].concat()
    }

    #[test]
    fn numbers_stand_where_the_document_says() {
        let header = Header {
            kind: Kind::Call,
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
    fn what_is_not_ours_is_told_apart() {
        let good = Header::new(Kind::Goodbye, 0).to_bytes();
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

    #[test]
    fn bodies_are_read_as_they_were_written_and_not_cut_off() {
        let bind = Bind {
            digest: Some([7; 16]),
            representation: 1,
            count: 3,
            bytes: 1 << 40,
            process: 77,
            name: "files".into(),
        };
        let other = Bind { digest: None, name: String::new(), ..bind.clone() };
        for bind in [bind, other] {
            let bytes = bind.to_bytes();
            assert_eq!(Bind::from_bytes(&bytes), Some(bind));
            assert_eq!(Bind::from_bytes(&and_a_byte(&bytes)), None);
            assert!((0..bytes.len()).all(|end| Bind::from_bytes(&bytes[..end]).is_none()));
        }
        let bound = Bound { epoch: 1 << 60, binding: 2, representation: 1, count: 4, bytes: 5 };
        assert_eq!(Bound::from_bytes(&bound.to_bytes()), Some(bound));
        assert_eq!(Bound::from_bytes(&and_a_byte(&bound.to_bytes())), None);
        let refused = Refused { kind: 4, text: "nö".into() };
        assert_eq!(Refused::from_bytes(&and_a_byte(&refused.to_bytes())), None);
        assert_eq!(Refused::from_bytes(&refused.to_bytes()), Some(refused));
        let long = Refused { kind: 4, text: "ö".repeat(limits::TEXT_BYTES_MAX) };
        assert!(long.to_bytes().len() <= 8 + limits::TEXT_BYTES_MAX);
        let said = Description {
            interface: "Files".into(),
            version: 2,
            digest: Digest([3; 16]),
            text: "text".into(),
            docs: vec!["a".into(), String::new()],
            process: 4,
            age_ms: 5,
            bindings: 6,
            listens: vec!["tcp:[::]:7".into()],
            network: 8,
        };
        let bytes = description_to_bytes(&said);
        assert_eq!(description_from_bytes(&bytes), Some(said));
        assert_eq!(description_from_bytes(&and_a_byte(&bytes)), None);
        assert!((0..bytes.len()).all(|end| description_from_bytes(&bytes[..end]).is_none()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Bind::from_bytes(&bytes), Bound::from_bytes(&bytes), Refused::from_bytes(&bytes));
            let _ = description_from_bytes(&bytes);
            if let Some(header) = bytes.first_chunk()
                && let Ok(header) = Header::from_bytes(header)
            {
                prop_assert_eq!(Header::from_bytes(&header.to_bytes()), Ok(header));
            }
        }
    }
}
