//! How much of a link a large message uses, and how flows share one.

use super::*;
use crate::client::ClientOptions;
use crate::exchange::time::MILLISECOND;
use crate::network::Link;

/// Results of so many bytes over a link, by so many threads at a time; the goodput in bits a second,
/// measured from the end of the first result to that of the last but one.
fn goodput(link: &Link, bytes: u32, threads: usize, calls: usize) -> f64 {
    let client = ClientOptions { result_bytes_max: 1 << 28, ..LASTING };
    let server = ServerOptions { bytes_max: 1 << 28, ..SERVER_OPTIONS };
    let plans = vec![vec![Plan { result: bytes, ..NULL }; calls]; threads];
    let mut world = World::new(7, 2, server, client);
    (world.to_client, world.to_server) = (link.clone(), link.clone());
    world.start(1, &plans);
    finish(&mut world);
    assert!(world.oracle.all_ok());
    let calls = &world.oracle.calls;
    let mut ends: Vec<u64> = calls.iter().filter_map(|call| Some(call.ended?.0)).collect();
    ends.sort_unstable();
    let begin = calls.iter().filter_map(|call| call.began).min().expect("calls");
    let (all, took) = (calls.len() as f64 * f64::from(bytes), ends[ends.len() - 1] - begin);
    println!(
        "{:?} Mbit/s {} ms {} permille: {} bytes, {:.3} s, overflowed {}, sent again {}",
        link.rate.map(|rate| rate * 8 / 1_000_000),
        link.delay * 2 / MILLISECOND,
        link.loss,
        all,
        took as f64 / 1e9,
        world.to_client.state.overflowed,
        world.oracle.resent,
    );
    all * 8.0 * 1e9 / took as f64
}

#[test]
#[ignore = "a table"]
fn table() {
    for mbit in [10, 100, 500] {
        for rtt in [1, 10, 50, 100, 300] {
            for loss in [0, 1, 10, 50] {
                let link = Link { loss, ..Link::shaped(mbit * 1_000_000, rtt * MILLISECOND / 2) };
                let bytes = (mbit * 1_000_000 / 8 * 5).min(1 << 28) as u32;
                let bytes = if loss > 0 { bytes / 20 } else { bytes };
                let bits = goodput(&link, bytes, 1, 2);
                println!(
                    "{mbit:4} Mbit/s {rtt:4} ms {loss:3}: {:.3} of it",
                    bits / (mbit as f64 * 1e6)
                );
            }
        }
    }
}
