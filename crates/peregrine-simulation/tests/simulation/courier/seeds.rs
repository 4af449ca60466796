//! Simulates calls of packet Courier, first with chosen faults, and then with random faults.

use super::world::{Ending, FAIR, Known, Weather, World};
use crate::exchange::client_end::Executed;
use crate::exchange::time::{MILLISECOND, SECOND};
use crate::protocol::courier::failure::Failure;
use crate::protocol::replies::Bounds;
use crate::random::Random;

fn run(seed: u64, clients: usize, calls: u32, weather: Weather) -> World {
    let mut world = World::new(seed, clients, calls, weather);
    world.run();
    let violations = &world.violations;
    assert!(violations.is_empty(), "seed {seed}, {weather:?}:\n{}", violations.join("\n"));
    world
}

fn count(world: &World, is: impl Fn(&Known) -> bool) -> usize {
    world.known.iter().filter(|known| is(known)).count()
}

fn failed(known: &Known, expected: Failure) -> bool {
    matches!(known.ended, Some(Ending::Failed(failure, _)) if failure == expected)
}

fn is_rejected(known: &Known) -> bool {
    let rejected = Failure::NoSuchProcedure;
    matches!(known.ended, Some(Ending::Failed(failure, _)) if failure == rejected)
}

/// Returns whether the client knows how the procedure ended: with results, with an error, or with the
/// rejection that there is no such procedure.
fn is_answered(known: &Known) -> bool {
    matches!(known.ended, Some(Ending::Results | Ending::Error)) || is_rejected(known)
}

#[test]
fn without_faults_short_calls_need_two_datagrams() {
    let weather = Weather { delay: MILLISECOND, ..FAIR };
    let world = run(1, 4, 50, weather);
    assert_eq!(count(&world, is_answered), 200);
    // Two datagrams for each call are 400. A client whose calls are sent in parts also asks the server for a
    // cookie.
    assert!((400..=600).contains(&world.datagrams), "{}", world.datagrams);
}

#[test]
fn lost_duplicated_and_delayed_datagrams_run_a_call_once() {
    let weather =
        Weather { loss: 200, duplicate: 300, damage: 100, delay: SECOND, size: 5000, ..FAIR };
    let world = run(2, 4, 100, weather);
    assert!(world.known.iter().all(|known| known.executions <= 1));
    let answered = count(&world, is_answered);
    assert!(answered > 350, "{answered}");
}

#[test]
fn messages_of_many_packets_arrive_whole() {
    let weather = Weather { loss: 50, duplicate: 50, size: 60_000, ..FAIR };
    let world = run(3, 2, 50, weather);
    let answered = count(&world, is_answered);
    assert!(answered > 90, "{answered}");
}

#[test]
fn silence_is_a_failure_and_not_an_empty_result() {
    let world = run(4, 2, 5, Weather { loss: 1000, ..FAIR });
    assert_eq!(count(&world, |known| failed(known, Failure::TimedOut)), 5);
    assert_eq!(count(&world, |known| failed(known, Failure::Silent)), 5);
    // A call in parts is sent only after the server has answered the request for a cookie. So the client
    // knows that these calls were not executed.
    let not_executed =
        |known: &Known| matches!(known.ended, Some(Ending::Failed(Failure::Silent, Executed::No)));
    assert_eq!(count(&world, not_executed), 5);
}

#[test]
fn long_procedure_is_no_silence() {
    let weather = Weather { runs_for: 30 * SECOND, delay: MILLISECOND, ..FAIR };
    let world = run(5, 2, 30, weather);
    assert_eq!(count(&world, is_answered), 60);
    assert!(world.known.iter().all(|known| known.executions <= 1));
}

#[test]
fn restarted_server_does_not_run_calls_in_parts_again() {
    let weather = Weather {
        restarts: SECOND,
        runs_for: 300 * MILLISECOND,
        loss: 200,
        duplicate: 200,
        size: 3000,
        ..FAIR
    };
    let world = run(6, 4, 100, weather);
    assert!(world.known.iter().all(|known| known.is_whole || known.executions <= 1));
    assert!(count(&world, |known| failed(known, Failure::Restarted)) > 10);
    // A call that is sent as one datagram has no cookie. So a restarted server cannot know that an earlier
    // server has run the call, and runs it again.
    assert!(count(&world, |known| known.executions > 1) > 10);
}

#[test]
fn overloaded_server_runs_short_calls_later() {
    let weather = Weather { overload: 300, delay: MILLISECOND, ..FAIR };
    let world = run(7, 4, 50, weather);
    assert_eq!(count(&world, is_answered), 200);
    let weather = Weather { size: 10_000, ..weather };
    let world = run(8, 4, 50, weather);
    // A call in several parts is rejected, and the client cannot know that it did not run.
    assert!(count(&world, |known| failed(known, Failure::Unspecified(0xffff))) > 10);
    assert!(world.known.iter().all(|known| known.executions <= 1));
}

#[test]
fn random_runs_of_packet_courier_keep_the_guarantees() {
    for seed in 0..300 {
        let random = &mut Random::new(seed ^ 0xc0e1);
        let mut up_to = |most: u64| if random.chance(600) { random.below(most) as u32 } else { 0 };
        let (loss, duplicate, damage) = (up_to(400), up_to(400), up_to(200));
        let overload = up_to(100);
        let delay = *random.pick(&[MILLISECOND, 100 * MILLISECOND, 2 * SECOND, 20 * SECOND]);
        let runs_for = *random.pick(&[MILLISECOND, 100 * MILLISECOND, 20 * SECOND]);
        let restarts = *random.pick(&[0, 0, 500 * MILLISECOND, 10 * SECOND]);
        let size = *random.pick(&[10, 2000, 40_000]);
        let bounds = match random.below(3) {
            0 => Bounds { calls: 16, bytes: 20_000, age: 20 * SECOND },
            1 => Bounds { age: 20 * SECOND, ..Bounds::DEFAULT },
            _ => Bounds::DEFAULT,
        };
        let weather =
            Weather { loss, duplicate, damage, overload, delay, runs_for, restarts, size, bounds };
        run(seed, 4, 20, weather);
    }
}
