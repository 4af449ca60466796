//! [`Task`]: the procedure of a call of an async server, from its first poll to its reply.

use core::fmt;
use core::pin::Pin;
use core::sync::atomic::AtomicU32;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::Wake;

use super::executor::{Executor, Threads};
use super::{Cancels, Owed};
use crate::call::caller::Conditions;
use crate::call::pending::{Bells, Rings};
use crate::call::request::Refusal;
use crate::call::serve::{EStack, Served};
use crate::call::{Answer, Reply, Request, blocks_at};
use crate::sync::{Condvar, Mutex};
use crate::value::{Overflow, Plain, Space, Value, Window, Writer, align_up, bytes_of};

/// How often a thread that waits for a procedure checks whether the caller has given up the call.
const CHECK_EVERY: Duration = Duration::from_millis(10);
/// The number of bytes of the memory in which heads of results are first written.
const HEAD_BYTES: usize = 256;

/// A received call, with its message in memory of its own.
#[derive(Debug)]
pub struct OwnedCall {
    procedure: u32,
    memory: EStack,
    /// The offsets at which the head, the copied blocks and the lent blocks end.
    ends: [usize; 3],
    /// The number of bytes that a result may have.
    room: usize,
}

impl OwnedCall {
    fn of(request: &mut Request<'_>, reply: &Reply<'_>) -> Result<Self, Refusal> {
        let mut memory = EStack::default();
        let ends = request.copy_to(&mut memory)?;
        Ok(Self { procedure: request.procedure(), memory, ends, room: reply.bytes() })
    }

    /// Returns the procedure's number.
    pub const fn procedure(&self) -> u32 {
        self.procedure
    }

    /// Returns the number of bytes that the `outs` blocks of a result may have.
    pub const fn room(&self, outs: usize) -> usize {
        self.room.saturating_sub(blocks_at(outs)) & !15
    }

    /// Returns the request, from which the arguments are taken. They borrow the memory of this call.
    ///
    /// # Errors
    /// Fails if the lengths in the message contradict each other.
    pub fn request(&mut self) -> Result<Request<'_>, Refusal> {
        let [head, copied, end] = self.ends;
        let (message, lent) = self.memory.memory()[..end].split_at_mut(copied);
        let lent = Window::from(&*lent).into();
        let request = Request::new(self.procedure, message, head, lent);
        request.ok_or_else(|| {
            Refusal::new(crate::error::Kind::BadArguments, "the message is too short")
        })
    }
}

/// The result of a procedure: encoded, and still in memory of its own.
#[derive(Debug)]
pub struct Answered(Result<Encoded, Refusal>);

#[derive(Debug)]
struct Encoded {
    answer: Answer,
    head: Vec<u8>,
    blocks: Vec<OutBytes>,
}

/// The bytes of an out block, and the number of bytes that the caller has offered for the block.
type OutBytes = (Vec<u8>, usize);

const fn filled((bytes, _): &OutBytes) -> usize {
    bytes.len()
}

const fn offered((_, capacity): &OutBytes) -> usize {
    *capacity
}

impl Answered {
    /// Returns the value of `Ok`, with the blocks of the out parameters, and what `more` appends to the head.
    pub fn ok<T: Value>(
        value: &T,
        blocks: Vec<(Vec<u8>, usize)>,
        more: impl Fn(&mut Writer<'_>) -> Result<(), Overflow>,
    ) -> Self {
        let encode = |head: &mut Writer<'_>| {
            value.encode(head)?;
            more(head)
        };
        Self(encoded(encode).map(|head| Encoded { answer: Answer::Ok, head, blocks }))
    }

    /// Returns the procedure's own error.
    pub fn err<E: Value>(error: &E) -> Self {
        let head = encoded(|head| error.encode(head));
        Self(head.map(|head| Encoded { answer: Answer::Err, head, blocks: Vec::new() }))
    }

