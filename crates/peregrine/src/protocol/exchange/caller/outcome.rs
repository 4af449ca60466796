//! What a caller agrees on, says and concludes: how packets are handled, and how calls end.

use core::ops::Range;

pub(crate) use super::super::header::Dropped;
use super::super::message::Shape;

/// What was agreed on when the handle was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Bytes of a full piece, both ways.
    pub(crate) piece: u32,
    /// Positions that the server takes, and that this side takes, beyond what was acknowledged.
    pub(crate) credits: u16,
    pub(crate) credits_here: u16,
    /// Bytes of the largest message, to the server and back.
    pub(crate) call_bytes_max: u32,
    pub(crate) result_bytes_max: u32,
    /// Names the server's table that granted the handle; no other table has this number.
    pub(crate) table: u64,
}

/// A packet to send: so many bytes of what was written, and behind them a range of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Send {
    pub(crate) bytes: usize,
    pub(crate) range: Range<u32>,
}

/// What a packet brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Handled {
    /// What stands behind the header belongs at this range of the result.
    Place(Range<u32>),
    /// Something other than data.
    Nothing,
    Dropped(Dropped),
}

/// Whether a call that failed ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Executed {
    /// It did not and never will, for certain.
    No,
    Maybe,
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Why {
    /// The server does not answer.
    Dead,
    /// The server's machine says that nobody is there.
    Unreachable,
    /// The server does not know the handle.
    Refused,
    /// The server knows the handle at another address: that of this side has changed.
    Elsewhere,
    /// The caller gave up.
    Quit,
    /// The result is larger than agreed.
    Protocol,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With a result, all of whose bytes were placed.
    Returned(Shape),
    Failed {
        executed: Executed,
        why: Why,
    },
}

/// Why a call was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unbegun {
    /// Another one is under way, or the server has not let go of it.
    Busy,
    /// The handle is of no use any more.
    Gone,
    /// The message is larger than agreed, or its shape is none.
    TooLarge,
}
