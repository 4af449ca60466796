//! Messages of the handshake of either side: what is parsed is emitted again in the same bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::handshake::run(bytes));
