//! Binds clients to servers with another interface, and converts any message.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::growth::run(bytes));