    /// Returns the bytes of the values of an out parameter, or of an in-out slice.
    pub fn block<T: Plain>(values: &[T]) -> Vec<u8> {
        bytes_of(values).to_vec()
    }

    /// Returns the block of an in-out slice, and its size. It is empty if the values are not plain.
    pub fn in_out<T: Value>(values: &[T]) -> (Vec<u8>, usize) {
        let bytes = T::as_block(values).unwrap_or(&[]);
        (bytes.to_vec(), bytes.len())
    }

    /// Appends the values of an in-out slice to the head, if they are not plain.
    ///
    /// # Errors
    /// Fails if the values do not fit.
    pub fn in_out_head<T: Value>(values: &[T], head: &mut Writer<'_>) -> Result<(), Overflow> {
        if T::PLAIN {
            return Ok(());
        }
        head.count(values.len())?;
        head.deeper(|head| T::encode_all(values, head))
    }

    /// Returns what the head of the reply contains.
    pub(crate) fn answer(&self) -> Answer {
        match &self.0 {
            Ok(encoded) => encoded.answer,
            Err(refusal) => refusal.answer(),
        }
    }

    /// Returns this result, or a refusal if the result does not fit a reply of `room` bytes. In this reply,
    /// blocks are as large as the caller has offered, so that it does not matter how the result is sent.
    pub(crate) fn within(self, room: usize) -> Self {
        let fits = |encoded: &Encoded| encoded.reply_bytes(offered) <= align_up(room);
        match &self.0 {
            Ok(encoded) if !fits(encoded) => Refusal::unwritten(Overflow::Full, room).into(),
            _ => self,
        }
    }

    /// Returns the largest size in bytes of a [packed](Self::write_packed) reply.
    pub(crate) fn packed_bytes(&self) -> usize {
        match &self.0 {
            Ok(encoded) => encoded.reply_bytes(filled),
            Err(refusal) => refusal.bytes_max(),
        }
    }

    /// Writes the result to a reply. Returns how the path proceeds, as
    /// [`Serve::serve`](crate::call::Serve::serve) does.
    ///
    /// # Errors
    /// Fails if the call was refused, or the result does not fit.
    pub(crate) fn write(&self, reply: &mut Reply<'_>) -> Served {
        self.write_sized(reply, offered)
    }

    /// Writes the result to a reply as [`write`](Self::write) does, but without the unfilled parts of blocks.
    ///
    /// # Errors
    /// Fails if the call was refused, or the reply has fewer than [`packed_bytes`](Self::packed_bytes) bytes.
    pub(crate) fn write_packed(&self, reply: &mut Reply<'_>) -> Served {
        self.write_sized(reply, filled)
    }

    fn write_sized(&self, reply: &mut Reply<'_>, size: fn(&OutBytes) -> usize) -> Served {
        let encoded = self.0.as_ref().map_err(Clone::clone)?;
        reply.expect(encoded.blocks.len());
        for (index, block) in encoded.blocks.iter().enumerate() {
            let (size, (bytes, _)) = (size(block), block);
            let block = reply.block(size).ok_or_else(|| Refusal::no_room(size, reply))?;
            block.write(0, bytes).ok_or_else(|| Refusal::no_room(size, reply))?;
            reply.filled(index, bytes.len())?;
        }
        reply.raw(encoded.answer, &encoded.head)
    }
}

impl Encoded {
    /// Returns the number of bytes of a reply whose blocks have the sizes that `size` returns. As in [`Reply`],
    /// the head is between the table and the first block if it fits there, and otherwise after the blocks.
    fn reply_bytes(&self, size: fn(&OutBytes) -> usize) -> usize {
        let (table, first) = (4 * self.blocks.len(), blocks_at(self.blocks.len()));
        let end = self.blocks.iter().fold(first, |at, block| align_up(at + size(block)));
        if table + self.head.len() > first { end + self.head.len() } else { end }
    }
}

