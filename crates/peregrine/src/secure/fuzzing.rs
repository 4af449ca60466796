//! Fuzz targets for TLS on a connection, and for what the ends of a handshake over packets tell each other.

#![allow(missing_docs)]

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::packets::Parameters;
use super::stream::Sealed;
use super::tls::{self, Client, Server, Wire};
use super::{Identity, KeyError, Trust, TrustedKey};
use crate::device::tcp::Seal as _;
use crate::sys::Parts;
use crate::value::{Space, Window};

/// The largest number of steps of an input.
const STEPS_MAX: usize = 256;

/// Reads any bytes as the parameters of a peer.
///
/// # Panics
/// Panics if parameters that were read differ after they were written and read again.
pub fn parameters(bytes: &[u8]) {
    let Ok(read) = Parameters::from_bytes(bytes) else { return };
    let written = read.to_bytes();
    assert_eq!(Parameters::from_bytes(&written), Ok(read));
    // Reserved fields are written as zeros.
    let same = |(ours, theirs): (&u8, &u8)| ours == theirs || *ours == 0;
    assert!(written.iter().zip(bytes).all(same), "{written:?} was {bytes:?}");
}

/// The TLS of a client and a server that trust each other.
#[derive(Debug)]
pub struct TlsStreams {
    client: Client,
    server: Server,
}

/// One end: its TLS, its socket, and the relay's socket.
struct End {
    tls: Arc<Sealed>,
    socket: UnixStream,
    relay: UnixStream,
    /// The number of plain bytes that this end has sent and received.
    sent: u32,
    received: u32,
    is_broken: bool,
}

/// Returns the plain byte at an offset.
fn pattern(at: u32) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 24) as u8
}

impl End {
    fn new(tls: Sealed) -> io::Result<Self> {
        let (socket, relay) = UnixStream::pair()?;
        for one in [&socket, &relay] {
            one.set_nonblocking(true)?;
        }
        let (sent, received) = (0, 0);
        Ok(Self { tls: Arc::new(tls), socket, relay, sent, received, is_broken: false })
    }

    fn shake(&mut self) {
        if !self.is_broken && self.tls.shake_hands(self.socket.as_fd()).is_err() {
            self.is_broken = true;
        }
    }

    fn send(&mut self, bytes: usize) {
        let plain: Vec<u8> = (0..bytes as u32).map(|at| pattern(self.sent + at)).collect();
        let mut parts = Parts::new();
        parts.push(Window::from(&plain[..]));
        let before = parts.left();
        let _ = self.tls.send(self.socket.as_fd(), &mut parts, false);
        self.sent += (before - parts.left()) as u32;
    }

    /// Receives what has arrived. It must be what `other` has sent.
    fn receive(&mut self, other_sent: u32) {
        let (mut first, mut then) = ([0; 32], [0; 200]);
        let space = Space::of_mut(&mut then);
        let Ok(bytes) = self.tls.receive(self.socket.as_fd(), &mut first, space, false) else {
            return;
        };
        let plain = first.iter().chain(&then).take(bytes);
        for (at, byte) in (self.received..).zip(plain) {
            // The last byte of a message that the socket has not taken in whole is not counted as sent.
            assert!(at <= other_sent, "bytes that no end has sent were received");
            assert_eq!(*byte, pattern(at), "other bytes than were sent were received");
        }
        self.received += bytes as u32;
    }
}

impl TlsStreams {
    /// # Errors
    /// If no key can be made.
    pub fn new() -> Result<Self, KeyError> {
        let (ada, bob) = (Identity::generate()?, Identity::generate()?);
        let of_ada = Trust::of_keys([TrustedKey::new("bob", bob.public_key(), "")?])?;
        let of_bob = Trust::of_keys([TrustedKey::new("ada", ada.public_key(), "")?])?;
        Ok(Self {
            client: tls::client(&ada, &of_ada, "key:bob".parse()?, Wire::Stream),
            server: tls::server(&bob, &of_bob, Wire::Stream),
        })
    }

    /// Passes the bytes of a client and a server on, as an input says: changed, cut, invented, or as they
    /// are.
    ///
    /// # Panics
    /// Panics if an end receives bytes that the other has not sent, or accepts a peer that has no key.
    pub fn take(&self, input: &[u8]) {
        let Some((how, mut input)) = input.split_first() else { return };
        let server = Sealed::server(&self.server, |_| None, [9; 8].into()).expect("TLS begins");
        let mut server = End::new(server).expect("sockets");
        if how & 1 == 0 {
            return strange(&mut server, input);
        }
        let address = [127, 0, 0, 1].into();
        let client = Sealed::client(&self.client, address, |_| None).expect("TLS begins");
        let mut ends = [End::new(client).expect("sockets"), server];
        for _ in 0..STEPS_MAX {
            let Some(([what, low, high], rest)) = input.split_first_chunk() else { return };
            input = rest;
            let number = usize::from(u16::from_le_bytes([*low, *high]));
            let which = usize::from(what >> 7);
            match what & 7 {
                0 => ends[which].shake(),
                1..=3 => {
                    let mut bytes = vec![0; number.clamp(1, 4096)];
                    let Ok(read) = ends[which].relay.read(&mut bytes) else { continue };
                    bytes.truncate(read);
                    if what & 7 == 3
                        && let Some(last) = bytes.last_mut()
                    {
                        *last ^= what >> 3 | 1;
                    }
                    let _ = ends[1 - which].relay.write(&bytes);
                }
                4 => {
                    let (bytes, rest) = input.split_at(number.min(input.len()));
                    input = rest;
                    let _ = ends[which].relay.write(bytes);
                }
                5 => ends[which].send(number % 3000),
                6 => {
                    let sent = ends[1 - which].sent;
                    ends[which].receive(sent);
                }
                _ => ends[which].tls.finish(ends[which].socket.as_fd()),
            }
        }
    }
}

/// Passes bytes to a server that come from no client.
fn strange(server: &mut End, input: &[u8]) {
    for chunk in input.chunks(1024) {
        let _ = server.relay.write(chunk);
        server.shake();
        server.receive(0);
    }
    assert!(server.tls.peer().is_none(), "a peer without a key is accepted");
}
