//! Takes values of XDR and Courier from any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::foreign::run(bytes));
