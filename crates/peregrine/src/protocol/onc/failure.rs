//! Why a call failed, and whether it was executed.

use core::ops::RangeInclusive;

use super::items::Unreadable;
use super::message::{Answer, AuthReason, Denial, Outcome, Versions};
use crate::protocol::exchange::client_end::Executed;

/// Why a call has no results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server has no such program.
    ProgramUnavailable,
    /// The server has the program, but not in the version of the call.
    ProgramMismatch(Versions),
    /// The server's version of the program has no such procedure.
    ProcedureUnavailable,
    /// The server cannot read the arguments.
    GarbageArguments,
    /// The server failed. The procedure may have begun.
    SystemError,
    /// The server has other versions of ONC RPC.
    RpcMismatch(Versions),
    /// The server does not accept the credential or verifier.
    Auth(AuthReason),
    /// A reply arrived that cannot be read.
    BadReply(Unreadable),
    /// No reply arrived in time.
    TimedOut,
    /// The connection ended before the reply arrived.
    Disconnected,
}

impl Failure {
    /// Returns why a call with this answer failed, or `None` if it has results.
    pub(crate) const fn of(answer: &Answer<'_>) -> Option<Self> {
        Some(match answer {
            Answer::Accepted { outcome, .. } => match *outcome {
                Outcome::Success => return None,
                Outcome::ProgramUnavailable => Self::ProgramUnavailable,
                Outcome::ProgramMismatch(versions) => Self::ProgramMismatch(versions),
                Outcome::ProcedureUnavailable => Self::ProcedureUnavailable,
                Outcome::GarbageArguments => Self::GarbageArguments,
                Outcome::SystemError => Self::SystemError,
            },
            Answer::Denied(Denial::RpcMismatch(versions)) => Self::RpcMismatch(*versions),
            Answer::Denied(Denial::Auth(reason)) => Self::Auth(*reason),
        })
    }

    /// Returns whether the call was executed. `transmissions` is how many times the client has sent the call,
    /// on all connections together.
    ///
    /// A refusal proves that the copy of the call to which it answers was not executed. If the client has
    /// sent several copies, the server may have executed an earlier one whose reply was lost. For example,
    /// the program may have been withdrawn since then.
    pub(crate) const fn executed(&self, transmissions: u32) -> Executed {
        let is_refusal = match self {
            Self::ProgramUnavailable
            | Self::ProgramMismatch(_)
            | Self::ProcedureUnavailable
            | Self::GarbageArguments
            | Self::RpcMismatch(_)
            | Self::Auth(_) => true,
            Self::SystemError | Self::BadReply(_) | Self::TimedOut | Self::Disconnected => false,
        };
        if transmissions == 0 || is_refusal && transmissions == 1 {
            Executed::No
        } else {
            Executed::Maybe
        }
    }

    /// Returns the version with which the client may try again, because both sides have it: the highest of
    /// the client's versions in `ours` that the server has. The failed call had version `tried`.
    ///
    /// A server may lack versions between its lowest and highest. So the client tries again only once.
    pub(crate) fn other_version(&self, ours: &RangeInclusive<u32>, tried: u32) -> Option<u32> {
        let Self::ProgramMismatch(Versions { low, high }) = *self else { return None };
        let best = high.min(*ours.end());
        (best >= low && ours.contains(&best) && best != tried).then_some(best)
    }
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::ProgramUnavailable => f.write_str("the server does not have the program"),
            Self::ProgramMismatch(Versions { low, high }) => {
                write!(f, "the server has versions {low} to {high} of the program")
            }
            Self::ProcedureUnavailable => f.write_str("the program has no such procedure"),
            Self::GarbageArguments => f.write_str("the server cannot read the arguments"),
            Self::SystemError => f.write_str("the server reported an internal error"),
            Self::RpcMismatch(Versions { low, high }) => {
                write!(f, "the server has versions {low} to {high} of ONC RPC, not 2")
            }
            Self::Auth(reason) => write!(f, "the server refused the caller: {reason}"),
            Self::BadReply(why) => write!(f, "the reply cannot be read: {why}"),
            Self::TimedOut => f.write_str("no reply arrived in time"),
            Self::Disconnected => f.write_str("the connection ended before the reply arrived"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::onc::message::Auth;

    const VERSIONS: Versions = Versions { low: 2, high: 4 };

    #[test]
    fn refusal_of_the_only_copy_proves_that_the_call_was_not_executed() {
        let accepted = |outcome| {
            let answer = Answer::Accepted { verifier: Auth::NONE, outcome };
            Failure::of(&answer)
        };
        let denied = |denial| Failure::of(&Answer::Denied(denial));
        assert_eq!(accepted(Outcome::Success), None);
        let refusals = [
            (accepted(Outcome::ProgramUnavailable), Failure::ProgramUnavailable),
            (accepted(Outcome::ProgramMismatch(VERSIONS)), Failure::ProgramMismatch(VERSIONS)),
            (accepted(Outcome::ProcedureUnavailable), Failure::ProcedureUnavailable),
            (accepted(Outcome::GarbageArguments), Failure::GarbageArguments),
            (denied(Denial::RpcMismatch(VERSIONS)), Failure::RpcMismatch(VERSIONS)),
            (denied(Denial::Auth(AuthReason(13))), Failure::Auth(AuthReason(13))),
        ];
        for (failure, expected) in refusals {
            assert_eq!(failure, Some(expected));
            assert_eq!(expected.executed(1), Executed::No);
            assert_eq!(expected.executed(2), Executed::Maybe);
        }
        assert_eq!(accepted(Outcome::SystemError), Some(Failure::SystemError));
        let unknown = [
            Failure::SystemError,
            Failure::BadReply(Unreadable::Invalid),
            Failure::TimedOut,
            Failure::Disconnected,
        ];
        for failure in unknown {
            assert_eq!(failure.executed(1), Executed::Maybe);
            assert_eq!(failure.executed(0), Executed::No);
        }
        let all = refusals.iter().map(|(_, failure)| *failure).chain(unknown);
        let texts: std::collections::BTreeSet<_> = all.map(|failure| failure.to_string()).collect();
        assert_eq!(texts.len(), refusals.len() + unknown.len());
    }

    #[test]
    fn client_tries_a_version_that_both_sides_have() {
        let mismatch = Failure::ProgramMismatch(VERSIONS);
        assert_eq!(mismatch.other_version(&(1..=3), 1), Some(3));
        assert_eq!(mismatch.other_version(&(1..=9), 9), Some(4));
        assert_eq!(mismatch.other_version(&(3..=3), 3), None);
        assert_eq!(mismatch.other_version(&(5..=9), 9), None);
        assert_eq!(mismatch.other_version(&(0..=1), 1), None);
        assert_eq!(Failure::TimedOut.other_version(&(1..=3), 1), None);
        let reversed = Failure::ProgramMismatch(Versions { low: 4, high: 2 });
        assert_eq!(reversed.other_version(&(1..=9), 9), None);
    }
}
