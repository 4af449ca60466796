//! Tests futures over TCP: many calls of one thread, calls that are given up, messages that the socket does
//! not accept at once, and connections that end.
#![cfg(feature = "async")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use peregrine::{
    BindOptions, CallError, Executed, Insecure, Kind, Lent, Rebind, Running, Server, Wait,
    interface,
};
use support::stream::{ABANDON, CALL, Message, REPLY, bound, header, receive};
use support::tasks::{Tasks, block_on};
use support::{Process, role};

/// How long a test waits for an event that must happen.
const LIMIT: Duration = Duration::from_secs(20);
/// The size in bytes of a large argument. The buffers of a connection cannot hold all of it.
const LARGE: usize = 8 << 20;
/// An argument that is too large for a batch. So each call with this argument has a separate message.
const ALONE: &[u8] = &[1; 4096];
/// The number of the procedure that runs a batch of calls.
const BATCH: u32 = u32::MAX - 2;

#[interface]
trait Work {
    /// Returns its argument.
    fn same(&self, number: u64) -> peregrine::Result<u64>;
    /// Returns its argument after `us` microseconds.
    fn pause(&self, us: u64) -> peregrine::Result<u64>;
    /// Returns when enough calls of this procedure run at the same time. The object's barrier says how many.
    fn meet(&self, alone: &[u8]) -> peregrine::Result<()>;
    /// Returns when its caller has cancelled the call.
    fn stay(&self, alone: &[u8]) -> peregrine::Result<()>;
    /// Returns after `ms` milliseconds.
    fn hold(&self, ms: u64, alone: &[u8]) -> peregrine::Result<()>;
}

