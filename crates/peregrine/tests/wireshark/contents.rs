//! What the dissector says about packets and messages: words in the column of information, fields, and the
//! links between calls and replies.

use crate::pcap::{Connection, ETHER_TYPE, Frames, PORT, To};
use crate::samples::{CHECKED, DIGEST, Packet, RESENT, messages, packets, with_checks};
use crate::tshark::Tshark;

/// A port at which the dissector does not expect Peregrine.
const OTHER_PORT: u16 = 40_404;

fn to(is_from_client: bool) -> To {
    if is_from_client { To::Server } else { To::Client }
}

/// All packets of the samples as datagrams between these ports.
fn datagrams(port: u16) -> Frames {
    let mut frames = Frames::default();
    for (is_from_client, packet) in packets() {
        frames.udp(port, to(is_from_client), &packet);
    }
    frames
}

/// All messages of the samples, each in a segment of its own.
fn connection(port: u16) -> Frames {
    let (mut frames, mut connection) = (Frames::default(), Connection::new(1, port));
    for (is_from_client, message) in messages() {
        connection.send(&mut frames, to(is_from_client), &message);
    }
    frames
}

const PACKETS: &[&str] = &[
    "Hello: asks where the server is on the link",
    "Cookie: the server is on the link",
    "Bind to `desk`",
    "Bound to `desk`: 1 handle",
    "Call 1 of `describe`",
    "Reply to call 1 of `describe`: Ok (Desk)",
    "Call 2 of `add`",
    "Reply to call 2 of `add`: Ok",
    "Call 3 of `look`",
    "Reply to call 3 of `look`: NotExecuted (Overloaded: too many calls wait)",
    "Call 4 of `batch` (2 one-way calls: `note`, `note`)",
    "Reply to call 4 of `batch`: Ok (1 record)",
    "Call 5 of `streams` (2 items of stream 7, credit of stream 8, no more wanted of stream 9)",
    "Reply to call 5 of `streams`: Ok (2 items of stream 7, credit of stream 8, no more wanted of stream 9)",
    "Call 6 of `oneway`",
    "Reply to call 6 of `oneway`: Err",
    "Bind refused: NotFound: no such export",
    "Acknowledgement of call 7: fragments 1 to 3 and 2 later",
    "Acknowledgement of call 7",
    "Acknowledgement of call 7, whose result was sent",
    "No room yet for call 7",
    "Acknowledgement of call 7: fragment 1",
    "Acknowledgement of the reply to call 7",
    "Question about the reply to call 7: fragments 1 to 2",
    "Probe of call 7",
    "Cancellation of call 7",
    "No part of call 7 runs",
    "Refusal of call 7: unknown handle",
    "Refusal of call 7: another address bound the handle",
    "Question: does the caller of call 7 still wait?",
    "Goodbye: the client does not need the handle any more",
];

const MESSAGES: &[&str] = &[
    "Describe `desk`",
    "Description of `desk`: interface `Desk`",
    "Bind to `desk`",
    "Bound to `desk`: binding 5",
    "Call 3 of `describe`",
    "Reply to call 3 of `describe`: Ok (Desk)",
    "Call 4 of `add`",
    "Reply to call 4 of `add`: Ok",
    "Call 3 of `look`",
    "Reply to call 3 of `look`: NotExecuted (Overloaded: too many calls wait)",
    "Call 4 of `batch` (2 one-way calls: `note`, `note`)",
    "Reply to call 4 of `batch`: Ok (1 record)",
    "Call 3 of `streams` (2 items of stream 7, credit of stream 8, no more wanted of stream 9)",
    "Reply to call 3 of `streams`: Ok (2 items of stream 7, credit of stream 8, no more wanted of stream 9)",
    "Call 4 of `oneway`",
    "Reply to call 4 of `oneway`: Err",
    "Call 9 of `look`",
    "Cancellation of call 9",
    "Keep-alive",
    "Reply to call 9 of `look`: NotExecuted (Overloaded: too many calls wait)",
    "Bind to `desk`",
    "Refused: Overloaded: too many calls wait",
    "Unbind binding 5",
    "The export of binding 5 was withdrawn",
    "Goodbye: calls without a reply were not executed",
];

