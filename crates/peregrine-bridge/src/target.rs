//! `Target`: an export that the bridge offers, and the binding to it.

use core::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peregrine::interface::{Described, DescribedProcedure, Digest};
use peregrine::{
    Address, BindOptions, CallError, Executed, GenericClient, Kind, Limit, Rebind, describe_with,
};

use crate::interface_file::InterfaceFile;
use crate::setup::Log;

/// An export that the bridge offers.
pub(crate) struct Target {
    /// The name of the export in the paths of HTTP requests.
    pub(crate) name: String,
    pub(crate) address: String,
    /// The file with the interface. `None`: the server describes itself.
    file: Option<InterfaceFile>,
    log: Log,
    /// The options of all bindings.
    options: BindOptions,
    state: Mutex<State>,
    /// The lock is held by the thread that binds. Other threads wait, and share the outcome.
    binds: Mutex<()>,
}

/// What the bridge knows of the server.
#[derive(Default)]
struct State {
    bound: Option<Arc<Bound>>,
    /// The number of attempts to bind.
    attempts: u64,
    /// Why the last attempt failed.
    failure: Option<Arc<CallError>>,
    /// The number of the last known interface, and this interface.
    revised: (u64, Option<Arc<Described>>),
}

/// A binding to one run of a server.
pub(crate) struct Bound {
    pub(crate) client: GenericClient,
    source: Source,
    interface: Revision,
    /// For each procedure, whether it has returned a large result.
    large: Box<[AtomicBool]>,
}

/// An interface of a target.
#[derive(Clone)]
pub(crate) struct Revision {
    /// The number of the interface. When the interface changes, the number increases.
    pub(crate) number: u64,
    pub(crate) described: Arc<Described>,
}

/// Where the interface of a binding comes from.
#[derive(PartialEq)]
enum Source {
    /// From this run of the server: the digest of the interface, and the process ID of the server.
    Server(Digest, u32),
    File(Arc<Described>),
}

impl Bound {
    pub(crate) fn described(&self) -> &Described {
        self.client.described()
    }

    pub(crate) const fn revision(&self) -> u64 {
        self.interface.number
    }

    /// Notes that a procedure has returned a large result.
    pub(crate) fn note_large(&self, procedure: u32) {
        self.large[procedure as usize].store(true, Ordering::Relaxed);
    }

