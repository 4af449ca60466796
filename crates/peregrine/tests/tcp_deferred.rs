//! Tests deferred calls over TCP: calls of an async server whose procedures do not end at their first poll.
#![cfg(feature = "async")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use peregrine::{
    BindOptions, CallError, Executed, Executor, Kind, Lent, OnExhausted, Out, Running, Server,
    interface, limits,
};
use support::stream::{self, BOUND, CALL, REPLY, header, receive};
use support::{Process, role, until};

/// How long a test waits for an event that must happen.
const LIMIT: Duration = Duration::from_secs(20);

#[interface]
trait Work {
    /// Returns `number` when the gate is open.
    fn pass(&self, number: u64) -> peregrine::Result<u64>;
    /// Returns `number` at once.
    fn echo(&self, number: u64) -> peregrine::Result<u64>;
    /// Returns `bytes` bytes when the gate is open.
    fn read(&self, bytes: u32, seed: u64) -> peregrine::Result<Vec<u8>>;
    /// Returns `bytes` bytes at once.
    fn read_at_once(&self, bytes: u32, seed: u64) -> peregrine::Result<Vec<u8>>;
    /// Copies `from` to `into` when the gate is open. Doubles each of `values`.
    fn copy(
        &self,
        #[max_len(8 << 20)] from: Lent<'_, u8>,
        #[max_len(8 << 20)] into: Out<'_, u8>,
        values: &mut [u32],
    ) -> peregrine::Result<u64>;
    /// Panics when the gate is open.
    fn panics(&self) -> peregrine::Result<()>;
    /// Fails when the gate is open.
    fn fails(&self, number: u64) -> Result<u64, Failure>;
}

/// The error of a procedure.
#[derive(Debug, PartialEq, peregrine::Value)]
enum Failure {
    Number(u64),
    Call(String),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Call(error.to_string())
    }
}

/// A gate at which procedures wait until the gate is open. Counts the procedures.
#[derive(Default)]
struct Gate {
    open: AtomicBool,
    waits: Mutex<Vec<Waker>>,
    /// How many procedures have begun to wait.
    begun: AtomicUsize,
    /// How many of the procedures that began to wait have ended or were dropped.
    left: AtomicUsize,
}

/// A procedure that waits at a gate.
struct Waits<'a>(&'a Gate);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::SeqCst);
    }
}

