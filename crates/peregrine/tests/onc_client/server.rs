//! Hand-written servers of ONC RPC. They read and write messages by the rules of RFC 5531, independently of
//! the library.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;

use peregrine::foreign::{Xdr, from_bytes, to_bytes};

const PROGRAM: u32 = 0x2000_0001;
const VERSION: u32 = 2;

/// A call as a server reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) xid: u32,
    pub(crate) procedure: u32,
    pub(crate) credential: (u32, Vec<u8>),
    pub(crate) arguments: Vec<u8>,
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Reads a call by the rules of RFC 5531, independently of the library.
pub(crate) fn received(message: &[u8]) -> Received {
    assert_eq!(word(message, 4), 0, "a call");
    assert_eq!(word(message, 8), 2, "the version of ONC RPC");
    assert_eq!([word(message, 12), word(message, 16)], [PROGRAM, VERSION]);
    let length = word(message, 28) as usize;
    let verifier = 32 + length.next_multiple_of(4);
    assert_eq!([word(message, verifier), word(message, verifier + 4)], [0, 0]);
    Received {
        xid: word(message, 0),
        procedure: word(message, 20),
        credential: (word(message, 24), message[32..32 + length].to_vec()),
        arguments: message[verifier + 8..].to_vec(),
    }
}

/// Returns a reply with an empty verifier.
pub(crate) fn reply(xid: u32, status: u32, results: &[u8]) -> Vec<u8> {
    [words(&[xid, 1, 0, 0, 0, status]), results.to_vec()].concat()
}

/// Runs the procedure of a call. Returns the bytes of the results.
pub(crate) fn results(call: &Received) -> Vec<u8> {
    match call.procedure {
        0 => Vec::new(),
        1 => to_bytes::<Xdr>(&"joined".to_owned()).unwrap(),
        7 => words(&[2 * word(&call.arguments, 0)]),
        9 => {
            let mut bytes = from_bytes::<Xdr, Vec<u8>>(&call.arguments).unwrap();
            bytes.reverse();
            to_bytes::<Xdr>(&bytes).unwrap()
        }
        other => panic!("procedure {other}"),
    }
}

pub(crate) fn usual(call: &Received) -> Vec<Vec<u8>> {
    vec![reply(call.xid, 0, &results(call))]
}

/// The transport of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Over {
    Udp,
    Tcp,
}

pub(crate) const BOTH: [Over; 2] = [Over::Udp, Over::Tcp];

/// Serves calls until the program ends. `answer` returns the messages to send for each call. Procedure 0 is
/// answered as usual. Returns the address for clients.
pub(crate) fn serve(
    over: Over,
    answer: impl Fn(&Received) -> Vec<Vec<u8>> + Send + Sync + Clone + 'static,
) -> String {
    serve_all(over, move |call| if call.procedure == 0 { usual(call) } else { answer(call) })
}

/// Serves calls as [`serve`] does, but `answer` also answers procedure 0.
pub(crate) fn serve_all(
    over: Over,
    answer: impl Fn(&Received) -> Vec<Vec<u8>> + Send + Sync + Clone + 'static,
) -> String {
    serve_messages(over, "127.0.0.1:0", move |message| answer(&received(message)))
}

/// Starts an rpcbind at port 111, which answers each question with `port`.
pub(crate) fn serve_rpcbind(over: Over, port: u16) {
    let [high, low] = port.to_be_bytes();
    serve_messages(over, "127.0.0.1:111", move |message| {
        assert_eq!([word(message, 12), word(message, 16), word(message, 20)], [100_000, 4, 3]);
        assert_eq!([word(message, 40), word(message, 44)], [PROGRAM, VERSION]);
        // The address has another host, which the client must ignore.
        let address = format!("192.0.2.1.{high}.{low}");
        vec![reply(word(message, 0), 0, &to_bytes::<Xdr>(&address).unwrap())]
    });
}

