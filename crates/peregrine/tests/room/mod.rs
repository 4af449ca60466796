//! Shared parts of the tests of calls over a network: an object to call, and test cases that hold on every
//! network path.

// Each test program uses only some of these items.
#![allow(dead_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::contract::{self, Client, pressure};
use crate::support;
use crate::support::link::{self, ENDS};
use crc32c::crc32c;
use peregrine::{
    BindOptions, CallError, Endpoint, Executed, ExportOptions, Health, Insecure, Kind, OnExhausted,
    Out, PathKind, Phase, Running, Server, Wait, health, interface,
};

pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The path that carries the calls, and the scheme of this path in addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carrier {
    pub(crate) scheme: &'static str,
    pub(crate) path: PathKind,
}

impl Carrier {
    /// Returns an address for a server on `host`. The system chooses the port.
    pub(crate) fn at(self, host: &str) -> String {
        format!("{}:{host}:0", self.scheme)
    }

    /// Returns an address at which a server of this test can listen and a client of this test can call it.
    pub(crate) fn loopback(self) -> String {
        self.at(if self.scheme == "eth" { ENDS[1] } else { "127.0.0.1" })
    }

    /// Returns whether calls travel as datagrams, which do not identify the calling process.
    fn is_datagrams(self) -> bool {
        self.path != PathKind::Tcp
    }
}

/// What a test program adds to its servers and to the options of its clients.
pub(crate) struct Security {
    pub(crate) server: fn() -> peregrine::Security,
    pub(crate) client: fn(BindOptions) -> BindOptions,
}

/// What this test program adds. Without a value, nothing.
pub(crate) static SECURITY: OnceLock<Security> = OnceLock::new();

fn options() -> BindOptions {
    let options = BindOptions::default();
    SECURITY.get().map_or(options.clone(), |security| (security.client)(options))
}

fn bind(address: &str) -> Result<RoomClient, CallError> {
    RoomClient::bind_with(address, &options())
}

/// Starts a server that listens at `at`. With raw Ethernet, the server listens at the far end of the link
/// whose near end this thread has entered.
fn start(server: Server, at: &str) -> Running {
    let security = SECURITY.get().map(|security| (security.server)());
    if !at.starts_with("eth:") {
        let server = match security {
            Some(security) => server.listen_beyond_this_machine(at, security),
            None => server.listen(at),
        };
        return server.unwrap().spawn().unwrap();
    }
    let security = security.unwrap_or_else(|| Insecure::ITrustThisNetwork.into());
    let server = server.listen_beyond_this_machine(at, security).unwrap();
    link::at_far_end(move || server.spawn().unwrap())
}

