//! Imports any text as a program of Courier.
#![no_main]

#[path = "../src/courier.rs"]
mod courier;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| courier::run(bytes));
