//! Parses a packet of the packet exchange, and the message about binding that the packet may contain.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::exchange::packets(bytes));
