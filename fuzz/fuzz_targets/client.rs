//! Passes any reply to a client stub. The stub returns a result or an error, and only valid values.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::client::run(bytes));
