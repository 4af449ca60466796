//! Messages over TCP at all borders of segments: wherever a stream is cut, the result is the same.

use crate::pcap::{Connection, Frames, PORT, To};
use crate::samples::messages;
use crate::tshark::Tshark;

const FIELDS: [&str; 12] = [
    "peregrine.message.kind",
    "peregrine.message.number",
    "peregrine.message.body",
    "peregrine.message.binding",
    "peregrine.procedure",
    "peregrine.answer",
    "peregrine.method",
    "peregrine.extension.deadline",
    "peregrine.batch.kind",
    "peregrine.streams.kind",
    "peregrine.error.text",
    "peregrine.blocks",
];

/// The messages of a client, and those of its server. The messages of each come one after the other, so each
/// call has a number of its own.
fn directions() -> [Vec<Vec<u8>>; 2] {
    [true, false].map(|client| {
        let sent = messages().into_iter().filter(|(from_client, _)| *from_client == client);
        let mut number = 100;
        sent.map(|(_, mut message)| {
            if matches!(message[4], 4 | 70) {
                number += 1;
                message[8] = number;
            }
            message
        })
        .collect()
    })
}

/// Adds a connection over which both sides send their bytes in pieces that end at `cuts`.
fn add(frames: &mut Frames, client: usize, cuts: &[usize], sent: &[Vec<u8>; 2]) {
    let mut connection = Connection::new(client, PORT);
    for (bytes, to) in sent.iter().zip([To::Server, To::Client]) {
        let mut from = 0;
        for cut in cuts.iter().copied().filter(|cut| *cut < bytes.len()).chain([bytes.len()]) {
            connection.send(frames, to, &bytes[from..cut]);
            from = cut;
        }
    }
}

/// Returns the values of each field, and the texts about messages, of each of `count` connections.
fn contents(tshark: &Tshark, frames: &Frames, count: usize) -> Vec<Vec<String>> {
    let mut fields = vec!["tcp.stream", "_ws.col.Info"];
    fields.extend(FIELDS);
    let mut found = vec![vec![Vec::new(); FIELDS.len() + 1]; count];
    for row in tshark.rows(frames, "peregrine", &fields) {
        let connection = &mut found[row[0].parse::<usize>().expect("a number")];
        connection[0].extend(row[1].split(" | ").map(str::to_owned));
        for (values, value) in connection[1..].iter_mut().zip(&row[2..]) {
            values.extend(value.split(',').filter(|value| !value.is_empty()).map(str::to_owned));
        }
    }
    found
        .into_iter()
        .map(|fields| fields.into_iter().map(|values| values.join(",")).collect())
        .collect()
}

#[test]
fn result_is_the_same_wherever_a_stream_is_cut() {
    let Some(tshark) = Tshark::new() else { return };
    let (mut frames, messages) = (Frames::default(), directions());
    let sent = messages.each_ref().map(|messages| messages.concat());
    let longest = sent[0].len().max(sent[1].len());
    // In one segment, then with each border, then with segments of each small size.
    let mut cuts: Vec<Vec<usize>> = vec![vec![]];
    cuts.extend((1..longest).map(|cut| vec![cut]));
    cuts.extend([1, 2, 3, 7, 31, 33].map(|size| (size..longest).step_by(size).collect()));
    for (cuts, client) in cuts.iter().zip(1..) {
        add(&mut frames, client, cuts, &sent);
    }
    let found = contents(&tshark, &frames, cuts.len());
    let kinds: Vec<String> =
        messages.concat().iter().map(|message| message[4].to_string()).collect();
    assert_eq!(found[0][1], kinds.join(","));
    for (cuts, other) in cuts.iter().zip(&found) {
        assert_eq!(other, &found[0], "cut at {:?}", &cuts[..cuts.len().min(2)]);
    }
    assert!(tshark.failures(&frames).is_empty());
    let wrong = "peregrine.malformed || peregrine.cut_short || peregrine.not_aligned";
    assert!(tshark.rows(&frames, wrong, &["frame.number"]).is_empty());
}

#[test]
fn message_beyond_the_limit_is_not_reassembled() {
    let Some(tshark) = Tshark::new() else { return };
    let tshark = tshark.with(&["-o", "peregrine.memory:1"]);
    let mut connection = Connection::new(1, PORT);
    let mut frames = Frames::default();
    let message = crate::samples::message(4, [1, 5, 0, 8, 8], &vec![1; 2 << 20], &[]);
    message.chunks(1 << 15).for_each(|part| connection.send(&mut frames, To::Server, part));
    // The dissector finds the next message that begins a segment.
    connection.send(
        &mut frames,
        To::Server,
        &crate::samples::message(5, [1, 0, 0, 0, 0], &[], &[]),
    );
    let summaries = tshark.summaries(&frames, "peregrine");
    assert_eq!(summaries.first().map(String::as_str), Some("call 1, incomplete"));
    assert_eq!(summaries.last().map(String::as_str), Some("Cancellation of call 1"));
    assert_eq!(summaries.len(), frames.len());
    let noted = tshark.rows(&frames, "peregrine.not_reassembled", &["frame.number"]);
    assert_eq!(noted, [["1"]]);
    assert!(tshark.failures(&frames).is_empty());
}
