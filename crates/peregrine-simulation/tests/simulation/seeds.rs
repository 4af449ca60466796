//! Random runs of the packet exchange. A seed determines all faults and calls of a run, and the checks
//! afterwards must hold for every seed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::client::ClientOptions;
use crate::exchange::header::HEADER_BYTES;
use crate::exchange::message::PIECE_MAX;
use crate::exchange::time::{MICROSECOND, MILLISECOND, SECOND};
use crate::network::{Address, Link, SERVER};
use crate::oracle::{Ending, Plan};
use crate::random::Random;
use crate::server::ServerOptions;
use crate::world::{CLIENT_OPTIONS, Change, Event, World};

/// The kinds of faults in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// There are no faults, but procedures may take any time.
    Fair,
    /// Packets are lost, delayed, duplicated and damaged.
    Rain,
    /// Packets are impaired as in [`Rain`](Self::Rain). In addition, machines and routes fail.
    Storm,
}

fn link(random: &mut Random, weather: Weather) -> Link {
    let delay = *random.pick(&[
        20 * MICROSECOND,
        200 * MICROSECOND,
        3 * MILLISECOND,
        40 * MILLISECOND,
        250 * MILLISECOND,
        800 * MILLISECOND,
    ]);
    let mut link = Link { delay, ..Link::PERFECT };
    if weather != Weather::Fair {
        if random.chance(300) {
            let bits = *random.pick(&[1_000_000, 10_000_000, 100_000_000, 1_000_000_000]);
            link = Link::shaped(bits, delay);
            if random.chance(300) {
                // Make the queue so short that it overflows.
                link.queue = random.range(5..50) * 1514;
            }
        }
        let mut up_to = |most: u64| if random.chance(600) { random.below(most) as u32 } else { 0 };
        link.loss = up_to(300);
        link.duplicate = up_to(200);
        link.reorder = up_to(300);
        link.corrupt = up_to(100);
        link.truncate = up_to(100);
        link.late_duplicate = up_to(50);
        link.full = up_to(100);
        link.streak = if random.chance(300) { random.range(300..950) as u32 } else { 0 };
        if link.streak > 0 {
            // Reduce the number of bursts, so that on average as many packets are lost as without bursts.
            link.loss = link.loss * (1000 - link.streak) / 1000;
        }
        link.jitter = if random.chance(500) { random.below(delay * 2) } else { 0 };
    }
    link
}

fn bytes(random: &mut Random) -> u32 {
    let most = match random.below(200) {
        0..120 => 1400,
        120..180 => 6_000,
        180..197 => 40_000,
        197..199 => 200_000,
        _ => 600_000,
    };
    match random.below(10) {
        0 => 0,
        1 => *random.pick(&[1, 15, 16, 1407, 1408, 1409, 2815, 2816, 2817]),
        _ => random.below(most) as u32,
    }
}

fn plan(random: &mut Random) -> Plan {
    let longest =
        *random.pick(&[10 * MICROSECOND, MILLISECOND, 50 * MILLISECOND, SECOND, 30 * SECOND]);
    let cancels_after = random.chance(80).then(|| {
        let longest = *random.pick(&[MILLISECOND, 100 * MILLISECOND, 10 * SECOND]);
        random.below(longest)
    });
    Plan {
        total: bytes(random),
        result: bytes(random),
        runs_for: Some(random.below(longest)),
        cancels_after,
        checks_cancellation: random.chance(500),
    }
}

/// One run in `LARGE` runs has a large message, with a size between [`LARGE_BYTES`] and 256 MiB.
const LARGE: u64 = 1000;
/// The smallest size of a large message in bytes.
const LARGE_BYTES: u32 = 16 << 20;

