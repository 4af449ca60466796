//! Reads any bytes as messages of Courier, as streams of such messages, and as packets.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::courier::message(bytes));
