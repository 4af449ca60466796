//! Peers that do their worst, as real processes: whoever is honest beside them sees nothing of it,
//! and when they have gone nothing of them is left.
//!
//! `PEREGRINE_SOAK=600` makes the noisy ones go on for so many seconds; `PEREGRINE_SEED=n`, which
//! each of them prints, repeats one.

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
use support::{Part, part};

/// A server whose procedures wait, in calls of their own or without.
#[interface]
trait Waits {
    /// Waits so long; behind a name, in a call to another server.
    fn wait(&self, behind: &str, ms: u64) -> peregrine::Result<()>;
}

struct Waiter;

impl Waits for Waiter {
    fn wait(&self, behind: &str, ms: u64) -> peregrine::Result<()> {
        println!("\ninside");
        if !behind.is_empty() {
            return WaitsClient::bind(behind)?.wait("", ms);
        }
        std::thread::sleep(Duration::from_millis(ms));
        Ok(())
    }
}

/// How long noise goes on if nobody asks for more.
const NOISE: Duration = Duration::from_secs(2);
/// A limit for what must end by itself, on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(10);

/// The parts that children play; in the test itself this does nothing.
#[test]
fn child() {
    let Some(part) = part() else { return };
    no_longer_than(soak(NOISE) + Duration::from_secs(50));
    let directory = support::directory();
    let words: Vec<&str> = part.split(' ').collect();
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
                // SO_PASSRIGHTS, by which later kernels keep descriptors out.
                support::without_socket_option(83);
            }
            client_of_a_slow_server(&directory, is_old);
        }
        "client-of-a-talking-server" => client_of_a_talking_server(&directory),
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
        // Keeps both threads of a server, one of them in a nested call.
        "keeps-threads" => {
            println!("\nready");
            let wait = |behind| WaitsClient::bind("waits").unwrap().wait(behind, 60_000);
            std::thread::scope(|scope| {
                scope.spawn(move || wait("last"));
                let _ = wait("");
            });
        }
        "thief" => thief(&directory, words[1]),
        "client-of-both" => client_of_both(Duration::from_millis(number(1))),
        other => panic!("nobody knows how to play `{other}`"),
    }
}

/// The number that a part prints at its end.
fn number(part: &mut Part) -> u64 {
    loop {
        if let Ok(number) = part.line().parse() {
            return number;
        }
    }
}

#[test]
fn noise_in_a_region_harms_its_own_client_only() {
    let directory = tempfile::tempdir().unwrap();
    let start = |what: &str| Part::start("child", what, directory.path());
    let server = start("server");
    let mut honest = [start("client"), start("client")];
    let watched = [server.id(), honest[0].id(), honest[1].id()];
    std::thread::sleep(Duration::from_millis(300));

    let (seed, noise) = (seed(), (soak(NOISE) / 2).as_millis());
    let mut before = watched.map(Vitals::of);
    // The first time warms what is kept; what the second one adds would go on growing.
    for (time, kib) in [(0, 64 << 10), (1, 32 << 10)] {
        let hostile = [seed, seed ^ 0x5555]
            .map(|seed| start(&format!("hostile-client {} {noise}", seed.wrapping_add(time))));
        for mut hostile in hostile {
            assert!(number(&mut hostile) > 0, "the noise made no call");
        }
        // Threads that found nothing to do end after five seconds.
        let mut after = before;
        let back = eventually(LIMIT, || {
            after = watched.map(Vitals::of);
            after.iter().zip(before).all(|(now, before)| now.is_back_to(before, 2, kib))
        });
        println!("before {before:?}\nafter  {after:?}");
        assert!(back, "the noise left something behind: {before:?} became {after:?}");
        before = after;
    }
    stop(directory.path());
    let calls = honest.each_mut().map(number);
    println!("honest calls: {calls:?}");
    // How many depends on what else the machine does; a call that never ended would end the child.
    assert!(calls.iter().all(|calls| *calls > 0), "honest clients were kept waiting: {calls:?}");
    // Who comes now is served.
    let mut late = Session::new(directory.path(), "vault", 1).expect("a session");
    assert_eq!(late.ping(0, LIMIT), Some(0));
}

