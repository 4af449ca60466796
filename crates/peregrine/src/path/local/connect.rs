//! Binds to a server of this machine. The client connects, and joins the existing session with the server's
//! process or makes a new session. It then watches for the end of the session.
//!
//! All bindings between two processes share one session: one socket, one process handle and one region. A
//! binding is identified by its number in the session.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{
    BindGrant, BindRequest, ClientMessage, ClientRegion, LocalPath, RegionLayout, ServerMessage,
    Session, Token,
};
use crate::address::Address;
use crate::call::{Call, CallPath, PathKind, Returned, Wait, block_cost, pass_on};
use crate::directory;
use crate::error::{CallError, Kind, NO_THREAD, Phase, unusable_memory};
use crate::keeper::{Keeper, Next, Watch, Watched};
use crate::limits;
use crate::path::bind::{
    BoundPath, Connect, Exclusion, Inquiry, Target, Wanted, byte_order, hold, refused, system,
    violated,
};
use crate::path::options::BindOptions;
use crate::registry::Registry;
use crate::serving::health::Health;
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::{Memory, Process, Received, Seqpacket};

/// The client half of the local path.
pub(crate) struct Local;

impl Connect for Local {
    fn kind(&self) -> PathKind {
        PathKind::Local
    }

    fn leads_to(&self, target: &Address) -> Result<(), Exclusion> {
        // An address with a host may mean a server of this machine. Binding checks that.
        if target.place().is_none() || target.path().is_none() {
            return Ok(());
        }
        Err(Exclusion::Unsuited(
            "shared memory cannot reach an address that has both a prefix and a host",
        ))
    }

    fn bind(&self, _: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
        bind_socket(directory::resolve(wanted.name, wanted.until)?, wanted)
    }

    fn inquire(&self, _: &Target<'_>, wanted: &Wanted<'_>) -> Result<Inquiry, CallError> {
        let socket = directory::resolve(wanted.name, wanted.until)?;
        match ask(&socket, &ClientMessage::Describe, wanted.until)?.0 {
            ServerMessage::Description(description) => Ok(Inquiry::Answer(description)),
            answer => Err(unexpected(answer)),
        }
    }
}

/// The sessions of this process, by the process ID of the server.
static SESSIONS: Registry<u32, JoinedSession> = Registry::new(Rank::Server);

/// A session that bindings of this process share. The session ends when the last of these bindings is
/// dropped.
struct JoinedSession {
    // The watches are dropped first, so that the keeper no longer watches the session when the other fields
    // are dropped.
    watches: [Watch; 2],
    watched: Arc<SessionWatch>,
    token: Token,
}

impl JoinedSession {
    fn region(&self) -> &Arc<ClientRegion> {
        &self.watched.region
    }

    #[cold]
    fn tidy_later(&self) {
        if !self.watched.is_tidying.swap(true, Ordering::AcqRel) {
            self.watches[0].remind(TIDY);
        }
    }
}

/// The interval between two passes that look for unused memory. Memory that two passes in a row find unused
/// is given back to the kernel.
const TIDY: Duration = Duration::from_secs(1);

/// The local path of one binding, and the session to which it belongs.
struct BoundLocalPath {
    path: LocalPath,
    watched: Arc<SessionWatch>,
    /// The session. `None` only while this value is dropped.
    joined: Option<Arc<JoinedSession>>,
}

impl CallPath for BoundLocalPath {
    #[inline]
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let returned = self.path.transport(call);
        if self.path.region.is_untidy() {
            self.joined.as_ref().inspect(|joined| joined.tidy_later());
        }
        returned
    }

    fn poll(&self, call: &mut Call<'_, '_, '_>) -> Option<Result<Returned, CallError>> {
        let returned = self.path.poll(call)?;
        if self.path.region.is_untidy() {
            self.joined.as_ref().inspect(|joined| joined.tidy_later());
        }
        Some(returned)
    }

    fn explain(&self) -> String {
        format!("memory shared with process {}", self.watched.session().process.pid)
    }

    pass_on! {
        self => self.path;
        begin, arm, give_up, is_prepared, prepare, message_bytes, server_cpu, wait, kind,
        is_alive, captures, is_released, retransmissions
    }
}

impl Drop for BoundLocalPath {
    fn drop(&mut self) {
        self.watched.revocations().flags.remove(&self.path.binding);
        // Dropping the last binding ends the session, so the server needs no message about that binding. If
        // several bindings are dropped at the same time, `into_inner` returns the session for at most one of
        // them. It returns the session for none of them if another thread is about to join the session.
        if self.joined.take().and_then(Arc::into_inner).is_none() {
            self.watched.session().unbind(self.path.binding);
        }
    }
}

