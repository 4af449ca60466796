//! Hand-written clients and servers of the stream path, which speak the protocol that `docs/PROTOCOL.md`
//! specifies.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

pub(crate) const BIND: u8 = 1;
pub(crate) const CALL: u8 = 4;
pub(crate) const ABANDON: u8 = 5;
pub(crate) const BOUND: u8 = 65;
pub(crate) const REFUSED: u8 = 66;
pub(crate) const REPLY: u8 = 70;

/// How long a test waits for an answer.
const LIMIT: Duration = Duration::from_secs(20);

/// Makes a header. `words` has six words: number, binding, procedure or answer, head, split, extensions.
pub(crate) fn header(kind: u8, body: u32, words: [u32; 6]) -> Vec<u8> {
    let mut bytes = body.to_le_bytes().to_vec();
    bytes.extend([kind, 1, b'P', b'g']);
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

/// Makes a bind request with number 7. It asks for the export with this name, whatever the interface of the
/// export is.
pub(crate) fn bind(name: &str) -> Vec<u8> {
    let mut body = vec![0; 16];
    body.extend([0u32, 1].iter().flat_map(|word| word.to_le_bytes()));
    body.extend((1u64 << 20).to_le_bytes());
    body.extend([8u32, 1, name.len() as u32].iter().flat_map(|word| word.to_le_bytes()));
    body.extend(name.as_bytes());
    let mut message = header(BIND, body.len() as u32, [7, 0, 0, 0, 0, 0]);
    message.extend(&body);
    message.resize(message.len().next_multiple_of(16), 0);
    message
}

/// Makes a call without arguments, with these extensions.
pub(crate) fn call(binding: u32, number: u32, procedure: u32, extensions: &[u8]) -> Vec<u8> {
    let mut message = header(CALL, 0, [number, binding, procedure, 0, 0, extensions.len() as u32]);
    message.extend(extensions);
    message.resize(message.len().next_multiple_of(16), 0);
    message
}

/// Makes the message with which a client gives up the call with this number.
pub(crate) fn abandon(number: u32) -> Vec<u8> {
    header(ABANDON, 0, [number, 0, 0, 0, 0, 0])
}

/// Makes the answer to the bind request `asked`. The answer grants binding 5 and messages of `bytes` bytes.
/// It announces that the server's values have the representation `representation`.
pub(crate) fn bound(asked: &Message, representation: u32, bytes: u64) -> Vec<u8> {
    let mut body = 1u64.to_le_bytes().to_vec();
    body.extend([5, representation].iter().flat_map(|word| word.to_le_bytes()));
    body.extend(bytes.to_le_bytes());
    body.extend(8u32.to_le_bytes());
    let mut message = header(BOUND, body.len() as u32, [asked.words[0], 0, 0, 0, 0, 0]);
    message.extend(&body);
    message.resize(message.len().next_multiple_of(16), 0);
    message
}

/// The size in bytes of a large argument. The buffers of a connection to a server of [`reads_a_part`] cannot
/// hold all of it.
pub(crate) const UNREAD: usize = 24 << 20;

/// Starts a server that binds one client, and reads only the beginning of the client's call. Then the server
/// passes the connection to `then`. Returns the address at which the server listens.
pub(crate) fn reads_a_part(then: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Accepted sockets inherit this small buffer size. The kernel rounds the size up.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let asked = receive(&mut stream).unwrap();
        stream.write_all(&bound(&asked, 1, 72 << 20)).unwrap();
        stream.read_exact(&mut [0; 64]).unwrap();
        then(stream);
    });
    at
}

/// A received message.
pub(crate) struct Message {
    pub(crate) kind: u8,
    pub(crate) words: [u32; 6],
    pub(crate) body: Vec<u8>,
}

/// Returns the next message. Returns `None` if the message does not arrive in time.
pub(crate) fn receive(stream: &mut TcpStream) -> Option<Message> {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut header = [0; 32];
    stream.read_exact(&mut header).ok()?;
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
    let mut body = vec![0; (word(0) as usize).next_multiple_of(16)];
    stream.read_exact(&mut body).ok()?;
    body.truncate(word(0) as usize);
    let words = [8, 12, 16, 20, 24, 28].map(word);
    Some(Message { kind: header[4], words, body })
}
