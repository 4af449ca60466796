//! Tests sealed packets over UDP: the contract of all paths, who is accepted and who is refused, and what a
//! host on the way can read, change, repeat, mix up and forge.

mod contract;
mod room;
mod support;

use std::collections::HashMap;
use std::error::Error as _;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use peregrine::secure::{Expected, Identity, PeerReason, Refusal, Trust, TrustedKey};
use peregrine::{
    BindOptions, CallError, Executed, Kind, Out, PathKind, Rebind, Running, Server, interface,
};
use room::{Carrier, LONG, SECURITY, Security};

const UDP: Carrier = Carrier { scheme: "udp", path: PathKind::Udp };

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

macro_rules! contract_over_sealed_packets {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            secured();
            room::$name(UDP);
        }
    )*};
}

contract_over_sealed_packets! {
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
    long_call_is_not_given_up
    unknown_export_and_stopped_server_are_reported
}

#[interface]
trait Desk {
    /// Returns the name and the fingerprint of the caller.
    fn who(&self) -> peregrine::Result<Option<(String, String)>>;
    /// Notes that the call with this number ran, and returns the bytes.
    fn put(
        &self,
        number: u64,
        #[max_len(1 << 20)] bytes: &[u8],
        #[max_len(1 << 20)] out: Out<'_, u8>,
    ) -> peregrine::Result<()>;
    /// Returns when `open` was called.
    fn wait(&self) -> peregrine::Result<()>;
}

#[derive(Clone, Default)]
struct Clerk {
    /// How often the call with each number ran.
    ran: Arc<Mutex<HashMap<u64, u32>>>,
    waiting: Arc<AtomicU32>,
    opened: Arc<AtomicBool>,
}

impl Clerk {
    fn ran(&self, number: u64) -> u32 {
        self.ran.lock().unwrap().get(&number).copied().unwrap_or(0)
    }
}

impl Desk for Clerk {
    fn who(&self) -> peregrine::Result<Option<(String, String)>> {
        let caller = peregrine::caller().expect("a caller");
        let names =
            |peer: &peregrine::secure::Peer| (peer.to_string(), peer.fingerprint().to_string());
        let identity = caller.identity();
        Ok(identity.as_ref().and_then(|identity| identity.peer()).map(names))
    }
    fn put(&self, number: u64, bytes: &[u8], mut out: Out<'_, u8>) -> peregrine::Result<()> {
        *self.ran.lock().unwrap().entry(number).or_default() += 1;
        out.put(bytes).expect("the caller has room");
        Ok(())
    }
    fn wait(&self) -> peregrine::Result<()> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let end = std::time::Instant::now() + LONG;
        while !self.opened.load(Ordering::SeqCst) && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

type Refusals = Receiver<Refusal>;

/// Starts a secure server. Returns it, the address of its desk, and the refusals that it reports.
fn serve(clerk: &Clerk, identity: &Identity, trust: &Trust) -> (Running, String, Refusals) {
    serve_at("udp:127.0.0.1:0", clerk, identity, trust)
}

fn serve_at(
    at: &str,
    clerk: &Clerk,
    identity: &Identity,
    trust: &Trust,
) -> (Running, String, Refusals) {
    let (sender, refusals): (Sender<Refusal>, _) = channel();
    let sender = Mutex::new(sender);
    let server = Server::new().export("desk", DeskServer::new(clerk.clone())).unwrap();
    let server = server.on_refused(move |from, refusal| {
        assert!(from.ip().is_loopback());
        let _ = sender.lock().unwrap().send(refusal.clone());
    });
    let own = (identity.clone(), trust.clone());
    let running = server.listen_beyond_this_machine(at, own).unwrap().spawn().unwrap();
    let address = format!("{}/desk", running.addresses()[0]);
    (running, address, refusals)
}

fn as_ada() -> BindOptions {
    BindOptions::default().secure(ADA.clone(), OF_ADA.clone())
}

/// Calls `put`, and checks what it returns.
fn put(desk: &DeskClient, number: u64, bytes: &[u8]) -> Result<(), CallError> {
    let mut out = vec![0; bytes.len()];
    desk.put(number, bytes, Out::from(&mut out[..]))?;
    assert!(out == bytes, "the result of call {number}");
    Ok(())
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
    assert_eq!(desk.binding().path(), PathKind::Udp);
    let explained = desk.binding().explain().summary();
    let sealed = format!("encrypted by TLS 1.3 with the key {} of `bob`", BOB.fingerprint());
    assert!(explained.starts_with("udp: datagrams to 127.0.0.1:"), "{explained}");
    assert!(explained.ends_with(&sealed), "{explained}");
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
    let options = as_ada().rebind(Rebind::Never);
    let desk = DeskClient::bind_with(&address, &options).unwrap();
    desk.who().unwrap();
    trust.set_keys([]).unwrap();
    support::until("calls fail", || desk.who().is_err());
    let error = desk.who().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::No), "{error}");
    let error = DeskClient::bind_with(&address, &as_ada()).unwrap_err();
    assert_eq!(refusal(&error), Refusal::RefusedByPeer(PeerReason::Removed));
    assert_eq!(next(&refusals), Refusal::Removed { key: ADA.public_key() });
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
}

