//! Tests of how packets that bind are written and read, and dialogues between a client and a server that
//! bind.

use super::super::header::set_version;
use super::*;
use proptest::prelude::*;

fn request() -> BindRequest {
    BindRequest {
        name: ExportName::new(b"files").expect("a name"),
        digest: Some([9; 16]),
        handles: 2,
        piece: 1408,
        result_bytes_max: 1 << 20,
        credits: 256,
        payload_check: false,
    }
}

fn grant(handles: &[GrantedHandle]) -> Grant {
    Grant { piece: 1408, call_bytes_max: 1 << 20, credits: 64, ..Grant::new(5, 6, [9; 16]) }
        .with(handles)
}

fn read(packet: &[u8; BIND_BYTES]) -> (Header, Option<BindMessage>) {
    let (header, body) = packet.split_first_chunk().expect("a header");
    let header = Header::parse(header, body.len()).expect("a valid header");
    (header, BindMessage::parse(&header, body))
}

#[test]
fn messages_are_read_back_and_damage_is_detected() {
    let handle = Handle { place: 3, secret: [4; 12] };
    let handles = [GrantedHandle { handle, generation: 0x8765_4321 }; HANDLES_MAX];
    let all = [
        BindMessage::Hello(false),
        BindMessage::Hello(true),
        BindMessage::Cookie([3; 16], None),
        BindMessage::Cookie([3; 16], Some(LinkLocation { hardware: [4; 6], endpoint: [5, 6] })),
        BindMessage::Bind([3; 16], request()),
        BindMessage::Bind([3; 16], BindRequest { digest: None, payload_check: true, ..request() }),
        BindMessage::Bound(grant(&handles)),
        BindMessage::Unbound(BindRefusal::new(7, &"é".repeat(1000))),
    ];
    for message in all {
        let mut packet = [0xaa; BIND_BYTES];
        message.emit([1; 12], 2, 3, &mut packet);
        let (header, read_back) = read(&packet);
        assert_eq!(read_back, Some(message));
        for at in HEADER_BYTES..BIND_BYTES {
            packet[at] ^= 4;
            assert_eq!(BindMessage::parse(&header, &packet[HEADER_BYTES..]), None);
            packet[at] ^= 4;
        }
    }
}

#[test]
fn cookie_is_valid_for_one_client_and_two_slots() {
    let cookies = Cookies::new([1; 16]);
    let at = |slots: u64| Moment(slots * SLOT + 5);
    let cookie = cookies.make(at(7), b"here", &[2; 12]);
    assert!(cookies.verify(at(7), b"here", &[2; 12], &cookie));
    assert!(cookies.verify(at(8), b"here", &[2; 12], &cookie));
    assert!(!cookies.verify(at(9), b"here", &[2; 12], &cookie));
    assert!(!cookies.verify(at(6), b"here", &[2; 12], &cookie));
    assert!(!cookies.verify(at(7), b"there", &[2; 12], &cookie));
    assert!(!cookies.verify(at(7), b"here", &[3; 12], &cookie));
    assert!(!Cookies::new([2; 16]).verify(at(7), b"here", &[2; 12], &cookie));
}

/// Runs the exchange for a cookie, and then the exchange for handles. The first `HELLO` is lost.
#[test]
fn client_is_bound_after_two_exchanges() {
    let cookies = Cookies::new([1; 16]);
    let mut binding = BindExchange::new(Moment(0), [8; 12], request());
    let mut packet = [0; BIND_BYTES];
    assert_eq!(binding.poll_send(Moment(0), &mut packet), Some(()));
    assert_eq!(binding.poll_send(Moment(1), &mut packet), None);
    let again = binding.next_timer().expect("a timer is set");
    assert_eq!(binding.poll_send(again, &mut packet), Some(()));
    let (hello, _) = read(&packet);
    let body = &packet[HEADER_BYTES..];
    let Some(BindAction::SendCookie(cookie, false)) = cookies.asked(again, b"here", &hello, body)
    else {
        panic!("the server sent no cookie")
    };
    let then = again.after(3 * MILLISECOND);
    BindMessage::Cookie(cookie, None).emit([8; 12], 1, hello.serial, &mut packet);
    let (header, _) = read(&packet);
    assert!(binding.handle(then, &header, &packet[HEADER_BYTES..]));
    assert_eq!(binding.poll_send(then, &mut packet), Some(()));
    let (bind, _) = read(&packet);
    let asked = cookies.asked(then, b"here", &bind, &packet[HEADER_BYTES..]);
    assert_eq!(asked, Some(BindAction::Decide(request())));
    let elsewhere = cookies.asked(then, b"there", &bind, &packet[HEADER_BYTES..]);
    assert!(matches!(elsewhere, Some(BindAction::SendCookie(_, false))));
    let handle = Handle { place: 1, secret: [5; 12] };
    let grant = grant(&[GrantedHandle { handle, generation: 9 }]);
    BindMessage::Bound(grant).emit([8; 12], 2, bind.serial, &mut packet);
    let (header, _) = read(&packet);
    assert!(binding.handle(then.after(50), &header, &packet[HEADER_BYTES..]));
    assert_eq!(binding.outcome(), Some(&BindOutcome::Granted(grant, 50)));
    assert!(!binding.handle(then.after(60), &header, &packet[HEADER_BYTES..]));
}

