//! Parses arbitrary bytes as the parameters that the ends of a handshake over packets tell each other. What
//! is parsed and emitted again is the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::parameters(bytes));
