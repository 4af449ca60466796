//! The headers of calls and replies. Arguments and results follow the headers and are never read or copied
//! here.

use super::items::{Items, Output, Unreadable};

/// The version of ONC RPC.
const VERSION: u32 = 2;
const CALL: u32 = 0;
const REPLY: u32 = 1;

/// The largest number of bytes in the body of a credential or verifier.
pub(crate) const AUTH_BYTES_MAX: usize = 400;
/// The number of bytes of a call's header if credential and verifier are empty.
pub(crate) const CALL_BYTES_MIN: usize = 40;
/// The largest number of bytes of a call's header.
pub(crate) const CALL_BYTES_MAX: usize = CALL_BYTES_MIN + 2 * AUTH_BYTES_MAX;
/// The largest number of bytes of a reply's header.
pub(crate) const REPLY_BYTES_MAX: usize = 32 + AUTH_BYTES_MAX;

/// The largest number of bytes in the name of the machine in a credential of [`Flavour::SYS`].
const MACHINE_BYTES_MAX: usize = 255;
/// The largest number of groups in a credential of [`Flavour::SYS`].
const GROUPS_MAX: usize = 16;

/// The kind of a credential or verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flavour(pub(crate) u32);

impl Flavour {
    /// AUTH_NONE: no identity.
    pub(crate) const NONE: Self = Self(0);
    /// AUTH_SYS: the user and groups that the client claims. Nothing proves the claim.
    pub(crate) const SYS: Self = Self(1);
}

/// A credential or verifier. Its body has at most [`AUTH_BYTES_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Auth<'a> {
    pub(crate) flavour: Flavour,
    pub(crate) body: &'a [u8],
}

impl<'a> Auth<'a> {
    pub(crate) const NONE: Self = Self { flavour: Flavour::NONE, body: &[] };

    fn read(items: &mut Items<'a>) -> Result<Self, Unreadable> {
        let flavour = Flavour(items.number()?);
        Ok(Self { flavour, body: items.opaque(AUTH_BYTES_MAX)? })
    }

    fn write(&self, output: &mut Output<'_>) -> Option<()> {
        if self.body.len() > AUTH_BYTES_MAX {
            return None;
        }
        output.number(self.flavour.0)?;
        output.opaque(self.body)
    }
}

/// The body of a credential of [`Flavour::SYS`]. It is what the client claims, and is not proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuthSys<'a> {
    /// A number that the client chooses freely.
    pub(crate) stamp: u32,
    /// The name of the client's machine: at most 255 bytes, in no particular character set.
    pub(crate) machine: &'a [u8],
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) groups: Groups,
}

/// Up to sixteen further groups of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Groups {
    numbers: [u32; GROUPS_MAX],
    count: usize,
}

impl Groups {
    /// Takes the numbers of groups. Returns `None` if there are more than sixteen.
    pub(crate) fn new(groups: &[u32]) -> Option<Self> {
        let mut numbers = [0; GROUPS_MAX];
        numbers.get_mut(..groups.len())?.copy_from_slice(groups);
        Some(Self { numbers, count: groups.len() })
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.numbers[..self.count]
    }
}

impl<'a> AuthSys<'a> {
    /// Reads the body of a credential.
    ///
    /// # Errors
    /// Fails if the name has more than 255 bytes, if there are more than 16 groups, or if bytes are missing
    /// or left over.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, Unreadable> {
        let mut items = Items::new(body);
        let (stamp, machine) = (items.number()?, items.opaque(MACHINE_BYTES_MAX)?);
        let (user, group) = (items.number()?, items.number()?);
        let count = items.number()? as usize;
        let mut groups = Groups { numbers: [0; GROUPS_MAX], count };
        for place in groups.numbers.get_mut(..count).ok_or(Unreadable::TooLong)? {
            *place = items.number()?;
        }
        items.end()?;
        Ok(Self { stamp, machine, user, group, groups })
    }

    /// Writes the body, and returns its length. Returns `None` if the buffer is too small or the name too
    /// long. [`AUTH_BYTES_MAX`] bytes are enough.
    pub(crate) fn emit(&self, body: &mut [u8]) -> Option<usize> {
        if self.machine.len() > MACHINE_BYTES_MAX {
            return None;
        }
        let mut output = Output::new(body);
        output.number(self.stamp)?;
        output.opaque(self.machine)?;
        let groups = self.groups.as_slice();
        for number in [self.user, self.group, groups.len() as u32] {
            output.number(number)?;
        }
        for group in groups {
            output.number(*group)?;
        }
        Some(output.len())
    }
}

