//! Passes any reply to a client stub. The stub returns a result whose values are all valid, or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::client::run(bytes));
