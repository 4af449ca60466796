//! A host between a client and a server loses, repeats, reorders, changes and invents packets of their
//! handshake.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::sealed::handshakes(bytes));
