//! [`Layered`]: the server stub of an export that has layers.

use core::ops::Deref;
#[cfg(feature = "tracing")]
use core::pin::Pin;
#[cfg(feature = "tracing")]
use core::task::{Context, Poll};
use std::sync::Arc;

use super::layer::{LayerCall, LayerOutcome, LayerRefusal, LayerSide};
use super::layers::{Observed, Running};
use super::record::Message;
#[cfg(feature = "tracing")]
use super::within::InSpan;
use super::within::{Scope, Within};
use crate::call::batch::Account;
#[cfg(feature = "tracing")]
use crate::call::deferred::Procedure;
use crate::call::deferred::{Cancels, Owed};
use crate::call::{
    Answer, Answered, Caller, Calls, ForeignAnswer, ForeignCall, Metadata, PathKind, Refusal,
    Reply, Request, Serve, Served, ServedForeign, caller, due, has_metadata, source_of_thread,
    with_calls,
};
use crate::error::{Executed, Kind};
use crate::interface::InterfaceRef;
use crate::sync::Mutex;
use crate::value::ByteOrder;

/// A server stub that calls the layers of an export around each call of the stub `S`.
pub(crate) struct Layered<S> {
    serve: S,
    observed: Arc<Observed>,
    /// Whether the layers belong to other programs, which capture calls. They do not see the calls that
    /// procedures make.
    is_tap: bool,
}

impl<S> Layered<S> {
    /// Returns the server stub of an export with layers, over `serve`.
    pub(crate) const fn over(serve: S, observed: Arc<Observed>) -> Self {
        Self { serve, observed, is_tap: false }
    }

    /// Returns the server stub of an export whose calls other programs capture, over `serve`.
    pub(super) const fn tap(serve: S, observed: Arc<Observed>) -> Self {
        Self { serve, observed, is_tap: true }
    }

    /// Notes that this thread runs a procedure with these layers.
    fn enter(&self, scope: Option<Arc<Scope>>) -> Option<Within> {
        (!self.is_tap).then(|| Within::enter(&self.observed, scope))
    }

    /// Returns whether the layers need not see the call that this thread runs, because they would do nothing.
    #[inline]
    fn is_idle(&self) -> bool {
        self.observed.is_idle(LayerSide::Server) && !has_metadata()
    }

    /// Runs a call that the layers need not see. They may still see what a procedure calls at the side of its
    /// caller.
    #[inline]
    fn unseen<T>(&self, serve: impl FnOnce() -> T) -> T {
        let _within = if self.observed.has_callbacks { self.enter(None) } else { None };
        serve()
    }

    /// Tells the layers that a call begins. Returns `None` if it is a call of no procedure of the interface,
    /// which the stub refuses.
    fn begin(
        &self,
        procedure: u32,
        argument_bytes: usize,
        message: Option<Message<'_>>,
        caller: Option<Caller>,
    ) -> Result<Option<Running>, LayerRefusal> {
        if procedure as usize >= self.observed.interface.procedures() {
            return Ok(None);
        }
        let mut call = LayerCall {
            side: LayerSide::Server,
            interface: &self.observed.interface,
            procedure,
            path: caller.as_ref().map_or(PathKind::InProcess, Caller::path),
            name: &self.observed.name,
            caller,
            given: Metadata::EMPTY,
            added: None,
            argument_bytes,
            message,
            deadline: due(),
            scope: None,
        };
        self.observed.begin(&mut call).map(Some)
    }
}

#[cold]
fn refused(refusal: LayerRefusal) -> Refusal {
    Refusal::new(refusal.kind(), refusal.text())
}

/// Tells the layers how a call has ended.
fn end(running: Running, ended: Result<(Answer, usize), &Refusal>) {
    match ended {
        Ok((Answer::Ok, bytes)) => running.end(LayerOutcome::Returned, bytes),
        Ok((_, bytes)) => running.end(LayerOutcome::ReturnedError, bytes),
        Err(Refusal { kind, executed, text }) => {
            running.end(LayerOutcome::Failed { kind: *kind, executed: *executed, text }, 0);
        }
    }
}

impl<S: Deref<Target: Serve> + Send + Sync> Serve for Layered<S> {
    fn interface(&self) -> InterfaceRef {
        self.serve.interface()
    }

    fn byte_order(&self) -> ByteOrder {
        self.serve.byte_order()
    }

    fn is_async(&self) -> bool {
        self.serve.is_async()
    }

    fn shared(&self) -> Option<Arc<dyn Serve>> {
        let serve = self.serve.shared()?;
        let (observed, is_tap) = (Arc::clone(&self.observed), self.is_tap);
        Some(Arc::new(Layered { serve, observed, is_tap }))
    }

