//! `Input`: what a connection has received, up to where the next message begins.

use std::io;

use super::GUESS;
use crate::device::tcp::Stream;
use crate::protocol::stream::{HEADER_BYTES, Header};
use crate::value::Window;

pub(super) struct Input {
    pub(super) header: [u8; HEADER_BYTES],
    /// Bytes of the header that are there.
    pub(super) got: usize,
    /// The message whose rest is still to come.
    pub(super) current: Option<Current>,
    /// What was received behind the message that it came with.
    pub(super) ahead: Box<[u8]>,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// A message that has begun.
pub(super) struct Current {
    pub(super) header: Header,
    /// The frame into which it goes; a notice goes nowhere.
    pub(super) frame: Option<u32>,
    /// Bytes behind the header that are there.
    pub(super) done: usize,
}

impl Input {
    pub(super) fn new() -> Self {
        let header = [0; HEADER_BYTES];
        Self { header, got: 0, current: None, ahead: vec![0; GUESS].into(), from: 0, to: 0 }
    }

    /// Whether nothing was received ahead.
    #[inline]
    pub(super) const fn is_dry(&self) -> bool {
        self.from == self.to
    }

    /// Up to so many of the bytes that were received ahead.
    pub(super) fn take_ahead(&mut self, bytes: usize) -> &[u8] {
        let taken = bytes.min(self.to - self.from);
        let at = self.from;
        self.from += taken;
        &self.ahead[at..at + taken]
    }

    /// Keeps what came behind a message; there is nothing ahead yet.
    #[inline]
    pub(super) fn keep(&mut self, bytes: Window<'_>) {
        (self.from, self.to) = (0, bytes.len());
        if !bytes.is_empty() {
            let _ = bytes.read(0, &mut self.ahead[..bytes.len()]);
        }
    }

    /// More of a header of which a part is there, or which may lie ahead.
    pub(super) fn more_header(&mut self, stream: &Stream, wait: bool) -> io::Result<()> {
        let got = self.got;
        if self.is_dry() {
            match stream.receive(&mut self.header[got..], wait)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => self.got += bytes,
            }
            return Ok(());
        }
        let taken = (HEADER_BYTES - got).min(self.to - self.from);
        let from = self.from;
        self.header[got..got + taken].copy_from_slice(&self.ahead[from..from + taken]);
        self.from += taken;
        self.got += taken;
        Ok(())
    }
}
