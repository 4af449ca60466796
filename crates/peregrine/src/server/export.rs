//! Exports: a name, the object behind it, and who may bind to it.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::ExportOptions;
use super::session::Sessions;
use crate::call::Serve;
use crate::counters::ExportTold;
use crate::directory::Published;
use crate::error::Kind;
use crate::keeper::{Next, Watch, Watched};
use crate::limits;
use crate::path::local::{Answer, Bind, Description};
use crate::sync::{Mutex, Rank};
use crate::sys::{self, Credentials, Seqpacket};

/// A name, and what is served under it.
pub(super) struct Export {
    pub(super) name: String,
    /// Differs from that of every other export of the server.
    pub(super) number: u64,
    pub(super) serve: Arc<dyn Serve>,
    options: ExportOptions,
    /// Its place in the runtime directory; none for what a server tells of itself.
    published: Option<Published>,
    sessions: Arc<Sessions>,
    since: Instant,
    watch: Mutex<Option<Watch>>,
    /// Nobody is let in, nor bound, any more.
    closed: AtomicBool,
    /// Bindings that stand. Counted as they come and go: whoever asks for a description could
    /// otherwise make the keeper walk through a quarter of a million for twelve bytes.
    pub(super) standing: Arc<AtomicU32>,
    /// Its counters.
    pub(super) told: ExportTold,
}

impl Export {
    pub(super) fn new(
        name: String,
        number: u64,
        serve: Arc<dyn Serve>,
        options: ExportOptions,
        published: Option<Published>,
        sessions: Arc<Sessions>,
    ) -> Arc<Self> {
        let told = ExportTold::new(&sessions.told.page, &name, &serve.interface());
        let (since, watch, standing) =
            (Instant::now(), Mutex::ranked(Rank::ExportWatch, None), Arc::default());
        let closed = AtomicBool::new(false);
        Arc::new(Self {
            name,
            number,
            serve,
            options,
            published,
            sessions,
            since,
            watch,
            closed,
            standing,
            told,
        })
    }

    /// Begins to let clients in.
    pub(super) fn open(self: &Arc<Self>) -> std::io::Result<()> {
        if self.published.is_none() {
            return Ok(());
        }
        let watch = self.sessions.keeper.watch(Arc::clone(self) as Arc<dyn Watched>)?;
        *self.watch.lock() = Some(watch);
        Ok(())
    }

    /// Takes the name away, and lets nobody in any more.
    pub(super) fn close(&self) {
        /// More than there can be who have connected and were not let in yet.
        const COME: usize = 1 << 16;
        self.closed.store(true, Ordering::SeqCst);
        self.told.end();
        let Some(published) = &self.published else { return };
        published.withdraw();
        drop(self.watch.lock().take());
        // Who has come meanwhile would wait for an answer for as long as we wait for calls to end.
        let refusal = Answer::refused(Kind::Withdrawn, self.withdrawn()).to_bytes();
        for _ in 0..COME {
            let Ok(socket) = published.socket.accept() else { break };
            let _ = socket.send(&refusal, None);
        }
    }

    /// Closes it, and refuses the calls of those who are bound.
    pub(super) fn withdraw(&self) {
        self.close();
        self.sessions.revoke(self.number);
    }

    /// Whether it has a name of its own, which people gave it.
    pub(super) const fn is_published(&self) -> bool {
        self.published.is_some()
    }

