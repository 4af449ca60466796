//! Batches: many small calls in one message, and many small results in another.
//!
//! A batch is itself a call: of the procedure [`BATCH`], which every export has. The argument and the result
//! of this call are buffers of records. For a path, the call is like any other, so every path carries
//! batches. The calls of one client binding that share batches form a *lane*, which has a random token.
//!
//! The argument is a header of 32 bytes and then records, each at a multiple of 16 bytes. Numbers are
//! little-endian.
//!
//! | at | bytes | header of the argument |
//! |---|---|---|
//! | 0 | 16 | the token of the lane |
//! | 16 | 16 | zero |
//!
//! | at | bytes | record of the argument |
//! |---|---|---|
//! | 0 | 8 | the number of the call in its lane |
//! | 8 | 4 | the kind of record: 0 to be skipped, 1 a call, 2 the cancellation of a call, 3 a one-way call |
//! | 12 | 4 | the procedure |
//! | 16 | 4 | the size of the head in bytes |
//! | 20 | 4 | the size in bytes of the head and the copied blocks |
//! | 24 | 4 | the size of the message in bytes |
//! | 28 | 4 | the time in microseconds that the caller still waits, or 0 for no limit |
//! | 32 | | the message, like that of a separate call |
//!
//! | at | bytes | header of the result |
//! |---|---|---|
//! | 0 | 4 | flags: 1 if the procedures of the server are async |
//! | 4 | 4 | the number of the lane's running calls, plus 1 if results of ended calls are still to be sent |
//! | 8 | 4 | the procedure that took longest, if the server has measured its calls |
//! | 12 | 4 | how long that procedure took in microseconds, or 0 if nothing was measured |
//! | 16 | 4 | how many one-way calls of the batch have failed |
//! | 20 | 4 | how many of the failed one-way calls were not executed |
//! | 24 | 8 | zero |
//!
//! | at | bytes | record of the result |
//! |---|---|---|
//! | 0 | 8 | the number of the call |
//! | 8 | 4 | the answer |
//! | 12 | 4 | the offset of the head in the result |
//! | 16 | 4 | the size of the head in bytes |
//! | 20 | 4 | the size of the result in bytes |
//! | 24 | 8 | zero |
//! | 32 | | the result, like that of a separate call |
//!
//! A server answers a batch at once with the results that it has. If it has none while calls of the lane are
//! pending, it *holds* the batch: it answers the batch when there is a result. A server holds at most one
//! batch of a lane. If all batches were answered and results are missing, the client sends an empty
//! batch for the server to hold.
//!
//! A server whose procedures block runs the calls of a batch one after the other, and answers the batch when
//! all have ended. If that takes long, the client sends an empty batch: another thread of the server then
//! takes over the calls that the first thread has not begun.
//!
//! A batch has one-way calls, or calls of a lane, but never both. A server runs one-way calls strictly one
//! after the other, and answers their batch when all of them have ended. A batch of one-way calls belongs to
//! no lane, and its token is zero. The result has a record of the first call that failed, if the record fits.
//! It has no records of the other calls.

mod calls;
mod counts;
mod lanes;
mod oneway;
mod running;

use core::time::Duration;

pub(crate) use calls::{append, with_scratch};
pub(crate) use counts::{Account, Batched};
pub(crate) use lanes::serve_batch;

pub(crate) use super::words::HEADER_BYTES;
use super::words::{halves, to_bytes, wide, words_at};
use crate::value::align_up;

/// The number of the procedure that runs a batch. Every export has this procedure. The two higher numbers
/// belong to the ping and, over datagrams, to the description of an export.
pub(crate) const BATCH: u32 = u32::MAX - 2;

/// The token of a lane.
pub(crate) type Token = [u8; 16];

/// The kind of a record in the argument of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum RecordKind {
    Skip = 0,
    Call = 1,
    Cancel = 2,
    OneWay = 3,
}

/// The header of a record in the argument of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallRecord {
    pub(crate) number: u64,
    pub(crate) kind: RecordKind,
    pub(crate) procedure: u32,
    pub(crate) head: u32,
    pub(crate) copied: u32,
    pub(crate) total: u32,
    /// How long the caller still waits. `None`: without limit.
    pub(crate) left: Option<Duration>,
}

/// The header of a record in the result of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResultRecord {
    pub(crate) number: u64,
    pub(crate) answer: u32,
    pub(crate) head_at: u32,
    pub(crate) head_bytes: u32,
    pub(crate) total: u32,
}