    /// Returns whether a procedure has returned a large result.
    pub(crate) fn was_large(&self, procedure: u32) -> bool {
        self.large[procedure as usize].load(Ordering::Relaxed)
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

impl Target {
    pub(crate) fn new(name: &str, address: &str, file: Option<InterfaceFile>) -> Self {
        let (name, address) = (name.to_owned(), address.to_owned());
        let (log, options) = (Log::default(), BindOptions::default());
        let (state, binds) = Default::default();
        Self { name, address, file, log, options, state, binds }
    }

    /// Sets the log that receives the messages about the target.
    pub(crate) fn log_to(&mut self, log: Log) {
        self.log = log;
    }

    /// Sets the options of the bindings.
    pub(crate) fn bind_with(&mut self, options: &BindOptions) {
        let address = self.address.parse::<Address>();
        let is_foreign =
            address.is_ok_and(|address| address.path().is_some_and(|path| path.system().is_some()));
        if !is_foreign {
            self.options = options.clone();
        }
    }

    /// Returns the options of a binding. Bindings do not rebind: the bridge makes a new binding, because the
    /// interface may have changed.
    fn options(&self) -> BindOptions {
        self.options.clone().rebind(Rebind::Never)
    }

    /// Returns the binding to the server. Binds if there is no binding, the server has ended, or the file
    /// with the interface has changed.
    ///
    /// # Errors
    /// If the server cannot be bound.
    pub(crate) fn bound(&self) -> Result<Arc<Bound>, Arc<CallError>> {
        let attempts = match self.alive() {
            Ok(bound) => return Ok(bound),
            Err(attempts) => attempts,
        };
        let _binds = self.binds.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.state();
        if state.attempts != attempts {
            // Another thread has bound in the meantime, or has failed to bind.
            if let Some(bound) = &state.bound {
                return Ok(Arc::clone(bound));
            }
            if let Some(failure) = &state.failure {
                return Err(Arc::clone(failure));
            }
        }
        drop(state);
        self.renew()
    }

    /// Returns the binding to the server, if there is one that can be used as it is. Does not wait: returns
    /// `None` if a file must be checked first.
    pub(crate) fn ready(&self) -> Option<Arc<Bound>> {
        if self.file.is_some() {
            return None;
        }
        let state = self.state.try_lock().ok()?;
        let bound = state.bound.as_ref().filter(|bound| bound.client.binding().is_alive());
        bound.map(Arc::clone)
    }

    /// Returns the interface of the target.
    ///
    /// # Errors
    /// If the server describes itself, and cannot be bound.
    pub(crate) fn interface(&self) -> Result<Revision, Arc<CallError>> {
        match &self.file {
            Some(file) => Ok(self.revise(file.current(&self.log))),
            None => Ok(self.bound()?.interface.clone()),
        }
    }

    /// Gets the description from the server or from the file, and returns a binding with this description. If
    /// the server was restarted, possibly with another interface, this is a new binding.
    ///
    /// # Errors
    /// If the server cannot be bound.
    pub(crate) fn renewed(&self) -> Result<Arc<Bound>, Arc<CallError>> {
        let _binds = self.binds.lock().unwrap_or_else(PoisonError::into_inner);
        self.renew()
    }

    /// Forgets a binding whose server has ended.
    fn forget(&self, gone: &Arc<Bound>) {
        let mut state = self.state();
        let gone = state.bound.take_if(|bound| Arc::ptr_eq(bound, gone));
        drop(state);
        // Dropping a binding may take time, so the lock is released first.
        drop(gone);
    }

    /// Makes a call of `procedure` with `make`. A one-way call is made through a separate binding. Otherwise,
    /// a later call of another client through the same binding could return its failure.
    ///
    /// # Errors
    /// Returns the error of the call.
    pub(crate) fn call<T>(
        &self,
        client: &GenericClient,
        procedure: &DescribedProcedure,
        limit: Limit,
        make: impl FnOnce(&GenericClient) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        if !procedure.oneway {
            return make(&client.with_limit(limit));
        }
        let client = self.bind_as(client.described())?.with_limit(limit);
        let made = make(&client)?;
        client.flush().map(|()| made)
    }

    /// Makes another binding, with the interface `described`.
    ///
    /// # Errors
    /// If the server cannot be bound.
    pub(crate) fn bind_as(&self, described: &Described) -> Result<GenericClient, CallError> {
        GenericClient::bind_as(&self.address, described.clone(), &self.options())
    }

    /// Notes that a call of a binding has failed. Returns whether to make the call once more, with a new
    /// binding.
    pub(crate) fn failed(&self, bound: &Arc<Bound>, error: &CallError) -> bool {
        let is_gone =
            matches!(error.kind(), Kind::ServerGone | Kind::Withdrawn | Kind::Unreachable);
        if is_gone {
            self.forget(bound);
        }
        is_gone && error.executed() == Executed::No
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the binding if its server is alive and its interface is the current one. Otherwise, returns
    /// the number of attempts to bind.
    fn alive(&self) -> Result<Arc<Bound>, u64> {
        let state = self.state();
        match &state.bound {
            Some(bound) if bound.client.binding().is_alive() && self.is_current(bound) => {
                Ok(Arc::clone(bound))
            }
            _ => Err(state.attempts),
        }
    }

    /// Returns whether a binding has the interface that is in the file.
    fn is_current(&self, bound: &Bound) -> bool {
        match (&self.file, &bound.source) {
            (Some(file), Source::File(known)) => Arc::ptr_eq(known, &file.current(&self.log)),
            _ => true,
        }
    }

    fn renew(&self) -> Result<Arc<Bound>, Arc<CallError>> {
        let known = self.alive().ok();
        let made = self.bind(known.as_ref()).map_err(Arc::new);
        let mut state = self.state();
        state.attempts += 1;
        state.failure = made.as_ref().err().map(Arc::clone);
        let former = core::mem::replace(&mut state.bound, made.as_ref().ok().map(Arc::clone));
        drop(state);
        drop(former);
        made
    }

    fn bind(&self, known: Option<&Arc<Bound>>) -> Result<Arc<Bound>, CallError> {
        let (source, described) = match &self.file {
            Some(file) => {
                let described = file.current(&self.log);
                (Source::File(Arc::clone(&described)), Ok(described))
            }
            None => {
                let said = describe_with(&self.address, &self.options)?;
                (Source::Server(said.digest, said.process), said.parsed().map(Arc::new))
            }
        };
        if let Some(known) = known.filter(|known| known.source == source) {
            return Ok(Arc::clone(known));
        }
        let described = described.map_err(|error| {
            let text =
                format!("the server's description of its interface is not readable: {error}");
            CallError::new(Kind::BadResult, Executed::No, text)
        })?;
        let client = self.bind_as(&described)?;
        let large = described.procedures.iter().map(|_| AtomicBool::new(false)).collect();
        Ok(Arc::new(Bound { client, source, interface: self.revise(described), large }))
    }

    /// Returns the interface that the target has now, with its number. The number is new if the interface has
    /// changed.
    fn revise(&self, described: Arc<Described>) -> Revision {
        let (number, last) = &mut self.state().revised;
        let described = match last {
            Some(last) if *last == described => Arc::clone(last),
            _ => {
                *number += 1;
                Arc::clone(last.insert(described))
            }
        };
        Revision { number: *number, described }
    }
}
