//! `Gathered`: collects the parts of a result that the server sends. Unfilled parts of blocks are not sent. A
//! block is a part of a result that consists of plain data.

use std::io;

use crate::call::blocks_at;
use crate::path::stream::peer::sending::{OnStall, Sending};
use crate::value::{Space, Window, align_up};

/// The parts of a result, as they lie in memory. In the message, the filled parts of the blocks follow one
/// another.
pub(super) struct Gathered<'a> {
    space: Space<'a>,
    blocks: &'a [u32],
    head: Window<'a>,
    /// The offset in bytes of the head in the message.
    pub(super) head_at: usize,
    /// The number of bytes of the message.
    pub(super) body: usize,
    /// The number of bytes of `space` that the result occupies.
    pub(super) extent: usize,
}

impl<'a> Gathered<'a> {
    pub(super) fn new(
        space: Space<'a>,
        blocks: &'a [u32],
        head_at: usize,
        head_bytes: usize,
    ) -> Self {
        let head = space.range(head_at, head_bytes).window();
        let mut gathered =
            Self { space, blocks, head, head_at, body: head_at + head_bytes, extent: 0 };
        gathered.extent = gathered.body;
        if !blocks.is_empty() {
            let mut at = blocks_at(blocks.len());
            for (i, start) in blocks.iter().enumerate() {
                let block = gathered.block(i);
                gathered.extent = gathered.extent.max(*start as usize + block.len());
                at = align_up(at + block.len());
            }
            gathered.body = at;
            if head_at > 4 * blocks.len() {
                gathered.head_at = at;
                gathered.body = at + head_bytes;
            }
        }
        gathered
    }

    /// Returns the filled part of a block.
    fn block(&self, index: usize) -> Window<'a> {
        let filled = u32::from_le(self.space.read_plain(4 * index).unwrap_or(0));
        self.space.range(self.blocks[index] as usize, filled as usize).window()
    }

    pub(super) fn write(&self, sending: &mut Sending<'a, impl OnStall>) -> io::Result<()> {
        let table = 4 * self.blocks.len();
        if self.blocks.is_empty() {
            return sending.part(self.head);
        }
        let first = blocks_at(self.blocks.len());
        sending.part(self.space.range(0, table).window())?;
        let before = self.head_at == table;
        if before {
            sending.part(self.head)?;
            sending.zeros(first - table - self.head.len())?;
        } else {
            sending.zeros(first - table)?;
        }
        for i in 0..self.blocks.len() {
            sending.block(self.block(i))?;
        }
        sending.pad()?;
        if before { Ok(()) } else { sending.part(self.head) }
    }
}