#[interface]
pub(crate) trait Room {
    fn null(&self) -> peregrine::Result<()>;
    fn sleep(&self, ms: u32) -> peregrine::Result<u32>;
    /// Returns when enough callers are inside this procedure. The object's barrier says how many.
    fn meet(&self) -> peregrine::Result<()>;
    /// Returns when the door is open.
    fn stay(&self) -> peregrine::Result<()>;
    fn read(&self, bytes: u32, #[max_len(64 << 20)] into: Out<'_, u8>) -> peregrine::Result<()>;
    fn checksum(&self, #[max_len(64 << 20)] bytes: &[u8]) -> peregrine::Result<u32>;
    /// Checks the caller's path. Returns whether the call came from loopback, from which process, and from
    /// which user.
    fn from(&self, path: &str) -> peregrine::Result<(bool, u32, u32)>;
    fn ran(&self) -> peregrine::Result<u32>;
}

/// A door that counts the calls that have entered the object. The calls of `stay` end when the door opens.
#[derive(Default)]
struct Door {
    entered: AtomicU32,
    open: AtomicBool,
}

impl Door {
    /// Returns how many calls of `meet` and `stay` have begun.
    fn entered(&self) -> u32 {
        self.entered.load(Ordering::SeqCst)
    }

    #[track_caller]
    fn await_entered(&self, callers: u32) {
        support::until("all calls are inside", || self.entered() == callers);
    }

    fn set(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
    }
}

pub(crate) struct Inside {
    barrier: Arc<Barrier>,
    ran: AtomicU32,
    door: Arc<Door>,
}

impl Inside {
    pub(crate) fn of(callers: usize) -> Self {
        let barrier = Arc::new(Barrier::new(callers));
        Self { barrier, ran: AtomicU32::new(0), door: Arc::default() }
    }
}

/// Returns bytes that differ from place to place.
pub(crate) fn bytes_of(count: usize) -> Vec<u8> {
    // The bytes repeat after this number. Copies take much less time than computing each byte.
    const PERIOD: usize = 7 * 256;
    let first = (0..count.min(PERIOD)).map(|at| (at * 31 / 7) as u8).collect::<Vec<_>>();
    let mut all = first.repeat(count.div_ceil(PERIOD));
    all.truncate(count);
    all
}

impl Room for Inside {
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn sleep(&self, ms: u32) -> peregrine::Result<u32> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(ms.into()));
        Ok(ms)
    }
    fn meet(&self) -> peregrine::Result<()> {
        self.door.entered.fetch_add(1, Ordering::SeqCst);
        self.barrier.wait();
        Ok(())
    }
    fn stay(&self) -> peregrine::Result<()> {
        self.door.entered.fetch_add(1, Ordering::SeqCst);
        // This limit ends the procedure if the test fails before it opens the door.
        let limit = Instant::now() + 2 * LONG;
        while !self.door.open.load(Ordering::SeqCst) && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
    fn read(&self, bytes: u32, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        into.put(&bytes_of(bytes as usize)).expect("enough space");
        Ok(())
    }
    fn checksum(&self, bytes: &[u8]) -> peregrine::Result<u32> {
        Ok(crc32c(bytes))
    }
    fn from(&self, path: &str) -> peregrine::Result<(bool, u32, u32)> {
        let caller = peregrine::caller().expect("a caller");
        let loopback = caller.from().is_some_and(|from| from.ip().is_loopback());
        assert_eq!(format!("{:?}", caller.path()), path);
        Ok((loopback, caller.process(), caller.user()))
    }
    fn ran(&self) -> peregrine::Result<u32> {
        Ok(self.ran.load(Ordering::SeqCst))
    }
}

pub(crate) fn serve(server: Server, room: Inside, at: &str) -> (Running, String) {
    let server = server.export("room", RoomServer::new(room)).unwrap();
    let running = start(server, at);
    let address = format!("{}/room", running.addresses()[0]);
    (running, address)
}

/// Makes a runtime directory for this test. All threads of a process use the same runtime directory, so the
/// tests run one at a time.
pub(crate) fn home() -> (std::sync::MutexGuard<'static, ()>, tempfile::TempDir) {
    let alone = support::alone();
    (alone, support::own_directory())
}

pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, CallError>) -> Kind {
    let error = result.unwrap_err();
    assert_eq!(error.executed(), Executed::No, "{error}");
    error.kind()
}

fn check_contract(by: Carrier, options: &BindOptions, wait: Wait) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let running = Mutex::new(Vec::new());
    // A process cannot call itself over a raw Ethernet link, so the checks in which it does are left out.
    let suite = if by.scheme == "eth" { contract::suite_of_one_call } else { contract::suite };
    suite(by.scheme, &|server, form| {
        let name = format!("contract-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let server = Server::new().wait(wait).export(&name, server).unwrap();
        let server = start(server, &by.loopback());
        let address = format!("{}/{name}", server.addresses()[0]);
        running.lock().unwrap().push(server);
        Client::bind(form, &address, options).expect("a binding")
    });
}

// The test cases.

pub(crate) fn contract_holds(by: Carrier) {
    let _home = home();
    check_contract(by, &options(), Wait::Adaptive);
}

