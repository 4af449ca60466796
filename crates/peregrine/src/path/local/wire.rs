//! The messages on the socket of a session: bind, unbind, describe, ring, goodbye and others.
//!
//! Each message is one `SOCK_SEQPACKET` record in native byte order, because the peer is on this machine. The
//! messages are written and read by `Writer` and `Reader`, as the head of a call is. See `docs/PROTOCOL.md`.

use crate::error::{CallError, Kind, Phase};
use crate::interface::Description;
use crate::interface::Digest;
use crate::limits;
use crate::observe::{Record, Wanted};
use crate::serving::health::Health;
use crate::value::{Invalid, Overflow, Reader, Space, Value, Window, Writer};

/// The first word of every request: the letters "PRG" and the byte 1.
const MAGIC: u32 = u32::from_be_bytes(*b"PRG\x01");
/// The version of the region's layout and of the handshake. Client and server must have the same version.
pub(crate) const VERSION: u32 = 4;
/// A secret number of a session. A client sends this number to bind in the session.
pub(crate) type Token = [u8; 16];

/// A message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClientMessage {
    /// Requests a binding in an existing session or in a new session. The export is the one at whose socket
    /// the client connected.
    Bind(BindRequest),
    /// Ends the binding with this number.
    Unbind(u32),
    /// Asks for the description of the export at whose socket the client connected.
    Describe,
    /// Reports that a call is posted on the A-stack with this index: either no thread polls the A-stack, or
    /// the server has not taken the call for a while.
    Ring(u32),
    /// Asks for the server's counters.
    Count,
    /// Asks for the server's health.
    Health,
    /// Asks for records of the calls of the export at whose socket the client connected.
    Capture(Wanted),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BindRequest {
    /// The identity of the client's interface. `None` binds to any interface.
    pub(crate) digest: Option<[u8; 16]>,
    /// The number of A-stacks that the client requests, if the server makes a new session.
    pub(crate) count: u32,
    /// The size in bytes that the client requests for the largest message.
    pub(crate) bytes: u64,
    /// The tokens of existing sessions between the two processes: at most [`limits::TOKENS_MAX`].
    pub(crate) sessions: Vec<Token>,
}

/// A message of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerMessage {
    /// Grants a binding. If the session is new, the descriptor of its region comes with this message, and
    /// the socket belongs to that session from now on.
    Bound(BindGrant),
    /// Refuses a request.
    Refused { kind: u32, text: String },
    /// Describes the exported interface.
    Description(Description),
    /// Ends the session: the server takes no more calls.
    Goodbye,
    /// Reports that the export of the binding with this number was withdrawn. The calls of this binding are
    /// refused from now on.
    Revoked(u32),
    /// Reports the size in bytes of the server's counters. The descriptor of the counters' memory comes with
    /// this message, for reading only.
    Counters(u64),
    /// Reports the server's health.
    Health(Health),
    /// Grants a capture. Each further message of the server is a record of a call.
    Capturing,
    /// A call that has ended.
    Captured(Box<CapturedRecord>),
}

/// A call that has ended, as a program that captures calls receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CapturedRecord {
    /// The number of the call among all calls that were captured or left out, from 0.
    pub(crate) number: u64,
    /// The number of calls that were left out until the server sent this record.
    pub(crate) left_out: u64,
    pub(crate) record: Record,
}

