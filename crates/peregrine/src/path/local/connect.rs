//! Binding to a server of this machine: connect, join the session with its process or make one,
//! and watch for its end.
//!
//! All bindings between two processes share one session: one socket, one process handle, one
//! region. A binding is a number in it.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{Answer, Bind, Bound, ClientRegion, LocalPath, RegionLayout, Request, Session, Token};
use crate::address::Address;
use crate::call::{Call, CallPath, PathKind, Returned, Wait, block_cost};
use crate::directory;
use crate::error::{CallError, Kind, NO_THREAD, Phase, unusable_memory};
use crate::keeper::{Keeper, Next, Watch, Watched};
use crate::limits;
use crate::path::bind::{
    BoundPath, Connect, Inquiry, Target, Wanted, byte_order, hold, refused, system, violated,
};
use crate::path::options::BindOptions;
use crate::registry::Registry;
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::{Memory, Process, Received, Seqpacket};

/// The client half of the local path.
pub(crate) struct Local;

impl Connect for Local {
    fn kind(&self) -> PathKind {
        PathKind::Local
    }

    fn leads_to(&self, target: &Address) -> bool {
        target.place().is_none() || target.path().is_none()
    }

    fn bind(&self, _: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
        bind_socket(directory::resolve(wanted.name, wanted.until)?, wanted)
    }

    fn inquire(&self, _: &Target<'_>, wanted: &Wanted<'_>) -> Result<Inquiry, CallError> {
        let socket = directory::resolve(wanted.name, wanted.until)?;
        match ask(&socket, &Request::Describe, wanted.until)?.0 {
            Answer::Description(description) => Ok(Inquiry::Answer(description)),
            answer => Err(unexpected(answer)),
        }
    }
}

/// The sessions of this process, by the server's process.
static SESSIONS: Registry<u32, Joined> = Registry::new(Rank::Server);

/// A session, and the bindings that it carries; it ends with the last of them.
struct Joined {
    // First, so that nothing is watched any more when the rest goes.
    watches: [Watch; 2],
    end: Arc<End>,
    token: Token,
}

impl Joined {
    fn region(&self) -> &Arc<ClientRegion> {
        &self.end.region
    }

    #[cold]
    fn tidy_later(&self) {
        if !self.end.tidies.swap(true, Ordering::AcqRel) {
            self.watches[0].remind(TIDY);
        }
    }
}

/// How long memory must have been idle, twice, before it is given back.
const TIDY: Duration = Duration::from_secs(1);

/// The local path together with the session that it belongs to.
struct Member {
    path: LocalPath,
    end: Arc<End>,
    /// Until it goes.
    joined: Option<Arc<Joined>>,
}

impl CallPath for Member {
    #[inline]
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let returned = self.path.transport(call);
        if self.path.region.is_untidy() {
            self.joined.as_ref().inspect(|joined| joined.tidy_later());
        }
        returned
    }

    fn kind(&self) -> PathKind {
        self.path.kind()
    }

    fn explain(&self) -> String {
        format!("memory shared with process {}", self.end.session().process.pid)
    }

    fn is_alive(&self) -> bool {
        self.path.is_alive()
    }

    fn is_released(&self, frame: u32) -> bool {
        self.path.is_released(frame)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.end.bindings().told.remove(&self.path.binding);
        // The last one ends the session, which says it all. Exactly one of those who go at the
        // same time is the last, and none if somebody is about to join.
        if self.joined.take().and_then(Arc::into_inner).is_none() {
            self.end.session().unbind(self.path.binding);
        }
    }
}

/// The keeper's view of a session: what must be told to whom when it ends.
struct End {
    region: Arc<ClientRegion>,
    bindings: Mutex<Bindings>,
    /// How often everybody inside is told again: a server that closed its socket but lives could
    /// have written over the notice.
    tells: AtomicU32,
    /// Whether the keeper will tidy up.
    tidies: AtomicBool,
    /// Whether the server has closed the socket.
    closes: AtomicBool,
}

/// Which bindings are to be told that their export was withdrawn.
#[derive(Default)]
struct Bindings {
    told: HashMap<u32, Arc<AtomicBool>>,
    /// Numbers that were revoked and that nobody here has, or not yet: a binding's own answer comes
    /// on another connection. Kept while somebody binds.
    early: Vec<u32>,
}

