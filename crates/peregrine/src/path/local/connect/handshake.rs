//! What client and server say on the session's socket: hello and bind, describe, ring, goodbye.
//!
//! Each message is one `SOCK_SEQPACKET` record in native byte order (the peer is on this
//! machine), written and read by the same cursors as any head. See `docs/PROTOCOL.md`.

use crate::error::{CallError, Kind, Phase};
use crate::interface::Description;
use crate::interface::Digest;
use crate::limits;
use crate::value::{Invalid, Overflow, Reader, Space, Value, Window, Writer};

/// The first word of every request: "PRG" and the protocol's generation.
const MAGIC: u32 = u32::from_be_bytes(*b"PRG\x01");
/// The version of region and handshake; different ones do not talk.
pub(crate) const VERSION: u32 = 4;
/// What a client shows of a session that it has, to bind in it: nobody else can guess it.
pub(crate) type Token = [u8; 16];

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Bind me to this export, in a session that we have or in a new one.
    Bind(Bind),
    /// I have no further use for this binding.
    Unbind(u32),
    /// Tell me what you export.
    Describe,
    /// A call is posted on this A-stack, and nobody looks.
    Ring(u32),
    /// Show me what you have counted.
    Count,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    /// Identity of the client's interface; `None` binds to whatever is there.
    pub(crate) digest: Option<[u8; 16]>,
    /// A-stacks that a new session should have, and bytes of the largest message.
    pub(crate) count: u32,
    pub(crate) bytes: u64,
    /// Sessions with this process that the client has, at most [`limits::TOKENS_MAX`].
    pub(crate) sessions: Vec<Token>,
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Bound: in which session, and the region's layout. Beside a new session's answer comes its
    /// region, and the socket is that session's from now on.
    Bound(Bound),
    /// No, and why: a kind and a text.
    Refused { kind: u32, text: String },
    /// The interface that is exported.
    Description(Description),
    /// The session ends, and no call is taken any more.
    Goodbye,
    /// The export of this binding was withdrawn: its calls are refused from now on.
    Revoked(u32),
    /// The server's counters, in so many bytes of memory that come beside it, to be read only.
    Counters(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// Differs between incarnations of a server.
    pub(crate) epoch: u64,
    pub(crate) session: Token,
    /// The binding's number in its session.
    pub(crate) binding: u32,
    pub(crate) count: u32,
    pub(crate) bytes: u64,
    /// How the server lays its values out: 1 little-endian, 2 big-endian. On one machine it differs
    /// from the client's only if one of them is a program for another machine that is emulated.
    pub(crate) representation: u32,
}

const BIND: u32 = 1;
const DESCRIBE: u32 = 2;
const RING: u32 = 3;
const UNBIND: u32 = 4;
const COUNT: u32 = 5;
const BOUND: u32 = 101;
const REFUSED: u32 = 102;
const DESCRIPTION: u32 = 103;
const GOODBYE: u32 = 104;
const REVOKED: u32 = 105;
const COUNTERS: u32 = 106;

/// Writes one message into a buffer of [`limits::HANDSHAKE_BYTES_MAX`] bytes.
fn message(write: impl FnOnce(&mut Writer<'_>) -> Result<(), Overflow>) -> Option<Vec<u8>> {
    let mut buffer = vec![0; limits::HANDSHAKE_BYTES_MAX];
    let mut head = Writer::new(Space::of_mut(&mut buffer));
    write(&mut head).ok()?;
    head.flush();
    let bytes = head.len();
    buffer.truncate(bytes);
    Some(buffer)
}

impl Request {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let written = message(|head| {
            head.plain(&MAGIC)?;
            head.plain(&VERSION)?;
            match self {
                Self::Bind(Bind { digest, count, bytes, sessions }) => {
                    head.plain(&BIND)?;
                    (*digest, *count, *bytes).encode(head)?;
                    sessions.encode(head)
                }
                Self::Unbind(binding) => {
                    head.plain(&UNBIND)?;
                    head.plain(binding)
                }
                Self::Describe => head.plain(&DESCRIBE),
                Self::Count => head.plain(&COUNT),
                Self::Ring(index) => {
                    head.plain(&RING)?;
                    head.plain(index)
                }
            }
        });
        written.expect("requests are short")
    }

    /// What a client said.
    ///
    /// # Errors
    /// As a refusal to be sent back.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, (Kind, String)> {
        let unreadable = |invalid: Invalid| (Kind::ProtocolMismatch, invalid.to_string());
        let head = &mut Reader::new(Window::from(bytes));
        if head.plain::<u32>().map_err(unreadable)? != MAGIC {
            return Err((Kind::ProtocolMismatch, "not a Peregrine client".into()));
        }
        let version = head.plain::<u32>().map_err(unreadable)?;
        if version != VERSION {
            let text = format!("the client speaks version {version}, the server {VERSION}");
            return Err((Kind::ProtocolMismatch, text));
        }
        let request = match head.plain::<u32>().map_err(unreadable)? {
            BIND => {
                let (digest, count, bytes) = Value::decode(head).map_err(unreadable)?;
                let sessions = Value::decode(head).map_err(unreadable)?;
                Self::Bind(Bind { digest, count, bytes, sessions })
            }
            UNBIND => Self::Unbind(head.plain().map_err(unreadable)?),
            DESCRIBE => Self::Describe,
            COUNT => Self::Count,
            RING => Self::Ring(head.plain().map_err(unreadable)?),
            kind => return Err((Kind::ProtocolMismatch, format!("unknown request {kind}"))),
        };
        head.finish().map_err(unreadable)?;
        Ok(request)
    }
}

