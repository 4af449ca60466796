//! Runs hostile clients and servers as real processes. They must not affect honest peers of the same server
//! or client. When the hostile processes have ended, the server or client must have released everything that
//! it held for them.
//!
//! By default, the tests send random bytes (noise) for two seconds. `PEREGRINE_SOAK=600` sets 600 seconds.
//! `PEREGRINE_SEED`, set to the seed that a run printed, repeats the noise of that run.

mod attack;
mod support;

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use attack::vault::{Honest, Vault, VaultClient, VaultServer, check, serve};
use attack::vitals::{Vitals, is_halted, used};
use attack::wire::{self, Line, Session, word, words};
use attack::wrong::{self, Stage};
use attack::{assault, eventually, no_longer_than, seed, soak, stop, stopped, tricks};
use peregrine::{BindOptions, Executed, Kind, Lent, Out, Server, Wait, interface, limits};
use support::{Process, role};

/// An interface whose procedure waits, perhaps in a nested call.
#[interface]
trait Waits {
    /// Waits `ms` milliseconds. If `nested` is not empty, the procedure waits inside a nested call to the
    /// server of that name.
    fn wait(&self, nested: &str, ms: u64) -> peregrine::Result<()>;
}

struct Waiter;

impl Waits for Waiter {
    fn wait(&self, nested: &str, ms: u64) -> peregrine::Result<()> {
        println!("\ninside");
        if !nested.is_empty() {
            return WaitsClient::bind(nested)?.wait("", ms);
        }
        std::thread::sleep(Duration::from_millis(ms));
        Ok(())
    }
}

/// How long noise is sent by default.
const NOISE: Duration = Duration::from_secs(2);
/// How long a test waits for an event that must happen. The limit allows for busy machines.
const LIMIT: Duration = Duration::from_secs(10);

/// Does the work of a child process that has a role. In the test run itself, this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    no_longer_than(soak(NOISE) + Duration::from_secs(50));
    let directory = support::directory();
    let words: Vec<&str> = role.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    match words[0] {
        "server" => serve(),
        "client" => {
            let vault = VaultClient::bind("vault").unwrap();
            println!("\nready");
            let mut calls = 0;
            while !stopped(&directory) {
                for _ in 0..64 {
                    check(&vault, calls).expect("an honest call to an honest server");
                    calls += 1;
                }
            }
            println!("\n{calls}");
        }
        "hostile-client" => {
            println!("\nready");
            let until = Instant::now() + Duration::from_millis(number(2));
            println!("\n{}", assault::client(&directory, number(1), until));
        }
        "hostile-server" => {
            let listener = wire::listen(&directory, "trap");
            println!("\nready");
            let until = Instant::now() + Duration::from_millis(number(2));
            assault::server(&listener, number(1), until);
        }
        "client-of-wrong-servers" => client_of_wrong_servers(&directory),
        "client-of-a-slow-server" => {
            let is_old = words[1] == "of-an-old-kernel";
            if is_old {
                // Option 83 is `SO_PASSRIGHTS`, by which a socket rejects descriptors. Old kernels do not
                // have this option.
                support::without_socket_option(83);
            }
            client_of_a_slow_server(&directory, is_old);
        }
        "client-of-a-flooding-server" => client_of_a_flooding_server(&directory),
        "cramped" => {
            let server = Server::new().threads(2).export("vault", VaultServer::new(Honest));
            let server = server.and_then(|server| server.export("waits", WaitsServer::new(Waiter)));
            let running = server.and_then(Server::spawn).unwrap();
            println!("\nready");
            running.wait();
        }
        "last" => {
            let running = Server::new().export("last", WaitsServer::new(Waiter)).unwrap().spawn();
            println!("\nready");
            running.unwrap().wait();
        }
        // Occupies both threads of a server. One of the two threads waits in a nested call.
        "keeps-threads" => {
            println!("\nready");
            let wait = |nested| WaitsClient::bind("waits").unwrap().wait(nested, 60_000);
            std::thread::scope(|scope| {
                scope.spawn(move || wait("last"));
                let _ = wait("");
            });
        }
        "thief" => thief(&directory, words[1]),
        "client-of-both" => client_of_both(Duration::from_millis(number(1))),
        other => panic!("unknown role `{other}`"),
    }
}

