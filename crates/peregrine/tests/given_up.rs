//! Calls that a peer gives up, and what it carries beside calls, by hand: a peer is free to do what no
//! client of ours does.

mod support;

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Kind, Running, Server, interface};
use support::link::{ENDS, Link, at_far_end};
use support::stream::{self, BOUND, REPLY, abandon, call, hear};
use support::until;
use support::wire::{self, Session};

/// What must happen happens within this.
const LONG: Duration = Duration::from_secs(20);

#[interface]
trait Work {
    /// Counts.
    fn count(&self) -> peregrine::Result<()>;
    /// Runs until nobody waits for it.
    fn until_cancelled(&self) -> peregrine::Result<()>;
    /// Runs until the door opens.
    fn stay(&self) -> peregrine::Result<()>;
}

const COUNT: u32 = 0;
const UNTIL_CANCELLED: u32 = 1;
const STAY: u32 = 2;
/// The answers of calls that have returned, and of those that were not run.
const OK: u32 = 0;
const NOT_EXECUTED: u32 = 2;

#[derive(Default)]
struct Hands {
    entered: AtomicU32,
    cancelled: AtomicU32,
    counted: AtomicU32,
    /// Whether a call has told of a limit that it has.
    limited: AtomicBool,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Hands {
    fn set(&self, open: bool) {
        *self.open.lock().unwrap() = open;
        self.opened.notify_all();
    }

    #[track_caller]
    fn until_entered(&self, count: u32) {
        until("a procedure runs", || self.entered.load(Ordering::SeqCst) == count);
    }

    #[track_caller]
    fn until_cancelled(&self, count: u32) {
        until("a procedure is told", || self.cancelled.load(Ordering::SeqCst) == count);
    }
}

struct Object(Arc<Hands>);

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
    hands: Arc<Hands>,
    running: Running,
    directory: tempfile::TempDir,
}

impl Stage {
    fn new(threads: usize) -> Self {
        Self::at("tcp:127.0.0.1:0", threads)
    }

    fn at(endpoint: &str, threads: usize) -> Self {
        let directory = support::own_directory();
        let hands = Arc::<Hands>::default();
        let server = Server::new().threads(threads);
        let server = server.export("work", WorkServer::new(Object(Arc::clone(&hands)))).unwrap();
        let running = server.listen_beyond_this_machine(endpoint).unwrap().spawn().unwrap();
        Self { hands, running, directory }
    }

    /// Where the export is on the network.
    fn address(&self) -> String {
        format!("{}/work", self.running.addresses()[0])
    }

    fn session(&self, astacks: u32) -> Session {
        Session::new(self.directory.path(), "work", astacks).expect("a session")
    }

    /// A connection, and the number of a binding.
    fn connection(&self) -> (TcpStream, u32) {
        let endpoint = self.running.addresses()[0].to_string();
        let mut stream = TcpStream::connect(endpoint.strip_prefix("tcp:").unwrap()).unwrap();
        stream.write_all(&stream::bind("work")).unwrap();
        let told = hear(&mut stream).expect("an answer");
        assert_eq!((told.kind, told.words[0]), (BOUND, 7));
        (stream, u32::from_le_bytes(told.body[8..12].try_into().unwrap()))
    }
}

/// The number of a reply, and what it answers.
#[track_caller]
fn answer(stream: &mut TcpStream) -> (u32, u32) {
    let told = hear(stream).expect("a reply");
    assert_eq!(told.kind, REPLY);
    (told.words[0], told.words[2])
}

/// An extension: tag, the length that it claims, and what follows.
fn extension(tag: u32, length: u32, content: &[u8]) -> Vec<u8> {
    [&tag.to_le_bytes(), &length.to_le_bytes(), content].concat()
}

