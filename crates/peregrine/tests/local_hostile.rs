//! Hostile clients on the local path, as real processes, each with one trick. Honest clients are
//! answered promptly while it goes on.

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
use support::{Part, part};

/// A call that takes longer was kept waiting. Generous: tests run on busy machines.
const PROMPT: Duration = Duration::from_secs(2);
/// How long the clients trickle.
const ATTACK: Duration = Duration::from_secs(5);

/// With this option Linux 6.16 and later keep descriptors out of a socket.
const SO_PASSRIGHTS: u32 = 83;

/// The parts that children play; in the test itself this does nothing.
#[test]
fn child() {
    let Some(part) = part() else { return };
    no_longer_than(Duration::from_secs(30));
    let directory = support::directory();
    let words: Vec<&str> = part.split(' ').collect();
    match words[0] {
        "server" | "server-of-an-old-kernel" => {
            if words[0] != "server" {
                support::without_socket_option(SO_PASSRIGHTS);
            }
            serve();
        }
        // Calls until the test says stop; prints how many calls there were, and the longest in ms.
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
        // The same in eight threads, whatever comes of it: its memory is not its own.
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
        other => panic!("nobody knows how to play `{other}`"),
    }
}

fn number(part: &mut Part, what: &str) -> u64 {
    part.until(what).parse().expect("a number")
}