impl Gate {
    async fn pass(&self) {
        let _waits = Waits(self);
        self.begun.fetch_add(1, Ordering::SeqCst);
        std::future::poll_fn(|context| {
            let mut waits = self.waits.lock().unwrap();
            if self.open.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            waits.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
        let waits = std::mem::take(&mut *self.waits.lock().unwrap());
        waits.into_iter().for_each(Waker::wake);
    }

    fn close(&self) {
        self.open.store(false, Ordering::SeqCst);
    }

    fn waiting(&self) -> usize {
        self.begun.load(Ordering::SeqCst) - self.left.load(Ordering::SeqCst)
    }

    #[track_caller]
    fn await_waiting(&self, count: usize) {
        until(&format!("{count} procedures wait"), || self.waiting() == count);
    }
}

fn bytes_of(bytes: u32, seed: u64) -> Vec<u8> {
    // The bytes repeat after this number. Copies take much less time than computing each byte.
    const PERIOD: u32 = 7 * 256;
    let first = (0..u64::from(bytes.min(PERIOD))).map(|at| (at * 31 / 7 + seed) as u8);
    let mut all = first.collect::<Vec<_>>().repeat(bytes.div_ceil(PERIOD) as usize);
    all.truncate(bytes as usize);
    all
}

struct Object(Arc<Gate>);

impl WorkAsync for Object {
    async fn pass(&self, number: u64) -> peregrine::Result<u64> {
        self.0.pass().await;
        Ok(number)
    }
    async fn echo(&self, number: u64) -> peregrine::Result<u64> {
        Ok(number)
    }
    async fn read(&self, bytes: u32, seed: u64) -> peregrine::Result<Vec<u8>> {
        self.0.pass().await;
        Ok(bytes_of(bytes, seed))
    }
    async fn read_at_once(&self, bytes: u32, seed: u64) -> peregrine::Result<Vec<u8>> {
        Ok(bytes_of(bytes, seed))
    }
    async fn copy(
        &self,
        from: Lent<'_, u8>,
        mut into: Out<'_, u8>,
        values: &mut [u32],
    ) -> peregrine::Result<u64> {
        self.0.pass().await;
        let mut bytes = vec![0; from.len()];
        from.copy_to(0, &mut bytes).expect("the buffer has arrived");
        into.put(&bytes).expect("the buffer is large enough");
        values.iter_mut().for_each(|value| *value *= 2);
        Ok(bytes.len() as u64)
    }
    async fn panics(&self) -> peregrine::Result<()> {
        self.0.pass().await;
        panic!("as the test wants");
    }
    async fn fails(&self, number: u64) -> Result<u64, Failure> {
        self.0.pass().await;
        Err(Failure::Number(number))
    }
}

/// A server in this process.
struct Target {
    gate: Arc<Gate>,
    running: Running,
    address: String,
    at: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Target {
    fn new(server: Server) -> Self {
        Self::with(server, |server| server)
    }

    fn with(
        server: Server,
        with: impl FnOnce(WorkAsyncServer<Object>) -> WorkAsyncServer<Object>,
    ) -> Self {
        let directory = support::own_directory();
        let gate = Arc::<Gate>::default();
        let object = with(WorkAsyncServer::new(Object(Arc::clone(&gate))));
        let server = server.export("work", object).unwrap();
        let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
        let endpoint = running.addresses()[0].to_string();
        let at = endpoint.strip_prefix("tcp:").unwrap().parse().unwrap();
        Self { gate, running, address: format!("{endpoint}/work"), at, _directory: directory }
    }

    fn client(&self) -> WorkClient {
        client(&self.address)
    }

    /// Connects and binds without the library. Returns the connection, and the number of the binding.
    fn connect(&self) -> (TcpStream, u32) {
        connect(self.at)
    }
}

fn client(address: &str) -> WorkClient {
    let options = BindOptions::default().astacks(400).on_exhausted(OnExhausted::More);
    WorkClient::bind_with(address, &options).unwrap()
}

fn connect(at: SocketAddr) -> (TcpStream, u32) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(&stream::bind("work")).unwrap();
    let told = receive(&mut stream).expect("an answer");
    assert_eq!(told.kind, BOUND, "{}", String::from_utf8_lossy(&told.body));
    (stream, u32::from_le_bytes(told.body[8..12].try_into().unwrap()))
}

/// The numbers of procedures.
const PASS: u32 = 0;
const READ: u32 = 2;

/// Returns the message of a call.
fn call(binding: u32, number: u32, procedure: u32, head: &[u8]) -> Vec<u8> {
    let length = head.len() as u32;
    let mut message = header(CALL, length, [number, binding, procedure, length, length, 0]);
    message.extend(head);
    message.resize(message.len().next_multiple_of(16), 0);
    message
}

fn pass(binding: u32, number: u32) -> Vec<u8> {
    call(binding, number, PASS, &u64::from(number).to_le_bytes())
}

/// Returns the message of a call of `read` for `bytes` bytes.
fn read(binding: u32, number: u32, bytes: u32) -> Vec<u8> {
    let head = [u64::from(bytes).to_le_bytes(), u64::from(number).to_le_bytes()].concat();
    call(binding, number, READ, &head)
}

/// Runs a server, or a client that makes calls, in a separate process.
#[test]
fn child() {
    match role().as_deref() {
        Some("server") => {
            let gate = Arc::<Gate>::default();
            let object = WorkAsyncServer::new(Object(Arc::clone(&gate)));
            let server = Server::new().threads(4).export("work", object).unwrap();
            let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
            println!("\nready\n{}", running.addresses()[0]);
            for line in std::io::stdin().lines() {
                match &*line.unwrap() {
                    "waiting" => println!("{}", gate.waiting()),
                    "open" => gate.open(),
                    _ => return,
                }
            }
        }
        Some(address) => {
            let client = client(address);
            std::thread::scope(|scope| {
                for number in 0..CALLS {
                    let client = &client;
                    scope.spawn(move || client.pass(number as u64));
                }
            });
        }
        None => {}
    }
}

/// The number of calls that wait at the same time.
const CALLS: usize = 300;

/// Starts a server in a separate process. Returns the process, and the address of its socket.
fn server(directory: &std::path::Path) -> (Process, SocketAddr) {
    let mut server = Process::start("child", "server", directory);
    let at = server.line().strip_prefix("tcp:").unwrap().parse().unwrap();
    (server, at)
}

#[track_caller]
fn await_waiting(server: &mut Process, count: usize) {
    until(&format!("{count} procedures wait"), || {
        server.write_line("waiting");
        server.line().parse::<usize>().unwrap() == count
    });
}

#[test]
fn waiting_calls_occupy_no_threads() {
    let _alone = support::alone();
    let directory = support::own_directory();
    let (mut server, at) = server(directory.path());
    let client = client(&format!("tcp:{at}/work"));
    std::thread::scope(|scope| {
        let calls = (0..CALLS as u64).map(|number| {
            let client = &client;
            scope.spawn(move || assert_eq!(client.pass(number).unwrap(), number))
        });
        let calls: Vec<_> = calls.collect();
        await_waiting(&mut server, CALLS);
        // At most four procedures run at a time, and a few threads read connections.
        let threads = std::fs::read_dir(format!("/proc/{}/task", server.id())).unwrap().count();
        assert!(threads < 40, "{threads} threads");
        // Other calls are served meanwhile.
        assert_eq!(client.echo(7).unwrap(), 7);
        server.write_line("open");
        calls.into_iter().for_each(|call| call.join().unwrap());
    });
    await_waiting(&mut server, 0);
}

#[test]
fn deadline_of_the_caller_drops_the_procedure() {
    let _alone = support::alone();
    let target = Target::new(Server::new());
    let client = target.client();
    let hasty = client.with_timeout(Duration::from_millis(50));
    let error = hasty.pass(1).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe), "{error}");
    until("the procedure is dropped", || target.gate.left.load(Ordering::SeqCst) == 1);
    assert_eq!(client.echo(2).unwrap(), 2);
}

