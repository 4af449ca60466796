//! Gives fuzz targets access to private types. This module is built with `--cfg fuzzing` and for unit tests,
//! and is part of no release.

#![allow(missing_docs)]

#[cfg(test)]
mod corpora;
pub mod courier;
pub mod exchange;
pub mod onc;

use std::io;
use std::sync::Arc;

use crate::binding::{BindOptions, Binding, Verdict, explain_all};
use crate::interface::InterfaceRef;
use crate::path::bind::BoundPath;

pub use crate::device::ethernet::fuzzing::frames;
pub use crate::path::datagram::fuzzing::Datagrams;
#[cfg(feature = "secure")]
pub use crate::path::datagram::fuzzing::{sealed::SealedPackets, shaking::Handshakes};
use crate::path::local::fuzzing::Scripted;
pub use crate::path::local::fuzzing::{Script, Word, WordLook, WordNotify, answer, request};
use crate::protocol::{description, stream};
#[cfg(feature = "secure")]
pub use crate::secure::fuzzing::{TlsStreams, parameters};
use crate::value::ByteOrder;

/// Returns a binding to a script. The script takes the place of a server with the byte order `order`. Each
/// call gets the reply that the script holds. `bytes` is the length of the largest message in bytes.
///
/// # Errors
/// Fails if the kernel has no memory or descriptor left.
pub fn scripted(
    interface: impl Into<InterfaceRef>,
    bytes: usize,
    order: ByteOrder,
) -> io::Result<(Arc<Script>, Binding)> {
    let (script, path) = Scripted::new(bytes)?;
    let frames = Arc::clone(&path.path.region.frames);
    let options = BindOptions::default().astacks(1);
    let leg = BoundPath { path: Box::new(path), frames, order };
    let explanation = explain_all("script", Verdict::NotNeeded, "a script plays the server");
    let binding = Binding::of_path(leg, None, interface.into(), explanation, &options);
    Ok((script, binding.map_err(io::Error::other)?))
}

/// Reads any bytes as the extensions of a call: its chain, deadline and metadata.
///
/// # Panics
/// Panics if metadata that was read differs after it was written and read again.
pub fn extensions(bytes: &[u8]) {
    crate::call::extensions::fuzz(bytes);
}

/// Reads any bytes as a message on a connection of the stream path (TCP).
///
/// # Panics
/// Panics if a message that was read differs after it was written and read again.
pub fn stream_message(bytes: &[u8]) {
    let Some((header, body)) = bytes.split_first_chunk() else { return };
    if let Ok(header) = stream::Header::from_bytes(header) {
        assert_eq!(stream::Header::from_bytes(&header.to_bytes()), Ok(header));
        assert!(header.rest().is_multiple_of(16));
    }
    if let Some(bind) = stream::BindRequest::from_bytes(body) {
        assert_eq!(stream::BindRequest::from_bytes(&bind.to_bytes()), Some(bind));
    }
    if let Some(bound) = stream::BindGrant::from_bytes(body) {
        assert_eq!(bound.to_bytes(), body);
    }
    if let Some(said) = description::from_bytes(body) {
        assert_eq!(description::to_bytes(&said), body);
    }
    let _ = stream::Refused::from_bytes(body);
}
