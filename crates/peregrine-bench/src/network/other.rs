//! Measures null calls by other systems across a network, between two separate processes. Two of the systems
//! are also measured on one machine.
//!
//! | peer | what it is |
//! |---|---|
//! | `onc-rpc`, `onc-rpc-tcp` | ONC RPC of libtirpc, over UDP, and over TCP (`native/onc.c`) |
//! | `tonic`, `tonic-uds` | gRPC over TCP, and over a Unix socket |
//! | `tonic-tls` | gRPC over TCP with TLS, with mutual authentication |
//! | `tarpc`, `tarpc-uds` | tarpc over TCP, and over a Unix socket, bincode |
//!
//! A server prints its port in a line, and serves. It sleeps while there are no calls. Each line of a
//! client's standard input says how many calls to make. The client answers each line with the time of these
//! calls in nanoseconds. Each process of the Rust systems has one thread, because this is the fastest
//! configuration for one call at a time.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path as FilePath, PathBuf};
use std::pin::pin;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::task::{Context as Waking, Poll};
use std::time::Instant;

use clap::{Args, ValueEnum};
use futures_util::stream::FuturesUnordered;
use peregrine::sys::pin_to;
use tarpc::context::Context as Terms;
use tarpc::server::Channel;
use tarpc::tokio_serde::formats::Bincode;
use tokio::net::{TcpListener, UnixListener};
use tonic::codegen::tokio_stream::StreamExt;
use tonic::codegen::tokio_stream::wrappers::UnixListenerStream;
use tonic::codegen::{BoxFuture, Service, http};
use tonic_prost::ProstCodec;

use super::far::Far;
use super::{Path, Subject};
use crate::run_directory::end_with_parent;
use crate::secure::{TONIC_TLS, keys};
use crate::subject::{Failure, Sample};

/// The path of the program that was compiled from `native/onc.c`; empty if it could not be compiled.
const ONC: &str = env!("PEREGRINE_BENCH_ONC");

/// A remote procedure call system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    OncRpc,
    OncRpcTcp,
    Tonic,
    Tarpc,
    TonicUds,
    TarpcUds,
    TonicTls,
}

impl Peer {
    /// The systems that are measured across a network.
    pub(crate) const ALL: [Self; 3] = [Self::OncRpc, Self::Tonic, Self::Tarpc];
    /// The systems that are measured on one machine.
    pub(crate) const NEAR: [Self; 2] = [Self::TarpcUds, Self::TonicUds];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::OncRpc => "onc-rpc",
            Self::OncRpcTcp => "onc-rpc-tcp",
            Self::Tonic => "tonic",
            Self::Tarpc => "tarpc",
            Self::TonicUds => "tonic-uds",
            Self::TarpcUds => "tarpc-uds",
            Self::TonicTls => TONIC_TLS,
        }
    }

    pub(crate) const fn path(self) -> Path {
        match self {
            Self::OncRpc => Path::Udp,
            Self::OncRpcTcp
            | Self::Tonic
            | Self::Tarpc
            | Self::TonicUds
            | Self::TarpcUds
            | Self::TonicTls => Path::Tcp,
        }
    }

    /// Returns why this system cannot be measured, or `None` if it can.
    pub(crate) const fn missing(self) -> Option<&'static str> {
        match self {
            Self::OncRpc | Self::OncRpcTcp if ONC.is_empty() => {
                Some("the headers of libtirpc were missing when this program was built")
            }
            _ => None,
        }
    }
}

/// The arguments of a process of a peer.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[arg(long, value_enum)]
    peer: Peer,
    /// Where the server listens
    #[arg(long, default_value_t = IpAddr::from([127, 0, 0, 1]))]
    at: IpAddr,
    /// The Unix socket at which the server listens
    #[arg(long)]
    socket: Option<PathBuf>,
    /// The port of the server, if this process is a client; 0 for a Unix socket
    #[arg(long)]
    port: Option<u16>,
    /// The number of calls that a client has in flight
    #[arg(long, default_value_t = 1)]
    in_flight: u32,
    /// Bytes of arguments of a call by ONC RPC
    #[arg(long, default_value_t = 0)]
    bytes: u32,
    /// The processor to run on
    #[arg(long)]
    cpu: Option<u32>,
}

