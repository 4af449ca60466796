//! Simulates cases 9 to 20: packets are duplicated, late, or reordered.

use super::*;
use crate::exchange::time::{MICROSECOND, MILLISECOND};
use crate::network::Link;

#[test]
fn case_9_duplicates_of_all_packets_cost_nothing() {
    let mut world = world(&[Plan { total: 5000, result: 5000, ..NULL }; 20]);
    let twice = Link { duplicate: 1000, ..Link::PERFECT };
    (world.to_server, world.to_client) = (twice.clone(), twice);
    finish(&mut world);
    assert!(world.oracle.all_ok());
    assert_eq!((world.sent(PacketKind::HaveCall), world.oracle.resent), (0, 0));
}

#[test]
fn case_10_a_duplicate_after_the_result_changes_nothing() {
    let mut world = world(&[NULL]);
    script(&mut world, |_, header| {
        if header.kind == PacketKind::Call { Fate::Twice(MILLISECOND) } else { Fate::Pass }
    });
    finish(&mut world);
    assert!(world.oracle.all_ok());
    assert_eq!((world.sent(PacketKind::Result), world.oracle.resent), (1, 0));
}

#[test]
fn case_11_duplicates_that_arrive_during_later_calls_change_nothing() {
    let mut world = world(&[NULL; 50]);
    script(&mut world, |_, header| {
        let late = u64::from(header.sequence % 7) * 130 * MICROSECOND;
        if header.kind == PacketKind::Call { Fate::Twice(late) } else { Fate::Pass }
    });
    finish(&mut world);
    assert!(world.oracle.all_ok());
    assert_eq!((world.sent(PacketKind::Call), world.sent(PacketKind::Result)), (50, 50));
}

#[test]
fn case_12_duplicate_after_minutes_is_ignored() {
    let mut world = world(&[NULL; 3]);
    script(&mut world, |_, header| {
        if header.kind == PacketKind::Call { Fate::Twice(299 * SECOND) } else { Fate::Pass }
    });
    finish(&mut world);
    world.run_until(world.now + 400 * SECOND);
    check(&world);
    assert_eq!(world.sent(PacketKind::Refused), 0);
}

#[test]
fn case_13_duplicate_after_eviction_is_refused() {
    let server = ServerOptions { places: 1, share: 1, ..SERVER_OPTIONS };
    let mut world = world_of(&[vec![NULL]], server, LASTING);
    script(&mut world, |_, header| {
        if header.kind == PacketKind::Call { Fate::Twice(100 * SECOND) } else { Fate::Pass }
    });
    finish(&mut world);
    world.run_until(10 * SECOND);
    // Another client takes the only place for a record.
    world.start(2, &[vec![NULL]]);
    finish(&mut world);
    assert!(world.oracle.all_ok());
    world.run_until(500 * SECOND);
    check(&world);
    assert_eq!(world.sent(PacketKind::Refused), 1);
}

#[test]
fn case_14_duplicate_result_does_not_answer_the_next_call() {
    let slow = Plan { runs_for: Some(3 * MILLISECOND), result: 77, ..NULL };
    let mut world = world(&[NULL, slow, slow]);
    script(&mut world, |_, header| {
        if header.kind == PacketKind::Result { Fate::Twice(MILLISECOND) } else { Fate::Pass }
    });
    finish(&mut world);
    assert!(world.oracle.all_ok());
}

#[test]
fn case_15_fragments_in_any_order_cost_nothing() {
    let mut world = world(&[Plan { total: 50_000, result: 50_000, ..NULL }; 20]);
    // A receiver waits a quarter of a round trip for late packets. The jitter is shorter than that.
    let jitter = Link { delay: 100 * MICROSECOND, jitter: 20 * MICROSECOND, ..Link::PERFECT };
    (world.to_server, world.to_client) = (jitter.clone(), jitter);
    finish(&mut world);
    assert!(world.oracle.all_ok());
    assert_eq!(world.oracle.resent, 0);
}

