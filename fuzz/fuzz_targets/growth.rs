//! Binds clients to servers that have another interface, and lets the client stub convert any message.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::growth::run(bytes));
