//! Making a session with a server of this machine: connect, bind, map, and watch for its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{BindOptions, Binding};
use crate::call::{Call, CallPath, PathKind, Returned};
use crate::directory;
use crate::error::{CallError, Kind, Phase};
use crate::interface::{Digest, Interface, difference};
use crate::keeper::{Keeper, Next, Watch, Watched};
use crate::limits;
use crate::path::local::{
    Answer, Bind, Description, LocalPath, RegionLayout, Request, Session, block_cost,
};
use crate::sys::{Memory, Process, Received, Seqpacket};

/// The local path together with what keeps it watched.
struct Watching {
    // First, so that nothing is watched any more when the rest goes.
    _watches: [Watch; 2],
    path: LocalPath,
}

impl CallPath for Watching {
    #[inline]
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        self.path.transport(call)
    }

    fn kind(&self) -> PathKind {
        self.path.kind()
    }

    fn is_alive(&self) -> bool {
        self.path.is_alive()
    }

    fn let_go(&self, frame: u32) -> bool {
        self.path.let_go(frame)
    }
}

/// The keeper's view of a session: what must be told to whom when it ends.
struct End {
    session: Arc<Session>,
    memory: Arc<Memory>,
    layout: RegionLayout,
    /// How often everybody inside is told again: a server that closed its socket but lives could
    /// have written over the notice.
    tells: AtomicU32,
    buffer: Mutex<[u8; 64]>,
}

impl End {
    fn tell(&self) -> Next {
        LocalPath::wake_all(&self.memory, self.layout);
        match self.tells.fetch_add(1, Ordering::Relaxed) {
            0..20 => Next::Tick(Duration::from_millis(10)),
            _ => Next::Forget,
        }
    }
}

impl Watched for End {
    fn fd(&self) -> BorrowedFd<'_> {
        self.session.socket.as_fd()
    }

    fn ready(&self) -> Next {
        /// A process that ends closes its sockets a moment before its handle tells so.
        const MOMENT: Duration = Duration::from_millis(20);
        let Ok(mut buffer) = self.buffer.lock() else { return Next::Forget };
        match receive(&self.session.socket, &mut buffer[..]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Next::Sleep,
            Ok(Received { bytes, .. })
                if matches!(Answer::from_bytes(&buffer[..bytes]), Ok(Answer::Goodbye)) =>
            {
                self.session.withdraw();
            }
            _ if !self.session.process.ended() => return Next::Tick(MOMENT),
            _ => self.session.close(),
        }
        self.tell()
    }

    fn tick(&self) -> Next {
        self.session.close();
        self.tell()
    }
}

/// The server's process, whose end is certain even while a child of it holds the socket open.
struct Death(Arc<End>);

impl Watched for Death {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.session.process.as_fd()
    }

    fn ready(&self) -> Next {
        self.0.session.close();
        self.0.tell();
        Next::Forget
    }
}

/// Receives a message. A peer that closed while something of ours was unread makes the first
/// attempt fail, although what it had said before is still there.
fn receive(socket: &Seqpacket, buffer: &mut [u8]) -> io::Result<Received> {
    match socket.receive(buffer) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => socket.receive(buffer),
        result => result,
    }
}

fn refused(kind: u32, text: String) -> CallError {
    let kind = Kind::from_number(kind).unwrap_or(Kind::ProtocolMismatch);
    CallError::not_executed(kind, Phase::Bind, text)
}

/// Sends a request and waits for the answer.
fn ask(
    socket: &Seqpacket,
    request: &Request,
    until: Instant,
) -> Result<(Answer, Received), CallError> {
    let failed = |what: &str, error| CallError::system(Phase::Bind, what.to_owned(), error);
    // A server that refused at once may have closed already: what it said is there to be read.
    let sent = socket.send(&request.to_bytes(), None);
    let left = until.saturating_duration_since(Instant::now());
    let readable = socket.readable_within(left).map_err(|error| failed("waiting", error))?;
    if !readable {
        let text = "the server does not answer the handshake";
        return Err(CallError::not_executed(Kind::TimedOut, Phase::Bind, text));
    }
    let mut buffer = vec![0; limits::HANDSHAKE_BYTES_MAX];
    let received = receive(socket, &mut buffer);
    if let (Err(error), Ok(Received { bytes: 0, .. }) | Err(_)) = (sent, &received) {
        return Err(failed("sending the request", error));
    }
    let received = received.map_err(|error| failed("receiving the answer", error))?;
    if received.bytes == 0 {
        let text = "the server closed the session during the handshake";
        return Err(CallError::not_executed(Kind::ServerGone, Phase::Bind, text));
    }
    if !received.whole {
        let text = "the server's answer is longer than any answer is";
        return Err(CallError::not_executed(Kind::ProtocolMismatch, Phase::Bind, text));
    }
    Ok((Answer::from_bytes(&buffer[..received.bytes])?, received))
}