#[test]
fn each_kind_of_packet_has_its_summary() {
    let Some(tshark) = Tshark::new() else { return };
    for port in [PORT, OTHER_PORT] {
        assert_eq!(tshark.summaries(&datagrams(port), "peregrine"), PACKETS);
        assert_eq!(tshark.summaries(&connection(port), "peregrine"), MESSAGES);
    }
    let mut frames = Frames::default();
    packets()
        .iter()
        .for_each(|(_, packet)| frames.ethernet(&[&[0, 1, 0, 2], &packet[..]].concat()));
    assert_eq!(tshark.summaries(&frames, "peregrine"), PACKETS);
    let ends = ["peregrine.packet.destination", "peregrine.packet.source"];
    assert_eq!(tshark.rows(&frames, "frame.number == 1", &ends), [["0x0001", "0x0002"]]);
}

#[test]
fn calls_and_replies_are_linked() {
    let Some(tshark) = Tshark::new() else { return };
    let fields = [
        "frame.number",
        "peregrine.method",
        "peregrine.interface",
        "peregrine.export",
        "peregrine.response_in",
        "peregrine.response_to",
        "peregrine.response_time",
    ];
    let call = ["7", "add", "Desk", "desk", "8", "", ""];
    let reply = ["8", "add", "Desk", "desk", "", "7", "0.000001000"];
    for frames in [datagrams(PORT), connection(PORT)] {
        assert_eq!(
            tshark.rows(&frames, "frame.number == 7 || frame.number == 8", &fields),
            [call, reply]
        );
    }
    // The number 4 of this connection is used for three calls. Each reply belongs to its own call.
    let links = ["frame.number", "peregrine.response_to"];
    let rows = tshark.rows(&connection(PORT), "peregrine.message.kind == 70", &links);
    let expected = [["6", "5"], ["8", "7"], ["10", "9"], ["12", "11"], ["14", "13"], ["16", "15"]];
    assert_eq!(rows[..6], expected);
    assert_eq!(rows[6..], [["20", "17"]]);
}

