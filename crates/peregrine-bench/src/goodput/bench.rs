//! Sets up a link under test between two network namespaces. A server of Peregrine and a TCP server are at
//! the far end of the link.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};

use peregrine::sys::Tun;
use peregrine::{Insecure, Out, Running, Server, interface};
use rustix::net::sockopt::set_tcp_congestion;
use rustix::net::{Shutdown, shutdown};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::relay::{Carried, Shape, carry};
use crate::network::link::run;
use crate::subject::Failure;

const TCP_PORT: u16 = 7100;
const UDP_PORT: u16 = 7101;
/// The size of the largest result in bytes.
pub(super) const BYTES_MAX: usize = 256 << 20;
/// The smallest, default and largest size of TCP's buffers in bytes. No link of the experiment needs more, so
/// buffers never limit TCP.
const TCP_BUFFERS: &str = "4096 131072 134217728";
/// The number of packets that may wait in a TUN device for the relay (the threads that emulate the link). It
/// is so large that the device loses no packet if the relay is late.
const DEVICE_QUEUE: &str = "10000";

#[interface]
trait Bulk {
    /// Returns `bytes` bytes.
    fn read(&self, bytes: u32, #[max_len(256 << 20)] into: Out<'_, u8>) -> peregrine::Result<()>;
}

struct Bytes(Vec<u8>);

impl Bulk for Bytes {
    fn read(&self, bytes: u32, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        into.put(&self.0[..bytes as usize]).expect("the buffer is large enough");
        Ok(())
    }
}

/// A network namespace. The namespace exists as long as this child process. The process ends when its
/// standard input is closed.
struct Namespace(Child);

impl Namespace {
    fn new() -> io::Result<Self> {
        let hold = "ip link set lo up && echo ready && exec cat > /dev/null";
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", hold]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut ready = [0; 6];
        child.stdout.as_mut().ok_or(ErrorKind::BrokenPipe)?.read_exact(&mut ready)?;
        Ok(Self(child))
    }

    /// Calls `what` on a thread that is in the namespace.
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

    /// Runs a command in the namespace.
    fn run(&self, words: &[&str]) -> io::Result<()> {
        let pid = self.0.id().to_string();
        run("nsenter", &[&["--net", "--target", &pid][..], words].concat())
    }

