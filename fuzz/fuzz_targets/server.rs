//! A server stub, on any message under any header.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::server::run(bytes));
