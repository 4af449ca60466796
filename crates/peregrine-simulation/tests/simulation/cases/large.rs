//! Simulates cases 21 to 28: messages of many packets.

use super::*;
use crate::client::ClientOptions;
use crate::exchange::time::MILLISECOND;
use crate::network::{Link, machine_of};

#[test]
fn case_21_messages_of_all_sizes_arrive_whole() {
    let sizes = [0, 1, 1407, 1408, 1409, 2815, 2816, 2817, 1 << 20];
    let plans: Vec<_> = sizes
        .iter()
        .flat_map(|size| {
            let large = Plan { total: *size, ..NULL };
            [large, Plan { total: 0, result: *size, ..NULL }, Plan { result: *size, ..large }]
        })
        .collect();
    let mut world = world(&plans);
    finish(&mut world);
    assert!(world.oracle.all_ok());
    assert_eq!(world.oracle.resent, 0);
    // Send a message of 4 MiB over a link that loses packets.
    let mut world = super::world(&[Plan { total: 4 << 20, result: 4 << 20, ..NULL }]);
    let lossy = Link { loss: 20, ..Link::PERFECT };
    (world.to_server, world.to_client) = (lossy.clone(), lossy);
    finish(&mut world);
    assert!(world.oracle.all_ok());
}

/// Loses the first packet of the kind `kind` that carries the fragment number `fragment`.
fn lose_fragment(world: &mut World, kind: PacketKind, fragment: u32) {
    let mut done = false;
    script(world, move |_, header| {
        if header.kind == kind && header.fragment == fragment && !done {
            done = true;
            return Fate::Drop;
        }
        Fate::Pass
    });
}

#[test]
fn case_22_only_the_lost_fragment_is_retransmitted() {
    for kind in [PacketKind::Call, PacketKind::Result] {
        for fragment in [1, 7, 14] {
            let mut world = world(&[Plan { total: 20_000, result: 20_000, ..NULL }]);
            lose_fragment(&mut world, kind, fragment);
            finish(&mut world);
            assert!(world.oracle.all_ok());
            assert_eq!((resent(&world, kind), world.oracle.resent), (1, 1));
            // The loss was detected without a timer.
            assert_eq!(world.sent(PacketKind::Probe), 0);
        }
    }
}

/// More than half of all serial numbers lie between the two losses. Serial numbers wrap around, so a number
/// from the first loss then seems newer than a number from the second loss. The sender must not compare them.
#[test]
fn distant_losses_cost_one_retransmission_each() {
    for kind in [PacketKind::Call, PacketKind::Result] {
        let large = 100_000_000;
        let (total, result) = if kind == PacketKind::Call { (large, 0) } else { (0, large) };
        let client = ClientOptions { result_bytes_max: 1 << 28, ..LASTING };
        let server = ServerOptions { bytes_max: 1 << 28, ..SERVER_OPTIONS };
        let mut world = world_of(&[vec![Plan { total, result, ..NULL }]], server, client);
        let mut lost = Vec::new();
        script(&mut world, move |_, header| {
            let once = [101, 40_001].contains(&header.fragment) && !lost.contains(&header.fragment);
            if header.kind == kind && once {
                lost.push(header.fragment);
                return Fate::Drop;
            }
            Fate::Pass
        });
        finish(&mut world);
        assert!(world.oracle.all_ok());
        assert_eq!((resent(&world, kind), world.oracle.resent), (2, 2), "{kind:?}");
        // A call without losses takes less than a second. This call may take longer, because the client or
        // the server waits a few times for the lost packets.
        let (ended, _) = world.oracle.calls[0].ended.expect("the call has ended");
        let took = ended - world.oracle.calls[0].began.expect("the call has begun");
        assert!(took < 5 * SECOND, "{kind:?}: {} ms", took / MILLISECOND);
    }
}

#[test]
fn case_23_lost_last_packet_costs_one_retransmission() {
    for kind in [PacketKind::Call, PacketKind::Result] {
        let mut world = world(&[Plan { total: 20_000, result: 20_000, ..NULL }]);
        lose_fragment(&mut world, kind, 0);
        finish(&mut world);
        assert!(world.oracle.all_ok());
        assert_eq!((resent(&world, kind), world.oracle.resent), (1, 1));
    }
}

#[test]
fn case_24_calls_survive_lost_reports_of_missing_pieces() {
    let mut world = world(&[Plan { total: 600_000, result: 600_000, ..NULL }; 3]);
    let mut count = 0u32;
    script(&mut world, move |_, header| match header.kind {
        PacketKind::HaveCall | PacketKind::HaveResult => {
            count += 1;
            if count % 3 == 1 { Fate::Drop } else { Fate::Pass }
        }
        PacketKind::Call | PacketKind::Result if header.fragment % 50 == 9 => {
            if header.flags.has(Flags::RESENT) { Fate::Pass } else { Fate::Drop }
        }
        _ => Fate::Pass,
    });
    finish(&mut world);
    assert!(world.oracle.all_ok());
}

#[test]
fn case_26_result_beyond_the_clients_limit_fails_the_call() {
    let client = ClientOptions { result_bytes_max: 10_000, ..LASTING };
    let large = Plan { result: 20_000, ..NULL };
    let mut world = world_of(&[vec![large, NULL]], SERVER_OPTIONS, client);
    finish(&mut world);
    let failed = Ending::Failed(Executed::Maybe, FailureReason::Protocol);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(failed), 1));
    // The client notifies the server, which releases the failed call. So the next call succeeds.
    assert_eq!(ending(&world, 1), Some(Ending::Ok));
    assert_eq!(world.server().map(crate::server::Server::kept), Some(0));
}

#[test]
fn case_27_incomplete_messages_do_not_disturb_others() {
    let server = ServerOptions { places: 12, share: 8, ..SERVER_OPTIONS };
    let half = vec![Plan { total: 100_000, ..NULL }; 3];
    let mut world = world_of(&vec![half; 30], server, LASTING);
    world.script = Some(Box::new(|_, packet, header| {
        let end =
            machine_of(packet.from) == 1 && header.kind == PacketKind::Call && header.fragment == 0;
        if end { Fate::Drop } else { Fate::Pass }
    }));
    world.run_until(SECOND);
    assert!(world.server().is_some_and(|server| server.kept() <= 8));
    let honest = world.oracle.calls.len();
    world.start(2, &[vec![NULL; 20], vec![NULL; 20]]);
    world.run_until(30 * SECOND);
    check(&world);
    assert!((honest..honest + 40).all(|call| ending(&world, call) == Some(Ending::Ok)));
}

#[test]
fn case_28_duplicate_of_a_large_call_is_not_executed() {
    let mut world = world(&[Plan { total: 20_000, ..NULL }, NULL]);
    script(&mut world, |_, header| {
        if header.kind == PacketKind::Call { Fate::Twice(10 * MILLISECOND) } else { Fate::Pass }
    });
    finish(&mut world);
    assert!(world.oracle.all_ok());
    assert_eq!(world.sent(PacketKind::Result), 2);
}

/// From some moment on, the path loses all packets with full pieces (fragments of the usual size), in both
/// directions. This can happen in the middle of a message.
#[test]
fn pieces_shrink_when_the_path_becomes_narrow() {
    for (total, result) in [(100_000, 0), (0, 100_000), (50_000, 50_000), (1400, 0), (0, 1400)] {
        let mut world = world(&[Plan { total, result, ..NULL }; 2]);
        world.later(350_000, crate::world::Change::Mtu(1300));
        finish(&mut world);
        assert!(world.oracle.all_ok(), "{total} {result}");
    }
}
