//! The bytes that a client has received from a connection: the message that is arriving, and bytes of later
//! messages.

use std::io;

use super::GUESS;
use crate::device::tcp::Stream;
use crate::protocol::stream::client_end::Assembly;
use crate::value::Window;

/// The received bytes of a connection.
pub(super) struct Input {
    pub(super) assembly: Assembly,
    /// Memory for bytes that were received ahead. These are bytes of later messages. The bytes at `from..to`
    /// have not been taken yet.
    ahead: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Input {
    pub(super) fn new() -> Self {
        Self { assembly: Assembly::new(), ahead: vec![0; GUESS].into(), from: 0, to: 0 }
    }

    /// Returns true if no bytes that were received ahead are left.
    #[inline]
    pub(super) const fn is_dry(&self) -> bool {
        self.from == self.to
    }

    /// Takes at most `bytes` of the bytes that were received ahead.
    pub(super) fn take_ahead(&mut self, bytes: usize) -> &[u8] {
        let taken = bytes.min(self.to - self.from);
        let at = self.from;
        self.from += taken;
        &self.ahead[at..at + taken]
    }

    /// Keeps bytes that arrived after the end of a message. The caller must first take all bytes kept
    /// earlier.
    #[inline]
    pub(super) fn keep(&mut self, bytes: Window<'_>) {
        (self.from, self.to) = (0, bytes.len());
        if !bytes.is_empty() {
            let _ = bytes.read(0, &mut self.ahead[..bytes.len()]);
        }
    }

    /// Adds bytes to the header that is arriving. Takes them from the bytes that were received ahead, or
    /// receives them. Returns the number of added bytes.
    pub(super) fn more_header(&mut self, stream: &Stream, wait: bool) -> io::Result<usize> {
        let place = self.assembly.header_place();
        if self.from == self.to {
            return match stream.receive(place, wait)? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => Ok(bytes),
            };
        }
        let taken = place.len().min(self.to - self.from);
        place[..taken].copy_from_slice(&self.ahead[self.from..self.from + taken]);
        self.from += taken;
        Ok(taken)
    }
}
