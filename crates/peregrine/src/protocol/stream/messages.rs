//! The bodies of the messages for binding.

use crate::limits;
use crate::protocol::fields::{Fields, put_text};

/// The body of [`MessageKind::Bind`](super::MessageKind::Bind).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BindRequest {
    /// The digest of the client's interface. `None` binds to any interface.
    pub(crate) digest: Option<[u8; 16]>,
    /// The byte order of the client's values: 1 is little-endian, 2 is big-endian. The server does not use
    /// it.
    pub(crate) representation: u32,
    /// The number of calls that the client wants to have in flight at the same time.
    pub(crate) count: u32,
    /// The largest number of bytes that the client wants in one message.
    pub(crate) bytes: u64,
    /// The number of the client's process, as the client reports it.
    pub(crate) process: u32,
    /// The name of the export.
    pub(crate) name: String,
}

/// The body of [`MessageKind::Bound`](super::MessageKind::Bound).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BindGrant {
    /// A random number of this run of the server. Later servers at the same address have other numbers.
    pub(crate) epoch: u64,
    /// The number of the binding on this connection.
    pub(crate) binding: u32,
    /// The byte order of the server's values. Calls and results of the binding use this byte order.
    pub(crate) representation: u32,
    pub(crate) count: u32,
    pub(crate) bytes: u64,
}

/// The body of [`MessageKind::Refused`](super::MessageKind::Refused).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The number that stands for the kind of error.
    pub(crate) kind: u32,
    pub(crate) text: String,
}

impl BindRequest {
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
        let mut fields = Fields(bytes);
        let digest = fields.array()?;
        let given = fields.u32()?;
        let representation = fields.u32()?;
        let bytes = fields.u64()?;
        let (count, process, name) = (fields.u32()?, fields.u32()?, fields.text()?);
        fields.end()?;
        let digest = match given {
            0 => None,
            1 => Some(digest),
            _ => return None,
        };
        Some(Self { digest, representation, count, bytes, process, name })
    }
}

impl BindGrant {
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
        let mut fields = Fields(bytes);
        let epoch = fields.u64()?;
        let (binding, representation) = (fields.u32()?, fields.u32()?);
        let (bytes, count) = (fields.u64()?, fields.u32()?);
        fields.end()?;
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
        let mut fields = Fields(bytes);
        let (kind, text) = (fields.u32()?, fields.text()?);
        fields.end()?;
        Some(Self { kind, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn and_a_byte(bytes: &[u8]) -> Vec<u8> {
        [bytes, &[0]].concat()
    }

    #[test]
    fn bodies_are_read_back_and_truncated_ones_are_rejected() {
        let bind = BindRequest {
            digest: Some([7; 16]),
            representation: 1,
            count: 3,
            bytes: 1 << 40,
            process: 77,
            name: "files".into(),
        };
        let other = BindRequest { digest: None, name: String::new(), ..bind.clone() };
        for bind in [bind, other] {
            let bytes = bind.to_bytes();
            assert_eq!(BindRequest::from_bytes(&bytes), Some(bind));
            assert_eq!(BindRequest::from_bytes(&and_a_byte(&bytes)), None);
            assert!((0..bytes.len()).all(|end| BindRequest::from_bytes(&bytes[..end]).is_none()));
        }
        let bound = BindGrant { epoch: 1 << 60, binding: 2, representation: 1, count: 4, bytes: 5 };
        assert_eq!(BindGrant::from_bytes(&bound.to_bytes()), Some(bound));
        assert_eq!(BindGrant::from_bytes(&and_a_byte(&bound.to_bytes())), None);
        let refused = Refused { kind: 4, text: "nö".into() };
        assert_eq!(Refused::from_bytes(&and_a_byte(&refused.to_bytes())), None);
        assert_eq!(Refused::from_bytes(&refused.to_bytes()), Some(refused));
        let long = Refused { kind: 4, text: "ö".repeat(limits::TEXT_BYTES_MAX) };
        assert!(long.to_bytes().len() <= 8 + limits::TEXT_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = BindRequest::from_bytes(&bytes);
            let _ = (BindGrant::from_bytes(&bytes), Refused::from_bytes(&bytes));
        }
    }
}
