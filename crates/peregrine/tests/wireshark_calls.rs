//! Tests the dissector for Wireshark (`docs/wireshark/peregrine.lua`) with the packets of real clients and
//! servers: over UDP, TCP and raw Ethernet, between two network namespaces.

#[path = "wireshark/pcap.rs"]
#[allow(dead_code)]
mod pcap;
mod support;
#[path = "wireshark/tshark.rs"]
#[allow(dead_code)]
mod tshark;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pcap::Frames;
use peregrine::{BindOptions, CallError, Executed, Insecure, Kind, Server, Sink, interface};
use support::bridge::Bridge;
use support::impairments::Impairments;
use support::link::{ENDS, Link, at_far_end, at_near_end};
use support::tap::{ALL, Tap};
use tshark::Tshark;

#[interface]
trait Desk {
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32>;
    fn upload(&self, bytes: &[u8]) -> peregrine::Result<u64>;
    fn fail(&self) -> peregrine::Result<()>;
    #[oneway]
    fn note(&self, text: &str) -> peregrine::Result<()>;
    fn count(&self, end: u32, numbers: Sink<'_, u32>) -> peregrine::Result<u32>;
}

struct Object;

impl Desk for Object {
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32> {
        Ok(a + b)
    }
    fn upload(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        Ok(bytes.len() as u64)
    }
    fn fail(&self) -> peregrine::Result<()> {
        Err(CallError::new(Kind::BadArguments, Executed::Maybe, "it fails"))
    }
    fn note(&self, _text: &str) -> peregrine::Result<()> {
        Ok(())
    }
    fn count(&self, end: u32, mut numbers: Sink<'_, u32>) -> peregrine::Result<u32> {
        for number in 0..end {
            numbers.send(number)?;
        }
        Ok(end)
    }
}

/// The port of the servers. The dissector does not expect Peregrine there, and no other protocol has it.
const PORT: u16 = 40_404;
/// The number of bytes of the large call. Its message has 16 bytes more.
const LARGE: usize = 5000;

/// Runs a server at the far end, and makes calls from the near end. Returns the digest of the interface.
fn make_calls(scheme: &str) -> String {
    let endpoint = format!("{scheme}:{}:{PORT}", ENDS[1]);
    let running = at_far_end(move || {
        let server = Server::new().export("desk", DeskServer::new(Object)).unwrap();
        server
            .listen_beyond_this_machine(&endpoint, Insecure::ITrustThisNetwork)
            .unwrap()
            .spawn()
            .unwrap()
    });
    let address = format!("{}/desk", running.addresses()[0]);
    let description = peregrine::describe(&address).unwrap();
    // The client does not ask before its answers have had plenty of time, so that each call takes the packets
    // that it needs.
    let options = BindOptions::default().ask_after(Duration::from_secs(10));
    let desk = DeskClient::bind_with(&address, &options).unwrap();
    assert_eq!(desk.add(2, 3).unwrap(), 5);
    assert_eq!(desk.upload(&[1; LARGE]).unwrap(), LARGE as u64);
    assert_eq!(desk.fail().unwrap_err().kind(), Kind::Relayed);
    for _ in 0..3 {
        desk.note("a note").unwrap();
        // Each call has a message of its own, whatever else runs on the machine.
        desk.flush().unwrap();
    }
    let mut received = Vec::new();
    assert_eq!(desk.count(3, Sink::new(|number| received.push(number))).unwrap(), 3);
    assert_eq!(received, [0, 1, 2]);
    assert_eq!(desk.with_timeout(Duration::from_secs(60)).add(4, 5).unwrap(), 9);
    drop(desk);
    running.stop();
    description.digest.to_string()
}

/// Captures the frames of calls by an Internet protocol.
fn capture_internet(scheme: &str, link: &Link) -> (Frames, String) {
    let tap = Tap::of_both_directions(link.interface(0), ALL).expect("a raw socket");
    let digest = make_calls(scheme);
    let (mut frames, mut frame) = (Frames::default(), vec![0; 1 << 17]);
    while let Some(bytes) = tap.receive(&mut frame) {
        frames.push(frame[..bytes].to_vec());
    }
    (frames, digest)
}

/// Captures the frames of raw Ethernet in the middle of a link.
fn capture_ethernet(link: &Link) -> (Frames, String) {
    let captured = Arc::new(Mutex::new(Frames::default()));
    let frames = Arc::clone(&captured);
    let tap = move |_, frame: &[u8]| frames.lock().unwrap().push(frame.to_vec());
    let bridge = Bridge::new(link, Impairments::default(), 1, tap);
    let digest = make_calls("eth");
    drop(bridge);
    let frames = std::mem::take(&mut *captured.lock().unwrap());
    (frames, digest)
}

/// Compares what the dissector shows with what the client and the server did.
fn check(frames: &Frames, digest: &str, is_tcp: bool) {
    let Some(tshark) = Tshark::new() else { return };
    assert!(frames.len() > 20, "only {} frames were captured", frames.len());
    let wrong = "peregrine.malformed || peregrine.bad_check || peregrine.cut_short";
    assert_eq!(tshark.summaries(frames, wrong), [""; 0]);
    assert_eq!(tshark.failures(frames), [[""; 0]; 0]);
    let (calls, replies) = match is_tcp {
        true => ("peregrine.message.kind == 4", "peregrine.message.kind == 70"),
        false => ("peregrine.packet.kind == 1", "peregrine.packet.kind == 2"),
    };
    let of = |kind: &str, method: &str| format!("{kind} && peregrine.method == \"{method}\"");
    let binds = if is_tcp { "peregrine.message.kind == 1" } else { "peregrine.packet.kind == 12" };
    let digests = tshark.values(
        frames,
        &format!("{binds} && peregrine.bind.name == \"desk\""),
        "peregrine.bind.digest",
    );
    assert!(digests.contains(&digest.to_owned()), "{digests:?}");

    // Calls and their replies are linked, with the times of the capture: one microsecond for each frame.
    let fields = [
        "frame.number",
        "peregrine.procedure",
        "peregrine.export",
        "peregrine.interface",
        "peregrine.response_in",
    ];
    let added = tshark.rows(frames, &of(calls, "add"), &fields);
    assert_eq!(added.len(), 2);
    let fields = [
        "frame.number",
        "peregrine.response_to",
        "peregrine.response_time",
        "peregrine.answer",
        "peregrine.head",
    ];
    let sums = tshark.rows(frames, &of(replies, "add"), &fields);
    for ((call, reply), sum) in added.iter().zip(&sums).zip(["05000000", "09000000"]) {
        assert_eq!(call[1..4], ["0", "desk", "Desk"]);
        assert_eq!((&call[4], &call[0]), (&reply[0], &reply[1]));
        let took: u64 = reply[0].parse::<u64>().unwrap() - call[0].parse::<u64>().unwrap();
        assert_eq!(reply[2..], [format!("0.{:06}000", took), "0".to_owned(), sum.to_owned()]);
    }
    let info = tshark.summaries(frames, &of(calls, "add"));
    assert!(
        info.iter().all(|line| line.contains("of `add`") && line.starts_with("Call ")),
        "{info:?}"
    );

    // The large call, whose fragments or segments are put together.
    let blocks = tshark.values(frames, &of(calls, "upload"), "peregrine.blocks");
    assert_eq!(blocks, ["01".repeat(LARGE)]);
    if !is_tcp {
        let fragments = tshark.values(frames, &of(calls, "upload"), "peregrine.packet.fragment");
        assert_eq!(fragments, ["1", "2", "3", "0"]);
        let total = tshark.values(frames, &of(calls, "upload"), "peregrine.reassembled_length");
        assert_eq!(total, [(LARGE + 16).to_string()]);
    }

    // The other outcomes.
    assert_eq!(tshark.values(frames, &of(replies, "fail"), "peregrine.answer"), ["1"]);
    let one_way = tshark.values(frames, "peregrine.batch.kind == 3", "peregrine.batch.kind");
    assert_eq!(one_way, ["3"; 3]);
    let methods = tshark.values(frames, "peregrine.batch.kind == 3", "peregrine.method");
    assert_eq!(methods, ["note"; 3]);
    let items = tshark.values(frames, "peregrine.streams.kind == 1", "peregrine.streams.items");
    assert_eq!(items.iter().map(|items| items.parse::<u64>().unwrap()).sum::<u64>(), 3);
    assert!(!tshark.rows(frames, "peregrine.streams.kind == 3", &["frame.number"]).is_empty());
    let left = tshark.values(frames, &of(calls, "add"), "peregrine.extension.deadline");
    let left: Vec<u64> = left.iter().map(|left| left.parse().unwrap()).collect();
    assert!(left.len() == 1 && (1..=60_000_000).contains(&left[0]), "{left:?}");
}

#[test]
fn calls_over_each_network_are_shown() {
    let _directory = support::own_directory();
    for scheme in ["udp", "tcp"] {
        at_near_end(Link::new(), |link| {
            let (frames, digest) = capture_internet(scheme, link);
            check(&frames, &digest, scheme == "tcp");
        });
    }
    at_near_end(Link::with_middle(), |link| {
        let (frames, digest) = capture_ethernet(link);
        check(&frames, &digest, false);
    });
}
