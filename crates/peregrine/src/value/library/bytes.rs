//! Implements `Value` for `Bytes` and `BytesMut`, with the feature `bytes`. Both are sequences of bytes, as
//! `Vec<u8>` is.

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
        // `BytesMut` takes over the memory of a `Bytes` to which nothing else refers. It cannot take over the
        // memory of a `Vec`.
        Bytes::decode(head).map(Self::from)
    }
}