/// The header of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call<'a> {
    /// The number of the call, which the reply repeats. A retransmission has the same number.
    pub(crate) xid: u32,
    pub(crate) program: u32,
    pub(crate) version: u32,
    /// The number of the procedure. Procedure 0 of every program does nothing.
    pub(crate) procedure: u32,
    pub(crate) credential: Auth<'a>,
    pub(crate) verifier: Auth<'a>,
}

/// What a server does with a message that is not a readable call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoCall {
    /// Drops a datagram, or closes a stream. Without a complete header there is no call to answer.
    Ignore(Unreadable),
    /// Denies the call with this xid, for this reason.
    Deny(u32, Denial),
}

impl From<Unreadable> for NoCall {
    fn from(unreadable: Unreadable) -> Self {
        Self::Ignore(unreadable)
    }
}

impl<'a> Call<'a> {
    /// Reads the header of a call. Also returns the offset of the arguments in `message`.
    ///
    /// # Errors
    /// Fails if the message is no call, has another version of ONC RPC, or has a credential or verifier that
    /// is too long.
    pub(crate) fn parse(message: &'a [u8]) -> Result<(Self, usize), NoCall> {
        let mut items = Items::new(message);
        let xid = items.number()?;
        if items.number()? != CALL {
            return Err(NoCall::Ignore(Unreadable::Invalid));
        }
        if items.number()? != VERSION {
            let only = Versions { low: VERSION, high: VERSION };
            return Err(NoCall::Deny(xid, Denial::RpcMismatch(only)));
        }
        let (program, version) = (items.number()?, items.number()?);
        let procedure = items.number()?;
        let mut auth = |reason| {
            Auth::read(&mut items).map_err(|unreadable| match unreadable {
                Unreadable::TooLong => NoCall::Deny(xid, Denial::Auth(reason)),
                other => NoCall::Ignore(other),
            })
        };
        let credential = auth(AuthReason::BAD_CREDENTIAL)?;
        let verifier = auth(AuthReason::BAD_VERIFIER)?;
        let call = Self { xid, program, version, procedure, credential, verifier };
        Ok((call, items.offset()))
    }

    /// Writes the header, and returns its length. The arguments follow. Returns `None` if the buffer is too
    /// small, or a credential or verifier too long. [`CALL_BYTES_MAX`] bytes are enough.
    pub(crate) fn emit(&self, message: &mut [u8]) -> Option<usize> {
        let mut output = Output::new(message);
        let Self { xid, program, version, procedure, .. } = *self;
        for number in [xid, CALL, VERSION, program, version, procedure] {
            output.number(number)?;
        }
        self.credential.write(&mut output)?;
        self.verifier.write(&mut output)?;
        Some(output.len())
    }
}

/// The lowest and highest version that a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) low: u32,
    pub(crate) high: u32,
}

impl Versions {
    fn read(items: &mut Items<'_>) -> Result<Self, Unreadable> {
        Ok(Self { low: items.number()?, high: items.number()? })
    }
}

/// Why a server does not accept a credential or verifier. A reason without a constant here keeps its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuthReason(pub(crate) u32);

impl AuthReason {
    pub(crate) const BAD_CREDENTIAL: Self = Self(1);
    pub(crate) const BAD_VERIFIER: Self = Self(3);
    /// AUTH_TOOWEAK.
    pub(crate) const TOO_WEAK: Self = Self(5);
}