pub(crate) fn contract_holds_when_threads_sleep(by: Carrier) {
    let _home = home();
    let options = options().wait(Wait::Block).astacks(1);
    check_contract(by, &options.on_exhausted(OnExhausted::More), Wait::Block);
}

pub(crate) fn calls_within_their_bounds_wait_for_each_other(by: Carrier) {
    let _home = home();
    let (running, options) = (Mutex::new(Vec::new()), options());
    pressure::calls_within_their_bounds_wait_for_each_other(&|server, form| {
        let mut running = running.lock().unwrap();
        let name = format!("pressure-{}", running.len());
        let server = Server::new().export(&name, server).unwrap();
        let server = start(server, &by.loopback());
        let address = format!("{}/{name}", server.addresses()[0]);
        running.push(server);
        pressure::Client::bind(form, &address, &options).expect("a binding")
    });
}

pub(crate) fn long_procedures_do_not_delay_other_calls(by: Carrier) {
    let _home = home();
    let inside = Inside::of(12);
    let door = Arc::clone(&inside.door);
    let (_running, address) = serve(Server::new(), inside, &by.loopback());
    for (round, wait) in (0..).zip([Wait::Block, Wait::Adaptive]) {
        let options = options().wait(wait).astacks(20);
        let room = RoomClient::bind_with(&address, &options).unwrap();
        std::thread::scope(|scope| {
            // No call returns before 12 callers are inside.
            for _ in 0..11 {
                let room = &room;
                scope.spawn(move || room.meet().unwrap());
            }
            door.await_entered(12 * round + 11);
            let meanwhile = room.with_timeout(LONG).null();
            room.meet().unwrap();
            meanwhile.unwrap();
        });
    }
}

pub(crate) fn each_thread_gets_its_own_replies(by: Carrier) {
    let _home = home();
    let (_running, address) = serve(Server::new(), Inside::of(1), &by.loopback());
    for wait in [Wait::Block, Wait::Adaptive, Wait::Spin] {
        let options = options().wait(wait).astacks(16);
        let rooms = [(); 2].map(|()| RoomClient::bind_with(&address, &options).unwrap());
        std::thread::scope(|scope| {
            for thread in 0..24usize {
                let room = &rooms[thread % 2];
                scope.spawn(move || {
                    for round in 0..60usize {
                        let bytes = (thread * 977 + round * 131) % 40_000;
                        if round % 2 == 0 {
                            let mut buffer = vec![0; 40_000];
                            let mut out = Out::from(&mut buffer[..]);
                            room.read(bytes as u32, out.by_ref()).unwrap();
                            assert_eq!(out.filled(), bytes);
                            assert!(buffer[..bytes] == bytes_of(bytes));
                        } else {
                            let bytes = vec![3; bytes];
                            assert_eq!(room.checksum(&bytes).unwrap(), crc32c(&bytes));
                        }
                    }
                });
            }
        });
    }
}

/// Makes a call that times out while its procedure runs. The call then keeps the client's only call frame. So
/// no other call of this client can start while the door is closed.
#[track_caller]
fn give_up_call_inside(impatient: &RoomClient, door: &Door) {
    let (before, limit) = (door.entered(), Instant::now() + LONG);
    loop {
        let error = impatient.stay().unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe), "{error}");
        loop {
            assert!(Instant::now() < limit, "the call never ran");
            let inside = door.entered() > before;
            match impatient.null().map_err(|error| (error.kind(), error.executed())) {
                Err((Kind::TimedOut, Executed::No)) if inside => return,
                Err((Kind::TimedOut, Executed::No)) => {}
                // On a slow machine, the server may learn that the call is given up before it has run the
                // call. The server then does not run the call, and the frame is free.
                outcome => {
                    let allowed = [Ok(()), Err((Kind::TimedOut, Executed::Maybe))];
                    assert!(allowed.contains(&outcome), "{outcome:?}");
                    assert_eq!(door.entered(), before, "the frame of a running call was released");
                    break;
                }
            }
        }
    }
}

