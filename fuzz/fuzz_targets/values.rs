//! Decodes values of many types from any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::values::run(bytes));
