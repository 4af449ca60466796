//! Senders that violate the protocol, or fill the memory of a server.

use std::net::Ipv4Addr;

use crate::foreign::World;
use crate::world::{
    CALL, Counter as _, HELLO, RETURN, parts, payload, reply, string, whole, words,
};

#[test]
fn packets_that_cannot_be_read_get_no_answer() {
    let world = World::new("garbage");
    let raw = world.raw();
    let cookie = raw.cookie();
    let call = whole(5, 2, 1, &string("x"));
    for end in 0..22 {
        raw.send(&call[..end]);
    }
    // A call with half a word more, another type of message, and version ranges without version 3.
    raw.send(&[&call[..], &[0]].concat());
    for (at, byte) in [(11, 1), (7, 4), (9, 2)] {
        let mut bytes = call.clone();
        bytes[at] = byte;
        raw.send(&bytes);
    }
    let payload = payload(2, 1, &string("x"));
    let total = payload.len() as u32;
    let packets = [
        parts(1, CALL, cookie, (total, 1376, 1), &payload),
        parts(1, CALL, cookie, (total + 2, 1376, 0), &payload),
        parts(1, CALL, cookie, (1 << 30, 1376, 0), &payload),
        parts(1, CALL, cookie, (total, 7, 0), &payload),
        parts(1, 99, cookie, (total, 1376, 0), &payload),
        parts(1, CALL, cookie, (14, 1376, 0), &payload[..14]),
        parts(1, HELLO, cookie, (0, 0, 0), &[])[..20].to_vec(),
    ];
    packets.iter().for_each(|packet| raw.send(packet));
    // The server answers none of these packets, so the next answer is that to a valid call.
    assert_eq!(raw.ask(&call), reply(5, RETURN, &words(&[0, 1])));
}

#[test]
fn host_that_fills_the_memory_harms_no_other_host() {
    let world = World::new("flood");
    let hostile = world.raw_at(Ipv4Addr::new(127, 0, 0, 9));
    let cookie = hostile.cookie();
    // Calls whose other parts never arrive.
    for id in 0..2000 {
        hostile.send(&parts(id, CALL, cookie, (1 << 20, 512, 0), &[0; 512]));
    }
    let client = world.bind();
    let long = vec![7; 60_000];
    assert_eq!(client.echo(long.clone()).unwrap(), long);
    // More calls than the cache keeps for one host.
    for id in 0..6000 {
        let label = string(&id.to_string());
        assert_eq!(hostile.ask(&whole(id, 2, 1, &label))[11], RETURN as u8);
    }
    assert_eq!(client.echo(long.clone()).unwrap(), long);
    // The hostile host cannot begin a new call of several parts before the server forgets the host's
    // incomplete calls.
    hostile.send(&parts(9000, CALL | 0x8000, cookie, (1 << 20, 512, 0), &[0; 512]));
    assert_eq!(hostile.ask(&whole(9001, 4, 1, &[])), reply(9001, RETURN, &[]));
}
