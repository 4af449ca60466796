//! Tests TLS on TCP: the contract of all paths, who is accepted and who is refused, what a host on the way
//! can read and change, and bytes that were received but that `poll` does not know of.

mod contract;
mod room;
mod support;

use std::error::Error as _;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use peregrine::secure::{Expected, Identity, PeerReason, Refusal, Trust, TrustedKey};
use peregrine::{BindOptions, CallError, Executed, Kind, PathKind, Running, Server, interface};
use room::{Carrier, LONG, SECURITY, Security};

const TCP: Carrier = Carrier { scheme: "tcp", path: PathKind::Tcp };

static ADA: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());
static BOB: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());
static OF_ADA: LazyLock<Trust> = LazyLock::new(|| trusts("bob", &BOB));
static OF_BOB: LazyLock<Trust> = LazyLock::new(|| trusts("ada", &ADA));

/// Makes a runtime directory for this test. The tests run one at a time.
fn home() -> (MutexGuard<'static, ()>, tempfile::TempDir) {
    (support::alone(), support::own_directory())
}

fn trusts(name: &str, peer: &Identity) -> Trust {
    Trust::of_keys([TrustedKey::new(name, peer.public_key(), "").unwrap()]).unwrap()
}

fn secured() {
    SECURITY.get_or_init(|| Security {
        server: || (BOB.clone(), OF_BOB.clone()).into(),
        client: |options| options.secure(ADA.clone(), OF_ADA.clone()),
    });
}

macro_rules! contract_over_tls {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            secured();
            room::$name(TCP);
        }
    )*};
}

contract_over_tls! {
    contract_holds
    contract_holds_when_threads_sleep
    calls_within_their_bounds_wait_for_each_other
    long_procedures_do_not_delay_other_calls
    each_thread_gets_its_own_replies
    late_reply_releases_frame_of_given_up_call
    large_messages_arrive_intact_in_both_directions
    running_and_waiting_calls_are_bounded
    calls_of_withdrawn_export_fail_and_others_succeed
    stopping_server_finishes_calls_and_refuses_new_ones
    calls_cut_short_by_drain_may_have_executed
    binding_error_gives_the_reason
    messages_of_boundary_sizes_arrive_intact
    timed_out_call_keeps_its_frame_while_procedure_runs
    callers_are_served_concurrently
    unknown_export_and_stopped_server_are_reported
}

