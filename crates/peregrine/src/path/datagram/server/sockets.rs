//! The sockets of a server at which datagrams arrive, and the exports that they offer.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::receivers::{Got, How, PacketService, Receivers, THREAD};
use super::{CHECKED_AFTER, ExportHost, ReceiverState, ServerSocket, Work};
use crate::call::{CallerInfo, PathKind, Refusal, Wait};
use crate::counters::Visitor;
use crate::device::udp::Udp;
use crate::device::{self, Ethernet, LinkAddress, LinkDevice, LinkPort, SocketUse};
use crate::error::Kind;
use crate::interface::Description;
use crate::keeper::{Next, Watch};
use crate::serving::admission::Admission;
use crate::serving::binding_table::BindingRow;
use crate::serving::export::Export;
use crate::serving::faults::Faults;
use crate::serving::stop::Drain;
use crate::serving::{Load, ServerCore, ServerPath};
use crate::sync::Mutex;
use crate::sys::{self, Address};

/// The datagram sockets of a server.
pub(crate) struct Datagrams {
    core: Arc<ServerCore>,
    sockets: Mutex<Vec<Arc<Receivers<Socket>>>>,
}

/// Datagrams that a server has lost, since it began to listen.
///
/// Calls do not get lost with them: what is missing is sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// Datagrams that found no room in a socket's receive buffer: more came than threads could take.
    /// The kernel's limit for it is `net.core.rmem_max`. Zero before Linux 4.12, which does not tell.
    pub overflowed: u64,
    /// Datagrams that were none of ours, or damaged.
    pub rejected: u64,
    /// Datagrams that found no room in a socket's send buffer, and answers to hosts that have proven
    /// nothing, for which no more of it is used. The kernel's limit for it is `net.core.wmem_max`.
    pub unsent: u64,
}

/// What is offered at a socket.
struct Offers {
    core: Arc<ServerCore>,
    admission: Arc<Admission>,
}

/// One socket.
struct Socket {
    service: Arc<ServerSocket>,
    /// Looks after the callers of procedures that run. Its own, so that it goes when the socket does.
    watch: Arc<OnceLock<Watch>>,
    faults: Arc<Faults>,
}

impl Datagrams {
    /// The half of a server that serves datagrams. The bounds of the server hold at each socket.
    pub(crate) fn new(core: &Arc<ServerCore>) -> Arc<Self> {
        Arc::new(Self { core: Arc::clone(core), sockets: Mutex::default() })
    }

    fn all(&self) -> Vec<Arc<Receivers<Socket>>> {
        self.sockets.lock().clone()
    }

    /// Begins to serve at an address; the one that it has then.
    pub(crate) fn open(&self, to: SocketAddr) -> io::Result<SocketAddr> {
        self.open_with(to, None, self.core.threads.wait)
    }

    /// The same, and on the link that the address is at; calls over UDP tell where on it.
    ///
    /// # Errors
    /// Also if no interface has that address, it is no Ethernet, or this process may not.
    pub(crate) fn open_link(&self, to: SocketAddr, by: LinkDevice) -> io::Result<SocketAddr> {
        let link_port = LinkPort::at(&sys::interface_of(to.ip())?, by, Some(to.port()))?;
        let link = Ethernet::open(&link_port, SocketUse::Service)?;
        let node = link.node();
        self.start(device::Socket::Ethernet(link), None, self.core.threads.wait)?;
        // Over UDP come those who bind, and those to whom the link does not lead: no processor is
        // kept busy for these, which those on the link want to have.
        let wait = if self.core.threads.wait == Wait::Spin {
            Wait::Adaptive
        } else {
            self.core.threads.wait
        };
        self.open_with(to, Some(node), wait)
    }

    fn open_with(
        &self,
        to: SocketAddr,
        link: Option<LinkAddress>,
        wait: Wait,
    ) -> io::Result<SocketAddr> {
        let socket = Udp::bound(to)?;
        let address = socket.local()?;
        self.start(device::Socket::Udp(socket), link, wait)?;
        Ok(address)
    }

    fn start(
        &self,
        socket: device::Socket,
        link: Option<LinkAddress>,
        wait: Wait,
    ) -> io::Result<()> {
        let (core, admission) = (&self.core, self.core.admission());
        let host = Arc::new(Offers { core: Arc::clone(core), admission: Arc::clone(&admission) });
        let service = ServerSocket::new(socket, link, core.epoch, host, core.page())?;
        let watch = Arc::<OnceLock<Watch>>::default();
        let faults = Arc::clone(&core.faults);
        let socket = Socket { service, watch: Arc::clone(&watch), faults };
        let receivers = Receivers::start(socket, wait, admission)?;
        // While procedures run, their callers are looked after now and then.
        let tended = Arc::downgrade(&receivers);
        let watching = core.keeper.watch_timer(move || {
            let receivers = tended.upgrade();
            receivers
                .and_then(|one| one.service().service.check_callers())
                .map_or(Next::Sleep, Next::SleepAndTick)
        })?;
        let _ = receivers.service().watch.set(watching);
        let watch = Arc::downgrade(&watch);
        receivers.service().service.set_reminder(Box::new(move || {
            if let Some(watch) = watch.upgrade().as_ref().and_then(|watch| watch.get()) {
                watch.remind(CHECKED_AFTER);
            }
        }));
        self.sockets.lock().push(receivers);
        Ok(())
    }