#[test]
fn secure_client_refuses_a_plain_server() {
    let _home = home();
    let server = Server::new().export("desk", DeskServer::new(Clerk::default())).unwrap();
    let running = server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let address = format!("{}/desk", running.addresses()[0]);
    let error = DeskClient::bind_with(&address, &as_ada()).unwrap_err();
    assert!(matches!(refusal(&error), Refusal::OtherProtocol { .. }), "{error}");
    assert!(error.to_string().contains("without TLS"), "{error}");
}

/// Decides which packets arrive instead of a packet that travels to the server (direction 0) or to a client
/// (direction 1).
type Rule = Box<dyn FnMut(usize, &[u8]) -> Vec<Vec<u8>> + Send>;

/// A host between clients and a server. It has a socket for each client, as a NAT has.
struct Middle {
    address: SocketAddr,
    rule: Mutex<Rule>,
    seen: [Mutex<Vec<Vec<u8>>>; 2],
    clients: Mutex<Vec<(SocketAddr, Arc<UdpSocket>)>>,
    front: UdpSocket,
    ends: AtomicBool,
}

fn pass() -> Rule {
    Box::new(|_, packet| vec![packet.to_vec()])
}

impl Middle {
    fn before(server: SocketAddr) -> Arc<Self> {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        front.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let middle = Arc::new(Self {
            address: front.local_addr().unwrap(),
            rule: Mutex::new(pass()),
            seen: Default::default(),
            clients: Mutex::default(),
            front,
            ends: AtomicBool::new(false),
        });
        let this = Arc::downgrade(&middle);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Some(this) = this.upgrade().filter(|one| !one.ends.load(Ordering::SeqCst)) {
                let Ok((bytes, from)) = this.front.recv_from(&mut buffer) else { continue };
                let back = this.client(from, server);
                for packet in this.judge(0, &buffer[..bytes]) {
                    let _ = back.send(&packet);
                }
            }
        });
        middle
    }

    /// Returns the socket of a client. A thread passes on what arrives there.
    fn client(self: &Arc<Self>, from: SocketAddr, server: SocketAddr) -> Arc<UdpSocket> {
        let mut clients = self.clients.lock().unwrap();
        if let Some((_, back)) = clients.iter().find(|(client, _)| *client == from) {
            return Arc::clone(back);
        }
        let back = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        back.connect(server).unwrap();
        back.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        clients.push((from, Arc::clone(&back)));
        let (this, there) = (Arc::downgrade(self), Arc::clone(&back));
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Some(this) = this.upgrade().filter(|one| !one.ends.load(Ordering::SeqCst)) {
                let Ok(bytes) = there.recv(&mut buffer) else { continue };
                for packet in this.judge(1, &buffer[..bytes]) {
                    let _ = this.front.send_to(&packet, from);
                }
            }
        });
        back
    }

    fn judge(&self, direction: usize, packet: &[u8]) -> Vec<Vec<u8>> {
        self.seen[direction].lock().unwrap().push(packet.to_vec());
        (self.rule.lock().unwrap())(direction, packet)
    }

    fn obeys(&self, rule: Rule) {
        *self.rule.lock().unwrap() = rule;
    }

    fn has_seen(&self, what: &[u8]) -> bool {
        let within = |packet: &Vec<u8>| packet.windows(what.len()).any(|part| part == what);
        self.seen.iter().any(|all| all.lock().unwrap().iter().any(within))
    }

    /// Returns the number of bytes in handshakes.
    fn handshake_bytes(&self) -> usize {
        let shakes = |packet: &&Vec<u8>| packet.get(KIND_AT) == Some(&SHAKE);
        let of = |all: &Mutex<Vec<Vec<u8>>>| {
            all.lock().unwrap().iter().filter(shakes).map(Vec::len).sum::<usize>()
        };
        self.seen.iter().map(of).sum()
    }

    fn address(&self) -> String {
        format!("udp:{}/desk", self.address)
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
    }
}

