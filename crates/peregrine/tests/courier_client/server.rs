//! Servers of Courier that do not use the library. They read and write messages by the rules of the standard.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::framing::{Framing, words};

const PROGRAM: u32 = 0x0002_0001;
const VERSION: u16 = 2;

/// A call as a server reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) tid: u16,
    pub(crate) procedure: u16,
    pub(crate) arguments: Vec<u8>,
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

pub(crate) fn received(message: &[u8]) -> Received {
    let program = [(PROGRAM >> 16) as u16, PROGRAM as u16];
    assert_eq!([word(message, 0), word(message, 4), word(message, 6)], [0, program[0], program[1]]);
    assert_eq!(word(message, 8), VERSION);
    let (tid, procedure) = (word(message, 2), word(message, 10));
    Received { tid, procedure, arguments: message[12..].to_vec() }
}

/// Returns the reply with the results of a call.
pub(crate) fn usual(call: &Received) -> Vec<Vec<u8>> {
    vec![match call.procedure {
        7 => words(&[2, call.tid, word(&call.arguments, 0).wrapping_mul(2)]),
        9 => {
            let mut numbers: Vec<_> =
                call.arguments[2..].chunks(2).map(|two| word(two, 0)).collect();
            numbers.reverse();
            words(&[&[2, call.tid, numbers.len() as u16], &numbers[..]].concat())
        }
        11 => words(&[2, call.tid]),
        // When clients bind, they call a procedure that the server does not have.
        _ => words(&[1, call.tid, 2]),
    }]
}

/// A connection whose client has announced its versions.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    framing: Framing,
    /// The first call, which followed the versions of the client.
    first: Option<Vec<u8>>,
}

impl Connection {
    /// Accepts a connection, and announces version 3.
    pub(crate) fn accept(listener: &TcpListener, framing: Framing) -> Self {
        let mut stream = listener.accept().unwrap().0;
        stream.write_all(&framing.whole(&words(&[3, 3]))).unwrap();
        let first = framing.read(&mut stream).expect("a message");
        let (versions, first) = first.split_at(4);
        assert_eq!(versions, words(&[3, 3]));
        let first = (!first.is_empty()).then(|| first.to_vec());
        Self { stream, framing, first }
    }

    pub(crate) fn call(&mut self) -> Option<Received> {
        let message = self.first.take().or_else(|| self.framing.read(&mut self.stream))?;
        Some(received(&message))
    }

    pub(crate) fn send(&mut self, message: &[u8]) {
        let _ = self.stream.write_all(&self.framing.whole(message));
    }

    /// Answers the call that the client makes when it binds.
    pub(crate) fn bound(mut self) -> Self {
        let call = self.call().expect("a call");
        self.send(&words(&[1, call.tid, 2]));
        self
    }
}

/// Listens. Returns the listener, and the address for clients.
pub(crate) fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("courier+tcp:{}", listener.local_addr().unwrap());
    (listener, address)
}

/// Serves calls until the program ends. `answer` returns the messages to send for each call except the first
/// call of a connection, by which the client binds. Returns the address for clients.
pub(crate) fn serve(
    framing: Framing,
    answer: impl Fn(&Received) -> Vec<Vec<u8>> + Send + Sync + Clone + 'static,
) -> String {
    let (listener, address) = listen();
    thread::spawn(move || {
        loop {
            let mut connection = Connection::accept(&listener, framing).bound();
            let answer = answer.clone();
            thread::spawn(move || {
                while let Some(call) = connection.call() {
                    for message in answer(&call) {
                        connection.send(&message);
                    }
                }
            });
        }
    });
    address
}

/// Serves the first connection with `first` after the client has bound. Serves later connections with
/// `usual`.
pub(crate) fn serve_first(
    framing: Framing,
    first: impl FnOnce(Connection) + Send + 'static,
) -> String {
    let (listener, address) = listen();
    thread::spawn(move || {
        let mut first = Some(first);
        loop {
            let mut connection = Connection::accept(&listener, framing).bound();
            if let Some(first) = first.take() {
                first(connection);
                continue;
            }
            while let Some(call) = connection.call() {
                usual(&call).iter().for_each(|message| connection.send(message));
            }
        }
    });
    address
}

/// Serves one connection in Cooper's form. `answer` returns the bytes to send for each call. Returns the
/// address for clients.
pub(crate) fn serve_cooper(
    name: &'static str,
    answer: impl Fn(&Received) -> Vec<u8> + Send + 'static,
) -> String {
    let (listener, address) = listen();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut wanted = vec![0; usize::from(word(&length, 0)).next_multiple_of(2)];
        stream.read_exact(&mut wanted).unwrap();
        assert_eq!(&wanted[..name.len()], name.as_bytes());
        stream.write_all(&[0]).unwrap();
        let mut header = [0; 4];
        while stream.read_exact(&mut header).is_ok() {
            let mut arguments = vec![0; 2 * usize::from(word(&header, 2))];
            stream.read_exact(&mut arguments).unwrap();
            let call = Received { tid: 0, procedure: word(&header, 0), arguments };
            stream.write_all(&answer(&call)).unwrap();
        }
    });
    address
}
