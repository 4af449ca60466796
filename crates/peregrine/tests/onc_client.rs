//! Tests of clients of ONC RPC against servers that are made by hand on real sockets.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use peregrine::foreign::{Xdr, from_bytes, to_bytes};
use peregrine::{BindOptions, Binding, Executed, Kind, PathKind, Rebind, Wait, interface};

const PROGRAM: u32 = 0x2000_0001;
const VERSION: u32 = 2;
const LONG: Duration = Duration::from_secs(20);

#[interface(onc(program = 0x2000_0001, version = 2))]
trait Store {
    #[onc(1)]
    fn join(&self, words: &[String], by: &str) -> peregrine::Result<String>;
    #[onc(7)]
    fn double(&self, number: u32) -> peregrine::Result<u32>;
    #[onc(9)]
    fn reverse(&self, bytes: Vec<u8>) -> peregrine::Result<Vec<u8>>;
}

#[interface]
trait Ordinary {
    fn nothing(&self) -> peregrine::Result<()>;
}

/// A call as a server reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Received {
    xid: u32,
    procedure: u32,
    credential: (u32, Vec<u8>),
    arguments: Vec<u8>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Reads a call by the rules of RFC 5531, independently of the library.
fn received(message: &[u8]) -> Received {
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
fn reply(xid: u32, status: u32, results: &[u8]) -> Vec<u8> {
    [words(&[xid, 1, 0, 0, 0, status]), results.to_vec()].concat()
}

/// Runs the procedure of a call.
fn results(call: &Received) -> Vec<u8> {
    match call.procedure {
        0 => Vec::new(),
        7 => words(&[2 * word(&call.arguments, 0)]),
        9 => {
            let mut bytes = from_bytes::<Xdr, Vec<u8>>(&call.arguments).unwrap();
            bytes.reverse();
            to_bytes::<Xdr>(&bytes).unwrap()
        }
        other => panic!("procedure {other}"),
    }
}

fn usual(call: &Received) -> Vec<Vec<u8>> {
    vec![reply(call.xid, 0, &results(call))]
}

/// A server that answers each call with some messages. It ends when its client is gone.
#[derive(Clone, Copy, Debug)]
enum Over {
    Udp,
    Tcp,
}

const BOTH: [Over; 2] = [Over::Udp, Over::Tcp];

/// Serves calls until the program ends. `answer` returns the messages to send for each call. Procedure 0 is
/// answered as usual. Returns the address for clients.
fn serve(
    over: Over,
    answer: impl Fn(&Received) -> Vec<Vec<u8>> + Send + Sync + Clone + 'static,
) -> String {
    let answers = move |message: &[u8]| {
        let call = received(message);
        if call.procedure == 0 { usual(&call) } else { answer(&call) }
    };
    match over {
        Over::Udp => {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
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
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
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

fn record(message: &[u8]) -> Vec<u8> {
    [words(&[1 << 31 | message.len() as u32]), message.to_vec()].concat()
}

/// Reads a record, which the client sends as one fragment. Returns `None` at the end of the connection.
fn read_record(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut marker = [0; 4];
    stream.read_exact(&mut marker).ok()?;
    let marker = u32::from_be_bytes(marker);
    assert_ne!(marker >> 31, 0, "the last fragment");
    let mut message = vec![0; (marker & !(1 << 31)) as usize];
    stream.read_exact(&mut message).ok()?;
    Some(message)
}

fn bind(address: &str) -> StoreClient {
    StoreClient::bind(address).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn calls_reach_a_server_and_results_return() {
    for over in BOTH {
        for wait in [Wait::Spin, Wait::Block, Wait::Adaptive] {
            let address = serve(over, usual);
            let options = BindOptions::default().wait(wait);
            let store = StoreClient::bind_with(&address, &options).unwrap();
            assert_eq!(store.double(21).unwrap(), 42);
            assert_eq!(store.reverse(vec![1, 2, 3]).unwrap(), [3, 2, 1]);
            store.binding().ping().unwrap();
            assert!(store.binding().is_alive());
            assert_eq!(store.binding().path().system(), Some(peregrine::foreign::System::Onc));
        }
    }
}
