//! Compares the names and numbers of the dissector with those of the documents. These tests fail if a
//! document gets a kind, a flag or an error that the dissector does not know.

use std::collections::BTreeMap;
use std::path::Path;

use crate::tshark::{Tshark, script};

/// Names by their numbers.
type Names = BTreeMap<u64, String>;

fn document(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::read_to_string(docs.join(name)).expect("a document")
}

/// Returns the part of a document from the heading `from` to the next heading of the same level, or of level 2.
fn part<'t>(text: &'t str, from: &str) -> &'t str {
    let level = &from[..from.find(' ').expect("a heading")];
    let rest = text.split_once(&format!("\n{from}\n")).unwrap_or_else(|| panic!("{from}")).1;
    let rest = rest.split("\n## ").next().expect("a part");
    rest.split(&format!("\n{level} ")).next().expect("a part")
}

/// Returns the rows of all tables: their cells.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    lines.map(|line| line.split('|').map(str::trim).collect())
}

/// Returns the values that the dissector has for a field.
fn values_of(values: &str, field: &str) -> Names {
    let values = values.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let values = values.filter(|words| words[0] == "V" && words[1] == field);
    values.map(|words| (words[2].parse().expect("a number"), words[3].to_owned())).collect()
}

fn names<S: Into<String>>(list: impl IntoIterator<Item = (u64, S)>) -> Names {
    list.into_iter().map(|(number, name)| (number, name.into())).collect()
}

/// Returns the kinds of packets in part 9 of PROTOCOL.md: those of the table, and those that bind.
fn packet_kinds(protocol: &str) -> Names {
    let header = part(protocol, "### The header");
    let mut kinds = Names::new();
    for row in rows(header).filter(|row| row.len() == 4 && row[0].starts_with('`')) {
        if let Ok(number) = row[1].parse() {
            kinds.insert(number, row[0].trim_matches('`').to_owned());
        }
    }
    // The kinds that bind are in one row, with their first and last number.
    let row = rows(header).find(|row| row[0].contains("` ... `")).expect("the kinds that bind");
    let first: u64 =
        row[1].split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
    let last: u64 =
        row[1].rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number");
    let bodies = rows(part(protocol, "### Binding")).map(|row| row[0]);
    let binding: Vec<&str> =
        bodies.filter_map(|cell| cell.strip_prefix('`')?.strip_suffix('`')).collect();
    assert_eq!(binding.len() as u64, last - first + 1, "{binding:?}");
    kinds.extend((first..=last).zip(binding.iter().map(|name| (*name).to_owned())));
    kinds
}

/// Returns the kinds of messages in part 8: each begins a list item, as in `* *bind*, 1: ...`.
fn message_kinds(protocol: &str) -> Names {
    let items = part(protocol, "## 8. The stream path").lines();
    let items = items.filter_map(|line| line.strip_prefix("* *")?.split_once("*, "));
    let number = |rest: &str| rest.split(':').next().and_then(|number| number.parse().ok());
    items.filter_map(|(name, rest)| Some((number(rest)?, name.to_owned()))).collect()
}

/// Returns the flags of packets: names with their bits, as in `PLEASE 1 (requests an answer), RESENT 2`.
fn packet_flags(protocol: &str) -> Names {
    let header = part(protocol, "### The header");
    let flags = header.split("¹ ").nth(2).expect("the note about flags");
    let flags = flags.split(';').next().expect("the list").replace('\n', " ");
    let flags = flags.split(", ").map(|flag| flag.split(' '));
    let flag = |mut words: core::str::Split<'_, char>| {
        let name = words.next().expect("a name").to_owned();
        (words.next().and_then(|bit| bit.parse().ok()).expect("a bit"), name)
    };
    flags.map(flag).collect()
}

/// Returns the numbers in the first cells of the rows between two texts.
fn numbers(text: &str, from: &str, to: &str) -> Vec<u64> {
    let text = text.split_once(from).expect(from).1;
    rows(text.split(to).next().expect(to)).filter_map(|row| row[0].parse().ok()).collect()
}

#[test]
fn kinds_of_packets_and_messages_are_those_of_the_protocol() {
    let Some(tshark) = Tshark::new() else { return };
    let (values, protocol) = (tshark.print(&["-G", "values"]), document("PROTOCOL.md"));
    let packets = packet_kinds(&protocol);
    assert_eq!(packets.len(), 16);
    assert_eq!(values_of(&values, "peregrine.packet.kind"), packets);
    let messages = message_kinds(&protocol);
    assert_eq!(messages.len(), 11);
    assert_eq!(values_of(&values, "peregrine.message.kind"), messages);
    // A new kind in a document is found.
    let more =
        protocol.replace("| `ASK` | 15 |", "| `MORE` | 17 | client | more |\n| `ASK` | 15 |");
    assert_eq!(packet_kinds(&more).get(&17).map(String::as_str), Some("MORE"));
    let more = protocol.replace("* *reply*, 70:", "* *more*, 71: no body.\n* *reply*, 70:");
    assert_eq!(message_kinds(&more).get(&71).map(String::as_str), Some("more"));
}

