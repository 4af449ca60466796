//! Runs the client's end of a handle with any packets, timers and cancellations, in any order. A handle is
//! the identifier of one caller, which makes one call at a time to one export.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::exchange::client_end(bytes));