/// The offset of the kind in a header.
const KIND_AT: usize = 3;
const SHAKE: u8 = 16;
const REFUSED: u8 = 8;
/// The offset of the flags in a header, and the flag of sealed packets.
const FLAGS_AT: usize = 28;
const SEALED: u8 = 64;

fn is_sealed(packet: &[u8]) -> bool {
    packet.get(FLAGS_AT).is_some_and(|flags| flags & SEALED != 0)
}

fn place_of(running: &Running) -> SocketAddr {
    running.addresses()[0].to_string().strip_prefix("udp:").unwrap().parse().unwrap()
}

#[test]
fn nothing_of_an_argument_can_be_read_on_the_way() {
    let _home = home();
    let secret = b"meet me at the old mill at midnight";
    let plain = Server::new().export("desk", DeskServer::new(Clerk::default())).unwrap();
    let plain = plain.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let middle = Middle::before(place_of(&plain));
    put(&DeskClient::bind(&middle.address()).unwrap(), 1, secret).unwrap();
    assert!(middle.has_seen(secret) && middle.has_seen(b"desk"), "the relay sees plain calls");
    drop(plain);
    let (running, ..) = serve(&Clerk::default(), &BOB, &OF_BOB);
    let middle = Middle::before(place_of(&running));
    let desk = DeskClient::bind_with(&middle.address(), &as_ada()).unwrap();
    let large: Vec<u8> = secret.iter().copied().cycle().take(300_000).collect();
    for bytes in [&secret[..], &large] {
        put(&desk, 2, bytes).unwrap();
    }
    assert!(!middle.has_seen(secret) && !middle.has_seen(b"desk"));
    assert!(!middle.has_seen(ADA.public_key().to_string().as_bytes()));
}

#[test]
fn second_handshake_is_resumed() {
    let _home = home();
    let (running, ..) = serve(&Clerk::default(), &BOB, &OF_BOB);
    let options = as_ada();
    let bytes = [(); 2].map(|()| {
        let middle = Middle::before(place_of(&running));
        // The expected server is the same, so the ticket of the first handshake is used.
        let options = options.clone().expect("key:bob".parse().unwrap());
        let desk = DeskClient::bind_with(&middle.address(), &options).unwrap();
        desk.who().unwrap();
        middle.handshake_bytes()
    });
    assert!(bytes[1] < bytes[0], "{bytes:?}");
}

/// Makes calls of many sizes through a relay that obeys a rule. Each must return its own bytes, and no call
/// may run twice.
fn calls_survive(rule: impl Fn() -> Rule) {
    let _home = home();
    let clerk = Clerk::default();
    let (running, ..) = serve(&clerk, &BOB, &OF_BOB);
    let middle = Middle::before(place_of(&running));
    middle.obeys(rule());
    let desk = DeskClient::bind_with(&middle.address(), &as_ada()).unwrap();
    std::thread::scope(|scope| {
        for caller in 0..3_u64 {
            let (desk, clerk) = (&desk, &clerk);
            scope.spawn(move || {
                for round in 0..20 {
                    let number = caller << 32 | round;
                    let bytes =
                        vec![(number % 251) as u8; [0, 3, 1400, 5000, 90_000][round as usize % 5]];
                    let outcome = put(&desk.with_timeout(LONG), number, &bytes);
                    assert!(outcome.is_ok(), "{outcome:?}");
                    assert_eq!(clerk.ran(number), 1);
                }
            });
        }
    });
    assert!(clerk.ran.lock().unwrap().values().all(|ran| *ran == 1));
    assert_eq!(running.refused_clients(), 0);
}

/// Returns a rule that does something to about one of `of` packets, by turns of a fixed pattern.
fn sometimes(of: u64, deed: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> Rule {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    Box::new(move |_, packet| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if state.is_multiple_of(of) { deed(packet) } else { vec![packet.to_vec()] }
    })
}

#[test]
fn lost_packets_are_sent_again() {
    calls_survive(|| sometimes(12, |_| Vec::new()));
}

