//! `StreamWorker`: what a thread that serves connections has of its own.

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

/// What a thread that serves connections has of its own.
pub(crate) struct StreamWorker {
    pub(super) serving: Serving,
    pub(super) rows: BindingCache,
    pub(super) input: EStack,
    /// The received bytes in `input`.
    pub(super) unread: Unread,
    /// The message of which a part is there.
    pub(super) part: Part,
    /// Its own memory, while it reads into a connection's.
    pub(super) spare: EStack,
    pub(super) reply: Option<Memory>,
    /// Where the blocks of a result begin.
    pub(super) blocks: Vec<u32>,
    /// Bytes of the largest reply lately.
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

    /// Forgets whom it served, and gives back what it needs no more.
    pub(crate) fn forget(&mut self) {
        self.rows.forget();
        self.serving.forget();
        if core::mem::take(&mut self.largest) > limits::ESTACK_BYTES_KEPT {
            self.reply = None;
        }
        self.input.trim();
        self.spare = EStack::default();
    }

    /// Memory for a result of so many bytes.
    pub(super) fn room(&mut self, bytes: usize) -> io::Result<()> {
        if self.reply.as_ref().is_none_or(|memory| memory.len() < bytes) {
            self.reply = Some(Memory::private(bytes)?);
        }
        Ok(())
    }

    /// A call is about to wait, for which these bytes of the thread's memory are needed, and nothing
    /// else is: the thread keeps no memory that is much larger. Returns where they begin from then on.
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

    /// Moves what is there to the start of the memory.
    pub(super) fn move_to_front(&mut self) {
        let Unread { from, to, .. } = self.unread;
        if from > 0 {
            self.input.memory().copy_within(from..to, 0);
            (self.unread.from, self.unread.to) = (0, to - from);
        }
    }
}