    fn allowed(&self) -> &'static [(&'static str, &'static [&'static str])] {
        self.serve.allowed()
    }

    fn refused(&self, procedure: u32, bytes: usize, caller: &Caller, refusal: &Refusal) {
        if caller.metadata().is_empty() && self.observed.is_idle(LayerSide::Server) {
            return;
        }
        if let Ok(Some(running)) = self.begin(procedure, bytes, None, Some(caller.clone())) {
            end(running, Err(refusal));
        }
    }

    fn serve_foreign(&self, call: &ForeignCall<'_>, results: &mut Vec<u8>) -> ServedForeign {
        if self.is_idle() {
            return self.unseen(|| self.serve.serve_foreign(call, results));
        }
        let Some(procedure) = call.procedure_of(&self.observed.interface) else {
            return self.serve.serve_foreign(call, results);
        };
        let message = Message::Foreign { system: call.system, arguments: call.arguments };
        let running = self
            .begin(procedure, call.arguments.len(), Some(message), caller())
            .map_err(refused)?;
        let scope = running.as_ref().and_then(Running::scope);
        let within = self.enter(scope);
        let before = results.len();
        let served = self.serve.serve_foreign(call, results);
        drop(within);
        if let Some(running) = running {
            let bytes = results.len() - before;
            end(running, served.as_ref().map(|answer: &ForeignAnswer| ((*answer).into(), bytes)));
        }
        served
    }

    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        if self.is_idle() {
            return self.unseen(|| self.serve.serve(request, reply));
        }
        let (head, blocks, lent) = request.parts();
        let message = Some(Message::Native { head, blocks, lent });
        let running =
            self.begin(request.procedure(), request.bytes(), message, caller()).map_err(refused)?;
        let Some(running) = running else { return self.serve.serve(request, reply) };
        let scope = running.scope();
        let within = self.enter(scope.clone());
        if !self.serve.is_async() {
            let served = self.serve.serve(request, reply);
            drop(within);
            end(running, served.as_ref().map(|()| reply.ended()));
            return served;
        }
        let Some((calls, _)) = source_of_thread() else {
            let served = self.serve.serve(request, reply);
            drop(within);
            end(running, served.as_ref().map(|()| reply.ended()));
            return served;
        };
        let calls = Arc::new(LayeredCalls { calls, running: Mutex::new(Some(running)), scope });
        let ends = EndsWithPanic(&calls);
        let served = with_calls(Arc::clone(&calls) as _, || self.serve.serve(request, reply));
        drop(within);
        // If the call is deferred, `OwedReply` has taken the running call.
        if let Some(running) = ends.0.take() {
            end(running, served.as_ref().map(|()| reply.ended()));
        }
        served
    }
}

/// The source of the calls of an async export with layers. It follows the replies that are sent later.
struct LayeredCalls {
    calls: Arc<dyn Calls>,
    /// The call that the thread runs. `None` after it has ended or was deferred.
    running: Mutex<Option<Running>>,
    /// What the calls of the procedure are within.
    #[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "there is no scope"))]
    scope: Option<Arc<Scope>>,
}

impl LayeredCalls {
    fn take(&self) -> Option<Running> {
        self.running.lock().take()
    }
}

/// Ends the call of a procedure that panics in its first poll.
struct EndsWithPanic<'a>(&'a LayeredCalls);

impl Drop for EndsWithPanic<'_> {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

impl Calls for LayeredCalls {
    fn is_given_up(&self, call: u64) -> bool {
        self.calls.is_given_up(call)
    }

    fn is_gone(&self) -> bool {
        self.calls.is_gone()
    }

    fn defer(self: Arc<Self>, call: u64, cancels: Arc<dyn Cancels>) -> Option<Box<dyn Owed>> {
        let owed = Arc::clone(&self.calls).defer(call, cancels)?;
        Some(Box::new(OwedReply { owed: Some(owed), running: self.take() }))
    }

    fn with_account(&self, call: u64, with: &mut dyn FnMut(&dyn Account)) {
        self.calls.with_account(call, with);
    }

    #[cfg(feature = "tracing")]
    fn within(&self, procedure: Procedure) -> Procedure {
        match &self.scope {
            Some(scope) => Box::pin(Spanned { procedure, scope: Arc::clone(scope) }),
            None => procedure,
        }
    }

    #[cfg(feature = "tracing")]
    fn scope(&self) -> Option<Arc<dyn core::any::Any + Send + Sync>> {
        match &self.scope {
            Some(scope) => Some(Arc::clone(scope) as _),
            None => self.calls.scope(),
        }
    }
}

/// A deferred procedure, each poll of which runs within the span of the call.
#[cfg(feature = "tracing")]
struct Spanned {
    procedure: Procedure,
    scope: Arc<Scope>,
}

#[cfg(feature = "tracing")]
impl Future for Spanned {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        let Self { procedure, scope } = &mut *self;
        let _entered = InSpan::enter(Arc::clone(scope));
        procedure.as_mut().poll(context)
    }
}

/// The duty to send the reply to a deferred call, and to tell the layers that the call has ended.
struct OwedReply {
    owed: Option<Box<dyn Owed>>,
    running: Option<Running>,
}

impl Owed for OwedReply {
    fn leave_uncounted(&mut self, awaited: bool) {
        if let Some(owed) = &mut self.owed {
            owed.leave_uncounted(awaited);
        }
    }

    fn answer(mut self: Box<Self>, answered: Answered) {
        if let Some(running) = self.running.take() {
            end(running, answered.ended());
        }
        if let Some(owed) = self.owed.take() {
            owed.answer(answered);
        }
    }
}

impl Drop for OwedReply {
    fn drop(&mut self) {
        // The server has ended before the procedure.
        if let Some(running) = self.running.take() {
            let text = "the server ended before the procedure";
            let (kind, executed) = (Kind::Withdrawn, Executed::Maybe);
            running.end(LayerOutcome::Failed { kind, executed, text }, 0);
        }
    }
}