pub(crate) fn late_reply_releases_frame_of_given_up_call(by: Carrier) {
    let _home = home();
    let inside = Inside::of(1);
    let door = Arc::clone(&inside.door);
    let (_running, address) = serve(Server::new(), inside, &by.loopback());
    for wait in [Wait::Block, Wait::Adaptive, Wait::Spin] {
        let options = options().astacks(1).wait(wait);
        let room = RoomClient::bind_with(&address, &options).unwrap();
        door.set(false);
        give_up_call_inside(&room.with_timeout(Duration::from_millis(30)), &door);
        // The given-up call keeps the only frame until its late reply arrives.
        door.set(true);
        assert!(room.null().is_ok());
        assert!(room.with_timeout(LONG).sleep(0).is_ok() && room.is_alive());
    }
}

pub(crate) fn large_messages_arrive_intact_in_both_directions(by: Carrier) {
    let _home = home();
    let room = Inside::of(1);
    let (_running, address) = serve(Server::new(), room, &by.loopback());
    let client = RoomClient::bind_with(&address, &options().astacks(2)).unwrap();
    const BYTES: usize = 64 << 20;
    let sent = bytes_of(BYTES);
    let mut back = vec![0; BYTES];
    for bytes in [BYTES, 1 << 20, (1 << 20) + 1, 16 << 10, (16 << 10) - 31] {
        let part = &sent[..bytes];
        assert_eq!(client.checksum(part).unwrap(), crc32c(part));
        let mut out = Out::from(&mut back[..]);
        client.read(bytes as u32, out.by_ref()).unwrap();
        assert_eq!(out.filled(), bytes);
        assert!(back[..bytes] == sent[..bytes]);
    }
    // Several threads send and receive large messages over one binding at the same time.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (client, sent) = (&client, &sent);
            scope.spawn(move || {
                let mut back = vec![0; 8 << 20];
                for _ in 0..3 {
                    client.read(8 << 20, Out::from(&mut back[..])).unwrap();
                    assert!(back == sent[..8 << 20]);
                    assert_eq!(client.checksum(&back).unwrap(), crc32c(&back));
                }
            });
        }
    });
}

pub(crate) fn running_and_waiting_calls_are_bounded(by: Carrier) {
    let _home = home();
    let inside = Inside::of(1);
    let door = Arc::clone(&inside.door);
    let (running, address) = serve(Server::new().threads(2).queue(1), inside, &by.loopback());
    let room = RoomClient::bind_with(&address, &options().astacks(8)).unwrap();
    let (sender, outcomes) = channel();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let room = &room;
            scope.spawn(move || room.stay().unwrap());
        }
        door.await_entered(2);
        // Both threads of the server are busy. Of two more calls, one waits in the queue, and the other is
        // refused.
        for _ in 0..2 {
            let (room, sender) = (&room, sender.clone());
            scope.spawn(move || sender.send(room.sleep(1)).unwrap());
        }
        assert_eq!(refused(outcomes.recv_timeout(LONG).expect("a refusal")), Kind::Overloaded);
        assert!(
            outcomes.recv_timeout(Duration::from_millis(100)).is_err(),
            "a call ran although no thread was free"
        );
        door.set(true);
        assert_eq!(outcomes.recv_timeout(LONG).expect("the waiting call returns").unwrap(), 1);
    });
    assert_eq!((room.ran().unwrap(), door.entered()), (1, 2));
    assert!(running.threads() <= 2 + 16 + 1, "{} threads", running.threads());
}

pub(crate) fn calls_of_withdrawn_export_fail_and_others_succeed(by: Carrier) {
    let _home = home();
    let server = Server::new().export("other", RoomServer::new(Inside::of(1))).unwrap();
    let (running, address) = serve(server, Inside::of(1), &by.loopback());
    let other_address = address.replace("/room", "/other");
    let (room, other) = (bind(&address).unwrap(), bind(&other_address).unwrap());
    room.null().unwrap();
    assert!(running.withdraw("room"));
    assert_eq!(refused(room.null()), Kind::Withdrawn);
    if by.path == PathKind::Tcp {
        // Over TCP, a server announces a withdrawal on each connection.
        support::until("the client learns of the withdrawal", || !room.is_alive());
    }
    assert_eq!(refused(bind(&address).map(drop)), Kind::NotFound);
    other.null().unwrap();
    assert!(other.is_alive());
}

