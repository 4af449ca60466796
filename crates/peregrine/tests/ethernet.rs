//! Runs the test cases of all network paths over raw Ethernet, with both devices (AF_XDP and AF_PACKET).
//! Client and server are in two network namespaces.

mod contract;
mod room;
mod support;

use std::net::IpAddr;

use peregrine::PathKind;
use peregrine::sys::{self, Ours, XdpProgram};
use room::Carrier;
use support::link::{ENDS, Link, at_far_end, at_near_end};

const ETHERNET: Carrier = Carrier { scheme: "eth", path: PathKind::Ethernet };

/// Runs a case at the near end of a new link, once with each device.
fn by_both_devices(case: fn(Carrier)) {
    for packet in [false, true] {
        at_near_end(Link::new(), |_| {
            // An interface can have only one XDP program. If that program is not Peregrine's, Peregrine uses
            // AF_PACKET.
            let _programs = packet.then(|| [attach_program(0), at_far_end(|| attach_program(1))]);
            case(ETHERNET);
        });
    }
}

/// Attaches an XDP program that is not Peregrine's to the interface of end `end`. The calling thread must be
/// in the namespace of that end.
fn attach_program(end: usize) -> XdpProgram {
    let address: IpAddr = ENDS[end].parse().expect("an address");
    let interface = sys::interface_of(address).expect("an interface");
    let ours = Ours { ether_type: 0x88b6, queue: 0, tag: 0 };
    XdpProgram::attach(interface.number, ours).expect("a program")
}

#[test]
fn contract_holds() {
    by_both_devices(room::contract_holds);
}

#[test]
fn contract_holds_when_threads_sleep() {
    by_both_devices(room::contract_holds_when_threads_sleep);
}

#[test]
fn calls_within_their_bounds_wait_for_each_other() {
    by_both_devices(room::calls_within_their_bounds_wait_for_each_other);
}

#[test]
fn long_procedures_do_not_delay_other_calls() {
    by_both_devices(room::long_procedures_do_not_delay_other_calls);
}

#[test]
fn each_thread_gets_its_own_replies() {
    by_both_devices(room::each_thread_gets_its_own_replies);
}

#[test]
fn late_reply_releases_frame_of_given_up_call() {
    by_both_devices(room::late_reply_releases_frame_of_given_up_call);
}

#[test]
fn large_messages_arrive_intact_in_both_directions() {
    by_both_devices(room::large_messages_arrive_intact_in_both_directions);
}

#[test]
fn running_and_waiting_calls_are_bounded() {
    by_both_devices(room::running_and_waiting_calls_are_bounded);
}

#[test]
fn drop_of_an_object_may_call_its_server() {
    by_both_devices(room::drop_of_an_object_may_call_its_server);
}

#[test]
fn calls_of_withdrawn_export_fail_and_others_succeed() {
    by_both_devices(room::calls_of_withdrawn_export_fail_and_others_succeed);
}

#[test]
fn stopping_server_finishes_calls_and_refuses_new_ones() {
    by_both_devices(room::stopping_server_finishes_calls_and_refuses_new_ones);
}

#[test]
fn calls_cut_short_by_drain_may_have_executed() {
    by_both_devices(room::calls_cut_short_by_drain_may_have_executed);
}

#[test]
fn export_limited_to_users_is_denied_over_network() {
    by_both_devices(room::export_limited_to_users_is_denied_over_network);
}

#[test]
fn binding_error_gives_the_reason() {
    by_both_devices(room::binding_error_gives_the_reason);
}

#[test]
fn messages_of_boundary_sizes_arrive_intact() {
    by_both_devices(room::messages_of_boundary_sizes_arrive_intact);
}

#[test]
fn timed_out_call_keeps_its_frame_while_procedure_runs() {
    by_both_devices(room::timed_out_call_keeps_its_frame_while_procedure_runs);
}

#[test]
fn callers_are_served_concurrently() {
    by_both_devices(room::callers_are_served_concurrently);
}

#[test]
fn long_call_is_not_given_up() {
    by_both_devices(room::long_call_is_not_given_up);
}

#[test]
fn unknown_export_and_stopped_server_are_reported() {
    by_both_devices(room::unknown_export_and_stopped_server_are_reported);
}
