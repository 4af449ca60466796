//! What a server keeps for each procedure of an export: LRPC's procedure descriptors.
//!
//! The descriptors are around the server stub, and inside of all layers. An export for whose procedures the
//! server keeps nothing has none, so its calls cost nothing more.

mod census;
mod within;

use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use self::census::Census;
pub use self::within::Late;
pub(crate) use self::within::OnLate;
use self::within::{Change, Within};
use super::procedure::catching;
use crate::call::followed::{Followed, FollowedCall, Follows, offer};
use crate::call::{
    Answer, Caller, ForeignCall, Refusal, Reply, Request, Serve, Served, ServedForeign, is_remote,
};
use crate::counters::{AtMostStat, Page, ProcedureCounts};
use crate::error::Kind;
use crate::interface::InterfaceRef;
use crate::sync::Mutex;
use crate::sys;
use crate::value::ByteOrder;

/// What a server keeps for procedures, and the descriptors of all its exports.
#[derive(Default)]
pub(crate) struct Procedures {
    /// Whether the server makes a census of all procedures.
    census: AtomicBool,
    on_late: Mutex<Option<Arc<OnLate>>>,
    all: Mutex<Vec<Weak<Descriptors>>>,
}

impl Procedures {
    /// Makes a census of all procedures of exports that are opened from now on.
    pub(crate) fn make_census(&self) {
        self.census.store(true, Ordering::Relaxed);
    }

    /// Reports to `hook` from now on when procedures become late, and when they are in time again.
    pub(crate) fn set_on_late(&self, hook: Arc<OnLate>) {
        *self.on_late.lock() = Some(hook);
    }

    /// Returns a server stub that keeps descriptors around `serve`, or `serve` itself if there is nothing to
    /// keep. The descriptors are shown in `page`.
    pub(crate) fn around(
        self: &Arc<Self>,
        export: &str,
        serve: Arc<dyn Serve>,
        page: &Arc<Page>,
    ) -> Arc<dyn Serve> {
        let Some(descriptors) = Descriptors::of(&*serve, export, self, page) else {
            return serve;
        };
        let mut all = self.all.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&descriptors));
        drop(all);
        Arc::new(WithDescriptors { serve, descriptors })
    }

    /// Writes what is kept for each procedure to the pages of counters.
    pub(super) fn show(&self) {
        let all: Vec<_> = self.all.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|descriptors| descriptors.show());
    }
}

/// The descriptors of an export.
struct Descriptors {
    export: Box<str>,
    /// By the numbers of the procedures.
    each: Box<[Descriptor]>,
    page: Arc<Page>,
    /// Those of the server.
    all: Arc<Procedures>,
}

/// What the server keeps for one procedure.
#[derive(Default)]
struct Descriptor {
    name: Box<str>,
    /// The row of the procedure in the pages of counters. `None` if no row was left.
    row: Option<u32>,
    /// `None`: any number of calls may run at once.
    at_most: Option<AtMost>,
    /// `None`: the server makes no census.
    census: Option<Census>,
    /// `None`: calls may take any time.
    within: Option<Within>,
}

/// Bounds the running calls of a procedure.
struct AtMost {
    most: u32,
    running: AtomicU32,
    /// The number of calls that were refused.
    refused: AtomicU64,
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
        self.at_most.is_none() && self.census.is_none() && self.within.is_none()
    }

    #[cold]
    fn full(&self, AtMost { most, refused, .. }: &AtMost) -> Refusal {
        refused.fetch_add(1, Ordering::Relaxed);
        let calls = if *most == 1 { "call" } else { "calls" };
        let run = if *most == 1 { "runs" } else { "run" };
        let text = format!("at most {most} {calls} of `{}` {run} at once", self.name);
        Refusal::new(Kind::Overloaded, text)
    }
}

