//! Counts the Ethernet frames of calls at a bridge between client and server, with both devices (AF_XDP and
//! AF_PACKET). Each call takes exactly the frames that it needs. `tests/counts.rs` and `tests/syscalls.rs`
//! count the other costs of a call, for all paths.

mod services;
mod support;

use std::sync::atomic::Ordering;

use peregrine::{BindOptions, EthernetDevice, Insecure, Out, Server, Wait};
use services::{Bytes, BytesClient, BytesServer, Object};
use support::bridge::Bridge;
use support::impairments::Impairments;
use support::link::{ENDS, Link, at_far_end, at_near_end};

/// Returns how many frames a call takes: in total, for the message of the call, and for its result. The
/// frames of each call are counted separately, and more than half of the calls must take the same number. On
/// a busy machine, a call may take more frames. For example, the client may send a probe before the result
/// has had time to arrive. Or two server threads may receive the two fragments of a call in the wrong order.
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
    assert!(same > CALLS / 2, "calls differ in their numbers of frames: {counts:?}");
    median
}

/// Checks the numbers of frames with the same device at both ends.
fn counts(link: &Link, device: EthernetDevice) {
    let bridge = Bridge::new(link, Impairments::default(), 1, |_, _| ());
    let server = Server::new().export("bytes", BytesServer::new(Object)).unwrap();
    let server = server.ethernet_device(device);
    let server = server
        .listen_beyond_this_machine(&format!("eth:{}:0", ENDS[1]), Insecure::ITrustThisNetwork)
        .unwrap();
    let running = at_far_end(move || server.spawn().unwrap());
    let address = format!("{}/bytes", running.addresses()[0]);
    for check in [true, false] {
        let options = BindOptions::default().wait(Wait::Block).ethernet_device(device);
        let client = BytesClient::bind_with(&address, &options.payload_check(check)).unwrap();
        println!("{}", client.binding().explain().summary());
        let of = |call: &mut dyn FnMut()| frames_of(&bridge, call);
        assert_eq!(of(&mut || client.null().unwrap()), [2, 1, 1]);
        // A fragment has at most 1424 bytes. A message is sent as one batch, without intermediate
        // acknowledgements.
        for (bytes, fragments) in [(1024, 1), (1360, 1), (2500, 2), (2800, 2), (2900, 3)] {
            let sent = vec![1; bytes];
            let sum = of(&mut || assert_eq!(client.sum(&sent).unwrap(), bytes as u64));
            assert_eq!(sum, [fragments + 1, fragments, 1], "a call of {bytes} bytes");
            let mut into = vec![0; bytes];
            let fill = of(&mut || client.fill(3, Out::from(&mut into[..])).unwrap());
            assert_eq!(fill, [fragments + 1, 1, fragments], "a result of {bytes} bytes");
        }
    }
    // Calls send no other frames. The bound is not 0: when a client binds, it sends one request over UDP to
    // find the server.
    let others = bridge.seen.others.load(Ordering::SeqCst);
    assert!(others < 100, "{others} frames are not Peregrine's");
}

#[test]
fn call_takes_one_frame_per_fragment_and_one_for_the_result() {
    let _directory = support::own_directory();
    for device in [EthernetDevice::Any, EthernetDevice::Packet] {
        at_near_end(Link::with_middle(), |link| counts(link, device));
    }
}
