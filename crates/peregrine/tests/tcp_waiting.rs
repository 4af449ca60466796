//! Calls over TCP that wait for others to end: how much memory a server takes for them, and that no
//! call waits for one that waits for it.

mod support;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Server, interface, limits};
use support::stream::{BOUND, CALL, REPLY, bind, header, hear};
use support::{Part, part, until};

/// For what must happen.
const LIMIT: Duration = Duration::from_secs(30);
/// Bytes of the argument of a large call.
const LARGE: usize = 1_000_000;

#[interface]
trait Work {
    fn put(&self, bytes: Vec<u8>) -> peregrine::Result<u64>;
    /// Takes its time.
    fn put_slowly(&self, #[max_len(4 << 20)] bytes: &[u8]) -> peregrine::Result<u64>;
    /// Waits until a file of this name is there.
    fn wait_for(&self, file: &str) -> peregrine::Result<()>;
    /// The same, and then has another server call this one with a large argument.
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

/// A server in a process of its own, which runs one procedure at a time.
#[test]
fn server() {
    let Some(_) = part() else { return };
    let directory = PathBuf::from(std::env::var_os("PEREGRINE_DIR").expect("set by the test"));
    let server = Server::new().threads(1).export("work", WorkServer::new(Object(directory)));
    let running = server.unwrap().listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    println!("\nready\n{}", running.addresses()[0]);
    running.wait();
}

/// The server's process, where it listens, and the address of its export.
fn start(directory: &Path) -> (Part, SocketAddr, String) {
    let mut server = Part::start("server", "", directory);
    let endpoint = server.line();
    let at = endpoint.strip_prefix("tcp:").unwrap().parse().unwrap();
    (server, at, format!("{endpoint}/work"))
}

/// Bytes of a process that are in memory.
fn resident(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

/// Sends a large call over a new connection, all of it, however long the server does not read it.
fn large_call(at: SocketAddr) -> TcpStream {
    let (mut stream, message) = unsent_call(at);
    stream.write_all(&message).unwrap();
    stream
}

/// A new connection, and a large call for it.
fn unsent_call(at: SocketAddr) -> (TcpStream, Vec<u8>) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream.write_all(&bind("work")).unwrap();
    let told = hear(&mut stream).expect("an answer");
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

/// What the calls of some connections were answered.
fn answers(streams: Vec<TcpStream>) -> Vec<u32> {
    let answer = |mut stream| {
        let told = hear(&mut stream).expect("an answer");
        assert_eq!((told.kind, told.words[0]), (REPLY, 1));
        told.words[2]
    };
    streams.into_iter().map(answer).collect()
}

/// The most memory that a process has within a while.
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
fn calls_that_wait_for_a_permit_have_a_bound_in_bytes() {
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
    // They have waited, those that were read and the others, and none was refused.
    assert_eq!(answers(streams), vec![0; CALLS]);
}

/// A client that stalls in the middle of a message keeps memory for which others wait. The time that it
/// has for the message is 10 seconds, and one more for each 16 KiB that have come.
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
    // Its limit is `LIMIT`, as all have; the permit is still taken.
    let ended = stalled.read(&mut [0; 64]);
    let ended = ended.map_err(|error| error.kind());
    assert!(matches!(ended, Ok(0) | Err(ErrorKind::ConnectionReset)), "{ended:?}");
    std::fs::write(directory.path().join("gate"), "").unwrap();
    busy.join().unwrap().unwrap();
    // The time of connections that the server does not read does not run.
    assert_eq!(answers(streams), vec![0; CALLS]);
}

/// More than a server takes for one host at a time, and for longer than a silent server is waited for.
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

/// A procedure waits for a nested call that needs memory, while calls that wait for the procedure
/// have taken all that there is for their host.
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
    // The server takes connections in the order in which something came over them: by the answer to one
    // more it has looked at all those messages, if only at their beginning.
    WorkClient::bind(&address).unwrap();
    std::fs::write(directory.path().join("go"), "").unwrap();
    assert_eq!(nests.join().unwrap().expect("a nested call that comes through"), LARGE as u64);
    // Calls that came before the procedure began to wait inside cannot be the one that it waits for:
    // they are held. Others that stood in the way may be refused, as not executed.
    let answers = answers(streams);
    let ran = answers.iter().filter(|answer| **answer == 0).count();
    let refused = answers.iter().filter(|answer| **answer == 2).count();
    println!("{ran} ran, {refused} were refused");
    assert!(ran >= CALLS / 10 * 9 && ran + refused == CALLS, "{answers:?}");
}