/// Runs the server or the client.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    end_with_parent();
    if let Some(cpu) = options.cpu {
        pin_to(cpu)?;
    }
    let Options { peer, at, port, in_flight, bytes, ref socket, .. } = *options;
    let socket = socket.as_deref().unwrap_or(FilePath::new(""));
    if let Peer::OncRpc | Peer::OncRpcTcp = peer {
        let (mut command, protocol, at) = (Command::new(ONC), peer.path().name(), at.to_string());
        match port {
            None => command.args(["server", protocol, &at]),
            Some(port) => {
                let numbers = [port.to_string(), bytes.to_string()];
                command.args(["client", protocol, &at]).args(numbers)
            }
        };
        // The C program replaces this process, and keeps the processor affinity of this process.
        return Err(std::os::unix::process::CommandExt::exec(&mut command).into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match (peer, port) {
            (Peer::Tonic, Some(port)) => call_tonic(format!("http://{at}:{port}")).await,
            (Peer::Tonic, None) => serve_tonic(listening(at).await?).await,
            (Peer::TonicTls, Some(port)) => call_tonic_tls(SocketAddr::new(at, port)).await,
            (Peer::TonicTls, None) => serve_tonic_tls(listening(at).await?).await,
            (Peer::TonicUds, Some(_)) => call_tonic(format!("unix:{}", socket.display())).await,
            (Peer::TonicUds, None) => serve_tonic_uds(socket).await,
            (Peer::TarpcUds, Some(_)) => call_tarpc_uds(socket, in_flight).await,
            (Peer::TarpcUds, None) => serve_tarpc_uds(socket).await,
            (_, Some(port)) => call_tarpc(SocketAddr::new(at, port), in_flight).await,
            (_, None) => serve_tarpc(listening(at).await?).await,
        }
    })
}

async fn listening(at: IpAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((at, 0)).await?;
    write_line(listener.local_addr()?.port().into())?;
    Ok(listener)
}

fn write_line(number: u128) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{number}")?;
    out.flush()
}

/// Carries out the commands that a client reads. This function may block while it waits for a command,
/// because nothing else runs on its thread.
async fn as_ordered(mut call: impl AsyncFnMut() -> Result<(), Failure>) -> Result<(), Failure> {
    for line in io::stdin().lock().lines() {
        let line = line?;
        let numbers = line.split_once(' ').ok_or("a command must have two numbers")?;
        let (warm, calls): (u32, u32) = (numbers.0.parse()?, numbers.1.parse()?);
        for _ in 0..warm {
            call().await?;
        }
        let start = Instant::now();
        for _ in 0..calls {
            call().await?;
        }
        write_line(start.elapsed().as_nanos())?;
    }
    Ok(())
}

/// Carries out the commands that a client reads, as [`as_ordered`] does. `calls` takes a number of calls, and
/// makes many of them at a time.
async fn together(calls: impl AsyncFn(u32) -> Result<(), Failure>) -> Result<(), Failure> {
    for line in io::stdin().lock().lines() {
        let line = line?;
        let numbers = line.split_once(' ').ok_or("a command must have two numbers")?;
        calls(numbers.0.parse()?).await?;
        let start = Instant::now();
        calls(numbers.1.parse()?).await?;
        write_line(start.elapsed().as_nanos())?;
    }
    Ok(())
}

/// The service that is called through gRPC and through tarpc. Its only procedure does nothing.
#[derive(Clone)]
struct Null;

/// The procedure of the gRPC service.
struct Nothing;

impl tonic::server::UnaryService<()> for Nothing {
    type Response = ();
    type Future = Ready<Result<tonic::Response<()>, tonic::Status>>;

    fn call(&mut self, _: tonic::Request<()>) -> Self::Future {
        ready(Ok(tonic::Response::new(())))
    }
}

impl Service<http::Request<tonic::body::Body>> for Null {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Waking<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(async move {
            let codec = ProstCodec::<(), ()>::default();
            Ok(tonic::server::Grpc::new(codec).unary(Nothing, request).await)
        })
    }
}

async fn serve_tonic(listener: TcpListener) -> Result<(), Failure> {
    use tonic::transport::server::{Server, TcpIncoming};
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Ok(Server::builder().serve_with_incoming(Null, incoming).await?)
}

