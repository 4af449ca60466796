//! Relays datagrams between clients and one server. The relay impairs the datagrams as [`Impairments`] says.
//! A seed determines all its decisions, so a run can be repeated.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::impairments::{Impairments, InFlight};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    ToServer(usize),
    ToClient(usize),
}

/// The relay. It has one socket for each client, as a NAT has.
pub(crate) struct Relay {
    front: UdpSocket,
    server: SocketAddr,
    clients: Vec<(SocketAddr, UdpSocket)>,
    in_flight: InFlight<Direction>,
    /// The numbers of those fragments of results that the relay still has to lose. Each is lost once.
    once: Vec<u32>,
}

/// The largest number of clients. No test needs as many.
const CLIENTS_MAX: usize = 512;
const BYTES_MAX: usize = 1 << 16;

fn socket(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    socket.set_nonblocking(true)?;
    // Without CAP_NET_ADMIN, this call fails, and the buffer keeps its size.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20);
    Ok(socket)
}

impl Relay {
    /// Makes a relay at the address `at` that forwards to `server`.
    pub(crate) fn new(
        at: SocketAddr,
        server: SocketAddr,
        impairments: Impairments,
        seed: u64,
    ) -> Self {
        Self {
            front: socket(at).expect("a free port"),
            server,
            clients: Vec::new(),
            in_flight: InFlight::new(impairments, seed, 0),
            once: Vec::new(),
        }
    }

    /// Makes the relay drop each of these fragments of a result when the fragment arrives for the first time.
    pub(crate) fn lose_once(mut self, fragments: &[u32]) -> Self {
        self.once = fragments.to_vec();
        self
    }

    /// Changes how the relay impairs the datagrams that arrive from now on.
    pub(crate) fn impair(&mut self, impairments: Impairments) {
        self.in_flight.impair(impairments);
    }

    /// Returns the address to which clients send.
    pub(crate) fn address(&self) -> SocketAddr {
        self.front.local_addr().expect("the socket is bound")
    }

    /// Sends a datagram to the server as if it came from the client `from`. The server sees the address from
    /// which the relay forwards that client's datagrams. Does nothing if the relay has forwarded nothing from
    /// this client.
    pub(crate) fn send_as(&self, from: SocketAddr, datagram: &[u8]) {
        if let Some((_, back)) = self.clients.iter().find(|(client, _)| *client == from) {
            // If the socket does not accept the datagram, the datagram is lost.
            let _ = back.send(datagram);
        }
    }

    /// Waits at most 50 ms for datagrams, receives them, and forwards the datagrams that are due. `tap` gets
    /// each datagram that a client sent, with the address of the client.
    pub(crate) fn step(&mut self, tap: &mut dyn FnMut(SocketAddr, &[u8])) {
        let wait = self.in_flight.rest(Duration::from_millis(50));
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

    /// Receives datagrams from the socket with the number `at`. Clients send to socket number 0.
    fn take(&mut self, at: usize, tap: &mut dyn FnMut(SocketAddr, &[u8])) {
        let mut buffer = [0; BYTES_MAX];
        for _ in 0..256 {
            let direction = if at == 0 {
                let Ok((bytes, from)) = self.front.recv_from(&mut buffer) else { return };
                tap(from, &buffer[..bytes]);
                let Some(client) = self.client(from) else { continue };
                (Direction::ToServer(client), bytes)
            } else {
                // If the server's machine answers with an ICMP error, `recv` returns this error.
                let Ok(bytes) = self.clients[at - 1].1.recv(&mut buffer) else { return };
                (Direction::ToClient(at - 1), bytes)
            };
            if at == 0 || !self.is_lost(&buffer[..direction.1]) {
                self.in_flight.begin(direction.0, &buffer[..direction.1]);
            }
        }
    }

    /// Returns whether `packet` is a fragment that the relay has to lose now.
    fn is_lost(&mut self, packet: &[u8]) -> bool {
        /// The offset of the kind in a packet's header.
        const KIND_AT: usize = 3;
        /// The offset of the fragment's number in a packet's header.
        const FRAGMENT_AT: usize = 48;
        /// The kind of a packet with a result.
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
        while let Some((direction, datagram)) = self.in_flight.arrive() {
            // If the socket does not accept a datagram, the datagram is lost.
            let _ = match direction {
                Direction::ToServer(client) => self.clients[client].1.send(&datagram),
                Direction::ToClient(client) => {
                    self.front.send_to(&datagram, self.clients[client].0)
                }
            };
        }
    }
}