/// Adds a large message to the first call. Improves the links so that they carry the message within hours of
/// virtual time.
fn large(world: &mut World, random: &mut Random, plans: &mut [Vec<Plan>], piece: u32) {
    let bytes = random.range(LARGE_BYTES.into()..(256 << 20) + 1) as u32;
    let call = &mut plans[0][0];
    if random.chance(500) {
        call.total = bytes;
    } else {
        call.result = bytes;
    }
    for link in [&mut world.to_server, &mut world.to_client] {
        link.mtu = piece as usize + HEADER_BYTES;
        link.loss = link.loss.min(10);
        (link.corrupt, link.truncate) = (link.corrupt.min(5), link.truncate.min(5));
        link.full = link.full.min(10);
        link.rate = link.rate.map(|rate| rate.max(100_000_000 / 8));
        link.queue = link.queue.max(1 << 20);
        link.delay = link.delay.min(40 * MILLISECOND);
        link.jitter = link.jitter.min(link.delay);
    }
}

fn world(seed: u64) -> (World, Weather) {
    let random = &mut Random::new(seed ^ 0x5eed);
    let weather = match random.below(8) {
        0 => Weather::Fair,
        1..4 => Weather::Rain,
        _ => Weather::Storm,
    };
    let clients = random.range(1..5) as u32;
    let is_large = random.below(LARGE) == 0;
    // A large message usually has large pieces (fragments), as on loopback or with jumbo frames. So it has
    // few packets.
    let large_piece =
        is_large.then(|| *random.pick(&[PIECE_MAX, PIECE_MAX, PIECE_MAX, 8928, 8928, 1408]));
    let crowded = weather == Weather::Storm && random.chance(300);
    let server = ServerOptions {
        places: if crowded { random.range(1..6) as u32 } else { 64 },
        share: if crowded { 2 } else { 64 },
        workers: if random.chance(300) { 1 } else { 64 },
        queue: if random.chance(200) { 1 } else { 64 },
        piece: large_piece.unwrap_or(*random.pick(&[512, 1024, 1408])),
        credits: *random.pick(&[0, 4, 64, 1024]),
        bytes_max: 256 << 20,
        memory_shortage: if weather != Weather::Fair && random.chance(300) { 500 } else { 0 },
    };
    let client = ClientOptions {
        credits: *random.pick(&[0, 4, 64, 1024]),
        piece: large_piece.unwrap_or(CLIENT_OPTIONS.piece),
        result_bytes_max: 256 << 20,
        pause: *random.pick(&[0, MILLISECOND, 300 * MILLISECOND, 3 * SECOND]),
        bye: random.chance(500),
    };
    let mut world = World::new(seed, clients, server, client);
    world.to_server = link(random, weather);
    world.to_client = link(random, weather);
    world.icmp = random.chance(500);
    let servers = if random.chance(300) { random.range(2..4) as usize } else { 1 };
    world.balance(servers);
    for address in 1..=clients {
        let activities = random.range(1..3);
        let mut plans: Vec<Vec<Plan>> = Vec::new();
        for _ in 0..activities {
            let calls = random.range(1..5);
            plans.push((0..calls).map(|_| plan(random)).collect());
        }
        if let Some(piece) = large_piece.filter(|_| address == 1) {
            large(&mut world, random, &mut plans, piece);
        }
        if weather == Weather::Fair {
            for plan in plans.iter_mut().flatten() {
                plan.cancels_after = None;
            }
        }
        world.start(address, &plans);
    }
    if weather == Weather::Storm {
        storm(&mut world, random, clients, servers);
    }
    if crowded && random.chance(500) {
        siege(&mut world, random, clients);
    }
    (world, weather)
}

