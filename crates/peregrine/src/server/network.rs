//! The network side of a server: where it listens, who is let in, and which connections stand.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;

use super::crew::Crew;
use super::export::Export;
use super::session::epoch;
use crate::address::Endpoint;
use crate::call::{CallerInfo, Calls, PathKind, Refusal, Wait};
use crate::counters::{Page, SessionTold, Visitor};
use crate::device::tcp::{Listener, Stream};
use crate::device::udp::Udp;
use crate::error::{CallError, Kind, Phase};
use crate::interface::Description;
use crate::keeper::{Keeper, Next, Watch, Watched};
use crate::limits;
use crate::path::binding_table::BindingRow;
use crate::path::stream::{
    Attended, Host, Incoming, Intake, Resume, StreamWorker, Terms as BindTerms,
};
use crate::protocol::stream::{self as wire, Bind};
use crate::sync::{Mutex, MutexGuard, Rank};

/// How often the keeper looks whether a procedure takes long, at first and at most.
const LOOK: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(80);
/// How long a server that has stopped waits for its clients to take note.
const FAREWELL: Duration = Duration::from_millis(200);

/// The exports of a server; those that were withdrawn are not among them.
pub(super) type Exports = Arc<Mutex<Vec<Arc<Export>>>>;

/// All network connections of a server.
pub(super) struct Network {
    table: Mutex<Table>,
    exports: Exports,
    pub(super) crew: Arc<Crew>,
    keeper: Arc<Keeper>,
    next: AtomicU64,
    /// Differs between incarnations.
    epoch: u64,
    /// Memory of calls that have not begun to run.
    intake: Arc<Intake>,
    terms: Terms,
    page: Arc<Page>,
}

/// What the server's owner decided about connections.
pub(super) struct Terms {
    pub(super) congestion: Option<String>,
    /// Connections at one time, of all hosts and of one.
    pub(super) connections: usize,
    pub(super) connections_per_host: usize,
}

#[derive(Default)]
struct Table {
    open: HashMap<u64, Arc<Line>>,
    /// Connections by where they come from.
    hosts: HashMap<IpAddr, usize>,
    closed: bool,
}

/// Who counts as one: an address, or for IPv6 what one link or one customer has.
fn host_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => match six.to_ipv4_mapped() {
            Some(four) => four.into(),
            None => Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
        },
    }
}

