//! The headers of calls and replies, and the versions of Courier. Arguments, results and the arguments of
//! errors follow the headers, and are never read or copied here.

use super::words::{Output, Unreadable, Words};

const CALL: u16 = 0;
const REJECT: u16 = 1;
const RETURN: u16 = 2;
const ABORT: u16 = 3;

/// The number of bytes of a range of versions.
pub(crate) const VERSIONS_BYTES: usize = 4;
/// The number of bytes of a call's header.
pub(crate) const CALL_BYTES: usize = 12;
/// The largest number of bytes of a reply's header.
pub(crate) const REPLY_BYTES_MAX: usize = 10;

/// A range of versions of Courier or of a program. It includes both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) low: u16,
    pub(crate) high: u16,
}

impl Versions {
    /// The versions of Courier that this module speaks. Version 2 is in use, too, but its calls differ.
    pub(crate) const OURS: Self = Self { low: 3, high: 3 };

    /// Returns the highest version that both ranges have. A range whose lowest version is above its highest
    /// is empty.
    pub(crate) fn common(self, other: Self) -> Option<u16> {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        (self.low <= self.high && low <= high).then_some(high)
    }

    pub(crate) const fn from_bytes(bytes: [u8; VERSIONS_BYTES]) -> Self {
        let [a, b, c, d] = bytes;
        Self { low: u16::from_be_bytes([a, b]), high: u16::from_be_bytes([c, d]) }
    }

    pub(crate) const fn to_bytes(self) -> [u8; VERSIONS_BYTES] {
        let ([a, b], [c, d]) = (self.low.to_be_bytes(), self.high.to_be_bytes());
        [a, b, c, d]
    }
}

/// The header of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// A number that the reply repeats. Clients may use the same number for all calls, so a server must not
    /// identify calls by it.
    pub(crate) transaction: u16,
    pub(crate) program: u32,
    pub(crate) version: u16,
    pub(crate) procedure: u16,
}

/// What a server does with a message that is not a readable call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoCall {
    /// Drops a datagram, or closes a stream. Without a complete header there is no call to answer.
    Ignore(Unreadable),
    /// Over a stream, sends this reply, and then closes the stream. Drops a datagram.
    Reject(Reply),
}

impl From<Unreadable> for NoCall {
    fn from(unreadable: Unreadable) -> Self {
        Self::Ignore(unreadable)
    }
}

impl Call {
    /// Reads the header of a call. Also returns the offset of the arguments in `message`.
    ///
    /// # Errors
    /// Fails if the message is no call, ends too early, or ends within a word.
    pub(crate) fn parse(message: &[u8]) -> Result<(Self, usize), NoCall> {
        let mut words = Words::new(message)?;
        let (kind, transaction) = (words.word()?, words.word()?);
        if kind != CALL {
            return Err(NoCall::Reject(Reply::rejected(transaction, Rejection::UNSPECIFIED)));
        }
        let (program, version) = (words.long()?, words.word()?);
        let procedure = words.word()?;
        Ok((Self { transaction, program, version, procedure }, words.offset()))
    }

    /// Writes the header. The arguments follow. Returns `None` if the buffer has less than [`CALL_BYTES`].
    pub(crate) fn emit(&self, message: &mut [u8]) -> Option<usize> {
        let mut output = Output::new(message);
        output.word(CALL)?;
        output.word(self.transaction)?;
        output.put(self.program.to_be_bytes())?;
        output.word(self.version)?;
        output.word(self.procedure)?;
        Some(output.len())
    }
}

/// Why a server does not execute a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// noSuchProgramNumber: the server does not have the program.
    NoSuchProgram,
    /// noSuchVersionNumber: the server has the program in these versions.
    NoSuchVersion(Versions),
    /// noSuchProcedureValue: the program does not have the procedure.
    NoSuchProcedure,
    /// invalidArgument: the server cannot read the arguments.
    InvalidArgument,
    /// unspecifiedError, which has the number 0xffff. Numbers that the standard does not define mean the
    /// same.
    Unspecified(u16),
}

impl Rejection {
    pub(crate) const UNSPECIFIED: Self = Self::Unspecified(0xffff);
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The procedure has returned. Its results follow the header.
    Return,
    /// The procedure has reported the error with this number. The arguments of the error follow the header.
    Abort(u16),
    /// The server does not execute the call.
    Reject(Rejection),
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The transaction number of the call.
    pub(crate) transaction: u16,
    pub(crate) answer: Answer,
}

