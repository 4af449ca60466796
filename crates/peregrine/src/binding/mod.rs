//! `Binding`: the object through which a client calls an export. The path of the calls is chosen when the
//! client binds.

mod bound;
mod callback;
mod capture;
mod compare;
mod disclosure;
mod explain;
#[cfg(test)]
mod foreign;
mod health;
mod pool;
mod rebind;
mod select;
mod waiting;

pub use crate::path::auth_sys::AuthSys;
pub use crate::path::balance::Balance;
pub use crate::path::onc::{RegisteredProgram, registered_programs};
pub use crate::path::options::{BindOptions, CourierForm, EthernetDevice, Rebind};
pub use capture::{Capture, CaptureOptions, Captured};
pub use disclosure::{exports, exports_with, stat, stat_with, watch, watch_with};
pub use explain::{Candidate, Explanation, Verdict};
pub use health::{health, health_with, health_within};
pub use pool::{PoolServer, PoolStanding};

pub(crate) use self::bound::Bound;
use self::bound::Fit;
pub(crate) use self::callback::{Next, ObjectSide};
pub(crate) use self::pool::{Again, Picked, Pool};
use self::rebind::Asked;
pub(crate) use self::rebind::Home;
use self::select::Unbound;
pub(crate) use self::select::explain_all;

use core::fmt;
use std::sync::Arc;

use crate::call::{Caller, Frames, Limit, Metadata, PathKind, Serve, Terms};
use crate::error::{CallError, Executed, Kind, Phase};
pub use crate::interface::Description;
use crate::interface::{Digest, InterfaceRef};
use crate::path::bind::BoundPath;
use crate::path::in_process::InProcess;
use crate::stub::Accounting;
use crate::stub::STREAM_FRAMES;
use crate::sys::Replaceable;

/// A binding to one export. It is cheap to clone, and any number of threads can call through it.
///
/// A generated client contains a binding, and returns it from `client.binding()`.
///
/// ```
/// # use peregrine::interface;
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// let echo = EchoClient::in_process(Same);
/// let binding = echo.binding();
/// assert_eq!(binding.interface().name(), "Echo");
/// assert!(binding.is_alive());
/// binding.ping()?;
/// # Ok::<(), peregrine::CallError>(())
/// ```
pub struct Binding {
    /// The state that calls of this binding use. A call that finds a newer state in `home` also stores the
    /// newer state here.
    pub(crate) bound: Replaceable<Bound>,
    pub(crate) home: Arc<Home>,
    /// What holds for each call.
    pub(crate) terms: Terms,
}

impl Clone for Binding {
    /// Returns a binding to the same export. If this binding was bound again, the clone uses the newest
    /// server.
    fn clone(&self) -> Self {
        self.with_terms(self.terms.clone())
    }
}

/// Returns the description of the export at an address. The caller need not know the export's interface.
///
/// ```
/// use peregrine::{Kind, describe};
///
/// match describe("files") {
///     Ok(description) => print!("{}", description.text),
///     Err(error) => assert_eq!(error.kind(), Kind::NotFound),
/// }
/// ```
///
/// # Errors
/// If there is no such export, or if its server refuses this user or does not answer within 5 seconds.
pub fn describe(address: &str) -> Result<Description, CallError> {
    describe_with(address, &BindOptions::default())
}

/// Returns the description of the export at an address, as [`describe`](fn@describe) does, by a binding with
/// options: for example, with an identity that the server accepts.
///
/// ```
/// use core::time::Duration;
/// use peregrine::{BindOptions, Kind, describe_with};
///
/// let options = BindOptions::default().bind_timeout(Duration::from_millis(500));
/// let described = describe_with("no-such-files", &options);
/// assert_eq!(described.unwrap_err().kind(), Kind::NotFound);
/// ```
///
/// # Errors
/// As [`describe`](fn@describe). It waits for as long as [`BindOptions::bind_timeout`] says.
pub fn describe_with(address: &str, options: &BindOptions) -> Result<Description, CallError> {
    select::describe(address, options).map_err(|error| error.at(address))
}

/// Binds to the export at an address, whatever its interface is, and drops the binding. Returns the outcome
/// of each path.
///
/// ```
/// use peregrine::BindOptions;
///
/// let (explanation, bound) = peregrine::explain("files", &BindOptions::default());
/// println!("{explanation}");
/// assert_eq!(bound.is_ok(), explanation.chosen().is_some());
/// ```
pub fn explain(address: &str, options: &BindOptions) -> (Explanation, Result<(), CallError>) {
    match Binding::try_bind(address, InterfaceRef::none(), None, options) {
        Ok(binding) => (binding.explain(), Ok(())),
        Err(unbound) => {
            let (error, explanation) = unbound.into_parts();
            (explanation, Err(error))
        }
    }
}

