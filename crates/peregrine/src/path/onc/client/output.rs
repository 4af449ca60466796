//! The calls that wait to be sent on a connection. A message is sent from the frame of its call, without a
//! copy, so the frame is not used for another call before the message was sent.

use std::collections::VecDeque;
use std::io;

use super::header::Header;
use super::slots::Message;
use crate::call::Frames;
use crate::device::tcp::Stream;
use crate::sys::Parts;
use crate::value::Window;

/// The messages that are not sent completely, in the order of sending.
#[derive(Debug, Default)]
pub(super) struct Output {
    queue: VecDeque<Message>,
    /// The number of bytes of the first message that were sent.
    sent: usize,
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

    /// Sends what the socket accepts without blocking.
    ///
    /// # Errors
    /// If the connection is broken. That the socket accepts nothing now is no error.
    pub(super) fn flush(
        &mut self,
        stream: &Stream,
        header: &Header,
        frames: &Frames,
    ) -> io::Result<()> {
        while let Some(message) = self.queue.front().copied() {
            let Message { frame, xid, procedure, bytes } = message;
            let start = header.record(xid, procedure, bytes).ok_or(io::ErrorKind::InvalidInput)?;
            let mut parts = Parts::new();
            parts.push(Window::from(&start[..]));
            parts.push(Window::from(header.auth()));
            parts.push(frames.call_space_of(frame).window().range(0, bytes));
            let all = parts.left();
            parts.advance(self.sent);
            while !parts.is_empty() {
                match stream.send(&mut parts, false) {
                    Ok(()) => self.sent = all - parts.left(),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            self.queue.pop_front();
            self.sent = 0;
        }
        Ok(())
    }

    /// Removes the message of a frame if no byte of it was sent. Returns whether the server will never get
    /// the message.
    pub(super) fn take_back(&mut self, frame: u32) -> bool {
        let Some(at) = self.queue.iter().position(|message| message.frame == frame) else {
            return false;
        };
        if at == 0 && self.sent > 0 {
            return false;
        }
        self.queue.remove(at);
        true
    }

    /// Removes all messages. Returns their frames: the server never gets these messages completely.
    pub(super) fn clear(&mut self) -> Vec<u32> {
        self.sent = 0;
        self.queue.drain(..).map(|message| message.frame).collect()
    }
}
