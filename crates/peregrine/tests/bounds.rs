//! Tests the bounds on the memory that a server keeps for hostile callers over UDP. The tests write the
//! packets themselves. For that purpose, the sources of the packet exchange (the protocol over UDP) are
//! compiled into this program, as in `crates/peregrine-simulation`.

#[allow(dead_code)]
#[path = "../src/protocol/exchange/mod.rs"]
mod exchange;
mod support;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use exchange::bind::{BIND_BYTES, BindExchange, BindOutcome, BindRequest, ExportName, Grant};
use exchange::header::{Flags, HEADER_BYTES, Handle, Header, PacketKind};
use exchange::message::Shape;
use exchange::time::Moment;
use peregrine::{Executed, Kind as Why, Running, Server, interface, limits};

#[interface]
trait Large {
    fn give(&self) -> peregrine::Result<Vec<u8>>;
    fn null(&self) -> peregrine::Result<()>;
    fn take(&self, bytes: &[u8]) -> peregrine::Result<u64>;
}

const RESULT: usize = 1_000_000;

struct Object;

impl Large for Object {
    fn give(&self) -> peregrine::Result<Vec<u8>> {
        Ok(vec![7; RESULT])
    }
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn take(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        Ok(bytes.len() as u64)
    }
}

const GIVE: u32 = 0;
const NULL: u32 = 1;
const TAKE: u32 = 2;
const PIECE: u32 = 1408;
/// The answer in a reply if the call was executed without an error.
const OK: u32 = 0;
/// The answer in a reply if the call was not executed.
const NOT_EXECUTED: u32 = 2;

fn serve() -> (Running, SocketAddr) {
    let server = Server::new().export("large", LargeServer::new(Object)).unwrap();
    let running = server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let address = running.addresses()[0].to_string();
    (running, address.strip_prefix("udp:").unwrap().parse().unwrap())
}

/// The socket of one host, and the handles that the server has granted to this host. With each handle, the
/// host can make one call at a time.
struct Host {
    socket: UdpSocket,
    handles: Vec<Handle>,
}

