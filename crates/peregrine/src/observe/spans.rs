//! [`Tracing`]: a layer that makes a span of the crate `tracing` for each call.

use std::sync::Arc;

use ::tracing::Span;
use ::tracing::field::{Empty, display};
use ::tracing::level_filters::LevelFilter;

use super::layer::{Layer, LayerCall, LayerEnd, LayerOutcome, LayerRefusal, LayerSide};
use super::traceparent::{TRACEPARENT, TRACESTATE, Trace};
use super::within::{Scope, scope_of_procedure};
use crate::call::inside;
use crate::error::Executed;

/// A layer that makes a span of the crate [`tracing`](https://docs.rs/tracing) for each call, at the client,
/// at the server, or at both.
///
/// The span has the target `peregrine`, the level `INFO` and the name `call`. Its fields are:
///
/// * `rpc.system` (`peregrine`), `rpc.service` (the interface), `rpc.method` (the procedure).
/// * `address`: the address to which the client is bound, or the name of the export.
/// * `path`: the path that carries the call. `peer`: the address of the caller, at a server on a network.
/// * `request.bytes`, `response.bytes`: the sizes of arguments and result.
/// * `outcome`: `ok`, `error` if the procedure returned its own error, or the kind of the failure in words.
/// * `executed`: `yes`, `no` or `maybe`. `error`: why the call failed.
/// * `retransmissions`, at the client: the number of [packets](LayerEnd::retransmissions) that were sent again.
/// * `trace_id`, `span_id`, `parent_id`: the place in the trace.
/// * `otel.name`, `otel.kind`, `otel.status_code`: the same for the crate `tracing-opentelemetry`.
///
/// The calls of a trace find each other by the metadata `traceparent`, in the form of the W3C's *Trace
/// Context*. At the client, the layer adds it to each call. At the server, the layer reads it, and ignores it if
/// it is invalid. A call that a procedure makes belongs to the trace of the procedure, if both the export and
/// the client of the call have this layer. Metadata proves nothing: a caller can send any trace.
///
/// Procedures run within the span, and so does each poll of an async procedure.
///
/// Without a subscriber there are no spans. Then the layer is [idle](Layer::is_idle), and only passes on a trace
/// that has arrived.
///
/// ```
/// # use peregrine::interface;
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// use peregrine::{BindOptions, Server, Tracing};
///
/// # let name = format!("doc-tracing-{}", std::process::id());
/// let server = Server::new().layer(Tracing::new());
/// let running = server.export(&name, EchoServer::new(Same))?.spawn()?;
/// let options = BindOptions::default().layer(Tracing::new());
/// assert_eq!(EchoClient::bind_with(&name, &options)?.echo(7)?, 7);
/// # drop(running);
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Default)]
#[must_use]
pub struct Tracing {
    propagates: Option<Box<dyn Propagate>>,
}

