//! Runs the interpreted stubs of any description at either end, with any message.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::dynamic::run(bytes));
