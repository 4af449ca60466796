//! The load generator. It puts and gets values and checks what it reads, and calls a pool of all servers.
//!
//! Calls are scheduled: each has a moment at which it begins, whether or not earlier calls have ended. Its
//! latency counts from that moment. So a stall of a second counts for each call that was due meanwhile.

use std::collections::{HashMap, HashSet};
use std::hash::Hasher as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use peregrine::{Balance, BindOptions, PoolStanding, Rebind, Wait};
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;
use tokio::runtime::Handle;

use crate::measured::Tally;
use crate::replicas::{CALL_LIMIT, Replicas, label};
use crate::serve::StoreArgs;
use crate::store::{StoreAsync as _, StoreAsyncPool, Versioned};
use crate::{Format, now_us};

/// The most calls in flight. Further calls fail without being made.
const IN_FLIGHT_MAX: usize = 2000;
/// The size of each value, in bytes.
const VALUE_BYTES: usize = 128;
/// How often the pool is asked which servers it uses.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// The most servers that are remembered, so that each is reported once.
const SERVERS_SEEN_MAX: usize = 10_000;
/// The most texts about values that were lost or damaged.
const EXAMPLES_MAX: usize = 5;
/// How long the load waits for servers before it begins.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often each value is read again at the end, if it cannot be read.
const LAST_READS: u32 = 20;
const LAST_READ_PAUSE: Duration = Duration::from_millis(250);

/// Calls the store until a signal arrives, and checks what it reads
#[derive(clap::Args)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Gets and puts per second, and as many calls of the pool
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// The number of keys
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    keys: u32,
    /// Stop after this time. By default, the load runs until a signal arrives
    #[arg(long)]
    seconds: Option<u64>,
    /// The time between two lines of output, in milliseconds
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    interval_ms: u64,
    /// How lines are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// What happened since the last line.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Interval {
    /// Gets and puts of the replicated store.
    pub(crate) store: Tally,
    /// Calls of the pool.
    pub(crate) pool: Tally,
    /// Values that were lost or damaged, since the load began.
    pub(crate) violations: u64,
    /// The number of servers that the pool uses.
    pub(crate) used: usize,
    /// Servers that the pool uses now and did not use before.
    pub(crate) joined: Vec<Joined>,
}

/// A server that the pool uses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Joined {
    pub(crate) addresses: Vec<String>,
    /// The path that carries the calls, such as `udp`.
    pub(crate) path: String,
    /// The time of day at which the pool was seen to know the server.
    pub(crate) known_us: u64,
    /// The time of day at which the pool was seen to use the server.
    pub(crate) used_us: u64,
}

/// What was found at the end, when all keys were read again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Verified {
    /// The keys for which a put was acknowledged.
    pub(crate) keys: u64,
    /// Those whose acknowledged value, or a newer one, is not there.
    pub(crate) lost: u64,
    /// Those that could not be read.
    pub(crate) unreadable: u64,
    /// Values that were lost or damaged during the load.
    pub(crate) violations: u64,
    /// Some texts about what was lost.
    pub(crate) examples: Vec<String>,
}

/// A line of output in JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Line {
    Begun,
    Interval(Interval),
    Verified(Verified),
}

/// What all calls share.
struct Shared {
    replicas: Replicas,
    pool: StoreAsyncPool,
    /// For each key, the newest version that was acknowledged, or 0.
    acknowledged: Vec<AtomicU64>,
    next_version: AtomicU64,
    in_flight: AtomicUsize,
    /// The time of day in microseconds at which the last call of the store, and of the pool, has succeeded.
    succeeded_us: [AtomicU64; 2],
    measured: Mutex<Interval>,
    examples: Mutex<Vec<String>>,
}

/// Runs the load. Returns whether nothing was lost.
///
/// # Errors
/// If the load could not begin.
pub(crate) fn run(args: &LoadArgs) -> Result<bool, String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&stop));
        registered.map_err(|error| format!("cannot handle signals: {error}"))?;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
    let shared = Arc::new(runtime.block_on(begin(args, &stop))?);
    print(args.format, &Line::Begun, Duration::ZERO);
    let begun = Instant::now();
    thread::scope(|scope| {
        let (stop, shared) = (&stop, &shared);
        scope.spawn(move || follow_pool(shared, stop));
        scope.spawn(move || report(args, shared, stop));
        let ends = args.seconds.map(Duration::from_secs);
        schedule(args.rate, shared, runtime.handle(), || {
            stop.load(Ordering::Relaxed) || ends.is_some_and(|ends| begun.elapsed() >= ends)
        });
        stop.store(true, Ordering::Relaxed);
    });
    let verified = runtime.block_on(verify(&shared));
    print(args.format, &Line::Verified(verified.clone()), begun.elapsed());
    Ok(verified.lost + verified.violations + verified.unreadable == 0)
}

