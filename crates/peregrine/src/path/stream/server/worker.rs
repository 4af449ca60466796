//! `StreamWorker`: the data that a thread keeps while it serves TCP connections.

use core::ops::Range;
use std::io;

use super::READ_AHEAD;
use super::reading::Part;
use crate::call::EStack;
use crate::counters::Counting;
use crate::limits;
use crate::protocol::stream::server_end::Unread;
use crate::serving::binding_table::BindingCache;
use crate::serving::procedure::Serving;
use crate::sys::Memory;

/// The state of one thread that serves connections.
pub(crate) struct StreamWorker {
    pub(super) serving: Serving,
    pub(super) rows: BindingCache,
    pub(super) input: EStack,
    /// The range of `input` with received bytes that the thread has not handled yet.
    pub(super) unread: Unread,
    /// The message that has arrived only in part.
    pub(super) part: Part,
    /// The thread's own input memory, while `input` is memory that the thread took over from a connection.
    pub(super) spare: EStack,
    pub(super) reply: Option<Memory>,
    /// The offsets of the blocks of a result in `reply`.
    pub(super) blocks: Vec<u32>,
    /// The size in bytes of the largest recent reply.
    pub(super) largest: usize,
}

impl StreamWorker {
    pub(crate) fn new(counting: Counting) -> Self {
        Self {
            serving: Serving::new(counting),
            rows: BindingCache::default(),
            input: EStack::default(),
            unread: Unread::default(),
            part: Part::default(),
            spare: EStack::default(),
            reply: None,
            blocks: Vec::new(),
            largest: 0,
        }
    }

    /// Forgets the last caller, and releases memory that is not needed any more.
    pub(crate) fn forget(&mut self) {
        self.rows.forget();
        self.serving.forget();
        if core::mem::take(&mut self.largest) > limits::ESTACK_BYTES_KEPT {
            self.reply = None;
        }
        self.input.trim();
        self.spare = EStack::default();
    }

    /// Ensures that the memory for results has at least `bytes` bytes.
    pub(super) fn room(&mut self, bytes: usize) -> io::Result<()> {
        if self.reply.as_ref().is_none_or(|memory| memory.len() < bytes) {
            self.reply = Some(Memory::private(bytes)?);
        }
        Ok(())
    }

    /// Releases memory that the thread does not need while its call waits. Keeps the bytes `needed` of the
    /// input. If the input is much larger, copies these bytes to smaller memory. Returns the offset at which
    /// the bytes now begin.
    #[cold]
    pub(super) fn keep_only(&mut self, needed: Range<usize>) -> usize {
        self.spare = EStack::default();
        if core::mem::take(&mut self.largest) > READ_AHEAD {
            self.reply = None;
        }
        let there = self.input.memory();
        let mut own = EStack::default();
        if there.len() <= 2 * needed.len().max(READ_AHEAD) || !own.reserve(needed.len()) {
            return needed.start;
        }
        own.memory()[..needed.len()].copy_from_slice(&there[needed]);
        self.input = own;
        0
    }

    /// Moves the unread bytes to the start of the input.
    pub(super) fn move_to_front(&mut self) {
        let Unread { from, to, .. } = self.unread;
        if from > 0 {
            self.input.memory().copy_within(from..to, 0);
            (self.unread.from, self.unread.to) = (0, to - from);
        }
    }
}
