//! `Reply`: where a server stub puts the result, already in its place.

use super::request::{InOut, Refusal};
use super::{Answer, blocks_at};
use crate::error::{Executed, Kind};
use crate::limits;
use crate::value::{Departing, Departs, Overflow, Space, Value, Writer, align_up};

/// The space of a result: a table of filled bytes, the out blocks, and a head where there is room.
#[derive(Debug)]
pub struct Reply<'a> {
    head: Writer<'a>,
    outs: usize,
    /// Where the next out block begins.
    next: usize,
    /// Where each block begins, if that is asked for.
    blocks: Option<&'a mut Vec<u32>>,
    pub(super) answer: Answer,
    pub(super) head_at: usize,
    pub(super) head_bytes: usize,
    /// Bytes of blocks that were filled.
    pub(super) block_bytes: usize,
    /// Told what of the blocks is in place; `None` if nobody reads them before the reply is whole.
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
            departs,
        }
    }

    /// As [`new`](Self::new); notes where each block begins. Those of a result count, and no others.
    pub(super) fn noting(space: Space<'a>, blocks: &'a mut Vec<u32>) -> Self {
        blocks.clear();
        Self { blocks: Some(blocks), ..Self::new(space, None) }
    }

    /// Makes room for so many out and in-out blocks; to be called before any of them.
    #[inline]
    pub const fn expect(&mut self, outs: usize) {
        self.outs = outs;
        self.next = blocks_at(outs);
    }

    /// Says that nothing but a head will be answered: its line is asked for before the procedure
    /// runs. See [`Stub::head_only`](crate::stub::Stub::head_only).
    #[inline]
    pub fn head_only(&self) {
        self.head.space().prefetch_write();
    }

    /// The next out block, of `capacity` bytes; `None` if there is no room.
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

    /// Copies an in-out slice to the block that waits for it, if its values are plain; those that
    /// are not go into the head.
    ///
    /// # Errors
    /// If there is no room for the table.
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

    /// Notes in the table how many bytes of out block `index` were filled.
    ///
    /// # Errors
    /// If there is no room for the table.
    #[inline]
    pub fn filled(&mut self, index: usize, bytes: usize) -> Result<(), Refusal> {
        self.block_bytes += bytes;
        let filled = u32::try_from(bytes).ok();
        let noted = filled.and_then(|filled| self.head.write_plain_at(4 * index, &filled.to_le()));
        noted.ok_or_else(too_large)
    }

    /// Puts `Ok`'s value into the head, and behind it what `more` adds.
    ///
    /// # Errors
    /// If there is no room: the procedure ran, and its result is lost.
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

    /// Puts the procedure's own error into the head; no block travels.
    ///
    /// # Errors
    /// If there is no room.
    #[inline]
    pub fn err<E: Value>(&mut self, error: &E) -> Result<(), Refusal> {
        self.answer = Answer::Err;
        (self.outs, self.next, self.block_bytes) = (0, 0, 0);
        self.put_head(|head| error.encode(head))
    }

    /// Puts a head that `write` makes, from its beginning each time it is asked: what it holds is as the
    /// answer says.
    ///
    /// # Errors
    /// If there is no room.
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

    /// Puts a head that is made already: what stands there is as the answer says.
    ///
    /// # Errors
    /// If there is no room.
    #[doc(hidden)]
    pub fn raw(&mut self, answer: Answer, head: &[u8]) -> Result<(), Refusal> {
        self.head(answer, |writer| writer.plain_all(head))
    }

    /// Into the rest of the first line if it fits there, otherwise behind the blocks.
    #[inline]
    fn put_head(
        &mut self,
        write: impl Fn(&mut Writer<'_>) -> Result<(), Overflow>,
    ) -> Result<(), Refusal> {
        // Without blocks there is room to the end. Values are aligned as seen from the start.
        let table = 4 * self.outs;
        let end = if self.outs == 0 { usize::MAX } else { blocks_at(self.outs) };
        self.head.restart(table, end);
        match write(&mut self.head) {
            Ok(()) => {
                (self.head_at, self.head_bytes) = (table, self.head.len());
                Ok(())
            }
            Err(overflow) => self.put_head_behind_blocks(&write, overflow),
        }
    }

    /// `overflow`: why it does not fit before them.
    #[cold]
    fn put_head_behind_blocks(
        &mut self,
        write: &dyn Fn(&mut Writer<'_>) -> Result<(), Overflow>,
        overflow: Overflow,
    ) -> Result<(), Refusal> {
        let behind = if self.outs == 0 || self.next > self.head.space().len() {
            Err(overflow)
        } else {
            self.head.restart(self.next, usize::MAX);
            write(&mut self.head)
        };
        behind.map_err(|overflow| Refusal {
            kind: Kind::TooLarge,
            executed: Executed::Maybe,
            text: format!("the procedure ran, but its result does not fit: {overflow}"),
        })?;
        (self.head_at, self.head_bytes) = (self.next, self.head.len());
        Ok(())
    }

    /// Puts the gathered first bytes into their place: the reply is complete.
    #[inline]
    pub(super) fn flush(&self) {
        self.head.flush();
    }

    /// Says why there is no result. Text that does not fit is cut.
    #[cold]
    pub(super) fn refuse(&mut self, refusal: &Refusal) {
        self.answer = match refusal.executed {
            Executed::No => Answer::NotExecuted,
            Executed::Maybe => Answer::MayHaveExecuted,
        };
        let room = self.head.space().len().saturating_sub(8).min(limits::TEXT_BYTES_MAX);
        let text = &refusal.text[..refusal.text.floor_char_boundary(room)];
        self.head.restart(0, usize::MAX);
        let head = &mut self.head;
        // There is room: A-stacks are never smaller than this, and the text was cut.
        let _ = head.plain(&(refusal.kind as u32).to_le());
        let _ = head.plain(&(text.len() as u32).to_le());
        let _ = head.plain_all(text.as_bytes());
        (self.head_at, self.head_bytes) = (0, head.len());
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

    /// A reply in a space of so many bytes with one out block, which leaves so many bytes after it.
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
    fn head_goes_after_the_blocks_if_it_fits_there() {
        assert_eq!(put_after_a_block(512, 64).unwrap(), (448, 64));
        // The last block ends before the space, where the space ends, and so close to it that what
        // comes next would begin outside.
        for (bytes, left) in [(512, 63), (512, 0), (500, 0)] {
            let refusal = put_after_a_block(bytes, left).unwrap_err();
            assert_eq!((refusal.kind, refusal.executed), (Kind::TooLarge, Executed::Maybe));
            assert!(refusal.text.ends_with("the values do not fit the message"), "{refusal:?}");
        }
    }

    #[test]
    fn result_that_is_nested_too_deeply_is_refused_for_that_reason() {
        for outs in [0, 1] {
            let mut memory = [0; 512];
            let mut reply = Reply::new(Space::of_mut(&mut memory), None);
            reply.expect(outs);
            reply.head(Answer::Ok, |head| deep(head, DEPTH_MAX)).unwrap();
            let refusal = reply.head(Answer::Ok, |head| deep(head, DEPTH_MAX + 1)).unwrap_err();
            assert!(refusal.text.ends_with("structures nested too deeply"), "{refusal:?}");
        }
    }
}
