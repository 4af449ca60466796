//! Parses any text as a description of an interface, in each of the forms that a description has.
#![no_main]

#[path = "../src/descriptions.rs"]
mod descriptions;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| descriptions::run(bytes));
