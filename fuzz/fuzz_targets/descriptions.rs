//! Parses descriptions of interfaces, in each of their forms.
#![no_main]

#[path = "../src/descriptions.rs"]
mod descriptions;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| descriptions::run(bytes));
