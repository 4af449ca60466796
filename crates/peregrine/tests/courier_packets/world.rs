//! A server of packet Courier, and clients that send packets which the tests make themselves.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use peregrine::foreign::Foreign;
use peregrine::{CallError, Server, Value, interface};

use crate::foreign::{LIMIT, Object, World, name_of, own_address};

pub(crate) const PROGRAM: u32 = 0x0018_0005;

/// The second of the four numbers in the IPv4 addresses of the servers.
pub(crate) const NET: u8 = 78;

#[interface(courier(program = 0x0018_0005, version = 2))]
pub(crate) trait Counter {
    /// Adds one to the number of calls, and returns the new number.
    #[courier(1)]
    fn count(&self, label: &str) -> peregrine::Result<u32>;
    /// Reports that the call has begun, and waits until the test lets it end.
    #[courier(2)]
    fn wait(&self) -> peregrine::Result<u32>;
    /// Returns the same words.
    #[courier(3)]
    fn echo(&self, words: Vec<u16>) -> peregrine::Result<Vec<u16>>;
    /// Reports an error if `count` is not 0.
    #[courier(4)]
    fn fail(&self, count: u16) -> Result<(), Fault>;
    #[courier(5)]
    fn panics(&self) -> peregrine::Result<()>;
    /// Returns `count` sequences of 30,000 words.
    #[courier(6)]
    fn words(&self, count: u16) -> peregrine::Result<Vec<Vec<u16>>>;
    /// Returns the path by which the call has come.
    #[courier(7)]
    fn path(&self) -> peregrine::Result<String>;
    /// Notes a text. Waits as `wait` does if the text is "wait", and panics if it is "panic".
    #[courier(8)]
    #[oneway]
    fn note(&self, text: &str) -> peregrine::Result<()>;
    /// Returns the notes.
    #[courier(9)]
    fn notes(&self) -> peregrine::Result<Vec<String>>;
}

#[derive(Debug, Value, Foreign)]
pub(crate) enum Fault {
    #[foreign(error = 9)]
    Counted {
        count: u16,
    },
    Failed(CallError),
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

#[interface(courier(program = 0x0018_0005, version = 4))]
pub(crate) trait Newer {
    #[courier(1)]
    fn nothing(&self) -> peregrine::Result<()>;
}

impl Newer for Notes {
    fn nothing(&self) -> peregrine::Result<()> {
        Ok(())
    }
}

/// The object of both interfaces.
#[derive(Clone)]
pub(crate) struct Notes {
    object: Object,
    notes: Arc<Mutex<Vec<String>>>,
}

impl Counter for Notes {
    fn count(&self, _label: &str) -> peregrine::Result<u32> {
        Ok(self.object.run())
    }

    fn wait(&self) -> peregrine::Result<u32> {
        Ok(self.object.run_when_told())
    }

    fn echo(&self, words: Vec<u16>) -> peregrine::Result<Vec<u16>> {
        Ok(words)
    }

    fn fail(&self, count: u16) -> Result<(), Fault> {
        if count == 0 { Ok(()) } else { Err(Fault::Counted { count }) }
    }

    fn panics(&self) -> peregrine::Result<()> {
        panic!("as the test asks")
    }

    fn words(&self, count: u16) -> peregrine::Result<Vec<Vec<u16>>> {
        Ok(vec![vec![7; 30_000]; count.into()])
    }

    fn path(&self) -> peregrine::Result<String> {
        let caller = peregrine::caller().expect("a procedure has a caller");
        Ok(caller.path().to_string())
    }

    fn note(&self, text: &str) -> peregrine::Result<()> {
        match text {
            "wait" => drop(self.wait()?),
            "panic" => self.panics()?,
            _ => {}
        }
        self.notes.lock().unwrap().push(text.to_owned());
        Ok(())
    }

    fn notes(&self) -> peregrine::Result<Vec<String>> {
        Ok(self.notes.lock().unwrap().clone())
    }
}

impl World {
    pub(crate) fn new(name: &str) -> Self {
        Self::at(name, (own_address(NET), 0).into())
    }

    /// Starts a server at this address. Waits until the port is free, because the threads of an earlier
    /// server may still use the port for a moment.
    pub(crate) fn at(name: &str, address: SocketAddr) -> Self {
        let begun = Instant::now();
        loop {
            let listens = |server: Server| server.listen(&format!("courier+udp:{address}"));
            match Self::spawned(name, listens) {
                Ok(world) => return world,
                Err(error) => assert!(begun.elapsed() < LIMIT, "{error}"),
            }
        }
    }

