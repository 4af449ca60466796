//! ONC RPC over TCP: accepts the connections of a server, bounds their number, and ends them.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::Desk;
use super::connection::OncConnection;
use crate::address::host_of;
use crate::call::PathKind;
use crate::counters::ThreadKind;
use crate::device::tcp::{Listener, Stream};
use crate::keeper::Watched;
use crate::limits;
use crate::path::connections::acceptor::{Acceptors, Admit};
use crate::path::connections::intake::Intake;
use crate::path::connections::receive::{IDLE, hear_out};
use crate::path::connections::table::{ConnectionTable, ConnectionTerms};
use crate::path::connections::threads::ConnectionThreads;
use crate::path::foreign::serving::message_bytes_max;
use crate::protocol::onc::message::CALL_BYTES_MAX;
use crate::serving::export::Export;
use crate::serving::stop::Drain;
use crate::serving::{Load, ServerCore, ServerPath};
use crate::sync::{Mutex, MutexGuard, Rank};

/// How long a stopping server waits for its clients to close their connections.
const FAREWELL: Duration = Duration::from_millis(200);

/// The connections of one server.
pub(crate) struct OncConnections {
    core: Arc<ServerCore>,
    pub(super) desk: Arc<Desk>,
    table: Mutex<ConnectionTable<OncConnection>>,
    threads: Arc<ConnectionThreads<OncConnection>>,
    /// The keeper's watches of the sockets that accept connections.
    acceptors: Acceptors,
    next: AtomicU64,
    /// Bounds the memory of calls that have not begun to run.
    pub(super) intake: Arc<Intake>,
    terms: ConnectionTerms,
    /// The size in bytes of the largest record.
    record_bytes_max: OnceLock<usize>,
}

impl OncConnections {
    /// Returns the TCP part of a server.
    ///
    /// # Errors
    /// If the kernel provides no random numbers.
    pub(crate) fn new(core: &Arc<ServerCore>, terms: ConnectionTerms) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            core: Arc::clone(core),
            desk: Desk::new(core, PathKind::OncTcp)?,
            table: Mutex::ranked(Rank::Clients, ConnectionTable::default()),
            threads: ConnectionThreads::new(core),
            acceptors: Acceptors::default(),
            next: AtomicU64::new(1),
            intake: Arc::default(),
            terms,
            record_bytes_max: OnceLock::new(),
        }))
    }

    #[track_caller]
    fn table(&self) -> MutexGuard<'_, ConnectionTable<OncConnection>> {
        self.table.lock()
    }

    pub(super) const fn threads(&self) -> &Arc<ConnectionThreads<OncConnection>> {
        &self.threads
    }

    /// Returns the connection with this number.
    pub(super) fn connection(&self, key: u64) -> Option<Arc<OncConnection>> {
        self.table().get(key).map(Arc::clone)
    }

    /// Removes a connection that has ended.
    pub(super) fn remove(&self, connection: &OncConnection) {
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

    fn all(&self) -> Vec<Arc<OncConnection>> {
        self.table().all()
    }
}

impl Admit for OncConnections {
    fn admit(self: &Arc<Self>, stream: Stream, from: SocketAddr) -> io::Result<()> {
        stream.prepare(self.terms.congestion.as_deref())?;
        stream.set_receive_timeout(IDLE)?;
        let host = host_of(from.ip());
        let most = *self
            .record_bytes_max
            .get_or_init(|| message_bytes_max(&self.core).saturating_add(CALL_BYTES_MAX));
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(OncConnection::new(key, (stream, from, host), most, self));
        let mut table = self.table();
        if table.refusal(host, &self.terms).is_some() {
            // The protocol has no message that tells the reason. The connection is closed.
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

impl ServerPath for OncConnections {
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

    fn threads(&self) -> usize {
        self.threads.count()
    }
}
