//! The server's side of a call: the server copies the arguments, runs the procedure, and answers. These steps
//! are the same on every path.

use std::sync::Arc;

use super::accounted::{self, SPECIAL};
use super::batch::{BATCH, serve_batch};
use super::deferred::Answered;
use super::request::Refusal;
use super::streams::{STREAMS, serve_streams};
use super::{Caller, PING, Reply, Request};
use super::{ForeignCall, ServedForeign};
use crate::error::{Executed, Kind};
use crate::interface::InterfaceRef;
use crate::limits;
use crate::stats::{self, Copy};
use crate::value::{
    Arrives, Arriving, ByteOrder, Departs, FIRST_BYTES, Space, Window, bytes_of_blocks,
};

/// The outcome of serving a call.
pub type Served = Result<(), Refusal>;

/// A server stub: takes the arguments, calls the object, and writes the result.
pub trait Serve: Send + Sync {
    /// Returns the interface that is served.
    fn interface(&self) -> InterfaceRef;

    /// Returns the byte order of the values that the stub takes and returns. Clients learn this order when
    /// they bind.
    #[doc(hidden)]
    fn byte_order(&self) -> ByteOrder {
        ByteOrder::NATIVE
    }

    /// Returns whether the procedures are async: a call may then take long without occupying a thread.
    #[doc(hidden)]
    fn is_async(&self) -> bool {
        false
    }

    /// Returns a server of the same object, which can run calls after the current call has ended. An async
    /// server needs the returned server for batches of one-way calls. If `None` is returned, the thread that
    /// receives such a batch waits for the end of each call.
    #[doc(hidden)]
    fn shared(&self) -> Option<Arc<dyn Serve>> {
        None
    }

    /// Notes that the server has refused a call before it reached this stub. `procedure` is the number of the
    /// procedure, and `bytes` the size of the call's message.
    #[doc(hidden)]
    fn refused(&self, procedure: u32, bytes: usize, caller: &Caller, refusal: &Refusal) {
        let _ = (procedure, bytes, caller, refusal);
    }

    /// Returns the names of procedures that only some callers may call, with the patterns of which a caller
    /// must match one: `#[callers("PATTERN")]`.
    #[doc(hidden)]
    fn allowed(&self) -> &'static [(&'static str, &'static [&'static str])] {
        &[]
    }

    /// Returns the names of procedures of which only some calls may run at once, with their number:
    /// `#[at_most(N)]`.
    #[doc(hidden)]
    fn at_most(&self) -> &'static [(&'static str, u32)] {
        &[]
    }

    /// Returns the names of procedures with `#[within(TIME)]`. With each: the time in nanoseconds, and of how many
    /// calls in 1,000 it is promised.
    #[doc(hidden)]
    fn within(&self) -> &'static [(&'static str, (u64, u32))] {
        &[]
    }

    /// Runs one call of a client of another RPC system. Appends the results to `results`.
    ///
    /// # Errors
    /// If the interface is no program of this system, the arguments are not readable, or the procedure fails.
    #[doc(hidden)]
    fn serve_foreign(&self, call: &ForeignCall<'_>, results: &mut Vec<u8>) -> ServedForeign {
        let _ = results;
        Err(Refusal::no_such_program(call.system))
    }

    /// Runs one call.
    ///
    /// Fails if the arguments are not readable, or the result does not fit.
    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served;
}

impl core::fmt::Debug for dyn Serve + '_ {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Serve").field("interface", &self.interface()).finish_non_exhaustive()
    }
}

/// What the head of a reply contains. The numbers are the same on every path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Answer {
    /// The value of `Ok`, then in-out values.
    Ok = 0,
    /// The procedure's own error.
    Err = 1,
    /// Why the call was refused before it ran: a kind and a text.
    NotExecuted = 2,
    /// Why there is no result although the call may have run: a kind and a text.
    MayHaveExecuted = 3,
    /// Nothing. The call did not run, because its message did not arrive completely in time. The client must
    /// post the call again when the message is complete.
    PostAgain = 4,
    /// Nothing yet: another thread sends the reply later. This number is never sent.
    Deferred = 5,
}

