//! Tests pending calls over UDP and raw Ethernet: many calls of one thread, packet loss, calls that are given
//! up, deadlines, servers that die, and handles that the server has forgotten. Each future is polled only
//! after it was woken. So a lost wake-up makes a test fail.
#![cfg(feature = "async")]

#[path = "attack/mod.rs"]
mod attack;
mod support;

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use attack::{no_longer_than, seed};
use crc32c::crc32c;
use peregrine::{
    BindOptions, EthernetDevice, Executed, Insecure, Kind, OnExhausted, Out, PathKind, Running,
    Server, Wait, interface,
};
use support::impairments::Impairments;
use support::link::{ENDS, Link, at_far_end, at_near_end, run_in_a_network_like_ethernet};
use support::relay::Relay;
use support::{Process, role, until};

/// The time limit of everything that takes a few seconds at most on an idle machine.
const LONG: Duration = Duration::from_secs(60);
/// The number of calls that one thread has in flight.
const CALLS: u32 = 120;
/// An argument that is too large for a batch. A call with this argument has a separate frame.
const ALONE: &[u8] = &[1; 3000];

#[interface]
trait Desk {
    /// Returns when this procedure has been entered `until` times in all.
    fn meet(&self, until: u32, alone: &[u8]) -> peregrine::Result<()>;
    /// Waits until the call is cancelled.
    fn outlast(&self, alone: &[u8]) -> peregrine::Result<()>;
    fn add(&self, a: u64, b: u64, alone: &[u8]) -> peregrine::Result<u64>;
    fn checksum(&self, #[max_len(8 << 20)] bytes: &[u8]) -> peregrine::Result<u32>;
    fn read(&self, bytes: u32, #[max_len(8 << 20)] into: Out<'_, u8>) -> peregrine::Result<()>;
    /// Returns how many calls have entered `meet` or `outlast`, and how many were cancelled there.
    fn counts(&self) -> peregrine::Result<(u32, u32)>;
}

#[derive(Default)]
struct Object {
    entered: AtomicU32,
    cancelled: AtomicU32,
}

/// Returns bytes that differ from place to place.
fn bytes_of(count: usize) -> Vec<u8> {
    // The bytes repeat after this number. Copies take much less time than computing each byte.
    const PERIOD: usize = 7 * 256;
    let first = (0..count.min(PERIOD)).map(|at| (at * 31 / 7) as u8).collect::<Vec<_>>();
    let mut all = first.repeat(count.div_ceil(PERIOD));
    all.truncate(count);
    all
}

impl Desk for Object {
    fn meet(&self, until: u32, _: &[u8]) -> peregrine::Result<()> {
        self.entered.fetch_add(1, Ordering::SeqCst);
        let limit = Instant::now() + LONG;
        while self.entered.load(Ordering::SeqCst) < until && Instant::now() < limit {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
    fn outlast(&self, _: &[u8]) -> peregrine::Result<()> {
        self.entered.fetch_add(1, Ordering::SeqCst);
        let caller = peregrine::caller().expect("a caller");
        let limit = Instant::now() + LONG;
        while !caller.is_cancelled() && Instant::now() < limit {
            thread::sleep(Duration::from_millis(1));
        }
        self.cancelled.fetch_add(1, Ordering::SeqCst);
        // The client needs time to notice the deadline. If the result arrived before, the call would succeed.
        thread::sleep(Duration::from_millis(50));
        Ok(())
    }
    fn add(&self, a: u64, b: u64, _: &[u8]) -> peregrine::Result<u64> {
        Ok(a + b)
    }
    fn checksum(&self, bytes: &[u8]) -> peregrine::Result<u32> {
        Ok(crc32c(bytes))
    }
    fn read(&self, bytes: u32, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        into.put(&bytes_of(bytes as usize)).expect("enough space");
        Ok(())
    }
    fn counts(&self) -> peregrine::Result<(u32, u32)> {
        Ok((self.entered.load(Ordering::SeqCst), self.cancelled.load(Ordering::SeqCst)))
    }
}

// An executor for one thread.

/// What wakes a future: the flag of the future, and its thread.
struct Flag {
    woken: AtomicBool,
    thread: Thread,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

type Task<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

fn task<'a, T>(future: impl Future<Output = T> + 'a) -> Task<'a, T> {
    Box::pin(future)
}

/// Runs futures on this thread until all of them have ended. Polls each future only after it was woken.
#[track_caller]
fn join<'a, T>(futures: impl IntoIterator<Item = Task<'a, T>>) -> Vec<T> {
    let thread = thread::current();
    let flag = || Arc::new(Flag { woken: AtomicBool::new(true), thread: thread.clone() });
    let mut tasks: Vec<_> = futures.into_iter().map(|future| (flag(), Some(future))).collect();
    let mut results: Vec<Option<T>> = tasks.iter().map(|_| None).collect();
    let limit = Instant::now() + LONG;
    loop {
        let mut left = 0;
        for ((flag, task), result) in tasks.iter_mut().zip(&mut results) {
            let Some(future) = task else { continue };
            left += 1;
            if !flag.woken.swap(false, Ordering::SeqCst) {
                continue;
            }
            let waker = Waker::from(Arc::clone(flag));
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                (*task, *result) = (None, Some(value));
                left -= 1;
            }
        }
        if left == 0 {
            return results.into_iter().flatten().collect();
        }
        assert!(Instant::now() < limit, "{left} futures still sleep");
        if !tasks.iter().any(|(flag, task)| task.is_some() && flag.woken.load(Ordering::SeqCst)) {
            thread::park_timeout(Duration::from_millis(100));
        }
    }
}

fn block_on<'a, T>(future: impl Future<Output = T> + 'a) -> T {
    join([task(future)]).pop().expect("a result")
}

