//! Cases 1 to 8: packets are lost.

use super::*;
use crate::exchange::time::MILLISECOND;
use crate::network::{Link, SERVER};

#[test]
fn case_1_a_lost_call_is_asked_for_and_sent_once_more() {
    let mut world = world(&[NULL]);
    lose(&mut world, PacketKind::Call, 1);
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(Ending::Ok), 1));
    assert_eq!((world.sent(PacketKind::Call), resent(&world, PacketKind::Call)), (2, 1));
    assert_eq!((world.sent(PacketKind::Probe), world.sent(PacketKind::HaveCall)), (1, 1));
}

#[test]
fn case_2_calls_lost_again_and_again_arrive_in_the_end() {
    let mut world = world(&[NULL]);
    lose(&mut world, PacketKind::Call, 6);
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(Ending::Ok), 1));
    assert_eq!(world.sent(PacketKind::Call), 7);
    // So are questions; then they come at growing intervals.
    let mut world = super::world(&[NULL]);
    let mut left = 6;
    script(&mut world, move |_, header| {
        let lost = matches!(header.kind, PacketKind::Call | PacketKind::Probe) && left > 0;
        left -= i32::from(lost);
        if lost { Fate::Drop } else { Fate::Pass }
    });
    finish(&mut world);
    assert_eq!(ending(&world, 0), Some(Ending::Ok));
    let log = world.log.iter().flatten();
    let probes: Vec<_> = log.filter(|one| one.header.kind == PacketKind::Probe).collect();
    assert!(probes.len() >= 5);
    let intervals: Vec<_> = probes.windows(2).map(|two| two[1].at - two[0].at).collect();
    assert!(intervals.windows(2).all(|two| two[1] > two[0]), "{intervals:?}");
}

#[test]
fn case_3_a_server_that_never_answers_is_dead_after_ten_questions() {
    let mut world = world(&[NULL]);
    script(
        &mut world,
        |_, header| {
            if header.kind.is_from_client() { Fate::Drop } else { Fate::Pass }
        },
    );
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(MAYBE_DEAD), 0));
    assert!((2000..2700).contains(&(world.now / MILLISECOND - 1000)), "{}", world.now);
}

#[test]
fn case_4_a_lost_result_is_sent_again_when_asked_for() {
    let mut world = world(&[NULL]);
    lose(&mut world, PacketKind::Result, 1);
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(Ending::Ok), 1));
    assert_eq!((world.sent(PacketKind::Result), resent(&world, PacketKind::Result)), (2, 1));
    assert_eq!((world.sent(PacketKind::Call), world.sent(PacketKind::Probe)), (1, 1));
}

#[test]
fn case_5_results_lost_for_a_while_arrive_when_that_ends() {
    let mut world = world(&[NULL]);
    script(&mut world, |now, header| {
        if header.kind == PacketKind::Result && now < SECOND { Fate::Drop } else { Fate::Pass }
    });
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(Ending::Ok), 1));
}

#[test]
fn case_7_a_result_whose_acknowledgement_is_lost_is_not_that_of_the_next_call() {
    let mut world = world(&[NULL, Plan { result: 5, ..NULL }]);
    let mut calls = 0;
    script(&mut world, move |_, header| {
        calls += u32::from(header.kind == PacketKind::Call);
        if header.kind == PacketKind::Call && calls == 2 { Fate::Drop } else { Fate::Pass }
    });
    finish(&mut world);
    assert!(world.oracle.all_ok());
    assert_eq!(world.sent(PacketKind::Result), 2);
}

#[test]
fn case_8_half_of_all_packets_are_lost() {
    let mut world = world(&[Plan { total: 100, result: 100, ..NULL }; 1500]);
    (world.to_server, world.to_client) =
        (Link { loss: 500, ..Link::PERFECT }, Link { loss: 500, ..Link::PERFECT });
    finish(&mut world);
    let ok = world.oracle.count(|ending| ending == Ending::Ok);
    assert!(ok > 1450, "{ok}");
    let log = world.log.iter().flatten();
    assert!(log.filter(|one| one.from == SERVER).count() < 12_000);
}
