//! Tests calls whose callers receive a flood of packets while they wait. The flood comes from the server, or
//! from an attacker in the server's place. Each call must still end at its deadline.

mod support;

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, CallError, Executed, Insecure, Kind, Server, Wait, interface};
use support::bridge::Bridge;
use support::impairments::Impairments;
use support::link::{ENDS, Link, at_far_end, at_near_end};
use support::stream::{bound, header, receive};
use support::tap::{Tap, VNET_HEADER_BYTES};
use support::{KeepGoing, until};

#[interface]
trait Stay {
    fn null(&self) -> peregrine::Result<()>;
    /// Runs until its call is cancelled, but at most for [`FLOOD`].
    fn stay(&self) -> peregrine::Result<()>;
    fn swallow(&self, #[max_len(16 << 20)] bytes: &[u8]) -> peregrine::Result<()>;
}

struct Object;

impl Stay for Object {
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn stay(&self) -> peregrine::Result<()> {
        let begun = Instant::now();
        while !caller_is_gone() && begun.elapsed() < FLOOD {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
    fn swallow(&self, _: &[u8]) -> peregrine::Result<()> {
        Ok(())
    }
}

fn caller_is_gone() -> bool {
    peregrine::caller().is_some_and(|caller| caller.is_cancelled())
}

/// The longest duration of a flood, which is much longer than [`LIMIT`]. A flood ends earlier when its call
/// ends.
const FLOOD: Duration = Duration::from_secs(8);
/// The time limit of the call that is made during a flood.
const LIMIT: Duration = Duration::from_millis(300);
const WAITS: [Wait; 3] = [Wait::Spin, Wait::Adaptive, Wait::Block];

/// Makes a call during a flood. `send` sends one packet of the flood. Checks that the call ends before the
/// flood ends.
#[track_caller]
fn call_during_flood(
    send: impl Fn() + Sync,
    call: impl FnOnce() -> Result<(), CallError>,
) -> CallError {
    let (going, has_begun) = (AtomicBool::new(true), AtomicBool::new(false));
    let end = Instant::now() + FLOOD;
    std::thread::scope(|scope| {
        let keep_going = KeepGoing::new(&going);
        for _ in 0..2 {
            scope.spawn(|| {
                while going.load(Ordering::Relaxed) && Instant::now() < end {
                    send();
                    has_begun.store(true, Ordering::Relaxed);
                }
            });
        }
        until("the flood has begun", || has_begun.load(Ordering::Relaxed));
        let error = call().expect_err("the server does not answer");
        let ended = Instant::now();
        drop(keep_going);
        assert!(ended < end, "the flood ended before the call did");
        error
    })
}

/// Forwards datagrams between a client and a server until the flood begins.
struct Relay {
    front: Arc<UdpSocket>,
    client: Arc<Mutex<Option<SocketAddr>>>,
    floods: Arc<AtomicBool>,
}

impl Relay {
    fn to(server: SocketAddr) -> Self {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let back = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        back.connect(server).unwrap();
        let relay = Self { front, client: Arc::default(), floods: Arc::default() };
        for there in [true, false] {
            let (front, back) = (Arc::clone(&relay.front), Arc::clone(&back));
            let (client, floods) = (Arc::clone(&relay.client), Arc::clone(&relay.floods));
            for socket in [&front, &back] {
                socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            }
            std::thread::spawn(move || {
                let mut packet = vec![0; 1 << 16];
                while !floods.load(Ordering::SeqCst) {
                    if there {
                        let Ok((bytes, from)) = front.recv_from(&mut packet) else { continue };
                        *client.lock().unwrap() = Some(from);
                        let _ = back.send(&packet[..bytes]);
                    } else {
                        let Ok(bytes) = back.recv(&mut packet) else { continue };
                        let to = *client.lock().unwrap();
                        let _ = to.map(|to| front.send_to(&packet[..bytes], to));
                    }
                }
            });
        }
        relay
    }
}

#[test]
fn flood_does_not_delay_deadline_over_udp() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let server = Server::new().export("stay", StayServer::new(Object)).unwrap();
    let running = server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let at = running.addresses()[0].to_string();
    for wait in WAITS {
        let relay = Relay::to(at.strip_prefix("udp:").unwrap().parse().unwrap());
        let address = format!("udp:{}/stay", relay.front.local_addr().unwrap());
        let options = BindOptions::default().wait(wait).rebind(peregrine::Rebind::Never);
        let client = StayClient::bind_with(&address, &options).unwrap();
        client.null().unwrap();
        let to = relay.client.lock().unwrap().unwrap();
        relay.floods.store(true, Ordering::SeqCst);
        let flood = || {
            let _ = relay.front.send_to(&[0; 64], to);
        };
        let error = call_during_flood(flood, || client.with_timeout(LIMIT).stay());
        assert_eq!(error.kind(), Kind::TimedOut, "{wait:?}: {error}");
    }
}

#[test]
fn flood_does_not_delay_deadline_over_raw_ethernet() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    at_near_end(Link::with_middle(), |link| {
        // The last frame that the server sent. The flood repeats this frame.
        let last = Arc::<Mutex<Vec<u8>>>::default();
        let seen = Arc::clone(&last);
        let note = move |to, frame: &[u8]| {
            if to == 0 {
                *seen.lock().unwrap() = [&[0; VNET_HEADER_BYTES], frame].concat();
            }
        };
        let _bridge = Bridge::new(link, Impairments::default(), 1, note);
        let server = Server::new().export("stay", StayServer::new(Object)).unwrap();
        let at = format!("eth:{}:0", ENDS[1]);
        let server = server.listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork).unwrap();
        let running = at_far_end(move || server.spawn().unwrap());
        let address = format!("{}/stay", running.addresses()[0]);
        let middle = link.middle()[0];
        let tap = link.at(2, || Tap::passing_on(middle).expect("a raw socket"));
        for wait in WAITS {
            let options = BindOptions::default().wait(wait).rebind(peregrine::Rebind::Never);
            let client = StayClient::bind_with(&address, &options).unwrap();
            client.null().unwrap();
            let frame = last.lock().unwrap().clone();
            let flood = || {
                let _ = tap.send(&frame);
            };
            let error = call_during_flood(flood, || client.with_timeout(LIMIT).stay());
            assert_eq!(error.kind(), Kind::TimedOut, "{wait:?}: {error}");
        }
    });
}

