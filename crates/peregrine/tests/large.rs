//! Large arguments and results: copied while they are written, whatever the other side does
//! meanwhile, and their memory given back.

mod support;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Executed, ExportOptions, Kind, Lent, Out, Server, Wait, interface};
use support::{Part, part};

const MOST: u32 = 64 << 20;
/// For what must happen.
const LIMIT: Duration = Duration::from_secs(20);

#[interface]
trait Large {
    /// A checksum of what came.
    fn take(&self, #[max_len(MOST)] bytes: &[u8]) -> peregrine::Result<u64>;
    /// The same, of what is read while it is still being sent.
    fn lend(&self, head: &str, #[max_len(MOST)] bytes: Lent<'_, u8>) -> peregrine::Result<u64>;
    /// So many bytes that belong to a seed.
    fn give(&self, seed: u64, #[max_len(MOST)] into: Out<'_, u8>) -> peregrine::Result<()>;
    /// The same, a few bytes at a time with a moment between; then the first is put right.
    fn drip(&self, seed: u64, #[max_len(MOST)] into: Out<'_, u8>) -> peregrine::Result<()>;
    /// The same from two buffers, filled by turns, and not to the end.
    fn pair(
        &self,
        seed: u64,
        #[max_len(MOST)] one: Out<'_, u8>,
        #[max_len(MOST)] other: Out<'_, u8>,
    ) -> peregrine::Result<()>;
    /// The same by value.
    fn fetch(&self, seed: u64, length: u32) -> peregrine::Result<Vec<u8>>;
    /// Fills the buffer, and fails.
    fn spoil(&self, #[max_len(MOST)] into: Out<'_, u8>) -> peregrine::Result<()>;
    /// Turns each bit over.
    fn turn(&self, #[max_len(MOST)] bytes: &mut [u8]) -> peregrine::Result<()>;
    /// Both kinds, with what stands between.
    fn mixed(
        &self,
        a: u64,
        #[max_len(MOST)] one: &[u8],
        #[max_len(MOST)] other: &[u32],
        #[max_len(MOST)] lent: Lent<'_, u8>,
    ) -> peregrine::Result<u64>;
    /// Nothing.
    fn null(&self) -> peregrine::Result<()>;
}

struct Object;

/// Bytes that belong to a seed.
fn bytes_of(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

fn sum<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    let add = |sum: u64, byte: &u8| sum.rotate_left(5) ^ u64::from(*byte);
    bytes.into_iter().fold(7, add)
}

fn sum_of_lent(lent: &Lent<'_, u8>) -> u64 {
    let mut all = vec![0; lent.len()];
    // Piece by piece, the last ones first: whoever wants the end waits for all.
    let mut at = all.len();
    while at > 0 {
        let from = at.saturating_sub(100_000);
        lent.copy_to(from, &mut all[from..at]).expect("all of it comes");
        at = from;
    }
    sum(&all)
}

impl Large for Object {
    fn take(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        Ok(sum(bytes))
    }
    fn lend(&self, head: &str, bytes: Lent<'_, u8>) -> peregrine::Result<u64> {
        Ok(sum_of_lent(&bytes) ^ head.len() as u64)
    }
    fn give(&self, seed: u64, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let bytes = bytes_of(seed, into.capacity());
        into.put(&bytes).expect("room");
        Ok(())
    }
    fn drip(&self, seed: u64, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let mut bytes = bytes_of(seed, into.capacity());
        let first = std::mem::replace(&mut bytes[0], 0);
        for part in bytes.chunks(5000) {
            into.put(part).expect("room");
            std::thread::sleep(Duration::from_micros(50));
        }
        into.set(0, first).expect("it is filled");
        Ok(())
    }
    fn pair(
        &self,
        seed: u64,
        mut one: Out<'_, u8>,
        mut other: Out<'_, u8>,
    ) -> peregrine::Result<()> {
        let bytes = bytes_of(seed, one.capacity().min(other.capacity()) * 3 / 4);
        for part in bytes.chunks(9000) {
            one.put(part).expect("room");
            other.put(part).expect("room");
        }
        Ok(())
    }
    fn fetch(&self, seed: u64, length: u32) -> peregrine::Result<Vec<u8>> {
        Ok(bytes_of(seed, length as usize))
    }
    fn spoil(&self, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        into.put(&vec![9; into.capacity()]).expect("room");
        panic!("spoilt");
    }
    fn turn(&self, bytes: &mut [u8]) -> peregrine::Result<()> {
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        Ok(())
    }
    fn mixed(
        &self,
        a: u64,
        one: &[u8],
        other: &[u32],
        lent: Lent<'_, u8>,
    ) -> peregrine::Result<u64> {
        let other: Vec<u8> = other.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Ok(a ^ sum(one) ^ sum(&other).rotate_left(1) ^ sum_of_lent(&lent).rotate_left(2))
    }
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
}

/// The parts that children play; in the test itself this does nothing.
#[test]
fn child() {
    match part().as_deref() {
        Some("server") => {
            let server = Server::new().threads(1).export("large", LargeServer::new(Object));
            let running = server.unwrap().spawn().unwrap();
            println!("\nready");
            running.wait();
        }
        Some("client") => {
            let client = LargeClient::bind("large").unwrap();
            let bytes = bytes_of(5, 8 << 20);
            let expected = sum(&bytes);
            println!("\nready");
            for _ in 0..100_000 {
                match client.take(&bytes) {
                    Ok(sum) => assert_eq!(sum, expected),
                    // The server has gone, and so has the test.
                    Err(_) => return,
                }
                println!("once");
            }
        }
        _ => {}
    }
}

/// Tests of this file change the environment, so one runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(what: &str, directory: &Path) -> Part {
    Part::start("child", what, directory)
}

#[test]
fn every_size_arrives_whole_in_every_direction() {
    let _alone = alone();
    let directory = support::own_directory();
    let _server = start("server", directory.path());
    for wait in [Wait::Adaptive, Wait::Block, Wait::Spin] {
        let options = BindOptions::default().wait(wait);
        let client = LargeClient::bind_with("large", &options).unwrap();
        let sizes =
            [0, 1, 4096, 8191, 8192, 8193, 8208, 16 << 10, 48_000, 100_003, 1 << 20, 3 << 20];
        for (seed, size) in (1u64..).zip(sizes) {
            let mut bytes = bytes_of(seed, size);
            let expected = sum(&bytes);
            assert_eq!(client.take(&bytes).unwrap(), expected, "{size}");
            let lent = client.lend("lent", Lent::from(&bytes[..]));
            assert_eq!(lent.unwrap(), expected ^ 4, "{size}");
            let mut given = vec![0; size];
            client.give(seed, Out::from(&mut given[..])).unwrap();
            assert_eq!(given, bytes, "{size}");
            let words: Vec<u32> = (0..size as u32 / 3).collect();
            let as_bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let mixed = 9 ^ expected ^ sum(&as_bytes).rotate_left(1) ^ expected.rotate_left(2);
            let found = client.mixed(9, &bytes, &words, Lent::from(&bytes[..]));
            assert_eq!(found.unwrap(), mixed, "{size}");
            let turned: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
            client.turn(&mut bytes).unwrap();
            assert_eq!(bytes, turned, "{size}");
        }
    }
    let client = LargeClient::bind("large").unwrap();
    let mut bytes = bytes_of(3, MOST as usize);
    assert_eq!(client.take(&bytes).unwrap(), sum(&bytes));
    for _ in 0..2 {
        let mut given = vec![0; bytes.len()];
        client.give(3, Out::from(&mut given[..])).unwrap();
        assert!(given == bytes);
    }
    client.turn(&mut bytes).unwrap();
    assert!(bytes.iter().map(|byte| !byte).eq(bytes_of(3, MOST as usize)));
}

/// Messages follow each other through the places, and begin anew: whatever stood there before, and
/// whatever the sizes.
#[test]
fn places_are_run_through_in_both_directions() {
    let _alone = alone();
    let directory = support::own_directory();
    let _server = start("server", directory.path());
    for wait in [Wait::Spin, Wait::Adaptive, Wait::Block] {
        let options = BindOptions::default().wait(wait);
        let client = LargeClient::bind_with("large", &options).unwrap();
        for seed in 0..130 {
            let size = [48_000, 9000, 20_000, 100_003, 8193][seed as usize % 5];
            let mut bytes = bytes_of(seed, size);
            let expected = sum(&bytes);
            assert_eq!(client.take(&bytes).unwrap(), expected, "{seed}");
            let mut given = Vec::with_capacity(size);
            client.give(seed, Out::from(&mut given)).unwrap();
            assert!(given == bytes, "{seed}");
            assert!(client.fetch(seed, size as u32).unwrap() == bytes, "{seed}");
            let turned: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
            client.turn(&mut bytes).unwrap();
            assert!(bytes == turned, "{seed}");
            if seed % 16 == 0 {
                // Small ones in between have their own place.
                client.null().unwrap();
                assert_eq!(client.take(&turned[..100]).unwrap(), sum(&turned[..100]));
            }
        }
    }
}

/// What the client takes of a result before it is whole is put right if it was changed, and is of
/// the right buffer.
#[test]
fn results_are_right_however_they_were_filled() {
    let _alone = alone();
    let directory = support::own_directory();
    let _server = start("server", directory.path());
    let options = BindOptions::default().wait(Wait::Spin);
    let client = LargeClient::bind_with("large", &options).unwrap();
    for seed in 1..20 {
        let size = 30_000 + 1000 * seed as usize;
        let mut given = vec![0; size];
        client.drip(seed, Out::from(&mut given[..])).unwrap();
        assert!(given == bytes_of(seed, size), "{seed}");
        let (mut one, mut other) = (vec![0; size], vec![0; size]);
        let (mut a, mut b) = (Out::from(&mut one[..]), Out::from(&mut other[..]));
        client.pair(seed, a.by_ref(), b.by_ref()).unwrap();
        let filled = size * 3 / 4;
        assert_eq!((a.filled(), b.filled()), (filled, filled));
        assert!(one[..filled] == bytes_of(seed, filled), "{seed}");
        assert!(other[..filled] == one[..filled], "{seed}");
        // A result that never comes to an end leaves anything in the buffer, and no harm.
        let error = client.spoil(Out::from(&mut given[..])).unwrap_err();
        assert_eq!((error.kind(), error.detail()), (Kind::Panicked, "spoilt"));
        // Nor does one that is large by itself, or small again.
        assert_eq!(client.fetch(seed, 40_000).unwrap().len(), 40_000);
        assert_eq!(client.fetch(seed, 3).unwrap().len(), 3);
    }
}

/// A server that stops in the middle of a result is one that does not answer.
#[test]
fn a_server_that_stops_in_the_middle_of_a_result_is_waited_for_until_the_deadline() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = start("server", directory.path());
    for wait in [Wait::Adaptive, Wait::Spin] {
        let options = BindOptions::default().wait(wait);
        let client = LargeClient::bind_with("large", &options).unwrap();
        let mut buffer = vec![0; 1 << 20];
        // The next result is taken while it is written.
        client.give(1, Out::from(&mut buffer[..])).unwrap();
        let mut stopped = 0;
        for round in 0..50 {
            let limit = Duration::from_millis(300);
            let (stop, start) = (Duration::from_millis(3 + 3 * (round % 5)), Instant::now());
            let result = std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(stop);
                    server.signal(libc::SIGSTOP);
                });
                client.with_timeout(limit).drip(2, Out::from(&mut buffer[..]))
            });
            server.signal(libc::SIGCONT);
            // Who comes too late to stop it in the middle tries again.
            if let Err(error) = result {
                let outcome = (error.kind(), error.executed());
                assert_eq!(outcome, (Kind::TimedOut, Executed::Maybe), "{error}");
                assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
                stopped += 1;
            }
            client.give(3, Out::from(&mut buffer[..])).unwrap();
            assert!(buffer == bytes_of(3, buffer.len()));
            if stopped == 5 {
                break;
            }
        }
        assert!(stopped > 0, "it was never stopped in the middle");
    }
}