impl Descriptors {
    /// Returns the descriptors of the procedures of `serve`. `None` if the server keeps nothing for any of
    /// them.
    fn of(
        serve: &dyn Serve,
        export: &str,
        all: &Arc<Procedures>,
        page: &Arc<Page>,
    ) -> Option<Arc<Self>> {
        let interface = serve.interface();
        let at_most = |name: &str| {
            let most = serve.at_most().iter().find(|(one, _)| *one == name)?.1;
            Some(AtMost { most, running: AtomicU32::new(0), refused: AtomicU64::new(0) })
        };
        let within = |name: &str| {
            let (ns, promised) = serve.within().iter().find(|(one, _)| *one == name)?.1;
            Some(Within::new(ns, promised))
        };
        let has_census = all.census.load(Ordering::Relaxed);
        let descriptor = |number| {
            let name = interface.procedure_name(number).unwrap_or_default();
            let mut one = Descriptor {
                name: name.into(),
                row: None,
                at_most: at_most(name),
                census: has_census.then(Census::new),
                within: within(name),
            };
            one.row = if one.is_empty() { None } else { page.take_procedure() };
            one
        };
        let each: Box<[_]> = (0..interface.procedures() as u32).map(descriptor).collect();
        let is_needed = each.iter().any(|one| !one.is_empty());
        let (page, all) = (Arc::clone(page), Arc::clone(all));
        is_needed.then(|| Arc::new(Self { export: export.into(), each, page, all }))
    }

    /// Begins a call. Returns `None` if nothing is kept for its procedure.
    ///
    /// # Errors
    /// If the call may not run now.
    #[inline]
    fn begin(
        &self,
        procedure: u32,
        argument_bytes: usize,
    ) -> Result<Option<FollowedCall>, Refusal> {
        let Some(descriptor) = self.each.get(procedure as usize) else { return Ok(None) };
        if descriptor.is_empty() {
            return Ok(None);
        }
        if let Some(at_most) = &descriptor.at_most
            && !at_most.begin()
        {
            return Err(descriptor.full(at_most));
        }
        let is_remote = descriptor.census.is_some() && is_remote();
        let begun = if descriptor.within.is_some() { sys::boot_ns() } else { 0 };
        Ok(Some(FollowedCall { procedure, argument_bytes, begun, is_remote }))
    }

    #[cold]
    fn report(&self, descriptor: &Descriptor, within: &Within, change: Change) {
        let hook = self.all.on_late.lock().clone();
        if let Some(hook) = hook {
            let late = within.told(&self.export, &descriptor.name, change);
            // The call has ended in any case, also if the hook panics.
            let _ = catching(|| hook(&late));
        }
    }

    /// Writes what is kept for each procedure to the pages of counters.
    fn show(&self) {
        for Descriptor { name, row, at_most, census, within } in &self.each {
            let Some(row) = row else { continue };
            let at_most = at_most.as_ref().map(|at_most| AtMostStat {
                most: at_most.most,
                running: at_most.running.load(Ordering::Relaxed),
                refused: at_most.refused.load(Ordering::Relaxed),
            });
            let census = census.as_ref().map(Census::counts);
            let within = within.as_ref().map(Within::counts);
            let counts = ProcedureCounts { export: &self.export, name, at_most, census, within };
            self.page.write_procedure(*row, &counts);
        }
    }
}

impl Follows for Descriptors {
    fn ended(&self, call: &FollowedCall, result: Option<(Answer, usize)>) {
        let Some(descriptor) = self.each.get(call.procedure as usize) else { return };
        if let Some(at_most) = &descriptor.at_most {
            at_most.end();
        }
        if let (Some(census), Some((_, bytes))) = (&descriptor.census, result) {
            census.count(call.argument_bytes, bytes, call.is_remote);
        }
        if let Some(within) = &descriptor.within {
            let took = sys::boot_ns().saturating_sub(call.begun);
            // A call without a result does not count, unless it was late before it failed.
            if (result.is_some() || within.is_late(took))
                && let Some(change) = within.count(took)
            {
                self.report(descriptor, within, change);
            }
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        let rows = self.each.iter().filter_map(|descriptor| descriptor.row);
        rows.for_each(|row| self.page.leave_procedure(row));
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
struct WithDescriptors<S> {
    serve: S,
    descriptors: Arc<Descriptors>,
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

    fn within(&self) -> &'static [(&'static str, (u64, u32))] {
        self.serve.within()
    }

    fn refused(&self, procedure: u32, bytes: usize, caller: &Caller, refusal: &Refusal) {
        self.serve.refused(procedure, bytes, caller, refusal);
    }

    fn serve_foreign(&self, call: &ForeignCall<'_>, results: &mut Vec<u8>) -> ServedForeign {
        let Some(procedure) = call.procedure_of(&self.serve.interface()) else {
            return self.serve.serve_foreign(call, results);
        };
        let Some(begun) = self.descriptors.begin(procedure, call.arguments.len())? else {
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
        let Some(call) = self.descriptors.begin(request.procedure(), request.bytes())? else {
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
