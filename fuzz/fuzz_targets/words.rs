//! The words of an A-stack against the table of `docs/PROTOCOL.md`, written once more as a model.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::words::run(bytes));