/// The watch of a session by the keeper, a background thread. The keeper reads the server's messages, and
/// wakes the callers when the session ends.
struct SessionWatch {
    region: Arc<ClientRegion>,
    revocations: Mutex<Revocations>,
    /// The number of times that all callers were woken after the end of the session. They are woken more than
    /// once, because a server that closed its socket but still runs could overwrite the words that mark the
    /// end.
    wakeups: AtomicU32,
    /// Whether the keeper looks for unused memory from time to time.
    is_tidying: AtomicBool,
    /// Whether the server has closed the socket.
    is_socket_closed: AtomicBool,
}

/// The bindings of a session, and which of them were revoked because their exports were withdrawn.
#[derive(Default)]
struct Revocations {
    /// For each binding, by number: a flag that is set when the binding is revoked.
    flags: HashMap<u32, Arc<AtomicBool>>,
    /// The numbers of revoked bindings that this process does not know. The answer that grants such a binding
    /// arrives on another connection, and may therefore arrive later. The list is cleared when a thread
    /// begins to bind.
    early: Vec<u32>,
}

impl Revocations {
    /// The largest number of entries of `early`.
    const EARLY_MAX: usize = 256;

    fn revoke(&mut self, binding: u32) {
        match self.flags.remove(&binding) {
            Some(revoked) => revoked.store(true, Ordering::Release),
            None if self.early.len() < Self::EARLY_MAX => self.early.push(binding),
            None => {}
        }
    }

    /// Adds a binding, and returns its flag. The binding may have been revoked already.
    fn add(&mut self, binding: u32) -> Arc<AtomicBool> {
        let revoked = Arc::new(AtomicBool::new(self.early.contains(&binding)));
        self.flags.insert(binding, Arc::clone(&revoked));
        revoked
    }
}

impl SessionWatch {
    fn session(&self) -> &Session {
        &self.region.session
    }

    #[track_caller]
    fn revocations(&self) -> MutexGuard<'_, Revocations> {
        self.revocations.lock()
    }

    /// Wakes all callers, because the session has ended.
    fn wake_callers(&self) -> Next {
        self.region.wake_all();
        match self.wakeups.fetch_add(1, Ordering::Relaxed) {
            0..20 => Next::Tick(Duration::from_millis(10)),
            _ => Next::Forget,
        }
    }

    /// Returns whether reading the socket would not block: a message has arrived, or the server has closed
    /// the socket.
    fn has_more(&self) -> bool {
        self.session().socket.readable_within(Duration::ZERO).unwrap_or(true)
    }

    /// Reads a message of the server. Returns `None` if the server has closed the socket, or if the message
    /// is invalid.
    fn read_message(&self) -> Option<ServerMessage> {
        let mut buffer = [0; 64];
        match receive(&self.session().socket, &mut buffer) {
            Ok(Received { bytes, whole: true, .. }) if bytes > 0 => {
                ServerMessage::from_bytes(&buffer[..bytes]).ok()
            }
            _ => None,
        }
    }
}

impl Watched for SessionWatch {
    fn fd(&self) -> BorrowedFd<'_> {
        self.region.session.socket.as_fd()
    }

    fn ready(self: Arc<Self>) -> Next {
        /// An ending process first closes its sockets. At most this much later, its process handle becomes
        /// readable.
        const EXIT_TIME: Duration = Duration::from_millis(20);
        /// The largest number of messages that are read in a row.
        const MESSAGES: u32 = 64;
        /// How long the keeper ignores the session after it has read `MESSAGES` messages in a row. Meanwhile
        /// the keeper serves other sessions.
        const PAUSE: Duration = Duration::from_millis(5);
        let mut last = None;
        for _ in 0..MESSAGES {
            if !self.has_more() {
                return Next::Sleep;
            }
            last = self.read_message();
            let Some(ServerMessage::Revoked(binding)) = last else { break };
            self.revocations().revoke(binding);
        }
        match last {
            Some(ServerMessage::Revoked(_)) => return Next::Pause(PAUSE),
            Some(ServerMessage::Goodbye) => self.session().mark_withdrawn(),
            _ if !self.session().process.ended() => {
                self.is_socket_closed.store(true, Ordering::Release);
                return Next::Tick(EXIT_TIME);
            }
            _ => self.session().mark_closed(),
        }
        self.wake_callers()
    }

    fn tick(self: Arc<Self>) -> Next {
        if self.is_tidying.load(Ordering::Acquire)
            && self.session().is_alive()
            && !self.is_socket_closed.load(Ordering::Acquire)
        {
            if self.region.tidy() {
                return Next::SleepAndTick(TIDY);
            }
            self.is_tidying.store(false, Ordering::Release);
            return Next::Sleep;
        }
        self.session().mark_closed();
        self.wake_callers()
    }
}