#[interface]
trait Desk {
    /// Returns the name and the fingerprint of the caller.
    fn who(&self) -> peregrine::Result<Option<(String, String)>>;
    /// Counts the call, and returns the number of bytes.
    fn put(&self, #[max_len(8 << 20)] bytes: &[u8]) -> peregrine::Result<u64>;
    /// Returns when the caller has given up, or after a long time.
    fn wait(&self) -> peregrine::Result<()>;
}

#[derive(Clone, Default)]
struct Clerk {
    ran: Arc<AtomicU32>,
}

impl Desk for Clerk {
    fn who(&self) -> peregrine::Result<Option<(String, String)>> {
        let caller = peregrine::caller().expect("a caller");
        let identity = caller.identity();
        let peer = identity.as_ref().and_then(|identity| identity.peer());
        Ok(peer.map(|peer| (peer.to_string(), peer.fingerprint().to_string())))
    }
    fn put(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        Ok(bytes.len() as u64)
    }
    fn wait(&self) -> peregrine::Result<()> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        let caller = peregrine::caller().expect("a caller");
        let end = std::time::Instant::now() + LONG;
        while !caller.is_cancelled() && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

type Refusals = Receiver<Refusal>;

/// Starts a secure server. Returns it, the address of its desk, and the refusals that it reports.
fn serve(clerk: &Clerk, identity: &Identity, trust: &Trust) -> (Running, String, Refusals) {
    let (sender, refusals): (Sender<Refusal>, _) = channel();
    let sender = Mutex::new(sender);
    let server = Server::new().export("desk", DeskServer::new(clerk.clone())).unwrap();
    let server = server.on_refused(move |from, refusal| {
        assert!(from.ip().is_loopback());
        let _ = sender.lock().unwrap().send(refusal.clone());
    });
    let by = (identity.clone(), trust.clone());
    let server = server.listen_beyond_this_machine("tcp:127.0.0.1:0", by).unwrap();
    let running = server.spawn().unwrap();
    let address = format!("{}/desk", running.addresses()[0]);
    (running, address, refusals)
}

fn as_ada() -> BindOptions {
    BindOptions::default().secure(ADA.clone(), OF_ADA.clone())
}

/// Returns the refusal that explains why a client could not bind.
fn refusal(error: &CallError) -> Refusal {
    assert_eq!(error.executed(), Executed::No, "{error}");
    error.source().and_then(|source| source.downcast_ref()).cloned().unwrap_or_else(|| {
        panic!("no refusal: {error}");
    })
}

fn next(refusals: &Refusals) -> Refusal {
    refusals.recv_timeout(LONG).expect("the server reports the refusal")
}

#[test]
fn procedure_knows_who_calls() {
    let _home = home();
    let (_running, address, _) = serve(&Clerk::default(), &BOB, &OF_BOB);
    let desk = DeskClient::bind_with(&address, &as_ada()).unwrap();
    let ada = ("ada".to_owned(), ADA.fingerprint().to_string());
    assert_eq!(desk.who().unwrap(), Some(ada));
    let explained = desk.binding().explain().summary();
    let sealed = format!("encrypted by TLS 1.3 with the key {} of `bob`", BOB.fingerprint());
    assert!(explained.starts_with("tcp: a connection with 127.0.0.1:"), "{explained}");
    assert!(explained.ends_with(&sealed), "{explained}");
    // On this machine, the kernel says who calls.
    let local = DeskClient::bind_with("desk", &as_ada()).unwrap();
    assert_eq!((local.binding().path(), local.who().unwrap()), (PathKind::Local, None));
}

#[test]
fn expected_server_is_found_by_its_key() {
    let _home = home();
    let (_running, address, refusals) = serve(&Clerk::default(), &BOB, &OF_BOB);
    for good in ["key:bob".to_owned(), BOB.fingerprint().to_string()] {
        let options = as_ada().expect(good.parse().unwrap());
        DeskClient::bind_with(&address, &options).unwrap().who().unwrap();
    }
    for bad in ["key:carol".to_owned(), ADA.fingerprint().to_string()] {
        let expected: Expected = bad.parse().unwrap();
        let error =
            DeskClient::bind_with(&address, &as_ada().expect(expected.clone())).unwrap_err();
        let presented = vec!["key:bob".to_owned()];
        assert_eq!(refusal(&error), Refusal::WrongName { expected, presented });
        assert_eq!(error.kind(), Kind::Denied, "{error}");
        assert_eq!(next(&refusals), Refusal::RefusedByPeer(PeerReason::WrongName));
    }
}

#[test]
fn each_refusal_has_its_own_error_on_both_sides() {
    let _home = home();
    let eve = Identity::generate().unwrap();
    let (running, address, refusals) = serve(&Clerk::default(), &BOB, &OF_BOB);
    // The server does not know the client.
    let options = BindOptions::default().secure(eve.clone(), OF_ADA.clone());
    let error = DeskClient::bind_with(&address, &options).unwrap_err();
    assert_eq!(refusal(&error), Refusal::RefusedByPeer(PeerReason::UnknownKey));
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    assert!(error.to_string().contains("run `peregrine keys trust`"), "{error}");
    assert_eq!(next(&refusals), Refusal::UnknownKey { key: eve.public_key() });
    // The client does not know the server.
    let options = BindOptions::default().secure(ADA.clone(), trusts("eve", &eve));
    let error = DeskClient::bind_with(&address, &options).unwrap_err();
    assert_eq!(refusal(&error), Refusal::UnknownKey { key: BOB.public_key() });
    assert_eq!(next(&refusals), Refusal::RefusedByPeer(PeerReason::UnknownKey));
    assert_eq!(running.refused_clients(), 2);
    // Others are not disturbed.
    DeskClient::bind_with(&address, &as_ada()).unwrap().who().unwrap();
}

#[test]
fn removed_key_ends_living_connections() {
    let _home = home();
    let trust = trusts("ada", &ADA);
    let (_running, address, refusals) = serve(&Clerk::default(), &BOB, &trust);
    let desk = DeskClient::bind_with(&address, &as_ada()).unwrap();
    desk.who().unwrap();
    trust.set_keys([]).unwrap();
    support::until("the server ends the connection", || !desk.is_alive());
    let error = desk.who().unwrap_err();
    assert_eq!(error.executed(), Executed::No, "{error}");
    assert_eq!(next(&refusals), Refusal::Removed { key: ADA.public_key() });
    let error = DeskClient::bind_with(&address, &as_ada()).unwrap_err();
    assert_eq!(refusal(&error), Refusal::RefusedByPeer(PeerReason::Removed));
}

#[test]
fn plain_client_is_told_that_the_server_wants_tls() {
    let _home = home();
    let (_running, address, refusals) = serve(&Clerk::default(), &BOB, &OF_BOB);
    let error = DeskClient::bind(&address).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Denied, Executed::No), "{error}");
    assert!(error.to_string().contains("accepts only clients with TLS"), "{error}");
    let why = "the client does not use TLS".to_owned();
    assert_eq!(next(&refusals), Refusal::OtherProtocol { why });
    let error = peregrine::describe(&address).unwrap_err();
    assert!(error.to_string().contains("accepts only clients with TLS"), "{error}");
}