async fn serve_tonic_uds(socket: &FilePath) -> Result<(), Failure> {
    let incoming = UnixListenerStream::new(UnixListener::bind(socket)?);
    write_line(0)?;
    let server = tonic::transport::server::Server::builder();
    Ok(server.serve_with_incoming(Null, incoming).await?)
}

async fn serve_tonic_tls(listener: TcpListener) -> Result<(), Failure> {
    use tonic::transport::server::{Server, TcpIncoming};
    use tonic::transport::{Certificate, Identity, ServerTlsConfig};
    let [cert, key] = keys::for_tonic()?;
    let trusted = Certificate::from_pem(&cert);
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(cert, key));
    let server = Server::builder().tls_config(tls.client_ca_root(trusted))?;
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Ok(server.serve_with_incoming(Null, incoming).await?)
}

async fn call_tonic_tls(to: SocketAddr) -> Result<(), Failure> {
    use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
    let [cert, key] = keys::for_tonic()?;
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&cert))
        .identity(Identity::from_pem(cert, key))
        .domain_name(keys::TONIC_NAME);
    call_tonic_at(Endpoint::new(format!("https://{to}"))?.tls_config(tls)?).await
}

async fn call_tonic(to: String) -> Result<(), Failure> {
    call_tonic_at(tonic::transport::Endpoint::new(to)?).await
}

async fn call_tonic_at(endpoint: tonic::transport::Endpoint) -> Result<(), Failure> {
    let mut client = tonic::client::Grpc::new(endpoint.tcp_nodelay(true).connect().await?);
    let path = http::uri::PathAndQuery::from_static("/bench.Null/Null");
    as_ordered(async || {
        client.ready().await?;
        let codec = ProstCodec::<(), ()>::default();
        client.unary(tonic::Request::new(()), path.clone(), codec).await?;
        Ok(())
    })
    .await
}

/// The tarpc service. Its only procedure does nothing.
#[tarpc::service]
trait Nil {
    async fn null();
}

impl Nil for Null {
    async fn null(self, _: Terms) {}
}

async fn serve_tarpc(listener: TcpListener) -> Result<(), Failure> {
    use tarpc::serde_transport::tcp::listen_on;
    let mut incoming = listen_on(listener, Bincode::default).await?;
    while let Some(transport) = incoming.next().await {
        let transport = transport?;
        transport.get_ref().set_nodelay(true)?;
        answer(transport).await;
    }
    Ok(())
}

async fn serve_tarpc_uds(socket: &FilePath) -> Result<(), Failure> {
    use tarpc::serde_transport::unix::listen;
    let mut incoming = listen(socket, Bincode::default).await?;
    write_line(0)?;
    while let Some(transport) = incoming.next().await {
        answer(transport?).await;
    }
    Ok(())
}

/// Answers the requests of one client, one after the other. The procedure does nothing, so concurrency would
/// not make the answers faster.
async fn answer(
    transport: impl tarpc::Transport<tarpc::Response<NilResponse>, tarpc::ClientMessage<NilRequest>>,
) {
    let channel = tarpc::server::BaseChannel::with_defaults(transport);
    let mut requests = pin!(channel.execute(Null.serve()));
    while let Some(answered) = requests.next().await {
        answered.await;
    }
}

async fn call_tarpc(to: SocketAddr, in_flight: u32) -> Result<(), Failure> {
    let transport = tarpc::serde_transport::tcp::connect(to, Bincode::default).await?;
    transport.get_ref().set_nodelay(true)?;
    call_through(&NilClient::new(tarpc::client::Config::default(), transport).spawn(), in_flight)
        .await
}

async fn call_tarpc_uds(socket: &FilePath, in_flight: u32) -> Result<(), Failure> {
    let transport = tarpc::serde_transport::unix::connect(socket, Bincode::default).await?;
    call_through(&NilClient::new(tarpc::client::Config::default(), transport).spawn(), in_flight)
        .await
}

