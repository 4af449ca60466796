//! `Value` for `Bytes` and `BytesMut`, with the feature `bytes`: sequences of bytes, as `Vec<u8>`.

use bytes::{Bytes, BytesMut};

use crate::interface::Type;
use crate::value::collections::slice;
use crate::value::{Invalid, Overflow, Reader, Representation, Value, Writer};

/// Received bytes are copied once, out of the message.
impl Value for Bytes {
    const TYPE: Type = <Vec<u8>>::TYPE;

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        slice(self, head)
    }

    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        Vec::decode(head).map(Self::from)
    }
}

/// Received bytes are copied once, out of the message.
impl Value for BytesMut {
    const TYPE: Type = <Vec<u8>>::TYPE;

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        slice(self, head)
    }

    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        // `BytesMut` takes over the memory of `Bytes` that nothing else refers to, but not that of a `Vec`.
        Bytes::decode(head).map(Self::from)
    }
}
