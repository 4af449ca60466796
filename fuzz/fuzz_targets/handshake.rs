//! Messages of the handshake, of either side: what is read is written again as it was.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::handshake::run(bytes));