#[test]
fn secure_client_never_uses_what_is_not_encrypted() {
    let _home = home();
    let server = Server::new().export("desk", DeskServer::new(Clerk::default())).unwrap();
    let server = server.listen("127.0.0.1:0").unwrap();
    let running = server.spawn().unwrap();
    let tcp = running.addresses()[0].to_string();
    let error = DeskClient::bind_with(&format!("{tcp}/desk"), &as_ada()).unwrap_err();
    assert!(matches!(refusal(&error), Refusal::OtherProtocol { .. }), "{error}");
    assert!(error.to_string().contains("does not use TLS"), "{error}");
    let at = tcp.replace("tcp:", "udp:");
    let error = DeskClient::bind_with(&format!("{at}/desk"), &as_ada()).unwrap_err();
    assert!(matches!(refusal(&error), Refusal::OtherProtocol { .. }), "{error}");
    let at = tcp.replace("tcp:", "onc+tcp:");
    let error = DeskClient::bind_with(&format!("{at}/desk"), &as_ada()).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Denied, Executed::No), "{error}");
    let place = tcp.replace("tcp:", "");
    let (explained, bound) = peregrine::explain(&format!("absent@{place}"), &as_ada());
    assert!(bound.is_err());
    for candidate in explained.candidates() {
        let is_excluded = candidate.reason.starts_with("the binding is secure, and only tcp, udp");
        let may = matches!(
            candidate.path,
            PathKind::Local | PathKind::Tcp | PathKind::Udp | PathKind::Ethernet
        );
        assert_eq!(is_excluded, !may);
    }
}

#[test]
fn secure_server_listens_only_where_calls_can_be_encrypted() {
    let _home = home();
    let foreign = ["onc+tcp", "onc+udp", "courier+tcp", "courier+udp", "courier+exchange"];
    let foreign = foreign.map(|scheme| format!("{scheme}:127.0.0.1:0"));
    for at in &foreign {
        let by = (BOB.clone(), OF_BOB.clone());
        let error = Server::new().listen_beyond_this_machine(at, by).unwrap_err();
        assert_eq!(error.kind(), Kind::Denied, "{error}");
        assert!(error.to_string().contains("shall be encrypted"), "{error}");
        assert!(error.advice().contains("Insecure::ITrustThisNetwork"), "{error}");
    }
}

#[test]
fn client_learns_that_a_secure_server_is_full() {
    let _home = home();
    let server = Server::new().export("desk", DeskServer::new(Clerk::default())).unwrap();
    let by = (BOB.clone(), OF_BOB.clone());
    let server = server.connections(1).listen_beyond_this_machine("tcp:127.0.0.1:0", by).unwrap();
    let running = server.spawn().unwrap();
    let address = format!("{}/desk", running.addresses()[0]);
    let _first = DeskClient::bind_with(&address, &as_ada()).unwrap();
    let options = as_ada().expect("key:bob".parse().unwrap());
    let error = DeskClient::bind_with(&address, &options).unwrap_err();
    assert!(error.to_string().contains("it answers without TLS, `the server has 1"), "{error}");
}