impl From<Refusal> for Answered {
    fn from(refusal: Refusal) -> Self {
        Self(Err(refusal))
    }
}

/// Encodes the head of a result, which may have any length.
fn encoded(encode: impl Fn(&mut Writer<'_>) -> Result<(), Overflow>) -> Result<Vec<u8>, Refusal> {
    let mut bytes = HEAD_BYTES;
    loop {
        let mut memory: Vec<u128> = Vec::new();
        if memory.try_reserve_exact(bytes / 16).is_err() {
            return Err(Refusal::bad_result("no memory for the result".into()));
        }
        memory.resize(bytes / 16, 0);
        let memory = crate::value::bytes_of_blocks(&mut memory);
        let mut head = Writer::new(Space::of_mut(memory));
        match encode(&mut head) {
            Ok(()) => {
                head.flush();
                let length = head.len();
                return Ok(memory[..length].to_vec());
            }
            Err(Overflow::Full) if bytes < crate::limits::MESSAGE_BYTES_MAX => bytes *= 4,
            Err(overflow) => return Err(Refusal::bad_result(overflow.to_string())),
        }
    }
}

type Procedure = Pin<Box<dyn Future<Output = Answered> + Send>>;

/// A procedure that has been polled at least once, and has not ended.
pub(super) struct Task {
    inner: Mutex<Inner>,
    executor: Option<Arc<dyn Executor>>,
    conditions: Conditions,
}

struct Inner {
    phase: Phase,
    /// The procedure. `None` while it is polled, and after its end.
    procedure: Option<Procedure>,
    /// The duty to reply. `None` before the call was deferred, and after the reply.
    owed: Option<Box<dyn Owed>>,
    /// Whether the procedure was woken while it was polled.
    woken: bool,
    /// Whether the call was cancelled while the procedure was polled.
    cancelled: bool,
    /// The waker of the executor to which the task was passed.
    remote: Option<Waker>,
    /// The timer that cancels the call at its deadline.
    deadline: Option<Arc<dyn Rings>>,
}

/// The phases of a task, in their order. `Idle`, `Scheduled` and `Polled` repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A thread polls the procedure.
    Polled,
    /// The procedure waits to be woken.
    Idle,
    /// The procedure was woken, and waits to be polled.
    Scheduled,
    /// The procedure has ended, or was dropped.
    Done,
}

/// Serves a call of an async server: makes the procedure with `make`, and polls it. If it does not end at once,
/// the call is deferred.
///
/// # Errors
/// Fails if the message does not arrive completely, the call was refused, or the result does not fit.
pub fn serve_async<F>(
    executor: Option<&Arc<dyn Executor>>,
    request: &mut Request<'_>,
    reply: &mut Reply<'_>,
    make: impl FnOnce(OwnedCall) -> F,
) -> Served
where
    F: Future<Output = Answered> + Send + 'static,
{
    let call = OwnedCall::of(request, reply)?;
    let mut procedure: Procedure = Box::pin(make(call));
    let task = Arc::new(Task {
        inner: Mutex::new(Inner {
            phase: Phase::Polled,
            procedure: None,
            owed: None,
            woken: false,
            cancelled: false,
            remote: None,
            deadline: None,
        }),
        executor: executor.cloned(),
        conditions: Conditions::of_thread(),
    });
    let waker = Waker::from(Arc::clone(&task));
    let mut polled = Poll::Pending;
    let mut poll = || polled = procedure.as_mut().poll(&mut Context::from_waker(&waker));
    match executor {
        Some(executor) => executor.enter(&mut poll),
        None => poll(),
    }
    if let Poll::Ready(answered) = polled {
        return answered.write(reply);
    }
    let source = task.conditions.source();
    let source = source.map(|(calls, call)| (Arc::clone(calls), call));
    let cancels: Arc<dyn Cancels> = Arc::clone(&task) as _;
    let owed = source.as_ref().and_then(|(calls, call)| Arc::clone(calls).defer(*call, cancels));
    match owed {
        Some(owed) => {
            reply.defer();
            task.begin_waiting(procedure, owed);
            Ok(())
        }
        None => {
            let wait = Arc::new(ThreadWait::default());
            task.begin_waiting(procedure, Box::new(Arc::clone(&wait)));
            let is_given_up =
                || source.as_ref().is_some_and(|(calls, call)| calls.is_given_up(*call));
            wait.answer(&task, is_given_up).write(reply)
        }
    }
}

