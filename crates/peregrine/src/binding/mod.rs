//! `Binding`: what a client holds once who, what and how have been decided.

mod address;
mod datagram;
mod options;
mod session;
mod stream;

use self::datagram::Over;
pub use address::{Address, Endpoint, Place};
pub use options::{BindOptions, EthernetDevice};

use core::fmt;
use std::sync::Arc;

use crate::call::{CallPath, Frames, Limit, PathKind, Serve, Short};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::interface::{Digest, Interface};
use crate::path::in_process::InProcess;
pub use crate::path::local::Description;
use crate::sys::ForkMark;
use crate::value::ByteOrder;

/// A binding to one export: cheap to clone, called through by any number of threads.
///
/// Generated clients have one inside and lend it: `client.binding()`.
///
/// ```
/// # use peregrine::interface;
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// let echo = EchoClient::in_process(Same);
/// let binding = echo.binding();
/// assert_eq!(binding.interface().name, "Echo");
/// assert!(binding.is_alive());
/// binding.ping()?;
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone)]
pub struct Binding {
    pub(crate) bound: Arc<Bound>,
    pub(crate) limit: Limit,
}

/// What all clones of a binding share.
pub(crate) struct Bound {
    pub(crate) path: Box<dyn CallPath>,
    pub(crate) frames: Arc<Frames>,
    pub(crate) short: Short,
    pub(crate) interface: &'static Interface,
    pub(crate) address: String,
    pub(crate) mark: ForkMark,
    /// What is special about its calls; zero is straight through.
    pub(crate) flags: u32,
    /// With [`MAPPED`]: the server's number of each procedure of the client's.
    pub(crate) numbers: Option<Box<[u32]>>,
}

/// The server's values are of the other byte order.
pub(crate) const SWAPPED: u32 = 1;
/// The server numbers its procedures otherwise.
pub(crate) const MAPPED: u32 = 2;

/// What the export at an address says of itself: nothing need be known of its interface.
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
/// If there is no such export, it does not serve this user, or does not answer within 5 seconds.
pub fn describe(address: &str) -> Result<Description, CallError> {
    let limit = BindOptions::default().bind_limit;
    match &parse(address)? {
        Address::Local { name } => session::describe(name, limit),
        Address::Tcp { place, name } => {
            stream::describe(place, name, limit).map_err(|error| error.at(address))
        }
        Address::Udp { place, name } => {
            datagram::describe(Over::Udp, place, name, limit).map_err(|error| error.at(address))
        }
        Address::Ethernet { place, name } => {
            let described = datagram::describe(Over::Ethernet, place, name, limit);
            described.map_err(|error| error.at(address))
        }
    }
}

fn parse(address: &str) -> Result<Address, CallError> {
    address.parse().map_err(|error: CallError| error.at(address))
}

impl Binding {
    pub(crate) fn new(
        path: Box<dyn CallPath>,
        frames: Arc<Frames>,
        interface: &'static Interface,
        address: String,
        options: &BindOptions,
        order: ByteOrder,
    ) -> Result<Self, CallError> {
        let mark = ForkMark::of_process().map_err(|error| {
            CallError::system(Phase::Bind, "no memory for the fork mark", error)
        })?;
        let short = options.short;
        let (flags, numbers) = (if order.is_native() { 0 } else { SWAPPED }, None);
        let bound = Bound { path, frames, short, interface, address, mark, flags, numbers };
        Ok(Self { bound: Arc::new(bound), limit: options.limit })
    }

    /// Binds to the export at an [`Address`]: `NAME` for a server of this machine,
    /// `tcp:HOST:PORT/NAME` for one anywhere.
    ///
    /// Networks carry calls and results unencrypted and unauthenticated in this version.
    ///
    /// # Errors
    /// If there is no such export, it does not serve this user, or its interface differs.
    pub fn bind(
        address: &str,
        interface: &'static Interface,
        options: &BindOptions,
    ) -> Result<Self, CallError> {
        Self::bind_to(address, interface, Some(interface.digest()), options)
    }

    /// Binds to an export without knowing its interface: it can be pinged.
    ///
    /// # Errors
    /// As [`Binding::bind`].
    pub fn bind_any(address: &str, options: &BindOptions) -> Result<Self, CallError> {
        Self::bind_to(address, &NO_INTERFACE, None, options)
    }

