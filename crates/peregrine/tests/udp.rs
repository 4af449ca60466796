//! Tests the UDP path: the contract of all paths, large messages, deadlines, many callers, stopping, and
//! limits.

mod contract;
mod room;
mod support;

use peregrine::PathKind;
use room::Carrier;

const UDP: Carrier = Carrier { scheme: "udp", path: PathKind::Udp };

#[test]
fn contract_holds() {
    room::contract_holds(UDP);
}

#[test]
fn contract_holds_when_threads_sleep() {
    room::contract_holds_when_threads_sleep(UDP);
}

#[test]
fn calls_within_their_bounds_wait_for_each_other() {
    room::calls_within_their_bounds_wait_for_each_other(UDP);
}

#[test]
fn long_procedures_do_not_delay_other_calls() {
    room::long_procedures_do_not_delay_other_calls(UDP);
}

#[test]
fn each_thread_gets_its_own_replies() {
    room::each_thread_gets_its_own_replies(UDP);
}

#[test]
fn late_reply_releases_frame_of_given_up_call() {
    room::late_reply_releases_frame_of_given_up_call(UDP);
}

#[test]
fn large_messages_arrive_intact_in_both_directions() {
    room::large_messages_arrive_intact_in_both_directions(UDP);
}

#[test]
fn running_and_waiting_calls_are_bounded() {
    room::running_and_waiting_calls_are_bounded(UDP);
}

#[test]
fn drop_of_an_object_may_call_its_server() {
    room::drop_of_an_object_may_call_its_server(UDP);
}

#[test]
fn calls_of_withdrawn_export_fail_and_others_succeed() {
    room::calls_of_withdrawn_export_fail_and_others_succeed(UDP);
}

#[test]
fn stopping_server_finishes_calls_and_refuses_new_ones() {
    room::stopping_server_finishes_calls_and_refuses_new_ones(UDP);
}

#[test]
fn calls_cut_short_by_drain_may_have_executed() {
    room::calls_cut_short_by_drain_may_have_executed(UDP);
}

#[test]
fn listening_on_all_interfaces_must_be_requested() {
    room::listening_on_all_interfaces_must_be_requested(UDP);
}

#[test]
fn export_limited_to_users_is_denied_over_network() {
    room::export_limited_to_users_is_denied_over_network(UDP);
}

#[test]
fn binding_error_gives_the_reason() {
    room::binding_error_gives_the_reason(UDP);
}

#[test]
fn caller_is_identified_by_its_address() {
    room::caller_is_identified_by_its_address(UDP);
}

#[test]
fn messages_of_boundary_sizes_arrive_intact() {
    room::messages_of_boundary_sizes_arrive_intact(UDP);
}

#[test]
fn timed_out_call_keeps_its_frame_while_procedure_runs() {
    room::timed_out_call_keeps_its_frame_while_procedure_runs(UDP);
}

#[test]
fn callers_are_served_concurrently() {
    room::callers_are_served_concurrently(UDP);
}

#[test]
fn long_call_is_not_given_up() {
    room::long_call_is_not_given_up(UDP);
}

#[test]
fn unknown_export_and_stopped_server_are_reported() {
    room::unknown_export_and_stopped_server_are_reported(UDP);
}
