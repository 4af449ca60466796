//! TLS on one TCP connection: the [`Seal`] of its stream.
//!
//! A lock protects the state of TLS. A thread encrypts and writes to the socket while it holds the lock, and
//! never blocks there. So records are sent in the order in which they were encrypted, and the thread that
//! receives can send what TLS itself has to say: the handshake, alerts and session tickets. The thread that
//! receives waits for ciphertext without the lock.

use core::sync::atomic::{AtomicBool, Ordering};
use std::io::{self, BufRead as _, IoSlice, Write as _};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use rustls::{ClientConnection, Connection, ServerConnection};

use super::peer::Peer;
use super::refusal::Refusal;
use super::tls::{Client, Server};
use crate::device::tcp::{Seal, WaitFor};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::Parts;
use crate::value::{Space, Window};

/// The largest number of bytes that are encrypted before they are written to the socket.
const SENT_AT_ONCE: usize = 64 << 10;
/// What may be encrypted after the socket had space, until this is checked again. A socket that has space has
/// at least a third of its buffer free, and a buffer has at least 16 KiB unless the system is set otherwise.
const SPACE: usize = 4 << 10;
/// What each message takes of [`SPACE`] besides its bytes.
const MESSAGE_COST: usize = 256;
/// Larger memory for plaintext is released after each message.
const PLAINTEXT_KEPT: usize = 4 << 10;
/// The number of bytes of ciphertext to receive at once: the largest record of TLS 1.3 (RFC 8446, 5.2).
const RECEIVED_AT_ONCE: usize = 5 + (16 << 10) + 256;
/// How often a thread receives ciphertext without any plaintext before it returns to its caller. A peer that
/// sends single bytes could keep the thread here otherwise.
const RECEIVES_MAX: usize = 4;

/// Recognizes a peer that does not use TLS by its first bytes. Returns what the peer speaks instead.
pub(crate) type Recognize = fn(&[u8]) -> Option<String>;

/// TLS on one connection.
pub(crate) struct Sealed {
    tls: Mutex<Tls>,
    /// Only the thread that receives takes this lock.
    input: Mutex<Input>,
    /// Whether bytes were received that no thread has taken yet.
    holds: AtomicBool,
    /// The other side, as soon as it is accepted.
    peer: OnceLock<Peer>,
}

/// Which end of the connection this is.
enum Side {
    Client(Client),
    Server {
        server: Server,
        /// What a peer gets that does not use TLS.
        answer: Box<[u8]>,
    },
}

struct Tls {
    connection: Connection,
    side: Side,
    recognize: Recognize,
    /// Whether bytes of the peer have arrived.
    has_heard: bool,
    /// Whether the peer has said that no more bytes follow.
    has_closed: bool,
    /// Memory for plaintext that is about to be encrypted.
    plaintext: Vec<u8>,
    /// Whether the last byte of the caller's message that was encrypted has not been reported as sent.
    owes_byte: bool,
    /// What is left of [`SPACE`].
    space: usize,
    /// Why the connection can transport nothing any more.
    failed: Option<Refusal>,
}

/// Ciphertext that was received. The bytes at `from..to` have not been decrypted yet.
#[derive(Default)]
struct Input {
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
}

/// Writes to a socket without blocking.
struct Writer<'a> {
    socket: BorrowedFd<'a>,
    more: bool,
}

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, self.more);
        Ok(sendmsg(self.socket, bytes, &mut SendAncillaryBuffer::default(), flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether the socket has space for a good part of its buffer. If not, nothing is encrypted: a record
/// must be sent once it is encrypted, and a message that has not begun can still be given up.
fn has_space(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut one = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
    poll(&mut one, Some(&Timespec::default()))?;
    Ok(!one[0].revents().is_empty())
}

fn failed(refusal: Refusal) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, refusal)
}

impl Sealed {
    /// Returns the client's end of a connection to a server at an address. `recognize` recognizes a server
    /// that does not use TLS.
    pub(crate) fn client(
        client: &Client,
        address: IpAddr,
        recognize: Recognize,
    ) -> Result<Self, Refusal> {
        let connection = ClientConnection::new(Arc::clone(&client.config), client.name(address));
        let connection = connection.map_err(|error| client.refusal(&error))?;
        Ok(Self::new(connection.into(), Side::Client(client.clone()), recognize))
    }

    /// Returns the server's end of a connection. `recognize` recognizes a client that does not use TLS. Such
    /// a client gets `answer`.
    pub(crate) fn server(
        server: &Server,
        recognize: Recognize,
        answer: Box<[u8]>,
    ) -> Result<Self, Refusal> {
        let connection = ServerConnection::new(Arc::clone(&server.config));
        let connection = connection.map_err(|error| server.refusal(&error))?;
        let side = Side::Server { server: server.clone(), answer };
        Ok(Self::new(connection.into(), side, recognize))
    }

