//! The server's sessions: one for each client process, for all bindings of that process. This module admits
//! clients and answers their requests. It passes their rings (messages about posted calls) on to the worker
//! pool.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::capture::Capture;
use super::names::NameSocket;
use super::pool::WorkerPool;
use crate::call::{CallerInfo, PathKind, Refusal};
use crate::counters::{PAGE_BYTES, SessionCounters, ThreadKind, Visitor};
use crate::directory::Published;
use crate::error::{Kind, limit_reached};
use crate::keeper::{Next, Watch, Watched};
use crate::limits;
use crate::observe::Wanted;
use crate::path::local::{
    Assignment, BindGrant, BindRequest, ClientMessage, RegionLayout, ServerMessage, ServerRegion,
    StallPermits, Token, User,
};
use crate::serving::binding_table::BindingRow;
use crate::serving::disclosure::Disclosure;
use crate::serving::export::{Export, is_other};
use crate::serving::stop::Drain;
use crate::serving::{Load, ServerCore, ServerPath};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::{self, Credentials, Process, Seqpacket};

/// All sessions of a server, by number. After the table is closed, no session is added.
pub(crate) struct Sessions {
    pub(super) core: Arc<ServerCore>,
    table: Mutex<SessionTable>,
    next: AtomicU64,
    pub(super) pool: Arc<WorkerPool>,
    /// The sockets at which clients connect, one for each export.
    names: Mutex<Vec<Arc<NameSocket>>>,
    /// Permits for threads that wait for a message which a client is still writing.
    waits: Arc<StallPermits>,
    /// A descriptor in reserve. It is closed for a moment to accept and refuse one client when no
    /// other descriptor is left.
    reserve: Mutex<Option<Seqpacket>>,
    /// The number of programs that capture calls.
    captures: Arc<AtomicU32>,
}

#[derive(Default)]
struct SessionTable {
    open: HashMap<u64, Entry>,
    tokens: HashMap<Token, u64>,
    closed: bool,
}

struct Entry {
    session: Arc<ServerSession>,
    // The registrations with the keeper: for the socket, and for the process if the session has a region.
    watches: Vec<Watch>,
}

impl Sessions {
    /// Makes the server half of the local path.
    ///
    /// # Errors
    /// If there is no memory for the table of processors.
    pub(crate) fn new(core: &Arc<ServerCore>) -> io::Result<Arc<Self>> {
        let pool = WorkerPool::new(core)?;
        let waits = StallPermits::new(pool.threads_max());
        let sessions = Self {
            core: Arc::clone(core),
            table: Mutex::ranked(Rank::Clients, SessionTable::default()),
            next: AtomicU64::new(0),
            pool,
            names: Mutex::default(),
            waits,
            reserve: Mutex::default(),
            captures: Arc::default(),
        };
        sessions.make_reserve();
        Ok(Arc::new(sessions))
    }

    /// Lets clients connect to an export.
    ///
    /// # Errors
    /// If the keeper cannot watch the socket.
    pub(crate) fn open(
        self: &Arc<Self>,
        export: &Arc<Export>,
        published: Published,
    ) -> io::Result<()> {
        let socket = NameSocket::open(Arc::clone(export), published, Arc::clone(self))?;
        self.names.lock().push(socket);
        Ok(())
    }

    fn close_names(&self, is_it: impl Fn(&Export) -> bool) {
        let mut names = self.names.lock();
        let (close, keep) = names.drain(..).partition(|socket| is_it(&socket.export));
        *names = keep;
        drop(names);
        let close: Vec<Arc<NameSocket>> = close;
        close.iter().for_each(|socket| socket.close());
    }

    /// Returns whether the server stops.
    fn is_stopping(&self) -> bool {
        self.core.stopping.load(Ordering::Relaxed)
    }

