//! Runs the server's end of a handle, with any packets in any order.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::exchange::server_end(bytes));
