//! Tests the server of ONC RPC over real sockets. The clients are the tests themselves: they make each
//! message byte by byte.

mod duplicates;
mod errors;
#[path = "../support/foreign.rs"]
mod foreign;
mod lives;
mod records;
#[path = "../support/mod.rs"]
mod support;
mod world;

use crate::foreign::World;
use crate::world::{Transport as _, call, opaque, over_both, success, words};

#[test]
fn calls_run_and_their_results_return() {
    over_both("calls", |world, client| {
        assert_eq!(client.ask(&world::count(7)), success(7, &words(&[1])));
        assert_eq!(client.ask(&call(8, 2, 3, &words(&[5]))), success(8, &opaque(&[7; 5])));
        assert_eq!(client.ask(&call(9, 2, 0, &[])), success(9, &[]));
        assert_eq!(client.ask(&call(10, 4, 1, &[])), success(10, &[]));
        assert_eq!(world.runs(), 1);
    });
}

/// Returns a call of `claims` with a credential.
fn claims(xid: u32, flavour: u32, body: &[u8]) -> Vec<u8> {
    let header = words(&[xid, 0, 2, world::PROGRAM, 2, 4, flavour]);
    [header, opaque(body), words(&[0, 0])].concat()
}

#[test]
fn procedure_sees_what_its_caller_claims() {
    let sys = |user: u32| [words(&[9]), opaque(b"vax"), words(&[user, 20, 2, 30, 40])].concat();
    for (scheme, over_udp) in [("onc+udp", true), ("onc+tcp", false)] {
        let world = World::new(&format!("claims-{over_udp}"));
        let (mut udp, mut tcp) = (world.udp(), world.tcp());
        let mut ask = |message: &[u8]| match over_udp {
            true => udp.ask(message),
            false => tcp.ask(message),
        };
        let text = |xid, text: &str| success(xid, &opaque(format!("{scheme}: {text}").as_bytes()));
        assert_eq!(ask(&claims(1, 0, &[])), text(1, "nothing"));
        assert_eq!(ask(&claims(2, 1, &sys(1000))), text(2, "1000.20 [30, 40] at vax"));
        // Several users may share a connection.
        assert_eq!(ask(&claims(3, 1, &sys(0))), text(3, "0.20 [30, 40] at vax"));
        assert_eq!(ask(&claims(4, 1, &sys(1000))), text(4, "1000.20 [30, 40] at vax"));
        assert_eq!(ask(&claims(5, 0, &[])), text(5, "nothing"));
    }
}

#[test]
fn many_callers_leave_rows_for_others() {
    let world = World::new("callers");
    let mut tcp = world.tcp();
    // These are more callers than the server keeps for one connection.
    for user in 0..300 {
        let body = [words(&[0]), opaque(b"host"), words(&[user, 1, 0])].concat();
        let text = format!("onc+tcp: {user}.1 [] at host");
        assert_eq!(tcp.ask(&claims(user, 1, &body)), success(user, &opaque(text.as_bytes())));
    }
}