#[test]
fn flags_of_packets_are_those_of_the_protocol() {
    let Some(tshark) = Tshark::new() else { return };
    let fields = tshark.print(&["-G", "fields"]);
    let flags = fields.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let flags =
        flags.filter(|words| words[0] == "F" && words[2].starts_with("peregrine.packet.flags."));
    let flags = flags.map(|words| {
        let bit = u64::from_str_radix(words[6].trim_start_matches("0x"), 16).expect("a bit");
        (bit, words[1].split(':').next().expect("a name").to_owned())
    });
    let expected = packet_flags(&document("PROTOCOL.md"));
    assert_eq!(expected.len(), 6);
    assert_eq!(flags.collect::<Names>(), expected);
}

#[test]
fn numbers_in_contents_are_those_of_the_documents() {
    let Some(tshark) = Tshark::new() else { return };
    let values = tshark.print(&["-G", "values"]);
    let (protocol, representation) = (document("PROTOCOL.md"), document("REPRESENTATION.md"));
    let known = |field: &str| values_of(&values, field).into_keys().collect::<Vec<_>>();
    let tags = numbers(&protocol, "### Extensions", "```golden");
    assert_eq!((tags.len() >= 3, known("peregrine.extension.tag")), (true, tags));
    let records = numbers(&protocol, "| kind | sent by | what |", "**Credit.**");
    assert_eq!((records.len() >= 6, known("peregrine.streams.kind")), (true, records));
    let batch = include_str!("../../src/call/batch.rs");
    let batch =
        batch.split_once("pub(crate) enum RecordKind {").and_then(|(_, rest)| rest.split_once('}'));
    let batch: Vec<u64> = batch
        .expect("the kinds of records")
        .0
        .lines()
        .filter_map(|line| line.split_once(" = ")?.1.trim_end_matches(',').parse().ok())
        .collect();
    assert_eq!((batch.len() >= 4, known("peregrine.batch.kind")), (true, batch));
    // Answers are list items such as `* 0, `Ok`: ...`. Kinds of errors are in a table of two halves.
    let replies = part(&representation, "## 5. The message of a reply");
    let answers = replies.lines().filter_map(|line| line.strip_prefix("* ")?.split_once(", `"));
    let answers =
        answers.filter_map(|(number, rest)| Some((number.parse().ok()?, rest.split('`').next()?)));
    assert_eq!(values_of(&values, "peregrine.answer"), names(answers));
    let mut errors = Names::new();
    for row in rows(replies).filter(|row| row.len() == 5) {
        for cells in [&row[..2], &row[3..]] {
            if let Ok(number) = cells[0].parse() {
                errors.insert(number, cells[1].trim_matches('`').to_owned());
            }
        }
    }
    assert_eq!(errors.len(), 19);
    assert_eq!(values_of(&values, "peregrine.error.kind"), errors);
}

#[test]
fn versions_are_those_of_the_protocol() {
    let (script, protocol) = (std::fs::read_to_string(script()).unwrap(), document("PROTOCOL.md"));
    let after = |beginning: &str| {
        let line =
            protocol.lines().find_map(|line| line.strip_prefix(beginning)).expect("a version");
        line.trim_end_matches(" |").trim().parse::<u8>().expect("a number")
    };
    let [packet, message] = ["| 2 | 1 | version of the wire:", "| 5 | 1 | version:"].map(after);
    assert!(
        script.contains(&format!("local PACKET_VERSION, MESSAGE_VERSION = {packet}, {message}\n"))
    );
}

#[test]
fn fields_and_settings_that_the_documents_name_exist() {
    let Some(tshark) = Tshark::new() else { return };
    let fields = tshark.print(&["-G", "fields"]);
    let settings = tshark.print(&["-G", "defaultprefs"]);
    let words = |line: &str| line.split('\t').nth(2).map(str::to_owned);
    let mut known: Vec<String> = fields.lines().filter_map(words).collect();
    let settings =
        settings.lines().filter_map(|line| line.strip_prefix("#peregrine.")?.split_once(':'));
    known.extend(settings.map(|(name, _)| format!("peregrine.{name}")));
    known.push("peregrine.lua".to_owned());
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_' || c == '.';
    let mut named = 0;
    for name in ["wireshark/README.md", "GUIDE.md"] {
        let text = document(name);
        let section = match name {
            "GUIDE.md" => part(&text, "### Packets in Wireshark"),
            _ => &text,
        };
        for (at, _) in section.match_indices("peregrine.") {
            let word = section[at..].split(|c| !is_part(c)).next().unwrap_or_default();
            let word = word.trim_end_matches('.');
            assert!(known.iter().any(|known| known == word), "{name}: `{word}` is unknown");
            named += 1;
        }
    }
    assert!(named > 15, "{named}");
}
