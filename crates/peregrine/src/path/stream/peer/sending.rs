//! `Sending`: sends one message whose parts lie at several places in memory. If the socket accepts only some
//! bytes of the message, `Sending` waits and then sends the rest.

use std::io;

use crate::device::tcp::Stream;
use crate::protocol::stream::padding;
use crate::sys::Parts;
use crate::value::Window;

/// What a sender does while the socket is full.
pub(in crate::path::stream) trait OnStall {
    /// Waits until the socket has space.
    ///
    /// # Errors
    /// If the sender must not wait any longer.
    fn wait(&self) -> io::Result<()>;
}

/// A message that is being sent.
pub(in crate::path::stream) struct Sending<'a, F> {
    stream: &'a Stream,
    parts: Parts<'a>,
    /// The number of bytes appended so far, modulo 16.
    bytes: usize,
    /// Whether some bytes of the message were sent.
    pub(in crate::path::stream) begun: bool,
    full: F,
}

static ZEROS: [u8; 64] = [0; 64];

impl<'a, F: OnStall> Sending<'a, F> {
    pub(in crate::path::stream) const fn new(stream: &'a Stream, full: F) -> Self {
        Self { stream, parts: Parts::new(), bytes: 0, begun: false, full }
    }

    /// Appends a part to the message.
    #[inline]
    pub(in crate::path::stream) fn part(&mut self, part: Window<'a>) -> io::Result<()> {
        self.bytes = (self.bytes + part.len()) % 16;
        if !self.parts.push(part) {
            self.flush(true)?;
            self.parts.push(part);
        }
        Ok(())
    }

    /// Appends zeros, so that the length of the message becomes a multiple of 16.
    #[inline]
    pub(in crate::path::stream) fn pad(&mut self) -> io::Result<()> {
        self.part(Window::from(&ZEROS[..padding(self.bytes)]))
    }

    /// Appends `bytes` zeros.
    pub(in crate::path::stream) fn zeros(&mut self, bytes: usize) -> io::Result<()> {
        for at in (0..bytes).step_by(ZEROS.len()) {
            self.part(Window::from(&ZEROS[..(bytes - at).min(ZEROS.len())]))?;
        }
        Ok(())
    }

    /// Appends a part that must begin at a multiple of 16 bytes in the message.
    #[inline]
    pub(in crate::path::stream) fn block(&mut self, block: Window<'a>) -> io::Result<()> {
        self.pad()?;
        self.part(block)
    }

    /// Pads the message to a multiple of 16 bytes, and sends all bytes that were not sent yet.
    #[inline]
    pub(in crate::path::stream) fn end(&mut self) -> io::Result<()> {
        self.pad()?;
        self.flush(false)
    }

    fn flush(&mut self, more: bool) -> io::Result<()> {
        while !self.parts.is_empty() {
            match self.stream.send(&mut self.parts, more) {
                Ok(()) => self.begun = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.full.wait()?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