    pub(crate) fn spawned(
        name: &str,
        options: impl FnOnce(Server) -> Result<Server, CallError>,
    ) -> Result<Self, CallError> {
        Self::of(|object| {
            let notes = Notes { object, notes: Arc::default() };
            options(Server::new())?
                .export(&name_of(name), CounterServer::new(notes.clone()))?
                .export(&name_of(&format!("{name}-4")), NewerServer::new(notes))?
                .spawn()
        })
    }

    /// Returns the address as a client writes it.
    pub(crate) fn address(&self) -> String {
        self.server.addresses()[0].to_string()
    }

    pub(crate) fn place(&self) -> SocketAddr {
        let address = self.address();
        address.split_once(':').unwrap().1.parse().expect("a socket address")
    }

    pub(crate) fn bind(&self) -> CounterClient {
        CounterClient::bind(&self.address()).unwrap()
    }

    /// Returns a client whose packets the test makes, and which sends from the address `host` of this
    /// machine.
    pub(crate) fn raw_at(&self, host: Ipv4Addr) -> Raw {
        let socket = UdpSocket::bind((host, 0)).unwrap();
        socket.connect(self.place()).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Raw(socket)
    }

    pub(crate) fn raw(&self) -> Raw {
        self.raw_at(Ipv4Addr::LOCALHOST)
    }
}

/// A client whose packets the test makes.
pub(crate) struct Raw(pub(crate) UdpSocket);

impl Raw {
    pub(crate) fn send(&self, packet: &[u8]) {
        self.0.send(packet).unwrap();
    }

    pub(crate) fn receive(&self) -> Vec<u8> {
        let mut packet = vec![0; 65_536];
        let bytes = self.0.recv(&mut packet).unwrap();
        packet.truncate(bytes);
        packet
    }

    pub(crate) fn ask(&self, packet: &[u8]) -> Vec<u8> {
        self.send(packet);
        self.receive()
    }

    /// Asks for a cookie, and returns it.
    pub(crate) fn cookie(&self) -> u64 {
        let welcome = self.ask(&parts(1, HELLO, 0, (0, 0, 0), &[]));
        assert_eq!(welcome[..8], parts(1, WELCOME, 0, (0, 0, 0), &[])[..8]);
        u64::from_be_bytes(*welcome[12..].first_chunk().unwrap())
    }
}

pub(crate) fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns a STRING of Courier.
pub(crate) fn string(text: &str) -> Vec<u8> {
    let mut bytes = [&words(&[text.len() as u16]), text.as_bytes()].concat();
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    bytes
}

/// Returns the payload of a call.
pub(crate) fn payload(version: u16, procedure: u16, arguments: &[u8]) -> Vec<u8> {
    let program = [(PROGRAM >> 16) as u16, PROGRAM as u16];
    let header = words(&[3, 3, 0, 77, program[0], program[1], version, procedure]);
    [&header, arguments].concat()
}

/// Returns a call in one datagram.
pub(crate) fn whole(id: u32, version: u16, procedure: u16, arguments: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes()[..], &words(&[2]), &payload(version, procedure, arguments)].concat()
}

/// Returns the reply to a call in one datagram. `kind` is the type of the reply, and `rest` has the bytes
/// after the number of the transaction.
pub(crate) fn reply(id: u32, kind: u16, rest: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes()[..], &words(&[2, 3, 3, kind, 77]), rest].concat()
}

pub(crate) const REJECT: u16 = 1;
pub(crate) const RETURN: u16 = 2;
pub(crate) const ABORT: u16 = 3;

pub(crate) const HELLO: u16 = 1;
pub(crate) const WELCOME: u16 = 2;
pub(crate) const CALL: u16 = 3;
pub(crate) const WORKING: u16 = 5;
pub(crate) const REPLY: u16 = 6;
pub(crate) const HAVE_REPLY: u16 = 7;
pub(crate) const FORGOTTEN: u16 = 8;
/// The bit in the type of a packet by which the sender asks for an answer.
pub(crate) const ASKS: u16 = 0x8000;

/// Returns a packet of a call in parts. The tuple has the length of the payload, the length of a full part,
/// and the position of this part.
pub(crate) fn parts(
    id: u32,
    kind: u16,
    cookie: u64,
    (total, piece, position): (u32, u16, u16),
    data: &[u8],
) -> Vec<u8> {
    [
        &id.to_be_bytes()[..],
        &words(&[0x5043, kind]),
        &6_u32.to_be_bytes(),
        &cookie.to_be_bytes(),
        &total.to_be_bytes(),
        &words(&[piece, position]),
        data,
    ]
    .concat()
}