/// Returns the number that a child process prints before it ends.
fn number(process: &mut Process) -> u64 {
    loop {
        if let Ok(number) = process.line().parse() {
            return number;
        }
    }
}

#[test]
fn noise_in_a_region_affects_only_its_own_client() {
    let directory = tempfile::tempdir().unwrap();
    let start = |what: &str| Process::start("child", what, directory.path());
    let server = start("server");
    let mut honest = [start("client"), start("client")];
    let watched = [server.id(), honest[0].id(), honest[1].id()];
    std::thread::sleep(Duration::from_millis(300));

    let (seed, noise) = (seed(), (soak(NOISE) / 2).as_millis());
    let mut before = watched.map(Vitals::of);
    // The first round fills caches. Growth in the second round would be a leak.
    for (time, kib) in [(0, 64 << 10), (1, 32 << 10)] {
        let hostile = [seed, seed ^ 0x5555]
            .map(|seed| start(&format!("hostile-client {} {noise}", seed.wrapping_add(time))));
        for mut hostile in hostile {
            assert!(number(&mut hostile) > 0, "the noise made no call");
        }
        // Idle threads end after five seconds, and then release their resources.
        let mut after = before;
        let back = eventually(LIMIT, || {
            after = watched.map(Vitals::of);
            after.iter().zip(before).all(|(now, before)| now.is_back_to(before, 2, kib))
        });
        println!("before {before:?}\nafter  {after:?}");
        assert!(back, "the noise leaked resources: {before:?} became {after:?}");
        before = after;
    }
    stop(directory.path());
    let calls = honest.each_mut().map(number);
    println!("honest calls: {calls:?}");
    // The number of calls depends on the load of the machine, so one call of each client suffices. If a call
    // fails or does not end in time, its client prints no number.
    assert!(calls.iter().all(|calls| *calls > 0), "honest clients made no calls: {calls:?}");
    // A new client is served.
    let mut late = Session::new(directory.path(), "vault", 1).expect("a session");
    assert_eq!(late.ping(0, LIMIT), Some(0));
}

