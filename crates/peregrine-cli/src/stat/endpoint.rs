//! The HTTP endpoint of `stat --prometheus --listen`: `GET /metrics`, within bounds.

use core::convert::Infallible;
use core::time::Duration;
use std::io;
use std::net::{IpAddr, TcpListener as StdListener};
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use peregrine::counters::PROMETHEUS_CONTENT_TYPE;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::prometheus::Readings;

/// The maximum number of open connections. Further clients wait until one is closed.
const CONNECTIONS_MAX: usize = 16;
/// The maximum size in bytes of the header of a request. The endpoint reads no bodies.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// How long a client may take to send the header of a request.
const HEADER_LIMIT: Duration = Duration::from_secs(10);
/// How long a request waits for earlier requests. Only one request at a time asks the server.
const WAIT_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection may be open. It has one request.
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);
/// How long the endpoint pauses if it cannot accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The maximum number of characters that the endpoint sends of an error. A hostile server may send a long
/// text.
const ERROR_CHARS: usize = 1_000;

const TEXT: &str = "text/plain; charset=utf-8";
/// Keeps browsers from treating text as a page.
const NO_SNIFF: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));

/// Stops an endpoint from another thread.
#[derive(Default)]
pub(super) struct Stop(Notify);

impl Stop {
    /// Makes the endpoint stop, also if it has not begun yet.
    pub(super) fn stop(&self) {
        self.0.notify_one();
    }
}

/// Answers requests until the endpoint is stopped. Requests that it has not answered then get no answer.
pub(super) fn serve(
    listeners: Vec<StdListener>,
    readings: Readings,
    stop: &Stop,
) -> io::Result<()> {
    // One blocking thread asks the server. Only one request at a time needs it.
    let runtime =
        Builder::new_current_thread().max_blocking_threads(1).enable_io().enable_time().build()?;
    let answered = runtime.block_on(async {
        let listeners = listeners.into_iter().map(TcpListener::from_std);
        let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
        let readings = Arc::new(Mutex::new(readings));
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut accepting = JoinSet::new();
        for listener in listeners {
            accepting.spawn(accept(listener, Arc::clone(&readings), Arc::clone(&connections)));
        }
        stop.0.notified().await;
        Ok(())
    });
    // The thread that asks the server may wait for some seconds. The process does not wait for it.
    runtime.shutdown_background();
    answered
}

/// Accepts connections at one address.
async fn accept(
    listener: TcpListener,
    readings: Arc<Mutex<Readings>>,
    connections: Arc<Semaphore>,
) {
    // The semaphore is never closed.
    while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, Arc::clone(&readings), permit));
            }
            // The process may have no free descriptor.
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Serves the request of one connection.
async fn connection(
    stream: TcpStream,
    readings: Arc<Mutex<Readings>>,
    _permit: OwnedSemaphorePermit,
) {
    // If the socket has no local address, the connection is closed already.
    let Ok(here) = stream.local_addr() else { return };
    let service = service_fn(|request| {
        let readings = Arc::clone(&readings);
        async move { Ok::<_, Infallible>(answer(&request, here.ip(), readings).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .max_header_size(HEADER_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // An error concerns only this connection, whose client sees that it was closed.
    let _ = timeout(CONNECTION_LIMIT, served).await;
}

/// Answers a request that arrived at the address `here`.
async fn answer(
    request: &Request<Incoming>,
    here: IpAddr,
    readings: Arc<Mutex<Readings>>,
) -> Response<Full<Bytes>> {
    if !is_addressed(request, here) {
        let text = "The host of the request is not an address of this endpoint. \
                    Use its IP address or `localhost`.";
        return plain(StatusCode::MISDIRECTED_REQUEST, text);
    }
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "The metrics are at /metrics.");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused =
            plain(StatusCode::METHOD_NOT_ALLOWED, "Send GET or HEAD to read the metrics.");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let Ok(mut readings) = timeout(WAIT_LIMIT, readings.lock_owned()).await else {
        let text = "The server has not answered earlier requests yet. Try again later.";
        return plain(StatusCode::SERVICE_UNAVAILABLE, text);
    };
    // The task continues if the client disconnects. So it holds the lock.
    let asked = spawn_blocking(move || {
        let read = readings.next();
        read.map_err(|error| {
            let error: String = error.chars().take(ERROR_CHARS).collect();
            let address = &readings.address;
            format!(
                "The counters of `{address}` cannot be read: {error}. The next request asks again."
            )
        })
    });
    match asked.await {
        Ok(Ok(text)) => of(StatusCode::OK, PROMETHEUS_CONTENT_TYPE, text),
        Ok(Err(error)) => plain(StatusCode::SERVICE_UNAVAILABLE, &error),
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "The endpoint failed. Try again."),
    }
}

/// Returns whether the request is for this endpoint. A web page of another site can make a browser send
/// requests to a loopback address through a name that the site controls (DNS rebinding). Only browsers on
/// this machine can do so, and other machines use any name of this machine. So the name is checked only at
/// loopback addresses.
fn is_addressed<T>(request: &Request<T>, here: IpAddr) -> bool {
    if !here.to_canonical().is_loopback() {
        return true;
    }
    // If the request line contains a host, too, that host has precedence (RFC 9112, section 3.2.2).
    let host = match (request.uri().authority(), request.headers().get(HOST)) {
        (Some(host), _) => Some(host.clone()),
        (None, Some(host)) => host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()),
        // A client of HTTP/1.0 need not name a host. Browsers always do.
        (None, None) => return true,
    };
    let Some(host) = host else { return false };
    let host = host.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost")
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    of(status, TEXT, format!("{text}\n"))
}

fn of(status: StatusCode, media: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let (name, value) = NO_SNIFF;
    headers.insert(name, value);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_accepted(host: Option<&str>, here: &str) -> bool {
        let request = Request::builder().uri("/metrics");
        let request = match host {
            Some(host) => request.header("host", host),
            None => request,
        };
        is_addressed(&request.body(()).unwrap(), here.parse().unwrap())
    }

    #[test]
    fn foreign_names_of_loopback_are_refused() {
        for host in ["localhost:9464", "LOCALHOST", "127.0.0.1:9464", "[::1]:9464"] {
            assert!(is_accepted(Some(host), "127.0.0.1"), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:9464", "a b", ""] {
            assert!(!is_accepted(Some(host), "127.0.0.1"), "{host}");
            assert!(!is_accepted(Some(host), "::1"), "{host}");
            assert!(is_accepted(Some(host), "192.0.2.7"), "{host}");
        }
        assert!(is_accepted(None, "127.0.0.1"));
    }
}