/// Calls a hostile server and an honest one, from the same process.
fn client_of_both(time: Duration) {
    let honest = VaultClient::bind("vault").unwrap();
    check(&honest, 0).unwrap();
    // What a thread needs once it needs always.
    let _ = VaultClient::bind_with("trap", &hasty(Wait::Adaptive));
    let me = std::process::id();
    let mut before = Vitals::of(me);
    println!("\nready");
    let (served, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    // The first time warms what is kept; what the second one adds would go on growing.
    for kib in [64 << 10, 16 << 10] {
        call_both(&honest, time / 2, &served, &failed);
        check(&VaultClient::bind("vault").unwrap(), 1).unwrap();
        let mut after = before;
        let back = eventually(LIMIT, || {
            after = Vitals::of(me);
            after.is_back_to(before, 0, kib)
        });
        assert!(back, "the hostile server left something behind: {before:?} became {after:?}");
        before = after;
    }
    println!("\n{}\n{}", served.into_inner(), failed.into_inner());
}

/// What a call to the hostile server may take, and what a bind may.
const CALL: Duration = Duration::from_millis(30);
const BIND: Duration = Duration::from_millis(200);

fn hasty(wait: Wait) -> BindOptions {
    BindOptions::default().timeout(CALL).bind_timeout(BIND).wait(wait)
}

/// Some threads call the honest server, others the hostile one.
fn call_both(honest: &VaultClient, time: Duration, served: &AtomicU64, failed: &AtomicU64) {
    /// What a machine that does other things adds to a limit.
    const SLACK: Duration = LIMIT;
    let start = Instant::now();
    let seen = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let enough = [served, failed].map(|count| seen(count) + 50);
    // On a machine that does much else, until there is enough to be seen.
    let goes_on = || {
        let enough = seen(served) > enough[0] && seen(failed) > enough[1];
        start.elapsed() < if enough { time } else { time + LIMIT }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut n = 0;
                while goes_on() {
                    check(honest, n).expect("an honest call beside hostile ones");
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
                    let bound = VaultClient::bind_with("trap", &hasty(wait));
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

/// Calls whose results may be anything; whether there was one.
fn call(vault: &VaultClient) -> bool {
    let mut buffer = [0; 32];
    let mut out = Out::from(&mut buffer);
    let copied = vault.copy("some text", &[1, 2, 3], out.by_ref()).is_ok();
    assert!(out.filled() <= 32);
    let mut offered = Vec::with_capacity(20);
    let _ = vault.copy("more", &[], Out::from(&mut offered));
    assert!(offered.len() <= offered.capacity());
    // Large enough for its result to be taken while it is written.
    let mut large = Vec::with_capacity(50_000);
    let _ = vault.copy("more", &[], Out::from(&mut large));
    assert!(large.len() <= large.capacity());
    let (mut flags, mut names) = ([true, false, true], ["a".to_owned(), "b".into()]);
    let _ = vault.turn(&mut flags, &mut names);
    // Whatever came, each is one of two, and text is text.
    let shown = format!("{flags:?} {names:?}");
    assert_eq!(shown, shown.chars().collect::<String>());
    let _ = vault.sum(1, Lent::from(&[1; 100]));
    let _ = vault.grow(attack::vault::Tree { name: "x".into(), children: vec![] });
    let _ = vault.binding().ping();
    copied && vault.add(1, 2).is_ok()
}

#[test]
fn noise_of_a_server_harms_its_own_bindings_only() {
    let directory = tempfile::tempdir().unwrap();
    let start = |what: &str| Part::start("child", what, directory.path());
    let _honest = start("server");
    let (seed, noise) = (seed(), soak(NOISE).as_millis());
    let _hostile = start(&format!("hostile-server {seed} {}", noise + 30_000));
    let mut client = start(&format!("client-of-both {noise}"));
    let (served, failed) = (number(&mut client), number(&mut client));
    println!("honest calls: {served}; failed calls: {failed}");
    assert!(served > 100, "hostile calls kept honest ones waiting: {served}");
    assert!(failed > 100, "the hostile server was not met: {failed}");
}

#[test]
fn wrong_handshakes_of_clients_are_refused_and_disturb_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let server = Part::start("child", "server", directory.path());
    let mut canary = Session::new(directory.path(), "vault", 2).expect("a session");
    assert_eq!(canary.ping(0, LIMIT), Some(0));
    let before = Vitals::of(server.id());
    let stage = Stage { directory: directory.path(), name: "vault", other: canary.binding };
    for (what, case) in wrong::CLIENTS {
        let start = Instant::now();
        case(stage);
        assert_eq!(canary.ping(0, LIMIT), Some(0), "{what}: an honest client notices");
        let mut after = before;
        let back = eventually(LIMIT, || {
            after = Vitals::of(server.id());
            after.is_back_to(before, 2, 16 << 10)
        });
        assert!(back, "{what}: {before:?} became {after:?}");
        println!("{what}: {:?}", start.elapsed());
    }
}

/// One thread of this process is a server that is wrong in each way in turn.
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
        // A thread that was waited for takes a moment to be gone.
        let back = eventually(LIMIT, || {
            now = Vitals::of(me);
            now.is_back_to(first, 0, 16 << 10)
        });
        assert!(back, "{what}: {first:?} became {now:?}");
    }
    println!("\n{}", wrong::SERVERS.len());
}

#[test]
fn wrong_handshakes_of_servers_are_errors_of_the_bind() {
    let directory = tempfile::tempdir().unwrap();
    let mut client = Part::start("child", "client-of-wrong-servers", directory.path());
    assert_eq!(number(&mut client), wrong::SERVERS.len() as u64);
}

/// A server of its own, and an honest client that was made by hand.
fn stage() -> (tempfile::TempDir, Part, Session) {
    let directory = tempfile::tempdir().unwrap();
    let server = Part::start("child", "server", directory.path());
    let mut canary = Session::new(directory.path(), "vault", 2).expect("a session");
    assert_eq!(canary.ping(0, LIMIT), Some(0));
    (directory, server, canary)
}

/// Halts a process, and waits until nothing of it runs any more.
fn halt(part: &Part) {
    part.signal(libc::SIGSTOP);
    assert!(eventually(LIMIT, || is_halted(part.id())));
}

/// Nothing but the client's own keeper writes `DEAD`, and on other words; if a client writes it
/// where the server waits, the server must be able to sleep on it.
#[test]
fn words_that_mean_nothing_cost_the_server_no_time() {
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
        assert_eq!(session.ping(0, LIMIT), Some(0), "{value}: the A-stack is lost");
    }
}

