//! `Bound`: the result of binding a client to an export. It contains everything that a call needs.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::explain::Explanation;
use crate::call::{CallPath, Frames, OnExhausted};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::interface::{InterfaceRef, System};
use crate::observe::{LayeredPath, Layers};
use crate::path::bind::BoundPath;
use crate::stub::{ClientConduit, Conversion, ConvertedPath, Lane, SharedPath};
use crate::sync::Mutex;
use crate::sys::ForkMark;
use crate::value::ByteOrder;

/// The state that all clones of a binding share until the binding is bound again, for example to a new
/// server.
pub(crate) struct Bound {
    pub(crate) path: Box<dyn CallPath>,
    pub(crate) frames: Arc<Frames>,
    pub(crate) on_exhausted: OnExhausted,
    pub(crate) interface: InterfaceRef,
    pub(crate) explanation: Explanation,
    pub(crate) mark: ForkMark,
    /// The lane of the calls that share batches. Made when the first of these calls begins.
    lane: OnceLock<Arc<Lane>>,
    /// What carries the streams of calls.
    conduit: Mutex<Option<Arc<ClientConduit>>>,
    /// One bit for each condition under which calls take the slow path: `SWAPPED`, `DIFFERENT`, `MOVED`,
    /// `FOREIGN`, `FRONT`. And `LAYERED`, for which only one-way calls take it.
    flags: AtomicU32,
    /// The layers, which see each call.
    pub(crate) layers: Layers,
    /// How calls find the server's procedures. `None`: client and server use the same procedure numbers.
    fit: Option<Box<Differing>>,
}

/// How a client calls the procedures of a server whose interface differs from the client's.
#[derive(Debug)]
pub(crate) struct Fit {
    /// For each procedure of the client, its number at the server. `None`: the server has no such procedure.
    pub(super) numbers: Box<[Option<u32>]>,
    /// The conversion of the messages that differ between the two interfaces. `None`: no message differs.
    pub(super) conversion: Option<Conversion>,
}

/// The data by which calls find the server's procedures if the server's interface differs from the client's.
struct Differing {
    /// The numbers of the procedures, as in [`Fit::numbers`].
    numbers: Box<[Option<u32>]>,
    /// The part of the binding that makes converted calls. `None`: no procedure needs conversion.
    converted: Option<Converted>,
}

/// The part of a binding that makes converted calls.
struct Converted {
    /// For each of the client's procedures, whether the calls of the procedure are converted.
    which: Box<[bool]>,
    bound: Bound,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("path", &self.path.kind()).finish_non_exhaustive()
    }
}

impl Drop for Bound {
    /// Gives up the messages that are still under way for calls that have ended. Otherwise the server could
    /// hold such a message, and with it the session, for ever.
    fn drop(&mut self) {
        // A forked child must not use the locks: a thread of its parent may have held them.
        if self.mark.wiped() {
            return;
        }
        if let Some(lane) = self.lane.get() {
            lane.close(self);
        }
        let conduit = self.conduit.lock().take();
        if let Some(conduit) = conduit {
            conduit.close(self);
        }
    }
}

/// The byte order of the server's values is not the native one.
const SWAPPED: u32 = 1;
/// The server's interface differs from the client's.
const DIFFERENT: u32 = 2;
/// The binding was bound again, so calls use the new `Bound`.
const MOVED: u32 = 4;
/// The server belongs to another RPC system.
const FOREIGN: u32 = 8;
/// The binding has layers. Its calls share no messages, because layers see each call.
const LAYERED: u32 = 16;
/// The state of a pool before it has chosen a server for a call.
const FRONT: u32 = 32;

