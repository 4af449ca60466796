//! The form of a call, which is the same on every path: `Call` at the client, `Request` and `Reply` at the
//! server.
//!
//! A message is a *head* of small values and *blocks* of plain data. First come the blocks that are copied
//! for the procedure. The *lent* blocks come last: the procedure reads them where the path stored them. Each
//! block begins at a multiple of 16 bytes. A reply has three parts: a table with the filled length of each
//! out block, the out blocks, and a head. Paths transfer messages without knowing their contents. Stubs fill
//! messages without knowing the path.

pub(crate) mod accounted;
pub(crate) mod batch;
mod block_cost;
mod caller;
pub(crate) mod chain;
pub(crate) mod deferred;
mod exported;
pub(crate) mod extensions;
pub(crate) mod followed;
mod foreign;
mod frames;
mod identity;
mod in_flight;
pub(crate) mod metadata;
mod path_kind;
pub(crate) mod pending;
mod pool;
mod reply;
mod request;
mod serve;
pub(crate) mod streams;
mod terms;
pub(crate) mod words;

pub(crate) use batch::{Account, Batched, append, with_scratch};
pub(crate) use block_cost::block_cost;
pub use caller::{Caller, Claimed, caller, undeferred};
pub(crate) use caller::{
    CallerInfo, Calls, Ending, Identified, Nested, NestedReceived, due, has_metadata, inside,
    is_remote, leave_call, serve_call, serve_calls_of, source_of_thread, tell_caller, with_calls,
};
pub use deferred::{Answered, Executor, OwnedCall, ServerExecutor, serve_async};
pub(crate) use exported::Exported;
pub use foreign::{ForeignAnswer, ForeignCall, ServedForeign};
pub(crate) use frames::Reserved;
pub(crate) use frames::frames_that_fit;
pub(crate) use frames::future::{DeadlineBell, FutureWait};
pub use frames::{FrameGuard, FrameLayout, Frames};
pub(crate) use frames::{is_short, sparse_memory, thread_index};
pub use identity::CallerIdentity;
pub(crate) use in_flight::{InFlight, InFlightNow};
pub use metadata::Metadata;
pub use path_kind::PathKind;
pub use pending::{Begun, Bell};
pub use reply::Reply;
pub use request::{InOut, RawRequest, Refusal, Request, Slice};
pub use serve::{Answer, EStack, Incoming, Ran, Serve, Served, execute};
pub(crate) use serve::{Placed, execute_in_place, pack_later, refuse, write_later};
pub use terms::CallTerms;
pub(crate) use terms::Terms;

use core::time::Duration;
use std::time::Instant;

use crate::error::CallError;
use crate::stats::{self, Copy};
use crate::value::{Block, Departs, FIRST_BYTES, Head, Invalid, OutBlock, Window, align_up};

/// The number of the ping procedure. The procedure does nothing, and the served object does not take part.
pub const PING: u32 = u32::MAX;

/// How long a caller waits for a call. This includes the waits for an A-stack, and for other callers to
/// finish sending.
///
/// The limit is sent to the server, so a procedure can query the [remaining](Caller::remaining) time. A call
/// whose time has passed before its procedure begins is not run.
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
    /// The caller waits until there is a result, or until the server is known to be dead.
    #[default]
    None,
    /// The caller waits for this duration, from the beginning of each call.
    Within(Duration),
    /// The caller waits until this moment.
    Until(Instant),
}

impl Limit {
    /// Returns the moment at which a call that begins now must end.
    pub fn deadline(self) -> Option<Instant> {
        match self {
            Self::None => None,
            // A limit beyond the clock's range counts as no limit.
            Self::Within(limit) => Instant::now().checked_add(limit),
            Self::Until(moment) => Some(moment),
        }
    }
}

/// How a thread waits for the other side of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Polls memory all the time: fastest, but occupies a processor. The future of an async call sleeps after
    /// 10 ms. Waking it takes a short time compared with these 10 ms.
    Spin,
    /// Sleeps in the kernel: slowest, but uses no processor time.
    Block,
    /// Spins for about as long as sleeping and waking take on this machine, then blocks.
    #[default]
    Adaptive,
}