/// Schedules failures of machines and routes at random times, each for a limited time.
fn storm(world: &mut World, random: &mut Random, clients: u32, servers: usize) {
    let (mtu, narrow) = (world.to_server.mtu, world.to_server.narrow);
    let horizon = *random.pick(&[50 * MILLISECOND, SECOND, 20 * SECOND, 100 * SECOND]);
    for _ in 0..random.range(1..6) {
        let (at, client) =
            (random.below(horizon), random.range(1..u64::from(clients) + 1) as Address);
        let length =
            *random.pick(&[MILLISECOND, 50 * MILLISECOND, SECOND, 5 * SECOND, 90 * SECOND]);
        let until = at + random.below(length);
        let server = random.below(servers as u64) as usize;
        let once = match random.below(18) {
            8 => Some(Change::Freeze(client, random.below(length))),
            9 => Some(Change::Freeze(SERVER, random.below(length))),
            10 | 11 => Some(Change::Move(client)),
            12 | 13 => Some(Change::Forget(client, random.chance(500))),
            14 if servers > 1 => Some(Change::Rebalance),
            _ => None,
        };
        if let Some(change) = once {
            world.later(at, change);
            continue;
        }
        let (begin, end) = match random.below(10) {
            8 => {
                let route = (random.chance(500), random.chance(500));
                (Change::NoRoute(route.0, route.1), Change::NoRoute(false, false))
            }
            9 => (Change::Narrow(random.range(600..1472) as usize), Change::Narrow(narrow)),
            0 | 1 => (Change::CrashServer(server), Change::StartServer(server)),
            2 => (Change::CrashClient(client), Change::StartClient(client)),
            3 => (Change::Stop(SERVER), Change::Continue(SERVER)),
            4 => (Change::Stop(client), Change::Continue(client)),
            5 => (Change::Cut(true, true), Change::Cut(false, false)),
            6 => (Change::Cut(random.chance(500), random.chance(500)), Change::Cut(false, false)),
            _ => (Change::Mtu(random.range(600..1472) as usize), Change::Mtu(mtu)),
        };
        world.later(at, begin);
        world.later(until, end);
    }
    if random.chance(300) {
        world.attacks_until = random.below(2 * SECOND);
        world.at(0, Event::Attack);
    }
}

/// Cuts off a client, so that its results are lost. The client is cut off for so long that the server evicts
/// the client's record for another client.
fn siege(world: &mut World, random: &mut Random, clients: u32) {
    let at = random.below(100 * MILLISECOND);
    let until = at + random.range(61 * SECOND..150 * SECOND);
    world.later(at, Change::Cut(false, true));
    world.later(at + random.below(10 * MILLISECOND), Change::Stop(1));
    world.later(at + SECOND, Change::Cut(false, false));
    world.later(until, Change::Continue(1));
    if clients > 1 {
        world.later(0, Change::CrashClient(clients));
        world.later(at + 61 * SECOND, Change::StartClient(clients));
    }
}

/// The result of one run.
pub(crate) struct Run {
    pub(crate) violations: Vec<String>,
    pub(crate) ok: usize,
    pub(crate) failed: usize,
    pub(crate) packets: u64,
    /// Whether the call with a message of 16 MiB or more returned, or `None` if the run has no such call.
    pub(crate) large: Option<bool>,
}

