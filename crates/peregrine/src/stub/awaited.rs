//! The runtime of the async client stubs: the same steps as in [`compiled`](super::compiled), but nothing waits
//! in the calling thread.
//!
//! A stub takes a frame ([`AsyncCall::frame`]), writes the arguments to it and begins the call
//! ([`AsyncFrame::begin`]), and awaits the result ([`AsyncFrame::ended`]). The arguments are copied or sent when
//! the call begins. A future that is dropped while its call is pending gives up the call: the server is told, and
//! the frame is captured until the server has released it.

use core::future::poll_fn;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use super::compiled::{Arguments, Returned, failed, forked, no_frame, turned_over};
use crate::binding::{BindOptions, Binding, Bound};
use crate::call::pending::unblock;
use crate::call::{Begun, Call, FrameGuard, Limit, Wait, block_cost};
use crate::error::{CallError, Executed, Phase};
use crate::interface::InterfaceRef;
use crate::value::{Block, Native, OutBlock, Representation, Swapped, Writer};

/// The number of looks between two readings of the clock.
const LOOKS: u32 = 32;

/// Binds without blocking the calling thread. Binding may wait for other machines, so it runs on a thread of its
/// own, which ends afterwards.
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

#[cold]
fn no_thread(error: std::io::Error) -> CallError {
    CallError::system(Phase::Bind, "cannot run a thread that binds", error)
}

/// A call of an async stub, with at most two attempts.
#[derive(Debug)]
pub struct AsyncCall<'b> {
    binding: &'b Binding,
    bound: Arc<Bound>,
    procedure: u32,
    limit: Limit,
    /// Whether a first attempt may have executed the call. `None` before the first attempt has failed.
    before: Option<Executed>,
}

/// A frame with a call of an async stub.
#[derive(Debug)]
pub struct AsyncFrame<'a> {
    bound: &'a Bound,
    /// `None` after the frame was given back or captured.
    frame: Option<FrameGuard<'a>>,
    /// The server's number of the procedure.
    procedure: u32,
    limit: Limit,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The call was not begun, or it has ended.
    Idle,
    /// The call had its result when it began.
    Ended(crate::call::Returned),
    /// The call is pending. `looks_until` is the time until which its future looks for the reply before it
    /// sleeps. It is `None` before the first look.
    Pending { looks_until: Option<Instant> },
}

impl<'b> AsyncCall<'b> {
    /// Begins a call of a procedure. All waits of the call have the same deadline.
    pub fn new(binding: &'b Binding, procedure: u32) -> Self {
        let limit = binding.limit.begun();
        Self { binding, bound: binding.now(), procedure, limit, before: None }
    }

    /// Returns whether the arguments are written in the byte order of this machine.
    pub fn is_native(&self) -> bool {
        !self.bound.is_special() || !self.bound.is_swapped(self.procedure)
    }

    /// Takes a frame for the call.
    ///
    /// # Errors
    /// If this process was forked after the bind, the server lacks the procedure, no frame becomes free in time,
    /// or the server does not prepare the frame.
    pub async fn frame(&self) -> Result<AsyncFrame<'_>, CallError> {
        if self.bound.mark.wiped() {
            return Err(forked());
        }
        let (bound, procedure) = self.bound.target(self.procedure)?;
        let limit = self.limit;
        let frame = take(bound, limit.deadline()).await?;
        let index = frame.index();
        let mut frame =
            AsyncFrame { bound, frame: Some(frame), procedure, limit, state: State::Idle };
        if !bound.path.is_prepared(index) {
            self.prepare(index).await.inspect_err(|error| frame.release(error))?;
        }
        Ok(frame)
    }

    #[cold]
    fn prepare(&self, index: u32) -> impl Future<Output = Result<(), CallError>> + Send + 'static {
        let (bound, procedure, deadline) =
            (Arc::clone(&self.bound), self.procedure, self.limit.deadline());
        async move {
            let prepare = move || bound.target(procedure)?.0.path.prepare(index, deadline);
            unblock(prepare).await.unwrap_or_else(|error| Err(no_thread(error)))
        }
    }

    /// Decides whether a failed call is repeated, and binds again if so.
    ///
    /// # Errors
    /// Returns the error of the call, if it is not repeated.
    #[cold]
    pub async fn again(&mut self, error: CallError) -> Result<(), CallError> {
        if let Some(before) = self.before {
            // If the first attempt may have executed the call, a failure of the second attempt does not rule
            // that out.
            let error = match before {
                Executed::No => error,
                Executed::Maybe => error.may_have_executed(),
            };
            return Err(failed(self.binding, self.procedure, error));
        }
        // Most errors need no thread.
        if !self.binding.home.repeats(&self.bound, self.procedure, &error) {
            return Err(failed(self.binding, self.procedure, error));
        }
        self.before = Some(error.executed());
        let was_native = self.is_native();
        let (gone, procedure, deadline) =
            (Arc::clone(&self.bound), self.procedure, self.limit.deadline());
        let home = Arc::clone(&self.binding.home);
        let again = move || home.again_for(&gone, procedure, error, deadline);
        let bound = unblock(again).await.unwrap_or_else(|error| Err(no_thread(error)));
        self.bound = bound.map_err(|error| failed(self.binding, self.procedure, error))?;
        // Later calls find the new state on the fast path.
        let _ = self.binding.now();
        if self.is_native() == was_native {
            return Ok(());
        }
        Err(failed(self.binding, self.procedure, turned_over()))
    }
}