impl Binding {
    /// Binds to the export at an [`Address`](crate::Address). Uses the path that the address names. If the
    /// address names none, uses the fastest path that works.
    ///
    /// Networks carry calls and results unencrypted and unauthenticated, except those of a secure binding
    /// (`BindOptions::secure`, with the feature `secure`).
    ///
    /// # Errors
    /// If there is no such export, the server refuses this user, or the client cannot use the export's
    /// interface.
    pub fn bind(
        address: &str,
        interface: impl Into<InterfaceRef>,
        options: &BindOptions,
    ) -> Result<Self, CallError> {
        let interface = interface.into();
        let digest = Some(interface.digest());
        Ok(Self::try_bind(address, interface, digest, options)?)
    }

    /// Binds to an export, whatever its interface is. Such a binding can only be pinged.
    ///
    /// # Errors
    /// As [`Binding::bind`].
    pub fn bind_any(address: &str, options: &BindOptions) -> Result<Self, CallError> {
        Ok(Self::try_bind(address, InterfaceRef::none(), None, options)?)
    }

    fn try_bind(
        address: &str,
        interface: InterfaceRef,
        digest: Option<Digest>,
        options: &BindOptions,
    ) -> Result<Self, Unbound> {
        let home = Home::new(Arc::new(Asked::new(address, interface, digest, options)), None);
        let bound = Arc::new(home.bind()?);
        Ok(Self {
            bound: Replaceable::new(bound),
            home: home.shared(),
            terms: options.limit.into(),
        })
    }

    /// Binds to all servers of a name. Each call of the returned binding takes one of them, as
    /// [`BindOptions::balance`] says. The binding follows the changes of the directory, and leaves out servers
    /// that fail. Generated pools do this: `FilesPool::bind` for a trait `Files`.
    ///
    /// # Errors
    /// As [`Binding::bind`], if no server can be used. Also if the address names another RPC system.
    pub fn pool(
        address: &str,
        interface: impl Into<InterfaceRef>,
        options: &BindOptions,
    ) -> Result<Self, CallError> {
        let interface = interface.into();
        let digest = Some(interface.digest());
        let asked = Arc::new(Asked::new(address, interface, digest, options));
        let front = Pool::front(&asked).map_err(|error| error.at(address))?;
        let home = Home::new(Arc::clone(&asked), Some(Pool::new(asked)?));
        Ok(Self {
            bound: Replaceable::new(Arc::new(front)),
            home: home.shared(),
            terms: options.limit.into(),
        })
    }

    /// Returns the servers that a [pool](Self::pool) knows, by their names, and whether it uses them. Empty if
    /// the binding is no pool.
    pub fn servers(&self) -> Vec<PoolServer> {
        self.home.pool().map_or_else(Vec::new, Pool::report)
    }

    /// Returns a binding over an existing path. The binding is not bound again if the server ends.
    pub(crate) fn of_path(
        path: BoundPath,
        fit: Option<Fit>,
        interface: InterfaceRef,
        explanation: Explanation,
        options: &BindOptions,
    ) -> Result<Self, CallError> {
        let options = options.clone().rebind(Rebind::Never);
        let asked = Asked::new(explanation.address(), interface.clone(), None, &options);
        let home = Home::new(Arc::new(asked), None);
        let short = options.on_exhausted_or_default();
        let bound = Bound::new(path, fit, interface, explanation, short, &options.layers)?;
        let bound = Replaceable::new(Arc::new(bound));
        Ok(Self { bound, home: home.shared(), terms: options.limit.into() })
    }

    /// Returns the state that calls use now. If the binding was bound again, returns the new state. Later
    /// calls then find the new state on the fast path.
    pub(crate) fn now(&self) -> Arc<Bound> {
        self.home.now(&self.bound)
    }

    /// Returns the state that a call uses: that of this binding, or of a server of the pool.
    fn any(&self) -> Arc<Bound> {
        self.home.for_call(&self.bound)
    }

    /// Returns whether the stub must write the values of this procedure's calls in the native representation.
    #[inline]
    pub(crate) fn is_native(&self, procedure: u32) -> bool {
        match self.home.pool() {
            Some(pool) => pool.is_native(),
            None => self.now().is_native(procedure),
        }
    }

    /// Returns a binding to an object of this process.
    ///
    /// # Panics
    /// If there is no memory for the call frames (A-stacks).
    #[doc(hidden)]
    pub fn in_process(serve: Arc<dyn Serve>, options: &BindOptions) -> Self {
        Self::to_object(serve.interface(), None, serve, options)
            .expect("memory for the frames is available")
    }

