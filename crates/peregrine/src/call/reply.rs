//! `Reply`: the space into which a server stub writes the result of a call, in the place where the caller or
//! the path reads it.

use super::request::{InOut, Refusal};
use super::{Answer, blocks_at};
use crate::error::{Executed, Kind};
use crate::limits;
use crate::value::{Departing, Departs, Overflow, Space, Value, Writer, align_up};

/// The space of a result: a table of filled lengths, the out blocks, and the head.
#[derive(Debug)]
pub struct Reply<'a> {
    head: Writer<'a>,
    outs: usize,
    /// The offset in the space at which the next out block begins.
    next: usize,
    /// Receives the offset of each out block. `None`: the offsets are not recorded.
    blocks: Option<&'a mut Vec<u32>>,
    pub(super) answer: Answer,
    pub(super) head_at: usize,
    pub(super) head_bytes: usize,
    /// The number of bytes that were filled in the blocks.
    pub(super) block_bytes: usize,
    /// Whether the counters leave out the call, because it carried a batch or items of streams.
    pub(super) is_uncounted: bool,
    /// Announces written parts of blocks to the peer. `None` if the peer reads only complete replies.
    departs: Option<&'a dyn Departs>,
}

impl<'a> Reply<'a> {
    pub(super) const fn new(space: Space<'a>, departs: Option<&'a dyn Departs>) -> Self {
        Self {
            head: Writer::new(space),
            outs: 0,
            next: 0,
            blocks: None,
            answer: Answer::Ok,
            head_at: 0,
            head_bytes: 0,
            block_bytes: 0,
            is_uncounted: false,
            departs,
        }
    }

    /// Makes a reply that stores the offset of each block in `blocks`. The offsets are meaningful only if the
    /// result is successful.
    pub(super) fn noting(space: Space<'a>, blocks: &'a mut Vec<u32>) -> Self {
        blocks.clear();
        Self { blocks: Some(blocks), ..Self::new(space, None) }
    }

    /// Reserves the table for `outs` out and in-out blocks. Must be called before the first of these blocks
    /// is taken.
    #[inline]
    pub const fn expect(&mut self, outs: usize) {
        self.outs = outs;
        self.next = blocks_at(outs);
    }

    /// Forgets the blocks that were taken before.
    #[cold]
    pub(super) fn forget_blocks(&mut self) {
        if let Some(blocks) = &mut self.blocks {
            blocks.clear();
        }
        self.block_bytes = 0;
    }

    /// Prefetches the cache line of the head for writing, for a procedure that answers with a head only. See
    /// [`Stub::head_only`](crate::stub::Stub::head_only).
    #[inline]
    pub fn head_only(&self) {
        self.head.space().prefetch_write();
    }

    /// Returns the size in bytes of the space for the result.
    pub(super) fn bytes(&self) -> usize {
        self.head.space().window().len()
    }

