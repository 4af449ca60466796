//! Tests encrypted paths with hostile hosts: floods of handshakes from many addresses, and hosts between
//! client and server that reset connections and forge refusals.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use peregrine::secure::{Identity, Trust, TrustedKey};
use peregrine::{
    BindOptions, EthernetDevice, Executed, Kind, PathKind, Rebind, Running, Server, interface,
};
use support::KeepGoing;
use support::bridge::LINK_HEADER_BYTES;
use support::link::{ENDS, Link, at_far_end, at_near_end};
use support::tap::{PEREGRINE_TYPE, Tap};

const LONG: Duration = Duration::from_secs(30);

static ADA: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());
static BOB: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());
static OF_ADA: LazyLock<Trust> = LazyLock::new(|| trusts("bob", &BOB));
static OF_BOB: LazyLock<Trust> = LazyLock::new(|| trusts("ada", &ADA));

/// Makes a runtime directory for this test. The tests run one at a time.
fn home() -> (MutexGuard<'static, ()>, tempfile::TempDir) {
    (support::alone(), support::own_directory())
}

fn trusts(name: &str, peer: &Identity) -> Trust {
    Trust::of_keys([TrustedKey::new(name, peer.public_key(), "").unwrap()]).unwrap()
}

#[interface]
trait Desk {
    /// Counts the call, and returns the number of bytes.
    fn put(&self, #[max_len(1 << 20)] bytes: &[u8]) -> peregrine::Result<u64>;
    /// Counts the call, and returns when the test has opened the desk.
    fn wait(&self) -> peregrine::Result<()>;
}

#[derive(Clone, Default)]
struct Clerk {
    ran: Arc<AtomicU32>,
    opened: Arc<AtomicBool>,
}

impl Clerk {
    fn ran(&self) -> u32 {
        self.ran.load(Ordering::SeqCst)
    }
}

impl Desk for Clerk {
    fn put(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        Ok(bytes.len() as u64)
    }
    fn wait(&self) -> peregrine::Result<()> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        let end = Instant::now() + LONG;
        while !self.opened.load(Ordering::SeqCst) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

fn server(clerk: &Clerk, at: &str) -> Server {
    let server = Server::new().export("desk", DeskServer::new(clerk.clone())).unwrap();
    let server = server.ethernet_device(EthernetDevice::Packet);
    server.listen_beyond_this_machine(at, (BOB.clone(), OF_BOB.clone())).unwrap()
}

fn serve(clerk: &Clerk, at: &str) -> (Running, String) {
    let running = server(clerk, at).spawn().unwrap();
    let address = format!("{}/desk", running.addresses()[0]);
    (running, address)
}

/// Returns the options of Ada, whose handshakes are not resumed.
fn as_ada() -> BindOptions {
    let options = BindOptions::default().ethernet_device(EthernetDevice::Packet);
    options.secure(ADA.clone(), OF_ADA.clone()).rebind(Rebind::Never)
}

fn place_of(running: &Running) -> SocketAddr {
    let address = running.addresses()[0].to_string();
    address.split_once(':').unwrap().1.parse().unwrap()
}

/// Offsets of fields in the header of a packet, and numbers of kinds.
const HEADER_BYTES: usize = 64;
const KIND_AT: usize = 3;
const SECRET_AT: usize = 12;
const FLAGS_AT: usize = 28;
const SEALED: u8 = 64;
const CALL: u8 = 1;
const REFUSED: u8 = 8;
const HELLO: u8 = 10;
const COOKIE: u8 = 11;
const BIND: u8 = 12;
const SHAKE: u8 = 16;

/// Writes the checksums of a packet in clear.
fn check(packet: &mut [u8]) {
    let body = crc32c::crc32c(&packet[HEADER_BYTES..]);
    packet[56..60].copy_from_slice(&body.to_le_bytes());
    packet[4..8].fill(0);
    let check = crc32c::crc32c(&packet[..HEADER_BYTES]);
    packet[4..8].copy_from_slice(&check.to_le_bytes());
}

/// The first packets of a client: `HELLO`, the first packet of the handshake, and a call.
struct Opening {
    hello: Vec<u8>,
    shake: Vec<u8>,
    call: Vec<u8>,
}

impl Opening {
    /// Finds the first packets among those that a client has sent.
    fn of(packets: &[Vec<u8>]) -> Self {
        let first = |kind| packets.iter().find(|packet| packet[KIND_AT] == kind).unwrap().clone();
        Self { hello: first(HELLO), shake: first(SHAKE), call: first(CALL) }
    }

