//! Imports any text as an interface file of ONC RPC.
#![no_main]

#[path = "../src/onc.rs"]
mod onc;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onc::run(bytes));
