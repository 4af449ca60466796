//! Dialogues of the two ends of a handshake, without TLS.

use proptest::prelude::*;

use super::*;

const NONCE: Nonce = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

fn read(packet: &[u8]) -> (Header, &[u8]) {
    let (header, body) = packet.split_first_chunk().expect("a header");
    (Header::parse(header, body.len()).expect("a valid header"), body)
}

/// Returns the next packet of an end.
fn next(end: &mut Shake, now: Moment) -> Option<(Vec<u8>, Level)> {
    let mut out = [0; SHAKE_BYTES_MAX];
    end.poll_send(now, &mut out).map(|(length, level)| (out[..length].to_vec(), level))
}

fn take(end: &mut Shake, now: Moment, packet: &[u8], level: Level) -> bool {
    let (header, body) = read(packet);
    end.receive(now, &header, body, level)
}

/// Returns a client that has a cookie, and 3 bytes to send.
fn client() -> Shake {
    let mut client = Shake::client(Moment(0), NONCE);
    client.write(Moment(0), Level::Clear, b"abc");
    let (hello, _) = next(&mut client, Moment(0)).expect("HELLO");
    assert_eq!((read(&hello).0.kind, hello.len()), (PacketKind::Hello, BIND_BYTES));
    let mut cookie = [0; BIND_BYTES];
    BindMessage::Cookie([9; 16], None).emit(NONCE, 1, 1, &mut cookie);
    assert!(take(&mut client, Moment(MILLISECOND), &cookie, Level::Clear));
    client
}

#[test]
fn client_repeats_what_is_not_acknowledged() {
    let mut client = client();
    let mut now = Moment(MILLISECOND);
    // The server is near, so the waits are short.
    for wait in [20, 40, 80, 160, 320, 640, 1000, 1000, 1000, 1000] {
        let (packet, level) = next(&mut client, now).expect("a packet");
        let (header, body) = read(&packet);
        let message = Message::parse(&header, body).expect("a message");
        assert_eq!((level, packet.len(), message.cookie), (Level::Clear, BIND_BYTES, [9; 16]));
        assert_eq!((message.offset, message.bytes), (0, &b"abc"[..]));
        assert_eq!(next(&mut client, now), None);
        let due = now.after(wait * MILLISECOND);
        assert_eq!(client.next_timer(), Some(due));
        now = due;
    }
    assert_eq!(next(&mut client, now), None);
    assert_eq!((client.end(), client.next_timer()), (Some(&End::NoAnswer), None));
}

#[test]
fn server_answers_each_packet_with_what_is_missing() {
    let now = Moment(MILLISECOND);
    let (mut client, mut server) = (client(), Shake::server(now, NONCE));
    assert_eq!(next(&mut server, now), None);
    let (packet, _) = next(&mut client, now).expect("a packet");
    assert!(take(&mut server, now, &packet, Level::Clear));
    assert_eq!(server.read(Level::Clear), b"abc");
    server.write(now, Level::Clear, b"defg");
    server.open(Level::Handshake);
    server.write(now, Level::Handshake, &[7; 9000]);
    let answer = |server: &mut Shake| -> Vec<_> {
        core::iter::from_fn(|| next(server, now))
            .map(|(packet, level)| (packet.len(), level))
            .collect()
    };
    let first = answer(&mut server);
    let levels: Vec<_> = first.iter().map(|(_, level)| *level).collect();
    assert_eq!(levels, [Level::Clear, Level::Handshake, Level::Handshake, Level::Handshake]);
    assert!(first[1..].iter().all(|(length, _)| length + TAG_BYTES == SHAKE_BYTES_MAX));
    // Nothing more is sent until a packet arrives. Then it is the same again.
    assert_eq!(answer(&mut server), []);
    assert!(take(&mut server, now, &packet, Level::Clear));
    assert_eq!(answer(&mut server), first);
    assert_eq!(server.read(Level::Clear), b"");
}

#[test]
fn packet_acknowledges_no_bytes_that_are_better_protected() {
    let now = Moment(0);
    let mut server = Shake::server(now, NONCE);
    server.open(Level::Handshake);
    server.write(now, Level::Handshake, b"secret");
    let forged = Message {
        cookie: [0; 16],
        level: Level::Clear,
        offset: 0,
        received: [9; 3],
        alert: None,
        bytes: b"",
    };
    let mut out = [0; SHAKE_BYTES_MAX];
    let length = forged.emit(NONCE, [1, 0], 0, &mut out);
    assert!(take(&mut server, now, &out[..length], Level::Clear));
    let (packet, level) = next(&mut server, now).expect("an answer");
    let (header, body) = read(&packet);
    let message = Message::parse(&header, body).expect("a message");
    assert_eq!((level, message.offset, message.bytes), (Level::Handshake, 0, &b"secret"[..]));
    // A message of another level than its keys is refused.
    assert!(!take(&mut server, now, &out[..length], Level::Handshake));
}