/// Returns the bytes of [`ServerMessage::Captured`].
pub(crate) fn record_bytes(number: u64, left_out: u64, record: &Record) -> Vec<u8> {
    let written = message(|head| {
        head.plain(&CAPTURED)?;
        (number, left_out).encode(head)?;
        record.encode(head)
    });
    written.expect("the parts of a record are bounded")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BindGrant {
    /// The server's epoch: a number that differs each time the server starts.
    pub(crate) epoch: u64,
    pub(crate) session: Token,
    /// The binding's number in its session.
    pub(crate) binding: u32,
    pub(crate) count: u32,
    pub(crate) bytes: u64,
    /// The byte order of the server's values: 1 for little-endian, 2 for big-endian. This byte order differs
    /// from the client's only if one of the two programs runs in an emulator of another processor.
    pub(crate) representation: u32,
}

/// The number in a request that stands for all procedures.
const ALL_PROCEDURES: u32 = u32::MAX;

const BIND: u32 = 1;
const DESCRIBE: u32 = 2;
const RING: u32 = 3;
const UNBIND: u32 = 4;
const COUNT: u32 = 5;
const HEALTH: u32 = 6;
const CAPTURE: u32 = 7;
const BOUND: u32 = 101;
const REFUSED: u32 = 102;
const DESCRIPTION: u32 = 103;
const GOODBYE: u32 = 104;
const REVOKED: u32 = 105;
const COUNTERS: u32 = 106;
const HEALTH_IS: u32 = 107;
const CAPTURING: u32 = 108;
const CAPTURED: u32 = 109;

/// Returns the bytes of the message that `write` writes. Returns `None` if the message has more than
/// [`limits::HANDSHAKE_BYTES_MAX`] bytes.
fn message(write: impl FnOnce(&mut Writer<'_>) -> Result<(), Overflow>) -> Option<Vec<u8>> {
    let mut buffer = vec![0; limits::HANDSHAKE_BYTES_MAX];
    let mut head = Writer::new(Space::of_mut(&mut buffer));
    write(&mut head).ok()?;
    head.flush();
    let bytes = head.len();
    buffer.truncate(bytes);
    Some(buffer)
}

/// Returns the bytes of [`ClientMessage::Ring`]. Allocates no memory, because a call that rings must not
/// allocate.
pub(crate) fn ring_bytes(index: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip([MAGIC, VERSION, RING, index]) {
        *to = word.to_ne_bytes();
    }
    bytes
}

impl ClientMessage {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        if let Self::Ring(index) = self {
            return ring_bytes(*index).to_vec();
        }
        let written = message(|head| {
            head.plain(&MAGIC)?;
            head.plain(&VERSION)?;
            match self {
                Self::Bind(BindRequest { digest, count, bytes, sessions }) => {
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
                Self::Health => head.plain(&HEALTH),
                Self::Capture(Wanted { procedure, failed_only, bytes }) => {
                    head.plain(&CAPTURE)?;
                    let failed_only = u32::from(*failed_only);
                    (procedure.unwrap_or(ALL_PROCEDURES), failed_only, *bytes).encode(head)
                }
                Self::Ring(_) => Ok(()),
            }
        });
        written.expect("requests are short")
    }

    /// Reads a message of a client.
    ///
    /// # Errors
    /// If the message is invalid. The error is the refusal to send back.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, (Kind, String)> {
        let unreadable = |invalid: Invalid| (Kind::ProtocolMismatch, invalid.to_string());
        let head = &mut Reader::new(Window::from(bytes));
        if head.plain::<u32>().map_err(unreadable)? != MAGIC {
            return Err((Kind::ProtocolMismatch, "not a Peregrine client".into()));
        }
        let version = head.plain::<u32>().map_err(unreadable)?;
        if version != VERSION {
            let text = format!("the client has protocol version {version}, the server {VERSION}");
            return Err((Kind::ProtocolMismatch, text));
        }
        let request = match head.plain::<u32>().map_err(unreadable)? {
            BIND => {
                let (digest, count, bytes) = Value::decode(head).map_err(unreadable)?;
                let sessions = Value::decode(head).map_err(unreadable)?;
                Self::Bind(BindRequest { digest, count, bytes, sessions })
            }
            UNBIND => Self::Unbind(head.plain().map_err(unreadable)?),
            DESCRIBE => Self::Describe,
            COUNT => Self::Count,
            HEALTH => Self::Health,
            CAPTURE => {
                let (procedure, failed_only, bytes): (u32, u32, u32) =
                    Value::decode(head).map_err(unreadable)?;
                let procedure = Some(procedure).filter(|one| *one != ALL_PROCEDURES);
                if failed_only > 1 {
                    return Err(unreadable(Invalid::Bits));
                }
                Self::Capture(Wanted { procedure, failed_only: failed_only == 1, bytes })
            }
            RING => Self::Ring(head.plain().map_err(unreadable)?),
            kind => return Err((Kind::ProtocolMismatch, format!("unknown request {kind}"))),
        };
        head.finish().map_err(unreadable)?;
        Ok(request)
    }
}

impl ServerMessage {
    /// Makes a message that refuses a request.
    pub(crate) fn refused(kind: Kind, text: impl Into<String>) -> Self {
        Self::Refused { kind: kind as u32, text: text.into() }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let written = message(|head| match self {
            Self::Bound(BindGrant { epoch, session, binding, count, bytes, representation }) => {
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
            Self::Health(health) => {
                head.plain(&HEALTH_IS)?;
                head.plain(&health.number())
            }
            Self::Capturing => head.plain(&CAPTURING),
            Self::Captured(captured) => {
                let CapturedRecord { number, left_out, record } = &**captured;
                head.plain(&CAPTURED)?;
                (*number, *left_out).encode(head)?;
                record.encode(head)
            }
        });
        let long = || Self::refused(Kind::TooLarge, "the description is too long for one message");
        written.unwrap_or_else(|| long().to_bytes())
    }

    /// Reads a message of a server.
    ///
    /// # Errors
    /// If the message is not a message of a Peregrine server of this version.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, CallError> {
        let decode = |head: &mut Reader<'_>| {
            let answer = match head.plain::<u32>()? {
                BOUND => {
                    if head.plain::<u32>()? != VERSION {
                        return Err(Invalid::Bits);
                    }
                    let (epoch, session, binding, count, bytes, representation) =
                        Value::decode(head)?;
                    Self::Bound(BindGrant { epoch, session, binding, count, bytes, representation })
                }
                REFUSED => {
                    let (kind, text) = Value::decode(head)?;
                    Self::Refused { kind, text }
                }
                DESCRIPTION => Self::Description(Description::decode(head)?),
                GOODBYE => Self::Goodbye,
                REVOKED => Self::Revoked(head.plain()?),
                COUNTERS => Self::Counters(Value::decode(head)?),
                HEALTH_IS => Self::Health(Health::of_number(head.plain()?)),
                CAPTURING => Self::Capturing,
                CAPTURED => {
                    let (number, left_out) = Value::decode(head)?;
                    let record = Value::decode(head)?;
                    Self::Captured(Box::new(CapturedRecord { number, left_out, record }))
                }
                _ => return Err(Invalid::Bits),
            };
            head.finish()?;
            Ok(answer)
        };
        decode(&mut Reader::new(Window::from(bytes))).map_err(|invalid| {
            let text = "cannot read the server's answer";
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
        let description = Self {
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
        Ok(description)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request and the answer of a capture, as `docs/PROTOCOL.md` has them.
    #[test]
    fn bytes_of_a_capture_are_those_of_the_protocol() {
        let wanted = Wanted { procedure: Some(2), failed_only: true, bytes: 4096 };
        let words: [u32; 6] = [0x5052_4701, 4, 7, 2, 1, 4096];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(ClientMessage::Capture(wanted).to_bytes(), bytes);
        assert_eq!(ServerMessage::Capturing.to_bytes(), 108u32.to_ne_bytes());
        let record = Record { procedure: 5, path: "tcp".into(), ..Record::default() };
        let bytes = record_bytes(3, 1, &record);
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let places = [(0, 109), (8, 3), (16, 1), (40, 5), (112, 3)];
        for (at, expected) in places {
            assert_eq!(word(at), expected, "at {at}");
        }
        assert_eq!(&bytes[116..119], b"tcp");
    }

    #[test]
    fn largest_record_fits_one_message() {
        let text = "x".repeat(512);
        let record = Record {
            path: text.clone(),
            from: text.clone(),
            identity: text.clone(),
            text,
            head: vec![0; limits::CAPTURE_BYTES_MAX],
            ..Record::default()
        };
        assert!(record_bytes(0, 0, &record).len() <= limits::HANDSHAKE_BYTES_MAX);
    }

    #[test]
    fn messages_are_read_as_written_and_truncated_ones_are_refused() {
        let sessions = vec![[1; 16], [2; 16]];
        let bind = ClientMessage::Bind(BindRequest {
            digest: Some([7; 16]),
            count: 8,
            bytes: 16384,
            sessions,
        });
        for request in [
            bind,
            ClientMessage::Describe,
            ClientMessage::Count,
            ClientMessage::Health,
            ClientMessage::Capture(Wanted { procedure: None, failed_only: true, bytes: 9 }),
            ClientMessage::Capture(Wanted { procedure: Some(2), failed_only: false, bytes: 0 }),
            ClientMessage::Ring(3),
            ClientMessage::Unbind(9),
        ] {
            let bytes = request.to_bytes();
            assert_eq!(ClientMessage::from_bytes(&bytes), Ok(request));
            for short in 0..bytes.len() {
                assert!(ClientMessage::from_bytes(&bytes[..short]).is_err());
            }
        }
        let mut other = ClientMessage::Describe.to_bytes();
        other[4] += 1;
        let (kind, text) = ClientMessage::from_bytes(&other).unwrap_err();
        assert_eq!(kind, Kind::ProtocolMismatch);
        assert!(text.contains("version 5"), "{text}");
        let description = ServerMessage::Description(Description {
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
        let bound = BindGrant { epoch: 1, session: [3; 16], binding, count, bytes, representation };
        let (bound, revoked) = (ServerMessage::Bound(bound), ServerMessage::Revoked(4));
        let refused = ServerMessage::refused(Kind::Denied, "no");
        let record = Record { text: "why".into(), head: vec![1, 2], ..Record::default() };
        let captured = CapturedRecord { number: 3, left_out: 1, record };
        assert_eq!(
            record_bytes(3, 1, &captured.record),
            ServerMessage::Captured(Box::new(captured.clone())).to_bytes()
        );
        for answer in [
            bound,
            refused,
            description,
            ServerMessage::Goodbye,
            revoked,
            ServerMessage::Counters(8),
            ServerMessage::Health(Health::Overloaded),
            ServerMessage::Capturing,
            ServerMessage::Captured(Box::new(captured)),
        ] {
            let bytes = answer.to_bytes();
            assert_eq!(ServerMessage::from_bytes(&bytes).unwrap(), answer);
            for short in 0..bytes.len() {
                assert!(ServerMessage::from_bytes(&bytes[..short]).is_err());
            }
        }
    }
}