/// Waits until a condition is true, while other futures of the thread are polled.
async fn when(condition: impl Fn() -> bool) {
    poll_fn(|context| {
        context.waker().wake_by_ref();
        if condition() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Polls futures in turn until `ends` returns true. Then drops them.
fn run_until(mut futures: Vec<Task<'_, ()>>, mut ends: impl FnMut() -> bool) {
    let limit = Instant::now() + LONG;
    block_on(poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        assert!(Instant::now() < limit, "the condition was not reached in time");
        context.waker().wake_by_ref();
        if ends() { Poll::Ready(()) } else { Poll::Pending }
    }));
}

// Servers.

/// Makes a runtime directory for this test. The tests of a process run one at a time.
fn home() -> (MutexGuard<'static, ()>, tempfile::TempDir) {
    (support::alone(), support::own_directory())
}

fn serve(server: Server) -> (Running, String) {
    let server = server.export("desk", DeskServer::new(Object::default())).unwrap();
    let running = server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let address = format!("{}/desk", running.addresses()[0]);
    (running, address)
}

/// Starts a server at the far end of the link whose near end this thread has entered.
fn serve_beyond(server: Server) -> (Running, String) {
    let server = server.export("desk", DeskServer::new(Object::default())).unwrap();
    let server = server
        .listen_beyond_this_machine(&format!("eth:{}:0", ENDS[1]), Insecure::ITrustThisNetwork)
        .unwrap();
    let running = at_far_end(move || server.spawn().unwrap());
    let address = format!("{}/desk", running.addresses()[0]);
    (running, address)
}

fn options() -> BindOptions {
    BindOptions::default().on_exhausted(OnExhausted::More)
}

/// Does the work of a child process, which is a server. In the test run itself, this function does nothing.
#[test]
fn child() {
    if role().is_none() {
        return;
    }
    no_longer_than(Duration::from_secs(200));
    let (running, address) = serve(Server::new().threads(CALLS as usize + 8));
    println!("\nat {address}");
    running.wait();
}

fn server_process() -> (Process, String) {
    let mut process = Process::launch("child", "server", &support::directory());
    let address = process.until("at ");
    (process, address)
}

// The tests.

/// Makes many calls on one thread. The server answers none of them before all of them run.
fn calls_overlap(address: &str, path: PathKind, options: &BindOptions) {
    for wait in [Wait::Block, Wait::Adaptive] {
        let desk = DeskClient::bind_with(address, &options.clone().wait(wait)).unwrap();
        assert_eq!(desk.binding().path(), path);
        let before = block_on(DeskAsyncClient::from(desk.clone()).counts()).unwrap().0;
        let desk = DeskAsyncClient::from(desk);
        for round in 1..=2 {
            let all = before + round * CALLS;
            let meets = (0..CALLS).map(|_| task(desk.meet(all, ALONE)));
            join(meets).into_iter().for_each(|met| met.unwrap());
            assert_eq!(block_on(desk.counts()).unwrap().0, all);
        }
    }
}

#[test]
fn one_thread_has_many_calls_in_flight() {
    let _home = home();
    let (_running, address) = serve(Server::new().threads(CALLS as usize));
    calls_overlap(&address, PathKind::Udp, &options());
}

#[test]
fn one_thread_has_many_calls_in_flight_over_raw_ethernet() {
    let _home = home();
    for device in [EthernetDevice::Any, EthernetDevice::Packet] {
        at_near_end(Link::new(), |_| {
            let server = Server::new().threads(CALLS as usize).ethernet_device(device);
            let (_running, address) = serve_beyond(server);
            let options = options().ethernet_device(device);
            calls_overlap(&address, PathKind::Ethernet, &options);
            mixed_callers_all_get_results(&address, &options);
        });
    }
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("this process").count()
}

#[test]
fn pending_calls_need_no_threads_and_no_descriptors() {
    let _home = home();
    let (_process, address) = server_process();
    let desk = DeskClient::bind_with(&address, &options().wait(Wait::Block)).unwrap();
    let asynchronous = DeskAsyncClient::from(desk.clone());
    desk.counts().unwrap();
    let before = (threads(), support::descriptors(std::process::id()));
    let pending: Vec<Task<'_, ()>> = (0..CALLS)
        .map(|_| task(async { asynchronous.meet(CALLS + 1, ALONE).await.unwrap() }))
        .collect();
    let mut now = before;
    run_until(pending, || {
        now = (threads(), support::descriptors(std::process::id()));
        // Some threads only prepare frames, and end soon. The calls stay pending until those threads have
        // ended. At most two more threads remain, such as the one for timers.
        desk.counts().unwrap().0 == CALLS && now.0 <= before.0 + 2
    });
    // To one server, a client opens at most 16 sockets for single frames, and one shared socket. One of these
    // 17 was open before.
    assert!(now.1 <= before.1 + 16, "{before:?} before, {now:?} with {CALLS} pending calls");
}

/// A relay and the thread that runs it. The thread ends when this value is dropped.
struct RunningRelay {
    going: Arc<AtomicBool>,
    lossy: Arc<AtomicBool>,
    questions: Arc<AtomicU32>,
    thread: Option<thread::JoinHandle<()>>,
    address: String,
}

/// Recognizes probes about calls that the client has already sent. A client sends such a probe if it misses a
/// packet.
#[derive(Default)]
struct Questions {
    /// For each handle: the sequence number of its last call.
    calls: HashMap<Vec<u8>, Vec<u8>>,
}

impl Questions {
    /// Returns whether a packet is a probe about a call that the client has already sent.
    fn is_question(&mut self, packet: &[u8]) -> bool {
        const CALL: u8 = 1;
        const PROBE: u8 = 5;
        let (handle, sequence) = (packet[8..24].to_vec(), packet[24..28].to_vec());
        match packet[3] {
            CALL => {
                self.calls.insert(handle, sequence);
                false
            }
            PROBE => self.calls.get(&handle) == Some(&sequence),
            _ => false,
        }
    }
}

impl RunningRelay {
    /// Starts a relay to the server at `address`, which is `udp:HOST:PORT/desk`.
    fn new(address: &str) -> Self {
        /// After ten consecutive unanswered questions, a client presumes the server dead. If this path lost
        /// 30 % of all packets, that would happen in some of the runs.
        const LOSSY: Impairments = Impairments {
            lost: 150,
            duplicated: 50,
            delayed: 200,
            delayed_us: 2000,
            damaged: 0,
            delay_us: 0,
            cut_ms: (0, 0),
        };
        let server = address.trim_start_matches("udp:").trim_end_matches("/desk");
        let at = "127.0.0.1:0".parse().unwrap();
        let mut relay = Relay::new(at, server.parse().unwrap(), Impairments::default(), seed());
        let address = format!("udp:{}/desk", relay.address());
        let (going, lossy) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let questions = Arc::new(AtomicU32::new(0));
        let (goes_on, loses) = (Arc::clone(&going), Arc::clone(&lossy));
        let counted = Arc::clone(&questions);
        let thread = thread::spawn(move || {
            let (mut was_lossy, mut questions) = (false, Questions::default());
            while goes_on.load(Ordering::SeqCst) {
                if !was_lossy && loses.load(Ordering::SeqCst) {
                    was_lossy = true;
                    relay.impair(LOSSY);
                }
                relay.step(&mut |_, packet| {
                    let asks = questions.is_question(packet);
                    counted.fetch_add(u32::from(asks), Ordering::SeqCst);
                });
            }
        });
        Self { going, lossy, questions, thread: Some(thread), address }
    }
}

impl RunningRelay {
    /// Checks that the clients have sent at most two probes for results. Without lost wake-ups, only a busy
    /// machine causes such probes.
    #[track_caller]
    fn assert_few_questions(&self) {
        let questions = self.questions.load(Ordering::SeqCst);
        assert!(questions < 3, "{questions} questions");
    }
}

impl Drop for RunningRelay {
    fn drop(&mut self) {
        self.going.store(false, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes small and large calls over a path that loses 15 % of all packets. `large` is the size of large
/// messages.
fn calls_survive_losses(large: usize) {
    const TASKS: u64 = 24;
    let (_running, address) = serve(Server::new().threads(TASKS as usize));
    let relay = RunningRelay::new(&address);
    let desk = DeskClient::bind_with(&relay.address, &options()).unwrap();
    let desk = DeskAsyncClient::from(desk);
    // All frames get their handles before packets are lost, because binding allows only a second for each
    // handle.
    let meets = (0..TASKS).map(|_| task(desk.meet(TASKS as u32, ALONE)));
    join(meets).into_iter().for_each(|met| met.unwrap());
    relay.lossy.store(true, Ordering::SeqCst);
    let sent = bytes_of(large);
    let (desk, sent) = (&desk, &sent);
    let work = |number: u64| {
        task(async move {
            for round in 0..8 {
                assert_eq!(desk.add(number, round, ALONE).await.unwrap(), number + round);
            }
            if number.is_multiple_of(4) {
                assert_eq!(desk.checksum(sent).await.unwrap(), crc32c(sent));
                let mut back = vec![0; sent.len()];
                desk.read(sent.len() as u32, Out::from(&mut back[..])).await.unwrap();
                assert!(back == *sent);
            }
        })
    };
    join((0..TASKS).map(work));
}

#[test]
fn pending_calls_survive_losses() {
    let _home = home();
    calls_survive_losses(2 << 20);
}

/// This environment variable is set in the run that [`run_in_a_network_like_ethernet`] starts.
const NARROW: &str = "PEREGRINE_TEST_NARROW";

/// On loopback, packets carry 64 KiB. With the MTU of Ethernet, messages have many more packets.
#[test]
fn pending_calls_of_many_packets_survive_losses() {
    let _home = home();
    if std::env::var_os(NARROW).is_some() {
        calls_survive_losses(200_000);
        return println!("all survived");
    }
    let name = "pending_calls_of_many_packets_survive_losses";
    run_in_a_network_like_ethernet(name, NARROW, "all survived");
}

#[test]
fn large_pending_calls_arrive_intact() {
    let _home = home();
    let (_running, address) = serve(Server::new());
    let desk = DeskAsyncClient::from(DeskClient::bind_with(&address, &options()).unwrap());
    let sent = bytes_of(8 << 20);
    for bytes in [0, 1, 1400, 65_375, 65_440, 65_441, 1 << 20, 3 << 20 | 77, 8 << 20] {
        let (desk, part) = (&desk, &sent[..bytes]);
        let work = |_| {
            task(async move {
                assert_eq!(desk.checksum(part).await.unwrap(), crc32c(part));
                let mut back = vec![0; bytes];
                let mut into = Out::from(&mut back[..]);
                desk.read(bytes as u32, into.by_ref()).await.unwrap();
                assert_eq!(into.filled(), bytes);
                assert!(back == part, "{bytes}");
            })
        };
        // Some of the frames use the shared socket.
        join((0..if bytes > 1 << 20 { 3 } else { 20 }).map(work));
    }
}

#[test]
fn dropped_futures_cancel_their_calls_and_frames_are_used_again() {
    const FRAMES: u32 = 20;
    let _home = home();
    let (_running, address) = serve(Server::new().threads(FRAMES as usize + 4));
    let observer = DeskClient::bind(&address).unwrap();
    let options = BindOptions::default().astacks(FRAMES).on_exhausted(OnExhausted::Wait);
    let desk = DeskAsyncClient::from(DeskClient::bind_with(&address, &options).unwrap());
    for round in 1..=3 {
        let outlast = |_| task(async { drop(desk.outlast(ALONE).await) });
        let pending = (0..FRAMES).map(outlast).collect();
        run_until(pending, || observer.counts().unwrap().0 == round * FRAMES);
        until("all calls are cancelled", || observer.counts().unwrap().1 == round * FRAMES);
        // All frames were captured. A new call gets a frame only after the server has released the frame.
        let adds = (0..2 * FRAMES).map(|n| task(desk.add(n.into(), 1, ALONE)));
        for (n, sum) in join(adds).into_iter().enumerate() {
            assert_eq!(sum.unwrap(), n as u64 + 1);
        }
    }
}

/// A future may be dropped before the server has received the call, or after the result has arrived. In both
/// cases, later calls can use the frame.
#[test]
fn futures_may_be_dropped_at_any_time() {
    let _home = home();
    let (_running, address) = serve(Server::new());
    let options = BindOptions::default().astacks(18).on_exhausted(OnExhausted::Wait);
    let desk = DeskAsyncClient::from(DeskClient::bind_with(&address, &options).unwrap());
    for round in 0..200_u64 {
        let adds = (0..18).map(|n| task(desk.add(n, round, ALONE)));
        let mut adds: Vec<_> = adds.collect();
        let mut polls = 0;
        block_on(poll_fn(|context| {
            adds.retain_mut(|add| add.as_mut().poll(context).is_pending());
            context.waker().wake_by_ref();
            polls += 1;
            if polls > round % 7 { Poll::Ready(()) } else { Poll::Pending }
        }));
        drop(adds);
        assert_eq!(block_on(desk.add(round, 1, ALONE)).unwrap(), round + 1);
    }
}

#[test]
fn deadline_ends_a_pending_call() {
    let _home = home();
    let (_running, address) = serve(Server::new().threads(40));
    let observer = DeskClient::bind(&address).unwrap();
    for wait in [Wait::Block, Wait::Adaptive, Wait::Spin] {
        let before = observer.counts().unwrap();
        let desk = DeskClient::bind_with(&address, &options().wait(wait)).unwrap();
        let desk = DeskAsyncClient::from(desk);
        join((0..20).map(|n| task(desk.add(n, n, ALONE))));
        let short = desk.with_timeout(Duration::from_millis(300));
        let ended = join((0..20).map(|_| task(short.outlast(ALONE))));
        let errors: Vec<_> = ended.into_iter().filter_map(Result::err).collect();
        assert!(errors.iter().all(|error| error.kind() == Kind::TimedOut), "{:?}", errors[0]);
        let sent = errors.iter().filter(|error| error.executed() == Executed::Maybe).count();
        assert!(sent > 0, "no call was sent within 300 ms: {errors:?}");
        until("the calls are cancelled", || {
            let (entered, cancelled) = observer.counts().unwrap();
            entered > before.0 && entered == cancelled
        });
        assert_eq!(block_on(desk.with_timeout(LONG).add(1, 2, ALONE)).unwrap(), 3);
        // This deadline has already passed when the call begins.
        let error = block_on(desk.with_deadline(Instant::now()).add(1, 2, ALONE)).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
    }
}

#[test]
fn death_of_the_server_ends_pending_calls() {
    let _home = home();
    for signal in [libc::SIGKILL, libc::SIGSTOP] {
        let (mut process, address) = server_process();
        let options = options().wait(Wait::Block);
        let desk = DeskClient::bind_with(&address, &options).unwrap();
        let asynchronous = DeskAsyncClient::from(desk.clone());
        let mut ended = Vec::new();
        let mut calls: Vec<_> = (0..40).map(|_| Box::pin(asynchronous.outlast(ALONE))).collect();
        let mut is_killed = false;
        let limit = Instant::now() + LONG;
        block_on(poll_fn(|context| {
            calls.retain_mut(|call| match call.as_mut().poll(context) {
                Poll::Ready(result) => {
                    ended.push(result.unwrap_err());
                    false
                }
                Poll::Pending => true,
            });
            if !is_killed {
                assert_eq!(ended.len(), 0, "{:?}", ended.first());
                // The server is killed while all futures sleep.
                is_killed = desk.counts().unwrap().0 == 40;
                if is_killed && signal == libc::SIGKILL {
                    process.kill();
                } else if is_killed {
                    process.signal(signal);
                }
                context.waker().wake_by_ref();
            }
            assert!(Instant::now() < limit, "{} futures still sleep", calls.len());
            if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        }));
        for error in ended {
            assert_eq!(error.kind(), Kind::ServerGone, "{error}");
            assert_eq!(error.executed(), Executed::Maybe, "{error}");
        }
        let error = block_on(asynchronous.add(1, 2, ALONE)).unwrap_err();
        assert_eq!(error.executed(), Executed::No, "{error}");
    }
}

/// After a pause, a client probes the server before it sends the next call. So if the server has died, that
/// call was certainly not executed.
#[test]
fn call_after_the_death_of_an_idle_server_is_not_executed() {
    let _home = home();
    let (mut process, address) = server_process();
    let desk = DeskAsyncClient::from(DeskClient::bind(&address).unwrap());
    assert_eq!(block_on(desk.add(1, 2, ALONE)).unwrap(), 3);
    thread::sleep(Duration::from_millis(200));
    process.kill();
    let error = block_on(desk.add(1, 2, ALONE)).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::No), "{error}");
}

/// Futures and blocking threads share a binding, which has more frames than there are sockets for single
/// frames. So the threads and the futures receive for each other.
fn mixed_callers_all_get_results(address: &str, options: &BindOptions) {
    const THREADS: u64 = 20;
    const TASKS: u64 = 30;
    const ROUNDS: u64 = 100;
    for wait in [Wait::Block, Wait::Adaptive] {
        let desk = DeskClient::bind_with(address, &options.clone().wait(wait)).unwrap();
        let asynchronous = DeskAsyncClient::from(desk.clone());
        let bytes = |number: u64, round: u64| ((number * 977 + round * 131) % 5000) as usize;
        thread::scope(|scope| {
            for number in 0..THREADS {
                let desk = &desk;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let sent = vec![3; bytes(number, round)];
                        assert_eq!(desk.checksum(&sent).unwrap(), crc32c(&sent));
                        if round % 16 == 0 {
                            // During this pause, only the futures wait at the shared socket.
                            thread::sleep(Duration::from_millis(number % 3));
                        }
                    }
                });
            }
            // Two threads run futures, so that each receives for the futures of the other.
            for part in 0..2 {
                let asynchronous = &asynchronous;
                scope.spawn(move || {
                    let work = |number: u64| {
                        task(async move {
                            for round in 0..ROUNDS {
                                let number = number + 100 * part;
                                // Every second call may share a batch.
                                let alone = if round % 2 == 0 { ALONE } else { &[] };
                                let sum = asynchronous.add(number, round, alone).await.unwrap();
                                assert_eq!(sum, number + round);
                                let sent = vec![3; bytes(number, round)];
                                let checksum = asynchronous.checksum(&sent).await.unwrap();
                                assert_eq!(checksum, crc32c(&sent));
                            }
                        })
                    };
                    join((0..TASKS).map(work));
                });
            }
        });
    }
}