#[test]
fn case_16_last_packet_of_a_blast_may_arrive_first() {
    let mut world = world(&[Plan { total: 5_000, result: 5_000, ..NULL }]);
    script(&mut world, |_, header| {
        let others = header.kind.carries() && header.fragment != 0;
        if others { Fate::Late(10 * MICROSECOND) } else { Fate::Pass }
    });
    finish(&mut world);
    assert!(world.oracle.all_ok());
    assert_eq!(world.oracle.resent, 0);
    let log = world.log.iter().flatten();
    let holes = log
        .filter(|one| one.header.kind == PacketKind::HaveCall && !one.header.flags.has(Flags::ALL));
    assert!(holes.count() <= 1);
}

#[test]
fn case_17_late_probes_change_nothing() {
    let slow = Plan { runs_for: Some(30 * MILLISECOND), ..NULL };
    let mut world = world(&[slow; 10]);
    script(&mut world, |_, header| match header.kind {
        PacketKind::Probe if header.sequence % 2 == 0 => Fate::Late(40 * MILLISECOND),
        PacketKind::Probe => Fate::Twice(20 * MILLISECOND),
        _ => Fate::Pass,
    });
    finish(&mut world);
    assert!(world.oracle.all_ok());
    assert_eq!(world.oracle.resent, 0);
}

#[test]
fn case_18_cancellation_does_not_reach_the_next_call() {
    let given_up =
        Plan { cancels_after: Some(MILLISECOND), runs_for: Some(5 * MILLISECOND), ..NULL };
    let slow = Plan { runs_for: Some(SECOND), ..NULL };
    let mut world = world(&[given_up, slow]);
    script(&mut world, |_, header| {
        if header.kind == PacketKind::Cancel { Fate::Twice(300 * MILLISECOND) } else { Fate::Pass }
    });
    finish(&mut world);
    assert_eq!(ending(&world, 0), Some(Ending::Failed(Executed::Maybe, FailureReason::Cancelled)));
    assert_eq!(ending(&world, 1), Some(Ending::Ok));
}

#[test]
fn case_19_sequence_numbers_may_wrap_around() {
    let secret = [9, 9, 9, 9, 9, 9, 9, 9, 0xfd, 0xff, 0xff, 0xff];
    let (mut client_end, mut server_end, flow) = crate::cost::pair(secret);
    let mut out = [0; crate::exchange::header::CONTROL_BYTES_MAX];
    for n in 0..8 {
        crate::cost::call(&mut client_end, &mut server_end, &flow, &mut out, n * 1000);
    }
    assert_eq!(client_end.sequence(), 5);
}

#[test]
fn case_20_activities_do_not_interfere() {
    let plan = |n: u32| vec![Plan { total: n * 3000, result: n, ..NULL }; 30];
    let plans: Vec<_> = (0..6).map(plan).collect();
    let mut world = world_of(&plans, SERVER_OPTIONS, LASTING);
    let jitter = Link { jitter: 300 * MICROSECOND, duplicate: 300, ..Link::PERFECT };
    (world.to_server, world.to_client) = (jitter.clone(), jitter);
    finish(&mut world);
    assert!(world.oracle.all_ok());
}

/// A round trip takes 0.5 or 1.6 seconds. Both times are longer than a client waits for an answer before it
/// binds again. The longer time is almost as long as a server waits for the answer of a silent client.
#[test]
fn long_round_trip_causes_no_retransmission_and_no_failure() {
    for delay in [250, 800] {
        let slow = Plan { runs_for: Some(30 * SECOND), checks_cancellation: true, ..NULL };
        let large = Plan { total: 600_000, result: 600_000, ..NULL };
        let mut world = world(&[large, slow, large]);
        let link = Link { delay: delay * MILLISECOND, ..Link::PERFECT };
        (world.to_server, world.to_client) = (link.clone(), link);
        finish(&mut world);
        assert!(world.oracle.all_ok(), "{delay}");
        assert_eq!(world.oracle.resent, 0, "{delay}");
        assert!(world.oracle.calls.iter().all(|call| call.cancelled.is_none()), "{delay}");
    }
}