impl Answer {
    /// Returns the answer with this number, or `None` if there is none.
    #[inline]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Ok,
            1 => Self::Err,
            2 => Self::NotExecuted,
            3 => Self::MayHaveExecuted,
            4 => Self::PostAgain,
            _ => return None,
        })
    }
}

/// A server thread's private memory for arguments (LRPC's E-stack). It protects the procedure from a caller
/// that changes the arguments while the procedure runs.
#[derive(Debug, Default)]
pub struct EStack(Vec<u128>);

impl EStack {
    /// Grows the E-stack to at least `bytes` bytes. Returns false if there is no memory.
    #[inline]
    pub fn reserve(&mut self, bytes: usize) -> bool {
        let blocks = bytes.div_ceil(16).max(FIRST_BYTES / 16);
        self.0.len() >= blocks || self.grow(blocks)
    }

    #[cold]
    fn grow(&mut self, blocks: usize) -> bool {
        let more = blocks - self.0.len();
        if self.0.try_reserve_exact(more).is_err() {
            return false;
        }
        self.0.resize(blocks, 0);
        true
    }

    /// Returns the whole memory, aligned to 16 bytes.
    #[inline]
    pub(crate) fn memory(&mut self) -> &mut [u8] {
        bytes_of_blocks(&mut self.0)
    }

    /// Releases memory that a large message needed and most messages do not need.
    pub fn trim(&mut self) {
        self.0.truncate(limits::ESTACK_BYTES_KEPT / 16);
        self.0.shrink_to(limits::ESTACK_BYTES_KEPT / 16);
    }
}

/// A call that has arrived in memory which the caller may still write.
#[derive(Clone, Copy)]
pub struct Incoming<'a> {
    /// The procedure's number.
    pub procedure: u32,
    /// The space that contains the message.
    pub space: Window<'a>,
    /// The size of the head in bytes.
    pub head_bytes: usize,
    /// The size in bytes of the part that is copied for the procedure: the head and the blocks that are not
    /// lent.
    pub copied: usize,
    /// The size of the message in bytes.
    pub total: usize,
    /// Reports how much of the message has arrived. `None` if the message is complete.
    pub arrives: Option<&'a dyn Arrives>,
    /// Announces written parts of the reply to the caller. `None` if the caller reads only complete replies.
    pub departs: Option<&'a dyn Departs>,
}

/// A call that has arrived completely in private memory.
#[derive(Debug)]
pub(crate) struct Placed<'a> {
    /// The procedure's number.
    pub(crate) procedure: u32,
    /// The message, aligned to 16. The procedure may change it.
    pub(crate) message: &'a mut [u8],
    /// The size of the head in bytes.
    pub(crate) head_bytes: usize,
    /// The size in bytes of the head and the blocks that are not lent.
    pub(crate) copied: usize,
}

/// The outcome of a call that was run.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// What the head of the reply contains.
    pub answer: Answer,
    /// The offset of the head in the reply.
    pub head_at: u32,
    /// The size of the head in bytes.
    pub head_bytes: u32,
    /// The number of bytes that were filled in the out blocks.
    pub block_bytes: usize,
    /// Whether the counters leave out this call: it carried items of streams, or a batch whose calls are
    /// counted instead.
    pub is_uncounted: bool,
}

/// Runs a call and writes its answer to `reply`.
///
/// # Panics
/// Panics if the procedure panics. Nothing that a caller sends causes a panic here.
#[inline(always)]
pub fn execute<'a>(
    serve: &dyn Serve,
    incoming: &Incoming<'a>,
    reply: Space<'a>,
    estack: &'a mut EStack,
) -> Ran {
    run(serve, Reply::new(reply, incoming.departs), || incoming.fetch(estack))
}