#[test]
fn cancelled_call_drops_the_procedure_and_gets_a_reply() {
    let _alone = support::alone();
    let target = Target::new(Server::new());
    let (mut stream, binding) = target.connect();
    stream.write_all(&[pass(binding, 1), pass(binding, 2)].concat()).unwrap();
    target.gate.await_waiting(2);
    stream.write_all(&stream::abandon(1)).unwrap();
    let told = receive(&mut stream).expect("a reply");
    assert_eq!(
        (told.kind, told.words[0], told.words[2]),
        (REPLY, 1, 3),
        "the answer should be `may have executed`"
    );
    assert!(String::from_utf8_lossy(&told.body).contains("given up"));
    assert_eq!(target.gate.waiting(), 1);
    // These calls may be given up before their first poll has ended. They must be cancelled, too.
    for number in 3..40 {
        let messages = [pass(binding, number), stream::abandon(number)].concat();
        messages.chunks(16).for_each(|part| stream.write_all(part).unwrap());
        let told = receive(&mut stream).expect("a reply");
        assert_eq!((told.kind, told.words[0]), (REPLY, number));
        assert!([2, 3].contains(&told.words[2]), "{}", told.words[2]);
    }
    target.gate.open();
    let told = receive(&mut stream).expect("a reply");
    assert_eq!((told.kind, told.words[0], told.words[2]), (REPLY, 2, 0));
    assert_eq!(told.body, 2u64.to_le_bytes());
}

#[test]
fn end_of_a_connection_drops_its_procedures() {
    let _alone = support::alone();
    let target = Target::new(Server::new());
    let mut process = Process::launch("child", &target.address, target._directory.path());
    target.gate.await_waiting(CALLS);
    let (mut stream, binding) = target.connect();
    stream.write_all(&pass(binding, 1)).unwrap();
    target.gate.await_waiting(CALLS + 1);
    process.kill();
    target.gate.await_waiting(1);
    drop(stream);
    target.gate.await_waiting(0);
    assert_eq!(target.client().echo(3).unwrap(), 3);
}

/// Waits until the server refuses new calls.
#[track_caller]
fn await_stopping(client: &WorkClient) {
    until("the server is stopping", || {
        client.echo(0).is_err_and(|error| error.executed() == Executed::No)
    });
}

#[test]
fn draining_server_waits_for_deferred_calls() {
    let _alone = support::alone();
    let target = Target::new(Server::new());
    let client = target.client();
    std::thread::scope(|scope| {
        let calls = [1, 2].map(|number| {
            let client = &client;
            scope.spawn(move || assert_eq!(client.pass(number).unwrap(), number))
        });
        target.gate.await_waiting(2);
        let running = target.running;
        let drains = scope.spawn(move || running.drain(LIMIT));
        await_stopping(&client);
        assert_eq!(target.gate.waiting(), 2);
        target.gate.open();
        assert!(drains.join().unwrap(), "calls still ran at the end of the drain");
        calls.into_iter().for_each(|call| call.join().unwrap());
    });
    // The server has said goodbye, so a call is certainly not executed.
    assert_eq!(client.echo(1).unwrap_err().executed(), Executed::No);
}

