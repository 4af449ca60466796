//! Checks that the code writes and reads the bytes in `docs/REPRESENTATION.md`, `docs/FOREIGN.md`,
//! `docs/PROTOCOL.md` and `docs/STAT.md`.
//!
//! A vector is a name and the bytes that belong to it. The vectors are in the documents, in blocks marked
//! `golden`, and these tests read them there. [`values`] encodes and decodes values, and [`libraries`] does
//! the same with values of library types. [`calls`] compares the calls and replies of stubs with the
//! documents, and [`streams`] compares the parts of calls that belong to streams. [`representations`] checks
//! values in XDR and Courier. (`simulation/courier/golden.rs` of `peregrine-simulation` checks the messages
//! of Courier.) In [`foreign`], a client calls a hand-written server of the local path.

#![cfg(target_endian = "little")]

mod calls;
mod document;
mod foreign;
mod identity;
mod libraries;
mod representations;
mod streams;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;

use calls::{BIG_CASES, CASES, SERVER_CASES};
use document::{check, parse, pattern, vectors};
use foreign::HANDSHAKE;
use values::{INVALID, VALUES};

/// Each vector of a document is checked by a test.
#[test]
fn every_vector_is_checked_by_a_test() {
    let of_values = VALUES.iter().chain(INVALID).chain(libraries::VALUES).chain(libraries::INVALID);
    let held: BTreeSet<&str> =
        of_values.chain(HANDSHAKE).chain(streams::STREAMS).copied().collect();
    // `simulation/courier/golden.rs` of `peregrine-simulation` checks the vectors of Courier's messages.
    let is_elsewhere = |name: &str| representations::is_own(name) || name.starts_with("Courier ");
    for name in vectors().keys().filter(|name| !is_elsewhere(name)) {
        if let Some(little) = name.strip_prefix("big ") {
            let case = ["call ", "reply "].iter().find_map(|part| little.strip_prefix(part));
            let of_case = case.is_some_and(|case| BIG_CASES.contains(&case));
            assert!(of_case || held.contains(little), "no test checks `{name}`");
            continue;
        }
        let of_case = CASES.iter().chain(SERVER_CASES).any(|case| {
            let parts = [format!("call {case}"), format!("reply {case}")];
            parts.iter().any(|part| name == part || *name == format!("{part} header"))
        });
        assert!(of_case || held.contains(&**name), "no test checks `{name}`");
    }
    for name in held {
        pattern(name);
    }
}

#[test]
fn vectors_that_differ_are_noticed() {
    let mut vectors = BTreeMap::new();
    parse("```golden\na: 01 | ..*2 ..\n   ff # more\n```\nb: 02\n", &mut vectors);
    assert_eq!(vectors["a"], [Some(1), None, None, None, Some(255)]);
    assert_eq!(vectors.len(), 1);
    let wrong = catch_unwind(|| check("u16", &[0x34, 0x13]));
    let short = catch_unwind(|| check("u16", &[0x34]));
    assert!(wrong.is_err() && short.is_err());
}