    /// Returns a binding to an object of this process, for a client whose interface may differ from the
    /// object's.
    ///
    /// # Errors
    /// If the client cannot use the interface of the object, or there is no memory for the call frames
    /// (A-stacks).
    #[doc(hidden)]
    pub fn in_process_as(
        interface: impl Into<InterfaceRef>,
        serve: Arc<dyn Serve>,
        options: &BindOptions,
    ) -> Result<Self, CallError> {
        let (interface, theirs) = (interface.into(), serve.interface());
        let fit = compare::fit(&interface, theirs.digest(), &theirs.canonical_text())?;
        Self::to_object(interface, fit, serve, options)
    }

    fn to_object(
        interface: InterfaceRef,
        fit: Option<Fit>,
        serve: Arc<dyn Serve>,
        options: &BindOptions,
    ) -> Result<Self, CallError> {
        let bytes = options.message_bytes_for(&interface);
        // Streams need A-stacks in addition to those that the program asks for.
        let has_streams = (0..interface.procedures() as u32).any(|one| interface.has_streams(one));
        let count = options.room_for(bytes) + if has_streams { STREAM_FRAMES } else { 0 };
        let frames = Frames::private(count, options.astacks, bytes)
            .map_err(|error| CallError::system(Phase::Bind, "cannot allocate frames", error))?;
        let order = serve.byte_order();
        let frames = Arc::new(frames);
        let path = Box::new(InProcess::new(serve, &frames));
        let path = BoundPath { path, frames, order };
        let why = "the object is in this process";
        let explanation = explain_all("in-process", Verdict::NotNeeded, why);
        Self::of_path(path, fit, interface, explanation, options)
    }

    /// Returns a clone of this binding with another limit for its calls.
    #[must_use]
    pub fn with_limit(&self, limit: Limit) -> Self {
        self.with_terms(self.terms.with_limit(limit))
    }

    /// Returns a clone of this binding whose calls are recorded. Like the binding of `accounting`, but with the
    /// limit of this one.
    ///
    /// # Panics
    /// If the accounting was begun with the binding of another client, or this binding has metadata.
    #[must_use]
    pub fn with_accounting(&self, accounting: &Accounting) -> Self {
        let is_own = Arc::ptr_eq(&self.home, &accounting.binding().home);
        assert!(is_own, "the accounting was begun with the binding of another client");
        assert!(self.terms.metadata().is_empty(), "recorded calls have no metadata");
        self.accounted()
    }

    /// Returns a clone of this binding whose calls are recorded.
    pub(crate) fn accounted(&self) -> Self {
        self.with_terms(self.terms.accounted())
    }

    /// Returns a clone of this binding whose calls are not recorded.
    pub(crate) fn unaccounted(&self) -> Self {
        self.with_terms(self.terms.unaccounted())
    }