/// An object that calls its own server when it is dropped.
struct LastCall {
    room: Arc<Mutex<Option<RoomClient>>>,
    answered: std::sync::mpsc::Sender<Result<(), CallError>>,
}

#[interface]
trait Idle {
    fn idle(&self) -> peregrine::Result<()>;
}

impl Idle for LastCall {
    fn idle(&self) -> peregrine::Result<()> {
        Ok(())
    }
}

impl Drop for LastCall {
    fn drop(&mut self) {
        let room = self.room.lock().unwrap().take();
        let _ = self.answered.send(room.expect("a client").null());
    }
}

/// The last client of a withdrawn export is the last owner of the object. Whatever the object does when it is
/// dropped, the server goes on.
pub(crate) fn drop_of_an_object_may_call_its_server(by: Carrier) {
    let _home = home();
    let (answered, answer) = channel();
    let room = Arc::<Mutex<Option<RoomClient>>>::default();
    let last = LastCall { room: Arc::clone(&room), answered };
    let server = Server::new().export("idle", IdleServer::new(last)).unwrap();
    let (running, address) = serve(server, Inside::of(1), &by.loopback());
    *room.lock().unwrap() = Some(RoomClient::bind(&address).unwrap());
    let idle = IdleClient::bind(&address.replace("/room", "/idle")).unwrap();
    idle.idle().unwrap();
    assert!(running.withdraw("idle"));
    drop(idle);
    answer.recv_timeout(2 * LONG).expect("the object is dropped").expect("its last call");
}

pub(crate) fn stopping_server_finishes_calls_and_refuses_new_ones(by: Carrier) {
    let _home = home();
    let inside = Inside::of(1);
    let door = Arc::clone(&inside.door);
    let (running, address) = serve(Server::new(), inside, &by.loopback());
    let room = bind(&address).unwrap();
    let idle = bind(&address).unwrap();
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| room.stay());
        door.await_entered(1);
        let stops = scope.spawn(|| running.drain(LONG));
        support::until("calls are refused", || match room.null() {
            Ok(()) => false,
            refusal => refused(refusal) == Kind::Withdrawn,
        });
        assert!(!stops.is_finished(), "the drain ended although a call still runs");
        door.set(true);
        runs.join().unwrap().unwrap();
        assert!(stops.join().unwrap());
    });
    if by.path == PathKind::Tcp {
        // Over TCP, a server announces on each connection that it stops.
        support::until("the client learns of the stop", || !idle.is_alive());
        let error = idle.null().unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::Withdrawn, Executed::No), "{error}");
        assert!(error.to_string().contains("stopped"), "{error}");
    } else {
        let error = idle.null().unwrap_err();
        assert_eq!(error.kind(), Kind::ServerGone, "{error}");
    }
    assert_eq!(refused(bind(&address).map(drop)), Kind::Unreachable);
}

