//! Simulates the stream protocol with random faults, and then single cases with chosen faults.

use super::world::{Change, World};
use crate::exchange::client_end::Executed;
use crate::exchange::time::{MICROSECOND, MILLISECOND, SECOND};
use crate::oracle::{Ending, Plan, StreamFailure};
use crate::random::Random;
use crate::seeds::number;

const QUICK: Plan = Plan {
    total: 100,
    result: 0,
    runs_for: Some(MILLISECOND),
    cancels_after: None,
    checks_cancellation: false,
};

fn plan(random: &mut Random) -> Plan {
    let longest = *random.pick(&[10 * MICROSECOND, MILLISECOND, 50 * MILLISECOND, 3 * SECOND]);
    let cancels_after = random.chance(300).then(|| {
        let longest = *random.pick(&[MICROSECOND, MILLISECOND, 100 * MILLISECOND, 5 * SECOND]);
        random.below(longest)
    });
    let total = match random.below(4) {
        0 => 8,
        1 => random.below(100) as u32,
        _ => random.below(6000) as u32,
    };
    Plan {
        total,
        result: 0,
        runs_for: Some(random.below(longest)),
        cancels_after,
        checks_cancellation: false,
    }
}

fn world(seed: u64) -> (World, bool) {
    let mut random = Random::new(seed);
    let is_fair = random.chance(100);
    let delay =
        *random.pick(&[20 * MICROSECOND, 300 * MICROSECOND, 5 * MILLISECOND, 80 * MILLISECOND]);
    // Avoid long round trips with small buffers: such a run would last for hours.
    let capacities: &[usize] =
        if delay < MILLISECOND { &[40, 500, 100_000] } else { &[5000, 100_000] };
    let capacity = *random.pick(capacities);
    let clients = 1 + random.below(3) as usize;
    let mut plans = Vec::new();
    for _ in 0..clients {
        let (callers, calls) = (1 + random.below(6), 1 + random.below(12));
        let mut caller = || (0..calls).map(|_| plan(&mut random)).collect();
        plans.push((0..callers).map(|_| caller()).collect());
    }
    let mut world = World::new(plans, delay, capacity, Random::new(random.next()));
    world.clients.iter_mut().for_each(|client| client.mix_in_futures(&mut random));
    if !is_fair {
        for _ in 0..random.below(8) {
            let latest = *random.pick(&[10 * MILLISECOND, SECOND, 20 * SECOND]);
            let after = random.below(latest);
            let client = random.below(clients as u64) as usize;
            let long = *random.pick(&[100 * MILLISECOND, 3 * SECOND, 15 * SECOND]);
            let change = match random.below(9) {
                0..3 => Change::Reset(client),
                3 => Change::Vanish(client),
                4 => Change::Freeze(client, random.below(long)),
                5 => Change::FreezeServer(random.below(long)),
                6 => Change::CrashServer,
                7 => Change::StopServer,
                _ if random.chance(300) => Change::CrashClient(client),
                _ => Change::Reset(client),
            };
            world.later(after, change);
        }
    }
    // With small buffers, the client may send only a part of a cancellation. The connection then ends, so
    // such a run counts as one with faults.
    (world, is_fair && capacity == 100_000)
}

/// Runs a seed. Returns how many calls returned, how many calls failed, and all violations of the rules.
fn run(seed: u64) -> (usize, usize, Vec<String>) {
    let (mut world, is_fair) = world(seed);
    while !world.is_done() && world.now < 600 * SECOND && world.steps < 5_000_000 {
        world.run_until(world.now + SECOND);
    }
    if !world.is_done() {
        let open = world.oracle.calls.iter().position(|call| call.ended.is_none());
        let text = format!("after {} s call {open:?} has not ended", world.now / SECOND);
        world.oracle.violated(text + &world.describe());
    }
    // During this minute, the server may execute calls that are still in flight.
    world.run_until(world.now + 60 * SECOND);
    let ok = world.oracle.count(|ending| ending == Ending::Ok);
    let failed = world.oracle.count(|ending| matches!(ending, Ending::StreamFailed(..)));
    let broken = |ending| {
        use StreamFailure::{Broken, NoConnection, Unanswered};
        matches!(ending, Ending::StreamFailed(_, Broken | NoConnection | Unanswered))
    };
    let lost = world.oracle.count(broken);
    let partly = |ending| matches!(ending, Ending::StreamFailed(_, StreamFailure::PartlySent));
    if is_fair && lost > 0 && world.oracle.count(partly) == 0 {
        world.oracle.violated(format!("{lost} calls lost their connections in fair weather"));
    }
    (ok, failed, world.oracle.violations)
}