impl Bound {
    pub(crate) fn new(
        bound: BoundPath,
        fit: Option<Fit>,
        interface: InterfaceRef,
        explanation: Explanation,
        on_exhausted: OnExhausted,
        layers: &Layers,
    ) -> Result<Self, CallError> {
        let BoundPath { path, frames, order } = bound;
        let layered = if layers.is_empty() { 0 } else { LAYERED };
        let address = explanation.address().to_owned();
        let swapped = if order.is_native() { 0 } else { SWAPPED };
        let different = if fit.is_some() { DIFFERENT } else { 0 };
        let foreign = if path.kind().system().is_some() { FOREIGN } else { 0 };
        let (path, fit) = match fit {
            None => (path, None),
            Some(Fit { numbers, conversion: None }) => {
                (path, Some(Box::new(Differing { numbers, converted: None })))
            }
            Some(Fit { numbers, conversion: Some(conversion) }) => {
                let path: Arc<dyn CallPath> = path.into();
                let which = (0..numbers.len() as u32).map(|one| conversion.converts(one)).collect();
                let over = ConvertedPath::over(&path, &frames, order, conversion);
                let (converted, own) = over.map_err(|error| {
                    let what = "cannot allocate memory for converted calls";
                    CallError::system(Phase::Bind, what, error)
                })?;
                let converted = BoundPath {
                    path: Box::new(converted),
                    frames: Arc::new(own),
                    order: ByteOrder::NATIVE,
                };
                let bound = Self::new(
                    converted,
                    None,
                    interface.clone(),
                    explanation.clone(),
                    on_exhausted,
                    layers,
                )?;
                let converted = Some(Converted { which, bound });
                let path = Box::new(SharedPath(path)) as Box<dyn CallPath>;
                (path, Some(Box::new(Differing { numbers, converted })))
            }
        };
        let mark = ForkMark::of_process().map_err(|error| {
            CallError::system(Phase::Bind, "cannot allocate the fork mark", error)
        })?;
        let path = match layers.is_empty() {
            true => path,
            false => {
                let observed = layers.observe(interface.clone(), &address);
                let numbers = fit.as_ref().map(|fit| &*fit.numbers);
                Box::new(LayeredPath::over(path, &frames, observed, numbers)) as Box<dyn CallPath>
            }
        };
        let flags = AtomicU32::new(swapped | different | foreign | layered);
        Ok(Self {
            path,
            frames,
            on_exhausted,
            interface,
            explanation,
            mark,
            lane: OnceLock::new(),
            conduit: Mutex::default(),
            flags,
            layers: layers.clone(),
            fit,
        })
    }

    /// Returns the state of a pool before it has chosen a server for a call. `path` refuses all calls.
    pub(super) fn of_pool(
        path: BoundPath,
        interface: InterfaceRef,
        explanation: Explanation,
        on_exhausted: OnExhausted,
    ) -> Result<Self, CallError> {
        let front = Self::new(path, None, interface, explanation, on_exhausted, &Layers::none())?;
        front.flags.fetch_or(FRONT, Ordering::Relaxed);
        Ok(front)
    }

    /// Returns whether this is the state of a pool that has not chosen a server.
    #[cold]
    pub(super) fn is_front(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & FRONT != 0
    }

