//! The TCP path: the contract, many calls on one connection, deadlines, stopping, bounds.

mod contract;
mod room;
mod support;

use peregrine::{BindOptions, PathKind, Server};
use room::{Carrier, Inside, Room as _, RoomClient, home, serve};

const TCP: Carrier = Carrier { scheme: "tcp", path: PathKind::Tcp };

#[test]
fn the_contract_is_kept() {
    room::the_contract_is_kept(TCP);
}

#[test]
fn the_contract_is_kept_asleep() {
    room::the_contract_is_kept_asleep(TCP);
}

#[test]
fn calls_within_their_bounds_wait_for_each_other() {
    room::calls_within_their_bounds_wait_for_each_other(TCP);
}

#[test]
fn long_procedures_do_not_keep_others_waiting() {
    room::long_procedures_do_not_keep_others_waiting(TCP);
}

#[test]
fn many_threads_get_their_own_replies() {
    room::many_threads_get_their_own_replies(TCP);
}

#[test]
fn a_caller_gives_up_and_its_frame_comes_back() {
    room::a_caller_gives_up_and_its_frame_comes_back(TCP);
}

#[test]
fn large_messages_travel_both_ways() {
    room::large_messages_travel_both_ways(TCP);
}

#[test]
fn threads_and_queue_bound_what_runs() {
    room::threads_and_queue_bound_what_runs(TCP);
}

#[test]
fn withdrawn_is_refused_and_others_go_on() {
    room::withdrawn_is_refused_and_others_go_on(TCP);
}

#[test]
fn a_server_that_stops_lets_calls_end_and_refuses_others() {
    room::a_server_that_stops_lets_calls_end_and_refuses_others(TCP);
}

#[test]
fn a_drain_that_is_too_short_leaves_calls_uncertain() {
    room::a_drain_that_is_too_short_leaves_calls_uncertain(TCP);
}

#[test]
fn listening_is_narrow_unless_said_otherwise() {
    room::listening_is_narrow_unless_said_otherwise(TCP);
}

#[test]
fn what_is_limited_to_users_is_not_offered() {
    room::what_is_limited_to_users_is_not_offered(TCP);
}

#[test]
fn binding_fails_with_the_reason() {
    room::binding_fails_with_the_reason(TCP);
}

#[test]
fn who_calls_is_where_it_calls_from() {
    room::who_calls_is_where_it_calls_from(TCP);
}

#[test]
fn large_messages_come_whole() {
    room::large_messages_come_whole(TCP);
}

#[test]
fn a_deadline_ends_a_call_and_the_server_lets_go_later() {
    room::a_deadline_ends_a_call_and_the_server_lets_go_later(TCP);
}

#[test]
fn callers_are_served_side_by_side() {
    room::callers_are_served_side_by_side(TCP);
}

#[test]
fn nobody_listening_and_a_server_that_stops_are_said() {
    room::nobody_listening_and_a_server_that_stops_are_said(TCP);
}

#[test]
fn congestion_controls_are_those_of_the_kernel() {
    let _home = home();
    let (_running, address) = serve(Server::new(), Inside::of(1), &TCP.loopback());
    let strange = BindOptions::default().congestion("no-such-control");
    let error = RoomClient::bind_with(&address, &strange).unwrap_err();
    assert!(error.to_string().contains("no-such-control"), "{error}");
    let reno = BindOptions::default().congestion("reno");
    RoomClient::bind_with(&address, &reno).unwrap().null().unwrap();
}

/// Descriptors of this process when servers of tests before have closed theirs.
fn settled() -> usize {
    let (mut last, mut same) = (0, 0);
    while same < 20 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        let now = support::descriptors(std::process::id());
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    last
}

#[test]
fn bindings_share_a_connection_and_end_it() {
    let _home = home();
    let (running, address) = serve(Server::new(), Inside::of(1), &TCP.loopback());
    let before = settled();
    let rooms: Vec<_> = (0..50).map(|_| RoomClient::bind(&address).unwrap()).collect();
    rooms.iter().for_each(|room| room.null().unwrap());
    // Both ends of one connection are in this process.
    assert_eq!(support::descriptors(std::process::id()), before + 2);
    assert_eq!(peregrine::describe(&address).unwrap().bindings, 50);
    let few: Vec<_> = rooms.into_iter().take(3).collect();
    support::until("bindings are gone", || peregrine::describe(&address).unwrap().bindings == 3);
    few.iter().for_each(|room| room.null().unwrap());
    drop(few);
    support::until("the connection is gone", || support::descriptors(std::process::id()) == before);
    running.stop();
}
