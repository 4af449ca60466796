//! The datagram sockets of a server: opens them, serves the server's exports at them, and closes them.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{ExportHost, ReceiverState, ServerSocket, Work};
use crate::call::{CallerInfo, Identified, PathKind, Refusal, Wait};
use crate::counters::{ThreadKind, Visitor};
use crate::device::udp::Udp;
use crate::device::{Ethernet, LinkAddress, LinkDevice, LinkPort, Socket, SocketUse};
use crate::error::Kind;
use crate::interface::Description;
use crate::keeper::Next;
use crate::path::receivers::{PacketService, ReceiveMode, ReceiveOutcome, Receivers, THREAD};
use crate::path::security::ServerSecurity;
use crate::serving::admission::Admission;
use crate::serving::binding_table::BindingRow;
use crate::serving::export::{Applicant, Export};
use crate::serving::stop::Drain;
use crate::serving::{Load, ServerCore, ServerPath};
use crate::sync::Mutex;
use crate::sys::{self, Address};

/// All datagram sockets of one server.
pub(crate) struct Datagrams {
    core: Arc<ServerCore>,
    sockets: Mutex<Vec<Arc<Receivers<Arc<ServerSocket>>>>>,
}

/// A stopping server closes its sockets once it has refused no call for this long.
const QUIET: Duration = Duration::from_millis(100);
/// A stopping server closes its sockets after this time at the latest, even if clients still make calls.
const LINGER: Duration = Duration::from_secs(1);

/// Counts the datagrams that a server has lost since it began to listen. There is one number for each reason.
///
/// A lost datagram does not mean a lost call, because clients and servers retransmit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// The number of datagrams that did not fit into a socket's receive buffer, because they arrived faster
    /// than threads could receive them. The kernel setting `net.core.rmem_max` limits the size of this
    /// buffer. Zero on kernels before Linux 4.12, because these kernels do not report the number.
    pub overflowed: u64,
    /// The number of datagrams that do not belong to the protocol, or are damaged.
    pub rejected: u64,
    /// The number of datagrams that did not fit into a socket's send buffer. The kernel setting
    /// `net.core.wmem_max` limits the size of this buffer. Answers to hosts that have not proven their
    /// address may use only a part of it.
    pub unsent: u64,
}

/// How soon after a change of the trust the server ends the connections of clients that it does not trust any
/// more.
const TRUST: Duration = Duration::from_secs(1);

/// The exports of the server, as one of its sockets offers them.
struct SocketExports {
    core: Arc<ServerCore>,
    admission: Arc<Admission>,
}

impl Datagrams {
    /// Creates the datagram part of a server, without sockets. The server's limits of running and waiting
    /// calls apply to each socket separately.
    pub(crate) fn new(core: &Arc<ServerCore>) -> Arc<Self> {
        Arc::new(Self { core: Arc::clone(core), sockets: Mutex::default() })
    }

    fn all(&self) -> Vec<Arc<Receivers<Arc<ServerSocket>>>> {
        self.sockets.lock().clone()
    }

    /// Opens a UDP socket at an address, and serves calls there. Returns the actual address of the socket.
    /// With `security`, the socket accepts only sealed packets.
    pub(crate) fn open(
        &self,
        to: SocketAddr,
        security: Option<ServerSecurity>,
    ) -> io::Result<SocketAddr> {
        self.open_with(to, None, self.core.threads.wait, security)
    }

    /// Opens a UDP socket as [`open`](Self::open) does. Also serves over raw Ethernet, on the interface that
    /// has the address `to`. Clients ask over UDP for the server's location on the link.
    ///
    /// # Errors
    /// If no socket can be opened, or if no interface has the address. Also if the interface is not an
    /// Ethernet interface, or if this process is not permitted to use the interface.
    pub(crate) fn open_link(
        &self,
        to: SocketAddr,
        by: LinkDevice,
        security: Option<ServerSecurity>,
    ) -> io::Result<SocketAddr> {
        let link_port = LinkPort::at(&sys::interface_of(to.ip())?, by, Some(to.port()))?;
        let link = Ethernet::open(&link_port, SocketUse::Service)?;
        let node = link.node();
        self.start(Socket::Ethernet(link), None, self.core.threads.wait, security.clone())?;
        // Over UDP, most clients only bind. Only clients that cannot reach this server over the link also
        // make calls over UDP. Polling for these few packets would occupy a processor that the thread of the
        // link needs.
        let wait = if self.core.threads.wait == Wait::Spin {
            Wait::Adaptive
        } else {
            self.core.threads.wait
        };
        self.open_with(to, Some(node), wait, security)
    }