    /// Creates the TUN device of one end of the link.
    fn device(&self, here: Ipv4Addr, there: Ipv4Addr) -> io::Result<Tun> {
        let tun = self.within(|| Tun::new("shaped"))??;
        let (here, there) = (here.to_string(), there.to_string());
        self.run(&["ip", "addr", "add", &here, "peer", &there, "dev", "shaped"])?;
        let size = ["mtu", "1500", "txqueuelen", DEVICE_QUEUE];
        self.run(&[&["ip", "link", "set", "dev", "shaped"][..], &size, &["up"]].concat())?;
        for name in ["tcp_rmem", "tcp_wmem"] {
            let set = format!("echo {TCP_BUFFERS} > /proc/sys/net/ipv4/{name}");
            self.run(&["sh", "-c", &set])?;
        }
        Ok(tun)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Both ends of a link.
pub(super) struct Bench {
    near: Tun,
    far: Tun,
    address: Ipv4Addr,
    listener: Arc<TcpListener>,
    stopped: Arc<AtomicBool>,
    _server: Running,
    near_space: Namespace,
    _far_space: Namespace,
}

impl Bench {
    /// Creates a link whose ends have new addresses. Peregrine and the kernel remember what they learned
    /// about the path to an address. With new addresses, they know nothing from an earlier flow.
    pub(super) fn new() -> Result<Self, Failure> {
        static NUMBER: AtomicU16 = AtomicU16::new(0);
        let [high, low] = NUMBER.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let (here, address) = (Ipv4Addr::new(10, high, low, 1), Ipv4Addr::new(10, high, low, 2));
        let (near_space, far_space) = (Namespace::new()?, Namespace::new()?);
        let near = near_space.device(here, address)?;
        let far = far_space.device(address, here)?;
        let serve = || {
            let server =
                Server::new().export("bulk", BulkServer::new(Bytes(vec![7; BYTES_MAX])))?;
            server
                .listen_beyond_this_machine(
                    &format!("udp:{address}:{UDP_PORT}"),
                    Insecure::ITrustThisNetwork,
                )?
                .spawn()
        };
        let server = far_space.within(serve)??;
        let listen = || {
            let listener = TcpListener::bind((address, TCP_PORT))?;
            set_tcp_congestion(&listener, "cubic")?;
            Ok::<_, io::Error>(listener)
        };
        let listener = Arc::new(far_space.within(listen)??);
        let stopped = Arc::new(AtomicBool::new(false));
        let (accepting, stop) = (Arc::clone(&listener), Arc::clone(&stopped));
        std::thread::spawn(move || {
            while let Ok((stream, _)) = accepting.accept() {
                feed(stream, &stop);
            }
        });
        Ok(Self {
            near,
            far,
            address,
            listener,
            stopped,
            _server: server,
            near_space,
            _far_space: far_space,
        })
    }

    /// Runs flows at the near end while the link has the properties `shape`. `flows` receives the counters of
    /// the bytes that the link carries to the near end. Returns the result of `flows`, and the share of
    /// packets that the relay carried to the near end too late.
    pub(super) fn over<T: Send>(
        &self,
        shape: Shape,
        flows: impl FnOnce(&Self, &Carried) -> Result<T, Failure> + Send,
    ) -> Result<(T, f64), Failure> {
        let stop = AtomicBool::new(false);
        let [there, back] = <[Carried; 2]>::default();
        let seed = u64::from(self.address.to_bits()) << 20 | 1;
        let result = std::thread::scope(|scope| {
            scope.spawn(|| carry([&self.near, &self.far], shape, seed, &stop, &there));
            scope.spawn(|| carry([&self.far, &self.near], shape, !seed, &stop, &back));
            let result = self.near_space.within(|| flows(self, &back));
            stop.store(true, Ordering::Relaxed);
            result
        });
        Ok((result??, back.late()))
    }

    /// Reads from a TCP connection for the time `length`, and returns the number of bytes.
    pub(super) fn read_tcp(&self, length: Duration) -> Result<u64, Failure> {
        let mut stream = TcpStream::connect((self.address, TCP_PORT))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        let (mut buffer, until) = (vec![0; 1 << 18], Instant::now() + length);
        let mut count = 0;
        while Instant::now() < until {
            match stream.read(&mut buffer) {
                Ok(0) => return Err("the TCP server has closed the connection".into()),
                Ok(bytes) => count += bytes as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(count)
    }

    /// Makes calls whose results have `bytes` bytes. Returns the number of bytes of the results that arrived
    /// within `length`, and the time until the last of these arrived. The first result always counts, even if
    /// it arrives after `length`.
    pub(super) fn read_calls(
        &self,
        length: Duration,
        bytes: usize,
    ) -> Result<(u64, Duration), Failure> {
        let bulk = BulkClient::bind(&format!("udp:{}:{UDP_PORT}/bulk", self.address))?;
        let mut buffer = vec![0; bytes];
        let began = Instant::now();
        let (mut count, mut ended) = (0, Duration::ZERO);
        loop {
            bulk.read(bytes as u32, Out::from(&mut buffer[..]))?;
            let now = began.elapsed();
            if now > length && count > 0 {
                return Ok((count, ended));
            }
            (count, ended) = (count + bytes as u64, now);
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        let _ = shutdown(&*self.listener, Shutdown::Both);
    }
}

/// Sends until `stop` is set or the connection fails.
fn feed(mut stream: TcpStream, stop: &AtomicBool) {
    let bytes = vec![7; 1 << 18];
    let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
    while !stop.load(Ordering::Relaxed) {
        match stream.write(&bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
