//! The local path by hand, as `docs/PROTOCOL.md` has it: sockets, messages, the region.

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
pub(crate) const BOUND: u32 = 101;
pub(crate) const REFUSED: u32 = 102;
pub(crate) const DESCRIPTION: u32 = 103;
pub(crate) const GOODBYE: u32 = 104;
pub(crate) const REVOKED: u32 = 105;
pub(crate) const COUNTERS: u32 = 106;
/// The procedure that every export has.
pub(crate) const PING: u32 = u32::MAX;
/// What a test waits for an answer.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

pub(crate) type Token = [u8; 16];

/// One end of a session's socket. Sends and receives at once, or says that it cannot.
#[derive(Debug)]
pub(crate) struct Line(pub(crate) OwnedFd);

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Listens under a name, as a server does.
pub(crate) fn listen(directory: &Path, name: &str) -> Line {
    let socket = socket().expect("a socket");
    let address = SocketAddrUnix::new(directory.join(name)).expect("a short path");
    rustix::net::bind(&socket, &address).expect("a free name");
    rustix::net::listen(&socket, 64).expect("a socket that listens");
    Line(socket)
}

impl Line {
    /// Connects to a name; a full backlog is waited for.
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

    pub(crate) fn say(&self, message: &[u8]) -> io::Result<()> {
        self.say_with(message, &[])
    }

    /// Says something with as many descriptors as the kernel takes at once (253).
    pub(crate) fn say_with(&self, message: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.0, &[io::IoSlice::new(message)], &mut ancillary, flags)?;
        Ok(())
    }

    /// The next message, and what came with it; no bytes if the other side has closed.
    pub(crate) fn hear(&self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
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

    /// The next message within [`LIMIT`]; no bytes if the other side has closed, however it did.
    pub(crate) fn answer(&self) -> (Vec<u8>, Vec<OwnedFd>) {
        self.answer_within(LIMIT).expect("an answer in time")
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
            match self.hear() {
                Ok(heard) => return Some(heard),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // What was said before a reset is still there.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Some(self.hear().unwrap_or_default());
                }
                Err(_) => return Some((Vec::new(), Vec::new())),
            }
        }
        None
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&self, request: &[u8]) -> (Vec<u8>, Vec<OwnedFd>) {
        // Who closed meanwhile has said why.
        let _ = self.say(request);
        self.answer()
    }

    /// Waits until the other side has closed; what it said until then.
    pub(crate) fn hear_out(&self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let until = Instant::now() + LIMIT;
        while Instant::now() < until {
            let (message, _) = self.answer();
            if message.is_empty() {
                return all;
            }
            all.push(message);
        }
        panic!("the other side talks on and on");
    }

    /// Whether the other side holds the line.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.hear(), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// The word at byte `at` of a message.
pub(crate) fn word(message: &[u8], at: usize) -> u32 {
    let bytes = message.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(u32::MAX, u32::from_ne_bytes)
}

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A request of one more word.
pub(crate) fn request(kind: u32, number: u32) -> Vec<u8> {
    words(&[MAGIC, VERSION, kind, number])
}

pub(crate) fn describe() -> Vec<u8> {
    words(&[MAGIC, VERSION, DESCRIBE])
}

/// A request to bind to whatever is there.
pub(crate) fn bind(count: u32, bytes: u64, tokens: &[Token]) -> Vec<u8> {
    let mut message = words(&[MAGIC, VERSION, BIND]);
    // No digest; padding up to the count, and from there to the bytes.
    message.extend([0; 4]);
    message.extend(words(&[count, 0]));
    message.extend(bytes.to_ne_bytes());
    message.extend(words(&[tokens.len() as u32]));
    tokens.iter().for_each(|token| message.extend(token));
    message
}

/// What a server says to a bind.
pub(crate) fn bound(token: Token, binding: u32, count: u32, bytes: u64) -> Vec<u8> {
    let mut message = words(&[BOUND, VERSION, 7, 7]);
    message.extend(token);
    message.extend(words(&[binding, count]));
    message.extend(bytes.to_ne_bytes());
    message.extend(words(&[peregrine::value::ByteOrder::NATIVE.number()]));
    message
}

/// A session that was made by hand.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) line: Line,
    pub(crate) region: Region,
    pub(crate) token: Token,
    pub(crate) binding: u32,
    /// The last call on each A-stack.
    sequence: Vec<u32>,
}

