//! Sessions: one for each client process, whatever it binds to; who is let in, what they are told,
//! which rings go to the pool.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::names::NameSocket;
use super::pool::Pool;
use crate::call::{CallerInfo, PathKind, Refusal};
use crate::counters::{PAGE_BYTES, SessionTold, Visitor};
use crate::directory::Published;
use crate::error::{Kind, limit_reached};
use crate::keeper::{Next, Watch, Watched};
use crate::limits;
use crate::path::local::{
    Answer, Assignment, Bind, Bound, RegionLayout, Request, ServerRegion, StallPermits, Token, User,
};
use crate::serving::binding_table::BindingRow;
use crate::serving::disclosure::Disclosure;
use crate::serving::export::{Export, is_other};
use crate::serving::stop::Drain;
use crate::serving::{Load, ServerCore, ServerPath};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::{self, Credentials, Process, Seqpacket};

/// All sessions of a server, by number; none is added once it is closed.
pub(crate) struct Sessions {
    pub(super) core: Arc<ServerCore>,
    table: Mutex<Table>,
    next: AtomicU64,
    pub(super) pool: Arc<Pool>,
    /// The sockets at which clients connect, one for each export.
    names: Mutex<Vec<Arc<NameSocket>>>,
    /// The threads that wait for messages which are still being written.
    waits: Arc<StallPermits>,
    /// A descriptor in reserve. It is closed for a moment to accept and refuse one client when no
    /// other descriptor is left.
    reserve: Mutex<Option<Seqpacket>>,
}

#[derive(Default)]
struct Table {
    open: HashMap<u64, Entry>,
    tokens: HashMap<Token, u64>,
    closed: bool,
}

struct Entry {
    session: Arc<Session>,
    // What the keeper watches: the socket, and the process once there is a region.
    watches: Vec<Watch>,
}

