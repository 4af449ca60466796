//! Tests which packets a client gets from a server whose procedures wait for an event.

use core::future::poll_fn;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Poll, Waker};
use std::any::Any;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::call::{
    Answer, Answered, CallerInfo, Identified, PathKind, Reply, Request, Serve, Served, serve_async,
};
use crate::counters::{Page, Tally};
use crate::device::Socket;
use crate::device::udp::Udp;
use crate::error::Kind;
use crate::interface::InterfaceRef;
use crate::limits;
use crate::path::datagram::peer::moment;
use crate::path::datagram::server::retention::{ResultFrame, RetainedResult, ThreadCache};
use crate::path::datagram::server::waiting::WaitingFor;
use crate::path::datagram::server::{ExportHost, ReceiverState, ServerSocket};
use crate::path::receivers::{ReceiveMode, ReceiveOutcome};
use crate::protocol::exchange::header::{Flags, HEADER_BYTES, Handle, Header, PacketKind};
use crate::protocol::exchange::message::Shape;
use crate::protocol::exchange::server_end::{RecordPhase, ServerTerms};
use crate::protocol::exchange::time::{MILLISECOND, Moment};
use crate::serving::binding_table::BindingRow;
use crate::serving::deferrals::Deferrals;
use crate::sync::Mutex;
use crate::sys::Address;

const PIECE: u32 = 1024;
/// The size in bytes of a large result. Such a result needs several packets, and may have to wait for memory.
const LARGE: usize = 100_000;
/// The procedure with a result of four bytes.
const SMALL_RESULT: u32 = 0;
/// The procedure with a result of [`LARGE`] bytes.
const LARGE_RESULT: u32 = 1;