#[test]
fn a_descriptor_that_is_slow_to_close_holds_up_nobody() {
    let (directory, server, mut canary) = stage();
    let (file, _reader) = tricks::slow_to_close(Duration::from_secs(30));
    let line = Line::connect(directory.path(), "vault").unwrap();
    // Halted, so that the last close is the server's and not ours.
    halt(&server);
    let sent = line.say_with(&wire::describe(), &[file.as_fd()]);
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
        println!("skipped in part: this kernel lets everybody send descriptors");
    }
}

/// The kernel lets whoever shares a word move those who sleep on it to another one.
#[test]
fn a_thread_that_was_carried_away_lets_go_of_the_session() {
    let (directory, server, mut canary) = stage();
    let before = Vitals::of(server.id());
    let mut after = before;
    // It lets go long before it would end, having nothing to do: on a machine that is late, in one try.
    let gone = (0..3).any(|_| {
        let mut session = Session::new(directory.path(), "vault", 2).expect("a session");
        assert_eq!(session.ping(0, LIMIT), Some(0));
        assert!(tricks::falls_asleep(&session, 0));
        // It has said so, and sleeps a moment later.
        let carried = eventually(LIMIT, || tricks::carry_away(&session, 0) > 0);
        assert!(carried, "nobody slept there");
        drop(session);
        let is_gone = || {
            after = Vitals::of(server.id());
            after.regions <= before.regions
        };
        // Where it stays for good, no further try finds it gone either.
        eventually(Duration::from_secs(3), is_gone)
    });
    assert!(gone, "a dead session's memory stays: {before:?} became {after:?}");
    assert_eq!(canary.ping(0, LIMIT), Some(0));
}

#[test]
fn a_flood_of_rings_keeps_nobody_waiting() {
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
            // A name that was not asked for yet, too.
            let late = Line::connect(directory.path(), "vault").unwrap();
            assert!(tricks::is_answered(&late, LIMIT));
        }
        floods.into_iter().map(|flood| flood.join().unwrap()).sum()
    });
    println!("{rings} rings; the longest honest call took {worst:?}");
    assert!(worst < LIMIT, "{worst:?}");
}