impl Reply {
    pub(crate) const fn rejected(transaction: u16, rejection: Rejection) -> Self {
        Self { transaction, answer: Answer::Reject(rejection) }
    }

    /// Reads the header of a reply. Also returns the offset in `message` of what follows.
    ///
    /// # Errors
    /// Fails if the message is no reply, ends too early, or ends within a word, or if bytes follow a
    /// rejection.
    pub(crate) fn parse(message: &[u8]) -> Result<(Self, usize), Unreadable> {
        let mut words = Words::new(message)?;
        let (kind, transaction) = (words.word()?, words.word()?);
        let answer = match kind {
            RETURN => Answer::Return,
            ABORT => Answer::Abort(words.word()?),
            REJECT => {
                let rejection = match words.word()? {
                    0 => Rejection::NoSuchProgram,
                    1 => {
                        let (low, high) = (words.word()?, words.word()?);
                        Rejection::NoSuchVersion(Versions { low, high })
                    }
                    2 => Rejection::NoSuchProcedure,
                    3 => Rejection::InvalidArgument,
                    number => Rejection::Unspecified(number),
                };
                words.end()?;
                Answer::Reject(rejection)
            }
            _ => return Err(Unreadable::Invalid),
        };
        Ok((Self { transaction, answer }, words.offset()))
    }

    /// Writes the header, and returns its length. Returns `None` if the buffer is too small.
    /// [`REPLY_BYTES_MAX`] bytes are enough.
    pub(crate) fn emit(&self, message: &mut [u8]) -> Option<usize> {
        let mut output = Output::new(message);
        let (kind, number) = match self.answer {
            Answer::Return => (RETURN, None),
            Answer::Abort(error) => (ABORT, Some(error)),
            Answer::Reject(rejection) => {
                let number = match rejection {
                    Rejection::NoSuchProgram => 0,
                    Rejection::NoSuchVersion(_) => 1,
                    Rejection::NoSuchProcedure => 2,
                    Rejection::InvalidArgument => 3,
                    Rejection::Unspecified(number) => number,
                };
                (REJECT, Some(number))
            }
        };
        output.word(kind)?;
        output.word(self.transaction)?;
        if let Some(number) = number {
            output.word(number)?;
        }
        if let Answer::Reject(Rejection::NoSuchVersion(versions)) = self.answer {
            output.put(versions.to_bytes())?;
        }
        Some(output.len())
    }

