//! `Bound`: the result of binding, with everything that a call needs.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use super::explain::Explanation;
use crate::call::{CallPath, Frames, OnExhausted};
use crate::error::{CallError, Executed, Phase};
use crate::interface::InterfaceRef;
use crate::path::bind::BoundPath;
use crate::sys::ForkMark;

/// The state that all clones of a binding share until it is bound again.
pub(crate) struct Bound {
    pub(crate) path: Box<dyn CallPath>,
    pub(crate) frames: Arc<Frames>,
    pub(crate) on_exhausted: OnExhausted,
    pub(crate) interface: InterfaceRef,
    pub(crate) explanation: Explanation,
    pub(crate) mark: ForkMark,
    /// The conditions under which calls take the slow path. Zero: none.
    flags: AtomicU32,
    /// The server's number of each of the client's procedures, if the numbers differ.
    numbers: Option<Box<[u32]>>,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("path", &self.path.kind()).finish_non_exhaustive()
    }
}

/// The server's values have the other byte order.
const SWAPPED: u32 = 1;
/// The server's procedure numbers differ from the client's.
const MAPPED: u32 = 2;
/// The binding was bound again, so calls use the new `Bound`.
const MOVED: u32 = 4;

impl Bound {
    pub(crate) fn new(
        bound: BoundPath,
        numbers: Option<Box<[u32]>>,
        interface: InterfaceRef,
        explanation: Explanation,
        on_exhausted: OnExhausted,
    ) -> Result<Self, CallError> {
        let mark = ForkMark::of_process().map_err(|error| {
            CallError::system(Phase::Bind, "cannot allocate the fork mark", error)
        })?;
        let BoundPath { path, frames, order } = bound;
        let swapped = if order.is_native() { 0 } else { SWAPPED };
        let mapped = if numbers.is_some() { MAPPED } else { 0 };
        let flags = AtomicU32::new(swapped | mapped);
        Ok(Self { path, frames, on_exhausted, interface, explanation, mark, flags, numbers })
    }

    /// Returns whether calls must take the slow path.
    #[inline(always)]
    pub(crate) fn is_special(&self) -> bool {
        self.flags.load(Ordering::Relaxed) != 0
    }

    /// Returns whether the server's values have the other byte order.
    #[cold]
    pub(crate) fn is_swapped(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & SWAPPED != 0
    }

    /// Returns whether the binding was bound again, so that calls use a newer `Bound`.
    #[cold]
    pub(crate) fn has_moved(&self) -> bool {
        self.flags.load(Ordering::Acquire) & MOVED != 0
    }

    /// Marks this as replaced by a newer `Bound`.
    pub(super) fn moves(&self) {
        self.flags.fetch_or(MOVED, Ordering::AcqRel);
    }

    /// Returns the server's number of a procedure.
    #[cold]
    pub(crate) fn number(&self, procedure: u32) -> u32 {
        let mapped = self.numbers.as_ref().and_then(|numbers| numbers.get(procedure as usize));
        mapped.copied().unwrap_or(procedure)
    }

    /// Returns the name of a procedure, for errors.
    pub(crate) fn procedure_name(&self, number: u32) -> &str {
        self.interface.procedure_name(number).unwrap_or("ping")
    }

    /// Returns whether a procedure may run twice.
    fn is_idempotent(&self, number: u32) -> bool {
        // `None`: a built-in procedure of every export, which is not part of the interface. Built-in
        // procedures may run twice: they do nothing, or return a description.
        self.interface.is_idempotent(number).unwrap_or(true)
    }

    /// Returns whether a failed call may be repeated, because it did not run or may run twice.
    pub(super) fn may_repeat(&self, number: u32, error: &CallError, idempotent_too: bool) -> bool {
        error.executed() == Executed::No || idempotent_too && self.is_idempotent(number)
    }
}