    /// Returns packets that a host sends without having received anything: the first packets of the number of
    /// a client, one that binds in clear, and a call with keys that do not exist. The server answers the last
    /// one by `REFUSED`.
    fn blind(&self, number: u64) -> [Vec<u8>; BLIND as usize] {
        let mut all = [&self.hello, &self.shake, &self.hello, &self.call].map(Vec::clone);
        all[2][KIND_AT] = BIND;
        for packet in &mut all {
            packet[SECRET_AT..SECRET_AT + 8].copy_from_slice(&number.to_le_bytes());
            if packet[FLAGS_AT] & SEALED == 0 {
                check(packet);
            }
        }
        all
    }

    /// Returns the first packet of a handshake, with the cookie that the server has sent.
    fn with_cookie(&self, cookie: &[u8]) -> Vec<u8> {
        let mut shake = self.shake.clone();
        shake[SECRET_AT..SECRET_AT + 12].copy_from_slice(&cookie[SECRET_AT..SECRET_AT + 12]);
        let bytes = HEADER_BYTES..HEADER_BYTES + 16;
        shake[bytes.clone()].copy_from_slice(&cookie[bytes]);
        check(&mut shake);
        shake
    }
}

/// Binds through a host that records what the client sends.
fn record(server: SocketAddr) -> Opening {
    let front = UdpSocket::bind("127.0.0.1:0").unwrap();
    let back = UdpSocket::bind("127.0.0.1:0").unwrap();
    back.connect(server).unwrap();
    for socket in [&front, &back] {
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    }
    let address = format!("udp:{}/desk", front.local_addr().unwrap());
    let going = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let keep_going = KeepGoing::new(&going);
        let recorder = scope.spawn(|| {
            let (mut packets, mut memory, mut client) = (Vec::new(), [0; 1 << 16], None);
            while going.load(Ordering::Relaxed) {
                if let Ok((bytes, from)) = front.recv_from(&mut memory) {
                    client = Some(from);
                    packets.push(memory[..bytes].to_vec());
                    let _ = back.send(&memory[..bytes]);
                }
                if let (Ok(bytes), Some(client)) = (back.recv(&mut memory), client) {
                    let _ = front.send_to(&memory[..bytes], client);
                }
            }
            packets
        });
        DeskClient::bind_with(&address, &as_ada()).unwrap().put(b"recorded").unwrap();
        drop(keep_going);
        Opening::of(&recorder.join().unwrap())
    })
}

/// The number of packets of [`Opening::blind`].
const BLIND: u64 = 4;
/// The largest number of packets of a flood that wait at the server. With this number, the receive buffer
/// of the server's socket is never full.
const WAITING_MAX: u64 = 100;

/// A flood. It is as fast as the server: more packets follow when the server has handled earlier ones.
///
/// A faster flood fills the receive buffer of the server's socket, and the system drops packets of all
/// clients. A server in a debug build handles about 8,000 such packets a second. Without a bound, a flood of
/// 100,000 a second made `Losses::overflowed` count 93 of 100 packets, and no client could bind within five
/// seconds. At 10,000 a second, 19 of 100 packets were lost, and some clients could not bind.
/// `Losses::unsent` was 0.
struct Flood<'a> {
    running: &'a Running,
    going: AtomicBool,
    sent: AtomicU64,
    /// The number of answers to the last packets of [`Opening::blind`].
    refused: AtomicU64,
}

impl<'a> Flood<'a> {
    fn new(running: &'a Running) -> Self {
        let (sent, refused) = Default::default();
        Self { running, going: AtomicBool::new(true), sent, refused }
    }

    fn goes_on(&self) -> bool {
        self.going.load(Ordering::Relaxed)
    }