impl Answer {
    /// The refusal that tells a peer why.
    pub(crate) fn refused(kind: Kind, text: impl Into<String>) -> Self {
        Self::Refused { kind: kind as u32, text: text.into() }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let written = message(|head| match self {
            Self::Bound(Bound { epoch, session, binding, count, bytes, representation }) => {
                head.plain(&BOUND)?;
                (VERSION, *epoch, *session, *binding, *count, *bytes, *representation).encode(head)
            }
            Self::Refused { kind, text } => {
                head.plain(&REFUSED)?;
                head.plain(kind)?;
                text[..text.floor_char_boundary(limits::TEXT_BYTES_MAX)].to_owned().encode(head)
            }
            Self::Description(description) => {
                head.plain(&DESCRIPTION)?;
                description.encode(head)
            }
            Self::Goodbye => head.plain(&GOODBYE),
            Self::Revoked(binding) => {
                head.plain(&REVOKED)?;
                head.plain(binding)
            }
            Self::Counters(bytes) => {
                head.plain(&COUNTERS)?;
                bytes.encode(head)
            }
        });
        let long = || Self::refused(Kind::TooLarge, "the description is too long to be told");
        written.unwrap_or_else(|| long().to_bytes())
    }

    /// What a server said.
    ///
    /// # Errors
    /// If it is no Peregrine server of this version.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, CallError> {
        let decode = |head: &mut Reader<'_>| {
            let answer = match head.plain::<u32>()? {
                BOUND => {
                    if head.plain::<u32>()? != VERSION {
                        return Err(Invalid::Bits);
                    }
                    let (epoch, session, binding, count, bytes, representation) =
                        Value::decode(head)?;
                    Self::Bound(Bound { epoch, session, binding, count, bytes, representation })
                }
                REFUSED => {
                    let (kind, text) = Value::decode(head)?;
                    Self::Refused { kind, text }
                }
                DESCRIPTION => Self::Description(Description::decode(head)?),
                GOODBYE => Self::Goodbye,
                REVOKED => Self::Revoked(head.plain()?),
                COUNTERS => Self::Counters(Value::decode(head)?),
                _ => return Err(Invalid::Bits),
            };
            head.finish()?;
            Ok(answer)
        };
        decode(&mut Reader::new(Window::from(bytes))).map_err(|invalid| {
            let text = "the server's answer is not readable";
            CallError::not_executed(Kind::ProtocolMismatch, Phase::Bind, text).because(invalid)
        })
    }
}

impl Description {
    fn encode(&self, head: &mut Writer<'_>) -> Result<(), Overflow> {
        self.interface.encode(head)?;
        (self.version, self.digest.0).encode(head)?;
        self.text.encode(head)?;
        self.docs.encode(head)?;
        (self.process, self.age_ms, self.bindings).encode(head)?;
        self.listens.encode(head)?;
        self.network.encode(head)
    }

    fn decode(head: &mut Reader<'_>) -> Result<Self, Invalid> {
        let interface = Value::decode(head)?;
        let (version, digest) = Value::decode(head)?;
        let text = Value::decode(head)?;
        let docs = Value::decode(head)?;
        let (process, age_ms, bindings) = Value::decode(head)?;
        let (listens, network) = (Value::decode(head)?, Value::decode(head)?);
        let digest = Digest(digest);
        let told = Self {
            interface,
            version,
            digest,
            text,
            docs,
            process,
            age_ms,
            bindings,
            listens,
            network,
        };
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_and_foreign_ones_are_refused() {
        let sessions = vec![[1; 16], [2; 16]];
        let bind = Request::Bind(Bind { digest: Some([7; 16]), count: 8, bytes: 16384, sessions });
        for request in
            [bind, Request::Describe, Request::Count, Request::Ring(3), Request::Unbind(9)]
        {
            let bytes = request.to_bytes();
            assert_eq!(Request::from_bytes(&bytes), Ok(request));
            for short in 0..bytes.len() {
                assert!(Request::from_bytes(&bytes[..short]).is_err());
            }
        }
        let mut other = Request::Describe.to_bytes();
        other[4] += 1;
        let (kind, text) = Request::from_bytes(&other).unwrap_err();
        assert_eq!(kind, Kind::ProtocolMismatch);
        assert!(text.contains("version 5"), "{text}");
        let description = Answer::Description(Description {
            interface: "Files".into(),
            version: 1,
            digest: Digest([3; 16]),
            text: "interface Files\n".into(),
            docs: vec!["A file service.".into()],
            process: 4,
            age_ms: 5,
            bindings: 6,
            listens: vec!["tcp:127.0.0.1:7".into()],
            network: 7,
        });
        let (binding, count, bytes, representation) = (4, 2, 4096, 1);
        let bound = Bound { epoch: 1, session: [3; 16], binding, count, bytes, representation };
        let (bound, revoked) = (Answer::Bound(bound), Answer::Revoked(4));
        let refused = Answer::refused(Kind::Denied, "no");
        for answer in [bound, refused, description, Answer::Goodbye, revoked, Answer::Counters(8)] {
            let bytes = answer.to_bytes();
            assert_eq!(Answer::from_bytes(&bytes).unwrap(), answer);
            for short in 0..bytes.len() {
                assert!(Answer::from_bytes(&bytes[..short]).is_err());
            }
        }
    }
}
