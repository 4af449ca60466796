//! What only fuzzers see of the local path: messages of the handshake, the words, and a client whose
//! server is a script.

#![allow(missing_docs)]

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::client::{ClientRegion, LocalPath};
use super::connect::handshake::{Answer, Request};
use super::peer::session::Session;
use super::region::word::{self, Look, Owed};
use super::region::{HEADER_BYTES, RegionLayout};
use crate::call::{Call, CallPath, PathKind, Returned, Wait};
use crate::error::CallError;
use crate::sys::{Memory, Process, Seqpacket};
use crate::value::Space;

/// What is read from these bytes, written again; `None` if they are no request.
pub fn request(bytes: &[u8]) -> Option<Vec<u8>> {
    Request::from_bytes(bytes).ok().map(|request| request.to_bytes())
}

/// What is read from these bytes, written again; `None` if they are no answer.
pub fn answer(bytes: &[u8]) -> Option<Vec<u8>> {
    Answer::from_bytes(bytes).ok().map(|answer| answer.to_bytes())
}

/// A word of an A-stack, and everything that is ever done to one.
#[derive(Debug, Default)]
pub struct Word(AtomicU32);

/// What a poster owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debt {
    Nothing,
    Wake,
    Ring,
}

/// What a waiter sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Nothing(u32),
    Posted(u32),
    Dead,
}

impl Word {
    pub fn value(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// As a peer may do at any time.
    pub fn scribble(&self, value: u32) {
        self.0.store(value, Ordering::SeqCst);
    }

    pub fn post(&self, sequence: u32) -> (u32, Debt) {
        let message = word::posted(sequence);
        let debt = match word::post(&self.0, message) {
            Owed::Nothing => Debt::Nothing,
            Owed::Wake => Debt::Wake,
            Owed::Ring => Debt::Ring,
        };
        (message, debt)
    }

    pub fn look(&self, seen: u32) -> Seen {
        match word::look(&self.0, seen) {
            Look::Nothing(value) => Seen::Nothing(value),
            Look::Posted(message) => Seen::Posted(message),
            Look::Dead => Seen::Dead,
        }
    }

    pub fn fall_asleep(&self, value: u32) -> bool {
        word::fall_asleep(&self.0, value)
    }

    pub fn come(&self) {
        word::come(&self.0);
    }

    pub fn leave(&self, value: u32) -> bool {
        word::leave(&self.0, value)
    }

    pub fn bury(&self) {
        word::bury(&self.0);
    }

    pub fn rouse(&self) -> bool {
        word::rouse(&self.0)
    }
}

/// The server's side of one A-stack, on which the next reply lies ready.
#[derive(Debug)]
pub struct Script {
    memory: Memory,
    layout: RegionLayout,
    /// Nobody reads what the client says.
    _socket: Seqpacket,
}

impl Script {
    /// The reply to the next calls: header and message as they are, whatever they say.
    pub fn answer(&self, header: &[u8], message: &[u8]) {
        let reply = self.layout.reply_word(0);
        let part = |at, bytes| self.memory.space().part(at, bytes).unwrap_or(Space::none());
        let line = part(reply + 4, HEADER_BYTES - 4);
        let space = part(reply + HEADER_BYTES, self.layout.bytes);
        let _ = line.write(0, &header[..header.len().min(line.len())]);
        let _ = space.write(0, &message[..message.len().min(space.len())]);
    }

    /// Posts the reply to a call that is about to be made; it does not ring.
    fn post(&self) {
        let (call, reply) = (self.layout.call_word(0), self.layout.reply_word(0));
        let word = self.memory.word(call);
        let sequence = match word::look(word, word::AWAY) {
            Look::Posted(last) => (last >> 3).wrapping_add(1),
            _ => 1,
        };
        word.store(word::posted(sequence.wrapping_sub(1)), Ordering::SeqCst);
        self.memory.word(reply).store(word::posted(sequence), Ordering::SeqCst);
    }
}

/// The real path to a script, which answers each call the moment before it is made.
pub(crate) struct Scripted {
    pub(crate) path: LocalPath,
    script: Arc<Script>,
}

impl Scripted {
    pub(crate) fn new(bytes: usize) -> io::Result<(Arc<Script>, Self)> {
        let layout = RegionLayout::checked(1, bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let (memory, file) = Memory::shared(layout.region_bytes())?;
        let mapped = Memory::received(file.as_fd(), layout.region_bytes())?;
        let (near, far) = Seqpacket::pair()?;
        let session = Session::new(near, Process::open(std::process::id())?);
        let region = Arc::new(ClientRegion::new(mapped, layout, session, 1)?);
        let revoked = Arc::new(AtomicBool::new(false));
        let path =
            LocalPath { region, binding: 1, revoked, message_bytes: bytes, wait: Wait::Spin };
        let script = Arc::new(Script { memory, layout, _socket: far });
        Ok((Arc::clone(&script), Self { path, script }))
    }
}

impl CallPath for Scripted {
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        self.script.post();
        self.path.transport(call)
    }

    fn kind(&self) -> PathKind {
        self.path.kind()
    }

    fn is_alive(&self) -> bool {
        self.path.is_alive()
    }

    fn is_released(&self, frame: u32) -> bool {
        self.path.is_released(frame)
    }
}