#[test]
fn duplicates_run_no_call_twice() {
    calls_survive(|| sometimes(2, |packet| vec![packet.to_vec(), packet.to_vec()]));
}

#[test]
fn changed_packets_are_lost() {
    let at = AtomicU32::new(0);
    let at = Arc::new(at);
    calls_survive(move || {
        let at = Arc::clone(&at);
        sometimes(8, move |packet| {
            let mut changed = packet.to_vec();
            let place = at.fetch_add(37, Ordering::Relaxed) as usize % changed.len();
            changed[place] ^= 0x20;
            vec![changed]
        })
    });
}

#[test]
fn packets_may_arrive_in_another_order() {
    calls_survive(|| {
        let mut held = [None, None];
        Box::new(move |direction, packet| match held[direction].take() {
            // Every second packet is overtaken by the next one. The client asks again if none follows.
            Some(held) => vec![packet.to_vec(), held],
            None if packet.len() > 200 => {
                held[direction] = Some(packet.to_vec());
                Vec::new()
            }
            None => vec![packet.to_vec()],
        })
    });
}

#[test]
fn replayed_packets_run_no_call_twice() {
    calls_survive(|| {
        let mut seen: [Vec<Vec<u8>>; 2] = Default::default();
        Box::new(move |direction, packet| {
            let all = &mut seen[direction];
            all.push(packet.to_vec());
            let old = all[all.len() * 7 / 11].clone();
            let first = all[all.len() % 5 % all.len()].clone();
            vec![packet.to_vec(), old, first]
        })
    });
}

#[test]
fn forged_refusals_end_no_call() {
    calls_survive(|| {
        Box::new(move |direction, packet| {
            if direction == 0 || !is_sealed(packet) {
                return vec![packet.to_vec()];
            }
            // Refusals that look like those of a server that was restarted arrive before each true packet.
            vec![refusal_of(packet), refusal_of(packet), packet.to_vec()]
        })
    });
}

/// Forges a refusal in clear of the handle in a packet.
fn refusal_of(packet: &[u8]) -> Vec<u8> {
    let mut forged = packet[..64].to_vec();
    forged[KIND_AT] = REFUSED;
    forged[FLAGS_AT..FLAGS_AT + 2].fill(0);
    forged[4..8].fill(0);
    let check = crc32c::crc32c(&forged);
    forged[4..8].copy_from_slice(&check.to_le_bytes());
    forged
}

/// The host on the way exchanges the handles of two clients, and the packets of two clients.
#[test]
fn mixed_up_clients_do_not_get_each_others_calls() {
    let _home = home();
    let eve = Identity::generate().unwrap();
    let clerk = Clerk::default();
    let keys = [("ada", &*ADA), ("eve", &eve)];
    let keys = keys.map(|(name, of)| TrustedKey::new(name, of.public_key(), "").unwrap());
    let (running, ..) = serve(&clerk, &BOB, &Trust::of_keys(keys).unwrap());
    let middle = Middle::before(place_of(&running));
    let as_eve = BindOptions::default().secure(eve.clone(), OF_ADA.clone());
    let clients = [as_ada(), as_eve].map(|options| {
        let desk = DeskClient::bind_with(&middle.address(), &options).unwrap();
        desk.who().unwrap();
        desk
    });
    let mut last: [Option<Vec<u8>>; 2] = [None, None];
    middle.obeys(Box::new(move |direction, packet| {
        let mut spliced = packet.to_vec();
        let other = last[direction].replace(packet.to_vec());
        match other {
            Some(other) if is_sealed(packet) && is_sealed(&other) => {
                // The handle of the one with the payload of the other, and the packet of the other.
                spliced[8..24].copy_from_slice(&other[8..24]);
                vec![spliced, other, packet.to_vec()]
            }
            _ => vec![packet.to_vec()],
        }
    }));
    std::thread::scope(|scope| {
        for (at, (desk, name)) in clients.iter().zip(["ada", "eve"]).enumerate() {
            let clerk = &clerk;
            scope.spawn(move || {
                for round in 0..50_u64 {
                    assert_eq!(desk.who().unwrap().unwrap().0, name);
                    let number = (at as u64) << 32 | round;
                    put(desk, number, &[at as u8; 100]).unwrap();
                    assert_eq!(clerk.ran(number), 1);
                }
            });
        }
    });
}

