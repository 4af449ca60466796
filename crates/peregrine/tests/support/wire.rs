//! The parts of a hand-written peer of the local path: its sockets, its messages and the shared region. They
//! follow the protocol that `docs/PROTOCOL.md` specifies.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use peregrine::sys::{self, Memory};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

pub(crate) const MAGIC: u32 = 0x5052_4701;
pub(crate) const VERSION: u32 = 4;
pub(crate) const BIND: u32 = 1;
pub(crate) const DESCRIBE: u32 = 2;
pub(crate) const RING: u32 = 3;
pub(crate) const UNBIND: u32 = 4;
pub(crate) const COUNT: u32 = 5;
pub(crate) const HEALTH: u32 = 6;
pub(crate) const BOUND: u32 = 101;
pub(crate) const REFUSED: u32 = 102;
pub(crate) const DESCRIPTION: u32 = 103;
pub(crate) const GOODBYE: u32 = 104;
pub(crate) const REVOKED: u32 = 105;
pub(crate) const COUNTERS: u32 = 106;
/// The number of the procedure that does nothing. Every export has this procedure.
pub(crate) const PING: u32 = u32::MAX;
/// How long a test waits for an answer.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

pub(crate) type Token = [u8; 16];

/// One end of a session's socket. The socket never blocks: instead, sending and receiving fail with
/// `WouldBlock`.
#[derive(Debug)]
pub(crate) struct Line(pub(crate) OwnedFd);

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Listens under a name in the runtime directory, as a server does.
pub(crate) fn listen(directory: &Path, name: &str) -> Line {
    let socket = socket().expect("a socket");
    let address = SocketAddrUnix::new(directory.join(name)).expect("a short path");
    rustix::net::bind(&socket, &address).expect("a free name");
    rustix::net::listen(&socket, 64).expect("the socket listens");
    Line(socket)
}

impl Line {
    /// Connects to the server with this name. Waits while the server's backlog is full.
    pub(crate) fn connect(directory: &Path, name: &str) -> io::Result<Self> {
        let socket = socket()?;
        let address = SocketAddrUnix::new(directory.join(name))?;
        let until = Instant::now() + LIMIT;
        loop {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => return Ok(Self(socket)),
                Err(rustix::io::Errno::AGAIN) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) fn accept(&self) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Self(rustix::net::accept_with(&self.0, flags)?))
    }

    pub(crate) fn send(&self, message: &[u8]) -> io::Result<()> {
        self.send_with(message, &[])
    }

    /// Sends a message with descriptors. The kernel accepts at most 253 descriptors.
    pub(crate) fn send_with(&self, message: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.0, &[io::IoSlice::new(message)], &mut ancillary, flags)?;
        Ok(())
    }

    /// Receives a message and its descriptors. An empty message means that the other side has closed the
    /// socket.
    pub(crate) fn receive(&self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut buffer = vec![0; 1 << 16];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let slices = &mut [io::IoSliceMut::new(&mut buffer)];
        let message = rustix::net::recvmsg(&self.0, slices, &mut ancillary, flags)?;
        let mut files = Vec::new();
        for one in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = one {
                files.extend(received);
            }
        }
        buffer.truncate(message.bytes);
        Ok((buffer, files))
    }

    /// Waits at most [`LIMIT`] for a message. An empty message means that the other side has closed or reset
    /// the socket.
    pub(crate) fn answer(&self) -> (Vec<u8>, Vec<OwnedFd>) {
        self.answer_within(LIMIT).expect("the answer comes in time")
    }

    pub(crate) fn answer_within(&self, limit: Duration) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            let left = rustix::time::Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&left));
            match self.receive() {
                Ok(heard) => return Some(heard),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Messages that the other side sent before the reset can still be read.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Some(self.receive().unwrap_or_default());
                }
                Err(_) => return Some((Vec::new(), Vec::new())),
            }
        }
        None
    }

    /// Sends a request and waits for the answer.
    pub(crate) fn ask(&self, request: &[u8]) -> (Vec<u8>, Vec<OwnedFd>) {
        // If the server has closed the socket meanwhile, the server's last message says why.
        let _ = self.send(request);
        self.answer()
    }

    /// Receives messages until the other side closes the socket. Returns all messages.
    pub(crate) fn receive_all(&self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let until = Instant::now() + LIMIT;
        while Instant::now() < until {
            let (message, _) = self.answer();
            if message.is_empty() {
                return all;
            }
            all.push(message);
        }
        panic!("the other side keeps sending");
    }

    /// Returns whether the other side keeps the socket open and has sent nothing that is still unread.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.receive(), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Returns the word at byte `at` of a message.
