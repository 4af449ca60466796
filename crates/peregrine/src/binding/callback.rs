//! Callbacks: the binding of a procedure to an object of its caller. Stubs know no path, so this module gives
//! them both sides of a callback.

use super::{BindOptions, Binding, Verdict, explain_all};
use crate::call::Refusal;
use crate::call::streams::Opening;
use crate::interface::InterfaceRef;
use crate::observe::layers_of_procedure;
use crate::path::callback::client;
pub(crate) use crate::path::callback::server::{Next, ObjectSide};

impl Binding {
    /// Opens the procedure's side of a callback. `outlives` is whether the procedure may keep the callback
    /// after the call.
    ///
    /// # Errors
    /// If `opening` does not describe a callback of the caller, or there is no memory.
    pub(crate) fn to_caller(
        opening: &Opening,
        interface: InterfaceRef,
        outlives: bool,
    ) -> Result<Self, Refusal> {
        let options = BindOptions { layers: layers_of_procedure(), ..BindOptions::default() };
        let path = client::open(opening, options.message_bytes_for(&interface), outlives)?;
        let why = "the callback uses the binding of its caller";
        let explanation = explain_all("callback", Verdict::NotNeeded, why);
        Self::of_path(path, None, interface, explanation, &options)
            .map_err(|error| Refusal::exhausted(&error.to_string()))
    }
}