impl Bindings {
    /// Numbers that are kept for those who bind.
    const EARLY_MAX: usize = 256;

    fn revoke(&mut self, binding: u32) {
        match self.told.remove(&binding) {
            Some(revoked) => revoked.store(true, Ordering::Release),
            None if self.early.len() < Self::EARLY_MAX => self.early.push(binding),
            None => {}
        }
    }

    /// A new binding, which may have been revoked already.
    fn add(&mut self, binding: u32) -> Arc<AtomicBool> {
        let revoked = Arc::new(AtomicBool::new(self.early.contains(&binding)));
        self.told.insert(binding, Arc::clone(&revoked));
        revoked
    }
}

impl End {
    fn session(&self) -> &Session {
        &self.region.session
    }

    #[track_caller]
    fn bindings(&self) -> MutexGuard<'_, Bindings> {
        self.bindings.lock()
    }

    fn tell(&self) -> Next {
        self.region.wake_all();
        match self.tells.fetch_add(1, Ordering::Relaxed) {
            0..20 => Next::Tick(Duration::from_millis(10)),
            _ => Next::Forget,
        }
    }

    /// Whether the server has something to say, were it that it says no more.
    fn has_more(&self) -> bool {
        self.session().socket.readable_within(Duration::ZERO).unwrap_or(true)
    }

    /// What the server has to say; `None` when it says no more.
    fn listen(&self) -> Option<Answer> {
        let mut buffer = [0; 64];
        match receive(&self.session().socket, &mut buffer) {
            Ok(Received { bytes, whole: true, .. }) if bytes > 0 => {
                Answer::from_bytes(&buffer[..bytes]).ok()
            }
            _ => None,
        }
    }
}

impl Watched for End {
    fn fd(&self) -> BorrowedFd<'_> {
        self.region.session.socket.as_fd()
    }

    fn ready(self: Arc<Self>) -> Next {
        /// A process that ends closes its sockets a moment before its handle tells so.
        const MOMENT: Duration = Duration::from_millis(20);
        /// Withdrawn bindings that are noted at a time, and the time for which the keeper then looks
        /// after others. A server with more bindings to withdraw is waited for.
        const AT_A_TIME: u32 = 64;
        const REST: Duration = Duration::from_millis(5);
        let mut heard = None;
        for _ in 0..AT_A_TIME {
            if !self.has_more() {
                return Next::Sleep;
            }
            heard = self.listen();
            let Some(Answer::Revoked(binding)) = heard else { break };
            self.bindings().revoke(binding);
        }
        match heard {
            Some(Answer::Revoked(_)) => return Next::Pause(REST),
            Some(Answer::Goodbye) => self.session().mark_withdrawn(),
            _ if !self.session().process.ended() => {
                self.closes.store(true, Ordering::Release);
                return Next::Tick(MOMENT);
            }
            _ => self.session().mark_closed(),
        }
        self.tell()
    }

    fn tick(self: Arc<Self>) -> Next {
        if self.tidies.load(Ordering::Acquire)
            && self.session().is_alive()
            && !self.closes.load(Ordering::Acquire)
        {
            if self.region.tidy() {
                return Next::SleepAndTick(TIDY);
            }
            self.tidies.store(false, Ordering::Release);
            return Next::Sleep;
        }
        self.session().mark_closed();
        self.tell()
    }
}

/// The server's process, whose end is certain even while a child of it holds the socket open.
struct Death(Arc<End>);