    /// Returns the conduit that carries the streams of calls.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub(crate) fn conduit(self: &Arc<Self>) -> Result<Arc<ClientConduit>, CallError> {
        let known = self.conduit.lock().as_ref().map(Arc::clone);
        if let Some(conduit) = known.as_ref().filter(|conduit| conduit.is_usable(self)) {
            return Ok(Arc::clone(conduit));
        }
        let new = ClientConduit::new(self)?;
        let mut conduit = self.conduit.lock();
        let same = |one: &Option<Arc<_>>| one.as_ref().map(Arc::as_ptr);
        if same(&conduit) == same(&known) {
            let before = conduit.replace(Arc::clone(&new));
            drop(conduit);
            drop(before);
            return Ok(new);
        }
        // Another call may have made a conduit meanwhile.
        Ok(conduit.as_ref().map_or(new, Arc::clone))
    }

    /// Returns whether the server's values have the other byte order.
    pub(crate) fn is_swapped_server(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & SWAPPED != 0
    }

    /// Returns the lane of the calls that share batches.
    pub(crate) fn lane(self: &Arc<Self>) -> &Arc<Lane> {
        self.lane.get_or_init(|| Lane::new(self))
    }

    /// Returns whether layers see each call.
    #[cold]
    pub(crate) const fn is_layered(&self) -> bool {
        !self.layers.is_empty()
    }

    /// Returns whether calls must take the slow path. The calls of a binding with layers need not, because its
    /// path calls the layers.
    #[inline(always)]
    pub(crate) fn is_special(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & !LAYERED != 0
    }

    /// Returns whether one-way calls must take the slow path. The layers must see each of them alone.
    #[inline(always)]
    pub(crate) fn is_special_or_layered(&self) -> bool {
        self.flags.load(Ordering::Relaxed) != 0
    }

    /// Returns whether the stub must write the values of this procedure's calls in the non-native byte order.
    #[cold]
    pub(crate) fn is_swapped(&self, procedure: u32) -> bool {
        // The stub writes converted calls in the native byte order. `ConvertedPath` converts them later.
        self.flags.load(Ordering::Relaxed) & SWAPPED != 0 && self.converted(procedure).is_none()
    }

    /// Returns whether the stub must write the values of this procedure's calls in the native representation.
    #[cold]
    pub(crate) fn is_native(&self, procedure: u32) -> bool {
        // In other systems, built-in procedures have no arguments to write. The path makes or refuses their
        // calls.
        let is_foreign = self.flags.load(Ordering::Relaxed) & FOREIGN != 0
            && (procedure as usize) < self.interface.procedures();
        !self.is_swapped(procedure) && !is_foreign
    }

    /// Returns the other RPC system to which the server belongs. `None`: the server is one of Peregrine.
    #[cold]
    pub(crate) fn system(&self) -> Option<System> {
        self.path.kind().system()
    }

    /// Returns the `Bound` that makes the converted calls of a procedure. `None`: its calls are not
    /// converted.
    fn converted(&self, procedure: u32) -> Option<&Self> {
        let converted = self.fit.as_ref()?.converted.as_ref()?;
        let is_converted = converted.which.get(procedure as usize).copied().unwrap_or(false);
        is_converted.then_some(&converted.bound)
    }

    /// Returns whether a message for the server of this `Bound` can be sent unchanged to the server of
    /// `other`.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let as_it_is =
            |one: &Self| one.flags.load(Ordering::Relaxed) & (SWAPPED | DIFFERENT | FOREIGN) == 0;
        as_it_is(self) && as_it_is(other)
    }

    /// Returns whether both servers belong to the same other RPC system, so that the client's interface is
    /// the same program at both servers.
    #[cold]
    pub(crate) fn is_same_program(&self, other: &Self) -> bool {
        self.system().is_some() && self.system() == other.system()
    }

    /// Returns whether the binding was bound again, so that calls use a newer `Bound`.
    #[cold]
    pub(crate) fn has_moved(&self) -> bool {
        self.flags.load(Ordering::Acquire) & MOVED != 0
    }

    /// Marks this `Bound` as replaced by a newer one.
    pub(super) fn moves(&self) {
        self.flags.fetch_or(MOVED, Ordering::AcqRel);
    }

    /// Returns the `Bound` that makes the calls of a procedure, and the number of the procedure in these
    /// calls.
    ///
    /// # Errors
    /// If the server has no such procedure.
    #[inline(always)]
    pub(crate) fn target(&self, procedure: u32) -> Result<(&Self, u32), CallError> {
        match &self.fit {
            None => Ok((self, procedure)),
            Some(fit) => self.target_at(fit, procedure),
        }
    }

    /// Returns whether the server has a procedure, as far as is known since the bind.
    pub(crate) fn has(&self, procedure: u32) -> bool {
        let numbers = self.fit.as_ref().map_or(&[][..], |fit| &fit.numbers);
        !matches!(numbers.get(procedure as usize), Some(None))
    }

    #[cold]
    fn target_at(&self, fit: &Differing, procedure: u32) -> Result<(&Self, u32), CallError> {
        if let Some(converted) = self.converted(procedure) {
            return Ok((converted, procedure));
        }
        match fit.numbers.get(procedure as usize) {
            Some(Some(number)) => Ok((self, *number)),
            Some(None) => Err(self.lacking(procedure)),
            // The number belongs to a built-in procedure. Every export has these procedures.
            None => Ok((self, procedure)),
        }
    }

    /// Returns the client's procedures that the server does not have.
    pub(super) fn lacks(&self) -> Vec<&str> {
        let numbers = self.fit.as_ref().map_or(&[][..], |fit| &fit.numbers);
        let lacking = (0..).zip(numbers).filter(|(_, number)| number.is_none());
        lacking.map(|(procedure, _)| self.procedure_name(procedure)).collect()
    }

    #[cold]
    fn lacking(&self, procedure: u32) -> CallError {
        const ADVICE: &str = "ask `Binding::lacks` after binding, or use a newer server";
        let name = self.procedure_name(procedure);
        let text = format!("the server has no procedure `{name}`");
        CallError::not_executed(Kind::NoSuchProcedure, Phase::Call, text).with_advice(ADVICE)
    }

    /// Returns the name of a procedure, for the text of an error.
    pub(crate) fn procedure_name(&self, number: u32) -> &str {
        self.interface.procedure_name(number).unwrap_or("ping")
    }

    /// Returns whether a procedure may run twice for one call.
    fn is_idempotent(&self, number: u32) -> bool {
        // `None`: a built-in procedure of every export, which is not part of the interface. Built-in
        // procedures may run twice: they do nothing, or return a description.
        self.interface.is_idempotent(number).unwrap_or(true)
    }

    /// Returns whether a failed call may be repeated: it did not run, or, if `idempotent_too` is true, its
    /// procedure may run twice.
    pub(super) fn may_repeat(&self, number: u32, error: &CallError, idempotent_too: bool) -> bool {
        error.executed() == Executed::No || idempotent_too && self.is_idempotent(number)
    }
}
