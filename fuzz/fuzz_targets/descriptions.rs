//! Descriptions of interfaces, in each of their forms.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::descriptions::run(bytes));
