//! Messages of Courier on a stream, by the rules of docs/PROTOCOL.md and independently of the library.

use std::io::Read as _;
use std::net::TcpStream;

/// How the ends of messages are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Records,
    Frames,
}

pub(crate) const BOTH: [Framing; 2] = [Framing::Records, Framing::Frames];

impl Framing {
    /// Returns a message, divided into pieces of this size.
    pub(crate) fn divided(self, message: &[u8], size: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut pieces = message.chunks(size).peekable();
        if message.is_empty() {
            bytes.extend(match self {
                Self::Records => [0x80, 0, 0, 0],
                Self::Frames => [0, 1, 0, 0],
            });
        }
        while let Some(piece) = pieces.next() {
            let is_last = pieces.peek().is_none();
            bytes.extend(match self {
                Self::Records => (u32::from(is_last) << 31 | piece.len() as u32).to_be_bytes(),
                Self::Frames => {
                    let [high, low] = (piece.len() as u16).to_be_bytes();
                    [0, u8::from(is_last), high, low]
                }
            });
            bytes.extend(piece);
        }
        bytes
    }

    pub(crate) fn whole(self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Records => self.divided(message, usize::MAX),
            Self::Frames => self.divided(message, 0xffff),
        }
    }

    /// Reads a message. Returns `None` at the end of the connection.
    pub(crate) fn read(self, stream: &mut TcpStream) -> Option<Vec<u8>> {
        let mut message = Vec::new();
        loop {
            let mut header = [0; 4];
            stream.read_exact(&mut header).ok()?;
            let (is_last, length) = match self {
                Self::Records => {
                    let marker = u32::from_be_bytes(header);
                    (marker >> 31 == 1, (marker & !(1 << 31)) as usize)
                }
                Self::Frames => {
                    assert!(header[0] == 0 && header[1] < 2, "{header:?}");
                    (header[1] == 1, usize::from(u16::from_be_bytes([header[2], header[3]])))
                }
            };
            let begin = message.len();
            message.resize(begin + length, 0);
            stream.read_exact(&mut message[begin..]).ok()?;
            if is_last {
                return Some(message);
            }
        }
    }
}

pub(crate) fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}
