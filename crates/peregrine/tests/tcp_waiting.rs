//! Tests calls over TCP that wait for other calls to end. The server must bound the memory that the waiting
//! calls occupy. No deadlock may occur.

mod support;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Server, interface, limits};
use support::stream::{BOUND, CALL, REPLY, bind, header, receive};
use support::{Process, role, until};

/// How long a test waits for an event that must happen.
const LIMIT: Duration = Duration::from_secs(30);
/// The size in bytes of the argument of a large call.
const LARGE: usize = 1_000_000;

#[interface]
trait Work {
    fn put(&self, bytes: Vec<u8>) -> peregrine::Result<u64>;
    /// Runs for 100 ms.
    fn put_slowly(&self, #[max_len(4 << 20)] bytes: &[u8]) -> peregrine::Result<u64>;
    /// Waits until the file `file` exists.
    fn wait_for(&self, file: &str) -> peregrine::Result<()>;
    /// Waits until the file `file` exists. Then calls the server at the address `by`. That server calls this
    /// server back, at the address `own`, with a large argument.
    fn wait_and_nest(&self, file: &str, by: &str, own: &str) -> peregrine::Result<u64>;
    /// Calls the server at `back` with a large argument.
    fn call_back(&self, back: &str) -> peregrine::Result<u64>;
}

const PUT: u32 = 0;

struct Object(PathBuf);

impl Object {
    fn wait(&self, file: &str) {
        std::fs::write(self.0.join(format!("{file}.waits")), "").unwrap();
        let begun = Instant::now();
        while !self.0.join(file).exists() && begun.elapsed() < 2 * LIMIT {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Work for Object {
    fn put(&self, bytes: Vec<u8>) -> peregrine::Result<u64> {
        Ok(bytes.len() as u64)
    }
    fn put_slowly(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        std::thread::sleep(Duration::from_millis(100));
        Ok(bytes.len() as u64)
    }
    fn wait_for(&self, file: &str) -> peregrine::Result<()> {
        self.wait(file);
        Ok(())
    }
    fn wait_and_nest(&self, file: &str, by: &str, own: &str) -> peregrine::Result<u64> {
        self.wait(file);
        WorkClient::bind(by)?.call_back(own)
    }
    fn call_back(&self, back: &str) -> peregrine::Result<u64> {
        WorkClient::bind(back)?.put(vec![5; LARGE])
    }
}

/// Runs a server in a separate process. The server runs one procedure at a time.
#[test]
fn server() {
    let Some(_) = role() else { return };
    let directory = PathBuf::from(std::env::var_os("PEREGRINE_DIR").expect("set by the test"));
    let server = Server::new().threads(1).export("work", WorkServer::new(Object(directory)));
    let running = server.unwrap().listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    println!("\nready\n{}", running.addresses()[0]);
    running.wait();
}

/// Starts the server process. Returns the process, the address of its socket, and the address of its export.
fn start(directory: &Path) -> (Process, SocketAddr, String) {
    let mut server = Process::start("server", "", directory);
    let endpoint = server.line();
    let at = endpoint.strip_prefix("tcp:").unwrap().parse().unwrap();
    (server, at, format!("{endpoint}/work"))
}

/// Returns the resident memory of a process in bytes.
fn resident(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

/// Sends a large call completely over a new connection, however long the server takes to read it.
fn large_call(at: SocketAddr) -> TcpStream {
    let (mut stream, message) = unsent_call(at);
    stream.write_all(&message).unwrap();
    stream
}

/// Returns a new connection, and the bytes of a large call that has not been sent yet.
fn unsent_call(at: SocketAddr) -> (TcpStream, Vec<u8>) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream.write_all(&bind("work")).unwrap();
    let told = receive(&mut stream).expect("an answer");
    assert_eq!(told.kind, BOUND, "{}", String::from_utf8_lossy(&told.body));
    let binding = u32::from_le_bytes(told.body[8..12].try_into().unwrap());
    let mut body = (LARGE as u32).to_le_bytes().to_vec();
    body.resize(4 + LARGE, 9);
    let length = body.len() as u32;
    let mut message = header(CALL, length, [1, binding, PUT, length, length, 0]);
    message.extend(&body);
    message.resize(message.len().next_multiple_of(16), 0);
    (stream, message)
}

/// Returns the status of the reply on each connection.
fn answers(streams: Vec<TcpStream>) -> Vec<u32> {
    let answer = |mut stream| {
        let told = receive(&mut stream).expect("an answer");
        assert_eq!((told.kind, told.words[0]), (REPLY, 1));
        told.words[2]
    };
    streams.into_iter().map(answer).collect()
}

/// Returns the largest resident memory of a process during a time of `within`.
fn most_resident(process: u32, within: Duration) -> usize {
    let begun = Instant::now();
    let mut most = 0;
    while begun.elapsed() < within {
        most = most.max(resident(process));
        std::thread::sleep(Duration::from_millis(10));
    }
    most
}

#[test]
fn calls_waiting_for_a_permit_are_bounded_in_bytes() {
    const CALLS: usize = 240;
    let _alone = support::alone();
    let directory = support::own_directory();
    let (server, at, address) = start(directory.path());
    let client = WorkClient::bind(&address).unwrap();
    let busy = std::thread::spawn(move || client.wait_for("gate"));
    until("the only permit is taken", || directory.path().join("gate.waits").exists());
    let before = resident(server.id());
    let streams: Vec<_> = (0..CALLS).map(|_| large_call(at)).collect();
    let grown = most_resident(server.id(), Duration::from_secs(1)).saturating_sub(before);
    println!("{} MB for {CALLS} calls of 1 MB", grown >> 20);
    assert!(grown < limits::PARTIAL_BYTES_PER_HOST + (48 << 20), "{grown} bytes");
    std::fs::write(directory.path().join("gate"), "").unwrap();
    busy.join().unwrap().unwrap();
    // All calls had to wait. The server had read some of them, but not others. None was refused.
    assert_eq!(answers(streams), vec![0; CALLS]);
}

/// A connection that stalls in the middle of a message occupies memory, for which other connections wait. The
/// server closes such a connection after 10 seconds, plus one second for each 16 KiB that have arrived on it.
#[test]
fn stalled_message_is_closed_while_others_wait_for_memory() {
    const CALLS: usize = 150;
    let _alone = support::alone();
    let directory = support::own_directory();
    let (server, at, address) = start(directory.path());
    let client = WorkClient::bind(&address).unwrap();
    let busy = std::thread::spawn(move || client.wait_for("gate"));
    until("the only permit is taken", || directory.path().join("gate.waits").exists());
    let (mut stalled, message) = unsent_call(at);
    stalled.write_all(&message[..20_000]).unwrap();
    let before = resident(server.id());
    let streams: Vec<_> = (0..CALLS).map(|_| large_call(at)).collect();
    until("calls that wait have taken their share", || {
        resident(server.id()).saturating_sub(before) > limits::PARTIAL_BYTES_PER_HOST / 4 * 3
    });
    // The read succeeds only if the server closes the connection within `LIMIT`. Until then, the only permit
    // to run a procedure is taken.
    let ended = stalled.read(&mut [0; 64]);
    let ended = ended.map_err(|error| error.kind());
    assert!(matches!(ended, Ok(0) | Err(ErrorKind::ConnectionReset)), "{ended:?}");
    std::fs::write(directory.path().join("gate"), "").unwrap();
    busy.join().unwrap().unwrap();
    // While the server does not read a connection, the time limit of that connection does not run.
    assert_eq!(answers(streams), vec![0; CALLS]);
}

/// The calls need more memory than the server grants to one host. Some calls wait for longer than a client
/// waits for a silent server, and must still succeed.
#[test]
fn large_calls_of_one_client_wait_for_each_other() {
    const CALLERS: usize = 30;
    let _alone = support::alone();
    let directory = support::own_directory();
    let (_server, _, address) = start(directory.path());
    let options = BindOptions::default().astacks(CALLERS as u32);
    let client = WorkClient::bind_with(&address, &options).unwrap();
    let bytes = &vec![7; 4 << 20];
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| assert_eq!(client.put_slowly(bytes).unwrap(), bytes.len() as u64));
        }
    });
    println!("{:?}", begun.elapsed());
}

