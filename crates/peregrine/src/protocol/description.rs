//! Reads and writes the descriptions of exports that servers send over networks.

use super::fields::{Fields, put_text};
use crate::interface::{Description, Digest};

/// Converts a description to bytes.
pub(crate) fn to_bytes(description: &Description) -> Vec<u8> {
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

/// Reads a description. Returns `None` if the bytes are not exactly one description.
pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Description> {
    let mut fields = Fields(bytes);
    let (interface, version) = (fields.text()?, fields.u32()?);
    let (digest, text) = (Digest(fields.array()?), fields.text()?);
    // The number of texts comes from the peer, so no memory is reserved for the texts in advance.
    let docs = (0..fields.u32()?).map(|_| fields.text()).collect::<Option<Vec<_>>>()?;
    let (process, age_ms, bindings) = (fields.u32()?, fields.u64()?, fields.u32()?);
    let listens = (0..fields.u32()?).map(|_| fields.text()).collect::<Option<Vec<_>>>()?;
    let network = fields.u64()?;
    fields.end()?;
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

    #[test]
    fn description_is_read_back_and_truncated_one_is_rejected() {
        let description = Description {
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
        let bytes = to_bytes(&description);
        assert_eq!(from_bytes(&bytes), Some(description));
        assert_eq!(from_bytes(&[&bytes[..], &[0]].concat()), None);
        assert!((0..bytes.len()).all(|end| from_bytes(&bytes[..end]).is_none()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = from_bytes(&bytes);
        }
    }
}