#[test]
fn server_that_makes_no_handshakes_ends_it() {
    let mut client = client();
    let mut out = [0; BIND_BYTES];
    BindMessage::Unbound(BindRefusal::new(5, "no TLS here")).emit(NONCE, 1, 1, &mut out);
    assert!(take(&mut client, Moment(0), &out, Level::Clear));
    assert!(
        matches!(client.end(), Some(End::Unbound(refusal)) if refusal.text() == b"no TLS here")
    );
    assert_eq!(next(&mut client, Moment(SECOND)), None);
}

#[test]
fn handshake_begins_with_a_valid_cookie_only() {
    let (cookies, now) = (Cookies::new([3; 16]), Moment(0));
    let right = cookies.make(now, b"here", &NONCE);
    let opening_of = |message: Message<'_>, bytes_min| {
        let mut out = [0; SHAKE_BYTES_MAX];
        let length = message.emit(NONCE, [1, 1], bytes_min, &mut out);
        let (header, body) = read(&out[..length]);
        opening(&cookies, now, b"here", &header, body)
    };
    let message = Message {
        cookie: right,
        level: Level::Clear,
        offset: 0,
        received: [0; 3],
        alert: None,
        bytes: b"abc",
    };
    assert_eq!(opening_of(message, BIND_BYTES), Some(Opening::Begin));
    let stale = Message { cookie: [0; 16], ..message };
    assert_eq!(opening_of(stale, BIND_BYTES), Some(Opening::SendCookie(right)));
    // An answer with a cookie must not be longer than its request.
    assert_eq!(opening_of(message, BIND_BYTES - 1), None);
    for other in [
        Message { level: Level::Handshake, ..message },
        Message { offset: 1, ..message },
        Message { alert: Some(40), ..message },
        Message { bytes: b"", ..message },
    ] {
        assert_eq!(opening_of(other, BIND_BYTES), None, "{other:?}");
    }
}

/// Compares a written packet with the example in `docs/PROTOCOL.md`.
#[test]
fn document_shows_the_bytes_of_a_packet_of_a_handshake() {
    let document = include_str!("../../../../../../docs/PROTOCOL.md");
    let (_, vector) =
        document.split_once("of a handshake, before it is sealed:\n").expect("a vector");
    let (_, vector) = vector.split_once("```text\n").expect("the vector");
    let (vector, _) = vector.split_once("```").expect("the end of the vector");
    let bytes = vector.split_whitespace().filter(|word| *word != "|");
    let bytes: Vec<u8> = bytes.map(|word| u8::from_str_radix(word, 16).expect("a byte")).collect();
    let message = Message {
        cookie: [0; 16],
        level: Level::Handshake,
        offset: 1172,
        received: [300, 0, 0],
        alert: None,
        bytes: &[0xab, 0xcd, 0xef],
    };
    let mut out = [0; SHAKE_BYTES_MAX];
    let length = message.emit(NONCE, [4, 2], 0, &mut out);
    let written: Vec<_> = out[..length].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(out[..length], bytes, "{}", written.join(" "));
}

proptest! {
    #[test]
    fn message_is_read_back_equal(
        (cookie, level, offset, received) in any::<([u8; 16], u8, u32, [u32; 3])>(),
        alert: Option<u8>,
        bytes in proptest::collection::vec(any::<u8>(), 0..=BYTES_MAX),
        bytes_min in 0..=BIND_BYTES,
    ) {
        let level = Level::ALL[usize::from(level) % LEVELS];
        let message = Message { cookie, level, offset, received, alert, bytes: &bytes };
        let mut out = [0xa5; SHAKE_BYTES_MAX];
        let length = message.emit(NONCE, [3, 4], bytes_min, &mut out);
        prop_assert!(length >= bytes_min && length + TAG_BYTES <= SHAKE_BYTES_MAX);
        let (header, body) = read(&out[..length]);
        prop_assert_eq!(Message::parse(&header, body), Some(message));
        let mut changed = body.to_vec();
        changed[offset as usize % body.len()] ^= 1;
        prop_assert_eq!(Message::parse(&header, &changed), None);
    }

    #[test]
    fn stream_is_put_together_from_any_parts(
        parts in proptest::collection::vec((0..300usize, 1..60usize), 1..80),
    ) {
        let whole: Vec<u8> = (0..400u32).map(|byte| byte as u8).collect();
        let (mut stream, mut have, mut read) = (Stream::default(), vec![false; 400], Vec::new());
        for (at, length) in parts {
            if stream.keep(at, &whole[at..at + length]) {
                have[at..at + length].fill(true);
            }
            let gap = have.iter().position(|have| !have).unwrap_or(400);
            prop_assert_eq!(stream.whole(), gap);
            prop_assert!(stream.parts.len() <= PARTS_MAX);
            let from = core::mem::replace(&mut stream.taken, gap);
            read.extend_from_slice(&stream.received[from..gap]);
        }
        prop_assert_eq!(&read[..], &whole[..read.len()]);
    }
}