/// Calls a hostile server and an honest one, from the same process.
fn client_of_both(time: Duration) {
    let honest = VaultClient::bind("vault").unwrap();
    check(&honest, 0).unwrap();
    // The first failed bind of a thread allocates state that the thread keeps. So one bind fails before the
    // first measurement.
    let _ = VaultClient::bind_with("trap", &impatient(Wait::Adaptive));
    let me = std::process::id();
    let mut before = Vitals::of(me);
    println!("\nready");
    let (served, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    // The first round fills caches. Growth in the second round would be a leak.
    for kib in [64 << 10, 16 << 10] {
        call_both(&honest, time / 2, &served, &failed);
        check(&VaultClient::bind("vault").unwrap(), 1).unwrap();
        let mut after = before;
        let back = eventually(LIMIT, || {
            after = Vitals::of(me);
            after.is_back_to(before, 0, kib)
        });
        assert!(back, "the hostile server leaked resources: {before:?} became {after:?}");
        before = after;
    }
    println!("\n{}\n{}", served.into_inner(), failed.into_inner());
}

/// The time limit of a call to the hostile server.
const CALL: Duration = Duration::from_millis(30);
/// The time limit of a bind to the hostile server.
const BIND: Duration = Duration::from_millis(200);

fn impatient(wait: Wait) -> BindOptions {
    BindOptions::default().timeout(CALL).bind_timeout(BIND).wait(wait)
}

/// Calls the honest server on some threads, and the hostile one on others.
fn call_both(honest: &VaultClient, time: Duration, served: &AtomicU64, failed: &AtomicU64) {
    /// By how much a busy machine may exceed a time limit.
    const SLACK: Duration = LIMIT;
    let start = Instant::now();
    let seen = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let enough = [served, failed].map(|count| seen(count) + 50);
    // On a busy machine, the calls go on for up to `LIMIT` longer, until there are enough calls to check.
    let goes_on = || {
        let enough = seen(served) > enough[0] && seen(failed) > enough[1];
        start.elapsed() < if enough { time } else { time + LIMIT }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut n = 0;
                while goes_on() {
                    check(honest, n).expect("an honest call while hostile ones run");
                    n += 1;
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for wait in [Wait::Adaptive, Wait::Block, Wait::Spin] {
            let goes_on = &goes_on;
            scope.spawn(move || {
                while goes_on() {
                    let start = Instant::now();
                    let bound = VaultClient::bind_with("trap", &impatient(wait));
                    assert!(start.elapsed() < BIND + SLACK, "a bind took {:?}", start.elapsed());
                    let Ok(vault) = bound else { continue };
                    while vault.is_alive() && goes_on() {
                        let start = Instant::now();
                        failed.fetch_add(u64::from(!call(&vault)), Ordering::Relaxed);
                        let took = start.elapsed();
                        assert!(took < CALL + SLACK, "a call took {took:?}");
                    }
                }
            });
        }
    });
}

/// Makes calls whose results may contain anything. Returns whether the first and the last call succeeded.
fn call(vault: &VaultClient) -> bool {
    let mut buffer = [0; 32];
    let mut out = Out::from(&mut buffer);
    let copied = vault.copy("some text", &[1, 2, 3], out.by_ref()).is_ok();
    assert!(out.filled() <= 32);
    let mut offered = Vec::with_capacity(20);
    let _ = vault.copy("more", &[], Out::from(&mut offered));
    assert!(offered.len() <= offered.capacity());
    // Because this buffer is large, the client receives the result while the server is still writing it.
    let mut large = Vec::with_capacity(50_000);
    let _ = vault.copy("more", &[], Out::from(&mut large));
    assert!(large.len() <= large.capacity());
    let (mut flags, mut names) = ([true, false, true], ["a".to_owned(), "b".into()]);
    let _ = vault.turn(&mut flags, &mut names);
    // Whatever the server sent, each flag is a valid `bool`, and text is UTF-8.
    let shown = format!("{flags:?} {names:?}");
    assert_eq!(shown, shown.chars().collect::<String>());
    let _ = vault.sum(1, Lent::from(&[1; 100]));
    let _ = vault.grow(attack::vault::Tree { name: "x".into(), children: vec![] });
    let _ = vault.binding().ping();
    copied && vault.add(1, 2).is_ok()
}

#[test]
fn noise_of_a_server_affects_only_its_own_bindings() {
    let directory = tempfile::tempdir().unwrap();
    let start = |what: &str| Process::start("child", what, directory.path());
    let _honest = start("server");
    let (seed, noise) = (seed(), soak(NOISE).as_millis());
    let _hostile = start(&format!("hostile-server {seed} {}", noise + 30_000));
    let mut client = start(&format!("client-of-both {noise}"));
    let (served, failed) = (number(&mut client), number(&mut client));
    println!("honest calls: {served}; failed calls: {failed}");
    assert!(served > 100, "only {served} honest calls returned");
    assert!(failed > 100, "too few calls to the hostile server: {failed}");
}

#[test]
fn invalid_client_handshakes_are_refused_without_side_effects() {
    let directory = tempfile::tempdir().unwrap();
    let server = Process::start("child", "server", directory.path());
    let mut canary = Session::new(directory.path(), "vault", 2).expect("a session");
    assert_eq!(canary.ping(0, LIMIT), Some(0));
    let before = Vitals::of(server.id());
    let stage = Stage { directory: directory.path(), name: "vault", other: canary.binding };
    for (what, case) in wrong::CLIENTS {
        let start = Instant::now();
        case(stage);
        assert_eq!(canary.ping(0, LIMIT), Some(0), "{what}: an honest client is affected");
        let mut after = before;
        let back = eventually(LIMIT, || {
            after = Vitals::of(server.id());
            after.is_back_to(before, 2, 16 << 10)
        });
        assert!(back, "{what}: {before:?} became {after:?}");
        println!("{what}: {:?}", start.elapsed());
    }
}

/// Binds to each of the faulty servers, one after the other. The bind runs on another thread, and the faulty
/// server runs on the calling thread.
fn client_of_wrong_servers(directory: &Path) {
    let options = BindOptions::default().bind_timeout(Duration::from_millis(150));
    let listener = wire::listen(directory, "wrong");
    let me = std::process::id();
    let mut before = None;
    println!("\nready");
    for (what, answer) in wrong::SERVERS {
        let start = Instant::now();
        let error = std::thread::scope(|scope| {
            let bound = scope.spawn(|| VaultClient::bind_with("wrong", &options).map(drop));
            let line = loop {
                match listener.accept() {
                    Ok(line) => break line,
                    Err(_) => std::thread::sleep(Duration::from_micros(100)),
                }
            };
            assert!(wrong::is_bind(&line.answer().0));
            answer(line);
            bound.join().unwrap_or_else(|_| panic!("{what}: the bind panicked"))
        });
        let error = error.expect_err(what);
        assert_eq!(error.executed(), Executed::No, "{what}: {error}");
        assert!(start.elapsed() < LIMIT, "{what}: {:?}", start.elapsed());
        let mut now = Vitals::of(me);
        let first = *before.get_or_insert(now);
        // A joined thread takes a moment to disappear from `/proc`.
        let back = eventually(LIMIT, || {
            now = Vitals::of(me);
            now.is_back_to(first, 0, 16 << 10)
        });
        assert!(back, "{what}: {first:?} became {now:?}");
    }
    println!("\n{}", wrong::SERVERS.len());
}

#[test]
fn invalid_server_handshakes_fail_the_bind() {
    let directory = tempfile::tempdir().unwrap();
    let mut client = Process::start("child", "client-of-wrong-servers", directory.path());
    assert_eq!(number(&mut client), wrong::SERVERS.len() as u64);
}

/// Starts a server, and a session of an honest client. The test drives the session itself, without the
/// library's client.
fn stage() -> (tempfile::TempDir, Process, Session) {
    let directory = tempfile::tempdir().unwrap();
    let server = Process::start("child", "server", directory.path());
    let mut canary = Session::new(directory.path(), "vault", 2).expect("a session");
    assert_eq!(canary.ping(0, LIMIT), Some(0));
    (directory, server, canary)
}

/// Stops a process, and waits until all of its threads have stopped.
fn stop_process(process: &Process) {
    process.signal(libc::SIGSTOP);
    assert!(eventually(LIMIT, || is_halted(process.id())));
}

/// `DEAD` says that the session has ended. A client's keeper (the thread that watches the process's sockets)
/// writes `DEAD` only to the words on which the client waits. If a hostile client writes `DEAD` to a word on
/// which the server waits, the server must still be able to sleep on that word.
#[test]
fn invalid_words_cost_the_server_no_processor_time() {
    let (directory, server, _canary) = stage();
    for value in [3, 4, 6, 7, u32::MAX, 0x8000_0002] {
        let mut session = Session::new(directory.path(), "vault", 4).expect("a session");
        for astack in 0..4 {
            assert_eq!(session.ping(astack, LIMIT), Some(0));
        }
        for astack in 0..4 {
            let word = session.region.word(session.region.call(astack));
            word.store(value, Ordering::Release);
            peregrine::sys::futex_wake(word);
        }
        std::thread::sleep(Duration::from_millis(50));
        let before = used(server.id());
        std::thread::sleep(Duration::from_millis(300));
        let spent = used(server.id()) - before;
        assert!(spent < Duration::from_millis(150), "{value}: {spent:?} of 300 ms");
        assert_eq!(session.ping(0, LIMIT), Some(0), "{value}: the A-stack is unusable");
    }
}

#[test]
fn descriptor_that_closes_slowly_does_not_block_the_server() {
    let (directory, server, mut canary) = stage();
    let (file, _reader) = tricks::slow_to_close(Duration::from_secs(30));
    let line = Line::connect(directory.path(), "vault").unwrap();
    // While the server is stopped, this process closes its copy of the descriptor. The server then has to
    // close the last copy.
    stop_process(&server);
    let sent = line.send_with(&wire::describe(), &[file.as_fd()]);
    if sent.is_ok() {
        drop(file);
    } else {
        core::mem::forget(file);
    }
    server.signal(libc::SIGCONT);
    let late = Line::connect(directory.path(), "vault").unwrap();
    assert!(tricks::is_answered(&late, LIMIT), "the server waits for a close");
    assert_eq!(canary.ping(1, LIMIT), Some(0));
    if sent.is_ok() {
        println!("skipped in part: every process may send descriptors on this kernel");
    }
}

/// Moves the server's sleeping thread to another futex word. Every process that shares the word can do this.
#[test]
fn requeued_thread_releases_its_session() {
    let (directory, server, mut canary) = stage();
    let before = Vitals::of(server.id());
    let mut after = before;
    // The moved thread must release the session soon after the client has gone. A thread without work ends
    // much later, and would then release the session anyway. A slow machine may need more than one attempt.
    let gone = (0..3).any(|_| {
        let mut session = Session::new(directory.path(), "vault", 2).expect("a session");
        assert_eq!(session.ping(0, LIMIT), Some(0));
        assert!(tricks::falls_asleep(&session, 0));
        // The word already says that the thread sleeps, but the thread falls asleep a moment later.
        let requeued = eventually(LIMIT, || tricks::requeue(&session, 0) > 0);
        assert!(requeued, "no thread sleeps on the word");
        drop(session);
        let is_gone = || {
            after = Vitals::of(server.id());
            after.regions <= before.regions
        };
        // If the server leaks such sessions, all three attempts fail.
        eventually(Duration::from_secs(3), is_gone)
    });
    assert!(gone, "a dead session's memory stays: {before:?} became {after:?}");
    assert_eq!(canary.ping(0, LIMIT), Some(0));
}

#[test]
fn flood_of_rings_does_not_delay_others() {
    let (directory, _server, mut canary) = stage();
    let flooding: Vec<Session> =
        (0..4).map(|_| Session::new(directory.path(), "vault", 64).unwrap()).collect();
    let until = Instant::now() + soak(Duration::from_secs(1));
    let mut worst = Duration::ZERO;
    let rings: u64 = std::thread::scope(|scope| {
        let floods: Vec<_> =
            flooding.iter().map(|one| scope.spawn(move || tricks::flood(one, until))).collect();
        while Instant::now() < until {
            let start = Instant::now();
            assert_eq!(canary.ping(0, LIMIT), Some(0));
            worst = worst.max(start.elapsed());
            // A new connection is served, too.
            let late = Line::connect(directory.path(), "vault").unwrap();
            assert!(tricks::is_answered(&late, LIMIT));
        }
        floods.into_iter().map(|flood| flood.join().unwrap()).sum()
    });
    println!("{rings} rings; the longest honest call took {worst:?}");
    assert!(worst < LIMIT, "{worst:?}");
}

/// All threads of a server wait inside procedures, one of them in a nested call. If a client then asks for a
/// thread with a `RING` message, the server's keeper checks whether the call belongs to that nested call. The
/// call has many extensions, which make this check long.
#[test]
fn rings_of_calls_with_many_extensions_do_not_delay_others() {
    let directory = tempfile::tempdir().unwrap();
    let _last = Process::start("child", "last", directory.path());
    let mut server = Process::start("child", "cramped", directory.path());
    let _keeps = Process::start("child", "keeps-threads", directory.path());
    (0..2).for_each(|_| drop(server.until("inside")));
    let tags = words(&[9, 0].repeat(4095));
    let mut flooding: Vec<Session> =
        (0..32).map(|_| Session::new(directory.path(), "vault", 64).unwrap()).collect();
    for session in &mut flooding {
        for astack in 0..64 {
            session.post_extended(astack, wire::PING, &tags);
        }
    }
    // Only one thread floods the server. With more threads, the server might get no processor.
    let until = Instant::now() + soak(Duration::from_secs(2));
    let mut worst = Duration::ZERO;
    let rounds = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut rounds = 0;
            while Instant::now() < until {
                for one in &flooding {
                    tricks::ring_all(one);
                }
                rounds += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            rounds
        });
        while Instant::now() < until {
            let start = Instant::now();
            let late = Line::connect(directory.path(), "vault").unwrap();
            assert!(tricks::is_answered(&late, 3 * LIMIT), "the keeper is occupied by rings");
            worst = worst.max(start.elapsed());
        }
        flood.join().unwrap()
    });
    println!("{rounds} rounds of rings; the longest honest request took {worst:?}");
}

