//! Makes calls of several clients to a server of packet Courier, over a network whose faults the input
//! selects.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::courier::packets(bytes));
