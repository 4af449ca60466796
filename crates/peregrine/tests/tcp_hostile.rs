//! Tests connections that violate the protocol. The server must still answer honest clients.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Executed, Kind, Rebind, Running, Server, interface, limits};
use support::stream::{self, BIND, BOUND, CALL, REFUSED, REPLY, bind, header, receive};

#[interface]
trait Echo {
    fn echo(&self, bytes: Vec<u8>) -> peregrine::Result<Vec<u8>>;
    /// Returns when two calls of this procedure run at the same time.
    fn meet(&self) -> peregrine::Result<()>;
}

struct Same;

static MEET: std::sync::Barrier = std::sync::Barrier::new(2);

impl Echo for Same {
    fn echo(&self, bytes: Vec<u8>) -> peregrine::Result<Vec<u8>> {
        Ok(bytes)
    }
    fn meet(&self) -> peregrine::Result<()> {
        MEET.wait();
        Ok(())
    }
}

/// A pseudo-random number generator (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// How long a test waits for an event that must happen.
const LIMIT: Duration = Duration::from_secs(20);

/// Returns the message of a call of `echo` with an argument of `bytes` bytes.
fn call(binding: u32, number: u32, bytes: usize) -> Vec<u8> {
    let mut body = (bytes as u32).to_le_bytes().to_vec();
    body.resize(4 + bytes, 9);
    let length = body.len() as u32;
    let mut message = header(CALL, length, [number, binding, 0, length, length, 0]);
    message.extend(&body);
    message.resize(message.len().next_multiple_of(16), 0);
    message
}

struct Target {
    running: Running,
    at: SocketAddr,
    address: String,
    _directory: tempfile::TempDir,
}

impl Target {
    fn new(server: Server) -> Self {
        let directory = support::own_directory();
        let server = server.export("echo", EchoServer::new(Same)).unwrap();
        let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
        let endpoint = running.addresses()[0].to_string();
        let at = endpoint.strip_prefix("tcp:").unwrap().parse().unwrap();
        Self { running, at, address: format!("{endpoint}/echo"), _directory: directory }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at).unwrap()
    }

    fn bound(&self) -> (TcpStream, u32) {
        let mut stream = self.connect();
        stream.write_all(&bind("echo")).unwrap();
        let told = receive(&mut stream).expect("an answer");
        assert_eq!(
            (told.kind, told.words[0]),
            (BOUND, 7),
            "{}",
            String::from_utf8_lossy(&told.body)
        );
        (stream, u32::from_le_bytes(told.body[8..12].try_into().unwrap()))
    }

    /// Checks that the server answers an honest client without waiting for other clients.
    #[track_caller]
    fn serves(&self) {
        let begun = Instant::now();
        let options = BindOptions::default().timeout(LIMIT).bind_timeout(LIMIT);
        let echo = EchoClient::bind_with(&self.address, &options).unwrap();
        assert_eq!(echo.echo(vec![7; 5000]).unwrap(), vec![7; 5000]);
        assert!(begun.elapsed() < 2 * LIMIT, "{:?}", begun.elapsed());
    }
}

