//! Why a call failed, and whether it was executed.

use super::message::{Answer, Rejection, Versions};
use super::words::Unreadable;
use crate::protocol::exchange::client_end::Executed;

/// Why a call has neither results nor a reported error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server has no such program.
    NoSuchProgram,
    /// The server has the program in these versions, but not in the version of the call.
    NoSuchVersion(Versions),
    /// The server's version of the program has no such procedure.
    NoSuchProcedure,
    /// The server cannot read the arguments.
    InvalidArgument,
    /// The server failed for a reason that it does not name. The procedure may have begun.
    Unspecified(u16),
    /// The procedure reported an error with a number that its declaration does not have.
    UnknownError(u16),
    /// The server speaks these versions of Courier only.
    OtherCourier(Versions),
    /// The server of Cooper's form does not start the program.
    NotActivated,
    /// A reply arrived that cannot be read.
    BadReply(Unreadable),
    /// The time of the call passed before a reply arrived.
    TimedOut,
    /// The server does not answer any more.
    Silent,
    /// The server was restarted, and does not know the call.
    Restarted,
    /// The server has run the call, but has discarded the reply.
    ReplyDiscarded,
    /// The connection ended before the reply arrived.
    Disconnected,
}

impl Failure {
    /// Returns why a call with this answer failed, or `None` if it has results or a reported error.
    pub(crate) const fn of(answer: &Answer) -> Option<Self> {
        Some(match *answer {
            Answer::Return | Answer::Abort(_) => return None,
            Answer::Reject(rejection) => match rejection {
                Rejection::NoSuchProgram => Self::NoSuchProgram,
                Rejection::NoSuchVersion(versions) => Self::NoSuchVersion(versions),
                Rejection::NoSuchProcedure => Self::NoSuchProcedure,
                Rejection::InvalidArgument => Self::InvalidArgument,
                Rejection::Unspecified(number) => Self::Unspecified(number),
            },
        })
    }

    /// Returns whether the call was executed. `transmissions` is how many times the client has sent the whole
    /// call. It is 0 if some part of the call was never sent.
    ///
    /// A rejection proves that the copy of the call to which it answers was not executed. If the client has
    /// sent several copies, the server may have executed an earlier one, and forgotten it.
    pub(crate) const fn executed(&self, transmissions: u32) -> Executed {
        let is_refusal = match self {
            Self::NoSuchProgram
            | Self::NoSuchVersion(_)
            | Self::NoSuchProcedure
            | Self::InvalidArgument => true,
            // A server reports these two before it runs any call, no matter how often the call was sent.
            Self::OtherCourier(_) | Self::NotActivated => return Executed::No,
            Self::Unspecified(_)
            | Self::UnknownError(_)
            | Self::BadReply(_)
            | Self::TimedOut
            | Self::Silent
            | Self::Restarted
            | Self::ReplyDiscarded
            | Self::Disconnected => false,
        };
        if transmissions == 0 || is_refusal && transmissions == 1 {
            Executed::No
        } else {
            Executed::Maybe
        }
    }
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoSuchProgram => f.write_str("the server does not have the program"),
            Self::NoSuchVersion(Versions { low, high }) => {
                write!(f, "the server has versions {low} to {high} of the program")
            }
            Self::NoSuchProcedure => f.write_str("the program has no such procedure"),
            Self::InvalidArgument => f.write_str("the server cannot read the arguments"),
            Self::Unspecified(number) => {
                write!(f, "the server rejected the call with reason {number}")
            }
            Self::UnknownError(number) => {
                write!(f, "the procedure reported error {number}, which its declaration lacks")
            }
            Self::OtherCourier(Versions { low, high }) => {
                write!(f, "the server speaks versions {low} to {high} of Courier, not 3")
            }
            Self::NotActivated => f.write_str("the server does not start the program"),
            Self::BadReply(why) => write!(f, "the reply cannot be read: {why}"),
            Self::TimedOut => f.write_str("no reply arrived in time"),
            Self::Silent => f.write_str("the server does not answer"),
            Self::ReplyDiscarded => f.write_str("the server has discarded the reply"),
            Self::Restarted => f.write_str("the server was restarted during the call"),
            Self::Disconnected => f.write_str("the connection ended before the reply arrived"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSIONS: Versions = Versions { low: 2, high: 4 };

    #[test]
    fn results_and_reported_errors_are_no_failures() {
        assert_eq!(Failure::of(&Answer::Return), None);
        assert_eq!(Failure::of(&Answer::Abort(9)), None);
    }

    #[test]
    fn rejection_of_the_only_copy_proves_that_the_call_was_not_executed() {
        let rejected = |rejection| Failure::of(&Answer::Reject(rejection));
        let refusals = [
            (rejected(Rejection::NoSuchProgram), Failure::NoSuchProgram),
            (rejected(Rejection::NoSuchVersion(VERSIONS)), Failure::NoSuchVersion(VERSIONS)),
            (rejected(Rejection::NoSuchProcedure), Failure::NoSuchProcedure),
            (rejected(Rejection::InvalidArgument), Failure::InvalidArgument),
        ];
        for (failure, expected) in refusals {
            assert_eq!(failure, Some(expected));
            assert_eq!(expected.executed(1), Executed::No);
            assert_eq!(expected.executed(2), Executed::Maybe);
        }
        assert_eq!(rejected(Rejection::Unspecified(9)), Some(Failure::Unspecified(9)));
        let unknown = [
            Failure::Unspecified(9),
            Failure::UnknownError(9),
            Failure::BadReply(Unreadable::Invalid),
            Failure::TimedOut,
            Failure::Silent,
            Failure::Restarted,
            Failure::ReplyDiscarded,
            Failure::Disconnected,
        ];
        for failure in unknown {
            assert_eq!(failure.executed(1), Executed::Maybe);
            assert_eq!(failure.executed(0), Executed::No);
        }
        let before = [Failure::OtherCourier(VERSIONS), Failure::NotActivated];
        for failure in before {
            assert_eq!(failure.executed(9), Executed::No);
        }
        let all = refusals.iter().map(|(_, failure)| *failure).chain(unknown).chain(before);
        let texts: std::collections::BTreeSet<_> = all.map(|failure| failure.to_string()).collect();
        assert_eq!(texts.len(), refusals.len() + unknown.len() + before.len());
    }
}
