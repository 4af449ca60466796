//! The call shape that every path shares: `Call` out, `Request` and `Reply` on the other side.
//!
//! A message is a *head* of small values and *blocks* of plain data, those copied for the
//! procedure first and those lent to it last, each at a multiple of 16 bytes. A reply is a table
//! of how much of each out block was filled, the blocks, and a head. Paths move messages and
//! never know what is in them; stubs fill messages and never know what moves them.

mod caller;
pub(crate) mod chain;
mod frames;
mod reply;
mod request;
mod serve;
mod turns;

pub use caller::{Caller, PathKind, caller};
pub(crate) use caller::{CallerInfo, enter, inside};
pub use frames::{FrameLayout, Frames, Taken};
pub use reply::Reply;
pub use request::{InOut, Refusal, Request, Slice};
pub(crate) use serve::refuse;
pub use serve::{Answer, EStack, Incoming, Serve, Served, execute};

use core::time::Duration;
use std::time::Instant;

use crate::error::CallError;
use crate::stats::{self, Copy};
use crate::value::{FIRST_BYTES, Invalid, OutBlock, Staged, Window, Writer, align_up};

/// The number of the procedure that every export answers itself: it does nothing.
pub const PING: u32 = u32::MAX;

/// How long a caller is willing to wait.
///
/// ```
/// use core::time::Duration;
/// use peregrine::Limit;
///
/// assert_eq!(Limit::None.deadline(), None);
/// assert!(Limit::Within(Duration::from_secs(1)).deadline().is_some());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// Until there is a result or the server is known to be dead.
    #[default]
    None,
    /// So long from the beginning of each call.
    Within(Duration),
    /// Until this moment.
    Until(Instant),
}

impl Limit {
    /// The moment at which a call that begins now must end.
    pub fn deadline(self) -> Option<Instant> {
        match self {
            Self::None => None,
            // A limit beyond the clock's range is none.
            Self::Within(limit) => Instant::now().checked_add(limit),
            Self::Until(moment) => Some(moment),
        }
    }
}

/// How one waits for the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Looking at memory all the time: fastest, and it burns a processor.
    Spin,
    /// Asleep in the kernel: slowest, and it costs nothing while nothing happens.
    Block,
    /// Spin for about as long as sleeping and waking would cost here, then block.
    #[default]
    Adaptive,
}

/// What a caller does that finds no A-stack free (LRPC: "the client waits or more are made").
///
/// ```
/// use peregrine::{BindOptions, Short};
///
/// // As many calls at a time as come, up to the server's bound.
/// let options = BindOptions::default().astacks(2).short_of_astacks(Short::More);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Short {
    /// Waits until one is given back, in the order of coming; so the number of A-stacks is a
    /// bound to the calls in flight.
    #[default]
    Wait,
    /// Puts another one into use, if there is one, and else waits. An A-stack that was
    /// captured by a call that gave up counts as used.
    More,
}

/// One call, as a stub hands it to a path. The head is already in its place, the frame.
#[derive(Debug)]
pub struct Call<'a, 'f, 'o> {
    /// The procedure's number.
    pub procedure: u32,
    /// The frame (A-stack) that was taken for the call.
    pub frame: &'a Taken<'f>,
    /// The head, in the frame's call space; paths [flush](Writer::flush) it when all is there.
    pub head: &'a mut Writer<'f>,
    /// Blocks to be copied for the procedure.
    pub ins: &'a [Window<'a>],
    /// Blocks that the procedure reads where the path put them.
    pub lent: &'a [Window<'a>],
    /// Where the blocks of the result go.
    pub outs: &'a mut [OutBlock<'o>],
    /// How long the caller waits.
    pub limit: Limit,
}

/// What came back: where in the frame's reply space the head is, and what it holds.
#[derive(Clone, Copy, Debug)]
pub struct Returned {
    /// What the head holds.
    pub answer: Answer,
    /// Where it begins in the reply space.
    pub head_at: u32,
    /// How many bytes it has.
    pub head_bytes: u32,
}

/// A way to a server: takes a whole call, brings back a whole result.
pub trait CallPath: Send + Sync {
    /// Makes the call and waits for its end. The out blocks are filled when the answer is
    /// [`Answer::Ok`].
    ///
    /// # Errors
    /// If there is no result; the error says whether the call ran. A path that gives up while the
    /// server may still use the frame says [`Executed::Maybe`](crate::Executed::Maybe): the stub
    /// then [captures](Taken::capture) it.
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError>;

