//! Interpreted stubs: any description, with any message, at either end.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::dynamic::run(bytes));
