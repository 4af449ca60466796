//! Passes arbitrary bytes to a server of TLS, and changes the bytes of a connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::sealed::streams(bytes));