/// A server that is killed in the middle of a result is noticed like any that dies.
#[test]
fn a_server_that_dies_in_the_middle_of_a_result_is_noticed() {
    let _alone = alone();
    let directory = support::own_directory();
    for (wait, after) in [(Wait::Adaptive, 3), (Wait::Spin, 6), (Wait::Block, 9), (Wait::Spin, 12)]
    {
        // Who comes too late to kill it in the middle tries again.
        let killed = (0..20).any(|_| dies_in_the_middle(directory.path(), wait, after));
        assert!(killed, "it never died in the middle");
    }
}

/// Kills a server so many milliseconds after the begin of a call; whether that was in the middle of it.
fn dies_in_the_middle(directory: &Path, wait: Wait, after: u64) -> bool {
    let mut server = start("server", directory);
    let client = LargeClient::bind_with("large", &BindOptions::default().wait(wait)).unwrap();
    let mut buffer = vec![0; 1 << 20];
    client.give(1, Out::from(&mut buffer[..])).unwrap();
    let start = Instant::now();
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(after));
            server.kill();
        });
        client.drip(2, Out::from(&mut buffer[..]))
    });
    let Err(error) = result else { return false };
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
    assert_eq!(error.kind(), Kind::ServerGone, "{error}");
    // If it died before it took the call, that was not executed.
    error.executed() == Executed::Maybe
}