/// Carries out the commands that a client reads. The calls of each command are divided among `in_flight`
/// futures.
async fn call_through(client: &NilClient, in_flight: u32) -> Result<(), Failure> {
    let repeat = async |calls: u32| {
        for _ in 0..calls {
            client.null(tarpc::context::current()).await?;
        }
        Ok::<(), Failure>(())
    };
    if in_flight == 1 {
        return as_ordered(async || repeat(1).await).await;
    }
    together(async |calls: u32| {
        let each = calls.div_ceil(in_flight);
        let mut all: FuturesUnordered<_> = (0..in_flight).map(|_| repeat(each)).collect();
        while let Some(ended) = all.next().await {
            ended?;
        }
        Ok(())
    })
    .await
}

/// The client process and the server process of a peer. Dropping this value kills both processes.
pub(crate) struct Pair {
    peer: Peer,
    server: Child,
    client: Child,
    in_flight: u32,
    orders: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Pair {
    /// Starts both processes. The server runs in the namespace of the far process.
    pub(crate) fn start(
        peer: Peer,
        far: &Far,
        cpus: [Option<u32>; 2],
        in_flight: u32,
    ) -> io::Result<Self> {
        let place = ["--at".into(), far.link().far().to_string()];
        Self::start_at(peer, far.second_command()?, &place, cpus, (in_flight, 0))
    }

    /// Starts both processes of ONC RPC. Calls have `bytes` bytes of arguments.
    pub(crate) fn start_onc(
        peer: Peer,
        far: &Far,
        cpus: [Option<u32>; 2],
        bytes: u32,
    ) -> io::Result<Self> {
        let place = ["--at".into(), far.link().far().to_string()];
        Self::start_at(peer, far.second_command()?, &place, cpus, (1, bytes))
    }

    /// Starts both processes on this machine. They use the Unix socket `socket`.
    pub(crate) fn start_near(
        peer: Peer,
        socket: &FilePath,
        cpus: [Option<u32>; 2],
    ) -> io::Result<Self> {
        let place = ["--socket".into(), socket.display().to_string()];
        Self::start_at(peer, Command::new(std::env::current_exe()?), &place, cpus, (1, 0))
    }

    fn start_at(
        peer: Peer,
        mut server: Command,
        place: &[String; 2],
        [here, there]: [Option<u32>; 2],
        (in_flight, bytes): (u32, u32),
    ) -> io::Result<Self> {
        let start = |command: &mut Command, numbers: &[(&str, Option<u64>)]| {
            command.args(["other-network", "--peer", peer.name()]).args(place);
            for (name, number) in numbers {
                if let Some(number) = number {
                    command.args([*name, &number.to_string()]);
                }
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
        };
        let missing = || io::Error::other("a peer has no pipes");
        let cpu = |cpu: Option<u32>| ("--cpu", cpu.map(u64::from));
        let mut server = start(&mut server, &[cpu(there)])?;
        let mut output = BufReader::new(server.stdout.take().ok_or_else(missing)?);
        let port = number(&mut output)?;
        let numbers = [
            ("--port", Some(port)),
            ("--in-flight", Some(in_flight.into())),
            ("--bytes", Some(bytes.into())),
            cpu(here),
        ];
        let mut client = start(&mut Command::new(std::env::current_exe()?), &numbers)?;
        let orders = client.stdin.take().ok_or_else(missing)?;
        let output = BufReader::new(client.stdout.take().ok_or_else(missing)?);
        Ok(Self { peer, server, client, in_flight, orders, output })
    }

    /// Makes at least `calls` calls, after `warm` calls that are not measured. Returns the mean time of a
    /// call in nanoseconds.
    pub(crate) fn calls(&mut self, warm: u32, calls: u32) -> io::Result<f64> {
        // The number is rounded up, so that each of the `in_flight` futures makes the same number of calls.
        let calls = calls.next_multiple_of(self.in_flight);
        writeln!(self.orders, "{warm} {calls}")?;
        Ok(number(&mut self.output)? as f64 / f64::from(calls))
    }
}

/// Returns the next number that a process writes.
fn number(output: &mut impl BufRead) -> io::Result<u64> {
    let mut line = String::new();
    output.read_line(&mut line)?;
    line.trim().parse().map_err(|_| io::Error::other("a peer's process ended"))
}

impl Subject for Pair {
    fn name(&self) -> &'static str {
        self.peer.name()
    }

    fn run(&mut self, _: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure> {
        Ok(Sample { ns: self.calls(warm, calls)?, cpu_ns: None })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.server] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
