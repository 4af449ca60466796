//! Tests that a second implementation of Courier, in Python, and Peregrine understand each other: over TCP in
//! records, in frames and in Cooper's form, and over UDP in packets. The directory `interop` contains the
//! Python implementation. docs/INTEROP.md lists what was tested. The tests are skipped if Python is not
//! installed.

mod clients;
#[path = "../support/foreign.rs"]
mod foreign;
mod program;
mod python;
mod servers;

/// The Rust text of the interface file. The tests of `peregrine-idl` check that the text is what the importer
/// prints.
#[allow(dead_code, missing_docs, unreachable_pub, clippy::enum_variant_names, clippy::use_self)]
mod interop {
    include!("imported/interop.txt");
}

/// The forms in which both sides send calls, by the names that the Python program uses.
const CARRIERS: [&str; 4] = ["tcp-rm", "tcp-spp", "cooper", "udp"];
/// The forms of [`CARRIERS`] that send the messages of the standard.
const STANDARD: [&str; 3] = ["tcp-rm", "tcp-spp", "udp"];
