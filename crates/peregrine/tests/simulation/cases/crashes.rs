//! Cases 29 to 43: the server or a client crashes, and comes back.

use super::*;
use crate::exchange::time::MILLISECOND;
use crate::world::Change;

const START: Change = Change::StartServer(0);
const NO: Ending = Ending::Failed(Executed::No, FailureReason::Refused);
const MAYBE: Ending = Ending::Failed(Executed::Maybe, FailureReason::Refused);

/// A server that crashes at a time and is back a little later.
fn crash(world: &mut World, at: u64, back_after: u64) {
    world.icmp = false;
    world.later(at, Change::CrashServer(0));
    world.later(at + back_after, START);
}

/// Drops all calls until then.
fn no_calls_before(world: &mut World, end: u64) {
    script(world, move |now, header| {
        if header.kind == PacketKind::Call && now < end { Fate::Drop } else { Fate::Pass }
    });
}

#[test]
fn case_29_a_crash_before_the_call_came() {
    let mut world = world(&[NULL, NULL]);
    no_calls_before(&mut world, 50 * MILLISECOND);
    crash(&mut world, 20 * MILLISECOND, 10 * MILLISECOND);
    finish(&mut world);
    // The new server cannot know that the old one never had it.
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(MAYBE), 0));
    assert_eq!((ending(&world, 1), executions(&world, 1)), (Some(Ending::Ok), 1));
}

#[test]
fn case_30_a_crash_while_the_procedure_runs() {
    let mut world = world(&[Plan { runs_for: Some(SECOND), ..NULL }, NULL]);
    crash(&mut world, 100 * MILLISECOND, 100 * MILLISECOND);
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(MAYBE), 1));
    assert_eq!(ending(&world, 1), Some(Ending::Ok));
}

#[test]
fn case_32_a_crash_after_the_result_was_lost() {
    let mut world = world(&[NULL]);
    lose(&mut world, PacketKind::Result, 1);
    crash(&mut world, 2 * MILLISECOND, MILLISECOND);
    finish(&mut world);
    assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(MAYBE), 1));
}

#[test]
fn case_33_a_late_call_reaches_the_next_server() {
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

/// Also 36: whether a call ran rests on no clock. The client asks before it sends the call.
#[test]
fn case_34_a_restart_between_two_calls_is_not_executed_and_bound_again() {
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
    // What is bound again is another server, and known to be.
    assert_eq!(world.oracle.bound_again, [0, 1]);
}

/// What says that the call arrived is lost, so that only the refusal of the next server tells.
#[test]
fn a_server_does_not_vouch_for_the_one_before() {
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

/// The machine of a client is paused right after its call ran; its result is lost, and the server is
/// started again. By the client's clock the call is young when the refusal comes.
#[test]
fn a_client_whose_clock_stood_still_does_not_take_a_call_that_ran_for_one_that_did_not() {
    for back_after in [MILLISECOND, 100 * SECOND] {
        let mut world = world(&[NULL, NULL]);
        script(&mut world, |now, header| {
            let lost = header.kind == PacketKind::Result && now < MILLISECOND;
            if lost { Fate::Drop } else { Fate::Pass }
        });
        world.later(500_000, Change::Freeze(1, 200 * SECOND));
        crash(&mut world, MILLISECOND, back_after);
        finish(&mut world);
        assert_eq!((ending(&world, 0), executions(&world, 0)), (Some(MAYBE), 1));
        assert_eq!(ending(&world, 1), Some(Ending::Ok));
    }
}

/// The same, where the server lives and forgets the record of the client, which it takes for gone.
#[test]
fn a_client_whose_clock_stood_still_while_its_record_was_evicted_is_in_doubt() {
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
fn a_server_that_is_gone_is_told_by_its_machine() {
    let mut world = world(&[Plan { runs_for: Some(SECOND), ..NULL }]);
    world.later(100 * MILLISECOND, Change::CrashServer(0));
    world.run_until(5 * SECOND);
    check(&world);
    let unreachable = Ending::Failed(Executed::Maybe, FailureReason::Unreachable);
    assert_eq!(ending(&world, 0), Some(unreachable));
}

#[test]
fn case_38_a_client_crashes_in_a_call_and_its_record_can_be_forgotten() {
    let server = ServerOptions { places: 1, share: 1, ..SERVER_OPTIONS };
    let slow = Plan { runs_for: Some(100 * MILLISECOND), result: 50_000, ..NULL };
    let mut world = world_of(&[vec![slow]], server, LASTING);
    world.later(50 * MILLISECOND, Change::CrashClient(1));
    world.run_until(SECOND);
    // The result is sent to nobody, and once.
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
fn case_39_a_client_that_comes_back_is_a_new_one() {
    let mut world = world(&[NULL; 40]);
    world.later(2 * MILLISECOND, Change::CrashClient(1));
    world.later(3 * MILLISECOND, Change::StartClient(1));
    finish(&mut world);
    let lost = world.oracle.count(|ending| ending == Ending::Lost);
    assert_eq!((lost, world.oracle.count(|ending| ending == Ending::Ok)), (1, 39));
}

#[test]
fn case_40_a_clone_of_a_client_never_gets_an_old_result() {
    let (mut client_end, mut server_end, flow) = crate::cost::pair([1; 12]);
    let mut out = [0; crate::exchange::header::CONTROL_BYTES_MAX];
    let mut clone = client_end.clone();
    for n in 0..5 {
        crate::cost::call(&mut client_end, &mut server_end, &flow, &mut out, n * 1000);
    }
    let now = crate::exchange::time::Moment(9000);
    clone.begin(crate::exchange::message::Shape::default()).expect("it can begin");
    clone.poll_send(now, &flow, &mut out).expect("its call");
    let header = Header::parse(out.first_chunk().expect("a header"), 0).expect("it is whole");
    let effect = server_end.handle(now, &flow, &header, &[]);
    assert!(matches!(effect.action, crate::exchange::server_end::Action::Dropped(_)));
    assert_eq!(server_end.poll_send(now, &flow, &mut out), None);
}

#[test]
fn case_41_results_for_a_client_that_has_crashed_mean_nothing_to_the_next() {
    let slow = Plan { runs_for: Some(100 * MILLISECOND), result: 5_000, ..NULL };
    let mut world = world(&[slow, NULL, NULL]);
    world.later(50 * MILLISECOND, Change::CrashClient(1));
    world.later(60 * MILLISECOND, Change::StartClient(1));
    finish(&mut world);
    assert_eq!(ending(&world, 0), Some(Ending::Lost));
    assert_eq!([ending(&world, 1), ending(&world, 2)], [Some(Ending::Ok); 2]);
}