impl Sessions {
    /// The local half of a server.
    ///
    /// # Errors
    /// If there is no memory for the words that the servers of this machine share.
    pub(crate) fn new(core: &Arc<ServerCore>) -> io::Result<Arc<Self>> {
        let pool = Pool::new(core)?;
        let waits = StallPermits::new(pool.threads_max());
        let sessions = Self {
            core: Arc::clone(core),
            table: Mutex::ranked(Rank::Clients, Table::default()),
            next: AtomicU64::new(0),
            pool,
            names: Mutex::default(),
            waits,
            reserve: Mutex::default(),
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

    #[track_caller]
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    fn make_reserve(&self) -> bool {
        let mut reserve = self.reserve.lock();
        if reserve.is_none() {
            *reserve = Seqpacket::unconnected().ok();
        }
        reserve.is_some()
    }

    /// Descriptors have run out, as `why` says: one is spared to tell the client that waits. False
    /// if that one cannot be had back now.
    pub(super) fn turn_away(&self, listener: &Seqpacket, why: &io::Error) -> bool {
        drop(self.reserve.lock().take());
        if let Ok(socket) = listener.accept() {
            let answer = Answer::refused(Kind::Exhausted, cause("letting a client in", why));
            let _ = socket.send(&answer.to_bytes(), None);
        }
        self.make_reserve()
    }

    /// Lets in who has connected to an export, for as long as they take to say what they want.
    pub(super) fn let_in(
        self: &Arc<Self>,
        export: &Arc<Export>,
        socket: Seqpacket,
    ) -> io::Result<()> {
        let peer = socket.credentials()?;
        let refuse = |kind, text: String| {
            let _ = socket.send(&Answer::refused(kind, text).to_bytes(), None);
        };
        if let Err(text) = export.admits(&socket, &peer) {
            refuse(Kind::Denied, text);
            return Ok(());
        }
        if export.is_closed() {
            refuse(Kind::Withdrawn, export.withdrawn());
            return Ok(());
        }
        // The table is locked before the keeper can see the first message.
        let mut table = self.table();
        if table.closed {
            let _ = socket.send(&Answer::Goodbye.to_bytes(), None);
            return Ok(());
        }
        let theirs = table.open.values().filter(|entry| entry.session.peer.uid == peer.uid);
        let (mut sessions, mut unbound) = (0, 0);
        for entry in theirs {
            match entry.session.region.get() {
                Some(_) => sessions += 1,
                None => unbound += 1,
            }
        }
        let user = peer.uid;
        if table.open.len() >= limits::SESSIONS_MAX || sessions >= limits::SESSIONS_PER_USER {
            refuse(
                Kind::Exhausted,
                format!("user {user} has {sessions} sessions with this server"),
            );
            return Ok(());
        }
        if unbound >= limits::UNBOUND_PER_USER {
            refuse(
                Kind::Exhausted,
                format!("user {user} has {unbound} connections that have not bound"),
            );
            return Ok(());
        }
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let session = Arc::new(Session {
            key,
            socket,
            peer,
            process: OnceLock::new(),
            export: Arc::downgrade(export),
            region: OnceLock::new(),
            told: OnceLock::new(),
            joined: AtomicBool::new(false),
            relieved: Mutex::new(None),
            all: Arc::clone(self),
        });
        let watched = Arc::clone(&session) as Arc<dyn Watched>;
        let watches = vec![self.core.keeper.watch_for(watched, limits::UNBOUND_TIME)?];
        table.open.insert(key, Entry { session, watches });
        Ok(())
    }

    /// Regions of the sessions that stand.
    fn regions(&self) -> Vec<(Arc<Session>, Arc<ServerRegion>)> {
        let table = self.table();
        let bound = table.open.values().filter_map(|entry| {
            let region = entry.session.region.get()?;
            Some((Arc::clone(&entry.session), Arc::clone(region)))
        });
        bound.collect()
    }

    /// The session of a token, if it is this process's and stands.
    fn session_of(&self, tokens: &[Token], peer: &Credentials) -> Option<Arc<Session>> {
        let table = self.table();
        let keys = tokens.iter().take(limits::TOKENS_MAX).filter_map(|t| table.tokens.get(t));
        let sessions = keys.filter_map(|key| Some(&table.open.get(key)?.session));
        sessions.into_iter().find(|session| session.peer == *peer).map(Arc::clone)
    }

    /// Bytes of all regions of a user's sessions.
    fn region_bytes_of(&self, user: u32) -> usize {
        let theirs = self.regions().into_iter().filter(|(session, _)| session.peer.uid == user);
        theirs.map(|(_, region)| region.layout().region_bytes()).sum()
    }

    /// Bindings of a user.
    fn bindings_of(&self, user: u32) -> usize {
        let theirs = self.regions().into_iter().filter(|(session, _)| session.peer.uid == user);
        theirs.map(|(_, region)| region.bindings().len()).sum()
    }
}

impl ServerPath for Sessions {
    fn close(&self) {
        self.close_names(|_| true);
    }

    fn revoke(&self, export: &Export) {
        self.close_names(|one| one.number == export.number);
        for (session, region) in self.regions() {
            let mut rows = region.bindings();
            let bound = rows.iter().filter(|(_, row)| row.export == export.number);
            let gone: Vec<u32> = bound.map(|(number, _)| number).collect();
            // Dropped when the rows are not locked any more: one may be the object's last owner.
            let removed: Vec<_> = gone.iter().map(|number| rows.remove(*number)).collect();
            drop(rows);
            drop(removed);
            for number in gone {
                // Who does not read it learns it with the next call.
                let _ = session.say(&Answer::Revoked(number));
            }
        }
        self.pool.forget_rows();
    }

    fn disconnect(&self) {
        let entries: Vec<_> = {
            let mut table = self.table();
            table.closed = true;
            table.tokens.clear();
            table.open.drain().collect()
        };
        for (_, Entry { session, watches }) in entries {
            drop(watches);
            let Some(region) = session.region.get() else { continue };
            session.is_over();
            region.close();
            if !region.has_workers() {
                for index in 0..region.count() {
                    region.set_assignment(index, Assignment::Queued);
                    region.refuse(index, &Refusal::stopping());
                }
                let _ = session.say(&Answer::Goodbye);
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

    fn threads(&self) -> usize {
        self.pool.threads()
    }
}

/// A binding that the client has not been told of yet, and the memory of a new session.
struct NewBinding {
    region: Arc<ServerRegion>,
    bound: Bound,
    file: Option<OwnedFd>,
}

/// One client process; a guest that has not bound yet has no region.
struct Session {
    key: u64,
    socket: Seqpacket,
    peer: Credentials,
    process: OnceLock<Process>,
    /// Where it came in; an export that is withdrawn does not live on because of a session.
    export: Weak<Export>,
    region: OnceLock<Arc<ServerRegion>>,
    /// Its row among the counters, once it has a region.
    told: OnceLock<SessionTold>,
    /// It has bound in another session, which was all that it was for.
    joined: AtomicBool,
    /// When an A-stack was last taken away from a busy thread for it.
    relieved: Mutex<Option<Instant>>,
    all: Arc<Sessions>,
}

impl Session {
    /// Reads what the client says; `None` when it has gone or said what no client says.
    fn listen(self: &Arc<Self>) -> Option<Next> {
        let mut buffer = [0; 256];
        if let Some(rest) = self.rest() {
            return Some(rest);
        }
        // As many as a client may have to say at once; the keeper has others to look after too.
        for _ in 0..64 {
            let received = match self.socket.receive(&mut buffer) {
                Ok(received) if received.bytes > 0 => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Some(Next::Sleep);
                }
                _ => return None,
            };
            let request = if received.whole && received.files.is_empty() {
                Request::from_bytes(&buffer[..received.bytes])
            } else {
                Err((Kind::ProtocolMismatch, "the request is longer than any request".into()))
            };
            match request {
                Ok(Request::Ring(index)) => {
                    self.ring(index)?;
                    if let Some(rest) = self.rest() {
                        return Some(rest);
                    }
                }
                Ok(Request::Unbind(binding)) => {
                    let row = self.region.get()?.bindings().remove(binding);
                    drop(row);
                }
                Ok(Request::Describe) => match self.export.upgrade() {
                    Some(export) => self.say(&Answer::Description(export.description()))?,
                    None => self.say(&Answer::refused(Kind::Withdrawn, "it was withdrawn"))?,
                },
                Ok(Request::Count) => self.count()?,
                Ok(Request::Bind(bind)) => self.bind(&bind)?,
                Err((kind, text)) => {
                    self.say(&Answer::refused(kind, text));
                    return None;
                }
            }
        }
        // One that never stops talking is listened to now and then.
        Some(Next::Pause(Duration::from_millis(1)))
    }

    /// For how long the keeper does not listen to it, because A-stacks of its user were slow to look at.
    fn rest(&self) -> Option<Next> {
        let user = self.region.get()?.user();
        self.all.pool.ignored_for(user).map(Next::Pause)
    }

    /// A call is posted where nobody looks, or nobody has seen it.
    fn ring(&self, index: u32) -> Option<()> {
        /// How often an A-stack is taken away from a busy thread: it disturbs all processors.
        const RELIEF: Duration = Duration::from_micros(300);
        let region = self.region.get()?;
        if matches!(region.assignment(index), Some(Assignment::Worker(_))) {
            let mut relieved = self.relieved.lock();
            if relieved.is_some_and(|last| last.elapsed() < RELIEF) {
                return Some(());
            }
            *relieved = Some(Instant::now());
        }
        self.all.pool.on_ring(region, index);
        Some(())
    }

    /// The server's own user, and root, may look at its counters.
    fn count(&self) -> Option<()> {
        let told = &self.all.core.disclosed;
        let own = rustix::process::geteuid().as_raw();
        let refusal = if is_other(&self.peer) {
            let text = format!("the counters are user {own}'s, and user {} asks", self.peer.uid);
            Answer::refused(Kind::Denied, text)
        } else if told.disclosure == Disclosure::Nothing {
            Answer::refused(Kind::Denied, "the server tells nothing of itself")
        } else if let Some(file) = told.page.file() {
            told.refresh();
            let answer = Answer::Counters(PAGE_BYTES as u64).to_bytes();
            return self.socket.send(&answer, Some(file)).ok();
        } else {
            let text =
                "the server's kernel cannot share memory for reading only: it needs Linux 5.1";
            Answer::refused(Kind::Denied, text)
        };
        self.say(&refusal)
    }

    /// A client that does not read its answers has no further use for the session.
    fn say(&self, answer: &Answer) -> Option<()> {
        self.socket.send(&answer.to_bytes(), None).ok()
    }

    fn bind(self: &Arc<Self>, bind: &Bind) -> Option<()> {
        if self.region.get().is_some() || self.joined.load(Ordering::Relaxed) {
            self.say(&Answer::refused(Kind::ProtocolMismatch, "this connection has bound already"));
            return None;
        }
        let bound = self.export.upgrade().map(|export| (self.bound(&export, bind), export));
        let (bound, export) = match bound {
            None => return self.say(&Answer::refused(Kind::Withdrawn, "it was withdrawn")),
            Some((Err((kind, text)), _)) => return self.say(&Answer::refused(kind, text)),
            Some((Ok(bound), export)) => (bound, export),
        };
        let NewBinding { region, bound, file } = bound;
        let (binding, joins) = (bound.binding, file.is_none());
        if export.is_closed() {
            let row = region.bindings().remove(binding);
            drop(row);
            self.say(&Answer::refused(Kind::Withdrawn, export.withdrawn()));
            return None;
        }
        let answer = Answer::Bound(bound).to_bytes();
        let sent = self.socket.send(&answer, file.as_ref().map(AsFd::as_fd));
        if sent.is_err() {
            // The client waits for it no more, and will never say that it has gone.
            let row = region.bindings().remove(binding);
            drop(row);
            return None;
        }
        // With a binding in another session this connection has done what it was for.
        (!joins).then_some(())
    }

    /// Binds in a session that the client has, or makes this one its session.
    fn bound(self: &Arc<Self>, export: &Export, bind: &Bind) -> Result<NewBinding, (Kind, String)> {
        let admitted = export.admitted_bytes(bind.digest, bind.bytes)?;
        let message_bytes = admitted.max(limits::MESSAGE_BYTES_ASKED);
        if self.all.bindings_of(self.peer.uid) >= limits::BINDINGS_PER_USER {
            let text = format!("one user may have {} bindings", limits::BINDINGS_PER_USER);
            return Err((Kind::Exhausted, text));
        }
        let caller = CallerInfo {
            path: PathKind::Local,
            export: export.name.clone(),
            process: self.peer.pid,
            user: self.peer.uid,
            group: self.peer.gid,
            from: None,
            hardware: None,
            stopping: None,
        };
        let row = |session: &SessionTold| {
            export.bind(caller, export.message_bytes_max(), export.counters.tally(session.number()))
        };
        let representation = export.serve.byte_order().number();
        let bytes = usize::try_from(bind.bytes).unwrap_or(usize::MAX);
        let has_room = |session: &Arc<Self>| {
            session.region.get().is_some_and(|region| region.layout().bytes >= bytes)
        };
        let known = self.all.session_of(&bind.sessions, &self.peer).filter(has_room);
        if let Some((region, told)) =
            known.as_ref().and_then(|session| session.region.get().zip(session.told.get()))
        {
            let session = bind.sessions.iter().find(|token| {
                self.all.table().tokens.get(*token) == known.as_ref().map(|known| &known.key)
            });
            if let Some(session) = session {
                let binding = add(region, row(told))?;
                self.joined.store(true, Ordering::Relaxed);
                let RegionLayout { count, bytes, .. } = region.layout();
                let epoch = self.all.core.epoch;
                let bytes = bytes as u64;
                let session = *session;
                let bound = Bound { epoch, session, binding, count, bytes, representation };
                return Ok(NewBinding { region: Arc::clone(region), bound, file: None });
            }
        }
        let theirs = self.all.region_bytes_of(self.peer.uid);
        let left = limits::REGION_BYTES_PER_USER.saturating_sub(theirs);
        let room = export.room_for(&self.peer, left, (bind.count, message_bytes));
        self.become_session(room, left, representation, row)
    }

    fn become_session(
        self: &Arc<Self>,
        (count, message_bytes): (u32, usize),
        left: usize,
        representation: u32,
        row: impl FnOnce(&SessionTold) -> Arc<BindingRow>,
    ) -> Result<NewBinding, (Kind, String)> {
        let exhausted = |what| move |error| (Kind::Exhausted, cause(what, &error));
        // Sparse: what is never touched costs nothing, and later bindings may need more.
        let layout = RegionLayout::at_most(count, message_bytes)
            .ok_or_else(|| (Kind::TooLarge, format!("A-stacks of {message_bytes} bytes")))?;
        let user = self.peer.uid;
        if is_other(&self.peer) && layout.region_bytes() > left {
            let most = limits::REGION_BYTES_PER_USER;
            let theirs = most - left;
            let text =
                format!("the sessions of user {user} have {theirs} of {most} bytes of A-stacks");
            return Err((Kind::Exhausted, text));
        }
        let process = Process::open(self.peer.pid).map_err(exhausted("watching the client"))?;
        let whose = if is_other(&self.peer) { User::Other(user) } else { User::Own };
        let new = |layout| ServerRegion::new(whose, layout, Arc::clone(&self.all.waits));
        let (layout, (region, file)) = layout.mapped(new).map_err(exhausted("the region"))?;
        let session = sys::random().map_err(exhausted("a token"))?;
        let region = Arc::new(region);
        // Nobody else binds with this one: it is the keeper that runs this.
        let _ = self.process.set(process);
        let death = Arc::new(Death(Arc::clone(self)));
        let watch = self.all.core.keeper.watch(death).map_err(exhausted("watching the client"))?;
        let Credentials { pid: process, uid: user, gid: group } = self.peer;
        let (path, from, hardware) = (PathKind::Local, None, None);
        let visitor = Visitor { path, process, user, group, from, hardware };
        let told = SessionTold::new(&self.all.core.disclosed.page, &visitor);
        let binding = add(&region, row(&told))?;
        let mut table = self.all.table();
        let Some(entry) = table.open.get_mut(&self.key) else {
            return Err((Kind::Withdrawn, "the server is stopping".into()));
        };
        entry.watches.push(watch);
        let _ = self.told.set(told);
        let _ = self.region.set(Arc::clone(&region));
        table.tokens.insert(session, self.key);
        let (count, bytes) = (layout.count, layout.bytes as u64);
        let epoch = self.all.core.epoch;
        let bound = Bound { epoch, session, binding, count, bytes, representation };
        Ok(NewBinding { region, bound, file: Some(file) })
    }

    /// It is among the counters no more.
    fn is_over(&self) {
        if let Some(told) = self.told.get() {
            told.end();
        }
    }

    /// The client has gone: its threads leave, and it is forgotten.
    fn end(&self) -> Next {
        self.is_over();
        if let Some(region) = self.region.get() {
            region.close();
            region.bindings().revoke_all();
            self.all.pool.closed(region);
        }
        // The lock is released before the watches are dropped, which asks the keeper.
        let gone = {
            let mut table = self.all.table();
            table.tokens.retain(|_, key| *key != self.key);
            table.open.remove(&self.key)
        };
        drop(gone);
        Next::Forget
    }
}

/// What failed, and why, as a client is told.
fn cause(what: &str, error: &io::Error) -> String {
    format!("{what}: {}", limit_reached(error).unwrap_or_else(|| error.to_string()))
}

fn add(region: &ServerRegion, row: Arc<BindingRow>) -> Result<u32, (Kind, String)> {
    let number = region.bindings().add(row);
    number.ok_or_else(|| (Kind::Exhausted, format!("{} bindings", limits::BINDINGS_MAX)))
}

/// The keeper's view of a session.
impl Watched for Session {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn ready(self: Arc<Self>) -> Next {
        self.listen().unwrap_or_else(|| self.end())
    }

    /// A guest has had its time.
    fn tick(self: Arc<Self>) -> Next {
        if self.region.get().is_some() {
            return Next::Sleep;
        }
        let text = "the connection took too long to bind";
        self.say(&Answer::refused(Kind::TimedOut, text));
        self.end()
    }
}

/// The client's process, whose end is certain even while a child of it holds the socket open.
struct Death(Arc<Session>);

impl Watched for Death {
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