/// Extensions that make no sense, as far as they do not: the call has no limit.
fn senseless() -> Vec<Vec<u8>> {
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

/// One that does: an hour is left.
fn an_hour() -> Vec<u8> {
    let strange = extension(77, 5, b"abcde");
    [strange, extension(2, 8, &3_600_000_000_u64.to_le_bytes())].concat()
}

#[test]
fn a_word_in_shared_memory_tells_that_a_call_is_given_up() {
    let _alone = support::alone();
    let stage = Stage::new(1);
    let mut session = stage.session(4);
    // While it runs.
    let message = session.post(0, UNTIL_CANCELLED);
    stage.hands.until_entered(1);
    session.region.word(session.region.given_up(0)).store(message, Ordering::Relaxed);
    stage.hands.until_cancelled(1);
    assert_eq!(session.reply_to(message, 0, LONG), Some(OK));

    // While it waits: it has to have a limit, for else nobody looks.
    let busy = session.post(1, STAY);
    stage.hands.until_entered(2);
    let message = session.post_extended(2, COUNT, &an_hour());
    session.region.word(session.region.given_up(2)).store(message, Ordering::Relaxed);
    stage.hands.set(true);
    assert_eq!(session.reply_to(busy, 1, LONG), Some(OK));
    assert_eq!(session.reply_to(message, 2, LONG), Some(NOT_EXECUTED));
    // The next one there is another one.
    let message = session.post_extended(2, COUNT, &an_hour());
    assert_eq!(session.reply_to(message, 2, LONG), Some(OK));
    assert_eq!(stage.hands.counted.load(Ordering::SeqCst), 1);

    // What a session still runs when it ends is cancelled.
    session.post(3, UNTIL_CANCELLED);
    stage.hands.until_entered(3);
    drop(session);
    stage.hands.until_cancelled(2);
}

/// A call's number has 29 bits, and comes again. What is known of the call that had it, which waited
/// for a thread, says nothing of the one that has it now.
#[test]
fn call_whose_number_comes_again_has_not_waited() {
    let _alone = support::alone();
    let stage = Stage::new(1);
    let mut session = stage.session(2);
    let busy = session.post(0, STAY);
    stage.hands.until_entered(1);
    let first = session.post(1, COUNT);
    // The call waits, and the server knows: it reads what comes behind the ring.
    session.line.say(&wire::describe()).expect("a session");
    session.line.answer_within(LONG).expect("an answer");
    stage.hands.set(true);
    assert_eq!(session.reply_to(busy, 0, LONG), Some(OK));
    assert_eq!(session.reply_to(first, 1, LONG), Some(OK));
    let second = session.post(1, COUNT);
    assert_eq!(session.reply_to(second, 1, LONG), Some(OK));

    let limit = Duration::from_secs(1);
    std::thread::sleep(limit + limit / 5);
    session.begin_anew(1);
    let us = limit.as_micros() as u64;
    let again = session.post_extended(1, COUNT, &extension(2, 8, &us.to_le_bytes()));
    assert_eq!(again, first);
    assert_eq!(session.reply_to(again, 1, LONG), Some(OK), "its time is not up");
}

#[test]
fn a_call_over_a_connection_is_given_up_by_its_number() {
    let _alone = support::alone();
    let stage = Stage::new(1);
    let (mut stream, binding) = stage.connection();
    // While it runs; what was never called is nobody's.
    stream.write_all(&call(binding, 1, UNTIL_CANCELLED, &[])).unwrap();
    stage.hands.until_entered(1);
    for number in [0, 2, u32::MAX] {
        stream.write_all(&abandon(number)).unwrap();
    }
    stream.write_all(&abandon(1)).unwrap();
    stage.hands.until_cancelled(1);
    let (number, said) = answer(&mut stream);
    assert!(number == 1 && said != OK, "nobody waits for a result");

    // Received together: it never begins.
    stream.write_all(&[call(binding, 2, COUNT, &[]), abandon(3), abandon(2)].concat()).unwrap();
    assert_eq!(answer(&mut stream), (2, NOT_EXECUTED));
    // Nor does one that waits for a thread.
    stream.write_all(&call(binding, 3, STAY, &[])).unwrap();
    stage.hands.until_entered(2);
    stream
        .write_all(&[call(binding, 4, COUNT, &[]), call(binding, 5, COUNT, &[])].concat())
        .unwrap();
    stream.write_all(&abandon(4)).unwrap();
    // When this is answered, what came before it on the connection has been read.
    stream.write_all(&stream_question()).unwrap();
    assert_eq!(hear(&mut stream).expect("an answer").words[0], 77);
    stage.hands.set(true);
    let mut answers = [(); 3].map(|()| answer(&mut stream));
    answers.sort_unstable();
    assert_eq!(answers, [(3, OK), (4, NOT_EXECUTED), (5, OK)]);
    assert_eq!(stage.hands.counted.load(Ordering::SeqCst), 1);

    // The end of the connection gives up all that runs for it.
    stream.write_all(&call(binding, 6, UNTIL_CANCELLED, &[])).unwrap();
    stage.hands.until_entered(3);
    drop(stream);
    stage.hands.until_cancelled(2);
}

/// A description is asked for, by number 77.
fn stream_question() -> Vec<u8> {
    let mut message = stream::header(2, 4, [77, 0, 0, 0, 0, 0]);
    message.extend(b"work");
    message.resize(message.len().next_multiple_of(16), 0);
    message
}

#[test]
fn what_makes_no_sense_beside_a_call_harms_nothing() {
    let _alone = support::alone();
    let stage = Stage::new(4);
    let (mut stream, binding) = stage.connection();
    let mut session = stage.session(1);
    let mut calls = 0;
    for (expected, all) in [(false, senseless()), (true, vec![an_hour()])] {
        for extensions in all {
            stream.write_all(&call(binding, 9, COUNT, &extensions)).unwrap();
            assert_eq!(answer(&mut stream), (9, OK), "{extensions:?}");
            assert_eq!(stage.hands.limited.load(Ordering::SeqCst), expected, "{extensions:?}");
            let message = session.post_extended(0, COUNT, &extensions);
            assert_eq!(session.reply_to(message, 0, LONG), Some(OK), "{extensions:?}");
            assert_eq!(stage.hands.limited.load(Ordering::SeqCst), expected, "{extensions:?}");
            calls += 2;
        }
    }
    // Nothing is left: it is not run.
    let nothing = extension(2, 8, &[0; 8]);
    stream.write_all(&call(binding, 9, COUNT, &nothing)).unwrap();
    assert_eq!(answer(&mut stream), (9, NOT_EXECUTED));
    let message = session.post_extended(0, COUNT, &nothing);
    assert_eq!(session.reply_to(message, 0, LONG), Some(NOT_EXECUTED));
    // And what came before says nothing of the next one.
    let message = session.post(0, COUNT);
    assert_eq!(session.reply_to(message, 0, LONG), Some(OK));
    assert!(!stage.hands.limited.load(Ordering::SeqCst));
    assert_eq!(stage.hands.counted.load(Ordering::SeqCst), calls + 1);
}

/// Procedures that never end have every thread, and nobody waits for them: others are served.
fn captured_threads_are_replaced(stage: &Stage, address: &str, by: impl Fn(&str)) {
    const THREADS: u32 = 2;
    // Less than the procedures stay.
    let options = BindOptions::default().timeout(LONG / 2);
    let honest = WorkClient::bind_with(address, &options).unwrap();
    honest.count().unwrap();
    by(address);
    stage.hands.until_entered(THREADS);
    honest.count().expect("a call that waits for no captured thread");
    assert_eq!(stage.hands.counted.load(Ordering::SeqCst), 2);
    // Those that replaced them are captured in turn.
    by(address);
    stage.hands.until_entered(2 * THREADS);
    honest.count().expect("a call that waits for no captured thread");
    stage.hands.set(true);
}

/// As many calls as there are threads, given up by callers whose time is up.
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

/// The same by callers that are killed.
fn are_killed(stage: &Stage, address: &str) {
    let before = stage.hands.entered.load(Ordering::SeqCst);
    let mut callers: Vec<_> =
        (0..2).map(|_| support::Part::start("caller", address, stage.directory.path())).collect();
    stage.hands.until_entered(before + 2);
    callers.iter_mut().for_each(support::Part::kill);
}

/// A process that calls and waits.
#[test]
fn caller() {
    let Some(address) = support::part() else { return };
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
    captured_threads_are_replaced(&stage, "work", |address| are_killed(&stage, address));
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
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            link.enter();
            captured_threads_are_replaced_at(&format!("eth:{}:7001", ENDS[1]));
        });
    });
}

/// The same for an endpoint; that of a link is at its far end.
fn captured_threads_are_replaced_at(endpoint: &str) {
    type By = dyn Fn(&Stage, &str);
    let by: [&By; 2] = [&|_, address| time_out(address), &are_killed];
    for by in by {
        let stage = match endpoint.starts_with("eth:") {
            true => at_far_end(|| Stage::at(endpoint, 2)),
            false => Stage::at(endpoint, 2),
        };
        let address = stage.address();
        captured_threads_are_replaced(&stage, &address, |address| by(&stage, address));
    }
}