#[interface]
trait Bytes {
    fn sum(&self, #[max_len(16 << 20)] bytes: &[u8]) -> peregrine::Result<u64>;
    fn same(&self, number: u64) -> peregrine::Result<u64>;
    fn lent(&self, #[max_len(16 << 20)] bytes: Lent<'_, u8>) -> peregrine::Result<u64>;
}

struct Object {
    barrier: Barrier,
    inside: Arc<AtomicU32>,
    cancelled: Arc<AtomicU32>,
}

impl Work for Object {
    fn same(&self, number: u64) -> peregrine::Result<u64> {
        Ok(number)
    }
    fn pause(&self, us: u64) -> peregrine::Result<u64> {
        std::thread::sleep(Duration::from_micros(us));
        Ok(us)
    }
    fn meet(&self, _alone: &[u8]) -> peregrine::Result<()> {
        self.barrier.wait();
        Ok(())
    }
    fn hold(&self, ms: u64, _alone: &[u8]) -> peregrine::Result<()> {
        std::thread::sleep(Duration::from_millis(ms));
        Ok(())
    }
    fn stay(&self, _alone: &[u8]) -> peregrine::Result<()> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let begun = Instant::now();
        while !peregrine::caller().unwrap().is_cancelled() {
            assert!(begun.elapsed() < LIMIT, "the call is not cancelled");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.cancelled.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

struct Sums;

impl Bytes for Sums {
    fn sum(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        Ok(sum(bytes))
    }
    fn same(&self, number: u64) -> peregrine::Result<u64> {
        Ok(number)
    }
    fn lent(&self, bytes: Lent<'_, u8>) -> peregrine::Result<u64> {
        let mut copy = vec![0; bytes.len()];
        bytes.copy_to(0, &mut copy).expect("the bytes arrive");
        Ok(sum(&copy))
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().copied().map(u64::from).sum()
}

/// The number of calls of `stay` that have begun, and the number of those that were cancelled.
struct Counts {
    inside: Arc<AtomicU32>,
    cancelled: Arc<AtomicU32>,
}

fn serve(server: Server, meet: usize) -> (Running, String, Counts) {
    let counts = Counts { inside: Arc::default(), cancelled: Arc::default() };
    let (inside, cancelled) = (Arc::clone(&counts.inside), Arc::clone(&counts.cancelled));
    let object = Object { barrier: Barrier::new(meet), inside, cancelled };
    let server = server.export("work", WorkServer::new(object)).unwrap();
    let server = server.export("bytes", BytesServer::new(Sums)).unwrap();
    let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let address = running.addresses()[0].to_string();
    (running, address, counts)
}

fn options() -> BindOptions {
    BindOptions::default().rebind(Rebind::Never)
}

fn work_at(address: &str, options: &BindOptions) -> WorkAsyncClient {
    block_on(WorkAsyncClient::bind_with(address, options)).unwrap()
}

fn bytes_at(address: &str, options: &BindOptions) -> BytesAsyncClient {
    block_on(BytesAsyncClient::bind_with(address, options)).unwrap()
}

/// Starts a false server that binds one client, and permits the client `calls` calls at the same time. After
/// the bind, the server passes the connection to `then`. Returns the address of the export.
fn scripted(calls: u32, then: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Accepted sockets inherit this small buffer size. The kernel rounds the size up.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let asked = receive(&mut stream).unwrap();
        let mut answer = bound(&asked, 1, 72 << 20);
        answer[56..60].copy_from_slice(&calls.to_le_bytes());
        stream.write_all(&answer).unwrap();
        then(stream);
    });
    format!("tcp:{at}/export")
}

/// Makes the reply to a call: a result of one number.
fn reply(call: &Message, result: u64) -> Vec<u8> {
    let mut message = header(REPLY, 8, [call.words[0], 0, 0, 8, 0, 0]);
    message.extend(result.to_le_bytes());
    message.resize(48, 0);
    message
}

/// Receives the next message, and skips its extensions. Refuses batches, so that the client sends each call
/// in a separate message. Returns `None` if the connection has ended.
fn message(stream: &mut TcpStream) -> Option<Message> {
    loop {
        let message = receive(stream)?;
        let extensions = message.words[5] as usize;
        stream.read_exact(&mut vec![0; extensions.next_multiple_of(16)]).ok()?;
        if message.kind != CALL || message.words[2] != BATCH {
            return Some(message);
        }
        // The refusal says that the call was not executed, because there is no such procedure.
        let mut refusal = header(REPLY, 8, [message.words[0], 0, 2, 8, 0, 0]);
        refusal.extend([9_u32, 0].iter().flat_map(|word| word.to_le_bytes()));
        refusal.resize(48, 0);
        stream.write_all(&refusal).ok()?;
    }
}

/// Receives a call.
fn call(stream: &mut TcpStream) -> Message {
    let message = message(stream).expect("a call");
    assert_eq!(message.kind, CALL);
    message
}

/// Returns the argument of a call whose only argument is a number.
fn number(call: &Message) -> u64 {
    u64::from_le_bytes(call.body[..8].try_into().unwrap())
}

#[track_caller]
fn failed<T: std::fmt::Debug>(result: peregrine::Result<T>) -> CallError {
    result.unwrap_err()
}

/// Returns the names of the threads that the library has started in this process.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).filter(|name| name.starts_with("peregrine")).collect()
}

#[test]
fn one_thread_has_hundreds_of_calls_in_flight() {
    const CALLS: u64 = 300;
    let _alone = support::alone();
    let (received, has_received) = channel();
    let address = scripted(CALLS as u32, move |mut stream| {
        // The server answers no call before all calls have arrived. It answers the last call first.
        let calls: Vec<_> = (0..CALLS).map(|_| call(&mut stream)).collect();
        received.send(()).unwrap();
        for call in calls.iter().rev() {
            stream.write_all(&reply(call, number(call) * 2)).unwrap();
        }
        let _ = stream.read(&mut [0]);
    });
    let options = options().astacks(CALLS as u32).wait(Wait::Block);
    let work = work_at(&address, &options);
    let work = work.with_timeout(2 * LIMIT);
    // Threads of earlier tests of this program may still be ending.
    let others =
        |name: &String| !["keepe", "bells", "timer"].iter().any(|known| name.contains(known));
    let before = threads().into_iter().filter(others).count();
    let mut tasks = Tasks::new();
    for number in 0..CALLS {
        tasks.add(work.same(number));
    }
    tasks.run_until("all calls have arrived", |_| has_received.try_recv().is_ok());
    let during = threads();
    let (known, other): (Vec<_>, Vec<_>) =
        during.into_iter().partition(|name| name.contains("keepe"));
    assert_eq!(known.len(), 1);
    assert!(other.iter().filter(|name| others(name)).count() <= before, "{other:?}");
    let results: Vec<_> = tasks.finish().into_iter().map(Result::unwrap).collect();
    assert!(results.iter().copied().eq((0..CALLS).map(|number| number * 2)));
}

#[test]
fn calls_of_one_thread_run_at_the_same_time() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for wait in [Wait::Block, Wait::Adaptive, Wait::Spin] {
        let (_running, address, _) = serve(Server::new().threads(60), 50);
        let options = options().astacks(50).wait(wait);
        let work = work_at(&format!("{address}/work"), &options);
        let mut tasks = Tasks::new();
        // No call returns before all 50 calls run.
        (0..50).for_each(|_| _ = tasks.add(work.meet(ALONE)));
        tasks.finish().into_iter().for_each(Result::unwrap);
    }
}

#[test]
fn dropped_future_cancels_its_call_and_its_frame_is_used_again() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (_running, address, counts) = serve(Server::new(), 1);
    let options = options().astacks(1).on_exhausted(peregrine::OnExhausted::Wait);
    let work = work_at(&format!("{address}/work"), &options);
    for round in 1..=20 {
        let mut tasks = Tasks::new();
        let stays = tasks.add(work.stay(ALONE));
        tasks.run_until("the procedure runs", |_| counts.inside.load(Ordering::SeqCst) == round);
        if round % 2 == 0 {
            tasks.run_until_asleep();
        }
        tasks.drop_one(stays);
        support::until("the call is cancelled", || {
            counts.cancelled.load(Ordering::SeqCst) == round
        });
        // There is only one frame. It is free when the reply to the cancelled call has arrived.
        assert_eq!(block_on(work.same(round.into())).unwrap(), u64::from(round));
    }
    // The frame can also be used again after a blocking call has ended at its deadline.
    let hasty = WorkClient::from(work.with_timeout(Duration::from_millis(20)));
    assert_eq!(failed(hasty.hold(200, ALONE)).executed(), Executed::Maybe);
    assert_eq!(block_on(work.same(7)).unwrap(), 7);
}

