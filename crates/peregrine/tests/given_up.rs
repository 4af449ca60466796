//! Tests calls that a client gives up, and extensions (optional entries) that a client sends with calls. The
//! client is written by hand, because it must do what the library's client never does.

mod support;

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Insecure, Kind, Running, Server, interface};
use support::link::{ENDS, Link, at_far_end, at_near_end};
use support::stream::{self, BOUND, REPLY, abandon, call, receive};
use support::until;
use support::wire::{self, Session};

/// The time limit of events that must happen.
const LONG: Duration = Duration::from_secs(20);

#[interface]
trait Work {
    /// Counts its calls.
    fn count(&self) -> peregrine::Result<()>;
    /// Runs until its call is cancelled.
    fn until_cancelled(&self) -> peregrine::Result<()>;
    /// Runs until the test sets `Seen::open`.
    fn stay(&self) -> peregrine::Result<()>;
}

const COUNT: u32 = 0;
const UNTIL_CANCELLED: u32 = 1;
const STAY: u32 = 2;
/// The answer to a call that returned.
const OK: u32 = 0;
/// The answer to a call that was not run.
const NOT_EXECUTED: u32 = 2;

#[derive(Default)]
struct Seen {
    entered: AtomicU32,
    cancelled: AtomicU32,
    counted: AtomicU32,
    /// Whether the last counted call had a time limit.
    limited: AtomicBool,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Seen {
    fn set(&self, open: bool) {
        *self.open.lock().unwrap() = open;
        self.opened.notify_all();
    }

    #[track_caller]
    fn await_entered(&self, count: u32) {
        until("a procedure runs", || self.entered.load(Ordering::SeqCst) == count);
    }

    #[track_caller]
    fn await_cancelled(&self, count: u32) {
        until("a procedure is cancelled", || self.cancelled.load(Ordering::SeqCst) == count);
    }
}

struct Object(Arc<Seen>);

impl Work for Object {
    fn count(&self) -> peregrine::Result<()> {
        let limited = peregrine::caller().is_some_and(|caller| caller.remaining().is_some());
        self.0.limited.store(limited, Ordering::SeqCst);
        self.0.counted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn until_cancelled(&self) -> peregrine::Result<()> {
        let caller = peregrine::caller().expect("a caller");
        assert!(!caller.is_cancelled() && caller.remaining().is_none());
        self.0.entered.fetch_add(1, Ordering::SeqCst);
        let begun = Instant::now();
        while !caller.is_cancelled() && begun.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.0.cancelled.fetch_add(caller.is_cancelled().into(), Ordering::SeqCst);
        Ok(())
    }
    fn stay(&self) -> peregrine::Result<()> {
        self.0.entered.fetch_add(1, Ordering::SeqCst);
        let open = self.0.open.lock().unwrap();
        drop(self.0.opened.wait_timeout_while(open, LONG, |open| !*open).unwrap());
        Ok(())
    }
}

struct Stage {
    seen: Arc<Seen>,
    running: Running,
    directory: tempfile::TempDir,
}

impl Stage {
    fn new(threads: usize) -> Self {
        Self::at("tcp:127.0.0.1:0", threads)
    }

    fn at(endpoint: &str, threads: usize) -> Self {
        let directory = support::own_directory();
        let seen = Arc::<Seen>::default();
        let server = Server::new().threads(threads);
        let server = server.export("work", WorkServer::new(Object(Arc::clone(&seen)))).unwrap();
        let running = server
            .listen_beyond_this_machine(endpoint, Insecure::ITrustThisNetwork)
            .unwrap()
            .spawn()
            .unwrap();
        Self { seen, running, directory }
    }

    /// Returns the address of the export on the network.
    fn address(&self) -> String {
        format!("{}/work", self.running.addresses()[0])
    }

    fn session(&self, astacks: u32) -> Session {
        Session::new(self.directory.path(), "work", astacks).expect("a session")
    }