    /// Returns why the steps of calls cannot be recorded. `None`: they can.
    pub(crate) fn unaccountable(&self) -> Option<&'static str> {
        let now = self.now();
        if self.home.pool().is_some() {
            return Some("an account needs one server: bind to a server of the pool");
        }
        if now.system().is_some() {
            return Some("servers of other RPC systems make no accounts");
        }
        if !self.terms.metadata().is_empty() {
            return Some("recorded calls have no metadata: use a client without metadata");
        }
        (now.path.kind() == PathKind::InProcess)
            .then_some("a call within the process has no steps: bind to a server")
    }

    fn with_terms(&self, terms: Terms) -> Self {
        Self { bound: Replaceable::new(self.now()), home: Arc::clone(&self.home), terms }
    }

    /// Returns a clone of this binding that sends a further pair of [metadata](Metadata) with each of its
    /// calls. The pair replaces a pair with the same key.
    ///
    /// One-way calls with metadata do not share messages: such a call waits until it has ended.
    ///
    /// ```
    /// # use peregrine::interface;
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// use peregrine::{Executed, Kind};
    ///
    /// let echo = EchoClient::in_process(Same);
    /// let traced = echo.binding().with_metadata("trace", "7f3a")?;
    /// assert_eq!(traced.metadata().get("trace"), Some("7f3a"));
    /// let error = echo.binding().with_metadata("Not a key", "").unwrap_err();
    /// assert_eq!((error.kind(), error.executed()), (Kind::BadArguments, Executed::No));
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::BadArguments`] if the key is invalid, there would be too many pairs or bytes, or the server
    /// belongs to another RPC system: ONC RPC and Courier cannot carry metadata.
    pub fn with_metadata(&self, key: &str, value: &str) -> Result<Self, CallError> {
        self.with_pairs([(key, value)])
    }

    /// Returns a clone of this binding that sends the metadata of a caller with each of its calls, in
    /// addition to its own. A procedure uses this function to pass on what its caller has sent: the calls of
    /// a procedure carry none of it otherwise.
    ///
    /// # Errors
    /// As for [`with_metadata`](Self::with_metadata).
    pub fn with_metadata_of(&self, caller: &Caller) -> Result<Self, CallError> {
        self.with_pairs(caller.metadata().iter())
    }

    fn with_pairs<'a>(
        &self,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, CallError> {
        let metadata = self.metadata().with(pairs).map_err(|error| error.at(self.address()))?;
        if let (false, Some(system)) = (metadata.is_empty(), self.now().system()) {
            let text = format!("{system} cannot carry metadata");
            let error = CallError::not_executed(Kind::BadArguments, Phase::Marshal, text);
            let advice = "pass the data as arguments of the calls";
            return Err(error.with_advice(advice).at(self.address()));
        }
        if !metadata.is_empty() && self.terms.are_accounted() {
            let text = "recorded calls have no metadata";
            let error = CallError::not_executed(Kind::BadArguments, Phase::Marshal, text);
            return Err(error.at(self.address()));
        }
        Ok(self.with_terms(self.terms.with_metadata(metadata)))
    }

    /// Returns the metadata that the calls of this binding carry.
    pub const fn metadata(&self) -> &Metadata {
        self.terms.metadata()
    }

    /// Returns which path calls take, what carries the calls, and why the other paths were not chosen.
    ///
    /// ```
    /// # use peregrine::interface;
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// let echo = EchoClient::in_process(Same);
    /// let explanation = echo.binding().explain();
    /// assert_eq!(explanation.chosen(), None);
    /// assert!(explanation.candidates()[0].reason.contains("in this process"));
    /// ```
    pub fn explain(&self) -> Explanation {
        let bound = self.any();
        let (mut explanation, path) = (bound.explanation.clone(), &*bound.path);
        if let Some(chosen) = explanation.chosen() {
            let (now, said) = (path.kind(), path.explain());
            if now == chosen {
                explanation.set(now, Verdict::Chosen, said);
            } else {
                // The chosen path stopped working between two calls, and calls now take another one.
                explanation.set(chosen, Verdict::Failed, said);
                explanation.set(now, Verdict::Chosen, String::new());
            }
        }
        explanation.servers = self.servers();
        if let Some(pool) = self.home.pool() {
            explanation.remarks = pool.remarks();
        }
        explanation
    }

    /// Returns the interface that the client was compiled with.
    pub fn interface(&self) -> &InterfaceRef {
        &self.home.asked.interface
    }

    /// Returns the name or address to which the client bound.
    pub fn address(&self) -> &str {
        &self.home.asked.address
    }

    /// Returns the path that calls of this binding take now.
    pub fn path(&self) -> PathKind {
        self.any().path.kind()
    }

    /// Returns whether the session with the server is alive, as far as this process knows without asking.
    pub fn is_alive(&self) -> bool {
        let now = self.any();
        !now.is_front() && now.path.is_alive()
    }

    /// Returns the names of the client's procedures that the server does not have. Calls of these procedures
    /// fail, and are not executed.
    ///
    /// ```
    /// # use peregrine::interface;
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// let echo = EchoClient::in_process(Same);
    /// assert!(echo.binding().lacks().is_empty());
    /// ```
    pub fn lacks(&self) -> Vec<String> {
        self.any().lacks().into_iter().map(str::to_owned).collect()
    }

    /// Calls the procedure that every export has and that does nothing.
    ///
    /// # Errors
    /// The errors that any call can have.
    pub fn ping(&self) -> Result<(), CallError> {
        crate::stub::ping(self)
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding")
            .field("interface", &self.interface().name())
            .field("address", &self.address())
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}

impl CallError {
    /// Makes the error of a call whose message has too many bytes. `own` is the size of the largest message
    /// that the client sends. `server` is the size of the largest message that the server accepts, or `None`
    /// for calls within one process.
    #[cold]
    pub(crate) fn too_large(bytes: usize, own: usize, server: Option<usize>) -> Self {
        let mut text = format!(
            "the message has {bytes} bytes, and the client sends at most {own} \
             (`BindOptions::message_bytes`)"
        );
        if let Some(server) = server {
            text.push_str(&format!(
                ", the server accepts {server} (`ExportOptions::message_bytes_max`)"
            ));
        }
        Self::not_executed(Kind::TooLarge, Phase::Marshal, text)
    }

    #[cold]
    pub(crate) fn bad_result(detail: impl Into<String>) -> Self {
        Self::new(Kind::BadResult, Executed::Maybe, detail).in_phase(Phase::Unmarshal)
    }
}
