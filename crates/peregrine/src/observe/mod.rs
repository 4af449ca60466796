//! Layers: code of a program that sees each call of a binding or of a server, and may refuse it.
//!
//! A binding with layers has a call path that calls them ([`LayeredPath`]), and passes the call on to the path
//! to the server. An export with layers has a server stub that calls them ([`Layered`]), and passes the call on
//! to the stub of the object. Both are made when a client binds or an object is exported. So bindings and
//! exports without layers have none of this on their way.
//!
//! Other programs can capture the calls of an export ([`Tap`]): a layer that exists only while they do.

mod client;
mod layer;
mod layers;
mod record;
mod server;
#[cfg(feature = "tracing")]
mod spans;
mod tap;
#[cfg(feature = "tracing")]
mod traceparent;
mod within;

pub(crate) use self::client::LayeredPath;
pub use self::layer::{Layer, LayerCall, LayerEnd, LayerOutcome, LayerRefusal, LayerSide};
pub(crate) use self::layers::Layers;
pub(crate) use self::record::Record;
pub(crate) use self::server::Layered;
#[cfg(feature = "tracing")]
pub use self::spans::{Propagate, TracedCall, Tracing};
pub(crate) use self::tap::{Feed, Taken, Tap, TapStub, Wanted};
pub(crate) use self::within::layers_of_procedure;