#[test]
fn fields_have_what_was_sent() {
    let Some(tshark) = Tshark::new() else { return };
    let digest = DIGEST.map(|byte| format!("{byte:02x}")).concat();
    let (packets, messages) = (datagrams(PORT), connection(PORT));
    let check = |frames: &Frames, number: usize, expected: &[(&str, &str)]| {
        let fields: Vec<String> =
            expected.iter().map(|(field, _)| format!("peregrine.{field}")).collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let found = tshark.rows(frames, &format!("frame.number == {number}"), &fields).remove(0);
        let values: Vec<&str> = expected.iter().map(|(_, value)| *value).collect();
        assert_eq!(found, values, "frame {number}: {fields:?}");
    };
    check(
        &packets,
        2,
        &[
            ("bind.cookie", "c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0"),
            ("bind.hardware", "02:00:00:00:00:02"),
            ("bind.endpoint", "0x1234"),
        ],
    );
    check(
        &packets,
        3,
        &[
            ("bind.name", "desk"),
            ("bind.digest", &digest),
            ("bind.piece", "1408"),
            ("bind.flags.payload_checks", "1"),
            ("bind.flags.any", "0"),
            ("bind.result_bytes", "1048576"),
            ("packet.nonce", "090909090909090909090909"),
            ("packet.payload_check.status", "1"),
        ],
    );
    check(
        &packets,
        4,
        &[
            ("bind.table", "0x0000000200000001"),
            ("bind.epoch", "0x0000000400000003"),
            ("bind.place", "3"),
            ("bind.generation", "6"),
            ("bind.secret", "0102030405060708ffffffff"),
        ],
    );
    check(
        &packets,
        7,
        &[
            ("packet.serial", "9"),
            ("packet.echo", "8"),
            ("packet.credits", "64"),
            ("packet.sequence", "1"),
            ("call", "2"),
            ("packet.extensions", "64"),
            ("extension.tag", "1,2,3"),
            ("extension.domain", "0x0000000000000007"),
            ("extension.process", "42"),
            ("extension.deadline", "1500"),
            ("extension.key", "place"),
            ("extension.value", "north"),
            ("head", "0200000003000000"),
            ("packet.check.status", "1"),
        ],
    );
    check(&packets, 18, &[("packet.next", "3"), ("packet.received", "5"), ("packet.bitmap", "06")]);
    check(&packets, 28, &[("packet.table", "0x0000000200000001"), ("packet.generation", "6")]);
    check(
        &messages,
        2,
        &[
            ("description.version", "2"),
            ("description.doc", "A desk."),
            ("description.process", "77"),
            ("description.age", "5"),
            ("description.endpoint", "udp:127.0.0.1:7193"),
            ("description.network", "0x0000000000000008"),
        ],
    );
    check(
        &messages,
        3,
        &[
            ("message.number", "2"),
            ("bind.given", "1"),
            ("bind.representation", "1"),
            ("bind.message_bytes", "1048576"),
            ("bind.calls", "8"),
            ("bind.process", "42"),
        ],
    );
    check(&messages, 7, &[("extension.deadline", "1500"), ("message.extensions", "40")]);
    for (frames, number) in [(&packets, 11), (&messages, 11)] {
        check(
            frames,
            number,
            &[
                ("batch.kind", "3,3"),
                ("batch.number", "1,2"),
                ("batch.procedure", "2,2"),
                ("method", "note,note"),
            ],
        );
        check(
            frames,
            number + 1,
            &[
                ("batch.pending", "2"),
                ("batch.slowest_us", "150"),
                ("batch.failed", "1"),
                ("batch.not_executed", "1"),
                ("batch.answer", "2"),
            ],
        );
        check(
            frames,
            number + 2,
            &[
                ("streams.number", "5"),
                ("streams.flags.open", "1"),
                ("streams.kind", "1,2,4"),
                ("streams.stream", "7,8,9"),
                ("streams.items", "2,0,0"),
                ("streams.credit", "0,262144,0"),
                ("streams.count", "4,3,1"),
                ("streams.reason", "full"),
            ],
        );
    }
    for frames in [&packets, &messages] {
        assert!(
            tshark
                .rows(frames, "peregrine.malformed || peregrine.bad_check", &["frame.number"])
                .is_empty()
        );
    }
}

/// A message of `count` fragments of 512 bytes each, without extensions, in the order of sending.
fn fragments(call: u32, count: u32) -> Vec<Packet> {
    let fragment = |fragment| Packet {
        kind: 1,
        call,
        total: count * 512,
        head: 8,
        fragment,
        piece: 512,
        payload: vec![fragment as u8; 512],
        ..Packet::default()
    };
    (1..count).chain([0]).map(fragment).collect()
}