/// The largest message there is, both ways.
#[test]
#[ignore = "takes 4 GiB of memory"]
fn a_gibibyte_goes_through() {
    const GIBIBYTE: usize = 1 << 30;
    let _alone = alone();
    let directory = support::own_directory();
    let options = ExportOptions::default().message_bytes_max(GIBIBYTE);
    let server = Server::new().export_with("huge", HugeServer::new(Object), options);
    let running = server.unwrap().spawn().unwrap();
    let options = BindOptions::default().message_bytes(GIBIBYTE).astacks(1);
    let client = HugeClient::bind_with("huge", &options).unwrap();
    let mut bytes = vec![5; GIBIBYTE - 4096];
    for _ in 0..2 {
        assert_eq!(client.ends(&bytes).unwrap(), (5, 5));
        client.fill(6, Out::from(&mut bytes[..])).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 6));
        bytes.fill(5);
    }
    drop((client, running, directory));
}

#[interface]
trait Huge {
    /// The first byte and the last.
    fn ends(&self, bytes: &[u8]) -> peregrine::Result<(u8, u8)>;
    /// Nothing but this byte.
    fn fill(&self, byte: u8, into: Out<'_, u8>) -> peregrine::Result<()>;
}

impl Huge for Object {
    fn ends(&self, bytes: &[u8]) -> peregrine::Result<(u8, u8)> {
        Ok((bytes[0], bytes[bytes.len() - 1]))
    }
    fn fill(&self, byte: u8, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let bytes = vec![byte; 1 << 20];
        while into.remaining() > 0 {
            into.put(&bytes[..into.remaining().min(bytes.len())]).expect("room");
        }
        Ok(())
    }
}

/// The only thread of the server copies from a client that is stopped in the middle of it: others
/// wait a moment, not until it goes on. And that one's call is run once it is whole.
#[test]
fn who_stops_in_the_middle_of_a_message_keeps_nobody() {
    let _alone = alone();
    let directory = support::own_directory();
    let _server = start("server", directory.path());
    let mut slow = start("client", directory.path());
    let client = LargeClient::bind("large").unwrap();
    let mut longest = Duration::ZERO;
    for round in 0..60u64 {
        while slow.line() != "once" {}
        // Somewhere in the next call.
        std::thread::sleep(Duration::from_micros(round * 97 % 4000));
        slow.signal(libc::SIGSTOP);
        let start = Instant::now();
        client.null().unwrap();
        longest = longest.max(start.elapsed());
        slow.signal(libc::SIGCONT);
    }
    println!("others waited {longest:?} at most");
    assert!(longest < LIMIT / 2, "a stopped client kept others for {longest:?}");
    while slow.line() != "once" {}
}

/// Bytes of memory that the regions of this process occupy.
fn resident() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut ours = false;
    let mut bytes = 0;
    for line in maps.lines() {
        if line.contains("-") && line.split_whitespace().count() >= 5 && !line.contains("kB") {
            ours = line.contains("/memfd:peregrine");
        } else if let Some(rss) = line.strip_prefix("Rss:").filter(|_| ours) {
            let number = rss.trim().trim_end_matches("kB").trim();
            bytes += number.parse::<u64>().unwrap() * 1024;
        }
    }
    bytes
}

#[test]
fn the_memory_of_large_messages_is_given_back() {
    let _alone = alone();
    let directory = support::own_directory();
    let _server = start("server", directory.path());
    let client = LargeClient::bind("large").unwrap();
    client.null().unwrap();
    let before = resident();
    let bytes = bytes_of(1, 8 << 20);
    let expected = sum(&bytes);
    // Seen before it is given back, for which a machine that is late may leave no time.
    support::until("it goes through the region", || {
        assert_eq!(client.take(&bytes).unwrap(), expected);
        resident() >= 8 << 20
    });
    support::until("it is given back", || resident() <= before + (256 << 10));
    // And then it works as before.
    assert_eq!(client.take(&bytes).unwrap(), expected);
    client.null().unwrap();
}
