//! The public interface of layers: [`Layer`], and what a layer sees of a call.

use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use super::record::Message;
use super::within::Scope;
use crate::call::{Caller, Metadata, PathKind};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::interface::InterfaceRef;

/// Code that sees each call of a binding or of a server, and may refuse it.
///
/// [`begin`](Self::begin) runs before the call, and [`end`](Self::end) after it. For each call that `begin` has
/// accepted, `end` runs exactly once. Both may run on different threads, because an async call may begin on one
/// thread and end on another. What a layer must know of a call between the two is in its
/// [`State`](Self::State).
///
/// A client has layers by [`BindOptions::layer`](crate::BindOptions::layer), and a server by
/// [`Server::layer`](crate::Server::layer) or [`ExportOptions::layer`](crate::ExportOptions::layer). Layers
/// nest in the order in which they were added: the first layer begins first and ends last. The layers of a
/// server are outside of those of an export. If a layer refuses a call, the layers inside of it do not see the
/// call. The layers outside of it see that the call was not executed.
///
/// Only calls of the interface's procedures are seen. A call that fails before it has an A-stack or before its
/// arguments are marshalled does not begin, and is not seen at the client. A call that the client repeats after
/// binding again is seen once for each attempt.
///
/// A server's layers see a call once its message has arrived completely. So they do not see a call that the
/// server refuses earlier: because there is no memory for its arguments (`too many incomplete calls make no
/// progress`), or because its binding does not exist (`no such binding`). Such a binding belongs to no export,
/// so there are no layers to ask.
///
/// The threads that make and serve calls run layers, so layers must be fast and must not panic. Bindings and
/// exports without layers pay nothing for them. The library itself allocates nothing for a call with layers
/// after a few first calls.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use peregrine::{BindOptions, Layer, LayerCall, LayerEnd, LayerOutcome, LayerRefusal, interface};
///
/// #[interface]
/// trait Doors {
///     fn open(&self, door: u32) -> peregrine::Result<()>;
/// }
///
/// struct House;
/// impl Doors for House {
///     fn open(&self, _: u32) -> peregrine::Result<()> {
///         Ok(())
///     }
/// }
///
/// /// Counts the calls that returned a result.
/// #[derive(Default)]
/// struct Count(Arc<AtomicU32>);
///
/// impl Layer for Count {
///     type State = ();
///
///     fn begin(&self, _: &mut LayerCall<'_>) -> Result<(), LayerRefusal> {
///         Ok(())
///     }
///
///     fn end(&self, _: (), end: &LayerEnd<'_>) {
///         if let LayerOutcome::Returned = end.outcome() {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let count = Count::default();
/// let opened = Arc::clone(&count.0);
/// let doors = DoorsClient::in_process_with(House, &BindOptions::default().layer(count));
/// doors.open(1)?;
/// doors.open(2)?;
/// assert_eq!(opened.load(Ordering::Relaxed), 2);
/// # Ok::<(), peregrine::CallError>(())
/// ```
pub trait Layer: Send + Sync + 'static {
    /// What the layer keeps of a call until it ends.
    type State: Send + 'static;

    /// Begins a call. The state is passed to [`end`](Self::end).
    ///
    /// # Errors
    /// If the layer refuses the call. The call then is not executed, and its caller gets the reason.
    fn begin(&self, call: &mut LayerCall<'_>) -> Result<Self::State, LayerRefusal>;

    /// Ends a call that [`begin`](Self::begin) has accepted.
    fn end(&self, state: Self::State, end: &LayerEnd<'_>);

    /// Returns whether the layer would do nothing for a call that begins now at this side, if the call carries
    /// no [metadata](Metadata).
    ///
    /// The library asks this before each call without metadata. If all layers of the binding or of the export
    /// are idle, the call runs almost as without layers: neither [`begin`](Self::begin) nor [`end`](Self::end)
    /// runs, and the library takes no time and keeps no state. If one of the layers is not idle, all layers see
    /// the call. For a call with metadata, the library does not ask. By default, a layer is never idle.
    ///
    /// The answer should cost less than the call that it saves. It must not depend on the call.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    /// use peregrine::{BindOptions, Layer, LayerCall, LayerEnd, LayerRefusal, LayerSide, interface};
    ///
    /// # #[interface] trait Doors { fn open(&self, door: u32) -> peregrine::Result<()>; }
    /// # struct House;
    /// # impl Doors for House { fn open(&self, _: u32) -> peregrine::Result<()> { Ok(()) } }
    /// /// Counts calls while it is switched on.
    /// #[derive(Default)]
    /// struct Count {
    ///     is_on: AtomicBool,
    ///     calls: AtomicU32,
    /// }
    ///
    /// struct Counts(Arc<Count>);
    ///
    /// impl Layer for Counts {
    ///     type State = ();
    ///
    ///     fn begin(&self, _: &mut LayerCall<'_>) -> Result<(), LayerRefusal> {
    ///         self.0.calls.fetch_add(1, Ordering::Relaxed);
    ///         Ok(())
    ///     }
    ///
    ///     fn end(&self, _: (), _: &LayerEnd<'_>) {}
    ///
    ///     fn is_idle(&self, _: LayerSide) -> bool {
    ///         !self.0.is_on.load(Ordering::Relaxed)
    ///     }
    /// }
    ///
    /// let count = Arc::new(Count::default());
    /// let options = BindOptions::default().layer(Counts(Arc::clone(&count)));
    /// let doors = DoorsClient::in_process_with(House, &options);
    /// doors.open(1)?;
    /// count.is_on.store(true, Ordering::Relaxed);
    /// doors.open(2)?;
    /// assert_eq!(count.calls.load(Ordering::Relaxed), 1);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    fn is_idle(&self, side: LayerSide) -> bool {
        let _ = side;
        false
    }
}

