//! The UDP path: the contract, large messages, deadlines, many callers, stopping, bounds.

mod contract;
mod room;
mod support;

use peregrine::PathKind;
use room::Carrier;

const UDP: Carrier = Carrier { scheme: "udp", path: PathKind::Udp };

#[test]
fn the_contract_is_kept() {
    room::the_contract_is_kept(UDP);
}

#[test]
fn the_contract_is_kept_asleep() {
    room::the_contract_is_kept_asleep(UDP);
}

#[test]
fn calls_within_their_bounds_wait_for_each_other() {
    room::calls_within_their_bounds_wait_for_each_other(UDP);
}

#[test]
fn long_procedures_do_not_keep_others_waiting() {
    room::long_procedures_do_not_keep_others_waiting(UDP);
}

#[test]
fn many_threads_get_their_own_replies() {
    room::many_threads_get_their_own_replies(UDP);
}

#[test]
fn a_caller_gives_up_and_its_frame_comes_back() {
    room::a_caller_gives_up_and_its_frame_comes_back(UDP);
}

#[test]
fn large_messages_travel_both_ways() {
    room::large_messages_travel_both_ways(UDP);
}

#[test]
fn threads_and_queue_bound_what_runs() {
    room::threads_and_queue_bound_what_runs(UDP);
}

#[test]
fn withdrawn_is_refused_and_others_go_on() {
    room::withdrawn_is_refused_and_others_go_on(UDP);
}

#[test]
fn a_server_that_stops_lets_calls_end_and_refuses_others() {
    room::a_server_that_stops_lets_calls_end_and_refuses_others(UDP);
}

#[test]
fn a_drain_that_is_too_short_leaves_calls_uncertain() {
    room::a_drain_that_is_too_short_leaves_calls_uncertain(UDP);
}

#[test]
fn listening_is_narrow_unless_said_otherwise() {
    room::listening_is_narrow_unless_said_otherwise(UDP);
}

#[test]
fn what_is_limited_to_users_is_not_offered() {
    room::what_is_limited_to_users_is_not_offered(UDP);
}

#[test]
fn binding_fails_with_the_reason() {
    room::binding_fails_with_the_reason(UDP);
}

#[test]
fn who_calls_is_where_it_calls_from() {
    room::who_calls_is_where_it_calls_from(UDP);
}

#[test]
fn large_messages_come_whole() {
    room::large_messages_come_whole(UDP);
}

#[test]
fn a_deadline_ends_a_call_and_the_server_lets_go_later() {
    room::a_deadline_ends_a_call_and_the_server_lets_go_later(UDP);
}

#[test]
fn callers_are_served_side_by_side() {
    room::callers_are_served_side_by_side(UDP);
}

#[test]
fn a_long_call_is_waited_for() {
    room::a_long_call_is_waited_for(UDP);
}

#[test]
fn nobody_listening_and_a_server_that_stops_are_said() {
    room::nobody_listening_and_a_server_that_stops_are_said(UDP);
}