/// 70 sessions of one process, a byte every 3 ms in each: more than the server has threads.
fn trickling(what: &str) -> [u64; 2] {
    let directory = tempfile::tempdir().unwrap();
    let start = |what: &str| Part::start("child", what, directory.path());
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
fn trickled_arguments_hold_no_threads() {
    let [answered, run] = trickling("copied");
    assert!(answered > 0, "the server never gave up waiting");
    assert_eq!(run, 0, "a call ran whose arguments had not come");
}

#[test]
fn trickled_buffers_hold_no_procedures() {
    let [answered, _] = trickling("lent");
    assert!(answered > 0, "no procedure ever gave up waiting");
}

/// How long a descriptor takes to close: longer than the test.
const SLOW: Duration = Duration::from_secs(30);

/// Sends a descriptor that is slow to close, with the last of some messages, so that the last copy of it is in the
/// server's queue. What is returned must live until the test has ended.
fn send_slow(server: &Part, line: &Line, messages: &[&[u8]]) -> std::net::TcpStream {
    let (file, reader) = tricks::slow_to_close(SLOW);
    // Halted, so that the server does not take the last message before our copy is closed.
    server.signal(libc::SIGSTOP);
    let (last, others) = messages.split_last().expect("a message");
    others.iter().for_each(|message| line.say(message).expect("room"));
    line.say_with(last, &[file.as_fd()]).expect("an old kernel takes descriptors");
    drop::<OwnedFd>(file);
    server.signal(libc::SIGCONT);
    reader
}

/// Asserts that the server serves who is bound, and lets in who has just come.
fn assert_well(directory: &Path, canary: &mut Session, what: &str) {
    assert_eq!(canary.ping(0, PROMPT), Some(0), "{what}: a bound client is not served");
    let late = Line::connect(directory, "vault").unwrap();
    assert!(tricks::is_answered(&late, PROMPT), "{what}: nobody is let in");
}

#[test]
fn descriptors_that_are_slow_to_close_stop_no_server_of_an_old_kernel() {
    let directory = tempfile::tempdir().unwrap();
    let server = Part::start("child", "server-of-an-old-kernel", directory.path());
    let connect = || Line::connect(directory.path(), "vault").unwrap();
    let mut canary = Session::new(directory.path(), "vault", 1).expect("a session");
    let mut readers = Vec::new();
    // With a request that the server knows, and with one of no bytes.
    for message in [wire::describe(), Vec::new()] {
        let line = connect();
        readers.push(send_slow(&server, &line, &[&message]));
        assert_well(directory.path(), &mut canary, "a guest's descriptor");
        assert!(line.hear_out().is_empty(), "it was answered");
    }
    // Behind what the server reads before it hangs up, and with a close of ours.
    let line = connect();
    let messages = [&wire::describe()[..], b"nonsense", b"", b"", b""];
    readers.push(send_slow(&server, &line, &messages));
    drop(line);
    assert_well(directory.path(), &mut canary, "behind the end");
    // In a session.
    let session = Session::new(directory.path(), "vault", 1).expect("a session");
    readers.push(send_slow(&server, &session.line, &[&wire::request(wire::RING, 0)]));
    assert_well(directory.path(), &mut canary, "a session's descriptor");
}

/// While as many sockets wait to be closed as may, no new client is let in. Bound clients are served.
#[test]
fn server_lets_no_client_in_while_many_sockets_wait_to_be_closed() {
    /// Threads that close such sockets, and may be lost.
    const CLOSERS: usize = 16;
    let directory = tempfile::tempdir().unwrap();
    let server = Part::start("child", "server-of-an-old-kernel", directory.path());
    let mut canary = Session::new(directory.path(), "vault", 1).expect("a session");
    let connect = || Line::connect(directory.path(), "vault").unwrap();
    let guest = || {
        let line = connect();
        assert!(tricks::is_answered(&line, PROMPT));
        line
    };
    let leave = |line: &Line, file: OwnedFd| {
        line.say_with(&wire::describe(), &[file.as_fd()]).expect("an old kernel takes descriptors");
    };
    let slow = (0..CLOSERS).map(|_| (guest(), tricks::slow_to_close(SLOW)));
    let (guests, slow): (Vec<_>, Vec<_>) = slow.unzip();
    let (files, readers): (Vec<_>, Vec<_>) = slow.into_iter().unzip();
    // Halted once, as in `send_slow`. To halt it again would end the waiting of these threads.
    server.signal(libc::SIGSTOP);
    guests.iter().zip(files).for_each(|(guest, file)| leave(guest, file));
    server.signal(libc::SIGCONT);
    let closers = || vitals::threads(server.id(), "peregrine-close").count();
    assert!(eventually(PROMPT, || closers() == CLOSERS), "{} threads", closers());
    // These would be closed at once, but only by those threads.
    let leave_quick = |count| {
        let guests: Vec<_> = (0..count).map(|_| guest()).collect();
        let file = || std::fs::File::open("/dev/null").unwrap();
        guests.iter().for_each(|guest| leave(guest, file().into()));
    };
    leave_quick(limits::CLOSING_MAX / 2);
    leave_quick(limits::CLOSING_MAX / 4);
    assert_well(directory.path(), &mut canary, "fewer than may wait");
    leave_quick(limits::CLOSING_MAX / 4);
    let refuses = || !tricks::is_answered(&connect(), Duration::from_millis(500));
    assert!(eventually(PROMPT * 5, refuses), "a client is let in while as many wait as may");
    assert_eq!(canary.ping(0, PROMPT), Some(0), "a bound client is not served");
    assert_eq!(closers(), CLOSERS);
    // The slow ones are reset.
    drop(readers);
    let lets_in = || tricks::is_answered(&connect(), PROMPT);
    assert!(eventually(PROMPT * 5, lets_in), "no client is let in though no socket waits");
}

/// Without limits: each thread of a client whose memory is written over gets an error in the end.
#[test]
fn no_call_waits_for_ever_in_memory_that_others_write_over() {
    let directory = tempfile::tempdir().unwrap();
    let start = |what: &str| Part::start("child", what, directory.path());
    let _server = start("server");
    let mut honest = start("client");
    let mut victim = start("scribbled");
    let written = scribble(victim.id(), seed(), Instant::now() + Duration::from_secs(3));
    // Whoever waits for a word that was written over waits without further help.
    std::thread::sleep(Duration::from_millis(200));
    stop(directory.path());
    let begun = Instant::now();
    // A child that hangs is ended by its own clock, and says nothing.
    let calls = number(&mut victim, "calls");
    let ended = begun.elapsed();
    let worst = number(&mut honest, "longest");
    println!("{written} words, {calls} calls; ended after {ended:?}; neighbours {worst} ms");
    assert!(written > 0 && calls > 0);
    assert!(ended < PROMPT * 5, "the last call ended after {ended:?}");
}

/// Calls that say that much is to be copied, of a message that has no bytes, or more than the export
/// takes: the server reads nothing of what its client never wrote, for that would give it memory.
#[test]
fn lengths_that_contradict_each_other_fetch_nothing() {
    const LARGE: u32 = limits::MESSAGE_BYTES as u32;
    let directory = tempfile::tempdir().unwrap();
    let server = Part::start("child", "server", directory.path());
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
    // Each A-stack's lines are touched, and no message.
    assert!(more < 4096, "the server has {more} KiB more of its client's memory");
}

/// Shared memory that a process has touched.
fn shared_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process of ours");
    let line = text.lines().find_map(|line| line.strip_prefix("RssShmem:")).expect("Linux 4.5");
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number")
}
