//! Which layers are around the procedure that a thread runs.

use core::cell::RefCell;
use std::sync::Arc;

use super::layers::{Layers, Observed};

thread_local! {
    /// The layers of the export whose procedure this thread runs.
    static WITHIN: RefCell<Option<Arc<Observed>>> = const { RefCell::new(None) };
}

/// Returns the layers of the export whose procedure this thread runs, or no layers.
pub(crate) fn layers_of_procedure() -> Layers {
    WITHIN.with_borrow(|within| {
        within.as_ref().map_or(const { Layers::none() }, |observed| observed.layers.clone())
    })
}

/// A procedure of an export with layers that this thread runs. When this value is dropped, the procedure around
/// it is current again.
pub(super) struct Within(Option<Arc<Observed>>);

impl Within {
    pub(super) fn enter(observed: &Arc<Observed>) -> Self {
        Self(WITHIN.replace(Some(Arc::clone(observed))))
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        drop(WITHIN.replace(self.0.take()));
    }
}
