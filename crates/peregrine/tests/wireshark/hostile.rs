//! Malformed input: packets, messages and every vector of the documents, cut at each length and changed in
//! each byte. The dissector shows what it can. It must never fail.

use std::fmt::Write as _;

use crate::document::vectors;
use crate::pcap::{Connection, Frames, PORT, To};
use crate::samples::{messages, packets, with_checks};
use crate::tshark::Tshark;

/// The bits that are changed in each byte.
const CHANGES: [u8; 4] = [1, 0x10, 0x80, 0xff];

/// Adds bytes as a datagram, as a frame of raw Ethernet, and as a new TCP connection.
fn add_everywhere(frames: &mut Frames, bytes: &[u8]) {
    frames.udp(PORT, To::Server, bytes);
    frames.ethernet(bytes);
    frames.ethernet(&[&[0, 1, 0, 2], bytes].concat());
    add_connection(frames, bytes);
}

/// Adds bytes as a new TCP connection.
fn add_connection(frames: &mut Frames, bytes: &[u8]) {
    Connection::new(frames.len(), PORT).send(frames, To::Server, bytes);
}

/// Returns copies of `bytes`, each with one changed byte.
fn changed(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..bytes.len()).flat_map(move |at| {
        CHANGES.map(|change| {
            let mut other = bytes.to_vec();
            other[at] ^= change;
            other
        })
    })
}

#[track_caller]
fn check(tshark: &Tshark, frames: &Frames) {
    let failures = tshark.failures(frames);
    let mut first = String::new();
    failures.iter().take(5).for_each(|row| writeln!(first, "{row:?}").expect("memory"));
    assert!(failures.is_empty(), "{} of {} frames:\n{first}", failures.len(), frames.len());
}

#[test]
fn changed_packets_do_no_harm() {
    let Some(tshark) = Tshark::new() else { return };
    let mut frames = Frames::default();
    let mut send = |packet: &[u8]| frames.udp(PORT, To::Server, packet);
    for (_, packet) in packets() {
        // The bodies of packets that bind end with many zeros.
        let used = packet
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| (last + 8).min(packet.len()));
        send(&packet);
        changed(&packet[..used]).for_each(|mut other| {
            other.extend(&packet[used..]);
            send(&other);
            // With right checks, the dissector goes on to read the contents.
            send(&with_checks(other));
        });
        send(&packet);
    }
    check(&tshark, &frames);
}

#[test]
fn truncated_packets_do_no_harm() {
    let Some(tshark) = Tshark::new() else { return };
    let mut frames = Frames::default();
    for (_, packet) in packets() {
        for length in 0..packet.len() {
            frames.udp(PORT, To::Server, &packet[..length]);
            frames.udp(PORT, To::Server, &with_checks(packet[..length].to_vec()));
            // The capture is cut short, but the packet was complete.
            frames.ethernet(&[&[0, 1, 0, 2], &packet[..]].concat());
            frames.keep_only(14 + 4 + length);
        }
    }
    check(&tshark, &frames);
}

#[test]
fn changed_messages_do_no_harm() {
    let Some(tshark) = Tshark::new() else { return };
    let mut frames = Frames::default();
    for (_, message) in messages() {
        changed(&message).for_each(|other| add_connection(&mut frames, &other));
    }
    check(&tshark, &frames);
    // The same, when the dissector knows the binding and has the call.
    let mut frames = Frames::default();
    let mut connection = Connection::new(1, PORT);
    for (is_from_client, message) in messages() {
        let to = if is_from_client { To::Server } else { To::Client };
        connection.send(&mut frames, to, &message);
        for mut other in changed(&message) {
            // These bytes say how long the message is, and that it is one.
            let size = other.len();
            other[..8].copy_from_slice(&message[..8]);
            other[28..32].copy_from_slice(&message[28..32]);
            connection.send(&mut frames, to, &other[..size]);
        }
    }
    check(&tshark, &frames);
}

#[test]
fn truncated_messages_do_no_harm() {
    let Some(tshark) = Tshark::new() else { return };
    let mut frames = Frames::default();
    for (_, message) in messages() {
        for length in 0..message.len() {
            add_connection(&mut frames, &message[..length]);
            add_connection(&mut frames, &message);
            frames.keep_only(14 + 20 + 20 + length);
            // A body that is shorter than its kind needs.
            let mut shorter = message.clone();
            shorter[..4].copy_from_slice(&(length as u32).to_le_bytes());
            add_connection(&mut frames, &shorter);
        }
    }
    check(&tshark, &frames);
}

#[test]
fn vectors_of_the_documents_do_no_harm() {
    let Some(tshark) = Tshark::new() else { return };
    let mut frames = Frames::default();
    for pattern in vectors().values() {
        let bytes: Vec<u8> = pattern.iter().map(|byte| byte.unwrap_or(0)).collect();
        (0..=bytes.len()).for_each(|length| add_everywhere(&mut frames, &bytes[..length]));
        // The same as the body of a call and of a reply, and of all that a server says.
        for kind in [1, 2, 4, 65, 66, 67, 70] {
            let words = [1, 5, 0xffff_fffd, bytes.len() as u32, 0];
            add_connection(&mut frames, &crate::samples::message(kind, words, &bytes, &bytes));
        }
    }
    check(&tshark, &frames);
    let mut frames = Frames::default();
    for pattern in vectors().values() {
        let bytes: Vec<u8> = pattern.iter().map(|byte| byte.unwrap_or(0)).collect();
        changed(&bytes).step_by(3).for_each(|other| add_everywhere(&mut frames, &other));
    }
    check(&tshark, &frames);
}

#[test]
fn failure_of_a_script_is_detected() {
    let Some(tshark) = Tshark::new() else { return };
    let mut frames = Frames::default();
    frames.udp(9, To::Server, b"four");
    assert!(tshark.failures(&frames).is_empty());
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("wrong.lua");
    let text = "local wrong = Proto('wrong', 'Wrong')\n\
        function wrong.dissector(tvb) return tvb:range(9, 1):uint() end\n\
        DissectorTable.get('udp.port'):add(9, wrong)\n";
    std::fs::write(&script, text).unwrap();
    let option = format!("lua_script:{}", script.display());
    let tshark = tshark.with(&["-X", &option]);
    assert_eq!(tshark.failures(&frames).len(), 1);
}
