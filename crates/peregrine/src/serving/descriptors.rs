//! What a server keeps for each procedure of an export: LRPC's procedure descriptors.
//!
//! The descriptors are around the server stub, and inside of all layers. An export for whose procedures the
//! server keeps nothing has none, so its calls cost nothing more.

use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use crate::call::followed::{Followed, FollowedCall, Follows, offer};
use crate::call::{
    Answer, Caller, ForeignCall, Refusal, Reply, Request, Serve, Served, ServedForeign,
};
use crate::error::Kind;
use crate::interface::InterfaceRef;
use crate::value::ByteOrder;

/// The descriptors of an export, by the numbers of its procedures.
pub(crate) struct Descriptors(Box<[Descriptor]>);

/// What the server keeps for one procedure.
#[derive(Default)]
struct Descriptor {
    name: Box<str>,
    /// `None`: any number of calls may run at once.
    at_most: Option<AtMost>,
}

/// Bounds the running calls of a procedure.
struct AtMost {
    most: u32,
    running: AtomicU32,
}

impl AtMost {
    /// Counts one more running call. Returns false if no further call may run.
    fn begin(&self) -> bool {
        // The count is raised only if the call may run. If it were raised first and then lowered again, a call
        // could be refused although fewer calls run than may run.
        let more = |running| (running < self.most).then_some(running + 1);
        // The count protects no memory, so its order with other memory does not matter.
        self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn end(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Descriptor {
    /// Returns whether the server keeps nothing for the procedure.
    const fn is_empty(&self) -> bool {
        self.at_most.is_none()
    }

    #[cold]
    fn full(&self, most: u32) -> Refusal {
        let calls = if most == 1 { "call" } else { "calls" };
        let run = if most == 1 { "runs" } else { "run" };
        let text = format!("at most {most} {calls} of `{}` {run} at once", self.name);
        Refusal::new(Kind::Overloaded, text)
    }
}

impl Descriptors {
    /// Returns the descriptors of the procedures of `serve`. `None` if the server keeps nothing for any of
    /// them.
    fn of(serve: &dyn Serve) -> Option<Arc<Self>> {
        let interface = serve.interface();
        let at_most = |name: &str| {
            let most = serve.at_most().iter().find(|(one, _)| *one == name)?.1;
            Some(AtMost { most, running: AtomicU32::new(0) })
        };
        let descriptor = |number| {
            let name = interface.procedure_name(number).unwrap_or_default();
            Descriptor { name: name.into(), at_most: at_most(name) }
        };
        let all: Box<[_]> = (0..interface.procedures() as u32).map(descriptor).collect();
        all.iter().any(|one| !one.is_empty()).then(|| Arc::new(Self(all)))
    }

    /// Begins a call. Returns `None` if nothing is kept for its procedure.
    ///
    /// # Errors
    /// If the call may not run now.
    #[inline]
    fn begin(&self, procedure: u32) -> Result<Option<FollowedCall>, Refusal> {
        let Some(descriptor) = self.0.get(procedure as usize) else { return Ok(None) };
        if descriptor.is_empty() {
            return Ok(None);
        }
        if let Some(at_most) = &descriptor.at_most
            && !at_most.begin()
        {
            return Err(descriptor.full(at_most.most));
        }
        Ok(Some(FollowedCall { procedure }))
    }
}

impl Follows for Descriptors {
    fn ended(&self, call: &FollowedCall, _result: Option<(Answer, usize)>) {
        let Some(descriptor) = self.0.get(call.procedure as usize) else { return };
        if let Some(at_most) = &descriptor.at_most {
            at_most.end();
        }
    }
}

/// A call that ends on the thread that runs it. If this value is dropped, the procedure has panicked.
struct OnThread<'a> {
    descriptors: &'a Descriptors,
    call: FollowedCall,
    result: Option<(Answer, usize)>,
}

impl Drop for OnThread<'_> {
    fn drop(&mut self) {
        self.descriptors.ended(&self.call, self.result);
    }
}

/// A server stub around which an export has descriptors.
pub(crate) struct WithDescriptors<S> {
    serve: S,
    descriptors: Arc<Descriptors>,
}

impl WithDescriptors<Arc<dyn Serve>> {
    /// Returns a stub that keeps descriptors around `serve`, or `serve` itself if there is nothing to keep.
    pub(crate) fn over(serve: Arc<dyn Serve>) -> Arc<dyn Serve> {
        match Descriptors::of(&*serve) {
            None => serve,
            Some(descriptors) => Arc::new(Self { serve, descriptors }),
        }
    }
}

impl<S: Deref<Target: Serve> + Send + Sync> Serve for WithDescriptors<S> {
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
        Some(Arc::new(WithDescriptors { serve, descriptors: Arc::clone(&self.descriptors) }))
    }

    fn allowed(&self) -> &'static [(&'static str, &'static [&'static str])] {
        self.serve.allowed()
    }

    fn at_most(&self) -> &'static [(&'static str, u32)] {
        self.serve.at_most()
    }

    fn refused(&self, procedure: u32, bytes: usize, caller: &Caller, refusal: &Refusal) {
        self.serve.refused(procedure, bytes, caller, refusal);
    }

    fn serve_foreign(&self, call: &ForeignCall<'_>, results: &mut Vec<u8>) -> ServedForeign {
        let Some(procedure) = call.procedure_of(&self.serve.interface()) else {
            return self.serve.serve_foreign(call, results);
        };
        let Some(begun) = self.descriptors.begin(procedure)? else {
            return self.serve.serve_foreign(call, results);
        };
        let mut ends = OnThread { descriptors: &self.descriptors, call: begun, result: None };
        let before = results.len();
        // The thread also waits for the end of an async procedure.
        let served = self.serve.serve_foreign(call, results);
        let bytes = results.len().saturating_sub(before);
        ends.result = served.as_ref().ok().map(|answer| ((*answer).into(), bytes));
        served
    }

    #[inline]
    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        let Some(call) = self.descriptors.begin(request.procedure())? else {
            return self.serve.serve(request, reply);
        };
        if !self.serve.is_async() {
            let mut ends = OnThread { descriptors: &self.descriptors, call, result: None };
            let served = self.serve.serve(request, reply);
            ends.result = served.as_ref().ok().map(|()| reply.ended());
            return served;
        }
        let followed = Followed::new(Arc::clone(&self.descriptors) as _, call);
        let (served, left) = offer(followed, || self.serve.serve(request, reply));
        if let Some(followed) = left {
            followed.end(served.as_ref().ok().map(|()| reply.ended()));
        }
        served
    }
}
