//! The runtime of the async client stubs: the same steps as in [`compiled`](super::compiled), but nothing
//! waits in the calling thread.
//!
//! A stub takes a frame ([`AsyncCall::frame`]), writes the arguments to it and begins the call
//! ([`AsyncFrame::begin`]), and awaits the result ([`AsyncFrame::ended`]). The arguments are copied or sent
//! when the call begins. A future that is dropped while its call is pending gives up the call: the server is
//! notified, and the frame is captured until the server has released it.

use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use super::compiled::{Arguments, Outcome, Returned, after, failed, forked, no_frame, turned_over};
use super::lane::{Company, Failure, Lane, ResultBytes, Role, Ticket};
use super::looking::{Looked, Looking, looks_for, shares_cpu, spin};
use super::streams::{OpenConduit, Streams};
use crate::binding::{Again, BindOptions, Binding, Bound};
use crate::call::batch::ResultRecord;
use crate::call::pending::unblock;
use crate::call::{self, Answer, Begun, Call, CallTerms, FrameGuard, Wait, fill_outs, inside};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::foreign::Cells;
use crate::interface::InterfaceRef;
use crate::value::{
    Block, Native, OutBlock, Representation, Space, Swapped, Window, Writer, bytes_of_blocks,
};

/// Binds without blocking the calling thread. Binding may wait for other machines, so it runs on a new
/// thread, which ends afterwards.
///
/// # Errors
/// As [`Binding::bind`].
pub async fn bind(
    address: &str,
    interface: impl Into<InterfaceRef>,
    options: &BindOptions,
) -> Result<Binding, CallError> {
    let (address, interface, options) = (address.to_owned(), interface.into(), options.clone());
    let bound = unblock(move || Binding::bind(&address, interface, &options)).await;
    bound.unwrap_or_else(|error| Err(no_thread(error)))
}

/// Binds to the servers of a name without blocking the calling thread, as [`bind`] does.
///
/// # Errors
/// As [`Binding::pool`].
pub async fn bind_pool(
    address: &str,
    interface: impl Into<InterfaceRef>,
    options: &BindOptions,
) -> Result<Binding, CallError> {
    let (address, interface, options) = (address.to_owned(), interface.into(), options.clone());
    let bound = unblock(move || Binding::pool(&address, interface, &options)).await;
    bound.unwrap_or_else(|error| Err(no_thread(error)))
}

#[cold]
pub(super) fn no_thread(error: std::io::Error) -> CallError {
    CallError::system(Phase::Bind, "cannot start the thread that makes the binding", error)
}

/// A call of an async stub. It is repeated once, or a few times by a pool.
#[derive(Debug)]
pub struct AsyncCall<'b> {
    binding: &'b Binding,
    bound: Arc<Bound>,
    procedure: u32,
    terms: CallTerms<'b>,
    /// The number of attempts, and whether one that has failed may have executed the call.
    attempts: u32,
    before: Executed,
    /// Whether the call must not share a batch, because an attempt to share one has failed.
    alone: bool,
    /// Whether the call is to share a batch, but was not added to the batch yet.
    shares: AtomicBool,
}

/// The place of a call of an async stub: a frame, or a batch that it shares with other calls.
#[derive(Debug)]
pub struct AsyncFrame<'a> {
    call: &'a AsyncCall<'a>,
    bound: &'a Bound,
    place: Place<'a>,
    /// The server's number of the procedure.
    procedure: u32,
    terms: CallTerms<'a>,
    state: State,
    /// What carries the streams of the call.
    conduit: Option<OpenConduit<'a>>,
}

#[derive(Debug)]
enum Place<'a> {
    Frame(FrameGuard<'a>),
    /// The lane sends the call in a batch.
    Lane(&'a Lane, Company),
    /// The frame was given back or captured.
    Gone,
}

#[derive(Debug)]
enum State {
    /// The call was not begun, or it has ended.
    Idle,
    /// The call has a result in its frame.
    Ended(call::Returned),
    /// The call has a result, which came in a batch.
    Came(Answer, ResultRecord, ResultBytes),
    /// The call is pending in its frame.
    Pending { looking: Looking },
    /// The call is pending in the lane.
    Shared { ticket: Ticket, looking: Looking },
}

/// Memory for the head of a call that shares a batch.
#[derive(Debug)]
pub struct Scratch([u128; 16]);

impl Scratch {
    /// Returns fresh memory.
    #[expect(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self([0; 16])
    }
}