impl Network {
    pub(super) fn new(
        exports: Exports,
        crew: Arc<Crew>,
        keeper: Arc<Keeper>,
        terms: Terms,
        page: Arc<Page>,
    ) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::ranked(Rank::Clients, Table::default()),
            exports,
            crew,
            keeper,
            next: AtomicU64::new(0),
            epoch: epoch(),
            intake: Arc::default(),
            terms,
            page,
        })
    }

    #[track_caller]
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Begins to let clients in.
    pub(super) fn open(self: &Arc<Self>, listener: Listener) -> io::Result<Watch> {
        self.keeper.watch(Arc::new(Door { listener, network: Arc::clone(self) }))
    }

    /// A client has come.
    fn let_in(self: &Arc<Self>, stream: Stream, from: SocketAddr) -> io::Result<()> {
        stream.prepare(self.terms.congestion.as_deref())?;
        let host = host_of(from.ip());
        let incoming = Incoming::new(stream, Arc::clone(&self.intake), host)?;
        let mut table = self.table();
        let theirs = table.hosts.get(&host).copied().unwrap_or(0);
        let refusal = if table.closed {
            Some((Kind::Withdrawn, "the server is stopping".to_owned()))
        } else if table.open.len() >= self.terms.connections {
            let all = table.open.len();
            let text =
                format!("the server has {all} connections: allow more with `Server::connections`");
            Some((Kind::Exhausted, text))
        } else if theirs >= self.terms.connections_per_host {
            let text = format!(
                "the server has {theirs} connections from {host}: allow more with \
                 `Server::connections_per_host`"
            );
            Some((Kind::Exhausted, text))
        } else {
            None
        };
        if let Some((kind, text)) = refusal {
            let body = wire::Refused { kind: kind as u32, text }.to_bytes();
            incoming.say_now(wire::Kind::Refused, 0, &body);
            incoming.stream().finish();
            return Ok(());
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
        let line = Arc::new(Line {
            key,
            host,
            from,
            incoming,
            told: SessionTold::new(&self.page, &visitor),
            since: Instant::now(),
            waits: AtomicBool::new(false),
            looks: AtomicU64::new(0),
            watch: OnceLock::new(),
            network: Arc::downgrade(self),
            crew: Arc::clone(&self.crew),
        });
        // The table is locked before the keeper can see the first message.
        let watched = Arc::clone(&line) as Arc<dyn Watched>;
        let watch = self.keeper.watch_for(watched, limits::UNBOUND_TIME)?;
        let _ = line.watch.set(Mutex::ranked(Rank::ClientWatch, Some(watch)));
        *table.hosts.entry(host).or_default() += 1;
        table.open.insert(key, line);
        Ok(())
    }

    fn lines(&self) -> Vec<Arc<Line>> {
        self.table().open.values().map(Arc::clone).collect()
    }

    /// Refuses the calls of all bindings to an export from now on, and tells their clients.
    pub(super) fn revoke(&self, export: u64) {
        for line in self.lines() {
            let mut rows = line.incoming.rows();
            let bound = rows.iter().filter(|(_, row)| row.export == export);
            let gone: Vec<u32> = bound.map(|(number, _)| number).collect();
            // Dropped when the rows are not locked any more: one may be the object's last owner.
            let removed: Vec<_> = gone.iter().map(|number| rows.remove(*number)).collect();
            drop(rows);
            drop(removed);
            for number in gone {
                // Who does not read it learns it with the next call.
                line.incoming.say_now(wire::Kind::Revoked, number, &[]);
            }
        }
    }

    /// Ends all connections; those for which nothing runs any more in good order.
    pub(super) fn farewell(&self) {
        let lines: Vec<_> = {
            let mut table = self.table();
            table.closed = true;
            table.hosts.clear();
            table.open.drain().map(|(_, line)| line).collect()
        };
        for line in &lines {
            line.unwatch();
            line.incoming.farewell();
        }
        let until = Instant::now() + FAREWELL;
        for line in lines {
            line.incoming.hear_out(until);
            line.told.end();
            line.incoming.rows().revoke_all();
            line.incoming.close();
        }
    }

    /// Calls that run although their callers have given them up, and calls that wait to run.
    pub(super) fn captured(&self) -> [u64; 2] {
        let captured = self.lines().iter().map(|line| line.incoming.captured()).sum();
        [captured, self.crew.admission.waiting() as u64]
    }

    fn export(&self, name: &str) -> Result<Arc<Export>, (Kind, String)> {
        offered(&self.exports, name)
    }
}

/// What networks are offered under a name.
pub(super) fn offered(exports: &Exports, name: &str) -> Result<Arc<Export>, (Kind, String)> {
    let exports = exports.lock();
    let found = exports.iter().find(|export| export.name == name).map(Arc::clone);
    drop(exports);
    let export = found.ok_or_else(|| (Kind::NotFound, format!("the server has no `{name}`")))?;
    if export.is_closed() {
        return Err((Kind::Withdrawn, export.withdrawn()));
    }
    if !export.is_offered_to_networks() {
        let text =
            format!("`{name}` is limited to users or groups, and a network cannot prove who calls");
        return Err((Kind::Denied, text));
    }
    Ok(export)
}

/// One socket that listens.
struct Door {
    listener: Listener,
    network: Arc<Network>,
}