/// Each answer takes longer than the client waits before it retransmits.
#[test]
fn round_trip_of_retransmitted_packets_is_measured() {
    const ROUND_TRIP: u64 = 1600 * MILLISECOND;
    let mut binding = BindExchange::new(Moment(0), [8; 12], request());
    let mut packet = [0; BIND_BYTES];
    let grant =
        grant(&[GrantedHandle { handle: Handle { place: 1, secret: [5; 12] }, generation: 9 }]);
    let mut begun = Moment(0);
    for answer in [BindMessage::Cookie([3; 16], None), BindMessage::Bound(grant)] {
        assert_eq!(binding.poll_send(begun, &mut packet), Some(()));
        let (first, _) = read(&packet);
        let answered = begun.after(ROUND_TRIP);
        while let Some(due) = binding.next_timer().filter(|due| *due < answered) {
            assert_eq!(binding.poll_send(due, &mut packet), Some(()));
        }
        let (last, _) = read(&packet);
        assert!(last.serial > first.serial, "the packet was not retransmitted");
        answer.emit([8; 12], 1, first.serial, &mut packet);
        let (header, _) = read(&packet);
        assert!(binding.handle(answered, &header, &packet[HEADER_BYTES..]));
        begun = answered;
    }
    assert_eq!(binding.outcome(), Some(&BindOutcome::Granted(grant, ROUND_TRIP)));
}

/// The echo of the answer is the serial of a packet that was never sent.
#[test]
fn answer_to_a_packet_never_sent_is_not_measured() {
    for echo in [0, 2, u16::MAX] {
        let mut binding = BindExchange::new(Moment(0), [8; 12], request());
        let mut packet = [0; BIND_BYTES];
        assert_eq!(binding.poll_send(Moment(0), &mut packet), Some(()));
        BindMessage::Cookie([3; 16], None).emit([8; 12], 1, echo, &mut packet);
        let (header, _) = read(&packet);
        assert!(binding.handle(Moment(50), &header, &packet[HEADER_BYTES..]));
        assert_eq!(binding.round_trip, WAIT_FIRST);
    }
}

#[test]
fn request_for_the_location_gets_only_the_location() {
    let cookies = Cookies::new([1; 16]);
    for there in [None, Some(LinkLocation { hardware: [4; 6], endpoint: [5, 6] })] {
        let mut binding = BindExchange::locating(Moment(0), [8; 12]);
        let mut packet = [0; BIND_BYTES];
        assert_eq!(binding.poll_send(Moment(0), &mut packet), Some(()));
        let (hello, _) = read(&packet);
        let asked = cookies.asked(Moment(1), b"here", &hello, &packet[HEADER_BYTES..]);
        let Some(BindAction::SendCookie(cookie, true)) = asked else { panic!("{asked:?}") };
        BindMessage::Cookie(cookie, there).emit([8; 12], 1, hello.serial, &mut packet);
        let (header, _) = read(&packet);
        assert!(binding.handle(Moment(2), &header, &packet[HEADER_BYTES..]));
        assert_eq!(binding.outcome(), Some(&BindOutcome::Location(there)));
        assert_eq!(binding.poll_send(Moment(9 * SECOND), &mut packet), None);
    }
}

#[test]
fn silent_server_ends_the_exchange() {
    let mut binding = BindExchange::new(Moment(0), [8; 12], request());
    let mut packets = 0;
    while let Some(due) = binding.next_timer() {
        packets += u32::from(binding.poll_send(due, &mut [0; BIND_BYTES]).is_some());
        assert!(due < Moment(20 * SECOND));
    }
    // The client sends ten packets of this version, and two that ask for the previous version.
    assert_eq!((packets, binding.outcome()), (12, Some(&BindOutcome::NoAnswer)));
}

