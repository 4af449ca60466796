//! Compares the words of an A-stack, by which the two sides pass a call to each other, with a model. The
//! model follows the table in `docs/PROTOCOL.md`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::words::run(bytes));