impl Watched for Door {
    fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    fn ready(self: Arc<Self>) -> Next {
        /// How long clients wait when the machine is short of something.
        const SHORT: Duration = Duration::from_millis(50);
        // As many as may come at once; the keeper has others to look after too.
        for _ in 0..64 {
            let come = self.listener.accept();
            let let_in = |(stream, from)| self.network.let_in(stream, from);
            let Err(error) = come.and_then(let_in) else { continue };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Next::Sleep,
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

/// One connection.
pub(super) struct Line {
    key: u64,
    host: IpAddr,
    from: SocketAddr,
    incoming: Incoming,
    /// Its row among the counters.
    told: SessionTold,
    since: Instant,
    /// Whether it is among those that wait for memory.
    waits: AtomicBool,
    /// How often the keeper has looked since it was last woken.
    looks: AtomicU64,
    /// What the keeper watches, until the connection ends.
    watch: OnceLock<Mutex<Option<Watch>>>,
    network: Weak<Network>,
    crew: Arc<Crew>,
}

impl Line {
    /// A thread's visit.
    pub(super) fn attend(line: &Arc<Self>, worker: &mut StreamWorker) -> Attended {
        line.incoming.attend(worker, &Visit(line))
    }

    /// It has ended: it is forgotten.
    pub(super) fn end(&self) {
        self.told.end();
        self.incoming.close();
        self.crew.admission.captured(self.incoming.give_up_all(), 0);
        self.incoming.rows().revoke_all();
        self.unwatch();
        self.incoming.forget_kept();
        let Some(network) = self.network.upgrade() else { return };
        let mut table = network.table();
        if table.open.remove(&self.key).is_none() {
            return;
        }
        if let Some(count) = table.hosts.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                table.hosts.remove(&self.host);
            }
        }
    }

    /// Nothing comes: a message that takes memory which others wait for has so much time.
    fn stalls(&self) -> Next {
        /// How soon one looks again at a message whose time is up while nobody waits for memory.
        const AGAIN: Duration = Duration::from_secs(1);
        match self.incoming.patience() {
            None => Next::Sleep,
            Some(left) if !left.is_zero() => Next::Tend(left),
            Some(_) => match self.network.upgrade() {
                Some(network) if network.intake.is_short() => {
                    self.end();
                    Next::Forget
                }
                _ => Next::Tend(AGAIN),
            },
        }
    }

    #[track_caller]
    fn watch(&self) -> Option<MutexGuard<'_, Option<Watch>>> {
        Some(self.watch.get()?.lock())
    }

    fn unwatch(&self) {
        // Taken out first: dropping it asks the keeper.
        let watch = self.watch().and_then(|mut watch| watch.take());
        drop(watch);
    }

    fn remind(&self, after: Duration) {
        if let Some(watch) = self.watch().as_deref().and_then(Option::as_ref) {
            watch.remind(after);
        }
    }

    fn watch_again(&self) {
        if let Some(watch) = self.watch().as_deref().and_then(Option::as_ref) {
            watch.again();
        }
    }
}

impl Resume for Line {
    fn waits(&self) -> &AtomicBool {
        &self.waits
    }

    /// Has a thread read on, if the connection is held.
    fn resume(self: Arc<Self>) {
        if self.incoming.resumes() {
            self.looks.store(0, Ordering::Relaxed);
            self.crew.enqueue(Arc::clone(&self));
        }
    }
}

impl Calls for Line {
    fn is_given_up(&self, call: u64) -> bool {
        self.incoming.is_given_up(call as u32)
    }
}

impl Watched for Line {
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
        self.looks.store(0, Ordering::Relaxed);
        self.crew.enqueue(Arc::clone(&self));
        Next::Tend(LOOK)
    }

    /// Looks whether a thread is stuck, whether a guest has had its time, and whether a message that
    /// takes memory comes too slowly.
    fn tick(self: Arc<Self>) -> Next {
        if !self.incoming.has_bound() {
            let Some(left) = limits::UNBOUND_TIME.checked_sub(self.since.elapsed()) else {
                self.end();
                return Next::Forget;
            };
            if self.incoming.is_parked() {
                return Next::Tend(left);
            }
        }
        if self.incoming.is_held() {
            Arc::clone(&self).resume();
            return Next::Tend(LOOK_MAX);
        }
        self.incoming.relieve(&Visit(&self));
        if self.incoming.is_parked() {
            return self.stalls();
        }
        let looks = self.looks.fetch_add(1, Ordering::Relaxed).min(8) as u32;
        Next::Tend((LOOK * 2u32.pow(looks)).min(LOOK_MAX))
    }
}

/// A thread that visits a connection.
struct Visit<'a>(&'a Arc<Line>);