    #[track_caller]
    fn table(&self) -> MutexGuard<'_, SessionTable> {
        self.table.lock()
    }

    fn make_reserve(&self) -> bool {
        let mut reserve = self.reserve.lock();
        if reserve.is_none() {
            *reserve = Seqpacket::reserve().ok();
        }
        reserve.is_some()
    }

    /// Refuses a client because no descriptor is left. Closes the descriptor in reserve for a moment to send
    /// the answer. The answer contains the error `why`. Returns whether a descriptor is in reserve again.
    pub(super) fn refuse_for_descriptors(&self, listener: &Seqpacket, why: &io::Error) -> bool {
        drop(self.reserve.lock().take());
        if let Ok(socket) = listener.accept() {
            let answer =
                ServerMessage::refused(Kind::Exhausted, cause("cannot accept a client", why));
            let _ = socket.send(&answer.to_bytes(), None);
        }
        self.make_reserve()
    }

    /// Admits a client that has connected to an export. The client must bind within [`limits::UNBOUND_TIME`].
    pub(super) fn admit(
        self: &Arc<Self>,
        export: &Arc<Export>,
        socket: Seqpacket,
    ) -> io::Result<()> {
        let peer = socket.credentials()?;
        let refuse = |kind, text: String| {
            let _ = socket.send(&ServerMessage::refused(kind, text).to_bytes(), None);
        };
        if let Err(text) = export.admits(&peer, || socket.peer_groups()) {
            refuse(Kind::Denied, text);
            return Ok(());
        }
        // A server that stops still admits clients, because they may ask for its health.
        if export.is_closed() && !self.is_stopping() {
            refuse(Kind::Withdrawn, export.withdrawn());
            return Ok(());
        }
        // The lock is held until the entry exists, because the keeper may read the first message at once and
        // needs the entry.
        let mut table = self.table();
        if table.closed {
            let _ = socket.send(&ServerMessage::Goodbye.to_bytes(), None);
            return Ok(());
        }
        let of_user = table.open.values().filter(|entry| entry.session.peer.uid == peer.uid);
        let (mut sessions, mut unbound) = (0, 0);
        for entry in of_user {
            match entry.session.region.get() {
                Some(_) => sessions += 1,
                None => unbound += 1,
            }
        }
        let user = peer.uid;
        if table.open.len() >= limits::SESSIONS_MAX || sessions >= limits::SESSIONS_PER_USER {
            refuse(
                Kind::Exhausted,
                format!(
                    "the server has {} sessions, and user {user} has {sessions}: no more are allowed",
                    table.open.len()
                ),
            );
            return Ok(());
        }
        if unbound >= limits::UNBOUND_PER_USER {
            refuse(
                Kind::Exhausted,
                format!("user {user} has {unbound} connections that have not bound yet"),
            );
            return Ok(());
        }
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let session = Arc::new(ServerSession {
            key,
            socket: Arc::new(socket),
            peer,
            process: OnceLock::new(),
            export: Arc::downgrade(export),
            region: OnceLock::new(),
            counters: OnceLock::new(),
            capture: OnceLock::new(),
            has_joined: AtomicBool::new(false),
            last_reassigned: Mutex::new(None),
            sessions: Arc::clone(self),
        });
        let watched = Arc::clone(&session) as Arc<dyn Watched>;
        let watches = vec![self.core.keeper.watch_for(watched, limits::UNBOUND_TIME)?];
        table.open.insert(key, Entry { session, watches });
        Ok(())
    }

    /// Returns the open sessions that have regions.
    fn regions(&self) -> Vec<(Arc<ServerSession>, Arc<ServerRegion>)> {
        let table = self.table();
        let bound = table.open.values().filter_map(|entry| {
            let region = entry.session.region.get()?;
            Some((Arc::clone(&entry.session), Arc::clone(region)))
        });
        bound.collect()
    }

    /// Returns the connections of programs that capture the calls of an export.
    fn captures_of(&self, export: &Export) -> Vec<Arc<ServerSession>> {
        let table = self.table();
        let sessions = table.open.values().map(|entry| &entry.session);
        let is_of = |capture: &Capture| capture.export == export.number;
        sessions.filter(|one| one.capture.get().is_some_and(is_of)).map(Arc::clone).collect()
    }

    /// Returns an open session that has one of the `tokens` and belongs to the client process `peer`.
    fn session_of(&self, tokens: &[Token], peer: &Credentials) -> Option<Arc<ServerSession>> {
        let table = self.table();
        let keys = tokens.iter().take(limits::TOKENS_MAX).filter_map(|t| table.tokens.get(t));
        let sessions = keys.filter_map(|key| Some(&table.open.get(key)?.session));
        sessions.into_iter().find(|session| session.peer == *peer).map(Arc::clone)
    }

    /// Returns the sum of `what` over the regions of a user's sessions.
    fn sum_of(&self, user: u32, what: impl Fn(&ServerRegion) -> usize) -> usize {
        let regions = self.regions().into_iter();
        regions
            .filter(|(session, _)| session.peer.uid == user)
            .map(|(_, region)| what(&region))
            .sum()
    }
}

