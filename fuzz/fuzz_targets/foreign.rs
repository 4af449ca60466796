//! Decodes any bytes as values in XDR and Courier.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::foreign::run(bytes));
