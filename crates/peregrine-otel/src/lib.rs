//! Puts calls of Peregrine into the traces of OpenTelemetry.
//!
//! [`layer`] returns a layer for clients and servers. It makes a span of the crate `tracing` for each call, which
//! the crate `tracing-opentelemetry` turns into a span of OpenTelemetry. The metadata of a call carries the place
//! in the trace, in the form of the propagator that the program has set for the process. So a call that a
//! procedure makes is in the trace of the procedure's caller, through any number of servers.
//!
//! A program sets the propagator of the process (`opentelemetry::global::set_text_map_propagator`) and a
//! subscriber with the layer of `tracing-opentelemetry` once, at its start. `tests/collector.rs` shows these
//! lines, with an exporter that sends the spans to a collector by OTLP over HTTP.
//!
//! ```
//! use peregrine::{BindOptions, Server};
//!
//! let server = Server::new().layer(peregrine_otel::layer());
//! let options = BindOptions::default().layer(peregrine_otel::layer());
//! ```
#![forbid(unsafe_code)]

use opentelemetry::global;
use opentelemetry::propagation::{Extractor, Injector};
use peregrine::{LayerCall, Metadata, Propagate, Tracing};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Returns a layer for clients and servers, whose spans are in the traces of OpenTelemetry.
///
/// ```
/// let options = peregrine::BindOptions::default().layer(peregrine_otel::layer());
/// ```
pub fn layer() -> Tracing {
    Tracing::new().propagated_by(OpenTelemetry)
}

/// Carries the place in a trace by the propagator that the program has set for the process
/// (`opentelemetry::global::set_text_map_propagator`). Without one, nothing is carried.
///
/// ```
/// let layer = peregrine::Tracing::new().propagated_by(peregrine_otel::OpenTelemetry);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenTelemetry;

/// Adds fields to the metadata of a call.
struct Adds<'c, 'm>(&'c mut LayerCall<'m>);

impl Injector for Adds<'_, '_> {
    fn set(&mut self, key: &str, value: String) {
        // If the metadata has no space left, the call is made without the field.
        let _ = self.0.add_metadata(&key.to_ascii_lowercase(), &value);
    }
}

/// Reads fields of the metadata of a call.
struct Reads<'m>(&'m Metadata);

impl Extractor for Reads<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(&key.to_ascii_lowercase())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.iter().map(|(key, _)| key).collect()
    }
}

impl Propagate for OpenTelemetry {
    fn inject(&self, call: &mut LayerCall<'_>) {
        let context = tracing::Span::current().context();
        global::get_text_map_propagator(|propagator| {
            propagator.inject_context(&context, &mut Adds(call));
        });
    }

    fn extract(&self, call: &LayerCall<'_>, make_span: &mut dyn FnMut()) {
        let context = global::get_text_map_propagator(|propagator| {
            propagator.extract(&Reads(call.metadata()))
        });
        let _current = context.attach();
        make_span();
    }
}
