//! Exports and their sessions: who is let in, what they are told, which rings go to the pool.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::ExportOptions;
use super::pool::{Pool, stopping};
use crate::call::{CallerInfo, PathKind, Serve};
use crate::directory::Published;
use crate::error::Kind;
use crate::keeper::{Keeper, Next, Watch, Watched};
use crate::limits;
use crate::path::local::{Answer, Bind, Description, RegionLayout, Request, ServerRegion};
use crate::sys::{Credentials, Process, Seqpacket};

/// The sessions of an export, by number; none is added once it is closed.
#[derive(Default)]
struct Sessions {
    open: HashMap<u64, ([Watch; 2], Arc<Session>)>,
    closed: bool,
}

/// A name, what is served under it, and who is bound to it.
pub(super) struct Export {
    pub(super) name: String,
    serve: Arc<dyn Serve>,
    options: ExportOptions,
    published: Published,
    pool: Arc<Pool>,
    keeper: Arc<Keeper>,
    sessions: Mutex<Sessions>,
    next_session: AtomicU64,
    epoch: u64,
    since: Instant,
    /// Closed for a moment to let in, and turn away, one client when descriptors have run out.
    reserve: Mutex<Option<Seqpacket>>,
    this: Weak<Self>,
}

impl Export {
    pub(super) fn new(
        name: String,
        serve: Arc<dyn Serve>,
        options: ExportOptions,
        published: Published,
        pool: Arc<Pool>,
        keeper: Arc<Keeper>,
    ) -> Arc<Self> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let epoch = now.map_or(0, |now| now.as_nanos() as u64) ^ u64::from(std::process::id());
        Arc::new_cyclic(|this| Self {
            name,
            serve,
            options,
            published,
            pool,
            keeper,
            sessions: Mutex::default(),
            next_session: AtomicU64::new(0),
            epoch,
            since: Instant::now(),
            reserve: Mutex::default(),
            this: Weak::clone(this),
        })
    }

    /// Begins to let clients in.
    pub(super) fn open(self: &Arc<Self>) -> io::Result<Watch> {
        self.make_reserve();
        self.keeper.watch(Arc::clone(self) as Arc<dyn Watched>)
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_reserve(&self) -> bool {
        let mut reserve = self.reserve.lock().unwrap_or_else(PoisonError::into_inner);
        if reserve.is_none() {
            *reserve = Seqpacket::unconnected().ok();
        }
        reserve.is_some()
    }

    /// Ends all sessions: answers what was posted and not taken, and says goodbye where nothing
    /// runs any more.
    pub(super) fn farewell(&self) {
        let sessions: Vec<_> = {
            let mut sessions = self.sessions();
            sessions.closed = true;
            sessions.open.drain().collect()
        };
        for (_, (watches, session)) in sessions {
            drop(watches);
            let Some(region) = session.region.get() else { continue };
            region.close();
            if !region.is_attended() {
                for index in 0..region.count() {
                    region.refuse(index, &stopping());
                }
                let _ = session.socket.send(&Answer::Goodbye.to_bytes(), None);
            }
        }
    }

    fn let_in(&self) -> io::Result<()> {
        let socket = self.published.socket.accept()?;
        let Some(this) = self.this.upgrade() else { return Ok(()) };
        let peer = socket.credentials()?;
        let refuse = |kind, text: String| {
            let _ = socket.send(&Answer::refused(kind, text).to_bytes(), None);
        };
        let own = rustix::process::geteuid().as_raw();
        if !self.options.public && peer.uid != own && peer.uid != 0 {
            refuse(Kind::Denied, format!("`{}` is private to user {own}", self.name));
            return Ok(());
        }
        if self.sessions().open.len() >= limits::SESSIONS_MAX {
            refuse(Kind::Exhausted, format!("{} sessions stand", limits::SESSIONS_MAX));
            return Ok(());
        }
        let key = self.next_session.fetch_add(1, Ordering::Relaxed);
        let process = Process::open(peer.pid)?;
        let region = OnceLock::new();
        let session = Arc::new(Session { key, socket, process, peer, export: this, region });
        // The table is locked before the keeper can see the first message.
        let mut sessions = self.sessions();
        if sessions.closed {
            let _ = session.socket.send(&Answer::Goodbye.to_bytes(), None);
            return Ok(());
        }
        let death = Arc::new(Death(Arc::clone(&session)));
        let watches = [self.keeper.watch(Arc::clone(&session) as _)?, self.keeper.watch(death)?];
        sessions.open.insert(key, (watches, session));
        Ok(())
    }

    /// Descriptors have run out: one is spared to tell the client that waits. False if that one
    /// cannot be had back now.
    fn turn_away(&self) -> bool {
        drop(self.reserve.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Ok(socket) = self.published.socket.accept() {
            let text = "the server has no descriptor left (RLIMIT_NOFILE)";
            let _ = socket.send(&Answer::refused(Kind::Exhausted, text).to_bytes(), None);
        }
        self.make_reserve()
    }

    fn description(&self) -> Description {
        let interface = self.serve.interface();
        let mut docs = vec![interface.docs.to_owned()];
        docs.extend(interface.procedures.iter().map(|procedure| procedure.docs.to_owned()));
        Description {
            interface: interface.name.to_owned(),
            version: interface.version,
            digest: interface.digest(),
            text: interface.canonical_text(),
            docs,
            process: std::process::id(),
            age_ms: self.since.elapsed().as_millis() as u64,
            bindings: self.bindings(),
        }
    }

    fn bindings(&self) -> u32 {
        let bound = |(_, session): &&([Watch; 2], Arc<Session>)| session.region.get().is_some();
        self.sessions().open.values().filter(bound).count() as u32
    }

    /// The A-stacks that a client gets.
    fn layout_for(&self, bind: &Bind) -> Result<RegionLayout, (Kind, String)> {
        let interface = self.serve.interface();
        if let Some(digest) = bind.digest
            && digest != interface.digest().0
        {
            let text = format!("`{}` is version {}", interface.name, interface.version);
            return Err((Kind::InterfaceMismatch, text));
        }
        let count = bind.count.clamp(1, self.options.astacks_max);
        let bytes = usize::try_from(bind.bytes).unwrap_or(usize::MAX);
        let layout = RegionLayout::checked(count, bytes);
        let most = self.options.message_bytes_max.unwrap_or_else(|| {
            interface.message_bytes().next_multiple_of(16).max(limits::EXPORT_MESSAGE_BYTES)
        });
        let allowed = layout.filter(|layout| layout.bytes <= most);
        allowed.ok_or_else(|| {
            (Kind::TooLarge, format!("{count} A-stacks of {bytes} bytes; one may have {most}"))
        })
    }
}

impl Watched for Export {
    fn fd(&self) -> BorrowedFd<'_> {
        self.published.socket.as_fd()
    }

    fn ready(&self) -> Next {
        /// How long clients wait when the machine is short of something.
        const SHORT: Duration = Duration::from_millis(50);
        // As many as may come at once; the keeper has others to look after too.
        for _ in 0..64 {
            let Err(error) = self.let_in() else { continue };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Next::Sleep,
                Some(libc::EMFILE | libc::ENFILE) if self.turn_away() => {}
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    return Next::Rest(SHORT);
                }
                // This client has gone already, or something about it failed.
                _ => {}
            }
        }
        Next::Sleep
    }
}