impl Host {
    /// Makes a host with `handles` handles, at the address 127.0.0.`last`.
    fn new(last: u8, to: SocketAddr, handles: usize) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, last), 0)).unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut host = Self { socket, handles: Vec::new() };
        while host.handles.len() < handles {
            let granted = host.bind();
            host.handles.extend(granted.handles().iter().map(|granted| granted.handle));
        }
        host.handles.truncate(handles);
        host
    }

    fn bind(&self) -> Grant {
        let request = BindRequest {
            name: ExportName::new(b"large").unwrap(),
            digest: None,
            handles: 16,
            piece: PIECE,
            result_bytes_max: 1 << 20,
            credits: 2,
            payload_check: false,
        };
        let start = Instant::now();
        let now = || Moment(start.elapsed().as_nanos() as u64);
        let nonce = (self.socket.local_addr().unwrap().port() as u128).to_le_bytes();
        let nonce = *nonce.first_chunk().unwrap();
        let mut binding = BindExchange::new(now(), nonce, request);
        loop {
            let (mut out, mut into) = ([0; BIND_BYTES], [0; BIND_BYTES]);
            if binding.poll_send(now(), &mut out).is_some() {
                self.socket.send(&out).unwrap();
            }
            match binding.outcome() {
                Some(BindOutcome::Granted(grant, _)) => return *grant,
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            if let Ok(BIND_BYTES) = self.socket.recv(&mut into) {
                let (header, body) = into.split_first_chunk::<HEADER_BYTES>().unwrap();
                let header = Header::parse(header, body.len()).unwrap();
                binding.handle(now(), &header, body);
            }
        }
    }

    fn send(&self, header: Header, payload: &[u8]) {
        let mut packet = vec![0; HEADER_BYTES];
        header.emit(packet.first_chunk_mut().unwrap());
        packet.extend_from_slice(payload);
        self.socket.send(&packet).unwrap();
    }

    fn header(&self, caller: usize, kind: PacketKind, number: u32) -> Header {
        let handle = self.handles[caller];
        let sequence = handle.sequence().wrapping_add(number);
        Header { piece: PIECE, credits: 2, ..Header::new(kind, handle, sequence) }
    }

    /// Makes call number `number` with the handle at the index `caller`, and returns the [`Shape`] in the
    /// header of the answer. The closure `call` sends the call, and is called again until an answer arrives.
    fn answer(&self, caller: usize, number: u32, call: impl Fn()) -> Shape {
        let sequence = self.handles[caller].sequence().wrapping_add(number);
        for _ in 0..20 {
            call();
            let mut packet = [0; 2048];
            while let Ok(bytes) = self.socket.recv(&mut packet) {
                let header = packet.first_chunk().unwrap();
                let header = Header::parse(header, bytes - HEADER_BYTES).unwrap();
                let mine = header.handle == self.handles[caller] && header.sequence == sequence;
                if mine && header.kind == PacketKind::Result {
                    return header.shape;
                }
                assert_ne!(header.kind, PacketKind::Refused);
            }
            // Ask the server to send the result again, in case it was lost.
            self.send(
                Header {
                    flags: Flags::REPORT,
                    ..self.header(caller, PacketKind::HaveResult, number)
                },
                &[],
            );
        }
        panic!("no answer");
    }

    /// Calls a procedure without arguments, and returns the [`Shape`] in the header of the answer.
    fn call(&self, caller: usize, number: u32, what: u32) -> Shape {
        let shape = Shape { what, ..Shape::default() };
        let call = Header { shape, ..self.header(caller, PacketKind::Call, number) };
        self.answer(caller, number, || self.send(call, &[]))
    }

    fn acknowledge(&self, caller: usize, number: u32) {
        let header = self.header(caller, PacketKind::HaveResult, number);
        self.send(Header { flags: Flags::ALL, ..header }, &[]);
    }

    /// Calls `give` once with each of the handles `callers`, until a call is refused. Returns the number of
    /// calls that were not refused, and the size of a result in bytes.
    fn fill(&self, callers: core::ops::Range<usize>) -> (usize, usize) {
        let (mut filled, mut bytes) = (0, 0);
        for caller in callers {
            let shape = self.call(caller, 1, GIVE);
            if shape.what == NOT_EXECUTED {
                break;
            }
            assert_eq!(shape.what, OK);
            (filled, bytes) = (filled + 1, shape.total as usize);
        }
        (filled, bytes)
    }
}

/// Returns the size in bytes of this process's resident memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Returns the number of results of `bytes` bytes that the server keeps for a host before it refuses a call.
fn expected(bytes: usize) -> usize {
    let held = (HEADER_BYTES + bytes).next_multiple_of(4096);
    limits::RETAINED_BYTES_PER_HOST.div_ceil(held)
}