impl ServerPath for Sessions {
    fn counted_as(&self) -> ThreadKind {
        ThreadKind::Local
    }

    fn close(&self) {
        // The names are free from now on. The sockets stay open, so that clients can ask for the health.
        self.names.lock().iter().for_each(|socket| socket.begin_to_drain());
    }

    fn revoke(&self, export: &Export) {
        self.close_names(|one| one.number == export.number);
        for session in self.captures_of(export) {
            session.capture.get().inspect(|capture| capture.end());
        }
        for (session, region) in self.regions() {
            let mut rows = region.bindings();
            let bound = rows.iter().filter(|(_, row)| row.export == export.number);
            let gone: Vec<u32> = bound.map(|(number, _)| number).collect();
            // A removed row may be the last owner of an exported object. So the rows are dropped after the
            // lock of the bindings is released.
            let removed: Vec<_> = gone.iter().map(|number| rows.remove(*number)).collect();
            drop(rows);
            drop(removed);
            for number in gone {
                // The message may be lost. The client then learns of the withdrawal from the error of its
                // next call.
                let _ = session.send(&ServerMessage::Revoked(number));
            }
        }
        self.pool.forget_rows();
    }

    fn disconnect(&self) {
        self.close_names(|_| true);
        let entries: Vec<_> = {
            let mut table = self.table();
            table.closed = true;
            table.tokens.clear();
            table.open.drain().collect()
        };
        for (_, Entry { session, watches }) in entries {
            drop(watches);
            if let Some(capture) = session.capture.get() {
                capture.end();
                capture.join();
            }
            let Some(region) = session.region.get() else { continue };
            session.end_counters();
            region.close();
            if !region.has_workers() {
                // For an A-stack with a deferred call, only the thread that owes the reply may change the
                // words.
                for index in (0..region.count()).filter(|index| !region.is_deferred(*index)) {
                    region.set_assignment(index, Assignment::Queued);
                    region.refuse(index, &Refusal::stopping());
                }
                let _ = session.send(&ServerMessage::Goodbye);
            }
        }
    }

    fn refuse(&self) {
        self.pool.refuse();
    }

    fn drain(&self, drain: &Drain) -> bool {
        self.pool.drain(drain)
    }

    fn load(&self) -> Load {
        self.pool.load()
    }

    fn is_full(&self) -> bool {
        self.pool.is_full()
    }

    fn threads(&self) -> usize {
        self.pool.threads()
    }
}

/// A new binding: the region of its session, the answer that grants it, and the descriptor of the region's
/// memory if the session is new.
struct NewBinding {
    region: Arc<ServerRegion>,
    bound: BindGrant,
    file: Option<OwnedFd>,
}

/// The connection of a client process. The connection has a region after the client has bound.
struct ServerSession {
    key: u64,
    socket: Arc<Seqpacket>,
    peer: Credentials,
    process: OnceLock<Process>,
    /// The export to which the client connected. The reference is weak, so that a session does not keep a
    /// withdrawn export alive.
    export: Weak<Export>,
    region: OnceLock<Arc<ServerRegion>>,
    /// The session's row of the counters, if the session has a region.
    counters: OnceLock<SessionCounters>,
    /// What the client captures, if it asked for that. It then does not bind.
    capture: OnceLock<Capture>,
    /// Whether the client has bound in another session, so that this connection is not needed any more.
    has_joined: AtomicBool,
    /// The time of the last attempt to take an A-stack of this session away from its worker.
    last_reassigned: Mutex<Option<Instant>>,
    sessions: Arc<Sessions>,
}