/// Returns whether the other side closes the connection within [`LIMIT`].
fn closes(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn invalid_message_closes_only_its_connection() {
    let _alone = support::alone();
    let target = Target::new(Server::new());
    let mut random = Random(7);
    let (mut honest, binding) = target.bound();
    for round in 0..200 {
        let mut stream = target.connect();
        let bytes: Vec<u8> = (0..random.next() % 300).map(|_| random.next() as u8).collect();
        let _ = stream.write_all(&bytes);
        if round % 3 == 0 {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
    let mut http = target.connect();
    http.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(closes(&mut http));
    // Send valid messages in which some bytes are corrupted.
    for _ in 0..300 {
        let (mut stream, binding) = target.bound();
        let mut message = call(binding, 3, 100);
        for _ in 0..1 + random.next() % 3 {
            let at = random.next() as usize % 48;
            message[at] = random.next() as u8;
        }
        let _ = stream.write_all(&message);
    }
    honest.write_all(&call(binding, 5, 10)).unwrap();
    let told = receive(&mut honest).unwrap();
    assert_eq!((told.kind, told.words[0], told.words[2]), (REPLY, 5, 0));
    target.serves();
}

#[test]
fn calls_received_together_run_concurrently() {
    let _alone = support::alone();
    let target = Target::new(Server::new());
    let (mut stream, binding) = target.bound();
    for round in 0..20 {
        // The server receives both calls at once. The first call ends only when the second call runs, too.
        let calls = [2 * round + 1, 2 * round + 2];
        let messages = calls.map(|number| header(CALL, 0, [number, binding, 1, 0, 0, 0]));
        stream.write_all(&messages.concat()).unwrap();
        let mut told = calls.map(|_| {
            let told = receive(&mut stream).expect("a reply in time");
            assert_eq!((told.kind, told.words[2]), (REPLY, 0));
            told.words[0]
        });
        told.sort_unstable();
        assert_eq!(told, calls);
    }
}

#[test]
fn client_of_another_version_is_refused() {
    let _alone = support::alone();
    let target = Target::new(Server::new());
    let mut stream = target.connect();
    let mut message = bind("echo");
    message[5] = 9;
    stream.write_all(&message).unwrap();
    let told = receive(&mut stream).unwrap();
    assert_eq!((told.kind, told.words[0]), (REFUSED, 0));
    let text = String::from_utf8_lossy(&told.body);
    assert!(text.contains("version 9"), "{text}");
    assert!(closes(&mut stream));
}

#[test]
fn announced_lengths_are_not_trusted() {
    let _alone = support::alone();
    let target = Target::new(Server::new());
    let (mut stream, binding) = target.bound();
    // A call above the size limit is refused, and the server discards its bytes.
    let mut large = call(binding, 1, 3 << 20);
    large.extend(call(binding, 2, 10));
    stream.write_all(&large).unwrap();
    let told = receive(&mut stream).unwrap();
    assert_eq!((told.kind, told.words[0], told.words[2]), (REPLY, 1, 2), "not executed");
    let told = receive(&mut stream).unwrap();
    assert_eq!((told.kind, told.words[0], told.words[2]), (REPLY, 2, 0));
    // These messages have a head or blocks that lie outside the message, or an invalid binding.
    for (at, what) in [(20, u32::MAX), (24, u32::MAX), (20, 4000), (12, 77)] {
        let mut message = call(binding, 3, 100);
        message[at..at + 4].copy_from_slice(&what.to_le_bytes());
        stream.write_all(&message).unwrap();
        let told = receive(&mut stream).unwrap();
        assert_eq!((told.kind, told.words[0], told.words[2]), (REPLY, 3, 2), "{at}");
    }
    let memory = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096
    };
    // A call that announces 4 GiB is refused before its body arrives. The server closes the connection if a
    // bind request announces 4 GiB, or if a call announces 4 GiB of extensions.
    let before = memory();
    let refused: Vec<_> = (0..100)
        .map(|_| {
            let (mut stream, binding) = target.bound();
            let words = [1, binding, 0, u32::MAX, u32::MAX, 0];
            stream.write_all(&header(CALL, u32::MAX, words)).unwrap();
            let told = receive(&mut stream).expect("a reply before the body is sent");
            assert_eq!((told.kind, told.words[0], told.words[2]), (REPLY, 1, 2), "not executed");
            stream
        })
        .collect();
    for (kind, extensions) in [(BIND, 0), (CALL, u32::MAX)] {
        let (mut stream, binding) = target.bound();
        let body = if kind == BIND { u32::MAX } else { 0 };
        stream.write_all(&header(kind, body, [1, binding, 0, 0, 0, extensions])).unwrap();
        assert!(closes(&mut stream), "kind {kind}");
    }
    // Each of many connections announces a body of almost 1 MiB, but sends only 32 bytes of the body.
    let many: Vec<_> = (0..100)
        .map(|_| {
            let (mut stream, binding) = target.bound();
            let body = (1 << 20) - 64;
            let words = [1, binding, 0, body, body, 0];
            stream.write_all(&header(CALL, body, words)).unwrap();
            stream.write_all(&[0; 32]).unwrap();
            stream
        })
        .collect();
    target.serves();
    let grown = memory().saturating_sub(before);
    assert!(grown < 200 << 20, "{grown} bytes allocated for announced messages");
    drop((refused, many));
}

#[test]
fn slow_senders_and_unbound_connections_occupy_no_thread() {
    let _alone = support::alone();
    // The queue has space for each call, because all calls may arrive completely before the first one runs.
    let target = Target::new(Server::new().threads(2).queue(60));
    let mut slow: Vec<_> = (0..60).map(|_| target.bound()).collect();
    let message = call(slow[0].1, 1, 200);
    for at in 0..40 {
        for (stream, _) in &mut slow {
            stream.write_all(&message[at..=at]).unwrap();
        }
        if at % 10 == 0 {
            target.serves();
        }
    }
    // A call still runs if its last bytes arrive late.
    for (stream, _) in &mut slow {
        stream.write_all(&message[40..]).unwrap();
    }
    for (stream, _) in &mut slow {
        let told = receive(stream).unwrap();
        assert_eq!((told.kind, told.words[0], told.words[2]), (REPLY, 1, 0));
    }
    // The server closes a silent connection after a while if it is unbound, but not if it is bound.
    let mut guest = target.connect();
    assert!(closes(&mut guest));
    assert_eq!(slow.len(), 60);
    target.serves();
}

#[test]
fn client_that_reads_no_replies_is_disconnected() {
    let _alone = support::alone();
    let target = Target::new(Server::new().threads(2).queue(2));
    let mut deaf: Vec<_> = (0..4).map(|_| target.bound()).collect();
    for (stream, binding) in &mut deaf {
        stream.set_nonblocking(true).unwrap();
        let message = call(*binding, 1, 900_000);
        // Send until the server stops reading. It stops because many megabytes of its replies are pending.
        for _ in 0..20 {
            if stream.write_all(&message).is_err() {
                break;
            }
        }
    }
    target.serves();
    assert!(target.running.threads() <= 2 + 16 + 2);
}

#[test]
fn connections_of_one_host_are_bounded() {
    let _alone = support::alone();
    let target = Target::new(Server::new());
    let options = BindOptions::default();
    let echo = EchoClient::bind_with(&target.address, &options).unwrap();
    let (mut kept, mut refused) = (Vec::new(), 0);
    for _ in 0..2000 {
        if kept.len() + 2 > limits::CONNECTIONS_PER_HOST {
            let told = receive(&mut target.connect());
            assert_eq!(told.map(|told| told.kind), Some(REFUSED));
            refused += 1;
        } else {
            // These connections are bound. The server would close an unbound connection after its time limit,
            // and would then accept another one.
            kept.push(target.bound());
        }
    }
    assert!(refused > 1700, "{refused}");
    let error = peregrine::describe(&target.address).unwrap_err();
    assert_eq!(error.kind(), Kind::Exhausted, "{error}");
    // The server serves the connections that are already open. It accepts new connections again when those in
    // `kept` have closed.
    assert_eq!(echo.echo(vec![1]).unwrap(), [1]);
    drop(kept);
    support::until("a new connection is accepted", || peregrine::describe(&target.address).is_ok());
}

#[test]
fn server_option_allows_more_connections_of_one_host() {
    let _alone = support::alone();
    let most = limits::CONNECTIONS_PER_HOST + 40;
    let target = Target::new(Server::new().connections_per_host(most));
    let kept: Vec<_> = (0..most).map(|_| target.bound()).collect();
    let error = peregrine::describe(&target.address).unwrap_err();
    assert_eq!(error.kind(), Kind::Exhausted);
    // The error names the option that raises the limit.
    assert!(error.to_string().contains("`Server::connections_per_host`"), "{error}");
    drop(kept);
    let target = Target::new(Server::new().connections(3));
    let _kept = [(); 3].map(|()| target.bound());
    let error = peregrine::describe(&target.address).unwrap_err();
    assert!(error.to_string().contains("`Server::connections`"), "{error}");
}

/// Runs a server in a separate process, so that its memory can be measured without the memory of the clients.
#[test]
fn server() {
    let Some(_) = support::role() else { return };
    let server = Server::new().threads(4).export("echo", EchoServer::new(Same)).unwrap();
    let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    println!("\nready\n{}", running.addresses()[0]);
    running.wait();
}

/// Starts the server process. Returns the process, the address of its socket, and its runtime directory.
fn server_process() -> (support::Process, SocketAddr, tempfile::TempDir) {
    let directory = support::own_directory();
    let mut server = support::Process::start("server", "", directory.path());
    let at = server.line().strip_prefix("tcp:").unwrap().parse().unwrap();
    (server, at, directory)
}

/// Returns the resident memory of a process in bytes.
fn resident(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

/// Returns a connection from the address 127.0.0.`host`. The connection is bound to the export `echo`.
fn bound_from(host: u8, at: SocketAddr) -> (TcpStream, u32) {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
    connect(&socket, &at).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.write_all(&self::bind("echo")).unwrap();
    let told = receive(&mut stream).expect("an answer");
    assert_eq!(told.kind, BOUND, "{}", String::from_utf8_lossy(&told.body));
    (stream, u32::from_le_bytes(told.body[8..12].try_into().unwrap()))
}

/// Sends a message with several pauses of 50 ms, and waits for the reply. Returns false if the server closes
/// the connection.
fn pauses_and_is_served(stream: &mut TcpStream, binding: u32, bytes: usize) -> bool {
    let message = call(binding, 3, bytes);
    for part in message.chunks(message.len().div_ceil(4)) {
        if stream.write_all(part).is_err() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    receive(stream).is_some_and(|told| (told.kind, told.words[0], told.words[2]) == (REPLY, 3, 0))
}

const LARGE: usize = 1_000_000;

#[test]
fn announced_bytes_take_no_memory_and_disconnect_no_client() {
    let _alone = support::alone();
    let (server, at, _directory) = server_process();
    let (mut honest, binding) = bound_from(1, at);
    assert!(pauses_and_is_served(&mut honest, binding, LARGE));
    let before = resident(server.id());
    // These connections come from four hosts. They send only the header of a call, without the bytes that the
    // header announces.
    let silent: Vec<_> = (0..1000)
        .map(|i| {
            let (mut stream, binding) = bound_from(2 + i as u8 % 4, at);
            stream.write_all(&call(binding, 1, LARGE)[..32]).unwrap();
            stream
        })
        .collect();
    for _ in 0..4 {
        assert!(
            pauses_and_is_served(&mut honest, binding, LARGE),
            "an honest client is disconnected"
        );
    }
    let grown = resident(server.id()).saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes for 1000 headers");
    drop(silent);
}

#[test]
fn host_that_fills_its_memory_share_delays_only_itself() {
    let _alone = support::alone();
    let (server, at, _directory) = server_process();
    let before = resident(server.id());
    let (mut honest, binding) = bound_from(1, at);
    // Each of many connections sends a large message, but keeps back the last bytes.
    let message = call(0, 1, LARGE);
    let mut hostile: Vec<_> = (0..240)
        .map(|_| {
            let (mut stream, binding) = bound_from(2, at);
            let mut message = message.clone();
            message[12..16].copy_from_slice(&binding.to_le_bytes());
            stream.set_write_timeout(Some(LIMIT)).unwrap();
            stream.write_all(&message[..900_000]).unwrap();
            (stream, message)
        })
        .collect();
    for _ in 0..4 {
        assert!(
            pauses_and_is_served(&mut honest, binding, LARGE),
            "an honest client is disconnected"
        );
    }
    // Small calls from the hostile host are not delayed.
    let (mut small, binding) = bound_from(2, at);
    assert!(pauses_and_is_served(&mut small, binding, 1000));
    let grown = resident(server.id()).saturating_sub(before);
    // The memory is bounded by the host's share, plus one message for each thread.
    assert!(
        grown < limits::PARTIAL_BYTES_PER_HOST + (64 << 20),
        "the server holds {grown} bytes for one host"
    );
    // All calls that had to wait are still executed.
    for (stream, message) in &mut hostile {
        stream.write_all(&message[900_000..]).unwrap();
    }
    for (i, (stream, _)) in hostile.iter_mut().enumerate() {
        let told = receive(stream).unwrap_or_else(|| panic!("connection {i} is not served"));
        assert_eq!((told.kind, told.words[0], told.words[2]), (REPLY, 1, 0));
    }
}

/// Starts a false server that answers a bind request and then one call. It answers the call with the bytes
/// that `told` returns for the number of the call.
fn liar(told: impl Fn(u32) -> Vec<u8> + Send + 'static) -> String {
    liar_of(1, told)
}

/// Does the same as [`liar`], but the server announces `representation` as the representation of its values.
fn liar_of(representation: u32, told: impl Fn(u32) -> Vec<u8> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let asked = receive(&mut stream).unwrap();
        stream.write_all(&stream::bound(&asked, representation, 1 << 20)).unwrap();
        let Some(call) = receive(&mut stream) else { return };
        let _ = stream.write_all(&told(call.words[0]));
        std::thread::sleep(Duration::from_millis(500));
    });
    format!("tcp:{at}/echo")
}

#[test]
fn unknown_representation_is_refused() {
    let _alone = support::alone();
    for representation in [0, 3, u32::MAX] {
        let error = EchoClient::bind(&liar_of(representation, |_| Vec::new())).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::ProtocolMismatch, Executed::No));
    }
}

