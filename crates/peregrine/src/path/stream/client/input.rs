//! The bytes that a client has received from a connection: the message that is arriving, and bytes of later
//! messages.

use std::io;

use super::GUESS;
use crate::device::tcp::Stream;
use crate::path::rings::Rings;
use crate::protocol::stream::HEADER_BYTES;
use crate::protocol::stream::client_end::Assembly;
use crate::value::{Space, Window};

/// The received bytes of a connection.
pub(super) struct Input {
    pub(super) assembly: Assembly,
    /// Memory for bytes that were received ahead. These are bytes of later messages. The bytes at `from..to`
    /// have not been taken yet.
    ahead: Box<[u8]>,
    from: usize,
    to: usize,
    /// The frames whose bells must ring. A bell wakes the future of a pending call. The leader gives up the
    /// lead before it rings the bells, because waking a future runs code of the application.
    pub(super) rings: Rings,
}

impl Input {
    pub(super) fn new() -> Self {
        let (assembly, ahead) = (Assembly::new(), vec![0; GUESS].into());
        Self { assembly, ahead, from: 0, to: 0, rings: Rings::new() }
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

    /// Receives the header of the next message, of which no byte has arrived yet. Keeps the bytes after the
    /// header. The caller must first take all bytes kept earlier. Returns the number of bytes of the header.
    pub(super) fn header_and_ahead(&mut self, stream: &Stream, wait: bool) -> io::Result<usize> {
        let ahead = Space::of_mut(&mut self.ahead);
        let received = stream.receive_two(self.assembly.header_place(), ahead, wait)?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let header = received.min(HEADER_BYTES);
        (self.from, self.to) = (0, received - header);
        Ok(header)
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