impl core::fmt::Display for AuthReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self.0 {
            1 => "the credential is invalid",
            2 => "the server does not accept the credential any more",
            3 => "the verifier is invalid",
            4 => "the verifier has expired or was used before",
            5 => "the procedure demands a stronger kind of credential",
            6 => "the verifier of the server is invalid",
            7 => "authentication failed for an unknown reason",
            13 => "the security context of the credential is not known",
            14 => "the security context has a problem",
            number => return write!(f, "authentication failed with reason {number}"),
        })
    }
}

/// Why a server denies a call without looking for its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// RPC_MISMATCH: the server has other versions of ONC RPC.
    RpcMismatch(Versions),
    /// AUTH_ERROR: the server does not accept the credential or verifier.
    Auth(AuthReason),
}

/// What became of a call that the server accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// SUCCESS: the results follow the header.
    Success,
    /// PROG_UNAVAIL: the server has no such program.
    ProgramUnavailable,
    /// PROG_MISMATCH: the server has the program, but in other versions.
    ProgramMismatch(Versions),
    /// PROC_UNAVAIL: this version of the program has no such procedure.
    ProcedureUnavailable,
    /// GARBAGE_ARGS: the server cannot read the arguments.
    GarbageArguments,
    /// SYSTEM_ERR: the server failed, before or after the procedure ran.
    SystemError,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    Accepted { verifier: Auth<'a>, outcome: Outcome },
    Denied(Denial),
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    pub(crate) xid: u32,
    pub(crate) answer: Answer<'a>,
}

/// Returns the number of the call that a message replies to, or `None` if the message is no reply. This is
/// enough to find the caller.
pub(crate) fn replied_to(message: &[u8]) -> Option<u32> {
    let mut items = Items::new(message);
    let xid = items.number().ok()?;
    (items.number().ok()? == REPLY).then_some(xid)
}

impl<'a> Reply<'a> {
    /// Returns a reply with an empty verifier.
    pub(crate) const fn accepted(xid: u32, outcome: Outcome) -> Self {
        Self { xid, answer: Answer::Accepted { verifier: Auth::NONE, outcome } }
    }

    pub(crate) const fn denied(xid: u32, denial: Denial) -> Self {
        Self { xid, answer: Answer::Denied(denial) }
    }

    /// Reads the header of a reply. Also returns the offset of the results in `message`. Only
    /// [`Outcome::Success`] has results.
    ///
    /// # Errors
    /// Fails if the message is no reply, or has an answer that the protocol does not define.
    pub(crate) fn parse(message: &'a [u8]) -> Result<(Self, usize), Unreadable> {
        let mut items = Items::new(message);
        let xid = items.number()?;
        if items.number()? != REPLY {
            return Err(Unreadable::Invalid);
        }
        let answer = match items.number()? {
            0 => {
                let verifier = Auth::read(&mut items)?;
                Answer::Accepted { verifier, outcome: Self::outcome(&mut items)? }
            }
            1 => Answer::Denied(match items.number()? {
                0 => Denial::RpcMismatch(Versions::read(&mut items)?),
                1 => Denial::Auth(AuthReason(items.number()?)),
                _ => return Err(Unreadable::Invalid),
            }),
            _ => return Err(Unreadable::Invalid),
        };
        Ok((Self { xid, answer }, items.offset()))
    }

    fn outcome(items: &mut Items<'_>) -> Result<Outcome, Unreadable> {
        Ok(match items.number()? {
            0 => Outcome::Success,
            1 => Outcome::ProgramUnavailable,
            2 => Outcome::ProgramMismatch(Versions::read(items)?),
            3 => Outcome::ProcedureUnavailable,
            4 => Outcome::GarbageArguments,
            5 => Outcome::SystemError,
            _ => return Err(Unreadable::Invalid),
        })
    }

