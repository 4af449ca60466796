//! The client's end of a handle, fed with any packets, timers and changes of mind in any order.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::exchange::client_end(bytes));