/// The watch of the server's process by the keeper. When this process ends, the session ends, even if a child
/// of the process still has the socket open.
struct ProcessWatch(Arc<SessionWatch>);

impl Watched for ProcessWatch {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.session().process.as_fd()
    }

    fn ready(self: Arc<Self>) -> Next {
        self.0.session().mark_closed();
        self.0.wake_callers();
        Next::Forget
    }
}

/// Receives a message. If the peer closed the socket before the peer had read all messages, the first attempt
/// fails. A second attempt can still read messages that the peer sent before.
pub(super) fn receive(socket: &Seqpacket, buffer: &mut [u8]) -> io::Result<Received> {
    match socket.receive(buffer) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => socket.receive(buffer),
        result => result,
    }
}

/// Returns the error for an answer that is a refusal, or that does not fit the request.
pub(super) fn unexpected(answer: ServerMessage) -> CallError {
    match answer {
        ServerMessage::Refused { kind, text } => refused(kind, text),
        _ => violated("the server's answer does not fit the client's request"),
    }
}

/// Sends a request and waits for the answer.
pub(super) fn ask(
    socket: &Seqpacket,
    request: &ClientMessage,
    until: Instant,
) -> Result<(ServerMessage, Received), CallError> {
    let failed = |what: &str, error| CallError::system(Phase::Bind, what.to_owned(), error);
    // A server that refuses a client at once may close the socket before the request is sent. The server's
    // answer can still be read. So an error of sending is reported only if there is no answer.
    let sent = socket.send(&request.to_bytes(), None);
    let left = until.saturating_duration_since(Instant::now());
    let readable =
        socket.readable_within(left).map_err(|error| failed("waiting for the answer", error))?;
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
        let text = "the server's answer is longer than the protocol allows";
        return Err(CallError::not_executed(Kind::ProtocolMismatch, Phase::Bind, text));
    }
    Ok((ServerMessage::from_bytes(&buffer[..received.bytes])?, received))
}

/// Asks the server that exports `name` for its counters. Returns their size in bytes, and the descriptor of
/// their memory.
pub(crate) fn counters(name: &str, until: Instant) -> Result<(u64, OwnedFd), CallError> {
    let socket = directory::resolve(name, until)?;
    socket.admit_files(true);
    let (answer, mut received) = ask(&socket, &ClientMessage::Count, until)?;
    let file = received.files.pop().filter(|_| received.files.is_empty());
    match (answer, file) {
        (ServerMessage::Counters(bytes), Some(file)) => Ok((bytes, file)),
        (answer, _) => Err(unexpected(answer)),
    }
}

/// Asks the server that exports `name` for its health. If no server exports the name, asks the server that
/// exported it until it began to stop.
pub(crate) fn health(name: &str, until: Instant) -> Result<Health, CallError> {
    let socket = match directory::resolve(name, until) {
        Err(error) if error.kind() == Kind::NotFound => {
            directory::resolve_draining(name, until).ok_or(error)?
        }
        found => found?,
    };
    match ask(&socket, &ClientMessage::Health, until)?.0 {
        ServerMessage::Health(health) => Ok(health),
        // The server has as many clients as it may have. So it would refuse calls of further clients, too.
        ServerMessage::Refused { kind, .. } if kind == Kind::Exhausted as u32 => {
            Ok(Health::Overloaded)
        }
        // The server began to stop after this client had found the name.
        ServerMessage::Goodbye => Ok(Health::Draining),
        answer => Err(unexpected(answer)),
    }
}

