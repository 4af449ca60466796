//! Passes any message with any header to a server stub.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::server::run(bytes));