    /// Writes the header, and returns its length. After [`Outcome::Success`] the results follow. Returns
    /// `None` if the buffer is too small or the verifier too long. [`REPLY_BYTES_MAX`] bytes are enough.
    pub(crate) fn emit(&self, message: &mut [u8]) -> Option<usize> {
        let mut output = Output::new(message);
        output.number(self.xid)?;
        output.number(REPLY)?;
        let (number, versions) = match &self.answer {
            Answer::Accepted { verifier, outcome } => {
                output.number(0)?;
                verifier.write(&mut output)?;
                match outcome {
                    Outcome::Success => (0, None),
                    Outcome::ProgramUnavailable => (1, None),
                    Outcome::ProgramMismatch(versions) => (2, Some(versions)),
                    Outcome::ProcedureUnavailable => (3, None),
                    Outcome::GarbageArguments => (4, None),
                    Outcome::SystemError => (5, None),
                }
            }
            Answer::Denied(denial) => {
                output.number(1)?;
                match denial {
                    Denial::RpcMismatch(versions) => (0, Some(versions)),
                    Denial::Auth(reason) => {
                        output.number(1)?;
                        (reason.0, None)
                    }
                }
            }
        };
        output.number(number)?;
        if let Some(Versions { low, high }) = versions {
            output.number(*low)?;
            output.number(*high)?;
        }
        Some(output.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::onc::items::{push_number, push_opaque};
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn emitted(emit: impl Fn(&mut [u8]) -> Option<usize>) -> Vec<u8> {
        let mut bytes = [0xaa; CALL_BYTES_MAX];
        let length = emit(&mut bytes).expect("room");
        assert_eq!(emit(&mut vec![0; length]), Some(length));
        assert_eq!(emit(&mut vec![0; length - 1]), None);
        bytes[..length].to_vec()
    }

    fn portmap(procedure: u32) -> Call<'static> {
        Call {
            xid: 0x1234_5678,
            program: 100_000,
            version: 2,
            procedure,
            credential: Auth::NONE,
            verifier: Auth::NONE,
        }
    }

    #[test]
    fn null_call_has_the_bytes_of_the_standard() {
        let call = portmap(0);
        let bytes = words(&[0x1234_5678, 0, 2, 0x0001_86a0, 2, 0, 0, 0, 0, 0]);
        assert_eq!(emitted(|to| call.emit(to)), bytes);
        assert_eq!((bytes.len(), Call::parse(&bytes)), (CALL_BYTES_MIN, Ok((call, 40))));
        let reply = Reply::accepted(0x1234_5678, Outcome::Success);
        let bytes = words(&[0x1234_5678, 1, 0, 0, 0, 0]);
        assert_eq!(emitted(|to| reply.emit(to)), bytes);
        assert_eq!(Reply::parse(&bytes), Ok((reply, 24)));
    }

    #[test]
    fn arguments_and_results_follow_the_headers() {
        let arguments = words(&[0x0001_86a3, 3, 6, 0]);
        let call = [emitted(|to| portmap(3).emit(to)), arguments.clone()].concat();
        let (parsed, offset) = Call::parse(&call).expect("a call");
        assert_eq!((parsed, &call[offset..]), (portmap(3), &*arguments));
        let reply = words(&[0x1234_5678, 1, 0, 0, 0, 0, 0x801]);
        let (_, offset) = Reply::parse(&reply).expect("a reply");
        assert_eq!(reply[offset..], [0, 0, 8, 1]);
        assert_eq!((replied_to(&reply), replied_to(&call)), (Some(0x1234_5678), None));
        assert_eq!(replied_to(&reply[..7]), None);
    }

    #[test]
    fn every_answer_has_its_own_bytes() {
        let versions = Versions { low: 2, high: 4 };
        let accepted = |outcome| emitted(|to| Reply::accepted(7, outcome).emit(to));
        let denied = |denial| emitted(|to| Reply::denied(7, denial).emit(to));
        let answers = [
            (accepted(Outcome::ProgramUnavailable), words(&[7, 1, 0, 0, 0, 1])),
            (accepted(Outcome::ProgramMismatch(versions)), words(&[7, 1, 0, 0, 0, 2, 2, 4])),
            (accepted(Outcome::ProcedureUnavailable), words(&[7, 1, 0, 0, 0, 3])),
            (accepted(Outcome::GarbageArguments), words(&[7, 1, 0, 0, 0, 4])),
            (accepted(Outcome::SystemError), words(&[7, 1, 0, 0, 0, 5])),
            (denied(Denial::RpcMismatch(versions)), words(&[7, 1, 1, 0, 2, 4])),
            (denied(Denial::Auth(AuthReason(5))), words(&[7, 1, 1, 1, 5])),
        ];
        for (emitted, bytes) in answers {
            assert_eq!(emitted, bytes);
            let (reply, offset) = Reply::parse(&bytes).expect("a reply");
            assert_eq!((self::emitted(|to| reply.emit(to)), offset), (bytes.clone(), bytes.len()));
            for end in 0..bytes.len() {
                assert_eq!(Reply::parse(&bytes[..end]), Err(Unreadable::Truncated));
            }
        }
        for undefined in [words(&[7, 1, 0, 0, 0, 6]), words(&[7, 1, 1, 2]), words(&[7, 1, 2])] {
            assert_eq!(Reply::parse(&undefined), Err(Unreadable::Invalid));
        }
        assert_eq!(Reply::parse(&words(&[7, 0, 0, 0, 0, 0])), Err(Unreadable::Invalid));
        let texts: Vec<_> = (0..15).map(|number| AuthReason(number).to_string()).collect();
        assert!(texts[1].contains("credential") && texts[12].contains("reason 12"));
    }

    #[test]
    fn message_that_is_no_readable_call_is_ignored_or_denied() {
        let good = emitted(|to| portmap(0).emit(to));
        for end in 0..good.len() {
            let ignored = Err(NoCall::Ignore(Unreadable::Truncated));
            assert_eq!(Call::parse(&good[..end]), ignored);
        }
        let other = words(&[5, 0, 3]);
        let only = Versions { low: 2, high: 2 };
        let denied = Err(NoCall::Deny(5, Denial::RpcMismatch(only)));
        assert_eq!(Call::parse(&other), denied);
        let reply = words(&[5, 1, 0, 0, 0, 0]);
        assert_eq!(Call::parse(&reply), Err(NoCall::Ignore(Unreadable::Invalid)));
    }

    #[test]
    fn credential_has_at_most_400_bytes() {
        let body = [7; AUTH_BYTES_MAX + 1];
        let largest = Auth { flavour: Flavour(6), body: &body[..AUTH_BYTES_MAX] };
        let call = Call { credential: largest, verifier: largest, ..portmap(9) };
        let bytes = emitted(|to| call.emit(to));
        assert_eq!((bytes.len(), Call::parse(&bytes)), (CALL_BYTES_MAX, Ok((call, bytes.len()))));
        let reply = Reply {
            xid: 1,
            answer: Answer::Accepted {
                verifier: largest,
                outcome: Outcome::ProgramMismatch(Versions { low: 0, high: u32::MAX }),
            },
        };
        assert_eq!(emitted(|to| reply.emit(to)).len(), REPLY_BYTES_MAX);
        let longer = Auth { flavour: Flavour(6), body: &body };
        let call = Call { verifier: longer, ..portmap(9) };
        assert_eq!(call.emit(&mut [0; 2000]), None);
        // A peer may send a credential of more than 400 bytes, or announce one and send nothing.
        let start = words(&[5, 0, 2, 100_000, 2, 0]);
        for length in [401, 0x7fff_ffff, u32::MAX] {
            let hostile = [start.clone(), words(&[1, length]), vec![0; 500]].concat();
            let denied = NoCall::Deny(5, Denial::Auth(AuthReason::BAD_CREDENTIAL));
            assert_eq!(Call::parse(&hostile), Err(denied));
            let hostile = [start.clone(), words(&[0, 0, 0, length])].concat();
            let denied = NoCall::Deny(5, Denial::Auth(AuthReason::BAD_VERIFIER));
            assert_eq!(Call::parse(&hostile), Err(denied));
        }
    }

    #[test]
    fn claimed_identity_is_bounded() {
        assert_eq!(Groups::new(&[1; 17]), None);
        let groups = Groups::new(&core::array::from_fn::<_, 16, _>(|i| i as u32)).expect("sixteen");
        let sys = AuthSys { stamp: 9, machine: &[b'm'; 255], user: 1000, group: 100, groups };
        let mut body = [0; AUTH_BYTES_MAX];
        let length = sys.emit(&mut body).expect("room");
        assert_eq!((length, AuthSys::parse(&body[..length])), (340, Ok(sys)));
        assert_eq!(AuthSys::parse(&body[..length + 4]), Err(Unreadable::TooLong));
        assert_eq!(sys.emit(&mut body[..length - 1]), None);
        assert_eq!(AuthSys { machine: &[0; 256], ..sys }.emit(&mut [0; 900]), None);
        let mut hostile = words(&[0]);
        push_opaque(&mut hostile, b"host");
        for number in [1, 1, 17] {
            push_number(&mut hostile, number);
        }
        hostile.extend([0; 17 * 4]);
        assert_eq!(AuthSys::parse(&hostile), Err(Unreadable::TooLong));
        assert_eq!(AuthSys::parse(&words(&[0, 256])), Err(Unreadable::TooLong));
    }

    proptest! {
        #[test]
        fn headers_are_read_as_they_were_written(
            numbers in any::<[u32; 6]>(),
            bodies in [vec(any::<u8>(), 0..=AUTH_BYTES_MAX), vec(any::<u8>(), 0..=AUTH_BYTES_MAX)],
            rest in vec(any::<u8>(), 0..20),
        ) {
            let [xid, program, version, procedure, one, other] = numbers;
            let credential = Auth { flavour: Flavour(one), body: &bodies[0] };
            let verifier = Auth { flavour: Flavour(other), body: &bodies[1] };
            let call = Call { xid, program, version, procedure, credential, verifier };
            let header = emitted(|to| call.emit(to));
            let message = [&*header, &rest].concat();
            prop_assert_eq!(Call::parse(&message), Ok((call, header.len())));
            let outcome = match procedure % 6 {
                0 => Outcome::Success,
                1 => Outcome::ProgramUnavailable,
                2 => Outcome::ProgramMismatch(Versions { low: program, high: version }),
                3 => Outcome::ProcedureUnavailable,
                4 => Outcome::GarbageArguments,
                _ => Outcome::SystemError,
            };
            let reply = Reply { xid, answer: Answer::Accepted { verifier, outcome } };
            let header = emitted(|to| reply.emit(to));
            let message = [&*header, &rest].concat();
            prop_assert_eq!(Reply::parse(&message), Ok((reply, header.len())));
        }

        #[test]
        fn claimed_identity_is_read_as_it_was_written(
            numbers in any::<[u32; 3]>(), machine in vec(any::<u8>(), 0..=255),
            groups in vec(any::<u32>(), 0..=16),
        ) {
            let [stamp, user, group] = numbers;
            let all = Groups::new(&groups).expect("sixteen at most");
            prop_assert_eq!(all.as_slice(), &*groups);
            let sys = AuthSys { stamp, machine: &machine, user, group, groups: all };
            let body = emitted(|to| sys.emit(to));
            prop_assert!(body.len() <= AUTH_BYTES_MAX);
            prop_assert_eq!(AuthSys::parse(&body), Ok(sys));
        }

        #[test]
        fn any_bytes_are_read_without_harm(
            start in any::<[u8; 2]>(), rest in vec(any::<u8>(), 0..200),
        ) {
            // The first fields are valid, so that later fields are read, too.
            let [kind, answer] = start.map(|byte| u32::from(byte) % 3);
            let message = [words(&[1, kind, answer]), rest].concat();
            let _ = (Call::parse(&message), Reply::parse(&message), AuthSys::parse(&message));
        }
    }
}
