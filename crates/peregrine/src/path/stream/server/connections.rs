//! Accepts the TCP connections of a server, bounds their number, and ends them. The keeper, the background
//! thread of the process, watches the sockets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;

use super::deferred::defer;
use super::{AcceptedConnection, BindTerms, Host, StreamWorker};
use crate::address::host_of;
use crate::call::deferred::{Cancels, Owed};
use crate::call::{Account, CallerInfo, Calls, Identified, PathKind, Refusal, Wait};
use crate::counters::{Counting, SessionCounters, ThreadKind, Visitor};
use crate::device::tcp::{Listener, Stream};
use crate::error::Kind;
use crate::interface::Description;
use crate::keeper::{Next, Watch, Watched};
use crate::limits;
use crate::path::connections::acceptor::{Acceptors, Admit};
use crate::path::connections::intake::{Intake, Resume};
use crate::path::connections::receive::hear_out;
use crate::path::connections::table::{ConnectionTable, ConnectionTerms};
use crate::path::connections::threads::{Attend, Attended, ConnectionThreads, Work};
use crate::path::connections::watching::{LOOK, LOOK_MAX, Watching, next_of_stalled};
use crate::path::security::{SecureConnection, ServerSecurity};
use crate::protocol::stream::{self as wire, BindRequest};
use crate::serving::binding_table::BindingRow;
use crate::serving::export::{Applicant, Export};
use crate::serving::stop::Drain;
use crate::serving::{Load, ServerCore, ServerPath};
use crate::sync::{Mutex, MutexGuard, Rank};

/// How long a stopping server waits for its clients to close their connections. A client that is slow must
/// read the goodbye before the connection ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// The connections of one server.
pub(crate) struct Connections {
    core: Arc<ServerCore>,
    table: Mutex<ConnectionTable<ServerConnection>>,
    threads: Arc<ConnectionThreads<ServerConnection>>,
    /// The keeper's watches of the sockets that accept connections.
    acceptors: Acceptors,
    next: AtomicU64,
    /// Bounds the memory of calls that have not begun to run.
    intake: Arc<Intake>,
    /// Bounds the memory of replies to deferred calls.
    replies: Arc<Intake>,
    terms: ConnectionTerms,
    /// The security of the encrypted endpoints.
    securities: Mutex<Vec<ServerSecurity>>,
    /// Looks from time to time whether the clients are still trusted. `None` if connections are not
    /// encrypted.
    trust: OnceLock<Mutex<Option<Watch>>>,
    /// Whether the keeper will look.
    looks: AtomicBool,
}

/// How often a server looks whether its clients are still trusted.
const TRUST: Duration = Duration::from_secs(1);

impl Connections {
    /// Creates the TCP part of a server.
    pub(crate) fn new(core: &Arc<ServerCore>, terms: ConnectionTerms) -> Arc<Self> {
        Arc::new(Self {
            core: Arc::clone(core),
            table: Mutex::ranked(Rank::Clients, ConnectionTable::default()),
            threads: ConnectionThreads::new(core),
            acceptors: Acceptors::default(),
            next: AtomicU64::new(0),
            intake: Arc::default(),
            replies: Intake::of_replies(),
            terms,
            securities: Mutex::default(),
            trust: OnceLock::new(),
            looks: AtomicBool::new(false),
        })
    }