    fn bind_to(
        address: &str,
        interface: &'static Interface,
        digest: Option<Digest>,
        options: &BindOptions,
    ) -> Result<Self, CallError> {
        match &parse(address)? {
            Address::Local { name } => session::bind(name, interface, digest, options),
            Address::Tcp { place, name } => {
                stream::bind(place, name, interface, digest, options, address)
            }
            Address::Udp { place, name } => {
                datagram::bind(Over::Udp, place, name, interface, digest, options, address)
            }
            Address::Ethernet { place, name } => {
                datagram::bind(Over::Ethernet, place, name, interface, digest, options, address)
            }
        }
    }

    /// A binding to an object of this process.
    ///
    /// # Panics
    /// If there is no memory for its frames.
    #[doc(hidden)]
    pub fn in_process(serve: Arc<dyn Serve>, options: &BindOptions) -> Self {
        let interface = serve.interface();
        let bytes = options.message_bytes_for(interface);
        let count = options.room_for(bytes);
        let frames =
            InProcess::frames(count, options.astacks, bytes).expect("memory for the frames");
        let order = serve.byte_order();
        let path = Box::new(InProcess::new(serve));
        Self::new(path, Arc::new(frames), interface, "in-process".into(), options, order)
            .expect("memory for the fork mark")
    }

    /// The same binding with another limit to how long calls wait.
    #[must_use]
    pub fn with_limit(&self, limit: Limit) -> Self {
        Self { bound: Arc::clone(&self.bound), limit }
    }

    /// What carries its calls, and why, in words.
    ///
    /// ```
    /// # use peregrine::interface;
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// let echo = EchoClient::in_process(Same);
    /// assert_eq!(echo.binding().explain(), "in-process");
    /// ```
    pub fn explain(&self) -> String {
        self.bound.path.explain()
    }

    /// The interface that the client was compiled with.
    pub fn interface(&self) -> &'static Interface {
        self.bound.interface
    }

    /// The name or address that was bound.
    pub fn address(&self) -> &str {
        &self.bound.address
    }

    /// The path that calls take.
    pub fn path(&self) -> PathKind {
        self.bound.path.kind()
    }

    /// Whether the server's session still stands, as far as is known without asking.
    pub fn is_alive(&self) -> bool {
        self.bound.path.is_alive()
    }

    /// Calls the procedure that does nothing and that every export has.
    ///
    /// # Errors
    /// Those of any call.
    pub fn ping(&self) -> Result<(), CallError> {
        crate::stub::call(self, crate::call::PING, |stub| {
            stub.head_only();
            stub.transport(&[], &[], &mut [])?.ping()
        })
    }
}

/// The interface of a client that only knows what every export has.
static NO_INTERFACE: Interface =
    Interface { name: "", version: 0, docs: "", procedures: &[], digest: || Digest([0; 16]) };

impl Bound {
    /// Whether the server's values are of the other byte order.
    #[cold]
    pub(crate) fn is_swapped(&self) -> bool {
        self.flags & SWAPPED != 0
    }

    /// The number by which the server knows a procedure.
    #[cold]
    pub(crate) fn number(&self, procedure: u32) -> u32 {
        let mapped = || self.numbers.as_ref()?.get(procedure as usize).copied();
        if self.flags & MAPPED == 0 { procedure } else { mapped().unwrap_or(procedure) }
    }

    /// The name of a procedure, for errors.
    pub(crate) fn procedure_name(&self, number: u32) -> &'static str {
        let procedure = self.interface.procedures.get(number as usize);
        procedure.map_or("ping", |procedure| procedure.name)
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding")
            .field("interface", &self.bound.interface.name)
            .field("address", &self.bound.address)
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}

impl CallError {
    #[cold]
    pub(crate) fn too_large() -> Self {
        Self::not_executed(Kind::TooLarge, Phase::Marshal, "it does not fit the A-stack")
    }

    #[cold]
    pub(crate) fn bad_result(detail: impl Into<String>) -> Self {
        Self::new(Kind::BadResult, Executed::Maybe, detail).in_phase(Phase::Unmarshal)
    }
}
