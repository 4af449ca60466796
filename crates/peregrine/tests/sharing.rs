//! Tests one UDP binding with many concurrent calls, more than there may be sockets. The first calls have one
//! socket each. The remaining calls share one further socket, and one of their threads receives packets for
//! all of them.

mod support;

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use peregrine::limits::SOCKETS_PER_SERVER;
use peregrine::{BindOptions, Executed, Kind, Out, Running, Server, Wait, interface};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::impairments::Impairments;
use support::relay::Relay;
use support::{KeepGoing, Process, role};

const CALLERS: usize = 64;
const LONG: Duration = Duration::from_secs(20);

#[interface]
trait Room {
    fn null(&self) -> peregrine::Result<()>;
    fn sleep(&self, ms: u32) -> peregrine::Result<u32>;
    /// Returns when the door is open.
    fn stay(&self) -> peregrine::Result<()>;
    /// Returns when `CALLERS` calls of this procedure run at the same time.
    fn meet(&self) -> peregrine::Result<()>;
    fn read(&self, bytes: u32, into: Out<'_, u8>) -> peregrine::Result<()>;
    fn sum(&self, bytes: &[u8]) -> peregrine::Result<u64>;
    /// Returns how many calls of `sleep` have begun.
    fn ran(&self) -> peregrine::Result<u32>;
}

struct Inside {
    barrier: Barrier,
    ran: AtomicU32,
    door: Arc<AtomicBool>,
}

fn byte(at: usize) -> u8 {
    (at * 31 / 7) as u8
}

impl Room for Inside {
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn sleep(&self, ms: u32) -> peregrine::Result<u32> {
        if self.ran.fetch_add(1, Ordering::SeqCst) + 1 == CALLERS as u32 {
            println!("\nall sleep");
        }
        std::thread::sleep(Duration::from_millis(ms.into()));
        Ok(ms)
    }
    fn stay(&self) -> peregrine::Result<()> {
        // The limit ends the procedure even if the test fails before it opens the door.
        let limit = Instant::now() + 2 * LONG;
        while !self.door.load(Ordering::SeqCst) && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
    fn meet(&self) -> peregrine::Result<()> {
        self.barrier.wait();
        Ok(())
    }
    fn read(&self, bytes: u32, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let all: Vec<u8> = (0..bytes as usize).map(byte).collect();
        into.put(&all).expect("enough space");
        Ok(())
    }
    fn sum(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        Ok(bytes.iter().copied().map(u64::from).sum())
    }
    fn ran(&self) -> peregrine::Result<u32> {
        Ok(self.ran.load(Ordering::SeqCst))
    }
}

fn serve() -> (Running, String) {
    serve_behind(&Arc::default())
}

fn serve_behind(door: &Arc<AtomicBool>) -> (Running, String) {
    let (barrier, door) = (Barrier::new(CALLERS), Arc::clone(door));
    let room = Inside { barrier, ran: AtomicU32::new(0), door };
    // The server has enough threads to run all calls at the same time.
    let server = Server::new().threads(CALLERS).wait(Wait::Block);
    let server = server.export("room", RoomServer::new(room)).unwrap();
    let running = server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let address = format!("{}/room", running.addresses()[0]);
    (running, address)
}

/// Makes a runtime directory for one test. The tests count the sockets of this process, so they run one at a
/// time.
fn home() -> (std::sync::MutexGuard<'static, ()>, tempfile::TempDir) {
    (support::alone(), support::own_directory())
}

/// Does the work of a child process that has a role. In the test run itself, this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    match role.split_once(' ') {
        None => {
            let (running, address) = serve();
            println!("\nat {address}");
            running.wait();
        }
        Some((_, address)) => without_descriptors(address),
    }
}

fn bind(address: &str, options: BindOptions) -> RoomClient {
    RoomClient::bind_with(address, &options.astacks(CALLERS as u32)).unwrap()
}

/// Returns the number of sockets connected to an address.
fn sockets(address: &str) -> usize {
    let port = address.split(['/', ':']).find_map(|part| part.parse::<u16>().ok()).unwrap();
    let peer = format!("0100007F:{port:04X}");
    let table = std::fs::read_to_string("/proc/net/udp").unwrap();
    table.lines().filter(|line| line.split_whitespace().nth(2) == Some(&peer)).count()
}

/// Checks that the concurrent calls use the largest allowed number of sockets.
#[track_caller]
fn assert_sockets_at_limit(address: &str) {
    assert_eq!(sockets(address), SOCKETS_PER_SERVER as usize + 1);
}

/// Runs `todo` on CALLERS threads at the same time, once on each thread. Each thread passes its number to
/// `todo`. No two threads use the same call frame.
fn all_at_once(room: &RoomClient, todo: impl Fn(usize) + Sync) {
    let together = Barrier::new(CALLERS);
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (todo, together) = (&todo, &together);
            scope.spawn(move || {
                // No call of `meet` returns before all calls run.
                room.meet().unwrap();
                together.wait();
                todo(caller);
            });
        }
    });
}

