//! The client's half of a capture: a program that receives the calls of an export as records.

use std::time::{Duration, Instant};

use super::connect::{ask, receive, unexpected};
use super::{CapturedRecord, ClientMessage, ServerMessage};
use crate::directory;
use crate::error::{CallError, Kind, Phase};
use crate::limits;
use crate::observe::Wanted;
use crate::sys::Seqpacket;

/// The records of an export's calls, as its server sends them.
pub(crate) struct Records {
    socket: Seqpacket,
    buffer: Vec<u8>,
}

impl Records {
    /// Asks the server that exports `name` for records of the calls that begin from now on.
    ///
    /// # Errors
    /// If there is no such server, or it refuses.
    pub(crate) fn open(name: &str, wanted: Wanted, until: Instant) -> Result<Self, CallError> {
        let socket = directory::resolve(name, until)?;
        match ask(&socket, &ClientMessage::Capture(wanted), until)?.0 {
            ServerMessage::Capturing => {
                Ok(Self { socket, buffer: vec![0; limits::HANDSHAKE_BYTES_MAX] })
            }
            answer => Err(unexpected(answer)),
        }
    }

    /// Waits up to `limit` for the next record. Returns `None` if none has arrived.
    ///
    /// # Errors
    /// If the server or the export has ended, or the server violates the protocol.
    pub(crate) fn next_within(
        &mut self,
        limit: Duration,
    ) -> Result<Option<CapturedRecord>, CallError> {
        let failed = |error| CallError::system(Phase::Call, "receiving a captured call", error);
        let ended = |kind, text: &str| Err(CallError::not_executed(kind, Phase::Call, text));
        if !self.socket.readable_within(limit).map_err(failed)? {
            return Ok(None);
        }
        let received = receive(&self.socket, &mut self.buffer).map_err(failed)?;
        if received.bytes == 0 {
            return ended(Kind::ServerGone, "the server has ended");
        }
        if !received.whole {
            return ended(Kind::ProtocolMismatch, "a record is longer than the protocol allows");
        }
        match ServerMessage::from_bytes(&self.buffer[..received.bytes])? {
            ServerMessage::Captured(record) => Ok(Some(*record)),
            ServerMessage::Goodbye => ended(Kind::Withdrawn, "the export was withdrawn"),
            answer => Err(unexpected(answer)),
        }
    }
}
