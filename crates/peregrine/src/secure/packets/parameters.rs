//! What the two ends of a handshake tell each other, in the transport parameters of QUIC. TLS proves that
//! they were not changed on the way.
//!
//! All numbers are little-endian. Later versions may add fields: more bytes are ignored.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 1 | version of the packet protocol |
//! | 1 | 1 | zero |
//! | 2 | 2 | largest piece / 16 |
//! | 4 | 4 | client: largest result in bytes; server: largest call |
//! | 8 | 2 | credits |
//! | 10 | 2 | zero |
//! | 12 | 8 | server: id of the connection; client: zeros |
//! | 20 | 8 | server: number of this run of the server; client: zeros |

use super::ConnectionId;
use crate::protocol::exchange::header::VERSION;
use crate::protocol::exchange::message::is_piece;

const BYTES: usize = 28;

/// What one end tells the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// The length in bytes of the largest piece of a message that this end takes in one packet. The tag is not
    /// included.
    pub(crate) piece: u32,
    /// The length in bytes of the largest message that this end takes: a result or a call.
    pub(crate) message_bytes_max: u32,
    pub(crate) credits: u16,
    /// The server's name for the connection.
    pub(crate) id: ConnectionId,
    /// A random number that identifies this run of the server.
    pub(crate) incarnation: u64,
}

impl Parameters {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![VERSION, 0];
        bytes.extend(((self.piece / 16) as u16).to_le_bytes());
        bytes.extend(self.message_bytes_max.to_le_bytes());
        bytes.extend(self.credits.to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend(self.id);
        bytes.extend(self.incarnation.to_le_bytes());
        debug_assert_eq!(bytes.len(), BYTES);
        bytes
    }

    /// Reads the parameters of the other end.
    ///
    /// # Errors
    /// Fails with a text if the bytes are not parameters, or are of another version.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        match bytes.first() {
            Some(&VERSION) => {}
            Some(other) => {
                return Err(format!(
                    "its packets have version {other} of the protocol, and those of this side version {VERSION}"
                ));
            }
            None => return Err("it has no transport parameters".to_owned()),
        }
        let read = || {
            let (bytes, _) = bytes.split_first_chunk::<BYTES>()?;
            let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
            let parameters = Self {
                piece: u32::from(half(2)) * 16,
                message_bytes_max: word(4),
                credits: half(8),
                id: *bytes[12..].first_chunk()?,
                incarnation: u64::from(word(20)) | u64::from(word(24)) << 32,
            };
            is_piece(parameters.piece).then_some(parameters)
        };
        read().ok_or_else(|| "its transport parameters are malformed".to_owned())
    }
}