#[test]
fn futures_end_at_their_deadlines() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (_running, address, _) = serve(Server::new().threads(80), 1);
    let options = options().astacks(64);
    let work = work_at(&format!("{address}/work"), &options);
    // Some deadlines are earlier than those that the keeper knows already, and some are later.
    let clients: Vec<_> = (0..60_u64)
        .map(|number| work.with_timeout(Duration::from_millis(20 + number * 37 % 60 * 10)))
        .collect();
    let mut tasks = Tasks::new();
    clients.iter().for_each(|client| _ = tasks.add(client.hold(2000, ALONE)));
    for result in tasks.finish() {
        let error = failed(result);
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe), "{error}");
    }
    // The deadline of a call must not end a later call in the same frame.
    let mut tasks = Tasks::new();
    (0..60).for_each(|_| _ = tasks.add(work.hold(1, ALONE)));
    tasks.finish().into_iter().for_each(Result::unwrap);
}

/// Runs a server in a separate process.
#[test]
fn child() {
    match role().as_deref() {
        Some("server") => {
            let (running, address, _) = serve(Server::new().threads(60), 1);
            println!("\n{address}\nready");
            running.wait();
        }
        Some(role) => child_at_a_link(role),
        None => {}
    }
}

fn start_server() -> (tempfile::TempDir, Process, String) {
    let directory = support::own_directory();
    let mut process = Process::launch("child", "server", directory.path());
    let address = process.until("tcp:");
    while process.line() != "ready" {}
    (directory, process, format!("tcp:{address}"))
}

#[test]
fn futures_that_sleep_fail_when_the_server_dies() {
    let _alone = support::alone();
    for round in 0..4 {
        let (_directory, mut server, address) = start_server();
        let options = options().astacks(40);
        let work = work_at(&format!("{address}/work"), &options);
        let mut tasks = Tasks::new();
        (0..40).for_each(|_| _ = tasks.add(work.stay(ALONE)));
        if round > 0 {
            tasks.run_until_asleep();
        }
        server.kill();
        for result in tasks.finish() {
            let error = failed(result);
            assert_eq!(error.kind(), Kind::ServerGone, "{error}");
            assert!(error.executed() == Executed::Maybe || round == 0, "{error}");
        }
        let error = failed(block_on(work.same(1)));
        assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::No), "{error}");
    }
}

/// How a false server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Closes,
    Resets,
    SaysGoodbye,
}

