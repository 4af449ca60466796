//! Simulates cases 29 to 43: the server or a client crashes, and is started again.

use super::*;
use crate::exchange::time::MILLISECOND;
use crate::world::Change;

const START: Change = Change::StartServer(0);
const NO: Ending = Ending::Failed(Executed::No, FailureReason::Refused);
const MAYBE: Ending = Ending::Failed(Executed::Maybe, FailureReason::Refused);

/// Crashes a server at the time `at`, and starts it again after `restart_after`.
fn crash(world: &mut World, at: u64, restart_after: u64) {
    world.icmp = false;
    world.later(at, Change::CrashServer(0));
    world.later(at + restart_after, START);
}

/// Drops all calls until the time `end`.
fn no_calls_before(world: &mut World, end: u64) {
    script(world, move |now, header| {
        if header.kind == PacketKind::Call && now < end { Fate::Drop } else { Fate::Pass }
    });
}

#[test]
fn case_29_crash_before_the_call_arrives_reports_doubt() {
    let mut world = world(&[NULL, NULL]);
    no_calls_before(&mut world, 50 * MILLISECOND);
    crash(&mut world, 20 * MILLISECOND, 10 * MILLISECOND);
    finish(&mut world);
    // The new server cannot know that the old one never received the call.
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(MAYBE), 0));
    assert_eq!((ending(&world, 1), executions(&world, 1)), (Some(Ending::Ok), 1));
}

#[test]
fn case_30_crash_during_the_procedure_reports_doubt() {
    let mut world = world(&[Plan { runs_for: Some(SECOND), ..NULL }, NULL]);
    crash(&mut world, 100 * MILLISECOND, 100 * MILLISECOND);
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(MAYBE), 1));
    assert_eq!(ending(&world, 1), Some(Ending::Ok));
}

#[test]
fn case_32_crash_after_a_lost_result_reports_doubt() {
    let mut world = world(&[NULL]);
    lose(&mut world, PacketKind::Result, 1);
    crash(&mut world, 2 * MILLISECOND, MILLISECOND);
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(MAYBE), 1));
}

#[test]
fn case_33_late_call_is_refused_by_the_next_server() {
    let mut world = world(&[NULL]);
    script(&mut world, |_, header| {
        if header.kind == PacketKind::Call { Fate::Late(30 * SECOND) } else { Fate::Pass }
    });
    world.later(10 * MILLISECOND, Change::CrashClient(1));
    crash(&mut world, SECOND, SECOND);
    world.run_until(100 * SECOND);
    check(&world);
    assert_eq!(
        (executions(&world, 0), world.sent(PacketKind::Refused)),
        (0, world.sent(PacketKind::Call))
    );
}

/// Also covers case 36: no clock decides whether a call was executed. The client probes before it sends the
/// call.
#[test]
fn case_34_call_after_a_restart_is_not_executed_and_binds_again() {
    let client = ClientOptions { pause: 1, ..LASTING };
    let mut world = world_of(&[vec![NULL]], SERVER_OPTIONS, client);
    finish(&mut world);
    let idle = world.now;
    crash(&mut world, 0, SECOND);
    world.run_until(idle + 10 * SECOND);
    let token = world.oracle.plan(NULL);
    let again = world.oracle.plan(NULL);
    let now = world.now;
    let activity = &mut world.clients[0].as_mut().expect("a client").activities[0];
    activity.todo.extend([token, again]);
    activity.wake = now;
    world.at(now, crate::world::Event::Wake(1, 0));
    world.run_until(idle + 20 * SECOND);
    check(&world);
    assert_eq!((ending(&world, 1), executions(&world, 1)), (Some(NO), 0));
    assert_eq!((ending(&world, 2), executions(&world, 2)), (Some(Ending::Ok), 1));
    // The new binding is to another server, and the client notices the difference.
    assert_eq!(world.oracle.bound_again, [0, 1]);
}

/// The old server's report that the call arrived is lost. So the client knows only that the new server
/// refuses the call.
#[test]
fn refusal_by_a_new_server_proves_nothing_about_the_old_one() {
    let mut world = world(&[Plan { runs_for: Some(SECOND), ..NULL }, NULL]);
    script(&mut world, |now, header| {
        let late = header.kind == PacketKind::HaveCall && now < 200 * MILLISECOND;
        if late { Fate::Drop } else { Fate::Pass }
    });
    crash(&mut world, 100 * MILLISECOND, MILLISECOND);
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(MAYBE), 1));
    assert_eq!(ending(&world, 1), Some(Ending::Ok));
    assert_eq!(world.oracle.bound_again, [0, 1]);
}

