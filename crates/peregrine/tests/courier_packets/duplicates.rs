//! Calls that arrive several times run once, as long as the server remembers them.

use std::net::SocketAddr;

use crate::foreign::{World, own_address};
use crate::support::until;
use crate::world::{
    ASKS, CALL, FORGOTTEN, HAVE_REPLY, NET, REJECT, REPLY, RETURN, WORKING, parts, payload, reply,
    string, whole, words,
};

#[test]
fn retransmitted_call_gets_the_first_reply_again() {
    let world = World::new("again");
    let raw = world.raw();
    let call = whole(5, 2, 1, &string("x"));
    for _ in 0..3 {
        assert_eq!(raw.ask(&call), reply(5, RETURN, &words(&[0, 1])));
    }
    // A message with the same number but another content is another call. The same message from another
    // socket is another call, too.
    assert_eq!(raw.ask(&whole(5, 2, 1, &string("y"))), reply(5, RETURN, &words(&[0, 2])));
    assert_eq!(world.raw().ask(&call), reply(5, RETURN, &words(&[0, 3])));
    assert_eq!(world.runs(), 3);
}

#[test]
fn copy_of_a_running_call_is_dropped() {
    let world = World::new("running-copy");
    let raw = world.raw();
    let call = whole(5, 2, 2, &[]);
    raw.send(&call);
    world.begun.recv().unwrap();
    raw.send(&call);
    // The server handles the copy before this call.
    assert_eq!(raw.ask(&whole(6, 2, 1, &string("x"))), reply(6, RETURN, &words(&[0, 1])));
    world.go_on.send(()).unwrap();
    assert_eq!(raw.receive(), reply(5, RETURN, &words(&[0, 2])));
    assert_eq!(world.runs(), 2);
}

#[test]
fn copy_of_a_call_in_parts_is_answered_if_it_asks() {
    let world = World::new("copy-parts");
    let raw = world.raw();
    let (cookie, payload) = (raw.cookie(), payload(2, 2, &[]));
    let division = (payload.len() as u32, 512, 0);
    let packet = |kind| parts(2, kind, cookie, division, &payload);
    raw.send(&packet(CALL));
    world.begun.recv().unwrap();
    let nothing = |kind| parts(2, kind, cookie, (0, 0, 0), &[]);
    assert_eq!(raw.ask(&packet(CALL | ASKS)), nothing(WORKING));
    let report = [nothing(HAVE_REPLY), words(&[1, 0, 0])].concat();
    assert_eq!(raw.ask(&report), nothing(WORKING));
    // This copy does not ask for an answer, so the next packet is the reply.
    raw.send(&packet(CALL));
    world.go_on.send(()).unwrap();
    let expected = words(&[3, 3, RETURN, 77, 0, 1]);
    let reply = parts(2, REPLY | ASKS, cookie, (expected.len() as u32, 512, 0), &expected);
    assert_eq!(raw.receive(), reply);
    assert_eq!(raw.ask(&packet(CALL | ASKS)), reply);
    assert_eq!(raw.ask(&report)[7], REPLY as u8);
    assert_eq!(world.runs(), 1);
}

#[test]
fn discarded_reply_is_reported_and_the_call_does_not_run_again() {
    let world = World::new("discarded");
    let raw = world.raw();
    let (cookie, payload) = (raw.cookie(), payload(2, 1, &string("x")));
    let packet = parts(2, CALL | ASKS, cookie, (payload.len() as u32, 512, 0), &payload);
    assert_eq!(raw.ask(&packet)[7], REPLY as u8);
    let call = whole(3, 2, 1, &string("y"));
    assert_eq!(raw.ask(&call), reply(3, RETURN, &words(&[0, 2])));
    // The share of a host in the cache is 4 MiB. Each of these replies has 60,018 bytes.
    for id in 100..180 {
        assert_eq!(raw.ask(&whole(id, 2, 6, &words(&[1]))).len(), 10 + 8 + 60_000);
    }
    assert_eq!(raw.ask(&packet), parts(2, FORGOTTEN, cookie, (0, 0, 0), &[]));
    assert_eq!(raw.ask(&call), reply(3, REJECT, &words(&[0xffff])));
    assert_eq!(world.runs(), 2);
}

#[test]
fn restarted_server_runs_whole_calls_again_and_no_calls_in_parts() {
    let address = SocketAddr::from((own_address(NET), 0));
    let world = World::at("restarted", address);
    let place = world.place();
    let raw = world.raw();
    let (cookie, payload) = (raw.cookie(), payload(2, 1, &string("x")));
    let call = whole(5, 2, 1, &string("x"));
    let packet = parts(6, CALL, cookie, (payload.len() as u32, 512, 0), &payload);
    assert_eq!(raw.ask(&call), reply(5, RETURN, &words(&[0, 1])));
    assert_eq!(raw.ask(&packet)[7], REPLY as u8);
    drop(world);
    let world = World::at("restarted", place);
    assert_eq!(raw.ask(&call), reply(5, RETURN, &words(&[0, 1])));
    // The server answers the call in parts with a new cookie, and does not run it.
    let answer = raw.ask(&packet);
    assert_eq!(answer[7], 2);
    assert_ne!(answer[12..20], cookie.to_be_bytes());
    until("only the whole call has run", || world.runs() == 1);
}
