//! Makes calls of several clients to a server of packet Courier, over a network with faults of every kind.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::courier::packets(bytes));
