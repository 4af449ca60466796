//! A relay of datagrams between clients and one server, which does to them what networks do: from a
//! seed, so that it can be done again.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::weather::{UnderWay, Weather};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    ToServer(usize),
    ToClient(usize),
}

/// The relay: it has a socket for each client, as address translation has.
pub(crate) struct Relay {
    front: UdpSocket,
    server: SocketAddr,
    clients: Vec<(SocketAddr, UdpSocket)>,
    under_way: UnderWay<Way>,
    /// Fragments of results that are still to be lost.
    once: Vec<u32>,
}

/// More clients than any test has.
const CLIENTS_MAX: usize = 512;
const BYTES_MAX: usize = 1 << 16;

fn socket(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    socket.set_nonblocking(true)?;
    // As much as one may have; the kernel gives less to who is not root.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20);
    Ok(socket)
}

impl Relay {
    /// A relay at an address, to a server's.
    pub(crate) fn new(at: SocketAddr, server: SocketAddr, weather: Weather, seed: u64) -> Self {
        Self {
            front: socket(at).expect("a free port"),
            server,
            clients: Vec::new(),
            under_way: UnderWay::new(weather, seed, 0),
            once: Vec::new(),
        }
    }

    /// Loses each of these fragments of a result, the first time that it comes.
    pub(crate) fn lose_once(mut self, fragments: &[u32]) -> Self {
        self.once = fragments.to_vec();
        self
    }

    /// Where clients send to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.front.local_addr().expect("a socket that is bound")
    }

    /// Waits for datagrams, 50 ms at most, and passes on what has come and what is due; `tap` sees
    /// what clients have sent.
    pub(crate) fn step(&mut self, tap: &mut dyn FnMut(&[u8])) {
        let wait = self.under_way.rest(Duration::from_millis(50));
        let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut fds = vec![PollFd::new(&self.front, PollFlags::IN)];
        fds.extend(self.clients.iter().map(|(_, back)| PollFd::new(back, PollFlags::IN)));
        if poll(&mut fds, Some(&wait)).is_ok() {
            let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            for (at, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
                self.take(at, tap);
            }
        }
        self.pass_on();
    }

    /// Takes what has come to a socket: the first is that which clients send to.
    fn take(&mut self, at: usize, tap: &mut dyn FnMut(&[u8])) {
        let mut buffer = [0; BYTES_MAX];
        for _ in 0..256 {
            let way = if at == 0 {
                let Ok((bytes, from)) = self.front.recv_from(&mut buffer) else { return };
                tap(&buffer[..bytes]);
                let Some(client) = self.client(from) else { continue };
                (Way::ToServer(client), bytes)
            } else {
                // What the server's machine refuses comes as an error, and is lost.
                let Ok(bytes) = self.clients[at - 1].1.recv(&mut buffer) else { return };
                (Way::ToClient(at - 1), bytes)
            };
            if at == 0 || !self.is_lost(&buffer[..way.1]) {
                self.under_way.begin(way.0, &buffer[..way.1]);
            }
        }
    }

    /// Whether this is a fragment that is to be lost.
    fn is_lost(&mut self, packet: &[u8]) -> bool {
        /// Where a header tells its kind and the fragment, and the kind of a result.
        const KIND_AT: usize = 3;
        const FRAGMENT_AT: usize = 48;
        const RESULT: u8 = 2;
        let fragment = packet.get(FRAGMENT_AT..).and_then(|rest| rest.first_chunk());
        let at = self.once.iter().position(|one| Some(&one.to_le_bytes()) == fragment);
        let Some(at) = at.filter(|_| packet[KIND_AT] == RESULT) else { return false };
        self.once.swap_remove(at);
        true
    }

    fn client(&mut self, from: SocketAddr) -> Option<usize> {
        if let Some(known) = self.clients.iter().position(|(client, _)| *client == from) {
            return Some(known);
        }
        if self.clients.len() == CLIENTS_MAX {
            return None;
        }
        let any = if self.server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let back = socket(any.parse().expect("an address")).ok()?;
        back.connect(self.server).ok()?;
        self.clients.push((from, back));
        Some(self.clients.len() - 1)
    }

    fn pass_on(&mut self) {
        while let Some((way, datagram)) = self.under_way.arrive() {
            // What a socket does not take is lost.
            let _ = match way {
                Way::ToServer(client) => self.clients[client].1.send(&datagram),
                Way::ToClient(client) => self.front.send_to(&datagram, self.clients[client].0),
            };
        }
    }
}
