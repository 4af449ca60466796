//! Measures which share of a link large messages use, and how several flows divide the link.

use super::*;
use crate::exchange::time::MILLISECOND;
use crate::network::Link;

const MEBIBYTE: u32 = 1 << 20;

/// Makes a world of two clients. `threads` has the number of threads of each client. Each thread makes
/// `calls` calls as `plan` says.
fn shared(link: &Link, threads: [usize; 2], calls: usize, plan: Plan) -> World {
    let client = ClientOptions { result_bytes_max: 1 << 28, ..LASTING };
    let server = ServerOptions { bytes_max: 1 << 28, ..SERVER_OPTIONS };
    let mut world = World::new(7, 2, server, client);
    (world.to_client, world.to_server) = (link.clone(), link.clone());
    for (client, threads) in (1..).zip(threads) {
        if threads > 0 {
            world.start(client, &vec![vec![plan; calls]; threads]);
        }
    }
    world
}

/// Returns the rate of the messages as a fraction of the link's rate. The measured time begins at the end of
/// the first call, and ends at the end of the last call.
fn used(link: &Link, threads: usize, calls: usize, plan: Plan) -> f64 {
    let mut world = shared(link, [threads, 0], calls, plan);
    finish(&mut world);
    assert!(world.oracle.all_ok());
    let mut ends: Vec<u64> =
        world.oracle.calls.iter().filter_map(|call| Some(call.ended?.0)).collect();
    ends.sort_unstable();
    let bytes = (ends.len() - 1) as f64 * f64::from(plan.total.max(plan.result));
    let took = (ends[ends.len() - 1] - ends[0]) as f64 / SECOND as f64;
    bytes / took / link.rate.expect("a rate") as f64
}

/// A position is the number of a fragment, and credits say how many further positions a receiver accepts. A
/// link of 500 Mbit/s with a round trip of 300 ms needs nearly all positions that may be in flight. With a
/// round trip of 20 ms, a receiver with 1,024 credits accepts little more than 1 Gbit/s.
#[test]
fn large_messages_use_most_of_a_link() {
    for (mbit, rtt, bytes) in [
        (10, 1, MEBIBYTE),
        (10, 50, 4 * MEBIBYTE),
        (10, 300, 8 * MEBIBYTE),
        (100, 10, 16 * MEBIBYTE),
        (100, 300, 128 * MEBIBYTE),
        (500, 1, 32 * MEBIBYTE),
        (500, 50, 128 * MEBIBYTE),
        (500, 300, 256 * MEBIBYTE),
        (1000, 1, 64 * MEBIBYTE),
        (1000, 20, 256 * MEBIBYTE),
        (2500, 2, 128 * MEBIBYTE),
        (5000, 1, 128 * MEBIBYTE),
        (10_000, 1, 256 * MEBIBYTE),
    ] {
        let link = Link::shaped(mbit * 1_000_000, rtt * MILLISECOND / 2);
        for call in [false, true] {
            let (total, result) = if call { (bytes, 0) } else { (0, bytes) };
            let part = used(&link, 1, 3, Plan { total, result, ..NULL });
            println!("{mbit} Mbit/s, {rtt} ms, call {call}: {part:.3}");
            assert!(part > 0.8, "{mbit} Mbit/s, {rtt} ms, call {call}: {part:.3}");
        }
    }
}

/// Runs the world until the time `until`. Returns how many bytes of results each of two clients has received
/// so far. Each result has `bytes` bytes. In the oracle's list of calls, the calls of the second client begin
/// at index `first`.
fn received_bytes(world: &mut World, bytes: u32, first: usize, until: u64) -> [f64; 2] {
    world.run_until(until);
    check(world);
    let mut received_bytes = [0.0; 2];
    for (at, call) in world.oracle.calls.iter().enumerate() {
        if matches!(call.ended, Some((_, Ending::Ok))) {
            received_bytes[usize::from(at >= first)] += f64::from(bytes);
        }
    }
    received_bytes
}

/// A result occupies the link for a third of a second. Between two calls, the client with one thread receives
/// nothing for a round trip (20 or 40 ms). This reduces its share of the link only a little.
#[test]
fn eight_handles_of_one_peer_share_the_rate_of_one() {
    for (mbit, rtt) in [(20, 40), (100, 20)] {
        let link = Link::shaped(mbit * 1_000_000, rtt * MILLISECOND / 2);
        let bytes = mbit as u32 * 40_000;
        let mut world =
            shared(&link, [1, 8], 500, Plan { result: bytes, runs_for: Some(1000), ..NULL });
        let begun = received_bytes(&mut world, bytes, 500, 10 * SECOND);
        let ended = received_bytes(&mut world, bytes, 500, 70 * SECOND);
        let [one, eight] = [0, 1].map(|client| ended[client] - begun[client]);
        println!("{mbit} Mbit/s, {rtt} ms: {one} and {eight} bytes: {:.2}", eight / one);
        assert!(eight < 2.0 * one && one < 2.0 * eight, "{one} and {eight} bytes");
    }
}

/// A receiver with 1,024 credits accepts 1,024 positions (fragments) in 10 ms. So 30 times as many may be in
/// flight with a round trip of 300 ms as with one of at most 10 ms. A sender that still assumed a short round
/// trip would use only a third of the link.
#[test]
fn large_messages_use_the_link_after_a_change_of_the_round_trip() {
    let bytes = 32 * MEBIBYTE;
    let [near, far] = [1, 300].map(|rtt| Link::shaped(100_000_000, rtt * MILLISECOND / 2));
    for call in [false, true] {
        let (total, result) = if call { (bytes, 0) } else { (0, bytes) };
        let mut world = shared(&near, [1, 0], 500, Plan { total, result, ..NULL });
        for (link, until) in [(&near, 20), (&far, 100), (&near, 140)] {
            (world.to_client, world.to_server) = (link.clone(), link.clone());
            // CUBIC needs about 20 s to grow its window to the capacity of the longer path.
            world.run_until((until - 20) * SECOND);
            let carried = |world: &World| {
                let link = if call { &world.to_server } else { &world.to_client };
                link.state.carried
            };
            let before = carried(&world);
            world.run_until(until * SECOND);
            let rate = (carried(&world) - before) as f64 / 20.0;
            let part = rate / link.rate.expect("a rate") as f64;
            println!("call {call}, until {until} s: {part:.3}");
            assert!(part > 0.8, "call {call}, until {until} s: {part:.3}");
        }
        check(&world);
    }
}
