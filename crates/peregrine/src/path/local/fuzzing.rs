//! The parts of the local path that only fuzz targets use: messages of the handshake, words, and a client
//! whose server follows a script.

#![allow(missing_docs)]

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::client::LocalPath;
use super::peer::ClientRegion;
use super::peer::session::Session;
use super::region::word::{self, Look, Notify};
use super::region::{HEADER_BYTES, RegionLayout};
use super::wire::{ClientMessage, ServerMessage};
use crate::call::{Begun, Call, CallPath, Returned, Wait, pass_on};
use crate::error::CallError;
use crate::sys::{Memory, Process, Seqpacket};

/// Reads a request and writes it again. Returns `None` if the bytes are not a request.
pub fn request(bytes: &[u8]) -> Option<Vec<u8>> {
    ClientMessage::from_bytes(bytes).ok().map(|request| request.to_bytes())
}

/// Reads an answer and writes it again. Returns `None` if the bytes are not an answer.
pub fn answer(bytes: &[u8]) -> Option<Vec<u8>> {
    ServerMessage::from_bytes(bytes).ok().map(|answer| answer.to_bytes())
}

/// A word of an A-stack, with all operations on words.
#[derive(Debug, Default)]
pub struct Word(AtomicU32);

/// What a poster must do so that the waiter notices its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordNotify {
    Nothing,
    Wake,
    Ring,
}

/// What a word shows to its waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordLook {
    Nothing(u32),
    Posted(u32),
    Dead,
}

impl Word {
    pub fn value(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Overwrites the word, as a peer may do at any time.
    pub fn overwrite(&self, value: u32) {
        self.0.store(value, Ordering::SeqCst);
    }

    pub fn post(&self, sequence: u32) -> (u32, WordNotify) {
        let id = word::posted(sequence);
        let notify = match word::post(&self.0, id) {
            Notify::Nothing => WordNotify::Nothing,
            Notify::Wake => WordNotify::Wake,
            Notify::Ring => WordNotify::Ring,
        };
        (id, notify)
    }

    pub fn look(&self, last: u32) -> WordLook {
        match word::look(&self.0, last) {
            Look::Nothing(value) => WordLook::Nothing(value),
            Look::Posted(id) => WordLook::Posted(id),
            Look::Dead => WordLook::Dead,
        }
    }

    pub fn mark_asleep(&self, value: u32) -> bool {
        word::mark_asleep(&self.0, value)
    }

    pub fn mark_present(&self) {
        word::mark_present(&self.0);
    }

    pub fn mark_away(&self, value: u32) -> bool {
        word::mark_away(&self.0, value)
    }

    pub fn mark_dead(&self) {
        word::mark_dead(&self.0);
    }

    pub fn mark_awake(&self) -> bool {
        word::mark_awake(&self.0)
    }
}

/// The server's side of one A-stack. It posts the reply to each call before the client makes the call.
#[derive(Debug)]
pub struct Script {
    memory: Memory,
    layout: RegionLayout,
    /// Keeps the client's socket connected. The client's messages are not read.
    _socket: Seqpacket,
}

impl Script {
    /// Sets the reply to the next calls: the bytes of its header and of its message, valid or not.
    pub fn answer(&self, header: &[u8], message: &[u8]) {
        let reply = self.layout.reply_word(0);
        let part = |at, bytes| self.memory.space().range(at, bytes);
        let line = part(reply + 4, HEADER_BYTES - 4);
        let space = part(reply + HEADER_BYTES, self.layout.bytes);
        let _ = line.write(0, &header[..header.len().min(line.len())]);
        let _ = space.write(0, &message[..message.len().min(space.len())]);
    }

    /// Posts the reply to the next call before the client makes the call. Also sets the call word to a value
    /// with which the client does not ring.
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

/// The local path to a scripted server. The server posts the reply to each call just before the client makes
/// the call.
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
        let path = LocalPath {
            region,
            binding: 1,
            revoked,
            message_bytes: bytes,
            own_bytes: bytes,
            wait: Wait::Spin,
        };
        let script = Arc::new(Script { memory, layout, _socket: far });
        Ok((Arc::clone(&script), Self { path, script }))
    }
}

impl CallPath for Scripted {
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        self.script.post();
        self.path.transport(call)
    }

    fn begin(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        self.script.post();
        self.path.begin(call)
    }

    pass_on! {
        self => self.path;
        poll, arm, give_up, is_prepared, prepare, message_bytes, server_cpu, wait, kind,
        explain, is_alive, captures, is_released, retransmissions
    }
}