#[track_caller]
fn reads(room: &RoomClient, bytes: usize, buffer: &mut [u8]) {
    let mut out = Out::from(buffer);
    room.read(bytes as u32, out.by_ref()).unwrap();
    assert_eq!(out.filled(), bytes);
}

#[test]
fn threads_that_share_a_socket_get_their_own_results() {
    let _home = home();
    for (wait, rounds) in [(Wait::Block, 60), (Wait::Adaptive, 60), (Wait::Spin, 20)] {
        let (_running, address) = serve();
        let room = bind(&address, BindOptions::default().wait(wait));
        assert!(sockets(&address) <= 1, "an idle binding has more than one socket");
        all_at_once(&room, |caller| {
            let mut buffer = vec![0; 3000];
            for round in 0..rounds {
                let bytes = (caller * 977 + round * 131) % 3000;
                reads(&room, bytes, &mut buffer);
                assert!(buffer[..bytes].iter().copied().eq((0..bytes).map(byte)));
                let sent = vec![caller as u8; bytes];
                assert_eq!(room.sum(&sent).unwrap(), (caller * bytes) as u64);
            }
        });
        assert_sockets_at_limit(&address);
    }
}

#[test]
fn large_messages_arrive_whole_over_a_shared_socket() {
    let _home = home();
    for checked in [false, true] {
        let (_running, address) = serve();
        let room = bind(&address, BindOptions::default().payload_check(checked));
        let expected: Vec<u8> = (0..400_000).map(byte).collect();
        let sum = expected.iter().copied().map(u64::from).sum::<u64>();
        let start = Instant::now();
        all_at_once(&room, |caller| {
            let mut buffer = vec![0; 400_000];
            for bytes in [400_000, 70_000 + caller * 1000] {
                reads(&room, bytes, &mut buffer);
                assert!(buffer[..bytes] == expected[..bytes]);
            }
            assert_eq!(room.sum(&expected).unwrap(), sum);
        });
        println!("checked {checked}: {:?}", start.elapsed());
        assert_sockets_at_limit(&address);
    }
}

#[test]
fn calls_over_a_shared_socket_survive_a_bad_network() {
    let _home = home();
    let (_running, address) = serve();
    let server = address.trim_start_matches("udp:").trim_end_matches("/room").parse().unwrap();
    let impairments = Impairments {
        lost: 20,
        duplicated: 20,
        delayed: 50,
        delayed_us: 2000,
        damaged: 10,
        ..Impairments::default()
    };
    let mut relay = Relay::new("127.0.0.1:0".parse().unwrap(), server, impairments, 7);
    let room = format!("udp:{}/room", relay.address());
    let going = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _goes_on = KeepGoing::new(&going);
        scope.spawn(|| {
            while going.load(Ordering::Relaxed) {
                relay.step(&mut |_, _| ());
            }
        });
        let room = bind(&room, BindOptions::default());
        all_at_once(&room, |caller| {
            let mut buffer = vec![0; 100_000];
            for round in 0..15 {
                let bytes = [caller * 50, 70_000][usize::from(round == 14)] + round;
                reads(&room, bytes, &mut buffer);
                assert!(buffer[..bytes].iter().copied().eq((0..bytes).map(byte)));
            }
        });
    });
}

#[test]
fn several_bindings_share_sockets() {
    let _home = home();
    let (_running, address) = serve();
    let rooms = [(); 3].map(|()| bind(&address, BindOptions::default()));
    all_at_once(&rooms[0], |caller| {
        let mut buffer = vec![0; 2000];
        for round in 0..30 {
            reads(&rooms[(caller + round) % 3], caller + round, &mut buffer);
        }
    });
    assert_sockets_at_limit(&address);
    let [first, second, third] = rooms;
    drop((first, third));
    all_at_once(&second, |_| second.null().unwrap());
    drop(second);
    support::until("the sockets are closed", || sockets(&address) == 0);
}

#[test]
fn deadlines_end_calls_whichever_thread_receives() {
    let _home = home();
    let door = Arc::default();
    let (_running, address) = serve_behind(&door);
    for wait in [Wait::Block, Wait::Adaptive] {
        let room = bind(&address, BindOptions::default().wait(wait));
        let hasty = room.with_timeout(Duration::from_millis(80));
        for which in 0..2 {
            door.store(false, Ordering::SeqCst);
            all_at_once(&room, |caller| {
                let start = Instant::now();
                if caller % 2 == which {
                    let error = hasty.stay().unwrap_err();
                    let said = (error.kind(), error.executed());
                    assert_eq!(said, (Kind::TimedOut, Executed::Maybe), "{error}");
                    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
                } else {
                    assert_eq!(room.sleep(200).unwrap(), 200);
                }
            });
            // The frames are released when the procedures have ended. Only then can all calls run at once
            // again.
            door.store(true, Ordering::SeqCst);
            all_at_once(&room, |_| room.null().unwrap());
        }
        assert_sockets_at_limit(&address);
    }
}

