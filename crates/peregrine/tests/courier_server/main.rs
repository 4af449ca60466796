//! Tests the server of Courier over real connections. The clients are the tests themselves: they make each
//! message byte by byte.

mod cooper;
#[path = "../support/foreign.rs"]
mod foreign;
mod framing;
mod lives;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod world;

use foreign::{World, name_of};
use framing::{BOTH, Framing, words};
use peregrine::{Insecure, Kind};
use world::{PROGRAM, aborted, call, count, rejected, rest, returned};

/// The number of the rejection without a specified reason.
const UNSPECIFIED: u16 = 0xffff;

#[test]
fn calls_run_and_their_results_return() {
    for framing in BOTH {
        let world = World::new(&format!("calls-{framing:?}"));
        let mut client = world.client(framing);
        assert_eq!(client.ask(&count(7)), returned(7, &[1]));
        // A client may use the same number for all calls.
        assert_eq!(client.ask(&count(7)), returned(7, &[2]));
        assert_eq!(client.ask(&call(0, 2, 3, &[3])), returned(0, &[3, 7, 7, 7]));
        assert_eq!(client.ask(&call(1, 2, 4, &[0])), returned(1, &[]));
        assert_eq!(client.ask(&call(2, 4, 1, &[])), returned(2, &[]));
        let mut text = words(&[2, 3, 17]);
        text.extend(b"courier+tcp false\0");
        assert_eq!(client.ask(&call(3, 2, 6, &[])), text);
        assert_eq!(world.runs(), 3);
    }
}

#[test]
fn each_error_has_its_own_answer() {
    for framing in BOTH {
        let world = World::new(&format!("errors-{framing:?}"));
        let mut client = world.client(framing);
        assert_eq!(client.ask(&call(1, 2, 4, &[9])), aborted(1, 7, &[9]));
        let other = words(&[0, 2, 9, 9, 2, 1]);
        assert_eq!(client.ask(&other), rejected(2, &[0]));
        // The rejection contains the lowest and the highest version of both exports.
        assert_eq!(client.ask(&call(3, 3, 1, &[])), rejected(3, &[1, 2, 4]));
        assert_eq!(client.ask(&call(4, 2, 99, &[])), rejected(4, &[2]));
        assert_eq!(client.ask(&call(5, 2, 1, &[])), rejected(5, &[3]));
        // More words than the arguments have.
        assert_eq!(client.ask(&call(6, 2, 4, &[0, 0])), rejected(6, &[3]));
        assert_eq!(client.ask(&call(7, 2, 5, &[])), rejected(7, &[UNSPECIFIED]));
        assert_eq!(client.ask(&count(8)), returned(8, &[1]));
        // A message that is no call is rejected, and the connection ends.
        assert_eq!(client.ask(&words(&[2, 9])), rejected(9, &[UNSPECIFIED]));
        assert!(rest(&mut client.stream).is_empty());
        assert_eq!(world.runs(), 1);
    }
}

#[test]
fn results_that_do_not_fit_a_message_are_rejected() {
    let world = World::new("large");
    let mut client = world.client(Framing::Records);
    let rows = (peregrine::limits::MESSAGE_BYTES / 20_000 + 1) as u16;
    assert_eq!(client.ask(&call(1, 2, 7, &[rows])), rejected(1, &[UNSPECIFIED]));
    assert_eq!(client.ask(&count(2)), returned(2, &[1]));
}

#[test]
fn withdrawn_program_is_rejected() {
    let world = World::new("withdrawn");
    let mut client = world.client(Framing::Records);
    assert_eq!(client.ask(&count(1)), returned(1, &[1]));
    assert!(world.server.withdraw(&name_of("withdrawn")));
    assert_eq!(client.ask(&count(2)), rejected(2, &[1, 4, 4]));
    assert_eq!(client.ask(&call(3, 4, 1, &[])), returned(3, &[]));
}

#[test]
fn only_this_machine_is_served_unless_more_is_asked_for() {
    let error = peregrine::Server::new().listen("courier+tcp:0.0.0.0:0").expect_err("an error");
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    let server = peregrine::Server::new();
    assert!(
        server
            .listen_beyond_this_machine("courier+tcp:0.0.0.0:0", Insecure::ITrustThisNetwork)
            .is_ok()
    );
}

#[test]
fn versions_that_do_not_meet_end_the_connection() {
    let world = World::new("versions");
    for framing in BOTH {
        for [low, high] in [[1, 2], [4, 9], [5, 3]] {
            let mut stream = world.connect();
            let first = [words(&[low, high]), count(1)].concat();
            std::io::Write::write_all(&mut stream, &framing.whole(&first)).unwrap();
            // The server sends its own versions, so the client can report why the connection ends.
            assert_eq!(framing.read(&mut stream), Some(words(&[3, 3])));
            assert!(rest(&mut stream).is_empty(), "{low} to {high}");
        }
        for [low, high] in [[2, 3], [3, 9], [0, 0xffff]] {
            let mut stream = world.connect();
            let first = [words(&[low, high]), call(1, 4, 1, &[])].concat();
            std::io::Write::write_all(&mut stream, &framing.whole(&first)).unwrap();
            assert_eq!(framing.read(&mut stream), Some(words(&[3, 3])));
            assert_eq!(framing.read(&mut stream), Some(returned(1, &[])));
        }
    }
    assert_eq!((world.runs(), PROGRAM >> 16), (6, 1));
}