impl Session {
    /// Connects and binds in a new session.
    pub(crate) fn new(directory: &Path, name: &str, count: u32) -> io::Result<Self> {
        let line = Line::connect(directory, name)?;
        line.say(&bind(count, 4096, &[]))?;
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

    /// Posts a call without arguments on an A-stack, and rings.
    pub(crate) fn post(&mut self, astack: u32, procedure: u32) -> u32 {
        self.post_extended(astack, procedure, &[])
    }

    /// The same with extensions.
    pub(crate) fn post_extended(&mut self, astack: u32, procedure: u32, extensions: &[u8]) -> u32 {
        let space = &self.region.memory;
        space.write(self.region.call(astack) + 32, extensions).expect("inside");
        self.post_header(astack, &[procedure, 0, 0, 0, u32::MAX, extensions.len() as u32])
    }

    /// Posts a call of which `there` bytes are in place, with this head and these lengths.
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
        space.write(self.region.call(astack) + 32, &head).expect("inside");
        let [progress, _] = self.region.progress(astack);
        self.region.word(progress).store(there, Ordering::Release);
        self.post_header(astack, &[procedure, head.len() as u32, copied, total, u32::MAX, 1 << 15])
    }

    /// Posts a call whose message is in place, with this header behind the binding, and rings.
    pub(crate) fn post_header(&mut self, astack: u32, header: &[u32; 6]) -> u32 {
        let sequence = &mut self.sequence[astack as usize];
        *sequence += 1;
        let message = *sequence << 3 | 1;
        let call = self.region.call(astack);
        let space = &self.region.memory;
        space.write(call + 4, &words(&[self.binding])).expect("inside");
        space.write(call + 8, &words(header)).expect("inside");
        let before = self.region.memory.word(call).swap(message, Ordering::AcqRel);
        if before == 0 {
            let _ = self.line.say(&request(RING, astack));
        } else {
            sys::futex_wake(self.region.memory.word(call));
        }
        message
    }

    /// The next call on an A-stack has the number of the first one.
    pub(crate) fn begin_anew(&mut self, astack: u32) {
        self.sequence[astack as usize] = 0;
    }

    /// Calls the procedure that does nothing; its answer, if there is one in time.
    pub(crate) fn ping(&mut self, astack: u32, limit: Duration) -> Option<u32> {
        let message = self.post(astack, PING);
        self.reply_to(message, astack, limit)
    }

    /// What a call is answered, if it is in time.
    pub(crate) fn reply_to(&self, message: u32, astack: u32, limit: Duration) -> Option<u32> {
        let reply = self.region.reply(astack);
        let until = Instant::now() + limit;
        let mut rung = Instant::now();
        while self.region.memory.word(reply).load(Ordering::Acquire) != message {
            if Instant::now() >= until {
                return None;
            }
            if rung.elapsed() > Duration::from_millis(20) {
                // As a client that nobody has seen does.
                let _ = self.line.say(&request(RING, astack));
                rung = Instant::now();
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Some(self.region.word(reply + 4).load(Ordering::Relaxed))
    }
}

/// The memory of a session, and where things lie in it.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) memory: Memory,
    pub(crate) count: u32,
    pub(crate) bytes: usize,
    half: usize,
}

/// Bytes of a line's header and of the space behind it: of a message, and of room for places.
const fn half(bytes: usize) -> usize {
    (bytes + (2 << 20) + 32).next_multiple_of(128)
}

/// Bytes of a region of so many A-stacks of so many bytes each way.
pub(crate) const fn region_bytes(count: u32, bytes: usize) -> usize {
    (4096 + count as usize * (2 * half(bytes) + 384)).next_multiple_of(4096)
}

impl Region {
    fn of(file: BorrowedFd<'_>, count: u32, bytes: usize) -> Option<Self> {
        let memory = Memory::received(file, region_bytes(count, bytes)).ok()?;
        Some(Self { memory, count, bytes, half: half(bytes) })
    }

    /// A region to be sent to a client.
    pub(crate) fn new(count: u32, bytes: usize) -> (Self, OwnedFd) {
        let (memory, file) = Memory::shared(region_bytes(count, bytes)).expect("memory");
        (Self { memory, count, bytes, half: half(bytes) }, file)
    }

    /// Where the call word of an A-stack is.
    pub(crate) const fn call(&self, astack: u32) -> usize {
        4096 + astack as usize * (2 * self.half + 384)
    }

    pub(crate) const fn reply(&self, astack: u32) -> usize {
        self.call(astack) + self.half
    }

    pub(crate) const fn taken(&self, astack: u32) -> usize {
        self.call(astack) + 2 * self.half
    }

    /// Where the words are that tell how much of a call and of a reply is in place.
    pub(crate) const fn progress(&self, astack: u32) -> [usize; 2] {
        [self.taken(astack) + 128, self.taken(astack) + 256]
    }

    /// Where the word is that tells which call was given up.
    pub(crate) const fn given_up(&self, astack: u32) -> usize {
        self.taken(astack) + 132
    }

    pub(crate) fn word(&self, at: usize) -> &AtomicU32 {
        self.memory.word(at)
    }
}