#[test]
fn fragments_are_reassembled_in_any_order() {
    let Some(tshark) = Tshark::new() else { return };
    let mut frames = Frames::default();
    let mut parts = fragments(1, 4);
    parts.swap(0, 2);
    let again = Packet { flags: RESENT, ..parts[0].clone() };
    parts.insert(2, again.clone());
    parts.push(again);
    let mut send = |bytes: &[u8]| frames.udp(PORT, To::Server, bytes);
    parts.iter().for_each(|part| send(&part.to_bytes()));
    // A capture on the sending machine may have several packets in one datagram.
    send(&fragments(2, 4).iter().flat_map(Packet::to_bytes).collect::<Vec<u8>>());
    let summaries = [
        "Call 1 of procedure 0, fragment 3 of 4",
        "Call 1 of procedure 0, fragment 2 of 4",
        "Call 1 of procedure 0, fragment 3 of 4 [retransmission]",
        "Call 1 of procedure 0, fragment 1 of 4",
        "Call 1 of procedure 0, fragment 0 of 4",
        "Call 1 of procedure 0, fragment 3 of 4 [retransmission]",
        "Call 2 of procedure 0, fragment 1 of 4 | Call 2 of procedure 0, fragment 2 of 4 | \
         Call 2 of procedure 0, fragment 3 of 4 | Call 2 of procedure 0, fragment 0 of 4",
    ];
    assert_eq!(tshark.summaries(&frames, "peregrine"), summaries);
    let fields = [
        "frame.number",
        "peregrine.reassembled_in",
        "peregrine.reassembled_length",
        "peregrine.blocks",
    ];
    let rows = tshark.rows(&frames, "peregrine", &fields);
    let message: Vec<String> = (0..4).map(|part| format!("{part:02x}").repeat(512)).collect();
    let blocks = &message.concat()[32..];
    let found: Vec<[&str; 4]> = rows.iter().map(|row| [0, 1, 2, 3].map(|n| &*row[n])).collect();
    let before = |number| [number, "5", "", ""];
    let whole = |number| [number, "", "2048", blocks];
    let expected =
        [before("1"), before("2"), before("3"), before("4"), whole("5"), before("6"), whole("7")];
    assert_eq!(found, expected);
}

#[test]
fn memory_for_fragments_is_bounded() {
    let Some(tshark) = Tshark::new() else { return };
    let tshark = tshark.with(&["-o", "peregrine.memory:1"]);
    let mut frames = Frames::default();
    let mut send = |bytes: &[u8]| frames.udp(PORT, To::Server, bytes);
    // The first fragment of each of 3,000 messages, then the rest of the first and of the last of them.
    (1..=3000).for_each(|call| send(&fragments(call, 2)[0].to_bytes()));
    [1, 3000].iter().for_each(|call| send(&fragments(*call, 2)[1].to_bytes()));
    let fields = ["frame.number", "peregrine.reassembled_length"];
    let rows = tshark.rows(&frames, "peregrine.reassembled_length", &fields);
    assert_eq!(rows, [["3002", "1024"]]);
    let forgotten = tshark.rows(&frames, "peregrine.not_reassembled", &["frame.number"]);
    assert_eq!(forgotten.last(), Some(&vec!["3001".to_owned()]));
}

#[test]
fn damaged_and_incomplete_packets_are_shown_as_such() {
    let Some(tshark) = Tshark::new() else { return };
    let (mut frames, (_, call)) = (Frames::default(), packets().remove(6));
    let (_, bind) = packets().remove(2);
    let mut datagram = |bytes: &[u8]| frames.udp(PORT, To::Server, bytes);
    let with = |packet: &[u8], at: usize, byte: u8| {
        let mut packet = packet.to_vec();
        packet[at] = byte;
        packet
    };
    datagram(&with(&call, 30, 1));
    datagram(&with(&bind, 101, 1));
    datagram(&call[..40]);
    datagram(&call[..call.len() - 1]);
    datagram(&[&call[..], b"more"].concat());
    datagram(&with_checks(with(&call, 2, 2)));
    datagram(&with_checks(with(&call, 3, 17)));
    datagram(&with_checks(with(&call, 29, 2)));
    datagram(&call);
    frames.keep_only(14 + 20 + 8 + 60);
    let summaries = [
        "CALL [damaged]",
        "Bind to `desk` [damaged]",
        "Incomplete packet",
        "CALL, malformed: the packet is shorter than its header says",
        "Call 2 of procedure 0",
        "CALL of version 2",
        "unknown kind, malformed: there is no packet of kind 17",
        "CALL, malformed: unknown flags are set",
        "Incomplete packet",
    ];
    assert_eq!(tshark.summaries(&frames, "peregrine"), summaries);
    let with = |name: &str| tshark.values(&frames, &format!("peregrine.{name}"), "frame.number");
    assert_eq!(with("bad_check"), ["1", "2"]);
    assert_eq!(with("malformed"), ["3", "4", "5", "7", "8"]);
    assert_eq!(with("other_version"), ["6"]);
    assert_eq!(with("cut_short"), ["9"]);
}

