//! Callbacks of interpreted stubs.

use std::sync::Arc;

use super::client::{Argument, GenericClient, Shared, another};
use super::program::{Step, Unfit};
use crate::binding::Binding;
use crate::call::Refusal;
use crate::call::streams::Opening;
use crate::error::CallError;
use crate::interface::{Described, InterfaceRef};
use crate::stub::streams::CallbackDrive;

/// The interface of a callback.
#[derive(Debug)]
pub(super) struct Nested {
    interface: InterfaceRef,
    shared: Arc<Shared>,
}

/// Returns the interface of the callback that is the parameter `place` of procedure `number`. `step` is the
/// step of this parameter.
pub(super) fn nested(described: &Described, number: u32, place: usize, step: &Step) -> Arc<Nested> {
    let nested = step.nested.get_or_init(|| {
        let procedure = described.procedures.get(number as usize);
        let parameter = procedure.and_then(|one| one.parameters.get(place));
        // `none` is never called: a description in which the type of a callback is not an interface was
        // refused when it was read.
        let own = parameter.and_then(|one| described.interface_of(&one.ty)).unwrap_or_else(none);
        let interface = InterfaceRef::from(own.clone());
        Arc::new(Nested { interface, shared: Arc::new(Shared::new(own)) })
    });
    Arc::clone(nested)
}

/// Returns an interface without procedures.
fn none() -> Described {
    let (name, docs) = (String::new(), String::new());
    Described {
        name,
        version: 0,
        docs,
        procedures: Vec::new(),
        types: Vec::new(),
        programs: Vec::new(),
    }
}

/// Returns the caller's end of a callback.
pub(super) fn served(
    step: &Step,
    nested: &Nested,
    argument: &Argument<'_>,
) -> Result<CallbackDrive<'static>, CallError> {
    let Argument::Callback(server) = argument else {
        return Err(another(step, "a server of a callback"));
    };
    let (wanted, got) = (&nested.interface, server.interface());
    if *wanted != got {
        let text = |one: &InterfaceRef| {
            format!("interface `{}` version {} ({})", one.name(), one.version(), one.digest())
        };
        let unfit = Unfit::expected(&format!("a server of {}", text(wanted)), &text(&got));
        return Err(super::client::unfit(&unfit.of(&step.name)));
    }
    Ok(CallbackDrive::of_server(Arc::clone(server)))
}

impl Nested {
    /// Returns a client through which a procedure calls the object of its caller.
    ///
    /// # Errors
    /// If `opening` does not describe a callback of the caller, or there is no memory.
    pub(super) fn open(&self, opening: &Opening) -> Result<GenericClient, Refusal> {
        let binding = Binding::to_caller(opening, self.interface.clone(), true)?;
        Ok(GenericClient::sharing(binding, Arc::clone(&self.shared)))
    }
}