pub(crate) fn word(message: &[u8], at: usize) -> u32 {
    let bytes = message.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(u32::MAX, u32::from_ne_bytes)
}

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Makes a request of kind `kind` with one more word, `number`.
pub(crate) fn request(kind: u32, number: u32) -> Vec<u8> {
    words(&[MAGIC, VERSION, kind, number])
}

pub(crate) fn describe() -> Vec<u8> {
    words(&[MAGIC, VERSION, DESCRIBE])
}

/// Makes a bind request for any interface.
pub(crate) fn bind(count: u32, bytes: u64, tokens: &[Token]) -> Vec<u8> {
    let mut message = words(&[MAGIC, VERSION, BIND]);
    // The first zero says that the request contains no digest. The other zeros are padding before `count` and
    // `bytes`.
    message.extend([0; 4]);
    message.extend(words(&[count, 0]));
    message.extend(bytes.to_ne_bytes());
    message.extend(words(&[tokens.len() as u32]));
    tokens.iter().for_each(|token| message.extend(token));
    message
}

/// Makes a server's answer to a bind request.
pub(crate) fn bound(token: Token, binding: u32, count: u32, bytes: u64) -> Vec<u8> {
    let mut message = words(&[BOUND, VERSION, 7, 7]);
    message.extend(token);
    message.extend(words(&[binding, count]));
    message.extend(bytes.to_ne_bytes());
    message.extend(words(&[peregrine::value::ByteOrder::NATIVE.number()]));
    message
}

/// A session that a test has established without the library.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) line: Line,
    pub(crate) region: Region,
    pub(crate) token: Token,
    pub(crate) binding: u32,
    /// The number of the last call on each A-stack.
    sequence: Vec<u32>,
}

impl Session {
    /// Connects to a server, and makes a binding in a new session.
    pub(crate) fn new(directory: &Path, name: &str, count: u32) -> io::Result<Self> {
        let line = Line::connect(directory, name)?;
        line.send(&bind(count, 4096, &[]))?;
        let (answer, files) =
            line.answer_within(LIMIT).ok_or(io::Error::from(io::ErrorKind::TimedOut))?;
        Self::of_answer(line, &answer, &files).ok_or_else(|| io::Error::other("refused"))
    }

    pub(crate) fn of_answer(line: Line, answer: &[u8], files: &[OwnedFd]) -> Option<Self> {
        if word(answer, 0) != BOUND {
            return None;
        }
        let (binding, count) = (word(answer, 32), word(answer, 36));
        let bytes = u64::from_ne_bytes(answer.get(40..48)?.try_into().ok()?);
        let region = Region::of(files.first()?.as_fd(), count, bytes as usize)?;
        let token = answer.get(16..32)?.try_into().ok()?;
        Some(Self { line, region, token, binding, sequence: vec![0; count as usize] })
    }

    /// Posts a call without arguments on an A-stack, and notifies the server. Returns the word that was
    /// posted.
    pub(crate) fn post(&mut self, astack: u32, procedure: u32) -> u32 {
        self.post_extended(astack, procedure, &[])
    }

    /// Does the same as [`post`](Self::post), but with extensions.
    pub(crate) fn post_extended(&mut self, astack: u32, procedure: u32, extensions: &[u8]) -> u32 {
        let space = &self.region.memory;
        space.write(self.region.call(astack) + 32, extensions).expect("the region is large enough");
        self.post_header(astack, &[procedure, 0, 0, 0, u32::MAX, extensions.len() as u32])
    }

    /// Posts a call whose message is still being written. Announces that the first `there` bytes of the
    /// message are written. `head` is the head of the message. The header announces `copied` bytes before the
    /// lent blocks, and `total` bytes for the whole message.
    pub(crate) fn post_arriving(
        &mut self,
        astack: u32,
        procedure: u32,
        head: &[u32],
        copied: u32,
        total: u32,
        there: u32,
    ) -> u32 {
        let (space, head) = (&self.region.memory, words(head));
        space.write(self.region.call(astack) + 32, &head).expect("the region is large enough");
        let [progress, _] = self.region.progress(astack);
        self.region.word(progress).store(there, Ordering::Release);
        self.post_header(astack, &[procedure, head.len() as u32, copied, total, u32::MAX, 1 << 15])
    }