pub(crate) fn run(seed: u64) -> Run {
    let (mut world, weather) = world(seed);
    // At this time, all faults have ended long ago, and even the longest calls have had enough time.
    let mut end = 30_000 * SECOND;
    while !world.is_done() && world.now < end && world.steps < 20_000_000 {
        if world.run_until(world.now + SECOND) {
            break;
        }
    }
    if !world.is_done() {
        let open = world.oracle.calls.iter().position(|call| call.ended.is_none());
        let text = format!(
            "after {} s and {} steps call {open:?} has not ended",
            world.now / SECOND,
            world.steps
        );
        world.oracle.violated(text);
    }
    // Late duplicates may still arrive after all calls have ended.
    end = world.now + 600 * SECOND;
    world.run_until(end);
    for server in world.servers.iter().flatten() {
        // A procedure whose client has crashed must notice the cancellation, and end.
        let calls = &world.oracle.calls;
        let orphans = server.running().filter(|token| {
            let call = &calls[*token as usize];
            call.plan.checks_cancellation && call.ended.is_some()
        });
        let orphans: Vec<_> = orphans.collect();
        if !orphans.is_empty() {
            world.oracle.violated(format!("procedures run for crashed clients: {orphans:?}"));
        }
    }
    if weather == Weather::Fair {
        if world.oracle.calls.iter().any(|call| call.cancelled.is_some()) {
            world.oracle.violated("a call was cancelled although its caller waited".into());
        }
        if world.oracle.resent > 0 {
            let text = format!("{} packets were retransmitted without a loss", world.oracle.resent);
            world.oracle.violated(text);
        }
        let failed = |ending| {
            !matches!(
                ending,
                Ending::Ok
                    | Ending::Failed(_, crate::exchange::client_end::FailureReason::Protocol)
            )
        };
        let count = world.oracle.count(failed);
        if count > 0 {
            world.oracle.violated(format!("{count} calls failed in fair weather"));
        }
    }
    let ok = world.oracle.count(|ending| ending == Ending::Ok);
    let failed = world.oracle.count(crate::client::is_failure);
    let packets = world.oracle.packets;
    let is_large = |plan: &Plan| plan.total.max(plan.result) >= LARGE_BYTES;
    let large = world.oracle.calls.iter().find(|call| is_large(&call.plan));
    let large = large.map(|call| matches!(call.ended, Some((_, Ending::Ok))));
    Run { violations: world.oracle.violations, ok, failed, packets, large }
}

pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The results of many runs.
#[derive(Default)]
struct Total {
    ok: u64,
    failed: u64,
    packets: u64,
    /// The number of runs with a large message, and in how many of them the call with that message returned.
    large: [u64; 2],
    wrong: Vec<(u64, String)>,
}

impl Total {
    fn add(&mut self, seed: u64, run: std::thread::Result<Run>) {
        let Ok(run) = run else {
            self.wrong.push((seed, "it panicked".into()));
            return;
        };
        self.ok += run.ok as u64;
        self.failed += run.failed as u64;
        self.packets += run.packets;
        if let Some(returned) = run.large {
            self.large[0] += 1;
            self.large[1] += u64::from(returned);
        }
        if !run.violations.is_empty() {
            self.wrong.push((seed, run.violations.join("\n")));
        }
    }
}

/// Runs seeds from `PEREGRINE_SEED` on, or from 1. `PEREGRINE_SEEDS` sets the number of seeds. If only
/// `PEREGRINE_SEED` is set, runs that one seed. If neither variable is set, runs many seeds.
#[test]
fn seeds() {
    let (first, count) = (number("PEREGRINE_SEED"), number("PEREGRINE_SEEDS"));
    let count = count.unwrap_or(if first.is_some() { 1 } else { 800 });
    let first = first.unwrap_or(1);
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let work = || {
        let mut total = Total::default();
        while total.wrong.len() < 3 {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                break;
            }
            total.add(seed, std::panic::catch_unwind(|| run(seed)));
        }
        total
    };
    let totals: Vec<Total> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("the thread catches panics"))
            .collect()
    });
    let sum = |of: fn(&Total) -> u64| totals.iter().map(of).sum::<u64>();
    let (ok, failed, packets) = (sum(|one| one.ok), sum(|one| one.failed), sum(|one| one.packets));
    let large = [sum(|one| one.large[0]), sum(|one| one.large[1])];
    let mut wrong: Vec<_> = totals.into_iter().flat_map(|total| total.wrong).collect();
    wrong.sort();
    for (seed, violations) in &wrong {
        println!("{violations}");
        println!("PEREGRINE_SEED={seed} cargo test -p peregrine-simulation -- seed\n");
    }
    println!("{count} seeds: {ok} calls returned, {failed} failed, {packets} packets");
    println!("{} had a message of 16 MiB or more, {} of these calls returned", large[0], large[1]);
    let seeds: Vec<_> = wrong.iter().map(|(seed, _)| seed).collect();
    assert!(wrong.is_empty(), "these seeds failed: {seeds:?}");
    assert!(count < 100 || (ok > failed && failed > 0), "{ok} returned, {failed} failed");
}
