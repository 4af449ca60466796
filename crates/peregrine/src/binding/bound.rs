//! `Bound`: what was decided at bind time, and everything that a call needs.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use super::explain::Explanation;
use crate::call::{CallPath, Frames, OnExhausted};
use crate::error::{CallError, Executed, Phase};
use crate::interface::InterfaceRef;
use crate::path::bind::BoundPath;
use crate::sys::ForkMark;

/// What all clones of a binding share, until it is bound again.
pub(crate) struct Bound {
    pub(crate) path: Box<dyn CallPath>,
    pub(crate) frames: Arc<Frames>,
    pub(crate) on_exhausted: OnExhausted,
    pub(crate) interface: InterfaceRef,
    pub(crate) explanation: Explanation,
    pub(crate) mark: ForkMark,
    /// What is special about its calls; zero is straight through.
    flags: AtomicU32,
    /// The server's number of each procedure of the client's, if they differ.
    numbers: Option<Box<[u32]>>,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("path", &self.path.kind()).finish_non_exhaustive()
    }
}

/// The server's values are of the other byte order.
const SWAPPED: u32 = 1;
/// The server numbers its procedures otherwise.
const MAPPED: u32 = 2;
/// It was bound again: calls go another way.
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
            CallError::system(Phase::Bind, "no memory for the fork mark", error)
        })?;
        let BoundPath { path, frames, order } = bound;
        let swapped = if order.is_native() { 0 } else { SWAPPED };
        let mapped = if numbers.is_some() { MAPPED } else { 0 };
        let flags = AtomicU32::new(swapped | mapped);
        Ok(Self { path, frames, on_exhausted, interface, explanation, mark, flags, numbers })
    }

    /// Whether anything is special about its calls.
    #[inline]
    pub(crate) fn is_special(&self) -> bool {
        self.flags.load(Ordering::Relaxed) != 0
    }

    /// Whether the server's values are of the other byte order.
    #[cold]
    pub(crate) fn is_swapped(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & SWAPPED != 0
    }

    /// Whether calls go another way by now.
    #[cold]
    pub(crate) fn has_moved(&self) -> bool {
        self.flags.load(Ordering::Acquire) & MOVED != 0
    }

    /// Calls go another way from now on.
    pub(super) fn moves(&self) {
        self.flags.fetch_or(MOVED, Ordering::AcqRel);
    }

    /// The number by which the server knows a procedure.
    #[cold]
    pub(crate) fn number(&self, procedure: u32) -> u32 {
        let mapped = self.numbers.as_ref().and_then(|numbers| numbers.get(procedure as usize));
        mapped.copied().unwrap_or(procedure)
    }

    /// The name of a procedure, for errors.
    pub(crate) fn procedure_name(&self, number: u32) -> &str {
        self.interface.procedure_name(number).unwrap_or("ping")
    }

    /// Whether a procedure may run twice.
    fn is_idempotent(&self, number: u32) -> bool {
        // What every export has does nothing, or tells.
        self.interface.is_idempotent(number).unwrap_or(true)
    }

    /// Whether a call that failed may be made again: it did not run, or may run twice.
    pub(super) fn may_repeat(&self, number: u32, error: &CallError, idempotent_too: bool) -> bool {
        error.executed() == Executed::No || idempotent_too && self.is_idempotent(number)
    }
}