/// The side at which a layer sees a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerSide {
    /// The layer belongs to a binding, which makes the call.
    Client,
    /// The layer belongs to an export, which serves the call.
    Server,
}

/// A call that is about to begin, as a [`Layer`] sees it.
#[derive(Debug)]
pub struct LayerCall<'a> {
    pub(super) side: LayerSide,
    pub(super) interface: &'a InterfaceRef,
    pub(super) procedure: u32,
    pub(super) path: PathKind,
    pub(super) name: &'a str,
    /// The caller, at the server.
    pub(super) caller: Option<Caller>,
    /// The metadata that the binding sends, at the client.
    pub(super) given: &'a Metadata,
    /// The metadata with the pairs that layers have added.
    pub(super) added: Option<Metadata>,
    pub(super) argument_bytes: usize,
    /// The arguments, at the server, if the message has arrived.
    pub(super) message: Option<Message<'a>>,
    pub(super) deadline: Option<Instant>,
    /// What the calls of the procedure are within, at the server.
    pub(super) scope: Option<Arc<Scope>>,
}

impl LayerCall<'_> {
    /// Returns whether the layer belongs to the client or to the server of the call.
    pub const fn side(&self) -> LayerSide {
        self.side
    }

    /// Returns the interface.
    pub const fn interface(&self) -> &InterfaceRef {
        self.interface
    }

    /// Returns the name of the procedure, as this side knows it.
    pub fn procedure(&self) -> &str {
        self.interface.procedure_name(self.procedure).unwrap_or_default()
    }

    /// Returns the number of the procedure: its index in the interface of this side.
    pub const fn procedure_number(&self) -> u32 {
        self.procedure
    }

    /// Returns the path that carries the call.
    pub const fn path(&self) -> PathKind {
        self.path
    }

    /// Returns the address to which the client is bound, or the name of the export at the server. The
    /// address of an object in the same process is `in-process`, and that of an object of the caller is
    /// `callback`. Such an object has an empty name at the side that serves it.
    pub const fn name(&self) -> &str {
        self.name
    }

    /// Returns the caller, at the server. `None` at the client.
    pub const fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref()
    }

    /// Returns the metadata of the call. At the client, it includes what outer layers have added.
    pub fn metadata(&self) -> &Metadata {
        match (&self.added, &self.caller) {
            (Some(added), _) => added,
            (None, Some(caller)) => caller.metadata(),
            (None, None) => self.given,
        }
    }

    /// Returns the size in bytes of the arguments, as they are sent.
    pub const fn argument_bytes(&self) -> usize {
        self.argument_bytes
    }

    /// Returns the moment at which the caller ceases to wait. `None` if it waits without limit.
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Sends one more pair of [metadata](Metadata) with the call. The pair replaces a pair with the same key.
    ///
    /// ```
    /// use peregrine::{Layer, LayerCall, LayerEnd, LayerRefusal, LayerSide};
    ///
    /// /// Says with each call which program makes it.
    /// struct Named(&'static str);
    ///
    /// impl Layer for Named {
    ///     type State = ();
    ///
    ///     fn begin(&self, call: &mut LayerCall<'_>) -> Result<(), LayerRefusal> {
    ///         call.add_metadata("program", self.0)?;
    ///         Ok(())
    ///     }
    ///
    ///     fn end(&self, _: (), _: &LayerEnd<'_>) {}
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Kind::BadArguments`] if the key is invalid, there would be too many pairs or bytes, or nothing
    /// carries the pair: at the server, and on the paths of ONC RPC and Courier.
    pub fn add_metadata(&mut self, key: &str, value: &str) -> Result<(), CallError> {
        let why = match (self.side, self.path.system()) {
            (LayerSide::Server, _) => "metadata is sent by clients only".to_owned(),
            (LayerSide::Client, Some(system)) => format!("{system} cannot carry metadata"),
            (LayerSide::Client, None) => {
                self.added = Some(self.metadata().with([(key, value)])?);
                return Ok(());
            }
        };
        Err(CallError::not_executed(Kind::BadArguments, Phase::Marshal, why))
    }
}

/// Why a [`Layer`] refuses a call.
///
/// The caller gets a [`CallError`] of the chosen [`Kind`] with this text, which says that the call was not
/// executed.
///
/// ```
/// use peregrine::{Kind, LayerRefusal};
///
/// let refusal = LayerRefusal::denied("doors are opened by guards only");
/// assert_eq!(refusal.kind(), Kind::Denied);
/// assert_eq!(LayerRefusal::exhausted("100 calls in this second").kind(), Kind::Exhausted);
/// ```
#[derive(Clone, Debug)]
pub struct LayerRefusal {
    kind: Kind,
    text: String,
}

