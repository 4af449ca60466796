//! A client that does not keep to what clients do: it connects, and says what a test wants said.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};

const MAGIC: u32 = 0x5052_4701;
const VERSION: u32 = 2;

/// What a server said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The number of an answer, and the number that follows it: the kind of a refusal.
    Said(u32, u32),
    /// The end of the connection.
    End,
    /// Nothing within the time.
    Nothing,
}

/// The number of a refusal.
pub(crate) const REFUSED: u32 = 102;
/// The number of a description.
pub(crate) const DESCRIPTION: u32 = 103;
/// The number of a binding's answer.
pub(crate) const BOUND: u32 = 101;

/// Descriptors of some processes while this one has a connection to a server and nothing else is
/// under way: when the connection is answered, the server has seen the end of all that were closed
/// before.
pub(crate) fn descriptors_at_rest<const N: usize>(
    socket: &Path,
    processes: [u32; N],
) -> [usize; N] {
    let connection = Raw::connect(socket);
    assert!(connection.say(&describe()));
    let heard = connection.hear(Duration::from_secs(10));
    assert!(matches!(heard, Heard::Said(DESCRIPTION, _)), "{heard:?}");
    processes.map(super::descriptors)
}

/// A connection to the socket of an export.
#[derive(Debug)]
pub(crate) struct Raw(OwnedFd);

fn request(words: &[u32]) -> Vec<u8> {
    [MAGIC, VERSION].iter().chain(words).flat_map(|word| word.to_ne_bytes()).collect()
}

/// Asks what is exported.
pub(crate) fn describe() -> Vec<u8> {
    request(&[2])
}

/// Asks for a binding to whatever is there, in a session of its own.
pub(crate) fn bind() -> Vec<u8> {
    // No digest; eight A-stacks of 4 KiB; no session.
    request(&[1, 0, 8, 0, 4096, 0, 0])
}

impl Raw {
    /// Connects; panics if that is not to be had.
    pub(crate) fn connect(path: &Path) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.expect("a socket");
        connect(&socket, &SocketAddrUnix::new(path).expect("a short path")).expect("a server");
        Self(socket)
    }

    /// Says something; false if nobody listens any more.
    pub(crate) fn say(&self, message: &[u8]) -> bool {
        let mut none = SendAncillaryBuffer::default();
        sendmsg(&self.0, &[IoSlice::new(message)], &mut none, SendFlags::NOSIGNAL).is_ok()
    }

    /// What the server says next, within a time.
    pub(crate) fn hear(&self, limit: Duration) -> Heard {
        let limit =
            Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let ready = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit));
        if ready.expect("to wait") == 0 {
            return Heard::Nothing;
        }
        let mut buffer = [0; 1 << 16];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut files = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(&self.0, &mut [IoSliceMut::new(&mut buffer)], &mut files, flags);
        let bytes = received.map_or(0, |message| message.bytes);
        for one in files.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = one {
                drop(files.collect::<Vec<_>>());
            }
        }
        let word = |at: usize| buffer[at..at + 4].try_into().map(u32::from_ne_bytes);
        match (bytes, word(0), word(4)) {
            (8.., Ok(first), Ok(second)) => Heard::Said(first, second),
            _ => Heard::End,
        }
    }
}