impl Task {
    /// Ends the first poll: the procedure waits to be woken, and `owed` sends the reply.
    fn begin_waiting(self: &Arc<Self>, procedure: Procedure, owed: Box<dyn Owed>) {
        let deadline = self.conditions.due().and_then(|due| {
            let timer: Arc<dyn Rings> = Arc::new(Deadline(Arc::downgrade(self)));
            let set = Bells::of_process().watch(&timer, 0, Some(due), false);
            set.is_ok().then_some(timer)
        });
        let mut inner = self.inner.lock();
        inner.owed = Some(owed);
        inner.deadline = deadline;
        drop(inner);
        self.end_poll(procedure, Poll::Pending);
    }

    /// Polls the procedure, if it was woken and the task was not passed to another executor.
    pub(super) fn run(self: Arc<Self>) {
        let Some(procedure) = self.begin_poll() else { return };
        let waker = Waker::from(Arc::clone(&self));
        self.poll(procedure, &mut Context::from_waker(&waker));
    }

    fn begin_poll(&self) -> Option<Procedure> {
        let mut inner = self.inner.lock();
        if inner.phase != Phase::Scheduled {
            return None;
        }
        inner.phase = Phase::Polled;
        inner.woken = false;
        inner.procedure.take()
    }

    fn poll(self: &Arc<Self>, mut procedure: Procedure, context: &mut Context<'_>) {
        let entered = self.conditions.enter();
        let polled = catch_unwind(AssertUnwindSafe(|| procedure.as_mut().poll(context)));
        drop(entered);
        let polled = polled.unwrap_or_else(|panic| Poll::Ready(Refusal::panicked(panic).into()));
        self.end_poll(procedure, polled);
    }

    /// Ends a poll: keeps the procedure, or sends the reply.
    fn end_poll(self: &Arc<Self>, procedure: Procedure, polled: Poll<Answered>) {
        let mut inner = self.inner.lock();
        let answered = match polled {
            Poll::Ready(answered) => answered,
            Poll::Pending if inner.cancelled => cancelled(),
            Poll::Pending => {
                inner.procedure = Some(procedure);
                let again = inner.woken;
                inner.phase = if again { Phase::Scheduled } else { Phase::Idle };
                drop(inner);
                if again {
                    self.schedule();
                }
                return;
            }
        };
        inner.phase = Phase::Done;
        let (owed, deadline) = (inner.owed.take(), inner.deadline.take());
        drop(inner);
        clear(deadline);
        discard(procedure);
        if let Some(owed) = owed {
            owed.answer(answered);
        }
    }

    /// Has the procedure polled soon. Its phase is `Scheduled`.
    fn schedule(self: &Arc<Self>) {
        let Some(executor) = &self.executor else {
            return Threads::of_process().schedule(Arc::clone(self));
        };
        let mut inner = self.inner.lock();
        if let Some(remote) = &inner.remote {
            let remote = remote.clone();
            drop(inner);
            return remote.wake();
        }
        // From now on, wake-ups go to the waker with which the executor polls. Until its first poll, there is
        // nothing to wake.
        inner.remote = Some(Waker::noop().clone());
        drop(inner);
        let rest = Box::pin(Rest(Arc::clone(self)));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| executor.spawn(rest))) {
            // The panic has dropped the rest of the task, so the call is cancelled.
            core::mem::forget(panic);
        }
    }
}

/// Makes the refusal for a call that was cancelled while its procedure ran.
fn cancelled() -> Answered {
    Refusal::abandoned("its caller has given up").into()
}