#[test]
fn futures_and_threads_share_a_binding() {
    let _home = home();
    let (_running, address) = serve(Server::new());
    mixed_callers_all_get_results(&address, &options());
}

/// A lost wake-up does not make a call fail: a timer makes the client probe the server, and then the future
/// finds the result. So this test counts the probes. Clients probe only after ten seconds.
#[test]
fn no_packet_waits_for_a_timer() {
    let _home = home();
    let (_running, address) = serve(Server::new());
    let relay = RunningRelay::new(&address);
    let options = options().ask_after(Duration::from_secs(10));
    mixed_callers_all_get_results(&relay.address, &options);
    relay.assert_few_questions();
}

/// A packet must wake the only future that sleeps at a socket. There are three cases: the socket of a frame,
/// the shared socket, and the shared socket while a thread receives there.
#[test]
fn packet_wakes_the_only_future_of_a_socket() {
    /// The number of frames with a separate socket.
    const OWN: u32 = 16;
    const ADDS: u64 = 50;
    let _home = home();
    let (_running, address) = serve(Server::new().threads(OWN as usize + 4));
    let relay = RunningRelay::new(&address);
    let options = options().ask_after(Duration::from_secs(10)).wait(Wait::Block);
    let blocking = DeskClient::bind_with(&relay.address, &options).unwrap();
    let observer = DeskClient::bind(&address).unwrap();
    let desk = DeskAsyncClient::from(blocking.clone());
    let adds = || async {
        for n in 0..ADDS {
            assert_eq!(desk.add(n, 1, ALONE).await.unwrap(), n + 1);
        }
    };
    block_on(adds());
    relay.assert_few_questions();
    let mut entered = 0;
    for threads in [0, 1] {
        let all = entered + OWN + threads + 1;
        let is_inside = |callers| observer.counts().unwrap().0 == callers;
        thread::scope(|scope| {
            let blocking = &blocking;
            // These calls occupy all frames with a separate socket.
            let meet = || task(async { desk.meet(all, ALONE).await.unwrap() });
            let mut tasks: Vec<_> = (0..OWN).map(|_| meet()).collect();
            tasks.push(task(async {
                when(|| is_inside(entered + OWN)).await;
                for _ in 0..threads {
                    scope.spawn(move || blocking.meet(all, ALONE).unwrap());
                }
                when(|| is_inside(all - 1)).await;
                adds().await;
                desk.meet(all, ALONE).await.unwrap();
            }));
            join(tasks);
        });
        entered = all;
        relay.assert_few_questions();
    }
}

/// The server forgets the handles of idle clients when many others bind. A pending call must then get a new
/// handle, as a blocking call does.
#[test]
fn pending_call_gets_a_new_handle_if_the_server_has_forgotten_the_old_one() {
    /// A server grants 4,096 handles to a host. After that, it examines 1,024 handles for each further
    /// client, and may find none that it can forget.
    const OTHERS: usize = 4800;
    let _home = home();
    let (_running, address) = serve(Server::new().threads(40));
    let desk = DeskClient::bind_with(&address, &options()).unwrap();
    let desk = DeskAsyncClient::from(desk);
    let meet = |until| {
        let meets = (0..40).map(|_| task(desk.meet(until, ALONE)));
        join(meets).into_iter().for_each(|met| met.unwrap());
    };
    meet(40);
    // The server forgets only records that have been idle for a second.
    let idle = || thread::sleep(Duration::from_millis(1200));
    idle();
    let others: Vec<_> = (0..OTHERS).filter_map(|_| DeskClient::bind(&address).ok()).collect();
    assert!(others.len() > 3000, "only {} clients could bind", others.len());
    idle();
    meet(80);
    assert_eq!(block_on(desk.add(1, 2, ALONE)).unwrap(), 3);
}
