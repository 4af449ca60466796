//! What a server answers to each call, byte by byte.

use crate::foreign::World;
use crate::support::until;
use crate::world::{
    ABORT, CALL, PROGRAM, REJECT, REPLY, RETURN, parts, payload, reply, string, whole, words,
};

#[test]
fn calls_in_one_datagram_run_and_their_results_return() {
    let world = World::new("whole");
    let raw = world.raw();
    assert_eq!(raw.ask(&whole(5, 2, 1, &string("x"))), reply(5, RETURN, &words(&[0, 1])));
    assert_eq!(raw.ask(&whole(6, 2, 3, &words(&[2, 8, 9]))), reply(6, RETURN, &words(&[2, 8, 9])));
    assert_eq!(raw.ask(&whole(7, 2, 4, &words(&[0]))), reply(7, RETURN, &[]));
    // The reply has the number of the error, and its argument.
    assert_eq!(raw.ask(&whole(8, 2, 4, &words(&[3]))), reply(8, ABORT, &words(&[9, 3])));
    assert_eq!(raw.ask(&whole(9, 4, 1, &[])), reply(9, RETURN, &[]));
    assert_eq!(raw.ask(&whole(10, 2, 7, &[])), reply(10, RETURN, &string("courier+udp")));
    // A server returns the client type that it has received.
    let mut other = whole(11, 4, 1, &[]);
    other[5] = 1;
    assert_eq!(raw.ask(&other)[4..6], [0, 1]);
    assert_eq!(world.runs(), 1);
}

#[test]
fn calls_that_the_server_does_not_run_are_rejected() {
    let world = World::new("rejected");
    let raw = world.raw();
    let rejected = |id, reason: &[u16]| reply(id, REJECT, &words(reason));
    let mut other_program = whole(1, 2, 1, &string("x"));
    other_program[17] = 6;
    assert_eq!(raw.ask(&other_program), rejected(1, &[0]));
    // The program exists in versions 2 to 4.
    assert_eq!(raw.ask(&whole(2, 3, 1, &[])), rejected(2, &[1, 2, 4]));
    assert_eq!(raw.ask(&whole(3, 2, 99, &[])), rejected(3, &[2]));
    // Too few and too many arguments.
    assert_eq!(raw.ask(&whole(4, 2, 1, &[])), rejected(4, &[3]));
    assert_eq!(raw.ask(&whole(5, 2, 4, &words(&[0, 0]))), rejected(5, &[3]));
    assert_eq!(raw.ask(&whole(6, 2, 5, &[])), rejected(6, &[0xffff]));
    // The results are 120,006 bytes, which do not fit a datagram.
    assert_eq!(raw.ask(&whole(7, 2, 6, &words(&[2]))), rejected(7, &[0xffff]));
    assert_eq!(world.runs(), 0);
    assert!(world.server.withdraw(&crate::foreign::name_of("rejected")));
    assert_eq!(raw.ask(&whole(8, 2, 1, &string("x"))), rejected(8, &[1, 4, 4]));
}

#[test]
fn server_says_whether_it_knows_parts() {
    let world = World::new("knows");
    let mut question = whole(9, 1, 0, &[]);
    question[14..18].copy_from_slice(&0x5043_5043_u32.to_be_bytes());
    assert_eq!(world.raw().ask(&question), reply(9, RETURN, &[]));
    // The question is procedure 0 of version 1. Other procedures and versions are rejected.
    let mut other = question.clone();
    other[21] = 1;
    assert_eq!(world.raw().ask(&other), reply(9, REJECT, &words(&[0])));
    other[21] = 0;
    other[19] = 2;
    assert_eq!(world.raw().ask(&other), reply(9, REJECT, &words(&[0])));
}

#[test]
fn call_in_one_part_needs_a_cookie() {
    let world = World::new("part");
    let raw = world.raw();
    let cookie = raw.cookie();
    let payload = payload(2, 1, &string("x"));
    let division = (payload.len() as u32, 1376, 0);
    let expected = words(&[3, 3, RETURN, 77, 0, 1]);
    let answer = raw.ask(&parts(2, CALL, cookie, division, &payload));
    // The last part of a reply asks for a report.
    let reply = parts(2, REPLY | 0x8000, cookie, (expected.len() as u32, 1376, 0), &expected);
    assert_eq!(answer, reply);
    // If the cookie is wrong, the server answers with the right cookie, and does not run the call.
    let answer = raw.ask(&parts(3, CALL, cookie ^ 1, division, &payload));
    assert_eq!(answer, parts(3, crate::world::WELCOME, cookie, (0, 0, 0), &[]));
    // The cookie of one client is not valid for another client.
    assert_eq!(world.raw().ask(&parts(2, CALL, cookie, division, &payload))[7], 2);
    assert_eq!(world.runs(), 1);
}

#[test]
fn procedure_that_is_running_does_not_stop_others() {
    let world = World::new("running");
    let (one, other) = (world.raw(), world.raw());
    one.send(&whole(1, 2, 2, &[]));
    world.begun.recv().unwrap();
    assert_eq!(other.ask(&whole(1, 2, 1, &string("x"))), reply(1, RETURN, &words(&[0, 1])));
    world.go_on.send(()).unwrap();
    assert_eq!(one.receive(), reply(1, RETURN, &words(&[0, 2])));
    until("both calls have ended", || world.runs() == 2);
    assert_eq!(PROGRAM >> 16, 0x18);
}