    /// Returns the header as a message of its own.
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut bytes = [0; REPLY_BYTES_MAX];
        let length = self.emit(&mut bytes).expect("a header has at most that many bytes");
        bytes[..length].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn words(words: &[u16]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn emitted(emit: impl Fn(&mut [u8]) -> Option<usize>) -> Vec<u8> {
        let mut bytes = [0xaa; 16];
        let length = emit(&mut bytes).expect("room");
        assert_eq!(emit(&mut vec![0; length]), Some(length));
        assert_eq!(emit(&mut vec![0; length - 1]), None);
        bytes[..length].to_vec()
    }

    #[test]
    fn call_has_the_bytes_of_the_standard() {
        let call = Call { transaction: 7, program: 0x0001_0002, version: 3, procedure: 4 };
        let header = emitted(|to| call.emit(to));
        assert_eq!(header, words(&[0, 7, 1, 2, 3, 4]));
        assert_eq!(header.len(), CALL_BYTES);
        let message = [header, words(&[0xabcd])].concat();
        assert_eq!(Call::parse(&message), Ok((call, CALL_BYTES)));
        for end in 0..CALL_BYTES {
            assert_eq!(
                Call::parse(&message[..end]),
                Err(NoCall::Ignore(Unreadable::Truncated)),
                "{end}"
            );
        }
        // A word that is cut off makes the whole message unreadable.
        let odd = Call::parse(&message[..CALL_BYTES + 1]);
        assert_eq!(odd, Err(NoCall::Ignore(Unreadable::Truncated)));
    }

    #[test]
    fn message_that_is_no_call_is_rejected() {
        for kind in [1, 2, 3, 4, 0xffff] {
            let rejected = Reply::rejected(9, Rejection::UNSPECIFIED);
            let parsed = Call::parse(&words(&[kind, 9]));
            assert_eq!(parsed, Err(NoCall::Reject(rejected)));
        }
    }

    #[test]
    fn every_answer_has_its_own_bytes() {
        let versions = Versions { low: 2, high: 5 };
        let reject = |rejection| Reply::rejected(7, rejection);
        let answers = [
            (Reply { transaction: 7, answer: Answer::Return }, words(&[2, 7])),
            (Reply { transaction: 7, answer: Answer::Abort(1) }, words(&[3, 7, 1])),
            (reject(Rejection::NoSuchProgram), words(&[1, 7, 0])),
            (reject(Rejection::NoSuchVersion(versions)), words(&[1, 7, 1, 2, 5])),
            (reject(Rejection::NoSuchProcedure), words(&[1, 7, 2])),
            (reject(Rejection::InvalidArgument), words(&[1, 7, 3])),
            (reject(Rejection::UNSPECIFIED), words(&[1, 7, 0xffff])),
            (reject(Rejection::Unspecified(9)), words(&[1, 7, 9])),
        ];
        for (reply, bytes) in answers {
            assert_eq!(emitted(|to| reply.emit(to)), bytes);
            assert_eq!(reply.to_vec(), bytes);
            assert_eq!(Reply::parse(&bytes), Ok((reply, bytes.len())));
            for end in 0..bytes.len() {
                assert_eq!(Reply::parse(&bytes[..end]), Err(Unreadable::Truncated));
            }
            let more = [bytes.clone(), words(&[1])].concat();
            let offset = match reply.answer {
                Answer::Reject(_) => Err(Unreadable::TooLong),
                _ => Ok((reply, bytes.len())),
            };
            assert_eq!(Reply::parse(&more), offset);
        }
        assert_eq!(Reply::parse(&words(&[0, 7, 0])), Err(Unreadable::Invalid));
        assert_eq!(Reply::parse(&words(&[4, 7, 0])), Err(Unreadable::Invalid));
    }

    #[test]
    fn sides_use_the_highest_version_that_both_have() {
        let common = |low, high| Versions::OURS.common(Versions { low, high });
        assert_eq!([common(3, 3), common(2, 3), common(1, 9)], [Some(3); 3]);
        assert_eq!([common(1, 2), common(4, 9), common(5, 1), common(4, 3)], [None; 4]);
        let wide = Versions { low: 2, high: 7 };
        assert_eq!(wide.common(Versions { low: 4, high: 6 }), Some(6));
        assert_eq!(Versions { low: 6, high: 4 }.common(wide), None);
        assert_eq!(Versions::OURS.to_bytes(), [0, 3, 0, 3]);
    }

    proptest! {
        #[test]
        fn headers_are_read_as_they_were_written(
            numbers in any::<[u16; 4]>(), program in any::<u32>(), rest in vec(any::<u16>(), 0..20),
        ) {
            let [transaction, version, procedure, kind] = numbers;
            let call = Call { transaction, program, version, procedure };
            let header = emitted(|to| call.emit(to));
            let message = [&*header, &words(&rest)].concat();
            prop_assert_eq!(Call::parse(&message), Ok((call, header.len())));
            let versions = Versions { low: version, high: procedure };
            prop_assert_eq!(Versions::from_bytes(versions.to_bytes()), versions);
            let answer = match kind % 4 {
                0 => Answer::Return,
                1 => Answer::Abort(version),
                2 => Answer::Reject(Rejection::NoSuchVersion(versions)),
                _ => Answer::Reject(Rejection::Unspecified(version | 4)),
            };
            let reply = Reply { transaction, answer };
            let header = emitted(|to| reply.emit(to));
            prop_assert_eq!(Reply::parse(&header), Ok((reply, header.len())));
        }

        #[test]
        fn any_bytes_are_read_without_harm(kind in 0_u16..5, rest in vec(any::<u8>(), 0..20)) {
            let message = [words(&[kind]), rest].concat();
            let _ = (Call::parse(&message), Reply::parse(&message));
        }

        #[test]
        fn common_version_is_in_both_ranges(one in any::<[u16; 2]>(), other in any::<[u16; 2]>()) {
            let [one, other] = [one, other].map(|[low, high]| Versions { low, high });
            let common = one.common(other);
            prop_assert_eq!(common, other.common(one));
            if let Some(common) = common {
                let range = |one: Versions| one.low..=one.high;
                prop_assert!(range(one).contains(&common) && range(other).contains(&common));
            }
        }
    }
}
