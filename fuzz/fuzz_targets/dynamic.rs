//! Passes any message to the interpreted client stub and server stub of any description.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::dynamic::run(bytes));
