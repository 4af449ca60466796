//! `Target`: an export that the bridge offers, and the binding to it.

use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peregrine::interface::{Described, Digest};
use peregrine::{BindOptions, CallError, GenericClient, Rebind, describe};

use crate::failure::Failure;

/// An export that the bridge offers.
pub(crate) struct Target {
    /// The name of the export in paths.
    pub(crate) name: String,
    pub(crate) address: String,
    state: Mutex<State>,
    /// The lock is held by the thread that binds. Others wait, and share the outcome.
    binds: Mutex<()>,
}

/// What is known of the server.
#[derive(Default)]
struct State {
    bound: Option<Arc<Bound>>,
    /// The number of attempts to bind.
    attempts: u64,
    /// Why the last attempt failed.
    failure: Option<Failure>,
}

/// A binding to one run of a server.
pub(crate) struct Bound {
    pub(crate) client: GenericClient,
    pub(crate) digest: Digest,
    process: u32,
}

impl Bound {
    pub(crate) fn described(&self) -> &Described {
        self.client.described()
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("name", &self.name)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// The options of all bindings. The bridge itself binds again, because the interface may have changed.
fn options() -> BindOptions {
    BindOptions::default().rebind(Rebind::Never)
}

impl Target {
    pub(crate) fn new(name: &str, address: &str) -> Self {
        let (name, address) = (name.to_owned(), address.to_owned());
        Self { name, address, state: Mutex::default(), binds: Mutex::default() }
    }

    /// Returns the binding to the server. Binds if there is no binding, or the server has ended.
    ///
    /// # Errors
    /// If the server cannot be bound.
    pub(crate) fn bound(&self) -> Result<Arc<Bound>, Failure> {
        let attempts = match self.alive() {
            Ok(bound) => return Ok(bound),
            Err(attempts) => attempts,
        };
        let _binds = self.binds.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.state();
        if state.attempts != attempts {
            // Another thread has bound meanwhile, or has failed.
            if let Some(bound) = &state.bound {
                return Ok(Arc::clone(bound));
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
        }
        drop(state);
        self.renew()
    }

    /// Asks the server for its description, and returns a binding with this description. A server that was
    /// restarted, possibly with another interface, gets a new binding.
    ///
    /// # Errors
    /// If the server cannot be bound.
    pub(crate) fn renewed(&self) -> Result<Arc<Bound>, Failure> {
        let _binds = self.binds.lock().unwrap_or_else(PoisonError::into_inner);
        self.renew()
    }

    /// Forgets a binding whose server has ended.
    pub(crate) fn forget(&self, gone: &Arc<Bound>) {
        let mut state = self.state();
        let gone = state.bound.take_if(|bound| Arc::ptr_eq(bound, gone));
        drop(state);
        // Dropping a binding may take time, so the lock is released first.
        drop(gone);
    }

    /// Binds once more, for a call whose failure concerns no other call.
    ///
    /// # Errors
    /// If the server cannot be bound.
    pub(crate) fn bind_apart(&self, described: &Described) -> Result<GenericClient, CallError> {
        GenericClient::bind_as(&self.address, described.clone(), &options())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the binding if its server is alive, and otherwise the number of attempts to bind.
    fn alive(&self) -> Result<Arc<Bound>, u64> {
        let state = self.state();
        match &state.bound {
            Some(bound) if bound.client.binding().is_alive() => Ok(Arc::clone(bound)),
            _ => Err(state.attempts),
        }
    }

    fn renew(&self) -> Result<Arc<Bound>, Failure> {
        let known = self.alive().ok();
        let made = self.bind(known.as_ref()).map_err(Failure::from);
        let mut state = self.state();
        state.attempts += 1;
        state.failure = made.as_ref().err().cloned();
        let former = core::mem::replace(&mut state.bound, made.as_ref().ok().map(Arc::clone));
        drop(state);
        drop(former);
        made
    }

    fn bind(&self, known: Option<&Arc<Bound>>) -> Result<Arc<Bound>, CallError> {
        let said = describe(&self.address)?;
        let (digest, process) = (said.digest, said.process);
        if let Some(known) = known.filter(|one| (one.digest, one.process) == (digest, process)) {
            return Ok(Arc::clone(known));
        }
        let described = said.parsed().map_err(|error| {
            let text =
                format!("the server's description of its interface is not readable: {error}");
            CallError::new(peregrine::Kind::BadResult, peregrine::Executed::No, text)
        })?;
        let client = GenericClient::bind_as(&self.address, described, &options())?;
        Ok(Arc::new(Bound { client, digest, process }))
    }
}
