//! Compares the words of an A-stack with a model of the table in `docs/PROTOCOL.md`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::words::run(bytes));