    fn open_with(
        &self,
        to: SocketAddr,
        link: Option<LinkAddress>,
        wait: Wait,
        security: Option<ServerSecurity>,
    ) -> io::Result<SocketAddr> {
        let socket = Udp::bound(to)?;
        let address = socket.local()?;
        self.start(Socket::Udp(socket), link, wait, security)?;
        Ok(address)
    }

    fn start(
        &self,
        socket: Socket,
        link: Option<LinkAddress>,
        wait: Wait,
        security: Option<ServerSecurity>,
    ) -> io::Result<()> {
        let is_secure = security.is_some();
        let (core, admission) = (&self.core, self.core.admission());
        let host =
            Arc::new(SocketExports { core: Arc::clone(core), admission: Arc::clone(&admission) });
        let deferrals = Arc::clone(&core.deferrals);
        let page = core.page();
        let service = ServerSocket::new(socket, link, core.epoch, host, deferrals, page, security)?;
        let (checked, judged) = (Arc::downgrade(&service), Arc::downgrade(&service));
        let receivers = Receivers::start(service, wait, admission)?;
        // The keeper, the background thread of the process, checks the clients of running procedures from
        // time to time.
        let watch = core.keeper.watch_timer(move || {
            let due = checked.upgrade().and_then(|service| service.check_callers());
            due.map_or(Next::Sleep, Next::SleepAndTick)
        })?;
        receivers.service().set_watch(watch);
        if is_secure {
            let watch = core.keeper.watch_timer(move || match judged.upgrade() {
                Some(service) if service.check_connections() => Next::SleepAndTick(TRUST),
                Some(_) => Next::Sleep,
                None => Next::Forget,
            })?;
            receivers.service().set_trust_watch(watch);
        }
        self.sockets.lock().push(receivers);
        Ok(())
    }

    /// Returns the numbers of datagrams that all sockets together have lost.
    pub(crate) fn losses(&self) -> Losses {
        let all = self.all();
        all.iter().fold(Losses::default(), |losses, socket| {
            let [overflowed, rejected, unsent] = socket.service().losses();
            Losses {
                overflowed: losses.overflowed + overflowed,
                rejected: losses.rejected + rejected,
                unsent: losses.unsent + unsent,
            }
        })
    }
}

/// Keeps the sockets open until the clients have received their last results, and know that the server stops.
/// If a call reached a closed socket, the client could not know whether the server executed the call.
fn linger(sockets: &[Arc<Receivers<Arc<ServerSocket>>>], drain: &Drain) {
    if !sockets.iter().any(|socket| socket.service().has_clients()) {
        return;
    }
    let refused = || -> u64 {
        let count = |socket: &Arc<Receivers<Arc<ServerSocket>>>| socket.service().refused();
        sockets.iter().map(count).sum()
    };
    let begun = Instant::now();
    let (mut before, mut quiet_since) = (refused(), begun);
    while quiet_since.elapsed() < QUIET && begun.elapsed() < LINGER {
        let Some(slice) = drain.next_wait() else { return };
        std::thread::sleep(slice);
        let now = refused();
        if now != before {
            (before, quiet_since) = (now, Instant::now());
        }
    }
}

impl ServerPath for Datagrams {
    fn counted_as(&self) -> ThreadKind {
        ThreadKind::Datagram
    }

    /// Does nothing. Bound clients need answers, so sockets stay open until [`disconnect`](Self::disconnect).
    fn close(&self) {}

    fn revoke(&self, export: &Export) {
        self.all().iter().for_each(|socket| socket.service().revoke(export.number));
    }

    fn refuse(&self) {
        self.all().iter().for_each(|socket| socket.admission().stop());
    }

    fn drain(&self, drain: &Drain) -> bool {
        let sockets = self.all();
        let ended = sockets.iter().all(|socket| socket.drain(drain));
        linger(&sockets, drain);
        ended
    }

    fn disconnect(&self) {
        let sockets = core::mem::take(&mut *self.sockets.lock());
        for socket in sockets {
            socket.service().stop_deferred();
            socket.stop(Duration::from_millis(200));
            socket.service().revoke_all();
        }
    }

    fn load(&self) -> Load {
        self.all().iter().fold(Load::default(), |Load { captured, waiting }, socket| Load {
            captured: captured + socket.service().captured(),
            waiting: waiting + socket.admission().waiting() as u64,
        })
    }

    fn is_full(&self) -> bool {
        self.all().iter().any(|socket| socket.admission().is_full())
    }

    fn threads(&self) -> usize {
        self.all().iter().map(|socket| socket.threads()).sum()
    }
}

