//! Tests the TCP path: the contract of all paths, many calls on one connection, deadlines, stopping, and
//! limits.

mod contract;
mod room;
mod support;

use peregrine::{BindOptions, PathKind, Server};
use room::{Carrier, Inside, Room as _, RoomClient, home, serve};

const TCP: Carrier = Carrier { scheme: "tcp", path: PathKind::Tcp };

#[test]
fn contract_holds() {
    room::contract_holds(TCP);
}

#[test]
fn contract_holds_when_threads_sleep() {
    room::contract_holds_when_threads_sleep(TCP);
}

#[test]
fn calls_within_their_bounds_wait_for_each_other() {
    room::calls_within_their_bounds_wait_for_each_other(TCP);
}

#[test]
fn long_procedures_do_not_delay_other_calls() {
    room::long_procedures_do_not_delay_other_calls(TCP);
}

#[test]
fn each_thread_gets_its_own_replies() {
    room::each_thread_gets_its_own_replies(TCP);
}

#[test]
fn late_reply_releases_frame_of_given_up_call() {
    room::late_reply_releases_frame_of_given_up_call(TCP);
}

#[test]
fn large_messages_arrive_intact_in_both_directions() {
    room::large_messages_arrive_intact_in_both_directions(TCP);
}

#[test]
fn running_and_waiting_calls_are_bounded() {
    room::running_and_waiting_calls_are_bounded(TCP);
}

#[test]
fn drop_of_an_object_may_call_its_server() {
    room::drop_of_an_object_may_call_its_server(TCP);
}

#[test]
fn calls_of_withdrawn_export_fail_and_others_succeed() {
    room::calls_of_withdrawn_export_fail_and_others_succeed(TCP);
}

#[test]
fn stopping_server_finishes_calls_and_refuses_new_ones() {
    room::stopping_server_finishes_calls_and_refuses_new_ones(TCP);
}

#[test]
fn calls_cut_short_by_drain_may_have_executed() {
    room::calls_cut_short_by_drain_may_have_executed(TCP);
}

#[test]
fn listening_on_all_interfaces_must_be_requested() {
    room::listening_on_all_interfaces_must_be_requested(TCP);
}

#[test]
fn export_limited_to_users_is_denied_over_network() {
    room::export_limited_to_users_is_denied_over_network(TCP);
}

#[test]
fn binding_error_gives_the_reason() {
    room::binding_error_gives_the_reason(TCP);
}

#[test]
fn caller_is_identified_by_its_address() {
    room::caller_is_identified_by_its_address(TCP);
}

#[test]
fn messages_of_boundary_sizes_arrive_intact() {
    room::messages_of_boundary_sizes_arrive_intact(TCP);
}

#[test]
fn timed_out_call_keeps_its_frame_while_procedure_runs() {
    room::timed_out_call_keeps_its_frame_while_procedure_runs(TCP);
}

#[test]
fn callers_are_served_concurrently() {
    room::callers_are_served_concurrently(TCP);
}

#[test]
fn unknown_export_and_stopped_server_are_reported() {
    room::unknown_export_and_stopped_server_are_reported(TCP);
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

/// Waits until the servers of earlier tests have closed their descriptors. Then returns the number of
/// descriptors of this process.
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
    // This process has both ends of the one connection, so it has two more descriptors.
    assert_eq!(support::descriptors(std::process::id()), before + 2);
    assert_eq!(peregrine::describe(&address).unwrap().bindings, 50);
    let few: Vec<_> = rooms.into_iter().take(3).collect();
    support::until("bindings are gone", || peregrine::describe(&address).unwrap().bindings == 3);
    few.iter().for_each(|room| room.null().unwrap());
    drop(few);
    support::until("the connection is gone", || support::descriptors(std::process::id()) == before);
    running.stop();
}
