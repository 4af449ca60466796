//! Parses messages of either side of the handshake. A parsed message is emitted again in the same bytes,
//! apart from padding.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::handshake::run(bytes));
