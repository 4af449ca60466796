//! Simulates calls of ONC RPC, first with chosen faults, and then with random faults.

use super::world::{Ending, FAIR, Weather, World};
use crate::exchange::time::{MILLISECOND, SECOND};
use crate::protocol::onc::failure::Failure;
use crate::protocol::onc::replies::Bounds;
use crate::random::Random;

fn run(seed: u64, clients: usize, calls: u32, weather: Weather) -> World {
    let mut world = World::new(seed, clients, calls, weather);
    world.run();
    let violations = &world.violations;
    assert!(violations.is_empty(), "seed {seed}, {weather:?}:\n{}", violations.join("\n"));
    world
}

fn timed_out(world: &World) -> usize {
    let is = |failure: &Ending| matches!(failure, Ending::Failed(Failure::TimedOut, _));
    world.known.iter().filter(|known| known.ended.as_ref().is_some_and(is)).count()
}

#[test]
fn without_faults_each_call_is_sent_once() {
    let world = run(1, 4, 50, FAIR);
    assert_eq!((world.suppressed, world.known.len(), timed_out(&world)), (0, 200, 0));
}

#[test]
fn lost_duplicated_and_delayed_datagrams_run_a_call_once() {
    let weather = Weather { loss: 300, duplicate: 300, damage: 100, delay: 3 * SECOND, ..FAIR };
    let world = run(2, 4, 100, weather);
    assert!(world.suppressed > 50, "{}", world.suppressed);
    assert!(world.known.iter().all(|known| known.executions <= 1));
}

#[test]
fn call_without_any_reply_times_out_and_may_have_run() {
    let world = run(3, 1, 5, Weather { loss: 1000, ..FAIR });
    assert_eq!(timed_out(&world), 5);
}

#[test]
fn client_that_connects_again_runs_a_call_once() {
    let weather = Weather { cut: 300, runs_for: 500 * MILLISECOND, ..FAIR };
    let world = run(4, 4, 100, weather);
    assert!(world.suppressed > 20, "{}", world.suppressed);
    assert!(world.known.iter().all(|known| known.executions <= 1));
}

#[test]
fn random_runs_of_onc_rpc_keep_the_guarantees() {
    for seed in 0..300 {
        let random = &mut Random::new(seed ^ 0x0ac);
        let mut up_to = |most: u64| if random.chance(600) { random.below(most) as u32 } else { 0 };
        let (loss, duplicate, damage, cut) = (up_to(400), up_to(400), up_to(200), up_to(300));
        let delay = *random.pick(&[MILLISECOND, 100 * MILLISECOND, 2 * SECOND, 20 * SECOND]);
        let runs_for = *random.pick(&[MILLISECOND, 100 * MILLISECOND, 5 * SECOND]);
        let bounds = match random.below(3) {
            0 => Bounds { calls: 16, bytes: 500, age: 10 * SECOND },
            1 => Bounds { age: 10 * SECOND, ..Bounds::DEFAULT },
            _ => Bounds::DEFAULT,
        };
        let weather = Weather { loss, duplicate, damage, cut, delay, runs_for, bounds };
        run(seed, 4, 20, weather);
    }
}