impl LayerRefusal {
    /// Refuses the call because its caller must not make it ([`Kind::Denied`]).
    pub fn denied(text: impl Into<String>) -> Self {
        Self { kind: Kind::Denied, text: text.into() }
    }

    /// Refuses the call because its caller has used up what it may use ([`Kind::Exhausted`]).
    pub fn exhausted(text: impl Into<String>) -> Self {
        Self { kind: Kind::Exhausted, text: text.into() }
    }

    /// Returns the kind of the error that the caller gets.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the text of the error that the caller gets.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<CallError> for LayerRefusal {
    /// Refuses a call because the layer itself has failed, for example to add metadata.
    fn from(error: CallError) -> Self {
        Self { kind: error.kind(), text: error.cause() }
    }
}

/// How a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayerOutcome<'a> {
    /// The procedure has returned `Ok`.
    Returned,
    /// The procedure has returned its own error.
    ReturnedError,
    /// There is no result of the procedure.
    Failed {
        /// What failed. At the server, a panic of the procedure is [`Kind::Panicked`]. A call that was
        /// cancelled, or whose deadline has passed, is [`Kind::TimedOut`].
        kind: Kind,
        /// Whether the procedure may have run.
        executed: Executed,
        /// Why the call failed.
        text: &'a str,
    },
}

/// The end of a call, as a [`Layer`] sees it.
#[derive(Debug)]
pub struct LayerEnd<'a> {
    pub(super) interface: &'a InterfaceRef,
    pub(super) procedure: u32,
    pub(super) outcome: LayerOutcome<'a>,
    pub(super) result_bytes: usize,
    pub(super) took: Duration,
    pub(super) retransmissions: u32,
}

impl LayerEnd<'_> {
    /// Returns the interface.
    pub const fn interface(&self) -> &InterfaceRef {
        self.interface
    }

    /// Returns the name of the procedure, as this side knows it.
    pub fn procedure(&self) -> &str {
        self.interface.procedure_name(self.procedure).unwrap_or_default()
    }

    /// Returns the number of the procedure: its index in the interface of this side.
    pub const fn procedure_number(&self) -> u32 {
        self.procedure
    }

    /// Returns how the call has ended.
    pub const fn outcome(&self) -> LayerOutcome<'_> {
        self.outcome
    }

    /// Returns the size in bytes of the result, as it is sent. Zero if the call has failed.
    pub const fn result_bytes(&self) -> usize {
        self.result_bytes
    }

    /// Returns the time from the call's begin to its end at this side. At the client, it includes the way to
    /// the server and back.
    pub const fn took(&self) -> Duration {
        self.took
    }

    /// Returns how many packets of the arguments the client has sent again, over UDP and raw Ethernet. It is
    /// more than 0 if packets were lost, or if the server had no memory for them at first. It is 0 at the server
    /// and on other paths. Packets of the result that the server has sent again are not counted.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use peregrine::{Layer, LayerCall, LayerEnd, LayerRefusal};
    ///
    /// /// Counts the packets that had to be sent again.
    /// #[derive(Default)]
    /// struct Lost(AtomicU32);
    ///
    /// impl Layer for Lost {
    ///     type State = ();
    ///
    ///     fn begin(&self, _: &mut LayerCall<'_>) -> Result<(), LayerRefusal> {
    ///         Ok(())
    ///     }
    ///
    ///     fn end(&self, _: (), end: &LayerEnd<'_>) {
    ///         self.0.fetch_add(end.retransmissions(), Ordering::Relaxed);
    ///     }
    /// }
    /// ```
    pub const fn retransmissions(&self) -> u32 {
        self.retransmissions
    }
}