fn bind_socket(socket: Seqpacket, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
    let Wanted { interface, digest, options, until, .. } = *wanted;
    let credentials =
        socket.credentials().map_err(system("asking for the identity of the server"))?;
    let message_bytes = options.message_bytes_for(interface);
    let asked = options.message_bytes_asked(interface);
    let entry = SESSIONS.entry(credentials.pid);
    let mut sessions = hold(&entry, until)?;
    sessions.retain(|session| session.strong_count() > 0);
    let fits = |joined: &Arc<JoinedSession>| {
        joined.region().session.is_alive() && joined.region().message_bytes() >= asked
    };
    let known: Vec<Arc<JoinedSession>> =
        sessions.iter().filter_map(Weak::upgrade).filter(fits).collect();
    known.iter().for_each(|joined| joined.watched.revocations().early.clear());
    let request = ClientMessage::Bind(BindRequest {
        digest: digest.map(|digest| digest.0),
        count: options.astacks.max(limits::ASTACKS_SPARSE),
        bytes: asked as u64,
        sessions: known.iter().map(|joined| joined.token).take(limits::TOKENS_MAX).collect(),
    });
    // The descriptor of a region may come with the answer. Later messages carry no descriptors.
    socket.admit_files(true);
    let asked = ask(&socket, &request, until);
    socket.admit_files(false);
    let (answer, received) = asked?;
    let bound = match answer {
        ServerMessage::Bound(bound) => bound,
        answer => return Err(unexpected(answer)),
    };
    let order = byte_order(bound.representation)?;
    let joined = match known.into_iter().find(|joined| joined.token == bound.session) {
        Some(joined) => joined,
        None => {
            let process =
                Process::open(credentials.pid).map_err(system("watching the server's process"))?;
            let session = Session::new(socket, process);
            let joined = Arc::new(join(session, &bound, received, options, until)?);
            sessions.push(Arc::downgrade(&joined));
            joined
        }
    };
    joined.region().frames.at_least(options.astacks);
    let revoked = joined.watched.revocations().add(bound.binding);
    let region = Arc::clone(joined.region());
    let frames = Arc::clone(&region.frames);
    let (binding, wait) = (bound.binding, options.wait);
    let own_bytes = message_bytes;
    let message_bytes = message_bytes.min(region.message_bytes());
    let path = LocalPath { region, binding, revoked, message_bytes, own_bytes, wait };
    drop(sessions);
    if options.wait == Wait::Adaptive {
        // The cost of sleeping and waking is measured here, so that the measurement does not delay the first
        // call.
        block_cost();
    }
    let path = Box::new(BoundLocalPath {
        path,
        watched: Arc::clone(&joined.watched),
        joined: Some(joined),
    });
    Ok(BoundPath { path, frames, order })
}

/// Maps the region of a new session, and registers the session with the keeper.
fn join(
    session: Session,
    bound: &BindGrant,
    mut received: Received,
    options: &BindOptions,
    until: Instant,
) -> Result<JoinedSession, CallError> {
    let (count, bytes) = (bound.count, usize::try_from(bound.bytes).unwrap_or(0));
    let layout = RegionLayout::checked(count, bytes).ok_or_else(|| {
        violated(format!("the server grants {count} A-stacks of {bytes} bytes, which is invalid"))
    })?;
    let file = received.files.pop().filter(|_| received.files.is_empty());
    let file = file.ok_or_else(|| violated("the server sent no shared memory with its answer"))?;
    let all = layout.region_bytes();
    let map = |part: RegionLayout| Memory::received_part(file.as_fd(), all, part.region_bytes());
    let (layout, memory) =
        layout.mapped(map).map_err(|error| unusable_memory("the server's region", error))?;
    let active = options.astacks.min(layout.count);
    let region =
        ClientRegion::new(memory, layout, session, active).map_err(system("mapping the region"))?;
    let keeper = Keeper::of_process().map_err(system(NO_THREAD))?;
    let watched = Arc::new(SessionWatch {
        region: Arc::new(region),
        revocations: Mutex::default(),
        wakeups: AtomicU32::new(0),
        is_tidying: AtomicBool::new(false),
        is_socket_closed: AtomicBool::new(false),
    });
    // Messages that arrived while descriptors were admitted are received by this thread and not by the
    // keeper. The messages may carry descriptors that are slow to close. Closing them then delays only this
    // thread.
    while Arc::clone(&watched).ready() == Next::Sleep && watched.has_more() {
        if Instant::now() >= until {
            return Err(violated("the server kept sending during the handshake"));
        }
    }
    let watch = |what| keeper.watch(what).map_err(system("watching the session"));
    let process = Arc::new(ProcessWatch(Arc::clone(&watched)));
    let watches = [watch(Arc::clone(&watched) as _)?, watch(process as _)?];
    Ok(JoinedSession { watches, watched, token: bound.session })
}
