//! Tests of the server's end of a datagram socket. Most of them test the eviction of silent clients.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU32;

use super::retention::BOX_BYTES;
use super::*;
use crate::call::{CallerInfo, Identified, PathKind, Reply, Request, Serve, Served};
use crate::counters::Tally;
use crate::device::udp::Udp;
use crate::interface::InterfaceRef;
use crate::protocol::exchange::bind::{BindRequest, ExportName, HANDLES_MAX};
use crate::protocol::exchange::header::{Handle, Header, PacketKind};
use crate::protocol::exchange::server_end::{RecordPhase, ServerTerms};
use crate::protocol::exchange::table::{ASSEMBLING_MIN, REPLIED_MIN};

/// An [`ExportHost`] with one export, whose procedures do nothing.
#[derive(Default)]
pub(super) struct Nothing {
    is_withdrawn: bool,
    bindings: Arc<AtomicU32>,
}

/// The names of the threads whose work was passed to [`ExportHost::outlive`].
static OUTLIVED: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Serve for Nothing {
    fn interface(&self) -> InterfaceRef {
        InterfaceRef::none()
    }
    fn serve(&self, _: &mut Request<'_>, _: &mut Reply<'_>) -> Served {
        Ok(())
    }
}

impl ExportHost for Nothing {
    fn bind(
        &self,
        _: &str,
        _: Option<[u8; 16]>,
        _: u64,
        from: &Address,
        _: Option<Identified>,
    ) -> Result<Arc<BindingRow>, (ErrorKind, String)> {
        let caller = CallerInfo {
            path: PathKind::Udp,
            export: "nothing".into(),
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
        let row = BindingRow::new(
            0,
            (Arc::new(Self::default()), Arc::default()),
            Arc::new(caller),
            1 << 20,
            Arc::clone(&self.bindings),
            Tally::unseen(),
        );
        Ok(Arc::new(row))
    }
    fn is_withdrawn(&self, _: &BindingRow) -> bool {
        self.is_withdrawn
    }
    fn describe(&self, _: &BindingRow) -> Option<crate::interface::Description> {
        None
    }
    fn is_stopping(&self) -> bool {
        false
    }
    fn captured(&self, _: usize, _: usize) {}
    fn report_panic(&self, _: Box<dyn Any + Send>) {}

    fn outlive(&self, thread: &str, work: &mut dyn FnMut()) {
        OUTLIVED.lock().push(thread.to_owned());
        work();
    }
}

fn service() -> Arc<ServerSocket> {
    service_of(Nothing::default())
}

fn service_of(host: Nothing) -> Arc<ServerSocket> {
    let socket = Udp::bound("127.0.0.1:0".parse().unwrap()).unwrap();
    let page = Page::new().unwrap();
    let deferrals = Deferrals::new(&page);
    ServerSocket::new(Socket::Udp(socket), None, 1, Arc::new(host), deferrals, page, None).unwrap()
}

const FROM: &str = "127.0.0.9:9";
const PIECE: u32 = 1024;
const BYTES: u32 = 100_000;

fn admitted(service: &ServerSocket, now: Moment) -> Handle {
    let from = Address::from(FROM.parse::<SocketAddr>().unwrap());
    let row = service.host.bind("", None, 0, &from, None).unwrap();
    row.add_to_count();
    let terms = ServerTerms { piece: PIECE, credits: 64, credits_here: 64, bytes_max: 1 << 20 };
    service.admit(now, (&row, None), &from, &terms, false).unwrap().handle
}

/// Delivers a call to its record. If the call has several pieces, delivers only the first.
fn called(service: &ServerSocket, now: Moment, handle: Handle, total: u32) {
    let mut inner = service.record(handle.place).unwrap().0.lock();
    let shape = Shape { total, ..Shape::default() };
    let fragment = u32::from(total > PIECE);
    let header = Header::new(PacketKind::Call, handle, handle.sequence().wrapping_add(1));
    let header = Header { shape, fragment, piece: PIECE, ..header };
    match inner.handle(now, &header, &[]).action {
        Action::Begin(_) => inner.call = service.room(now, inner.group, total as usize),
        Action::Execute(_) => {
            let mut receiver = service.receiver().unwrap();
            let mut frame = ResultFrame::new(BYTES as usize).unwrap();
            frame.touch(BYTES as usize);
            let result = Shape { total: BYTES, ..Shape::default() };
            drop(service.keep(&mut receiver.reply, &mut inner, result, frame));
        }
        other => panic!("{other:?}"),
    }
}

fn phase(service: &ServerSocket, handle: Handle) -> RecordPhase {
    service.record(handle.place).unwrap().0.lock().server_end.phase()
}

/// Returns a bind request that asks for two handles.
fn request() -> BindRequest {
    BindRequest {
        name: ExportName::new(b"nothing").unwrap(),
        digest: None,
        handles: 2,
        piece: PIECE,
        result_bytes_max: BYTES,
        credits: 64,
        payload_check: false,
    }
}

/// A client binds to an export while the server withdraws the export. The withdrawal may have revoked all
/// bindings before this binding existed. So the server must refuse the client, and revoke the binding.
#[test]
fn binding_to_an_export_that_is_withdrawn_meanwhile_is_refused() {
    let bindings = Arc::<AtomicU32>::default();
    let host = Nothing { is_withdrawn: true, bindings: Arc::clone(&bindings) };
    let service = service_of(host);
    let from = Address::from(FROM.parse::<SocketAddr>().unwrap());
    let refused = service.grant(Moment(1), &request(), &from, None).map(drop).unwrap_err();
    assert_eq!(refused, (ErrorKind::Withdrawn, "`nothing` was withdrawn".to_owned()));
    assert_eq!(bindings.load(Ordering::Relaxed), 0);
    let row = service.record(0).unwrap().0.lock().row.clone();
    assert!(row.unwrap().is_revoked(), "no call by the handle may run");
}

/// During a call, the call itself has a reference to the row of its binding. This reference must not keep the
/// binding alive.
#[test]
fn binding_ends_with_its_last_handle_also_during_a_call() {
    let bindings = Arc::<AtomicU32>::default();
    let host = Nothing { is_withdrawn: false, bindings: Arc::clone(&bindings) };
    let service = service_of(host);
    let from = Address::from(FROM.parse::<SocketAddr>().unwrap());
    service.grant(Moment(1), &request(), &from, None).map(drop).unwrap();
    assert_eq!(bindings.load(Ordering::Relaxed), 1);
    let running = service.record(0).unwrap().0.lock().row.clone().unwrap();
    for place in 0..2 {
        assert_eq!(bindings.load(Ordering::Relaxed), 1);
        let mut inner = service.record(place).unwrap().0.lock();
        service.forget(&mut inner, &mut ThreadCache::default());
    }
    assert!(running.is_revoked());
    assert_eq!(bindings.load(Ordering::Relaxed), 0);
}

#[test]
fn silent_client_that_holds_memory_is_evicted() {
    let service = service();
    let now = Moment(1_000_000 * MILLISECOND);
    let [idle, assembling, replied] = [(); 3].map(|()| admitted(&service, now));
    called(&service, now, assembling, BYTES);
    called(&service, now, replied, 10);
    let all = [idle, assembling, replied];
    let phases = || all.map(|handle| phase(&service, handle));
    let group = service.record(replied.place).unwrap().0.lock().group;
    service.sweep_silent(now.after(ASSEMBLING_MIN - 1));
    assert_eq!(phases(), [RecordPhase::Idle, RecordPhase::Assembling, RecordPhase::Replied]);
    // Too little time has passed since the last sweep. So this sweep does nothing.
    service.sweep_silent(now.after(ASSEMBLING_MIN));
    assert_eq!(phase(&service, assembling), RecordPhase::Assembling);
    service.sweep_silent(now.after(ASSEMBLING_MIN + SWEEP));
    assert_eq!(phases(), [RecordPhase::Idle, RecordPhase::Vacant, RecordPhase::Replied]);
    let later = now.after(REPLIED_MIN);
    // The sweep does not wait for a record that another thread has locked. It skips that record.
    let own = service.record(idle.place).unwrap().0.lock();
    service.sweep_silent(later);
    drop(own);
    assert_eq!(phases(), [RecordPhase::Idle, RecordPhase::Vacant, RecordPhase::Vacant]);
    assert!(service.calls.reserve(group, limits::PARTIAL_BYTES_PER_HOST), "nothing is held");
    // The client's call may have run. So the place counts the discarded result in its generation number.
    let inner = service.record(replied.place).unwrap().0.lock();
    let again = Header::new(PacketKind::Probe, replied, replied.sequence());
    assert_eq!(inner.server_end.refusal_of(&again, 0).map(|refusal| refusal.generation()), Some(1));
}

#[test]
fn running_call_can_be_cancelled() {
    let service = service();
    let now = Moment(1_000_000 * MILLISECOND);
    let handle = admitted(&service, now);
    let sequence = handle.sequence().wrapping_add(1);
    let is_given_up = |sequence| service.records.is_given_up(call_number(handle.place, sequence));
    let receive = |kind| {
        let mut inner = service.record(handle.place).unwrap().0.lock();
        let shape = Shape { total: 10, ..Shape::default() };
        let header = Header { shape, piece: PIECE, ..Header::new(kind, handle, sequence) };
        inner.handle(now, &header, &[]).action
    };
    assert!(!is_given_up(sequence), "a call that has not arrived must not be given up");
    assert!(matches!(receive(PacketKind::Call), Action::Execute(_)));
    assert!(!is_given_up(sequence));
    assert_eq!(receive(PacketKind::Cancel), Action::Nothing);
    assert!(is_given_up(sequence));
    // Another call at this place does not count as cancelled. A call at a place that was never bound does
    // not, either.
    assert!(!is_given_up(sequence.wrapping_add(1)) && !service.records.is_given_up(u64::MAX));
}

#[test]
fn memory_of_silent_clients_is_given_to_new_calls() {
    let service = service();
    let now = Moment(1_000_000 * MILLISECOND);
    let mut held = 0;
    while held + BYTES as usize <= limits::PARTIAL_BYTES_PER_HOST {
        let handle = admitted(&service, now);
        called(&service, now, handle, BYTES);
        held += BYTES as usize;
    }
    let group = service.record(0).unwrap().0.lock().group;
    assert!(service.room(now.after(SWEEP), group, BYTES as usize).is_none());
    assert!(service.room(now.after(ASSEMBLING_MIN), group, BYTES as usize).is_some());
}

/// A network may delay a packet of an earlier call, and an attacker may repeat such a packet. The packet must
/// not remove the waiting call from the queue.
#[test]
fn late_packet_of_an_earlier_call_leaves_a_waiting_call_in_the_queue() {
    let service = service();
    let now = moment();
    let handle = admitted(&service, now);
    let record = service.record(handle.place).unwrap();
    let mut receiver = service.receiver().unwrap();
    let group = record.0.lock().group;
    assert!(service.calls.reserve(group, limits::PARTIAL_BYTES_PER_HOST), "nothing is held");
    let sequence = handle.sequence().wrapping_add(2);
    let mut deliver = |kind, sequence| {
        let shape = Shape { total: BYTES, ..Shape::default() };
        let header = Header::new(kind, handle, sequence);
        let header = match kind {
            PacketKind::Call => Header { shape, fragment: 1, piece: PIECE, ..header },
            _ => header,
        };
        let mut inner = record.0.lock();
        service.handle_known(&mut receiver, &mut inner, now, &header, 0..PIECE as usize);
    };
    deliver(PacketKind::Call, sequence);
    assert_eq!(phase(&service, handle), RecordPhase::Waiting);
    for kind in [PacketKind::Probe, PacketKind::HaveResult, PacketKind::Cancel, PacketKind::Call] {
        for earlier in [1, 2, 1000] {
            deliver(kind, sequence.wrapping_sub(earlier));
        }
    }
    assert_eq!(phase(&service, handle), RecordPhase::Waiting);
    service.calls.subtract(group, limits::PARTIAL_BYTES_PER_HOST);
    service.give_room(&mut receiver);
    assert_eq!(phase(&service, handle), RecordPhase::Assembling, "the call did not get memory");
}

#[test]
fn recycled_memory_is_charged_as_a_whole() {
    let service = service();
    let mut large = EStack::default();
    assert!(large.reserve(90_000));
    service.estacks.put(large, 90_000);
    let held = |bytes| service.room(moment(), 7, bytes).map(|(_, held)| held);
    assert_eq!([held(2000), held(2000)], [Some(90_000), Some(2000)]);
}

#[test]
fn pacing_thread_is_restarted_after_a_panic() {
    let service = service();
    service.records.made(0).unwrap().0.lock().paced = true;
    assert!(service.send_later(moment(), 0));
    let begun = std::time::Instant::now();
    // The record has nothing to send. When the pacing thread handles the record, it clears this flag. So a
    // cleared flag shows that the thread ran.
    while service.record(0).unwrap().0.lock().paced {
        assert!(begun.elapsed() < Duration::from_secs(20), "no pacing thread ran");
        std::thread::sleep(Duration::from_millis(1));
    }
    service.close();
    assert!(OUTLIVED.lock().iter().any(|thread| thread == "peregrine-pace"));
}

#[test]
fn refusal_without_a_place_names_the_limit() {
    let service = service();
    let now = Moment(1_000_000 * MILLISECOND);
    let wish = BindRequest {
        name: ExportName::new(b"nothing").unwrap(),
        digest: None,
        handles: HANDLES_MAX as u16,
        piece: PIECE,
        result_bytes_max: BYTES,
        credits: 64,
        payload_check: false,
    };
    let mut granted = 0;
    let mut fill = |host: u8| {
        let from = Address::from(SocketAddr::from(([127, 0, 9, host], 9)));
        loop {
            match service.grant(now, &wish, &from, None) {
                Ok(grant) => granted += grant.handles().len(),
                Err((why, text)) => {
                    assert_eq!(why, ErrorKind::Exhausted);
                    return (granted, text);
                }
            }
        }
    };
    let (theirs, text) = fill(0);
    assert_eq!(theirs, limits::CALLERS_PER_HOST);
    assert!(text.starts_with("4096 clients of this host are bound"), "{text}");
    // With 32 hosts, the table is full before all groups have reached their limits.
    let texts: Vec<_> = (1..=32).map(&mut fill).collect();
    let (all, text) = &texts[31];
    assert_eq!(*all, limits::CALLERS_MAX);
    let full = texts.iter().filter(|(_, text)| text.starts_with("16384 clients are bound")).count();
    assert!(full > 20, "{full} of 32 refusals name the limit of all hosts; the last: {text}");
}

/// SECURITY.md documents these numbers.
#[test]
fn memory_of_a_socket_is_bounded_as_documented() {
    const MIB: usize = 1 << 20;
    assert_eq!(limits::PARTIAL_BYTES_MAX, 256 * MIB);
    assert_eq!(limits::PARTIAL_BYTES_PER_HOST, 64 * MIB);
    assert_eq!(limits::CALLERS_MAX * BOX_BYTES, 24 * MIB, "small results");
    assert_eq!(2 * limits::SPARE_BYTES_MAX, 32 * MIB, "spare memory for calls and results");
    // The largest number of descriptors that may wait until they are closed. A test in `sys/closing.rs`
    // checks that this limit is kept.
    assert_eq!(limits::CLOSING_MAX, 256);
    // A name has at most 255 bytes, and each `Arc` adds two words of counts.
    let names = 255 + 4 * size_of::<usize>();
    let bound = size_of::<Record>() + size_of::<BindingRow>() + size_of::<CallerInfo>() + names;
    assert!(limits::CALLERS_MAX * bound <= 16 * MIB, "{bound} bytes each");
}