/// Runs seeds from `PEREGRINE_SEED` on, or from 1. `PEREGRINE_SEEDS` sets the number of seeds. If only
/// `PEREGRINE_SEED` is set, runs that one seed. If neither variable is set, runs many seeds.
#[test]
fn stream_seeds() {
    let (first, count) = (number("PEREGRINE_SEED"), number("PEREGRINE_SEEDS"));
    let count = count.unwrap_or(if first.is_some() { 1 } else { 400 });
    let first = first.unwrap_or(1);
    let (mut ok, mut failed, mut wrong) = (0, 0, Vec::new());
    for seed in first..first + count {
        let (returned, did_not, violations) = run(seed);
        (ok, failed) = (ok + returned, failed + did_not);
        if !violations.is_empty() {
            println!("{}", violations.join("\n"));
            println!("PEREGRINE_SEED={seed} cargo test -p peregrine-simulation -- stream_seeds");
            wrong.push(seed);
        }
        assert!(wrong.len() < 3, "these seeds failed: {wrong:?}");
    }
    println!("{count} seeds: {ok} calls returned, {failed} failed");
    assert!(wrong.is_empty(), "these seeds failed: {wrong:?}");
    assert!(count < 100 || (ok > failed && failed > 0), "{ok} returned, {failed} failed");
}

/// Makes a world with one client and one caller. The caller makes the calls of `plans`.
fn one(plans: &[Plan], capacity: usize) -> World {
    World::new(vec![vec![plans.to_vec()]], MILLISECOND, capacity, Random::new(1))
}

fn endings(world: &World) -> Vec<Option<Ending>> {
    world.oracle.calls.iter().map(|call| call.ended.map(|(_, ending)| ending)).collect()
}

#[test]
fn silent_server_is_presumed_dead_and_the_next_call_uses_another_connection() {
    let long = Plan { runs_for: Some(100 * SECOND), ..QUICK };
    let mut world = one(&[QUICK, long, QUICK], 5000);
    world.run_until(50 * MILLISECOND);
    assert_eq!(world.oracle.calls[1].executions, 1, "the long call runs");
    world.later(0, Change::Vanish(0));
    world.run_until(world.now + 4 * SECOND);
    let unanswered = Ending::StreamFailed(Executed::Maybe, StreamFailure::Unanswered);
    assert_eq!(endings(&world), [Some(Ending::Ok), Some(unanswered), Some(Ending::Ok)]);
    assert_eq!(world.oracle.violations, [""; 0]);
}

#[test]
fn long_procedure_is_waited_for_while_probes_are_acknowledged() {
    let long = Plan { runs_for: Some(100 * SECOND), ..QUICK };
    let mut world = one(&[long], 5000);
    world.run_until(110 * SECOND);
    assert_eq!(endings(&world), [Some(Ending::Ok)]);
}

#[test]
fn server_that_reads_nothing_is_not_presumed_dead() {
    let mut world = one(&[Plan { total: 6000, ..QUICK }], 100);
    world.later(0, Change::FreezeServer(30 * SECOND));
    world.run_until(29 * SECOND);
    assert_eq!(endings(&world), [None]);
    world.run_until(40 * SECOND);
    assert_eq!(endings(&world), [Some(Ending::Ok)]);
}

#[test]
fn deadline_within_a_message_ends_the_connection() {
    let cut = Plan { total: 6000, cancels_after: Some(SECOND), ..QUICK };
    let mut world = one(&[cut, QUICK], 100);
    world.later(0, Change::FreezeServer(2 * SECOND));
    world.run_until(10 * SECOND);
    let partly = Ending::StreamFailed(Executed::No, StreamFailure::PartlySent);
    assert_eq!(endings(&world), [Some(partly), Some(Ending::Ok)]);
    assert_eq!(world.oracle.calls[0].executions, 0);
    assert_eq!(world.oracle.violations, [""; 0]);
}

#[test]
fn message_of_a_future_is_sent_to_its_end_and_then_cancelled() {
    let late = Plan { total: 6000, cancels_after: Some(SECOND), ..QUICK };
    let mut world = one(&[late, QUICK], 100);
    world.clients[0].with_futures();
    world.later(0, Change::FreezeServer(2 * SECOND));
    world.run_until(1500 * MILLISECOND);
    let given_up = Ending::StreamFailed(Executed::Maybe, StreamFailure::Late);
    assert_eq!(endings(&world), [Some(given_up), None], "the next call should still wait");
    world.run_until(10 * SECOND);
    assert_eq!(endings(&world), [Some(given_up), Some(Ending::Ok)], "the connection continues");
    assert_eq!(world.oracle.violations, [""; 0]);
}

#[test]
fn partly_sent_call_of_a_broken_connection_is_not_executed() {
    let large = Plan { total: 6000, ..QUICK };
    let mut world = one(&[large, QUICK], 100);
    world.later(0, Change::FreezeServer(SECOND));
    world.later(100 * MILLISECOND, Change::Reset(0));
    world.run_until(10 * SECOND);
    let broken = Ending::StreamFailed(Executed::No, StreamFailure::Broken);
    assert_eq!(endings(&world), [Some(broken), Some(Ending::Ok)]);
    assert_eq!(world.oracle.calls[0].executions, 0);
    assert_eq!(world.oracle.violations, [""; 0]);
}

#[test]
fn calls_not_read_by_a_stopping_server_are_not_executed() {
    let mut world = World::new(vec![vec![vec![QUICK]; 4]], 50 * MILLISECOND, 5000, Random::new(7));
    // The calls are in flight when the server sends its goodbye.
    world.later(10 * MILLISECOND, Change::StopServer);
    world.run_until(10 * SECOND);
    let unanswered = Ending::StreamFailed(Executed::No, StreamFailure::Unanswered);
    assert_eq!(endings(&world), [Some(unanswered); 4]);
    assert_eq!(world.oracle.violations, [""; 0]);
}
