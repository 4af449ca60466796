//! ONC RPC over UDP: a message is a datagram. The threads are those of all datagram sockets
//! ([`receivers`](crate::path::receivers)).

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{AcceptedCall, Desk, Received, Source};
use crate::address::host_of;
use crate::call::{EStack, PathKind, Refusal};
use crate::counters::{Counting, ThreadKind};
use crate::device::udp::Udp;
use crate::device::{BYTES_MAX, Until};
use crate::limits;
use crate::path::connections::intake::{Intake, Reservation};
use crate::path::foreign::callers::Callers;
use crate::path::foreign::serving::ReplyBuffer;
use crate::path::receivers::{PacketService, ReceiveMode, ReceiveOutcome, Receivers, THREAD};
use crate::protocol::onc::replies::Peer;
use crate::serving::export::Export;
use crate::serving::procedure::{Serving, catching};
use crate::serving::stop::Drain;
use crate::serving::{Load, ServerCore, ServerPath};
use crate::sync::Mutex;
use crate::sys::{self, Address};
use crate::value::{Space, Window};

/// The size in bytes of a socket's receive buffer, and of its send buffer.
const BUFFER_BYTES: usize = 8 << 20;

/// The sockets of a server for ONC RPC over UDP.
pub(crate) struct OncDatagrams {
    core: Arc<ServerCore>,
    sockets: Mutex<Vec<Arc<Receivers<OncSocket>>>>,
}

/// A socket. Any host may send calls to it.
struct OncSocket {
    socket: Udp,
    core: Arc<ServerCore>,
    desk: Arc<Desk>,
    callers: Callers,
    /// Bounds the memory of calls that wait for a thread.
    intake: Arc<Intake>,
    /// The number of datagrams that are no calls.
    rejected: AtomicU64,
    /// The number of replies that were not sent, because the send buffer was full.
    unsent: AtomicU64,
}

/// The state of one receiving thread.
struct OncReceiver {
    input: EStack,
    from: Address,
    reply: ReplyBuffer,
    serving: Serving,
}

/// A call that is ready to run.
struct Work {
    call: AcceptedCall,
    from: Address,
    message: Message,
}

/// Where the message of a call is.
enum Message {
    /// In the memory of the thread that received the call.
    Received(Range<usize>),
    /// In memory of its own.
    Own(Box<[u8]>, #[expect(dead_code, reason = "it counts until it is dropped")] Reservation),
}

impl OncDatagrams {
    /// Returns the UDP part of a server, without sockets.
    pub(crate) fn new(core: &Arc<ServerCore>) -> Arc<Self> {
        Arc::new(Self { core: Arc::clone(core), sockets: Mutex::default() })
    }

    /// Opens a socket at an address, and serves calls there. Returns the actual address of the socket.
    ///
    /// # Errors
    /// If no socket can be opened, or there is no memory or no thread.
    pub(crate) fn open(&self, to: SocketAddr) -> io::Result<SocketAddr> {
        let socket = Udp::bound(to)?;
        socket.size_buffers(BUFFER_BYTES, BUFFER_BYTES)?;
        // The protocol does not divide messages. A message that is larger than a packet is divided by IP.
        socket.allow_fragmentation()?;
        let address = socket.local()?;
        let service = OncSocket {
            socket,
            core: Arc::clone(&self.core),
            desk: Desk::new(&self.core, PathKind::OncUdp)?,
            callers: Callers::new(limits::CALLERS_MAX, limits::CALLERS_PER_HOST),
            intake: Arc::default(),
            rejected: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
        };
        let (wait, admission) = (self.core.threads.wait, self.core.admission());
        let receivers = Receivers::start(service, wait, admission)?;
        self.sockets.lock().push(receivers);
        Ok(address)
    }

    /// Returns three numbers of datagrams: those that did not fit into a receive buffer, those that were no
    /// calls, and replies that were not sent.
    pub(crate) fn losses(&self) -> [u64; 3] {
        self.all().iter().fold([0; 3], |[overflowed, rejected, unsent], socket| {
            let socket = socket.service();
            let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
            [
                overflowed + socket.socket.overflowed().map_or(0, u64::from),
                rejected + count(&socket.rejected),
                unsent + count(&socket.unsent),
            ]
        })
    }

    fn all(&self) -> Vec<Arc<Receivers<OncSocket>>> {
        self.sockets.lock().clone()
    }
}

impl ServerPath for OncDatagrams {
    fn counted_as(&self) -> ThreadKind {
        ThreadKind::Datagram
    }

    /// Does nothing: clients need answers until the server stops.
    fn close(&self) {}

    fn revoke(&self, export: &Export) {
        self.all().iter().for_each(|socket| socket.service().callers.revoke(export.number));
    }

    fn refuse(&self) {
        self.all().iter().for_each(|socket| socket.admission().stop());
    }

    fn drain(&self, drain: &Drain) -> bool {
        let ended: Vec<bool> = self.all().iter().map(|socket| socket.drain(drain)).collect();
        ended.into_iter().all(|ended| ended)
    }

    fn disconnect(&self) {
        let sockets = core::mem::take(&mut *self.sockets.lock());
        for socket in sockets {
            socket.stop(Duration::from_millis(200));
            socket.service().callers.revoke_all();
        }
    }

    fn load(&self) -> Load {
        let waiting = self.all().iter().map(|socket| socket.admission().waiting() as u64).sum();
        Load { captured: 0, waiting }
    }

