//! The calls that wait to be sent on a connection. The socket takes a message directly from the frame of its
//! call. So the frame is not used for another call before the message was sent.

use std::collections::VecDeque;
use std::io;

use super::dialect::{Dialect, Message, Number};
use crate::call::Frames;
use crate::device::tcp::Stream;
use crate::sys::Parts;

/// The messages that are not sent completely, in the order of sending.
#[derive(Debug, Default)]
pub(super) struct Output {
    queue: VecDeque<Message>,
    /// How much of the first message was sent: the number of whole pieces, and the number of bytes of the
    /// next piece.
    sent: (usize, usize),
    /// Whether at least one message was sent completely.
    has_begun: bool,
}

impl Output {
    /// Adds a message. Call [`flush`](Self::flush) afterwards.
    pub(super) fn push(&mut self, message: Message) {
        self.queue.push_back(message);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether the message of a frame is not sent completely.
    pub(super) fn holds(&self, frame: u32) -> bool {
        self.queue.iter().any(|message| message.frame == frame)
    }

    /// Returns whether some bytes of the first message were sent, but not all.
    pub(super) fn is_within_message(&self) -> bool {
        self.sent != (0, 0)
    }

    /// Sends what the socket accepts without blocking. If a call without a reply was sent completely, adds
    /// its frame to `unanswered`.
    ///
    /// # Errors
    /// If the connection is broken. That the socket accepts nothing now is no error.
    pub(super) fn flush(
        &mut self,
        stream: &Stream,
        dialect: &impl Dialect,
        frames: &Frames,
        unanswered: &mut Vec<u32>,
    ) -> io::Result<()> {
        while let Some(message) = self.queue.front().copied() {
            let arguments = frames.call_space_of(message.frame).window();
            let piece = dialect.piece(&message, !self.has_begun, self.sent.0);
            let piece = piece.ok_or(io::ErrorKind::InvalidInput)?;
            let mut parts = Parts::new();
            for part in piece.parts(arguments) {
                parts.push(part);
            }
            let all = parts.left();
            parts.advance(self.sent.1);
            while !parts.is_empty() {
                match stream.send(&mut parts, !piece.is_last) {
                    Ok(()) => self.sent.1 = all - parts.left(),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            self.sent = (self.sent.0 + 1, 0);
            if piece.is_last {
                self.queue.pop_front();
                (self.sent, self.has_begun) = ((0, 0), true);
                if message.number == Number::NoReply {
                    unanswered.push(message.frame);
                }
            }
        }
        Ok(())
    }

    /// Removes the message of a frame if no byte of it was sent. Returns the message. The server never gets
    /// it.
    pub(super) fn take_back(&mut self, frame: u32) -> Option<Message> {
        let at = self.queue.iter().position(|message| message.frame == frame)?;
        if at == 0 && self.is_within_message() {
            return None;
        }
        self.queue.remove(at)
    }

    /// Removes all messages. Returns the numbers of their frames. The server never gets the messages
    /// completely.
    pub(super) fn clear(&mut self) -> Vec<u32> {
        self.sent = (0, 0);
        self.queue.drain(..).map(|message| message.frame).collect()
    }
}