pub(crate) fn health_is_reported_while_all_threads_are_busy(by: Carrier) {
    /// More calls than threads that receive.
    const CALLS: u32 = 40;
    let _home = home();
    for is_local in [false, true] {
        let inside = Inside::of(1);
        let door = Arc::clone(&inside.door);
        let (running, address) = serve(Server::new().threads(1), inside, &by.loopback());
        let called = if is_local { "room" } else { &*address };
        // The address of the server, such as `tcp:@127.0.0.1:7000`.
        let whole = address.replace("/room", "").replacen(':', ":@", 1);
        let all = ["room", &*address, &*whole];
        for asked in all {
            assert_eq!(health(asked).unwrap(), Health::Serving, "{asked}");
        }
        std::thread::scope(|scope| {
            let calls: Vec<_> = (0..CALLS)
                .map(|_| {
                    RoomClient::bind_with(called, &BindOptions::default().astacks(64)).unwrap()
                })
                .map(|room| scope.spawn(move || room.stay()))
                .collect();
            door.await_entered(1);
            support::until("all other calls wait", || {
                peregrine::stat("room").unwrap().server.queued == u64::from(CALLS) - 1
            });
            for asked in all {
                assert_eq!(health(asked).unwrap(), Health::Overloaded, "{asked}");
            }
            door.set(true);
            calls.into_iter().for_each(|call| call.join().unwrap().unwrap());
        });
        support::until("the server serves again", || health("room").unwrap() == Health::Serving);
        for asked in all {
            assert_eq!(health(asked).unwrap(), Health::Serving, "{asked}");
        }
        running.stop();
        assert_eq!(refused(health("room")), Kind::NotFound);
        assert_eq!(refused(health(&address)), Kind::Unreachable);
    }
}

pub(crate) fn stopping_server_reports_that_it_drains(by: Carrier) {
    let _home = home();
    let inside = Inside::of(1);
    let door = Arc::clone(&inside.door);
    let (running, address) = serve(Server::new(), inside, &by.loopback());
    let room = RoomClient::bind(&address).unwrap();
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| room.stay());
        door.await_entered(1);
        let stops = scope.spawn(|| running.drain(LONG));
        support::until("the server drains", || {
            health("room").is_ok_and(|health| health == Health::Draining)
        });
        support::until("the server refuses calls", || match room.null() {
            Ok(()) => false,
            refusal => refused(refusal) == Kind::Withdrawn,
        });
        for asked in ["room", &*address] {
            assert_eq!(health(asked).unwrap(), Health::Draining, "{asked}");
        }
        let unknown = address.replace("/room", "/attic");
        assert_eq!(refused(health(&unknown)), Kind::NotFound);
        // The name is free.
        assert_eq!(refused(RoomClient::bind("room").map(drop)), Kind::NotFound);
        assert_eq!(refused(RoomClient::bind(&address).map(drop)), Kind::Withdrawn);

        // Another server can take the name at once.
        let next = Server::new().export("room", RoomServer::new(Inside::of(1))).unwrap();
        let next = next.spawn().unwrap();
        assert_eq!(health("room").unwrap(), Health::Serving);
        next.stop();
        assert_eq!(health("room").unwrap(), Health::Draining);

        assert!(!stops.is_finished(), "the drain ended although a call still runs");
        door.set(true);
        runs.join().unwrap().unwrap();
        assert!(stops.join().unwrap());
    });
    assert_eq!(refused(health("room")), Kind::NotFound);
    assert_eq!(refused(health(&address)), Kind::Unreachable);
    assert!(peregrine::directory::leftovers().iter().all(|one| one.name() != "room"));
}

pub(crate) fn calls_cut_short_by_drain_may_have_executed(by: Carrier) {
    let _home = home();
    let inside = Inside::of(1);
    let door = Arc::clone(&inside.door);
    let (running, address) = serve(Server::new(), inside, &by.loopback());
    let room = bind(&address).unwrap();
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| room.stay());
        door.await_entered(1);
        assert!(!running.drain(Duration::from_millis(50)));
        // Over TCP, the server has closed the connection. So the call fails although its procedure still
        // waits. Over datagrams, there is no connection to close. The test opens the door, and the result may
        // still reach the caller.
        door.set(by.is_datagrams());
        let outcome = runs.join().unwrap();
        door.set(true);
        match outcome {
            Err(error) => {
                let outcome = (error.kind(), error.executed());
                assert_eq!(outcome, (Kind::ServerGone, Executed::Maybe), "{error}");
            }
            Ok(()) => assert!(by.is_datagrams()),
        }
    });
}