impl ExportHost for SocketExports {
    fn bind(
        &self,
        name: &str,
        digest: Option<[u8; 16]>,
        bytes: u64,
        from: &Address,
        identity: Option<Identified>,
    ) -> Result<Arc<BindingRow>, (Kind, String)> {
        let applicant =
            Applicant { identity: identity.as_ref(), from: from.ip(), is_reported: true };
        let export = self.core.offered(name, &applicant)?;
        let bytes = export.admitted_bytes(digest, bytes)?;
        let caller = CallerInfo {
            path: if from.link().is_some() { PathKind::Ethernet } else { PathKind::Udp },
            export: export.name.as_str().into(),
            process: 0,
            user: CallerInfo::NOBODY,
            group: CallerInfo::NOBODY,
            from: from.ip(),
            hardware: from.link().map(|(hardware, _)| hardware),
            claimed: None,
            identity,
            ending: None,
            carried: None,
            account: Default::default(),
        };
        let tally = export.counters.tally_of(&Visitor::of(&caller));
        Ok(export.bind(caller, bytes, tally))
    }

    fn is_withdrawn(&self, row: &BindingRow) -> bool {
        self.core.exports.numbered(row.export).is_none_or(|export| export.is_closed())
    }

    fn describe(&self, row: &BindingRow) -> Option<Description> {
        Some(self.core.exports.numbered(row.export)?.description())
    }

    fn is_stopping(&self) -> bool {
        self.admission.is_stopping()
    }

    fn captured(&self, more: usize, fewer: usize) {
        self.admission.captured(more, fewer);
    }

    fn outlive(&self, thread: &str, work: &mut dyn FnMut()) {
        self.core.faults.restart_on_panic(thread, work);
    }

    fn report_panic(&self, panic: Box<dyn Any + Send>) {
        self.core.faults.thread(THREAD, panic);
    }
}

impl PacketService for Arc<ServerSocket> {
    type ReceiverState = ReceiverState;
    type Work = Work;

    fn receiver(&self) -> io::Result<ReceiverState> {
        ServerSocket::receiver(self)
    }

    fn receive(
        &self,
        receiver: &mut ReceiverState,
        mode: ReceiveMode,
        alone: bool,
    ) -> ReceiveOutcome<Work> {
        let got = ServerSocket::receive(self, receiver, mode, alone);
        match (&got, mode) {
            (ReceiveOutcome::Nothing, ReceiveMode::Poll) => receiver.serving.counting.looked(),
            (ReceiveOutcome::Nothing, ReceiveMode::Sleep) => {}
            (_, ReceiveMode::Poll) => receiver.serving.counting.found(),
            (_, ReceiveMode::Sleep) => receiver.serving.counting.slept(),
        }
        got
    }

    fn looks(&self) -> u32 {
        ServerSocket::looks(self)
    }

    fn release_expected(&self, receiver: &mut ReceiverState) {
        ServerSocket::release_expected(self, receiver);
    }

    fn run(&self, receiver: &mut ReceiverState, work: Work) -> u64 {
        let place = work.caller();
        match catch_unwind(AssertUnwindSafe(|| ServerSocket::run(self, receiver, work))) {
            Ok(ended) => ended.0,
            Err(panic) => {
                // This panic did not come from the procedure, because a panic of the procedure becomes a
                // result. Without the answer below, the client would wait for a result that no thread sends.
                let refusal = Refusal::panicked(panic);
                self.host.report_panic(Box::new(refusal.text.clone()));
                ServerSocket::fail(self, receiver, place, &refusal);
                sys::boot_ns()
            }
        }
    }

    fn panicked(&self, panic: Box<dyn Any + Send>) {
        self.host.report_panic(panic);
    }

    fn detach(&self, receiver: &mut ReceiverState, work: Work) -> Option<Work> {
        ServerSocket::detach(self, receiver, work)
    }

    fn refuse(&self, receiver: &mut ReceiverState, work: Work, refusal: &Refusal) {
        ServerSocket::refuse_work(self, receiver, work, refusal);
    }

    fn has_postponed(&self) -> bool {
        ServerSocket::has_postponed(self)
    }

    fn postponed(&self) -> Option<Work> {
        ServerSocket::postponed(self)
    }

    fn has_deferred(&self) -> bool {
        ServerSocket::has_deferred(self)
    }

    fn caller(&self, work: &Work) -> u32 {
        work.caller()
    }

    fn is_from_inside(&self, receiver: &mut ReceiverState, work: &mut Work) -> bool {
        ServerSocket::is_from_inside(self, receiver, work)
    }

    fn needs_no_permit(&self, work: &Work) -> bool {
        work.is_of_health()
    }

    fn close(&self) {
        ServerSocket::close(self);
    }
}
