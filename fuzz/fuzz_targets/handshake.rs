//! Messages of either side of the handshake: a message that is parsed is emitted again in the same bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::handshake::run(bytes));