    /// Notes that packets are about to be sent. Returns a number that no other packets have.
    fn next(&self) -> u64 {
        self.sent.fetch_add(BLIND, Ordering::Relaxed)
    }

    /// Notes an answer of the server.
    fn note(&self, kind: u8) {
        self.refused.fetch_add(u64::from(kind == REFUSED), Ordering::Relaxed);
    }

    /// Returns whether the server has not handled too many packets yet.
    fn must_wait(&self) -> bool {
        let sent = self.sent.load(Ordering::Relaxed);
        let handled = BLIND * self.refused.load(Ordering::Relaxed);
        // What was lost gets no answer.
        let lost = || {
            let losses = self.running.losses();
            BLIND * (losses.overflowed + losses.unsent)
        };
        sent > handled + WAITING_MAX && sent > handled + WAITING_MAX + lost() && self.goes_on()
    }

    /// Checks that new clients are served until `enough` packets were sent.
    fn check_clients_are_served(&self, enough: u64) {
        let address = format!("{}/desk", self.running.addresses()[0]);
        let (mut clients, sent) = (0, &self.sent);
        while clients < 10 || sent.load(Ordering::Relaxed) < enough {
            assert!(clients < 20_000, "the server does not handle the flood: {sent:?} packets");
            // Each client has a trust of its own, so it shares no connection and resumes no handshake.
            let options = as_ada().secure(ADA.clone(), trusts("bob", &BOB));
            let desk = DeskClient::bind_with(&address, &options).unwrap_or_else(|error| {
                let losses = self.running.losses();
                panic!("client {clients} after {sent:?} packets: {error}; lost: {losses:?}");
            });
            for bytes in [0, 3000] {
                assert_eq!(desk.with_timeout(LONG).put(&vec![1; bytes]).unwrap(), bytes as u64);
            }
            clients += 1;
        }
        assert_eq!(self.running.losses().overflowed, 0, "the flood is faster than the server");
    }
}

/// The hosts of a flood over UDP. Each has an address of this machine.
struct Hosts {
    sockets: Vec<UdpSocket>,
    /// The bytes that each host has sent and received.
    sent: Vec<usize>,
    received: Vec<usize>,
}

