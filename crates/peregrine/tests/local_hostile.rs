//! Runs hostile clients on the local path as real processes. Each hostile client makes one kind of attack.
//! Meanwhile, the server must answer honest clients promptly.

mod attack;
mod support;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use attack::scribble::scribble;
use attack::trickle::{What, trickle};
use attack::vault::{Vault, VaultClient, check, serve};
use attack::vitals;
use attack::wire::{self, Line, Session};
use attack::{eventually, no_longer_than, seed, stop, stopped, tricks};
use peregrine::limits;
use support::{Process, role};

/// The time limit of an honest call, which allows for busy machines. If a call takes longer, the attack has
/// delayed it.
const PROMPT: Duration = Duration::from_secs(2);
/// The time for which the hostile clients send their bytes slowly.
const ATTACK: Duration = Duration::from_secs(5);

/// The number of the socket option by which a socket rejects descriptors. Linux 6.16 and later have it.
const SO_PASSRIGHTS: u32 = 83;

/// Does the work of a child process that has a role. In the test run itself, this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    no_longer_than(Duration::from_secs(30));
    let directory = support::directory();
    let words: Vec<&str> = role.split(' ').collect();
    match words[0] {
        "server" | "server-of-an-old-kernel" => {
            if words[0] != "server" {
                support::without_socket_option(SO_PASSRIGHTS);
            }
            serve();
        }
        // Makes calls until the test ends. Then prints the number of calls, and the duration of the longest
        // call in ms.
        "client" => {
            let vault = VaultClient::bind("vault").unwrap();
            println!("\nready");
            let (mut calls, mut longest) = (0, Duration::ZERO);
            while !stopped(&directory) {
                let begun = Instant::now();
                check(&vault, calls).expect("an honest call to an honest server");
                longest = longest.max(begun.elapsed());
                calls += 1;
            }
            println!("\ncalls {calls}\nlongest {}", longest.as_millis());
        }
        // Makes calls in eight threads until the test ends. Ignores errors, because another process
        // overwrites the memory of this process.
        "scribbled" => {
            println!("\nready");
            let calls = std::thread::scope(|scope| {
                let one = || {
                    let mut calls = 0;
                    while !stopped(&directory) {
                        let vault = VaultClient::bind("vault").unwrap();
                        while vault.is_alive() && !stopped(&directory) {
                            let _ = vault.add(1, 2);
                            calls += 1;
                        }
                    }
                    calls
                };
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
            });
            println!("\ncalls {calls}");
        }
        "trickle" => {
            println!("\nready");
            let what = if words[1] == "lent" { What::Lent } else { What::Copied };
            let until = Instant::now() + ATTACK;
            let [answered, run] = trickle(&directory, 70, what, until);
            println!("\nanswered {answered}\nrun {run}");
        }
        other => panic!("unknown role `{other}`"),
    }
}

fn number(process: &mut Process, what: &str) -> u64 {
    process.until(what).parse().expect("a number")
}

