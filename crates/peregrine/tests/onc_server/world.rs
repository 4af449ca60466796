//! Defines a server of ONC RPC, and clients that send messages that the tests make word by word.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use peregrine::{Endpoint, Server, interface};

use crate::foreign::{LIMIT, Object, World, name_of, own_address};

pub(crate) const PROGRAM: u32 = 0x2000_0018;

#[interface(onc(program = 0x2000_0018, version = 2))]
pub(crate) trait Counter {
    /// Adds one to the number of calls, and returns the new number.
    #[onc(1)]
    fn count(&self, label: &str) -> peregrine::Result<u32>;
    /// Reports that the call has begun, and waits until the test lets it end.
    #[onc(2)]
    fn wait(&self) -> peregrine::Result<u32>;
    /// Returns the given number of bytes.
    #[onc(3)]
    fn bytes(&self, count: u32) -> peregrine::Result<Vec<u8>>;
    /// Returns what the caller claims to be.
    #[onc(4)]
    fn claims(&self) -> peregrine::Result<String>;
    #[onc(5)]
    fn panics(&self) -> peregrine::Result<()>;
}

#[interface(onc(program = 0x2000_0018, version = 4))]
pub(crate) trait Newer {
    #[onc(1)]
    fn nothing(&self) -> peregrine::Result<()>;
}

impl Newer for Object {
    fn nothing(&self) -> peregrine::Result<()> {
        Ok(())
    }
}

impl Counter for Object {
    fn count(&self, _label: &str) -> peregrine::Result<u32> {
        Ok(self.run())
    }

    fn wait(&self) -> peregrine::Result<u32> {
        Ok(self.run_when_told())
    }

    fn bytes(&self, count: u32) -> peregrine::Result<Vec<u8>> {
        Ok(vec![7; count as usize])
    }

    fn claims(&self) -> peregrine::Result<String> {
        let caller = peregrine::caller().expect("a procedure has a caller");
        assert_eq!((caller.user(), caller.group(), caller.process()), (u32::MAX, u32::MAX, 0));
        assert!(caller.from().is_some_and(|from| from.ip().is_loopback()));
        Ok(match caller.claimed() {
            None => format!("{}: nothing", caller.path()),
            Some(claimed) => format!(
                "{}: {}.{} {:?} at {}",
                caller.path(),
                claimed.user,
                claimed.group,
                claimed.groups,
                claimed.machine
            ),
        })
    }

    fn panics(&self) -> peregrine::Result<()> {
        panic!("as the test asks")
    }
}

impl World {
    pub(crate) fn new(name: &str) -> Self {
        Self::with(name, |server| server)
    }

    pub(crate) fn with(name: &str, options: impl FnOnce(Server) -> Server) -> Self {
        let listens = |server: Server| {
            let server = server.listen(&format!("onc+udp:{}:0", own_address(77)))?;
            server.listen(&format!("onc+tcp:{}:0", own_address(77)))
        };
        Self::listening(name, |server| listens(options(server)).unwrap())
    }

    /// Starts a server at the ports of an earlier server.
    pub(crate) fn at_ports(name: &str, udp: SocketAddr, tcp: SocketAddr) -> Self {
        Self::listening(name, |server| {
            let server = server.listen(&format!("onc+udp:{udp}")).unwrap();
            server.listen(&format!("onc+tcp:{tcp}")).unwrap()
        })
    }

    fn listening(name: &str, options: impl FnOnce(Server) -> Server) -> Self {
        let start = |object: Object| {
            options(Server::new())
                .export(&name_of(name), CounterServer::new(object.clone()))?
                .export(&name_of(&format!("{name}-4")), NewerServer::new(object))?
                .spawn()
        };
        Self::of(start).unwrap()
    }

    pub(crate) fn at(&self, scheme: &str) -> SocketAddr {
        let is_it = |endpoint: &&Endpoint| endpoint.to_string().starts_with(scheme);
        let endpoint = self.server.addresses().iter().find(is_it).expect("it listens");
        endpoint.to_string()[scheme.len() + 1..].parse().expect("a socket address")
    }

