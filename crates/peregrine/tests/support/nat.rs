//! A relay that treats UDP flows as NATs and load balancers do. All packets from one address and port of a
//! client are one flow. Each flow leads to one of the servers. The relay can forget flows.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};

const BYTES_MAX: usize = 1 << 16;
/// The offset of the kind of a packet in the packet's header.
const KIND_AT: usize = 3;
/// The kind of a packet with which a client asks a server for handles.
const BIND: u8 = 12;
/// The largest number of flows. No test needs as many.
const FLOWS_MAX: usize = 4096;

/// The state of the relay that a test reads and changes while the relay runs.
#[derive(Debug, Default)]
struct Shared {
    /// The clients of the flows that existed at the last [`Nat::forget`]. The packets of these flows are
    /// dropped.
    forgotten: Mutex<Vec<SocketAddr>>,
    /// The clients of all flows that there have been.
    known: Mutex<Vec<SocketAddr>>,
    /// The number of packets of forgotten flows that were dropped.
    dropped: AtomicU64,
    /// The number of packets with which clients asked a server for handles.
    binds: AtomicU64,
    stopped: AtomicBool,
}

/// The relay and its thread. The thread ends when this value is dropped.
pub(crate) struct Nat {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Nat {
    /// Starts a relay on loopback. It assigns new flows to the servers in round-robin order.
    pub(crate) fn start(servers: Vec<SocketAddr>) -> Self {
        // A test may also listen over TCP at the port of the relay. So the relay does not use 127.0.0.1,
        // where a connection of another test could use that port.
        let front = bound(Ipv4Addr::new(127, 0, 7, 1));
        let address = front.local_addr().expect("the socket is bound");
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || run(&front, &servers, &of_thread));
        Self { address, shared, thread: Some(thread) }
    }

    /// Returns the address to which clients send.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Drops all packets of the flows that exist now. Flows that begin later are forwarded.
    pub(crate) fn forget(&self) {
        let known = self.shared.known.lock().unwrap().clone();
        *self.shared.forgotten.lock().unwrap() = known;
    }

    /// Forwards the packets of all flows again.
    pub(crate) fn remember(&self) {
        self.shared.forgotten.lock().unwrap().clear();
    }

    /// Returns how many packets asked a server for handles.
    pub(crate) fn binds(&self) -> u64 {
        self.shared.binds.load(Ordering::SeqCst)
    }

    /// Returns how many flows there have been.
    pub(crate) fn flows(&self) -> usize {
        self.shared.known.lock().unwrap().len()
    }

    /// Returns how many packets of forgotten flows were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::SeqCst)
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns a socket for sending to an address.
fn socket(to: SocketAddr) -> UdpSocket {
    let any = if to.ip().is_loopback() { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
    bound(any)
}

/// Returns a socket at a free port of an address.
fn bound(ip: Ipv4Addr) -> UdpSocket {
    let socket = UdpSocket::bind((ip, 0)).expect("a free port");
    socket.set_nonblocking(true).expect("a socket");
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20);
    socket
}

fn run(front: &UdpSocket, servers: &[SocketAddr], shared: &Shared) {
    let mut flows: Vec<(SocketAddr, UdpSocket)> = Vec::new();
    let mut numbers: HashMap<SocketAddr, usize> = HashMap::new();
    let mut buffer = vec![0; BYTES_MAX];
    while !shared.stopped.load(Ordering::SeqCst) {
        let mut fds = vec![PollFd::new(front, PollFlags::IN)];
        fds.extend(flows.iter().map(|(_, back)| PollFd::new(back, PollFlags::IN)));
        let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        if poll(&mut fds, Some(&wait)).is_err() {
            continue;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for (at, (client, back)) in flows.iter().enumerate() {
            while ready[at + 1]
                && let Ok(bytes) = back.recv(&mut buffer)
            {
                if !is_forgotten(shared, *client) {
                    let _ = front.send_to(&buffer[..bytes], client);
                }
            }
        }
        while let Ok((bytes, client)) = front.recv_from(&mut buffer) {
            if is_forgotten(shared, client) {
                continue;
            }
            let number = *numbers.entry(client).or_insert_with(|| {
                assert!(flows.len() < FLOWS_MAX, "too many flows");
                let back = socket(servers[0]);
                back.connect(servers[flows.len() % servers.len()]).expect("a server");
                flows.push((client, back));
                shared.known.lock().unwrap().push(client);
                flows.len() - 1
            });
            let binds = buffer[..bytes].get(KIND_AT) == Some(&BIND);
            shared.binds.fetch_add(binds.into(), Ordering::SeqCst);
            let _ = flows[number].1.send(&buffer[..bytes]);
        }
    }
}

fn is_forgotten(shared: &Shared, client: SocketAddr) -> bool {
    let forgotten = shared.forgotten.lock().unwrap().contains(&client);
    shared.dropped.fetch_add(u64::from(forgotten), Ordering::SeqCst);
    forgotten
}
