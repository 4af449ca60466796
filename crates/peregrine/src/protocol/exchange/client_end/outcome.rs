//! The types that the client end exchanges with its driver, the code that sends and receives the packets:
//! terms, packets to send, and outcomes of calls. A piece is the part of a message that one packet carries. A
//! position is the index of a piece in the order of sending.

use core::ops::Range;

pub(crate) use super::super::header::DropReason;
use super::super::message::Shape;

/// The terms on which the client and the server agreed when the handle was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientTerms {
    /// The length of a full piece in bytes, in both directions.
    pub(crate) piece: u32,
    /// The number of positions beyond the acknowledged ones that the server accepts.
    pub(crate) credits: u16,
    /// The number of positions beyond the acknowledged ones that the client accepts.
    pub(crate) credits_here: u16,
    /// The largest length in bytes that a call may have.
    pub(crate) call_bytes_max: u32,
    /// The largest length in bytes that a result may have.
    pub(crate) result_bytes_max: u32,
    /// The number of the server's table that granted the handle. No other table has the same number.
    pub(crate) table: u64,
}

/// A packet to send. It consists of the first `bytes` bytes of the output buffer, followed by the bytes in
/// `range` of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) bytes: usize,
    pub(crate) range: Range<u32>,
}

/// What the driver must do with a received packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Handled {
    /// Copy the payload to this range of the result.
    Place(Range<u32>),
    /// Do nothing, because the packet carried no data.
    Nothing,
    Dropped(DropReason),
}

/// Whether a failed call was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Executed {
    /// The call was not executed and certainly never will be.
    No,
    /// The call may have been executed, or may still be executed.
    Maybe,
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FailureReason {
    /// The server does not answer.
    Dead,
    /// The server's machine refuses packets (ICMP).
    Unreachable,
    /// The server does not know the handle.
    Refused,
    /// The server knows the handle, but for another address: the client's address has changed.
    AddressChanged,
    /// The client cancelled the call.
    Cancelled,
    /// The result is larger than agreed.
    Protocol,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The call returned a result of this shape. All bytes of the result have been copied to their place.
    Returned(Shape),
    Failed {
        executed: Executed,
        why: FailureReason,
    },
}

/// Why a call cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeginError {
    /// Another call is in progress, or the server has not yet released the last call.
    Busy,
    /// The handle can no longer be used.
    Closed,
    /// The message is larger than agreed, or its lengths contradict each other.
    TooLarge,
}