/// Takes a frame, and waits for one if none is free.
async fn take(bound: &Bound, deadline: Option<Instant>) -> Result<FrameGuard<'_>, CallError> {
    /// A wait that ends when this value is dropped.
    struct Waits<'a>(&'a Bound, Option<crate::call::FutureWait>);
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
    /// Returns the arguments, which are written to the frame one by one, in the native representation.
    ///
    /// # Panics
    /// If the call has ended.
    pub fn arguments(&self) -> Arguments<'a, Native> {
        Arguments { head: Writer::represented(self.held().call_space()) }
    }

    /// Returns the arguments, as [`arguments`](Self::arguments) does, in the other byte order.
    ///
    /// # Panics
    /// If the call has ended.
    pub fn swapped_arguments(&self) -> Arguments<'a, Swapped> {
        Arguments { head: Writer::represented(self.held().call_space()) }
    }

    fn held(&self) -> &FrameGuard<'a> {
        self.frame.as_ref().expect("the call has not ended")
    }

    /// Begins the call with these blocks.
    ///
    /// # Errors
    /// If the call was not sent.
    pub fn begin<R: Representation>(
        &mut self,
        mut arguments: Arguments<'a, R>,
        ins: &[Block<'_>],
        lent: &[Block<'_>],
        outs: &mut [OutBlock<'_>],
    ) -> Result<(), CallError> {
        let Some(frame) = &self.frame else { return Ok(()) };
        let (procedure, limit, head) = (self.procedure, self.limit, &mut *arguments.head);
        let mut call = Call { procedure, frame, head, ins, lent, outs, limit };
        match self.bound.path.begin(&mut call) {
            Ok(Begun::Ended(returned)) => self.state = State::Ended(returned),
            Ok(Begun::Pending) => {
                self.state = State::Pending { looks_until: None };
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
    pub fn ended<'s, R: Representation>(
        &'s mut self,
        outs: &'s mut [OutBlock<'_>],
    ) -> impl Future<Output = Result<Returned<'a, R>, CallError>> {
        poll_fn(move |context| {
            let ended = match self.state {
                State::Idle => Err(no_frame(&self.bound.frames)),
                State::Ended(returned) => Ok(returned),
                State::Pending { .. } => match self.poll_pending(outs, context) {
                    Poll::Ready(ended) => ended,
                    Poll::Pending => return Poll::Pending,
                },
            };
            self.state = State::Idle;
            Poll::Ready(match ended {
                Ok(returned) => Returned::of(self.held(), returned),
                Err(error) => {
                    self.release(&error);
                    Err(error)
                }
            })
        })
    }

    /// Gives the frame back after a failed call, or leaves it to the server if the server may still use it.
    fn release(&mut self, error: &CallError) {
        if let Some(frame) = self.frame.take()
            && (error.executed() == Executed::Maybe || self.bound.path.captures(frame.index()))
        {
            frame.capture();
        }
    }

    /// Looks for the reply. If there is none, makes sure that the future is polled again.
    fn poll_pending(
        &mut self,
        outs: &mut [OutBlock<'_>],
        context: &mut Context<'_>,
    ) -> Poll<Result<crate::call::Returned, CallError>> {
        let Self { bound, frame, limit, state, .. } = self;
        let (bound, State::Pending { looks_until }) = (*bound, state) else {
            return Poll::Pending;
        };
        if bound.mark.wiped() {
            return Poll::Ready(Err(forked().may_have_executed()));
        }
        let Some(frame) = frame.as_ref() else { return Poll::Pending };
        let mut head = Writer::new(frame.call_space());
        let (procedure, limit) = (0, *limit);
        let mut call = Call { procedure, frame, head: &mut head, ins: &[], lent: &[], outs, limit };
        let mut look = || bound.path.poll(&mut call);
        let ended = 'ended: {
            if let Some(ended) = look() {
                break 'ended ended;
            }
            let wait = bound.path.wait();
            let Some(until) = *looks_until else {
                // The other futures of this task run first: they may begin calls, too.
                let looks = if wait == Wait::Adaptive { block_cost() } else { Duration::ZERO };
                *looks_until = Some(Instant::now() + looks);
                context.waker().wake_by_ref();
                return Poll::Pending;
            };
            let now = Instant::now();
            if limit.deadline().is_some_and(|deadline| deadline <= now) {
                break 'ended Err(bound.path.give_up(&mut call));
            }
            if wait == Wait::Spin || now < until {
                // If this is the only pending call of the binding, the future looks as a thread would.
                // Otherwise the other futures look in turn.
                let only = bound.frames.pending() == 1;
                for _ in 0..if only { LOOKS } else { 0 } {
                    core::hint::spin_loop();
                    if let Some(ended) = look() {
                        break 'ended ended;
                    }
                }
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            bound.frames.bell(frame.index()).set(context.waker());
            bound.path.arm(frame.index(), limit.deadline());
            match look() {
                Some(ended) => ended,
                None => return Poll::Pending,
            }
        };
        bound.frames.count_pending(false);
        bound.frames.bell(frame.index()).clear();
        Poll::Ready(ended)
    }
}

impl Drop for AsyncFrame<'_> {
    fn drop(&mut self) {
        let (State::Pending { .. }, Some(frame)) = (self.state, self.frame.take()) else { return };
        if self.bound.mark.wiped() {
            // The call belongs to the process from which this one was forked.
            return frame.capture();
        }
        // The future was dropped: its caller does not wait any more.
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
            limit: self.limit,
        };
        let error = self.bound.path.give_up(&mut call);
        if error.executed() == Executed::Maybe || self.bound.path.captures(frame.index()) {
            frame.capture();
        }
    }
}
