//! How a client interprets replies and failures of Courier, on all paths.

use std::borrow::Cow;

use crate::call;
use crate::error::{CallError, Executed, Kind};
use crate::path::foreign::client::Results;
use crate::protocol::courier::failure::Failure;
use crate::protocol::courier::message::{Answer, Reply};
use crate::protocol::exchange::client_end::Executed as Ran;

/// Returns whether a reply has results or an error that the procedure has reported. Also returns the offset
/// in bytes of the results, or of the number of the error. The arguments of the error follow its number.
///
/// # Errors
/// If the reply cannot be read, or the server has rejected the call.
pub(in crate::path::courier) fn header_of(
    message: &[u8],
) -> Result<(call::Answer, usize), Failure> {
    let (reply, end) = Reply::parse(message).map_err(Failure::BadReply)?;
    match (Failure::of(&reply.answer), reply.answer) {
        (Some(failure), _) => Err(failure),
        // The number of the error is the last word of the header.
        (None, Answer::Abort(_)) => Ok((call::Answer::Err, end - size_of::<u16>())),
        (None, _) => Ok((call::Answer::Ok, end)),
    }
}

/// Returns the kind of a reply as [`header_of`] does, with the bytes from the offset on.
///
/// # Errors
/// As for [`header_of`].
pub(in crate::path::courier) fn answer_of(message: Cow<'_, [u8]>) -> Result<Results<'_>, Failure> {
    let (answer, at) = header_of(&message)?;
    let bytes = match message {
        Cow::Borrowed(message) => Cow::Borrowed(&message[at..]),
        Cow::Owned(mut message) => {
            message.drain(..at);
            Cow::Owned(message)
        }
    };
    Ok(Results { answer, bytes })
}

/// Returns the error of a call that has failed. `transmissions` is how often the whole call was sent: 0
/// if some part of it was never sent. `reason` is why the connection or the socket has ended.
#[cold]
pub(in crate::path::courier) fn error_of(
    failure: Failure,
    transmissions: u32,
    reason: Option<&str>,
) -> CallError {
    let kind = match failure {
        Failure::NoSuchProgram | Failure::NotActivated => Kind::Withdrawn,
        Failure::NoSuchVersion(_) => Kind::InterfaceMismatch,
        Failure::NoSuchProcedure => Kind::NoSuchProcedure,
        Failure::InvalidArgument => Kind::BadArguments,
        Failure::Unspecified(_) => Kind::Relayed,
        Failure::OtherCourier(_) => Kind::ProtocolMismatch,
        Failure::UnknownError(_) | Failure::BadReply(_) | Failure::ReplyDiscarded => {
            Kind::BadResult
        }
        Failure::TimedOut => Kind::TimedOut,
        Failure::Silent | Failure::Restarted | Failure::Disconnected => Kind::ServerGone,
    };
    let executed = match failure.executed(transmissions) {
        Ran::No => Executed::No,
        Ran::Maybe => Executed::Maybe,
    };
    let text = match (failure, reason) {
        (Failure::Disconnected | Failure::BadReply(_), Some(reason)) => reason.to_owned(),
        _ => failure.to_string(),
    };
    CallError::new(kind, executed, text)
}