    #[track_caller]
    fn table(&self) -> MutexGuard<'_, ConnectionTable<ServerConnection>> {
        self.table.lock()
    }

    /// Starts to accept connections at a listening socket, and encrypts them by `security`.
    ///
    /// # Errors
    /// If the keeper cannot watch the socket.
    pub(crate) fn open(
        self: &Arc<Self>,
        listener: Listener,
        security: Option<ServerSecurity>,
    ) -> io::Result<()> {
        self.securities.lock().extend(security.clone());
        if security.is_some() && self.trust.get().is_none() {
            let connections = Arc::downgrade(self);
            let seen = [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)];
            let watch = self.core.keeper.watch_timer(move || match connections.upgrade() {
                Some(connections) => connections.check_trust(&seen),
                None => Next::Forget,
            })?;
            let _ = self.trust.set(Mutex::ranked(Rank::ClientWatch, Some(watch)));
        }
        let door = Arc::new(Door { connections: Arc::clone(self), security });
        self.acceptors.open(&self.core.keeper, listener, &door)
    }

    /// Lets the keeper look from now on whether the clients are still trusted.
    fn look_at_trust(&self) {
        if !self.looks.swap(true, Ordering::SeqCst)
            && let Some(watch) = self.trust.get()
            && let Some(watch) = &*watch.lock()
        {
            watch.remind(TRUST);
        }
    }

    /// Ends the connections of clients that are not trusted any more. `seen` has the numbers of changes at
    /// the last look and at the one before. Clients are judged twice after a change, because a thread may
    /// have judged a client before the change, and note the client only after the first look.
    fn check_trust(&self, seen: &[AtomicU64; 2]) -> Next {
        // SYNC: looks. The keeper notes that it does not look, and then reads the table. A new connection is
        // added under the lock of the table after it was noted that the keeper must look. So at least one of
        // the two makes sure that the keeper looks at the connection.
        self.looks.store(false, Ordering::SeqCst);
        let all = self.all();
        let is_secured = |one: &Arc<ServerConnection>| one.incoming.security().is_some();
        if !all.iter().any(is_secured) {
            return Next::Sleep;
        }
        self.looks.store(true, Ordering::SeqCst);
        // Counting looks at files, so no lock is held. Each number only grows, and so does the sum.
        let securities = self.securities.lock().clone();
        let changes = securities.iter().map(ServerSecurity::changes).sum();
        let last = seen[0].swap(changes, Ordering::Relaxed);
        let before = seen[1].swap(last, Ordering::Relaxed);
        if [last, before] != [changes; 2] {
            for connection in all {
                let secure = connection.incoming.security();
                if secure.is_some_and(|secure| !secure.is_trusted()) {
                    connection.end();
                }
            }
        }
        Next::SleepAndTick(TRUST)
    }

    fn all(&self) -> Vec<Arc<ServerConnection>> {
        self.table().all()
    }

    /// Admits or refuses a client that has connected.
    ///
    /// # Errors
    /// If the connection has failed, or the machine lacks a resource.
    fn admit(
        self: &Arc<Self>,
        stream: Stream,
        from: SocketAddr,
        security: Option<&ServerSecurity>,
    ) -> io::Result<()> {
        stream.prepare(self.terms.congestion.as_deref())?;
        let host = host_of(from.ip());
        let (intake, replies) = (Arc::clone(&self.intake), Arc::clone(&self.replies));
        let mut incoming = AcceptedConnection::new(stream, intake, replies, host)?;
        let mut table = self.table();
        let refusal = table.refusal(host, &self.terms);
        if let Some((kind, text)) = refusal {
            let body = wire::Refused { kind: kind as u32, text }.to_bytes();
            incoming.send_now(wire::MessageKind::Refused, 0, &body);
            incoming.stream().shut_down_sending();
            return Ok(());
        }
        if let Some(security) = security {
            incoming.secure(security)?;
            self.look_at_trust();
        }
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let visitor = Visitor {
            path: PathKind::Tcp,
            process: 0,
            user: CallerInfo::NOBODY,
            group: CallerInfo::NOBODY,
            from: Some(from),
            hardware: None,
        };
        let connection = Arc::new(ServerConnection {
            key,
            host,
            from,
            incoming,
            counters: SessionCounters::new(&self.core.disclosed.page, &visitor),
            since: Instant::now(),
            waits: AtomicBool::new(false),
            watching: Watching::default(),
            connections: Arc::downgrade(self),
            threads: Arc::clone(&self.threads),
        });
        // The table stays locked until the entry of the connection exists, because the keeper may see the
        // first bytes at once.
        let watched = Arc::clone(&connection) as Arc<dyn Watched>;
        let watch = self.core.keeper.watch_for(watched, limits::UNBOUND_TIME)?;
        connection.watching.begin(watch);
        table.insert(key, host, connection);
        Ok(())
    }
}

