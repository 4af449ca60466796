//! Tests the dissector for Wireshark (`docs/wireshark/peregrine.lua`) with captures that the tests write.
//! `tests/wireshark_calls.rs` captures the packets of real clients and servers.

mod contents;
#[path = "../golden/document.rs"]
#[allow(dead_code)]
mod document;
mod hostile;
mod names;
mod pcap;
mod samples;
mod segments;
mod tshark;