    /// Connects to the server and binds. Returns the connection and the number of the binding.
    fn connection(&self) -> (TcpStream, u32) {
        let endpoint = self.running.addresses()[0].to_string();
        let mut stream = TcpStream::connect(endpoint.strip_prefix("tcp:").unwrap()).unwrap();
        stream.write_all(&stream::bind("work")).unwrap();
        let answer = receive(&mut stream).expect("an answer");
        assert_eq!((answer.kind, answer.words[0]), (BOUND, 7));
        (stream, u32::from_le_bytes(answer.body[8..12].try_into().unwrap()))
    }
}

/// Receives a reply. Returns the number of the call, and the answer in the reply.
#[track_caller]
fn answer(stream: &mut TcpStream) -> (u32, u32) {
    let reply = receive(stream).expect("a reply");
    assert_eq!(reply.kind, REPLY);
    (reply.words[0], reply.words[2])
}

/// Makes an extension: tag, claimed length, content.
fn extension(tag: u32, length: u32, content: &[u8]) -> Vec<u8> {
    [&tag.to_le_bytes(), &length.to_le_bytes(), content].concat()
}

/// Returns invalid or unknown extensions. None of them sets a time limit.
fn invalid_extensions() -> Vec<Vec<u8>> {
    vec![
        vec![0; 16],
        vec![0xff; 4],
        vec![0xff; 3000],
        extension(1, u32::MAX, &[7; 64]),
        extension(1, 24, &[7; 24]),
        extension(2, 4, &[9; 4]),
        extension(2, u32::MAX, &[9; 8]),
        extension(2, 16, &[9; 16]),
        extension(9, u32::MAX - 7, &extension(2, 8, &[1; 8])),
        [extension(77, 3, b"abc"), extension(0, 0, b""), extension(78, 0, b"")].concat(),
        extension(3, 0, b"").repeat(400),
    ]
}

/// Returns two extensions: an unknown one, and one that sets a time limit of an hour.
fn an_hour() -> Vec<u8> {
    let unknown = extension(77, 5, b"abcde");
    [unknown, extension(2, 8, &3_600_000_000_u64.to_le_bytes())].concat()
}

#[test]
fn word_in_shared_memory_cancels_a_call() {
    let _alone = support::alone();
    let stage = Stage::new(1);
    let mut session = stage.session(4);
    // Give up a running call.
    let message = session.post(0, UNTIL_CANCELLED);
    stage.seen.await_entered(1);
    session.region.word(session.region.given_up(0)).store(message, Ordering::Relaxed);
    stage.seen.await_cancelled(1);
    assert_eq!(session.reply_to(message, 0, LONG), Some(OK));

    // Give up a waiting call. The call has a time limit, because the server reads the word `given_up` only
    // for waiting calls that have a time limit.
    let busy = session.post(1, STAY);
    stage.seen.await_entered(2);
    let message = session.post_extended(2, COUNT, &an_hour());
    session.region.word(session.region.given_up(2)).store(message, Ordering::Relaxed);
    stage.seen.set(true);
    assert_eq!(session.reply_to(busy, 1, LONG), Some(OK));
    assert_eq!(session.reply_to(message, 2, LONG), Some(NOT_EXECUTED));
    // The next call on this A-stack has another number, and runs.
    let message = session.post_extended(2, COUNT, &an_hour());
    assert_eq!(session.reply_to(message, 2, LONG), Some(OK));
    assert_eq!(stage.seen.counted.load(Ordering::SeqCst), 1);

    // The end of a session cancels its running calls.
    session.post(3, UNTIL_CANCELLED);
    stage.seen.await_entered(3);
    drop(session);
    stage.seen.await_cancelled(2);
}

/// The number of a call has 29 bits, so numbers wrap around, and a later call gets the same number as an
/// earlier call. The server must not charge the later call with the time for which the earlier call waited
/// for a thread.
#[test]
fn waiting_time_of_earlier_call_with_same_number_is_not_charged() {
    let _alone = support::alone();
    let stage = Stage::new(1);
    let mut session = stage.session(2);
    let busy = session.post(0, STAY);
    stage.seen.await_entered(1);
    let first = session.post(1, COUNT);
    // When the server answers this request, it has also read the ring (the message that announces the call
    // `first`). So it knows that `first` waits.
    session.line.send(&wire::describe()).expect("a session");
    session.line.answer_within(LONG).expect("an answer");
    stage.seen.set(true);
    assert_eq!(session.reply_to(busy, 0, LONG), Some(OK));
    assert_eq!(session.reply_to(first, 1, LONG), Some(OK));
    let second = session.post(1, COUNT);
    assert_eq!(session.reply_to(second, 1, LONG), Some(OK));

    let limit = Duration::from_secs(1);
    std::thread::sleep(limit + limit / 5);
    session.restart_numbers(1);
    let us = limit.as_micros() as u64;
    let again = session.post_extended(1, COUNT, &extension(2, 8, &us.to_le_bytes()));
    assert_eq!(again, first);
    assert_eq!(session.reply_to(again, 1, LONG), Some(OK), "the later call should not time out");
}

#[test]
fn call_over_a_connection_is_given_up_by_its_number() {
    let _alone = support::alone();
    let stage = Stage::new(1);
    let (mut stream, binding) = stage.connection();
    // Give up a running call. The server ignores numbers that belong to no call.
    stream.write_all(&call(binding, 1, UNTIL_CANCELLED, &[])).unwrap();
    stage.seen.await_entered(1);
    for number in [0, 2, u32::MAX] {
        stream.write_all(&abandon(number)).unwrap();
    }
    stream.write_all(&abandon(1)).unwrap();
    stage.seen.await_cancelled(1);
    let (number, outcome) = answer(&mut stream);
    assert!(number == 1 && outcome != OK, "the result of a call that was given up was sent");

    // A call that is received together with its cancellation does not run.
    stream.write_all(&[call(binding, 2, COUNT, &[]), abandon(3), abandon(2)].concat()).unwrap();
    assert_eq!(answer(&mut stream), (2, NOT_EXECUTED));
    // A call that is given up while it waits for a thread does not run either.
    stream.write_all(&call(binding, 3, STAY, &[])).unwrap();
    stage.seen.await_entered(2);
    stream
        .write_all(&[call(binding, 4, COUNT, &[]), call(binding, 5, COUNT, &[])].concat())
        .unwrap();
    stream.write_all(&abandon(4)).unwrap();
    // The answer to this request proves that the server has read all earlier messages.
    stream.write_all(&describe_request()).unwrap();
    assert_eq!(receive(&mut stream).expect("an answer").words[0], 77);
    stage.seen.set(true);
    let mut answers = [(); 3].map(|()| answer(&mut stream));
    answers.sort_unstable();
    assert_eq!(answers, [(3, OK), (4, NOT_EXECUTED), (5, OK)]);
    assert_eq!(stage.seen.counted.load(Ordering::SeqCst), 1);

    // The end of a connection cancels its running calls.
    stream.write_all(&call(binding, 6, UNTIL_CANCELLED, &[])).unwrap();
    stage.seen.await_entered(3);
    drop(stream);
    stage.seen.await_cancelled(2);
}

/// Makes a request for a description, with number 77.
fn describe_request() -> Vec<u8> {
    let mut message = stream::header(2, 4, [77, 0, 0, 0, 0, 0]);
    message.extend(b"work");
    message.resize(message.len().next_multiple_of(16), 0);
    message
}

#[test]
fn invalid_extensions_are_ignored() {
    let _alone = support::alone();
    let stage = Stage::new(4);
    let (mut stream, binding) = stage.connection();
    let mut session = stage.session(1);
    let mut calls = 0;
    for (expected, all) in [(false, invalid_extensions()), (true, vec![an_hour()])] {
        for extensions in all {
            stream.write_all(&call(binding, 9, COUNT, &extensions)).unwrap();
            assert_eq!(answer(&mut stream), (9, OK), "{extensions:?}");
            assert_eq!(stage.seen.limited.load(Ordering::SeqCst), expected, "{extensions:?}");
            let message = session.post_extended(0, COUNT, &extensions);
            assert_eq!(session.reply_to(message, 0, LONG), Some(OK), "{extensions:?}");
            assert_eq!(stage.seen.limited.load(Ordering::SeqCst), expected, "{extensions:?}");
            calls += 2;
        }
    }
    // No time is left, so the call is not run.
    let nothing = extension(2, 8, &[0; 8]);
    stream.write_all(&call(binding, 9, COUNT, &nothing)).unwrap();
    assert_eq!(answer(&mut stream), (9, NOT_EXECUTED));
    let message = session.post_extended(0, COUNT, &nothing);
    assert_eq!(session.reply_to(message, 0, LONG), Some(NOT_EXECUTED));
    // Extensions of one call do not affect the next call on the same A-stack (call frame).
    let message = session.post(0, COUNT);
    assert_eq!(session.reply_to(message, 0, LONG), Some(OK));
    assert!(!stage.seen.limited.load(Ordering::SeqCst));
    assert_eq!(stage.seen.counted.load(Ordering::SeqCst), calls + 1);
}

/// Checks that calls still run after all threads of the server have been captured. A thread is captured if
/// its procedure does not end although the caller has given up. `by` makes calls that capture all threads.
fn captured_threads_are_replaced(stage: &Stage, address: &str, by: impl Fn(&str)) {
    const THREADS: u32 = 2;
    // The timeout is shorter than the time for which the procedures run.
    let options = BindOptions::default().timeout(LONG / 2);
    let honest = WorkClient::bind_with(address, &options).unwrap();
    honest.count().unwrap();
    by(address);
    stage.seen.await_entered(THREADS);
    honest.count().expect("a call should not wait for a captured thread");
    assert_eq!(stage.seen.counted.load(Ordering::SeqCst), 2);
    // Capture the threads that replaced the first ones.
    by(address);
    stage.seen.await_entered(2 * THREADS);
    honest.count().expect("a call should not wait for a captured thread");
    stage.seen.set(true);
}

/// Makes as many calls as there are threads, and gives them up by timeout.
fn time_out(address: &str) {
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let options = BindOptions::default().timeout(Duration::from_millis(300));
                let error = WorkClient::bind_with(address, &options).unwrap().stay().unwrap_err();
                assert_eq!(error.kind(), Kind::TimedOut, "{error}");
            });
        }
    });
}

