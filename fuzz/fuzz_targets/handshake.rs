//! Parses messages of either side of the handshake. When a parsed message is emitted again, the bytes are the
//! same except for padding.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::handshake::run(bytes));