impl Hosts {
    fn new(server: SocketAddr) -> Self {
        let host = |number: u8| {
            let socket = UdpSocket::bind((Ipv4Addr::new(127, 77, 1, number), 0)).unwrap();
            socket.connect(server).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let sockets: Vec<_> = (1..=200).map(host).collect();
        let counts = vec![0; sockets.len()];
        Self { sockets, sent: counts.clone(), received: counts }
    }

    fn send(&mut self, at: usize, packet: &[u8]) {
        self.sent[at] += self.sockets[at].send(packet).unwrap_or(0);
    }

    /// Receives what has arrived. If `opening` is set, the host returns cookies.
    fn receive(&mut self, at: usize, flood: &Flood<'_>, opening: Option<&Opening>) {
        let mut memory = [0; 1 << 11];
        while let Ok(bytes) = self.sockets[at].recv(&mut memory) {
            self.received[at] += bytes;
            flood.note(memory[KIND_AT]);
            if let Some(opening) = opening.filter(|_| memory[KIND_AT] == COOKIE) {
                self.send(at, &opening.with_cookie(&memory[..bytes]));
            }
        }
    }
}

/// Floods a server from many addresses of this machine. If `proves` is set, the senders return the server's
/// cookies, and leave their handshakes incomplete.
fn flood_over_udp(proves: bool) {
    let _home = home();
    let clerk = Clerk::default();
    let (running, _) = serve(&clerk, "udp:127.0.0.1:0");
    let place = place_of(&running);
    let opening = record(place);
    let mut hosts = Hosts::new(place);
    let flood = Flood::new(&running);
    std::thread::scope(|scope| {
        let keep_going = KeepGoing::new(&flood.going);
        scope.spawn(|| {
            let count = hosts.sockets.len();
            for at in (0..count).cycle().take_while(|_| flood.goes_on()) {
                for packet in opening.blind(flood.next()) {
                    hosts.send(at, &packet);
                }
                let mut from = at;
                hosts.receive(from, &flood, proves.then_some(&opening));
                while flood.must_wait() {
                    from = (from + 1) % count;
                    hosts.receive(from, &flood, proves.then_some(&opening));
                }
            }
        });
        flood.check_clients_are_served(if proves { 5000 } else { 20_000 });
        drop(keep_going);
    });
    assert!(flood.refused.into_inner() > 1000, "the server answers");
    for (sent, received) in hosts.sent.iter().zip(hosts.received).filter(|_| !proves) {
        assert!(received <= *sent, "{received} bytes were sent for {sent} bytes");
    }
}

#[test]
fn flood_from_unproven_addresses_is_not_amplified_and_blocks_no_client() {
    flood_over_udp(false);
}

#[test]
fn incomplete_handshakes_of_many_hosts_lock_out_no_client() {
    flood_over_udp(true);
}

/// The senders on the link have hardware addresses that do not exist.
#[test]
fn flood_of_forged_frames_is_not_amplified_and_blocks_no_client() {
    let _alone = support::alone();
    at_near_end(Link::new(), |link| {
        let _directory = support::own_directory();
        let clerk = Clerk::default();
        let server = server(&clerk, &format!("eth:{}:0", ENDS[1]));
        let running = at_far_end(move || server.spawn().unwrap());
        let address = format!("{}/desk", running.addresses()[0]);
        let far = link.at(1, || Tap::at(link.interface(1), PEREGRINE_TYPE).unwrap());
        let near = Tap::at(link.interface(0), PEREGRINE_TYPE).unwrap();
        let desk = DeskClient::bind_with(&address, &as_ada()).unwrap();
        assert_eq!(desk.binding().path(), PathKind::Ethernet);
        desk.put(b"recorded").unwrap();
        let mut memory = vec![0; 1 << 16];
        let mut frames = Vec::new();
        while let Some(bytes) = far.receive(&mut memory) {
            frames.push(memory[..bytes].to_vec());
        }
        let shake = frames.iter().find(|frame| frame[LINK_HEADER_BYTES + KIND_AT] == SHAKE);
        let link_header = shake.expect("a handshake")[..LINK_HEADER_BYTES].to_vec();
        let packets: Vec<_> =
            frames.iter().map(|frame| frame[LINK_HEADER_BYTES..].to_vec()).collect();
        let opening = Opening::of(&packets);
        let flood = Flood::new(&running);
        std::thread::scope(|scope| {
            let keep_going = KeepGoing::new(&flood.going);
            let amounts = scope.spawn(|| {
                let (mut sent, mut received) = (0, 0);
                while flood.goes_on() {
                    let number = flood.next();
                    let mut header = link_header.clone();
                    header[6..12].copy_from_slice(&[2, 0x77, 0, 0, 0, 0]);
                    header[9..12].copy_from_slice(&number.to_be_bytes()[5..]);
                    for packet in opening.blind(number) {
                        let frame = [&header[..], &packet].concat();
                        near.send(&frame).unwrap();
                        sent += frame.len();
                    }
                    loop {
                        while let Some(bytes) = near.receive(&mut memory) {
                            if memory[..2] == [2, 0x77] {
                                received += bytes;
                                flood.note(memory[LINK_HEADER_BYTES + KIND_AT]);
                            }
                        }
                        if !flood.must_wait() {
                            break;
                        }
                        std::thread::yield_now();
                    }
                }
                (sent, received)
            });
            flood.check_clients_are_served(20_000);
            drop(keep_going);
            let (sent, received) = amounts.join().unwrap();
            assert!(received <= sent, "{received} bytes were sent for {sent} bytes");
        });
        assert!(flood.refused.into_inner() > 1000, "the server answers");
    });
}

/// Refusals in clear, as a server sends them that was restarted, reach the client for each packet of the
/// server.
#[test]
fn forged_refusals_on_the_link_end_no_call() {
    let _alone = support::alone();
    at_near_end(Link::new(), |link| {
        let _directory = support::own_directory();
        let clerk = Clerk::default();
        let server = server(&clerk, &format!("eth:{}:0", ENDS[1]));
        let running = at_far_end(move || server.spawn().unwrap());
        let address = format!("{}/desk", running.addresses()[0]);
        let sniffer = Tap::at(link.interface(0), PEREGRINE_TYPE).unwrap();
        let forger = link.at(1, || Tap::at(link.interface(1), PEREGRINE_TYPE).unwrap());
        let desk = DeskClient::bind_with(&address, &as_ada()).unwrap();
        let (going, forged) = (AtomicBool::new(true), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let keep_going = KeepGoing::new(&going);
            scope.spawn(|| {
                let mut memory = vec![0; 1 << 16];
                while going.load(Ordering::Relaxed) {
                    let Some(bytes) = sniffer.receive(&mut memory) else {
                        std::thread::yield_now();
                        continue;
                    };
                    let packet = LINK_HEADER_BYTES..LINK_HEADER_BYTES + HEADER_BYTES;
                    if bytes < packet.end || memory[packet.start + FLAGS_AT] & SEALED == 0 {
                        continue;
                    }
                    memory[packet.start + KIND_AT] = REFUSED;
                    memory[packet.start + FLAGS_AT..][..2].fill(0);
                    check(&mut memory[packet.clone()]);
                    let _ = forger.send(&memory[..packet.end]);
                    forged.fetch_add(1, Ordering::Relaxed);
                }
            });
            let mut calls = 0;
            while calls < 200 || forged.load(Ordering::Relaxed) < 100 {
                calls += 1;
                assert_eq!(desk.with_timeout(LONG).put(&vec![1; 5000]).unwrap(), 5000);
            }
            drop(keep_going);
            assert_eq!(clerk.ran(), calls);
        });
    });
}

