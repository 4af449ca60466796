//! Packs a result for sending: removes the unused space between its blocks. The blocks are the parts of the
//! result with plain data.

use crate::call::blocks_at;
use crate::value::{Space, align_up};

/// Returns the offset in `space` at which the filled part of the last block of a result ends. Returns 0 if
/// the result has no blocks. The head of the result may end later. `blocks` contains the offset in `space` at
/// which each block begins, as [`execute_in_place`](crate::call::execute_in_place) stores it.
pub(crate) fn written_end(space: Space<'_>, blocks: &[u32]) -> usize {
    blocks.last().map_or(0, |last| {
        let filled = u32::from_le(space.read_plain(4 * (blocks.len() - 1)).unwrap_or(0));
        *last as usize + filled as usize
    })
}

/// Moves the parts of a result together for sending. `blocks` contains the offset in `space` at which each
/// block begins. Returns the new offset of the head, and the length of the message.
pub(crate) fn pack(
    space: Space<'_>,
    blocks: &[u32],
    head_at: usize,
    head_bytes: usize,
) -> (usize, usize) {
    if blocks.is_empty() {
        return (head_at, head_at + head_bytes);
    }
    let (table, first) = (4 * blocks.len(), blocks_at(blocks.len()));
    let before = head_at == table;
    let used = if before { table + head_bytes } else { table };
    // The space between the parts may hold bytes of another client's result. So this space is cleared.
    let zero = |from: usize, to: usize| {
        let _ = space.zero(from, to.saturating_sub(from));
    };
    let shift = |from: usize, to: usize, bytes: usize| {
        if let (Some(from), Some(to)) = (space.part(from, bytes), space.part(to, bytes))
            && bytes > 0
        {
            to.copy_from(from.window());
        }
    };
    zero(used, first);
    let mut at = first;
    for (i, block) in blocks.iter().enumerate() {
        let filled = u32::from_le(space.read_plain(4 * i).unwrap_or(0));
        let (from, end) = (*block as usize, at + filled as usize);
        if from != at {
            shift(from, at, filled as usize);
        }
        let next = align_up(end);
        if !before || i + 1 < blocks.len() {
            zero(end, next);
        }
        at = if before && i + 1 == blocks.len() { end } else { next };
    }
    if before {
        return (head_at, at);
    }
    shift(head_at, at, head_bytes);
    (at, at + head_bytes)
}
