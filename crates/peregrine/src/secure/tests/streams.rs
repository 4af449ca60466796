//! The seal of a TCP stream: what counts as sent, and what was received but not taken.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::net::sockopt;

use super::super::refusal::{PeerReason, Refusal};
use super::super::stream::Sealed;
use super::super::tls::{Client, Server, Wire};
use super::{expected, keys, pair};
use crate::device::tcp::{Listener, Stream, WaitFor};
use crate::secure::{Identity, tls};
use crate::sys::Parts;
use crate::value::{Space, Window};

const LONG: Duration = Duration::from_secs(20);

fn connected() -> [Stream; 2] {
    let listener = Listener::listen(&([127, 0, 0, 1], 0).into()).unwrap();
    let addresses = [listener.address().unwrap()];
    let until = Instant::now() + LONG;
    let client = Stream::connect(&addresses, LONG, until).unwrap();
    let (server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.prepare(None).unwrap();
    }
    [client, server]
}

/// Makes the handshake of two ends. Returns their outcomes.
fn shake(
    streams: &mut [Stream; 2],
    client: &Client,
    server: &Server,
) -> [Result<Arc<Sealed>, io::Error>; 2] {
    let address = std::net::Ipv4Addr::LOCALHOST.into();
    let ends = [
        Arc::new(Sealed::client(client, address, |_| None).unwrap()),
        Arc::new(Sealed::server(server, |_| None, [].into()).unwrap()),
    ];
    let mut outcomes = [None, None];
    while outcomes.iter().any(Option::is_none) {
        for ((end, stream), outcome) in ends.iter().zip(&*streams).zip(&mut outcomes) {
            if outcome.is_none() {
                match end.shake_hands(stream.as_fd()) {
                    Ok(Some(_)) => std::thread::yield_now(),
                    Ok(None) => *outcome = Some(Ok(Arc::clone(end))),
                    Err(error) => *outcome = Some(Err(error)),
                }
            }
        }
    }
    for (stream, end) in streams.iter_mut().zip(ends) {
        stream.set_seal(end);
    }
    outcomes.map(Option::unwrap)
}

fn sealed() -> [Stream; 2] {
    let (client, server, _) = pair(Wire::Stream);
    let mut streams = connected();
    for outcome in shake(&mut streams, &client, &server) {
        outcome.unwrap();
    }
    streams
}