/// What the relay does with the next bytes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Pass,
    /// Keeps the bytes. They are passed together with later ones.
    Hold,
    /// Changes one bit.
    Flip,
    /// Passes the bytes twice.
    Replay,
    /// Ends both connections.
    Cut,
}

/// A host between client and server. It passes the bytes of the first connection on.
struct Middle {
    address: SocketAddr,
    /// What happens to bytes to the server, and to bytes to the client.
    deeds: [Mutex<Deed>; 2],
    seen: [Mutex<Vec<u8>>; 2],
}

impl Middle {
    fn before(server: SocketAddr) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let middle = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            deeds: [Deed::Pass; 2].map(Mutex::new),
            seen: Default::default(),
        });
        let relay = Arc::clone(&middle);
        std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(server).unwrap();
            for stream in [&client, &server] {
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
            }
            let (back, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            let other = Arc::clone(&relay);
            std::thread::spawn(move || other.pass(1, back, to_client));
            relay.pass(0, client, server);
        });
        middle
    }

    fn pass(&self, direction: usize, mut from: TcpStream, mut to: TcpStream) {
        let (mut buffer, mut kept) = (vec![0; 1 << 16], Vec::new());
        loop {
            let bytes = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => bytes,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
                Err(_) => break,
            };
            self.seen[direction].lock().unwrap().extend_from_slice(&buffer[..bytes]);
            kept.extend_from_slice(&buffer[..bytes]);
            let mut deed = self.deeds[direction].lock().unwrap();
            if kept.is_empty() || *deed == Deed::Hold {
                continue;
            }
            match *deed {
                Deed::Flip => *kept.last_mut().unwrap() ^= 1,
                Deed::Replay => kept = kept.repeat(2),
                Deed::Cut => break,
                Deed::Pass | Deed::Hold => {}
            }
            *deed = Deed::Pass;
            drop(deed);
            if to.write_all(&kept).is_err() {
                break;
            }
            kept.clear();
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }

    fn does(&self, direction: usize, deed: Deed) {
        *self.deeds[direction].lock().unwrap() = deed;
    }

    fn has_seen(&self, what: &[u8]) -> bool {
        let found = |seen: &Mutex<Vec<u8>>| {
            seen.lock().unwrap().windows(what.len()).any(|part| part == what)
        };
        self.seen.iter().any(found)
    }

    fn address(&self) -> String {
        format!("tcp:{}/desk", self.address)
    }
}

fn place_of(running: &Running) -> SocketAddr {
    running.addresses()[0].to_string().strip_prefix("tcp:").unwrap().parse().unwrap()
}

#[test]
fn nothing_of_an_argument_can_be_read_on_the_way() {
    let _home = home();
    let secret = b"meet me at the old mill at midnight";
    let plain = Server::new().export("desk", DeskServer::new(Clerk::default())).unwrap();
    let plain = plain.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let middle = Middle::before(place_of(&plain));
    DeskClient::bind(&middle.address()).unwrap().put(secret).unwrap();
    assert!(middle.has_seen(secret) && middle.has_seen(b"desk"), "the relay sees plain calls");
    drop(plain);
    let (running, ..) = serve(&Clerk::default(), &BOB, &OF_BOB);
    let middle = Middle::before(place_of(&running));
    let desk = DeskClient::bind_with(&middle.address(), &as_ada()).unwrap();
    assert_eq!(desk.put(secret).unwrap(), secret.len() as u64);
    assert!(!middle.has_seen(secret) && !middle.has_seen(b"desk"));
    assert!(!middle.has_seen(ADA.public_key().to_string().as_bytes()));
}

