//! Exports any Rust text as an interface file of another RPC system.
#![no_main]

#[path = "../src/exports.rs"]
mod exports;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exports::run(bytes));