/// Receives what has arrived into a place of random size.
fn receive(stream: &Stream, room: [usize; 2], into: &mut Vec<u8>) -> io::Result<usize> {
    let (mut first, mut then) = (vec![0; room[0]], vec![0; room[1]]);
    let bytes = stream.receive_two(&mut first, Space::of_mut(&mut then), false)?;
    let all = [first, then].concat();
    into.extend_from_slice(&all[..bytes]);
    Ok(bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// A full socket takes parts of records. Whatever it takes, the messages arrive, and a message that
    /// counts as sent arrives without any further operation of the sender.
    #[test]
    fn message_counts_as_sent_when_all_its_ciphertext_is_sent(
        messages in prop::collection::vec(32_usize..200_000, 1..5),
        rooms in prop::collection::vec([1_usize..40, 0_usize..50_000], 1..8),
    ) {
        let [client, server] = sealed();
        sockopt::set_socket_send_buffer_size(&client, 8 << 10).unwrap();
        let (mut sent, mut received, mut turn) = (Vec::new(), Vec::new(), 0);
        let mut read = |received: &mut Vec<u8>| {
            turn += 1;
            receive(&server, rooms[turn % rooms.len()], received)
        };
        for (number, bytes) in messages.iter().enumerate() {
            let message: Vec<u8> = (0..*bytes).map(|at| (at * 31 / 7 + number) as u8).collect();
            let (head, body) = message.split_at(32);
            let mut at = 0;
            while at < message.len() {
                // Each attempt names what is left of the message anew, as the queues of messages do.
                let mut parts = Parts::new();
                for part in [head, body] {
                    parts.push(Window::from(part));
                }
                parts.advance(at);
                match client.send(&mut parts, false) {
                    Ok(()) => at = message.len() - parts.left(),
                    Err(error) => {
                        prop_assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                        prop_assert_eq!(parts.left(), message.len() - at);
                        let now = Instant::now();
                        if server.wait(WaitFor::Readable, Some(now)).unwrap().readable {
                            let _ = read(&mut received);
                        } else {
                            // An acknowledgement is still under way.
                            let ready = client.wait(WaitFor::Writable, Some(now + LONG)).unwrap();
                            prop_assert!(ready.writable);
                        }
                    }
                }
            }
            sent.extend_from_slice(&message);
        }
        while received.len() < sent.len() {
            let ready = server.wait(WaitFor::Readable, Some(Instant::now() + LONG)).unwrap();
            prop_assert!(ready.readable, "bytes that count as sent do not arrive");
            match read(&mut received) {
                Ok(bytes) => prop_assert!(bytes > 0),
                Err(error) => prop_assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        prop_assert!(received == sent);
        prop_assert!(!server.holds_received() || read(&mut received).is_err());
    }
}

#[test]
fn bytes_that_were_received_but_not_taken_are_known() {
    let [client, server] = sealed();
    for message in [&b"first"[..], b"second"] {
        let mut parts = Parts::new();
        parts.push(Window::from(message));
        client.send(&mut parts, false).unwrap();
        assert!(parts.is_empty());
    }
    let mut all = Vec::new();
    while all.is_empty() {
        server.wait(WaitFor::Readable, Some(Instant::now() + LONG)).unwrap();
        let _ = receive(&server, [1, 0], &mut all);
    }
    // The socket may be empty now, but a thread must not sleep.
    assert!(server.holds_received());
    assert!(server.wait(WaitFor::Readable, Some(Instant::now())).unwrap().readable);
    while all.len() < 11 {
        let _ = receive(&server, [2, 1], &mut all);
    }
    assert_eq!(all, b"firstsecond");
    let error = receive(&server, [1, 0], &mut all).unwrap_err();
    assert_eq!((error.kind(), server.holds_received()), (io::ErrorKind::WouldBlock, false));
    client.shut_down_sending();
    server.wait(WaitFor::Readable, Some(Instant::now() + LONG)).unwrap();
    assert_eq!(receive(&server, [1, 0], &mut all).unwrap(), 0);
}

#[test]
fn refused_client_learns_why_with_its_first_receive() {
    let (ada, bob) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let client = tls::client(&ada, &keys(&[&bob]), expected("127.0.0.1"), Wire::Stream);
    let server = tls::server(&bob, &keys(&[&bob]), Wire::Stream);
    let mut streams = connected();
    let [one, other] = shake(&mut streams, &client, &server);
    let refusal = |error: io::Error| {
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        error.downcast::<Refusal>().unwrap()
    };
    assert_eq!(refusal(other.err().unwrap()), Refusal::UnknownKey { key: ada.public_key() });
    // In TLS 1.3, the client has ended its handshake before the server has seen the client's certificate.
    assert_eq!(one.unwrap().peer().unwrap().fingerprint(), bob.fingerprint());
    streams[0].wait(WaitFor::Readable, Some(Instant::now() + LONG)).unwrap();
    let mut first = [0; 8];
    let error = loop {
        match streams[0].receive(&mut first, true) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => break outcome.unwrap_err(),
        }
    };
    assert_eq!(refusal(error), Refusal::RefusedByPeer(PeerReason::UnknownKey));
    let mut parts = Parts::new();
    parts.push(Window::from(&b"never"[..]));
    assert_eq!(streams[0].send(&mut parts, false).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

/// A server that stops says so, and may receive for some time after that.
#[test]
fn invalid_bytes_after_the_end_was_announced_are_ignored() {
    let [client, server] = sealed();
    server.shut_down_sending();
    // A record of 5 bytes that no key has encrypted, written to the socket itself.
    let forged = [23, 3, 3, 0, 5, 1, 2, 3, 4, 5];
    rustix::net::send(client.as_fd(), &forged, rustix::net::SendFlags::empty()).unwrap();
    server.wait(WaitFor::Readable, Some(Instant::now() + LONG)).unwrap();
    let mut all = Vec::new();
    let error = receive(&server, [1, 0], &mut all).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    client.shut_down_sending();
    let end = Instant::now() + LONG;
    // The announcement of the client may arrive before the end of its bytes.
    while !matches!(receive(&server, [1, 0], &mut all), Ok(0)) && Instant::now() < end {
        server.wait(WaitFor::Readable, Some(end)).unwrap();
    }
    assert_eq!(receive(&server, [1, 0], &mut all).unwrap(), 0);
    assert!(all.is_empty());
}