/// Runs 70 hostile sessions of one process. The server has fewer threads. Each session sends its message
/// slowly, 1 or 64 bytes every 3 ms. Returns how many of the hostile calls were answered before their
/// messages were complete, and how many of the answered calls had begun to run.
fn trickling(what: &str) -> [u64; 2] {
    let directory = tempfile::tempdir().unwrap();
    let start = |what: &str| Process::start("child", what, directory.path());
    let _server = start("server");
    let mut honest = start("client");
    let mut canary = Session::new(directory.path(), "vault", 1).expect("a session");
    let mut hostile = start(&format!("trickle {what}"));
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    while begun.elapsed() < ATTACK {
        let begun = Instant::now();
        assert_eq!(canary.ping(0, PROMPT), Some(0), "no thread answers an honest client");
        longest = longest.max(begun.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    let counts = ["answered", "run"].map(|what| number(&mut hostile, what));
    stop(directory.path());
    let (calls, worst) = (number(&mut honest, "calls"), number(&mut honest, "longest"));
    println!("{counts:?} hostile calls; {calls} honest calls took {worst} ms, pings {longest:?}");
    assert!(u128::from(worst) < PROMPT.as_millis(), "an honest call took {worst} ms");
    counts
}

#[test]
fn slowly_written_arguments_do_not_block_threads() {
    let [answered, run] = trickling("copied");
    assert!(answered > 0, "the server never gave up waiting");
    assert_eq!(run, 0, "a call ran whose arguments had not arrived");
}

#[test]
fn slowly_written_buffers_do_not_block_procedures() {
    let [_, run] = trickling("lent");
    assert!(run > 0, "no procedure gave up waiting");
}

/// How long the kernel takes to close the descriptor that a client sends. The test ends earlier.
const SLOW: Duration = Duration::from_secs(30);

/// Sends messages to the server. The last message carries a descriptor that takes long to close. Afterwards,
/// the only copy of the descriptor is in the server's queue. The returned stream must live until the test has
/// ended.
fn send_slow(server: &Process, line: &Line, messages: &[&[u8]]) -> std::net::TcpStream {
    let (file, reader) = tricks::slow_to_close(SLOW);
    // The server is stopped until this process has closed its own copy of the descriptor. Otherwise the
    // server could close its copy first, which takes no time while another copy is open.
    server.signal(libc::SIGSTOP);
    let (last, others) = messages.split_last().expect("a message");
    others.iter().for_each(|message| line.send(message).expect("enough space"));
    line.send_with(last, &[file.as_fd()]).expect("an old kernel accepts descriptors");
    drop::<OwnedFd>(file);
    server.signal(libc::SIGCONT);
    reader
}

/// Checks that the server serves a bound client, and that it answers a new connection.
fn assert_responsive(directory: &Path, canary: &mut Session, what: &str) {
    assert_eq!(canary.ping(0, PROMPT), Some(0), "{what}: a bound client is not served");
    let late = Line::connect(directory, "vault").unwrap();
    assert!(tricks::is_answered(&late, PROMPT), "{what}: a new connection is not answered");
}

#[test]
fn descriptors_that_close_slowly_do_not_block_a_server_on_an_old_kernel() {
    let directory = tempfile::tempdir().unwrap();
    let server = Process::start("child", "server-of-an-old-kernel", directory.path());
    let connect = || Line::connect(directory.path(), "vault").unwrap();
    let mut canary = Session::new(directory.path(), "vault", 1).expect("a session");
    let mut readers = Vec::new();
    // Send the descriptor once with a request that the server knows, and once with an empty message.
    for message in [wire::describe(), Vec::new()] {
        let line = connect();
        readers.push(send_slow(&server, &line, &[&message]));
        assert_responsive(directory.path(), &mut canary, "descriptor of an unbound connection");
        assert!(line.receive_all().is_empty(), "the connection was answered");
    }
    // Send the descriptor after messages that make the server close the connection. Then close the client's
    // end.
    let line = connect();
    let messages = [&wire::describe()[..], b"nonsense", b"", b"", b""];
    readers.push(send_slow(&server, &line, &messages));
    drop(line);
    assert_responsive(directory.path(), &mut canary, "descriptor after the end");
    // Send the descriptor on the socket of a session.
    let session = Session::new(directory.path(), "vault", 1).expect("a session");
    readers.push(send_slow(&server, &session.line, &[&wire::request(wire::RING, 0)]));
    assert_responsive(directory.path(), &mut canary, "descriptor of a session");
}

/// The number of sockets that wait to be closed is limited. At the limit, the server accepts no new client,
/// but still serves bound clients.
#[test]
fn server_accepts_no_client_while_too_many_sockets_wait_to_be_closed() {
    /// The number of the server's threads that only close sockets. All of them may be blocked.
    const CLOSERS: usize = 16;
    let directory = tempfile::tempdir().unwrap();
    let server = Process::start("child", "server-of-an-old-kernel", directory.path());
    let mut canary = Session::new(directory.path(), "vault", 1).expect("a session");
    let connect = || Line::connect(directory.path(), "vault").unwrap();
    let unbound = || {
        let line = connect();
        assert!(tricks::is_answered(&line, PROMPT));
        line
    };
    let send_file = |line: &Line, file: OwnedFd| {
        line.send_with(&wire::describe(), &[file.as_fd()])
            .expect("an old kernel accepts descriptors");
    };
    let slow = (0..CLOSERS).map(|_| (unbound(), tricks::slow_to_close(SLOW)));
    let (lines, slow): (Vec<_>, Vec<_>) = slow.unzip();
    let (files, readers): (Vec<_>, Vec<_>) = slow.into_iter().unzip();
    // The server is stopped as in `send_slow`, but only once, because a second SIGSTOP would interrupt the
    // threads that are blocked while they close a descriptor.
    server.signal(libc::SIGSTOP);
    lines.iter().zip(files).for_each(|(line, file)| send_file(line, file));
    server.signal(libc::SIGCONT);
    let closers = || vitals::threads(server.id(), "peregrine-close").count();
    assert!(eventually(PROMPT, || closers() == CLOSERS), "{} threads", closers());
    // These descriptors close quickly, but no thread is free to close them.
    let send_quick = |count| {
        let lines: Vec<_> = (0..count).map(|_| unbound()).collect();
        let file = || std::fs::File::open("/dev/null").unwrap();
        lines.iter().for_each(|line| send_file(line, file().into()));
    };
    send_quick(limits::CLOSING_MAX / 2);
    send_quick(limits::CLOSING_MAX / 4);
    assert_responsive(directory.path(), &mut canary, "fewer sockets than the limit");
    send_quick(limits::CLOSING_MAX / 4);
    let refuses = || !tricks::is_answered(&connect(), Duration::from_millis(500));
    assert!(eventually(PROMPT * 5, refuses), "a client is accepted although the limit is reached");
    assert_eq!(canary.ping(0, PROMPT), Some(0), "a bound client is not served");
    assert_eq!(closers(), CLOSERS);
    // When the readers are dropped, the slow sockets are reset. The server's threads can then close them at
    // once.
    drop(readers);
    let accepts = || tricks::is_answered(&connect(), PROMPT);
    assert!(eventually(PROMPT * 5, accepts), "no client is accepted although no socket waits");
}

/// Another process overwrites the memory of a client, whose calls have no time limits. Even so, each thread
/// of that client gets an error in the end.
#[test]
fn calls_end_although_another_process_overwrites_their_memory() {
    let directory = tempfile::tempdir().unwrap();
    let start = |what: &str| Process::start("child", what, directory.path());
    let _server = start("server");
    let mut honest = start("client");
    let mut victim = start("scribbled");
    let written = scribble(victim.id(), seed(), Instant::now() + Duration::from_secs(3));
    // No event wakes a thread that waits on an overwritten word. The call of such a thread must end
    // nevertheless.
    std::thread::sleep(Duration::from_millis(200));
    stop(directory.path());
    let begun = Instant::now();
    // A child that hangs is killed by its own timer. It then prints no numbers.
    let calls = number(&mut victim, "calls");
    let ended = begun.elapsed();
    let worst = number(&mut honest, "longest");
    println!("{written} words, {calls} calls; ended after {ended:?}; honest calls {worst} ms");
    assert!(written > 0 && calls > 0);
    assert!(ended < PROMPT * 5, "the last call ended after {ended:?}");
}

/// Makes calls that claim more copied bytes than the whole message has, or more than the export accepts. The
/// server must not read memory that its client never wrote, because the kernel would allocate pages for the
/// read.
#[test]
fn contradictory_lengths_make_the_server_read_nothing() {
    const LARGE: u32 = limits::MESSAGE_BYTES as u32;
    let directory = tempfile::tempdir().unwrap();
    let server = Process::start("child", "server", directory.path());
    let mut session = Session::new(directory.path(), "vault", 64).expect("a session");
    assert_eq!(session.ping(0, PROMPT), Some(0));
    let before = shared_kib(server.id());
    for [copied, total] in [[LARGE, 0], [LARGE, 16], [LARGE, 2 * LARGE]] {
        for astack in 0..64 {
            let header = [1, 0, copied, total, u32::MAX, 0];
            let message = session.post_header(astack, &header);
            let answer = session.reply_to(message, astack, PROMPT).expect("an answer");
            assert_eq!(answer, 2, "{copied} of {total} bytes: not executed");
        }
    }
    let more = shared_kib(server.id()) - before;
    // The server has touched the pages with the headers of the A-stacks, but not the memory of the messages.
    assert!(more < 4096, "the server has touched {more} KiB more of its client's memory");
}

/// Returns the shared memory that a process has touched, in KiB.
fn shared_kib(pid: u32) -> u64 {
    let text =
        std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process of this user");
    let line = text.lines().find_map(|line| line.strip_prefix("RssShmem:")).expect("Linux 4.5");
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number")
}
