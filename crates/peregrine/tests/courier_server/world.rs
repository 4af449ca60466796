//! A server of Courier over TCP, and clients that send messages which the tests make themselves.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use peregrine::foreign::Foreign;
use peregrine::{CallError, Server, Value, interface};

use crate::foreign::{LIMIT, Object, World, name_of, own_address};
use crate::framing::{Framing, words};

pub(crate) const PROGRAM: u32 = 0x0001_8018;

/// The error of `check`.
#[derive(Debug, Foreign, Value)]
pub(crate) enum CheckError {
    #[foreign(error = 7)]
    Refused {
        why: u16,
    },
    Call(CallError),
}

impl From<CallError> for CheckError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

#[interface(courier(program = 0x0001_8018, version = 2))]
pub(crate) trait Counter {
    /// Adds one to the number of calls, and returns the new number.
    #[courier(1)]
    fn count(&self, label: &str) -> peregrine::Result<u16>;
    /// Reports that the call has begun, and waits until the test lets it end.
    #[courier(2)]
    fn wait(&self) -> peregrine::Result<u16>;
    /// Returns the given number of words.
    #[courier(3)]
    fn words(&self, count: u16) -> peregrine::Result<Vec<u16>>;
    #[courier(4)]
    fn check(&self, why: u16) -> Result<(), CheckError>;
    #[courier(5)]
    fn panics(&self) -> peregrine::Result<()>;
    /// Returns the path, and whether the caller claims a user.
    #[courier(6)]
    fn caller(&self) -> peregrine::Result<String>;
    /// Returns `count` rows of 10,000 words.
    #[courier(7)]
    fn rows(&self, count: u16) -> peregrine::Result<Vec<Vec<u16>>>;
}

#[interface(courier(program = 0x0001_8018, version = 4))]
pub(crate) trait Newer {
    #[courier(1)]
    fn nothing(&self) -> peregrine::Result<()>;
}

impl Newer for Object {
    fn nothing(&self) -> peregrine::Result<()> {
        self.run();
        Ok(())
    }
}

impl Counter for Object {
    fn count(&self, _label: &str) -> peregrine::Result<u16> {
        Ok(self.run() as u16)
    }

    fn wait(&self) -> peregrine::Result<u16> {
        Ok(self.run_when_told() as u16)
    }

    fn words(&self, count: u16) -> peregrine::Result<Vec<u16>> {
        Ok(vec![7; count.into()])
    }

    fn check(&self, why: u16) -> Result<(), CheckError> {
        if why == 0 { Ok(()) } else { Err(CheckError::Refused { why }) }
    }

    fn panics(&self) -> peregrine::Result<()> {
        panic!("as the test asks")
    }

    fn caller(&self) -> peregrine::Result<String> {
        let caller = peregrine::caller().expect("a procedure has a caller");
        assert_eq!((caller.user(), caller.group(), caller.process()), (u32::MAX, u32::MAX, 0));
        assert!(caller.from().is_some_and(|from| from.ip().is_loopback()));
        Ok(format!("{} {}", caller.path(), caller.claimed().is_some()))
    }

    fn rows(&self, count: u16) -> peregrine::Result<Vec<Vec<u16>>> {
        Ok(vec![vec![9; 10_000]; count.into()])
    }
}

impl World {
    pub(crate) fn new(name: &str) -> Self {
        Self::at(name, SocketAddr::new(own_address(79).into(), 0))
    }

    pub(crate) fn at(name: &str, address: SocketAddr) -> Self {
        let start = |object: Object| {
            Server::new()
                .export(&name_of(name), CounterServer::new(object.clone()))?
                .export(&name_of(&format!("{name}-4")), NewerServer::new(object))?
                .listen(&format!("courier+tcp:{address}"))?
                .spawn()
        };
        Self::of(start).unwrap()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let text = self.server.addresses()[0].to_string();
        text.strip_prefix("courier+tcp:").expect("the scheme").parse().expect("a socket address")
    }

    /// Connects without sending anything.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Connects, and exchanges versions.
    pub(crate) fn client(&self, framing: Framing) -> Client {
        let mut client = Client { stream: self.connect(), framing };
        client.send(&words(&[3, 3]));
        assert_eq!(client.receive(), words(&[3, 3]));
        client
    }
}

/// A connection on which both sides have announced version 3.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    framing: Framing,
}

impl Client {
    pub(crate) fn send(&mut self, message: &[u8]) {
        self.stream.write_all(&self.framing.whole(message)).unwrap();
    }

    pub(crate) fn receive(&mut self) -> Vec<u8> {
        self.framing.read(&mut self.stream).expect("a message")
    }

    pub(crate) fn ask(&mut self, message: &[u8]) -> Vec<u8> {
        self.send(message);
        self.receive()
    }
}

/// Returns all bytes up to the end of the connection.
pub(crate) fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    bytes
}

/// Returns a call of a version of the program.
pub(crate) fn call(tid: u16, version: u16, procedure: u16, arguments: &[u16]) -> Vec<u8> {
    let header = [0, tid, (PROGRAM >> 16) as u16, PROGRAM as u16, version, procedure];
    words(&[&header, arguments].concat())
}

/// Returns a call of `count`.
pub(crate) fn count(tid: u16) -> Vec<u8> {
    call(tid, 2, 1, &[1, 0x6100])
}

pub(crate) fn returned(tid: u16, results: &[u16]) -> Vec<u8> {
    words(&[&[2, tid], results].concat())
}

pub(crate) fn aborted(tid: u16, error: u16, arguments: &[u16]) -> Vec<u8> {
    words(&[&[3, tid, error], arguments].concat())
}

pub(crate) fn rejected(tid: u16, reason: &[u16]) -> Vec<u8> {
    words(&[&[1, tid], reason].concat())
}
