//! Frames of calls over raw Ethernet, counted by a bridge on their way, by both devices: how many there
//! are, and none that nobody needs. What else a call costs here is counted beside the other paths, in
//! `tests/counts.rs` and `tests/syscalls.rs`.

mod services;
mod support;

use std::sync::atomic::Ordering;

use peregrine::{BindOptions, EthernetDevice, Out, Server, Wait};
use services::{Bytes, BytesClient, BytesServer, Object};
use support::bridge::Bridge;
use support::link::{ENDS, Link, at_far_end};
use support::weather::Weather;

/// Returns the frames of a call: all, of the call, of the result. Each call is counted alone, and most
/// of them take as many. The others met a busy machine: the client asked for a result that was not late,
/// or two threads of the server took the two pieces of a call in the wrong order.
fn frames_of(bridge: &Bridge, mut call: impl FnMut()) -> [u64; 3] {
    const CALLS: usize = 201;
    call();
    let mut counts: Vec<[u64; 3]> = (0..CALLS)
        .map(|_| {
            let before = bridge.counted();
            call();
            let after = bridge.counted();
            [0, 1, 2].map(|n| after[n] - before[n])
        })
        .collect();
    counts.sort_unstable();
    let median = counts[CALLS / 2];
    let same = counts.iter().filter(|count| **count == median).count();
    assert!(same > CALLS / 2, "calls differ in their frames: {counts:?}");
    median
}

/// Counts by one device at both ends.
fn counts(link: &Link, device: EthernetDevice) {
    let bridge = Bridge::new(link, Weather::default(), 1, |_, _| ());
    link.enter();
    let server = Server::new().export("bytes", BytesServer::new(Object)).unwrap();
    let server = server.ethernet_device(device);
    let server = server.listen_beyond_this_machine(&format!("eth:{}:0", ENDS[1])).unwrap();
    let running = at_far_end(move || server.spawn().unwrap());
    let address = format!("{}/bytes", running.addresses()[0]);
    for check in [true, false] {
        let options = BindOptions::default().wait(Wait::Block).ethernet_device(device);
        let client = BytesClient::bind_with(&address, &options.payload_check(check)).unwrap();
        println!("{}", client.binding().explain().summary());
        let of = |call: &mut dyn FnMut()| frames_of(&bridge, call);
        assert_eq!(of(&mut || client.null().unwrap()), [2, 1, 1]);
        // Pieces of 1424 bytes; what goes in one train needs no answer in between.
        for (bytes, pieces) in [(1024, 1), (1360, 1), (2500, 2), (2800, 2), (2900, 3)] {
            let sent = vec![1; bytes];
            let sum = of(&mut || assert_eq!(client.sum(&sent).unwrap(), bytes as u64));
            assert_eq!(sum, [pieces + 1, pieces, 1], "a call of {bytes} bytes");
            let mut into = vec![0; bytes];
            let fill = of(&mut || client.fill(3, Out::from(&mut into[..])).unwrap());
            assert_eq!(fill, [pieces + 1, 1, pieces], "a result of {bytes} bytes");
        }
    }
    // Nothing of a call went any other way: who binds asks once where the server is.
    let others = bridge.seen.others.load(Ordering::SeqCst);
    assert!(others < 100, "{others} frames are not ours");
}

#[test]
fn a_call_is_as_many_frames_as_it_has_pieces_and_one_back() {
    let _directory = support::own_directory();
    for device in [EthernetDevice::Any, EthernetDevice::Packet] {
        let link = match Link::with_middle() {
            Ok(link) => link,
            Err(why) => return println!("skipped: {why}"),
        };
        std::thread::scope(|scope| {
            let near = scope.spawn(|| counts(&link, device));
            near.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }
}