/// Serves messages at an address. `answers` returns the messages to send for each message that arrives.
fn serve_messages(
    over: Over,
    at: &str,
    answers: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + Sync + Clone + 'static,
) -> String {
    match over {
        Over::Udp => {
            let socket = UdpSocket::bind(at).unwrap();
            let address = socket.local_addr().unwrap();
            thread::spawn(move || {
                let mut bytes = vec![0; 65_536];
                loop {
                    let (length, from) = socket.recv_from(&mut bytes).unwrap();
                    for message in answers(&bytes[..length]) {
                        let _ = socket.send_to(&message, from);
                    }
                }
            });
            format!("onc+udp:{address}")
        }
        Over::Tcp => {
            let listener = TcpListener::bind(at).unwrap();
            let address = listener.local_addr().unwrap();
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let (mut stream, answers) = (stream.unwrap(), answers.clone());
                    thread::spawn(move || {
                        while let Some(message) = read_record(&mut stream) {
                            for message in answers(&message) {
                                let _ = stream.write_all(&record(&message));
                            }
                        }
                    });
                }
            });
            format!("onc+tcp:{address}")
        }
    }
}

pub(crate) fn record(message: &[u8]) -> Vec<u8> {
    [words(&[1 << 31 | message.len() as u32]), message.to_vec()].concat()
}

/// Reads a record, which the client sends as one fragment. Returns `None` at the end of the connection.
pub(crate) fn read_record(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut marker = [0; 4];
    stream.read_exact(&mut marker).ok()?;
    let marker = u32::from_be_bytes(marker);
    assert_ne!(marker >> 31, 0, "the last fragment");
    let mut message = vec![0; (marker & !(1 << 31)) as usize];
    stream.read_exact(&mut message).ok()?;
    Some(message)
}

/// Serves TCP connections. Answers the first call of a procedure other than 0 with the bytes `bad`, and then
/// closes its connection. Answers all other calls as usual.
pub(crate) fn serve_badly_once(bad: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("onc+tcp:{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let mut bad = Some(bad);
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            while let Some(message) = read_record(&mut stream) {
                let call = received(&message);
                if call.procedure != 0
                    && let Some(bad) = bad.take()
                {
                    let _ = stream.write_all(&bad);
                    break;
                }
                stream.write_all(&record(&reply(call.xid, 0, &results(&call)))).unwrap();
            }
        }
    });
    address
}

/// Serves one TCP connection. Answers the first call, and then reads nothing before the test sends to the
/// returned channel.
pub(crate) fn serve_slowly() -> (String, std::sync::mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("onc+tcp:{}", listener.local_addr().unwrap());
    let (go, goes) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut waits = true;
        while let Some(message) = read_record(&mut stream) {
            let call = received(&message);
            let _ = stream.write_all(&record(&reply(call.xid, 0, &results(&call))));
            if core::mem::take(&mut waits) {
                let _ = goes.recv();
            }
        }
    });
    (address, go)
}

/// Serves one TCP connection. Answers the first call, which is of procedure 0. Then waits for `calls` calls,
/// and sends their replies together.
pub(crate) fn serve_together(calls: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("onc+tcp:{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut answer = |calls: usize| {
            let replies: Vec<u8> = (0..calls)
                .map_while(|_| read_record(&mut stream))
                .map(|message| received(&message))
                .flat_map(|call| record(&reply(call.xid, 0, &results(&call))))
                .collect();
            stream.write_all(&replies).unwrap();
        };
        answer(1);
        answer(calls);
    });
    address
}

/// Serves one TCP connection. Refuses calls of procedure 9 before it reads their arguments, as a server may
/// do.
pub(crate) fn serve_early() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("onc+tcp:{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut start = [0; 44];
        while stream.read_exact(&mut start).is_ok() {
            let length = (word(&start, 0) & !(1 << 31)) as usize - 40;
            let refusal = words(&[word(&start, 4), 1, 1, 1, 5]);
            match word(&start, 24) {
                9 => stream.write_all(&record(&refusal)).unwrap(),
                _ => stream
                    .write_all(&record(&reply(word(&start, 4), 0, &[0; 4][..length])))
                    .unwrap(),
            }
            std::io::copy(&mut (&stream).take(length as u64), &mut std::io::sink()).unwrap();
        }
    });
    address
}
