//! Measures Peregrine's calls across a link. The server is in the far process, and exists only while one
//! sample is measured.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use peregrine::{BindOptions, CallError, Endpoint, EthernetDevice, Insecure, Out, Running, Server};

use super::far::{Far, Order};
use super::path::Path;
use super::{Subject, measured, per_call};
use crate::cases::{Case, Procedure, Size, Waiting};
use crate::interfaces::{
    HugeServer, LargeServer, MiddleServer, Object, Small, SmallAsyncClient, SmallClient,
    SmallServer, Unread,
};
use crate::secure::keys::{Keys, Side};
use crate::subject::{Client, Failure, Sample, repeat_together};
use crate::window::{Counted, Window, now_ns};

/// Returns the name of the export for data of the given size.
pub(crate) const fn name(size: Size) -> &'static str {
    match size {
        Size::Small => "network-small",
        Size::Middle => "network-middle",
        Size::Large => "network-large",
        Size::Huge => "network-huge",
    }
}

/// Returns the option that selects the device of a path. It has an effect on raw Ethernet only.
const fn device(path: Path) -> EthernetDevice {
    match path {
        Path::EthernetPacket => EthernetDevice::Packet,
        Path::Udp | Path::Tcp | Path::Ethernet => EthernetDevice::Any,
    }
}

/// Starts a server that listens at an address of the far end.
pub(super) fn serve(
    path: Path,
    wait: Waiting,
    threads: usize,
    at: IpAddr,
) -> Result<Running, CallError> {
    let server = exports(path, wait, threads)?;
    let endpoint = format!("{}:{at}:0", path.scheme());
    let server = match at.is_loopback() {
        true => server.listen(&endpoint)?,
        false => server.listen_beyond_this_machine(&endpoint, Insecure::ITrustThisNetwork)?,
    };
    server.spawn()
}

/// Starts a server that listens at an address of the far end, and accepts encrypted calls only.
pub(super) fn serve_secure(path: Path, wait: Waiting, at: IpAddr) -> Result<Running, Failure> {
    let Keys { identity, trust, .. } = Keys::load(Side::Server)?;
    let endpoint = format!("{}:{at}:0", path.scheme());
    let server = exports(path, wait, 2)?;
    Ok(server.listen_beyond_this_machine(&endpoint, (identity, trust))?.spawn()?)
}

/// Returns a server with all exports, which listens nowhere yet.
fn exports(path: Path, wait: Waiting, threads: usize) -> Result<Server, CallError> {
    let server = Server::new()
        .wait(wait.wait())
        .threads(threads)
        .export(name(Size::Small), SmallServer::new(Object))?
        .export(name(Size::Middle), MiddleServer::new(Unread))?
        .export(name(Size::Large), LargeServer::new(Object))?
        .export(name(Size::Huge), HugeServer::new(Unread))?;
    Ok(server.ethernet_device(device(path)))
}

/// Returns the addresses at which the server listens.
pub(super) fn addresses(running: &Running) -> Vec<SocketAddr> {
    let address = |endpoint: &Endpoint| endpoint.to_string().split_once(':')?.1.parse().ok();
    running.addresses().iter().filter_map(address).collect()
}

/// The subject that makes Peregrine's calls of one case on one path.
pub(crate) struct Own {
    pub(crate) path: Path,
    pub(crate) case: Case,
    pub(crate) wait: Waiting,
    /// Whether messages have end-to-end checksums. If this is `None`, the default of the path applies.
    pub(crate) check: Option<bool>,
}

impl Own {
    /// Starts a server with `threads` threads, and returns the address of its export.
    pub(crate) fn address(&self, far: &mut Far, threads: usize) -> Result<String, Failure> {
        let at = far.order(Order::Serve(self.path, self.wait, threads))?;
        Ok(format!("{}:{}/{}", self.path.scheme(), at[0], name(self.case.size)))
    }

    /// Returns why Peregrine does not work on this path, or `None` if it does.
    pub(super) fn missing(&mut self, far: &mut Far) -> Result<Option<String>, Failure> {
        let address = match self.address(far, 1) {
            Err(error) => return Ok(Some(error.to_string())),
            Ok(address) => address,
        };
        let bound = Client::bind_with(&address, self.case.size, &self.options());
        let why = bound.err().map(|error| error.to_string());
        far.end_order()?;
        Ok(why)
    }

    /// Returns the options of clients.
    pub(crate) fn options(&self) -> BindOptions {
        let options = BindOptions::default().wait(self.wait.wait());
        let options = options.ethernet_device(device(self.path));
        match self.check {
            None => options,
            Some(check) => options.payload_check(check),
        }
    }
}

impl Subject for Own {
    fn name(&self) -> &'static str {
        "peregrine"
    }

    fn run(&mut self, far: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure> {
        let case = self.case;
        let client = Client::bind_with(&self.address(far, 2)?, case.size, &self.options())?;
        let mut buffer = vec![0xa5; case.in_bytes.max(case.out_bytes)];
        let run = |calls| Ok(client.run(case, &mut buffer, calls)?);
        let sample = measured(far, warm, calls, run)?;
        drop(client);
        far.end_order()?;
        Ok(sample)
    }
}

/// The subject that makes async null calls on one path, from one thread. `in_flight` calls are in flight.
pub(super) struct Futures {
    pub(super) path: Path,
    pub(super) wait: Waiting,
    pub(super) in_flight: u32,
}

impl Subject for Futures {
    fn name(&self) -> &'static str {
        "peregrine"
    }

    fn run(&mut self, far: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure> {
        let &mut Self { path, wait, in_flight } = self;
        let null = Case::named("null").ok_or("there is no case `null`")?;
        let own = Own { path, case: null, wait, check: None };
        let client = SmallClient::bind_with(&own.address(far, 2)?, &own.options())?;
        let client = SmallAsyncClient::from(client);
        repeat_together(&client, in_flight, warm)?;
        let before = far.cpu_time()?;
        let (made, took) = repeat_together(&client, in_flight, calls)?;
        let ran = far.cpu_time()?.saturating_sub(before);
        drop(client);
        far.end_order()?;
        let cpu_ns = ran.as_nanos() as f64 / f64::from(made);
        Ok(Sample { cpu_ns: Some(cpu_ns), ..per_call(took, made) })
    }
}

/// Runs `callers` threads that make calls in a window: null calls, or calls that return bytes. The threads share a binding, and the server has the
/// same number of threads. Returns the counts of each thread, and the processor time of both processes.
pub(crate) fn call_together(
    far: &mut Far,
    own: &Own,
    callers: usize,
    window: impl FnOnce(u64) -> Window,
) -> Result<(Vec<Counted>, Option<Duration>), Failure> {
    let options = own.options().astacks(callers as u32);
    let client = SmallClient::bind_with(&own.address(far, callers)?, &options)?;
    let gives = own.case.procedure == Procedure::Give;
    let before = far.cpu_time()?;
    let window = window(now_ns());
    let counted = std::thread::scope(|scope| {
        let call = || {
            let mut bytes = vec![0; own.case.out_bytes];
            window.count(now_ns, || match gives {
                true => client.give(Out::from(&mut bytes[..])),
                false => client.null(),
            })
        };
        let threads: Vec<_> = (0..callers).map(|_| scope.spawn(call)).collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.collect::<Result<_, CallError>>()
    })?;
    let ran = far.cpu_time()?.saturating_sub(before);
    drop(client);
    far.end_order()?;
    Ok((counted, Some(ran)))
}