/// Cancels a deferred call at its deadline.
struct Deadline(Weak<Task>);

impl Rings for Deadline {
    fn word(&self, _: u32) -> Option<(&AtomicU32, u32)> {
        None
    }
    fn examine(&self, _: u32) {}
    fn ring(&self, _: u32) {
        if let Some(task) = self.0.upgrade() {
            task.cancel();
        }
    }
}

/// Removes the timer of a call that has ended.
fn clear(deadline: Option<Arc<dyn Rings>>) {
    if let Some(timer) = deadline {
        Bells::of_process().forget(&timer, 0);
    }
}

/// Drops a procedure, whose drop may panic.
fn discard(procedure: Procedure) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(procedure))) {
        // Dropping the payload would run code of the procedure, which may panic again.
        core::mem::forget(panic);
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let mut inner = self.inner.lock();
        match inner.phase {
            Phase::Polled => inner.woken = true,
            Phase::Idle => {
                inner.phase = Phase::Scheduled;
                drop(inner);
                self.schedule();
            }
            Phase::Scheduled | Phase::Done => {}
        }
    }
}

impl Cancels for Task {
    fn cancel(self: Arc<Self>) {
        let mut inner = self.inner.lock();
        match inner.phase {
            Phase::Polled => inner.cancelled = true,
            Phase::Done => {}
            Phase::Idle | Phase::Scheduled => {
                inner.phase = Phase::Done;
                let (procedure, owed) = (inner.procedure.take(), inner.owed.take());
                let (remote, deadline) = (inner.remote.take(), inner.deadline.take());
                drop(inner);
                clear(deadline);
                if let Some(procedure) = procedure {
                    discard(procedure);
                }
                if let Some(owed) = owed {
                    owed.answer(cancelled());
                }
                // The executor then drops its part of the task.
                if let Some(remote) = remote {
                    remote.wake();
                }
            }
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").finish_non_exhaustive()
    }
}

/// The polls of a task after the first one, as a future for an [`Executor`].
struct Rest(Arc<Task>);

impl Future for Rest {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.0.inner.lock();
        inner.remote = Some(context.waker().clone());
        match inner.phase {
            Phase::Done => return Poll::Ready(()),
            Phase::Idle | Phase::Scheduled => {}
            // The last poll of another thread has not ended.
            Phase::Polled => {
                inner.woken = true;
                return Poll::Pending;
            }
        }
        inner.phase = Phase::Polled;
        inner.woken = false;
        let procedure = inner.procedure.take();
        drop(inner);
        let Some(procedure) = procedure else { return Poll::Ready(()) };
        self.0.poll(procedure, context);
        if self.0.inner.lock().phase == Phase::Done { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        // If the executor drops this before its end, for example because it shuts down, the procedure can never
        // end.
        self.0.inner.lock().remote = None;
        Arc::clone(&self.0).cancel();
    }
}

/// The wait of a thread for the end of a procedure, if the path of the call cannot defer replies.
#[derive(Debug, Default)]
struct ThreadWait {
    answered: Mutex<Option<Answered>>,
    ended: Condvar,
}

impl Owed for Arc<ThreadWait> {
    fn answer(self: Box<Self>, answered: Answered) {
        *self.answered.lock() = Some(answered);
        self.ended.notify_one();
    }
}

impl ThreadWait {
    /// Waits for the result. Cancels the call if its caller gives it up.
    fn answer(&self, task: &Arc<Task>, is_given_up: impl Fn() -> bool) -> Answered {
        loop {
            let answered = self.answered.lock();
            let (mut answered, _) =
                self.ended.wait_timeout_while(answered, CHECK_EVERY, |answered| answered.is_none());
            if let Some(answered) = answered.take() {
                return answered;
            }
            drop(answered);
            if is_given_up() {
                Arc::clone(task).cancel();
            }
        }
    }
}