/// Of three calls, one was sent completely, one was sent in part, and one was not sent at all.
#[test]
fn failed_futures_know_whether_their_calls_were_executed() {
    let _alone = support::alone();
    for (end, others) in [
        (End::Closes, false),
        (End::Resets, false),
        (End::SaysGoodbye, false),
        (End::Closes, true),
        (End::Resets, true),
        (End::SaysGoodbye, true),
    ] {
        let (received, has_received) = channel();
        let (ends, must_end) = channel::<()>();
        let (has_failed, all_have_failed) = channel::<()>();
        let address = scripted(8, move |mut stream| {
            call(&mut stream);
            received.send(()).unwrap();
            let _ = must_end.recv();
            match end {
                // If the server continued to read, the client could send all calls before it notices the end.
                End::Closes => {
                    stream.shutdown(Shutdown::Write).unwrap();
                    let _ = all_have_failed.recv();
                    return;
                }
                // Some bytes were not read, so the kernel resets the connection.
                End::Resets => return,
                End::SaysGoodbye => stream.write_all(&header(69, 0, [0; 6])).unwrap(),
            }
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let bytes = bytes_at(&address, &options().wait(Wait::Block));
        let large = vec![1; LARGE];
        let mut tasks = Tasks::new();
        tasks.add(bytes.same(1));
        tasks.run_until("a call has arrived", |_| has_received.try_recv().is_ok());
        tasks.add(bytes.sum(&large));
        tasks.run_until_asleep();
        tasks.add(bytes.sum(ALONE));
        tasks.run_until_asleep();
        std::thread::scope(|scope| {
            let blocking = BytesClient::from(bytes.clone());
            // A blocking caller must first send the queued messages of the futures. So it waits.
            let waits = others.then(|| scope.spawn(move || failed(blocking.same(3))));
            if waits.is_some() {
                std::thread::sleep(Duration::from_millis(50));
            }
            drop(ends);
            if let Some(waits) = waits {
                let error = waits.join().unwrap();
                assert_eq!(error.executed(), Executed::No, "{end:?}: {error}");
            }
        });
        let errors: Vec<_> = tasks.finish().into_iter().map(failed).collect();
        drop(has_failed);
        let sent = if end == End::SaysGoodbye { Executed::No } else { Executed::Maybe };
        let executed: Vec<_> = errors.iter().map(CallError::executed).collect();
        assert_eq!(executed, [sent, Executed::No, Executed::No], "{end:?}: {errors:?}");
        assert!(errors[1].to_string().contains("only a part"), "{end:?}: {}", errors[1]);
        assert!(errors[2].to_string().contains("nothing was sent"), "{end:?}: {}", errors[2]);
    }
}

/// Starts a false server that reads nothing until the test uses the returned `Sender`. Then it answers each
/// call with the sum of the bytes in the argument, or with the number in the argument. After each message, it
/// sends the test a list of all messages so far, which the returned `Receiver` gets. If `refuses` is true,
/// the server sends no answers.
fn reads_later(calls: u32, refuses: bool) -> (String, Sender<()>, Receiver<Vec<u32>>) {
    let (read, may_read) = channel::<()>();
    let (kinds, seen) = channel();
    let address = scripted(calls, move |mut stream| {
        let _ = may_read.recv();
        let mut received = Vec::new();
        while let Some(message) = message(&mut stream) {
            received.push(u32::from(message.kind) << 24 | message.words[0]);
            let _ = kinds.send(received.clone());
            if message.kind != CALL {
                continue;
            }
            let result = match message.words[2] {
                // The bytes follow the head.
                0 | 2 => sum(&message.body[message.words[3] as usize..]),
                _ => number(&message),
            };
            // The server also answers cancelled calls.
            let answer = if refuses { Vec::new() } else { reply(&message, result) };
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    });
    (address, read, seen)
}

fn pattern(seed: usize) -> Vec<u8> {
    let block: Vec<u8> = (0..8192).map(|at| (at * (2 * seed + 1) / 8) as u8).collect();
    block.repeat(LARGE / block.len())
}

#[test]
fn messages_that_fill_the_socket_are_sent_later_and_in_one_piece() {
    let _alone = support::alone();
    for wait in [Wait::Block, Wait::Adaptive] {
        let (address, read, _seen) = reads_later(32, false);
        let bytes = bytes_at(&address, &options().astacks(20).wait(wait));
        let large: Vec<_> = (0..4).map(pattern).collect();
        let mut tasks = Tasks::new();
        for (number, large) in (0..).zip(&large) {
            // The future owns the argument that it sends.
            let copy = large.clone();
            let future = async {
                let copy = copy;
                bytes.sum(&copy).await
            };
            tasks.add(future);
            tasks.add(bytes.same(number));
            tasks.add(bytes.lent(Lent::from(&large[..5000])));
        }
        tasks.run_until_asleep();
        assert_eq!(tasks.completed(), 0);
        let blocking = BytesClient::from(bytes.clone());
        // This caller gives up while messages of the futures are still queued before its message.
        let hasty = blocking.with_timeout(Duration::from_millis(30));
        let error = failed(hasty.same(1));
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
        std::thread::scope(|scope| {
            // Each waiting caller first sends the queued messages of the futures, and then its message.
            let callers: Vec<_> = (100..104)
                .map(|number| {
                    let blocking = blocking.clone();
                    scope.spawn(move || assert_eq!(blocking.same(number).unwrap(), number))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(20));
            read.send(()).unwrap();
            callers.into_iter().for_each(|caller| caller.join().unwrap());
        });
        let results: Vec<_> = tasks.finish().into_iter().map(Result::unwrap).collect();
        for ((number, large), results) in (0..).zip(&large).zip(results.chunks(3)) {
            assert_eq!(results, [sum(large), number, sum(&large[..5000])], "{number}");
        }
    }
}

#[test]
fn messages_of_futures_are_sent_although_no_thread_calls() {
    let _alone = support::alone();
    let (address, read, _seen) = reads_later(8, false);
    let bytes = bytes_at(&address, &options().wait(Wait::Block));
    let large: Vec<_> = (0..3).map(pattern).collect();
    let mut tasks = Tasks::new();
    large.iter().for_each(|large| _ = tasks.add(bytes.sum(large)));
    tasks.run_until_asleep();
    read.send(()).unwrap();
    let results: Vec<_> = tasks.finish().into_iter().map(Result::unwrap).collect();
    assert!(results.iter().copied().eq(large.iter().map(|large| sum(large))));
}

#[test]
fn call_dropped_in_the_middle_of_its_message_is_sent_and_then_cancelled() {
    let _alone = support::alone();
    let (address, read, seen) = reads_later(8, false);
    let options = options().astacks(4).wait(Wait::Block);
    let bytes = bytes_at(&address, &options);
    let large = pattern(1);
    let mut tasks = Tasks::new();
    let part = tasks.add(bytes.sum(&large));
    tasks.run_until_asleep();
    let unsent = tasks.add(bytes.sum(&large[..3001]));
    let other = tasks.add(bytes.sum(&large[..3002]));
    tasks.run_until_asleep();
    tasks.drop_one(part);
    tasks.drop_one(unsent);
    // Two of the four frames are free: one was never used, and nothing was sent of the call in the other.
    let more = [3003, 3004].map(|bytes_sent| (bytes_sent, bytes.sum(&large[..bytes_sent])));
    let more = more.map(|(bytes_sent, future)| (bytes_sent, tasks.add(future)));
    tasks.run_until_asleep();
    assert_eq!(tasks.completed(), 0);
    read.send(()).unwrap();
    tasks.run_until("the other calls end", |tasks| tasks.completed() == 3);
    for (bytes_sent, task) in more.into_iter().chain([(3002, other)]) {
        assert_eq!(tasks.take(task).unwrap().unwrap(), sum(&large[..bytes_sent]));
    }
    // The server has received the whole large call, and later its cancellation. It has not received the other
    // dropped call.
    let mut received = Vec::new();
    let cancels = |received: &[u32]| {
        let abandoned = |first: &u32| u32::from(ABANDON) << 24 | first & 0xff_ffff;
        received.first().is_some_and(|first| received.contains(&abandoned(first)))
    };
    let begun = Instant::now();
    while received.len() < 5 || !cancels(&received) {
        assert!(begun.elapsed() < LIMIT, "{received:x?}");
        received = seen.recv_timeout(LIMIT).expect("a cancellation");
    }
    assert_eq!(received.len(), 5, "{received:x?}");
    // All four frames can be used again, also that of the large call.
    let mut tasks = Tasks::new();
    (0..4).for_each(|_| _ = tasks.add(bytes.sum(ALONE)));
    assert!(tasks.finish().into_iter().all(|result| result.unwrap() == sum(ALONE)));
}

/// A server may answer a call before it has received the whole message.
#[test]
fn frame_is_not_used_again_before_its_message_was_sent() {
    let _alone = support::alone();
    let (answered, has_answered) = channel();
    let (read, may_read) = channel::<()>();
    let address = scripted(8, move |mut stream| {
        let mut first = [0; 32];
        stream.read_exact(&mut first).unwrap();
        let body = u32::from_le_bytes(first[..4].try_into().unwrap()) as usize;
        let word = |at: usize| u32::from_le_bytes(first[at..at + 4].try_into().unwrap());
        let early = Message { kind: CALL, words: [8, 12, 16, 20, 24, 28].map(word), body: vec![] };
        stream.write_all(&reply(&early, 77)).unwrap();
        answered.send(()).unwrap();
        let _ = may_read.recv();
        let mut rest = vec![0; body.next_multiple_of(16)];
        stream.read_exact(&mut rest).unwrap();
        let head = early.words[3] as usize;
        assert_eq!(sum(&rest[head..body]), sum(&pattern(2)), "another message was sent");
        while let Some(next) = message(&mut stream) {
            stream.write_all(&reply(&next, sum(&next.body[next.words[3] as usize..]))).unwrap();
        }
    });
    let bytes = bytes_at(&address, &options().wait(Wait::Block));
    let large = pattern(2);
    let mut tasks = Tasks::new();
    let early = tasks.add(bytes.sum(&large));
    tasks.run_until("the call is answered", |_| has_answered.try_recv().is_ok());
    tasks.run_until_asleep();
    assert_eq!(tasks.completed(), 0, "a call ended before its message was sent");
    let next = tasks.add(bytes.sum(ALONE));
    tasks.run_until_asleep();
    read.send(()).unwrap();
    tasks.run_until("both calls end", |tasks| tasks.completed() == 2);
    assert_eq!(tasks.take(early).unwrap().unwrap(), 77);
    assert_eq!(tasks.take(next).unwrap().unwrap(), sum(ALONE));
}

/// Futures sleep on a connection while blocking callers come and go.
#[test]
fn no_wake_up_is_lost_while_callers_come_and_go() {
    const ROUNDS: u64 = 400;
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (_running, address, _) = serve(Server::new().threads(16), 1);
    let address = format!("{address}/work");
    let bind = |wait| {
        let options = options().astacks(32).wait(wait);
        WorkClient::bind_with(&address, &options).unwrap()
    };
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (caller, wait) in (0..).zip([Wait::Block, Wait::Adaptive, Wait::Block]) {
            let (work, stops) = (bind(wait), &stops);
            scope.spawn(move || {
                // A thread waits differently if its call has a deadline. So some calls have a deadline.
                let limited = work.with_timeout(LIMIT);
                let mut round = caller;
                while !stops.load(Ordering::Relaxed) {
                    let client = if round % 2 == 0 { &work } else { &limited };
                    assert_eq!(client.pause(round % 5 * 40).unwrap(), round % 5 * 40);
                    if round % 7 == 0 {
                        std::thread::sleep(Duration::from_micros(round % 11 * 50));
                    }
                    round += 1;
                }
            });
        }
        let executors: Vec<_> = [Wait::Block, Wait::Adaptive]
            .map(|wait| {
                let work = WorkAsyncClient::from(bind(wait));
                scope.spawn(move || {
                    let mut tasks = Tasks::new();
                    for task in 0..8 {
                        let work = &work;
                        tasks.add(async move {
                            for round in 0..ROUNDS {
                                let us = (round * (task + 3)) % 7 * 30;
                                if task % 4 == 0 {
                                    // These calls share batches.
                                    assert_eq!(work.pause(us).await.unwrap(), us);
                                } else {
                                    work.hold(us / 100, ALONE).await.unwrap();
                                }
                            }
                        });
                    }
                    tasks.finish();
                })
            })
            .into();
        let all: Vec<_> = executors.into_iter().map(|executor| executor.join()).collect();
        stops.store(true, Ordering::Relaxed);
        all.into_iter()
            .for_each(|one| one.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    });
}

/// Large messages of futures and of blocking callers share a connection.
#[test]
fn large_messages_of_futures_and_callers_are_not_mixed_up() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (_running, address, _) = serve(Server::new().threads(8), 1);
    let options = options().astacks(16);
    let blocking = BytesClient::bind_with(&format!("{address}/bytes"), &options).unwrap();
    let bytes = BytesAsyncClient::from(blocking.clone());
    let large = &pattern(3);
    std::thread::scope(|scope| {
        for caller in 0..2_usize {
            let blocking = blocking.clone();
            scope.spawn(move || {
                for round in 0..12 {
                    let part = &large[..(caller + 1) * 800_000 + round * 7];
                    assert_eq!(blocking.sum(part).unwrap(), sum(part));
                }
            });
        }
        let mut tasks = Tasks::new();
        for task in 0..6 {
            let bytes = &bytes;
            tasks.add(async move {
                for round in 0..6 {
                    let part = &large[task * 1000..(task + 1) * 1_000_000 + round];
                    assert_eq!(bytes.sum(part).await.unwrap(), sum(part));
                    assert_eq!(bytes.lent(Lent::from(part)).await.unwrap(), sum(part));
                }
            });
        }
        tasks.finish();
    });
}

/// The keeper receives a late reply, and then sleeps again.
#[test]
fn keeper_sleeps_after_a_late_reply() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (_running, address, _) = serve(Server::new(), 1);
    let work = WorkClient::bind_with(&format!("{address}/work"), &options()).unwrap();
    let hasty = work.with_timeout(Duration::from_millis(10));
    assert_eq!(failed(hasty.hold(200, ALONE)).kind(), Kind::TimedOut);
    std::thread::sleep(Duration::from_millis(200));
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let named = |task: &std::path::Path| {
        std::fs::read_to_string(task.join("comm"))
            .is_ok_and(|name| name.trim() == "peregrine-keepe")
    };
    let keeper = tasks.map(|task| task.path()).find(|task| named(task)).expect("the keeper");
    let sleeps = || {
        let stat = std::fs::read_to_string(keeper.join("stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('S')
    };
    let mut times = 0;
    support::until("the keeper sleeps", || {
        times = if sleeps() { times + 1 } else { 0 };
        times == 100
    });
    assert_eq!(work.same(1).unwrap(), 1);
}

/// Runs a server or a client at one end of a link between two network namespaces.
fn child_at_a_link(role: &str) {
    let server = format!("tcp:{}:7000", support::link::ENDS[0]);
    if role == "far" {
        let object =
            Object { barrier: Barrier::new(1), inside: Arc::default(), cancelled: Arc::default() };
        let far = Server::new().export("work", WorkServer::new(object)).unwrap();
        let running = far
            .listen_beyond_this_machine(&server, Insecure::ITrustThisNetwork)
            .unwrap()
            .spawn()
            .unwrap();
        println!("\nready");
        return running.wait();
    }
    let wait = if role == "spins" { Wait::Spin } else { Wait::Adaptive };
    let work = WorkClient::bind_with(&format!("{server}/work"), &options().wait(wait)).unwrap();
    let work = WorkAsyncClient::from(work);
    let mut tasks = Tasks::new();
    (0..5).for_each(|_| _ = tasks.add(work.hold(3_600_000, ALONE)));
    tasks.run_until_some_time();
    println!("\nready");
    for result in tasks.finish() {
        let error = failed(result);
        assert_eq!(
            (error.kind(), error.executed()),
            (Kind::ServerGone, Executed::Maybe),
            "{error}"
        );
        assert!(error.to_string().contains("despite probes"), "{error}");
    }
    println!("gone");
}

/// The network fails while futures sleep. No packet reports the failure to the client.
#[test]
fn futures_that_sleep_notice_a_dead_server() {
    let _alone = support::alone();
    let directory = support::own_directory();
    for role in ["sleeps", "spins"] {
        let link = match support::link::Link::new() {
            Ok(link) => link,
            Err(why) => return println!("skipped: no namespaces: {why}"),
        };
        let _server = link.start(0, "child", "far", directory.path());
        let mut client = link.start(1, "child", role, directory.path());
        link.set("down");
        client.until("gone");
    }
}