/// What the export of a name says of itself.
pub(crate) fn describe(name: &str, limit: Duration) -> Result<Description, CallError> {
    let until = until(limit);
    let socket = directory::resolve(name, until)?;
    match ask(&socket, &Request::Describe, until) {
        Ok((Answer::Description(description), _)) => Ok(description),
        Ok((Answer::Refused { kind, text }, _)) => Err(refused(kind, text).at(name)),
        Ok(_) => Err(refused(0, "an answer to another question".into()).at(name)),
        Err(error) => Err(error.at(name)),
    }
}

/// The moment that ends a limit; limits beyond the clock's range end in a year.
fn until(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or(now + Duration::from_secs(365 * 86400))
}

/// Binds to a name of this machine.
pub(super) fn bind(
    name: &str,
    interface: &'static Interface,
    digest: Option<Digest>,
    options: &BindOptions,
) -> Result<Binding, CallError> {
    let until = until(options.bind_limit);
    let socket = directory::resolve(name, until)?;
    let bound = bind_socket(socket, interface, digest, options, name, until);
    bound.map_err(|error| {
        if error.kind() != Kind::InterfaceMismatch {
            return error.at(name);
        }
        explain_mismatch(name, interface, until).unwrap_or(error).at(name)
    })
}

/// Says where the interfaces differ.
fn explain_mismatch(name: &str, interface: &Interface, until: Instant) -> Option<CallError> {
    let theirs = describe(name, until.saturating_duration_since(Instant::now())).ok()?;
    let difference = difference(&interface.canonical_text(), &theirs.text)?;
    Some(CallError::not_executed(Kind::InterfaceMismatch, Phase::Bind, difference))
}

fn bind_socket(
    socket: Seqpacket,
    interface: &'static Interface,
    digest: Option<Digest>,
    options: &BindOptions,
    name: &str,
    until: Instant,
) -> Result<Binding, CallError> {
    let failed = |what: &str, error| CallError::system(Phase::Bind, what.to_owned(), error);
    let bytes = options.message_bytes_for(interface).next_multiple_of(16);
    let digest = digest.map(|digest| digest.0);
    let request = Request::Bind(Bind { digest, count: options.astacks, bytes: bytes as u64 });
    let (answer, mut received) = ask(&socket, &request, until)?;
    let (count, bytes) = match answer {
        Answer::Bound { count, bytes, .. } => (count, usize::try_from(bytes).unwrap_or(0)),
        Answer::Refused { kind, text } => return Err(refused(kind, text)),
        _ => return Err(refused(0, "an answer to another question".into())),
    };
    let layout = RegionLayout::checked(count, bytes)
        .ok_or_else(|| refused(0, format!("{count} A-stacks of {bytes} bytes make no sense")))?;
    let file = received.files.pop().filter(|_| received.files.is_empty());
    let file = file.ok_or_else(|| refused(0, "no region came with the answer".into()))?;
    let memory = Memory::received(file.as_fd(), layout.region_bytes())
        .map_err(|error| refused(0, "the server's region".into()).because(error))?;
    let credentials = socket.credentials().map_err(|error| failed("asking who serves", error))?;
    let process = Process::open(credentials.pid).map_err(|error| failed("watching it", error))?;
    let session = Arc::new(Session::new(socket, process));
    let (path, frames) = LocalPath::new(memory, layout, Arc::clone(&session), options.wait)
        .map_err(|error| failed("mapping the region", error))?;
    let (memory, layout) = path.region();
    let keeper = Keeper::of_process().map_err(|error| failed("starting the keeper", error))?;
    let end = Arc::new(End {
        session: Arc::clone(&session),
        memory,
        layout,
        tells: AtomicU32::new(0),
        buffer: Mutex::new([0; 64]),
    });
    let watch = |what| keeper.watch(what).map_err(|error| failed("watching the session", error));
    let watches = [watch(Arc::clone(&end) as _)?, watch(Arc::new(Death(end)) as _)?];
    // Measured before the first call rather than in it.
    block_cost();
    let path = Box::new(Watching { _watches: watches, path });
    Binding::new(path, frames, interface, name.to_owned(), options.limit)
}