/// Starts a server that reads no call, and sends withdrawals of unknown exports without pause.
fn start_withdrawing_server(going: Arc<AtomicBool>) -> String {
    /// The kind of a message that withdraws an export.
    const REVOKED: u8 = 68;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let request = receive(&mut stream).unwrap();
        stream.write_all(&bound(&request, 1, 17 << 20)).unwrap();
        let until = Instant::now() + FLOOD;
        let flood = header(REVOKED, 0, [0, 9, 0, 0, 0, 0]).repeat(512);
        while going.load(Ordering::Relaxed) && Instant::now() < until {
            if stream.write_all(&flood).is_err() {
                break;
            }
        }
        going.store(false, Ordering::Relaxed);
    });
    format!("tcp:{at}/stay")
}

#[test]
fn flood_does_not_delay_deadline_over_tcp() {
    let _alone = support::alone();
    for wait in WAITS {
        // The caller of the large call waits while it sends, so the server does not get the whole call. The
        // caller of the small call waits for its reply.
        for (bytes, executed) in [(16 << 20, Executed::No), (16, Executed::Maybe)] {
            let going = Arc::new(AtomicBool::new(true));
            let options = BindOptions::default().wait(wait).rebind(peregrine::Rebind::Never);
            let address = start_withdrawing_server(Arc::clone(&going));
            let client = StayClient::bind_with(&address, &options).unwrap();
            let error = client.with_timeout(LIMIT).swallow(&vec![1; bytes]).unwrap_err();
            let still_floods = going.swap(false, Ordering::Relaxed);
            assert!(still_floods, "the flood ended before the call did: {error}");
            let outcome = (error.kind(), error.executed());
            assert_eq!(outcome, (Kind::TimedOut, executed), "{wait:?}, {bytes}: {error}");
        }
    }
}