#[test]
fn packets_of_other_protocols_are_left_alone() {
    let Some(tshark) = Tshark::new() else { return };
    let (_, call) = packets().remove(6);
    let mut damaged = call.clone();
    damaged[4] ^= 1;
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    // The last one has the magic of a message, but no message of this kind exists.
    let foreign: [&[u8]; 6] =
        [request, b"", b"PX", &[0; 64], &[0xff; 600], b"\0\0\0\0\x09\x01Pg and more"];
    let mut frames = Frames::default();
    for payload in foreign {
        for port in [PORT, OTHER_PORT] {
            frames.udp(port, To::Server, payload);
        }
        Connection::new(1, OTHER_PORT).send(&mut frames, To::Server, payload);
        frames.ethernet(payload);
        frames.ethernet(&[&[0, 1, 0, 2], payload].concat());
    }
    frames.udp(OTHER_PORT, To::Server, &damaged);
    assert_eq!(tshark.summaries(&frames, "peregrine || peregrine_eth || peregrine_tcp"), [""; 0]);
    assert!(tshark.failures(&frames).is_empty());
    let ports = format!("peregrine.udp_ports:{OTHER_PORT}");
    let tshark = tshark.with(&["-o", &ports]);
    assert_eq!(tshark.summaries(&frames, "peregrine"), ["CALL [damaged]"]);
    let ours = tshark.rows(&datagrams(PORT), "peregrine", &["frame.number"]);
    assert_eq!(ours.len(), PACKETS.len(), "packets with right checks are found at every port");
}

/// Returns which of the first `size` bytes at `from` no field of the dissector shows. `printed` is a packet in
/// the form PDML.
fn not_covered(printed: &str, from: usize, size: usize) -> Vec<usize> {
    let number = |line: &str, name: &str| -> Option<usize> {
        line.split(&format!(" {name}=\"")).nth(1)?.split('"').next()?.parse().ok()
    };
    let mut covered = vec![false; size];
    for line in printed.lines().filter(|line| line.contains("<field name=\"peregrine.")) {
        let (Some(at), Some(bytes)) = (number(line, "pos"), number(line, "size")) else { continue };
        (at..at + bytes)
            .filter(|at| (from..from + size).contains(at))
            .for_each(|at| covered[at - from] = true);
    }
    (0..size).filter(|at| !covered[*at]).collect()
}

#[test]
fn every_byte_of_a_call_is_shown() {
    let Some(tshark) = Tshark::new() else { return };
    let print = |frames: &Frames, number: usize| {
        let file = tshark.capture(frames);
        let filter = format!("frame.number == {number}");
        tshark.print(&["-r", file.to_str().expect("text"), "-2", "-Y", &filter, "-T", "pdml"])
    };
    let (udp, tcp) = (14 + 20 + 8, 14 + 20 + 20);
    for number in [5, 7, 8, 9, 10, 11] {
        // Bytes 56 to 59 are the check of the payload, which calls without such a check do not have.
        let packet = &packets()[number - 1].1;
        let checked = packet[28] & CHECKED as u8 != 0;
        let left_out = if checked { vec![] } else { (56..60).collect() };
        let found = not_covered(&print(&datagrams(PORT), number), udp, packet.len());
        assert_eq!(found, left_out, "packet {number}");
    }
    for number in [2, 5, 7, 10, 11] {
        let message = &messages()[number - 1].1;
        // A reply names no binding.
        let reply = if message[4] == 70 { (12..16).collect() } else { vec![] };
        let others = if message[4] == 67 { (12..28).collect() } else { reply };
        let found = not_covered(&print(&connection(PORT), number), tcp, message.len());
        assert_eq!(found, others, "message {number}");
    }
    assert_eq!(ETHER_TYPE, 0x88b5);
}
