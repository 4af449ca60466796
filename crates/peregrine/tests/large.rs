//! Tests large arguments and results. The receiver copies them while the sender is still writing them. The
//! sender or the receiver may stop or die meanwhile. The memory of a message must be released after its call.

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use crc32c::crc32c;
use peregrine::{BindOptions, Executed, ExportOptions, Kind, Lent, Out, Server, Wait, interface};
use support::{Process, alone, role};

const MOST: u32 = 64 << 20;
/// How long a test waits for an event that must happen.
const LIMIT: Duration = Duration::from_secs(20);

#[interface]
trait Large {
    /// Returns a checksum of the bytes.
    fn take(&self, #[max_len(MOST)] bytes: &[u8]) -> peregrine::Result<u64>;
    /// Returns a checksum of bytes that are read while they are still being sent.
    fn lend(&self, head: &str, #[max_len(MOST)] bytes: Lent<'_, u8>) -> peregrine::Result<u64>;
    /// Returns bytes that depend on a seed.
    fn give(&self, seed: u64, #[max_len(MOST)] into: Out<'_, u8>) -> peregrine::Result<()>;
    /// Returns the bytes that `give` returns, but writes them in small pieces with pauses. The first byte is
    /// wrong until the end.
    fn drip(&self, seed: u64, #[max_len(MOST)] into: Out<'_, u8>) -> peregrine::Result<()>;
    /// Fills two buffers with the bytes that `give` returns. The procedure writes to the two buffers
    /// alternately, until each has as many bytes as three quarters of the smaller capacity.
    fn pair(
        &self,
        seed: u64,
        #[max_len(MOST)] one: Out<'_, u8>,
        #[max_len(MOST)] other: Out<'_, u8>,
    ) -> peregrine::Result<()>;
    /// Returns the bytes that `give` returns, by value.
    fn fetch(&self, seed: u64, length: u32) -> peregrine::Result<Vec<u8>>;
    /// Fills the buffer and then panics.
    fn spoil(&self, #[max_len(MOST)] into: Out<'_, u8>) -> peregrine::Result<()>;
    /// Inverts every bit.
    fn invert(&self, #[max_len(MOST)] bytes: &mut [u8]) -> peregrine::Result<()>;
    /// Returns a checksum of copied and lent arguments.
    fn mixed(
        &self,
        a: u64,
        #[max_len(MOST)] one: &[u8],
        #[max_len(MOST)] other: &[u32],
        #[max_len(MOST)] lent: Lent<'_, u8>,
    ) -> peregrine::Result<u64>;
    fn null(&self) -> peregrine::Result<()>;
}

struct Object;

/// Returns bytes that depend on a seed.
fn bytes_of(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn sum(bytes: &[u8]) -> u64 {
    u64::from(crc32c(bytes))
}

fn sum_of_lent(lent: &Lent<'_, u8>) -> u64 {
    let mut all = vec![0; lent.len()];
    // The procedure reads the last piece first. So the first read waits until all bytes have arrived.
    let mut at = all.len();
    while at > 0 {
        let from = at.saturating_sub(100_000);
        lent.copy_to(from, &mut all[from..at]).expect("the whole buffer arrives");
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
        into.put(&bytes).expect("enough space");
        Ok(())
    }
    fn drip(&self, seed: u64, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let mut bytes = bytes_of(seed, into.capacity());
        let first = std::mem::replace(&mut bytes[0], 0);
        for part in bytes.chunks(5000) {
            into.put(part).expect("enough space");
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
            one.put(part).expect("enough space");
            other.put(part).expect("enough space");
        }
        Ok(())
    }
    fn fetch(&self, seed: u64, length: u32) -> peregrine::Result<Vec<u8>> {
        Ok(bytes_of(seed, length as usize))
    }
    fn spoil(&self, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        into.put(&vec![9; into.capacity()]).expect("enough space");
        panic!("spoilt");
    }
    fn invert(&self, bytes: &mut [u8]) -> peregrine::Result<()> {
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

/// Does the work of a child process that has a role. In the test run itself, this function does nothing.
#[test]
fn child() {
    match role().as_deref() {
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
                    // The test has ended, and the server with it.
                    Err(_) => return,
                }
                println!("once");
            }
        }
        _ => {}
    }
}

fn start(what: &str, directory: &Path) -> Process {
    Process::start("child", what, directory)
}

#[test]
fn messages_of_every_size_arrive_intact_in_every_direction() {
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
            let inverted: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
            client.invert(&mut bytes).unwrap();
            assert_eq!(bytes, inverted, "{size}");
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
    client.invert(&mut bytes).unwrap();
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    assert!(bytes == bytes_of(3, MOST as usize));
}

/// The memory for large messages is used from beginning to end, and then from the beginning again. Messages
/// of all sizes arrive intact, whatever that memory contained before.
#[test]
fn room_for_large_messages_is_reused_in_both_directions() {
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
            let inverted: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
            client.invert(&mut bytes).unwrap();
            assert!(bytes == inverted, "{seed}");
            if seed % 16 == 0 {
                // Small messages between the large ones use different memory.
                client.null().unwrap();
                assert_eq!(client.take(&inverted[..100]).unwrap(), sum(&inverted[..100]));
            }
        }
    }
}

/// The client copies a result while the procedure is still filling it. If the procedure changes bytes that
/// the client has already copied, these bytes are corrected at the end. Each buffer gets its own bytes.
#[test]
fn results_are_correct_however_they_are_filled() {
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
        // After a failed call, the buffer may contain anything. Later calls still work.
        let error = client.spoil(Out::from(&mut given[..])).unwrap_err();
        assert_eq!((error.kind(), error.detail()), (Kind::Panicked, "spoilt"));
        // Later calls can also return results by value: first a large one, then a small one.
        assert_eq!(client.fetch(seed, 40_000).unwrap().len(), 40_000);
        assert_eq!(client.fetch(seed, 3).unwrap().len(), 3);
    }
}

/// If a server process is stopped in the middle of a result, the call ends as if the server had not answered.
#[test]
fn call_to_server_stopped_during_its_result_ends_at_the_deadline() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = start("server", directory.path());
    for wait in [Wait::Adaptive, Wait::Spin] {
        let options = BindOptions::default().wait(wait);
        let client = LargeClient::bind_with("large", &options).unwrap();
        let mut buffer = vec![0; 1 << 20];
        // This large result makes the client copy the next result while the server is writing it.
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
            // If the call returned before the server was stopped, the next round tries again.
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
        assert!(stopped > 0, "the server was never stopped during a result");
    }
}

/// If a server is killed in the middle of a result, the client detects the death as at any other time.
#[test]
fn death_of_server_during_its_result_is_detected() {
    let _alone = alone();
    let directory = support::own_directory();
    for (wait, after) in [(Wait::Adaptive, 3), (Wait::Spin, 6), (Wait::Block, 9), (Wait::Spin, 12)]
    {
        // If the call returned before the server was killed, the attempt is repeated.
        let killed = (0..20).any(|_| dies_during_result(directory.path(), wait, after));
        assert!(killed, "the server never died during a result");
    }
}

/// Kills a server `after` milliseconds after a call began. Returns whether the call may have run.
fn dies_during_result(directory: &Path, wait: Wait, after: u64) -> bool {
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
    // If the server died before it took the call, the call was not executed.
    error.executed() == Executed::Maybe
}

/// Sends a message of the largest supported size in both directions.
#[test]
#[ignore = "takes 4 GiB of memory"]
fn message_of_a_gibibyte_arrives_intact() {
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
    /// Returns the first and the last byte.
    fn ends(&self, bytes: &[u8]) -> peregrine::Result<(u8, u8)>;
    /// Fills the whole buffer with copies of `byte`.
    fn fill(&self, byte: u8, into: Out<'_, u8>) -> peregrine::Result<()>;
}

impl Huge for Object {
    fn ends(&self, bytes: &[u8]) -> peregrine::Result<(u8, u8)> {
        Ok((bytes[0], bytes[bytes.len() - 1]))
    }
    fn fill(&self, byte: u8, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let bytes = vec![byte; 1 << 20];
        while into.remaining() > 0 {
            into.put(&bytes[..into.remaining().min(bytes.len())]).expect("enough space");
        }
        Ok(())
    }
}

/// The server has one thread, which copies the message of a client. Meanwhile, that client is stopped. Other
/// clients wait only for a moment. The call of the stopped client runs when its message is complete.
#[test]
fn client_stopped_during_its_message_does_not_block_others() {
    let _alone = alone();
    let directory = support::own_directory();
    let _server = start("server", directory.path());
    let mut slow = start("client", directory.path());
    let client = LargeClient::bind("large").unwrap();
    let mut longest = Duration::ZERO;
    for round in 0..60u64 {
        while slow.line() != "once" {}
        // Sleep for a different time in each round, so that the client is stopped at different points of its
        // next call.
        std::thread::sleep(Duration::from_micros(round * 97 % 4000));
        slow.signal(libc::SIGSTOP);
        let start = Instant::now();
        client.null().unwrap();
        longest = longest.max(start.elapsed());
        slow.signal(libc::SIGCONT);
    }
    println!("other calls took at most {longest:?}");
    assert!(longest < LIMIT / 2, "a stopped client delayed others by {longest:?}");
    while slow.line() != "once" {}
}

/// Returns the number of resident bytes in the regions that this process maps.
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
fn memory_of_large_messages_is_released() {
    let _alone = alone();
    let directory = support::own_directory();
    let _server = start("server", directory.path());
    let client = LargeClient::bind("large").unwrap();
    client.null().unwrap();
    let before = resident();
    let bytes = bytes_of(1, 8 << 20);
    let expected = sum(&bytes);
    // The test must observe the occupied memory before the memory is released. So a slow machine may need
    // more than one attempt.
    support::until("the message occupies the region", || {
        assert_eq!(client.take(&bytes).unwrap(), expected);
        resident() >= 8 << 20
    });
    support::until("the memory is released", || resident() <= before + (256 << 10));
    // Later messages arrive as before.
    assert_eq!(client.take(&bytes).unwrap(), expected);
    client.null().unwrap();
}