    /// Which path it is.
    fn kind(&self) -> PathKind;

    /// Whether the server's session still stands, as far as is known without asking.
    fn is_alive(&self) -> bool;

    /// Whether a captured frame has been let go by the server and may be taken again.
    fn let_go(&self, frame: u32) -> bool;
}

/// How a message lies in its space: everything is checked against the space's size once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the head.
    pub head: usize,
    /// Bytes of head and copied blocks: what the server copies for the procedure.
    pub copied: usize,
    /// Bytes of the whole message.
    pub total: usize,
}

impl Call<'_, '_, '_> {
    /// Copies the blocks behind the head (LRPC's copy A), those of their bytes that lie below
    /// `upto` in the message; `None` if the message is too large. The message, or its beginning,
    /// is complete when the head has been flushed.
    #[inline]
    pub fn put(&mut self, upto: usize) -> Option<Layout> {
        let head = self.head.len();
        if self.ins.is_empty() && self.lent.is_empty() {
            return Some(Layout { head, copied: head, total: head });
        }
        let staged = self.head.staged();
        let mut at = head;
        for block in self.ins {
            at = put_block(staged, at, *block, upto)?;
        }
        let copied = if self.lent.is_empty() { at } else { align_up(at) };
        for block in self.lent {
            at = put_block(staged, at, *block, upto)?;
        }
        // Empty blocks at the end leave nothing behind them.
        Some(Layout { head, copied, total: at.max(copied) })
    }

    /// Copies those bytes of the blocks that lie from `from` up to `to` in the message, of which
    /// the first line has been put already.
    #[cold]
    pub fn put_more(&mut self, from: usize, to: usize) -> Option<()> {
        let space = self.head.space();
        let mut end = self.head.len();
        for block in self.ins.iter().chain(self.lent) {
            let start = align_up(end);
            let (first, last) = (end.max(from), start.min(to));
            if first < last {
                space.zero(first, last - first)?;
            }
            end = start + block.len();
            let (first, last) = (start.max(from), end.min(to));
            if first < last {
                let part = block.part(first - start, last - first)?;
                space.part(first, part.len())?.copy_from(part);
                stats::count(Copy::A, part.len());
            }
        }
        Some(())
    }

    /// Fills the out blocks from a reply (copy F), as the table at its start says.
    ///
    /// # Errors
    /// If the server claims more than was offered, or values that are none.
    #[inline]
    pub fn take_blocks(&mut self) -> Result<(), Invalid> {
        if self.outs.is_empty() {
            return Ok(());
        }
        let space = self.frame.reply_space();
        let mut at = blocks_at(self.outs.len());
        for (i, out) in self.outs.iter_mut().enumerate() {
            let filled: u32 = space.read_plain(4 * i).ok_or(Invalid::Short)?;
            let filled = filled as usize;
            if filled > out.capacity() {
                return Err(Invalid::TooLong);
            }
            out.fill(space.part(at, filled).ok_or(Invalid::Short)?)?;
            stats::count(Copy::F, filled);
            at = align_up(at + out.capacity());
        }
        Ok(())
    }
}

#[inline]
fn put_block(staged: &mut Staged<'_>, at: usize, block: Window<'_>, upto: usize) -> Option<usize> {
    let start = align_up(at);
    let end = start.checked_add(block.len())?;
    let place = staged.space().part(start, block.len())?;
    if end > upto {
        return put_beginning(staged, at, block, upto).map(|()| end);
    }
    place.prefetch_write_all();
    staged.zero(at, start.checked_sub(at)?)?;
    staged.copy(start, block)?;
    stats::count(Copy::A, block.len());
    Some(end)
}

/// Puts what of a block lies below `upto`.
#[cold]
fn put_beginning(staged: &mut Staged<'_>, at: usize, block: Window<'_>, upto: usize) -> Option<()> {
    let start = align_up(at);
    staged.zero(at, start.min(upto).saturating_sub(at))?;
    let part = block.part(0, upto.saturating_sub(start).min(block.len()))?;
    stats::count(Copy::A, part.len());
    staged.copy(start, part)
}

/// Where the first out block of a reply begins: behind the table, and behind the first line's
/// rest, into which most heads fit.
#[inline]
pub(crate) const fn blocks_at(outs: usize) -> usize {
    let table = align_up(4 * outs);
    if outs == 0 {
        0
    } else if table < FIRST_BYTES {
        FIRST_BYTES
    } else {
        table
    }
}