/// One endpoint of a server, where clients connect.
struct Door {
    connections: Arc<Connections>,
    security: Option<ServerSecurity>,
}

impl Admit for Door {
    fn admit(self: &Arc<Self>, stream: Stream, from: SocketAddr) -> io::Result<()> {
        self.connections.admit(stream, from, self.security.as_ref())
    }
}

impl ServerPath for Connections {
    fn counted_as(&self) -> ThreadKind {
        ThreadKind::Stream
    }

    fn close(&self) {
        self.acceptors.leave_to_others();
    }

    fn revoke(&self, export: &Export) {
        for connection in self.all() {
            let mut rows = connection.incoming.rows();
            let bound = rows.iter().filter(|(_, row)| row.export == export.number);
            let gone: Vec<u32> = bound.map(|(number, _)| number).collect();
            // A row may be the last owner of the exported object. So the removed rows are dropped after the
            // lock is released.
            let removed: Vec<_> = gone.iter().map(|number| rows.remove(*number)).collect();
            drop(rows);
            drop(removed);
            for number in gone {
                // If this notice cannot be sent now, the client learns of the withdrawal from the error of
                // its next call.
                connection.incoming.send_now(wire::MessageKind::Revoked, number, &[]);
            }
            connection.incoming.send_unsent(&Visit(&connection));
        }
    }

    fn refuse(&self) {
        self.threads.refuse();
    }

    fn drain(&self, drain: &Drain) -> bool {
        self.threads.drain(drain)
    }

    fn disconnect(&self) {
        let watch = self.trust.get().and_then(|watch| watch.lock().take());
        drop(watch);
        self.acceptors.close();
        let all = self.table().close();
        let now = Instant::now();
        let until = now + FAREWELL;
        // Clients that do not read must not delay the goodbye of the others. So the server waits only for
        // connections on which a thread sends, and after all others.
        let (_, busy): (Vec<_>, Vec<_>) = all.iter().partition(|connection| {
            connection.watching.end();
            connection.incoming.farewell(now)
        });
        for connection in busy {
            connection.incoming.farewell(until);
        }
        for connection in all {
            hear_out(connection.incoming.stream(), until);
            connection.counters.end();
            connection.incoming.rows().revoke_all();
            connection.incoming.close();
            connection.give_up_calls();
        }
    }

    fn load(&self) -> Load {
        let captured = self.all().iter().map(|connection| connection.incoming.captured()).sum();
        Load { captured, waiting: self.threads.admission.waiting() as u64 }
    }

    fn is_full(&self) -> bool {
        self.threads.admission.is_full()
    }

    fn threads(&self) -> usize {
        self.threads.count()
    }
}

/// One connection of a server, with the parts that the keeper and the threads of the server need.
pub(super) struct ServerConnection {
    key: u64,
    host: IpAddr,
    from: SocketAddr,
    incoming: AcceptedConnection,
    /// The counters of the connection.
    counters: SessionCounters,
    since: Instant,
    /// Whether the connection waits until memory for its message is free.
    waits: AtomicBool,
    watching: Watching,
    connections: Weak<Connections>,
    threads: Arc<ConnectionThreads<Self>>,
}

impl ServerConnection {
    pub(super) const fn incoming(&self) -> &AcceptedConnection {
        &self.incoming
    }

    /// Cancels all calls, because the connection has ended.
    fn give_up_calls(&self) {
        self.threads.admission.captured(self.incoming.give_up_all(), 0);
    }