/// The header of the result of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResultHeader {
    pub(crate) is_async: bool,
    /// The number of the lane's running calls, plus 1 if results of ended calls are still to be sent.
    pub(crate) pending: u32,
    /// The procedure that took longest, and its time in microseconds. `None` if nothing was measured.
    pub(crate) slowest: Option<(u32, u32)>,
    /// The number of one-way calls that have failed, and how many of the failed calls were not executed.
    pub(crate) failed: [u32; 2],
}

impl CallRecord {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let Self { number, kind, procedure, head, copied, total, left } = self;
        let left = left.map_or(0, |left| {
            // A limit that does not fit 32 bits is not sent. The client enforces such a limit itself.
            u32::try_from(left.as_micros()).map_or(0, |left| left.max(1))
        });
        let [low, high] = halves(number);
        to_bytes([low, high, kind as u32, procedure, head, copied, total, left])
    }

    /// Reads the record at the offset `at` of a batch.
    pub(crate) fn at(batch: &[u8], at: usize) -> Option<Self> {
        let [low, high, kind, procedure, head, copied, total, left] = words_at(batch, at)?;
        let kind = match kind {
            0 => RecordKind::Skip,
            1 => RecordKind::Call,
            2 => RecordKind::Cancel,
            3 => RecordKind::OneWay,
            _ => return None,
        };
        let number = wide(low, high);
        let left = (left > 0).then(|| Duration::from_micros(left.into()));
        Some(Self { number, kind, procedure, head, copied, total, left })
    }
}

impl ResultRecord {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let Self { number, answer, head_at, head_bytes, total } = self;
        let [low, high] = halves(number);
        to_bytes([low, high, answer, head_at, head_bytes, total, 0, 0])
    }

    /// Reads the record at the offset `at` of a batch's result.
    pub(crate) fn at(batch: &[u8], at: usize) -> Option<Self> {
        let [low, high, answer, head_at, head_bytes, total, _, _] = words_at(batch, at)?;
        let number = wide(low, high);
        Some(Self { number, answer, head_at, head_bytes, total })
    }
}

impl ResultHeader {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let (procedure, took) = self.slowest.unwrap_or((0, 0));
        let [failed, not_run] = self.failed;
        to_bytes([self.is_async.into(), self.pending, procedure, took, failed, not_run, 0, 0])
    }

    pub(crate) fn of(batch: &[u8]) -> Option<Self> {
        let [flags, pending, procedure, took, failed, not_run, ..] = words_at(batch, 0)?;
        let slowest = (took > 0).then_some((procedure, took));
        Some(Self { is_async: flags & 1 != 0, pending, slowest, failed: [failed, not_run] })
    }
}

/// Returns the offset of the next record, after a record at `at` whose message has `total` bytes.
pub(crate) const fn after(at: usize, total: usize) -> usize {
    align_up(at.saturating_add(HEADER_BYTES).saturating_add(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_written() {
        let left = Some(Duration::from_micros(7));
        let call = CallRecord {
            number: 1 << 40 | 3,
            kind: RecordKind::Call,
            procedure: 4,
            head: 5,
            copied: 6,
            total: 7,
            left,
        };
        let left_of =
            |left| CallRecord::at(&CallRecord { left, ..call }.to_bytes(), 0).unwrap().left;
        assert_eq!(left_of(Some(Duration::ZERO)), Some(Duration::from_micros(1)));
        assert_eq!(left_of(Some(Duration::from_secs(7200))), None);
        let mut batch = vec![9; 16];
        batch.extend_from_slice(&call.to_bytes());
        assert_eq!(CallRecord::at(&batch, 16), Some(call));
        assert_eq!((CallRecord::at(&batch, 17), CallRecord::at(&batch, 0)), (None, None));
        let result =
            ResultRecord { number: 1 << 60, answer: 1, head_at: 2, head_bytes: 3, total: 4 };
        assert_eq!(ResultRecord::at(&result.to_bytes(), 0), Some(result));
        let slowest = Some((4, 5));
        let header = ResultHeader { is_async: true, pending: 3, slowest, failed: [7, 6] };
        assert_eq!(ResultHeader::of(&header.to_bytes()), Some(header));
        assert_eq!(ResultHeader::of(&[0; 31]), None);
        assert_eq!(
            (after(16, 0), after(16, 1), after(0, usize::MAX)),
            (48, 64, after(0, usize::MAX))
        );
    }
}