/// What a caller does if no A-stack (call frame) is free. In LRPC, "the client waits or more are made".
///
/// ```
/// use peregrine::{BindOptions, OnExhausted};
///
/// // Allows as many calls at a time as the program makes, up to the server's bound.
/// let options = BindOptions::default().astacks(2).on_exhausted(OnExhausted::More);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExhausted {
    /// Waits in order of arrival until an A-stack is returned. The number of A-stacks then limits the calls
    /// in flight.
    #[default]
    Wait,
    /// Activates another A-stack, and waits only if all existing A-stacks are active. An A-stack that was
    /// captured by an abandoned call is still active, and is not free.
    More,
    /// Waits, as with `Wait`, while A-stacks are being returned. If no A-stack has been returned for 10 ms,
    /// activates further A-stacks for the callers that wait. Each time, the number of active A-stacks at most
    /// doubles. Thus short calls share few A-stacks even if there are many short calls, and long calls do not
    /// keep other callers waiting.
    Adaptive,
}

/// One call, as a stub passes it to a path. The head is already in the frame.
#[derive(Debug)]
pub struct Call<'a, 'f, 'o> {
    /// The procedure's number.
    pub procedure: u32,
    /// The frame (A-stack) that the call holds.
    pub frame: &'a FrameGuard<'f>,
    /// The head, in the frame's call space. Paths [flush](Head::flush) it when the message is complete.
    pub head: &'a mut Head<'f>,
    /// Blocks that are copied for the procedure.
    pub ins: &'a [Block<'a>],
    /// The lent blocks: the procedure reads them where the path stored them.
    pub lent: &'a [Block<'a>],
    /// The memory into which the path copies the blocks of the result.
    pub outs: &'a mut [OutBlock<'o>],
    /// How long the caller waits, and the metadata of the call.
    pub terms: CallTerms<'a>,
}

/// A result: the location of its head in the frame's reply space, and what the head contains.
#[derive(Clone, Copy, Debug)]
pub struct Returned {
    /// What the head contains.
    pub answer: Answer,
    /// The offset of the head in the reply space.
    pub head_at: u32,
    /// The length of the head in bytes.
    pub head_bytes: u32,
}

/// A path to a server: transfers a complete call, and returns a complete result.
///
/// No function has a default. Some paths pass calls on to another path (`pass_on!`): without defaults, such a
/// path compiles only if it passes on every function.
pub trait CallPath: Send + Sync {
    /// Makes the call and waits for its end. Fills the out blocks if the answer is [`Answer::Ok`].
    ///
    /// # Errors
    /// Fails if there is no result. The error says whether the call ran. If a path gives up while the
    /// server may still use the frame, the error is [`Executed::Maybe`](crate::Executed::Maybe), or
    /// [`captures`](Self::captures) returns true for the frame. In both cases the stub
    /// [captures](FrameGuard::capture) the frame.
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError>;

