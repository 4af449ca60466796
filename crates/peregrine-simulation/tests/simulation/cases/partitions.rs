//! Simulates cases 44 to 48: the path between client and server is cut.

use super::*;
use crate::exchange::time::MILLISECOND;
use crate::network::Link;
use crate::world::Change;

const CUT: Change = Change::Cut(true, true);
const HEAL: Change = Change::Cut(false, false);
const SLOW: Plan = Plan { runs_for: Some(SECOND), ..NULL };

fn cut(world: &mut World, at: u64, how: Change, length: u64) {
    world.later(at, how);
    world.later(at + length, HEAL);
}

#[test]
fn case_44_cut_shorter_than_the_probes_is_survived() {
    let mut world = world(&[NULL; 200]);
    for n in 0..5 {
        cut(&mut world, (2 + 1200 * n) * MILLISECOND, CUT, SECOND);
    }
    finish(&mut world);
    assert!(world.oracle.all_ok());
}

#[test]
fn case_45_longer_cut_is_reported_as_the_servers_death() {
    let mut world = world(&[SLOW, NULL]);
    cut(&mut world, 100 * MILLISECOND, CUT, 10 * SECOND);
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(MAYBE_DEAD), 1));
    let (ended, _) = world.oracle.calls[0].ended.expect("the call has ended");
    let began = world.oracle.calls[0].began.expect("the call has begun");
    assert!((ended - began) / MILLISECOND < 5000);
    // The next call uses a new handle.
    assert_eq!(ending(&world, 1), Some(Ending::Ok));
}

#[test]
fn case_46_result_returns_although_its_acknowledgements_are_lost() {
    let mut world = world(&[Plan { result: 10_000, ..NULL }]);
    script(
        &mut world,
        |_, header| {
            if header.kind == PacketKind::HaveResult { Fate::Drop } else { Fate::Pass }
        },
    );
    finish(&mut world);
    let results = world.sent(PacketKind::Result);
    world.run_until(100 * SECOND);
    check(&world);
    assert_eq!((ending(&world, 0), world.sent(PacketKind::Result)), (Some(Ending::Ok), results));
}

#[test]
fn case_47_cut_path_to_the_client_is_reported_as_the_servers_death() {
    let mut world = world(&[SLOW]);
    cut(&mut world, MILLISECOND, Change::Cut(false, true), 20 * SECOND);
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(MAYBE_DEAD), 1));
}

#[test]
fn case_48_handle_survives_a_cut_during_a_cancellation() {
    let given_up = Plan { cancels_after: Some(300 * MILLISECOND), ..SLOW };
    for heal in [310, 500, 700, 1500] {
        let mut world = world(&[given_up, NULL]);
        cut(&mut world, 200 * MILLISECOND, CUT, (heal - 200) * MILLISECOND);
        finish(&mut world);
        assert_eq!(
            ending(&world, 0),
            Some(Ending::Failed(Executed::Maybe, FailureReason::Cancelled))
        );
        assert_eq!(ending(&world, 1), Some(Ending::Ok));
        // Both calls use the same handle, because the client did not bind again.
        assert_eq!(world.sent(PacketKind::Bound), 1);
    }
}

/// Makes a world with one call. At 10 Mbit/s, the result of this call takes about half a second.
fn slow_result() -> World {
    let mut world = world(&[Plan { result: 600_000, ..NULL }]);
    world.to_client = Link::shaped(10_000_000, 5 * MILLISECOND);
    world
}

/// An outage does not show that the path became narrow. So the receiver keeps the pieces (fragments) that
/// have arrived, and the sender keeps the size of pieces.
#[test]
fn outage_during_a_result_does_not_reduce_pieces() {
    for length in [300, 900, 1500] {
        let mut world = slow_result();
        cut(&mut world, 100 * MILLISECOND, CUT, length * MILLISECOND);
        finish(&mut world);
        assert!(world.oracle.all_ok());
        let log = world.log.iter().flatten();
        let pieces: Vec<_> = log
            .filter(|one| one.header.kind == PacketKind::Result)
            .map(|one| one.header.piece)
            .collect();
        assert!(pieces.iter().all(|piece| *piece == 1408), "{length} ms");
        // Only the packets that were in flight when the outage began are retransmitted.
        assert!(pieces.len() < 600_000 / 1408 + 200, "{length} ms: {} packets", pieces.len());
    }
}

/// Measures the time from the cut until the client presumes the server dead.
#[test]
fn death_during_a_result_is_noticed_as_early_as_any_other() {
    for at in [20, 100, 200, 400] {
        let mut world = slow_result();
        world.later(at * MILLISECOND, CUT);
        finish(&mut world);
        assert_eq!(ending(&world, 0), Some(MAYBE_DEAD));
        let (ended, _) = world.oracle.calls[0].ended.expect("the call has ended");
        let began = world.oracle.calls[0].began.expect("the call has begun");
        let noticed = (ended - began) / MILLISECOND - at;
        assert!((1500..3000).contains(&noticed), "cut at {at} ms, noticed after {noticed} ms");
    }
}
