//! Which layers are around the procedure that a thread runs, and what they have set for the calls of this
//! procedure.

use core::cell::RefCell;
use std::sync::Arc;

use super::layers::{Layers, Observed};
#[cfg(feature = "tracing")]
use super::traceparent::Trace;
#[cfg(feature = "tracing")]
use crate::call::source_of_thread;

/// What the calls of a procedure are within. Without the feature `tracing`, there is no such value.
#[cfg(not(feature = "tracing"))]
pub(super) type Scope = core::convert::Infallible;

/// What the calls of a procedure are within.
#[cfg(feature = "tracing")]
#[derive(Debug)]
pub(super) struct Scope {
    /// The span of the procedure. It is disabled if no subscriber wants it.
    pub(super) span: ::tracing::Span,
    /// The place of the procedure in its trace.
    pub(super) context: Option<Trace>,
}

thread_local! {
    /// The procedure that this thread runs, if its export has layers.
    static WITHIN: RefCell<Option<Procedure>> = const { RefCell::new(None) };
}

struct Procedure {
    observed: Arc<Observed>,
    #[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "there is no scope"))]
    scope: Option<Arc<Scope>>,
}

/// Returns the layers of the export whose procedure this thread runs, or no layers.
pub(crate) fn layers_of_procedure() -> Layers {
    WITHIN.with_borrow(|within| {
        within.as_ref().map_or(const { Layers::none() }, |one| one.observed.layers.clone())
    })
}

/// Returns what the calls of the procedure are within that this thread runs.
#[cfg(feature = "tracing")]
pub(super) fn scope_of_procedure() -> Option<Arc<Scope>> {
    // The source of the calls of an async procedure is the same for each of its polls.
    let scope = source_of_thread().and_then(|(calls, _)| calls.scope());
    scope
        .and_then(|scope| scope.downcast().ok())
        .or_else(|| WITHIN.with_borrow(|within| within.as_ref().and_then(|one| one.scope.clone())))
}

/// A procedure of an export with layers that this thread runs, or polls for the first time. When this value is
/// dropped, the procedure around it is current again.
pub(super) struct Within {
    before: Option<Procedure>,
    /// Dropped after the procedure around this one is current again.
    #[cfg(feature = "tracing")]
    _span: Option<InSpan>,
}

/// Makes the span of a procedure the current one of this thread, until this value is dropped.
#[cfg(feature = "tracing")]
pub(super) struct InSpan(Arc<Scope>);

#[cfg(feature = "tracing")]
impl InSpan {
    pub(super) fn enter(scope: Arc<Scope>) -> Self {
        scope.span.with_subscriber(|(span, subscriber)| subscriber.enter(span));
        Self(scope)
    }
}

#[cfg(feature = "tracing")]
impl Drop for InSpan {
    fn drop(&mut self) {
        self.0.span.with_subscriber(|(span, subscriber)| subscriber.exit(span));
    }
}

impl Within {
    pub(super) fn enter(observed: &Arc<Observed>, scope: Option<Arc<Scope>>) -> Self {
        #[cfg(feature = "tracing")]
        let _span = scope.clone().map(InSpan::enter);
        let procedure = Procedure { observed: Arc::clone(observed), scope };
        Self {
            before: WITHIN.replace(Some(procedure)),
            #[cfg(feature = "tracing")]
            _span,
        }
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        drop(WITHIN.replace(self.before.take()));
    }
}
