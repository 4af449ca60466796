//! Simulates cases 1 to 8: packets are lost.

use super::*;
use crate::exchange::time::MILLISECOND;
use crate::network::{Link, SERVER};

#[test]
fn case_1_lost_call_is_requested_and_retransmitted() {
    let mut world = world(&[NULL]);
    lose(&mut world, PacketKind::Call, 1);
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(Ending::Ok), 1));
    assert_eq!((world.sent(PacketKind::Call), resent(&world, PacketKind::Call)), (2, 1));
    assert_eq!((world.sent(PacketKind::Probe), world.sent(PacketKind::HaveCall)), (1, 1));
}

#[test]
fn case_2_call_lost_repeatedly_is_executed_in_the_end() {
    let mut world = world(&[NULL]);
    lose(&mut world, PacketKind::Call, 6);
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(Ending::Ok), 1));
    assert_eq!(world.sent(PacketKind::Call), 7);
    // In this run, probes are lost, too. The client sends the probes at growing intervals.
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
fn case_3_silent_server_is_presumed_dead_after_ten_probes() {
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
fn case_4_lost_result_is_retransmitted_on_request() {
    let mut world = world(&[NULL]);
    lose(&mut world, PacketKind::Result, 1);
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(Ending::Ok), 1));
    assert_eq!((world.sent(PacketKind::Result), resent(&world, PacketKind::Result)), (2, 1));
    assert_eq!((world.sent(PacketKind::Call), world.sent(PacketKind::Probe)), (1, 1));
}

#[test]
fn case_5_results_arrive_after_a_period_of_losses() {
    let mut world = world(&[NULL]);
    script(&mut world, |now, header| {
        if header.kind == PacketKind::Result && now < SECOND { Fate::Drop } else { Fate::Pass }
    });
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(Ending::Ok), 1));
}

#[test]
fn case_7_result_with_a_lost_acknowledgement_does_not_answer_the_next_call() {
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
fn case_8_calls_survive_the_loss_of_half_of_all_packets() {
    let mut world = world(&[Plan { total: 100, result: 100, ..NULL }; 1500]);
    (world.to_server, world.to_client) =
        (Link { loss: 500, ..Link::PERFECT }, Link { loss: 500, ..Link::PERFECT });
    finish(&mut world);
    let ok = world.oracle.count(|ending| ending == Ending::Ok);
    assert!(ok > 1450, "{ok}");
    let log = world.log.iter().flatten();
    assert!(log.filter(|one| one.from == SERVER).count() < 12_000);
}