impl<'b> AsyncCall<'b> {
    /// Begins a call of a procedure. All waits of the call have the same deadline.
    pub fn new(binding: &'b Binding, procedure: u32) -> Self {
        let terms = binding.terms.begun();
        let bound = binding.home.for_call(&binding.bound);
        Self {
            binding,
            bound,
            procedure,
            terms,
            attempts: 1,
            before: Executed::No,
            alone: false,
            shares: AtomicBool::new(false),
        }
    }

    /// Returns whether the arguments are written in the byte order of this machine.
    pub fn is_native(&self) -> bool {
        !self.bound.is_special() || self.bound.is_native(self.procedure)
    }

    /// Returns whether the arguments are written in the representation `F`.
    #[cold]
    pub fn is_foreign<F: Cells>(&self) -> bool {
        self.bound.system() == Some(F::SYSTEM)
    }

    /// Takes a frame for the call, or lets it share a batch.
    ///
    /// # Errors
    /// If this process was forked after the bind, the server lacks the procedure, no frame becomes free in
    /// time, or the server does not prepare the frame.
    pub async fn frame(&self) -> Result<AsyncFrame<'_>, CallError> {
        if self.bound.mark.wiped() {
            return Err(forked());
        }
        let (bound, procedure) = self.bound.target(self.procedure)?;
        if let Some((lane, company)) = self.lane(bound, procedure) {
            self.shares.store(true, Ordering::Relaxed);
            return Ok(self.placed(bound, procedure, Place::Lane(lane, company)));
        }
        self.own_frame(bound, procedure).await
    }

    /// Takes a frame for a call that shares no batch.
    ///
    /// # Errors
    /// As [`frame`](Self::frame).
    pub async fn frame_alone(&self) -> Result<AsyncFrame<'_>, CallError> {
        if self.bound.mark.wiped() {
            return Err(forked());
        }
        let (bound, procedure) = self.bound.target(self.procedure)?;
        self.own_frame(bound, procedure).await
    }

    /// Takes a frame for a call with streams, and opens the streams.
    ///
    /// # Errors
    /// As [`frame`](Self::frame), and if the binding has too few A-stacks.
    pub async fn frame_with(&self, streams: &mut Streams<'_>) -> Result<AsyncFrame<'_>, CallError> {
        if self.bound.mark.wiped() {
            return Err(forked());
        }
        let (bound, procedure) = self.bound.target(self.procedure)?;
        let conduit = self.bound.conduit()?.open(&self.bound, self.terms.deadline()).await?;
        streams.open(&conduit.conduit, &self.bound);
        let mut frame = self.own_frame(bound, procedure).await?;
        frame.conduit = Some(conduit);
        Ok(frame)
    }

    const fn placed<'a>(
        &'a self,
        bound: &'a Bound,
        procedure: u32,
        place: Place<'a>,
    ) -> AsyncFrame<'a> {
        let (terms, state) = (self.terms, State::Idle);
        AsyncFrame { call: self, bound, place, procedure, terms, state, conduit: None }
    }

    /// Takes a frame that only this call uses.
    async fn own_frame<'a>(
        &'a self,
        bound: &'a Bound,
        procedure: u32,
    ) -> Result<AsyncFrame<'a>, CallError> {
        let taken = take(bound, self.terms.deadline()).await?;
        let index = taken.index();
        let mut frame = self.placed(bound, procedure, Place::Frame(taken));
        if !bound.path.is_prepared(index) {
            self.prepare(index).await.inspect_err(|error| frame.release(error))?;
        }
        Ok(frame)
    }

    /// Returns the lane whose batches the call may share. A nested call shares no batch: it carries a chain,
    /// and a record of a batch has no space for a chain. It has no space for metadata either.
    fn lane(&self, bound: &Bound, procedure: u32) -> Option<(&Lane, Company)> {
        let shares = !self.alone
            && core::ptr::eq(bound, &raw const *self.bound)
            && self.is_native()
            && inside().is_none()
            && self.terms.metadata().is_none()
            // If no other call is pending, the batch would carry this call only. Then a separate message is
            // faster.
            && bound.frames.pending() > 0;
        let lane = if shares { self.bound.lane() } else { return None };
        Some((lane, lane.takes(bound, procedure)?))
    }

    #[cold]
    fn prepare(&self, index: u32) -> impl Future<Output = Result<(), CallError>> + Send + 'static {
        let (bound, procedure, deadline) =
            (Arc::clone(&self.bound), self.procedure, self.terms.deadline());
        async move {
            let prepare = move || bound.target(procedure)?.0.path.prepare(index, deadline);
            unblock(prepare).await.unwrap_or_else(|error| Err(no_thread(error)))
        }
    }

    /// Decides as [`again`](Self::again) whether a failed call with streams is repeated. The call is not
    /// repeated if `moved` is true: then items of its streams have already been transferred.
    ///
    /// # Errors
    /// Returns the error of the call, if it is not repeated.
    #[cold]
    pub async fn again_unless(&mut self, moved: bool, error: CallError) -> Result<(), CallError> {
        if moved {
            self.binding.home.fails(&self.bound, &error);
            return Err(failed(self.binding, self.procedure, error));
        }
        self.again(error).await
    }

    /// Decides whether a failed call is repeated, and binds again if so.
    ///
    /// # Errors
    /// Returns the error of the call, if it is not repeated.
    #[cold]
    pub async fn again(&mut self, error: CallError) -> Result<(), CallError> {
        if core::mem::take(self.shares.get_mut()) {
            // The call could not share a batch: it does not fit a batch, its procedure is slow, or the server
            // has no batches.
            self.alone = true;
            return Ok(());
        }
        let home = &self.binding.home;
        let error = after(self.before, error);
        self.before = error.executed();
        if self.attempts >= home.attempts_max() {
            home.fails(&self.bound, &error);
            return Err(failed(self.binding, self.procedure, error));
        }
        self.attempts += 1;
        let was_native = self.is_native();
        let (gone, procedure, deadline) =
            (Arc::clone(&self.bound), self.procedure, self.terms.deadline());
        // After most errors the call is not repeated, and the other servers of a pool are bound already. Only
        // a repetition that waits needs a thread.
        let bound = match home.again_now(&gone, procedure, error) {
            Err(error) => Err(error),
            Ok(Again::At(bound)) => Ok(bound),
            Ok(Again::Later(error)) => {
                let home = Arc::clone(home);
                let again = move || home.again_later(&gone, procedure, error, deadline);
                let bound = unblock(again).await;
                bound.unwrap_or_else(|error| Err(after(self.before, no_thread(error))))
            }
        };
        self.bound = bound.map_err(|error| failed(self.binding, self.procedure, error))?;
        // `now` stores the new state in the binding, so that later calls find it on the fast path.
        let _ = self.binding.now();
        if self.is_native() == was_native {
            return Ok(());
        }
        Err(failed(self.binding, self.procedure, after(self.before, turned_over())))
    }
}