    /// Handles a connection from which no bytes arrive. Ends the connection if its incomplete message has
    /// held memory for too long, and if other connections need memory.
    fn stalls(&self) -> Next {
        let is_short =
            || self.connections.upgrade().is_some_and(|connections| connections.intake.is_short());
        next_of_stalled(self.incoming.patience(), is_short).unwrap_or_else(|| {
            self.end();
            Next::Forget
        })
    }
}

impl Attend for ServerConnection {
    type Worker = StreamWorker;

    fn worker(counting: Counting) -> StreamWorker {
        StreamWorker::new(counting)
    }

    fn forget(worker: &mut StreamWorker) {
        worker.forget();
    }

    fn attend(self: &Arc<Self>, worker: &mut StreamWorker) -> Attended {
        let attended = self.incoming.attend(worker, &Visit(self));
        if attended == Attended::Ended
            && let Some(secure) = self.incoming.security()
        {
            secure.ended(self.from);
        }
        attended
    }

    fn send_unsent(self: &Arc<Self>) {
        self.incoming.send_unsent_waiting(&Visit(self));
    }

    fn end(&self) {
        self.counters.end();
        self.incoming.close();
        self.give_up_calls();
        self.incoming.rows().revoke_all();
        self.watching.end();
        self.incoming.forget_kept();
        if let Some(connections) = self.connections.upgrade() {
            let removed = connections.table().remove(self.key, self.host);
            drop(removed);
        }
    }
}

impl Resume for ServerConnection {
    fn waits(&self) -> &AtomicBool {
        &self.waits
    }

    /// Lets a thread receive again, if the connection is still held for lack of memory.
    fn resume(self: Arc<Self>) {
        if self.incoming.resumes() {
            self.watching.note_arrival();
            self.threads.enqueue(Work::Receive(Arc::clone(&self)));
        }
    }
}

impl Calls for ServerConnection {
    fn is_given_up(&self, call: u64) -> bool {
        self.incoming.is_given_up(call as u32)
    }

    fn is_gone(&self) -> bool {
        self.incoming.is_closed()
    }

    fn defer(self: Arc<Self>, call: u64, cancels: Arc<dyn Cancels>) -> Option<Box<dyn Owed>> {
        let connections = self.connections.upgrade()?;
        defer(self, call as u32, cancels, &connections.core.deferrals)
    }

    fn with_account(&self, call: u64, with: &mut dyn FnMut(&dyn Account)) {
        let message = self.incoming.calls().message_of(call as u32);
        let row = message.and_then(|(binding, _)| self.incoming.rows().get(binding));
        if let (Some(row), Some(connections)) = (row, self.connections.upgrade()) {
            with(&connections.core.deferrals.account(row));
        }
    }
}

impl Watched for ServerConnection {
    fn fd(&self) -> BorrowedFd<'_> {
        self.incoming.stream().as_fd()
    }

    fn interest(&self) -> EventFlags {
        EventFlags::IN | EventFlags::RDHUP | EventFlags::ONESHOT
    }

    fn ready(self: Arc<Self>) -> Next {
        if !self.incoming.wakes() {
            return Next::Sleep;
        }
        self.watching.note_arrival();
        self.threads.enqueue(Work::Receive(Arc::clone(&self)));
        Next::SleepAndTick(LOOK)
    }

    /// Looks for three problems: a procedure that takes long, a client that has not bound in time, and a
    /// message that holds memory and arrives too slowly.
    fn tick(self: Arc<Self>) -> Next {
        if !self.incoming.has_bound() {
            let Some(left) = limits::UNBOUND_TIME.checked_sub(self.since.elapsed()) else {
                self.end();
                return Next::Forget;
            };
            if self.incoming.is_parked() {
                return Next::SleepAndTick(left);
            }
        }
        if self.incoming.is_held() {
            Arc::clone(&self).resume();
            return Next::SleepAndTick(LOOK_MAX);
        }
        self.incoming.relieve(&Visit(&self));
        if self.incoming.is_parked() {
            return self.stalls();
        }
        self.watching.next_look()
    }
}