/// The client sends only a part of a call, and the server never gets the rest. A server executes only
/// complete calls, so the client must report that the call was not executed.
#[test]
fn partly_sent_call_is_not_executed() {
    let _alone = support::alone();
    let options = BindOptions::default().message_bytes(stream::UNREAD + 4096);
    let options = options.rebind(Rebind::Never);
    let fails = |at: SocketAddr, options: &BindOptions| {
        let echo = EchoClient::bind_with(&format!("tcp:{at}/echo"), options).unwrap();
        echo.echo(vec![1; stream::UNREAD]).unwrap_err()
    };
    // In the first case, the deadline passes while the server does not read.
    let (read, has_read) = channel();
    let (end, ends) = channel::<()>();
    let at = stream::reads_a_part(move |_stream| {
        read.send(()).unwrap();
        let _ = ends.recv();
    });
    let error = fails(at, &options.clone().timeout(Duration::from_secs(3)));
    assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
    assert!(error.to_string().contains("only a part of the call"), "{error}");
    has_read.recv_timeout(LIMIT).expect("the server has read a part of the call");
    drop(end);
    // In the second case, the server closes the connection.
    let error = fails(stream::reads_a_part(drop), &options.timeout(LIMIT));
    assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::No), "{error}");
    assert!(error.to_string().contains("only a part of the call"), "{error}");
}

