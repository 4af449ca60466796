//! Calls of other RPC systems over UDP: a server's sockets, and what the server does with a datagram of any
//! of these systems. The module [`receivers`](crate::path::receivers) has the threads that receive.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::callers::Callers;
use super::serving::ReplyBuffer;
use crate::address::host_of;
use crate::call::{EStack, Refusal};
use crate::counters::{Counting, ThreadKind};
use crate::device::udp::Udp;
use crate::device::{BYTES_MAX, Until};
use crate::limits;
use crate::path::connections::intake::{Intake, Reservation};
use crate::path::receivers::{PacketService, ReceiveMode, ReceiveOutcome, Receivers, THREAD};
use crate::serving::export::Export;
use crate::serving::procedure::{Serving, catching};
use crate::serving::stop::Drain;
use crate::serving::{Load, ServerCore, ServerPath};
use crate::sync::Mutex;
use crate::sys::{self, Address};
use crate::value::{Space, Window};

/// What a protocol does with the datagrams of one socket.
pub(crate) trait DatagramService: Send + Sync + Sized + 'static {
    /// A call that is to be run. If the value is dropped, the call counts as failed.
    type Call: Send;

    /// Returns the state of a new socket of a server.
    ///
    /// # Errors
    /// If the kernel provides no random numbers.
    fn new(core: &Arc<ServerCore>) -> io::Result<Self>;

    /// Decides what to do with a datagram. `answer` sends datagrams to the sender of this datagram.
    fn receive(
        &self,
        from: SocketAddr,
        callers: &Callers,
        datagram: &[u8],
        thread: &mut Thread,
        answer: &Answer<'_>,
    ) -> Received<Self::Call>;

    /// Runs a call, and answers it. `message` is the message of the call, which [`receive`](Self::receive)
    /// has returned with it. Returns the time at which the procedure ended, on the clock of
    /// [`boot_ns`](sys::boot_ns).
    fn run(
        &self,
        call: Self::Call,
        message: &[u8],
        thread: &mut Thread,
        answer: &Answer<'_>,
    ) -> u64;

    /// Answers a call that is not run.
    fn refuse(&self, call: Self::Call, refusal: &Refusal, thread: &mut Thread, answer: &Answer<'_>);
}

/// What the server must do with a datagram.
pub(crate) enum Received<C> {
    /// The server does nothing more. `is_foreign` is true if the datagram is no packet of the protocol.
    Settled { is_foreign: bool },
    /// The server runs a call.
    Call(C, Message),
}

/// The state with which a thread runs calls, and the memory in which it makes their replies.
pub(crate) struct Thread {
    pub(in crate::path) serving: Serving,
    pub(in crate::path) reply: ReplyBuffer,
}

/// Sends datagrams to the sender of a call.
pub(crate) struct Answer<'a> {
    socket: &'a Udp,
    to: &'a Address,
    unsent: &'a AtomicU64,
}

impl Answer<'_> {
    /// Sends a datagram that consists of these parts. A datagram that the socket does not accept counts as
    /// lost. The client then retransmits its call.
    pub(in crate::path) fn send(&self, parts: [&[u8]; 2]) {
        if self.socket.send(&parts.map(Window::from), Some(self.to)).is_err() {
            self.unsent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The size in bytes of a socket's receive buffer, and of its send buffer.
const BUFFER_BYTES: usize = 8 << 20;

/// The sockets of a server for one protocol over UDP.
pub(crate) struct Datagrams<S: DatagramService> {
    core: Arc<ServerCore>,
    sockets: Mutex<Vec<Arc<Receivers<Socket<S>>>>>,
}

/// A socket. Any host may send calls to it.
struct Socket<S> {
    socket: Udp,
    core: Arc<ServerCore>,
    service: S,
    callers: Callers,
    /// Bounds the memory of calls that wait for a thread.
    intake: Arc<Intake>,
    /// The number of datagrams that are no packets of the protocol.
    rejected: AtomicU64,
    /// The number of datagrams that the socket did not accept for sending, for example because the send
    /// buffer was full.
    unsent: AtomicU64,
}

/// The state of one receiving thread.
struct Receiver {
    input: EStack,
    from: Address,
    thread: Thread,
}

/// A call that is ready to run.
struct Work<C> {
    call: C,
    from: Address,
    message: Message,
}

/// Where the message of a call is.
pub(crate) enum Message {
    /// In this range of the datagram.
    Received(Range<usize>),
    /// In its own memory. If the call waits for a thread, this memory is reserved.
    Own(Vec<u8>, Option<Reservation>),
}

impl Message {
    /// Returns the message. `input` is the memory of the thread that received the call.
    fn bytes<'a>(&'a self, input: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Received(range) => input.get(range.clone()).unwrap_or_default(),
            Self::Own(bytes, _) => bytes,
        }
    }
}

impl<S: DatagramService> Datagrams<S> {
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
        // IP divides a datagram that is larger than a packet.
        socket.allow_fragmentation()?;
        let address = socket.local()?;
        let service = Socket {
            socket,
            core: Arc::clone(&self.core),
            service: S::new(&self.core)?,
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

    /// Returns how many datagrams did not fit into a receive buffer, how many were no packets of the
    /// protocol, and how many were not sent.
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

    fn all(&self) -> Vec<Arc<Receivers<Socket<S>>>> {
        self.sockets.lock().clone()
    }
}

impl<S: DatagramService> ServerPath for Datagrams<S> {
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

