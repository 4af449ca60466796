//! Accepts the connections of a server from clients of another RPC system, bounds their number, and ends
//! them.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::connection::ForeignConnection;
use super::service::StreamService;
use super::serving::message_bytes_max;
use crate::address::host_of;
use crate::counters::ThreadKind;
use crate::device::tcp::{Listener, Stream};
use crate::keeper::Watched;
use crate::limits;
use crate::path::connections::acceptor::{Acceptors, Admit};
use crate::path::connections::intake::Intake;
use crate::path::connections::receive::{IDLE, hear_out};
use crate::path::connections::table::{ConnectionTable, ConnectionTerms};
use crate::path::connections::threads::ConnectionThreads;
use crate::serving::export::Export;
use crate::serving::stop::Drain;
use crate::serving::{Load, ServerCore, ServerPath};
use crate::sync::{Mutex, MutexGuard, Rank};

/// How long a stopping server waits for its clients to close their connections.
const FAREWELL: Duration = Duration::from_millis(200);

/// The connections of one server.
pub(crate) struct ForeignConnections<S: StreamService> {
    core: Arc<ServerCore>,
    pub(super) service: Arc<S>,
    table: Mutex<ConnectionTable<ForeignConnection<S>>>,
    threads: Arc<ConnectionThreads<ForeignConnection<S>>>,
    /// The keeper's watches of the sockets that accept connections.
    acceptors: Acceptors,
    next: AtomicU64,
    /// Bounds the memory of calls that have not begun to run.
    pub(super) intake: Arc<Intake>,
    terms: ConnectionTerms,
    /// The size in bytes of the largest message that an export takes.
    message_bytes_max: OnceLock<usize>,
}

impl<S: StreamService> ForeignConnections<S> {
    /// Returns the TCP part of a server, without connections.
    pub(in crate::path) fn new(
        core: &Arc<ServerCore>,
        service: Arc<S>,
        terms: ConnectionTerms,
    ) -> Arc<Self> {
        Arc::new(Self {
            core: Arc::clone(core),
            service,
            table: Mutex::ranked(Rank::Clients, ConnectionTable::default()),
            threads: ConnectionThreads::new(core),
            acceptors: Acceptors::default(),
            next: AtomicU64::new(1),
            intake: Arc::default(),
            terms,
            message_bytes_max: OnceLock::new(),
        })
    }

    #[track_caller]
    fn table(&self) -> MutexGuard<'_, ConnectionTable<ForeignConnection<S>>> {
        self.table.lock()
    }

    pub(super) const fn threads(&self) -> &Arc<ConnectionThreads<ForeignConnection<S>>> {
        &self.threads
    }

    /// Returns the connection with this number.
    pub(super) fn connection(&self, key: u64) -> Option<Arc<ForeignConnection<S>>> {
        self.table().get(key).map(Arc::clone)
    }

    /// Removes a connection that has ended.
    pub(super) fn remove(&self, connection: &ForeignConnection<S>) {
        let removed = self.table().remove(connection.key, connection.host);
        drop(removed);
    }

    /// Starts to accept connections at a listening socket.
    ///
    /// # Errors
    /// If the keeper cannot watch the socket.
    pub(crate) fn open(self: &Arc<Self>, listener: Listener) -> io::Result<()> {
        self.acceptors.open(&self.core.keeper, listener, self)
    }

    fn all(&self) -> Vec<Arc<ForeignConnection<S>>> {
        self.table().all()
    }
}

impl<S: StreamService> Admit for ForeignConnections<S> {
    fn admit(self: &Arc<Self>, stream: Stream, from: SocketAddr) -> io::Result<()> {
        stream.prepare(self.terms.congestion.as_deref())?;
        stream.set_receive_timeout(IDLE)?;
        let host = host_of(from.ip());
        let most = *self.message_bytes_max.get_or_init(|| message_bytes_max(&self.core));
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(ForeignConnection::new(key, (stream, from, host), most, self));
        let mut table = self.table();
        if table.refusal(host, &self.terms).is_some() {
            // No message of the protocol can report the reason of a refusal. So the connection is closed
            // without a message.
            return Ok(());
        }
        // The table stays locked until the entry of the connection exists, because the keeper may see the
        // first bytes at once.
        let watched = Arc::clone(&connection) as Arc<dyn Watched>;
        let watch = self.core.keeper.watch_for(watched, limits::UNBOUND_TIME)?;
        connection.watching.begin(watch);
        table.insert(key, host, connection);
        Ok(())
    }
}

impl<S: StreamService> ServerPath for ForeignConnections<S> {
    fn counted_as(&self) -> ThreadKind {
        ThreadKind::Stream
    }

    fn close(&self) {
        self.acceptors.close();
    }

    fn revoke(&self, export: &Export) {
        self.all().iter().for_each(|connection| connection.callers.revoke(export.number));
    }

    fn refuse(&self) {
        self.threads.refuse();
    }

    fn drain(&self, drain: &Drain) -> bool {
        self.threads.drain(drain)
    }

    fn disconnect(&self) {
        let all = self.table().close();
        for connection in &all {
            connection.watching.end();
            connection.stream().shut_down_sending();
        }
        let until = Instant::now() + FAREWELL;
        for connection in all {
            hear_out(connection.stream(), until);
            connection.close();
            connection.callers.revoke_all();
        }
    }

    fn load(&self) -> Load {
        Load { captured: 0, waiting: self.threads.admission.waiting() as u64 }
    }

    fn is_full(&self) -> bool {
        self.threads.admission.is_full()
    }

    fn threads(&self) -> usize {
        self.threads.count()
    }
}
