//! The experiment `goodput`: how much of a link large results use, beside the kernel's TCP (cubic) on the
//! same link, and how the two share it.

mod relay;

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use peregrine::sys::Tun;
use peregrine::{Out, Running, Server, interface};
use rustix::net::sockopt::set_tcp_congestion;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

use self::relay::{Shape, carry};
use crate::network::link::{ip, run as run_command};
use crate::row::Format;
use crate::subject::Failure;
use crate::{Progress, machine};

const NEAR: &str = "10.9.9.1";
const FAR: &str = "10.9.9.2";
const TCP_PORT: u16 = 7100;
const UDP_PORT: u16 = 7101;
/// Bytes of the smallest and the largest result.
const BYTES_MIN: usize = 1 << 16;
const BYTES_MAX: usize = 64 << 20;

/// Which links, and how the figures are shown.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Few links, a few seconds each
    #[arg(long)]
    quick: bool,
    /// How the result is shown
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Only links of this rate, in Mbit/s (may be repeated)
    #[arg(long = "mbit", value_name = "N")]
    mbit: Vec<u64>,
    /// Only links of this round trip, in milliseconds (may be repeated)
    #[arg(long = "rtt", value_name = "MS")]
    rtt: Vec<u64>,
    /// Only links with this loss, in thousandths (may be repeated)
    #[arg(long = "loss", value_name = "N")]
    loss: Vec<u64>,
    /// How long each flow runs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
}

#[interface]
trait Bulk {
    /// So many bytes.
    fn read(&self, bytes: u32, #[max_len(64 << 20)] into: Out<'_, u8>) -> peregrine::Result<()>;
}

struct Bytes(Vec<u8>);

impl Bulk for Bytes {
    fn read(&self, bytes: u32, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        into.put(&self.0[..bytes as usize]).expect("room");
        Ok(())
    }
}

/// A process that holds a network namespace, and ends with its input.
struct Namespace(Child);

impl Namespace {
    fn new() -> io::Result<Self> {
        let hold = "ip link set lo up && echo ready && exec cat > /dev/null";
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", hold]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut ready = [0; 6];
        child.stdout.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.read_exact(&mut ready)?;
        Ok(Self(child))
    }

    /// Does something on a thread that is in it.
    fn within<T: Send>(&self, what: impl FnOnce() -> T + Send) -> io::Result<T> {
        let file = File::open(format!("/proc/{}/ns/net", self.0.id()))?;
        std::thread::scope(|scope| {
            let there = scope.spawn(move || {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(what())
            });
            there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A link under test, with a server of each kind at its far end.
struct Bench {
    near: Tun,
    far: Tun,
    _server: Running,
    _namespace: Namespace,
}

impl Bench {
    fn new() -> Result<Self, Failure> {
        let namespace = Namespace::new()?;
        let near = Tun::new("near")?;
        let far = namespace.within(|| Tun::new("far"))??;
        let pid = namespace.0.id().to_string();
        let there = ["--net", "--target", &pid, "ip"];
        ip(&["addr", "add", NEAR, "peer", FAR, "dev", "near"])?;
        ip(&["link", "set", "near", "mtu", "1500", "up"])?;
        run_command(
            "nsenter",
            &[&there[..], &["addr", "add", FAR, "peer", NEAR, "dev", "far"]].concat(),
        )?;
        run_command(
            "nsenter",
            &[&there[..], &["link", "set", "far", "mtu", "1500", "up"]].concat(),
        )?;
        let serve = || {
            let server =
                Server::new().export("bulk", BulkServer::new(Bytes(vec![7; BYTES_MAX])))?;
            server.listen_beyond_this_machine(&format!("udp:{FAR}:{UDP_PORT}"))?.spawn()
        };
        let server = namespace.within(serve)??;
        let listen = || {
            let listener = TcpListener::bind((FAR, TCP_PORT))?;
            set_tcp_congestion(&listener, "cubic")?;
            Ok::<_, io::Error>(listener)
        };
        let listener = namespace.within(listen)??;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || feed(stream));
            }
        });
        Ok(Self { near, far, _server: server, _namespace: namespace })
    }