#[test]
fn cancelled_frames_are_released_after_their_binding_is_dropped() {
    let _home = home();
    let door = Arc::default();
    let (_running, address) = serve_behind(&door);
    // The server reports to the client that it has released the calls. Without this report, the client
    // presumes the server dead after two seconds. A defect that loses the report makes every attempt take
    // that long. A slow machine delays only some attempts.
    let mut tries = Vec::new();
    while tries.iter().all(|took| *took >= Duration::from_secs(2)) {
        assert!(tries.len() < 5, "{tries:?}");
        let [room, other] = [(); 2].map(|()| bind(&address, BindOptions::default()));
        let hasty = room.with_timeout(Duration::from_millis(80));
        door.store(false, Ordering::SeqCst);
        all_at_once(&room, |_| assert_eq!(hasty.stay().unwrap_err().kind(), Kind::TimedOut));
        drop((room, hasty));
        // At first, only some of the calls have frames. These calls wait in `meet` for the other calls. One
        // of the calling threads receives packets for all calls that wait.
        std::thread::scope(|scope| {
            let all = scope.spawn(|| all_at_once(&other, |_| other.null().unwrap()));
            std::thread::sleep(Duration::from_millis(300));
            let start = Instant::now();
            door.store(true, Ordering::SeqCst);
            all.join().unwrap();
            tries.push(start.elapsed());
        });
    }
}

#[test]
fn long_calls_over_a_shared_socket_return() {
    let _home = home();
    let (_running, address) = serve();
    let room = bind(&address, BindOptions::default().wait(Wait::Block));
    all_at_once(&room, |caller| {
        // Each call sends probes while it waits, whichever thread receives.
        assert_eq!(room.sleep(2500).unwrap(), 2500, "{caller}");
    });
    assert_eq!(room.ran().unwrap(), CALLERS as u32);
}

#[test]
fn all_calls_fail_when_the_server_dies() {
    let _home = home();
    let directory = tempfile::tempdir().unwrap();
    for wait in [Wait::Block, Wait::Adaptive] {
        let mut server = Process::launch("child", "server", directory.path());
        let address = server.until("at ");
        let room = bind(&address, BindOptions::default().wait(wait));
        let inside = Barrier::new(CALLERS + 1);
        std::thread::scope(|scope| {
            let call = || {
                room.meet().unwrap();
                inside.wait();
                room.sleep(30_000).unwrap_err()
            };
            let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
            inside.wait();
            server.until("all sleep");
            let start = Instant::now();
            server.kill();
            for caller in callers {
                let error = caller.join().unwrap();
                let said = (error.kind(), error.executed());
                assert_eq!(said, (Kind::ServerGone, Executed::Maybe), "{error}");
                assert!(error.to_string().contains("no server listens"), "{error}");
            }
            println!("{wait:?}: {:?}", start.elapsed());
            assert!(start.elapsed() < LONG);
        });
    }
}

/// Opens files until this process has no free descriptor left.
fn all_descriptors() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

fn without_descriptors(address: &str) {
    let room = bind(address, BindOptions::default());
    let all = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..all }).unwrap();
    // The first call uses the socket over which the client bound. A second concurrent call needs another
    // socket.
    let held = all_descriptors();
    room.null().unwrap();
    let mut errors = Vec::new();
    support::until("two calls run concurrently", || {
        std::thread::scope(|scope| {
            let calls = [(); 2].map(|()| scope.spawn(|| room.sleep(200)));
            errors.extend(calls.into_iter().filter_map(|call| call.join().unwrap().err()));
        });
        !errors.is_empty()
    });
    for error in errors {
        assert_eq!((error.kind(), error.executed()), (Kind::Exhausted, Executed::No), "{error}");
        assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
    }
    drop(held);
    room.null().unwrap();
    // The second concurrent call opens a socket, which further calls may share.
    support::until("two calls run concurrently", || {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| room.sleep(200).unwrap());
            }
        });
        sockets(address) >= 3
    });
    let made = sockets(address);
    assert!((3..5).contains(&made), "{made}");
    let held = all_descriptors();
    all_at_once(&room, |caller| {
        let mut buffer = vec![0; 5000];
        for round in 0..20 {
            let bytes = caller * 70 + round;
            reads(&room, bytes, &mut buffer);
            assert!(buffer[..bytes].iter().copied().eq((0..bytes).map(byte)));
        }
    });
    drop(held);
    assert_eq!(sockets(address), made);
    println!("\ndone");
}

#[test]
fn calls_share_the_open_sockets_without_free_descriptors() {
    let directory = home();
    let (_running, address) = serve();
    let mut client = Process::launch("child", &format!("client {address}"), directory.1.path());
    client.until("done");
}