/// The number of sessions of one user is limited. When the limit is reached, the existing sessions still
/// work.
#[test]
fn sessions_of_a_user_are_bounded() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    // The limit applies to this process and to the server that it starts.
    let before = getrlimit(Resource::Nofile);
    let most = rustix::process::Rlimit { current: Some(1 << 14), maximum: before.maximum };
    if setrlimit(Resource::Nofile, most).is_err() {
        println!("skipped: this user cannot raise its limit to 16,384 descriptors");
        return;
    }
    let (directory, _server, mut canary) = stage();
    let mut sessions = Vec::new();
    while sessions.len() < 3000 {
        let Ok(session) = Session::new(directory.path(), "vault", 1) else { break };
        sessions.push(session);
    }
    assert_eq!(1 + sessions.len(), limits::SESSIONS_PER_USER);
    assert_eq!(limits::SESSIONS_PER_USER, 2048);
    assert_eq!(canary.ping(0, LIMIT), Some(0));
    let last = sessions.last_mut().unwrap();
    assert_eq!(last.ping(0, LIMIT), Some(0));
    // When a session has been closed, a new one can begin.
    drop(sessions.swap_remove(0));
    assert!(eventually(LIMIT, || Session::new(directory.path(), "vault", 1).is_ok()));
}

/// A connection must bind within five seconds, whatever it sends meanwhile.
#[test]
fn unbound_connections_are_closed_after_their_time() {
    let (directory, server, mut canary) = stage();
    let before = Vitals::of(server.id());
    let connect = || Line::connect(directory.path(), "vault").unwrap();
    // This connection sends so many requests at once that the server pauses reading from it.
    let talker = connect();
    stop_process(&server);
    for _ in 0..100 {
        talker.send(&wire::describe()).expect("the server's queue has space");
    }
    server.signal(libc::SIGCONT);
    for _ in 0..100 {
        assert_eq!(word(&talker.answer().0, 0), wire::DESCRIPTION);
    }
    // Make more connections than the server allows at one time. If the time limit of the first connections
    // ends before the last connection is made, the attempt is repeated.
    let is_full = || {
        let begun = Instant::now();
        let unbound: Vec<Line> = (0..300).map(|_| connect()).collect();
        assert!(eventually(LIMIT, || unbound.iter().filter(|one| !one.is_open()).count() >= 44));
        let (answer, _) = connect().answer();
        let late = begun.elapsed() >= limits::UNBOUND_TIME;
        let refused =
            word(&answer, 0) == wire::REFUSED && word(&answer, 4) == Kind::Exhausted as u32;
        assert!(refused || late, "{answer:?}");
        refused.then_some(unbound)
    };
    let _unbound =
        (0..5).find_map(|_| is_full()).expect("too slow to open the connections in time");
    assert_eq!(canary.ping(0, LIMIT), Some(0), "a bound client is affected");
    while talker.receive().is_ok() {}
    let mut after = before;
    let back = eventually(2 * LIMIT, || {
        after = Vitals::of(server.id());
        after.descriptors <= before.descriptors
    });
    assert!(back, "unbound connections remain: {before:?} became {after:?}");
    let mut late = Session::new(directory.path(), "vault", 1).expect("a session can begin again");
    assert_eq!(late.ping(0, LIMIT), Some(0));
}

