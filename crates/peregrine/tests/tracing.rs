//! Tests the layer `Tracing` without OpenTelemetry: the fields of spans, the metadata of the W3C's Trace
//! Context, and what happens without a subscriber.
#![cfg(feature = "async")]

mod support;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use peregrine::{BindOptions, Server, Tracing, caller, interface};
use support::futures::block_on;
use support::{alone, own_directory, until};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[interface]
trait Inner {
    /// Returns the metadata of the call.
    fn seen(&self) -> peregrine::Result<Vec<String>>;
    fn panics(&self) -> peregrine::Result<()>;
}

#[interface]
trait Outer {
    /// Returns the metadata of a call of `Inner::seen` that this procedure makes.
    fn nested(&self) -> peregrine::Result<Vec<String>>;
}

struct Object;

impl Inner for Object {
    fn seen(&self) -> peregrine::Result<Vec<String>> {
        let caller = caller().expect("a procedure has a caller");
        let pairs = caller.metadata().iter();
        Ok(pairs.map(|(key, value)| format!("{key}={value}")).collect())
    }
    fn panics(&self) -> peregrine::Result<()> {
        panic!("the test makes this panic");
    }
}

struct Calls(InnerClient);

impl Outer for Calls {
    fn nested(&self) -> peregrine::Result<Vec<String>> {
        self.0.seen()
    }
}

struct AsyncCalls(InnerAsyncClient);

impl OuterAsync for AsyncCalls {
    async fn nested(&self) -> peregrine::Result<Vec<String>> {
        let mut polled = false;
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        tracing::info!(target: "event", "after the first poll");
        let seen = InnerAsync::seen(&self.0).await;
        tracing::info!(target: "event", "after a call");
        seen
    }
}

/// A span that has ended: its fields, and the `span_id` of its parent within the process.
type Fields = HashMap<&'static str, String>;

/// Collects the spans that have ended, and for each event the `span_id` of its span.
#[derive(Clone, Default)]
struct Collects(Arc<Mutex<Vec<Fields>>>, Arc<Mutex<Vec<Option<String>>>>);

struct Into<'a>(&'a mut Fields);

impl Visit for Into<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Collects {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let mut fields = Fields::new();
        if let Some(parent) = span.parent() {
            let parent =
                parent.extensions().get::<Fields>().and_then(|one| one.get("span_id").cloned());
            fields.insert("parent", parent.unwrap_or_default());
        }
        attributes.record(&mut Into(&mut fields));
        span.extensions_mut().insert(fields);
    }
    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let mut extensions = span.extensions_mut();
        values.record(&mut Into(extensions.get_mut::<Fields>().unwrap()));
    }
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if event.metadata().target() != "event" {
            return;
        }
        let span = context.event_span(event);
        let id = span.and_then(|span| span.extensions().get::<Fields>()?.get("span_id").cloned());
        self.1.lock().unwrap().push(id);
    }
    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let fields = context.span(&id).unwrap().extensions_mut().remove::<Fields>().unwrap();
        self.0.lock().unwrap().push(fields);
    }
}

impl Collects {
    /// Waits until `count` spans have ended, and takes them.
    fn take(&self, count: usize) -> Vec<Fields> {
        until("the spans have ended", || self.0.lock().unwrap().len() >= count);
        let spans = std::mem::take(&mut *self.0.lock().unwrap());
        assert_eq!(spans.len(), count, "{spans:?}");
        spans
    }
}

fn layered() -> BindOptions {
    BindOptions::default().layer(Tracing::new())
}

/// Runs `test` with clients of servers with the layer: the inner one, and outer ones of both kinds.
fn with_servers(test: impl Fn(&InnerClient, [&OuterClient; 2])) {
    let _alone = alone();
    let _directory = own_directory();
    let server = Server::new().layer(Tracing::new());
    let inner = server.export("inner", InnerServer::new(Object)).unwrap().spawn().unwrap();
    let client = InnerClient::bind_with("inner", &layered()).unwrap();
    let server = Server::new().layer(Tracing::new());
    let server = server.export("outer", OuterServer::new(Calls(client.clone()))).unwrap();
    let calls = AsyncCalls(InnerAsyncClient::from(client.clone()));
    let outer = server.export("async", OuterAsyncServer::new(calls)).unwrap().spawn().unwrap();
    let [blocking, deferred] =
        ["outer", "async"].map(|name| OuterClient::bind_with(name, &layered()).unwrap());
    test(&client, [&blocking, &deferred]);
    [outer, inner].into_iter().for_each(peregrine::Running::stop);
}

