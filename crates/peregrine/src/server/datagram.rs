//! The datagram side of a server: sockets, their receivers, and which exports they offer.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::admission::Admission;
use super::export::Export;
use super::faults::Faults;
use super::network::{Exports, offered};
use super::receivers::{Got, How, Post, Receivers, THREAD};
use super::stop::Drain;
use crate::call::{CallerInfo, PathKind, Refusal, Wait};
use crate::counters::{Page, Visitor};
use crate::device::udp::Udp;
use crate::device::{self, By, Ethernet, LinkPort, Node, Use};
use crate::error::Kind;
use crate::interface::Description;
use crate::keeper::{Keeper, Next, Watch};
use crate::path::binding_table::BindingRow;
use crate::path::datagram::{self as path, Hand, Host, Service, TENDED_AFTER, Work};
use crate::sync::Mutex;
use crate::sys::{self, Address};

/// The datagram sockets of a server.
pub(super) struct Datagrams {
    sockets: Mutex<Vec<Arc<Receivers<Socket>>>>,
    exports: Exports,
    threads: usize,
    queue: usize,
    wait: Wait,
    incarnation: OnceLock<u64>,
    page: Arc<Page>,
    faults: Arc<Faults>,
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
    exports: Exports,
    admission: Arc<Admission>,
    faults: Arc<Faults>,
}

/// One socket.
struct Socket {
    service: Arc<Service>,
    /// Looks after the callers of procedures that run. Its own, so that it goes when the socket does.
    watch: Arc<OnceLock<Watch>>,
    faults: Arc<Faults>,
}

impl Datagrams {
    /// So many procedures may run at each socket at a time, and so many calls may wait.
    pub(super) fn new(
        exports: Exports,
        [threads, queue]: [usize; 2],
        wait: Wait,
        page: Arc<Page>,
        faults: Arc<Faults>,
    ) -> Self {
        let (sockets, incarnation) = (Mutex::default(), OnceLock::new());
        Self { sockets, exports, threads, queue, wait, incarnation, page, faults }
    }

    /// A number that tells this server from others that listen, or will, where it does.
    fn incarnation(&self) -> io::Result<u64> {
        match self.incarnation.get() {
            Some(incarnation) => Ok(*incarnation),
            None => {
                let new = u64::from_le_bytes(sys::random()?);
                Ok(*self.incarnation.get_or_init(|| new))
            }
        }
    }

    fn all(&self) -> Vec<Arc<Receivers<Socket>>> {
        self.sockets.lock().clone()
    }

    /// Begins to serve at an address; the one that it has then.
    pub(super) fn open(&self, to: SocketAddr) -> io::Result<SocketAddr> {
        self.open_with(to, None, self.wait)
    }

    /// The same, and on the link that the address is at; calls over UDP tell where on it.
    ///
    /// # Errors
    /// Also if no interface has that address, it is no Ethernet, or this process may not.
    pub(super) fn open_link(&self, to: SocketAddr, by: By) -> io::Result<SocketAddr> {
        let station = LinkPort::at(&sys::interface_of(to.ip())?, by, Some(to.port()))?;
        let link = Ethernet::open(&station, Use::Service)?;
        let node = link.node();
        self.start(device::Socket::Ethernet(link), None, self.wait)?;
        // Over UDP come those who bind, and those to whom the link does not lead: no processor is
        // kept busy for these, which those on the link want to have.
        let wait = if self.wait == Wait::Spin { Wait::Adaptive } else { self.wait };
        self.open_with(to, Some(node), wait)
    }

    fn open_with(&self, to: SocketAddr, link: Option<Node>, wait: Wait) -> io::Result<SocketAddr> {
        let socket = Udp::bound(to)?;
        let address = socket.local()?;
        self.start(device::Socket::Udp(socket), link, wait)?;
        Ok(address)
    }

    fn start(&self, socket: device::Socket, link: Option<Node>, wait: Wait) -> io::Result<()> {
        let admission = Admission::new(self.threads, self.queue);
        let (exports, faults) = (Arc::clone(&self.exports), Arc::clone(&self.faults));
        let host = Arc::new(Offers { exports, admission: Arc::clone(&admission), faults });
        let page = Arc::clone(&self.page);
        let service = Service::new(socket, link, self.incarnation()?, host, page)?;
        let (faults, watch) = (Arc::clone(&self.faults), Arc::<OnceLock<Watch>>::default());
        let socket = Socket { service, watch: Arc::clone(&watch), faults };
        let receivers = Receivers::start(socket, wait, admission)?;
        // While procedures run, their callers are looked after now and then.
        let tended = Arc::downgrade(&receivers);
        let watching = Keeper::of_process()?.tend(move || {
            let receivers = tended.upgrade();
            receivers.and_then(|one| one.post().service.tend()).map_or(Next::Sleep, Next::Tend)
        })?;
        let _ = receivers.post().watch.set(watching);
        let watch = Arc::downgrade(&watch);
        receivers.post().service.set_reminder(Box::new(move || {
            if let Some(watch) = watch.upgrade().as_ref().and_then(|watch| watch.get()) {
                watch.remind(TENDED_AFTER);
            }
        }));
        self.sockets.lock().push(receivers);
        Ok(())
    }