/// All threads of a server wait inside of procedures, one of them in a nested call, so that rings are
/// looked at for whether their calls come from inside.
#[test]
fn rings_of_calls_with_many_tags_keep_nobody_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let _last = Part::start("child", "last", directory.path());
    let mut server = Part::start("child", "cramped", directory.path());
    let _keeps = Part::start("child", "keeps-threads", directory.path());
    (0..2).for_each(|_| drop(server.until("inside")));
    let tags = words(&[9, 0].repeat(4095));
    let mut flooding: Vec<Session> =
        (0..32).map(|_| Session::new(directory.path(), "vault", 64).unwrap()).collect();
    for session in &mut flooding {
        for astack in 0..64 {
            session.post_extended(astack, wire::PING, &tags);
        }
    }
    // One thread, so that it takes no processor from the server's.
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
            assert!(tricks::is_answered(&late, 3 * LIMIT), "the keeper is busy with rings");
            worst = worst.max(start.elapsed());
        }
        flood.join().unwrap()
    });
    println!("{rounds} times all rang; the longest honest question took {worst:?}");
}

/// One user has so many sessions, and those that it has go on.
#[test]
fn sessions_of_a_user_are_bounded() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    // For this process and the server that it starts.
    let before = getrlimit(Resource::Nofile);
    let most = rustix::process::Rlimit { current: Some(1 << 14), maximum: before.maximum };
    if setrlimit(Resource::Nofile, most).is_err() {
        println!("skipped: this user may not have 16,384 descriptors");
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
    // Who leaves makes room.
    drop(sessions.swap_remove(0));
    assert!(eventually(LIMIT, || Session::new(directory.path(), "vault", 1).is_ok()));
}

/// A connection has five seconds to bind, whatever it says meanwhile.
#[test]
fn guests_have_their_time_and_no_more() {
    let (directory, server, mut canary) = stage();
    let before = Vitals::of(server.id());
    let connect = || Line::connect(directory.path(), "vault").unwrap();
    // One that says so much at once that the server looks away for a while.
    let talker = connect();
    halt(&server);
    for _ in 0..100 {
        talker.say(&wire::describe()).expect("room for requests");
    }
    server.signal(libc::SIGCONT);
    for _ in 0..100 {
        assert_eq!(word(&talker.answer().0, 0), wire::DESCRIPTION);
    }
    // More than may be at one time; once more, where the first had gone before the last came.
    let is_full = || {
        let begun = Instant::now();
        let guests: Vec<Line> = (0..300).map(|_| connect()).collect();
        assert!(eventually(LIMIT, || guests.iter().filter(|guest| !guest.is_open()).count() >= 44));
        let (said, _) = connect().answer();
        let late = begun.elapsed() >= limits::UNBOUND_TIME;
        let refused = word(&said, 0) == wire::REFUSED && word(&said, 4) == Kind::Exhausted as u32;
        assert!(refused || late, "{said:?}");
        refused.then_some(guests)
    };
    let _guests = (0..5).find_map(|_| is_full()).expect("so many at one time");
    assert_eq!(canary.ping(0, LIMIT), Some(0), "who is bound is not disturbed");
    while talker.hear().is_ok() {}
    let mut after = before;
    let back = eventually(2 * LIMIT, || {
        after = Vitals::of(server.id());
        after.descriptors <= before.descriptors
    });
    assert!(back, "guests stay: {before:?} became {after:?}");
    let mut late = Session::new(directory.path(), "vault", 1).expect("room again");
    assert_eq!(late.ping(0, LIMIT), Some(0));
}

