//! `StreamWorker`: what a thread that serves connections has of its own.

use core::ops::Range;
use std::io;

use super::READ_AHEAD;
use super::reading::Part;
use crate::call::EStack;
use crate::counters::Counting;
use crate::limits;
use crate::protocol::stream::{HEADER_BYTES, Header, Kind, Unreadable};
use crate::serving::binding_table::BindingCache;
use crate::serving::procedure::Serving;
use crate::sys::Memory;

/// What a thread that serves connections has of its own.
pub(crate) struct StreamWorker {
    pub(super) serving: Serving,
    pub(super) rows: BindingCache,
    pub(super) input: EStack,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) skip: usize,
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
            from: 0,
            to: 0,
            skip: 0,
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
        let (from, to) = (self.from, self.to);
        if from > 0 {
            self.input.memory().copy_within(from..to, 0);
            (self.from, self.to) = (0, to - from);
        }
    }

    /// Whether a call is given up by what is there behind it already.
    #[inline]
    pub(super) fn abandons_behind(&mut self, number: u32) -> bool {
        self.from < self.to && self.looks_for_abandon(number)
    }

    #[cold]
    fn looks_for_abandon(&mut self, number: u32) -> bool {
        let Some(mut rest) = self.input.memory().get(self.from..self.to) else { return false };
        while let Some(Ok(header)) = rest.first_chunk().map(Header::from_bytes) {
            if (header.kind, header.number) == (Kind::Abandon, number) {
                return true;
            }
            let Some(behind) = rest.get(HEADER_BYTES + header.rest()..) else { return false };
            rest = behind;
        }
        false
    }

    /// The header of the next message, if it is there.
    pub(super) fn header(&mut self) -> Result<Option<Header>, Unreadable> {
        let there = self.input.memory().get(self.from..self.to);
        match there.and_then(|there| there.first_chunk()) {
            Some(header) => Header::from_bytes(header).map(Some),
            None => Ok(None),
        }
    }
}