/// A server that was restarted does not know the keys. The refusals in clear are hints, which make the client
/// notice it soon, and the outcome is true.
#[test]
fn restarted_server_is_noticed_and_bound_again() {
    let _home = home();
    // The client asks before it sends a call after a pause, so the call certainly did not run. On a busy machine,
    // the client may not wait long enough for the answer, and sends the call.
    assert!((0..5).any(|_| outcome_after_a_restart() == Executed::No));
}

/// Restarts a server and calls it. Returns whether the client knows that the call did not run.
fn outcome_after_a_restart() -> Executed {
    let clerk = Clerk::default();
    let (running, ..) = serve(&clerk, &BOB, &OF_BOB);
    let place = place_of(&running);
    let middle = Middle::before(place);
    let options = as_ada().rebind(Rebind::Never);
    let desk = DeskClient::bind_with(&middle.address(), &options).unwrap();
    put(&desk, 1, b"first").unwrap();
    // The goodbyes of the stopping server are lost, as if it had been killed.
    middle.obeys(Box::new(|_, _| Vec::new()));
    drop(running);
    let (_running, ..) = serve_at(&format!("udp:{place}"), &clerk, &BOB, &OF_BOB);
    middle.obeys(pass());
    std::thread::sleep(Duration::from_millis(20));
    let error = put(&desk, 2, b"second").unwrap_err();
    assert_eq!(error.kind(), Kind::ServerGone, "{error}");
    assert_eq!(clerk.ran(2), 0);
    let again = DeskClient::bind_with(&middle.address(), &options).unwrap();
    put(&again, 3, b"third").unwrap();
    assert_eq!(clerk.ran(3), 1);
    error.executed()
}

/// Packets in clear, and packets of connections that the server does not know, run nothing.
#[test]
fn packets_in_clear_are_refused_and_not_executed() {
    let _home = home();
    let clerk = Clerk::default();
    let plain = Server::new().export("desk", DeskServer::new(clerk.clone())).unwrap();
    let plain = plain.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let middle = Middle::before(place_of(&plain));
    put(&DeskClient::bind(&middle.address()).unwrap(), 1, b"in clear").unwrap();
    let in_clear = middle.seen[0].lock().unwrap().clone();
    assert_eq!(clerk.ran(1), 1);
    drop((plain, middle));
    let (running, address, _) = serve(&clerk, &BOB, &OF_BOB);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.connect(place_of(&running)).unwrap();
    stranger.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    for packet in &in_clear {
        let mut sealed = packet.clone();
        sealed[FLAGS_AT] |= SEALED;
        sealed.extend_from_slice(&[0; 16]);
        for packet in [packet, &sealed] {
            stranger.send(packet).unwrap();
            let mut answer = [0; 2000];
            if let Ok(bytes) = stranger.recv(&mut answer) {
                assert!(bytes <= packet.len(), "an answer is not longer than the question");
            }
        }
    }
    assert_eq!(clerk.ran(1), 1);
    // Handles that another client has got cannot be used in clear.
    let middle = Middle::before(place_of(&running));
    put(&DeskClient::bind_with(&middle.address(), &as_ada()).unwrap(), 2, b"sealed").unwrap();
    let (_, back) = middle.clients.lock().unwrap()[0].clone();
    for packet in middle.seen[0].lock().unwrap().iter().filter(|packet| is_sealed(packet)) {
        back.send(&refusal_of(packet)).unwrap();
        back.send(packet).unwrap();
    }
    put(&DeskClient::bind_with(&address, &as_ada()).unwrap(), 3, b"sealed").unwrap();
    assert_eq!([clerk.ran(2), clerk.ran(3)], [1, 1]);
}

/// The server says goodbye in sealed packets when it stops, so a call learns the truth at once.
#[test]
fn stopped_server_refuses_calls_with_proof() {
    let _home = home();
    let clerk = Clerk::default();
    let (running, address, _) = serve(&clerk, &BOB, &OF_BOB);
    let desk = DeskClient::bind_with(&address, &as_ada().rebind(Rebind::Never)).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| desk.with_timeout(LONG).wait());
        support::until("the procedure runs", || clerk.waiting.load(Ordering::SeqCst) == 1);
        let stops = scope.spawn(|| drop(running));
        support::until("the server refuses calls", || {
            desk.who().is_err_and(|error| error.executed() == Executed::No)
        });
        clerk.opened.store(true, Ordering::SeqCst);
        waits.join().unwrap().unwrap();
        stops.join().unwrap();
    });
}
