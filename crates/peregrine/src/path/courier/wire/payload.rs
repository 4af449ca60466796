//! The start of the payload of a call: the versions of Courier, and the header of the call.

use crate::protocol::courier::message::{CALL_BYTES, Call, VERSIONS_BYTES, Versions};

/// The number of bytes of a payload before the arguments.
pub(in crate::path::courier) const HEADER_BYTES: usize = VERSIONS_BYTES + CALL_BYTES;

/// Returns the bytes of a payload before the arguments.
pub(in crate::path::courier) fn payload_header(call: &Call) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let (versions, rest) = header.split_at_mut(VERSIONS_BYTES);
    versions.copy_from_slice(&Versions::OURS.to_bytes());
    let written = call.emit(rest);
    debug_assert!(written.is_some(), "a header has that many bytes");
    header
}