/// Binds to the servers.
async fn begin(args: &LoadArgs, stop: &AtomicBool) -> Result<Shared, String> {
    let directory = args.store.open().map_err(|error| error.to_string())?;
    let (name, places) = (&args.store.name, args.store.places);
    let replicas = Replicas::new(&*directory, name, places).map_err(|error| error.to_string())?;
    let options = BindOptions::default()
        .directory(directory)
        .balance(Balance::LeastLoaded)
        .rebind(Rebind::Idempotent)
        // Otherwise, a server that is reached over a slower path would get no calls.
        .nearest_first(false)
        .timeout(CALL_LIMIT)
        .wait_for(START_LIMIT)
        .wait(Wait::Block);
    let pool = StoreAsyncPool::bind_with(name, &options).await;
    let pool = pool.map_err(|error| error.to_string())?;
    let begun = Instant::now();
    loop {
        let unbound = replicas.unbound();
        if unbound.is_empty() {
            break;
        }
        if stop.load(Ordering::Relaxed) {
            return Err("stopped before all places had a server".to_owned());
        }
        if begun.elapsed() > START_LIMIT {
            return Err(format!(
                "no server answers at the places {unbound:?}: start one at each place"
            ));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let acknowledged = (0..args.keys).map(|_| AtomicU64::new(0)).collect();
    Ok(Shared {
        replicas,
        pool,
        acknowledged,
        // Versions of an earlier load are older.
        next_version: AtomicU64::new(now_us()),
        in_flight: AtomicUsize::new(0),
        succeeded_us: Default::default(),
        measured: Mutex::default(),
        examples: Mutex::default(),
    })
}

/// Begins the calls at their moments, until the load is over. Then waits for those in flight.
fn schedule(rate: u32, shared: &Arc<Shared>, runtime: &Handle, is_over: impl Fn() -> bool) {
    let step = Duration::from_secs(1) / rate;
    let mut due = Instant::now();
    // The same sequence in each run.
    let mut random = 0x9e37_79b9_7f4a_7c15;
    while !is_over() {
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            // A slow load ends soon after a signal, too.
            thread::sleep(early.min(Duration::from_millis(100)));
            if due > Instant::now() {
                continue;
            }
        }
        random = next(random);
        let (moment, chosen, shared) = (due, random, Arc::clone(shared));
        due += step;
        if shared.in_flight.fetch_add(2, Ordering::Relaxed) >= IN_FLIGHT_MAX {
            shared.in_flight.fetch_sub(2, Ordering::Relaxed);
            let why = "not made, because too many calls are in flight";
            let mut measured = shared.measured();
            measured.store.omit(why);
            measured.pool.omit(why);
            continue;
        }
        let pooled = Arc::clone(&shared);
        runtime.spawn(async move {
            let failure = shared.call_the_store(chosen).await;
            let gap = shared.gap(0, failure.is_none());
            let mut measured = shared.measured();
            measured.store.record(since(moment), failure);
            measured.store.succeeded(gap);
            drop(measured);
            shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        });
        runtime.spawn(async move {
            let failure = pooled.checksum(chosen).await;
            let gap = pooled.gap(1, failure.is_none());
            let mut measured = pooled.measured();
            measured.pool.record(since(moment), failure);
            measured.pool.succeeded(gap);
            drop(measured);
            pooled.in_flight.fetch_sub(1, Ordering::Relaxed);
        });
    }
    // Each call has a limit, so this ends.
    while shared.in_flight.load(Ordering::Relaxed) > 0 {
        thread::sleep(Duration::from_millis(10));
    }
}

fn since(moment: Instant) -> u64 {
    u64::try_from(moment.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Returns the next number of a sequence that looks random (xorshift).
fn next(mut number: u64) -> u64 {
    number ^= number << 13;
    number ^= number >> 7;
    number ^ (number << 17)
}

fn key(at: usize) -> String {
    format!("key-{at:06}")
}

/// Returns the value that belongs to a key and a version, so that a damaged value is noticed.
fn value(key: &str, version: u64) -> Vec<u8> {
    let mut hasher = SipHasher13::new();
    hasher.write(key.as_bytes());
    hasher.write_u64(version);
    hasher.finish().to_le_bytes().into_iter().cycle().take(VALUE_BYTES).collect()
}

/// Returns what is wrong with a value that was read: it is older than `least`, or it is no value of this key.
fn wrong(key: &str, least: u64, found: Option<&Versioned>) -> Option<String> {
    let version = found.map_or(0, |found| found.version);
    if version < least {
        return Some(format!("{key}: the version {least} is lost, {version} was read"));
    }
    let damaged = found.filter(|found| found.value != value(key, version))?;
    let bytes = damaged.value.len();
    Some(format!("{key}: the {bytes} bytes of version {version} are damaged"))
}

impl Shared {
    fn measured(&self) -> MutexGuard<'_, Interval> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn violation(&self, text: String) {
        self.measured().violations += 1;
        self.example(text);
    }

    fn example(&self, text: String) {
        let mut examples = self.examples.lock().unwrap_or_else(PoisonError::into_inner);
        if examples.len() < EXAMPLES_MAX {
            examples.push(text);
        }
    }

    /// Returns the time in microseconds since the last successful call of this kind. 0 if this call is the
    /// first one, or has failed.
    fn gap(&self, kind: usize, has_succeeded: bool) -> u64 {
        if !has_succeeded {
            return 0;
        }
        let now = now_us();
        match self.succeeded_us[kind].swap(now, Ordering::Relaxed) {
            0 => 0,
            before => now.saturating_sub(before),
        }
    }

    /// Gets or puts the value of a key. Returns the kind of the failure, if it fails.
    async fn call_the_store(&self, chosen: u64) -> Option<String> {
        let at = (chosen >> 8) as usize % self.acknowledged.len();
        let key = key(at);
        if chosen.is_multiple_of(2) {
            let version = self.next_version.fetch_add(1, Ordering::Relaxed);
            let new = Versioned { version, value: value(&key, version) };
            let put = self.replicas.put(&key, new).await;
            if put.is_ok() {
                self.acknowledged[at].fetch_max(version, Ordering::AcqRel);
            }
            return put.err().map(|failure| format!("put: {}", failure.label()));
        }
        // What was acknowledged before the get began must be seen.
        let least = self.acknowledged[at].load(Ordering::Acquire);
        match self.replicas.get(&key).await {
            Ok(found) => {
                self.check(&key, least, found.as_ref());
                None
            }
            Err(failure) => Some(format!("get: {}", failure.label())),
        }
    }

    /// Returns whether what was read is right. Otherwise counts a violation.
    fn check(&self, key: &str, least: u64, found: Option<&Versioned>) -> bool {
        let wrong = wrong(key, least, found);
        let is_right = wrong.is_none();
        wrong.into_iter().for_each(|text| self.violation(text));
        is_right
    }

    /// Lets any server of the pool compute a checksum. Returns the kind of the failure, if it fails.
    async fn checksum(&self, chosen: u64) -> Option<String> {
        let bytes = value("bytes of the pool", chosen);
        match self.pool.checksum(&bytes).await {
            Ok(sum) if sum == crc32c::crc32c(&bytes) => None,
            Ok(sum) => {
                self.violation(format!("the checksum {sum:08x} is wrong"));
                None
            }
            Err(error) => Some(label(&error)),
        }
    }
}

/// Notes when the pool begins to know and to use a server.
fn follow_pool(shared: &Shared, stop: &AtomicBool) {
    let (mut seen, mut known) = (HashSet::new(), HashMap::new());
    while !stop.load(Ordering::Relaxed) {
        let mut used = shared.pool.servers();
        let used_us = now_us();
        for one in &used {
            if known.len() < SERVERS_SEEN_MAX && !known.contains_key(&one.server) {
                known.insert(one.server.clone(), used_us);
            }
        }
        used.retain(|one| one.standing == PoolStanding::Used);
        let mut measured = shared.measured();
        measured.used = used.len();
        for one in used {
            let known_us = known.get(&one.server).copied().unwrap_or(used_us);
            if seen.len() < SERVERS_SEEN_MAX && seen.insert(one.server) {
                let addresses = one.addresses.iter().map(ToString::to_string).collect();
                let path = one.path.map_or_else(String::new, |path| path.to_string());
                measured.joined.push(Joined { addresses, path, known_us, used_us });
            }
        }
        drop(measured);
        thread::sleep(LOOK_EVERY);
    }
}

/// Prints what happened, until the load ends.
fn report(args: &LoadArgs, shared: &Shared, stop: &AtomicBool) {
    let (begun, step) = (Instant::now(), Duration::from_millis(args.interval_ms));
    let mut due = begun + step;
    while !stop.load(Ordering::Relaxed) {
        let early = due.saturating_duration_since(Instant::now());
        thread::sleep(early.min(Duration::from_millis(50)));
        if Instant::now() < due {
            continue;
        }
        due += step;
        let interval = {
            let mut measured = shared.measured();
            let Interval { violations, used, .. } = *measured;
            std::mem::replace(&mut *measured, Interval { violations, used, ..Interval::default() })
        };
        print(args.format, &Line::Interval(interval), begun.elapsed());
    }
}

/// Reads each key again for which a put was acknowledged.
async fn verify(shared: &Shared) -> Verified {
    let mut verified = Verified::default();
    let before = shared.measured().violations;
    for (at, acknowledged) in shared.acknowledged.iter().enumerate() {
        let (key, least) = (key(at), acknowledged.load(Ordering::Acquire));
        if least == 0 {
            continue;
        }
        verified.keys += 1;
        let mut reads = 0;
        let found = loop {
            reads += 1;
            match shared.replicas.get(&key).await {
                Ok(found) => break Some(found),
                Err(failure) if reads == LAST_READS => {
                    shared.example(format!("{key} cannot be read: {}", failure.text));
                    break None;
                }
                Err(_) => tokio::time::sleep(LAST_READ_PAUSE).await,
            }
        };
        match found {
            None => verified.unreadable += 1,
            Some(found) if !shared.check(&key, least, found.as_ref()) => verified.lost += 1,
            Some(_) => {}
        }
        // If no key can be read, the first ones say enough.
        if verified.unreadable >= 3 {
            break;
        }
    }
    verified.violations = before;
    verified.examples.clone_from(&shared.examples.lock().unwrap_or_else(PoisonError::into_inner));
    verified
}

/// Prints a line. Standard output may be closed, which does not end the load.
fn print(format: Format, line: &Line, since: Duration) {
    let text = match (format, line) {
        (Format::Json, line) => serde_json::to_string(line).unwrap_or_default(),
        (_, Line::Begun) => "the load begins".to_owned(),
        (_, Line::Interval(interval)) => {
            let part = |name: &str, tally: &Tally| {
                let (p50, p99) = (tally.quantile_text(0.5), tally.quantile_text(0.99));
                let (calls, failures) = (tally.calls, tally.failures_text());
                format!("{name}: {calls} calls, p50 {p50} ms, p99 {p99} ms, failures {failures}")
            };
            let Interval { violations, used, .. } = interval;
            let (store, pool) = (part("store", &interval.store), part("pool", &interval.pool));
            let seconds = since.as_secs();
            format!("{seconds:>4} s  {store} | {pool} | {used} servers, {violations} wrong values")
        }
        (_, Line::Verified(verified)) => {
            let Verified { keys, lost, unreadable, violations, examples } = verified;
            let mut text = format!(
                "{keys} keys were read again: {lost} lost, {unreadable} unreadable; \
                 {violations} values were lost or damaged before"
            );
            examples.iter().for_each(|example| text += &format!("\n  {example}"));
            text
        }
    };
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_differ_by_key_and_version() {
        assert_eq!(value("a", 1).len(), VALUE_BYTES);
        assert_eq!(value("a", 1), value("a", 1));
        assert_ne!(value("a", 1), value("a", 2));
        assert_ne!(value("a", 1), value("b", 1));
    }

    #[test]
    fn lost_and_damaged_values_are_noticed() {
        let found = |version| Versioned { version, value: value("a", version) };
        assert_eq!(wrong("a", 5, Some(&found(5))), None);
        assert_eq!(wrong("a", 5, Some(&found(6))), None, "a put that is not acknowledged yet");
        assert_eq!(wrong("a", 0, None), None);
        assert!(wrong("a", 5, Some(&found(4))).unwrap().contains("lost"));
        assert!(wrong("a", 5, None).unwrap().contains("lost"));
        assert!(wrong("b", 5, Some(&found(5))).unwrap().contains("damaged"));
    }

    #[test]
    fn lines_can_be_read_back() {
        let mut interval = Interval { used: 3, ..Interval::default() };
        interval.store.record(250, Some("get: TimedOut (may have executed)".to_owned()));
        let text = serde_json::to_string(&Line::Interval(interval)).unwrap();
        assert!(!text.contains('\n'));
        match serde_json::from_str(&text).unwrap() {
            Line::Interval(read) => assert_eq!((read.store.calls, read.used), (1, 3)),
            other => panic!("{other:?}"),
        }
    }
}