    /// Posts a call whose message the test has already written to the A-stack. `header` has the words that
    /// follow the number of the binding. If no thread of the server waits at the A-stack, sends `RING` to the
    /// server. Otherwise wakes the thread.
    pub(crate) fn post_header(&mut self, astack: u32, header: &[u32; 6]) -> u32 {
        let sequence = &mut self.sequence[astack as usize];
        *sequence += 1;
        let message = *sequence << 3 | 1;
        let call = self.region.call(astack);
        let space = &self.region.memory;
        space.write(call + 4, &words(&[self.binding])).expect("the region is large enough");
        space.write(call + 8, &words(header)).expect("the region is large enough");
        let before = self.region.memory.word(call).swap(message, Ordering::AcqRel);
        if before == 0 {
            let _ = self.line.send(&request(RING, astack));
        } else {
            sys::futex_wake(self.region.memory.word(call));
        }
        message
    }

    /// Restarts the call numbers of an A-stack, as a faulty client might.
    pub(crate) fn restart_numbers(&mut self, astack: u32) {
        self.sequence[astack as usize] = 0;
    }

    /// Calls the procedure that does nothing. Returns its answer, or `None` after `limit`.
    pub(crate) fn ping(&mut self, astack: u32, limit: Duration) -> Option<u32> {
        let message = self.post(astack, PING);
        self.reply_to(message, astack, limit)
    }

    /// Returns the answer to the call whose posted word is `message`, or `None` after `limit`.
    pub(crate) fn reply_to(&self, message: u32, astack: u32, limit: Duration) -> Option<u32> {
        let reply = self.region.reply(astack);
        let until = Instant::now() + limit;
        let mut rung = Instant::now();
        while self.region.memory.word(reply).load(Ordering::Acquire) != message {
            if Instant::now() >= until {
                return None;
            }
            if rung.elapsed() > Duration::from_millis(20) {
                // A client sends `RING` again if the server does not take its call.
                let _ = self.line.send(&request(RING, astack));
                rung = Instant::now();
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Some(self.region.word(reply + 4).load(Ordering::Relaxed))
    }
}

/// The shared memory of a session, and the offsets in this memory.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) memory: Memory,
    pub(crate) count: u32,
    pub(crate) bytes: usize,
    half: usize,
}

/// Returns the size in bytes of one direction (call or reply) of an A-stack. It has space for a header, for a
/// message, and for 2 MiB more, because large messages begin at different offsets.
const fn half(bytes: usize) -> usize {
    (bytes + (2 << 20) + 32).next_multiple_of(128)
}

/// Returns the size in bytes of a region of `count` A-stacks with `bytes` bytes in each direction.
pub(crate) const fn region_bytes(count: u32, bytes: usize) -> usize {
    (4096 + count as usize * (2 * half(bytes) + 384)).next_multiple_of(4096)
}

impl Region {
    fn of(file: BorrowedFd<'_>, count: u32, bytes: usize) -> Option<Self> {
        let memory = Memory::received(file, region_bytes(count, bytes)).ok()?;
        Some(Self { memory, count, bytes, half: half(bytes) })
    }

    /// Makes a region that a server sends to its client.
    pub(crate) fn new(count: u32, bytes: usize) -> (Self, OwnedFd) {
        let (memory, file) = Memory::shared(region_bytes(count, bytes)).expect("memory");
        (Self { memory, count, bytes, half: half(bytes) }, file)
    }

    /// Returns the offset of the call word of an A-stack.
    pub(crate) const fn call(&self, astack: u32) -> usize {
        4096 + astack as usize * (2 * self.half + 384)
    }

    pub(crate) const fn reply(&self, astack: u32) -> usize {
        self.call(astack) + self.half
    }

    pub(crate) const fn taken(&self, astack: u32) -> usize {
        self.call(astack) + 2 * self.half
    }

    /// Returns the offsets of the words that say how many bytes of the call and of the reply are written.
    pub(crate) const fn progress(&self, astack: u32) -> [usize; 2] {
        [self.taken(astack) + 128, self.taken(astack) + 256]
    }

    /// Returns the offset of the word that says which call was given up.
    pub(crate) const fn given_up(&self, astack: u32) -> usize {
        self.taken(astack) + 132
    }

    pub(crate) fn word(&self, at: usize) -> &AtomicU32 {
        self.memory.word(at)
    }
}
