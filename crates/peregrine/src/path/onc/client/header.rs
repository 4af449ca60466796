//! The header of the calls of one binding. Only the number of the call and the procedure differ between
//! calls.

use crate::protocol::onc::message::{Auth, CALL_BYTES_MAX, Call};
use crate::protocol::onc::record::{MARKER_BYTES, marker};

/// The number of bytes of a header before the credential.
const NUMBERS_BYTES: usize = 24;
const PROCEDURE_AT: usize = 20;

/// The header of the calls of one binding.
pub(in crate::path::onc) struct Header {
    numbers: [u8; NUMBERS_BYTES],
    /// The credential and the verifier.
    auth: Box<[u8]>,
}

impl Header {
    /// Returns `None` if the credential has more bytes than the protocol allows.
    pub(in crate::path::onc) fn new(
        program: u32,
        version: u32,
        credential: Auth<'_>,
    ) -> Option<Self> {
        let verifier = Auth::NONE;
        let call = Call { xid: 0, program, version, procedure: 0, credential, verifier };
        let mut bytes = [0; CALL_BYTES_MAX];
        let length = call.emit(&mut bytes)?;
        let (numbers, auth) = bytes[..length].split_first_chunk()?;
        Some(Self { numbers: *numbers, auth: auth.into() })
    }

    /// Returns the number of bytes of the header.
    pub(super) const fn len(&self) -> usize {
        NUMBERS_BYTES + self.auth.len()
    }

    /// Returns the first part of a call over datagrams. [`auth`](Self::auth) and the arguments follow.
    pub(super) fn datagram(&self, xid: u32, procedure: u32) -> [u8; NUMBERS_BYTES] {
        let mut numbers = self.numbers;
        numbers[..4].copy_from_slice(&xid.to_be_bytes());
        numbers[PROCEDURE_AT..].copy_from_slice(&procedure.to_be_bytes());
        numbers
    }

    /// Returns the first part of a call on a stream, which begins with the marker of the record. Returns
    /// `None` if the record is too long.
    pub(super) fn record(
        &self,
        xid: u32,
        procedure: u32,
        arguments: usize,
    ) -> Option<[u8; MARKER_BYTES + NUMBERS_BYTES]> {
        let marker = marker(self.len().checked_add(arguments)?)?;
        let mut bytes = [0; MARKER_BYTES + NUMBERS_BYTES];
        bytes[..MARKER_BYTES].copy_from_slice(&marker);
        bytes[MARKER_BYTES..].copy_from_slice(&self.datagram(xid, procedure));
        Some(bytes)
    }

    /// Returns the credential and the verifier, which precede the arguments.
    pub(super) fn auth(&self) -> &[u8] {
        &self.auth
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::onc::message::{AUTH_BYTES_MAX, Flavour};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_are_those_of_the_whole_header(
            numbers in any::<[u32; 4]>(), flavour in any::<u32>(),
            body in proptest::collection::vec(any::<u8>(), 0..=AUTH_BYTES_MAX), arguments in 0_usize..9000,
        ) {
            let [xid, program, version, procedure] = numbers;
            let credential = Auth { flavour: Flavour(flavour), body: &body };
            let header = Header::new(program, version, credential).expect("a header");
            let call = Call { xid, program, version, procedure, credential, verifier: Auth::NONE };
            let mut whole = [0; CALL_BYTES_MAX];
            let length = call.emit(&mut whole).expect("room");
            let parts = [&header.datagram(xid, procedure)[..], header.auth()].concat();
            prop_assert_eq!(&parts, &whole[..length]);
            prop_assert_eq!(header.len(), length);
            let record = header.record(xid, procedure, arguments).expect("a short record");
            prop_assert_eq!(&record[4..], &parts[..NUMBERS_BYTES]);
            prop_assert_eq!(record[..4].to_vec(), marker(length + arguments).unwrap());
        }
    }

    #[test]
    fn too_long_credential_has_no_header() {
        let body = [0; AUTH_BYTES_MAX + 1];
        assert!(Header::new(1, 1, Auth { flavour: Flavour::SYS, body: &body }).is_none());
    }
}