#[test]
fn end_of_a_drain_drops_deferred_procedures() {
    let _alone = support::alone();
    let target = Target::new(Server::new());
    let client = target.client();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| client.pass(1).unwrap_err());
        target.gate.await_waiting(1);
        assert!(!target.running.drain(Duration::from_millis(10)));
        assert_eq!(target.gate.waiting(), 0, "the drain should drop the procedure");
        let error = call.join().unwrap();
        assert_eq!(error.executed(), Executed::Maybe, "{error}");
    });
}

#[test]
fn panic_and_errors_of_deferred_procedures_reach_their_callers() {
    let _alone = support::alone();
    let target = Target::new(Server::new());
    let client = target.client();
    let target = &target;
    std::thread::scope(|scope| {
        let panics = scope.spawn(|| client.panics().unwrap_err());
        let fails = scope.spawn(|| client.fails(9).unwrap_err());
        let too_large = scope.spawn(|| client.read(17 << 20, 1).unwrap_err());
        target.gate.await_waiting(3);
        target.gate.open();
        let error = panics.join().unwrap();
        assert_eq!((error.kind(), error.executed()), (Kind::Panicked, Executed::Maybe), "{error}");
        assert!(error.to_string().contains("as the test wants"), "{error}");
        assert_eq!(fails.join().unwrap(), Failure::Number(9));
        let error = too_large.join().unwrap();
        assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::Maybe), "{error}");
    });
    // A call that is refused before its procedure begins is not deferred.
    let (mut stream, binding) = target.connect();
    stream.write_all(&call(binding, 1, PASS, &[0; 3])).unwrap();
    let told = receive(&mut stream).expect("a reply");
    assert_eq!((told.kind, told.words[0], told.words[2]), (REPLY, 1, 2), "not executed");
    assert_eq!(client.pass(3).unwrap(), 3);
}

/// A deferred procedure after its first poll.
type Polls = Pin<Box<dyn Future<Output = ()> + Send>>;

#[test]
fn deferred_calls_are_counted() {
    let _alone = support::alone();
    let target = Target::new(Server::new());
    let client = target.client();
    client.with_timeout(Duration::from_millis(20)).pass(1).unwrap_err();
    let counts = || {
        let told = peregrine::stat(&target.address).unwrap();
        told.export("work").expect("the export").counts
    };
    // Before the gate opens, the server must have learnt that the call was given up.
    until("the call has failed", || counts().failed == 1);
    target.gate.open();
    (0..3).for_each(|number| assert_eq!(client.pass(number).unwrap(), number));
    client.panics().unwrap_err();
    target.gate.close();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| client.read(1000, 1).unwrap());
        target.gate.await_waiting(1);
        target.gate.open();
        assert_eq!(call.join().unwrap().len(), 1000);
    });
    until("all calls are counted", || {
        let counts = counts();
        let [bytes_in, bytes_out] = [counts.bytes_in, counts.bytes_out];
        println!("{counts:?}");
        // The call that was given up, and the call that panicked, have failed.
        [counts.calls, counts.in_flight, counts.failed, counts.refused] == [6, 0, 2, 0]
            && bytes_in == 4 * 8 + 16
            && bytes_out >= 3 * 8 + 1004
    });
}

/// An executor that keeps futures instead of running them.
#[derive(Clone, Default)]
struct Keeps(Arc<Mutex<Vec<Polls>>>);

impl Executor for Keeps {
    fn spawn(&self, future: Polls) {
        self.0.lock().unwrap().push(future);
    }
}

/// An executor that drops all futures except the first one. The first future is not a procedure: by this
/// future, the server notices when the executor ends.
#[derive(Default)]
struct DropsProcedures(Mutex<Option<Polls>>);

impl Executor for DropsProcedures {
    fn spawn(&self, future: Polls) {
        self.0.lock().unwrap().get_or_insert(future);
    }
}

/// An executor that drops all futures, like an executor that has shut down.
struct DropsAll;

impl Executor for DropsAll {
    fn spawn(&self, _: Polls) {}
}

