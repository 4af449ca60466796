//! Tests records over TCP: records that are divided into fragments in unusual ways, and invalid records.

use std::io::{Read as _, Write as _};

use crate::foreign::World;
use crate::support::until;
use crate::world::{Tcp, Transport as _, call, count, opaque, success, words};

const LAST: u32 = 1 << 31;

/// Returns the next byte from a connection, or `None` if the server has ended it.
fn next_byte(client: &mut Tcp) -> Option<u8> {
    let mut byte = [0];
    match client.0.read(&mut byte) {
        Ok(0) => None,
        Ok(_) => Some(byte[0]),
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
            None
        }
    }
}

#[test]
fn fragments_of_one_byte_are_a_record() {
    let world = World::new("bytes");
    let mut client = world.tcp();
    let message = count(1);
    let (last, before) = message.split_last().unwrap();
    let mut stream = Vec::new();
    for byte in before {
        // An empty fragment, and one with a single byte.
        stream.extend(words(&[0, 1]));
        stream.push(*byte);
    }
    stream.extend(words(&[LAST | 1]));
    stream.push(*last);
    // Each byte is sent alone.
    for byte in &stream {
        client.0.write_all(&[*byte]).unwrap();
    }
    assert_eq!(client.receive(), success(1, &words(&[1])));
    // The same record is sent in one piece, followed by a part of the next record.
    client.0.write_all(&stream).unwrap();
    client.0.write_all(&words(&[LAST | 40])[..3]).unwrap();
    assert_eq!(client.receive(), success(1, &words(&[1])));
    client.0.write_all(&words(&[LAST | 40])[3..]).unwrap();
    client.0.write_all(&call(2, 2, 0, &[])).unwrap();
    assert_eq!(client.receive(), success(2, &[]));
    assert_eq!(world.runs(), 1);
}

#[test]
fn many_records_may_arrive_together() {
    let world = World::new("together");
    let mut client = world.tcp();
    let mut stream = Vec::new();
    for xid in 1..=500 {
        let message = count(xid);
        stream.extend(words(&[LAST | message.len() as u32]));
        stream.extend(message);
    }
    client.0.write_all(&stream).unwrap();
    // One thread serves the calls in their order, unless one call takes long. So the replies may have another
    // order.
    let mut replies: Vec<_> = (0..500).map(|_| client.receive()).collect();
    replies.sort();
    let xids: Vec<_> = replies.iter().map(|reply| reply[..4].to_vec()).collect();
    assert_eq!(xids, (1..=500).map(|xid| words(&[xid])).collect::<Vec<_>>());
    assert_eq!(world.runs(), 500);
}

#[test]
fn broken_records_end_their_connection_alone() {
    let world = World::new("broken");
    let mut healthy = world.tcp();
    assert_eq!(healthy.ask(&count(1)), success(1, &words(&[1])));
    let limit = peregrine::limits::MESSAGE_BYTES as u32 + 1000;
    let fragments: Vec<u8> = words(&[0]).repeat(65_537);
    let broken = [
        ("a record that is too long", words(&[LAST | limit])),
        ("fragments that are too long together", words(&[4, 0, limit])),
        ("fragments without end", fragments),
        ("no call", [words(&[LAST | 8]), words(&[1, 1])].concat()),
        ("an empty record", words(&[LAST])),
        ("a header that ends too early", [words(&[LAST | 12]), words(&[1, 0, 2])].concat()),
        (
            "a credential that ends too early",
            [words(&[LAST | 32]), words(&[1, 0, 2, crate::world::PROGRAM, 2, 1, 0, 400])].concat(),
        ),
        ("another protocol", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
    ];
    for (what, bytes) in broken {
        let mut client = world.tcp();
        // The server may end the connection before all bytes are sent.
        let _ = client.0.write_all(&bytes);
        assert_eq!(next_byte(&mut client), None, "{what}");
        assert_eq!(healthy.ask(&call(2, 2, 0, &[])), success(2, &[]));
    }
    assert_eq!(world.runs(), 1);
}

#[test]
fn datagrams_that_are_no_calls_are_ignored() {
    let world = World::new("noise");
    let mut client = world.udp();
    let message = count(1);
    for end in 0..40 {
        client.send(&message[..end]);
    }
    client.send(&words(&[1, 1, 0, 0, 0, 0]));
    client.send(&[0xff; 1472]);
    client.send(&[9; 60_000]);
    assert_eq!(client.ask(&message), success(1, &words(&[1])));
    assert_eq!(world.runs(), 1);
    // All these datagrams were sent before the call, but another thread may still have to count one.
    until("all datagrams are counted", || world.server.losses().rejected == 43);
}

#[test]
fn large_record_arrives_in_many_pieces() {
    let world = World::new("pieces");
    let mut client = world.tcp();
    let label = vec![b'x'; 3 << 20];
    let message = call(1, 2, 1, &opaque(&label));
    // The size of a fragment is not a multiple of 4 or of the size of a buffer.
    let mut pieces = message.chunks(70_001).peekable();
    while let Some(piece) = pieces.next() {
        let last = if pieces.peek().is_none() { LAST } else { 0 };
        client.0.write_all(&words(&[last | piece.len() as u32])).unwrap();
        client.0.write_all(piece).unwrap();
    }
    assert_eq!(client.receive(), success(1, &words(&[1])));
    // The same call in one fragment is a retransmission: the server does not run it again.
    assert_eq!(client.ask(&message), success(1, &words(&[1])));
    assert_eq!(world.runs(), 1);
}

#[test]
fn client_that_sends_half_a_record_delays_no_other() {
    let world = World::new("half");
    let mut halves: Vec<_> = (0..50)
        .map(|_| {
            let mut client = world.tcp();
            client.0.write_all(&words(&[LAST | 52, 7, 0, 2])).unwrap();
            client
        })
        .collect();
    let mut whole = world.tcp();
    assert_eq!(whole.ask(&count(1)), success(1, &words(&[1])));
    for (n, client) in halves.iter_mut().enumerate() {
        client.0.write_all(&count(7)[12..]).unwrap();
        // All clients have the same host and send the same call, but none gets the reply to another client.
        assert_eq!(client.receive(), success(7, &words(&[n as u32 + 2])), "{n}");
    }
    assert_eq!(world.runs(), 51);
}