pub(crate) fn listening_on_all_interfaces_must_be_requested(by: Carrier) {
    let _home = home();
    for at in [by.at("0.0.0.0"), by.at("[::]")] {
        let error = Server::new().listen(&at).unwrap_err();
        assert_eq!((error.kind(), error.phase()), (Kind::Denied, Phase::Export), "{error}");
        assert!(error.to_string().contains("listen_beyond_this_machine"), "{error}");
    }
    let server = Server::new().export("room", RoomServer::new(Inside::of(1))).unwrap();
    let running = server
        .listen_beyond_this_machine(&by.at("0.0.0.0"), Insecure::ITrustThisNetwork)
        .unwrap()
        .spawn()
        .unwrap();
    let [Endpoint::Tcp(place) | Endpoint::Udp(place)] = running.addresses() else {
        panic!("one endpoint")
    };
    let place = format!("{}:127.0.0.1:{}", by.scheme, place.port());
    let address = format!("{place}/room");
    bind(&address).unwrap().null().unwrap();
    // The port is in use now.
    let second = Server::new().listen(&place).and_then(Server::spawn);
    assert_eq!(second.unwrap_err().kind(), Kind::System);
    let nowhere = Server::new().listen(&format!("{}:nowhere", by.scheme));
    assert_eq!(nowhere.unwrap_err().kind(), Kind::BadName);
}

pub(crate) fn export_limited_to_users_is_denied_over_network(by: Carrier) {
    let _home = home();
    let limited = ExportOptions::default().users([12345]);
    let server = Server::new().export_with("room", RoomServer::new(Inside::of(1)), limited);
    let running = start(server.unwrap(), &by.loopback());
    let address = format!("{}/room", running.addresses()[0]);
    assert_eq!(refused(bind(&address).map(drop)), Kind::Denied);
    assert_eq!(refused(peregrine::describe(&address)), Kind::Denied);
    bind("room").unwrap().null().unwrap();
}

pub(crate) fn binding_error_gives_the_reason(by: Carrier) {
    let _home = home();
    let (_running, address) = serve(Server::new(), Inside::of(1), &by.loopback());
    let error = contract::ContractClient::bind_with(&address, &options()).unwrap_err();
    assert_eq!(error.kind(), Kind::InterfaceMismatch);
    assert!(error.to_string().contains("ours is interface `contract`"), "{error}");
    let unknown = address.replace("/room", "/unknown");
    let error = bind(&unknown).unwrap_err();
    assert_eq!((error.kind(), error.address()), (Kind::NotFound, &*unknown));
    let error = bind(&format!("{}:no-such-host.invalid:1/room", by.scheme)).unwrap_err();
    assert_eq!((error.kind(), error.phase()), (Kind::Unreachable, Phase::Resolve));
}

pub(crate) fn caller_is_identified_by_its_address(by: Carrier) {
    let _home = home();
    // Over datagrams, a client on a slow machine may send its bind request twice. The server then counts two
    // bindings of this client, so the smallest number of several attempts is compared.
    let tries = if by.is_datagrams() { 10 } else { 1 };
    let bindings = (0..tries).map(|_| bindings_after_asking_for_caller(by)).min().expect("a try");
    // Over datagrams, `peregrine::describe` also makes a binding.
    assert_eq!(bindings, if by.is_datagrams() { 2 } else { 1 });
}

/// Asks the server what it knows about its caller. Returns how many bindings the server reports afterwards.
fn bindings_after_asking_for_caller(by: Carrier) -> u32 {
    let (running, address) = serve(Server::new(), Inside::of(1), &by.at("[::1]"));
    assert!(address.starts_with(&format!("{}:[::1]:", by.scheme)), "{address}");
    let room = bind(&address).unwrap();
    assert_eq!(room.binding().path(), by.path);
    room.binding().ping().unwrap();
    // Datagrams do not identify the calling process.
    let process = if by.is_datagrams() { 0 } else { std::process::id() };
    assert_eq!(room.from(&format!("{:?}", by.path)).unwrap(), (true, process, u32::MAX));
    let description = peregrine::describe(&address).unwrap();
    assert_eq!((&*description.interface, description.process), ("Room", std::process::id()));
    // The same export is also available on the local path, under its name.
    assert_eq!(bind("room").unwrap().binding().path(), PathKind::Local);
    drop(room);
    running.stop();
    description.bindings
}