impl Watched for Death {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.session().process.as_fd()
    }

    fn ready(self: Arc<Self>) -> Next {
        self.0.session().mark_closed();
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

/// Returns the error for an answer that grants nothing.
fn unexpected(answer: Answer) -> CallError {
    match answer {
        Answer::Refused { kind, text } => refused(kind, text),
        _ => violated("the server answered another request than the client's"),
    }
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

/// The counters of the server that exports a name: how many bytes they have, and what to map.
pub(crate) fn counters(name: &str, until: Instant) -> Result<(u64, OwnedFd), CallError> {
    let socket = directory::resolve(name, until)?;
    socket.admit_files(true);
    let (answer, mut received) = ask(&socket, &Request::Count, until)?;
    let file = received.files.pop().filter(|_| received.files.is_empty());
    match (answer, file) {
        (Answer::Counters(bytes), Some(file)) => Ok((bytes, file)),
        (answer, _) => Err(unexpected(answer)),
    }
}

fn bind_socket(socket: Seqpacket, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
    let Wanted { interface, digest, options, until, .. } = *wanted;
    let credentials = socket.credentials().map_err(system("asking who serves"))?;
    let message_bytes = options.message_bytes_for(interface);
    let asked = options.message_bytes_asked(interface);
    let entry = SESSIONS.entry(credentials.pid);
    let mut sessions = hold(&entry, until)?;
    sessions.retain(|session| session.strong_count() > 0);
    let fits = |joined: &Arc<Joined>| {
        joined.region().session.is_alive() && joined.region().message_bytes() >= asked
    };
    let known: Vec<Arc<Joined>> = sessions.iter().filter_map(Weak::upgrade).filter(fits).collect();
    known.iter().for_each(|joined| joined.end.bindings().early.clear());
    let request = Request::Bind(Bind {
        digest: digest.map(|digest| digest.0),
        count: options.astacks.max(limits::ASTACKS_SPARSE),
        bytes: asked as u64,
        sessions: known.iter().map(|joined| joined.token).take(limits::TOKENS_MAX).collect(),
    });
    // A region may come with the answer, and nothing of the kind after it.
    socket.admit_files(true);
    let asked = ask(&socket, &request, until);
    socket.admit_files(false);
    let (answer, received) = asked?;
    let bound = match answer {
        Answer::Bound(bound) => bound,
        answer => return Err(unexpected(answer)),
    };
    let order = byte_order(bound.representation)?;
    let joined = match known.into_iter().find(|joined| joined.token == bound.session) {
        Some(joined) => joined,
        None => {
            let process = Process::open(credentials.pid).map_err(system("watching it"))?;
            let session = Session::new(socket, process);
            let joined = Arc::new(join(session, &bound, received, options, until)?);
            sessions.push(Arc::downgrade(&joined));
            joined
        }
    };
    joined.region().frames.at_least(options.astacks);
    let revoked = joined.end.bindings().add(bound.binding);
    let region = Arc::clone(joined.region());
    let frames = Arc::clone(&region.frames);
    let (binding, wait) = (bound.binding, options.wait);
    let own_bytes = message_bytes;
    let message_bytes = message_bytes.min(region.message_bytes());
    let path = LocalPath { region, binding, revoked, message_bytes, own_bytes, wait };
    drop(sessions);
    if options.wait == Wait::Adaptive {
        // Measured before the first call rather than in it.
        block_cost();
    }
    let path = Box::new(Member { path, end: Arc::clone(&joined.end), joined: Some(joined) });
    Ok(BoundPath { path, frames, order })
}

/// Maps the region of a new session, and has it watched.
fn join(
    session: Session,
    bound: &Bound,
    mut received: Received,
    options: &BindOptions,
    until: Instant,
) -> Result<Joined, CallError> {
    let (count, bytes) = (bound.count, usize::try_from(bound.bytes).unwrap_or(0));
    let layout = RegionLayout::checked(count, bytes).ok_or_else(|| {
        violated(format!("the server offers {count} A-stacks of {bytes} bytes, which cannot be"))
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
    let end = Arc::new(End {
        region: Arc::new(region),
        bindings: Mutex::default(),
        tells: AtomicU32::new(0),
        tidies: AtomicBool::new(false),
        closes: AtomicBool::new(false),
    });
    // What was sent while descriptors were admitted is received here: if one of them is slow to
    // close, that is this thread's trouble, and not the keeper's, who has others to look after.
    while Arc::clone(&end).ready() == Next::Sleep && end.has_more() {
        if Instant::now() >= until {
            return Err(violated("the server kept sending during the handshake"));
        }
    }
    let watch = |what| keeper.watch(what).map_err(system("watching the session"));
    let watches = [watch(Arc::clone(&end) as _)?, watch(Arc::new(Death(Arc::clone(&end))) as _)?];
    Ok(Joined { watches, end, token: bound.session })
}