#[test]
fn client_survives_invalid_replies() {
    let _alone = support::alone();
    let reply = |number, words: [u32; 4], body: u32| {
        let mut message = header(REPLY, body, [number, 0, words[0], words[1], words[2], words[3]]);
        message.resize(32 + (body as usize).next_multiple_of(16).min(4096), 0xee);
        message
    };
    let lies: Vec<Box<dyn Fn(u32) -> Vec<u8> + Send>> = vec![
        Box::new(|_| Vec::new()),
        Box::new(|_| vec![0xff; 64]),
        Box::new(|_| b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec()),
        Box::new(move |number| reply(number + 1, [0, 4, 0, 0], 4)),
        Box::new(move |number| reply(number, [0, 4, 0, 0], u32::MAX)),
        Box::new(move |number| reply(number, [0, u32::MAX, 8, 0], 16)),
        Box::new(move |number| reply(number, [0, 16, u32::MAX - 8, 0], 16)),
        Box::new(move |number| reply(number, [9, 4, 0, 0], 4)),
        Box::new(move |number| reply(number, [4, 0, 0, 0], 0)),
        Box::new(move |number| reply(number, [0, 4, 0, 0], 4)),
        Box::new(move |number| reply(number, [2, 16, 0, 0], 16)),
        Box::new(move |number| reply(number, [0, 0, 0, 99], 0)),
        Box::new(|number| header(CALL, 0, [number, 0, 0, 0, 0, 0])),
        Box::new(move |number| {
            let mut twice = reply(number, [1, 0, 0, 0], 0);
            twice.extend(reply(number, [1, 0, 0, 0], 0));
            twice
        }),
    ];
    for (i, told) in lies.into_iter().enumerate() {
        let options = BindOptions::default().timeout(Duration::from_secs(2));
        let echo = match EchoClient::bind_with(&liar(told), &options) {
            Ok(echo) => echo,
            Err(error) => panic!("{i}: {error}"),
        };
        let begun = Instant::now();
        let error = echo.echo(vec![1; 8]).unwrap_err();
        assert_eq!(error.executed(), Executed::Maybe, "{i}: {error}");
        assert!(begun.elapsed() < LIMIT, "{i}");
        let _ = echo.echo(vec![2]);
    }
}
