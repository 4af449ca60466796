//! The caller's end of a callback.

use core::task::Context;
use std::sync::Arc;

use super::ClientConduit;
use super::drive::Drive;
use crate::binding::Bound;
use crate::call::Serve;
use crate::call::streams::Opening;
use crate::error::CallError;
use crate::stub::callback::{Callable, Callback};

/// The caller's end of a callback, which serves the procedure's calls.
pub struct CallbackDrive<'a> {
    serve: Box<dyn Serve + 'a>,
    outlives: bool,
}

impl<'a> CallbackDrive<'a> {
    /// Makes the caller's end of a callback that ends with its call.
    pub fn new<L: Callable + ?Sized>(callback: Callback<'a, L>) -> Self {
        Self { serve: callback.into_serve(), outlives: false }
    }
}

impl CallbackDrive<'static> {
    /// Makes the caller's end of a callback that the procedure may keep after the call.
    pub fn kept<L: Callable + ?Sized>(callback: Callback<'static, L>) -> Self {
        Self { serve: callback.into_serve(), outlives: true }
    }
}

impl Drive for CallbackDrive<'_> {
    fn open(&mut self, _: &Arc<ClientConduit>, _: &Arc<Bound>) {
        let _ = (&self.serve, self.outlives);
        todo!()
    }
    fn opening(&self) -> Opening {
        todo!()
    }
    fn drive(&mut self, _: &mut Context<'_>) -> bool {
        todo!()
    }
    fn is_done(&self) -> bool {
        todo!()
    }
    fn has_begun(&self) -> bool {
        todo!()
    }
    fn has_moved(&self) -> bool {
        todo!()
    }
    fn failure(&self) -> Option<&CallError> {
        todo!()
    }
}

impl core::fmt::Debug for CallbackDrive<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CallbackDrive").finish_non_exhaustive()
    }
}
