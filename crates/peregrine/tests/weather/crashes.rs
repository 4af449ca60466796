//! Tests servers that are killed and started again while the network impairs packets.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use peregrine::{CallError, Executed, Source};

use super::storm::{Random, STORMY, receive, seeds};
use super::support::relay::Relay;
use super::support::{Process, alone, directory, own_directory, role};
use super::*;

/// Serves in a child process. In the test run itself there is no role, and this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let journal = directory().join("journal");
    let journal = OpenOptions::new().append(true).create(true).open(journal).unwrap();
    let object = Object(Arc::new(Seen { journal: Some(journal), ..Seen::default() }));
    let running = serve(&object, &format!("udp:127.0.0.1:{role}"));
    println!("\nport {}", port(&running));
    println!("ready");
    running.wait();
}

fn start(port: u16, directory: &Path) -> (Process, u16) {
    let mut process = Process::launch("crashes::child", &port.to_string(), directory);
    let port = process.until("port").parse().expect("a port");
    process.until("ready");
    (process, port)
}

/// Returns the numbers in those lines of the journal that begin with `word`.
fn journal(directory: &Path, word: &str) -> Vec<u64> {
    let text = std::fs::read_to_string(directory.join("journal")).unwrap_or_default();
    let numbers = text.lines().filter_map(|line| line.strip_prefix(word));
    numbers.map(|number| number.trim().parse().expect("a number")).collect()
}

/// Makes `count` calls of `note`, and flushes them. Checks how many of the calls have run.
fn notes(client: &WeatherClient, count: u64, made: &mut u64, directory: &Path) {
    let ran_before = journal(directory, "note").len() as u64;
    let (mut failed, mut not_run, mut handed_over) = (0, 0, 0);
    let mut tell = |error: CallError| {
        assert_eq!(error.kind(), Kind::OneWay, "{error}");
        failed += error.oneway_failed();
        not_run += error.oneway_not_run();
    };
    for _ in 0..count {
        *made += 1;
        match client.note(*made) {
            Ok(()) => handed_over += 1,
            Err(error) => tell(error),
        }
    }
    if let Err(error) = client.flush() {
        tell(error);
    }
    let ran = journal(directory, "note").len() as u64 - ran_before;
    let missing = handed_over - ran;
    assert!(missing <= not_run && not_run <= failed, "{missing} missing, {not_run} of {failed}");
}

/// Makes rounds of calls of all kinds. During every third round, calls `restart`, which kills the server
/// and starts another one.
fn rounds(client: &WeatherClient, seed: u64, directory: &Path, restart: &(dyn Fn() + Sync)) {
    let (mut random, mut made, mut number) = (Random::of(seed), 0, 0);
    let mut certain: Vec<(u64, usize)> = Vec::new();
    for round in 0..12 {
        let (count, size) = (1 + random.below(100), random.below(200) as u32);
        std::thread::scope(|scope| {
            if round % 3 == 0 {
                scope.spawn(restart);
            }
            notes(client, count, &mut made, directory);
            for _ in 0..20 {
                number += 1;
                match client.add(number) {
                    Ok(_) => certain.push((number, 1)),
                    Err(error) if error.executed() == Executed::No => certain.push((number, 0)),
                    Err(_) => {}
                }
            }
            let mut received = 0;
            let counted = client.count(20 * count, size, receive(&mut received, 0));
            assert!(received <= 20 * count && (counted.is_err() || received == 20 * count));
            let items = (0..count).map(|number| Item::new(number, size));
            let checked = client.check(Source::new(items));
            assert!(checked.is_err() || checked.unwrap() == count);
        });
    }
    let noted = journal(directory, "note");
    assert!(noted.windows(2).all(|two| two[0] < two[1]), "{noted:?}");
    let mut added = HashMap::<u64, usize>::new();
    journal(directory, "add").into_iter().for_each(|number| *added.entry(number).or_default() += 1);
    assert!(added.values().all(|times| *times == 1), "{added:?}");
    for (number, times) in certain {
        assert_eq!(added.get(&number).copied().unwrap_or(0), times, "call {number}");
    }
}

#[test]
fn outcomes_are_true_when_the_server_is_killed_in_a_storm() {
    let _alone = alone();
    seeds(1, |seed| {
        let directory = own_directory();
        let (process, port) = start(0, directory.path());
        let process = Mutex::new(Some(process));
        let server = format!("127.0.0.1:{port}").parse().unwrap();
        let mut relay = Relay::new("127.0.0.1:0".parse().unwrap(), server, STORMY, seed);
        let (at, ends) = (relay.address(), AtomicBool::new(false));
        let restart = || {
            let mut process = process.lock().unwrap();
            drop(process.take());
            *process = Some(start(port, directory.path()).0);
        };
        std::thread::scope(|scope| {
            let relays = scope.spawn(|| {
                while !ends.load(Ordering::SeqCst) {
                    relay.step(&mut |_, _| ());
                }
            });
            let run = || rounds(&behind(at), seed, directory.path(), &restart);
            let run = scope.spawn(run).join();
            ends.store(true, Ordering::SeqCst);
            relays.join().unwrap();
            run.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    });
}