#[test]
fn call_fails_if_its_executor_drops_it() {
    let _alone = support::alone();
    let target = |executor: &dyn Fn(WorkAsyncServer<Object>) -> WorkAsyncServer<Object>| {
        Target::with(Server::new(), executor)
    };
    let fails = |target: &Target, ends: &dyn Fn()| {
        let client = target.client();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| client.pass(1).unwrap_err());
            ends();
            let error = call.join().unwrap();
            let outcome = (error.kind(), error.executed());
            assert_eq!(outcome, (Kind::Withdrawn, Executed::Maybe), "{error}");
        });
        assert_eq!((target.gate.waiting(), client.echo(2).unwrap()), (0, 2));
    };

    // The executor drops the procedure when the procedure is woken.
    let woken = target(&|server| server.with_executor(DropsProcedures::default()));
    fails(&woken, &|| {
        woken.gate.await_waiting(1);
        woken.gate.open();
    });

    // The executor drops the procedure later.
    let keeps = Keeps::default();
    let kept = target(&|server| server.with_executor(keeps.clone()));
    fails(&kept, &|| {
        kept.gate.await_waiting(1);
        kept.gate.open();
        until("the executor has the procedure", || keeps.0.lock().unwrap().len() == 2);
        assert_eq!(kept.gate.waiting(), 1);
        let dropped = std::mem::take(&mut *keeps.0.lock().unwrap());
        drop(dropped);
    });

    // No executor runs the procedure. The call fails although nothing wakes the procedure.
    fails(&target(&|server| server.with_executor(DropsAll)), &|| ());
}

#[test]
fn large_results_and_buffers_arrive_intact() {
    let _alone = support::alone();
    let target = Target::new(Server::new());
    let client = target.client();
    let from = bytes_of(5 << 20, 3);
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let (client, from) = (&client, &from);
            scope.spawn(move || {
                let bytes = (8 << 20) + seed as u32;
                assert!(client.read(bytes, seed).unwrap() == bytes_of(bytes, seed));
            });
            scope.spawn(move || {
                // The procedure fills only a part of the buffer.
                let (mut into, mut values) = (Vec::with_capacity(7 << 20), [1, 2, 3]);
                let lent = Lent::from(&from[..]);
                let copied = client.copy(lent, Out::from(&mut into), &mut values).unwrap();
                assert_eq!((copied, values), (from.len() as u64, [2, 4, 6]));
                assert!(into == *from);
            });
        }
        target.gate.await_waiting(12);
        target.gate.open();
    });
}

/// Deferred replies are sent by the threads of an executor, and all other replies by the threads of the
/// server. No reply may be sent in the middle of another reply.
#[test]
fn replies_of_both_kinds_share_a_connection() {
    let _alone = support::alone();
    let target = Target::new(Server::new());
    let client = target.client();
    std::thread::scope(|scope| {
        for thread in 0..24 {
            let (client, gate) = (&client, &target.gate);
            scope.spawn(move || {
                for round in 0..30 {
                    let seed = thread * 100 + round;
                    let bytes = [10, 5000, 400_000, 2 << 20][(seed * 7 % 13 % 4) as usize];
                    let read = match thread % 3 {
                        0 => client.read_at_once(bytes, seed),
                        _ => client.read(bytes, seed),
                    };
                    assert!(read.unwrap() == bytes_of(bytes, seed), "{thread} {round}");
                    if round % 5 == thread % 5 {
                        gate.close();
                    }
                    if thread == 0 || round % 2 == 0 {
                        gate.open();
                    }
                }
            });
        }
        let opens = || target.gate.open();
        until("all calls have ended", || {
            opens();
            target.gate.begun.load(Ordering::SeqCst) == 16 * 30 && target.gate.waiting() == 0
        });
    });
}

/// Returns the number of bytes that the other side sends until it closes the connection.
fn read_to_end(stream: &mut TcpStream) -> usize {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let (mut chunk, mut bytes) = (vec![0; 1 << 20], 0);
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return bytes,
            Ok(more) => bytes += more,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                return bytes;
            }
        }
    }
}