    /// Runs flows over a link of that shape; what they had, and by how much the relay was late.
    fn over<T: Send>(
        &self,
        shape: Shape,
        flows: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> Result<(T, Duration), Failure> {
        let (stop, late) = (AtomicBool::new(false), AtomicU64::new(0));
        let result = std::thread::scope(|scope| {
            scope.spawn(|| carry([&self.near, &self.far], shape, 0x9e37_79b9, &stop, &late));
            scope.spawn(|| carry([&self.far, &self.near], shape, 0x7f4a_7c15, &stop, &late));
            let result = flows();
            stop.store(true, Ordering::Relaxed);
            result
        });
        Ok((result?, Duration::from_nanos(late.load(Ordering::Relaxed))))
    }
}

/// Sends until nobody reads any more.
fn feed(mut stream: TcpStream) {
    let bytes = vec![7; 1 << 18];
    while stream.write_all(&bytes).is_ok() {}
}

/// Reads from a TCP connection for so long; `count` has the bytes so far.
fn read_tcp(length: Duration, count: &AtomicU64) -> Result<(), Failure> {
    let mut stream = TcpStream::connect((FAR, TCP_PORT))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let (mut buffer, until) = (vec![0; 1 << 18], Instant::now() + length);
    while Instant::now() < until {
        match stream.read(&mut buffer) {
            Ok(0) => return Err("the TCP server has closed the connection".into()),
            Ok(bytes) => count.fetch_add(bytes as u64, Ordering::Relaxed),
            Err(_) => continue,
        };
    }
    Ok(())
}

/// The same by calls of so many bytes. What counts is that of calls which ended in time, or the first, and
/// the time until the last one of them did.
fn read_calls(length: Duration, bytes: usize, count: &AtomicU64) -> Result<Duration, Failure> {
    let bulk = BulkClient::bind(&format!("udp:{FAR}:{UDP_PORT}/bulk"))?;
    let mut buffer = vec![0; bytes];
    let began = Instant::now();
    let mut ended = Duration::ZERO;
    loop {
        bulk.read(bytes as u32, Out::from(&mut buffer[..]))?;
        let now = began.elapsed();
        if now > length && ended > Duration::ZERO {
            return Ok(ended);
        }
        ended = now;
        count.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Mbit/s.
fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8.0 / 1e6 / time.as_secs_f64()
}

struct Measured {
    shape: Shape,
    alone: f64,
    tcp: f64,
    /// On one link at the same time, in its second half.
    together: [f64; 2],
    late: Duration,
}

impl Measured {
    fn json(&self) -> Value {
        let Self { shape, alone, tcp, together: [ours, theirs], late } = self;
        json!({
            "mbit": shape.mbit, "rtt_ms": shape.rtt_ms, "loss_permille": shape.loss,
            "queue_bytes": shape.queue(), "peregrine_mbit": alone, "tcp_cubic_mbit": tcp,
            "ratio": alone / tcp, "together_peregrine_mbit": ours, "together_tcp_mbit": theirs,
            "relay_late_ms": late.as_secs_f64() * 1e3,
        })
    }

    fn line(&self) -> String {
        let Self { shape: Shape { mbit, rtt_ms, loss }, alone, tcp, together: [a, b], late } = self;
        format!(
            "{mbit:5} {rtt_ms:6} {:6.1} {alone:10.2} {tcp:10.2} {:7.2} {a:10.2} {b:10.2} {:7.2} {:6.1}",
            *loss as f64 / 10.0,
            alone / tcp,
            a / b,
            late.as_secs_f64() * 1e3,
        )
    }
}

fn measure(bench: &Bench, shape: Shape, length: Duration) -> Result<Measured, Failure> {
    let counts = [const { AtomicU64::new(0) }; 2];
    let (_, late_tcp) = bench.over(shape, || read_tcp(length, &counts[0]))?;
    let tcp = rate(counts[0].load(Ordering::Relaxed), length);
    // Each result takes TCP about a second.
    let bytes = (tcp * 1e6 / 8.0) as usize;
    let bytes = bytes.clamp(BYTES_MIN, BYTES_MAX);
    let (took, late) = bench.over(shape, || read_calls(length, bytes, &counts[1]))?;
    let alone = rate(counts[1].load(Ordering::Relaxed), took);
    let both = || -> Result<[u64; 2], Failure> {
        let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        std::thread::scope(|scope| {
            let calls = scope.spawn(|| read_calls(2 * length, bytes / 8, &counts[0]).map(drop));
            let stream = scope.spawn(|| read_tcp(2 * length, &counts[1]));
            std::thread::sleep(length);
            let before = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
            std::thread::sleep(length);
            let after = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
            calls.join().map_err(|_| "calls panicked")??;
            stream.join().map_err(|_| "TCP panicked")??;
            Ok([after[0] - before[0], after[1] - before[1]])
        })
    };
    let (together, late_both) = bench.over(shape, both)?;
    let together = together.map(|bytes| rate(bytes, length));
    Ok(Measured { shape, alone, tcp, together, late: late.max(late_tcp).max(late_both) })
}

/// Measures what was chosen, and shows it.
pub(crate) fn run(options: &Options, progress: &Progress) -> Result<(), Failure> {
    let chosen = |given: &[u64], quick: &[u64], all: &[u64]| match given {
        [] if options.quick => quick.to_vec(),
        [] => all.to_vec(),
        given => given.to_vec(),
    };
    let seconds = options.seconds.unwrap_or(if options.quick { 3 } else { 10 });
    let mut rows = Vec::new();
    let human = options.format == Format::Human;
    if human {
        println!(
            " Mbit rtt/ms loss/%  peregrine  tcp cubic   ratio   together        tcp   ratio late/ms"
        );
    }
    for mbit in chosen(&options.mbit, &[10, 100], &[10, 100, 500]) {
        for rtt_ms in chosen(&options.rtt, &[10], &[1, 10, 50, 300]) {
            for loss in chosen(&options.loss, &[0, 10], &[0, 1, 10, 50]) {
                let shape = Shape { mbit, rtt_ms, loss };
                progress.say(&format!("{shape:?}"));
                // With a server of its own, which knows nothing of the link before.
                let bench = Bench::new()?;
                let measured = measure(&bench, shape, Duration::from_secs(seconds))?;
                if human {
                    println!("{}", measured.line());
                }
                rows.push(measured.json());
            }
        }
    }
    if !human {
        let machine = machine::description();
        let all = json!({ "experiment": "goodput", "machine": machine, "rows": rows });
        println!("{all:#}");
    }
    Ok(())
}