/// Runs a call on arguments in private memory, without copying them. Stores in `blocks` at which offset
/// of `reply` each out block begins, so that only the filled parts are sent.
///
/// # Panics
/// As for [`execute`].
pub(crate) fn execute_in_place<'a>(
    serve: &dyn Serve,
    placed: Placed<'a>,
    reply: Space<'a>,
    blocks: &'a mut Vec<u32>,
) -> Ran {
    run(serve, Reply::noting(reply, blocks), || placed.request())
}

#[inline(always)]
fn run<'a>(
    serve: &dyn Serve,
    mut reply: Reply<'a>,
    request: impl FnOnce() -> Result<Option<Request<'a>>, Undone>,
) -> Ran {
    let ran = match request() {
        Ok(Some(mut request)) if request.procedure() >= SPECIAL => {
            built_in(serve, &mut request, &mut reply)
        }
        Ok(Some(mut request)) => serve.serve(&mut request, &mut reply).map_err(Undone::Refused),
        // The call is a ping, so nothing is run.
        Ok(None) => Ok(()),
        Err(undone) => Err(undone),
    };
    match ran {
        Ok(()) => {}
        Err(Undone::Refused(refusal)) => reply.refuse(&refusal),
        Err(Undone::NotWhole) => reply.answer = Answer::PostAgain,
    }
    finish(&reply)
}

