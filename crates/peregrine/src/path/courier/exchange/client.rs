//! [`ExchangePath`]: makes calls of a program of Courier over a path of Peregrine.

use core::mem::ManuallyDrop;
use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use super::CALL;
use crate::call::{
    Answer, Begun, Call, CallPath, CallTerms, FrameGuard, Frames, Layout, PING, PathKind, Returned,
    pass_on,
};
use crate::error::CallError;
use crate::path::courier::wire::errors::{error_of, header_of};
use crate::path::courier::wire::payload::{HEADER_BYTES, payload_header};
use crate::path::foreign::client::not_there;
use crate::path::foreign::program::Chosen;
use crate::protocol::courier::failure::Failure;
use crate::protocol::courier::message::{self, REPLY_BYTES_MAX, VERSIONS_BYTES};
use crate::protocol::courier::packet;
use crate::protocol::courier::words::Unreadable;
use crate::value::{Block, Native, Window, Writer};

/// The path of one binding. Its frames are those of the path to the server. Each frame has a second,
/// private memory. Stubs write arguments to the private memory, and the path to the server sends the
/// arguments from there.
pub(super) struct ExchangePath {
    path: Box<dyn CallPath>,
    /// The frames of the path to the server.
    frames: Arc<Frames>,
    program: u32,
    version: u16,
    /// The number of each procedure, in the order of the methods.
    procedures: Cow<'static, [u32]>,
}

/// A frame of the path to the server. Its drop does not release the frame, because the caller's guard for the
/// same frame releases it.
type ServerFrame<'a> = ManuallyDrop<FrameGuard<'a>>;

impl ExchangePath {
    /// Returns a path that calls `program` through `path`, and the frames of the new path. `frames` are those
    /// of `path`.
    ///
    /// # Errors
    /// If there is no memory for the frames.
    pub(super) fn over(
        path: Box<dyn CallPath>,
        frames: Arc<Frames>,
        program: &Chosen,
        version: u16,
    ) -> io::Result<(Self, Frames)> {
        let own = frames.with_own_memory()?;
        let procedures = program.procedures.clone();
        Ok((Self { path, frames, program: program.number, version, procedures }, own))
    }

    /// Returns the header of a call of a method. Returns `None` for a ping, which has no header.
    fn header(&self, procedure: u32) -> Result<Option<[u8; HEADER_BYTES]>, CallError> {
        let number = match self.procedures.get(procedure as usize) {
            Some(number) => u16::try_from(*number).map_err(|_| not_there())?,
            None if procedure == PING => return Ok(None),
            None => return Err(not_there()),
        };
        let Self { program, version, .. } = *self;
        let call = message::Call { transaction: 0, program, version, procedure: number };
        Ok(Some(payload_header(&call)))
    }

    /// Sends a call with `send`. If the call has already ended, converts its result.
    fn send(
        &self,
        call: &mut Call<'_, '_, '_>,
        send: impl FnOnce(&mut Call<'_, '_, '_>) -> Result<Begun, CallError>,
    ) -> Result<Begun, CallError> {
        let Layout { head, total, .. } = call.layout();
        if head != total {
            // A foreign call has no blocks.
            return Err(not_there());
        }
        call.head.flush();
        let begun = match self.header(call.procedure)? {
            None => self.of_server(call.frame.index(), PING, &[], call.terms, send)?,
            Some(header) => {
                let arguments = call.frame.call_space().window().range(0, head);
                let blocks = [Window::from(&header[..]), arguments].map(Block::from);
                self.of_server(call.frame.index(), CALL, &blocks, call.terms, send)?
            }
        };
        match begun {
            Begun::Pending => Ok(Begun::Pending),
            Begun::Ended(returned) => self.take(call, returned).map(Begun::Ended),
        }
    }

    /// Passes a call to `with` in the form that the path to the server needs. `frame` is the index of the
    /// call's frame.
    fn of_server<T>(
        &self,
        frame: u32,
        procedure: u32,
        ins: &[Block<'_>],
        terms: CallTerms<'_>,
        with: impl FnOnce(&mut Call<'_, '_, '_>) -> T,
    ) -> T {
        let frame: ServerFrame<'_> = ManuallyDrop::new(self.frames.kept(frame));
        let head = &mut Writer::<Native>::represented(frame.call_space());
        with(&mut Call { procedure, frame: &frame, head, ins, lent: &[], outs: &mut [], terms })
    }

    /// Converts a result to the form that the stub expects, and copies it to the private memory.
    fn take(&self, call: &Call<'_, '_, '_>, returned: Returned) -> Result<Returned, CallError> {
        let Returned { answer, head_at, head_bytes } = returned;
        let space = self.frames.reply_space_of(call.frame.index());
        let unreadable = |why| error_of(Failure::BadReply(why), 1, None);
        let head = space.part(head_at as usize, head_bytes as usize);
        let head = head.ok_or_else(|| unreadable(Unreadable::Truncated))?.window();
        let is_reply = matches!(answer, Answer::Ok | Answer::Err) && call.procedure != PING;
        let (answer, at) = if is_reply {
            let mut header = [0; VERSIONS_BYTES + REPLY_BYTES_MAX];
            let header = &mut header[..head.len().min(VERSIONS_BYTES + REPLY_BYTES_MAX)];
            head.read(0, header).ok_or_else(|| unreadable(Unreadable::Truncated))?;
            // A header consists of words of two bytes. If the reply has an odd number of bytes, the last
            // byte is left out here, and the stub refuses the reply.
            let message = packet::message(&header[..header.len() / 2 * 2]).map_err(unreadable)?;
            let (answer, at) = header_of(message).map_err(|failure| error_of(failure, 1, None))?;
            (answer, VERSIONS_BYTES + at)
        } else {
            // A refusal has the same bytes in all representations.
            (answer, 0)
        };
        let results = head.range(at, head.len() - at);
        let bytes = results.len();
        // Both memories of a frame have the same size, so the results fit.
        call.frame.reply_to().copy_from(results);
        Ok(Returned { answer, head_at: 0, head_bytes: bytes as u32 })
    }
}

impl CallPath for ExchangePath {
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        match self.send(call, |call| self.path.transport(call).map(Begun::Ended))? {
            Begun::Ended(returned) => Ok(returned),
            Begun::Pending => unreachable!("`transport` waits for the result"),
        }
    }

    fn begin(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        self.send(call, |call| self.path.begin(call))
    }

    fn poll(&self, call: &mut Call<'_, '_, '_>) -> Option<Result<Returned, CallError>> {
        let (frame, procedure, terms) = (call.frame.index(), call.procedure, call.terms);
        let ended = self.of_server(frame, procedure, &[], terms, |call| self.path.poll(call))?;
        Some(ended.and_then(|returned| self.take(call, returned)))
    }

    fn give_up(&self, call: &mut Call<'_, '_, '_>) -> CallError {
        let (frame, procedure, terms) = (call.frame.index(), call.procedure, call.terms);
        self.of_server(frame, procedure, &[], terms, |call| self.path.give_up(call))
    }

    fn message_bytes(&self) -> usize {
        self.path.message_bytes().saturating_sub(HEADER_BYTES)
    }

    fn kind(&self) -> PathKind {
        PathKind::CourierExchange
    }

    fn explain(&self) -> String {
        let Self { program, version, .. } = self;
        let to = self.path.explain();
        let end = if to.is_empty() { to } else { format!(" over {to}") };
        format!("version {version} of program {program}{end}")
    }

    pass_on! {
        self => self.path;
        arm, is_prepared, prepare, server_cpu, wait, is_alive, captures, is_released, retransmissions
    }
}
