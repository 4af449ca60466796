//! Messages over TCP: divided in every way, and broken in every way.

use std::io::Write as _;

use crate::foreign::World;
use crate::framing::{BOTH, Framing, words};
use crate::world::{call, count, rest, returned};

#[test]
fn pieces_of_any_size_are_a_message() {
    for framing in BOTH {
        let world = World::new(&format!("pieces-{framing:?}"));
        let mut client = world.client(framing);
        for size in [1, 2, 5] {
            for byte in framing.divided(&count(1), size) {
                client.stream.write_all(&[byte]).unwrap();
            }
            assert_eq!(client.receive()[..4], returned(1, &[]));
        }
        assert_eq!(world.runs(), 3);
        // The server does not know the framing before the last piece of the first message.
        let mut stream = world.connect();
        let first = [words(&[3, 3]), count(2)].concat();
        stream.write_all(&framing.divided(&first, 3)).unwrap();
        let mut received = [0; 8];
        std::io::Read::read_exact(&mut stream, &mut received).unwrap();
        assert_eq!(received.to_vec(), framing.whole(&words(&[3, 3])));
    }
}

#[test]
fn replies_have_the_order_of_the_calls() {
    for framing in BOTH {
        let world = World::new(&format!("order-{framing:?}"));
        let mut client = world.client(framing);
        let all: Vec<u8> = (1..=500).flat_map(|tid| framing.whole(&count(tid))).collect();
        client.stream.write_all(&all).unwrap();
        for tid in 1..=500 {
            assert_eq!(client.receive(), returned(tid, &[tid]));
        }
    }
}

#[test]
fn large_messages_travel() {
    for framing in BOTH {
        let world = World::new(&format!("large-{framing:?}"));
        let mut client = world.client(framing);
        // The results do not fit one frame.
        let reply = client.ask(&call(1, 2, 7, &[30]));
        let rows: Vec<u16> = core::iter::once(10_000).chain([9; 10_000]).collect();
        assert_eq!(reply, returned(1, &[&[30], &rows.repeat(30)[..]].concat()));
        let mut label = vec![0xfffe];
        label.resize(1 + 0x7fff, 0x6161);
        assert_eq!(client.ask(&call(2, 2, 1, &label)), returned(2, &[1]));
    }
}

#[test]
fn broken_connections_end_alone() {
    let world = World::new("broken");
    let mut healthy = world.client(Framing::Records);
    let limit = (peregrine::limits::MESSAGE_BYTES as u32 + 1000) | 1 << 31;
    let versions = |framing: Framing| framing.whole(&words(&[3, 3]));
    let (records, frames) = (versions(Framing::Records), versions(Framing::Frames));
    let broken = [
        ("a record that is too long", [&records[..], &limit.to_be_bytes()].concat()),
        ("fragments without end", [&records[..], &[0; 4 * 65_537]].concat()),
        ("frames without end", [&frames[..], &[0; 4 * 65_537]].concat()),
        (
            "half a word",
            [&records[..], &Framing::Records.whole(&[&count(1)[..], &[1]].concat())].concat(),
        ),
        ("half a header", [&frames[..], &Framing::Frames.whole(&words(&[0, 1, 2]))].concat()),
        ("no versions", Framing::Records.whole(&[0, 3])),
        (
            "an empty message",
            [&records[..], &Framing::Records.whole(&[0; 0]), &limit.to_be_bytes()].concat(),
        ),
        ("bulk data", [&frames[..], &[1, 1, 0, 2, 0, 0]].concat()),
        ("unknown flags", [&frames[..], &[0, 4, 0, 0]].concat()),
        ("another protocol", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
    ];
    for (what, bytes) in broken {
        let mut stream = world.connect();
        // The server may end the connection before all bytes are sent.
        let _ = stream.write_all(&bytes);
        let received = rest(&mut stream);
        assert!(received.len() <= 8, "{what}: {received:?}");
        assert_eq!(healthy.ask(&call(2, 4, 1, &[])), returned(2, &[]));
    }
}

#[test]
fn end_of_the_data_is_answered() {
    let world = World::new("end");
    let mut client = world.client(Framing::Frames);
    assert_eq!(client.ask(&count(1)), returned(1, &[1]));
    client.stream.write_all(&[254, 0, 0, 0]).unwrap();
    assert_eq!(rest(&mut client.stream), [255, 0, 0, 0]);
    // A client may also send nothing but the end of the data.
    let mut stream = world.connect();
    stream.write_all(&[254, 0, 0, 0]).unwrap();
    let answer = rest(&mut stream);
    assert_eq!(answer, [&Framing::Frames.whole(&words(&[3, 3]))[..], &[255, 0, 0, 0]].concat());
}

#[test]
fn attention_is_ignored() {
    let world = World::new("attention");
    let mut client = world.client(Framing::Frames);
    client.stream.write_all(&[0, 2, 0, 1, 1]).unwrap();
    assert_eq!(client.ask(&count(1)), returned(1, &[1]));
}