/// Serves a call of a built-in procedure, which every export has and no stub implements, or a call of an
/// account.
#[cold]
fn built_in(
    serve: &dyn Serve,
    request: &mut Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Undone> {
    if let Some(procedure) = accounted::unmarked(request.procedure()) {
        return accounted::serve(serve, request, reply, procedure).map_err(Undone::Refused);
    }
    let served = match request.procedure() {
        BATCH => serve_batch(serve, request, reply),
        STREAMS => serve_streams(request, reply),
        number => accounted::built_in(request, reply, number),
    };
    reply.is_uncounted = served.is_ok();
    served.map_err(Undone::Refused)
}

/// Writes a refusal to `reply`, without running a procedure.
#[cold]
pub(crate) fn refuse(reply: Space<'_>, refusal: &Refusal) -> Ran {
    let mut reply = Reply::new(reply, None);
    reply.refuse(refusal);
    finish(&reply)
}

/// Writes the result of a deferred call to `reply`.
///
/// Stores in `blocks` at which offset of `reply` each out block begins.
pub(crate) fn write_later(answered: &Answered, reply: Space<'_>, blocks: &mut Vec<u32>) -> Ran {
    let mut reply = Reply::noting(reply, blocks);
    if let Err(refusal) = answered.write(&mut reply) {
        reply.refuse(&refusal);
    }
    finish(&reply)
}

/// Writes the result of a deferred call to `reply`, without the unfilled parts of blocks. Returns the
/// outcome, and the number of bytes of the reply. `reply` has at least [`Answered::packed_bytes`] bytes.
pub(crate) fn pack_later(answered: &Answered, reply: Space<'_>) -> (Ran, usize) {
    let mut reply = Reply::new(reply, None);
    if let Err(refusal) = answered.write_packed(&mut reply) {
        reply.refuse(&refusal);
    }
    let ran = finish(&reply);
    let bytes = match ran.answer {
        Answer::Ok => answered.packed_bytes(),
        _ => (ran.head_at + ran.head_bytes) as usize,
    };
    (ran, bytes)
}

/// Completes the reply.
#[inline(always)]
pub(super) fn finish(reply: &Reply<'_>) -> Ran {
    reply.flush();
    // Both numbers fit 32 bits, because they are at most the size of an A-stack.
    let (head_at, head_bytes) = (reply.head_at as u32, reply.head_bytes as u32);
    let (answer, block_bytes, is_uncounted) = (reply.answer, reply.block_bytes, reply.is_uncounted);
    Ran { answer, head_at, head_bytes, block_bytes, is_uncounted }
}

/// Why a call ended without an answer of its procedure.
enum Undone {
    Refused(Refusal),
    /// The message of the call did not arrive completely.
    NotWhole,
}

impl From<Refusal> for Undone {
    #[cold]
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Copies a message that is still being written. Copies each part as soon as it has arrived.
#[cold]
fn follow(space: Window<'_>, message: &mut [u8], arrives: &dyn Arrives) -> Result<(), Undone> {
    let part = space.part(0, message.len()).ok_or(Undone::NotWhole)?;
    Arriving::new(part, 0, Some(arrives)).read(message).map_err(|_| Undone::NotWhole)
}

#[cold]
fn unreadable() -> Refusal {
    Refusal::new(Kind::BadArguments, "the lengths in the message contradict each other")
}

impl<'a> Incoming<'a> {
    /// Copies the head and the blocks that are not lent, and returns the request. Returns `None` for the ping
    /// procedure, which every export has.
    #[inline(always)]
    fn fetch(&self, estack: &'a mut EStack) -> Result<Option<Request<'a>>, Undone> {
        let &Self { procedure, space, head_bytes, copied, total, arrives, .. } = self;
        if procedure == PING && total == 0 {
            return Ok(None);
        }
        // The lengths are checked before any byte is fetched: reading pages that the client never wrote would
        // allocate the pages. A message of a binding is at most as large as the export allows, so the E-stack
        // is limited, too.
        if head_bytes > copied || copied > total || total > space.len() {
            return Err(unreadable().into());
        }
        if !estack.reserve(copied) {
            return Err(Refusal::new(Kind::Exhausted, "no memory for the arguments").into());
        }
        let memory = estack.memory();
        let line = memory.first_chunk_mut::<FIRST_BYTES>();
        if copied <= FIRST_BYTES
            && let (Some(line), Some(first)) = (line, space.read_plain(0))
        {
            // The whole message is in the cache line of the header. So a fixed size is copied, in registers.
            *line = first;
        } else {
            let message = memory.get_mut(..copied).ok_or_else(unreadable)?;
            match arrives {
                None => space.read(0, message).ok_or_else(unreadable)?,
                Some(arrives) => follow(space, message, arrives)?,
            }
        }
        let message = memory.get_mut(..copied).ok_or_else(unreadable)?;
        stats::count(Copy::E, message.len());
        let lent = total.checked_sub(copied).and_then(|bytes| space.part(copied, bytes));
        let lent = Arriving::new(lent.ok_or_else(unreadable)?, copied, arrives);
        if total > copied && arrives.is_some_and(|arrives| !arrives.lend()) {
            return Err(Undone::NotWhole);
        }
        let request = Request::new(procedure, message, head_bytes, lent);
        Ok(Some(request.ok_or_else(unreadable)?))
    }
}

impl<'a> Placed<'a> {
    fn request(self) -> Result<Option<Request<'a>>, Undone> {
        let Self { procedure, message, head_bytes, copied } = self;
        if procedure == PING && message.is_empty() {
            return Ok(None);
        }
        let (message, lent) = message.split_at_mut_checked(copied).ok_or_else(unreadable)?;
        let lent = Arriving::from(Window::from(&*lent));
        let request = Request::new(procedure, message, head_bytes, lent);
        Ok(Some(request.ok_or_else(unreadable)?))
    }
}

impl Refusal {
    /// Makes the refusal for a procedure that panicked with this payload.
    #[cold]
    pub(crate) fn panicked(panic: Box<dyn core::any::Any + Send>) -> Self {
        let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(text), _) => (*text).to_owned(),
            (_, Some(text)) => text.clone(),
            _ => String::new(),
        };
        // Dropping the payload would run code of the procedure, and this code may panic again.
        core::mem::forget(panic);
        Self { kind: Kind::Panicked, executed: Executed::Maybe, text }
    }
}