/// What a host between client and server does to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// Resets both connections at once.
    Reset,
    /// Resets both connections instead of passing on the next bytes to the server, or to the client.
    ResetInstead(usize),
    /// Sends these bytes to the client.
    ToClient(&'static [u8]),
    /// Sends these bytes to the server.
    ToServer(&'static [u8]),
}

/// A message `Refused` of the plain protocol, for the whole connection.
const PLAIN_REFUSED: &[u8] = &{
    let mut message = [0; 32];
    (message[0], message[1], message[2], message[3]) = (b'P', b'g', 1, 66);
    message
};
/// A fatal alert in clear: the certificate is not known.
const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 46];
/// The same, as a record of encrypted bytes.
const SEALED_ALERT: &[u8] =
    &[23, 3, 3, 0, 19, 2, 46, 21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A host between one client and a server.
struct Middle {
    ends: [TcpStream; 2],
    instead: [Mutex<bool>; 2],
}

impl Middle {
    /// Binds a client through a host in the middle.
    fn bind(server: SocketAddr) -> (DeskClient, Arc<Self>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp:{}/desk", listener.local_addr().unwrap());
        std::thread::scope(|scope| {
            let middle = scope.spawn(move || {
                let (client, _) = listener.accept().unwrap();
                let ends = [client, TcpStream::connect(server).unwrap()];
                ends.iter().for_each(|end| end.set_nodelay(true).unwrap());
                let middle = Arc::new(Self { ends, instead: Default::default() });
                for from in 0..2 {
                    let middle = Arc::clone(&middle);
                    std::thread::spawn(move || middle.pass(from));
                }
                middle
            });
            let desk = DeskClient::bind_with(&address, &as_ada()).unwrap();
            (desk, middle.join().unwrap())
        })
    }

    /// Passes on what end `from` sends, until a connection ends.
    fn pass(&self, from: usize) {
        let mut memory = vec![0; 1 << 16];
        while let Ok(bytes @ 1..) = (&self.ends[from]).read(&mut memory) {
            if *self.instead[from].lock().unwrap() {
                return self.reset();
            }
            if (&self.ends[1 - from]).write_all(&memory[..bytes]).is_err() {
                return;
            }
        }
    }

    fn reset(&self) {
        for end in &self.ends {
            reset(end);
        }
    }

    fn does(&self, deed: Deed) {
        match deed {
            Deed::Reset => self.reset(),
            Deed::ResetInstead(from) => *self.instead[from].lock().unwrap() = true,
            Deed::ToClient(bytes) => (&self.ends[0]).write_all(bytes).unwrap(),
            Deed::ToServer(bytes) => (&self.ends[1]).write_all(bytes).unwrap(),
        }
    }
}

/// Ends a connection with a reset, although other threads use the socket.
fn reset(stream: &TcpStream) {
    // A socket that is connected to an address of the family `AF_UNSPEC` sends a reset.
    let _ = rustix::net::connect_unspec(stream);
}

/// They are closed after some seconds, as clients that connect and do not bind.
#[test]
fn peers_that_do_not_complete_a_handshake_are_closed() {
    let _home = home();
    let (running, _) = serve(&Clerk::default(), "tcp:127.0.0.1:0");
    let strangers = [0, 1, 5, 8].map(|bytes| {
        let mut stranger = TcpStream::connect(place_of(&running)).unwrap();
        stranger.write_all(&[22, 3, 1, 0, 200, 1, 0, 0][..bytes]).unwrap();
        stranger.set_read_timeout(Some(LONG)).unwrap();
        stranger
    });
    for mut stranger in strangers {
        let mut answer = Vec::new();
        match stranger.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    }
}

#[test]
fn resets_and_forged_bytes_end_the_connection_with_a_true_outcome() {
    let _home = home();
    let deeds = [
        Deed::Reset,
        Deed::ResetInstead(0),
        Deed::ResetInstead(1),
        Deed::ToClient(PLAIN_REFUSED),
        Deed::ToClient(ALERT),
        Deed::ToClient(SEALED_ALERT),
        Deed::ToServer(PLAIN_REFUSED),
        Deed::ToServer(ALERT),
        Deed::ToServer(SEALED_ALERT),
    ];
    for deed in deeds {
        let clerk = Clerk::default();
        let (running, _) = serve(&clerk, "tcp:127.0.0.1:0");
        // Between two calls.
        let (desk, middle) = Middle::bind(place_of(&running));
        assert_eq!(desk.put(b"first").unwrap(), 5);
        middle.does(deed);
        let outcome = desk.with_timeout(LONG).put(b"second");
        support::until("the connection ends", || !desk.is_alive());
        assert_eq!(desk.put(b"third").unwrap_err().executed(), Executed::No);
        // The server ends when it has run all that it has received.
        drop(running);
        let ran = clerk.ran() - 1;
        match outcome {
            // The server has replied before it noticed the forged bytes.
            Ok(bytes) => assert_eq!((bytes, ran), (6, 1), "{deed:?}"),
            Err(error) => {
                assert!(ran <= 1 && (ran == 0 || error.executed() == Executed::Maybe), "{error}");
                let kinds = [Kind::ServerGone, Kind::ProtocolMismatch];
                assert!(kinds.contains(&error.kind()), "{deed:?}: {error}");
            }
        }
        if deed == Deed::ResetInstead(0) {
            assert_eq!(ran, 0, "a call that did not arrive was executed");
        }
        // While a procedure runs.
        let (running, _) = serve(&clerk, "tcp:127.0.0.1:0");
        let (desk, middle) = Middle::bind(place_of(&running));
        let before = clerk.ran();
        let error = std::thread::scope(|scope| {
            let waits = scope.spawn(|| desk.with_timeout(LONG).wait());
            support::until("the procedure runs", || clerk.ran() == before + 1);
            middle.does(deed);
            match deed {
                // The host waits for bytes of the server or of the client.
                Deed::ResetInstead(1) => clerk.opened.store(true, Ordering::SeqCst),
                Deed::ResetInstead(_) => assert!(desk.with_timeout(LONG).put(b"more").is_err()),
                _ => {}
            }
            waits.join().unwrap().unwrap_err()
        });
        assert_eq!(error.executed(), Executed::Maybe, "{deed:?}: {error}");
        let kinds = [Kind::ServerGone, Kind::ProtocolMismatch];
        assert!(kinds.contains(&error.kind()), "{deed:?}: {error}");
        clerk.opened.store(true, Ordering::SeqCst);
        // Others are served.
        let (other, _middle) = Middle::bind(place_of(&running));
        assert_eq!(other.put(b"other").unwrap(), 5);
    }
}