/// A token is good for the process that it was given to.
#[test]
fn a_stolen_token_opens_nothing() {
    let (directory, _server, mut canary) = stage();
    let token: String = canary.token.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut thief = Part::start("child", &format!("thief {token}"), directory.path());
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

/// How long a descriptor takes to close.
const SLOW: Duration = Duration::from_secs(8);

/// A server sends a descriptor behind the answer to the bind that takes seconds to close. Whoever
/// binds to it may wait for that, but nobody else. On an old kernel it can send one at any time.
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
        line.say_with(&message, &[region.as_fd()]).unwrap();
        let other = bound.join().unwrap();
        assert!(other.is_alive());

        let sends_later = |attempt: u8| {
            let bound = scope.spawn(|| VaultClient::bind("slow").unwrap());
            let trap = accept(&slow);
            let (_, region) = wrong::good();
            // Another session than any before.
            let message = wire::bound([100 + attempt; 16], 1, 1, 1 << 20);
            trap.say_with(&message, &[region.as_fd()]).unwrap();
            core::mem::forget(bound.join().unwrap());
            let (file, reader) = tricks::slow_to_close(SLOW);
            core::mem::forget(reader);
            trap.say_with(&words(&[wire::REVOKED, 1]), &[file.as_fd()]).unwrap();
            core::mem::forget(trap);
            // Whose copy is the last waits: if it is ours, it is no test.
            let closing = std::thread::spawn(|| drop(file));
            eventually(SLOW / 8, || closing.is_finished())
        };
        // The message must be there before the client asks for no more: it is tried until it was.
        let sent = if is_old {
            (0..20).any(sends_later)
        } else {
            (0..50).any(|_| {
                // Not waited for: it may hang for as long as the descriptor does.
                std::thread::spawn(|| VaultClient::bind("slow").map(drop));
                let trap = accept(&slow);
                let (file, reader) = tricks::slow_to_close(SLOW);
                let (message, region) = wrong::good();
                while trap.say_with(&message, &[region.as_fd()]).is_err() {}
                let sent = trap.say_with(&words(&[wire::REVOKED, 1]), &[file.as_fd()]).is_ok();
                if !sent {
                    // Never sent, it must not be ours to close either.
                    drop(reader);
                    rustix::net::sockopt::set_socket_linger(&file, None).unwrap();
                }
                sent
            })
        };
        assert!(sent, "the client was always faster");
        std::thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        drop(line);
        assert!(eventually(LIMIT, || !other.is_alive()));
        println!("\n{}", start.elapsed().as_millis());
    });
    // With the thread that waits for the descriptor, if it still does.
    std::process::exit(0);
}

#[test]
fn a_server_whose_descriptors_are_slow_to_close_holds_up_only_those_who_bind_to_it() {
    for kernel in ["of-this-kernel", "of-an-old-kernel"] {
        let directory = tempfile::tempdir().unwrap();
        let what = format!("client-of-a-slow-server {kernel}");
        let mut client = Part::start("child", &what, directory.path());
        let noticed_ms = number(&mut client);
        let late = noticed_ms >= SLOW.as_millis() as u64 / 2;
        assert!(!late, "{kernel}: the end of another session was noticed after {noticed_ms} ms");
    }
}

/// A server withdraws bindings without end, most of which there never were, for a second. Prints how
/// many such messages this client has taken in.
fn client_of_a_talking_server(directory: &Path) {
    let listener = wire::listen(directory, "talking");
    println!("\nready");
    let (taken, vault) = std::thread::scope(|scope| {
        let bound = scope.spawn(|| VaultClient::bind("talking").unwrap());
        let accepted = eventually_some(|| listener.accept().ok());
        accepted.answer();
        let (message, region) = wrong::good();
        accepted.say_with(&message, &[region.as_fd()]).unwrap();
        let vault = bound.join().unwrap();
        let (begun, mut taken) = (Instant::now(), 0_u32);
        while begun.elapsed() < Duration::from_secs(1) {
            match accepted.say(&words(&[wire::REVOKED, 1000 + taken])) {
                Ok(()) => taken += 1,
                Err(_) => std::thread::yield_now(),
            }
        }
        // What comes after all that is heard too.
        while accepted.say(&words(&[wire::REVOKED, 1])).is_err() {}
        assert!(eventually(LIMIT, || !vault.is_alive()), "the binding was withdrawn");
        (taken, vault)
    });
    drop(vault);
    println!("\n{taken}");
}

/// What `attempt` brings, tried again until it brings something.
fn eventually_some<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    assert!(eventually(LIMIT, || {
        found = attempt();
        found.is_some()
    }));
    found.expect("found")
}

#[test]
fn server_that_withdraws_without_end_does_not_occupy_the_keeper() {
    let directory = tempfile::tempdir().unwrap();
    let mut client = Part::start("child", "client-of-a-talking-server", directory.path());
    let taken = number(&mut client);
    println!("{taken} messages in a second");
    // 64 of them are taken at a time, and then the keeper rests for 5 ms.
    assert!(taken < 30_000, "the client has taken {taken} messages in a second");
}