    fn new(mut connection: Connection, side: Side, recognize: Recognize) -> Self {
        // `send` bounds what is encrypted.
        connection.set_buffer_limit(None);
        let tls = Tls {
            connection,
            side,
            recognize,
            has_heard: false,
            has_closed: false,
            plaintext: Vec::new(),
            owes_byte: false,
            space: 0,
            failed: None,
        };
        Self {
            tls: Mutex::ranked(Rank::Tls, tls),
            input: Mutex::ranked(Rank::Ciphertext, Input::default()),
            holds: AtomicBool::new(false),
            peer: OnceLock::new(),
        }
    }

    #[track_caller]
    fn tls(&self) -> MutexGuard<'_, Tls> {
        self.tls.lock()
    }

    /// Returns the other side. `None` until the handshake has ended, and if the other side is refused.
    pub(crate) fn peer(&self) -> Option<&Peer> {
        self.peer.get()
    }

    /// Returns why the connection can transport nothing any more, if so.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.tls().failed.clone()
    }

    /// Continues the handshake as far as this is possible without waiting. Returns what to wait for, or
    /// `None` when the handshake has ended and the other side is accepted.
    ///
    /// # Errors
    /// As [`Seal::receive`], and [`io::ErrorKind::UnexpectedEof`] if the connection ends.
    pub(crate) fn shake_hands(&self, socket: BorrowedFd<'_>) -> io::Result<Option<WaitFor>> {
        let mut input = self.input.lock();
        let mut tls = self.tls();
        loop {
            match tls.flush(socket, false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Some(WaitFor::Writable));
                }
                flushed => flushed?,
            }
            if self.peer.get().is_some() {
                return Ok(None);
            }
            if input.is_empty() {
                match input.receive(socket, false) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Ok(Some(WaitFor::Readable));
                    }
                    Err(error) => return Err(error),
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) => {}
                }
            }
            tls.decrypt(&mut input, socket, &self.peer);
            // The first bytes of the server's protocol may have arrived with the end of the handshake.
            self.holds.store(true, Ordering::SeqCst);
            if let Some(refusal) = &tls.failed {
                return Err(failed(refusal.clone()));
            }
        }
    }
}

impl Input {
    const fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// Receives ciphertext. All bytes that were received earlier must have been decrypted.
    fn receive(&mut self, socket: BorrowedFd<'_>, wait: bool) -> io::Result<usize> {
        if self.buffer.is_empty() {
            self.buffer = vec![0; RECEIVED_AT_ONCE].into();
        }
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let (_, bytes) = recv(socket, &mut *self.buffer, flags)?;
        (self.from, self.to) = (0, bytes);
        Ok(bytes)
    }
}