    /// Returns the next out block, of `capacity` bytes, or `None` if it does not fit the reply.
    #[doc(hidden)]
    #[inline]
    pub fn block(&mut self, capacity: usize) -> Option<Departing<'a>> {
        let (at, departs) = (self.next, self.departs);
        let block = self.head.space().part(at, capacity)?;
        if departs.is_none() {
            block.prefetch_write_all();
        }
        if let Some(blocks) = &mut self.blocks {
            blocks.push(at as u32);
        }
        self.next = align_up(at + capacity);
        Some(Departing::new(block, at, departs))
    }

    /// Copies an in-out slice with plain values to the slice's block. Other values are in the head.
    ///
    /// # Errors
    /// Fails if the reply is too small.
    #[inline]
    pub fn in_out<T: Value>(
        &mut self,
        index: usize,
        values: &InOut<'_, 'a, T>,
    ) -> Result<(), Refusal> {
        let bytes = T::as_block(values).unwrap_or(&[]);
        values.block.write(0, bytes).ok_or_else(too_large)?;
        self.filled(index, bytes.len())
    }

    /// Records in the table that `bytes` bytes of the out block `index` were filled.
    ///
    /// # Errors
    /// Fails if the table does not fit the reply.
    #[inline]
    pub fn filled(&mut self, index: usize, bytes: usize) -> Result<(), Refusal> {
        self.block_bytes += bytes;
        let filled = u32::try_from(bytes).ok();
        let noted = filled.and_then(|filled| self.head.write_plain_at(4 * index, &filled.to_le()));
        noted.ok_or_else(too_large)
    }

    /// Writes the value of `Ok` to the head, and then whatever `more` writes.
    ///
    /// # Errors
    /// Fails if the reply is too small: the procedure ran, and its result is lost.
    #[inline]
    pub fn ok<T: Value>(
        &mut self,
        value: &T,
        more: impl Fn(&mut Writer<'_>) -> Result<(), Overflow>,
    ) -> Result<(), Refusal> {
        self.answer = Answer::Ok;
        self.put_head(|head| {
            value.encode(head)?;
            more(head)
        })
    }

    /// Writes the procedure's own error to the head. No block is sent.
    ///
    /// # Errors
    /// Fails if the reply is too small.
    #[inline]
    pub fn err<E: Value>(&mut self, error: &E) -> Result<(), Refusal> {
        self.answer = Answer::Err;
        (self.outs, self.next, self.block_bytes) = (0, 0, 0);
        self.put_head(|head| error.encode(head))
    }

    /// Writes a head with `write`. This function may call `write` twice, and each call must write the whole
    /// head. `answer` says what the head contains.
    ///
    /// # Errors
    /// Fails if the reply is too small.
    pub(crate) fn head(
        &mut self,
        answer: Answer,
        write: impl Fn(&mut Writer<'_>) -> Result<(), Overflow>,
    ) -> Result<(), Refusal> {
        self.answer = answer;
        if answer != Answer::Ok {
            (self.outs, self.next, self.block_bytes) = (0, 0, 0);
        }
        self.put_head(write)
    }

    /// Returns what the reply contains, and the number of its bytes that the procedure has filled.
    pub(crate) const fn ended(&self) -> (Answer, usize) {
        (self.answer, self.head_bytes + self.block_bytes)
    }

    /// Leaves the reply to another thread.
    pub(super) const fn defer(&mut self) {
        self.answer = Answer::Deferred;
    }

    /// Writes a head from encoded bytes. `answer` says what the head contains.
    ///
    /// # Errors
    /// Fails if the reply is too small.
    #[doc(hidden)]
    pub fn raw(&mut self, answer: Answer, head: &[u8]) -> Result<(), Refusal> {
        self.head(answer, |writer| writer.plain_all(head))
    }

    /// Writes the head between the table and the first block if it fits there, otherwise after the blocks.
    #[inline]
    fn put_head(
        &mut self,
        write: impl Fn(&mut Writer<'_>) -> Result<(), Overflow>,
    ) -> Result<(), Refusal> {
        // Without blocks, the head may extend to the end of the space. Values are aligned relative to the
        // head's start.
        let table = 4 * self.outs;
        let end = if self.outs == 0 { usize::MAX } else { blocks_at(self.outs) };
        self.head.restart(table, end);
        match write(&mut self.head) {
            Ok(()) => {
                (self.head_at, self.head_bytes) = (table, self.head.len());
                Ok(())
            }
            Err(overflow) => self.put_head_after_blocks(&write, overflow),
        }
    }

    /// Writes the head after the blocks. `overflow` says why the head does not fit before them.
    #[cold]
    fn put_head_after_blocks(
        &mut self,
        write: &dyn Fn(&mut Writer<'_>) -> Result<(), Overflow>,
        overflow: Overflow,
    ) -> Result<(), Refusal> {
        let written = if self.outs == 0 || self.next > self.head.space().len() {
            Err(overflow)
        } else {
            self.head.restart(self.next, usize::MAX);
            write(&mut self.head)
        };
        written.map_err(|overflow| Refusal::unwritten(overflow, self.head.space().len()))?;
        (self.head_at, self.head_bytes) = (self.next, self.head.len());
        Ok(())
    }

    /// Writes the first bytes of the reply, which the head has collected, to the space. The reply is then
    /// complete.
    #[inline]
    pub(super) fn flush(&self) {
        self.head.flush();
    }

    /// Writes why there is no result. Text that does not fit is truncated.
    #[cold]
    pub(super) fn refuse(&mut self, refusal: &Refusal) {
        self.answer = refusal.answer();
        let room = self.head.space().len().saturating_sub(8).min(limits::TEXT_BYTES_MAX);
        let text = &refusal.text[..refusal.text.floor_char_boundary(room)];
        self.head.restart(0, usize::MAX);
        let head = &mut self.head;
        // These writes fit: every A-stack has more than 8 bytes, and the text has been truncated.
        let _ = head.plain(&(refusal.kind as u32).to_le());
        let _ = head.plain(&(text.len() as u32).to_le());
        let _ = head.plain_all(text.as_bytes());
        (self.head_at, self.head_bytes) = (0, head.len());
    }
}

impl Refusal {
    /// Returns what the head of a reply with this refusal contains.
    pub(crate) const fn answer(&self) -> Answer {
        match self.executed {
            Executed::No => Answer::NotExecuted,
            Executed::Maybe => Answer::MayHaveExecuted,
        }
    }

    /// Returns the largest size in bytes of a reply with this refusal.
    pub(super) fn bytes_max(&self) -> usize {
        8 + self.text.len().min(limits::TEXT_BYTES_MAX)
    }

    /// Makes the refusal for a procedure that ran, but whose result does not fit a reply of `room` bytes.
    /// `overflow` says why.
    #[cold]
    pub(super) fn unwritten(overflow: Overflow, room: usize) -> Self {
        let text = match overflow {
            Overflow::Full => format!(
                "the procedure ran, but its result does not fit: the values do not fit the \
                 message, which has room for {room} bytes"
            ),
            _ => format!("the procedure ran, but its result does not fit: {overflow}"),
        };
        Self { kind: Kind::TooLarge, executed: Executed::Maybe, text }
    }
}

#[cold]
fn too_large() -> Refusal {
    Refusal {
        kind: Kind::TooLarge,
        executed: Executed::Maybe,
        text: "the procedure ran, but its result does not fit".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::DEPTH_MAX;

    const HEAD: [u8; 64] = [7; 64];

    /// Writes a reply with one out block in a space of `bytes` bytes, of which `left` remain after the block.
    /// Returns the offset and the size of the reply's head.
    fn put_after_a_block(bytes: usize, left: usize) -> Result<(usize, usize), Refusal> {
        let mut memory = vec![0; bytes];
        let mut reply = Reply::new(Space::of_mut(&mut memory), None);
        reply.expect(1);
        assert!(reply.block(bytes - left - blocks_at(1)).is_some());
        reply.raw(Answer::Ok, &HEAD)?;
        Ok((reply.head_at, reply.head_bytes))
    }

    fn deep(head: &mut Writer<'_>, structures: u32) -> Result<(), Overflow> {
        if structures == 0 { Ok(()) } else { head.deeper(|head| deep(head, structures - 1)) }
    }

    #[test]
    fn head_is_written_after_the_blocks_if_it_fits_there() {
        assert_eq!(put_after_a_block(512, 64).unwrap(), (448, 64));
        // The block leaves 63 bytes, which are too few for the head, or no bytes. In a reply of 500 bytes,
        // the aligned offset of the head lies outside of the reply.
        for (bytes, left) in [(512, 63), (512, 0), (500, 0)] {
            let refusal = put_after_a_block(bytes, left).unwrap_err();
            assert_eq!((refusal.kind, refusal.executed), (Kind::TooLarge, Executed::Maybe));
            assert!(refusal.text.contains("the values do not fit the message"), "{refusal:?}");
        }
    }

    #[test]
    fn deeply_nested_result_is_refused_for_its_depth() {
        for outs in [0, 1] {
            let mut memory = [0; 512];
            let mut reply = Reply::new(Space::of_mut(&mut memory), None);
            reply.expect(outs);
            reply.head(Answer::Ok, |head| deep(head, DEPTH_MAX)).unwrap();
            let refusal = reply.head(Answer::Ok, |head| deep(head, DEPTH_MAX + 1)).unwrap_err();
            assert!(refusal.text.contains("structures nested too deeply"), "{refusal:?}");
        }
    }
}