/// The client's machine is paused after its call was executed. The result is lost, and the server is
/// restarted. The pause also stops the client's clock, so by this clock the call is recent when the refusal
/// arrives.
#[test]
fn paused_client_does_not_report_an_executed_call_as_unexecuted() {
    for restart_after in [MILLISECOND, 100 * SECOND] {
        let mut world = world(&[NULL, NULL]);
        script(&mut world, |now, header| {
            let lost = header.kind == PacketKind::Result && now < MILLISECOND;
            if lost { Fate::Drop } else { Fate::Pass }
        });
        world.later(500_000, Change::Freeze(1, 200 * SECOND));
        crash(&mut world, MILLISECOND, restart_after);
        finish(&mut world);
        assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(MAYBE), 1));
        assert_eq!(ending(&world, 1), Some(Ending::Ok));
    }
}

/// The client's machine is paused after its call was executed, and the result is lost. The server does not
/// crash. It presumes the client dead, and evicts the client's record.
#[test]
fn client_paused_during_its_eviction_reports_doubt() {
    let server = ServerOptions { places: 1, share: 1, ..SERVER_OPTIONS };
    let mut world = world_of(&[vec![NULL, NULL]], server, LASTING);
    script(&mut world, |now, header| {
        let lost = header.kind == PacketKind::Result && now < MILLISECOND;
        if lost { Fate::Drop } else { Fate::Pass }
    });
    world.later(500_000, Change::Freeze(1, 200 * SECOND));
    world.run_until(70 * SECOND);
    world.start(2, &[vec![NULL]]);
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(MAYBE), 1));
    assert_eq!([ending(&world, 1), ending(&world, 2)], [Some(Ending::Ok); 2]);
}

#[test]
fn closed_port_shows_that_the_server_has_ended() {
    let mut world = world(&[Plan { runs_for: Some(SECOND), ..NULL }]);
    world.later(100 * MILLISECOND, Change::CrashServer(0));
    world.run_until(5 * SECOND);
    check(&world);
    let unreachable = Ending::Failed(Executed::Maybe, FailureReason::Unreachable);
    assert_eq!(ending(&world, 0), Some(unreachable));
}

#[test]
fn case_38_record_of_a_crashed_client_can_be_evicted() {
    let server = ServerOptions { places: 1, share: 1, ..SERVER_OPTIONS };
    let slow = Plan { runs_for: Some(100 * MILLISECOND), result: 50_000, ..NULL };
    let mut world = world_of(&[vec![slow]], server, LASTING);
    world.later(50 * MILLISECOND, Change::CrashClient(1));
    world.run_until(SECOND);
    // The server has sent the result. It does not send the result again, although the crashed client never
    // acknowledges it.
    let results = world.sent(PacketKind::Result);
    world.run_until(30 * SECOND);
    assert_eq!(world.sent(PacketKind::Result), results);
    assert_eq!(world.server().map(crate::server::Server::kept), Some(1));
    world.start(2, &[vec![NULL]]);
    world.run_until(40 * SECOND);
    assert_eq!(ending(&world, 1), None);
    world.run_until(70 * SECOND);
    check(&world);
    assert_eq!(ending(&world, 1), Some(Ending::Ok));
}

#[test]
fn case_39_restarted_client_is_a_new_client() {
    let mut world = world(&[NULL; 40]);
    world.later(2 * MILLISECOND, Change::CrashClient(1));
    world.later(3 * MILLISECOND, Change::StartClient(1));
    finish(&mut world);
    let lost = world.oracle.count(|ending| ending == Ending::Lost);
    assert_eq!((lost, world.oracle.count(|ending| ending == Ending::Ok)), (1, 39));
}

#[test]
fn case_40_clone_of_a_client_never_receives_an_old_result() {
    let (mut client_end, mut server_end, flow) = crate::cost::pair([1; 12]);
    let mut out = [0; crate::exchange::header::CONTROL_BYTES_MAX];
    let mut clone = client_end.clone();
    for n in 0..5 {
        crate::cost::call(&mut client_end, &mut server_end, &flow, &mut out, n * 1000);
    }
    let now = crate::exchange::time::Moment(9000);
    clone.begin(crate::exchange::message::Shape::default()).expect("the client end is free");
    clone.poll_send(now, &flow, &mut out).expect("a call packet is due");
    let header = Header::parse(out.first_chunk().expect("a header"), 0).expect("a valid header");
    let effect = server_end.handle(now, &flow, &header, &[]);
    assert!(matches!(effect.action, crate::exchange::server_end::Action::Dropped(_)));
    assert_eq!(server_end.poll_send(now, &flow, &mut out), None);
}

#[test]
fn case_41_results_for_a_crashed_client_do_not_reach_the_next() {
    let slow = Plan { runs_for: Some(100 * MILLISECOND), result: 5_000, ..NULL };
    let mut world = world(&[slow, NULL, NULL]);
    world.later(50 * MILLISECOND, Change::CrashClient(1));
    world.later(60 * MILLISECOND, Change::StartClient(1));
    finish(&mut world);
    assert_eq!(ending(&world, 0), Some(Ending::Lost));
    assert_eq!([ending(&world, 1), ending(&world, 2)], [Some(Ending::Ok); 2]);
}
