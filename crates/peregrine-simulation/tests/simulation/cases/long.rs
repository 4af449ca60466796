//! Simulates cases 49 to 53: procedures that run long, wait long, or are cancelled.

use super::*;
use crate::exchange::time::MILLISECOND;
use crate::network::SERVER;
use crate::world::Change;

#[test]
fn case_49_procedure_may_run_for_an_hour() {
    let mut world = world(&[Plan { runs_for: Some(3600 * SECOND), ..NULL }]);
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(Ending::Ok), 1));
    // In every two seconds, the client sends five probes, except at the beginning.
    let probes = world.sent(PacketKind::Probe);
    assert!((8990..9010).contains(&probes), "{probes}");
    assert_eq!(world.sent(PacketKind::HaveCall), probes);
    assert_eq!(world.oracle.resent, 0);
}

#[test]
fn case_50_stopped_server_is_presumed_dead() {
    let mut world = world(&[Plan { runs_for: Some(SECOND), ..NULL }, NULL]);
    world.later(100 * MILLISECOND, Change::Stop(SERVER));
    world.later(30 * SECOND, Change::Continue(SERVER));
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(MAYBE_DEAD), 1));
    assert_eq!(ending(&world, 1), Some(Ending::Ok));
}

#[test]
fn case_51_endless_procedure_is_waited_for_until_the_deadline() {
    let stuck = Plan { runs_for: None, ..NULL };
    let mut world = world(&[stuck]);
    world.run_until(1000 * SECOND);
    check(&world);
    assert_eq!(ending(&world, 0), None);
    // The client cancels the first call after a second, so this call ends. The second call needs the same
    // handle. It does not end, because the handle is in use as long as the procedure of the first call runs.
    let mut world = super::world(&[Plan { cancels_after: Some(SECOND), ..stuck }, NULL]);
    world.run_until(100 * SECOND);
    check(&world);
    assert_eq!(ending(&world, 0), Some(Ending::Failed(Executed::Maybe, FailureReason::Cancelled)));
    assert_eq!(ending(&world, 1), None);
    assert!(world.sent(PacketKind::Cancel) < 60);
}

#[test]
fn case_52_calls_wait_for_a_free_worker() {
    let server = ServerOptions { workers: 1, ..SERVER_OPTIONS };
    let slow = Plan { runs_for: Some(5 * SECOND), ..NULL };
    let mut world = world_of(&vec![vec![slow; 2]; 8], server, LASTING);
    finish(&mut world);
    assert!(world.oracle.all_ok());
    assert_eq!(world.oracle.resent, 0);
    // If the queue has no space for a call, the call is refused and not executed.
    let server = ServerOptions { workers: 1, queue: 1, ..SERVER_OPTIONS };
    let mut world = world_of(&vec![vec![slow]; 8], server, LASTING);
    finish(&mut world);
    let refused = Ending::Failed(Executed::No, FailureReason::Protocol);
    let count = |ending| world.oracle.count(|one| one == ending);
    assert_eq!((count(Ending::Ok), count(refused)), (2, 6));
}

#[test]
fn case_53_call_can_be_cancelled_at_any_moment() {
    for microseconds in (0..3000).step_by(37) {
        let given_up = Plan {
            total: 40_000,
            result: 40_000,
            runs_for: Some(MILLISECOND),
            cancels_after: Some(microseconds * 1000),
            ..NULL
        };
        let mut world = world(&[given_up, NULL]);
        finish(&mut world);
        assert_eq!(ending(&world, 1), Some(Ending::Ok), "{microseconds}");
        assert_eq!(world.server().map(crate::server::Server::kept), Some(0));
        assert_eq!(world.sent(PacketKind::Bound), 1);
    }
}
