//! Runs the interpreted client and server stubs of any description on any message.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::dynamic::run(bytes));