/// What a connection uses of its server while a thread attends to the connection.
pub(super) struct Visit<'a>(pub(super) &'a Arc<ServerConnection>);

impl Visit<'_> {
    /// Returns who the client is, if TLS has proven it.
    fn identity(&self) -> Option<Identified> {
        self.0.incoming.security().and_then(SecureConnection::peer)
    }

    /// Returns the connections of the server, and the export with this name.
    ///
    /// # Errors
    /// If there is no such export, or the server is stopping. A server that stops offers only its health.
    fn offered(
        &self,
        name: &str,
        is_reported: bool,
    ) -> Result<(Arc<Connections>, Arc<Export>), (Kind, String)> {
        let Some(connections) = self.0.connections.upgrade() else {
            let Refusal { kind, text, .. } = Refusal::stopping();
            return Err((kind, text));
        };
        let identity = self.identity();
        let (identity, from) = (identity.as_ref(), Some(self.0.from));
        let applicant = Applicant { identity, from, is_reported };
        let export = connections.core.offered(name, &applicant)?;
        Ok((connections, export))
    }
}

impl Host for Visit<'_> {
    fn bind(&self, bind: &BindRequest) -> Result<(Arc<BindingRow>, BindTerms), (Kind, String)> {
        let (connections, export) = self.offered(&bind.name, true)?;
        let bytes = export.admitted_bytes(bind.digest, bind.bytes)?;
        let caller = CallerInfo {
            path: PathKind::Tcp,
            export: export.name.as_str().into(),
            process: bind.process,
            user: CallerInfo::NOBODY,
            group: CallerInfo::NOBODY,
            from: Some(self.0.from),
            hardware: None,
            claimed: None,
            identity: self.identity(),
            ending: None,
            carried: None,
            account: Default::default(),
        };
        let tally = export.counters.tally(self.0.counters.number());
        let row = export.bind(caller, bytes, tally);
        let terms = BindTerms { epoch: connections.core.epoch, count_max: export.astacks_max() };
        Ok((row, terms))
    }

    fn still_offers(&self, name: &str) -> Result<(), (Kind, String)> {
        self.offered(name, false).map(drop)
    }

    fn describe(&self, name: &str) -> Result<Description, (Kind, String)> {
        Ok(self.offered(name, false)?.1.description())
    }

    fn calls(&self) -> Arc<dyn Calls> {
        Arc::clone(self.0) as Arc<dyn Calls>
    }

    fn called(&self) {
        self.0.threads.called();
    }

    fn answered(&self) {
        self.0.threads.answered();
    }

    fn begin_procedure(
        &self,
        from_inside: bool,
        waits: &mut dyn FnMut() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.0.threads.begin(from_inside, waits)
    }

    fn end_procedure(&self) {
        self.0.threads.admission.end();
    }

    fn captured(&self, more: usize, fewer: usize) {
        self.0.threads.admission.captured(more, fewer);
    }

    fn read_on(&self) {
        self.0.threads.enqueue(Work::Receive(Arc::clone(self.0)));
    }

    fn send_on(&self) {
        self.0.threads.enqueue(Work::Send(Arc::clone(self.0)));
    }

    fn watch(&self) {
        self.0.watching.again();
    }

    fn is_hungry(&self) -> bool {
        self.0.threads.is_hungry()
    }

    fn is_stopping(&self) -> bool {
        self.0.threads.admission.is_stopping()
    }

    fn wait(&self) -> Wait {
        self.0.threads.wait
    }

    fn hold(&self) {
        if let Some(connections) = self.0.connections.upgrade() {
            connections.intake.hold(Arc::clone(self.0) as Arc<dyn Resume>);
        }
        // If memory was released just before the connection was added to the queue, that release does not
        // resume the connection. So the keeper tries again later.
        self.0.watching.remind(LOOK_MAX);
    }

    fn remind(&self, after: Duration) {
        self.0.watching.remind(after);
    }
}
