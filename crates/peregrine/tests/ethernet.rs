//! The raw Ethernet path, by both devices: what holds for all networks, in two network namespaces.

mod contract;
mod room;
mod support;

use std::net::IpAddr;

use peregrine::PathKind;
use peregrine::sys::{self, Ours, XdpProgram};
use room::Carrier;
use support::link::{ENDS, Link, at_far_end};

const ETHERNET: Carrier = Carrier { scheme: "eth", path: PathKind::Ethernet };

/// Runs a case at the near end of a link of its own, by each device.
fn by_both_devices(case: fn(Carrier)) {
    for packet in [false, true] {
        let link = match Link::new() {
            Ok(link) => link,
            Err(why) => {
                println!("skipped: {why}");
                return;
            }
        };
        std::thread::scope(|scope| {
            let at_near_end = scope.spawn(|| {
                link.enter();
                // Who has an interface's program keeps others from its queue.
                let _taken = packet.then(|| [take(0), at_far_end(|| take(1))]);
                case(ETHERNET);
            });
            at_near_end.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }
}

/// Gives the interface of this thread's end a program that is not Peregrine's.
fn take(end: usize) -> XdpProgram {
    let address: IpAddr = ENDS[end].parse().expect("an address");
    let interface = sys::interface_of(address).expect("an interface");
    let ours = Ours { ether_type: 0x88b6, queue: 0, tag: 0 };
    XdpProgram::attach(interface.number, ours).expect("a program")
}

#[test]
fn the_contract_is_kept() {
    by_both_devices(room::the_contract_is_kept);
}

#[test]
fn the_contract_is_kept_asleep() {
    by_both_devices(room::the_contract_is_kept_asleep);
}

#[test]
fn calls_within_their_bounds_wait_for_each_other() {
    by_both_devices(room::calls_within_their_bounds_wait_for_each_other);
}

#[test]
fn long_procedures_do_not_keep_others_waiting() {
    by_both_devices(room::long_procedures_do_not_keep_others_waiting);
}

#[test]
fn many_threads_get_their_own_replies() {
    by_both_devices(room::many_threads_get_their_own_replies);
}

#[test]
fn a_caller_gives_up_and_its_frame_comes_back() {
    by_both_devices(room::a_caller_gives_up_and_its_frame_comes_back);
}

#[test]
fn large_messages_travel_both_ways() {
    by_both_devices(room::large_messages_travel_both_ways);
}

#[test]
fn threads_and_queue_bound_what_runs() {
    by_both_devices(room::threads_and_queue_bound_what_runs);
}

#[test]
fn withdrawn_is_refused_and_others_go_on() {
    by_both_devices(room::withdrawn_is_refused_and_others_go_on);
}

#[test]
fn a_server_that_stops_lets_calls_end_and_refuses_others() {
    by_both_devices(room::a_server_that_stops_lets_calls_end_and_refuses_others);
}

#[test]
fn a_drain_that_is_too_short_leaves_calls_uncertain() {
    by_both_devices(room::a_drain_that_is_too_short_leaves_calls_uncertain);
}

#[test]
fn what_is_limited_to_users_is_not_offered() {
    by_both_devices(room::what_is_limited_to_users_is_not_offered);
}

#[test]
fn binding_fails_with_the_reason() {
    by_both_devices(room::binding_fails_with_the_reason);
}

#[test]
fn large_messages_come_whole() {
    by_both_devices(room::large_messages_come_whole);
}

#[test]
fn a_deadline_ends_a_call_and_the_server_lets_go_later() {
    by_both_devices(room::a_deadline_ends_a_call_and_the_server_lets_go_later);
}

#[test]
fn callers_are_served_side_by_side() {
    by_both_devices(room::callers_are_served_side_by_side);
}

#[test]
fn a_long_call_is_waited_for() {
    by_both_devices(room::a_long_call_is_waited_for);
}

#[test]
fn nobody_listening_and_a_server_that_stops_are_said() {
    by_both_devices(room::nobody_listening_and_a_server_that_stops_are_said);
}