/// Carries the place in a trace from a client to a server, in the way of a tracing system that numbers spans
/// itself, such as OpenTelemetry. The crate `peregrine-otel` has an implementation.
///
/// ```
/// use peregrine::{LayerCall, Propagate, Tracing};
///
/// /// Names the span of the caller in the metadata `caller-span`.
/// struct Named;
///
/// impl Propagate for Named {
///     fn inject(&self, call: &mut LayerCall<'_>) {
///         // The span of the call is the current one here.
///         let _ = call.add_metadata("caller-span", "7");
///     }
///
///     fn extract(&self, call: &LayerCall<'_>, make_span: &mut dyn FnMut()) {
///         let _parent = call.metadata().get("caller-span");
///         make_span();
///     }
/// }
///
/// let layer = Tracing::new().propagated_by(Named);
/// ```
pub trait Propagate: Send + Sync + 'static {
    /// Adds metadata to a call, at the client. The span of the call is the current one.
    fn inject(&self, call: &mut LayerCall<'_>);

    /// Calls `make_span` once, which makes the span of a call at the server. The span belongs to the trace
    /// that the tracing system of this thread is in then.
    fn extract(&self, call: &LayerCall<'_>, make_span: &mut dyn FnMut());
}

/// What [`Tracing`] keeps of a call.
#[derive(Debug)]
pub struct TracedCall {
    /// `None` if no subscriber wants the span.
    span: Option<Span>,
    side: LayerSide,
}

impl Tracing {
    /// Returns the layer.
    pub const fn new() -> Self {
        Self { propagates: None }
    }

    /// Lets `propagate` carry the place in the trace, instead of the layer's own `traceparent`.
    pub fn propagated_by(self, propagate: impl Propagate) -> Self {
        Self { propagates: Some(Box::new(propagate)) }
    }

    fn begin_at_client(&self, call: &mut LayerCall<'_>) -> Span {
        let outer = inside().and_then(|_| scope_of_procedure());
        let span = match &outer {
            // The procedure does not run within its span now.
            Some(outer) if Span::current().is_none() => outer.span.in_scope(|| span_of(call)),
            _ => span_of(call),
        };
        if let Some(propagates) = &self.propagates {
            if !span.is_disabled() {
                span.in_scope(|| propagates.inject(call));
            }
            return span;
        }
        let outer = outer.as_ref().and_then(|outer| outer.context.as_ref());
        let sent = if span.is_disabled() {
            // The client's own `traceparent` is sent as it is.
            outer.filter(|_| call.metadata().get(TRACEPARENT).is_none()).cloned()
        } else {
            let own = Trace::of(call.metadata());
            placed(&span, own.as_ref().or(outer))
        };
        if let Some(context) = sent {
            // If nothing carries metadata, or its space is used up, the call belongs to no trace.
            let added = call.add_metadata(TRACEPARENT, &context.to_string());
            if let (Ok(()), Some(state)) = (added, context.state()) {
                let _ = call.add_metadata(TRACESTATE, state);
            }
        }
        span
    }

    fn begin_at_server(&self, call: &mut LayerCall<'_>) -> Span {
        let (span, context) = match &self.propagates {
            Some(propagates) => {
                let mut span = None;
                propagates.extract(call, &mut || span = Some(span_of(call)));
                (span.unwrap_or_else(|| span_of(call)), None)
            }
            None => {
                let (span, caller) = (span_of(call), Trace::of(call.metadata()));
                match span.is_disabled() {
                    true => (span, caller),
                    false => {
                        let context = placed(&span, caller.as_ref());
                        (span, context)
                    }
                }
            }
        };
        if !span.is_disabled() || context.is_some() {
            call.scope = Some(Arc::new(Scope { span: span.clone(), context }));
        }
        span
    }
}

/// Makes the span of a call, within the current one.
fn span_of(call: &LayerCall<'_>) -> Span {
    ::tracing::info_span!(
        target: "peregrine",
        "call",
        otel.name = %format_args!("{}/{}", call.interface().name(), call.procedure()),
        otel.kind = match call.side() {
            LayerSide::Client => "client",
            LayerSide::Server => "server",
        },
        otel.status_code = Empty,
        rpc.system = "peregrine",
        rpc.service = call.interface().name(),
        rpc.method = call.procedure(),
        address = call.name(),
        path = %call.path(),
        peer = call.caller().and_then(|caller| caller.from()).map(display),
        request.bytes = call.argument_bytes(),
        response.bytes = Empty,
        outcome = Empty,
        executed = Empty,
        error = Empty,
        retransmissions = Empty,
        trace_id = Empty,
        span_id = Empty,
        parent_id = Empty,
    )
}

/// Notes the place of a span in the trace of `parent`, or in a new trace.
fn placed(span: &Span, parent: Option<&Trace>) -> Option<Trace> {
    let context = Trace::new_span(parent)?;
    span.record("trace_id", display(format_args!("{:032x}", context.trace)));
    span.record("span_id", display(format_args!("{:016x}", context.span)));
    if let Some(parent) = parent {
        span.record("parent_id", display(format_args!("{:016x}", parent.span)));
    }
    Some(context)
}

impl Layer for Tracing {
    type State = TracedCall;

    fn begin(&self, call: &mut LayerCall<'_>) -> Result<TracedCall, LayerRefusal> {
        let span = match call.side() {
            LayerSide::Client => self.begin_at_client(call),
            LayerSide::Server => self.begin_at_server(call),
        };
        let span = (!span.is_disabled()).then_some(span);
        Ok(TracedCall { span, side: call.side() })
    }

    fn end(&self, TracedCall { span, side }: TracedCall, end: &LayerEnd<'_>) {
        let Some(span) = span else { return };
        let (outcome, executed) = match end.outcome() {
            LayerOutcome::Returned => ("ok", "yes"),
            LayerOutcome::ReturnedError => ("error", "yes"),
            LayerOutcome::Failed { kind, executed: Executed::No, .. } => (kind.text(), "no"),
            LayerOutcome::Failed { kind, executed: Executed::Maybe, .. } => (kind.text(), "maybe"),
        };
        span.record("outcome", outcome).record("executed", executed);
        span.record("response.bytes", end.result_bytes());
        if side == LayerSide::Client {
            span.record("retransmissions", end.retransmissions());
        }
        if let LayerOutcome::Failed { text, .. } = end.outcome() {
            span.record("error", text);
        }
        span.record("otel.status_code", if outcome == "ok" { "OK" } else { "ERROR" });
    }

    fn is_idle(&self, side: LayerSide) -> bool {
        // The level is what the most verbose subscriber wants. Without a subscriber, it is `OFF`.
        LevelFilter::current() < LevelFilter::INFO
            && match side {
                // The call may belong to the trace of the procedure that makes it.
                LayerSide::Client => inside().is_none() || scope_of_procedure().is_none(),
                LayerSide::Server => true,
            }
    }
}

impl core::fmt::Debug for Tracing {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Tracing")
    }
}