#[test]
fn unacknowledged_results_are_bounded_in_bytes() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (_running, to) = serve();
    let honest = LargeClient::bind(&format!("udp:{to}/large")).unwrap();
    assert_eq!(honest.give().unwrap().len(), RESULT);
    let before = resident();

    let one = Host::new(2, to, 100);
    let (filled, bytes) = one.fill(0..100);
    assert_eq!(filled, expected(bytes));
    // The host has used up its bound. So the server refuses all further calls of this host, even calls with
    // small results, and reports them as not executed.
    for (number, what) in [(1, NULL), (2, GIVE)] {
        let refused = one.call(99, number, what);
        assert_eq!(refused.what, NOT_EXECUTED);
        assert!(refused.total < 200);
    }
    // Other hosts can still call, also with large results.
    for _ in 0..200 {
        honest.null().unwrap();
        assert_eq!(honest.take(&[1; 100_000]).unwrap(), 100_000);
    }
    assert_eq!(honest.give().unwrap().len(), RESULT);
    // The acknowledgement of a result frees memory for another result.
    one.acknowledge(3, 1);
    assert_eq!([one.call(3, 2, GIVE).what, one.call(4, 2, NULL).what], [OK, OK]);
    assert_eq!(one.call(98, 1, GIVE).what, OK, "a later call has acknowledged a result");
    assert_eq!(one.call(97, 1, GIVE).what, NOT_EXECUTED);

    // When a few hosts have used up the memory for the results of all hosts, no call of any host runs. A
    // secret hash of a host's address selects the host's share of this memory, so two hosts may have the same
    // share. If an earlier host has used up the share of a host, the test does not count that host.
    let all = limits::RETAINED_BYTES_MAX / limits::RETAINED_BYTES_PER_HOST;
    let mut hosts = Vec::new();
    for last in 3..9 {
        let host = Host::new(last, to, 100);
        let (filled, _) = host.fill(0..100);
        if filled == 0 && honest.null().is_ok() {
            continue;
        }
        assert!(filled <= expected(bytes) && filled + 2 >= expected(bytes), "{filled}");
        hosts.push(host);
        if hosts.len() + 1 == all {
            break;
        }
    }
    assert_eq!(hosts.len() + 1, all);
    let error = honest.null().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Why::Exhausted, Executed::No), "{error}");
    let grown = resident() - before;
    let bound = limits::RETAINED_BYTES_MAX + limits::SPARE_BYTES_MAX + (16 << 20);
    println!("the resident memory grew by {} MiB; {} MiB are allowed", grown >> 20, bound >> 20);
    assert!(grown <= bound, "{grown} bytes");
    // A packet that ends a handle releases the result of the handle. The packet is repeated, because it may
    // be lost.
    support::until("results are released", || {
        for caller in 0..100 {
            hosts[0].send(hosts[0].header(caller, PacketKind::Bye, 1), &[]);
        }
        honest.give().is_ok()
    });
}

#[test]
fn incomplete_calls_are_bounded_in_bytes() {
    const CALL: u32 = 1_000_000;
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (_running, to) = serve();
    let honest = LargeClient::bind(&format!("udp:{to}/large")).unwrap();
    let one = Host::new(2, to, 100);
    let shape = Shape { what: TAKE, total: CALL, head: 16, at: CALL, extension: 0 };
    let begin = |caller| {
        let call = Header { shape, fragment: 1, ..one.header(caller, PacketKind::Call, 1) };
        one.send(call, &[1; PIECE as usize]);
    };
    // Server threads may receive the packets in another order, so the test sends one packet at a time. It
    // repeats the packet until the server answers.
    let receives = |caller: usize, kind, fragment| {
        let mut packet = [0; 2048];
        while let Ok(bytes) = one.socket.recv(&mut packet) {
            let header =
                Header::parse(packet.first_chunk().unwrap(), bytes - HEADER_BYTES).unwrap();
            let mine = header.handle == one.handles[caller];
            assert!(!mine || header.kind == kind, "{header:?}");
            if mine && header.fragment == fragment {
                return true;
            }
        }
        false
    };
    let begun = |caller| {
        begin(caller);
        one.send(one.header(caller, PacketKind::Probe, 1), &[]);
        receives(caller, PacketKind::HaveCall, 1)
    };
    let most = limits::PARTIAL_BYTES_PER_HOST / CALL as usize;
    (0..most).for_each(|caller| support::until("a call has begun", || begun(caller)));
    let refused = one.answer(most, 1, || begin(most));
    assert_eq!(refused.what, NOT_EXECUTED);
    // Calls of one packet need no memory for incomplete calls, and the calls of other hosts have a separate
    // bound.
    assert_eq!(one.call(most + 1, 1, NULL).what, OK);
    assert_eq!(honest.take(&[1; 900_000]).unwrap(), 900_000);
    // The cancellation of a call frees memory for another call.
    support::until("a call is given up", || {
        one.send(one.header(0, PacketKind::Cancel, 1), &[]);
        receives(0, PacketKind::Released, 0)
    });
    support::until("a call has begun", || begun(most + 2));
}