    /// Datagrams that were lost here.
    pub(crate) fn losses(&self) -> Losses {
        let all = self.all();
        all.iter().fold(Losses::default(), |losses, socket| {
            let [overflowed, rejected, unsent] = socket.service().service.losses();
            Losses {
                overflowed: losses.overflowed + overflowed,
                rejected: losses.rejected + rejected,
                unsent: losses.unsent + unsent,
            }
        })
    }
}

impl ServerPath for Datagrams {
    /// Sockets stay open until the call of [`disconnect`](Self::disconnect): clients that are bound need answers.
    fn close(&self) {}

    fn revoke(&self, export: &Export) {
        self.all().iter().for_each(|socket| socket.service().service.revoke(export.number));
    }

    fn refuse(&self) {
        self.all().iter().for_each(|socket| socket.admission().stop());
    }

    fn drain(&self, drain: &Drain) -> bool {
        self.all().iter().all(|socket| socket.rest(drain))
    }

    fn disconnect(&self) {
        let sockets = core::mem::take(&mut *self.sockets.lock());
        for socket in sockets {
            socket.stop(Duration::from_millis(200));
            socket.service().service.revoke_all();
        }
    }

    fn load(&self) -> Load {
        self.all().iter().fold(Load::default(), |Load { captured, waiting }, socket| Load {
            captured: captured + socket.service().service.captured(),
            waiting: waiting + socket.admission().waiting() as u64,
        })
    }

    fn threads(&self) -> usize {
        self.all().iter().map(|socket| socket.threads()).sum()
    }
}

impl Offers {
    fn export(&self, name: &str) -> Result<Arc<Export>, (Kind, String)> {
        if self.is_stopping() {
            let Refusal { kind, text, .. } = Refusal::stopping();
            return Err((kind, text));
        }
        self.core.exports.offered(name)
    }
}

impl ExportHost for Offers {
    fn bind(
        &self,
        name: &str,
        digest: Option<[u8; 16]>,
        bytes: u64,
        from: &Address,
    ) -> Result<Arc<BindingRow>, (Kind, String)> {
        let export = self.export(name)?;
        let bytes = export.admitted_bytes(digest, bytes)?;
        let caller = CallerInfo {
            path: if from.link().is_some() { PathKind::Ethernet } else { PathKind::Udp },
            export: export.name.clone(),
            process: 0,
            user: CallerInfo::NOBODY,
            group: CallerInfo::NOBODY,
            from: from.ip(),
            hardware: from.link().map(|(hardware, _)| hardware),
            stopping: None,
        };
        let tally = export.counters.tally_of(&Visitor::of(&caller));
        Ok(export.bind(caller, bytes, tally))
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
}

impl PacketService for Socket {
    type ReceiverState = ReceiverState;
    type Work = Work;

    fn receiver(&self) -> io::Result<ReceiverState> {
        self.service.receiver()
    }

    fn receive(&self, receiver: &mut ReceiverState, how: How, alone: bool) -> Got<Work> {
        let asleep = how == How::Sleep;
        let got = self.service.receive(receiver, asleep, alone);
        receiver.waited(!matches!(got, super::Got::Nothing), asleep);
        match got {
            super::Got::Nothing => Got::Nothing,
            super::Got::Settled => Got::Settled,
            super::Got::Work(work) => Got::Work(work),
        }
    }

    fn looks(&self) -> u32 {
        self.service.looks()
    }

    fn release_expected(&self, receiver: &mut ReceiverState) {
        self.service.release_expected(receiver);
    }

    fn run(&self, receiver: &mut ReceiverState, work: Work) -> u64 {
        let place = work.caller();
        match catch_unwind(AssertUnwindSafe(|| self.service.run(receiver, work))) {
            Ok(ended) => ended.0,
            Err(panic) => {
                // Not the procedure, whose panic is its result. The client must not wait for a
                // result that nobody will send.
                let refusal = Refusal::panicked(panic);
                self.faults.thread(THREAD, Box::new(refusal.text.clone()));
                self.service.fail(receiver, place, &refusal);
                sys::boot_ns()
            }
        }
    }

    fn panicked(&self, panic: Box<dyn Any + Send>) {
        self.faults.thread(THREAD, panic);
    }

    fn detach(&self, receiver: &mut ReceiverState, work: Work) -> Option<Work> {
        self.service.detach(receiver, work)
    }

    fn refuse(&self, receiver: &mut ReceiverState, work: Work, refusal: &Refusal) {
        self.service.refuse_work(receiver, work, refusal);
    }

    fn has_deferred(&self) -> bool {
        self.service.has_deferred()
    }

    fn deferred(&self) -> Option<Work> {
        self.service.deferred()
    }

    fn caller(&self, work: &Work) -> u32 {
        work.caller()
    }

    fn is_from_inside(&self, receiver: &mut ReceiverState, work: &mut Work) -> bool {
        self.service.is_from_inside(receiver, work)
    }

    fn close(&self) {
        self.service.close();
    }
}