    /// Refuses the calls of all bindings to an export from now on.
    pub(super) fn revoke(&self, export: u64) {
        self.all().iter().for_each(|socket| socket.post().service.revoke(export));
    }

    /// Datagrams that were lost here.
    pub(super) fn losses(&self) -> Losses {
        let all = self.all();
        all.iter().fold(Losses::default(), |losses, socket| {
            let [overflowed, rejected, unsent] = socket.post().service.losses();
            Losses {
                overflowed: losses.overflowed + overflowed,
                rejected: losses.rejected + rejected,
                unsent: losses.unsent + unsent,
            }
        })
    }

    /// Calls that run although their callers have given them up, and calls that wait to run.
    pub(super) fn captured(&self) -> [u64; 2] {
        self.all().iter().fold([0; 2], |[captured, queued], socket| {
            let waiting = socket.admission().waiting() as u64;
            [captured + socket.post().service.captured(), queued + waiting]
        })
    }

    /// Threads that there are.
    pub(super) fn threads(&self) -> usize {
        self.all().iter().map(|socket| socket.threads()).sum()
    }

    /// Lets no call begin any more.
    pub(super) fn refuse(&self) {
        self.all().iter().for_each(|socket| socket.admission().stop());
    }

    /// As [`refuse`](Self::refuse), and waits for calls that run; false if some still did when the
    /// drain was over.
    pub(super) fn stop(&self, drain: &Drain) -> bool {
        self.refuse();
        self.all().iter().all(|socket| socket.rest(drain))
    }

    /// Ends all threads that run nothing.
    pub(super) fn farewell(&self) {
        let sockets = core::mem::take(&mut *self.sockets.lock());
        for socket in sockets {
            socket.stop(Duration::from_millis(200));
            socket.post().service.revoke_all();
        }
    }
}

impl Offers {
    fn export(&self, name: &str) -> Result<Arc<Export>, (Kind, String)> {
        if self.is_stopping() {
            let Refusal { kind, text, .. } = Refusal::stopping();
            return Err((kind, text));
        }
        offered(&self.exports, name)
    }
}

impl Host for Offers {
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
        };
        let (serve, standing) = (Arc::clone(&export.serve), Arc::clone(&export.standing));
        let tally = export.told.tally_of(&Visitor::of(&caller));
        Ok(Arc::new(BindingRow::new(
            export.number,
            serve,
            Arc::new(caller),
            bytes,
            standing,
            tally,
        )))
    }

    fn describe(&self, row: &BindingRow) -> Option<Description> {
        let exports = self.exports.lock();
        let export = exports.iter().find(|export| export.number == row.export)?;
        Some(export.description())
    }

    fn is_stopping(&self) -> bool {
        self.admission.is_stopping()
    }

    fn captured(&self, more: usize, fewer: usize) {
        self.admission.captured(more, fewer);
    }

    fn outlive(&self, thread: &str, work: &mut dyn FnMut()) {
        self.faults.outlive(thread, work);
    }
}

impl Post for Socket {
    type Hand = Hand;
    type Work = Work;

    fn hand(&self) -> io::Result<Hand> {
        self.service.hand()
    }

    fn receive(&self, hand: &mut Hand, how: How, alone: bool) -> Got<Work> {
        let asleep = how == How::Sleep;
        let got = self.service.receive(hand, asleep, alone);
        hand.waited(!matches!(got, path::Got::Nothing), asleep);
        match got {
            path::Got::Nothing => Got::Nothing,
            path::Got::Settled => Got::Settled,
            path::Got::Work(work) => Got::Work(work),
        }
    }

    fn looks(&self) -> u32 {
        self.service.looks()
    }

    fn put_down(&self, hand: &mut Hand) {
        self.service.put_down(hand);
    }

    fn run(&self, hand: &mut Hand, work: Work) -> u64 {
        let place = work.caller();
        match catch_unwind(AssertUnwindSafe(|| self.service.run(hand, work))) {
            Ok(ended) => ended.0,
            Err(panic) => {
                // Not the procedure, whose panic is its result. The client must not wait for a
                // result that nobody will send.
                let refusal = Refusal::panicked(panic);
                self.faults.thread(THREAD, Box::new(refusal.text.clone()));
                self.service.fail(hand, place, &refusal);
                sys::boot_ns()
            }
        }
    }

    fn panicked(&self, panic: Box<dyn Any + Send>) {
        self.faults.thread(THREAD, panic);
    }

    fn put_by(&self, hand: &mut Hand, work: Work) -> Option<Work> {
        self.service.put_by(hand, work)
    }

    fn refuse(&self, hand: &mut Hand, work: Work, refusal: &Refusal) {
        self.service.refuse_work(hand, work, refusal);
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

    fn is_from_inside(&self, hand: &mut Hand, work: &mut Work) -> bool {
        self.service.is_from_inside(hand, work)
    }

    fn close(&self) {
        self.service.close();
    }
}