impl ServerSession {
    /// Handles the client's requests. Returns `None` if the client has gone or violates the protocol.
    fn handle_requests(self: &Arc<Self>) -> Option<Next> {
        let mut buffer = [0; 256];
        if let Some(pause) = self.pause() {
            return Some(pause);
        }
        // The number of messages that are read in a row is bounded, so that the keeper also serves other
        // sessions.
        for _ in 0..64 {
            let received = match self.socket.receive(&mut buffer) {
                Ok(received) if received.bytes > 0 => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Some(Next::Sleep);
                }
                _ => return None,
            };
            let request = if received.whole && received.files.is_empty() {
                ClientMessage::from_bytes(&buffer[..received.bytes])
            } else {
                Err((
                    Kind::ProtocolMismatch,
                    "the request is too long or carries descriptors".into(),
                ))
            };
            match request {
                Ok(ClientMessage::Ring(index)) => {
                    self.ring(index)?;
                    if let Some(pause) = self.pause() {
                        return Some(pause);
                    }
                }
                Ok(ClientMessage::Unbind(binding)) => {
                    let row = self.region.get()?.bindings().remove(binding);
                    drop(row);
                }
                Ok(ClientMessage::Health) => {
                    self.send(&ServerMessage::Health(self.sessions.core.health()))?;
                }
                Ok(_) if self.region.get().is_none() && self.sessions.is_stopping() => {
                    self.send(&ServerMessage::refused(Kind::Withdrawn, "the server is stopping"));
                    return None;
                }
                Ok(ClientMessage::Describe) => match self.export.upgrade() {
                    Some(export) => self.send(&ServerMessage::Description(export.description()))?,
                    None => self.send(&ServerMessage::refused(
                        Kind::Withdrawn,
                        "the export was withdrawn",
                    ))?,
                },
                Ok(ClientMessage::Count) => self.send_counters()?,
                Ok(ClientMessage::Capture(wanted)) => self.begin_capture(wanted)?,
                Ok(ClientMessage::Bind(bind)) => self.bind(&bind)?,
                Err((kind, text)) => {
                    self.send(&ServerMessage::refused(kind, text));
                    return None;
                }
            }
        }
        // A correct client does not send 64 messages in a row. The keeper reads the remaining messages after
        // this pause.
        Some(Next::Pause(Duration::from_millis(1)))
    }

    /// Returns for how long the keeper must ignore the client, if reading A-stacks of the client's user took
    /// long.
    fn pause(&self) -> Option<Next> {
        let user = self.region.get()?.user();
        self.sessions.pool.ignored_for(user).map(Next::Pause)
    }

    /// Handles a ring: a call is posted on an A-stack that no thread polls, or the assigned thread has not
    /// taken the call.
    fn ring(&self, index: u32) -> Option<()> {
        /// The shortest interval between two attempts to reassign an A-stack. Each attempt interrupts all
        /// processors.
        const REASSIGN_INTERVAL: Duration = Duration::from_micros(300);
        let region = self.region.get()?;
        if matches!(region.assignment(index), Some(Assignment::Worker(_))) {
            let mut last = self.last_reassigned.lock();
            if last.is_some_and(|last| last.elapsed() < REASSIGN_INTERVAL) {
                return Some(());
            }
            *last = Some(Instant::now());
        }
        self.sessions.pool.on_ring(region, index);
        Some(())
    }

    /// Sends the counters, if the server discloses them and the client runs as the server's own user or as
    /// root. Otherwise sends a refusal.
    fn send_counters(&self) -> Option<()> {
        let disclosed = &self.sessions.core.disclosed;
        let own = rustix::process::geteuid().as_raw();
        let refusal = if is_other(&self.peer) {
            let text = format!("the counters belong to user {own}, not to user {}", self.peer.uid);
            ServerMessage::refused(Kind::Denied, text)
        } else if disclosed.disclosure == Disclosure::Nothing {
            ServerMessage::refused(Kind::Denied, "the server does not disclose its counters")
        } else if let Some(file) = disclosed.page.file() {
            disclosed.refresh();
            let answer = ServerMessage::Counters(PAGE_BYTES as u64).to_bytes();
            return self.socket.send(&answer, Some(file)).ok();
        } else {
            let text =
                "the server's kernel cannot share memory for reading only: it needs Linux 5.1";
            ServerMessage::refused(Kind::Denied, text)
        };
        self.send(&refusal)
    }

    /// Begins to send records of calls to the client, if it may have them. Returns `None` if the connection
    /// is used for something else.
    fn begin_capture(&self, wanted: Wanted) -> Option<()> {
        let is_used = self.region.get().is_some()
            || self.capture.get().is_some()
            || self.has_joined.load(Ordering::Relaxed);
        if is_used {
            let text = "this connection is used already";
            self.send(&ServerMessage::refused(Kind::ProtocolMismatch, text));
            return None;
        }
        match self.capture(wanted) {
            Ok(capture) => {
                // Only the keeper's thread runs this function, so no other thread has set the value.
                let capture = self.capture.get_or_init(|| capture);
                // The server may have stopped, or withdrawn the export, before it could see the value.
                let is_open = self.export.upgrade().is_some_and(|export| !export.is_closed());
                if !is_open || self.sessions.table().closed {
                    capture.end();
                }
                Some(())
            }
            Err((kind, text)) => self.send(&ServerMessage::refused(kind, text)),
        }
    }

    fn capture(&self, wanted: Wanted) -> Result<Capture, (Kind, String)> {
        let own = rustix::process::geteuid().as_raw();
        if is_other(&self.peer) {
            let text = format!("only user {own} and root may capture calls of this server");
            return Err((Kind::Denied, text));
        }
        if self.sessions.core.disclosed.disclosure == Disclosure::Nothing {
            return Err((Kind::Denied, "the server does not disclose its calls".into()));
        }
        let export = self.export.upgrade().filter(|export| !export.is_closed());
        let export =
            export.ok_or_else(|| (Kind::Withdrawn, "the export was withdrawn".to_owned()))?;
        Capture::begin(&export, wanted, &self.socket, &self.sessions.captures)
    }

    /// Sends an answer. Returns `None` if the client does not read its answers. The caller then ends the
    /// session.
    fn send(&self, answer: &ServerMessage) -> Option<()> {
        self.socket.send(&answer.to_bytes(), None).ok()
    }

    fn bind(self: &Arc<Self>, bind: &BindRequest) -> Option<()> {
        if self.region.get().is_some()
            || self.capture.get().is_some()
            || self.has_joined.load(Ordering::Relaxed)
        {
            self.send(&ServerMessage::refused(
                Kind::ProtocolMismatch,
                "this connection has bound already",
            ));
            return None;
        }
        let bound = self.export.upgrade().map(|export| (self.bound(&export, bind), export));
        let (bound, export) = match bound {
            None => {
                return self
                    .send(&ServerMessage::refused(Kind::Withdrawn, "the export was withdrawn"));
            }
            Some((Err((kind, text)), _)) => return self.send(&ServerMessage::refused(kind, text)),
            Some((Ok(bound), export)) => (bound, export),
        };
        let NewBinding { region, bound, file } = bound;
        let (binding, joins) = (bound.binding, file.is_none());
        if export.is_closed() {
            let row = region.bindings().remove(binding);
            drop(row);
            self.send(&ServerMessage::refused(Kind::Withdrawn, export.withdrawn()));
            return None;
        }
        let answer = ServerMessage::Bound(bound).to_bytes();
        let sent = self.socket.send(&answer, file.as_ref().map(AsFd::as_fd));
        if sent.is_err() {
            // The client does not wait any more, and cannot unbind a number that it does not know.
            let row = region.bindings().remove(binding);
            drop(row);
            return None;
        }
        // A client that has bound in another session does not need this connection any more.
        (!joins).then_some(())
    }

    /// Makes a binding in an existing session of the client process, or makes this connection a new session.
    fn bound(
        self: &Arc<Self>,
        export: &Export,
        bind: &BindRequest,
    ) -> Result<NewBinding, (Kind, String)> {
        let admitted = export.admitted_bytes(bind.digest, bind.bytes)?;
        let message_bytes = admitted.max(limits::MESSAGE_BYTES_ASKED);
        if self.sessions.sum_of(self.peer.uid, |region| region.bindings().len())
            >= limits::BINDINGS_PER_USER
        {
            let text = format!("one user may have at most {} bindings", limits::BINDINGS_PER_USER);
            return Err((Kind::Exhausted, text));
        }
        let caller = CallerInfo {
            path: PathKind::Local,
            export: export.name.as_str().into(),
            process: self.peer.pid,
            user: self.peer.uid,
            group: self.peer.gid,
            from: None,
            hardware: None,
            claimed: None,
            identity: None,
            ending: None,
            carried: None,
            account: Default::default(),
        };
        let row = |session: &SessionCounters| {
            let tally = export.counters.tally(session.number());
            let groups = || self.socket.peer_groups();
            export.bind_process(caller, export.message_bytes_max(), tally, groups)
        };
        let representation = export.serve.byte_order().number();
        let bytes = usize::try_from(bind.bytes).unwrap_or(usize::MAX);
        let has_room = |session: &Arc<Self>| {
            session.region.get().is_some_and(|region| region.layout().bytes >= bytes)
        };
        let known = self.sessions.session_of(&bind.sessions, &self.peer).filter(has_room);
        if let Some((region, counters)) =
            known.as_ref().and_then(|session| session.region.get().zip(session.counters.get()))
        {
            let session = bind.sessions.iter().find(|token| {
                self.sessions.table().tokens.get(*token) == known.as_ref().map(|known| &known.key)
            });
            if let Some(session) = session {
                let binding = add_binding(region, row(counters))?;
                self.has_joined.store(true, Ordering::Relaxed);
                let RegionLayout { count, bytes, .. } = region.layout();
                let epoch = self.sessions.core.epoch;
                let bytes = bytes as u64;
                let session = *session;
                let bound = BindGrant { epoch, session, binding, count, bytes, representation };
                return Ok(NewBinding { region: Arc::clone(region), bound, file: None });
            }
        }
        let used = self.sessions.sum_of(self.peer.uid, |region| region.layout().region_bytes());
        let left = limits::REGION_BYTES_PER_USER.saturating_sub(used);
        let room = export.room_for(&self.peer, left, (bind.count, message_bytes));
        self.become_session(room, left, representation, row)
    }

    fn become_session(
        self: &Arc<Self>,
        (count, message_bytes): (u32, usize),
        left: usize,
        representation: u32,
        row: impl FnOnce(&SessionCounters) -> Arc<BindingRow>,
    ) -> Result<NewBinding, (Kind, String)> {
        let exhausted = |what| move |error| (Kind::Exhausted, cause(what, &error));
        // The region is sparse: memory that is never touched costs nothing. The region is large because later
        // bindings may need more A-stacks than this binding.
        let layout = RegionLayout::at_most(count, message_bytes).ok_or_else(|| {
            (Kind::TooLarge, format!("no A-stack can hold {message_bytes} bytes"))
        })?;
        let user = self.peer.uid;
        if is_other(&self.peer) && layout.region_bytes() > left {
            let most = limits::REGION_BYTES_PER_USER;
            let used = most - left;
            let text =
                format!("the sessions of user {user} use {used} of {most} bytes of A-stacks");
            return Err((Kind::Exhausted, text));
        }
        let process = Process::open(self.peer.pid).map_err(exhausted("cannot watch the client"))?;
        let whose = if is_other(&self.peer) { User::Other(user) } else { User::Own };
        let new = |layout| {
            let pool = Arc::downgrade(&self.sessions.pool);
            ServerRegion::new(whose, layout, Arc::clone(&self.sessions.waits), pool)
        };
        let (layout, (region, file)) =
            layout.mapped(new).map_err(exhausted("cannot make the region"))?;
        let session = sys::random().map_err(exhausted("cannot draw a token"))?;
        let region = Arc::new(region);
        // Only the keeper's thread runs this function, so the value cannot have been set by another thread.
        let _ = self.process.set(process);
        let process = Arc::new(ProcessWatch(Arc::clone(self)));
        let watch = self
            .sessions
            .core
            .keeper
            .watch(process)
            .map_err(exhausted("cannot watch the client"))?;
        let Credentials { pid: process, uid: user, gid: group } = self.peer;
        let (path, from, hardware) = (PathKind::Local, None, None);
        let visitor = Visitor { path, process, user, group, from, hardware };
        let counters = SessionCounters::new(&self.sessions.core.disclosed.page, &visitor);
        let binding = add_binding(&region, row(&counters))?;
        let mut table = self.sessions.table();
        let Some(entry) = table.open.get_mut(&self.key) else {
            return Err((Kind::Withdrawn, "the server is stopping".into()));
        };
        entry.watches.push(watch);
        let _ = self.counters.set(counters);
        let _ = self.region.set(Arc::clone(&region));
        table.tokens.insert(session, self.key);
        let (count, bytes) = (layout.count, layout.bytes as u64);
        let epoch = self.sessions.core.epoch;
        let bound = BindGrant { epoch, session, binding, count, bytes, representation };
        Ok(NewBinding { region, bound, file: Some(file) })
    }

    /// Ends the session's row of the counters.
    fn end_counters(&self) {
        if let Some(counters) = self.counters.get() {
            counters.end();
        }
    }

    /// Ends the session because the client has gone. The workers stop polling the session's A-stacks.
    fn end(&self) -> Next {
        self.end_counters();
        if let Some(capture) = self.capture.get() {
            capture.end();
        }
        if let Some(region) = self.region.get() {
            region.close();
            region.bindings().revoke_all();
            self.sessions.pool.closed(region);
        }
        // The watches are dropped after the lock is released, because dropping them takes the keeper's lock.
        let gone = {
            let mut table = self.sessions.table();
            table.tokens.retain(|_, key| *key != self.key);
            table.open.remove(&self.key)
        };
        drop(gone);
        Next::Forget
    }
}

