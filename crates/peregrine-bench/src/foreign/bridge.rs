//! Measures calls through a bridge to a server on the same machine. The clients call the bridge by ONC RPC or
//! over HTTP. The server and the bridge are in the far process (the child process of this program), and exist
//! only while one sample is measured. Although both are in one process, the bridge calls the server through
//! shared memory.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_LENGTH, DATE, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use peregrine::{BindOptions, Endpoint, Server};
use peregrine_bridge::Bridge;
use tokio::runtime::{Builder, Runtime};

use super::onc::{Object, Program as _, ProgramClient, ProgramServer};
use crate::cases::Waiting;
use crate::network::far::{Far, Order};
use crate::network::{Subject, per_call, timed};
use crate::subject::{Failure, Sample};

/// The case of null calls by ONC RPC through the bridge.
pub(crate) const BRIDGE_NULL: &str = "bridge-null";
/// The name of the limit of `BRIDGE_NULL`: the two calls of which a call through the bridge consists.
pub(crate) const BOTH_ALONE: &str = "both-alone";
/// The case of null calls over HTTP.
pub(crate) const HTTP_NULL: &str = "http-null";
/// The name of the limit of `HTTP_NULL`: requests to the echo server.
pub(crate) const HYPER_ECHO: &str = "hyper-echo";
/// The name of the path in the rows of HTTP.
pub(crate) const HTTP: &str = "http";

/// The name of the export to which the bridge and local clients bind.
const SERVER: &str = "bridged";

/// The servers that run in the far process.
pub(crate) struct Bridged {
    // Dropped first, because it calls the server.
    bridge: peregrine_bridge::Running,
    server: peregrine::Running,
    _echo: Runtime,
    echo_at: SocketAddr,
}

impl Bridged {
    /// Starts a server, a bridge, and the echo server: a server of `hyper` that makes no calls, and whose
    /// answers have the same bytes as those of the bridge.
    ///
    /// # Errors
    /// If one of them cannot be started.
    pub(crate) fn start(wait: Waiting, at: IpAddr) -> Result<Self, Failure> {
        let server = Server::new().wait(wait.wait()).threads(2);
        let server = server.export(SERVER, ProgramServer::new(Object))?;
        let server = server.listen(&format!("onc+udp:{at}:0"))?.spawn()?;
        let bridge = Bridge::new().offer(&format!("local:{SERVER}"))?;
        let bridge = bridge.export_at(&format!("onc+udp:{at}:0"))?;
        let bridge = bridge.listen(&SocketAddr::new(at, 0).to_string())?.spawn()?;
        let mut web = Web::connect(bridge.addresses()[0])?;
        web.call()?;
        // The bridge, too, has one thread for each processor that this process may use.
        let threads = std::thread::available_parallelism()?.get();
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_io().build()?;
        let listener = TcpListener::bind((at, 0))?;
        let echo_at = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        runtime.spawn(echo(listener, web.headers()));
        Ok(Self { bridge, server, _echo: runtime, echo_at })
    }

    /// Returns the addresses of the bridge for ONC RPC, of the server for ONC RPC, of the bridge for HTTP,
    /// and of the echo server.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let first = |all: &[Endpoint]| {
            let place = all[0].place();
            SocketAddr::new(self.echo_at.ip(), place.port())
        };
        let (bridge, server) = (first(self.bridge.endpoints()), first(self.server.addresses()));
        vec![bridge, server, self.bridge.addresses()[0], self.echo_at]
    }
}

/// Answers each request with `headers` and a fixed body, after the whole request has arrived.
async fn echo(listener: tokio::net::TcpListener, headers: HeaderMap) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let headers = headers.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let headers = headers.clone();
            async move {
                request.into_body().collect().await?;
                let mut response = Response::new(Full::new(Bytes::from_static(BODY)));
                *response.headers_mut() = headers;
                Ok::<_, hyper::Error>(response)
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// The body of an answer of the bridge.
const BODY: &[u8] = br#"{"result":null}"#;

/// A connection that makes null calls over HTTP.
struct Web {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Web {
    fn connect(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        let request = format!(
            "POST /{SERVER}/null HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\n\
             Content-Length: 2\r\n\r\n{{}}"
        );
        Ok(Self { stream, request: request.into_bytes(), answer: Vec::new() })
    }

    /// Makes a call, and receives the answer.
    fn call(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.request)?;
        self.answer.clear();
        let mut bytes = [0; 4096];
        while !self.answer.ends_with(BODY) {
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.answer.extend(&bytes[..read]),
            }
        }
        if self.answer.starts_with(b"HTTP/1.1 200 ") {
            return Ok(());
        }
        Err(io::Error::other(String::from_utf8_lossy(&self.answer).into_owned()))
    }

    /// Returns the headers of the last answer, without those that `hyper` adds to each answer.
    fn headers(&self) -> HeaderMap {
        let text = String::from_utf8_lossy(&self.answer);
        let lines = text.lines().skip(1).take_while(|line| !line.is_empty());
        let header = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            let name = name.parse::<HeaderName>().ok()?;
            Some((name, value.parse::<HeaderValue>().ok()?))
        };
        let added = |name: &HeaderName| *name == DATE || *name == CONTENT_LENGTH;
        lines.filter_map(header).filter(|(name, _)| !added(name)).collect()
    }
}

/// The ways to make null calls.
#[derive(Clone, Copy, Debug)]
pub(super) enum Calls {
    /// ONC RPC through the bridge.
    Bridge(Waiting),
    /// Local calls, and then calls by ONC RPC without the bridge. Their times are added.
    BothAlone(Waiting),
    /// HTTP to the bridge.
    Http,
    /// HTTP to the echo server.
    Echo,
}

impl Subject for Calls {
    fn name(&self) -> &'static str {
        match self {
            Self::Bridge(_) | Self::Http => "peregrine",
            Self::BothAlone(_) => BOTH_ALONE,
            Self::Echo => HYPER_ECHO,
        }
    }

    fn run(&mut self, far: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure> {
        let wait = match *self {
            Self::Bridge(wait) | Self::BothAlone(wait) => wait,
            Self::Http | Self::Echo => Waiting::Block,
        };
        let [bridge, server, http, echo] = far.order(Order::Bridge(wait))?[..] else {
            return Err("the far process did not return four addresses".into());
        };
        let bind = |address: &str| {
            ProgramClient::bind_with(address, &BindOptions::default().wait(wait.wait()))
        };
        let null = |client: &ProgramClient| -> Result<Duration, Failure> {
            timed(warm, || Ok(client.null()?))?;
            timed(calls, || Ok(client.null()?))
        };
        let web = |to| {
            let mut web = Web::connect(to)?;
            timed(warm, || Ok(web.call()?))?;
            timed(calls, || Ok(web.call()?))
        };
        let took = match self {
            Self::Bridge(_) => null(&bind(&format!("onc+udp:{bridge}"))?)?,
            Self::BothAlone(_) => {
                let local = null(&bind(&format!("local:{SERVER}"))?)?;
                local + null(&bind(&format!("onc+udp:{server}"))?)?
            }
            Self::Http => web(http)?,
            Self::Echo => web(echo)?,
        };
        far.end_order()?;
        Ok(per_call(took, calls))
    }
}