/// An event for which procedures wait.
#[derive(Default)]
struct Event {
    has_happened: Mutex<(bool, Vec<Waker>)>,
    /// The number of procedures that have begun.
    begun: AtomicUsize,
    /// The number of procedures that were dropped or have ended.
    dropped: AtomicUsize,
    /// The number of captured procedures.
    captured: AtomicUsize,
    /// Called once, in the first poll of the next procedure.
    during_first_poll: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

struct CountsDrop(Arc<Event>);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Event {
    fn happen(&self) {
        let mut state = self.has_happened.lock();
        state.0 = true;
        let wakers = core::mem::take(&mut state.1);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    async fn happens(&self) {
        poll_fn(|context| {
            let hook = self.during_first_poll.lock().take();
            if let Some(mut hook) = hook {
                hook();
            }
            let mut state = self.has_happened.lock();
            if state.0 {
                return Poll::Ready(());
            }
            state.1.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A server whose procedures wait for an event.
struct Waiting(Arc<Event>);

impl Serve for Waiting {
    fn interface(&self) -> InterfaceRef {
        InterfaceRef::none()
    }

    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        let event = Arc::clone(&self.0);
        serve_async(None, request, reply, |call| async move {
            event.begun.fetch_add(1, Ordering::SeqCst);
            let _counts = CountsDrop(Arc::clone(&event));
            event.happens().await;
            match call.procedure() {
                SMALL_RESULT => Answered::ok(&7u32, Vec::new(), |_| Ok(())),
                _ => Answered::ok(&7u32, vec![(vec![5; LARGE], 2 * LARGE)], |_| Ok(())),
            }
        })
    }
}

impl ExportHost for Waiting {
    fn bind(
        &self,
        _: &str,
        _: Option<[u8; 16]>,
        _: u64,
        from: &Address,
        _: Option<Identified>,
    ) -> Result<Arc<BindingRow>, (Kind, String)> {
        let caller = CallerInfo {
            path: PathKind::Udp,
            export: "waiting".into(),
            process: 0,
            user: 0,
            group: 0,
            from: from.ip(),
            hardware: None,
            claimed: None,
            identity: None,
            ending: None,
            carried: None,
            account: Default::default(),
        };
        let (serve, caller) = (Arc::new(Self(Arc::clone(&self.0))), Arc::new(caller));
        let phase = Arc::default();
        Ok(Arc::new(BindingRow::new(
            0,
            (serve, Arc::default()),
            caller,
            1 << 20,
            phase,
            Tally::unseen(),
        )))
    }
    fn is_withdrawn(&self, _: &BindingRow) -> bool {
        false
    }
    fn describe(&self, _: &BindingRow) -> Option<crate::interface::Description> {
        None
    }
    fn is_stopping(&self) -> bool {
        false
    }
    fn captured(&self, more: usize, fewer: usize) {
        self.0.captured.fetch_add(more, Ordering::SeqCst);
        self.0.captured.fetch_sub(fewer, Ordering::SeqCst);
    }
    fn report_panic(&self, _: Box<dyn Any + Send>) {}
    fn outlive(&self, _: &str, work: &mut dyn FnMut()) {
        work();
    }
}

/// A server whose packets the thread of the test handles, and one client of it.
struct Dialogue {
    event: Arc<Event>,
    service: Arc<ServerSocket>,
    receiver: ReceiverState,
    server: SocketAddr,
    client: UdpSocket,
    handle: Handle,
    /// The number of the current call.
    sequence: u32,
    serial: u16,
}

#[track_caller]
fn until(holds: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < limit, "timed out");
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Dialogue {
    fn new() -> Self {
        let event = Arc::new(Event::default());
        let any = "127.0.0.1:0".parse().unwrap();
        let socket = Udp::bound(any).unwrap();
        let server = socket.local().unwrap();
        let page = Page::new().unwrap();
        let (host, deferrals) = (Arc::new(Waiting(Arc::clone(&event))), Deferrals::new(&page));
        let service =
            ServerSocket::new(Socket::Udp(socket), None, 1, host, deferrals, page, None).unwrap();
        let receiver = service.receiver().unwrap();
        let client = UdpSocket::bind(any).unwrap();
        let from = Address::from(client.local_addr().unwrap());
        let row = service.host.bind("", None, 0, &from, None).unwrap();
        row.add_to_count();
        let terms = ServerTerms { piece: PIECE, credits: 64, credits_here: 64, bytes_max: 1 << 20 };
        let handle = service.admit(moment(), (&row, None), &from, &terms, false).unwrap().handle;
        let sequence = handle.sequence();
        Self { event, service, receiver, server, client, handle, sequence, serial: 0 }
    }

    fn packet(&mut self, header: Header) -> Vec<u8> {
        self.serial += 1;
        let header = Header { serial: self.serial, piece: PIECE, credits: 64, ..header };
        let mut bytes = [0; HEADER_BYTES];
        header.emit(&mut bytes);
        bytes.to_vec()
    }

    /// Sends a packet about the current call, and lets the server handle it.
    fn send(&mut self, kind: PacketKind, flags: Flags, procedure: u32) {
        let shape = match kind {
            PacketKind::Call => Shape { what: procedure, ..Shape::default() },
            _ => Shape::default(),
        };
        let header = Header::new(kind, self.handle, self.sequence);
        let packet = self.packet(Header { flags, shape, ..header });
        self.client.send_to(&packet, self.server).unwrap();
        self.take();
    }

    /// Lets the server handle the packet that was sent last.
    fn take(&mut self) {
        match self.service.receive(&mut self.receiver, ReceiveMode::Sleep, false) {
            ReceiveOutcome::Work(work) => drop(self.service.run(&mut self.receiver, work)),
            ReceiveOutcome::Settled => {}
            ReceiveOutcome::Nothing => panic!("the packet did not arrive"),
        }
    }

    /// Makes the next call. The call is deferred, unless the event has happened.
    fn call(&mut self, procedure: u32) {
        self.sequence = self.sequence.wrapping_add(1);
        let begun = self.event.begun.load(Ordering::SeqCst);
        self.send(PacketKind::Call, Flags::NONE, procedure);
        assert_eq!(self.event.begun.load(Ordering::SeqCst), begun + 1, "the call has begun");
    }

    /// Makes the next call with a message of several pieces. The call is deferred.
    fn call_in_pieces(&mut self, pieces: u32) {
        self.sequence = self.sequence.wrapping_add(1);
        for fragment in (0..pieces).rev() {
            let total = pieces * PIECE;
            let shape = Shape { what: SMALL_RESULT, total, at: total, ..Shape::default() };
            let header = Header::new(PacketKind::Call, self.handle, self.sequence);
            let mut packet = self.packet(Header { shape, fragment, ..header });
            packet.resize(HEADER_BYTES + PIECE as usize, 3);
            self.client.send_to(&packet, self.server).unwrap();
            assert_eq!(self.service.calls.any(), fragment + 1 < pieces);
            self.take();
        }
    }

    /// Returns the next packet of the server, with its payload.
    fn next(&self) -> (Header, Vec<u8>) {
        self.client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes = [0; 1 << 16];
        let length = self.client.recv(&mut bytes).expect("the server sends a packet");
        let header = bytes.first_chunk().unwrap();
        let header = Header::parse(header, length - HEADER_BYTES).unwrap();
        assert_eq!((header.handle, header.sequence), (self.handle, self.sequence));
        (header, bytes[HEADER_BYTES..length].to_vec())
    }

    /// Checks that the next packet is a control packet of this kind, and that no other packet follows.
    #[track_caller]
    fn expect(&self, kind: PacketKind, flags: Flags) {
        let (header, _) = self.next();
        assert_eq!((header.kind, header.flags), (kind, flags));
        self.expect_nothing();
    }

    /// Checks that no packet has arrived.
    #[track_caller]
    fn expect_nothing(&self) {
        self.client.set_nonblocking(true).unwrap();
        let received = self.client.recv(&mut [0; 1 << 16]);
        self.client.set_nonblocking(false).unwrap();
        assert!(received.is_err(), "the server sent another packet");
    }

    /// Receives a result in several packets, and acknowledges it. Returns the result.
    fn receive_result(&mut self) -> Vec<u8> {
        let mut result = Vec::new();
        let mut received = 0;
        loop {
            let (header, payload) = self.next();
            assert_eq!((header.kind, header.shape.what), (PacketKind::Result, Answer::Ok as u32));
            result.resize(header.shape.total as usize, 0);
            let range = header.fragments().range(header.fragment);
            result[range.start as usize..range.end as usize].copy_from_slice(&payload);
            received += payload.len();
            if received == result.len() {
                break;
            }
            if header.flags.has(Flags::REPORT) {
                // A report contains the first missing position. Positions follow the order of sending, in
                // which fragment 0 is the last.
                let header = Header::new(PacketKind::HaveResult, self.handle, self.sequence);
                let next = received.div_ceil(PIECE as usize) as u32;
                let shape = Shape { total: next, ..Shape::default() };
                let packet = self.packet(Header { fragment: next, shape, ..header });
                self.client.send_to(&packet, self.server).unwrap();
                self.take();
            }
        }
        self.send(PacketKind::HaveResult, Flags::ALL, 0);
        result
    }

    fn phase(&self) -> RecordPhase {
        self.service.record(self.handle.place).unwrap().0.lock().server_end.phase()
    }

    /// Waits until the reply to the first deferred call of this server is postponed, and until the thread
    /// that postponed it has left the queue. Before that, this thread could send the reply, too.
    #[track_caller]
    fn until_postponed(&self) {
        let service = &self.service;
        until(|| service.replies.any());
        until(|| {
            service.reply_states.take().map(|state| service.reply_states.put(state, 1)).is_some()
        });
    }

    fn waits(&self) -> WaitingFor {
        self.service.record(self.handle.place).unwrap().0.lock().waits
    }

    fn group(&self) -> u16 {
        self.service.record(self.handle.place).unwrap().0.lock().group
    }

    fn dropped(&self) -> usize {
        self.event.dropped.load(Ordering::SeqCst)
    }

    /// Checks that no call is deferred, and that no memory is charged for calls.
    #[track_caller]
    fn expect_rest(&self) {
        until(|| !self.service.has_deferred());
        let inner = self.service.record(self.handle.place).unwrap().0.lock();
        assert!(inner.deferred.is_none() && inner.waits == WaitingFor::Nothing);
        assert!(!self.service.calls.any() && !self.service.replies.any());
        assert_eq!(self.event.captured.load(Ordering::SeqCst), 0);
    }

    /// Uses up the share of the client's host in the memory for results, as a large unacknowledged result
    /// does.
    fn fill_results(&self) -> RetainedResult {
        let bytes = limits::RETAINED_BYTES_PER_HOST;
        let mut frame = ResultFrame::new(bytes).unwrap();
        frame.touch(bytes);
        let spare = &mut ThreadCache::default();
        self.service.results.keep(spare, self.group(), frame, bytes as u32).0
    }

    fn release_results(&self, result: RetainedResult) {
        self.service.results.release(&mut ThreadCache::default(), self.group(), result);
    }

    /// Lets time pass without an acknowledgement, while a client waits for memory.
    fn stall_results(&self) {
        for span in 1..100 {
            self.service.results.note_waiting(self.group(), Moment(span * 100 * MILLISECOND));
        }
        assert!(self.service.results.is_stalled(self.group()));
    }
}

const ALL_REPLIED: Flags = Flags::ALL.with_if(true, Flags::REPLIED);

#[test]
fn deferred_call_is_answered_as_a_running_procedure() {
    let mut dialogue = Dialogue::new();
    dialogue.call(SMALL_RESULT);
    dialogue.expect_nothing();
    assert_eq!(dialogue.phase(), RecordPhase::Running);
    assert!(dialogue.service.has_deferred() && !dialogue.service.calls.any());
    dialogue.send(PacketKind::Probe, Flags::NONE, 0);
    dialogue.expect(PacketKind::HaveCall, Flags::ALL);
    dialogue.send(PacketKind::Call, Flags::NONE, SMALL_RESULT);
    dialogue.expect_nothing();
    dialogue.send(PacketKind::Call, Flags::REPORT, SMALL_RESULT);
    dialogue.expect(PacketKind::HaveCall, Flags::ALL);
    dialogue.event.happen();
    let (header, payload) = dialogue.next();
    assert_eq!((header.kind, header.shape.what), (PacketKind::Result, Answer::Ok as u32));
    assert_eq!(payload, 7u32.to_ne_bytes());
    assert_eq!(dialogue.phase(), RecordPhase::Replied);
    dialogue.expect_rest();
    dialogue.send(PacketKind::Call, Flags::REPORT, SMALL_RESULT);
    dialogue.expect(PacketKind::HaveCall, ALL_REPLIED);
    // The result is retransmitted like any other result.
    dialogue.send(PacketKind::HaveResult, Flags::REPORT, 0);
    let (header, payload) = dialogue.next();
    assert_eq!((header.kind, header.flags.has(Flags::RESENT)), (PacketKind::Result, true));
    assert_eq!(payload, 7u32.to_ne_bytes());
    dialogue.send(PacketKind::HaveResult, Flags::ALL, 0);
    assert_eq!(dialogue.phase(), RecordPhase::Idle);
    assert_eq!(dialogue.event.begun.load(Ordering::SeqCst), 1, "the call ran once");
    assert_eq!(dialogue.dropped(), 1);
    // The event has happened, so the next call is not deferred.
    dialogue.call(SMALL_RESULT);
    assert_eq!(dialogue.next().0.kind, PacketKind::Result);
    dialogue.expect_rest();
}

#[test]
fn large_result_of_a_deferred_call_is_packed() {
    let mut dialogue = Dialogue::new();
    dialogue.call(LARGE_RESULT);
    dialogue.event.happen();
    let result = dialogue.receive_result();
    // The table of filled lengths and the head precede the block. Only the filled part of the block is sent.
    let block = result.len() - LARGE;
    assert!(block <= 128, "{block} bytes precede the block");
    assert!(result[block..].iter().all(|byte| *byte == 5));
    dialogue.expect_rest();
    assert_eq!(dialogue.phase(), RecordPhase::Idle);
}

#[test]
fn deferred_call_does_not_occupy_memory_for_received_messages() {
    let mut dialogue = Dialogue::new();
    dialogue.call_in_pieces(3);
    assert_eq!(dialogue.event.begun.load(Ordering::SeqCst), 1, "the call has begun");
    assert!(dialogue.service.has_deferred() && !dialogue.service.calls.any());
    dialogue.event.happen();
    assert_eq!(dialogue.next().0.kind, PacketKind::Result);
    dialogue.expect_rest();
}

#[test]
fn cancelled_call_is_dropped_and_released_at_once() {
    let mut dialogue = Dialogue::new();
    dialogue.call(LARGE_RESULT);
    dialogue.send(PacketKind::Cancel, Flags::NONE, 0);
    assert_eq!((dialogue.dropped(), dialogue.phase()), (1, RecordPhase::Idle));
    dialogue.expect(PacketKind::Released, Flags::NONE);
    dialogue.event.happen();
    dialogue.expect_nothing();
    dialogue.expect_rest();
}

#[test]
fn goodbye_drops_the_procedure_and_forgets_the_record() {
    let mut dialogue = Dialogue::new();
    dialogue.call(LARGE_RESULT);
    dialogue.send(PacketKind::Bye, Flags::NONE, 0);
    assert_eq!((dialogue.dropped(), dialogue.phase()), (1, RecordPhase::Vacant));
    dialogue.expect_nothing();
    dialogue.expect_rest();
}

/// A call that is cancelled before it is deferred counts as captured, because a thread runs it. Once the call
/// is deferred, it must not count any more.
#[test]
fn call_that_is_cancelled_in_its_first_poll_is_not_captured_any_more() {
    for (kind, phase) in
        [(PacketKind::Cancel, RecordPhase::Idle), (PacketKind::Bye, RecordPhase::Vacant)]
    {
        let mut dialogue = Dialogue::new();
        let packet = Header::new(kind, dialogue.handle, dialogue.sequence.wrapping_add(1));
        let packet = dialogue.packet(packet);
        let (client, server) = (dialogue.client.try_clone().unwrap(), dialogue.server);
        let (service, event) = (Arc::clone(&dialogue.service), Arc::clone(&dialogue.event));
        let mut receiver = service.receiver().unwrap();
        *dialogue.event.during_first_poll.lock() = Some(Box::new(move || {
            client.send_to(&packet, server).unwrap();
            let got = service.receive(&mut receiver, ReceiveMode::Sleep, false);
            assert!(matches!(got, ReceiveOutcome::Settled));
            assert_eq!(event.captured.load(Ordering::SeqCst), 1);
        }));
        dialogue.call(SMALL_RESULT);
        assert_eq!((dialogue.dropped(), dialogue.phase()), (1, phase));
        dialogue.expect_rest();
        if kind == PacketKind::Cancel {
            dialogue.next();
            dialogue.expect(PacketKind::Released, Flags::NONE);
        }
    }
}

#[test]
fn large_result_waits_for_memory_and_a_small_one_does_not() {
    let mut dialogue = Dialogue::new();
    let filled = dialogue.fill_results();
    // The server checks for memory before it runs a procedure. So the call begins while there is memory, and
    // the memory is used up only after that.
    dialogue.release_results(filled);
    dialogue.call(LARGE_RESULT);
    let filled = dialogue.fill_results();
    dialogue.event.happen();
    dialogue.until_postponed();
    assert_eq!(dialogue.dropped(), 1, "the procedure has ended");
    let waits = (dialogue.phase(), dialogue.waits());
    assert_eq!(waits, (RecordPhase::Running, WaitingFor::ResultRoom));
    assert!(dialogue.service.has_deferred() && dialogue.service.calls.any());
    dialogue.send(PacketKind::Probe, Flags::NONE, 0);
    dialogue.expect(PacketKind::HaveCall, Flags::ALL);
    dialogue.release_results(filled);
    // The next packet of any client lets the server send the result.
    dialogue.send(PacketKind::Probe, Flags::NONE, 0);
    let report = dialogue.next().0;
    assert_eq!((report.kind, report.flags), (PacketKind::HaveCall, Flags::ALL));
    assert!(dialogue.receive_result().ends_with(&[5; LARGE]));
    dialogue.expect_rest();

    let mut dialogue = Dialogue::new();
    dialogue.call(SMALL_RESULT);
    let filled = dialogue.fill_results();
    dialogue.event.happen();
    assert_eq!(dialogue.next().0.kind, PacketKind::Result);
    dialogue.release_results(filled);
    dialogue.expect_rest();
}

/// Receives a reply without a result, which says that the call may have been executed.
#[track_caller]
fn expect_error(dialogue: &Dialogue, kind: Kind) {
    let (header, payload) = dialogue.next();
    let received = payload.first_chunk().map(|kind| u32::from_le_bytes(*kind));
    assert_eq!(header.shape.what, Answer::MayHaveExecuted as u32);
    assert_eq!((header.kind, received), (PacketKind::Result, Some(kind as u32)));
}

#[test]
fn result_is_refused_if_no_client_acknowledges() {
    for stalls_first in [true, false] {
        let mut dialogue = Dialogue::new();
        dialogue.call(LARGE_RESULT);
        let filled = dialogue.fill_results();
        if stalls_first {
            dialogue.stall_results();
            dialogue.event.happen();
        } else {
            dialogue.event.happen();
            dialogue.until_postponed();
            dialogue.stall_results();
            dialogue.send(PacketKind::Probe, Flags::NONE, 0);
            assert_eq!(dialogue.next().0.kind, PacketKind::HaveCall);
        }
        expect_error(&dialogue, Kind::Exhausted);
        dialogue.release_results(filled);
        dialogue.expect_rest();
    }
}

#[test]
fn result_is_refused_if_it_cannot_wait() {
    let mut dialogue = Dialogue::new();
    dialogue.call(LARGE_RESULT);
    let filled = dialogue.fill_results();
    let (group, most) = (dialogue.group(), limits::PARTIAL_BYTES_PER_HOST);
    assert!(dialogue.service.calls.reserve(group, most));
    dialogue.event.happen();
    expect_error(&dialogue, Kind::Exhausted);
    dialogue.service.calls.subtract(group, most);
    dialogue.release_results(filled);
    dialogue.expect_rest();
}

#[test]
fn cancelled_reply_does_not_wait_any_more() {
    for (kind, phase) in
        [(PacketKind::Cancel, RecordPhase::Idle), (PacketKind::Bye, RecordPhase::Vacant)]
    {
        let mut dialogue = Dialogue::new();
        dialogue.call(LARGE_RESULT);
        let filled = dialogue.fill_results();
        dialogue.event.happen();
        dialogue.until_postponed();
        dialogue.send(kind, Flags::NONE, 0);
        assert_eq!(dialogue.phase(), phase);
        dialogue.release_results(filled);
        dialogue.expect_rest();
        if kind == PacketKind::Cancel {
            assert_eq!(dialogue.next().0.kind, PacketKind::HaveCall);
            dialogue.expect(PacketKind::Released, Flags::NONE);
        }
    }
}

/// The client is dead, so no packet makes the server look at the waiting reply again. The check of callers
/// must end the wait.
#[test]
fn reply_to_a_dead_client_does_not_wait_any_more() {
    let mut dialogue = Dialogue::new();
    dialogue.call(LARGE_RESULT);
    let filled = dialogue.fill_results();
    dialogue.event.happen();
    dialogue.until_postponed();
    until(|| {
        dialogue.service.check_callers();
        !dialogue.service.replies.any()
    });
    // The client may only have been halted, so the refusal is kept.
    assert_eq!(dialogue.phase(), RecordPhase::Replied);
    dialogue.release_results(filled);
    dialogue.expect_rest();
    assert_eq!(dialogue.next().0.kind, PacketKind::Ask);
}

#[test]
fn stopped_server_drops_procedures_and_refuses_their_calls() {
    let mut dialogue = Dialogue::new();
    dialogue.call(LARGE_RESULT);
    dialogue.service.stop_deferred();
    assert_eq!(dialogue.dropped(), 1);
    expect_error(&dialogue, Kind::Withdrawn);
    dialogue.expect_rest();
    // A procedure that was still in its first poll when the server stopped is dropped, too.
    let mut dialogue = Dialogue::new();
    let service = Arc::clone(&dialogue.service);
    *dialogue.event.during_first_poll.lock() = Some(Box::new(move || service.stop_deferred()));
    dialogue.call(LARGE_RESULT);
    assert_eq!(dialogue.dropped(), 1);
    expect_error(&dialogue, Kind::Withdrawn);
    dialogue.expect_rest();
    // A reply that waits for memory is refused, too.
    let mut dialogue = Dialogue::new();
    dialogue.call(LARGE_RESULT);
    let filled = dialogue.fill_results();
    dialogue.event.happen();
    dialogue.until_postponed();
    dialogue.service.stop_deferred();
    expect_error(&dialogue, Kind::Exhausted);
    dialogue.release_results(filled);
    dialogue.expect_rest();
}

/// If the receiving thread panics after it has deferred a call, the thread refuses the call. The record may
/// then belong to the next call when the procedure ends.
#[test]
fn reply_does_not_complete_another_call() {
    let mut dialogue = Dialogue::new();
    dialogue.call(SMALL_RESULT);
    let refusal = crate::call::Refusal::abandoned("the thread panicked");
    dialogue.service.fail(&mut dialogue.receiver, dialogue.handle.place, &refusal);
    assert_eq!(dialogue.next().0.shape.what, Answer::MayHaveExecuted as u32);
    assert_eq!(dialogue.dropped(), 1);
    dialogue.call(SMALL_RESULT);
    dialogue.expect_nothing();
    assert_eq!(dialogue.phase(), RecordPhase::Running);
    dialogue.event.happen();
    assert_eq!(dialogue.next().0.shape.what, Answer::Ok as u32);
    dialogue.expect_rest();
}

#[test]
fn too_many_deferred_calls_keep_their_threads() {
    let mut dialogue = Dialogue::new();
    let row = dialogue.service.record(0).unwrap().0.lock().row.clone().unwrap();
    let deferrals = Arc::clone(&dialogue.service.records.deferrals);
    let all: Vec<_> = core::iter::from_fn(|| deferrals.begin(Arc::clone(&row), 0)).collect();
    let event = Arc::clone(&dialogue.event);
    std::thread::scope(|scope| {
        // The call cannot be deferred, so the thread that runs it waits for the event.
        scope.spawn(|| dialogue.call(SMALL_RESULT));
        until(|| event.begun.load(Ordering::SeqCst) == 1);
        event.happen();
    });
    assert_eq!(dialogue.next().0.shape.what, Answer::Ok as u32);
    drop(all);
    dialogue.expect_rest();
}