/// Makes as many calls as there are threads, from processes that are killed.
fn kill_callers(stage: &Stage, address: &str) {
    let before = stage.seen.entered.load(Ordering::SeqCst);
    let mut callers: Vec<_> = (0..2)
        .map(|_| support::Process::start("caller", address, stage.directory.path()))
        .collect();
    stage.seen.await_entered(before + 2);
    callers.iter_mut().for_each(support::Process::kill);
}

/// Runs in child processes: makes a call that waits. In the test itself this does nothing.
#[test]
fn caller() {
    let Some(address) = support::role() else { return };
    let work = WorkClient::bind(&address).unwrap();
    println!("\nready");
    let _ = work.stay();
}

#[test]
fn captured_threads_are_replaced_locally() {
    let _alone = support::alone();
    let stage = Stage::new(2);
    captured_threads_are_replaced(&stage, "work", time_out);
    let stage = Stage::new(2);
    captured_threads_are_replaced(&stage, "work", |address| kill_callers(&stage, address));
}

#[test]
fn captured_threads_are_replaced_over_tcp() {
    let _alone = support::alone();
    captured_threads_are_replaced_at("tcp:127.0.0.1:0");
}

#[test]
fn captured_threads_are_replaced_over_udp() {
    let _alone = support::alone();
    captured_threads_are_replaced_at("udp:127.0.0.1:0");
}

#[test]
fn captured_threads_are_replaced_over_ethernet() {
    let _alone = support::alone();
    at_near_end(Link::new(), |_| {
        captured_threads_are_replaced_at(&format!("eth:{}:7001", ENDS[1]));
    });
}

/// Runs [`captured_threads_are_replaced`] with a server at an endpoint, for both ways to capture threads. On
/// raw Ethernet, the server is at the far end of the link.
fn captured_threads_are_replaced_at(endpoint: &str) {
    type By = dyn Fn(&Stage, &str);
    let ways: [&By; 2] = [&|_, address| time_out(address), &kill_callers];
    for by in ways {
        let stage = match endpoint.starts_with("eth:") {
            true => at_far_end(|| Stage::at(endpoint, 2)),
            false => Stage::at(endpoint, 2),
        };
        let address = stage.address();
        captured_threads_are_replaced(&stage, &address, |address| by(&stage, address));
    }
}