/// The server gives each session a token, with which the client makes further bindings in the session. A
/// token is valid only for the process that received it.
#[test]
fn stolen_token_is_useless() {
    let (directory, _server, mut canary) = stage();
    let token: String = canary.token.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut thief = Process::start("child", &format!("thief {token}"), directory.path());
    assert_eq!(number(&mut thief), 1);
    assert_eq!(canary.ping(0, LIMIT), Some(0));
}

fn thief(directory: &Path, token: &str) {
    let token = (0..16).map(|at| u8::from_str_radix(&token[2 * at..2 * at + 2], 16).unwrap());
    let token: wire::Token = token.collect::<Vec<_>>().try_into().unwrap();
    println!("\nready");
    let line = Line::connect(directory, "vault").unwrap();
    let (answer, files) = line.ask(&wire::bind(1, 4096, &[token]));
    let mut own = Session::of_answer(line, &answer, &files).expect("a session of its own");
    assert_ne!(own.token, token);
    assert_eq!(own.ping(0, LIMIT), Some(0));
    println!("\n1");
}

/// How long the kernel takes to close the descriptor that the slow server sends.
const SLOW: Duration = Duration::from_secs(8);

/// Runs two servers and their clients. After its answer to a bind, the server `slow` sends a descriptor that
/// takes seconds to close. Only clients that bind to this server may have to wait. On an old kernel, the
/// server can send such a descriptor at any time.
fn client_of_a_slow_server(directory: &Path, is_old: bool) {
    let [slow, quick] = ["slow", "quick"].map(|name| wire::listen(directory, name));
    println!("\nready");
    let accept = |listener: &Line| loop {
        match listener.accept() {
            Ok(line) => break line,
            Err(_) => std::thread::yield_now(),
        }
    };
    std::thread::scope(|scope| {
        let bound = scope.spawn(|| VaultClient::bind("quick").unwrap());
        let line = accept(&quick);
        line.answer();
        let (message, region) = wrong::good();
        line.send_with(&message, &[region.as_fd()]).unwrap();
        let other = bound.join().unwrap();
        assert!(other.is_alive());

        let sends_later = |attempt: u8| {
            let bound = scope.spawn(|| VaultClient::bind("slow").unwrap());
            let trap = accept(&slow);
            let (_, region) = wrong::good();
            // Each attempt sends a different token, so the client begins a new session.
            let message = wire::bound([100 + attempt; 16], 1, 1, 1 << 20);
            trap.send_with(&message, &[region.as_fd()]).unwrap();
            core::mem::forget(bound.join().unwrap());
            let (file, reader) = tricks::slow_to_close(SLOW);
            core::mem::forget(reader);
            trap.send_with(&words(&[wire::REVOKED, 1]), &[file.as_fd()]).unwrap();
            core::mem::forget(trap);
            // Closing the last copy takes seconds, and the client must be the one that closes it. So the
            // attempt is invalid if this `drop` takes long.
            let closing = std::thread::spawn(|| drop(file));
            eventually(SLOW / 8, || closing.is_finished())
        };
        // The descriptor must reach the client. If the client already rejects descriptors, or has closed its
        // copy first, the attempt is repeated.
        let sent = if is_old {
            (0..20).any(sends_later)
        } else {
            (0..50).any(|_| {
                // This thread is not joined, because it may block for as long as the descriptor takes to
                // close.
                std::thread::spawn(|| VaultClient::bind("slow").map(drop));
                let trap = accept(&slow);
                let (file, reader) = tricks::slow_to_close(SLOW);
                let (message, region) = wrong::good();
                while trap.send_with(&message, &[region.as_fd()]).is_err() {}
                let sent = trap.send_with(&words(&[wire::REVOKED, 1]), &[file.as_fd()]).is_ok();
                if !sent {
                    // The client did not receive the descriptor, so this process closes the last copy. The
                    // linger time is removed, because this close must not block.
                    drop(reader);
                    rustix::net::sockopt::set_socket_linger(&file, None).unwrap();
                }
                sent
            })
        };
        assert!(sent, "the client rejected descriptors in every attempt");
        std::thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        drop(line);
        assert!(eventually(LIMIT, || !other.is_alive()));
        println!("\n{}", start.elapsed().as_millis());
    });
    // The exit also ends the thread that may still wait for the descriptor to close.
    std::process::exit(0);
}