    pub(crate) fn udp(&self) -> Udp {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(self.at("onc+udp")).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Udp(socket)
    }

    pub(crate) fn tcp(&self) -> Tcp {
        let stream = TcpStream::connect(self.at("onc+tcp")).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Tcp(stream)
    }

    /// Resets a client's connection, and connects again from the same port.
    pub(crate) fn tcp_again(&self, Tcp(stream): Tcp) -> Tcp {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
        let from = stream.local_addr().unwrap();
        // The kernel resets a connection that is closed without lingering, and forgets its ports at once.
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        drop(stream);
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        bind(&socket, &from).unwrap();
        connect(&socket, &self.at("onc+tcp")).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Tcp(stream)
    }
}

pub(crate) struct Udp(pub(crate) UdpSocket);
pub(crate) struct Tcp(pub(crate) TcpStream);

pub(crate) trait Transport {
    fn send(&mut self, message: &[u8]);
    fn receive(&mut self) -> Vec<u8>;
    fn ask(&mut self, message: &[u8]) -> Vec<u8> {
        self.send(message);
        self.receive()
    }
}

impl Transport for Udp {
    fn send(&mut self, message: &[u8]) {
        self.0.send(message).unwrap();
    }
    fn receive(&mut self) -> Vec<u8> {
        let mut reply = vec![0; 65_536];
        let bytes = self.0.recv(&mut reply).unwrap();
        reply.truncate(bytes);
        reply
    }
}

impl Transport for Tcp {
    fn send(&mut self, message: &[u8]) {
        let marker = 1 << 31 | message.len() as u32;
        self.0.write_all(&[&marker.to_be_bytes(), message].concat()).unwrap();
    }
    fn receive(&mut self) -> Vec<u8> {
        let mut marker = [0; 4];
        self.0.read_exact(&mut marker).unwrap();
        let marker = u32::from_be_bytes(marker);
        assert!(marker & 1 << 31 != 0, "one fragment");
        let mut reply = vec![0; (marker & !(1 << 31)) as usize];
        self.0.read_exact(&mut reply).unwrap();
        reply
    }
}

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Encodes bytes as opaque data of XDR: their length, the bytes, and padding.
pub(crate) fn opaque(bytes: &[u8]) -> Vec<u8> {
    let padding = bytes.len().wrapping_neg() % 4;
    [&words(&[bytes.len() as u32]), bytes, &[0; 3][..padding]].concat()
}

/// Returns a call without credentials.
pub(crate) fn call(xid: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let header = words(&[xid, 0, 2, PROGRAM, version, procedure, 0, 0, 0, 0]);
    [&header, arguments].concat()
}

/// Returns a call of `count`.
pub(crate) fn count(xid: u32) -> Vec<u8> {
    call(xid, 2, 1, &opaque(b"label"))
}

/// Returns a reply with results.
pub(crate) fn success(xid: u32, results: &[u8]) -> Vec<u8> {
    [&words(&[xid, 1, 0, 0, 0, 0]), results].concat()
}

/// Returns the answer to a call that was accepted, but has no results.
pub(crate) fn accepted(xid: u32, answer: &[u32]) -> Vec<u8> {
    words(&[&[xid, 1, 0, 0, 0], answer].concat())
}

/// Returns the answer to a call that was denied.
pub(crate) fn denied(xid: u32, answer: &[u32]) -> Vec<u8> {
    words(&[&[xid, 1, 1], answer].concat())
}

pub(crate) const PROGRAM_UNAVAILABLE: u32 = 1;
pub(crate) const PROGRAM_MISMATCH: u32 = 2;
pub(crate) const PROCEDURE_UNAVAILABLE: u32 = 3;
pub(crate) const GARBAGE_ARGUMENTS: u32 = 4;
pub(crate) const SYSTEM_ERROR: u32 = 5;

/// Runs a test over both transports.
pub(crate) fn over_both(name: &str, test: impl Fn(&World, &mut dyn Transport)) {
    let world = World::new(&format!("{name}-udp"));
    test(&world, &mut world.udp());
    let world = World::new(&format!("{name}-tcp"));
    test(&world, &mut world.tcp());
}
