//! A relay of datagrams between clients and one server, which does to them what networks do: from a
//! seed, so that it can be done again.
//!
//! What it damages: a relay that receives and sends over UDP has the kernel make a checksum of what
//! it sends, so a bit that it flips arrives behind a checksum that is right. A network cannot do
//! that: what it damages, UDP's checksum finds (save for one in 65,536, of which Ethernet's finds the
//! rest), and the datagram is gone. Therefore bits are flipped here only where the protocol has checks
//! of its own: in headers, which always have one, and behind headers that say they have one
//! (binding, and what a side has of a message). Elsewhere damage is loss. Whoever wants more of
//! UDP's checksum than it gives wishes for payload checks, which both sides must know.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

/// What becomes of datagrams; so many of a thousand each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    /// Held back for up to so many microseconds more, so that others overtake them.
    pub(crate) late: u64,
    pub(crate) late_us: u64,
    pub(crate) damaged: u64,
    /// How long each takes at least.
    pub(crate) delay_us: u64,
    /// After the first datagram, when nothing gets through, from and until, in milliseconds.
    pub(crate) cut_ms: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    ToServer(usize),
    ToClient(usize),
}

/// What is to be passed on: when, the how many-th datagram of all, which way, and its bytes.
type Later = (Instant, u64, Way, Vec<u8>);

/// The relay: it has a socket for each client, as address translation has.
pub(crate) struct Relay {
    front: UdpSocket,
    server: SocketAddr,
    clients: Vec<(SocketAddr, UdpSocket)>,
    weather: Weather,
    random: u64,
    later: BinaryHeap<Reverse<Later>>,
    numbered: u64,
    first: Option<Instant>,
}

/// More clients than any test has.
const CLIENTS_MAX: usize = 512;
const BYTES_MAX: usize = 1 << 16;
/// Where a header has its flags, and the one that says that what follows is checked.
const FLAGS_AT: usize = 28;
const CHECKED: u8 = 4;
const HEADER_BYTES: usize = 64;

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
            weather,
            random: seed | 1,
            later: BinaryHeap::new(),
            numbered: 0,
            first: None,
        }
    }

    /// Where clients send to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.front.local_addr().expect("a socket that is bound")
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % end.max(1)
    }

    fn chance(&mut self, of_thousand: u64) -> bool {
        self.below(1000) < of_thousand
    }

    /// Waits for datagrams, 50 ms at most, and passes on what has come and what is due; `tap` sees
    /// what clients have sent.
    pub(crate) fn step(&mut self, tap: &mut dyn FnMut(&[u8])) {
        let due = self.later.peek().map(|Reverse((due, ..))| *due);
        let wait = due.map_or(Duration::from_millis(50), |due| {
            due.saturating_duration_since(Instant::now()).min(Duration::from_millis(50))
        });
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
            self.fate(way.0, &buffer[..way.1]);
        }
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

    /// Decides what becomes of a datagram.
    fn fate(&mut self, way: Way, datagram: &[u8]) {
        let now = Instant::now();
        let since = now - *self.first.get_or_insert(now);
        let (from, until) = self.weather.cut_ms;
        let cut = (from..until).contains(&(since.as_millis() as u64));
        if cut || self.chance(self.weather.lost) {
            return;
        }
        let mut copies = 1;
        if self.chance(self.weather.doubled) {
            copies = 2;
        }
        for _ in 0..copies {
            let mut datagram = datagram.to_vec();
            if self.chance(self.weather.damaged) {
                self.damage(&mut datagram);
            }
            let mut delay = self.weather.delay_us;
            if self.chance(self.weather.late) {
                delay += self.below(self.weather.late_us);
            }
            self.numbered += 1;
            let due = now + Duration::from_micros(delay);
            self.later.push(Reverse((due, self.numbered, way, datagram)));
        }
    }

    /// Damages a datagram so that a check of the protocol's own has to find it.
    fn damage(&mut self, datagram: &mut Vec<u8>) {
        let bytes = datagram.len() as u64;
        match self.below(4) {
            0 => datagram.truncate(self.below(bytes) as usize),
            1 => datagram.extend_from_slice(&[0xa5; 32][..1 + self.below(31) as usize]),
            _ => {
                let checked = datagram.get(FLAGS_AT).is_some_and(|flags| flags & CHECKED != 0);
                let most = if checked { bytes } else { bytes.min(HEADER_BYTES as u64) };
                for _ in 0..1 + self.below(3) {
                    let at = self.below(most) as usize;
                    let bit = 1 << self.below(8);
                    if let Some(byte) = datagram.get_mut(at) {
                        *byte ^= bit;
                    }
                }
            }
        }
    }

    fn pass_on(&mut self) {
        let now = Instant::now();
        while self.later.peek().is_some_and(|Reverse((due, ..))| *due <= now) {
            let Some(Reverse((.., way, datagram))) = self.later.pop() else { return };
            // What a socket does not take is lost.
            let _ = match way {
                Way::ToServer(client) => self.clients[client].1.send(&datagram),
                Way::ToClient(client) => self.front.send_to(&datagram, self.clients[client].0),
            };
        }
    }
}