    fn is_full(&self) -> bool {
        self.all().iter().any(|socket| socket.admission().is_full())
    }

    fn threads(&self) -> usize {
        self.all().iter().map(|socket| socket.threads()).sum()
    }
}

impl<S> Socket<S> {
    fn answer<'a>(&'a self, to: &'a Address) -> Answer<'a> {
        Answer { socket: &self.socket, to, unsent: &self.unsent }
    }
}

impl<S: DatagramService> PacketService for Socket<S> {
    /// A call of another system does not tell from which call it was made. If it was made for a procedure that
    /// runs here, the deputy lets another thread receive it.
    const KNOWS_NESTED: bool = false;

    type ReceiverState = Receiver;
    type Work = Work<S::Call>;

    fn receiver(&self) -> io::Result<Receiver> {
        let mut input = EStack::default();
        if !input.reserve(BYTES_MAX) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let serving = Serving::new(Counting::new(&self.core.page(), ThreadKind::Datagram));
        let thread = Thread { serving, reply: ReplyBuffer::default() };
        Ok(Receiver { input, from: Address::default(), thread })
    }

    fn receive(
        &self,
        receiver: &mut Receiver,
        mode: ReceiveMode,
        _alone: bool,
    ) -> ReceiveOutcome<Self::Work> {
        let Receiver { input, from, thread } = receiver;
        let until = match mode {
            ReceiveMode::Poll => Until::Now,
            ReceiveMode::Sleep => Until::Ever,
        };
        let space = Space::of_mut(input.memory());
        let arrived = self.socket.receive(&[space], Some(from), until);
        let arrival = match (arrived, mode) {
            (Ok(Some(arrival)), ReceiveMode::Poll) => {
                thread.serving.counting.found();
                arrival
            }
            (Ok(Some(arrival)), ReceiveMode::Sleep) => {
                thread.serving.counting.slept();
                arrival
            }
            (Ok(None) | Err(_), ReceiveMode::Poll) => {
                thread.serving.counting.looked();
                return ReceiveOutcome::Nothing;
            }
            (Ok(None) | Err(_), ReceiveMode::Sleep) => return ReceiveOutcome::Nothing,
        };
        // The largest datagram fits into the buffer, so no datagram is truncated.
        let datagram = &input.memory()[..arrival.bytes];
        let Some(peer) = from.ip() else { return ReceiveOutcome::Settled };
        let answer = self.answer(from);
        match self.service.receive(peer, &self.callers, datagram, thread, &answer) {
            Received::Settled { is_foreign } => {
                self.rejected.fetch_add(u64::from(is_foreign), Ordering::Relaxed);
            }
            Received::Call(call, message) => {
                return ReceiveOutcome::Work(Work { call, from: *from, message });
            }
        }
        thread.reply.trim();
        ReceiveOutcome::Settled
    }

    fn release_expected(&self, _: &mut Receiver) {}

    fn run(&self, receiver: &mut Receiver, work: Self::Work) -> u64 {
        let Work { call, from, message } = work;
        let Receiver { input, thread, .. } = receiver;
        let message = message.bytes(input.memory());
        // A panic of the procedure is caught earlier, and becomes a result. So a panic that is caught here
        // comes from other code, and the call has no reply.
        let ran = catching(|| self.service.run(call, message, thread, &self.answer(&from)));
        let ended = ran.unwrap_or_else(|refusal| {
            self.panicked(Box::new(refusal.text));
            sys::boot_ns()
        });
        thread.reply.trim();
        ended
    }

    fn detach(&self, receiver: &mut Receiver, work: Self::Work) -> Option<Self::Work> {
        let Work { call, from, message } = work;
        if let Message::Own(_, Some(_)) = message {
            return Some(Work { call, from, message });
        }
        let bytes = message.bytes(receiver.input.memory());
        let Some(reserved) = self.intake.reserve(host_of(from.ip()?.ip()), bytes.len(), 0) else {
            let refusal = Refusal::exhausted("waiting calls have used all memory");
            self.service.refuse(call, &refusal, &mut receiver.thread, &self.answer(&from));
            return None;
        };
        let bytes = match message {
            Message::Own(bytes, _) => bytes,
            Message::Received(_) => bytes.to_vec(),
        };
        Some(Work { call, from, message: Message::Own(bytes, Some(reserved)) })
    }

    fn refuse(&self, receiver: &mut Receiver, work: Self::Work, refusal: &Refusal) {
        let Work { call, from, .. } = work;
        self.service.refuse(call, refusal, &mut receiver.thread, &self.answer(&from));
    }

    fn caller(&self, work: &Self::Work) -> u32 {
        let Some(from) = work.from.ip() else { return 0 };
        let host = match from.ip() {
            std::net::IpAddr::V4(host) => host.to_bits(),
            std::net::IpAddr::V6(host) => host.to_bits() as u32,
        };
        // The number only distinguishes callers that call at the same time. So a rare collision is harmless.
        host ^ (u32::from(from.port()) << 16)
    }

    /// Returns false: a call of another system does not name the processes through which it came.
    fn is_from_inside(&self, _: &mut Receiver, _: &mut Self::Work) -> bool {
        false
    }

    fn close(&self) {
        self.socket.close();
    }

    fn panicked(&self, panic: Box<dyn Any + Send>) {
        self.core.faults.thread(THREAD, panic);
    }
}