    /// Whether nobody may bind any more; who has added a binding looks here afterwards, for those
    /// that were there before are revoked.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(super) fn withdrawn(&self) -> String {
        format!("`{}` was withdrawn", self.name)
    }

    /// Whether a user may bind; if not, why.
    pub(super) fn admits(&self, socket: &Seqpacket, peer: &Credentials) -> Result<(), String> {
        let own = rustix::process::geteuid().as_raw();
        let ExportOptions { public, users, groups, .. } = &self.options;
        if *public || peer.uid == own || peer.uid == 0 || users.contains(&peer.uid) {
            return Ok(());
        }
        let member = |group: &u32| *group == peer.gid || socket.peer_groups().contains(group);
        if groups.iter().any(member) {
            return Ok(());
        }
        let (name, uid) = (&self.name, peer.uid);
        if users.is_empty() && groups.is_empty() {
            return Err(format!("`{name}` is private to user {own}, and user {uid} asks"));
        }
        Err(format!("`{name}` is open to some users and groups; user {uid} is none of them"))
    }

    /// Whether it may be called over a network, where nobody vouches for users.
    pub(super) fn is_offered_to_networks(&self) -> bool {
        self.options.users.is_empty() && self.options.groups.is_empty()
    }

    pub(super) fn astacks_max(&self) -> u32 {
        self.options.astacks_max.unwrap_or(limits::ASTACKS_MAX)
    }

    /// A-stacks of a session with this client.
    pub(super) fn astacks_for(&self, peer: &Credentials) -> u32 {
        let unless_set =
            if is_other(peer) { limits::ASTACKS_OF_OTHERS } else { limits::ASTACKS_MAX };
        self.options.astacks_max.unwrap_or(unless_set)
    }

    pub(super) fn description(&self) -> Description {
        let interface = self.serve.interface();
        Description {
            interface: interface.name().to_owned(),
            version: interface.version(),
            digest: interface.digest(),
            text: interface.canonical_text(),
            docs: interface.docs(),
            process: std::process::id(),
            age_ms: self.since.elapsed().as_millis() as u64,
            bindings: self.standing.load(Ordering::Relaxed),
            listens: match self.is_offered_to_networks() {
                true => self.sessions.listens.get().cloned().unwrap_or_default(),
                false => Vec::new(),
            },
            network: sys::network_number(),
        }
    }

    /// Bytes that a message may have.
    pub(super) fn message_bytes_max(&self) -> usize {
        self.options.message_bytes_max.unwrap_or_else(|| {
            let needed = self.serve.interface().message_bytes().next_multiple_of(16);
            needed.max(limits::MESSAGE_BYTES)
        })
    }

    /// Bytes of message that the A-stacks of a new session must hold for this binding.
    pub(super) fn message_bytes_for(&self, bind: &Bind) -> Result<usize, (Kind, String)> {
        Ok(self.admitted_bytes(bind.digest, bind.bytes)?.max(limits::MESSAGE_BYTES))
    }

    /// Bytes that the messages of a client with this interface may have, if it may bind.
    pub(super) fn admitted_bytes(
        &self,
        digest: Option<[u8; 16]>,
        bytes: u64,
    ) -> Result<usize, (Kind, String)> {
        let interface = self.serve.interface();
        if let Some(digest) = digest
            && digest != interface.digest().0
        {
            let text = format!("`{}` is version {}", interface.name(), interface.version());
            return Err((Kind::InterfaceMismatch, text));
        }
        let (bytes, most) =
            (usize::try_from(bytes).unwrap_or(usize::MAX), self.message_bytes_max());
        if bytes > most {
            let text =
                format!("the client needs messages of {bytes} bytes, and the export allows {most}");
            return Err((Kind::TooLarge, text));
        }
        Ok(bytes)
    }
}

/// Whether a client is of another user than this process, and not root.
pub(super) fn is_other(peer: &Credentials) -> bool {
    peer.uid != rustix::process::geteuid().as_raw() && peer.uid != 0
}

impl Watched for Export {
    fn fd(&self) -> BorrowedFd<'_> {
        // Only what is published is watched.
        self.published.as_ref().expect("a socket").socket.as_fd()
    }

    fn ready(self: Arc<Self>) -> Next {
        /// How long clients wait when the machine is short of something.
        const SHORT: Duration = Duration::from_millis(50);
        let Some(Published { socket: listener, .. }) = &self.published else { return Next::Forget };
        if sys::is_congested(limits::CLOSING_MAX) {
            return Next::Rest(SHORT);
        }
        // As many as may come at once; the keeper has others to look after too.
        for _ in 0..64 {
            let come = listener.accept();
            let let_in = |socket| self.sessions.let_in(Arc::clone(&self), socket);
            let Err(error) = come.and_then(let_in) else { continue };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Next::Sleep,
                Some(libc::EMFILE | libc::ENFILE) if self.sessions.turn_away(listener, &error) => {}
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
