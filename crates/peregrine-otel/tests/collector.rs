//! Sends the spans of nested calls to a collector by OTLP over HTTP, and checks that they are one trace. The
//! collector is a small server in this test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use peregrine::{BindOptions, CallError, Executed, Kind, Running, Server, interface};
use prost::Message as _;
use tracing_subscriber::layer::SubscriberExt as _;

/// How long the test waits for spans that must arrive.
const LIMIT: Duration = Duration::from_secs(20);

/// The first of three servers.
#[interface]
trait Front {
    fn ask(&self, number: u32) -> peregrine::Result<u32>;
}

/// The second server, whose procedures are async.
#[interface]
trait Middle {
    fn pass(&self, number: u32) -> peregrine::Result<u32>;
}

/// The last server.
#[interface]
trait Last {
    /// Fails if the number is zero.
    fn double(&self, number: u32) -> peregrine::Result<u32>;
}

struct First(MiddleClient);
struct Second(LastAsyncClient);
struct Third;

impl Front for First {
    fn ask(&self, number: u32) -> peregrine::Result<u32> {
        self.0.pass(number)
    }
}

impl MiddleAsync for Second {
    async fn pass(&self, number: u32) -> peregrine::Result<u32> {
        // The procedure is deferred, and its call is made on another thread.
        let mut polled = false;
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        LastAsync::double(&self.0, number).await
    }
}

impl Last for Third {
    fn double(&self, number: u32) -> peregrine::Result<u32> {
        match number {
            0 => Err(CallError::new(Kind::NotFound, Executed::Maybe, "no such number")),
            _ => Ok(2 * number),
        }
    }
}

/// The spans that the collector has received.
#[derive(Default)]
struct Received {
    spans: Mutex<Vec<Span>>,
    arrived: Condvar,
}

impl Received {
    /// Waits until `count` spans have arrived, and takes them.
    fn take(&self, count: usize) -> Vec<Span> {
        let spans = self.spans.lock().unwrap();
        let (mut spans, _) =
            self.arrived.wait_timeout_while(spans, LIMIT, |spans| spans.len() < count).unwrap();
        assert_eq!(spans.len(), count, "{spans:?}");
        std::mem::take(&mut *spans)
    }
}

/// Reads a message of HTTP. Returns its body.
fn body(stream: &mut BufReader<TcpStream>) -> Vec<u8> {
    let (mut line, mut bytes) = (String::new(), 0);
    while stream.read_line(&mut line).unwrap() > 0 && line.trim() != "" {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            bytes = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; bytes];
    stream.read_exact(&mut body).unwrap();
    body
}

/// Starts the collector. Returns its address.
fn collect(received: &Arc<Received>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let received = Arc::clone(received);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let request = ExportTraceServiceRequest::decode(&body(&mut stream)[..]).unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.get_mut().write_all(answer).unwrap();
            let scopes = request.resource_spans.into_iter().flat_map(|one| one.scope_spans);
            received.spans.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
            received.arrived.notify_all();
        }
    });
    address
}

/// A client of HTTP that uses a connection for each request.
#[derive(Debug)]
struct Http;

#[async_trait::async_trait]
impl HttpClient for Http {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (uri, content) = (request.uri(), request.body());
        let mut stream = TcpStream::connect(uri.authority().expect("an address").as_str())?;
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n\r\n",
            uri.path(),
            uri.authority().expect("an address"),
            content.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(content)?;
        Ok(Response::new(body(&mut BufReader::new(stream)).into()))
    }
}

fn attribute(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|one| one.key == key);
    match found.and_then(|one| one.value.clone()).and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        other => format!("{other:?}"),
    }
}

/// Returns the address of an export of a server.
fn at(running: &Running, name: &str) -> String {
    format!("{}/{name}", running.addresses()[0])
}

#[test]
fn nested_calls_are_one_trace_at_a_collector() {
    let received = Arc::new(Received::default());
    let endpoint = format!("http://{}/v1/traces", collect(&received));
    let exporter = SpanExporter::builder().with_http().with_http_client(Http);
    let exporter = exporter.with_endpoint(endpoint).build().unwrap();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter).build();
    let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let subscriber = tracing_subscriber::registry().with(spans);
    tracing::subscriber::set_global_default(subscriber).unwrap();
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());

    let networks_only = || peregrine::ExportOptions::default().networks_only();
    let server = |path: &str| {
        let server = Server::new().layer(peregrine_otel::layer());
        server.listen(&format!("{path}:127.0.0.1:0")).unwrap()
    };
    let options = || BindOptions::default().layer(peregrine_otel::layer());
    let third = server("tcp").export_with("last", LastServer::new(Third), networks_only());
    let third = third.unwrap().spawn().unwrap();
    let last = LastClient::bind_with(&at(&third, "last"), &options()).unwrap();
    let second = MiddleAsyncServer::new(Second(LastAsyncClient::from(last)));
    let second = server("udp").export_with("middle", second, networks_only());
    let second = second.unwrap().spawn().unwrap();
    let middle = MiddleClient::bind_with(&at(&second, "middle"), &options()).unwrap();
    let first =
        server("tcp").export_with("front", FrontServer::new(First(middle)), networks_only());
    let first = first.unwrap().spawn().unwrap();
    let front = FrontClient::bind_with(&at(&first, "front"), &options()).unwrap();

    let mut traces = Vec::new();
    for number in [7, 0] {
        assert_eq!(front.ask(number).ok(), (number != 0).then_some(14));
        let spans = received.take(6);
        let mut parent = Vec::new();
        for (name, service) in
            [("Front/ask", "Front"), ("Middle/pass", "Middle"), ("Last/double", "Last")]
        {
            for kind in [SpanKind::Client, SpanKind::Server] {
                let is_it = |span: &&Span| span.name == name && span.kind == kind as i32;
                let span = spans.iter().find(is_it).unwrap_or_else(|| panic!("{kind:?} {name}"));
                assert_eq!(span.parent_span_id, parent, "{kind:?} {name}");
                assert_eq!(span.trace_id, spans[0].trace_id);
                assert_eq!(attribute(span, "rpc.system"), "peregrine");
                assert_eq!(attribute(span, "rpc.service"), service);
                assert_eq!(
                    attribute(span, "path"),
                    if service == "Middle" { "udp" } else { "tcp" }
                );
                let outcome = if number == 0 { "error" } else { "ok" };
                assert_eq!(attribute(span, "outcome"), outcome, "{kind:?} {name}");
                assert_eq!(attribute(span, "executed"), "yes");
                let expected = if number == 0 { StatusCode::Error } else { StatusCode::Ok };
                assert_eq!(span.status.as_ref().map(|status| status.code), Some(expected as i32));
                parent = span.span_id.clone();
            }
        }
        traces.push(spans[0].trace_id.clone());
    }
    assert_ne!(traces[0], traces[1]);
    [first, second, third].into_iter().for_each(Running::stop);
}