#[test]
fn client_that_reads_no_replies_is_disconnected_and_others_are_served() {
    const CALLS: u32 = 100;
    const BYTES: u32 = 30_000;
    let _alone = support::alone();
    let target = Target::new(Server::new().threads(2));
    let client = target.client();
    // Each of these clients keeps a thread of the server waiting. There are more such clients than threads.
    let mut deaf: Vec<_> = (0..30).map(|_| target.connect()).collect();
    for (stream, binding) in &mut deaf {
        // The results do not fit the buffers of the kernel.
        rustix::net::sockopt::set_socket_recv_buffer_size(&*stream, 4096).unwrap();
        let calls = (1..=CALLS).map(|number| read(*binding, number, BYTES));
        stream.write_all(&calls.collect::<Vec<_>>().concat()).unwrap();
    }
    target.gate.await_waiting(deaf.len() * CALLS as usize);
    target.gate.open();
    for number in 0..200 {
        assert_eq!(client.pass(number).unwrap(), number);
        assert_eq!(client.read(100_000, number).unwrap(), bytes_of(100_000, number));
    }
    target.gate.await_waiting(0);
    let bindings = || peregrine::describe(&target.address).unwrap().bindings;
    // The server closes the connections one after the other, so each wait of the test has its own limit.
    for most in [20, 10, 1] {
        until("the server has closed the other connections", || bindings() <= most);
    }
    for (stream, _) in &mut deaf {
        let read = read_to_end(stream);
        assert!(read < (CALLS * BYTES) as usize, "all {read} bytes arrived");
    }
    assert_eq!(client.pass(3).unwrap(), 3);
}

/// Returns the resident memory of a process in bytes.
fn resident(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn results_that_a_client_does_not_read_are_bounded_in_bytes() {
    const CALLS: u32 = 600;
    const BYTES: u32 = 1_000_000;
    let _alone = support::alone();
    let directory = support::own_directory();
    let (mut server, at) = server(directory.path());
    let (mut stream, binding) = connect(at);
    let calls = (1..=CALLS).map(|number| read(binding, number, BYTES));
    stream.write_all(&calls.collect::<Vec<_>>().concat()).unwrap();
    await_waiting(&mut server, CALLS as usize);
    let before = resident(server.id());
    server.write_line("open");
    await_waiting(&mut server, 0);
    let grown = resident(server.id()).saturating_sub(before);
    assert!(grown < limits::UNSENT_BYTES_PER_HOST + (64 << 20), "{grown} bytes");
    // The client gets a reply to each call. Some of the replies are refusals.
    let mut refused = 0;
    let mut numbers: Vec<_> = (1..=CALLS)
        .map(|_| {
            let told = receive(&mut stream).expect("a reply");
            assert_eq!(told.kind, REPLY);
            match told.words[2] {
                0 => assert_eq!(told.body.len(), 4 + BYTES as usize),
                answer => {
                    assert_eq!(answer, 3, "the answer should be `may have executed`");
                    refused += 1;
                }
            }
            told.words[0]
        })
        .collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=CALLS));
    println!("{refused} of {CALLS} results were refused");
    assert!(refused > 0 && refused < CALLS);
}

/// A client may violate the protocol and have more calls in flight than any binding allows. It may also use
/// the number of a call again before it has the reply.
#[test]
fn deferred_calls_of_a_connection_are_bounded() {
    const MORE: usize = 300;
    /// The largest number of calls that the server has received, but whose procedures do not wait at the gate
    /// yet.
    const THREADS: usize = 32;
    let _alone = support::alone();
    let target = Target::new(Server::new().threads(2));
    let most = limits::ASTACKS_MAX as usize;
    let (mut stream, binding) = target.connect();
    let calls = (1..=most + MORE).map(|number| pass(binding, number as u32));
    stream.write_all(&calls.collect::<Vec<_>>().concat()).unwrap();
    until("many calls are deferred", || target.gate.waiting() >= most - THREADS);
    // The calls beyond the limit occupy the only two threads that may run procedures. Other clients can still
    // bind.
    let client = target.client();
    drop(stream);
    target.gate.await_waiting(0);
    let begun = target.gate.begun.load(Ordering::SeqCst);
    assert!(begun <= most + 2, "{begun} procedures began");
    assert_eq!(client.echo(1).unwrap(), 1);
    let (mut stream, binding) = target.connect();
    stream.write_all(&[pass(binding, 1), pass(binding, 1)].concat()).unwrap();
    target.gate.await_waiting(2);
    stream.write_all(&stream::abandon(1)).unwrap();
    target.gate.await_waiting(0);
    for _ in 0..2 {
        let told = receive(&mut stream).expect("a reply");
        assert_eq!((told.kind, told.words[0], told.words[2]), (REPLY, 1, 3));
    }
    assert_eq!(target.client().echo(2).unwrap(), 2);
}