pub(crate) fn messages_of_boundary_sizes_arrive_intact(by: Carrier) {
    let _home = home();
    let (_running, address) = serve(Server::new(), Inside::of(1), &by.loopback());
    let room = bind(&address).unwrap();
    let mut all = vec![0; 4 << 20];
    for bytes in [0, 1, 1400, 65_375, 65_440, 65_441, 1 << 20, 3 << 20 | 77] {
        let start = Instant::now();
        let sent = bytes_of(bytes);
        assert_eq!(room.checksum(&sent).unwrap(), crc32c(&sent), "{bytes}");
        let mut into = Out::from(&mut all[..bytes]);
        room.read(bytes as u32, into.by_ref()).unwrap();
        assert_eq!(into.filled(), bytes);
        assert!(all[..bytes] == sent, "{bytes}");
        println!("{bytes} bytes there and back: {:?}", start.elapsed());
    }
}

pub(crate) fn timed_out_call_keeps_its_frame_while_procedure_runs(by: Carrier) {
    let _home = home();
    let inside = Inside::of(1);
    let door = Arc::clone(&inside.door);
    let (_running, address) = serve(Server::new(), inside, &by.loopback());
    let room = RoomClient::bind_with(&address, &options().astacks(1)).unwrap();
    give_up_call_inside(&room.with_timeout(Duration::from_millis(50)), &door);
    std::thread::scope(|scope| {
        // The call keeps the only frame until its procedure has ended.
        let waits = scope.spawn(|| room.sleep(1));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waits.is_finished(), "the frame of a running call was released");
        door.set(true);
        assert_eq!(waits.join().unwrap().unwrap(), 1);
    });
    assert_eq!((room.ran().unwrap(), door.entered()), (1, 1));
}

pub(crate) fn callers_are_served_concurrently(by: Carrier) {
    let _home = home();
    const CALLERS: usize = 12;
    let (_running, address) =
        serve(Server::new().threads(CALLERS), Inside::of(CALLERS), &by.loopback());
    let options = options().on_exhausted(OnExhausted::More);
    let room = RoomClient::bind_with(&address, &options).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                room.meet().unwrap();
                for _ in 0..500 {
                    room.null().unwrap();
                }
            });
        }
    });
}

pub(crate) fn long_call_is_not_given_up(by: Carrier) {
    let _home = home();
    let (_running, address) = serve(Server::new().threads(1), Inside::of(1), &by.loopback());
    let room = bind(&address).unwrap();
    // The procedure runs longer than a client waits for a silent server. With `PEREGRINE_SOAK`, it runs even
    // longer.
    let ms = if std::env::var_os("PEREGRINE_SOAK").is_some() { 10_000 } else { 3_500 };
    assert_eq!(room.sleep(ms).unwrap(), ms);
    assert_eq!(room.ran().unwrap(), 1);
}

pub(crate) fn unknown_export_and_stopped_server_are_reported(by: Carrier) {
    let _home = home();
    let (running, address) = serve(Server::new(), Inside::of(1), &by.loopback());
    let room = bind(&address).unwrap();
    let wrong = address.replace("/room", "/hall");
    let error = bind(&wrong).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::NotFound, Executed::No), "{error}");
    running.stop();
    let start = Instant::now();
    let error = room.null().unwrap_err();
    // Over TCP, the error is `Withdrawn` if the last message of the server has arrived.
    let withdrawn = !by.is_datagrams() && error.kind() == Kind::Withdrawn;
    assert!(withdrawn || error.kind() == Kind::ServerGone, "{error}");
    assert!(by.is_datagrams() || error.executed() == Executed::No, "{error}");
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
    let error = bind(&address).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Unreachable, Executed::No), "{error}");
}