/// Returns the text of a refusal. The text says what failed, and why.
fn cause(what: &str, error: &io::Error) -> String {
    format!("{what}: {}", limit_reached(error).unwrap_or_else(|| error.to_string()))
}

/// Adds a binding to a session.
fn add_binding(region: &ServerRegion, row: Arc<BindingRow>) -> Result<u32, (Kind, String)> {
    let number = region.bindings().add(row);
    number.ok_or_else(|| {
        (Kind::Exhausted, format!("one session may have at most {} bindings", limits::BINDINGS_MAX))
    })
}

/// The watch of a session by the keeper, a background thread.
impl Watched for ServerSession {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn ready(self: Arc<Self>) -> Next {
        self.handle_requests().unwrap_or_else(|| self.end())
    }

    /// Ends the session if the client has not bound in time.
    fn tick(self: Arc<Self>) -> Next {
        if self.region.get().is_some() || self.capture.get().is_some() {
            return Next::Sleep;
        }
        let text = "the connection took too long to bind";
        self.send(&ServerMessage::refused(Kind::TimedOut, text));
        self.end()
    }
}

/// The watch of the client's process by the keeper. When the client's process ends, the session ends, even if
/// a child of that process still has the socket open.
struct ProcessWatch(Arc<ServerSession>);

impl Watched for ProcessWatch {
    fn fd(&self) -> BorrowedFd<'_> {
        match self.0.process.get() {
            Some(process) => process.as_fd(),
            None => self.0.socket.as_fd(),
        }
    }

    fn ready(self: Arc<Self>) -> Next {
        self.0.end()
    }
}