    fn threads(&self) -> usize {
        self.all().iter().map(|socket| socket.threads()).sum()
    }
}

impl OncSocket {
    fn send(&self, reply: &ReplyBuffer, to: &Address) {
        // A reply that is not sent counts as lost. The client sends its call again.
        if self.socket.send(&[Window::from(reply.message())], Some(to)).is_err() {
            self.unsent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Work {
    /// Returns the message. `input` is the memory of the thread that received the call.
    fn message<'a>(message: &'a Message, input: &'a [u8]) -> &'a [u8] {
        match message {
            Message::Received(range) => input.get(range.clone()).unwrap_or_default(),
            Message::Own(bytes, _) => bytes,
        }
    }
}

impl PacketService for OncSocket {
    type ReceiverState = OncReceiver;
    type Work = Work;

    fn receiver(&self) -> io::Result<OncReceiver> {
        let mut input = EStack::default();
        if !input.reserve(BYTES_MAX) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let serving = Serving::new(Counting::new(&self.core.page(), ThreadKind::Datagram));
        Ok(OncReceiver { input, from: Address::default(), reply: ReplyBuffer::default(), serving })
    }

    fn receive(
        &self,
        receiver: &mut OncReceiver,
        mode: ReceiveMode,
        _alone: bool,
    ) -> ReceiveOutcome<Work> {
        let OncReceiver { input, from, reply, serving } = receiver;
        let until = match mode {
            ReceiveMode::Poll => Until::Now,
            ReceiveMode::Sleep => Until::Ever,
        };
        let space = Space::of_mut(input.memory());
        let arrived = self.socket.receive(&[space], Some(from), until);
        let arrival = match (arrived, mode) {
            (Ok(Some(arrival)), ReceiveMode::Poll) => {
                serving.counting.found();
                arrival
            }
            (Ok(Some(arrival)), ReceiveMode::Sleep) => {
                serving.counting.slept();
                arrival
            }
            (Ok(None) | Err(_), ReceiveMode::Poll) => {
                serving.counting.looked();
                return ReceiveOutcome::Nothing;
            }
            (Ok(None) | Err(_), ReceiveMode::Sleep) => return ReceiveOutcome::Nothing,
        };
        // The buffer has room for the largest datagram, so none is cut.
        let message = &input.memory()[..arrival.bytes];
        let Some(peer) = from.ip() else { return ReceiveOutcome::Settled };
        let source = Source {
            peer: Peer::datagram(peer),
            from: peer,
            connection: 0,
            callers: &self.callers,
        };
        match self.desk.take(source, message, serving, reply) {
            Received::Nothing { is_foreign } => {
                self.rejected.fetch_add(u64::from(is_foreign), Ordering::Relaxed);
            }
            Received::Answered => self.send(reply, from),
            Received::Call(call) => {
                let message = Message::Received(0..arrival.bytes);
                return ReceiveOutcome::Work(Work { call, from: *from, message });
            }
        }
        reply.trim();
        ReceiveOutcome::Settled
    }

    fn release_expected(&self, _: &mut OncReceiver) {}

    fn run(&self, receiver: &mut OncReceiver, work: Work) -> u64 {
        let Work { call, from, message } = work;
        let OncReceiver { input, reply, serving, .. } = receiver;
        let message = Work::message(&message, input.memory());
        // A panic of the procedure becomes a result. So this panic is another one, and the call has no reply.
        let ran = catching(|| call.run(message, BYTES_MAX, serving, reply));
        let ended = sys::boot_ns();
        match ran {
            Ok(Some(_)) => self.send(reply, &from),
            Ok(None) => {}
            Err(refusal) => self.panicked(Box::new(refusal.text)),
        }
        reply.trim();
        ended
    }

    fn detach(&self, receiver: &mut OncReceiver, work: Work) -> Option<Work> {
        let Work { call, from, message } = work;
        let message = match message {
            Message::Received(range) => {
                let bytes = receiver.input.memory().get(range)?;
                let host = host_of(from.ip()?.ip());
                let Some(reserved) = self.intake.reserve(host, bytes.len(), 0) else {
                    let refusal = Refusal::exhausted("waiting calls have used all memory");
                    let _ = call.refused(&refusal, &mut receiver.reply);
                    return None;
                };
                Message::Own(bytes.into(), reserved)
            }
            own @ Message::Own(..) => own,
        };
        Some(Work { call, from, message })
    }

    fn refuse(&self, receiver: &mut OncReceiver, work: Work, refusal: &Refusal) {
        if work.call.refused(refusal, &mut receiver.reply).is_some() {
            self.send(&receiver.reply, &work.from);
        }
    }

    fn caller(&self, work: &Work) -> u32 {
        let Some(from) = work.from.ip() else { return 0 };
        let host = match from.ip() {
            std::net::IpAddr::V4(host) => host.to_bits(),
            std::net::IpAddr::V6(host) => host.to_bits() as u32,
        };
        // The number only tells callers apart that call at the same time. So a rare collision does no harm.
        host ^ (u32::from(from.port()) << 16)
    }

    /// Returns false: a call of ONC RPC does not say through which processes it came.
    fn is_from_inside(&self, _: &mut OncReceiver, _: &mut Work) -> bool {
        false
    }

    fn close(&self) {
        self.socket.close();
    }

    fn panicked(&self, panic: Box<dyn Any + Send>) {
        self.core.faults.thread(THREAD, panic);
    }
}