    /// Begins a *pending* call, and returns without waiting for the reply. Everything that is sent
    /// has been taken from the caller's memory when this function returns.
    ///
    /// # Errors
    /// If the call was not sent. The stub then proceeds as after [`transport`](Self::transport).
    fn begin(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError>;

    /// Takes the result of a pending call, if there is one. Does not wait. Fills the out blocks if the answer
    /// is [`Answer::Ok`]. After a result, the call is no longer pending.
    ///
    /// The caller passes a call with the same frame and the same out blocks as to [`begin`](Self::begin). The
    /// other parts of the call may be empty.
    fn poll(&self, call: &mut Call<'_, '_, '_>) -> Option<Result<Returned, CallError>>;

    /// Makes the [bell](Bell) of a frame ring once: when [`poll`](Self::poll) may find a result or has work
    /// to do, and otherwise at `deadline`. The caller sets the bell before it calls this function, and polls
    /// once more afterwards.
    fn arm(&self, frame: u32, deadline: Option<Instant>);

    /// Gives up a pending call: its caller does not wait any more. Tells the server that the call is
    /// cancelled. Returns the error for a call whose deadline has passed. The error says whether the call
    /// ran. The stub then proceeds as after [`transport`](Self::transport).
    fn give_up(&self, call: &mut Call<'_, '_, '_>) -> CallError;

    /// Returns whether a frame is ready for [`begin`](Self::begin). If not, [`prepare`](Self::prepare) must
    /// run first.
    fn is_prepared(&self, frame: u32) -> bool;

    /// Prepares a frame for its first pending call. May wait until `deadline`.
    ///
    /// # Errors
    /// If the server does not answer, or refuses. No call was made.
    fn prepare(&self, frame: u32, deadline: Option<Instant>) -> Result<(), CallError>;

    /// Returns the size in bytes of the largest message that both sides allow. The returned size may be
    /// smaller than the real limit.
    fn message_bytes(&self) -> usize;

    /// Returns how callers of this path wait.
    fn wait(&self) -> Wait;

    /// Returns the processor on which the server ran the last call of a frame, if this is known. A caller that runs on the same processor must not poll, because the server then cannot run.
    fn server_cpu(&self, frame: u32) -> Option<u32>;

    /// Returns the kind of the path.
    fn kind(&self) -> PathKind;

    /// Returns details about the path, as text for people. Empty if the name of the path says everything.
    fn explain(&self) -> String;

    /// Returns how many packets of arguments the client has sent again over a frame, in all calls of the frame.
    /// The number wraps around. It is always 0 on paths without packets of their own. Only the holder of the
    /// frame may call this.
    fn retransmissions(&self, frame: u32) -> u32;

    /// Returns whether the session with the server still exists and the binding was not revoked, as far as is
    /// known without asking the server.
    fn is_alive(&self) -> bool;

    /// Returns whether a frame is captured although its last call was not executed: the server has not
    /// released a call that used the frame. Such a frame must not be used again until it is
    /// [released](Self::is_released). Only the holder of the frame may call this.
    fn captures(&self, frame: u32) -> bool;

    /// Returns whether a captured frame can be used again: the server has released it, or is gone. Only the
    /// holder of the frame may call this. A frame for which this never becomes true is lost.
    fn is_released(&self, frame: u32) -> bool;
}

/// Makes the named functions of a [`CallPath`] those of another path. A path uses this if it passes calls on.
macro_rules! pass_on {
    ($self:ident => $to:expr; $($function:ident),+) => {
        $($crate::call::pass_on!(@$function $self $to);)+
    };
    (@transport $self:ident $to:expr) => {
        fn transport(
            &$self,
            call: &mut $crate::call::Call<'_, '_, '_>,
        ) -> Result<$crate::call::Returned, $crate::CallError> {
            $to.transport(call)
        }
    };
    (@begin $self:ident $to:expr) => {
        fn begin(
            &$self,
            call: &mut $crate::call::Call<'_, '_, '_>,
        ) -> Result<$crate::call::Begun, $crate::CallError> {
            $to.begin(call)
        }
    };
    (@poll $self:ident $to:expr) => {
        fn poll(
            &$self,
            call: &mut $crate::call::Call<'_, '_, '_>,
        ) -> Option<Result<$crate::call::Returned, $crate::CallError>> {
            $to.poll(call)
        }
    };
    (@arm $self:ident $to:expr) => {
        fn arm(&$self, frame: u32, deadline: Option<std::time::Instant>) {
            $to.arm(frame, deadline);
        }
    };
    (@give_up $self:ident $to:expr) => {
        fn give_up(&$self, call: &mut $crate::call::Call<'_, '_, '_>) -> $crate::CallError {
            $to.give_up(call)
        }
    };
    (@is_prepared $self:ident $to:expr) => {
        fn is_prepared(&$self, frame: u32) -> bool {
            $to.is_prepared(frame)
        }
    };
    (@prepare $self:ident $to:expr) => {
        fn prepare(
            &$self,
            frame: u32,
            deadline: Option<std::time::Instant>,
        ) -> Result<(), $crate::CallError> {
            $to.prepare(frame, deadline)
        }
    };
    (@message_bytes $self:ident $to:expr) => {
        fn message_bytes(&$self) -> usize {
            $to.message_bytes()
        }
    };
    (@wait $self:ident $to:expr) => {
        fn wait(&$self) -> $crate::call::Wait {
            $to.wait()
        }
    };
    (@server_cpu $self:ident $to:expr) => {
        fn server_cpu(&$self, frame: u32) -> Option<u32> {
            $to.server_cpu(frame)
        }
    };
    (@retransmissions $self:ident $to:expr) => {
        fn retransmissions(&$self, frame: u32) -> u32 {
            $to.retransmissions(frame)
        }
    };
    (@kind $self:ident $to:expr) => {
        fn kind(&$self) -> $crate::call::PathKind {
            $to.kind()
        }
    };
    (@explain $self:ident $to:expr) => {
        fn explain(&$self) -> String {
            $to.explain()
        }
    };
    (@is_alive $self:ident $to:expr) => {
        fn is_alive(&$self) -> bool {
            $to.is_alive()
        }
    };
    (@captures $self:ident $to:expr) => {
        fn captures(&$self, frame: u32) -> bool {
            $to.captures(frame)
        }
    };
    (@is_released $self:ident $to:expr) => {
        fn is_released(&$self, frame: u32) -> bool {
            $to.is_released(frame)
        }
    };
}
pub(crate) use pass_on;

/// The sizes of a message and of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The size of the head in bytes.
    pub head: usize,
    /// The size in bytes of the head and the blocks that are not lent. The server copies them for the
    /// procedure.
    pub copied: usize,
    /// The size of the whole message in bytes.
    pub total: usize,
}

impl Call<'_, '_, '_> {
    /// Copies the blocks after the head (LRPC's copy A), and converts the blocks that need conversion.
    /// Returns `None` if the message does not fit the frame or would be longer than `most` bytes. The message
    /// must then be transferred in another way. A message without blocks is not compared with `most`: check
    /// [`Layout::total`]. The message is complete after the head has been flushed.
    #[inline]
    pub fn put(&mut self, most: usize) -> Option<Layout> {
        let head = self.head.len();
        if self.ins.is_empty() && self.lent.is_empty() {
            return Some(Layout { head, copied: head, total: head });
        }
        let mut at = head;
        for block in self.ins {
            at = put_block(self.head, at, block, most)?;
        }
        let copied = if self.lent.is_empty() { at } else { align_up(at) };
        for block in self.lent {
            at = put_block(self.head, at, block, most)?;
        }
        Some(Layout { head, copied, total: at.max(copied) })
    }

    /// Returns whether no block needs conversion, so that a path may send the blocks from where they
    /// are. Otherwise [`put`](Self::put) converts them.
    #[inline]
    pub fn is_unconverted(&self) -> bool {
        self.ins.iter().chain(self.lent).all(|block| block.unconverted().is_some())
    }

    /// Returns the layout of the message. Lengths that overflow are `usize::MAX`.
    pub fn layout(&self) -> Layout {
        let after = |at, block: &Block<'_>| align_up(at).saturating_add(block.len());
        let head = self.head.len();
        let at = self.ins.iter().fold(head, after);
        let copied = if self.lent.is_empty() { at } else { align_up(at) };
        let total = self.lent.iter().fold(at, after).max(copied);
        Layout { head, copied, total }
    }

    /// Copies the part of the blocks that lies between the offsets `from` and `to` of the message. `departs`
    /// writes and announces this part. Returns `None` if the part does not fit the frame.
    #[cold]
    pub fn put_part(&mut self, from: usize, to: usize, departs: &dyn Departs) -> Option<()> {
        let mut end = self.head.len();
        for block in self.ins.iter().chain(self.lent) {
            let start = align_up(end);
            let (first, last) = (end.max(from), start.min(to));
            if first < last {
                self.head.zero_at(first, last - first)?;
            }
            end = start.checked_add(block.len())?;
            let (first, last) = (start.max(from), end.min(to));
            if first < last {
                let bytes = last - first;
                stats::count(Copy::A, bytes);
                // [`Head`] writes the first bytes of the message last, even if they belong to a block.
                let here = bytes.min(FIRST_BYTES.saturating_sub(first));
                self.head.convert_to(first, block, first - start, here)?;
                let to = self.head.space().part(first + here, bytes - here)?;
                departs.write(first + here, to, block, first + here - start);
            }
        }
        Some(())
    }

    /// Fills the out blocks (copy F) from a reply that begins at offset `place` of the reply space. The table
    /// at the start of the reply has the filled lengths. Returns the offset in the reply at which the last
    /// block that is not empty ends, or 0.
    ///
    /// # Errors
    /// Fails if the server claims more bytes than were offered, or if values are invalid.
    #[inline(always)]
    pub fn take_blocks(&mut self, place: usize) -> Result<usize, Invalid> {
        // Most calls have no out blocks, and avoid a function call by this check.
        if self.outs.is_empty() { Ok(0) } else { self.take_each(place) }
    }

    fn take_each(&mut self, place: usize) -> Result<usize, Invalid> {
        let space = self.frame.reply_space();
        self.take(space, place, |capacity, _| capacity)
    }

    /// Fills the out blocks from a reply of `bytes` bytes without gaps: each block begins after the
    /// filled part of the previous block.
    ///
    /// # Errors
    /// As for [`take_blocks`](Self::take_blocks).
    pub fn take_packed_blocks(&mut self, bytes: usize) -> Result<usize, Invalid> {
        if self.outs.is_empty() {
            return Ok(0);
        }
        let space = self.frame.reply_space().part(0, bytes).ok_or(Invalid::Short)?;
        self.take(space, 0, |_, filled| filled)
    }

    #[inline(always)]
    fn take(
        &mut self,
        space: Window<'_>,
        place: usize,
        room: impl Fn(usize, usize) -> usize,
    ) -> Result<usize, Invalid> {
        take_outs(self.outs, space, place, room)
    }

    /// Fills a part of one out block early, from a reply that is still being written. The block is the one
    /// that contains offset `there` of the reply. The server has written the block up to that offset.
    pub fn take_early(&mut self, place: usize, there: usize) {
        let space = self.frame.reply_space();
        let mut at = blocks_at(self.outs.len());
        for out in self.outs.iter_mut() {
            let end = at + out.capacity();
            if there <= end {
                // `there` comes from the peer. A value outside of the blocks is ignored.
                let come = there.checked_sub(at).and_then(|bytes| space.part(place + at, bytes));
                if let Some(come) = come {
                    out.fill_early(come);
                }
                return;
            }
            at = align_up(end);
        }
    }

    /// Discards the parts of blocks that were filled early, because these parts are not valid.
    pub fn forget_early(&mut self) {
        self.outs.iter_mut().for_each(OutBlock::forget_early);
    }
}

/// Fills the out blocks (copy F) from a whole reply in `space`. Each block of the reply takes the full
/// capacity of its out block, even if it is filled only in part.
///
/// # Errors
/// As for [`Call::take_blocks`].
pub(crate) fn fill_outs(outs: &mut [OutBlock<'_>], space: Window<'_>) -> Result<usize, Invalid> {
    take_outs(outs, space, 0, |capacity, _| capacity)
}

#[inline(always)]
fn take_outs(
    outs: &mut [OutBlock<'_>],
    space: Window<'_>,
    place: usize,
    room: impl Fn(usize, usize) -> usize,
) -> Result<usize, Invalid> {
    let mut end = 0;
    let mut at = blocks_at(outs.len());
    for (i, out) in outs.iter_mut().enumerate() {
        let filled: u32 = space.read_plain(place + 4 * i).ok_or(Invalid::Short)?;
        let filled = u32::from_le(filled) as usize;
        if filled > out.capacity() {
            return Err(Invalid::TooLong);
        }
        out.fill(space.part(place + at, filled).ok_or(Invalid::Short)?)?;
        stats::count(Copy::F, filled);
        if filled > 0 {
            end = at + filled;
        }
        at = align_up(at + room(out.capacity(), filled));
    }
    Ok(end)
}

#[inline]
fn put_block(head: &mut Head<'_>, at: usize, block: &Block<'_>, most: usize) -> Option<usize> {
    let start = align_up(at);
    let end = start.checked_add(block.len()).filter(|end| *end <= most)?;
    let place = head.space().part(start, block.len())?;
    place.prefetch_write_all();
    head.zero_at(at, start.checked_sub(at)?)?;
    match block.unconverted() {
        Some(window) => head.copy_to(start, window)?,
        None => head.convert_to(start, block, 0, block.len())?,
    }
    stats::count(Copy::A, block.len());
    Some(end)
}

/// Returns the offset of the first out block of a reply. The block begins after the table, but not within the
/// first [`FIRST_BYTES`] bytes: most heads fit there, after the table.
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

#[cfg(test)]
mod whole;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Memory;
    use crate::value::{CopyMethod, Out, Space, Swap, Writer, bytes_of};
    use std::sync::Arc;

    /// Writes each part without announcing it.
    #[derive(Debug)]
    struct Silent;

    impl Departs for Silent {
        fn write(&self, _: usize, to: Space<'_>, block: &Block<'_>, from: usize) {
            block.copy_to(from, to, CopyMethod::Short);
        }
        fn there(&self, _: usize) {}
        fn changed(&self) {}
    }

    const BYTES: usize = 32 << 10;

    fn frames() -> Frames {
        let layout = FrameLayout {
            count: 2,
            first: 0,
            stride: 2 * BYTES,
            call_at: 0,
            reply_at: BYTES,
            bytes: BYTES,
        };
        Frames::new(Arc::new(Memory::private(4 * BYTES).unwrap()), layout, 2)
    }

    /// Makes a call with these blocks, of which the last is lent, and runs `body` with the call.
    fn with_call<T>(
        frames: &Frames,
        blocks: &[&[u8]],
        outs: &mut [OutBlock<'_>],
        body: impl FnOnce(&mut Call<'_, '_, '_>) -> T,
    ) -> T {
        let frame = frames.take(|| None, |_| true, OnExhausted::Wait).expect("a frame");
        let mut head = Writer::new(frame.call_space());
        (0..blocks.len() as u64 * 3).for_each(|n| head.plain(&n).unwrap());
        let windows: Vec<_> = blocks.iter().map(|block| Window::from(*block).into()).collect();
        let (ins, lent) = windows.split_at(blocks.len() - 1);
        let (head, terms) = (&mut head, CallTerms::None);
        body(&mut Call { procedure: 1, frame: &frame, head, ins, lent, outs, terms })
    }

    fn message(call: &Call<'_, '_, '_>, bytes: usize) -> Vec<u8> {
        call.head.flush();
        let mut message = vec![0; bytes];
        call.head.space().read(0, &mut message).unwrap();
        message
    }

    #[test]
    fn message_put_in_parts_equals_the_one_put_at_once() {
        let source: Vec<u8> = (1..=255).cycle().take(3000).collect();
        for sizes in [&[5][..], &[100, 700], &[0, 3, 0], &[16, 1, 2000], &[0, 0]] {
            let blocks: Vec<_> = sizes.iter().map(|bytes| &source[..*bytes]).collect();
            let whole = with_call(&frames(), &blocks, &mut [], |call| {
                let layout = call.put(usize::MAX).unwrap();
                assert_eq!(call.layout(), layout, "{sizes:?}");
                assert_eq!(call.put(layout.total), Some(layout));
                if layout.total > layout.head && sizes[0] > 0 {
                    assert_eq!(
                        call.put(layout.total - 1),
                        None,
                        "a message that is longer than the limit must be refused"
                    );
                }
                message(call, layout.total)
            });
            for piece in [1, 7, 64, 1000, 5000] {
                with_call(&frames(), &blocks, &mut [], |call| {
                    let space = call.frame.reply_to();
                    call.head.move_to(space.part(1024, BYTES - 1024).unwrap()).unwrap();
                    let total = call.layout().total;
                    for from in (0..total).step_by(piece) {
                        call.put_part(from, total.min(from + piece), &Silent).unwrap();
                    }
                    assert_eq!(message(call, total), whole, "{sizes:?} by {piece}");
                });
            }
        }
        let large = vec![0; BYTES];
        with_call(&frames(), &[&large], &mut [], |call| {
            assert_eq!(call.put(usize::MAX), None);
            assert!(call.layout().total > BYTES);
            assert_eq!(call.put_part(0, usize::MAX, &Silent), None);
        });
    }

    /// Converted blocks are the same whether they are put at once or in parts. A part may begin in the middle
    /// of a number or of a value.
    #[test]
    fn converted_blocks_put_in_parts_equal_those_put_at_once() {
        let words: Vec<u32> = (0..777).map(|n| n * 0x0001_0101).collect();
        let longs: Vec<[u64; 3]> = (0..500).map(|n| [n, !n, n << 40]).collect();
        let turned = |bytes: &[u8], unit| -> Vec<u8> {
            bytes.chunks(unit).flat_map(|number| number.iter().rev().copied()).collect()
        };
        let (ins, lent) = (bytes_of(&words), bytes_of(&longs));
        let converted = (turned(ins, 4), turned(lent, 8));
        let whole = with_call(&frames(), &[&converted.0, &converted.1], &mut [], |call| {
            let layout = call.put(usize::MAX).unwrap();
            message(call, layout.total)
        });
        let swaps = [Swap::of::<u32>(), Swap::of::<[u64; 3]>()];
        for piece in [None, Some(1), Some(13), Some(1000), Some(8192)] {
            with_call(&frames(), &[ins, lent], &mut [], |call| {
                assert!(call.is_unconverted());
                let [ins, lent] = [(call.ins[0], swaps[0]), (call.lent[0], swaps[1])]
                    .map(|(block, swap)| [Block::new(block.unconverted().unwrap(), swap)]);
                let (head, frame) = (&mut *call.head, call.frame);
                let mut call = Call {
                    procedure: 1,
                    frame,
                    head,
                    ins: &ins,
                    lent: &lent,
                    outs: &mut [],
                    terms: CallTerms::None,
                };
                assert!(!call.is_unconverted());
                let total = call.layout().total;
                match piece {
                    None => assert_eq!(call.put(total).unwrap().total, total),
                    Some(piece) => (0..total).step_by(piece).for_each(|from| {
                        call.put_part(from, total.min(from + piece), &Silent).unwrap();
                    }),
                }
                assert_eq!(message(&call, total), whole, "by {piece:?}");
            });
        }
    }

    #[test]
    fn early_bytes_go_to_the_block_that_was_announced() {
        let (mut one, mut other, mut flags) = ([0_u8; 10_000], [0_u8; 20_000], [false; 10]);
        let (mut a, mut b) = (Out::from(&mut one), Out::from(&mut other));
        let mut c = Out::from(&mut flags);
        let mut outs = [a.block(), b.block(), c.block()];
        with_call(&frames(), &[&[]], &mut outs, |call| {
            // The reply has 32 bytes of table and head, and then the blocks one after the other.
            let reply = call.frame.reply_to();
            reply.write(1000, &[1; 30_042]).unwrap();
            call.take_early(1000, 32 + 5000);
            call.take_early(1000, 10_032 + 20_000);
            call.take_early(1000, 30_032 + 10);
            // Offsets outside of the blocks are ignored.
            for nowhere in [0, 31, 32, 30_043, usize::MAX] {
                call.take_early(1000, nowhere);
            }
            reply.write(1000, &[2; 30_042]).unwrap();
            [6000_u32, 12_000, 0].iter().zip([0, 4, 8]).for_each(|(filled, at)| {
                reply.write_plain(1000 + at, filled).unwrap();
            });
            assert_eq!(call.take_blocks(1000), Ok(10_032 + 12_000));
        });
        assert_eq!((a.filled(), b.filled(), c.filled()), (6000, 12_000, 0));
        assert_eq!((one[4999], one[5000], one[5999], one[6000]), (1, 2, 2, 0));
        assert_eq!(other, [1; 20_000], "bytes that were filled early are not read again");
        assert_eq!(flags, [false; 10], "values that must be checked are not filled early");
    }
}