/// In the same time, a client that knows a short round trip sends eight packets, and a client that does not
/// know the round trip sends five.
#[test]
fn known_round_trip_shortens_the_waits() {
    let packets = |mut binding: BindExchange| {
        while let Some(due) = binding.next_timer().filter(|due| *due <= Moment(2 * SECOND)) {
            assert_eq!(binding.poll_send(due, &mut [0; BIND_BYTES]), Some(()));
        }
        binding.tries
    };
    let new = || BindExchange::new(Moment(0), [8; 12], request());
    assert_eq!(packets(new()), 5);
    assert_eq!(packets(new().over_round_trip(SECOND)), 5);
    assert_eq!(packets(new().over_round_trip(MILLISECOND)), 8);
}

/// Advances a client to its next timer, at which it sends a packet. Returns the packet.
fn next(binding: &mut BindExchange) -> [u8; BIND_BYTES] {
    let mut packet = [0; BIND_BYTES];
    let due = binding.next_timer().expect("a timer is set");
    assert_eq!(binding.poll_send(due, &mut packet), Some(()));
    packet
}

#[test]
fn server_of_the_previous_version_is_recognized() {
    let mut binding = BindExchange::new(Moment(0), [8; 12], request());
    let packets: Vec<_> = (0..4).map(|_| next(&mut binding)).collect();
    assert_eq!(packets.iter().map(|packet| packet[2]).collect::<Vec<_>>(), [3, 3, 3, 2]);
    // A server of the previous version answers.
    let mut answer = [0; BIND_BYTES];
    BindMessage::Cookie([3; 16], None).emit([8; 12], 0, 4, &mut answer);
    set_version(answer.first_chunk_mut().expect("a header"), 2);
    let mut damaged = answer;
    damaged[100] ^= 1;
    assert!(!binding.receive(Moment(9), &damaged));
    assert!(binding.receive(Moment(9), &answer));
    assert_eq!(binding.outcome(), Some(&BindOutcome::OtherVersion(2)));
}

#[test]
fn client_of_another_version_is_answered_in_its_version() {
    for version in [2, 4] {
        let mut hello = [0; BIND_BYTES];
        BindMessage::Hello(false).emit([8; 12], 5, 0, &mut hello);
        set_version(hello.first_chunk_mut().expect("a header"), version);
        let mut answer = versions::refuse(&hello, 7).expect("an answer");
        assert_eq!(answer[2], version);
        set_version(answer.first_chunk_mut().expect("a header"), 3);
        let (header, message) = read(&answer);
        assert_eq!((header.handle.secret, header.echo), ([8; 12], 5));
        let Some(BindMessage::Unbound(denial)) = message else { panic!("{message:?}") };
        let text = String::from_utf8_lossy(denial.text()).into_owned();
        assert_eq!(denial.kind, 7);
        assert_eq!(
            text,
            format!(
                "the server speaks version 3 of the packet protocol, this client version \
                 {version}: use the same release on both sides"
            )
        );
        // A packet that is too short gets no answer. A packet that is not a request gets no answer either.
        assert!(versions::refuse(&hello[..BIND_BYTES - 1], 7).is_none());
        hello[3] = PacketKind::Unbound as u8;
        set_version(hello.first_chunk_mut().expect("a header"), version);
        assert!(versions::refuse(&hello, 7).is_none());
    }
}

proptest! {
    #[test]
    fn no_body_makes_the_parser_panic(
        mut body in proptest::collection::vec(any::<u8>(), BODY_BYTES),
        kind in 0..5usize,
        count: u8,
    ) {
        let kinds = [PacketKind::Hello, PacketKind::Cookie, PacketKind::Bind, PacketKind::Bound, PacketKind::Unbound];
        body[37] = 0;
        body[36] = count % 20;
        let check = checksum(&body);
        let header = Header {
            flags: Flags::CHECKED, check, ..Header::new(kinds[kind], Handle::default(), 0)
        };
        if let Some(message) = BindMessage::parse(&header, &body) {
            let mut packet = [0; BIND_BYTES];
            message.emit([0; 12], 0, 0, &mut packet);
            prop_assert_eq!(read(&packet).1, Some(message));
        }
    }
}