/// One client process.
pub(super) struct Session {
    key: u64,
    socket: Seqpacket,
    process: Process,
    peer: Credentials,
    export: Arc<Export>,
    region: OnceLock<Arc<ServerRegion>>,
}

impl Session {
    /// Reads what the client says; `None` when it has gone or said what no client says.
    fn listen(&self) -> Option<()> {
        let mut buffer = [0; 256];
        for _ in 0..64 {
            let received = match self.socket.receive(&mut buffer) {
                Ok(received) if received.bytes > 0 => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(()),
                _ => return None,
            };
            let request = if received.whole && received.files.is_empty() {
                Request::from_bytes(&buffer[..received.bytes])
            } else {
                Err((Kind::ProtocolMismatch, "a longer request than there is".into()))
            };
            match request {
                Ok(Request::Ring(index)) => {
                    self.export.pool.rung(self.region.get()?, index);
                }
                Ok(Request::Describe) => {
                    self.say(&Answer::Description(self.export.description()))?;
                }
                Ok(Request::Bind(bind)) => self.bind(&bind)?,
                Err((kind, text)) => {
                    self.say(&Answer::refused(kind, text));
                    return None;
                }
            }
        }
        Some(())
    }

    /// A client that does not read its answers has no further use for the session.
    fn say(&self, answer: &Answer) -> Option<()> {
        self.socket.send(&answer.to_bytes(), None).ok()
    }

    fn bind(&self, bind: &Bind) -> Option<()> {
        if self.region.get().is_some() {
            self.say(&Answer::refused(Kind::ProtocolMismatch, "the session is bound already"));
            return None;
        }
        let layout = match self.export.layout_for(bind) {
            Ok(layout) => layout,
            Err((kind, text)) => return self.say(&Answer::refused(kind, text)),
        };
        let caller = CallerInfo {
            path: PathKind::Local,
            export: self.export.name.clone(),
            process: self.peer.pid,
            user: self.peer.uid,
            group: self.peer.gid,
        };
        let (region, file) = match ServerRegion::new(layout, Arc::clone(&self.export.serve), caller)
        {
            Ok(made) => made,
            Err(error) => {
                let text = format!("no memory for the region: {error}");
                return self.say(&Answer::refused(Kind::Exhausted, text));
            }
        };
        let _ = self.region.set(Arc::new(region));
        let answer = Answer::Bound {
            epoch: self.export.epoch,
            count: layout.count,
            bytes: layout.bytes as u64,
        };
        self.socket.send(&answer.to_bytes(), Some(file.as_fd())).ok()
    }
}

impl Session {
    /// The client has gone: its threads leave, and it is forgotten.
    fn end(&self) -> Next {
        if let Some(region) = self.region.get() {
            region.close();
        }
        // The lock is released before the watches are dropped, which asks the keeper.
        let gone = self.export.sessions().open.remove(&self.key);
        drop(gone);
        Next::Forget
    }
}

impl Watched for Session {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn ready(&self) -> Next {
        if self.listen().is_some() { Next::Sleep } else { self.end() }
    }
}

/// The client's process, whose end is certain even while a child of it holds the socket open.
struct Death(Arc<Session>);

impl Watched for Death {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.process.as_fd()
    }

    fn ready(&self) -> Next {
        self.0.end()
    }
}