/// Returns the outcome of a call that has failed.
pub fn outcome_of<O: Outcome>(error: CallError) -> O {
    O::from_result(Err(error.into()))
}

/// Takes a frame, and waits for one if none is free.
pub(super) async fn take(
    bound: &Bound,
    deadline: Option<Instant>,
) -> Result<FrameGuard<'_>, CallError> {
    /// The wait of a future for a free frame. The wait ends when this value is dropped.
    struct Waits<'a>(&'a Bound, Option<call::FutureWait>);
    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            if let Some(wait) = &self.1 {
                self.0.frames.leave(wait);
            }
        }
    }
    let mut waits = Waits(bound, None);
    let is_released = |frame| bound.path.is_released(frame);
    poll_fn(|context| {
        if waits.1.is_some() && deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Poll::Ready(Err(no_frame(&bound.frames)));
        }
        let Waits(bound, wait) = &mut waits;
        bound
            .frames
            .poll_take(wait, deadline, &is_released, bound.on_exhausted, context.waker())
            .map(Ok)
    })
    .await
}

impl<'a> AsyncFrame<'a> {
    /// Returns the writer to which the stub passes the arguments one by one, in the native representation.
    /// The arguments go to the frame, or to `scratch` if the call shares a batch.
    pub fn arguments<'m>(&self, scratch: &'m mut Scratch) -> Arguments<'m, Native>
    where
        'a: 'm,
    {
        self.arguments_in(scratch)
    }

    /// Returns what [`arguments`](Self::arguments) returns, but for the other byte order.
    pub fn swapped_arguments<'m>(&self, scratch: &'m mut Scratch) -> Arguments<'m, Swapped>
    where
        'a: 'm,
    {
        self.arguments_in(scratch)
    }

    pub(super) fn arguments_in<'m, R: Representation>(
        &self,
        scratch: &'m mut Scratch,
    ) -> Arguments<'m, R>
    where
        'a: 'm,
    {
        let space = match &self.place {
            Place::Frame(frame) => frame.call_space(),
            Place::Lane(..) | Place::Gone => Space::of_mut(bytes_of_blocks(&mut scratch.0)),
        };
        Arguments { head: Writer::represented(space) }
    }

    /// Begins the call with these blocks.
    ///
    /// # Errors
    /// If the call was not sent.
    pub fn begin<'m, R: Representation>(
        &mut self,
        mut arguments: Arguments<'m, R>,
        ins: &[Block<'_>],
        lent: &[Block<'_>],
        outs: &mut [OutBlock<'_>],
    ) -> Result<(), CallError>
    where
        'a: 'm,
    {
        let (procedure, terms) = (self.procedure, self.terms);
        let head = &mut *arguments.head;
        let frame: &FrameGuard<'m> = match &self.place {
            Place::Gone => return Ok(()),
            Place::Lane(lane, company) => {
                head.flush();
                let head = head.space().window().range(0, head.len());
                let outs = outs.iter().map(|out| out.capacity()).sum();
                let (called, deadline) = ((procedure, *company), terms.deadline());
                let begun = lane.begin(self.bound, called, head, [ins, lent], outs, deadline);
                let Some(begun) = begun else {
                    // The call is made alone after this error, so no user sees the error.
                    return Err(CallError::too_large(0, 0, None));
                };
                self.call.shares.store(false, Ordering::Relaxed);
                let ticket = begun?;
                self.bound.frames.count_pending(true);
                self.state = State::Shared { ticket, looking: Looking::NotYet };
                return Ok(());
            }
            Place::Frame(frame) => frame,
        };
        let mut call = Call { procedure, frame, head, ins, lent, outs, terms };
        match self.bound.path.begin(&mut call) {
            Ok(Begun::Ended(returned)) => self.state = State::Ended(returned),
            Ok(Begun::Pending) => {
                self.state = State::Pending { looking: Looking::NotYet };
                self.bound.frames.count_pending(true);
            }
            Err(error) => {
                self.release(&error);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits for the result of the call, and fills the blocks.
    ///
    /// # Errors
    /// If there is no result. The error says whether the call was executed.
    pub async fn ended(&mut self, outs: &mut [OutBlock<'_>]) -> Result<(), CallError> {
        let ended = poll_fn(|context| match self.state {
            State::Pending { .. } | State::Shared { .. } if self.bound.mark.wiped() => {
                Poll::Ready(Err(forked().may_have_executed()))
            }
            State::Idle | State::Ended(_) | State::Came(..) => Poll::Ready(Ok(None)),
            State::Pending { .. } => self.poll_frame(outs, context).map_ok(Some),
            State::Shared { .. } => self.poll_lane(outs, context).map_ok(Some),
        });
        match ended.await {
            Ok(None) => Ok(()),
            Ok(Some(state)) => {
                self.state = state;
                Ok(())
            }
            Err(error) => {
                self.state = State::Idle;
                self.release(&error);
                Err(error)
            }
        }
    }

    /// Waits for the result of a call with streams, and moves their items. Fills the blocks.
    ///
    /// # Errors
    /// If there is no result, or a stream has failed. The error says whether the call was executed.
    pub async fn ended_with(
        &mut self,
        outs: &mut [OutBlock<'_>],
        streams: &mut Streams<'_>,
    ) -> Result<(), CallError> {
        let mut looks_until = None;
        let ended = poll_fn(|context| self.poll_streams(outs, streams, &mut looks_until, context));
        ended.await.inspect_err(|error| {
            let error = self.give_up().unwrap_or_else(|| error.copy());
            self.state = State::Idle;
            self.release(&error);
        })
    }

    /// Returns the result of a call that has [ended](Self::ended).
    ///
    /// # Errors
    /// If the result is invalid.
    pub fn returned<R: Representation>(&self) -> Result<Returned<'_, R>, CallError> {
        match (&self.state, &self.place) {
            (State::Ended(returned), Place::Frame(frame)) => Returned::of(frame, *returned),
            (State::Came(answer, record, bytes), _) => {
                Returned::within(*answer, record.head_at, record.head_bytes, bytes.as_slice())
            }
            _ => Err(CallError::bad_result("the call has no result")),
        }
    }

    /// Gives the frame back after a failed call, or leaves it to the server if the server may still use it.
    fn release(&mut self, error: &CallError) {
        if let Place::Frame(frame) = core::mem::replace(&mut self.place, Place::Gone)
            && (error.executed() == Executed::Maybe || self.bound.path.captures(frame.index()))
        {
            frame.capture();
        }
    }

    /// Looks for the reply in the frame. If there is none, makes sure that the future is polled again.
    fn poll_frame(
        &mut self,
        outs: &mut [OutBlock<'_>],
        context: &mut Context<'_>,
    ) -> Poll<Result<State, CallError>> {
        let Self { bound, place, terms, state, .. } = self;
        let (bound, terms) = (*bound, *terms);
        let (State::Pending { looking }, Place::Frame(frame)) = (state, &*place) else {
            return Poll::Pending;
        };
        let mut head = Writer::new(frame.call_space());
        let mut call =
            Call { procedure: 0, frame, head: &mut head, ins: &[], lent: &[], outs, terms };
        let ended = 'ended: {
            if let Some(ended) = bound.path.poll(&mut call) {
                break 'ended ended;
            }
            if is_late(terms) {
                break 'ended Err(bound.path.give_up(&mut call));
            }
            let only = || bound.frames.pending() == 1;
            let waker = context.waker();
            let server_cpu = || bound.path.server_cpu(frame.index());
            let look = || bound.path.poll(&mut call);
            match spin(bound.path.wait(), looking, waker, only, server_cpu, look) {
                Looked::Found(ended) => break 'ended ended,
                Looked::Again => return Poll::Pending,
                Looked::Sleep => {}
            }
            bound.frames.bell(frame.index()).set(waker);
            bound.path.arm(frame.index(), terms.deadline());
            match bound.path.poll(&mut call) {
                Some(ended) => ended,
                None => return Poll::Pending,
            }
        };
        bound.frames.count_pending(false);
        bound.frames.bell(frame.index()).clear();
        Poll::Ready(ended.map(State::Ended))
    }

    /// Moves items of the streams, and looks for the reply. If there is nothing to do, makes sure that the
    /// future is polled again.
    fn poll_streams(
        &mut self,
        outs: &mut [OutBlock<'_>],
        streams: &mut Streams<'_>,
        looks_until: &mut Option<Instant>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), CallError>> {
        if self.bound.mark.wiped() {
            return Poll::Ready(Err(forked().may_have_executed()));
        }
        let mut look = |frame: &mut Self, streams: &mut Streams<'_>, context: &mut Context<'_>| {
            let moved = streams.drive(context);
            if let Some(open) = frame.conduit.as_ref().filter(|_| moved) {
                open.look();
            }
            frame.look_for_reply(outs).map(|ended| moved || ended)
        };
        if let Some(open) = &self.conduit {
            open.awake();
        }
        let mut moved = look(self, streams, context)?;
        if let Some(failure) = streams.failure() {
            let ends =
                matches!(failure.kind(), Kind::ServerGone | Kind::Withdrawn | Kind::Unreachable);
            // If the server has gone while the call is pending, the failure of the stream is not returned.
            // The call soon ends with an error, which says whether the call was executed.
            if !ends || !matches!(self.state, State::Pending { .. }) {
                return Poll::Ready(Err(failure.copy().may_have_executed()));
            }
        }
        if let State::Ended(returned) = &self.state {
            // If the procedure ran, the server reports the end of each stream, even after a panic. If the
            // procedure did not run, the server reports no ends.
            let ran = returned.answer != Answer::NotExecuted;
            if streams.are_done() || !ran && !streams.have_begun() {
                if ran {
                    streams.outlive(&self.call.binding.home);
                }
                return Poll::Ready(Ok(()));
            }
            if is_late(self.terms) {
                let text = "the items of a stream have not arrived";
                return Poll::Ready(Err(CallError::new(Kind::TimedOut, Executed::Maybe, text)));
            }
            if !moved {
                // A server stub that has failed may have opened only some of the streams, or none. The client
                // asks for the ends of the streams that were not opened.
                streams.ask();
            }
        }
        if !moved {
            let wait = self.bound.path.wait();
            let server_cpu = self.conduit.as_ref().and_then(OpenConduit::server_cpu);
            let shares_cpu = shares_cpu(server_cpu);
            let looks = match shares_cpu == Some(true) && wait != Wait::Spin {
                true => Duration::ZERO,
                false => looks_for(wait),
            };
            let until = *looks_until.get_or_insert_with(|| Instant::now() + looks);
            if shares_cpu != Some(false) {
                std::thread::yield_now();
            }
            if Instant::now() >= until {
                if let (State::Pending { .. }, Place::Frame(frame)) = (&self.state, &self.place) {
                    self.bound.frames.bell(frame.index()).set(context.waker());
                    self.bound.path.arm(frame.index(), self.terms.deadline());
                }
                if let Some(open) = &self.conduit {
                    open.sleep();
                }
                moved = look(self, streams, context)?;
                if !moved {
                    return Poll::Pending;
                }
            }
        }
        if moved {
            *looks_until = None;
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Gives up the call if it is pending in its frame. Returns the error of the call.
    fn give_up(&mut self) -> Option<CallError> {
        let (State::Pending { .. }, Place::Frame(frame)) = (&self.state, &self.place) else {
            return None;
        };
        self.bound.frames.count_pending(false);
        self.bound.frames.bell(frame.index()).clear();
        let mut head = Writer::new(frame.call_space());
        let (procedure, terms, ins, lent) = (self.procedure, self.terms, &[], &[]);
        let outs = &mut [];
        let mut call = Call { procedure, frame, head: &mut head, ins, lent, outs, terms };
        Some(self.bound.path.give_up(&mut call))
    }

    /// Looks for the reply in the frame, once. Returns whether it was found.
    fn look_for_reply(&mut self, outs: &mut [OutBlock<'_>]) -> Result<bool, CallError> {
        let Self { bound, place, terms, state, .. } = self;
        let (State::Pending { .. }, Place::Frame(frame)) = (&*state, &*place) else {
            return Ok(false);
        };
        let mut head = Writer::new(frame.call_space());
        let (ins, lent) = (&[], &[]);
        let mut call =
            Call { procedure: 0, frame, head: &mut head, ins, lent, outs, terms: *terms };
        let ended = match bound.path.poll(&mut call) {
            Some(ended) => ended,
            None if is_late(*terms) => Err(bound.path.give_up(&mut call)),
            None => return Ok(false),
        };
        bound.frames.count_pending(false);
        bound.frames.bell(frame.index()).clear();
        *state = State::Idle;
        *state = State::Ended(ended?);
        Ok(true)
    }

    /// Looks for the result in the lane, as [`poll_frame`](Self::poll_frame) does in the frame.
    fn poll_lane(
        &mut self,
        outs: &mut [OutBlock<'_>],
        context: &mut Context<'_>,
    ) -> Poll<Result<State, CallError>> {
        let Self { call, bound, place, terms, state, .. } = self;
        let (bound, terms) = (*bound, *terms);
        let (State::Shared { ticket, looking }, Place::Lane(lane, _)) = (state, &*place) else {
            return Poll::Pending;
        };
        let (ticket, waker) = (*ticket, context.waker());
        let ended = 'ended: {
            if is_late(terms) {
                let executed = match lane.end_late(bound, ticket) {
                    Ok(ended) => break 'ended ended,
                    Err(executed) => executed,
                };
                bound.frames.count_pending(false);
                let text = "the server has not answered";
                return Poll::Ready(Err(CallError::new(Kind::TimedOut, executed, text)));
            }
            match lane.wait(bound, ticket, waker) {
                Ok(ended) => break 'ended ended,
                Err(Role::Sleeps) => {
                    if let Some(deadline) = terms.deadline() {
                        lane.time(bound, ticket, deadline);
                    }
                    return Poll::Pending;
                }
                Err(Role::Looks) => {}
            }
            let only = || bound.frames.pending() == 1;
            let server_cpu = || lane.server_cpu(bound);
            let look = || lane.look(bound, ticket);
            match spin(bound.path.wait(), looking, waker, only, server_cpu, look) {
                Looked::Found(ended) => break 'ended ended,
                Looked::Again => return Poll::Pending,
                Looked::Sleep => {}
            }
            if let Some(deadline) = terms.deadline() {
                lane.time(bound, ticket, deadline);
            }
            match lane.sleep(bound, ticket, waker) {
                Some(ended) => ended,
                None => return Poll::Pending,
            }
        };
        bound.frames.count_pending(false);
        Poll::Ready(match ended {
            Ok((record, bytes)) => came(record, bytes, outs),
            Err(Failure::Error(error)) => Err(error),
            Err(Failure::Unsupported | Failure::Alone) => {
                call.shares.store(true, Ordering::Relaxed);
                Err(CallError::not_executed(Kind::NoSuchProcedure, Phase::Call, ""))
            }
        })
    }
}

/// Returns the state of a call whose result came in a batch. Fills its blocks.
fn came(
    record: ResultRecord,
    bytes: ResultBytes,
    outs: &mut [OutBlock<'_>],
) -> Result<State, CallError> {
    let answer = match Answer::from_number(record.answer) {
        Some(Answer::PostAgain) | None => {
            return Err(CallError::bad_result("unknown kind of answer"));
        }
        Some(answer) => answer,
    };
    if answer == Answer::Ok {
        let filled = fill_outs(outs, Window::from(bytes.as_slice()));
        filled.map_err(|invalid| CallError::bad_result(invalid.to_string()))?;
    }
    Ok(State::Came(answer, record, bytes))
}

fn is_late(terms: CallTerms<'_>) -> bool {
    terms.deadline().is_some_and(|deadline| deadline <= Instant::now())
}

impl Drop for AsyncFrame<'_> {
    fn drop(&mut self) {
        if self.bound.mark.wiped() {
            // The call belongs to the process from which this one was forked.
            if let Place::Frame(frame) = core::mem::replace(&mut self.place, Place::Gone) {
                frame.capture();
            }
            return;
        }
        // The future was dropped: its caller does not wait any more.
        match (&self.state, core::mem::replace(&mut self.place, Place::Gone)) {
            (State::Shared { ticket, .. }, Place::Lane(lane, _)) => {
                self.bound.frames.count_pending(false);
                lane.give_up(self.bound, *ticket);
            }
            (State::Pending { .. }, Place::Frame(frame)) => {
                self.bound.frames.count_pending(false);
                self.bound.frames.bell(frame.index()).clear();
                let mut head = Writer::new(frame.call_space());
                let mut call = Call {
                    procedure: self.procedure,
                    frame: &frame,
                    head: &mut head,
                    ins: &[],
                    lent: &[],
                    outs: &mut [],
                    terms: self.terms,
                };
                let error = self.bound.path.give_up(&mut call);
                if error.executed() == Executed::Maybe || self.bound.path.captures(frame.index()) {
                    frame.capture();
                }
            }
            _ => {}
        }
    }
}
