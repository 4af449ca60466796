//! What a server of Courier answers to a call.

use crate::call::{ForeignAnswer, ForeignCall, Refusal};
use crate::error::Kind;
use crate::interface::System;
use crate::path::foreign::exported::Missing;
use crate::path::foreign::serving::ReplyBuffer;
use crate::protocol::courier::message::{
    Answer, Call, REPLY_BYTES_MAX, Rejection, Reply, Versions,
};

/// The largest number of bytes of the header of a reply with results or a reported error.
pub(in crate::path::courier) const HEADER_BYTES_MAX: usize = 6;

/// Writes the header before the results, or before the arguments of a reported error.
pub(in crate::path::courier) fn put_answer(
    to: &mut ReplyBuffer,
    transaction: u16,
    answer: ForeignAnswer,
) {
    let answer = match answer {
        ForeignAnswer::Returned => Answer::Return,
        ForeignAnswer::Reported(number) => Answer::Abort(number),
    };
    let mut header = [0; HEADER_BYTES_MAX];
    let length = Reply { transaction, answer }.emit(&mut header);
    debug_assert!(length.is_some(), "a header has at most that many bytes");
    to.put_header(&header[..length.unwrap_or(0)]);
}

/// Puts a reply that rejects a call into a buffer.
pub(in crate::path::courier) fn put_rejection(
    to: &mut ReplyBuffer,
    transaction: u16,
    rejection: Rejection,
) {
    let mut bytes = [0; REPLY_BYTES_MAX];
    let length = Reply::rejected(transaction, rejection).emit(&mut bytes).unwrap_or(0);
    to.put(&bytes[..length]);
}

/// Returns a call in the form that server stubs take.
pub(in crate::path::courier) fn foreign_call<'a>(
    header: &Call,
    arguments: &'a [u8],
) -> ForeignCall<'a> {
    let &Call { program, version, procedure, .. } = header;
    let (version, procedure) = (version.into(), procedure.into());
    ForeignCall { system: System::Courier, program, version, procedure, arguments }
}

/// Returns the rejection of a call that was not executed. Returns `None` if the server is overloaded,
/// because Courier has no rejection with the meaning "try again later".
pub(in crate::path::courier) fn rejection_of(refusal: &Refusal) -> Option<Rejection> {
    Some(match refusal.kind {
        Kind::BadArguments | Kind::TooLarge => Rejection::InvalidArgument,
        // Courier has no rejection for a caller that may not call the procedure.
        Kind::NoSuchProcedure | Kind::Denied => Rejection::NoSuchProcedure,
        // A call that was passed on, but did not reach the program, is `Kind::Relayed`.
        Kind::InterfaceMismatch | Kind::Withdrawn | Kind::Relayed => Rejection::NoSuchProgram,
        Kind::Overloaded | Kind::Exhausted => return None,
        _ => Rejection::UNSPECIFIED,
    })
}

/// Returns the rejection of a call whose program, or whose version of the program, no export has.
pub(in crate::path::courier) fn rejection_of_missing(missing: Missing) -> Rejection {
    // The versions of Courier's programs have 16 bits.
    let version = |number| u16::try_from(number).unwrap_or(u16::MAX);
    missing.0.map_or(Rejection::NoSuchProgram, |(low, high)| {
        Rejection::NoSuchVersion(Versions { low: version(low), high: version(high) })
    })
}

/// Writes the versions of Courier into a buffer, directly before the message. Returns the versions and the
/// message.
pub(in crate::path::courier) fn payload_of(reply: &mut ReplyBuffer) -> &[u8] {
    let framed = reply.framed().unwrap_or_default();
    if let Some(versions) = framed.first_chunk_mut() {
        *versions = Versions::OURS.to_bytes();
    }
    framed
}