#[test]
fn trace_passes_through_programs_without_a_subscriber() {
    with_servers(|inner, outer| {
        assert_eq!(inner.seen().unwrap(), [""; 0]);
        let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        for outer in outer {
            assert_eq!(outer.nested().unwrap(), [""; 0]);
            let traced = outer.with_metadata("traceparent", &parent).unwrap();
            assert_eq!(traced.nested().unwrap(), [format!("traceparent={parent}")]);
            let traced = traced.with_metadata("tracestate", "a=1").unwrap();
            let expected = [format!("traceparent={parent}"), "tracestate=a=1".to_owned()];
            assert_eq!(traced.nested().unwrap(), expected);
            let invalid = outer.with_metadata("traceparent", "00-garbage").unwrap();
            assert_eq!(invalid.nested().unwrap(), [""; 0]);
        }
    });
}

/// Runs the tests that need a subscriber in one process of their own, because a subscriber on one thread only
/// would not see the spans of a server's threads.
#[test]
fn spans_have_the_facts_of_calls_and_are_one_trace() {
    if std::env::var_os("TRACED").is_none() {
        let test = "spans_have_the_facts_of_calls_and_are_one_trace";
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        let status = process.args(["--exact", test, "--nocapture"]).env("TRACED", "1").status();
        assert!(status.unwrap().success());
        return;
    }
    let spans = Collects::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    with_servers(|inner, outer| {
        let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        for (outer, name) in outer.into_iter().zip(["outer", "async"]) {
            let traced = outer.with_metadata("traceparent", &parent).unwrap();
            let seen = traced.nested().unwrap();
            let all = spans.take(4);
            let mut above = "00f067aa0ba902b7".to_owned();
            let each = [
                ("nested", "client"),
                ("nested", "server"),
                ("seen", "client"),
                ("seen", "server"),
            ];
            for (method, kind) in each {
                let is_it = |one: &&Fields| one["rpc.method"] == method && one["otel.kind"] == kind;
                let span = all.iter().find(is_it).unwrap();
                assert_eq!((&*span["trace_id"], &span["parent_id"]), (TRACE, &above), "{span:?}");
                let (service, address) = match method {
                    "nested" => ("Outer", name),
                    _ => ("Inner", "inner"),
                };
                assert_eq!((&*span["rpc.service"], &*span["address"]), (service, address));
                assert_eq!(
                    (&*span["path"], &*span["outcome"], &*span["executed"]),
                    ("local", "ok", "yes")
                );
                // The call of the procedure is within the procedure's span also in this process.
                assert_eq!(
                    span.get("parent"),
                    (method == "seen" && kind == "client").then_some(&above)
                );
                assert_eq!(
                    span.get("retransmissions").map(|count| &**count),
                    (kind == "client").then_some("0")
                );
                above = span["span_id"].clone();
                if (method, kind, name) == ("nested", "server", "async") {
                    // Each poll of the procedure runs within its span.
                    let events = std::mem::take(&mut *spans.1.lock().unwrap());
                    assert_eq!(events, vec![Some(above.clone()); 2]);
                }
                if (method, kind) == ("seen", "client") {
                    assert_eq!(seen, [format!("traceparent=00-{TRACE}-{above}-01")]);
                }
            }
        }
        assert!(inner.panics().is_err());
        for span in spans.take(2) {
            assert_eq!(
                (&*span["outcome"], &*span["executed"]),
                ("the procedure panicked", "maybe")
            );
            assert_eq!(span["otel.status_code"], "ERROR");
            assert!(!span["error"].is_empty());
        }
        // A call of no trace begins one.
        let awaited = InnerAsyncClient::from(inner.clone());
        let seen = block_on(InnerAsync::seen(&awaited)).unwrap();
        let all = spans.take(2);
        assert_eq!(all[0]["trace_id"], all[1]["trace_id"]);
        assert!(
            seen[0].starts_with(&format!("traceparent=00-{}-", all[0]["trace_id"])),
            "{seen:?}"
        );
    });
}