impl Tls {
    /// Writes the ciphertext that is left.
    fn flush(&mut self, socket: BorrowedFd<'_>, more: bool) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Writer { socket, more }) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns whether the socket has space for a message of `bytes` bytes. A small message uses the space
    /// that was found for an earlier one, without a system call. If the socket is full in spite of that, the
    /// encrypted message waits like the rest of a large one.
    fn has_space(&mut self, socket: BorrowedFd<'_>, bytes: usize) -> io::Result<bool> {
        let cost = bytes.saturating_add(MESSAGE_COST);
        if cost > self.space {
            if !has_space(socket)? {
                return Ok(false);
            }
            self.space = SPACE;
        }
        self.space = self.space.saturating_sub(cost);
        Ok(true)
    }

    /// Encrypts the first bytes of `parts`. Returns their number.
    fn encrypt(&mut self, parts: &Parts<'_>) -> io::Result<usize> {
        let bytes = parts.left().min(SENT_AT_ONCE);
        self.plaintext.resize(bytes, 0);
        let bytes = parts.copy_to(&mut self.plaintext);
        let taken = self.connection.writer().write(&self.plaintext[..bytes])?;
        if self.plaintext.capacity() > PLAINTEXT_KEPT {
            self.plaintext = Vec::new();
        }
        Ok(taken)
    }

    /// Decrypts the next bytes of `input`. Sends what TLS has to answer. If the peer is refused or the bytes
    /// are not valid, sets `failed`.
    fn decrypt(&mut self, input: &mut Input, socket: BorrowedFd<'_>, peer: &OnceLock<Peer>) {
        let mut bytes = &input.buffer[input.from..input.to];
        if !core::mem::replace(&mut self.has_heard, true)
            && let Some(why) = (self.recognize)(bytes)
        {
            if let Side::Server { answer, .. } = &self.side {
                // The socket is new, so it has space. If it has none, the client only learns less.
                let _ = Writer { socket, more: false }.write(answer);
            }
            input.from = input.to;
            self.failed = Some(Refusal::OtherProtocol { why });
            return;
        }
        let read = self.connection.read_tls(&mut bytes);
        input.from = input.to - bytes.len();
        if let Err(error) = read {
            return self.fail(Refusal::Broken { why: error.to_string() }, socket, input);
        }
        match self.connection.process_new_packets() {
            Ok(state) => self.has_closed = state.peer_has_closed(),
            Err(error) => {
                let refusal = match &self.side {
                    Side::Client(client) => client.refusal(&error),
                    Side::Server { server, .. } => server.refusal(&error),
                };
                return self.fail(refusal, socket, input);
            }
        }
        if peer.get().is_none() && !self.connection.is_handshaking() {
            let found = match &self.side {
                Side::Client(client) => client.peer(&self.connection),
                Side::Server { server, .. } => server.peer(&self.connection),
            };
            match found {
                Ok(found) => drop(peer.set(found)),
                Err(refusal) => {
                    self.connection.send_close_notify();
                    return self.fail(refusal, socket, input);
                }
            }
        }
        if !self.connection.wants_write() {
            return;
        }
        // If the socket is full, the next message sends the rest. Only the server's part of the handshake is
        // followed by no message. A new socket has space for it.
        let is_full = self.flush(socket, false).is_err();
        if is_full && self.connection.is_handshaking() && matches!(self.side, Side::Server { .. }) {
            let why = "the client does not read the handshake".to_owned();
            self.fail(Refusal::Broken { why }, socket, input);
        }
    }

    fn fail(&mut self, refusal: Refusal, socket: BorrowedFd<'_>, input: &mut Input) {
        // The alert says the reason to the peer.
        let _ = self.flush(socket, false);
        input.from = input.to;
        self.failed = Some(refusal);
    }

    /// Takes decrypted bytes. Returns their number, and whether more are left.
    fn take(&mut self, first: &mut [u8], then: Space<'_>) -> (usize, bool) {
        let (mut at, room) = (0, first.len() + then.len());
        let mut reader = self.connection.reader();
        while let Ok(chunk) = reader.fill_buf()
            && !chunk.is_empty()
        {
            if at == room {
                return (at, true);
            }
            let bytes = if at < first.len() {
                let bytes = chunk.len().min(first.len() - at);
                first[at..at + bytes].copy_from_slice(&chunk[..bytes]);
                bytes
            } else {
                let bytes = chunk.len().min(room - at);
                then.range(at - first.len(), bytes).copy_from(Window::from(&chunk[..bytes]));
                bytes
            };
            reader.consume(bytes);
            at += bytes;
        }
        (at, false)
    }
}

impl Seal for Sealed {
    fn send(&self, socket: BorrowedFd<'_>, parts: &mut Parts<'_>, more: bool) -> io::Result<()> {
        let mut tls = self.tls();
        if let Some(refusal) = &tls.failed {
            return Err(failed(refusal.clone()));
        }
        if self.peer.get().is_none() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        tls.flush(socket, more)?;
        let owed = core::mem::take(&mut tls.owes_byte);
        if owed {
            parts.advance(1);
        }
        if parts.is_empty() {
            return Ok(());
        }
        if !tls.has_space(socket, parts.left())? {
            return if owed { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let bytes = tls.encrypt(parts)?;
        let follows = more || bytes < parts.left();
        match tls.flush(socket, follows) {
            Ok(()) => parts.advance(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && bytes > 0 => {
                parts.advance(bytes - 1);
                (tls.owes_byte, tls.space) = (true, 0);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn receive(
        &self,
        socket: BorrowedFd<'_>,
        first: &mut [u8],
        then: Space<'_>,
        wait: bool,
    ) -> io::Result<usize> {
        let mut input = match wait {
            true => self.input.lock(),
            false => self.input.try_lock().ok_or(io::ErrorKind::WouldBlock)?,
        };
        let mut receives = 0;
        loop {
            let mut tls = self.tls();
            loop {
                let (taken, more) = tls.take(first, then);
                if taken > 0 || more {
                    self.holds.store(more || !input.is_empty(), Ordering::SeqCst);
                    return Ok(taken);
                }
                if let Some(refusal) = &tls.failed {
                    self.holds.store(false, Ordering::SeqCst);
                    return Err(failed(refusal.clone()));
                }
                if tls.has_closed {
                    self.holds.store(false, Ordering::SeqCst);
                    return Ok(0);
                }
                if input.is_empty() {
                    break;
                }
                tls.decrypt(&mut input, socket, &self.peer);
            }
            drop(tls);
            self.holds.store(false, Ordering::SeqCst);
            if receives == RECEIVES_MAX {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            receives += 1;
            if input.receive(socket, wait)? == 0 {
                return Ok(0);
            }
        }
    }

    fn holds_received(&self) -> bool {
        self.holds.load(Ordering::SeqCst)
    }

    fn finish(&self, socket: BorrowedFd<'_>) {
        let mut tls = self.tls();
        tls.connection.send_close_notify();
        // Without space, the peer sees the end of the connection only.
        let _ = tls.flush(socket, false);
    }
}