impl Host for Visit<'_> {
    fn bind(&self, bind: &Bind) -> Result<(Arc<BindingRow>, BindTerms), (Kind, String)> {
        let Some(network) = self.0.network.upgrade() else {
            return Err((Kind::Withdrawn, "the server is stopping".into()));
        };
        let export = network.export(&bind.name)?;
        let bytes = export.admitted_bytes(bind.digest, bind.bytes)?;
        let caller = CallerInfo {
            path: PathKind::Tcp,
            export: export.name.clone(),
            process: bind.process,
            user: CallerInfo::NOBODY,
            group: CallerInfo::NOBODY,
            from: Some(self.0.from),
            hardware: None,
        };
        let (serve, standing) = (Arc::clone(&export.serve), Arc::clone(&export.standing));
        let tally = export.told.tally(self.0.told.number());
        let row = BindingRow::new(export.number, serve, Arc::new(caller), bytes, standing, tally);
        let terms = BindTerms { epoch: network.epoch, count_max: export.astacks_max() };
        Ok((Arc::new(row), terms))
    }

    fn still_offers(&self, name: &str) -> Result<(), (Kind, String)> {
        match self.0.network.upgrade() {
            Some(network) => network.export(name).map(drop),
            None => Err((Kind::Withdrawn, "the server is stopping".into())),
        }
    }

    fn describe(&self, name: &str) -> Result<Description, (Kind, String)> {
        let Some(network) = self.0.network.upgrade() else {
            return Err((Kind::Withdrawn, "the server is stopping".into()));
        };
        Ok(network.export(name)?.description())
    }

    fn calls(&self) -> Arc<dyn Calls> {
        Arc::clone(self.0) as Arc<dyn Calls>
    }

    fn called(&self) {
        self.0.crew.called();
    }

    fn answered(&self) {
        self.0.crew.answered();
    }

    fn begin(
        &self,
        from_inside: bool,
        waits: &mut dyn FnMut() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.0.crew.begin(from_inside, waits)
    }

    fn end(&self) {
        self.0.crew.admission.end();
    }

    fn captured(&self, more: usize, fewer: usize) {
        self.0.crew.admission.captured(more, fewer);
    }

    fn read_on(&self) {
        self.0.crew.enqueue(Arc::clone(self.0));
    }

    fn watch(&self) {
        self.0.watch_again();
    }

    fn is_hungry(&self) -> bool {
        self.0.crew.is_hungry()
    }

    fn is_stopping(&self) -> bool {
        self.0.crew.admission.is_stopping()
    }

    fn wait(&self) -> Wait {
        self.0.crew.wait
    }

    fn hold(&self) {
        if let Some(network) = self.0.network.upgrade() {
            network.intake.hold(Arc::clone(self.0) as Arc<dyn Resume>);
        }
        // Memory may have been given back just before: then nobody else has it read on.
        self.0.remind(LOOK_MAX);
    }

    fn remind(&self, after: Duration) {
        self.0.remind(after);
    }
}

/// What listens, or is about to.
pub(super) enum Listening {
    Tcp(Listener),
    /// Opened when the server starts, for a datagram may be a call.
    Udp(SocketAddr),
    /// Also a frame.
    Ethernet(SocketAddr),
    /// Also a frame, where frames can be had.
    Datagrams(SocketAddr),
}

/// Listens at an endpoint: on every address that its host has.
pub(super) fn listen(endpoint: &Endpoint, beyond: bool) -> Result<Vec<Listening>, CallError> {
    let failed = |error: io::Error| {
        let what = format!("listening on `{endpoint}`");
        CallError::system(Phase::Export, what, error)
    };
    let addresses = endpoint.place().resolve()?;
    if let Some(wide) = addresses.iter().find(|address| !address.ip().is_loopback())
        && !beyond
    {
        let text = format!(
            "`{endpoint}` leads beyond this machine ({wide}), where anybody may call and listen: \
             say so with `listen_beyond_this_machine`"
        );
        return Err(CallError::not_executed(Kind::Denied, Phase::Export, text));
    }
    let mut all = Vec::new();
    for address in addresses {
        match endpoint {
            Endpoint::Tcp(_) => {
                all.push(Listening::Tcp(Listener::listen(&address).map_err(failed)?));
            }
            Endpoint::Udp(_) => all.push(Listening::Udp(address)),
            Endpoint::Ethernet(_) => all.push(Listening::Ethernet(address)),
            Endpoint::All(_) => {
                let (listener, address) = listen_at_both(address).map_err(failed)?;
                all.extend([Listening::Tcp(listener), Listening::Datagrams(address)]);
            }
        }
    }
    Ok(all)
}

/// Listens over TCP where datagrams can be received too: where the system chooses the port, it
/// knows nothing of the other protocol's.
fn listen_at_both(address: SocketAddr) -> io::Result<(Listener, SocketAddr)> {
    const TRIES: usize = 16;
    let mut tried = 0;
    loop {
        let listener = Listener::listen(&address)?;
        let at = listener.address()?;
        // A port that was asked for is taken as it is: what is wrong with it is said when it is opened.
        let Err(error) = Udp::bound(at) else { return Ok((listener, at)) };
        if address.port() != 0 {
            return Ok((listener, at));
        }
        tried += 1;
        if tried == TRIES || error.kind() != io::ErrorKind::AddrInUse {
            return Err(error);
        }
    }
}