#[test]
fn changed_bytes_end_the_connection_with_a_true_outcome() {
    let _home = home();
    for deed in [Deed::Flip, Deed::Replay, Deed::Cut] {
        for direction in [0, 1] {
            let clerk = Clerk::default();
            let (running, ..) = serve(&clerk, &BOB, &OF_BOB);
            let middle = Middle::before(place_of(&running));
            let options = as_ada().rebind(peregrine::Rebind::Never);
            let desk = DeskClient::bind_with(&middle.address(), &options).unwrap();
            assert_eq!(desk.put(b"first").unwrap(), 5);
            middle.does(direction, deed);
            let outcome = desk.put(b"second");
            let ran = clerk.ran.load(Ordering::SeqCst) - 1;
            match outcome {
                // The server got the call once, and the second copy was refused; or the reply arrived.
                Ok(bytes) => {
                    assert_eq!((deed, bytes, ran), (Deed::Replay, 6, 1));
                    support::until("the connection ends", || !desk.is_alive());
                }
                Err(error) => {
                    assert!(
                        ran <= 1 && (ran == 0 || error.executed() == Executed::Maybe),
                        "{error}"
                    );
                    let kinds = [Kind::ServerGone, Kind::ProtocolMismatch];
                    assert!(kinds.contains(&error.kind()), "{deed:?} {direction}: {error}");
                }
            }
            if direction == 0 && deed != Deed::Replay {
                assert_eq!(ran, 0, "{deed:?}: a changed call was executed");
            }
            let error = desk.put(b"third").unwrap_err();
            assert_eq!(error.executed(), Executed::No, "{error}");
        }
    }
}

/// Many records arrive at once, in both directions. A thread that took one message out of them must not leave
/// the others to epoll, which knows nothing of them.
#[test]
fn messages_that_arrive_together_are_all_handled() {
    let _home = home();
    let clerk = Clerk::default();
    let server = Server::new().export("desk", DeskServer::new(clerk.clone())).unwrap();
    let by = (BOB.clone(), OF_BOB.clone());
    let server = server.threads(2).listen_beyond_this_machine("tcp:127.0.0.1:0", by).unwrap();
    let running = server.spawn().unwrap();
    let middle = Middle::before(place_of(&running));
    let desk = DeskClient::bind_with(&middle.address(), &as_ada().astacks(16)).unwrap();
    for round in 0..8 {
        let before = clerk.ran.load(Ordering::SeqCst);
        // The first call takes long, and its cancellation arrives with the others.
        middle.does(0, Deed::Hold);
        middle.does(1, Deed::Hold);
        std::thread::scope(|scope| {
            let given_up = scope.spawn(|| desk.with_timeout(Duration::from_millis(50)).wait());
            for caller in 0..6_u32 {
                let desk = &desk;
                scope.spawn(move || {
                    let bytes = vec![7; if caller == 5 { 200_000 } else { 100 }];
                    let put = desk.with_timeout(LONG).put(&bytes);
                    assert_eq!(put.unwrap(), bytes.len() as u64);
                });
            }
            assert_eq!(given_up.join().unwrap().unwrap_err().kind(), Kind::TimedOut);
            if round % 2 == 0 {
                middle.does(1, Deed::Pass);
            }
            middle.does(0, Deed::Pass);
            support::until("all calls ran", || clerk.ran.load(Ordering::SeqCst) >= before + 6);
            middle.does(1, Deed::Pass);
        });
    }
    assert!(desk.is_alive());
}

/// A program that does not know TLS, and one that knows nothing else, get no answer that helps them.
#[test]
fn strangers_are_refused_and_disturb_nobody() {
    let _home = home();
    let (running, address, refusals) = serve(&Clerk::default(), &BOB, &OF_BOB);
    let place = place_of(&running);
    let web = b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n";
    let all: [&[u8]; 3] = [&[0; 64], &[0xff; 4096], web];
    for garbage in all {
        let mut stranger = TcpStream::connect(place).unwrap();
        stranger.write_all(garbage).unwrap();
        let mut answer = Vec::new();
        // The server may reset the connection.
        let _ = stranger.read_to_end(&mut answer);
        assert!(answer.len() < 64, "{answer:?}");
        assert!(matches!(next(&refusals), Refusal::OtherProtocol { .. } | Refusal::Broken { .. }));
    }
    // A stranger that says nothing, and one that stops in the middle, occupy no thread.
    let _silent: Vec<_> = (0..8)
        .map(|bytes| {
            let mut stranger = TcpStream::connect(place).unwrap();
            stranger.write_all(&[22, 3, 1, 0, 200, 1, 0, 0][..bytes]).unwrap();
            stranger
        })
        .collect();
    DeskClient::bind_with(&address, &as_ada()).unwrap().who().unwrap();
}