#[test]
fn server_with_slowly_closing_descriptors_blocks_only_its_own_clients() {
    for kernel in ["of-this-kernel", "of-an-old-kernel"] {
        let directory = tempfile::tempdir().unwrap();
        let what = format!("client-of-a-slow-server {kernel}");
        let mut client = Process::start("child", &what, directory.path());
        let noticed_ms = number(&mut client);
        let late = noticed_ms >= SLOW.as_millis() as u64 / 2;
        assert!(!late, "{kernel}: the end of another session was noticed after {noticed_ms} ms");
    }
}

/// Runs a server that sends withdrawals of bindings for one second without pause. Most of these bindings
/// never existed. Prints how many withdrawals the client has received.
fn client_of_a_flooding_server(directory: &Path) {
    let listener = wire::listen(directory, "talking");
    println!("\nready");
    let (received, vault) = std::thread::scope(|scope| {
        let bound = scope.spawn(|| VaultClient::bind("talking").unwrap());
        let accepted = eventually_some(|| listener.accept().ok());
        accepted.answer();
        let (message, region) = wrong::good();
        accepted.send_with(&message, &[region.as_fd()]).unwrap();
        let vault = bound.join().unwrap();
        let (begun, mut received) = (Instant::now(), 0_u32);
        while begun.elapsed() < Duration::from_secs(1) {
            match accepted.send(&words(&[wire::REVOKED, 1000 + received])) {
                Ok(()) => received += 1,
                Err(_) => std::thread::yield_now(),
            }
        }
        // After all these withdrawals, the server withdraws the client's own binding. The client must still
        // process this message.
        while accepted.send(&words(&[wire::REVOKED, 1])).is_err() {}
        assert!(eventually(LIMIT, || !vault.is_alive()), "the client missed the withdrawal");
        (received, vault)
    });
    drop(vault);
    println!("\n{received}");
}

/// Repeats `attempt` until it returns a value. Panics if that takes longer than [`LIMIT`].
fn eventually_some<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    assert!(eventually(LIMIT, || {
        found = attempt();
        found.is_some()
    }));
    found.expect("found")
}

#[test]
fn flood_of_withdrawals_does_not_occupy_the_keeper() {
    let directory = tempfile::tempdir().unwrap();
    let mut client = Process::start("child", "client-of-a-flooding-server", directory.path());
    let received = number(&mut client);
    println!("{received} messages in a second");
    // The client's keeper reads at most 64 messages, and then rests for 5 ms.
    assert!(received < 30_000, "the client received {received} messages in a second");
}