/// A procedure makes a nested call, which needs memory. At the same time, other calls wait for this procedure
/// to end, and occupy all the memory that the server grants to their host.
#[test]
fn nested_call_does_not_wait_for_memory_of_calls_that_wait_for_it() {
    const CALLS: usize = 150;
    let _alone = support::alone();
    let directory = support::own_directory();
    let (server, at, address) = start(directory.path());
    let elsewhere = tempfile::tempdir().unwrap();
    let (_other, _, by) = start(elsewhere.path());
    let nests = WorkClient::bind(&address).unwrap().with_timeout(LIMIT);
    let own = address.clone();
    let nests = std::thread::spawn(move || nests.wait_and_nest("go", &by, &own));
    until("the only permit is taken", || directory.path().join("go.waits").exists());
    let before = resident(server.id());
    let streams: Vec<_> = (0..CALLS).map(|_| large_call(at)).collect();
    let share = limits::PARTIAL_BYTES_PER_HOST;
    until("calls that wait have taken their share", || {
        resident(server.id()).saturating_sub(before) > share / 4 * 3
    });
    // The server reads connections in the order in which their data arrived. So when it answers one more
    // connection, it has read at least the beginning of each large call.
    WorkClient::bind(&address).unwrap();
    std::fs::write(directory.path().join("go"), "").unwrap();
    assert_eq!(nests.join().unwrap().expect("a nested call that succeeds"), LARGE as u64);
    // The server never refuses a message that arrived before the procedure began its nested call, because
    // such a message cannot be the nested call. A later message may be the nested call, so the server may
    // receive it beyond the host's share. If the later message is another call that would have to wait, the
    // server refuses that call as not executed.
    let answers = answers(streams);
    let ran = answers.iter().filter(|answer| **answer == 0).count();
    let refused = answers.iter().filter(|answer| **answer == 2).count();
    println!("{ran} ran, {refused} were refused");
    assert!(ran >= CALLS / 10 * 9 && ran + refused == CALLS, "{answers:?}");
}
