//! A server stub with any message and any header.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::server::run(bytes));
